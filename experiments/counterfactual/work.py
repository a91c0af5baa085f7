"""What is known of the decisions of a team: the steps of its work and which follow from which, and what was tried
at each decision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import F

__all__ = ["Asked", "Work"]

V = NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """The steps that a team's runs are made of, in order, as the record shows them. No table, no weight and no rule
    of the outcome is in it."""

    type: V  # code of the type of event
    kind: V  # code of the kind of decision, -1 if it is none
    agent: V  # 0 is who acts first
    causes: tuple[tuple[int, ...], ...]  # of each step: the earlier steps that an edge leads from
    ends: tuple[int, ...]  # steps that the outcome is made of: the aggregates

    def __len__(self) -> int:
        return len(self.type)

    @cached_property
    def live(self) -> tuple[tuple[int, ...], ...]:
        """Of each step the earlier ones that it, a later one or the outcome depends on: the state it is taken
        in."""
        needed, found = set(self.ends), []
        for i in reversed(range(len(self))):
            needed = (needed - {i}) | set(self.causes[i])
            found.append(tuple(sorted(needed)))
        return tuple(reversed(found))

    def after(self, i: int) -> set[int]:
        """Step i and all that follows from it."""
        reached = {i}
        for r in range(i + 1, len(self)):
            if not reached.isdisjoint(self.causes[r]):
                reached.add(r)
        return reached

    def meets(self, i: int) -> set[int]:
        """The live steps that have a part in something that also follows from i. The others meet it in the outcome
        alone."""
        follows = self.after(i)
        reached: set[int] = set()
        for r in reversed(range(i + 1, len(self))):
            if r in follows or r in reached:
                reached.update(set(self.causes[r]) - follows)
        return reached.intersection(self.live[i])


@dataclass(frozen=True)
class Asked:
    """Decisions of one team's recorded runs, an entry each, and what tries of their options earned."""

    work: Work
    step: V
    taken: V
    pi: F  # (decisions, options): how likely the policy was to choose each, 0 where there is no such option
    seen: V  # (decisions, steps): the value of each earlier step, 0 where it was not done
    earned: F  # (decisions, options, tries): tries of one number share their luck; NaN where nothing was tried

    def __len__(self) -> int:
        return len(self.step)
