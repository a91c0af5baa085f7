"""Google ADK: the events of a session, one a line, as an array, or as the session's `events`.

The author of an event is an agent. A branch (`fanout.researcher_a`) names agents that work side by side, each for
the one before it. An event has one time, at which it was complete: a turn began with what it answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.reading import Source
from podium.exchange.spans import Span, add_spans, figure_of
from podium.exchange.turns import dicts, figure_after, plain_text
from podium.registry import register

__all__ = ["google_adk"]

PERSON_AUTHORS = ("user",)
_EVENT = re.compile(rb'"invocation_?[iI]d"\s*:')


def is_google_adk(start: bytes, name: str) -> float:
    named = _EVENT.search(start[:16384]) is not None and b'"author"' in start
    return 0.85 if named and b'"timestamp"' in start and (b'"actions"' in start or b'"parts"' in start) else 0.0


@register("importer", title="Google ADK", detect=is_google_adk)
def google_adk(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of one session; each prompt of the person is one of its tasks."""
    for source in sources:
        run = Run("session", system="google-adk", keep=keep)
        tasks: list[list[dict[str, Any]]] = []
        for line, value in objects(source, partial(run.fault, source.name)):
            several = isinstance(value, dict) and isinstance(value.get("events"), list)
            run.trace_id = str(value.get("id") or run.trace_id) if several else run.trace_id
            for event in value["events"] if several else [value]:
                if not isinstance(event, dict) or not isinstance(event.get("author"), str):
                    run.fault(source.name, line, "expected an event with an author")
                elif event.get("partial") is not True:  # a piece of one that comes whole
                    if not tasks or event["author"] in PERSON_AUTHORS:
                        tasks.append([])
                    tasks[-1].append(event)
        for task, events in enumerate(tasks):
            run.trace_id = str(_field(events[0], "invocationId")) if run.trace_id == "session" else run.trace_id
            first = len(run.events)
            add_spans(run, _spans(events))
            for event in run.events[first:]:
                event["task"] = task
        yield run


def _field(event: dict[str, Any], name: str) -> Any:
    """A field in camel case, or as Python writes it."""
    return event.get(name, event.get(re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), name)))


def _spans(events: list[dict[str, Any]]) -> list[Span]:
    spans: dict[str, Span] = {}
    since: dict[str, float | None] = {}  # by agent: when what its next turn answers had come
    times = [seconds(event.get("timestamp")) for event in events]
    begun = min((t for t in times if t is not None), default=None)
    prompt: str | None = None
    for number, event in enumerate(events):
        t, author = seconds(event.get("timestamp")), event["author"]
        content = event["content"] if isinstance(event.get("content"), dict) else {}
        parts = dicts(content.get("parts"))
        if author in PERSON_AUTHORS:
            prompt, begun = plain_text(parts) or prompt, t
            continue
        agent = _agent(spans, event, author, begun, t, prompt)
        calls = [part["functionCall"] for part in _parts(parts, "functionCall")]
        answers = [part["functionResponse"] for part in _parts(parts, "functionResponse")]
        usage = _field(event, "usageMetadata")
        if isinstance(usage, dict) or calls or (plain_text(parts) and content.get("role") != "user"):
            turn = Span(f"turn {number}", agent, "model", start=since.get(agent, spans[agent].start), end=t)
            turn.output = plain_text(parts) or None
            _usage(turn, usage, event)
            spans[turn.id] = turn
            since[agent] = t
        for call in calls:
            id = str(call.get("id") or f"call {number} {call.get('name')}")
            spans[id] = Span(id, agent, "tool", str(call.get("name") or ""), t, cause=f"turn {number}")
            spans[id].input = msgspec.json.encode(call.get("args"))
        for answer in answers:
            since[agent] = t
            if (span := spans.get(str(answer.get("id")))) is not None and span.kind == "tool":
                span.end, span.output = t, msgspec.json.encode(answer.get("response"))
        _act(spans, event, agent, f"act {number}", t)
    return list(spans.values())


def _parts(parts: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    snake = re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), name)
    some = [{name: part.get(name, part.get(snake))} for part in parts]
    return [part for part in some if isinstance(part[name], dict)]


def _agent(
    spans: dict[str, Span],
    event: dict[str, Any],
    author: str,
    begun: float | None,
    t: float | None,
    prompt: str | None,
) -> str:
    """The span of an event's agent: the last of its branch, each within the one before it."""
    branch = event.get("branch")
    names = branch.split(".") if isinstance(branch, str) and branch else []
    names = names if names and names[-1] == author else [*names, author]
    above = ""
    for depth in range(1, len(names) + 1):
        id = "agent " + ".".join(names[:depth])
        if id not in spans:
            last = [span.end for span in spans.values() if span.end is not None] if not names[:-1] else []
            start = max(last, default=begun)
            start = start if start is None or t is None else min(start, t)
            spans[id] = Span(id, above, "agent", names[depth - 1], start)
            spans[id].input = prompt if depth == 1 else None
        if t is not None:
            spans[id].end = max(spans[id].end or t, t)
        above = id
    return above


def _usage(turn: Span, usage: Any, event: dict[str, Any]) -> None:
    version = _field(event, "modelVersion")
    turn.model = version if isinstance(version, str) else None
    turn.failed = _field(event, "errorCode") not in (None, "")
    if isinstance(usage, dict):
        read = figure_of(_field(usage, "cachedContentTokenCount"))
        out, thought = figure_of(_field(usage, "candidatesTokenCount")), _field(usage, "thoughtsTokenCount")
        turn.cache_read = read
        turn.tokens_in = figure_after(figure_of(_field(usage, "promptTokenCount")), read)
        turn.tokens_out = None if out is None else out + (figure_of(thought) or 0.0)


def _act(spans: dict[str, Span], event: dict[str, Any], agent: str, id: str, t: float | None) -> None:
    """Handing over to another agent, and asking the person to confirm a call."""
    actions = event["actions"] if isinstance(event.get("actions"), dict) else {}
    to = _field(actions, "transferToAgent")
    if isinstance(to, str) and to:
        spans[id] = Span(id, agent, "handoff", to, t, t, to=to)
    elif _field(actions, "requestedToolConfirmations"):
        spans[id] = Span(id, agent, "person", "confirmation", t)
