"""What an agent sees and does, what a tool is, and how a refusal or a fault is told. Everything else builds on
this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol

import msgspec

from podium.errors import shown

__all__ = [
    "ACTIONS",
    "SAID",
    "Action",
    "Agent",
    "Aggregate",
    "Call",
    "Caller",
    "Delegate",
    "Did",
    "Effect",
    "Fault",
    "Guard",
    "Item",
    "Refused",
    "Result",
    "Return",
    "Running",
    "Said",
    "See",
    "Send",
    "Spawn",
    "Stop",
    "Wait",
    "crash",
    "shown",
]

Effect = Literal["pure", "replayable", "once"]
SAID = (
    "sampling",
    "seen_ids",
    "choice",
    "pi",
    "finish",
    "link",
    "grammar",
)  # of what a model said: fields of our own on its event
Kind = Literal["task", "message", "result", "return", "human"]


class Item(msgspec.Struct, omit_defaults=True, gc=False):
    """Something that reached an agent: its task, a message, a tool's result, what a child returned, a person's
    word.

    `source` says where it came from ("lead", "tool:search", "mcp:files", "person"); `trusted` is False for whatever
    came from outside. `fault` is the kind of fault where there is no content to speak of, and `content` then says
    why.
    """

    kind: Kind
    source: str
    content: Any = None
    trusted: bool | None = None
    fault: str | None = None
    tool: str | None = None
    call: int | None = None  # of a result: the place of its call among the actions of the step that made it
    event: str = ""  # the id of the event that it is in the trace


class _Action(msgspec.Struct, omit_defaults=True, tag_field="do", tag=str.lower, kw_only=True, gc=False):
    logp: float | None = None  # how likely the agent was to do this


class Spawn(_Action):
    """A new agent in a role, with a task unless it is to wait for one. It has at most its parent's tools."""

    role: str
    task: Any = None
    name: str | None = None
    tools: list[str] | None = None
    context: Any = None


class Delegate(_Action):
    """A task for an agent that is there: it works, and returns."""

    to: str
    task: Any


class Send(_Action):
    """A message to the agent's parent, one of its children or one of its siblings. It waits for a sibling that is
    not yet there."""

    to: str
    content: Any


class Aggregate(_Action):
    """Combines what children returned so far, or `of` them, by one of the team's ways. The value comes as a result,
    and is the answer of a `Stop` that names none."""

    how: str = "vote"
    of: list[str] | None = None


class Stop(_Action):
    """The lead has its answer: the run is over. A sub-agent that stops returns the answer."""

    answer: Any = None


class Call(_Action):
    """Calls a tool."""

    tool: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class Return(_Action):
    """An answer to whoever gave the task."""

    content: Any = None


class Wait(_Action):
    """Nothing to do until something comes. `instead` names the decision that was made against doing something: to
    spawn, delegate to or tell `none`, or to `go on` instead of a stop, at once."""

    instead: Literal["spawn", "delegate", "communicate", "stop"] | None = None


Action = Spawn | Delegate | Send | Aggregate | Stop | Call | Return | Wait
ACTIONS: tuple[type[Action], ...] = (Spawn, Delegate, Send, Aggregate, Stop, Call, Return, Wait)


class Said(msgspec.Struct, omit_defaults=True):
    """What a language model read and said to come to a step, token by token: it is on the step's first event, and a
    replay writes it again."""

    tokens: list[int]  # those that it was given for this step, then those that it said
    logps: list[float | None]  # of each, under the distribution that it was drawn from; None where it was given
    mask: list[bool]  # whether the model chose it
    start: int = 0  # tokens of the context that comes before
    extends: bool = False  # that is the context of what this agent said last
    sampling: str = "free"  # or constrained, forced, lost
    seen_ids: str | None = None  # a digest of all that went through the model (`trace.tokens.digest`)
    choice: dict[str, Any] | None = None  # kind, options and chosen, where it said one of some options
    pi: list[float] | None = None  # how likely each of these was
    finish: str | None = None  # of free text, why it ended: stop, length, tool_calls
    link: str | None = None  # and how it goes on from what its agent read before (`engine.dialogue`)
    grammar: dict[str, Any] | None = None  # and what it was held to: a JSON schema, or a call of these tools


class Did(msgspec.Struct, omit_defaults=True):
    """What an agent does in a step, and what it took to come to that."""

    actions: Action | list[Action] | str | None
    tokens_in: float | None = None
    tokens_out: float | None = None
    cost: float | None = None
    model: str | None = None
    version: str | None = None
    trusted: bool | None = (
        None  # False where what it does was written outside (a remote endpoint that nobody vouches for)
    )
    said: Said | None = None


class See(msgspec.Struct, gc=False):
    """What an agent sees in a step. What it does may depend on nothing else, so that a step can be replayed."""

    name: str
    role: str
    parent: str | None
    task: Any
    context: Any
    turn: int  # steps it has taken before this one
    new: list[Item]  # what came since its last step, the earliest first
    history: list[tuple[list[Item], list[Action]]]  # what it saw and did in each step before
    children: list[str]
    roles: tuple[str, ...]  # that it can spawn
    tools: tuple[str, ...]  # that it may call
    depth: int
    folder: Path | None  # its own, where the run has folders
    seed: int  # of this step's randomness: hand it to whatever samples

    @property
    def random(self) -> Random:
        """Dice of this step's own, the same in every replay."""
        return Random(self.seed)

    def items(self, kind: Kind) -> list[Item]:
        """All that came so far of this kind, faults included."""
        return [i for saw, _ in self.history for i in saw if i.kind == kind] + [
            i for i in self.new if i.kind == kind
        ]

    @property
    def results(self) -> list[Any]:
        """What the tools called in the step before answered; a fault is left out."""
        return [i.content for i in self.new if i.kind == "result" and i.fault is None]

    @property
    def returns(self) -> list[Any]:
        """What children have returned so far; a fault is left out."""
        return [i.content for i in self.items("return") if i.fault is None]


Agent = Callable[[See], Awaitable[Any]]  # to an Action, a list of them, a Did, or a string, which is a Return


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a tool: for tools that act for an agent (in its folder, within its time)."""

    agent: str
    folder: Path | None
    seconds: float | None  # it has left for the call
    seed: int


class Result(msgspec.Struct, omit_defaults=True):
    """A tool's result that says more than its content: where it came from, whether to trust it, what it cost."""

    content: Any
    trusted: bool | None = None
    source: str | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    cost: float | None = None


class Fault(Exception):
    """Something failed that the team can live with: raised by an agent or a tool, it is recorded with its kind
    ("exception", "timeout", "nonsense", "endpoint", ...) and told to whoever waits. `retry`: it may work the next
    time.
    """

    def __init__(self, kind: str, why: str, retry: bool = False) -> None:
        why = why if why.isascii() else why.encode(errors="replace").decode()  # it is to be written down
        super().__init__(why)
        self.kind, self.why, self.retry = kind, why, retry


def crash(error: BaseException) -> Fault:
    """What ends a program elsewhere, raised by an agent or a tool: here it ends that agent, or that call."""
    why = f"it wanted to exit with {error.code!r}" if isinstance(error, SystemExit) else shown(error)
    return Fault("crash", why)


class Refused(Fault):
    """Something that is not allowed: raised by a tool or a guard, it is recorded as a safety event."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(kind, why)


Guard = Callable[[str, Action | Item], Refused | None]
"""Looks at what an agent (by name) is about to do, or at what is about to reach it. An action that it refuses is
not done; an item that it refuses is delivered as untrusted content. Either is recorded as a safety event. It must
be a pure function: a replay asks it again."""


class Running(Protocol):
    """A run under way, as the door of a person sees it."""

    @property
    def paused(self) -> bool: ...
    def attend(self, there: bool) -> None: ...
    def pause(self, by: str) -> None: ...
    def resume(self, by: str) -> None: ...
    def inject(self, to: str, content: Any, by: str) -> None: ...
    def edit(self, event: str, content: Any, by: str) -> None: ...
    def waiting(self) -> Sequence[tuple[str, Item]]: ...
    def agents(self) -> Sequence[str]: ...
    async def finished(self) -> Any: ...
