"""A team, described: who leads, which roles there are, what they may use, and the limits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from podium.errors import WrongUse
from podium.harness.budget import NO_LIMIT, Budget
from podium.harness.provenance import GUARDS
from podium.harness.tools import Tool, tool
from podium.harness.types import Agent, Guard
from podium.harness.ways import WAYS, Way
from podium.trace.vocabulary import TOPOLOGIES, Topology

__all__ = ["LEAD", "TAKEN", "BadTeam", "Role", "Team", "fingerprint"]

LEAD = "lead"
TAKEN = ("harness", "person", LEAD)  # names no agent can be given


class BadTeam(WrongUse):
    """A team that cannot work as it is described."""


@dataclass(frozen=True, slots=True)
class Role:
    """What agents of a role are: a function, and what it may use."""

    agent: Agent
    tools: tuple[str, ...] | None = None  # that it may call: all of its parent's unless told
    spawns: tuple[str, ...] = ()  # the roles that it may spawn
    prompt: str = ""  # what a model in this role is told first
    seconds: float | None = 60.0  # that a step may take
    retries: int = 0  # of a step that failed
    backoff: float = 0.0  # seconds before the first of them; twice as long before each further one
    wait: Literal["all", "any"] = "all"  # for all that it started before its next step, or for anything
    patience: float | None = None  # seconds that it waits for children; then they are stragglers
    budget: Budget = NO_LIMIT  # of one agent


@dataclass(frozen=True)
class Team:
    """A lead, the roles that can be spawned, and what all of them share. A function alone is a role."""

    name: str
    lead: Agent | Role
    roles: Mapping[str, Agent | Role] = field(default_factory=dict)
    tools: Sequence[Tool | Callable[..., Any]] = ()
    topology: Topology = "centralized"
    budget: Budget = NO_LIMIT
    slots: int | None = None  # steps that can be under way at once
    ways: Mapping[str, Way] = field(default_factory=dict)  # to aggregate, beside Podium's own
    guards: tuple[Guard, ...] = GUARDS  # that look at what is done and at what comes; () is none
    verify: Callable[[Any, Any], float] | None = None  # task, answer: the team's reward
    task: Any = None  # to try it on

    def __post_init__(self) -> None:
        roles = {name: _role(r) for name, r in self.roles.items()}
        lead = self.lead if isinstance(self.lead, Role) else Role(self.lead, spawns=tuple(roles))
        fields = {
            "roles": roles,
            "lead": lead,
            "tools": tuple(t if isinstance(t, Tool) else tool(t) for t in self.tools),
            "ways": WAYS | dict(self.ways),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        known = {t.name for t in self.toolbox}
        if len(known) < len(self.tools):
            raise BadTeam(f"team {self.name!r}: two of its tools have the same name")
        if self.topology not in TOPOLOGIES:
            raise BadTeam(f"team {self.name!r}: no topology {self.topology!r}; there are {', '.join(TOPOLOGIES)}")
        if self.slots is not None and self.slots < 1:
            raise BadTeam(f"team {self.name!r}: slots must be 1 or more, got {self.slots}")
        for name, role in {LEAD: self.leader, **self.cast}.items():
            if missing := set(role.tools or ()) - known:
                raise BadTeam(f"role {name!r} has tools the team lacks: {', '.join(sorted(missing))}")
            if missing := set(role.spawns) - set(self.cast):
                raise BadTeam(f"role {name!r} spawns roles the team lacks: {', '.join(sorted(missing))}")
            if not callable(role.agent):
                raise BadTeam(f"role {name!r}: expected an async function, got {role.agent!r}")

    @property
    def leader(self) -> Role:
        assert isinstance(self.lead, Role)
        return self.lead

    @property
    def cast(self) -> dict[str, Role]:
        return self.roles  # type: ignore[return-value]

    @property
    def toolbox(self) -> tuple[Tool, ...]:
        return self.tools  # type: ignore[return-value]


def _role(given: Agent | Role) -> Role:
    return given if isinstance(given, Role) else Role(given)


def fingerprint(team: Team) -> str:
    """What a policy is only comparable under: tools, prompts and limits, as a short hash. The agents' own functions
    are the policy, and no part of it.

    >>> async def answer(see): return "42"
    >>> fingerprint(Team("a", answer)) == fingerprint(Team("a", answer, slots=2))
    False
    """
    roles = {LEAD: team.leader} | team.cast
    settings = {
        "tools": [(t.name, t.effect, t.about, t.params, t.outside, t.seconds) for t in team.toolbox],
        "roles": {
            name: (r.tools, r.spawns, r.prompt, r.seconds, r.retries, r.backoff, r.wait, r.patience, r.budget)
            for name, r in roles.items()
        },
        "limits": (team.budget, team.slots),
        "ways": sorted(team.ways),
        "guards": [getattr(g, "__qualname__", repr(g)) for g in team.guards],
    }
    return hashlib.sha256(msgspec.json.encode(settings, order="deterministic")).hexdigest()[:16]
