"""What the small network saw in the episodes of a world."""

from __future__ import annotations

from typing import NamedTuple

from podium.learn.collect import Decisions, StretchEnds

__all__ = ["Observed"]


class Observed(NamedTuple):
    """What it saw at its decisions, and what it learns of how to play the next episodes."""

    decisions: list[Decisions]
    episodes: int = 0
    doubt: float | None = None  # of an episode (`Collected`), where branches are made by it
    ends: StretchEnds | None = None
    fitted: bool = False  # whether the trace holds already what is fitted
