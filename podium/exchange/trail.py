"""TRAIL: nested OpenInference spans of a run, and beside them the errors that people marked in it.

The errors of a span stand on its event (`label`); those of a mere group of spans on the first event in it, else on
the run (`params`). A file of errors belongs to the trace that it names; alone it is no run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from podium.exchange.build import Run
from podium.exchange.conventions import span_of, wanted
from podium.exchange.jsons import Complain, objects, seconds
from podium.exchange.otlp import Collected, hexadecimal, session_of
from podium.exchange.reading import Source
from podium.exchange.turns import dicts
from podium.registry import register

__all__ = ["duration", "trail"]

_PERIOD = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")
_TRACE = re.compile(rb'"trace_id"\s*:\s*"([^"]{1,64})"')


def is_trail(start: bytes, name: str) -> float:
    nested = b'"span_id"' in start and b'"parent_span_id"' in start and b'"span_name"' in start
    labels = b'"trace_id"' in start[:200] and b'"errors"' in start[:400] and _labelled(start)
    return 0.9 if nested or labels else 0.0


def _labelled(start: bytes) -> bool:
    return b'"location"' in start or b'"scores"' in start


def trail_keys(start: bytes, name: str) -> Iterable[str]:
    return [match[1].decode(errors="replace") for match in [_TRACE.search(start)] if match]


@register("importer", title="TRAIL", detect=is_trail, group=trail_keys)
def trail(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The runs of nested spans, with the errors that were marked in them."""
    collected = Collected("opentelemetry", keep)
    labels: dict[str, list[dict[str, Any]]] = {}
    for source in sources:
        complain = collected.complain(source.name)
        for line, value in objects(source, complain):
            if isinstance(value, dict) and isinstance(value.get("errors"), list):
                labels.setdefault(hexadecimal(value.get("trace_id")), []).extend(dicts(value["errors"]))
                continue
            spans = value.get("spans", [value]) if isinstance(value, dict) else None
            for item in spans if isinstance(spans, list) else ():
                _add(collected, item, line, complain)
    for run in collected.runs(sources[0].name):
        for trace, errors in labels.items():
            if run.trace_id == trace:
                _mark(run, collected, trace, errors)
        yield run


def _add(collected: Collected, item: Any, line: int | None, complain: Complain) -> None:
    """Adds a span, and those that are nested in it."""
    todo = [(item, "")]
    while todo:
        one, parent = todo.pop()
        if not isinstance(one, dict) or "span_name" not in one:
            complain(line, "expected a span with a span_name")
            continue
        a = wanted(one.get("span_attributes"))
        start, length = seconds(one.get("timestamp")), duration(one.get("duration"))
        end = None if start is None or length is None else start + length
        above = hexadecimal(one.get("parent_span_id")) or parent
        span = span_of(hexadecimal(one.get("span_id")), above, str(one.get("span_name") or ""), start, end, a)
        if one.get("status_code") == "Error" and span.kind != "guard":
            span.failed = True
        if span.kind == "agent":
            span.name = span.name.removesuffix(".run")
        collected.add(hexadecimal(one.get("trace_id")), session_of(a), span)
        todo += [(child, span.id) for child in dicts(one.get("child_spans"))]


def _mark(run: Run, collected: Collected, trace: str, errors: list[dict[str, Any]]) -> None:
    rows = collected.rows
    inside: dict[str, int] = {}  # groups to the first event in them
    for id, row in sorted(((id, row) for (of, id), row in rows.items() if of == trace), key=lambda one: one[1]):
        span, hops = collected.traces[trace].get(id), 0
        while span is not None and hops < 64:
            inside.setdefault(span.id, row)
            span, hops = collected.traces[trace].get(span.parent), hops + 1
    for error in errors:
        label = {k: str(error[k]) for k in ("category", "description", "impact") if error.get(k)}
        place = hexadecimal(error.get("location"))
        if place in inside:
            run.events[inside[place]].setdefault("extra", {}).setdefault("label", []).append(label)
        else:
            run.params.setdefault("labels", []).append(label)
    run.params["labelled"] = len(errors)


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
