"""What an option did beyond others that were forced in the same context: effects of decisions, with intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from podium.credit import Credit
from podium.credit.branches import Alternatives, alternatives, sums
from podium.credit.keys import groups, numbered_together
from podium.graph.grouping import any_by, count_by, count_of, mean_by, total_by
from podium.interval import student
from podium.trace.columns import B, F, I

__all__ = ["Effects", "effects"]


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
