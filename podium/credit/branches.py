"""What a decision was worth, from runs that share all that came before it and decide otherwise.

A run that left its parent at a row is another choice in the same context (`forest`). An *alternative* of a context
is a node, one event of the forest with all runs through it, or an option: the runs that chose it and were free
after it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.forest import contexts, copies, nodes, roots
from podium.credit.groups import Alone, lonely
from podium.credit.keys import By, groups, numbered_together
from podium.credit.options import option_probability
from podium.credit.returns import column
from podium.graph.grouping import (
    count_by,
    count_of,
    first_by,
    mean_by,
    ratio,
    sum_by,
    take,
    total_by,
)
from podium.registry import register
from podium.trace.columns import B, F, I, Trace
from podium.trace.options import chosen_options

__all__ = ["Alternatives", "alternatives", "chance", "in_a_tree", "odds", "sums"]

Baseline = Literal["loo", "mean", "value", "policy"]
Same = Literal["node", "option"]


class Alternatives(NamedTuple):
    """The alternatives of all contexts. What ends on _u has one entry a unit, the rest one an alternative."""

    of_u: NDArray[np.int64]  # the alternative that a unit is
    counts_u: B  # whether its run tells what the alternative is worth
    context: NDArray[np.int64]  # ascending
    n: F  # runs that tell
    mean: F  # of what they earned, NaN if none tells


def alternatives(credit: Credit, same: Same = "option") -> Alternatives:
    """What each alternative earned.

    As an option its runs are those left free after it: where a run was forced later, decisions before are copies
    that tell nothing of the policy. As a node all runs through it.
    """
    if credit.unit in ("team", "agent", "role", "token"):
        raise BadCredit(
            f"alternatives are decisions, turns, messages or tool calls, not {credit.unit}; move credit with `to`"
        )
    if same not in ("node", "option"):
        raise BadCredit(f"same must be node or option, got {same!r}")
    trace, rows = credit.trace, credit.acts
    context = numbered_together(groups(credit, "batch"), contexts(credit.runs, rows))
    node = numbered_together(nodes(credit.runs, rows))
    counts_u = ~np.isnan(credit.value)
    if same == "option":
        node = _options_taken(trace, rows, node)
        counts_u &= ~copies(credit.runs, rows) & (trace.tells_n != 0)[credit.rollout]
    of_u = numbered_together(context, node)
    many = count_of(of_u)
    mean, n = mean_by(of_u, np.where(counts_u, credit.value, np.nan), many), count_by(of_u, counts_u, many)
    at = np.zeros(many, np.int64)
    at[of_u] = context
    return Alternatives(of_u, counts_u, at, n.astype(np.float64), mean)


def _options_taken(trace: Trace, rows: I, node: I) -> I:
    """The option taken at each row: its place among the options there, else the label, else the node that it is."""
    place, chosen = chosen_options(trace, rows), trace.chosen_e.codes[rows].astype(np.int64)
    listed = place - trace.options_of(rows)[0]
    most, words = count_of(listed), len(trace.chosen_e.words)
    return np.where(place >= 0, listed, np.where(chosen >= 0, chosen + most, node + most + words))


@register("step")
def same_prefix(
    credit: Credit,
    baseline: Baseline = "loo",
    value: str | None = None,
    mix: float = 1.0,
    same: Same = "node",
    alone: Alone = "nan",
    pi: str = "pi",
) -> Credit:
    """A choice is worth what it beat the other choices in the same context by.

        A_j = Q_j - b_j,   Q_j = mean R of the runs of alternative j,   over its context's alternatives k with runs:
        "loo"     b_j = (Σ_k w_k Q_k - w_j Q_j) / (Σ_k w_k - w_j)
        "mean"    b_j = Σ_k w_k Q_k / Σ_k w_k
        "value"   b_j = (1 - mix) loo_j(Q) + mix loo_j(V),   V the column `value`
        "policy"  b_j = Σ_k π_k Q_k / Σ_k π_k,   π = e^logp of the options, else the label `pi`

    same="node" (C3): an alternative is an event of the forest, and w its runs. same="option" (ours): it is the
    option taken, and w = 1, because how often an option was forced says nothing about it.
    pays: decisions, turns, messages.   needs: branches: none (NaN) for a run that no run branched from and that
    branched from none; one alternative alone in a run with branches by the rule `alone`.   from: C3; COMA for
    "policy".
    """
    alts = alternatives(credit, same)
    known = alts.n > 0
    weight = np.where(known, alts.n if same == "node" else 1.0, 0.0)
    if baseline == "loo":
        base = _others(alts, weight, alts.mean)
    elif baseline == "mean":
        base = _mean(alts, weight, alts.mean)
    elif baseline == "value":
        if value is None:
            raise BadCredit("same_prefix with baseline='value' needs the name of a column, value=...")
        worth = alternatives(credit.of(column(credit, value)), same)
        base = mix * _others(alts, np.where(worth.n > 0, weight, 0.0), worth.mean)
        base = base + (1.0 - mix) * _others(alts, weight, alts.mean) if mix != 1.0 else base
    elif baseline == "policy":
        base = _mean(alts, np.where(known, odds(credit, alts, pi), 0.0), alts.mean)
    else:
        raise BadCredit(f"baseline must be loo, mean, value or policy, got {baseline!r}")
    several = known & (sums(alts, known.astype(np.float64)) > 1)
    return lonely(credit, (alts.mean - base)[alts.of_u], ~several[alts.of_u], alone, in_a_tree(credit))


def in_a_tree(credit: Credit) -> I:
    """For each unit the tree of runs that its run is in; -1 where no run branched from its run, nor it."""
    root_n = roots(credit.runs)
    branched_n = (np.bincount(root_n)[root_n] > 1) | (credit.trace.parent_n.codes >= 0)
    return np.where(branched_n, root_n, -1)[credit.rollout]


def sums(alts: Alternatives, values: F) -> F:
    """Of each alternative the sum over its context."""
    first = np.flatnonzero(np.diff(alts.context, prepend=-1))
    if not len(first):
        return values
    total: F = np.repeat(np.add.reduceat(values, first), np.diff(first, append=len(values)))
    return total


def _others(alts: Alternatives, w: F, q: F) -> F:
    """The weighted mean of the other alternatives of the context; NaN if there is none."""
    weighted = np.where(w > 0, w * q, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: F = (sums(alts, weighted) - weighted) / (sums(alts, w) - w)
    return mean


def _mean(alts: Alternatives, w: F, q: F) -> F:
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: F = sums(alts, np.where(w > 0, w * q, 0.0)) / sums(alts, w)
    return mean


def odds(credit: Credit, alts: Alternatives, pi: str) -> F:
    """How likely the policy was to choose each alternative, by the first decision there that says; else 0."""
    trace, rows = credit.trace, credit.acts
    known_o = option_probability(trace, pi)
    chosen = np.empty(len(alts.context), np.int64)
    chosen[alts.of_u] = trace.chosen_e.codes[rows]
    first, many = trace.options_of(rows)
    tells = ~np.isnan(take(known_o, np.where(many > 0, first, -1)))
    at = first_by(alts.context[alts.of_u], tells, count_of(alts.context))[alts.context]
    place = np.where(at >= 0, chosen_options(trace, rows[at], chosen), -1)
    likely: F = np.nan_to_num(take(known_o, place))
    return likely


def chance(credit: Credit, alts: Alternatives) -> tuple[F, F]:
    """Per context, what outcomes of one option vary by, less what a seed shares: sums of squares, their freedom.

    Where several options share a seed, each of those runs is taken less their mean, and the square made up for
    that.
    """
    tellers = np.flatnonzero(alts.counts_u)
    value, of, where = credit.value[tellers], alts.of_u[tellers], alts.context[alts.of_u[tellers]]
    seed = credit.trace.seed_n.codes[credit.rollout[tellers]].astype(np.int64)
    alone = np.arange(len(seed)) + len(credit.trace.seed_n.words)
    luck = numbered_together(where, np.where(seed >= 0, seed, alone))
    size = np.bincount(luck)[luck]
    mean = np.bincount(luck, value)[luck] / size
    apart = np.where(size > 1, value - mean, value)
    kind = numbered_together(of, (size > 1).astype(np.int64))
    middle = mean_by(kind, apart, count_of(kind))[kind]
    square = (apart - middle) ** 2 * np.where(size > 1, ratio(size, size - 1), 1.0)
    many, first = count_of(alts.context), np.unique(kind, return_index=True)[1]
    freedom = np.bincount(where, minlength=many) - np.bincount(where[first], minlength=many)
    return total_by(where, square, many), freedom.astype(np.float64)


@register("step")
def cross_marginal(
    credit: Credit, how: Literal["sum", "mean"] = "sum", by: By = ("task", "agent", "turn")
) -> Credit:
    """What an agent wrote is worth what all teams that it was put together with earned: teammates are averaged out.

        A_i(g) = Σ or mean of R over the runs of the group in which agent i wrote g

    Units wrote the same if their `content_ref`, or without one their choice, is the same.
    pays: turns, messages, decisions.   needs: runs that are combinations of what agents wrote, else NaN.   from:
    CoMLRL's cross mode (MAGRPO).
    """
    if credit.unit in ("team", "agent", "role", "token"):
        raise BadCredit(f"cross_marginal pays turns, messages or decisions, not {credit.unit}")
    if how not in ("sum", "mean"):
        raise BadCredit(f"how must be sum or mean, got {how!r}")
    wrote = numbered_together(groups(credit, by), _written(credit.trace, credit.rows))
    total, many = sum_by(wrote, credit.value, count_of(wrote))
    return credit.where_known(take(total if how == "sum" else total / many, wrote))


def _written(trace: Trace, rows: I) -> I:
    content, chosen = trace.content_ref_e.codes[rows], trace.chosen_e.codes[rows]
    own = np.where(chosen >= 0, chosen.astype(np.int64) + len(trace.content_ref_e.words), -1)
    return np.where(content >= 0, content, own)
