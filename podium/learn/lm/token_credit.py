"""Credit on tokens, and the token trees that a policy is trained on: read off traces alone, also stored ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.credit import Credit
from podium.credit.forest import contexts, copies, nodes, roots
from podium.credit.options import option_probability
from podium.engine.dialogue import Dialogue
from podium.engine.models import BadModel, PolicyModel, PolicyTeam, role_of
from podium.engine.options import Options
from podium.learn.lm.text_world import own_decisions
from podium.learn.lm.tree import Tree, tree_of
from podium.learn.unpaid import at_rows
from podium.trace.columns import F, Trace, ranges
from podium.trace.options import chosen_options

__all__ = ["Among", "TokenCredit", "among_of", "token_credit", "trees"]

N64 = NDArray[np.int64]


class TokenCredit(NamedTuple):
    """Tokens that are trained: credit and share of each token of a trace, 0 where there is nothing to learn."""

    credit_k: F
    share_k: F
    old_k: F  # log-probabilities that ratios are to: those on record, unless told
    entropy: float | None  # of a decision, on average, if options were weighed


def token_credit(
    trace: Trace,
    credit: Credit,
    *,
    entropy: float = 0.0,
    by_role: bool = False,
    even: float = 0.0,
    by_run: bool = False,
    skip_zeros: bool = False,
) -> TokenCredit:
    """The credit of each token, in units of its root mean square. Units without credit (NaN) are left out.

    Where other options were forced beside the one that was taken, all of them count as the policy would have said
    them, π_old: Σ_k π_k A_k ∇ log π_k is then over all options. Elsewhere what was said counts once. Copies of
    events in branches count nothing, nor does a token that nothing else could have come for. `entropy` h adds
    -h (log π + H) to the credit of a choice: the gradient of h times the entropy H of its options; `by_role`
    that of each role's mean. `by_run` every run counts the same. With `skip_zeros` what is paid 0 is not trained.

    `even` e weighs K options by (1 - e) π_k + e / K instead. With two, one better by Δ, the logit of that rises by
    Δ [q_1 (1 - π)² + q_2 π²] > 0: the way is the same, and an option that is never said is not forgotten.
    """
    owner = trace.owner_k
    spread_e, chosen_e, many_e = _odds(trace)
    beside_e = _beside(trace) & ~np.isnan(chosen_e)
    value_k = _value(trace, credit)
    trained_k = ~np.isnan(value_k) & ~np.isnan(trace.logp_k) & (trace.logp_k != 0.0)
    trained_k &= (trace.mask_k == 1) | beside_e[owner]
    trained_k &= ~copies(trace, np.arange(trace.n_events))[owner]
    if skip_zeros:
        trained_k &= value_k != 0.0
    weight_e = np.where(beside_e, (1 - even) * chosen_e + even / many_e, 1.0)
    share_k = np.where(trained_k, weight_e[owner], 0.0)
    if by_run:
        share_k = _alike(share_k, roots(trace)[trace.rollout_e][owner])
    credit_k = np.where(trained_k, value_k, 0.0)
    credit_k = credit_k / (np.sqrt((share_k * credit_k**2).sum() / max(float(share_k.sum()), 1e-12)) + 1e-12)
    if entropy:
        bonus_e = entropy * (np.log(np.maximum(chosen_e, 1e-300)) + spread_e)
        scale_k = _alike(share_k, _roles(trace)[owner]) / np.maximum(share_k, 1e-300) if by_role else 1.0
        credit_k = np.where(trained_k, credit_k - np.nan_to_num(bonus_e)[owner] * scale_k, 0.0)
    known = ~np.isnan(spread_e)
    mean = float(spread_e[known].mean()) if known.any() else None
    return TokenCredit(credit_k, share_k, trace.logp_k, mean)


def _alike(share: F, group: N64) -> F:
    """Shares such that all groups that have one have the same sum; the whole stays the same."""
    total = np.bincount(group, share)
    there = np.count_nonzero(total > 0)
    scaled: F = share * (total.sum() / (max(there, 1) * np.maximum(total, 1e-300)))[group]
    return scaled


def _roles(trace: Trace) -> N64:
    """The role of each event, by number."""
    names = [role_of(str(name)) for name in trace.name_a.strings()]
    number: N64 = np.unique([*names, ""], return_inverse=True)[1][trace.agent_e]
    return number


def _value(trace: Trace, credit: Credit) -> F:
    """For each token what the unit that it belongs to is paid, times its weight; NaN where that is nothing."""
    if credit.unit != "token":
        return at_rows(credit, trace.owner_k)
    value: F = credit.value if credit.weight is None else credit.value * credit.weight
    return value


def _odds(trace: Trace) -> tuple[F, F, F]:
    """Of each decision whose options were weighed, the entropy of their probabilities, the probability of the one
    taken, and how many there are; NaN elsewhere."""
    spread_e, chosen, many = (np.full(trace.n_events, np.nan) for _ in range(3))
    pi_o = np.exp(trace.logp_o) if "pi" not in trace.extra_e else option_probability(trace)
    rows = np.unique(trace.event_o[~np.isnan(pi_o)])
    first, count = trace.options_of(rows)
    place = ranges(first, count)
    parts = pi_o[place] * np.log(np.maximum(pi_o[place], 1e-300))
    spread_e[rows] = -np.bincount(np.repeat(np.arange(len(rows)), count), parts, minlength=len(rows))
    chosen[rows], many[rows] = np.append(pi_o, np.nan)[chosen_options(trace, rows)], count
    return spread_e, chosen, many


def _beside(trace: Trace) -> NDArray[np.bool_]:
    """Decisions that share their context with others, which decide otherwise; copies are none."""
    there = np.zeros(trace.n_events, np.bool_)
    own = own_decisions(trace)
    where = np.unique(contexts(trace, own), return_inverse=True)[1]
    there[own] = np.bincount(where, minlength=1)[where] > 1
    return there


Among = dict[int, tuple[int, ...]]  # by the place of a token, what could have come there


def trees(
    trace: Trace,
    pay: TokenCredit,
    policy: PolicyModel,
    team: PolicyTeam,
    family: N64 | None = None,
    among: Among | None = None,
) -> tuple[Tree, dict[str, Any]] | None:
    """The token tree of what a policy is trained on, and columns over its sampled nodes: credit, share, old, turn,
    run, and which token of the trace each is (`place`). None where there is nothing to train.

    `family` are the runs, by place, whose branches are wanted, with those that came from them.
    `among` is `among_of` of the trace, if it is known already.
    """
    trained_e = _trained_events(trace, pay, policy, team, family)
    if not trained_e.any():
        return None
    first = np.searchsorted(trace.owner_k, np.arange(trace.n_events + 1))
    node_e, among_k = nodes(trace, np.arange(trace.n_events)), among_of(trace, policy) if among is None else among
    places = [_path(trace, leaf, first) for leaf in _leaves(trace, trained_e)]
    trained_k = (pay.share_k > 0) & trained_e[trace.owner_k]
    twin_k = trained_k | _twins(trace, node_e, trained_k, first)
    owner_k = np.where(twin_k, node_e[trace.owner_k], -1)
    bound_k, weight_k = np.zeros(len(owner_k), np.bool_), pay.credit_k * pay.share_k
    bound_k[list(among_k)] = True
    bound_k &= owner_k >= 0

    def listed(p: N64) -> list[tuple[int, ...] | None]:
        row: list[tuple[int, ...] | None] = [None] * len(p)
        for i in np.flatnonzero(bound_k[p]).tolist():
            row[i] = among_k[int(p[i])]
        return row

    tree = tree_of(
        [trace.token_k[p] for p in places],
        [weight_k[p] for p in places],
        [trace.logp_k[p] for p in places],
        [trained_k[p] for p in places],
        [owner_k[p] for p in places],
        [listed(p) for p in places],
    )
    return tree, _columns(trace, pay, tree, np.concatenate(places), trained_k)


def _trained_events(
    trace: Trace, pay: TokenCredit, policy: PolicyModel, team: PolicyTeam, family: N64 | None
) -> NDArray[np.bool_]:
    """The events of a policy with tokens that are trained, in some families of runs."""
    trained_e = np.zeros(trace.n_events, np.bool_)
    trained_e[trace.owner_k[pay.share_k > 0]] = True
    if family is not None:
        wanted = np.zeros(len(trace), np.bool_)
        wanted[family] = True
        trained_e &= wanted[roots(trace)][trace.rollout_e]
    own_a = np.zeros(trace.n_agents, np.bool_)
    for agent in np.unique(trace.agent_e[trained_e]).tolist():
        own_a[agent] = team.of(str(trace.name_a[agent])) == policy.name
    return trained_e & own_a[trace.agent_e]


def _leaves(trace: Trace, trained_e: NDArray[np.bool_]) -> list[int]:
    """Events that no other trained one extends: those that lie on the way to another need no row of their own."""
    inner = np.zeros(trace.n_events, np.bool_)
    for row in np.flatnonzero(trained_e).tolist():
        up = int(trace.context_e[row])
        while up >= 0 and not inner[up]:
            inner[up] = True
            up = int(trace.context_e[up])
    leaves: list[int] = np.flatnonzero(trained_e & ~inner).tolist()
    return leaves


def _columns(
    trace: Trace, pay: TokenCredit, tree: Tree, token: N64, trained_k: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Columns over the nodes of a tree, 0 where one is not trained; `token` is which token each row of it lists."""
    columns, own = {}, trained_k[token]
    for name, values in (
        ("credit", pay.credit_k),
        ("share", pay.share_k),
        ("old", pay.old_k),
        ("turn", trace.owner_k.astype(np.int64)),
        ("run", trace.rollout_e[trace.owner_k].astype(np.int64)),
        ("place", np.arange(len(trace.owner_k))),
    ):
        column = np.zeros(len(tree), values.dtype)
        column[tree.node[own]] = values[token[own]]
        columns[name] = column
    return columns


def _twins(trace: Trace, node_e: N64, trained_k: NDArray[np.bool_], first: N64) -> NDArray[np.bool_]:
    """Tokens of copies whose own tokens, in the run that was branched, are trained: they are the same tokens."""
    twin = np.zeros(len(trained_k), np.bool_)
    owners = np.unique(trace.owner_k[trained_k])
    source = dict(zip(node_e[owners].tolist(), owners.tolist(), strict=True))
    copied = np.flatnonzero(copies(trace, np.arange(trace.n_events)))
    for row in copied[np.isin(node_e[copied], node_e[owners])].tolist():
        of = source[int(node_e[row])]
        twin[first[row] : first[row + 1]] = trained_k[first[of] : first[of + 1]]
    return twin


def _path(trace: Trace, row: int, first: N64) -> N64:
    """The places of all tokens of a generation's context and of its own, in order."""
    parts = []
    while row >= 0:
        parts.append(np.arange(first[row], first[row + 1]))
        row = int(trace.context_e[row])
    return np.concatenate(parts[::-1])


def among_of(trace: Trace, policy: PolicyModel) -> Among:
    """For tokens that were said under a grammar, where several could come, those that could."""
    among: Among = {}
    if "sampling" not in trace.extra_e:
        return among
    held_to = trace.extra_e.get("grammar")
    for row in [] if held_to is None else np.flatnonzero(held_to.codes >= 0).tolist():
        own = np.flatnonzero((trace.owner_k == row) & (trace.mask_k == 1))
        spec = msgspec.json.decode(str(held_to[row]))  # type: ignore[index]
        sets = Dialogue(policy.model).among(spec, trace.token_k[own].tolist())
        among |= {k: ids for k, ids in zip(own.tolist(), sets, strict=True) if len(ids) > 1}
    bound = [w in ('"constrained"', '"forced"') for w in trace.extra_e["sampling"].words] + [False]
    k = np.flatnonzero(~np.isnan(trace.logp_k) & np.array(bound)[trace.extra_e["sampling"].codes][trace.owner_k])
    cuts = [*np.flatnonzero(np.diff(trace.owner_k[k], prepend=-1)).tolist(), len(k)]
    rows = trace.owner_k[k[cuts[:-1]]]
    options = zip(*(column.tolist() for column in trace.options_of(rows)), strict=True)
    menus = dict[tuple[int, ...], Options]()
    labels, token, place = trace.label_o.codes.tolist(), trace.token_k[k].tolist(), k.tolist()
    for row, (start, stop), (first, count) in zip(rows.tolist(), pairwise(cuts), options, strict=True):
        menu = tuple(labels[first : first + count])
        if menu not in menus:
            menus[menu] = Options(policy.model.ids_of(trace.options(row)), policy.model.end)
        option = menus[menu].number.get(tuple(token[start:stop]))
        if option is None:
            raise BadModel(
                f"event {trace.id_e[row]}: what was said is none of its options in tokens of {policy.model.name}"
            )
        choices = zip(place[start:stop], menus[menu].among(option), strict=True)
        among |= [(k, ids) for k, ids in choices if len(ids) > 1]
    return among
