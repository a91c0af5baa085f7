"""What a unit had to beat: steps that subtract a baseline."""

from __future__ import annotations

import numpy as np

from podium import rewards
from podium.credit.credit import Credit
from podium.credit.groups import Alone, Count, Moments, lonely, moments
from podium.credit.keys import By, groups
from podium.credit.orders import before, timeline
from podium.credit.returns import column
from podium.graph.grouping import changes, count_by, count_of, group_totals
from podium.registry import register
from podium.rewards.individual import total_of
from podium.trace.columns import B, F, I

__all__ = ["minus_history", "tokens_written"]


@register("step")
def center(credit: Credit, by: By = "task", count: Count = "row", alone: Alone = "nan") -> Credit:
    """A unit is worth what it beat the mean of its group by.

    A = v - mean_g
    """
    at = moments(credit, by, count)
    return lonely(credit, credit.value - at.mean[at.group], at.alone[at.group], alone, at.group)


@register("step")
def zscore(
    credit: Credit, by: By = "task", count: Count = "row", ddof: int = 1, eps: float = 1e-6, alone: Alone = "nan"
) -> Credit:
    """The same, in standard deviations of the group.

        A = (v - mean_g) / (std_g + eps)

    from: GRPO; ddof and eps as verl has them.
    """
    return _standard(credit, moments(credit, by, count, ddof), eps, alone)


def _standard(credit: Credit, at: Moments, eps: float, alone: Alone) -> Credit:
    scaled = credit.value - at.mean[at.group]
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled /= (np.sqrt(at.variance) + eps)[at.group]
    return lonely(credit, scaled, at.alone[at.group], alone, at.group)


@register("step")
def zscore_against(
    credit: Credit,
    reward: str,
    by: By = "task",
    count: Count = "row",
    ddof: int = 1,
    eps: float = 1e-6,
    alone: Alone = "nan",
) -> Credit:
    """The same, with the mean and the deviation of another reward expression at this unit.

        A = (v - mean_g(x)) / (std_g(x) + eps)

    from: Context-Folding, whose baseline knows the outcome only.
    """
    other = credit.of(rewards.score(credit.trace, reward, credit.unit))
    return _standard(credit, moments(other, by, count, ddof), eps, alone)


@register("step")
def leave_one_out(credit: Credit, by: By = "task", weight: str | None = None, alone: Alone = "nan") -> Credit:
    """A unit is worth what it beat the others in its group by, or with a column of weights their weighted mean.

        A = v - (S - w v) / (W - w),    S = Σ_g w v,   W = Σ_g w

    from: Kool et al. 2019; weights: C3, for nodes that were replayed unequally often.
    """
    group = groups(credit, by)
    w = np.ones(len(group)) if weight is None else column(credit, weight)
    scored = ~np.isnan(credit.value) & (w > 0)
    w, v = np.where(scored, w, 0.0), np.where(scored, credit.value, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        others = (group_totals(group, w * v) - w * v) / (group_totals(group, w) - w)
    return lonely(credit, credit.value - others, ~scored | (group_totals(group, scored) < 2), alone, group)


@register("step")
def below_best(credit: Credit, by: By = "task", alone: Alone = "nan") -> Credit:
    """How far a unit stays below the best of its group: A = v - max_g <= 0.

    from: MAReMax (CoMLRL).
    """
    best, _, alone_u, group = _ranked(credit, by)
    return lonely(credit, credit.value - best, alone_u, alone, group)


@register("step")
def best_only(credit: Credit, by: By = "task", std: bool = False, alone: Alone = "nan") -> Credit:
    """Only the best of a group is paid: what it beat the second by, with `std` over the deviation of the group.

        A = v_max - v_2nd for the best, 0 for the rest and for ties

    from: Pass@k GRPO.
    """
    best, second, alone_u, group = _ranked(credit, by)
    with np.errstate(invalid="ignore"):
        paid = np.where(credit.value == best, best - second, 0.0 * credit.value)
    if std:
        at = moments(credit, by, ddof=1)
        paid = paid / (np.sqrt(at.variance) + 1e-6)[at.group]
    return lonely(credit, paid, alone_u, alone, group)


def _ranked(credit: Credit, by: By) -> tuple[F, F, B, I]:
    """For each unit the best and the second best value in its group, whether it is alone, and its group."""
    group = groups(credit, by)
    scored = np.flatnonzero((group >= 0) & ~np.isnan(credit.value))
    of, value = group[scored], credit.value[scored]
    best = np.full(count_of(group) + 1, -np.inf)  # the last is of those in no group
    second = best.copy()
    np.maximum.at(best, of, value)
    below = value < best[of]
    np.maximum.at(second, of[below], value[below])
    second = np.where(count_by(of, ~below, len(best)) > 1, best, second)
    return (
        best[group],
        second[group],
        np.isnan(credit.value) | (np.bincount(of, minlength=len(best)) < 2)[group],
        group,
    )


@register("step")
def length_weighted(credit: Credit, by: By = "task", size: str = "tokens", alone: Alone = "nan") -> Credit:
    """A baseline in which long units weigh more.

        A = v - Σ_g len v / Σ_g len

    `size` is "tokens" (written) or a column.   from: OPO.
    """
    group = groups(credit, by)
    length = tokens_written(credit) if size == "tokens" else column(credit, size)
    scored = ~np.isnan(credit.value) & ~np.isnan(length)
    length, value = np.where(scored, length, 0.0), np.where(scored, credit.value, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = group_totals(group, length * value) / group_totals(group, length)
    return lonely(credit, credit.value - mean, ~scored | (group_totals(group, scored) < 2), alone, group)


def tokens_written(credit: Credit) -> F:
    """Tokens that the events of each unit wrote; NaN where none says. A token is one."""
    if credit.unit == "token":
        return np.ones(len(credit.value))
    return total_of(credit.trace, credit.unit, credit.trace.tokens_out_e)


@register("step")
def minus(credit: Credit, baseline: str) -> Credit:
    """What a unit beat a column of the trace by: a greedy run, a moving average, a learned value.

    A = v - column
    """
    return credit.of(credit.value - column(credit, baseline))


@register("step")
def minus_parent(credit: Credit, weight: float = 1.0) -> Credit:
    """What a node adds to the one before it in its run: A = v - weight · v(parent); a root keeps its value.

    Of what several did at the moment before the mean is the parent's.   from: MARTI-MARS2.
    """
    line = timeline(credit, "rollout")
    first = np.append(changes(line.chain), True)[line.at]
    return credit.of(credit.value - weight * np.where(first, 0.0, before(line, credit.value)))


@register("step")
def minus_history(credit: Credit, by: By = ("rollout", "agent"), first: Alone = "raw") -> Credit:
    """What a unit adds to the mean of the values before it in its chain; the first has no history.

        A_t = v_t - mean(v_s : s < t),   s scored and of an earlier moment

    from: MARTI.
    """
    group = groups(credit, by)
    when = timeline(credit, "rollout").at
    order = np.lexsort((when, group))
    of, at = group[order], when[order]
    known = ~np.isnan(credit.value[order])
    total = np.append(0.0, np.cumsum(np.where(known, credit.value[order], 0.0)))
    many = np.append(0, np.cumsum(known))
    opens = np.flatnonzero(changes(of) | changes(at))
    until = np.repeat(opens, np.diff(opens, append=len(of)))
    since = np.searchsorted(of, of)
    past = np.full(len(group), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        past[order] = (total[until] - total[since]) / (many[until] - many[since])
    return lonely(credit, credit.value - past, np.isnan(past), first, group)
