"""Runs as a Perfetto trace, to open in ui.perfetto.dev: a track an agent, a slice an event that lasts, an instant
one that does not, an arrow an edge between agents or between a call and its result.

Slices of one track lie inside each other, so what an agent did side by side goes to further tracks below its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from podium.exchange.protobuf import Schema
from podium.exchange.to_protobuf import encoded
from podium.registry import register
from podium.trace.columns import Trace
from podium.trace.vocabulary import EVENT_TYPES, edge

__all__ = ["lanes_of", "times_of", "to_perfetto"]

NOTE: Schema = {10: ("name", "text"), 6: ("stringValue", "text"), 5: ("doubleValue", "double")}
EVENT: Schema = {
    9: ("type", "int"),
    11: ("trackUuid", "int"),
    22: ("categories", ["text"]),
    23: ("name", "text"),
    4: ("debugAnnotations", [NOTE]),
    47: ("flowIds", ["fixed"]),
    48: ("terminatingFlowIds", ["fixed"]),
}
TRACK: Schema = {1: ("uuid", "int"), 2: ("name", "text"), 5: ("parentUuid", "int")}
PACKETS: Schema = {
    1: (
        "packet",
        [
            {
                8: ("timestamp", "int"),
                10: ("trustedPacketSequenceId", "int"),
                11: ("trackEvent", EVENT),
                60: ("trackDescriptor", TRACK),
            }
        ],
    )
}
BEGIN, END, INSTANT = 1, 2, 3
FIGURES = ("tokens_in", "tokens_out", "cache_read", "cache_write", "cost")
Packet = dict[str, Any]


@register("exporter", "perfetto", title="a Perfetto trace", suffixes=(".pftrace", ".perfetto-trace"))
def to_perfetto(traces: Sequence[Trace], suffix: str = ".pftrace") -> bytes:
    """All runs in one trace, a group of tracks each. Events without a time are drawn one second apart."""
    packets = [packet for trace in traces for packet in _packets(trace)]
    return encoded({"packet": [packet | {"trustedPacketSequenceId": 1} for packet in packets]}, PACKETS)


def _uuid(*words: str) -> int:
    return int(sha256("\0".join(words).encode()).hexdigest()[:15], 16)


def _packets(trace: Trace) -> Iterator[Packet]:
    run = trace.trace_id_n[0] or "run"
    yield {"trackDescriptor": {"uuid": _uuid(run), "name": run}}
    begun, ended = times_of(trace)
    lane_e = lanes_of(trace, begun, ended)
    names = trace.name_a.strings()
    for agent, lane in sorted({*zip(trace.agent_e.tolist(), lane_e.tolist(), strict=True)}):
        name = f"{names[agent]}{f' ({lane + 1})' if lane else ''}"
        yield {
            "trackDescriptor": {"uuid": _uuid(run, str(agent), str(lane)), "name": name, "parentUuid": _uuid(run)}
        }
    flows = _flows(trace, run)
    points: list[tuple[float, int, float, int]] = []  # at one time what ends comes first, and the longer before
    for row in range(trace.n_events):
        lasts = ended[row] > begun[row]
        points.append((begun[row], 1, -ended[row], row))
        if lasts:
            points.append((ended[row], 0, -begun[row], row))
    for t, begins, _, row in sorted(points):
        track = _uuid(run, str(int(trace.agent_e[row])), str(int(lane_e[row])))
        event: dict[str, Any] = {"trackUuid": track, "type": END}
        if begins:
            event |= _described(trace, row) | {"type": BEGIN if ended[row] > begun[row] else INSTANT}
            event |= {key: ids for key, ids in flows[row].items() if ids}
        yield {"timestamp": round(t * 1e9), "trackEvent": event}


def times_of(trace: Trace) -> tuple[Any, Any]:
    """When each event begins and ends, in seconds since the beginning of the run."""
    known = ~np.isnan(trace.t_e)
    begun = np.where(known, trace.t_e, np.nan)
    if not known.any():
        begun = np.arange(trace.n_events, dtype=float)
    last = 0.0
    for row in range(trace.n_events):
        last = begun[row] = last if np.isnan(begun[row]) else begun[row]
    return begun, np.fmax(np.where(np.isnan(trace.end_e), begun, trace.end_e), begun)


def lanes_of(trace: Trace, begun: Any, ended: Any) -> Any:
    """The track of an agent that each event goes to: the first on which it lies inside, or apart from, the
    others."""
    lane_e = np.zeros(trace.n_events, np.int64)
    open_ends: dict[tuple[int, int], list[float]] = {}
    for row in np.lexsort((-ended, begun)).tolist():
        lane = 0
        while True:
            ends = open_ends.setdefault((int(trace.agent_e[row]), lane), [])
            while ends and ends[-1] <= begun[row]:
                ends.pop()
            if not ends or ended[row] <= ends[-1]:
                break
            lane += 1
        if ended[row] > begun[row]:
            ends.append(ended[row])
        lane_e[row] = lane
    return lane_e


def _flows(trace: Trace, run: str) -> list[dict[str, list[int]]]:
    """The arrows of each event: all edges but those that only say what followed."""
    flows: list[dict[str, list[int]]] = [{"flowIds": [], "terminatingFlowIds": []} for _ in range(trace.n_events)]
    for x in np.flatnonzero(trace.type_x != edge("temporal")).tolist():
        id = _uuid(run, "edge", str(x))
        flows[int(trace.src_x[x])]["flowIds"].append(id)
        flows[int(trace.dst_x[x])]["terminatingFlowIds"].append(id)
    return flows


def _described(trace: Trace, row: int) -> dict[str, Any]:
    type, tool, model = EVENT_TYPES[int(trace.type_e[row])], trace.tool_e[row], trace.model_e[row]
    notes: list[dict[str, Any]] = []
    if model is not None:
        notes.append({"name": "model", "stringValue": model})
    for name in FIGURES:
        value = float(getattr(trace, f"{name}_e")[row])
        if value == value:
            notes.append({"name": name, "doubleValue": value})
    to = int(trace.to_e[row])
    label = f"{type} {tool}" if tool else f"{type} to {trace.name_a[to]}" if to >= 0 else type
    return {"name": label, "categories": [type], "debugAnnotations": notes}
