"""The loop of language models: episodes as token-exact traces, branches, any method's credit, the packed update.

What is trained on is read off traces alone: tokens, contexts, log-probabilities and options. So it works as well on one that was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from podium.credit import BadCredit, Credit, apply
from podium.credit.forest import contexts, copies, nodes, roots
from podium.credit.options import option_probability
from podium.envs.draws import seeds
from podium.envs.world import World
from podium.learn.lm import packed
from podium.learn.lm.adapters import fused_norms
from podium.learn.lm.generate import Options
from podium.learn.lm.losses import Update, divergence, loss
from podium.learn.lm.models import BadModel, Mind, Team, out_of_memory
from podium.learn.lm.optimiser import adamw, shortened
from podium.learn.lm.play import Manner, answered, grown, options_of, recorded
from podium.learn.lm.tree import Tree, join, tree_of
from podium.learn.loop import TRIES, Stopwatch
from podium.learn.mix import shares
from podium.learn.policy import role_of
from podium.learn.requirements import with_step_rewards
from podium.learn.unpaid import at_rows, unpaid
from podium.methods import Method, scored
from podium.rewards.ledger import Now
from podium.trace.columns import F, Trace, ranges
from podium.trace.options import chosen_options
from podium.trace.vocabulary import DECISIONS

__all__ = [
    "Learner",
    "Lesson",
    "Paid",
    "Settings",
    "begin",
    "computing",
    "halving",
    "learned",
    "moved",
    "own_weights",
    "paid",
    "role_gradients",
    "speaking",
    "step",
    "trees",
    "updated",
    "voiced",
]

T = TypeVar("T")
N64 = NDArray[np.int64]
Worlds = Callable[[int, int], World]


@dataclass(frozen=True)
class Settings:
    """How language models learn: the table `[lm]` of a recipe."""

    model: str = "tiny"  # tiny, smollm2, or a folder
    iterations: int = 0  # instead of the recipe's, if above 0
    share: str = "one"  # one policy for all, one a role, or one an agent
    lora: int = 0  # rank of adapters on one base; 0: all weights
    frozen: tuple[str, ...] = ()  # policies that are not trained
    regime: str = (
        "B"  # A: only the lead's policy is trained; B: all together; C: all, each by its own scale of credit
    )
    episodes: int = 128  # of an iteration, branches not counted
    worlds: int = 1  # sets of parameters in an iteration; of a live team the runs of each task
    branched: float = 0.5  # of decisions, if the method needs branches
    even: float = 0.0  # how much of the weight of options that were forced beside each other is the same for all
    free: bool = False  # any text, read by the grammar; else only what the grammar allows can be said
    longest: int = 16  # tokens of a free answer
    digits: int = -1  # of figures in prompts, after the point; below 0 as they are
    most: int = 0  # decisions of an episode, instead of the recipe's, if above 0
    update: str = ""  # the rule; the method's own unless told
    rate: float = 1e-3  # of AdamW at the start; falls to 0
    warm: int = 0  # iterations in which the rate rises
    decay: float = 0.0  # of weights
    beta: float = 0.99  # of AdamW's squares
    norm: float = 1.0  # the longest gradient
    kl: float = 0.0  # on the divergence from the model as it was at the start; the update's own if 0
    entropy: float = 0.0  # at the start; falls to 0
    epochs: int = 2
    parts: int = 4  # of a batch, one gradient step each
    most_tokens: int = 1024  # computed at once in the update
    checkpointing: bool = False  # activations are computed again backwards
    dtype: str = "float32"  # or bfloat16: computed in it, weights and AdamW in float32
    spoken: str = ""  # the same while generating; as `dtype` if empty
    device: str = "cpu"
    compiled: bool = False  # layers are compiled for generation: worth it for long runs on a GPU
    threads: int = 1  # of the processor
    rows: int = 32  # contexts read at once in generation ...
    width: int = 32  # ... and tokens of each
    watched: int = 200  # episodes of a look at the regret ...
    judged: int = 1_000  # ... and of the judgement at the end
    endpoint: str | dict[str, str] = ""  # http://host:port that speaks for the policies, or for those named
    served: str = ""  # the name of the model there
    key_from: str = ""  # the variable of the environment that holds its key
    seconds: float = 60.0  # that an answer of it may take
    keep: int = 0  # every so many iterations the traces of one are kept in the run's folder
    params: dict[str, Any] = field(default_factory=dict)  # of the world, instead of draws


@dataclass
class Learner:
    """Everything that the next step depends on, beside the weights in the team."""

    team: Team
    seed: int
    m: dict[str, Any]
    v: dict[str, Any]
    reference: dict[str, Any]  # weights at the start, where a divergence from them counts
    most_tokens: int
    iteration: int = 0
    updates: int = 0


class Lesson(NamedTuple):
    """What an iteration did."""

    iteration: int
    score: float
    decisions: int
    rows: int
    entropy: float | None
    gradient: float
    gradients: dict[str, float]  # of each policy that learned
    mix: dict[str, dict[str, Any]]  # what was decided: `mix.shares`
    tokens: int  # unique ones, in the update
    rho: float  # how many they would be if nothing were shared, over these
    faults: int  # answers that could not be read
    most_tokens: int
    divergence: float | None  # from the reference
    off: float  # how far log-probabilities on record are from those of the update before its first step, on average
    seconds: dict[str, float]
    paid: float | None = None  # the share of decisions that the method paid


class Paid(NamedTuple):
    """Tokens that are trained: credit and share of each token of a trace, 0 where there is nothing to learn."""

    credit_k: F
    share_k: F
    entropy: float | None  # of a decision, on average, if options were weighed


def begin(team: Team, seed: int, settings: Settings, update: Update) -> Learner:
    """A learner that has made no step."""
    named = own_weights(team)
    if not named:
        raise BadModel("every policy is frozen: there is nothing to train")
    zeros = {k: torch.zeros_like(w, dtype=torch.float32) for k, w in named.items()}
    wanted = settings.kl or update.kl
    reference = {k: w.detach().clone() for k, w in named.items()} if wanted else {}
    return Learner(
        team, seed, zeros, {k: torch.zeros_like(z) for k, z in zeros.items()}, reference, settings.most_tokens
    )


def own_weights(team: Team) -> dict[str, Any]:
    """All weights that are trained, by policy and name."""
    return {f"{mind.name}:{name}": w for mind in team.minds.values() for name, w in mind.weights().items()}


def step(
    learner: Learner,
    settings: Settings,
    manner: Manner,
    worlds: Worlds,
    method: Method,
    update: Update,
    last: float,
    kept: Callable[[Trace], None] | None = None,
) -> Lesson:
    """One iteration of `last`, in the learner given; `kept` is handed every trace that was made.

    Rate and entropy fall by 1 - iteration / last. A run that has so many seconds gives iteration / the share of them that is over.
    """
    watch = Stopwatch()
    forests, scores, heard = [], [], []
    each = max(2, settings.episodes // settings.worlds)
    share = settings.branched if "branches" in method.needs else 0.0

    def played(number: int) -> None:  # what it reads is given back before the next begins
        world = worlds(learner.iteration, number)
        dice = seeds(learner.seed * 1_000_003 + learner.iteration, each, number * each)
        task, version = f"{world.name} {learner.iteration}.{number}", str(learner.iteration)
        trace, talk = recorded(world, learner.team, dice, manner, version=version, task=task)
        scores.append(float(trace.reward_n["team"].mean()))
        heard.append(talk.heard())
        forests.append(grown(trace, talk, share, version=version) if share else trace)

    with speaking(settings):
        for number in range(settings.worlds):
            played(number)
    answered(heard)
    watch.lap("rollout")
    for trace in forests:
        if kept is not None:
            kept(trace)
    return learned(learner, settings, forests, scores, method, update, last, watch)


def learned(
    learner: Learner,
    settings: Settings,
    forests: Sequence[Trace],
    scores: Sequence[float],
    method: Method,
    update: Update,
    last: float,
    watch: Stopwatch,
) -> Lesson:
    """What an iteration learns from traces, wherever they come from: rewards, credit and gradient steps, in
    the learner given.

    Raises BadCredit, with the reason, if the method has paid no decision in its first iterations."""
    left = 1.0 - learner.iteration / last
    now = Now(1.0 - left, ())
    rewards = [scored(with_step_rewards(trace), method, now) for trace in forests]
    watch.lap("reward")
    given = [apply(reward, method.credit) for reward in rewards]
    pays = [
        (trace, paid(trace, credit, settings.entropy * left, settings.even))
        for trace, credit in zip(forests, given, strict=True)
    ]
    own = [_own_decisions(trace) for trace in forests]
    got = np.concatenate([at_rows(credit, rows) for credit, rows in zip(given, own, strict=True)])
    share = float((~np.isnan(got)).mean()) if len(got) else 0.0
    if not share and not learner.updates and learner.iteration + 1 >= min(TRIES, last):
        raise BadCredit(
            f"no decision of the policy is paid: {unpaid(with_step_rewards(forests[0]), method, own[0], now)}"
        )
    watch.lap("credit")
    lines = updated(learner, settings, update, pays, left)
    watch.lap("update")
    told = Lesson(
        learner.iteration,
        float(np.mean(scores)),
        sum(int((t.decision_e >= 0).sum()) for t in forests),
        sum(int((p.share_k > 0).sum()) for _, p in pays),
        float(np.mean(doubts)) if (doubts := [p.entropy for _, p in pays if p.entropy is not None]) else None,
        lines.gradient,
        lines.gradients,
        shares(item for trace in forests for item in _decided(trace)),
        lines.tokens,
        lines.rho,
        sum(int((t.valid_e == 0).sum()) for t in forests),
        learner.most_tokens,
        lines.divergence,
        lines.off,
        watch.seconds,
        share,
    )
    learner.iteration += 1
    return told


def _own_decisions(trace: Trace) -> N64:
    """The decisions that were made, without their copies in branches."""
    rows = np.flatnonzero(trace.decision_e >= 0)
    return rows[~copies(trace, rows)]


def paid(trace: Trace, given: Credit, entropy: float = 0.0, even: float = 0.0) -> Paid:
    """The credit of each token, in units of its root mean square.

    Where other options were forced beside the one that was taken, all of them count as much as the policy would have said them, π_old:
    Σ_k π_k A_k ∇ log π_k is then over all options. Elsewhere what was said counts once. Copies of events in branches count nothing, nor does a
    token that nothing else could have come for. `entropy` h adds -h (log π + H) to the credit of a choice: the gradient of h times the
    entropy H of its options.

    `even` e weighs K options by (1 - e) π_k + e / K instead. With two, of which one is better by Δ, the logit of that rises by
    Δ [q_1 (1 - π)² + q_2 π²] > 0: the way is the same, and an option that is never said is not forgotten.
    """
    owner = trace.owner_k
    doubt_e, chosen_e, many_e = _odds(trace)
    beside_e = _beside(trace) & ~np.isnan(chosen_e)
    value_k = _value(trace, given)
    trained_k = ~np.isnan(value_k) & ~np.isnan(trace.logp_k) & (trace.logp_k != 0.0)
    trained_k &= (trace.mask_k == 1) | beside_e[owner]
    trained_k &= ~copies(trace, np.arange(trace.n_events))[owner]
    weight_e = np.where(beside_e, (1 - even) * chosen_e + even / many_e, 1.0)
    share_k = np.where(trained_k, weight_e[owner], 0.0)
    credit_k = np.where(trained_k, value_k, 0.0)
    credit_k = credit_k / (np.sqrt((share_k * credit_k**2).sum() / max(float(share_k.sum()), 1e-12)) + 1e-12)
    if entropy:
        more_e = entropy * (np.log(np.maximum(chosen_e, 1e-300)) + doubt_e)
        credit_k = np.where(trained_k, credit_k - np.nan_to_num(more_e)[owner], 0.0)
    told = ~np.isnan(doubt_e)
    return Paid(credit_k, share_k, float(doubt_e[told].mean()) if told.any() else None)


def _value(trace: Trace, given: Credit) -> F:
    """For each token what the unit that it belongs to is paid, times its weight; NaN where that is nothing."""
    if given.unit != "token":
        return at_rows(given, trace.owner_k)
    value: F = given.value if given.weight is None else given.value * given.weight
    return value


def _odds(trace: Trace) -> tuple[F, F, F]:
    """Of each decision whose options were weighed, the entropy of their probabilities, that of the one taken, and how many there are; NaN elsewhere."""
    doubt, chosen, many = (np.full(trace.n_events, np.nan) for _ in range(3))
    pi_o = np.exp(trace.logp_o) if "pi" not in trace.extra_e else option_probability(trace)
    rows = np.unique(trace.event_o[~np.isnan(pi_o)])
    first, count = trace.options_of(rows)
    place = ranges(first, count)
    spread = pi_o[place] * np.log(np.maximum(pi_o[place], 1e-300))
    doubt[rows] = -np.bincount(np.repeat(np.arange(len(rows)), count), spread, minlength=len(rows))
    chosen[rows], many[rows] = np.append(pi_o, np.nan)[chosen_options(trace, rows)], count
    return doubt, chosen, many


def _beside(trace: Trace) -> NDArray[np.bool_]:
    """Decisions that share their context with others, which decide otherwise; copies are none."""
    there = np.zeros(trace.n_events, np.bool_)
    own = _own_decisions(trace)
    where = np.unique(contexts(trace, own), return_inverse=True)[1]
    there[own] = np.bincount(where, minlength=1)[where] > 1
    return there


Among = dict[int, tuple[int, ...]]  # by the place of a token, what could have come there


def trees(
    trace: Trace, pay: Paid, mind: Mind, team: Team, family: N64 | None = None, among: Among | None = None
) -> tuple[Tree, dict[str, Any]] | None:
    """The token tree of what a policy is trained on, and columns over its sampled nodes: credit, share, old, turn, run.

    `family` are the runs, by place, whose branches are wanted, with those that came from them. None where there is nothing to train. `among` is
    `among_of` of the trace, if it is known already.
    """
    trained_e = np.zeros(trace.n_events, np.bool_)
    trained_e[trace.owner_k[pay.share_k > 0]] = True
    if family is not None:
        wanted = np.zeros(len(trace), np.bool_)
        wanted[family] = True
        trained_e &= wanted[roots(trace)][trace.rollout_e]
    own_a = np.zeros(trace.n_agents, np.bool_)
    for agent in np.unique(trace.agent_e[trained_e]).tolist():
        own_a[agent] = team.of(str(trace.name_a[agent])) == mind.name
    trained_e &= own_a[trace.agent_e]
    if not trained_e.any():
        return None
    inner = np.zeros(trace.n_events, np.bool_)
    for row in np.flatnonzero(trained_e).tolist():  # those that lie on the way to another need no row of their own
        up = int(trace.context_e[row])
        while up >= 0 and not inner[up]:
            inner[up] = True
            up = int(trace.context_e[up])
    leaves = np.flatnonzero(trained_e & ~inner).tolist()
    first = np.searchsorted(trace.owner_k, np.arange(trace.n_events + 1))
    node_e, among_k = nodes(trace, np.arange(trace.n_events)), among_of(trace, mind) if among is None else among
    places = [_path(trace, leaf, first) for leaf in leaves]
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
    flat = np.concatenate(places)
    count = len(tree)
    columns: dict[str, Any] = {}
    held = trained_k[flat]
    for name, values in (
        ("credit", pay.credit_k),
        ("share", pay.share_k),
        ("old", trace.logp_k),
        ("turn", trace.owner_k.astype(np.int64)),
        ("run", trace.rollout_e[trace.owner_k].astype(np.int64)),
    ):
        column = np.zeros(count, values.dtype)
        column[tree.node[held]] = values[flat[held]]
        columns[name] = column
    return tree, columns


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


def among_of(trace: Trace, mind: Mind) -> Among:
    """For tokens that were said under a grammar, where several could come, those that could."""
    found: Among = {}
    if "sampling" not in trace.extra_e:
        return found
    bound = [w in ('"constrained"', '"forced"') for w in trace.extra_e["sampling"].words] + [False]
    said = np.flatnonzero(~np.isnan(trace.logp_k) & np.array(bound)[trace.extra_e["sampling"].codes][trace.owner_k])
    known: dict[tuple[str, ...], Options] = {}
    for row, places in _runs(trace.owner_k, said):
        labels = tuple(trace.options(row))
        if labels not in known:
            known[labels] = options_of(mind, labels)
        path = tuple(trace.token_k[places].tolist())
        if path not in known[labels].paths:
            raise BadModel(
                f"event {trace.id_e[row]}: what was said is none of its options in the tokens of {mind.model.name}"
            )
        for place, some in zip(places.tolist(), known[labels].among(known[labels].paths.index(path)), strict=True):
            if len(some) > 1:
                found[place] = some
    return found


def _runs(owner_k: N64, places: N64) -> Iterator[tuple[int, N64]]:
    """Places by the event that owns them."""
    cuts = np.flatnonzero(np.diff(owner_k[places])) + 1
    for some in np.split(places, cuts):
        if len(some):
            yield int(owner_k[some[0]]), some


def moved(
    learner: Learner, settings: Settings, weights: dict[str, Any], grad: dict[str, Any], norm: float, rate: float
) -> None:
    """One step of AdamW by gradients of this length in all, not longer than they may be; they are forgotten then."""
    shortened(grad, norm, settings.norm)
    learner.updates += 1
    adamw(weights, grad, learner.m, learner.v, learner.updates, rate, beta=settings.beta, decay=settings.decay)
    for w in weights.values():
        w.grad = None


class _Lines(NamedTuple):
    gradient: float
    gradients: dict[str, float]
    tokens: int
    rho: float
    divergence: float | None
    off: float


def updated(
    learner: Learner, settings: Settings, update: Update, pays: Sequence[tuple[Trace, Paid]], left: float
) -> _Lines:
    """Some gradient steps on credited traces, in the learner given."""
    dice = np.random.default_rng([learner.seed, learner.iteration, 0xBA7C])
    warm = min(1.0, (learner.iteration + 1) / settings.warm) if settings.warm else 1.0
    norms: list[float] = []
    tokens, laid, far, off = 0, 0, [], float("nan")
    lengths: dict[str, list[float]] = {}
    weights = own_weights(learner.team)
    minds = [mind for mind in learner.team.minds.values() if not mind.frozen]
    known = {(i, mind.name): among_of(trace, mind) for i, (trace, _) in enumerate(pays) for mind in minds}
    for _ in range(settings.epochs):
        orders = [dice.permutation(np.unique(roots(trace))) for trace, _ in pays]
        for part in range(settings.parts):
            lots = _lots(learner.team, pays, orders, part, settings, known)
            if not lots:
                continue
            done = _accumulated(learner, settings, update, lots)
            tokens, laid = tokens + done.tokens, laid + sum(len(tree.node) for _, tree, _ in lots)
            off = off if norms else done.off
            if done.divergence is not None:
                far.append(done.divergence)
            grad = {k: w.grad for k, w in weights.items() if w.grad is not None}
            parts = _by_policy(grad)
            for name, length in parts.items():
                lengths.setdefault(name, []).append(length)
            norms.append(sum(length**2 for length in parts.values()) ** 0.5)
            moved(learner, settings, weights, grad, norms[-1], settings.rate * left * warm)
    return _Lines(
        float(np.mean(norms)) if norms else 0.0,
        {name: float(np.mean(some)) for name, some in lengths.items()},
        tokens // settings.epochs,
        laid / max(tokens, 1),
        float(np.mean(far)) if far else None,
        off,
    )


def role_gradients(learner: Learner, settings: Settings, update: Update, trace: Trace, pay: Paid) -> float:
    """The length of the gradient of what is paid here, on its own; nothing is learned."""
    found = [
        (mind, *made)
        for mind in learner.team.minds.values()
        if not mind.frozen and (made := trees(trace, pay, mind, learner.team)) is not None
    ]
    _accumulated(learner, settings, update, _normalised(found))
    weights = own_weights(learner.team).values()
    found_length = _length([w.grad for w in weights if w.grad is not None])
    for w in weights:
        w.grad = None
    return found_length


def _by_policy(grad: dict[str, torch.Tensor]) -> dict[str, float]:
    """The length of each policy's part of a gradient."""
    names = list(dict.fromkeys(key.partition(":")[0] for key in grad))
    each = {name: [g for key, g in grad.items() if key.partition(":")[0] == name] for name in names}
    return {name: _length(some) for name, some in each.items()}


def _length(grads: Sequence[torch.Tensor]) -> float:
    """√ Σ g² over all of these, read from the device once."""
    return float(torch.stack(torch._foreach_norm(list(grads))).double().square().sum().sqrt()) if grads else 0.0


def _decided(trace: Trace) -> Iterator[tuple[str, dict[str, int]]]:
    """What was chosen in a trace: the kind of each decision, and the word of its option."""
    for row in np.flatnonzero(trace.decision_e >= 0).tolist():
        said = str(trace.chosen_e[row])
        yield DECISIONS[trace.decision_e[row]], {role_of(said) or said: 1}


Lot = tuple[Mind, Tree, dict[str, Any]]  # a policy, a tree for it, and columns over the tree's nodes


def _lots(
    team: Team,
    pays: Sequence[tuple[Trace, Paid]],
    orders: list[N64],
    part: int,
    settings: Settings,
    known: dict[tuple[int, str], Among],
) -> list[Lot]:
    """What a gradient step is of: some families of runs, for each policy that is trained; in regime C each on its own scale."""
    found: list[Lot] = []
    for mind in team.minds.values():
        if mind.frozen:
            continue
        some: list[tuple[Tree, dict[str, Any]]] = []
        for i, ((trace, pay), order) in enumerate(zip(pays, orders, strict=True)):
            family = order[part :: settings.parts]
            if (made := trees(trace, pay, mind, team, family, known[i, mind.name])) is not None:
                some.append(made)
        if some:
            found.append((mind, *_joined(some)))
    if settings.regime != "C":
        return _normalised(found)
    return [
        lot for mind in team.minds.values() for lot in _normalised([x for x in found if x[0] is mind], scaled=True)
    ]


def _joined(some: Sequence[tuple[Tree, dict[str, Any]]]) -> tuple[Tree, dict[str, Any]]:
    """Trees of several traces as one, so that they go through the model together; their turns and runs are told apart."""
    columns: dict[str, list[Any]] = {}
    above = {"turn": 0, "run": 0}
    for _, held in some:
        for name, values in held.items():
            columns.setdefault(name, []).append(values + above.get(name, 0))
        above = {name: int(columns[name][-1].max()) + 1 for name in above}
    return join([tree for tree, _ in some]), {name: np.concatenate(parts) for name, parts in columns.items()}


def _normalised(lots: list[Lot], scaled: bool = False) -> list[Lot]:
    """Lots whose shares add up to 1, and whose credit is in units of its own root mean square."""
    total = sum(float(columns["share"].sum()) for _, _, columns in lots)
    square = sum(float((columns["share"] * columns["credit"] ** 2).sum()) for _, _, columns in lots)
    unit = np.sqrt(square / max(total, 1e-12)) + 1e-12 if scaled else 1.0
    return [
        (mind, tree, columns | {"share": columns["share"] / max(total, 1e-12), "credit": columns["credit"] / unit})
        for mind, tree, columns in lots
    ]


class _Sum(NamedTuple):
    tokens: int
    divergence: float | None
    off: float  # Σ share |log π - log π_old|


def halving(learner: Learner, once: Callable[[], T], longest: Callable[[], int], advice: str = "") -> T:
    """Gradients as `once` leaves them in the weights. Out of memory: the same again with half as many tokens at once, unless the longest does not fit."""
    while True:
        try:
            return once()
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            for w in own_weights(learner.team).values():
                w.grad = None
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            if learner.most_tokens // 2 < (most := longest()):
                raise BadModel(
                    f"out of memory in the update with {learner.most_tokens} tokens at once, and one branch has {most}{advice}"
                ) from None
            learner.most_tokens //= 2


def _accumulated(learner: Learner, settings: Settings, update: Update, lots: list[Lot]) -> _Sum:
    """Gradients of all lots, in the weights."""
    return halving(
        learner,
        lambda: _once(learner, settings, update, lots),
        lambda: max(int(tree.position.max()) + 1 for _, tree, _ in lots),
        "; a smaller model, shorter episodes, or checkpointing = true would need less",
    )


def _once(learner: Learner, settings: Settings, update: Update, lots: list[Lot]) -> _Sum:
    tokens, far, off = 0, 0.0, []
    beta = settings.kl or update.kl
    for mind, tree, columns in lots:
        module = mind.wake()
        device = mind.model.device
        column = {k: torch.from_numpy(np.ascontiguousarray(v)).to(device) for k, v in columns.items()}
        column = {k: v.float() if v.dtype == torch.float64 else v for k, v in column.items()}
        group = {"turn": column["turn"], "sequence": column["run"]}.get(update.level)
        longest = max(learner.most_tokens, int(tree.position.max()) + 1)
        with computing(settings):
            reference = _reference(learner, mind, tree, longest) if beta else None

            def objective(logp: Any, of: Any) -> Any:
                at = torch.from_numpy(of).to(device)  # noqa: B023 (called at once)
                here = {k: v[at] for k, v in column.items()}  # noqa: B023
                off.append((here["share"] * (logp.detach() - here["old"]).abs()).sum())
                number = None if group is None else torch.unique(group[at], return_inverse=True)[1]  # noqa: B023
                total = loss(update, logp, here["old"], here["credit"], here["share"], number)
                if reference is not None:  # noqa: B023
                    apart = divergence(logp, reference[at], here["share"])  # noqa: B023
                    nonlocal far
                    far += float(apart.detach())
                    total = total + beta * apart
                return total

            with _backwards(module, settings.checkpointing):
                done = packed.loss_and_backward(module, [tree], objective, longest, whole=update.whole)
        tokens += done.tokens
    return _Sum(tokens, far if beta else None, float(sum(off)))


def _reference(learner: Learner, mind: Mind, tree: Tree, longest: int) -> Any:
    """Log-probabilities under the weights that a policy had at the start."""
    weights, now = mind.weights(), {}
    with torch.no_grad():
        for name, w in weights.items():
            now[name] = w.detach().clone()
            w.copy_(learner.reference[f"{mind.name}:{name}"])
        logp = packed.log_probs(mind.wake(), tree, most_tokens=longest)
        for name, w in weights.items():
            w.copy_(now[name])
    return logp


@contextmanager
def _backwards(module: Any, checkpointing: bool) -> Iterator[None]:
    """Activations computed again backwards, where that is wanted. Only here: with it on, transformers keeps no context between reads."""
    if not checkpointing:
        yield
        return
    module.gradient_checkpointing_enable({"use_reentrant": False})
    module.train()  # in eval nothing is checkpointed; there is no dropout
    try:
        yield
    finally:
        module.gradient_checkpointing_disable()
        module.eval()


def speaking(settings: Settings) -> AbstractContextManager[None]:
    """As `computing`, while generating."""
    return computing(replace(settings, dtype=settings.spoken or settings.dtype))


def voiced(team: Team, settings: Settings) -> Team:
    """The team, its models set to generate and to be trained as the settings say; on a GPU norms are one kernel each."""
    dtype, cuda = settings.spoken or settings.dtype, settings.device.startswith("cuda")
    # what comes after a norm computes in its type, and would else cast it each for itself
    alike = dtype == settings.dtype != "float32"
    for model in {id(mind.model): mind.model for mind in team.minds.values()}.values():
        model.compiled = settings.compiled
        model.spoken = dtype if cuda and dtype != "float32" else ""
        base = model.module.get_base_model() if hasattr(model.module, "get_base_model") else model.module
        if cuda:
            fused_norms(base, getattr(torch, dtype) if alike else None)
    return team


@contextmanager
def computing(settings: Settings) -> Iterator[None]:
    """In bfloat16 where it was asked for: weights stay in float32."""
    if settings.dtype == "float32":
        yield
        return
    with torch.autocast(settings.device.split(":")[0], getattr(torch, settings.dtype)):
        yield
