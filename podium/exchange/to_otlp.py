"""Runs as OpenTelemetry spans, in OTLP JSON or protobuf. An agent is a span, and each of its events is one inside.

Turns of a model and calls of tools follow the GenAI conventions, so that any viewer shows them. Edges are links.
The event itself travels in an attribute, so that the run read back is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from podium.exchange.build import PERSON
from podium.exchange.protobuf import REQUEST
from podium.exchange.restored import EVENT, EXPORTED, PLACE, RUN, parts_of
from podium.exchange.to_protobuf import encoded
from podium.registry import register
from podium.trace.columns import Trace

__all__ = ["to_otlp"]

Pair = dict[str, Any]
TURNS = ("message", "orchestrator_decision", "aggregate", "return")
FIGURES = {
    "gen_ai.usage.output_tokens": "tokens_out",
    "gen_ai.usage.cache_read.input_tokens": "cache_read",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write",
}


@register("exporter", "otlp", title="OpenTelemetry spans, JSON or protobuf", suffixes=(".json", ".jsonl", ".pb"))
def to_otlp(traces: Sequence[Trace], suffix: str = ".json") -> bytes:
    """A request a run: one a line, or protobuf where the file's name ends in .pb."""
    requests = [_request(trace) for trace in traces]
    if suffix == ".pb":
        return b"".join(encoded(request, REQUEST) for request in requests)
    return b"".join(msgspec.json.encode(request) + b"\n" for request in requests)


def pair(key: str, value: Any) -> Pair:
    """An attribute."""
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, float) and not value.is_integer():
        return {"key": key, "value": {"doubleValue": value}}
    if isinstance(value, (int, float)):
        return {"key": key, "value": {"intValue": str(int(value))}}
    return {"key": key, "value": {"stringValue": str(value)}}


def _hex(*words: str, size: int) -> str:
    return sha256("\0".join(words).encode()).hexdigest()[:size]


class _Clock:
    """The nanoseconds at which events begin and end; those without a time begin with the one before."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        params = events[0].get("podium", {}).get("run", {}).get("params", {})
        started = params.get("started") if isinstance(params, dict) else None
        self.started = started if isinstance(started, (int, float)) else 0.0
        last = 0.0
        self.times: list[tuple[int, int]] = []
        for event in events:
            about = event.get("podium", {})
            last = last if "t" in about.get("absent", ()) else event["t"]
            self.times.append((self._nano(last), self._nano(max(last, about.get("end", last)))))

    def _nano(self, t: float) -> int:
        return max(1, round((self.started + t) * 1e9))


def _request(trace: Trace) -> dict[str, Any]:
    run, events = parts_of(trace)
    spans = [*_agents(run, events), *_events(run, events)]
    about = {"attributes": [pair(EXPORTED, True), pair("service.name", run.get("system") or "podium")]}
    return {"resourceSpans": [{"resource": about, "scopeSpans": [{"scope": {"name": "podium"}, "spans": spans}]}]}


def _agents(run: dict[str, Any], events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A span an agent, inside that of the agent that spawned it."""
    clock, id = _Clock(events), run["trace_id"]
    parents = {e["to"]: e["agent"] for e in reversed(events) if e["type"] == "spawn" and e.get("to")}
    names = list(dict.fromkeys(e["agent"] for e in events))
    for place, name in enumerate(names):
        times = [t for e, t in zip(events, clock.times, strict=True) if e["agent"] == name]
        attributes = [pair("gen_ai.agent.name", name)]
        if name != PERSON:
            attributes.append(pair("gen_ai.operation.name", "invoke_agent"))
        if place == 0:
            attributes.append(pair(RUN, msgspec.json.encode(run).decode()))
        above = str(parents.get(name))
        yield {
            "traceId": _hex(id, size=32),
            "spanId": _hex(id, "agent", name, size=16),
            **({"parentSpanId": _hex(id, "agent", above, size=16)} if above in names and above != name else {}),
            "name": f"invoke_agent {name}",
            "kind": 1,
            "startTimeUnixNano": str(min(t[0] for t in times)),
            "endTimeUnixNano": str(max(t[1] for t in times)),
            "attributes": attributes,
        }


def _events(run: dict[str, Any], events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    clock, id = _Clock(events), run["trace_id"]
    causes: dict[str, list[dict[str, Any]]] = {}
    for edge in run["edges"]:
        if edge["type"] != "temporal":
            link = {"traceId": _hex(id, size=32), "spanId": _hex(id, "event", edge["src"], size=16)}
            causes.setdefault(edge["dst"], []).append(link | {"attributes": [pair("podium.edge", edge["type"])]})
    for place, (event, (start, end)) in enumerate(zip(events, clock.times, strict=True)):
        name, attributes = _described(event)
        attributes += [pair(EVENT, msgspec.json.encode(event).decode()), pair(PLACE, place)]
        yield {
            "traceId": _hex(id, size=32),
            "spanId": _hex(id, "event", event["id"], size=16),
            "parentSpanId": _hex(id, "agent", event["agent"], size=16),
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(end),
            "attributes": attributes,
            "links": causes.get(event["id"], []),
            **({"status": {"code": 2}} if event.get("valid") is False else {}),
        }


def _described(event: dict[str, Any]) -> tuple[str, list[Pair]]:
    """The name and the attributes of an event by the GenAI conventions."""
    about = event.get("podium", {})
    if event["type"] == "tool_call":
        tool = event.get("tool") or "unnamed"
        return f"execute_tool {tool}", [
            pair("gen_ai.operation.name", "execute_tool"),
            pair("gen_ai.tool.name", tool),
        ]
    model = about.get("model")
    if event["type"] not in TURNS or event["agent"] == PERSON or (model is None and "tokens_out" not in about):
        return event["type"], []
    attributes = [pair("gen_ai.operation.name", "chat")]
    if model is not None:
        attributes.append(pair("gen_ai.response.model", model))
    given = [about[k] for k in ("tokens_in", "cache_read", "cache_write") if about.get(k) is not None]
    if given:
        attributes.append(pair("gen_ai.usage.input_tokens", sum(given)))
    attributes += [pair(key, about[name]) for key, name in FIGURES.items() if about.get(name) is not None]
    return f"chat {model or ''}".strip(), attributes
