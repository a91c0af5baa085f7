"""Groups that have nothing to teach."""

from __future__ import annotations

import numpy as np

from podium import rewards
from podium.credit.credit import Credit
from podium.credit.keys import By, groups
from podium.graph.grouping import count_of
from podium.registry import register

__all__: list[str] = []


@register("step")
def drop_even(credit: Credit, reward: str = "outcome", by: By = "task") -> Credit:
    """No credit (NaN) where a reward is the same in a whole group: all solved it, or none.

        A = v where min_g x < max_g x, else none,    x = the reward expression at this unit

    from: DAPO's dynamic sampling, which draws such groups anew.
    """
    group, x = groups(credit, by), rewards.score(credit.trace, reward, credit.unit)
    scored = np.flatnonzero((group >= 0) & ~np.isnan(x))
    least, most = np.full(count_of(group) + 1, np.inf), np.full(count_of(group) + 1, -np.inf)
    np.minimum.at(least, group[scored], x[scored])
    np.maximum.at(most, group[scored], x[scored])
    return credit.of(np.where((least < most)[group], credit.value, np.nan))
