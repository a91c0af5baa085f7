"""Estimates of what a decision was worth, from what tries of its options earned.

A try is a run that shares all that came before the decision. Tries of one number share their luck over the options,
so that options are compared under the same random numbers. `earned` is (decisions, options, tries), NaN where
nothing was tried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.recorded import Decided
from podium.trace.columns import B, F

__all__ = [
    "Estimates",
    "branching",
    "every_option",
    "leave_one_out",
    "pooled",
    "pooled_branching",
    "price",
    "sampled",
    "within_budget",
]

V = NDArray[np.int64]
LEAST = 1e-9  # groups are never held to be all alike, so that a rank is left
PRIOR = 16.0  # tries that what is known of all decisions counts for in the variance of one


class Estimates(NamedTuple):
    """Of each decision: its credit, the variance of one try about it, and the tries it rests on."""

    credit: F
    variance: F
    tries: F


# what is tried


def every_option(decisions: Decided, tries: int) -> B:
    """So many tries of every option."""
    return np.repeat((decisions.pi > 0)[:, :, None], tries, axis=2)


def within_budget(decisions: Decided, budget: int, dice: np.random.Generator) -> B:
    """At most so many continuations a decision: whole sets of one try an option, the run itself being one of the
    first set.

    Too few for one set: other options are drawn, each as likely as the policy takes it rather than the one taken.
    """
    many, d = decisions.options, np.arange(len(decisions))
    sets = np.where(budget >= many - 1, (budget + 1) // many, 0)
    wanted = (decisions.pi > 0)[:, :, None] & (np.arange(max(int(sets.max(initial=0)), 1)) < sets[:, None, None])
    others = decisions.pi.copy()
    others[d, decisions.taken] = 0.0
    edge = np.cumsum(others / others.sum(axis=1, keepdims=True), axis=1)
    for _ in range(budget):
        option = np.minimum((dice.random(len(d))[:, None] >= edge).sum(axis=1), 3)
        few = sets == 0
        wanted[d[few], option[few], 0] = True
    wanted[d, decisions.taken, 0] = True
    return wanted


def sampled(decisions: Decided, alternatives: int, tries: int, dice: np.random.Generator) -> B:
    """The option taken and others drawn from the policy, `alternatives` in all, with so many tries each.

    An option that is drawn again is tried with fresh luck.
    """
    edge = np.cumsum(decisions.pi, axis=1)
    u = dice.random((len(decisions), alternatives - 1))
    option = np.minimum((u[:, :, None] >= edge[:, None, :] - 1e-12).sum(axis=2), decisions.options[:, None] - 1)
    times = (option[:, :, None] == np.arange(4)).sum(axis=1)
    times[np.arange(len(decisions)), decisions.taken] += 1
    wanted: B = np.arange(alternatives * tries) < (times * tries)[:, :, None]
    return wanted


def price(decisions: Decided, wanted: B) -> F:
    """Continuations a decision: all tries but the run itself."""
    own = wanted[np.arange(len(decisions)), decisions.taken, 0]
    many: F = wanted.sum(axis=(1, 2)) - own.astype(np.float64)
    return many


# what is made of it


def branching(decisions: Decided, earned: F) -> Estimates:
    """The option taken against what the policy would have done, by the mean of the tries of each option.

        A = (1 - π_x) ( Q_x - Σ_k π_k Q_k / Σ_k π_k ),   k over the other options that were tried

    With all of them tried that is Q_x - Σ π Q, what is estimated.
    The variance is that of sums over tries of one luck, so that what options share cancels.
    """
    there = ~np.isnan(earned)
    d = np.arange(len(decisions))
    own = earned[d, decisions.taken]
    both = there & ~np.isnan(own)[:, None, :]
    n = both.sum(axis=2)
    if (n[d, decisions.taken] < 1).any():
        raise ValueError("the option taken has to be tried")
    apart = np.where(both, own[:, None, :] - earned, 0.0)
    mean = apart.sum(axis=2) / np.maximum(n, 1)
    weight = np.where(n > 0, decisions.pi, 0.0)
    weight[d, decisions.taken] = 0.0
    chance = 1.0 - decisions.pi[d, decisions.taken]
    weight *= (chance / np.maximum(weight.sum(axis=1), 1e-300))[:, None]
    tries = np.where(weight > 0, n, 0).max(axis=1, initial=1).astype(np.float64)
    off = np.where(both, apart - mean[:, :, None], 0.0) * (weight / np.maximum(n, 1))[:, :, None]
    square = (off.sum(axis=1) ** 2).sum(axis=1) * tries / np.maximum(tries - 1, 1)
    return Estimates((weight * mean).sum(axis=1), np.where(tries > 1, square * tries, np.nan), tries)


def leave_one_out(first: F, others: F) -> F:
    """C3's credit of the run's own choice: A = R - mean of the others. (decisions,), (decisions, alternatives)"""
    credit: F = first - others.mean(axis=1)
    return credit


def pooled(found: Estimates, *keys: V) -> F:
    """Each estimate drawn towards the mean of those it is like, as far as its own noise says.

        m_0 = 0,   m_l = m_{l-1} + τ²_l / (τ²_l + v_g) (mean_g - m_{l-1}),
        g the group of the decision by the l-th key

    Keys go from coarse to fine, the last is the decision itself. v_g is the variance of the group's mean, τ²_l how
    much means of groups differ beyond it (by moments).   from: James & Stein 1961; nested.
    """
    groups = [*keys, np.arange(len(found.credit))]
    noise = _noise(found, groups) / found.tries
    estimate, w = np.zeros(len(found.credit)), found.tries
    for g in groups:
        total = np.bincount(g, w)
        mean = np.bincount(g, w * found.credit) / total
        before = np.bincount(g, w * estimate) / total
        v = np.bincount(g, w * w * noise) / total**2
        far = 1.0 / (v + np.average(v, weights=total) + 1e-12)
        between = max(LEAST, float(np.average((mean - before) ** 2 - v, weights=far)))
        estimate = estimate + (between / (between + v + 1e-12) * (mean - before))[g]
    return estimate


def pooled_branching(decisions: Decided, earned: F, by: Literal["step", "state"]) -> F:
    """`branching` for every option that was tried, as if it had been taken, `pooled`; of each decision that of the
    option taken.

    What was tried at a decision tells of all its options, so that decisions are alike whatever was taken in them.
    Alike by step: the same row of the work. By state: also all that anything later depends on is the same.
    """
    d, option = np.nonzero(~np.isnan(earned).all(axis=2))
    as_if = replace(decisions.take(d), taken=option)
    step = _numbered(as_if.row * 4 + option)
    state = _numbered(as_if.state * 4 + option)
    estimate = pooled(branching(as_if, earned[d]), step, *((state,) if by == "state" else ()))
    own = option == decisions.taken[d]
    credit = np.full(len(decisions), np.nan)
    credit[d[own]] = estimate[own]
    return credit


def _numbered(key: V) -> V:
    number: V = np.unique(key, return_inverse=True)[1].ravel()
    return number


def _noise(found: Estimates, groups: list[V]) -> F:
    """The variance of one try, of each decision: its own and, for a few tries more, that of the groups it is in."""
    known = ~np.isnan(found.variance)
    freedom = np.where(known, found.tries - 1, 0.0)
    square = np.where(known, found.variance, 0.0) * freedom
    spread = np.full(len(square), square.sum() / freedom.sum() if freedom.sum() else _unlike(found, groups))
    for g in groups:
        n = np.bincount(g)
        above = np.bincount(g, spread) / n
        spread = ((np.bincount(g, square) + PRIOR * above) / (np.bincount(g, freedom) + PRIOR))[g]
    return spread


def _unlike(found: Estimates, groups: list[V]) -> float:
    """Where nothing was tried twice: how much decisions differ that the last key holds to be alike."""
    if len(groups) < 2:
        return 0.25  # of a coin
    g = groups[-2]
    n = np.bincount(g)
    off = found.credit - (np.bincount(g, found.credit) / n)[g]
    return float((found.tries * off**2).sum() / max(int((n - 1).sum()), 1))
