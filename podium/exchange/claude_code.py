"""Claude Code: session transcripts of every generation, and stream-json.

A session is one rollout; each prompt by the person is one of its tasks. A session's records come from its main file, from files of
its sub-agents, and from copies of either: a call, a result, a message and a text count once, by their ids. Reading takes two steps:
`Session` sorts records into one stream an agent, `Telling` tells the streams as events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from podium.exchange.build import Run
from podium.exchange.claude_code_events import Telling
from podium.exchange.claude_code_records import (
    NONE,
    Attached,
    Block,
    CacheWrite,
    Item,
    Launch,
    Launched,
    Meta,
    Place,
    Record,
    Stream,
    Turn,
    Usage,
)
from podium.exchange.lines import records
from podium.exchange.reading import Source
from podium.registry import register
from podium.trace.survey import top_fields

__all__ = ["claude_code"]

MAIN = ""  # the key of the main agent's stream
LAUNCHES = ("Task", "Agent")
_NOTICE = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.DOTALL)
_TEAMMATE = re.compile(r"<teammate-message\b([^>]*)>(.*?)(?:</teammate-message>|\Z)", re.DOTALL)
_INJECTED = (
    "<local-command", "<bash-stdout", "<bash-stderr", "<system-reminder", "<user-prompt-submit-hook", "Caveat: The messages below",
    "This session is being continued from a previous conversation",
)  # fmt: skip


_RECORD = msgspec.json.Decoder(Record)
_PROGRESS = ("agent_progress", "bash_progress")
_ATTACHED = msgspec.json.Decoder(Attached)
_LAUNCHED = msgspec.json.Decoder(Launched)
ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Session:
    """Sorts the records of a session into streams, each thing once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.streams: dict[str, Stream] = {MAIN: Stream(MAIN)}
        self.turns: dict[str, Turn] = {}
        self.calls: dict[str, Item] = {}
        self.results: dict[str, Item] = {}
        self.notices: dict[str, Item] = {}  # the first of each task
        self.agent_of: dict[str, str] = {}  # a launch's call to the agent that it made
        self.launches: dict[str, Launch] = {}
        self.launched: dict[str, Launched] = {}
        self.metas: dict[str, Meta] = {}
        self.began: dict[str, float] = {}  # calls of a shell to when the command began, where the log tells
        self.main_seen = False
        self._nameless = True  # version and project are not known yet
        self._seen: dict[str, tuple[Any, ...]] = {}  # by uuid
        self._chain: dict[str, str] = {}  # inline side chains: a record's uuid to its stream
        self._called_by: dict[str, str] = {}  # a call's id to the stream it is in

    # where records come from

    def file(self, source: Source) -> None:
        if source.name.endswith(".meta.json"):
            self._meta(source)
            return
        compaction = re.search(r"agent-acompact[^/\\]*\.jsonl", source.name) is not None
        for line, record in _lines(source, self.run):
            kind = record.type
            if kind == "progress" and record.data is not None and record.data.type not in _PROGRESS:
                continue
            place = Place(source.name, line)
            if kind is None and record.message is not None:
                record.type = record.message.role
            try:
                self.record(record, place, MAIN if compaction else None, compaction)
            except ERRORS as error:
                self.fault(place, f"not a record as Claude Code writes them: {error}")

    def _meta(self, source: Source) -> None:
        agent = re.search(r"agent-([^/\\]*)\.meta\.json$", source.name)
        try:
            if agent:
                meta = msgspec.json.decode(source.data(), type=Meta)
                self.metas[agent[1]] = meta
                if meta.toolUseId:
                    self.agent_of.setdefault(meta.toolUseId, agent[1])
        except ERRORS as error:
            self.fault(Place(source.name, 1), f"not what stands beside a sub-agent's file: {error}")

    def fault(self, place: Place, message: str) -> None:
        self.run.fault(place.file, place.line, message)

    # one record

    def record(self, r: Record, place: Place, key: str | None = None, compaction: bool = False) -> None:
        if r.type not in ("user", "assistant"):
            match r.type:
                case "progress":
                    self._progress(r, place)
                case "queue-operation":
                    if r.operation == "enqueue" and (text := _text(r.content)):
                        self._noticed(text, self.time(r.timestamp, place), place)
                case "attachment":
                    self._attached(r, place)
                case "system" | "result":
                    self._system(r, place)
            return
        if self._nameless:
            self._about(r)
        if r.message is None:
            self.fault(place, f"a record of type {r.type} without a message")
            return
        if self._again(r, place):
            return
        stream = self._stream(r, place) if key is None else self.streams[key]
        t = self.time(r.timestamp, place)
        if r.type == "assistant":
            self._assistant(stream, r, t, place, compaction)
        elif not compaction:
            self._user(stream, r, t, place)

    def _about(self, r: Record) -> None:
        params = self.run.params
        if r.version and "version" not in params:
            params["version"] = r.version
        if r.cwd and "project" not in params:
            params["project"] = re.split(r"[/\\]", r.cwd.rstrip("/\\"))[-1]
        self._nameless = len(params) < 2

    def time(self, stamp: str | None, place: Place) -> float | None:
        if stamp is None:
            return None
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except (ValueError, OverflowError):
            self.fault(place, f"expected a time, got {stamp[:40]!r}")
            return None

    def _again(self, r: Record, place: Place) -> bool:
        """Whether a record was read before. The same id on another record is a fault, and that record is read."""
        if r.uuid is None:
            return False
        before = self._seen.setdefault(r.uuid, (r.type, r.timestamp, place))
        if before[2] is place:
            return False
        if before[:2] == (r.type, r.timestamp):
            return True
        self.fault(place, f"the uuid {r.uuid!r} is also that of line {before[2].line}, which is another record")
        return False

    def _stream(self, r: Record, place: Place) -> Stream:
        if r.parent_tool_use_id:
            key = "call:" + r.parent_tool_use_id
        elif r.agentId:
            key = r.agentId
        elif r.isSidechain:
            key = self._chain.get(r.parentUuid or "", "") or f"chain:{r.uuid or place.line}"
            if r.uuid:
                self._chain[r.uuid] = key
        else:
            self.main_seen = True
            return self.streams[MAIN]
        return self._side(key, place)

    def _side(self, key: str, place: Place) -> Stream:
        if key not in self.streams:
            self.streams[key] = Stream(key, side=True, place=place, items=[])
        return self.streams[key]

    def _assistant(self, stream: Stream, r: Record, t: float | None, place: Place, compaction: bool) -> None:
        m = r.message
        assert m is not None
        key = m.id or r.uuid or f"{place.file}:{place.line}"
        turn = self.turns.get(key)
        if turn is None:
            turn = self.turns[key] = Turn(key, place, t, t, texts=[], calls=[])
            stream.items.append(Item("compacting" if compaction else "turn", t, place, turn=turn))
        if t is not None:
            turn.t, turn.end = min(turn.t or t, t), max(turn.end or t, t)
        turn.model = m.model or turn.model
        turn.usage = _most(turn.usage, m.usage)
        turn.stopped = turn.stopped or m.stop_reason is not None
        turn.cost = r.costUSD if turn.cost is None else turn.cost
        if isinstance(m.content, str):
            turn.texts.append(Raw(msgspec.json.encode(m.content)))
        for block in m.content if isinstance(m.content, list) else ():
            if isinstance(block, str):
                turn.texts.append(Raw(msgspec.json.encode(block)))
            elif block.type == "text":
                turn.texts.append(block.text)
            elif block.type == "tool_use":
                self._call(stream, turn, block, t, place)

    def _call(self, stream: Stream, turn: Turn, block: Block, t: float | None, place: Place) -> None:
        if not block.id:
            self.fault(place, "a call without an id; left out")
            return
        if (before := self.calls.get(block.id)) is not None:
            known = before.block
            assert known is not None
            if known.name != block.name or bytes(known.input) != bytes(block.input):
                self.fault(
                    place,
                    f"the call id {block.id!r} is used twice, first in line {before.place.line}; counted once",
                )
            return
        item = self.calls[block.id] = Item("call", t, place, turn=turn, block=block)
        self._called_by[block.id] = stream.key
        turn.calls.append(block.id)
        stream.items.append(item)
        if block.name in LAUNCHES:
            try:
                self.launches[block.id] = msgspec.json.decode(bytes(block.input) or b"{}", type=Launch)
            except ERRORS as error:
                self.launches[block.id] = Launch()
                self.fault(place, f"the input of {block.name}: {error}")

    def _user(self, stream: Stream, r: Record, t: float | None, place: Place) -> None:
        content = r.message.content if r.message else None
        if isinstance(content, str):
            self._said(stream, r, content, t, place)
            return
        texts = []
        for block in content or ():
            if isinstance(block, str):
                texts.append(block)
            elif block.type == "tool_result":
                self._result(stream, r, block, t, place)
            elif block.type == "text":
                texts.append(_text(block.text))
            elif block.type in ("image", "document"):
                texts.append(f"[{block.type}]")
        if texts:
            self._said(stream, r, "\n".join(texts), t, place)

    def _result(self, stream: Stream, r: Record, block: Block, t: float | None, place: Place) -> None:
        call = block.tool_use_id
        if not call:
            self.fault(place, "a result that names no call; left out")
            return
        item = Item("result", t, place, block=block, result=r.toolUseResult)
        if (before := self.results.get(call)) is not None:
            if before.block is None or bytes(before.block.content) != bytes(block.content):
                self.fault(
                    place, f"a second result of the call {call!r}, first in line {before.place.line}; counted once"
                )
            return
        self.results[call] = item
        stream.items.append(item)
        launch = call in self.launches or call not in self.calls
        if launch and r.toolUseResult is not NONE and bytes(memoryview(r.toolUseResult)[:1]) == b"{":
            try:
                said = self.launched[call] = _LAUNCHED.decode(r.toolUseResult)
                if agent := said.name if said.teammate_id else said.agentId or said.agent_id:
                    self.agent_of.setdefault(call, agent)
            except ERRORS as error:
                self.fault(place, f"the result of a launch: {error}")

    def _said(self, stream: Stream, r: Record, text: str, t: float | None, place: Place) -> None:
        """A text in the place of a person's: the person's own, or put there by the program."""
        bare = text.lstrip()
        if "<task-notification>" in text[:400]:
            self._noticed(text, t, place, stream)
        elif bare.startswith("<teammate-message"):
            for mate in _TEAMMATE.finditer(text):
                name = re.search(r'teammate_id="([^"]*)"', mate[1])
                stream.items.append(Item("teammate", t, place, text=mate[2], id=name[1] if name else "teammate"))
        elif stream.side and stream.prompt is None and not stream.items:
            stream.prompt = text
            stream.place = place
        elif r.isMeta or r.isCompactSummary or bare.startswith(_INJECTED) or not bare:
            stream.items.append(Item("injected", t, place))
        elif bare.startswith("[Request interrupted"):
            stream.items.append(Item("interrupt", t, place, text=text))
        else:
            kind = "command" if bare.startswith(("<command-", "<bash-input")) else "prompt"
            stream.items.append(Item(kind, t, place, text=text))

    def _noticed(self, text: str, t: float | None, place: Place, stream: Stream | None = None) -> None:
        """A sub-agent that ran on its own has ended. The first time that is told is when it did; who is told hears it later."""
        for notice in _NOTICE.finditer(text):
            task = _tag(notice[1], "task-id")
            item = Item("notice", t, place, text=notice[1], id=task)
            self.notices.setdefault(task, item)
            call = _tag(notice[1], "tool-use-id")
            if call and task:
                self.agent_of.setdefault(call, task)
            if stream is not None:
                stream.items.append(item)

    def _progress(self, r: Record, place: Place) -> None:
        data = r.data
        if (
            data is not None
            and data.type == "bash_progress"
            and r.parentToolUseID
            and r.parentToolUseID not in self.began
        ):
            t = self.time(r.timestamp, place)
            if t is not None and data.elapsedTimeSeconds is not None:
                self.began[r.parentToolUseID] = t - data.elapsedTimeSeconds
        if data is None or data.type != "agent_progress":
            return
        inner = _RECORD.decode(data.message)
        if inner.type not in ("user", "assistant") or inner.message is None or self._again(inner, place):
            return
        agent = data.agentId or ""
        if r.parentToolUseID and agent:
            self.agent_of.setdefault(r.parentToolUseID, agent)
        stream = self._side(agent or f"call:{r.parentToolUseID}", place)
        t = self.time(inner.timestamp or r.timestamp, place)
        if inner.type == "assistant":
            self._assistant(stream, inner, t, place, False)
        else:
            self._user(stream, inner, t, place)

    def _attached(self, r: Record, place: Place) -> None:
        if r.attachment is NONE:
            return
        attached = _ATTACHED.decode(r.attachment)
        text = _text(attached.prompt)
        if attached.type != "queued_command" or not text or self._again(r, place):
            return
        stream = self._stream(r, place)
        self._said(stream, r, text, self.time(r.timestamp, place), place)

    def _system(self, r: Record, place: Place) -> None:
        if r.type == "result":
            if r.total_cost_usd is not None:
                self.run.costs["cost"] = r.total_cost_usd
            if r.duration_ms is not None:
                self.run.costs["wall_clock_s"] = r.duration_ms / 1000  # unless records have times
            return
        t = self.time(r.timestamp, place)
        if r.subtype == "compact_boundary" and not self._again(r, place):
            self._stream(r, place).items.append(Item("compaction", t, place, result=r.compactMetadata))
        elif r.subtype == "stop_hook_summary" and r.preventedContinuation and not self._again(r, place):
            self._stream(r, place).items.append(Item("stopped", t, place))
        elif r.subtype == "task_started" and r.task_id and r.tool_use_id:
            self.agent_of.setdefault(r.tool_use_id, r.task_id)
        elif r.subtype == "task_notification" and r.task_id:
            self.notices.setdefault(
                r.task_id, Item("notice", t, place, text=f"<status>{r.status}</status>", id=r.task_id)
            )

    # when all was read

    def settle(self) -> None:
        """Joins streams that are known by a call to the agents that it made, and inline side chains to the calls with their text;
        puts compactions that have files of their own where they happened."""
        lead = self.streams[MAIN]
        for item in [i for i in lead.items if i.kind == "compacting"]:
            lead.items.remove(item)
            later = (i for i, x in enumerate(lead.items) if x.t is not None and item.t is not None and x.t > item.t)
            lead.items.insert(next(later, len(lead.items)), item)
        by_prompt: dict[str, list[str]] = {}
        for call, launch in self.launches.items():
            by_prompt.setdefault((launch.prompt or "").strip(), []).append(call)
        for key in [k for k in self.streams if k.startswith(("call:", "chain:"))]:
            stream = self.streams[key]
            if key.startswith("call:"):
                call = key.removeprefix("call:")
            else:
                calls = by_prompt.get((stream.prompt or "").strip()) or [""]
                call = calls.pop(0) if len(calls) > 1 else calls[0]
            if not call:
                continue
            agent = self.agent_of.setdefault(call, key if key.startswith("chain:") else f"agent of {call}")
            del self.streams[key]
            if agent in self.streams:
                self.streams[agent].items += stream.items
            else:
                stream.key = agent
                self.streams[agent] = stream


def _lines(source: Source, run: Run) -> Iterator[tuple[int, Record]]:
    if next(top_fields(source.start), b"") == b"loglines":
        try:
            lines = msgspec.json.decode(source.data(), type=dict[str, Raw])["loglines"]
            yield from ((i, r) for i, r in enumerate(msgspec.json.decode(lines, type=list[Record]), 1))
        except (*ERRORS, KeyError) as error:
            run.fault(source.name, None, f"not a session: {error}")
        return
    yield from records(source.blocks(), _RECORD, lambda line, why: run.fault(source.name, line, why))


def _most(a: Usage | None, b: Usage | None) -> Usage | None:
    """The larger of each figure: lines of one answer repeat its usage, some with less."""
    if a is None or b is None or a == b:
        return a or b
    fresh, output, write, read, hour = (
        y if x is None else x if y is None else max(x, y) for x, y in zip(a.figures(), b.figures(), strict=True)
    )
    return Usage(fresh, output, write, read, None if hour is None else CacheWrite(hour))


def _text(raw: Raw) -> str:
    """The text of a JSON string, or of the texts in a list of blocks."""
    data = bytes(raw)
    if not data:
        return ""
    value = msgspec.json.decode(data)
    if isinstance(value, list):
        return "\n".join(str(b.get("text", "")) for b in value if isinstance(b, dict))
    return value if isinstance(value, str) else ""


def _tag(text: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return found[1].strip() if found else ""


# which files are Claude Code's, and which are one session


class _Glance(Struct):
    type: str | None = None
    subtype: str | None = None
    sessionId: str | None = None  # noqa: N815
    session_id: str | None = None
    uuid: str | None = None
    parentUuid: Raw = NONE  # noqa: N815
    leafUuid: str | None = None  # noqa: N815
    message: Raw = NONE
    payload: Raw = NONE


_GLANCE = msgspec.json.Decoder(_Glance)
_OTHER_TYPES = {
    "file-history-snapshot",
    "queue-operation",
    "summary",
    "custom-title",
    "ai-title",
    "last-prompt",
    "mode",
}


def _glances(start: bytes) -> Iterator[_Glance]:
    at = 0
    while (end := start.find(b"\n", at)) >= 0 or at < len(start):
        end = len(start) if end < 0 else end
        with suppress(*ERRORS):
            yield _GLANCE.decode(start[at:end])
        at = end + 1


def detect(start: bytes, name: str) -> float:
    if re.search(r"agent-[^/\\]*\.meta\.json$", name):
        return 0.9
    fields = set(top_fields(start))
    if fields & {b"payload", b"resourceSpans", b"spans"}:
        return 0.0
    if b"loglines" in fields:
        return 0.9
    for glance in _glances(start):
        if glance.type in ("user", "assistant", "progress", "system") and (
            bytes(glance.parentUuid) or glance.sessionId or (glance.session_id and glance.uuid)
        ):
            return 0.9
        if glance.type in _OTHER_TYPES and (
            glance.sessionId or glance.leafUuid or glance.type == "file-history-snapshot"
        ):
            return 0.8
        if glance.sessionId and b'"usage"' in bytes(glance.message):
            return 0.6
    return 0.7 if {b"parentUuid", b"sessionId"} <= fields or {b"messageId", b"snapshot"} <= fields else 0.0


def group(start: bytes, name: str) -> Iterable[str]:
    """A session is known by its id and by its first record, which a copy or a resumed session has too."""
    path = re.split(r"[/\\:]", name)
    if "subagents" in path:
        yield path[path.index("subagents") - 1]
    stem = path[-1].partition(".")[0]
    if re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]{27}", stem):
        yield stem
    session = first = None
    for glance in _glances(start):
        session = session or glance.sessionId or glance.session_id
        first = first or glance.uuid
        if session and first:
            break
    if session and session.upper() != "REDACTED":
        yield session
    if first and not stem.startswith("agent-"):
        yield f"uuid:{first}"


@register("importer", title="Claude Code", detect=detect, group=group)
def claude_code(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A session of Claude Code, from its main file, the files of its sub-agents, and copies of them."""
    named = (g.sessionId or g.session_id for s in sources for g in _glances(s.start))
    stem = re.split(r"[/\\:]", sources[0].name)[-1].partition(".")[0]
    run = Run(next(filter(None, named), stem or "session"), system="Claude Code", keep=keep)
    session = Session(run)
    mains = [s.name for s in sources if not _is_side(s.name)]
    run.file = min(mains or [s.name for s in sources])
    for source in sorted(
        sources, key=lambda s: (not _is_side(s.name), s.name)
    ):  # an agent's own file has more of it
        session.file(source)
    session.settle()
    Telling(session).tell()
    yield run


def _is_side(name: str) -> bool:
    return re.split(r"[/\\:]", name)[-1].startswith("agent-")
