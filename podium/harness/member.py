"""An agent in a run: what it is, what has reached it, what it is doing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from podium.harness.budget import Ledger
from podium.harness.team import Role
from podium.harness.types import Action, Call, Item
from podium.trace.recorder import Name
from podium.trace.vocabulary import EdgeType

__all__ = ["GONE", "GRANTED", "IDLE", "QUEUED", "RESTING", "THINKING", "Mail", "Member", "Pending"]

IDLE, RESTING, QUEUED, GRANTED, THINKING, GONE = range(6)  # resting: before it tries again; granted: it has a slot
Edges = list[tuple[EdgeType, Name]]


class Mail(msgspec.Struct, frozen=True, gc=False):
    """An item on its way to an agent, with the event that it is. Its key names it in every branch of a run
    alike."""

    item: Item
    event: Name | None
    edge: EdgeType
    key: str
    critical: int  # steps on the longest chain that led to it
    clean: bool = True  # it is what the record has, where the run is a replay


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A call under way: the name its event will have, its causes, when it began, and what is written with it."""

    call: Call
    event: Name
    after: Edges
    t: float
    fields: dict[str, Any]


class Member:
    """An agent in a run."""

    __slots__ = (
        "after",
        "again",
        "attempt",
        "awaiting",
        "began",
        "born",
        "calls",
        "children",
        "context",
        "counts",
        "critical",
        "depth",
        "dice",
        "folder",
        "history",
        "inbox",
        "last",
        "ledger",
        "lone_call",
        "name",
        "on_record",
        "parent",
        "post",
        "returned",
        "role",
        "role_name",
        "seed",
        "seen",
        "spoken",
        "state",
        "step",
        "taken",
        "task",
        "tools",
        "turn",
        "urgent",
        "value",
        "worker",
    )

    def __init__(
        self,
        name: str,
        role_name: str,
        role: Role,
        parent: Member | None,
        tools: tuple[str, ...],
        seed: int,
        born: float,
    ) -> None:
        self.name, self.role_name, self.role, self.parent, self.tools = name, role_name, role, parent, tools
        self.depth: int = parent.depth + 1 if parent else 0
        self.seed, self.born = seed, born
        self.on_record: bool = parent.on_record if parent else True
        self.folder: Path | None = None
        self.task: Any = None
        self.context: Any = None
        self.state, self.turn, self.attempt, self.critical = IDLE, 0, 0, 0
        self.inbox: list[Mail] = []
        self.taken: list[Mail] = []  # what the step under way sees
        self.seen: list[Item] = []  # the same, as items
        self.history: list[tuple[list[Item], list[Action]]] = []
        self.children: dict[str, Member] = {}
        self.counts: dict[str, int] = {}  # of children by role, for their names
        self.post: dict[str, list[Mail]] = {}  # for children that are not yet there
        self.awaiting: dict[str, None] = {}  # children at work for it, in order
        self.calls: dict[int, Pending] = {}
        self.returned: list[tuple[str, Any, Name]] = []
        self.value: Any = None  # of its last aggregate
        self.again = False  # it is to step though nothing came
        self.urgent = False  # a person said something: it is to step though it waits for others
        self.lone_call = False  # its last step did one thing: call a tool
        self.step: Name | None = None  # the name that the first event of the step under way will have
        self.after: Edges = []
        self.last: Name | None = None  # its last event
        self.spoken: Name | None = None  # the event of what its model said last
        self.began, self.dice = 0.0, 0  # of the step under way: its time and its seed
        self.ledger = Ledger(role.budget)
        self.worker: Any = None  # whatever drives it

    def ready(self) -> bool:
        """Whether there is cause for a step: something came, and nothing is under way that it waits for."""
        if self.again:
            return True
        if not self.inbox:
            return False
        return self.role.wait == "any" or self.urgent or not (self.awaiting or self.calls)
