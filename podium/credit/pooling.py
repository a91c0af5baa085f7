"""Credit from branches, with what the same option did at the same place in other runs, as far as a decision's own runs leave it unsure."""

from __future__ import annotations

from typing import Literal

import numpy as np

from podium.credit.branches import Alternatives, alternatives, chance, in_a_tree, odds, sums
from podium.credit.credit import BadCredit, Credit
from podium.credit.groups import Alone, lonely
from podium.credit.keys import By, groups, numbered_together
from podium.graph.grouping import count_of
from podium.registry import register
from podium.trace.columns import F, I

__all__ = ["pooled_prefix"]

PRIOR = 4.0  # runs that what decisions of one place vary by counts for, against those of one decision


@register("step")
def pooled_prefix(
    credit: Credit,
    by: By = ("task", "agent", "decision"),
    baseline: Literal["policy", "mean"] = "policy",
    pi: str = "pi",
    alone: Alone = "nan",
) -> Credit:
    """What `same_prefix(baseline, same="option")` gives, drawn towards its mean over the decisions of one place that took the same option.

        A' = m + (A - m) τ² / (τ² + s²)

    s² is the variance of A that comes from having so few runs (less where options share seeds), m the
    mean of A over the contexts of the place in which the option was tried, τ² what A varies by between them beyond s². A place is what `by` says;
    the label `anchor` is the sharpest. With many runs, or one context alone, it is A.
    pays: decisions.   needs: branches; for "policy" the label `pi`.   from: ours; James & Stein 1961, Efron & Morris 1975.
    """
    if baseline not in ("policy", "mean"):
        raise BadCredit(f"baseline must be policy or mean, got {baseline!r}")
    alts = alternatives(credit, "option")
    told = alts.n > 0
    weight = np.where(told, odds(credit, alts, pi) if baseline == "policy" else 1.0, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = weight / sums(alts, weight)
        own = alts.mean - sums(alts, weight * np.where(told, alts.mean, 0.0))
    several = told & (sums(alts, told.astype(np.float64)) > 1) & ~np.isnan(own)
    place = _places(credit, alts, by)
    noise = _noise(credit, alts, weight, np.where(several, place, -1))
    paid = np.append(_drawn(credit, alts, own, noise, np.where(several, place, -1)), np.nan)[alts.of_u]
    paid = np.where(np.isnan(credit.value), np.nan, paid)
    return lonely(credit, paid, ~np.append(several, False)[alts.of_u], alone, in_a_tree(credit))


def _places(credit: Credit, alts: Alternatives, by: By) -> I:
    """The place of each alternative: that of the first unit of its context."""
    place_u, inside = groups(credit, by), np.flatnonzero(alts.of_u >= 0)[::-1]
    place_c = np.full(count_of(alts.context), -1)
    place_c[alts.context[alts.of_u[inside]]] = place_u[inside]
    return place_c[alts.context]


def _noise(credit: Credit, alts: Alternatives, weight: F, place: I) -> F:
    """The variance of each contrast that is due to chance; what runs vary by is steadied by the other decisions of the place."""
    square, freedom = chance(credit, alts)
    place_c = np.full(len(square), -1)
    place_c[alts.context] = place
    at, there = np.maximum(place_c, 0), place_c >= 0
    size = count_of(place) + 1
    total, free = (np.bincount(at, x * there, minlength=size) for x in (square, freedom))
    pooled = np.where(free > 0, total / np.maximum(free, 1.0), _variance(credit, alts, place, size))
    one = ((square + PRIOR * pooled[at]) / (freedom + PRIOR))[alts.context]
    each = np.where(alts.n > 0, one / np.maximum(alts.n, 1.0), 0.0)
    noise: F = (1.0 - weight) ** 2 * each + sums(alts, weight**2 * each) - weight**2 * each
    return noise


def _variance(credit: Credit, alts: Alternatives, place: I, size: int) -> F:
    """What outcomes vary by at each place, whatever was chosen: for places in which no option was tried twice."""
    held = np.flatnonzero(alts.counts_u & (alts.of_u >= 0))
    at, value = place[alts.of_u[held]], credit.value[held]
    at, value = at[at >= 0], value[at >= 0]
    n = np.maximum(np.bincount(at, minlength=size), 1)
    mean = np.bincount(at, value, minlength=size) / n
    variance: F = np.bincount(at, (value - mean[at]) ** 2, minlength=size) / n
    return variance


def _drawn(credit: Credit, alts: Alternatives, own: F, noise: F, place: I) -> F:
    """Each contrast drawn towards the mean of its option at its place."""
    unit = np.full(len(alts.n), -1)
    inside = np.flatnonzero(alts.of_u >= 0)
    unit[alts.of_u[inside]] = inside
    option = credit.trace.chosen_e.codes[credit.rows[unit]].astype(np.int64) if len(unit) else unit
    kind = numbered_together(place, option)
    there = (kind >= 0) & ~np.isnan(own)
    at, size = np.maximum(kind, 0), count_of(kind)
    value = np.where(there, own, 0.0)
    n = np.bincount(at, there, minlength=size)
    mean = np.append(np.bincount(at, value, minlength=size) / np.maximum(n, 1.0), 0.0)[at]
    free = np.where(there, 1.0 - 1.0 / np.maximum(np.append(n, 1.0)[at], 1.0), 0.0)
    here, places = np.maximum(place, 0), count_of(place)
    excess = np.where(there, (value - mean) ** 2 - noise * free, 0.0)
    between = np.bincount(here, excess, minlength=places) / np.maximum(
        np.bincount(here, free, minlength=places), 1e-12
    )
    tau = np.append(np.maximum(between, 0.0), 0.0)[here]
    with np.errstate(divide="ignore", invalid="ignore"):
        keep = np.where(noise > 0, tau / (tau + noise), 1.0)
    return np.where(there & (free > 0), mean + (own - mean) * keep, own)
