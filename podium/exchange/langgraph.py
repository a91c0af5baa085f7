"""Streams of LangGraph: chunks of the modes `tasks` and `debug`, as `{"mode", "chunk"}` or as the tuples that
`stream` yields.

A task of a node is an agent at work, from its start to its result, for the graph. Only `debug` chunks say when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.langsmith import STEPS
from podium.exchange.reading import Source
from podium.exchange.spans import Span, add_spans
from podium.registry import register

__all__ = ["langgraph"]

MODES = {"tasks", "debug", "updates", "values", "messages", "custom", "checkpoints", "messages-tuple", "events"}
ROOT = "graph"


def is_langgraph(start: bytes, name: str) -> float:
    head = start[:8192]
    task = b'"triggers"' in start and b'"name"' in start and (b'"interrupts"' in start or b'"input"' in start)
    return 0.85 if task and (b'"mode"' in head or b'"tasks"' in head or b'"debug"' in head) else 0.0


@register("importer", title="LangGraph", detect=is_langgraph)
def langgraph(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of one stream."""
    for source in sources:
        run = Run(_name(source.name), system="langgraph", keep=keep)
        tasks: dict[str, Span] = {}
        order = 0
        for line, value in objects(source, partial(run.fault, source.name)):
            chunk = _chunk(value)
            if chunk is None:
                run.fault(source.name, line, "expected a chunk of a stream: its mode and what it holds")
                continue
            order += 1
            _take(tasks, *chunk, order)
        timed = _clock(tasks)
        if tasks:
            add_spans(run, list(tasks.values()), ROOT)
        if not timed:
            for event in run.events:
                event["t"] = event["end"] = None
        yield run


def _name(file: str) -> str:
    return file.rpartition("/")[2].partition(".json")[0] or "stream"


def _chunk(value: Any) -> tuple[str, str, dict[str, Any]] | None:
    """The mode of a chunk, the task that it lies within, and what it holds."""
    if isinstance(value, dict) and "chunk" in value:
        value = [value.get("ns") or value.get("namespace") or [], value.get("mode"), value["chunk"]]
    if not isinstance(value, list) or len(value) not in (2, 3):
        return None
    space, mode, chunk = value if len(value) == 3 else ([], *value)
    if not isinstance(mode, str) or mode not in MODES or not isinstance(space, list):
        return None
    above = str(space[-1]).rpartition(":")[2] if space else ""
    return mode, above, chunk if isinstance(chunk, dict) else {}


def _take(tasks: dict[str, Span], mode: str, above: str, chunk: dict[str, Any], order: int) -> None:
    """Adds what a chunk says of a task: that it began, or how it ended."""
    stamp = None
    if mode == "debug":
        stamp = seconds(chunk.get("timestamp"))
        chunk = chunk["payload"] if isinstance(chunk.get("payload"), dict) else {}
    if mode not in ("debug", "tasks") or not isinstance(chunk.get("id"), str):
        return
    name = str(chunk.get("name") or "")
    span = tasks.get(chunk["id"])
    if span is None:
        kind: Any = "group" if name in STEPS else "agent"
        span = tasks[chunk["id"]] = Span(chunk["id"], above or ROOT, kind, name)
    if "result" in chunk or "error" in chunk:
        span.output = msgspec.json.encode(chunk.get("result"))
        span.failed = chunk.get("error") is not None
        span.end = (
            span.end if stamp is None and span.end is not None else stamp if stamp is not None else -float(order)
        )
        for i, _ in enumerate(chunk["interrupts"] if isinstance(chunk.get("interrupts"), list) else ()):
            tasks[f"{span.id} {i}"] = Span(f"{span.id} {i}", span.id, "person", "interrupt", span.end)
    else:
        span.input = msgspec.json.encode(chunk.get("input"))
        span.start = (
            span.start
            if stamp is None and span.start is not None
            else stamp
            if stamp is not None
            else -float(order)
        )


def _clock(tasks: dict[str, Span]) -> bool:
    """Gives the graph a span of its own; False where chunks say only in which order (times below zero), not
    when."""
    times = [t for span in tasks.values() for t in (span.start, span.end) if t is not None]
    timed = bool(times) and all(t >= 0 for t in times)
    for span in tasks.values():
        if not timed:
            span.start = None if span.start is None else abs(span.start)
            span.end = None if span.end is None else abs(span.end)
        span.start = span.end if span.start is None else span.start
    times = [abs(t) for t in times]
    if tasks:
        tasks[ROOT] = Span(ROOT, "", "agent", ROOT, min(times), max(times))
    return timed
