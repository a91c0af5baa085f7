"""Another reward on the way: for methods that discount or route two rewards differently."""

from __future__ import annotations

from podium import rewards
from podium.credit.credit import Credit
from podium.registry import register

__all__: list[str] = []


@register("step")
def scored(credit: Credit, reward: str) -> Credit:
    """What another reward expression pays the same units; none (NaN) where there was no credit.

    A = x,    x = the reward expression at this unit
    """
    return credit.where_known(rewards.score(credit.trace, reward, credit.unit))
