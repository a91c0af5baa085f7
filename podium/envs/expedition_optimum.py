"""The exact value of play in `expedition`: what a leg is worth, and dynamic programming over the legs.

What a leg is worth does not depend on the pool, and what the pool is worth does not depend on the leg's votes, so
both are computed once: votes over the number of sources on either side, legs over (legs left, difficulty, pool
left).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F

__all__ = [
    "Fixed",
    "Rules",
    "Tables",
    "constants",
    "longest",
    "margins",
    "random_play",
    "solve",
    "tables",
    "value_of_belief",
]

RETURNS, SOURCES, CHECK = 0, 1, 2
TIE = 1e-12  # where both majorities are as good, that of sources is taken


@dataclass(frozen=True)
class Rules:
    """A world in figures. Axes: worker by kind, context, brief, difficulty, stake; a leg is clean (0) or poisoned
    (1)."""

    legs: int
    pool: int
    widest: int
    sources: int
    rho: float
    wrong: float
    time: float
    leg_price: float
    check_price: float
    check: float
    finish: float
    prices: F  # of a scout, by worker
    messages: F  # by brief
    stakes: F
    odds: F  # of each stake
    q: F  # [poisoned, kind, worker, context, brief, difficulty]: a source's vote is right
    lie: F  # by worker: all its votes of a leg are turned around
    poison: int  # the leg from which the note is poisoned, counted from 1; 0 is never

    def poisoned(self, left: Any) -> Any:
        """1 if the note is poisoned when so many legs are left, else 0."""
        return (np.asarray(left) <= self.legs + 1 - self.poison) * int(self.poison > 0)


class Fixed(NamedTuple):
    """Decisions that are the same in every leg; None is free."""

    width: int | None = None
    worker: int | None = None
    brief: int | None = None
    how: int | None = None
    always: bool = False  # go on whatever comes


class Tables(NamedTuple):
    """Optimal play, by [left, kind, context, stake, difficulty, pool]: whether to go on, and with how many."""

    value: F  # [left, difficulty, pool]
    go: B
    width: NDArray[np.int16]
    leg: F  # [poisoned, kind, worker, context, brief, difficulty, stake, width - 1], without the leg's price
    # [poisoned, kind, context, stake, difficulty, width - 1]: by the best worker and brief, with the leg's price
    best: F
    later: F  # [left, difficulty, pool]: the legs after this one, if it leaves so many of the pool


def longest(finish: float, widest: int) -> F:
    """E[the longest of k durations], k = 0 ... widest; each is geometric on 1, 2, ...

        E = Σ_{t≥0} 1 - (1 - (1-f)^t)^k

    >>> longest(0.5, 2).round(6).tolist()
    [0.0, 2.0, 2.666667]
    """
    late = (1.0 - finish) ** np.arange(2 + int(np.log(1e-18 / widest) / np.log1p(-finish)) if finish < 1 else 2)
    mean: F = -np.expm1(np.arange(1, widest + 1)[:, None] * np.log1p(-late[1:])).sum(axis=1)
    return np.concatenate([[0.0], 1.0 + mean])


@lru_cache(maxsize=8)
def margins(sources: int, widest: int) -> F:
    """m[s, k-1, x, c]: how k scouts can meet s sources on the one side and s + x on the other; the majority of
    returns agrees with that of sources (c = 0), is a tie (1) or disagrees (2).

    The probability that s + x sources are right and s wrong is m qˢ⁺ˣ (1-q)ˢ, that they are wrong m (1-q)ˢ⁺ˣ qˢ.

        m = S! / (r! s! (S-r-s)!) Σ_n C(k, n) a(n, r) a(k-n, s),   r = s + x,
        a(n, r) = P(n scouts meet exactly r given sources)
    """
    d = min(sources, widest)
    a = np.zeros((widest + 1, d + 1))
    a[0, 0] = 1.0
    near = np.arange(1, d + 1) / sources
    for used in range(widest):
        a[used + 1, 1:] = near * (a[used, 1:] + a[used, :-1])
    x, s = np.arange(d + 1)[None, :], np.arange(d // 2 + 1)[:, None]
    fact = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, max(sources, widest) + 1)))])
    r, fits = np.minimum(s + x, d), s + s + x <= d
    ways = np.where(fits, np.exp(fact[sources] - fact[r] - fact[s] - fact[np.maximum(sources - r - s, 0)]), 0.0)
    m = np.zeros((d // 2 + 1, widest, d + 1, 3))
    for k in range(1, widest + 1):
        n = np.arange(k + 1)
        left = np.exp(fact[k] - fact[n] - fact[k - n])[:, None] * a[n]
        right = a[k - n][:, : d // 2 + 1]
        for c, part in enumerate((2 * n > k, 2 * n == k, 2 * n < k)):
            both = right[part].T @ left[part]  # [s, r]
            m[:, k - 1, :, c] = ways * both[s, r]
    m[:, :, 0] /= 2.0  # a margin of nothing has no side: both readings are the same event
    return m


def _seen(rules: Rules) -> tuple[F, F, NDArray[np.int64]]:
    """For every pair of (reliability, rate of lies): how likely each margin and agreement is and whether the
    majority of sources is right then; and which pair holds where."""
    lie = np.broadcast_to(rules.lie[None, None, :, None, None, None], rules.q.shape)
    pairs, where = np.unique(np.stack([rules.q.ravel(), lie.ravel()], 1), axis=0, return_inverse=True)
    m = margins(rules.sources, rules.widest)
    x = np.arange(m.shape[2])
    likely, sure = [], []
    for q, lied in pairs:
        met = np.tensordot((q * (1.0 - q)) ** np.arange(m.shape[0]), m, 1)
        good, bad = q**x, (1.0 - q) ** x
        likely.append(met * (good + bad)[:, None])
        right = np.where(good + bad > 0, good / np.maximum(good + bad, 1e-300), 0.5)
        sure.append(right * (1.0 - lied) + (1.0 - right) * lied)
    return np.stack(likely), np.stack(sure), where.reshape(rules.q.shape)


def _answers(rules: Rules, sure: F) -> F:
    """u-gain of each way to aggregate: [how, pair, margin, agreement, stake]."""
    returns = np.stack([sure, np.full_like(sure, 0.5), 1.0 - sure], -1)
    right = np.stack([returns, np.broadcast_to(sure[..., None], returns.shape), np.full_like(returns, rules.check)])
    gain = (right * (1.0 + rules.wrong) - rules.wrong)[..., None] * rules.stakes
    gain[CHECK] -= rules.check_price
    worth: F = gain
    return worth


def tables(rules: Rules, how: int | None = None, believed: Rules | None = None, mean: bool = False) -> F:
    """What a leg is worth, all but its own price: [poisoned, kind, worker, context, brief, difficulty, stake, width
    - 1].

    Answers are the best ones, or always `how`, or those that are best if `believed` were the rules, or any
    (`mean`).
    """
    likely, sure, where = _seen(rules)
    worth = _answers(rules, sure)
    if how is not None:
        taken = worth[how]
    elif mean:
        taken = worth.mean(axis=0)
    elif believed is None:
        taken = worth.max(axis=0)
    else:
        _, sure_b, where_b = _seen(believed)
        both, where = np.unique(np.stack([where.ravel(), where_b.ravel()], 1), axis=0, return_inverse=True)
        thought = _answers(believed, sure_b)
        thought[RETURNS] -= TIE
        best = thought.argmax(axis=0)[both[:, 1]]
        taken = np.take_along_axis(worth[:, both[:, 0]], best[None], 0)[0]
        likely = likely[both[:, 0]]
    gain = np.einsum("pkxc,pxcu->puk", likely, taken)[where.reshape(rules.q.shape)]
    k = np.arange(1, rules.widest + 1)
    each = (rules.prices[:, None] + rules.messages[None, :])[None, None, :, None, :, None, None, None]
    leg: F = gain - each * k - rules.time * longest(rules.finish, rules.widest)[1:]
    return leg


def _next(rules: Rules, value: F) -> F:
    """The value of the legs to come, by the difficulty now: it rises by one with probability rho."""
    harder = np.concatenate([value[1:], value[-1:]])
    later: F = rules.rho * harder + (1.0 - rules.rho) * value
    return later


def _chances(rules: Rules) -> F:
    kinds = rules.q.shape[1]
    odds: F = np.broadcast_to(rules.odds / (2.0 * kinds), (kinds, 2, len(rules.odds)))
    return odds


def _best(leg: F, fixed: Fixed) -> F:
    """A leg by its best worker and brief: [poisoned, kind, context, stake, difficulty, width - 1]."""
    workers = slice(None) if fixed.worker is None else slice(fixed.worker, fixed.worker + 1)
    briefs = slice(None) if fixed.brief is None else slice(fixed.brief, fixed.brief + 1)
    best: F = leg[:, :, workers][:, :, :, :, briefs].max(axis=(2, 4)).swapaxes(3, 4)
    return best


def solve(rules: Rules, fixed: Fixed | None = None, leg: F | None = None) -> Tables:
    """Backward over the legs, for every difficulty and pool at once. `leg` are the tables, if they are there
    already.

    V[l, g, m] = E_{kind, context, stake} max(0, max_{k ≤ m} leg(k) - price + E[V[l-1, g', m-k]]),
    V[0] = V[., ., 0] = 0
    """
    fixed = fixed or Fixed()
    leg = tables(rules, fixed.how) if leg is None else leg
    best = _best(leg, fixed) - rules.leg_price
    m = rules.pool
    value = np.zeros((rules.legs + 1, rules.q.shape[-1], m + 1))
    later = np.zeros_like(value)
    go = np.zeros((rules.legs + 1, *best.shape[1:-1], m + 1), np.bool_)
    width = np.zeros(go.shape, np.int16)
    for left in range(1, rules.legs + 1):
        later[left] = _next(rules, value[left - 1])
        worth, width[left] = _widths(best[rules.poisoned(left)], later[left], fixed.width)
        go[left] = worth > 0
        taken = worth if fixed.always else np.maximum(worth, 0.0)
        value[left, :, 1:] = np.einsum("hcu,hcugm->gm", _chances(rules), taken[..., 1:])
    return Tables(value, go, width, leg, best, later)


def _widths(now: F, later: F, fixed: int | None) -> tuple[F, NDArray[np.int16]]:
    """The best width for every pool, and what it is worth: max_{k ≤ m} now[k] + later[m - k]; -inf where m = 0."""
    m = later.shape[-1] - 1
    worth = np.full((*now.shape[:-1], m + 1), -np.inf)
    width = np.zeros(worth.shape, np.int16)
    if fixed is not None:
        k_m = np.minimum(fixed, np.arange(1, m + 1))
        worth[..., 1:], width[..., 1:] = now[..., k_m - 1] + later[:, np.arange(1, m + 1) - k_m], k_m
        return worth, width
    for k in range(1, min(now.shape[-1], m) + 1):
        offer = now[..., k - 1, None] + later[:, : m + 1 - k]
        better = offer > worth[..., k:]
        np.copyto(worth[..., k:], offer, where=better)
        np.copyto(width[..., k:], np.int16(k), where=better)
    return worth, width


def random_play(rules: Rules) -> float:
    """The value of choosing uniformly among what is allowed, every time."""
    leg = tables(rules, mean=True).mean(axis=(2, 4)).swapaxes(3, 4) - rules.leg_price
    mean = np.einsum("hcu,phcugk->pgk", _chances(rules), leg)
    value = np.zeros((rules.q.shape[-1], rules.pool + 1))
    for left in range(1, rules.legs + 1):
        later, now = _next(rules, value), np.zeros_like(value)
        for k in range(1, min(rules.widest, rules.pool) + 1):
            now[:, k:] += mean[rules.poisoned(left), :, k - 1, None] + later[:, : rules.pool + 1 - k]
        now[:, 1:] /= 2.0 * np.minimum(np.arange(1, rules.pool + 1), rules.widest)
        value = now
    return float(value[0, rules.pool])


def value_of_belief(rules: Rules, believed: Rules) -> float:
    """What the play that is best under `believed` is worth under these rules.

    `believed` holds the note poisoned from the same leg on, or never.
    """
    plan, leg = solve(believed), tables(rules, believed=believed)
    value = np.zeros((rules.q.shape[-1], rules.pool + 1))
    kinds, stakes, levels = rules.q.shape[1], len(rules.stakes), rules.q.shape[-1]
    h, c, u, g = np.ix_(np.arange(kinds), np.arange(2), np.arange(stakes), np.arange(levels))
    h, c, u, g = (i[..., None] for i in (h, c, u, g))
    for left in range(1, rules.legs + 1):
        width, said = plan.width[left], rules.poisoned(left)
        thought = plan.leg[believed.poisoned(left)].transpose(
            0, 2, 5, 4, 6, 1, 3
        )  # kind, context, stake, g, k, worker, brief
        pick = thought.reshape(*thought.shape[:5], -1).argmax(axis=-1)
        k = np.maximum(width, 1).astype(np.int64)
        worker, brief = np.divmod(pick[h, c, u, g, k - 1], len(rules.messages))
        now = leg[said, h, worker, c, brief, g, u, k - 1] - rules.leg_price
        after = _next(rules, value)[g, np.maximum(np.arange(rules.pool + 1) - k, 0)]
        taken = np.where(plan.go[left], now + after, 0.0)
        value = np.einsum("hcu,hcugm->gm", _chances(rules), taken)
    return float(value[0, rules.pool])


def constants(rules: Rules) -> tuple[F, B]:
    """The value of the same width, worker, brief and way to aggregate in every leg, up to a number of legs.

    value[how, worker, brief, width - 1, legs - 1], and which of these numbers of legs the pool allows.
    """
    k, t = np.arange(1, rules.widest + 1)[:, None], np.arange(rules.legs)[None, :]
    width = np.clip(rules.pool - k * t, 0, k)  # what is left to spawn in leg t
    at = np.zeros((rules.legs, rules.q.shape[-1]))  # P(difficulty) in leg t
    at[0, 0] = 1.0
    for leg in range(1, rules.legs):
        at[leg] = (1.0 - rules.rho) * at[leg - 1]
        at[leg, 1:] += rules.rho * at[leg - 1, :-1]
        at[leg, -1] += rules.rho * at[leg - 1, -1]
    poisoned = np.array([rules.poisoned(rules.legs - leg) for leg in range(rules.legs)])
    values = []
    for how in (RETURNS, SOURCES, CHECK):
        mean = np.einsum("hcu,phwcbguk->pgwbk", _chances(rules), tables(rules, how)) - rules.leg_price
        per_leg = np.einsum("tg,tgwbk->wbkt", at, mean[poisoned])  # here k is the width that is left
        took: Any = np.take_along_axis(
            per_leg, np.broadcast_to(np.maximum(width, 1) - 1, (*per_leg.shape[:2], *width.shape)), 2
        )
        values.append(np.cumsum(np.where(width > 0, took, 0.0), axis=-1))
    return np.stack(values), width > 0
