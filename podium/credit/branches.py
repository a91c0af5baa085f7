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
    any_by,
    count_by,
    count_of,
    first_by,
    mean_by,
    ratio,
    sum_by,
    take,
    total_by,
)
from podium.interval import student
from podium.registry import register
from podium.trace.columns import B, F, I, Trace
from podium.trace.options import chosen_options

__all__ = ["Alternatives", "Effects", "alternatives", "chance", "effects", "in_a_tree", "odds", "sums"]

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


class Effects(NamedTuple):
    """For each unit what its option did beyond the mean of the others there, an interval, and its runs."""

    mean: F
    low: F
    high: F
    n: F


def effects(credit: Credit, level: float = 0.95) -> Effects:
    """The effect of an option against those not taken in the same context: spawn against no-op, stop against go on.

        d_j = Q_j - mean_{k≠j} Q_k

    Where all branches come in sets that share a seed, one an option, d is the mean of the differences inside sets,
    ± t s / √n; else ± t √(s_j²/n_j + Σ_{k≠j} s_k²/n_k / (K-1)²) with Welch's degrees of freedom.

    Options whose runs all earned the same, and contexts of only two values, are counted with some runs more at the
    ends [a, b] of what the context earned, and ± z: 2/K an option at each end (Price & Bonett 2004), or a set at b
    - a and one at a - b (Bonett & Price 2012).

        c = (n Q + 2/K (a + b)) / m,   m = n + 4/K,   variance of c = (Σ (R - c)² + 2/K ((a - c)² + (b - c)²)) / m²

    Two values are all there are if they are 0 and 1, or of more than two runs. The ends of a context that earned
    one value are 0 and 1 if it is one of them, else those of the task; if these are one value too, the interval is
    NaN.   needs: two runs of each option, or two-valued outcomes, else NaN for the interval.
    """
    alts = alternatives(credit, "option")
    ends = _ends(credit, alts)
    paired_u = _sets(credit, alts)
    paired = any_by(alts.of_u, paired_u, len(alts.context))
    apart, together = _welch(credit, alts, ends, level), _paired(credit, alts, paired_u, ends, level)
    both = [np.where(paired, t, a) for a, t in zip(apart, together, strict=True)]
    mean, low, high, n = (x[alts.of_u] for x in both)
    return Effects(mean, low, high, n)


def _options(alts: Alternatives) -> F:
    """How many alternatives of its context some run tells of."""
    return sums(alts, (alts.n > 0).astype(np.float64))


class _Ends(NamedTuple):
    """The lowest and the highest outcome of each alternative's context, else NaN; and whether no others are."""

    low: F
    high: F
    only: B

    def flat(self, n: F, square: F) -> B:
        """Whether values vary by no more than rounding: n of them, with this sum of squares about their mean."""
        rounding = 64 * np.finfo(np.float64).eps * np.fmax(np.abs(self.low), np.abs(self.high))
        same: B = (n > 1) & ~(square > n * rounding**2)
        return same


def _ends(credit: Credit, alts: Alternatives) -> _Ends:
    tellers = np.flatnonzero(alts.counts_u)
    value, where = credit.value[tellers], alts.context[alts.of_u[tellers]]
    many = count_of(alts.context)
    low, high = _range(where, value, many)
    between = any_by(where, (value != low[where]) & (value != high[where]), many)
    binary = ~any_by(where, ~np.isin(value, (0.0, 1.0)), many)
    only = binary | (~between & (np.bincount(where, minlength=many) > 1 + (high > low)))
    task = groups(credit, "task")[tellers]
    task = np.where(task < 0, count_of(task), task)
    widest = _range(task, value, count_of(task))
    at = np.zeros(many, np.int64)
    at[where] = task
    one = ~binary & ~(high > low)
    low, high = np.where(one, widest[0][at], low), np.where(one, widest[1][at], high)
    low, high = np.where(binary, 0.0, low), np.where(binary, 1.0, high)
    known = high > low
    low, high = np.where(known, low, np.nan), np.where(known, high, np.nan)
    return _Ends(low[alts.context], high[alts.context], only[alts.context])


def _range(group: I, value: F, many: int) -> tuple[F, F]:
    """The lowest and the highest value of each group."""
    low, high = np.full(many, np.inf), np.full(many, -np.inf)
    np.minimum.at(low, group, value)
    np.maximum.at(high, group, value)
    return low, high


def _moments(of: I, value: F, many: int) -> tuple[F, F, F]:
    """Count, mean and sum of squares about the mean."""
    n, mean = np.bincount(of, minlength=many).astype(np.float64), mean_by(of, value, many)
    return n, mean, total_by(of, (value - mean[of]) ** 2, many)


def _welch(credit: Credit, alts: Alternatives, ends: _Ends, level: float) -> Effects:
    n, mean, square = _moments(alts.of_u[alts.counts_u], credit.value[alts.counts_u], len(alts.context))
    k = _options(alts)
    adds = ends.only | ends.flat(n, square)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = 2.0 / k
        more = n + 2 * each
        middle = (mean * n + each * (ends.low + ends.high)) / more
        apart = square + n * (mean - middle) ** 2
        apart += each * ((ends.low - middle) ** 2 + (ends.high - middle) ** 2)
        centre = np.where(adds, middle, mean)
        noise = np.where(adds, apart / more**2, square / (n - 1) / n)
        noise = np.where((n < 2) & ~adds, np.nan, noise)
        spread = np.where(adds, 0.0, noise**2 / (n - 1))
        mean, centre, noise, spread = (np.where(n > 0, x, 0.0) for x in (mean, centre, noise, spread))
        others = 1.0 / (k - 1)
        variance = noise + (sums(alts, noise) - noise) * others**2
        freedom = variance**2 / (spread + (sums(alts, spread) - spread) * others**4)
        off = centre - (sums(alts, centre) - centre) * others
        raw = mean - (sums(alts, mean) - mean) * others
    alone = (k < 2) | (n < 1)
    half = _half(freedom, level) * np.sqrt(np.where(alone, np.nan, variance))
    raw = np.where(alone, np.nan, raw)
    return Effects(raw, off - half, off + half, sums(alts, n))


def _half(freedom: F, level: float) -> F:
    """Half-widths in standard errors; degrees of freedom rounded down, so that no interval is too narrow."""
    whole = np.where(np.isfinite(freedom), np.clip(freedom, 1, 100_000), 100_000).astype(np.int64)
    different, which = np.unique(whole, return_inverse=True)
    half: F = np.array([student(int(f), level) for f in different] or [np.nan])[which]
    return half


def _sets(credit: Credit, alts: Alternatives) -> B:
    """The units in sets that share a seed, one run an option, of contexts with two sets and no other branches."""
    trace, run = credit.trace, credit.rollout
    tellers = np.flatnonzero(alts.counts_u & (trace.seed_n.codes >= 0)[run])
    of = alts.of_u[tellers]
    where, many = alts.context[of], count_of(alts.context)
    pair = numbered_together(where, trace.seed_n.codes[run[tellers]])
    twice = numbered_together(pair, of)
    whole = np.bincount(pair)[pair] == _options(alts)[of]
    whole &= ~any_by(pair, np.bincount(twice)[twice] > 1, count_of(pair))[pair]
    branch = (trace.parent_n.codes >= 0)[run]
    inside, in_all = count_by(where, whole, many), count_by(where, whole & branch[tellers], many)
    branches = count_by(alts.context[alts.of_u], alts.counts_u & branch, many)
    options = count_by(alts.context, alts.n > 0, many)
    fine = (in_all == branches) & (inside >= 2 * options) & (options > 1)
    return np.isin(np.arange(len(alts.of_u)), tellers[whole & fine[where]])


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


def _paired(credit: Credit, alts: Alternatives, paired_u: B, ends: _Ends, level: float) -> Effects:
    tellers = np.flatnonzero(paired_u)
    of = alts.of_u[tellers]
    pair = numbered_together(alts.context[of], credit.trace.seed_n.codes[credit.rollout[tellers]])
    value, k = credit.value[tellers], _options(alts)[of]
    apart = value - (np.bincount(pair, value)[pair] - value) / (k - 1)
    n, mean, square = _moments(of, apart, len(alts.context))
    adds = ends.only | ends.flat(n, square)
    with np.errstate(divide="ignore", invalid="ignore"):
        more = n + 2
        centre = np.where(adds, mean * n / more, mean)
        total = square + n * mean**2 + 2 * (ends.high - ends.low) ** 2  # with a set for and a set against
        variance = np.where(adds, (total / more - centre**2) / more, square / (n - 1) / n)
        half = _half(np.where(adds, np.inf, n - 1), level) * np.sqrt(variance)
    return Effects(mean, centre - half, centre + half, sums(alts, n))


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
