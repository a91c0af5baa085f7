"""Credit from branches, steadied by what the same option did at the same place in other runs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from podium.credit.branches import Alternatives, alternatives, chance, in_a_tree, odds, sums
from podium.credit.credit import BadCredit, Credit
from podium.credit.groups import Alone, lonely
from podium.credit.keys import By, groups, numbered_together
from podium.graph.grouping import count_of, first_by, mean_by, ratio, sum_by, take, total_by, unset
from podium.registry import register
from podium.trace.columns import F, I

__all__: list[str] = []

PRIOR = 4.0  # runs that what decisions of one place vary by counts for, against those of one decision


@register("step")
def pooled_prefix(
    credit: Credit,
    by: By = ("task", "agent", "decision"),
    baseline: Literal["policy", "mean"] = "policy",
    pi: str = "pi",
    alone: Alone = "nan",
) -> Credit:
    """`same_prefix(baseline, same="option")`, drawn towards its mean over one place's decisions for that option.

        A' = m + (A - m) τ² / (τ² + s²)

    s² is the variance of A that comes from having so few runs, m the mean of A over the contexts of the place
    (`by`) in which the option was tried, τ² what A varies by between them beyond s². With many runs, or one context
    alone, it is A.
    pays: decisions.   needs: branches; for "policy" the label `pi`.   from: ours; James & Stein 1961, Efron &
    Morris 1975.
    """
    if baseline not in ("policy", "mean"):
        raise BadCredit(f"baseline must be policy or mean, got {baseline!r}")
    alts = alternatives(credit, "option")
    known = alts.n > 0
    weight = np.where(known, odds(credit, alts, pi) if baseline == "policy" else 1.0, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = weight / sums(alts, weight)
        own = alts.mean - sums(alts, weight * np.where(known, alts.mean, 0.0))
    several = known & (sums(alts, known.astype(np.float64)) > 1) & ~np.isnan(own)
    place = np.where(several, _places(credit, alts, by), -1)
    noise = _noise(credit, alts, weight, place)
    paid = _drawn(credit, alts, own, noise, place)
    return lonely(credit, paid[alts.of_u], ~several[alts.of_u], alone, in_a_tree(credit))


def _places(credit: Credit, alts: Alternatives, by: By) -> I:
    """The place of each alternative: that of the first unit of its context."""
    context_u = alts.context[alts.of_u]
    first_c = first_by(context_u, context_u >= 0, count_of(alts.context))
    return groups(credit, by)[first_c][alts.context]


def _noise(credit: Credit, alts: Alternatives, weight: F, place: I) -> F:
    """The variance of each contrast that is due to chance, steadied by the other decisions of the place."""
    square, freedom = chance(credit, alts)
    place_c, size = unset(len(square)), count_of(place)
    place_c[alts.context] = place
    total, free = (total_by(place_c, x, size) for x in (square, freedom))
    pooled = np.where(free > 0, ratio(total, free), _variance(credit, alts, place, size))
    one = ((square + PRIOR * take(pooled, place_c)) / (freedom + PRIOR))[alts.context]
    each = np.nan_to_num(ratio(one, alts.n))
    noise: F = (1.0 - weight) ** 2 * each + sums(alts, weight**2 * each) - weight**2 * each
    return noise


def _variance(credit: Credit, alts: Alternatives, place: I, size: int) -> F:
    """What outcomes vary by at each place, whatever was chosen: for places in which no option was tried twice."""
    at, value = place[alts.of_u[alts.counts_u]], credit.value[alts.counts_u]
    return mean_by(at, (value - take(mean_by(at, value, size), at)) ** 2, size)


def _drawn(credit: Credit, alts: Alternatives, own: F, noise: F, place: I) -> F:
    """Each contrast drawn towards the mean of its option at its place."""
    option = np.empty(len(alts.n), np.int64)
    option[alts.of_u] = credit.trace.chosen_e.codes[credit.rows]
    kind = numbered_together(place, option)
    total, n = sum_by(kind, own, count_of(kind))
    mean, free = take(total / n, kind), 1.0 - 1.0 / take(n.astype(np.float64), kind)
    place = np.where(kind >= 0, place, -1)
    total, freedom = (total_by(place, x, count_of(place)) for x in ((own - mean) ** 2 - noise * free, free))
    tau = np.maximum(take(ratio(total, freedom), place), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        keep = np.where(noise > 0, tau / (tau + noise), 1.0)
    return np.where(free > 0, mean + (own - mean) * keep, own)
