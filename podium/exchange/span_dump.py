"""Spans that were written as JSON by other means than OTLP: by the SDK's `to_json` (Monocle, console and file
exporters), and in the nested form of the TRAIL benchmark. The attributes follow the same conventions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from podium.exchange.build import Run
from podium.exchange.conventions import MARKS, SESSIONS, WANTED, span_of
from podium.exchange.jsons import Complain, objects, seconds
from podium.exchange.otlp import Collected
from podium.exchange.reading import Source
from podium.exchange.spans import Span
from podium.registry import register

__all__ = ["duration", "span_dump"]

_PERIOD = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")


def is_span_dump(start: bytes, name: str) -> float:
    dump = b'"context"' in start and b'"trace_id"' in start and b'"parent_id"' in start and b'"start_time"' in start
    nested = b'"span_id"' in start and b'"parent_span_id"' in start and b'"span_name"' in start
    return 0.8 if (dump and any(mark in start for mark in MARKS)) or nested else 0.0


@register("importer", title="OpenTelemetry spans as JSON (OpenInference, Monocle, TRAIL)", detect=is_span_dump)
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
    """Adds a span, and those that are nested in it."""
    todo = [(item, "")]
    while todo:
        one, parent = todo.pop()
        if not isinstance(one, dict):
            complain(line, "expected a span, an object")
            continue
        if "span_name" in one:
            trace, session, span = _nested(one, parent)
        elif isinstance(one.get("context"), dict):
            trace, session, span = _dumped(one, one["context"])
        else:
            complain(line, "expected a span with a context, or with a span_name")
            continue
        collected.add(trace, session, span)
        below = one.get("child_spans")
        todo += [(child, span.id) for child in below] if isinstance(below, list) else []


def _attributes(value: Any) -> dict[str, Any]:
    return {k: v for k, v in value.items() if k in WANTED} if isinstance(value, dict) else {}


def _session(a: dict[str, Any]) -> str:
    return next((str(a[key]) for key in SESSIONS if a.get(key)), "")


def _id(value: Any) -> str:
    return value.lower().removeprefix("0x") if isinstance(value, str) else ""


def _dumped(item: dict[str, Any], context: dict[str, Any]) -> tuple[str, str, Span]:
    """What `ReadableSpan.to_json` writes."""
    a = _attributes(item.get("attributes"))
    for event in item["events"] if isinstance(item.get("events"), list) else ():
        if isinstance(event, dict) and event.get("name") == "exception":
            a.setdefault("error.type", "exception")
        elif isinstance(event, dict) and "span.type" in a:
            a = _attributes(event.get("attributes")) | a
    start, end = seconds(item.get("start_time")), seconds(item.get("end_time"))
    span = span_of(
        _id(context.get("span_id")), _id(item.get("parent_id")), str(item.get("name") or ""), start, end, a
    )
    status = item.get("status")
    if isinstance(status, dict) and status.get("status_code") == "ERROR" and span.kind != "guard":
        span.failed = True
    links = (
        [one.get("context") for one in item["links"] if isinstance(one, dict)]
        if isinstance(item.get("links"), list)
        else []
    )
    span.links = tuple(_id(link.get("span_id")) for link in links if isinstance(link, dict))
    return _id(context.get("trace_id")), _session(a), span


def _nested(item: dict[str, Any], parent: str) -> tuple[str, str, Span]:
    """A span of TRAIL: when it began and how long it took, with its children inside."""
    a = _attributes(item.get("span_attributes"))
    start, length = seconds(item.get("timestamp")), duration(item.get("duration"))
    end = None if start is None or length is None else start + length
    above = _id(item.get("parent_span_id")) or parent
    span = span_of(_id(item.get("span_id")), above, str(item.get("span_name") or ""), start, end, a)
    if item.get("status_code") == "Error" and span.kind != "guard":
        span.failed = True
    if span.kind == "agent":
        span.name = span.name.removesuffix(".run")
    return _id(item.get("trace_id")), _session(a), span


def duration(text: Any) -> float | None:
    """A length of time as ISO 8601 writes it, in seconds.

    >>> duration("PT2M8.5S"), duration("P1DT1H"), duration("soon")
    (128.5, 90000.0, None)
    """
    match = _PERIOD.fullmatch(text) if isinstance(text, str) else None
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + rest
