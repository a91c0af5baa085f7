"""How fast OTLP JSON becomes checked traces, beside decoding it with msgspec, which makes nothing of it.

Called by `bench.exchange`. Spans of agents come in two kinds. With content (what models and tools were given and
returned stands on the span) they are tens of kilobytes each; the promise is about these. Bare spans, under a
kilobyte, are all events and no text: their figure is printed beside it. At full size the spans with content are
those of ../shared/data/logs (TRAIL and deerflow, written as OTLP), if they are there.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.table import Row, at_most, best, fact
from podium.exchange.trail import duration
from podium.trace.files import read
from podium.trace.vocabulary import EVENT_TYPES

__all__ = ["measure_otlp"]

LOGS = Path(__file__).parents[2] / "shared/data/logs"
Wire = dict[str, Any]


def attribute(key: str, value: Any) -> Wire:
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    return {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}


def span(
    trace: str, id: str, parent: str | None, name: str, start: float, end: float, a: Wire, **more: Any
) -> Wire:
    times = {"startTimeUnixNano": str(int(start * 1e9)), "endTimeUnixNano": str(int(end * 1e9))}
    ids = {"traceId": trace, "spanId": id} | ({"parentSpanId": parent} if parent else {})
    return ids | {"name": name, "kind": 1} | times | {"attributes": [attribute(*pair) for pair in a.items()]} | more


def request(spans: list[Wire]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode() + b"\n"


def team(number: int, words: int) -> list[Wire]:
    """A run of a lead with four agents, each with a few turns and calls; so many words of content on a span."""
    trace, spans = f"{number:032x}", []
    text = " ".join(f"word{number}.{i}" for i in range(words))
    answer = {"gen_ai.output.messages": text} if words else {}
    shown = {"gen_ai.input.messages": text * 4} if words else {}

    def add(parent: str | None, name: str, start: float, end: float, **a: Any) -> str:
        id = f"{len(spans) + 1:016x}"
        spans.append(
            span(trace, id, parent, name, start, end, {k.replace("__", "."): v for k, v in a.items()} | answer)
        )
        return id

    lead = add(None, "invoke_agent lead", 1, 99, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="lead")
    for agent in range(4):
        name, at = f"worker{agent}", 2.0 + agent / 8
        worker = add(
            lead, f"invoke_agent {name}", at, 90, gen_ai__operation__name="invoke_agent", gen_ai__agent__name=name
        )
        for turn in range(6):
            at += 4
            usage = {"gen_ai__usage__input_tokens": 900 + turn, "gen_ai__usage__output_tokens": 40}
            add(
                worker,
                "chat m",
                at,
                at + 2,
                gen_ai__operation__name="chat",
                gen_ai__request__model="m",
                **usage,
                **shown,
            )
            tool = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "search"}
            add(worker, "execute_tool search", at + 2, at + 3, gen_ai__tool__call__id=f"c{agent}.{turn}", **tool)
    return spans


def real() -> Iterator[list[Wire]]:
    """The spans of TRAIL and of deerflow, a trace at a time."""

    def seconds(text: str) -> float:
        return datetime.fromisoformat(text).timestamp()

    def walk(s: Wire) -> Iterator[Wire]:
        start = seconds(s["timestamp"])
        yield span(
            s["trace_id"],
            s["span_id"],
            s["parent_span_id"],
            s["span_name"],
            start,
            start + (duration(s["duration"]) or 0.0),
            s["span_attributes"],
            status={},
        )
        for child in s["child_spans"]:
            yield from walk(child)

    for path in sorted((LOGS / "trail/swe_bench").glob("*.json.xz")):
        yield [one for root in json.loads(lzma.decompress(path.read_bytes()))["spans"] for one in walk(root)]
    for path in (LOGS / "deerflow").glob("*.json"):
        yield [
            span(
                s["context"]["trace_id"],
                s["context"]["span_id"],
                s["parent_id"],
                s["name"],
                seconds(s["start_time"]),
                seconds(s["end_time"]),
                s["attributes"],
                events=[
                    {"name": e["name"], "attributes": [attribute(*pair) for pair in e["attributes"].items()]}
                    for e in s["events"]
                ],
            )
            for s in json.loads(path.read_bytes())
        ]


def decoded(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        msgspec.json.decode(line)


def imported(path: Path) -> int:
    """How many calls there were."""
    traces = [one.trace for one in read(path) if one.trace is not None]
    return sum(int((t.type_e == EVENT_TYPES.index("tool_call")).sum()) for t in traces)


def measure_otlp(full: bool, folder: Path) -> list[Row]:
    content = [*real()] if full else []
    content = content or [team(i, 2000) for i in range(40 if full else 2)]
    bare = [team(i, 0) for i in range(400 if full else 4)]
    paths = {"content": folder / "content.jsonl", "bare": folder / "bare.jsonl"}
    for name, traces in (("content", content), ("bare", bare)):
        paths[name].write_bytes(b"".join(map(request, traces)))
    calls = len(bare) * 24
    times = best(
        5 if full else 1,
        *(call for path in paths.values() for call in (lambda p=path: decoded(p), lambda p=path: imported(p))),
    )
    size = paths["content"].stat().st_size
    return [
        at_most(
            "25.1.otlp", "OTLP: calls that were not imported", abs(calls - imported(paths["bare"])), 0, "exact"
        ),
        at_most(
            "25.3.otlp",
            "OTLP JSON with content: times as long as decoding it with msgspec",
            times[1] / times[0],
            2.5,
            "time",
        ),
        fact("25.3.otlp.rate", "OTLP JSON with content, MB/s", size / times[1] / 1e6),
        fact("25.3.otlp.bare", "OTLP JSON of bare spans: times as long as decoding it", times[3] / times[2]),
        fact("25.3.otlp.spans", "bare spans a second", sum(map(len, bare)) / times[3]),
    ]
