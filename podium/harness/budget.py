"""What a team, or one agent, may use up, and the account of what it has."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

__all__ = ["NO_LIMIT", "Budget", "Hit", "Ledger"]


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits; None is no limit. A step is one call of an agent.

    The critical steps of a step are one more than the most of what it saw: the longest chain of steps that waited
    for each other, so that what runs side by side counts once.
    """

    steps: int | None = None  # a team of which it is not said is ended after 100,000
    critical_steps: int | None = None
    tokens: float | None = None
    cost: float | None = None  # money
    seconds: float | None = None  # of wall-clock
    agents: int | None = None  # that are spawned
    depth: int | None = None  # of spawns: the lead's children are at 1

    @property
    def shared(self) -> bool:
        """Whether it couples the agents that live on it: what one uses up, another cannot."""
        return any(limit is not None for limit in (self.steps, self.tokens, self.cost, self.agents))


NO_LIMIT = Budget()


class Hit(NamedTuple):
    """A limit that was met."""

    budget: str
    limit: float
    used: float


class Ledger:
    """What was used up of a budget."""

    __slots__ = ("agents", "budget", "cost", "steps", "tokens")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.steps = self.agents = 0
        self.tokens = self.cost = 0.0

    def step(self, critical: int, elapsed: float) -> Hit | None:
        """The limit that forbids another step, which would be this critical and begin after so many seconds."""
        b = self.budget
        if b is NO_LIMIT:
            return None
        if b.steps is not None and self.steps >= b.steps:
            return Hit("steps", b.steps, self.steps)
        if b.critical_steps is not None and critical > b.critical_steps:
            return Hit("critical_steps", b.critical_steps, critical - 1)
        if b.tokens is not None and self.tokens >= b.tokens:
            return Hit("tokens", b.tokens, self.tokens)
        if b.cost is not None and self.cost >= b.cost:
            return Hit("cost", b.cost, self.cost)
        if b.seconds is not None and elapsed >= b.seconds:
            return Hit("seconds", b.seconds, elapsed)
        return None

    def spawn(self, depth: int) -> Hit | None:
        """The limit that forbids another agent at this depth."""
        b = self.budget
        if b.agents is not None and self.agents >= b.agents:
            return Hit("agents", b.agents, self.agents)
        if b.depth is not None and depth > b.depth:
            return Hit("depth", b.depth, depth - 1)
        return None
