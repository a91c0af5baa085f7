"""OpenTelemetry traces as OTLP writes them: JSON (one request, or one a line) and protobuf.

A trace is a run. Traces that name one conversation or session are the tasks of one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from podium.exchange.build import Run
from podium.exchange.conventions import CONTENT, MARKS, SESSIONS, WANTED, span_of
from podium.exchange.lines import ERRORS, one_a_line, records
from podium.exchange.protobuf import Damaged, requests
from podium.exchange.reading import START, Source
from podium.exchange.restored import EXPORTED, TRAVELS, Exported
from podium.exchange.spans import Span, add_spans
from podium.registry import register

__all__ = ["Collected", "hexadecimal", "otlp", "session_of"]


class Value(
    Struct,
    gc=False,
    rename={
        "text": "stringValue",
        "whole": "intValue",
        "real": "doubleValue",
        "flag": "boolValue",
        "array": "arrayValue",
        "pairs": "kvlistValue",
    },
):
    text: str | None = None
    whole: int | str | None = None
    real: float | str | None = None
    flag: bool | None = None
    array: Any = None
    pairs: Any = None

    def plain(self) -> Any:
        if self.text is not None:
            return self.text
        for value in (self.whole, self.real, self.flag, self.array, self.pairs):
            if value is not None:
                return value
        return None


class Pair(Struct, gc=False):
    """An attribute. Its value is decoded only if it is wanted: most of a log is what the models were shown, again
    and again."""

    key: str = ""
    value: Raw = Raw()


class SpanEvent(Struct, gc=False):
    name: str = ""
    attributes: list[Pair] = []


class Link(Struct, rename="camel", gc=False):
    span_id: str = ""


class Status(Struct, gc=False):
    code: int | str | None = None


class WireSpan(Struct, rename="camel", gc=False):
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str | None = None
    name: str = ""
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[Pair] = []
    events: list[SpanEvent] = []
    links: list[Link] = []
    status: Status | None = None


class Scope(Struct, gc=False):
    spans: list[WireSpan] = []


class Resource(Struct, gc=False):
    attributes: list[Pair] = []


class ResourceSpans(Struct, rename="camel", gc=False):
    resource: Resource | None = None
    scope_spans: list[Scope] = []


class Request(Struct, rename="camel", gc=False):
    resource_spans: list[ResourceSpans] = []


_typed = msgspec.json.Decoder(Request)
_span = msgspec.json.Decoder(WireSpan, strict=False)
_value = msgspec.json.Decoder(Value, strict=False)
_plain = msgspec.json.Decoder()


class _Requests:
    """Decodes requests, also those that write a field in another way than the specification does."""

    def decode(self, line: bytes) -> Request:
        try:
            request = _typed.decode(line)
        except msgspec.ValidationError:
            return _lenient(_plain.decode(line))
        return request if request.resource_spans else _lenient(_plain.decode(line))


def _lenient(value: Any) -> Request:
    """A request as far as it can be read: spans that cannot be are left out."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError("expected an object with resourceSpans")
    request = Request()
    for resource in _list(value.get("resourceSpans", value.get("resource_spans"))):
        scopes = _list(
            resource.get("scopeSpans", resource.get("scope_spans", resource.get("instrumentationLibrarySpans")))
        )
        spans = [_camel(span) for scope in scopes for span in _list(scope.get("spans"))]
        converted = [span for span in map(_converted, spans) if span is not None]
        request.resource_spans.append(ResourceSpans(scope_spans=[Scope(spans=converted)]))
    return request


def _list(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _camel(span: dict[str, Any]) -> dict[str, Any]:
    def key(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    return {key(name): value for name, value in span.items()}


def _converted(span: dict[str, Any]) -> WireSpan | None:
    """A span, without those of its fields that are not what they should be."""
    try:
        return _span.decode(msgspec.json.encode(span))
    except ERRORS:
        texts = {
            k: v
            for k, v in span.items()
            if k in ("traceId", "spanId", "parentSpanId", "name") and isinstance(v, str)
        }
        times = {
            k: v
            for k, v in span.items()
            if k in ("startTimeUnixNano", "endTimeUnixNano") and isinstance(v, (int, str))
        }
        pairs = [p for p in _list(span.get("attributes")) if isinstance(p.get("key"), str)]
        return _span.decode(msgspec.json.encode(texts | times | {"attributes": pairs}))


def _attributes(pairs: Iterable[Pair]) -> dict[str, Any]:
    """The attributes that are wanted. Those that hold content stay as they are: not all are used."""
    a: dict[str, Any] = {}
    for pair in pairs:
        key = pair.key
        if key in WANTED:
            if key in CONTENT:
                a[key] = pair.value
                continue
            try:
                value = _value.decode(pair.value)
            except ERRORS:
                continue
            a[key] = value.text if value.text is not None else value.plain()
    return a


def _seconds(nano: int | str | None) -> float | None:
    try:
        value = int(nano) if nano else 0
    except ValueError:
        return None
    return value / 1e9 if 0 < value < 1 << 64 else None


def _id(id: str | None) -> str:
    """Ids are hexadecimal in either case; whoever turned protobuf into JSON naively wrote base64."""
    if not id or (id[0] == "0" and not id.strip("0")):
        return ""
    return id.lower() if len(id) in (16, 32) else id


def spans_of(request: Request) -> Iterator[tuple[str, str, Span]]:
    """The spans of a request with the trace and, if they name one, the session that they belong to."""
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for wire in scope.spans:
                a = _attributes(wire.attributes)
                for event in wire.events:
                    if event.name == "exception":
                        a.setdefault("error.type", event.name)
                    elif "span.type" in a:
                        a = _attributes(event.attributes) | a
                start, end = _seconds(wire.start_time_unix_nano), _seconds(wire.end_time_unix_nano)
                span = span_of(_id(wire.span_id), _id(wire.parent_span_id), wire.name, start, end, a)
                if wire.status is not None and wire.status.code in (2, "STATUS_CODE_ERROR"):
                    span.failed = span.failed or span.kind != "guard"
                if wire.links:
                    span.links = tuple(_id(link.span_id) for link in wire.links)
                yield _id(wire.trace_id), session_of(a), span


def session_of(a: Mapping[str, Any]) -> str:
    """The session that the attributes of a span name."""
    return next((str(a[key]) for key in SESSIONS if a.get(key)), "")


def hexadecimal(value: Any) -> str:
    """An id as dumps of spans write it."""
    return value.lower().removeprefix("0x") if isinstance(value, str) else ""


class Collected:
    """Spans by trace, and traces by session."""

    def __init__(self, system: str, keep: bool) -> None:
        self.system, self.keep = system, keep
        self.traces: dict[str, dict[str, Span]] = {}
        self.session: dict[str, str] = {}
        self.rows: dict[tuple[str, str], int] = {}  # by trace and span: its first event
        self.twice: list[tuple[str, str]] = []
        self.faults: list[tuple[str, int | None, str]] = []

    def add(self, trace: str, session: str, span: Span) -> None:
        spans = self.traces.setdefault(trace, {})
        if span.id in spans and spans[span.id] != span:
            self.twice.append((trace, span.id))
            if (span.end is None) >= (spans[span.id].end is None):
                return
        spans[span.id] = span
        if session:
            self.session.setdefault(trace, session)

    def complain(self, file: str) -> Callable[[int | None, str], None]:
        return lambda line, why: self.faults.append((file, line, why))

    def runs(self, file: str, root: str = "main") -> Iterator[Run]:
        """The runs, the traces of one session as the tasks of one; one without events if no span is of an agent's
        work."""
        sessions: dict[str, list[str]] = {}
        for trace, spans in self.traces.items():
            if any(span.kind != "group" and span.start is not None for span in spans.values()):
                sessions.setdefault(self.session.get(trace) or trace, []).append(trace)
        faults = [
            *self.faults,
            *((file, None, f"span {id} stands twice, not alike, in trace {trace}") for trace, id in self.twice),
        ]
        for session, traces in sessions.items() or [(file, [])]:
            name = traces[0] if len(traces) == 1 else session
            run = Run(name or "trace", system=self.system, keep=self.keep)
            for fault in faults:
                run.fault(*fault)
            faults = []
            traces.sort(key=lambda trace: min(s.start for s in self.traces[trace].values() if s.start is not None))
            for task, trace in enumerate(traces):
                first = len(run.events)
                rows = add_spans(run, list(self.traces[trace].values()), root)
                self.rows |= {(trace, id): row for id, row in rows.items()}
                if len(traces) > 1:
                    for event in run.events[first:]:
                        event["task"] = task
            yield run


def is_otlp(start: bytes, name: str) -> float:
    """OTLP says so. A whole file without a trace of an agent's work is none of ours."""
    if b'"resourceSpans"' in start[:4096] or b'"resource_spans"' in start[:4096]:
        whole = len(start) < START - 1
        return 0.9 if not whole or any(mark in start for mark in MARKS) else 0.0
    if start[:1] in (b"\x0a", b"\0") and any(mark in start for mark in MARKS):
        return 0.6
    return 0.0


@register("importer", title="OTLP", detect=is_otlp)
def otlp(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The runs of OTLP files."""
    collected, ours = Collected("opentelemetry", keep), Exported()
    for source in sources:
        complain = collected.complain(source.name)
        for request in _read(source, complain):
            if EXPORTED.encode() in source.start:
                _keep(request, ours)
                continue
            for trace, session, span in spans_of(request):
                collected.add(trace, session, span)
    yield from ours.runs(collected.faults)
    if collected.traces or not ours.about:
        yield from collected.runs(sources[0].name)


def _keep(request: Request, ours: Exported) -> None:
    for span in (s for resource in request.resource_spans for scope in resource.scope_spans for s in scope.spans):
        ours.add(
            span.trace_id, {p.key: _value.decode(p.value).plain() for p in span.attributes if p.key in TRAVELS}
        )


def _read(source: Source, complain: Callable[[int | None, str], None]) -> Iterator[Request]:
    start = source.start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] != b"{":
        try:
            for request in requests(source.data()):
                yield _typed.decode(msgspec.json.encode(request))
        except (Damaged, RecursionError, msgspec.ValidationError) as error:
            complain(None, f"not OTLP in protobuf from here on: {error}")
        return
    if one_a_line(start):
        yield from (request for _, request in records(source.lines(), _Requests(), complain))
        return
    data = source.data()
    try:
        yield _Requests().decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        complain(_line_of(data, error), f"not JSON: {error}")


def _line_of(data: bytes, error: Exception) -> int | None:
    """The line at which a document breaks, by the byte that the error names."""
    place = str(error).rpartition("(byte ")[2].rstrip(")")
    end = int(place) if place.isdigit() else len(data)
    return data[:end].rstrip().count(b"\n") + 1
