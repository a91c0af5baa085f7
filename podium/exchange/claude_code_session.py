"""The records of a Claude Code session, sorted into one stream an agent.

A session's records come from its main file, from files of its sub-agents, and from copies of either: a call, a
result, a message and a text count once, by their ids. Nothing of a file is kept but what becomes an event, so that
a session takes far less memory than its log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from podium.exchange.build import Run
from podium.exchange.claude_code_records import (
    NONE,
    Attached,
    Block,
    Fetched,
    Item,
    Launch,
    Launched,
    Meta,
    Place,
    Record,
    Stream,
    Turn,
    larger_usage,
)
from podium.exchange.lines import ERRORS, records
from podium.exchange.reading import Source
from podium.trace.survey import top_fields

__all__ = ["MAIN", "Session"]

MAIN = ""  # the key of the main agent's stream
LAUNCHES = ("Task", "Agent")
TO_AGENTS = ("SendMessage", "TaskStop", "KillShell")  # tools whose input names another agent
REFUSED = (b"The user doesn't want to", b"The user rejected", b"[Request interrupted")
DENIED = (b"Permission to use", b"Claude requested permissions", b"denied by")
NO_CONTENT = b"null"
_TEAMMATE = re.compile(r"<teammate-message\b([^>]*)>(.*?)(?:</teammate-message>|\Z)", re.DOTALL)
_TASK = re.compile(r"<task-id>(.*?)</task-id>", re.DOTALL)
_TOOL_USE = re.compile(r"<tool-use-id>(.*?)</tool-use-id>", re.DOTALL)
_INJECTED = (
    "<local-command", "<bash-stdout", "<bash-stderr", "<system-reminder", "<user-prompt-submit-hook",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
)  # fmt: skip
_RECORD = msgspec.json.Decoder(Record)
_ATTACHED = msgspec.json.Decoder(Attached)
_FETCHED = msgspec.json.Decoder(Fetched)
_LAUNCH = msgspec.json.Decoder(Launch)
_LAUNCHED = msgspec.json.Decoder(Launched)


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
        self.began: dict[str, float] = {}  # calls of a shell to when the command began, where the log tells
        self.has_main = False
        self._nameless = True  # version and project are not known yet
        self._first: dict[str, tuple[str | None, str | None, Place]] = {}  # the first record of each uuid
        self._chain: dict[str, str] = {}  # inline side chains: a record's uuid to its stream

    # where records come from

    def read(self, source: Source) -> None:
        if source.name.endswith(".meta.json"):
            self._meta(source)
            return
        compaction = re.search(r"agent-acompact[^/\\]*\.jsonl", source.name) is not None
        name = source.name
        for line, record in _lines(source, self.run):
            kind = record.type
            if kind is None and record.message is not None:
                kind = record.type = record.message.role
            try:
                if kind == "user" or kind == "assistant":
                    self._message(record, (name, line), compaction)
                elif kind == "progress":
                    self._progress(record, name, line)
                else:
                    self._note(record, (name, line))
            except ERRORS as error:
                self.fault((name, line), f"not a record as Claude Code writes them: {error}")

    def _meta(self, source: Source) -> None:
        agent = re.search(r"agent-([^/\\]*)\.meta\.json$", source.name)
        try:
            if agent:
                meta = msgspec.json.decode(source.data(), type=Meta)
                if meta.toolUseId:
                    self.agent_of.setdefault(meta.toolUseId, agent[1])
        except ERRORS as error:
            self.fault((source.name, 1), f"not what stands beside a sub-agent's file: {error}")

    def fault(self, place: Place, message: str) -> None:
        self.run.fault(*place, message)

    # one record

    def _message(self, r: Record, place: Place, compaction: bool) -> None:
        """A record of what was said."""
        if self._nameless:
            self._about(r)
        if r.message is None:
            self.fault(place, f"a record of type {r.type} without a message")
            return
        if self._repeats(r, place):
            return
        stream = self.streams[MAIN] if compaction else self._stream(r, place)
        t = self._time(r.timestamp, place)
        if r.type == "assistant":
            self._assistant(stream, r, t, place, compaction)
        elif not compaction:
            self._user(stream, r, t, place)

    def _note(self, r: Record, place: Place) -> None:
        """A record of something else than what was said."""
        kind = r.type
        if kind == "queue-operation":
            if r.operation == "enqueue" and (text := _text(r.content)):
                self._noticed(text, self._time(r.timestamp, place), place)
        elif kind == "attachment":
            self._attached(r, place)
        elif kind == "result":
            if r.total_cost_usd is not None:
                self.run.costs["cost"] = r.total_cost_usd
            if r.duration_ms is not None:
                self.run.costs["wall_clock_s"] = r.duration_ms / 1000  # unless records have times
        elif kind == "system":
            self._system(r, place)

    def _about(self, r: Record) -> None:
        params = self.run.params
        if r.version and "version" not in params:
            params["version"] = r.version
        if r.cwd and "project" not in params:
            params["project"] = re.split(r"[/\\]", r.cwd.rstrip("/\\"))[-1]
        self._nameless = len(params) < 2

    def _time(self, stamp: str | None, place: Place) -> float | None:
        if stamp is None:
            return None
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except (ValueError, OverflowError):
            self.fault(place, f"expected a time, got {stamp[:40]!r}")
            return None

    def _repeats(self, r: Record, place: Place) -> bool:
        """Whether a record was read before. The same id on another record is a fault, and that record is read."""
        if r.uuid is None:
            return False
        mark = r.type, r.timestamp, place
        before = self._first.setdefault(r.uuid, mark)
        if before is mark:
            return False
        if before[:2] == mark[:2]:
            return True
        self.fault(place, f"the uuid {r.uuid!r} is also that of line {before[2][1]}, which is another record")
        return False

    def _stream(self, r: Record, place: Place) -> Stream:
        if r.parent_tool_use_id:
            return self._side("call:" + r.parent_tool_use_id, place)
        if r.agentId:
            return self._side(r.agentId, place)
        if r.isSidechain:
            key = self._chain.get(r.parentUuid or "", "") or f"chain:{r.uuid or place[1]}"
            if r.uuid:
                self._chain[r.uuid] = key
            return self._side(key, place)
        self.has_main = True
        return self.streams[MAIN]

    def _side(self, key: str, place: Place) -> Stream:
        if key not in self.streams:
            self.streams[key] = Stream(key, side=True, place=place)
        return self.streams[key]

    # what the model said

    def _assistant(self, stream: Stream, r: Record, t: float | None, place: Place, compaction: bool) -> None:
        m = r.message
        assert m is not None
        key = m.id or r.uuid or f"{place[0]}:{place[1]}"
        turn = self.turns.get(key)
        if turn is None:
            turn = self.turns[key] = Turn(key, t, t)
            stream.items.append(Item("compacting" if compaction else "turn", t, place, turn))
        elif t is not None:
            turn.t, turn.end = min(turn.t or t, t), max(turn.end or t, t)
        turn.model = m.model or turn.model
        turn.usage = larger_usage(turn.usage, m.usage)
        turn.stopped = turn.stopped or m.stop_reason is not None
        turn.cost = r.costUSD if turn.cost is None else turn.cost
        if isinstance(m.content, str):
            turn.texts.append(msgspec.json.encode(m.content))
        elif m.content is not None:
            for block in m.content:
                if isinstance(block, str):
                    turn.texts.append(msgspec.json.encode(block))
                elif block.type == "tool_use":
                    self._call(stream, turn, block, t, place)
                elif block.type == "text":
                    turn.texts.append(bytes(block.text))

    def _call(self, stream: Stream, turn: Turn, block: Block, t: float | None, place: Place) -> None:
        id = block.id
        if not id:
            self.fault(place, "a call without an id; left out")
            return
        content = self.run.note(block.input) if block.input is not NONE else None
        if (before := self.calls.get(id)) is not None:
            if before.tool != block.name or before.content != content:
                self.fault(
                    place, f"the call id {id!r} is used twice, first in line {before.place[1]}; counted once"
                )
            return
        item = self.calls[id] = Item("call", t, place, turn, id, block.name, content)
        turn.calls.append(id)
        stream.items.append(item)
        if block.name in LAUNCHES:
            try:
                self.launches[id] = _LAUNCH.decode(bytes(block.input) or b"{}")
            except ERRORS as error:
                self.launches[id] = Launch()
                self.fault(place, f"the input of {block.name}: {error}")
        elif block.name in TO_AGENTS:
            item.given = _object(block.input)

    # what it was shown

    def _user(self, stream: Stream, r: Record, t: float | None, place: Place) -> None:
        content = r.message.content if r.message else None
        if isinstance(content, str):
            self._shown(stream, r, content, t, place)
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
            self._shown(stream, r, "\n".join(texts), t, place)

    def _result(self, stream: Stream, r: Record, block: Block, t: float | None, place: Place) -> None:
        call = block.tool_use_id
        if not call:
            self.fault(place, "a result that names no call; left out")
            return
        content = self.run.note(block.content if block.content is not NONE else NO_CONTENT)
        if (before := self.results.get(call)) is not None:
            if before.content != content:
                self.fault(
                    place, f"a second result of the call {call!r}, first in line {before.place[1]}; counted once"
                )
            return
        item = self.results[call] = Item("result", t, place, id=call, content=content, failed=block.is_error)
        if block.is_error:
            item.refusal = _refusal(block.content)
        stream.items.append(item)
        if r.toolUseResult is NONE:
            return
        if call in self.launches or call not in self.calls:
            self._launched(call, r.toolUseResult, place)
        elif self.calls[call].tool == "WebFetch":
            with suppress(*ERRORS):  # a text, where the tool failed
                item.failed = item.failed or (_FETCHED.decode(r.toolUseResult).code or 0) >= 400

    def _launched(self, call: str, result: Raw, place: Place) -> None:
        """What the result of a launch says of the agent."""
        if bytes(memoryview(result)[:1]) != b"{":
            return
        try:
            launched = self.launched[call] = _LAUNCHED.decode(result)
            if agent := launched.name if launched.teammate_id else launched.agentId or launched.agent_id:
                self.agent_of.setdefault(call, agent)
        except ERRORS as error:
            self.fault(place, f"the result of a launch: {error}")

    def _shown(self, stream: Stream, r: Record, text: str, t: float | None, place: Place) -> None:
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
        """A sub-agent that ran on its own has ended. The first time that is told is when it did; who is told hears
        it later."""
        for part in text.split("<task-notification>")[1:]:
            notice = part.partition("</task-notification>")[0]
            task, call = _TASK.search(notice), _TOOL_USE.search(notice)
            item = Item("notice", t, place, text=notice, id=task[1].strip() if task else "")
            self.notices.setdefault(item.id, item)
            if call and item.id and call[1].strip():
                self.agent_of.setdefault(call[1].strip(), item.id)
            if stream is not None:
                stream.items.append(item)

    # what the program noted

    def _progress(self, r: Record, name: str, line: int) -> None:
        data, call = r.data, r.parentToolUseID
        if data is None:
            return
        if data.type == "bash_progress":
            if call and call not in self.began and data.elapsedTimeSeconds is not None:
                t = self._time(r.timestamp, (name, line))
                if t is not None:
                    self.began[call] = t - data.elapsedTimeSeconds
            return
        if data.type != "agent_progress":
            return
        inner, place = _RECORD.decode(data.message), (name, line)
        if inner.type not in ("user", "assistant") or inner.message is None or self._repeats(inner, place):
            return
        agent = data.agentId or ""
        if call and agent:
            self.agent_of.setdefault(call, agent)
        stream = self._side(agent or f"call:{call}", place)
        t = self._time(inner.timestamp or r.timestamp, place)
        if inner.type == "assistant":
            self._assistant(stream, inner, t, place, False)
        else:
            self._user(stream, inner, t, place)

    def _attached(self, r: Record, place: Place) -> None:
        if r.attachment is NONE:
            return
        attached = _ATTACHED.decode(r.attachment)
        text = _text(attached.prompt)
        if attached.type == "queued_command" and text and not self._repeats(r, place):
            self._shown(self._stream(r, place), r, text, self._time(r.timestamp, place), place)

    def _system(self, r: Record, place: Place) -> None:
        t = self._time(r.timestamp, place)
        if r.subtype == "compact_boundary" and not self._repeats(r, place):
            about = msgspec.json.decode(r.compactMetadata) if r.compactMetadata is not NONE else None
            given = about if isinstance(about, dict) else {}
            self._stream(r, place).items.append(Item("compaction", t, place, given=given))
        elif r.subtype == "stop_hook_summary" and r.preventedContinuation and not self._repeats(r, place):
            self._stream(r, place).items.append(Item("stopped", t, place))
        elif r.subtype == "task_started" and r.task_id and r.tool_use_id:
            self.agent_of.setdefault(r.tool_use_id, r.task_id)
        elif r.subtype == "task_notification" and r.task_id:
            notice = Item("notice", t, place, text=f"<status>{r.status}</status>", id=r.task_id)
            self.notices.setdefault(r.task_id, notice)

    # when all was read

    def settle(self) -> None:
        """Joins streams that are known by a call to the agents that it made, and inline side chains to the calls
        with their text; puts compactions that have files of their own where they happened."""
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


def _lines(source: Source, run: Run) -> Iterable[tuple[int, Record]]:
    if b'"loglines"' not in source.start[:100] or next(top_fields(source.start), b"") != b"loglines":
        return records(source.lines(), _RECORD, lambda line, why: run.fault(source.name, line, why))
    try:
        lines = msgspec.json.decode(source.data(), type=dict[str, Raw])["loglines"]
        return enumerate(msgspec.json.decode(lines, type=list[Record]), 1)
    except (*ERRORS, KeyError) as error:
        run.fault(source.name, None, f"not a session: {error}")
        return ()


def _text(raw: Raw) -> str:
    """The text of a JSON string, or of the texts in a list of blocks."""
    if raw is NONE or not len(memoryview(raw)):
        return ""
    value = msgspec.json.decode(raw)
    if isinstance(value, list):
        return "\n".join(str(b.get("text", "")) for b in value if isinstance(b, dict))
    return value if isinstance(value, str) else ""


def _object(raw: Raw) -> dict[str, Any]:
    with suppress(*ERRORS):
        value = msgspec.json.decode(bytes(raw) or b"{}")
        if isinstance(value, dict):
            return value
    return {}


def _refusal(content: Raw) -> str:
    """Whether a failed result says that the person refused the call, or a permission did."""
    start = bytes(memoryview(content)[:120])
    if any(words in start for words in REFUSED):
        return "refused"
    return "denied" if any(words in start for words in DENIED) else ""
