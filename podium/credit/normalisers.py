"""How large credit is: steps that rescale it."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.groups import Alone, Count, lonely, moments
from podium.credit.keys import By, groups, numbered_together
from podium.graph.grouping import changes, count_of
from podium.registry import register
from podium.trace.columns import F, I

__all__: list[str] = []


@register("step")
def whiten(credit: Credit, by: By = "batch", count: Count = "row", eps: float = 1e-8, shift: bool = True) -> Credit:
    """Mean 0 (unless told not to shift) and variance 1 over a group, the whole batch unless given.

        A = (v - mean) / sqrt(var + eps),    var with n - 1 below the line

    from: PPO practice, as verl's masked_whiten.
    """
    at = moments(credit, by, count, ddof=1)
    scaled = credit.value - at.mean[at.group]
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled /= np.sqrt(at.variance + eps)[at.group]
    if not shift:
        scaled += at.mean[at.group]
    return lonely(credit, scaled, at.alone[at.group], "nan", at.group)


@register("step")
def rank_gaussian(credit: Credit, by: By = "task", tau: float | None = None, alone: Alone = "nan") -> Credit:
    """The quantile of a unit's rank in its group, through the inverse normal, recentred.

        q = (rank - 1/2) / n,    A = Φ⁻¹(q) - mean_g Φ⁻¹(q)

    Equal values share their mean rank. With a temperature ranks are soft: rank_i = 1/2 + Σ_j σ((v_i - v_j) / τ).
    from: SoftRankPO.
    """
    if tau is not None and tau <= 0:
        raise BadCredit(f"tau must be above 0, got {tau!r}")
    group = groups(credit, by)
    scored = np.flatnonzero((group >= 0) & ~np.isnan(credit.value))
    rank = np.full(len(group), np.nan)
    rank[scored] = _ranks(credit.value[scored], group[scored]) if tau is None else _soft(credit, group, scored, tau)
    n = np.bincount(group[scored], minlength=count_of(group) + 1)[group]
    with np.errstate(divide="ignore", invalid="ignore"):
        quantile = (rank - 0.5) / n
    normal = credit.of(np.where(np.isnan(quantile), np.nan, _inverse_normal(quantile)))
    at = moments(normal, by)
    return lonely(credit, normal.value - at.mean[at.group], at.alone[at.group], alone, at.group)


def _ranks(value: F, group: I) -> F:
    """1 for the lowest of its group; equal values share the mean of their places."""
    order = np.lexsort((value, group))
    v, g = value[order], group[order]
    opens = changes(v) | changes(g)
    tie = np.cumsum(opens) - 1
    place = np.arange(len(v)) - np.searchsorted(g, g) + 1.0
    shared = np.bincount(tie, place) / np.bincount(tie) if len(v) else place
    rank = np.empty(len(v))
    rank[order] = shared[tie]
    return rank


def _soft(credit: Credit, group: I, scored: I, tau: float) -> F:
    """Soft ranks, all groups of a size at once: a group of n different values costs n²."""
    _, different = np.unique(credit.value[scored], return_inverse=True)
    same = numbered_together(group[scored], different)  # equal values of a group are ranked once
    n = count_of(same)
    of, v = np.zeros(n, np.int64), np.zeros(n)
    of[same], v[same] = group[scored], credit.value[scored]
    many, size = np.bincount(same, minlength=n), np.bincount(of)
    first, rank = np.cumsum(size) - size, np.empty(n)
    for m in set(size.tolist()):
        at = first[size == m][:, None] + np.arange(m)
        value, times = v[at], many[at]
        for k in range(m):
            with np.errstate(over="ignore"):  # far apart, e^x is infinite and 1 / (1 + e^x) is 0
                rank[at[:, k]] = 0.5 + (times / (1.0 + np.exp((value - value[:, k : k + 1]) / tau))).sum(axis=1)
    ranks: F = rank[same]
    return ranks


def _inverse_normal(quantile: F) -> F:
    """Each different quantile once."""
    different, which = np.unique(quantile, return_inverse=True)
    normal = NormalDist()
    return np.array([normal.inv_cdf(min(max(q, 1e-12), 1 - 1e-12)) if q == q else np.nan for q in different])[which]


@register("step")
def threshold(credit: Credit, at: float = 0.5, low: float = 0.0, high: float = 1.0) -> Credit:
    """`high` above the threshold, `low` at or below it.

    from: MALT, which labels a node good if its value is above one half.
    """
    return credit.where_known(np.where(credit.value > at, high, low))


@register("step")
def clip(credit: Credit, low: float, high: float) -> Credit:
    """No less than `low`, no more than `high`."""
    if not low <= high:
        raise BadCredit(f"clip needs low <= high, got {low!r} and {high!r}")
    return credit.of(np.clip(credit.value, low, high))
