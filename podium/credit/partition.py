"""A team reward split exactly over units and channels, so that stacking credits never counts anything twice.

Channels *claim*: this tool call 0.2, that agent 0.5. Claims overlap, because a call belongs to a turn, the turn to
an agent, the agent to the team. In a partition each claim holds only what no finer claim inside it has; the team
gets the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from podium.credit.credit import BadCredit, Credit, Step
from podium.credit.masks import team_value
from podium.credit.routing import Share, down
from podium.graph import units
from podium.graph.grouping import any_by, count_by, take, total_by
from podium.registry import register
from podium.rewards.ledger import Ledger
from podium.trace.columns import F, Trace

__all__ = ["Claim", "Partition", "claims_of", "partition"]


class Claim(NamedTuple):
    """What a channel says each unit of a kind is worth, else NaN; `inclusive` with all that is inside the unit."""

    channel: str
    unit: str
    value: F
    inclusive: bool = False


class Part(NamedTuple):
    """What each unit of a kind has from a channel, nobody else having it too."""

    channel: str
    unit: str
    paid: F


@dataclass(frozen=True)
class Partition:
    """A reward of runs in parts."""

    trace: Trace
    whole: F  # what each run is to be paid
    parts: tuple[Part, ...]

    def total(self) -> F:
        """The sum of all parts of each run; NaN where there was nothing to split."""
        return _total(self.trace, self.parts)

    def at(self, unit: str, by: Share = "equal") -> F:
        """Everything, at one kind of unit: finer parts summed into it, coarser ones shared among the units inside.

        NaN for a unit whose run has nothing to split. Refuses where a part would be lost: a run, or a coarser unit,
        with credit and no unit of this kind inside, or a finer unit outside of all.
        """
        total = np.zeros(len(units.rows(self.trace, unit)))
        for part in self.parts:
            if units.finer(part.unit, unit):
                moved = _up(self.trace, part.unit, unit, part.paid)
                has_place = units.within(self.trace, part.unit, unit) >= 0
            else:
                inside = units.within(self.trace, unit, part.unit)
                moved = np.where(inside < 0, 0.0, down(self.trace, part.paid, part.unit, unit, by))
                has_place = any_by(inside, inside >= 0, len(part.paid))
            if (lost := ~has_place & (np.nan_to_num(part.paid) != 0.0)).any():
                raise BadCredit(
                    f"{part.channel} pays {int(lost.sum())} of its units ({part.unit}) that have no {unit}; "
                    "it would be lost"
                )
            total = total + moved
        return total

    def gap(self) -> F:
        """By how much the parts of each run miss the whole."""
        return self.total() - self.whole


def partition(trace: Trace, whole: F, claims: Sequence[Claim], rest: str = "rest") -> Partition:
    """Splits what each run is worth over the channels and units that claim it; the team has what nobody claims.

        part_c(u) = claim_c(u) - Σ claims inside u that no finer inclusive claim holds      (inclusive)
        part_c(u) = claim_c(u)                                                              (not inclusive)
        rest(n)   = whole(n) - Σ all parts in n

    A run without a whole has no parts (NaN). A unit of which a channel says nothing gets nothing from it.
    """
    order = list(units.UNITS)
    for claim in claims:
        if claim.unit not in order or len(claim.value) != len(units.rows(trace, claim.unit)):
            raise BadCredit(f"{claim.channel} does not have one number for each {claim.unit}")
    ranked = sorted(claims, key=lambda c: order.index(c.unit))
    claimed = [np.nan_to_num(c.value) for c in ranked]
    own = [s.copy() for s in claimed]
    for i, claim in enumerate(ranked):
        _take_out(trace, claim.unit, claimed[i], list(zip(ranked[:i], own[:i], strict=True)))
    run_of = [units.rollouts(trace, c.unit) for c in ranked]
    parts = [
        Part(c.channel, c.unit, np.where(np.isnan(whole)[n], np.nan, k))
        for c, k, n in zip(ranked, own, run_of, strict=True)
    ]
    return Partition(trace, whole, (*parts, Part(rest, "team", whole - _total(trace, parts))))


def _total(trace: Trace, parts: Sequence[Part]) -> F:
    """The sum of all parts of each run."""
    total = np.zeros(len(trace))
    for part in parts:
        total += _up(trace, part.unit, "team", part.paid)
    return total


def _take_out(trace: Trace, unit: str, said: F, coarser: list[tuple[Claim, F]]) -> None:
    """Takes claims out of the nearest inclusive ones that hold them, in place."""
    left = said != 0.0
    for claim, own in reversed(coarser):
        if not claim.inclusive or claim.unit == unit:
            continue
        inside = units.within(trace, unit, claim.unit)
        holds = left & ~np.isnan(take(claim.value, inside))
        own -= total_by(np.where(holds, inside, -1), said, len(own))
        left &= ~holds


def _up(trace: Trace, unit: str, coarser: str, value: F) -> F:
    """The sum inside each coarser unit; what is inside none is left out."""
    return total_by(units.within(trace, unit, coarser), value, len(units.rows(trace, coarser)))


def claims_of(ledger: Ledger) -> list[Claim]:
    """What the channels of a reward expression pay, as claims: they add, none includes another."""
    return [Claim(channel.name, channel.unit, channel.paid) for channel in ledger.channels]


@register("step")
def closed(credit: Credit, part: Step, by: Share = "equal") -> Credit:
    """Another credit made to add up: what it leaves of the team's reward is shared among all its units.

        A_u = p_u + s_u ( R - Σ_u p_u ),   Σ_u s_u = 1 over the units of a run

    Shares are equal or by tokens or time; NaN for a unit that `part` gives nothing.
    pays: what `part` pays.   conserves: the sum over a run is R.
    """
    given = part(credit)
    trace, value_n = credit.trace, team_value(credit)
    run = given.rollout
    paid_u = ~np.isnan(given.value)
    one = down(trace, np.ones(len(trace)), "team", given.unit, by)
    share = np.where(paid_u, one, 0.0)
    n = len(trace)
    whole, many = total_by(run, share, n), count_by(run, paid_u, n)
    even = whole[run] <= 0
    left = value_n - total_by(run, np.where(paid_u, given.value, 0.0), n)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(even, 1.0 / many[run], share / whole[run])
        return given.of(np.where(paid_u, given.value + share * left[run], np.nan))
