"""OpenCode: exported sessions (`opencode export`). A session that names a parent is a sub-agent's.

A message of the assistant is one turn of a model and the calls that it made. A call of `task` names the session
that it is; where it does not, the session works for its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import objects
from podium.exchange.otlp import Collected
from podium.exchange.reading import Source
from podium.exchange.spans import Span, figure_of
from podium.exchange.turns import dicts, plain_text
from podium.registry import register

__all__ = ["opencode"]

Times = tuple[float | None, float | None]
_PARENT = re.compile(rb'"parentID"\s*:\s*"([^"]{1,80})"')
_ID = re.compile(rb'"id"\s*:\s*"([^"]{1,80})"')


def is_opencode(start: bytes, name: str) -> float:
    head = start[:4096]
    named = b'"info"' in head[:200] and b'"time"' in head and (b'"messages"' in start or b'"projectID"' in head)
    return 0.85 if named and (b'"sessionID"' in start or b'"version"' in head) else 0.0


def opencode_keys(start: bytes, name: str) -> Iterable[str]:
    """A session's own id and its parent's, which stand before its messages."""
    head = start.partition(b'"messages"')[0]
    keys = [match[1].decode(errors="replace") for match in (_ID.search(head), _PARENT.search(head)) if match]
    return keys or [name]


@register("importer", title="OpenCode", detect=is_opencode, group=opencode_keys)
def opencode(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of a session and of those that it began."""
    collected = Collected("opencode", keep)
    sessions: dict[str, dict[str, Any]] = {}
    for source in sources:
        complain = collected.complain(source.name)
        for line, value in objects(source, complain):
            info = value.get("info") if isinstance(value, dict) else None
            if not isinstance(info, dict) or not isinstance(value.get("messages"), list):
                complain(line, "expected a session: its info and its messages")
            else:
                sessions[str(info.get("id"))] = value
    roots = [id for id, one in sessions.items() if str(one["info"].get("parentID")) not in sessions]
    for root in roots:
        _Tree(collected, sessions, root).add()
    yield from collected.runs(sources[0].name)


def _time(value: Any, name: str) -> float | None:
    stamp = figure_of(value.get(name)) if isinstance(value, dict) else None
    return None if stamp is None else stamp / 1000


class _Tree:
    """A session and those below it; each prompt of the person is a task."""

    def __init__(self, collected: Collected, sessions: dict[str, dict[str, Any]], root: str) -> None:
        self.collected, self.sessions, self.root = collected, sessions, root
        self.begun = {root}  # sessions whose spans are written
        self.task = 0

    def add(self) -> None:
        for span in self._spans(self.root, ""):
            self.collected.add(f"{self.root}:{self.task}", self.root, span)

    def _spans(self, id: str, above: str) -> Iterator[Span]:
        session = self.sessions[id]
        prompt: str | None = None
        lead: Span | None = None
        for number, message in enumerate(dicts(session["messages"])):
            info = message["info"] if isinstance(message.get("info"), dict) else {}
            parts = dicts(message.get("parts"))
            text = plain_text([part.get("text") for part in parts if part.get("type") == "text"])
            if info.get("role") == "user":
                if lead is not None and not above:
                    yield lead
                    self.task += 1
                    lead = None
                prompt = text
                continue
            start, end = _time(info.get("time"), "created"), _time(info.get("time"), "completed")
            if lead is None:
                name = str(info.get("agent") or info.get("mode") or "main")
                lead = Span(f"{id} {number}", above, "agent", name, start, input=prompt)
            yield from self._message(info, parts, lead, text, (start, end), f"{id} turn {number}")
            times = [t for t in (lead.end, start, end) if t is not None]
            lead.end = max(times, default=None)
        if lead is not None:
            yield lead
            for child, other in self.sessions.items():  # that no call names
                if other["info"].get("parentID") == id and child not in self.begun:
                    self.begun.add(child)
                    yield from self._spans(child, lead.id)

    def _message(
        self, info: dict[str, Any], parts: list[dict[str, Any]], lead: Span, text: str, times: Times, id: str
    ) -> Iterator[Span]:
        """A turn and its calls. Its time ends when the first of them begins."""
        turn = Span(id, lead.id, "model", start=times[0], end=times[1], output=text or None)
        turn.model = info["modelID"] if isinstance(info.get("modelID"), str) else None
        turn.failed = info.get("error") is not None
        turn.cost = figure_of(info.get("cost"))
        tokens = info["tokens"] if isinstance(info.get("tokens"), dict) else {}
        cache = tokens["cache"] if isinstance(tokens.get("cache"), dict) else {}
        turn.tokens_in, out = figure_of(tokens.get("input")), figure_of(tokens.get("output"))
        turn.tokens_out = None if out is None else out + (figure_of(tokens.get("reasoning")) or 0.0)
        turn.cache_read, turn.cache_write = figure_of(cache.get("read")), figure_of(cache.get("write"))
        calls = [span for span in (self._call(part, lead, id) for part in parts) if span is not None]
        begun = [span.start for span in calls if span.start is not None]
        turn.end = min([*begun, *([] if times[1] is None else [times[1]])], default=None)
        yield turn
        for call, part in ((one, part) for one in calls for part in parts if part.get("callID") == one.id):
            yield call
            state = part["state"]
            about = state["metadata"] if isinstance(state.get("metadata"), dict) else {}
            child = str(about.get("sessionId") or about.get("sessionID") or "")
            if child in self.sessions and child not in self.begun:
                self.begun.add(child)
                yield from self._spans(child, call.id)

    def _call(self, part: dict[str, Any], lead: Span, turn: str) -> Span | None:
        if part.get("type") != "tool" or not isinstance(part.get("state"), dict):
            return None
        state, id = part["state"], str(part.get("callID"))
        span = Span(id, lead.id, "tool", str(part.get("tool") or ""), cause=turn)
        span.start, span.end = _time(state.get("time"), "start"), _time(state.get("time"), "end")
        span.failed = state.get("status") == "error"
        span.input = msgspec.json.encode(state.get("input"))
        output = state.get("output", state.get("error"))
        span.output = output if isinstance(output, str) else None
        return span
