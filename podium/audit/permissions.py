"""Which tools each agent may use, as far as anyone says: a list from outside, or what its spawn granted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.audit.detector import Second
from podium.trace.columns import B, I, Trace, ranges
from podium.trace.vocabulary import event

__all__ = ["Permissions", "role_of_agents"]

SPAWN = event("spawn")
ANY = "*"


def role_of_agents(trace: Trace) -> NDArray[np.int32]:
    """The code of each agent's role, -1 if none: that of its first event that has one, else that on its spawn.

    A spawn may carry the role of the new agent, so a spawn does not tell the role of the agent that spawns.
    """
    code_e, role_a = trace.role_e.codes, np.full(trace.n_agents, -1, np.int32)
    spawn_e = trace.type_e == SPAWN
    for rows, who_e in (
        (spawn_e & (trace.to_e >= 0), trace.to_e),
        (~spawn_e & (trace.agent_e >= 0), trace.agent_e),
    ):
        at = np.flatnonzero(rows & (code_e >= 0))[::-1]  # the first one is written last, so it stays
        role_a[who_e[at]] = code_e[at]
    return role_a


class Permissions:
    """May an agent use a tool? `allowed` speaks of an agent by its name, else its role, else "*"; a spawn's
    `granted` speaks of whom it spawns (the latest spawn that says). Where both speak, both must permit it. A list
    that holds "*" permits everything.

    Tools are numbered: those of the trace as in `tool_e`, then those that are only listed.
    """

    def __init__(self, trace: Trace, second: Second) -> None:
        granted = trace.extra_e.get("granted")
        stated = [] if granted is None else [_tools(word) for word in granted.words]
        lists = [*second.allowed.values(), *(tools for tools in stated if tools is not None)]
        self._number = {tool: i for i, tool in enumerate(trace.tool_e.words)}
        listed = [sorted({self._number.setdefault(t, len(self._number)) for t in tools}) for tools in lists]
        self._size = np.array([*map(len, listed), 0])
        self._first = np.cumsum(self._size) - self._size
        self._tool = np.array([t for tools in listed for t in tools], np.int64)
        self._key = np.repeat(np.arange(len(self._size)), self._size) * self._width + self._tool
        self._any = np.array([*(ANY in tools for tools in lists), True])
        self.allowed_a = self._allowed(trace, second)
        place = len(second.allowed) + np.cumsum([tools is not None for tools in stated]) - 1
        code_w = np.append(np.where([tools is not None for tools in stated], place, -1), -1).astype(np.int64)
        self.grant_e = (
            np.full(trace.n_events, -1)
            if granted is None
            else np.where(trace.type_e == SPAWN, code_w[granted.codes], -1)
        )
        spawns = np.flatnonzero((self.grant_e >= 0) & (trace.to_e >= 0))
        self.granted_a = np.full(trace.n_agents, -1)
        self.granted_a[trace.to_e[spawns]] = self.grant_e[spawns]  # rows ascend, so the last one stays
        self.known_a: B = (self.allowed_a >= 0) | (self.granted_a >= 0)

    @property
    def _width(self) -> int:
        return len(self._number) + 1

    def _allowed(self, trace: Trace, second: Second) -> NDArray[np.int64]:
        """The number of the list that speaks of each agent, -1 if none does."""
        place = {name: i for i, name in enumerate(second.allowed)}

        def found(words: Iterable[str]) -> NDArray[np.int64]:
            return np.array([*(place.get(word, -1) for word in words), -1])

        name_a = found(trace.name_a.words)[trace.name_a.codes]
        role_a = found(trace.role_e.words)[role_of_agents(trace)]
        return np.where(name_a >= 0, name_a, np.where(role_a >= 0, role_a, place.get(ANY, -1)))

    def permitted(self, agent: I, tool: I) -> B:
        """Whether each agent may use each tool; true where nobody says."""
        return self._holds(self.allowed_a[agent], tool) & self._holds(self.granted_a[agent], tool)

    def _holds(self, number: I, tool: I) -> B:
        key = number.astype(np.int64) * self._width + tool
        at = np.minimum(np.searchsorted(self._key, key), max(len(self._key) - 1, 0))
        there = self._key[at] == key if len(self._key) else np.zeros(len(key), np.bool_)
        holds: B = (number < 0) | self._any[number] | there
        return holds

    def grants_beyond(self, trace: Trace) -> B:
        """Spawns that grant a tool which the agent that spawns may not use itself."""
        spawns = np.flatnonzero((self.grant_e >= 0) & (trace.agent_e >= 0))
        number, by = self.grant_e[spawns], trace.agent_e[spawns]
        size = self._size[number]
        tool = self._tool[ranges(self._first[number], size)]
        beyond_e = np.zeros(trace.n_events, np.bool_)
        beyond_e[np.repeat(spawns, size)[~self.permitted(np.repeat(by, size), tool)]] = True
        return beyond_e


def _tools(word: str) -> frozenset[str] | None:
    """The tools that a `granted` names; None for what is no list of names."""
    try:
        return frozenset(msgspec.json.decode(word, type=list[str]))
    except msgspec.DecodeError:
        return None
