"""Copilot CLI: the events of a session, one a line. Each message of the person is one of its tasks.

A turn lasts from `assistant.turn_start` to `assistant.message`; a call from its start to its end, and names the
sub-agent that it is. Input tokens are stated for a whole session only (`session.shutdown`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.otlp import Collected
from podium.exchange.reading import Source
from podium.exchange.spans import Span, figure_of
from podium.exchange.turns import dicts
from podium.registry import register

__all__ = ["copilot_cli"]

LEAD = "main"
TYPES = (b'"assistant.message"', b'"assistant.turn_start"', b'"session.start"', b'"user.message"')


def is_copilot_cli(start: bytes, name: str) -> float:
    head = start[:16384]
    return 0.85 if b'"data"' in head and b'"parentId"' in start and any(type in start for type in TYPES) else 0.0


@register("importer", title="Copilot CLI", detect=is_copilot_cli)
def copilot_cli(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of one session."""
    for source in sources:
        collected = Collected("copilot-cli", keep)
        session = _Session(collected)
        complain = collected.complain(source.name)
        for line, event in objects(source, partial(complain)):
            if not isinstance(event, dict) or not isinstance(event.get("data"), dict):
                complain(line, "expected an event with data, an object")
                continue
            session.take(
                str(event.get("type")), event["data"], seconds(event.get("timestamp")), str(event.get("id"))
            )
        session.close()
        for run in collected.runs(source.name, LEAD):
            run.trace_id = session.id or run.trace_id
            run.params |= session.params
            yield run


class _Session:
    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.id = ""
        self.params: dict[str, Any] = {}
        self.task: list[Span] = []  # what was done since the last prompt
        self.calls: dict[str, Span] = {}
        self.leave: dict[str, Span] = {}  # requests for leave
        self.begun: dict[str, float | None] = {}  # turns that are open
        self.last: float | None = None
        self.number = 0

    def take(self, type: str, data: dict[str, Any], t: float | None, id: str) -> None:
        match type:
            case "session.start":
                context = data["context"] if isinstance(data.get("context"), dict) else {}
                self.id = str(data.get("sessionId") or "")
                about = {
                    "version": data.get("copilotVersion"),
                    "project": str(context.get("cwd") or "").rpartition("/")[2],
                }
                self.params |= {k: v for k, v in about.items() if isinstance(v, str) and v}
            case "user.message":
                self.close()
                self.task = [
                    Span(f"prompt {self.number}", "", "agent", LEAD, t, input=str(data.get("content") or ""))
                ]
            case "assistant.turn_start":
                self.begun[_of(data)] = t
            case "assistant.message":
                self._turn(data, t, id)
            case "tool.execution_start" if isinstance(data.get("toolCallId"), str):
                call = data["toolCallId"]
                span = self._add(Span(call, self._above(data), "tool", str(data.get("toolName") or ""), t))
                span.input = msgspec.json.encode(data.get("arguments"))
                span.cause = next((one.id for one in reversed(self.task) if call in one.links), "")
                self.calls[call] = span
            case "tool.execution_complete" if (done := self.calls.get(str(data.get("toolCallId")))) is not None:
                done.end, done.failed = t, data.get("success") is False
                done.output = msgspec.json.encode(data.get("result", data.get("error")))
            case "subagent.started" if isinstance(data.get("toolCallId"), str):
                name = str(data.get("agentName") or "agent")
                self._add(Span(f"agent {data['toolCallId']}", data["toolCallId"], "agent", name, t))
            case "subagent.completed" | "subagent.failed":
                for span in self.task:
                    if span.id == f"agent {data.get('toolCallId')}":
                        span.end, span.failed = t, type == "subagent.failed"
            case "permission.requested":
                self.leave[str(data.get("requestId"))] = self._add(Span(id, self._prompt(), "person", "leave", t))
            case "permission.completed":
                self._answered(data, t, id)
            case "abort":
                self._add(Span(id, self._prompt(), "person", "abort", t, t))
        self.last = t if t is not None else self.last

    def _add(self, span: Span) -> Span:
        if not self.task:
            self.task.append(Span(f"prompt {self.number}", "", "agent", LEAD, span.start))
        span.parent = span.parent or self._prompt()
        self.task.append(span)
        return span

    def _prompt(self) -> str:
        return f"prompt {self.number}"

    def _above(self, data: dict[str, Any]) -> str:
        parent = data.get("parentToolCallId")
        return f"agent {parent}" if isinstance(parent, str) and parent else self._prompt()

    def _turn(self, data: dict[str, Any], t: float | None, id: str) -> None:
        start = self.begun.pop(_of(data), None)
        span = self._add(Span(id, self._above(data), "model", start=t if start is None else start, end=t))
        span.model = data["model"] if isinstance(data.get("model"), str) else None
        span.tokens_out = figure_of(data.get("outputTokens"))
        span.output = data["content"] if isinstance(data.get("content"), str) else None
        span.links = tuple(str(one.get("toolCallId")) for one in dicts(data.get("toolRequests")))

    def _answered(self, data: dict[str, Any], t: float | None, id: str) -> None:
        if (span := self.leave.pop(str(data.get("requestId")), None)) is not None:
            span.end = t
        result = data["result"] if isinstance(data.get("result"), dict) else {}
        if str(result.get("kind", "approved")).startswith("denied"):
            self._add(Span(id, self._prompt(), "guard", "permission", t, t, failed=True))

    def close(self) -> None:
        """Ends the task: what comes next belongs to another."""
        if self.task:
            ends = [at for span in self.task for at in (span.end, span.start) if at is not None]
            self.task[0].end = max(ends, default=None)
            for span in self.task:
                span.links = ()
                self.collected.add(f"{self.id}:{self.number}", self.id or "session", span)
            self.number += 1
        self.task = []


def _of(data: dict[str, Any]) -> str:
    return f"{data.get('parentToolCallId') or ''}:{data.get('turnId')}"
