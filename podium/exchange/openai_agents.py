"""Traces of the OpenAI Agents SDK: what its exporter sends, one object a line or as `{"data": [...]}`.

Spans are exported when they end, children first. An agent under a function is an agent called as a tool; a handoff
passes control to the agent that it names. The spans of tasks and turns only sum up what is inside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.otlp import Collected
from podium.exchange.reading import Source
from podium.exchange.spans import Kind, Span, figure_of
from podium.registry import register

__all__ = ["openai_agents"]

KINDS: dict[str, Kind] = {
    "agent": "agent",
    "function": "tool",
    "generation": "model",
    "response": "model",
    "transcription": "model",
    "speech": "model",
    "handoff": "handoff",
    "guardrail": "guard",
}
_OBJECT = re.compile(rb'"object"\s*:\s*"trace(\.span)?"')


def is_openai_agents(start: bytes, name: str) -> float:
    return 0.9 if _OBJECT.search(start[:8192]) and (b'"span_data"' in start or b'"workflow_name"' in start) else 0.0


@register("importer", title="OpenAI Agents SDK", detect=is_openai_agents)
def openai_agents(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The runs of the SDK's traces; traces of one group are the tasks of one run."""
    collected = Collected("openai-agents", keep)
    groups: dict[str, dict[str, Any]] = {}
    for source in sources:
        complain = collected.complain(source.name)
        for line, value in objects(source, complain):
            items = value.get("data") if isinstance(value, dict) and "object" not in value else [value]
            for item in items if isinstance(items, list) else ():
                kind = item.get("object") if isinstance(item, dict) else None
                if kind == "trace":
                    groups[str(item.get("id"))] = item
                elif kind == "trace.span" and isinstance(item.get("span_data"), dict):
                    collected.add(str(item.get("trace_id")), "", _span(item, item["span_data"]))
                else:
                    complain(line, f"expected an object trace or trace.span, not {kind!r}")
    for trace, item in groups.items():
        if item.get("group_id"):
            collected.session[trace] = str(item["group_id"])
    for run in collected.runs(sources[0].name):
        first: dict[str, Any] = next(
            (item for t, item in groups.items() if run.trace_id in (t, item.get("group_id"))), {}
        )
        metadata = first.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("task_id"), str):
            run.task_id = metadata["task_id"] or None
        if isinstance(first.get("workflow_name"), str):
            run.params["workflow"] = first["workflow_name"]
        yield run


def _span(item: dict[str, Any], data: dict[str, Any]) -> Span:
    kind = KINDS.get(str(data.get("type")), "group")
    name = data.get("name") if isinstance(data.get("name"), str) else ""
    span = Span(
        str(item.get("id")), str(item.get("parent_id") or ""), kind, name or "", seconds(item.get("started_at")),
        seconds(item.get("ended_at")), failed=item.get("error") is not None,
    )  # fmt: skip
    if kind == "model":
        span.model = data.get("model") if isinstance(data.get("model"), str) else None
        _usage(span, data.get("usage"))
    elif kind == "handoff":
        span.to = str(data.get("to_agent") or "")
    elif kind == "guard":
        span.failed = data.get("triggered") is True
    span.input, span.output = _content(data.get("input")), _content(data.get("output"))
    return span


def _usage(span: Span, usage: Any) -> None:
    if not isinstance(usage, dict):
        return
    details = usage.get("input_tokens_details")
    read = usage.get("cached_input_tokens", details.get("cached_tokens") if isinstance(details, dict) else None)
    span.cache_read, span.cache_write = figure_of(read), figure_of(usage.get("cache_write_input_tokens"))
    given = figure_of(usage.get("input_tokens", usage.get("prompt_tokens")))
    span.tokens_out = figure_of(usage.get("output_tokens", usage.get("completion_tokens")))
    if given is not None:
        span.tokens_in = max(0.0, given - (span.cache_read or 0.0) - (span.cache_write or 0.0))


def _content(value: Any) -> bytes | str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value)
