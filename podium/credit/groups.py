"""Statistics of groups: what a unit is compared with.

`row` counts every unit once, `rollout` every run once (its units share one count), `unique` every different value
once. Units of a group of fewer than two are *alone*, and a step says what that gives: "nan" (no credit), "zero", or
"raw" (the value as it is). A unit in no group, because it lacks a key, gets none by any rule.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.keys import By, groups, numbered_together
from podium.graph.grouping import count_of, unset
from podium.trace.columns import B, F, I

__all__ = ["Alone", "Count", "Moments", "counts", "lonely", "moments"]

Count = Literal["row", "rollout", "unique"]
Alone = Literal["nan", "zero", "raw"]


class Moments(NamedTuple):
    """The group of each unit; of each group, the last of units in none, mean, variance, whether one is alone."""

    group: I
    mean: F
    variance: F
    alone: B


def counts(credit: Credit, group: I, count: Count) -> F:
    """How much each unit counts in its group; 0 where it has no group or no value."""
    scored = (group >= 0) & ~np.isnan(credit.value)
    if count == "row":
        return scored.astype(np.float64)
    if count not in ("rollout", "unique"):
        raise BadCredit(f"count must be row, rollout or unique, got {count!r}")
    if count == "rollout":
        same = numbered_together(np.where(scored, group, -1), credit.rollout)
    else:
        value = unset(len(group))
        value[scored] = np.unique(credit.value[scored], return_inverse=True)[1]
        same = numbered_together(np.where(scored, group, -1), value)
    many = np.bincount(same[scored])
    share = np.zeros(len(group))
    share[scored] = 1.0 / many[same[scored]]
    return share


def moments(credit: Credit, by: By, count: Count = "row", ddof: int = 0) -> Moments:
    """Mean and variance over the units of a group that have a value.

    mean = Σ c v / Σ c,   variance = Σ c (v - mean)² / (Σ c - ddof),   0 where nothing is left below the line
    """
    group = groups(credit, by)
    n_groups = count_of(group) + 1
    scored = (group >= 0) & ~np.isnan(credit.value)
    every = bool(scored.all())
    of, value = (group, credit.value) if every else (group[scored], credit.value[scored])
    many = np.bincount(of, minlength=n_groups)
    share = None if count == "row" else counts(credit, group, count)[slice(None) if every else scored]
    n = many if share is None else np.bincount(of, share, minlength=n_groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(of, value if share is None else share * value, minlength=n_groups) / n
        off = value - mean[of]
        off *= off
        total = np.bincount(of, off if share is None else share * off, minlength=n_groups)
        variance = np.where(n > 0, total, np.nan) / np.where(n - ddof > 1e-9, n - ddof, np.inf)
    return Moments(group, mean, variance, np.round(many if count == "unique" else n, 9) < 2)


def lonely(credit: Credit, value: F, alone: B, rule: Alone, group: I) -> Credit:
    """The credit, by the rule for units that are alone; NaN for those in no group (-1) and those that had none."""
    if rule not in ("nan", "zero", "raw"):
        raise BadCredit(f"alone must be nan, zero or raw, got {rule!r}")
    instead = credit.value if rule == "raw" else 0.0 if rule == "zero" else np.nan
    given = np.where(alone, instead, value)
    return credit.where_known(np.where(group < 0, np.nan, given))
