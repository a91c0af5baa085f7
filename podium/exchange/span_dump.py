"""Spans that were written as JSON by other means than OTLP: by the SDK's `to_json` (Monocle, console and file
exporters). The attributes follow the same conventions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from podium.exchange.build import Run
from podium.exchange.conventions import MARKS, span_of, wanted
from podium.exchange.jsons import Complain, objects, seconds
from podium.exchange.otlp import Collected, hexadecimal, session_of
from podium.exchange.reading import Source
from podium.exchange.spans import Span
from podium.registry import register

__all__ = ["span_dump"]


def is_span_dump(start: bytes, name: str) -> float:
    dump = b'"context"' in start and b'"trace_id"' in start and b'"parent_id"' in start and b'"start_time"' in start
    return 0.8 if dump and any(mark in start for mark in MARKS) else 0.0


@register("importer", title="OpenTelemetry spans", detect=is_span_dump)
def span_dump(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The runs of dumped spans."""
    collected = Collected("opentelemetry", keep)
    for source in sources:
        complain = collected.complain(source.name)
        for line, value in objects(source, complain):
            spans = value.get("spans", [value]) if isinstance(value, dict) else None
            for item in spans if isinstance(spans, list) else ():
                _add(collected, item, line, complain)
    yield from collected.runs(sources[0].name)


def _add(collected: Collected, item: Any, line: int | None, complain: Complain) -> None:
    if isinstance(item, dict) and isinstance(item.get("context"), dict):
        collected.add(*_dumped(item, item["context"]))
    else:
        complain(line, "expected a span, an object with a context")


def _dumped(item: dict[str, Any], context: dict[str, Any]) -> tuple[str, str, Span]:
    """What `ReadableSpan.to_json` writes."""
    a = wanted(item.get("attributes"))
    for event in item["events"] if isinstance(item.get("events"), list) else ():
        if isinstance(event, dict) and event.get("name") == "exception":
            a.setdefault("error.type", "exception")
        elif isinstance(event, dict) and "span.type" in a:
            a = wanted(event.get("attributes")) | a
    start, end = seconds(item.get("start_time")), seconds(item.get("end_time"))
    span = span_of(
        hexadecimal(context.get("span_id")),
        hexadecimal(item.get("parent_id")),
        str(item.get("name") or ""),
        start,
        end,
        a,
    )
    status = item.get("status")
    if isinstance(status, dict) and status.get("status_code") == "ERROR" and span.kind != "guard":
        span.failed = True
    links = (
        [one.get("context") for one in item["links"] if isinstance(one, dict)]
        if isinstance(item.get("links"), list)
        else []
    )
    span.links = tuple(hexadecimal(link.get("span_id")) for link in links if isinstance(link, dict))
    return hexadecimal(context.get("trace_id")), session_of(a), span
