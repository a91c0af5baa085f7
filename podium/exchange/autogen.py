"""AutoGen: the messages of a team (`TaskResult.messages`), or the events that `autogen_core` logs, in whose
payloads the same messages stand many times. A message counts once, by its id.

A message has the time at which it was complete. Agents take turns, so a turn began when the message before it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from podium.exchange.build import PERSON, Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.lines import ERRORS
from podium.exchange.reading import Source
from podium.exchange.spans import figure_of
from podium.exchange.turns import Turns, dicts, plain_text
from podium.registry import register

__all__ = ["autogen"]

LAST_SAID = "the next to speak answers what was said last"
PEOPLE = ("user", "user_proxy", "human")
SILENT = ("ModelClientStreamingChunkEvent", "MemoryQueryEvent", "ThoughtEvent", "CodeGenerationEvent")


def is_autogen(start: bytes, name: str) -> float:
    head = start[:16384]
    message = b'"source"' in head and b'"models_usage"' in head and b'"type"' in head
    core = b'"delivery_stage"' in head and b'"payload"' in head
    return 0.85 if message or core else 0.0


@register("importer", title="AutoGen", detect=is_autogen)
def autogen(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of one file."""
    for source in sources:
        messages: dict[str, dict[str, Any]] = {}
        run = Run("team", system="autogen", keep=keep)
        for line, value in objects(source, partial(run.fault, source.name)):
            if not isinstance(value, dict):
                run.fault(source.name, line, "expected a message or an event, an object")
                continue
            several = dicts(value.get("messages")) if "messages" in value else [value]
            for item in several if "event" not in value else _delivered(value["event"]):
                if isinstance(item.get("source"), str) and isinstance(item.get("type"), str):
                    messages.setdefault(str(item.get("id") or len(messages)), item)
                elif "event" not in value:
                    run.fault(source.name, line, "expected a message with a source and a type")
        run.trace_id = next(iter(messages), "team")
        _Conversation(run, source.name).write(list(messages.values()))
        yield run


def _delivered(event: Any) -> Iterator[dict[str, Any]]:
    """The messages in the payload of an event, those of a response in their order."""
    payload = event.get("payload") if isinstance(event, dict) else None
    try:
        value = msgspec.json.decode(payload) if isinstance(payload, str) else payload
    except ERRORS:  # "Message could not be serialized"
        return
    if not isinstance(value, dict):
        return
    response = value["response"] if isinstance(value.get("response"), dict) else {}
    yield from dicts(response.get("inner_messages"))
    yield from dicts([response.get("chat_message"), value.get("message")])
    yield from dicts(value.get("messages"))


class _Conversation:
    def __init__(self, run: Run, file: str) -> None:
        self.run, self.file, self.turns = run, file, Turns(run)
        self.before: float | None = None  # when the message before was complete
        self.last: int | None = None

    def write(self, messages: list[dict[str, Any]]) -> None:
        agents = (m["source"] for m in messages if m["source"] not in PEOPLE)
        lead = next(agents, "team")
        for message in messages:
            if message["type"] in SILENT:
                continue
            t = seconds(message.get("created_at"))
            row = self._message(message, t, lead)
            if self.last is not None and row is not None and self._is_alone(row):
                self.run.edge(self.last, row, "message", LAST_SAID)
            self.last, self.before = (self.last if row is None else row), (self.before if t is None else t)

    def _is_alone(self, row: int) -> bool:
        """Whether the event before, of another agent, is not yet among the causes of this one."""
        assert self.last is not None
        return self.run.events[self.last]["agent"] != self.run.events[row]["agent"] and self.last not in self.handed

    @property
    def handed(self) -> set[int]:
        return {row for inputs in self.turns.inputs.values() for _, row in inputs}

    def _message(self, message: dict[str, Any], t: float | None, lead: str) -> int | None:
        """The last event of a message."""
        turns, agent, content = self.turns, message["source"], message.get("content")
        text = plain_text(content)
        if agent in PEOPLE:
            return turns.ask(lead, text, t, self.before)
        begun = t if self.before is None or t is None else min(self.before, t)
        match message["type"]:
            case "ToolCallRequestEvent":
                calls = dicts(content)
                row = turns.turn(agent, begun, t, agent, None, **_usage(message))
                for call in calls:
                    name = str(call.get("name") or "")
                    turns.call(agent, row, str(call.get("id")), name, call.get("arguments") or "", t)
                return row
            case "ToolCallExecutionEvent":
                last = None
                for result in dicts(content):
                    id, failed = str(result.get("call_id")), result.get("is_error") is True
                    last = turns.result(id, result.get("content"), t, failed)
                    if last is None:
                        self.run.fault(self.file, None, f"a result of the call {id!r}, which is not there")
                return last
            case "HandoffMessage":
                return turns.speak(agent, str(message.get("target") or ""), text, t)
            case "SelectSpeakerEvent" | "SelectorEvent":
                chosen = content[0] if isinstance(content, list) and content else text
                return turns.turn(
                    agent,
                    begun,
                    t,
                    "",
                    None,
                    "orchestrator_decision",
                    decision=1,
                    chosen=str(chosen),
                    **_usage(message),
                )
        usage = _usage(message)
        return turns.turn(agent, begun if usage else t, t if usage else None, PERSON, text, **usage)


def _usage(message: dict[str, Any]) -> dict[str, Any]:
    usage = message.get("models_usage")
    if not isinstance(usage, dict):
        return {}
    return {
        "tokens_in": figure_of(usage.get("prompt_tokens")),
        "tokens_out": figure_of(usage.get("completion_tokens")),
    }
