"""CrewAI: the events of a crew, one a line, as its event bus emits them.

Events come in pairs, joined by `started_event_id`; the started ones form a tree by `parent_event_id`. The crew is
the lead; each task is given to an agent, which works until the task is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.reading import Source
from podium.exchange.spans import Kind, Span, add_spans, figure_of
from podium.exchange.turns import figure_after, plain_text
from podium.registry import register

__all__ = ["crewai"]

BEGINS: dict[str, Kind] = {
    "crew_kickoff_started": "agent",
    "task_started": "agent",
    "agent_execution_started": "group",
    "lite_agent_execution_started": "agent",
    "llm_call_started": "model",
    "tool_usage_started": "tool",
    "flow_input_requested": "person",
    "human_feedback_requested": "person",
}
FAILS = ("_failed", "_error")


def is_crewai(start: bytes, name: str) -> float:
    head = start[:16384]
    return 0.9 if b'"emission_sequence"' in head and b'"event_id"' in head and b'"type"' in head else 0.0


@register("importer", title="CrewAI", detect=is_crewai)
def crewai(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of one file of events."""
    for source in sources:
        run = Run("crew", system="crewai", keep=keep)
        spans: dict[str, Span] = {}
        for line, event in objects(source, partial(run.fault, source.name)):
            if not isinstance(event, dict) or not isinstance(event.get("type"), str):
                run.fault(source.name, line, "expected an event with a type")
                continue
            if event["type"] == "crew_kickoff_started":
                run.trace_id = str(event.get("event_id"))
            _take(spans, event)
        for span in spans.values():
            if span.kind == "group" and _under_tool(span, spans):
                span.kind = "agent"  # a coworker that was delegated to
        add_spans(run, list(spans.values()), root="crew")
        yield run


def _under_tool(span: Span, spans: dict[str, Span]) -> bool:
    if not span.agent:
        return False
    above, hops = spans.get(span.parent), 0
    while above is not None and above.kind == "group" and hops < 64:
        above, hops = spans.get(above.parent), hops + 1
    return above is not None and above.kind == "tool"


def _take(spans: dict[str, Span], event: dict[str, Any]) -> None:
    """Begins a span, or ends the one that the event names."""
    type, t = event["type"], seconds(event.get("timestamp"))
    id, parent = str(event.get("event_id")), str(event.get("parent_event_id") or "")
    begun = spans.get(str(event.get("started_event_id")))
    if begun is not None:
        begun.end = t if begun.kind != "tool" else seconds(event.get("finished_at")) or t
        begun.failed = begun.failed or type.endswith(FAILS)
        output = event.get("output", event.get("response"))
        raw = output.get("raw") if isinstance(output, dict) else output
        begun.output = raw if isinstance(raw, str) else _json(output)
        if begun.kind == "model":
            _usage(begun, event.get("usage"))
        return
    if type.endswith("_started") or type in BEGINS:
        span = spans[id] = Span(id, parent, BEGINS.get(type, "group"), _name(event), t)
        span.input = _given(event)
        span.model = event["model"] if span.kind == "model" and isinstance(event.get("model"), str) else None
        if type == "agent_execution_started":
            span.agent = span.name  # a group of its task, unless a tool delegated to it
            task = spans.get(parent)
            if task is not None and task.kind == "agent" and parent and span.name:
                task.name = task.role = span.name
                task.input = task.input or span.input
    elif type == "llm_guardrail_completed" and event.get("success") is False:
        spans[id] = Span(id, parent, "guard", "guardrail", t, t, failed=True)


def _name(event: dict[str, Any]) -> str:
    if event["type"] == "tool_usage_started":
        return str(event.get("tool_name") or "unnamed")
    if event["type"] == "crew_kickoff_started":
        return str(event.get("crew_name") or "crew")
    agent = event.get("agent")
    if not isinstance(agent, dict):
        task = event.get("task")
        agent = task.get("agent") if isinstance(task, dict) else None
    role = agent.get("role") if isinstance(agent, dict) else None
    return str(role or event.get("agent_role") or event.get("task_name") or "agent").strip()


def _given(event: dict[str, Any]) -> bytes | str | None:
    task = event.get("task")
    described = task.get("description") if isinstance(task, dict) else None
    given = event.get("task_prompt") or event.get("tool_args") or described or event.get("inputs")
    return given if isinstance(given, str) else _json(given)


def _usage(span: Span, usage: Any) -> None:
    if isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("cached_prompt_tokens")
        span.cache_read = figure_of(cached)
        given = figure_of(usage.get("prompt_tokens", usage.get("input_tokens")))
        span.tokens_in = figure_after(given, span.cache_read)
        span.tokens_out = figure_of(usage.get("completion_tokens", usage.get("output_tokens")))


def _json(value: Any) -> bytes | str | None:
    if value is None or isinstance(value, str):
        return value
    return plain_text(value) or msgspec.json.encode(value)
