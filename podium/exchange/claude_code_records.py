"""What Claude Code writes, as far as it is read, and what is made of it on the way to events. Fields have the log's
own names."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from podium.exchange.build import Noted

__all__ = [
    "NONE",
    "Attached",
    "Block",
    "Fetched",
    "Item",
    "Launch",
    "Launched",
    "Meta",
    "Place",
    "Record",
    "Stream",
    "Turn",
    "Usage",
    "larger_usage",
]

NONE = Raw()  # a field that is not there


class CacheWrite(Struct, gc=False):
    ephemeral_1h_input_tokens: float | None = None


class Usage(Struct, gc=False):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_creation_input_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_creation: CacheWrite | None = None

    def hour(self) -> float | None:
        return None if self.cache_creation is None else self.cache_creation.ephemeral_1h_input_tokens


def larger_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """The larger of each figure: lines of one answer repeat its usage, some with less."""
    if a is None or b is None or a == b:
        return a or b
    hour = _larger(a.hour(), b.hour())
    return Usage(
        _larger(a.input_tokens, b.input_tokens),
        _larger(a.output_tokens, b.output_tokens),
        _larger(a.cache_creation_input_tokens, b.cache_creation_input_tokens),
        _larger(a.cache_read_input_tokens, b.cache_read_input_tokens),
        None if hour is None else CacheWrite(hour),
    )


def _larger(x: float | None, y: float | None) -> float | None:
    return y if x is None else x if y is None or x >= y else y


class Block(Struct, gc=False):
    """A part of a message."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Raw = NONE
    tool_use_id: str | None = None
    content: Raw = NONE
    is_error: bool | None = None
    text: Raw = NONE


class Message(Struct, gc=False):
    model: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[Block | str] | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


class Progress(Struct, gc=False):
    type: str | None = None
    agentId: str | None = None  # noqa: N815
    message: Raw = NONE
    elapsedTimeSeconds: float | None = None  # noqa: N815


class Record(Struct, gc=False):
    """A line, as far as it is read. Fields are named, and about in the order, as in the log, which makes reading
    faster."""

    parentUuid: str | None = None  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    cwd: str | None = None
    version: str | None = None
    agentId: str | None = None  # noqa: N815
    type: str | None = None
    message: Message | None = None
    data: Progress | None = None
    parentToolUseID: str | None = None  # noqa: N815
    uuid: str | None = None
    timestamp: str | None = None
    toolUseResult: Raw = NONE  # noqa: N815
    subtype: str | None = None
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    parent_tool_use_id: str | None = None
    operation: str | None = None
    content: Raw = NONE
    attachment: Raw = NONE
    compactMetadata: Raw = NONE  # noqa: N815
    preventedContinuation: bool | None = None  # noqa: N815
    costUSD: float | None = None  # noqa: N815
    task_id: str | None = None
    tool_use_id: str | None = None
    status: str | None = None
    duration_ms: float | None = None
    total_cost_usd: float | None = None


class Launched(Struct, gc=False):
    """What the result of a launch says."""

    status: str | None = None
    isAsync: bool | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    agent_id: str | None = None
    teammate_id: str | None = None
    name: str | None = None
    agentType: str | None = None  # noqa: N815
    totalDurationMs: float | None = None  # noqa: N815
    totalTokens: float | None = None  # noqa: N815
    totalToolUseCount: float | None = None  # noqa: N815
    resolvedModel: str | None = None  # noqa: N815
    usage: Usage | None = None


class Fetched(Struct, gc=False):
    """What the result of a fetch says: the answer of the page's server."""

    code: float | None = None


class Launch(Struct, gc=False):
    """What the input of a launch says."""

    prompt: str | None = None
    description: str | None = None
    subagent_type: str | None = None
    name: str | None = None
    resume: str | None = None
    run_in_background: bool | None = None


class Attached(Struct, gc=False):
    type: str | None = None
    prompt: Raw = NONE


class Meta(Struct):
    """The file beside a sub-agent's."""

    toolUseId: str | None = None  # noqa: N815
    parentAgentId: str | None = None  # noqa: N815
    agentType: str | None = None  # noqa: N815


Place = tuple[str, int]  # a file and a line of it


class Turn(Struct, gc=False):
    """One answer of the model, from all lines that have its id."""

    id: str
    t: float | None = None
    end: float | None = None
    model: str | None = None
    usage: Usage | None = None
    stopped: bool = False  # some line says why it stopped, so its output tokens are final
    cost: float | None = None
    texts: list[bytes] = []  # as JSON
    calls: list[str] = []


class Item(Struct, gc=False):
    """Something that happened in the stream of an agent."""

    kind: str  # turn, call, result, prompt, interrupt, notice, teammate, compaction, stopped
    t: float | None
    place: Place
    turn: Turn | None = None
    id: str = ""  # of a call, a task or a teammate
    tool: str | None = None
    content: Noted | None = None  # of a call or a result
    failed: bool | None = None  # a result is an error
    refusal: str = ""  # a result is none: "refused" by the person, or "denied" by a permission
    text: str = ""
    given: dict[str, Any] = {}  # the input of a call that concerns other agents; what is said of a compaction


class Stream(Struct, gc=False):
    """What one agent did, in causal order."""

    key: str
    items: list[Item] = []
    prompt: str | None = None  # the text that it begins with
    side: bool = False
    place: Place | None = None
    at: int = 0  # how many items were written already
