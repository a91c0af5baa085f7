"""A run as the page reads it: one block of typed columns, with a header that says where each begins.

    "PODIUM1\\n" · length of the header (uint32) · header (JSON) · columns, each at a multiple of 8 bytes

The header has the words that the columns point at. Everything else about an event (its fields, its content) is read
a chunk of rows at a time (`event_chunk`), so that a million events are a picture before they are a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium import graph
from podium.graph import units
from podium.metrics.prices import default_prices, turn_bill
from podium.trace.columns import COLUMNS, I, Text, Trace
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, event
from podium.trace.write import event_objects

__all__ = ["CHUNK", "FLAGS", "MAGIC", "event_chunk", "pack", "run_bundle", "unit_bundle", "unpack"]

MAGIC = b"PODIUM1\n"
MOST_OPTIONS = 200_000  # of decisions; where there are more, each is read with its event
CHUNK = 500  # events that are described at once
UNITS = ("orchestrator", "turn", "message", "tool_call", "role")  # of which the page cannot tell by itself
FLAGS = ("critical", "untrusted", "tainted", "invalid")  # the bits of the column `flags`, lowest first
_NAMES = {"float64": "f8", "float32": "f4", "int32": "i4", "uint16": "u2", "int8": "i1", "uint8": "u1"}


def pack(header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> bytes:
    """The block of some columns; `unpack` reads it back.

    >>> header, columns = unpack(pack({"name": "a run"}, {"t": np.array([0.0, 1.5])}))
    >>> header["name"], columns["t"].tolist()
    ('a run', [0.0, 1.5])
    """
    places, parts, at = {}, [], 0
    for name, values in columns.items():
        data = np.ascontiguousarray(values).tobytes()
        places[name] = [_NAMES[values.dtype.name], at, len(values)]
        padding = -len(data) % 8
        parts += [data, b"\0" * padding]
        at += len(data) + padding
    head = msgspec.json.encode({**header, "columns": places})
    head += b" " * (-(len(MAGIC) + 4 + len(head)) % 8)
    return b"".join([MAGIC, np.uint32(len(head)).tobytes(), head, *parts])


def unpack(block: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and columns of a block. Raises ValueError where it is none."""
    if not block.startswith(MAGIC):
        raise ValueError(f"expected a block that begins with {MAGIC!r}, got {block[: len(MAGIC)]!r}")
    start = len(MAGIC) + 4
    length = int(np.frombuffer(block, np.uint32, 1, len(MAGIC))[0])
    header = msgspec.json.decode(block[start : start + length])
    kinds = {short: long for long, short in _NAMES.items()}
    columns = {
        name: np.frombuffer(block, kinds[kind], n, start + length + at)
        for name, (kind, at, n) in header.pop("columns").items()
    }
    return header, columns


def run_bundle(trace: Trace) -> bytes:
    """The columns of one run that its picture needs. Times count from the first event; NaN and -1 are absent."""
    if len(trace) != 1:
        raise ValueError(f"expected one run, got {len(trace)}")
    known = trace.t_e[~np.isnan(trace.t_e)]
    start = float(known.min()) if len(known) else 0.0
    header = {
        "trace_id": trace.trace_id_n[0],
        "task_id": trace.task_id_n[0],
        "start": start,
        "events": trace.n_events,
        "timed": len(known),
        "edges": trace.n_edges,
        "event_types": EVENT_TYPES,
        "edge_types": EDGE_TYPES,
        "decisions": DECISIONS,
        "flags": FLAGS,
        "agents": [str(name) for name in trace.name_a.strings()],
        "parents": spawners(trace).tolist(),
        "lead": int(graph.lead(trace)[0]),
        "rewarded": any(not np.isnan(r).all() for r in (*trace.reward_n.values(), *trace.reward_e.values())),
        "people": np.flatnonzero(graph.persons(trace)).tolist(),
        "chunk": CHUNK,
    }
    columns: dict[str, NDArray[Any]] = {
        "t": trace.t_e - start,
        "end": trace.end_e - start,
        "work": graph.work(trace),
        "type": trace.type_e.astype(np.uint8),
        "agent": trace.agent_e.astype(np.int32),
        "decision": trace.decision_e.astype(np.int8),
        "flags": _flags(trace),
        "src": trace.src_x.astype(np.int32),
        "dst": trace.dst_x.astype(np.int32),
        "edge": trace.type_x.astype(np.uint8),
        "inferred": (trace.inferred_x == 1).astype(np.uint8),
    }
    for name in ("tokens_in", "tokens_out", "cache_read", "cache_write", "cost"):
        values = getattr(trace, f"{name}_e")
        if not np.isnan(values).all():
            columns[name] = values.astype(np.float32)
    priced = "cost" not in columns and bool((trace.model_e.codes >= 0).any())
    if priced and not np.isnan(usd_e := turn_bill(trace, default_prices()).usd_e).all():
        columns["price"] = usd_e.astype(np.float32)
    for name in ("tool", "role", "model", "chosen"):
        text: Text = getattr(trace, f"{name}_e")
        if (text.codes >= 0).any():
            used, codes = np.unique(text.codes, return_inverse=True)
            header[f"{name}_words"] = [text.words[c] for c in used[used >= 0].tolist()]
            columns[name] = (codes - (used < 0).sum()).astype(np.int32)
    if 0 < len(trace.event_o) <= MOST_OPTIONS:
        texts, codes = np.unique(trace.label_o.codes, return_inverse=True)
        header["option_words"] = [None if c < 0 else trace.label_o.words[c] for c in texts.tolist()]
        columns |= {
            "option": codes.astype(np.int32),
            "option_event": trace.event_o.astype(np.int32),
            "option_logp": trace.logp_o.astype(np.float32),
        }
    return pack(header, columns)


def unit_bundle(trace: Trace) -> bytes:
    """For each event the number of its unit, of every kind in `UNITS`; -1 where it belongs to none."""
    return pack({"units": UNITS}, {name: units.place(trace, name).astype(np.int32) for name in UNITS})


def spawners(trace: Trace) -> NDArray[np.int64]:
    """Who spawned each agent, by the first spawn that names it; -1 where the record does not say."""
    parent_a = np.full(trace.n_agents, -1, np.int64)
    rows = np.flatnonzero((trace.type_e == event("spawn")) & (trace.to_e >= 0) & (trace.to_e != trace.agent_e))[
        ::-1
    ]
    parent_a[trace.to_e[rows]] = trace.agent_e[rows]
    for agent in range(trace.n_agents):  # two that spawned each other would never be reached
        seen, above = {agent}, int(parent_a[agent])
        while above >= 0:
            if above in seen:
                parent_a[agent] = -1
                break
            seen.add(above)
            above = int(parent_a[above])
    return parent_a


def _flags(trace: Trace) -> NDArray[np.uint8]:
    marks = (
        graph.critical_path(trace).on_e,
        trace.trusted_e == 0,
        graph.taint(trace),
        trace.valid_e == 0,
    )
    flags = np.zeros(trace.n_events, np.uint8)
    for bit, mark_e in enumerate(marks):
        flags |= (mark_e.astype(np.uint8) << bit).astype(np.uint8)
    return flags


def event_chunk(trace: Trace, number: int) -> list[dict[str, Any]]:
    """What is known of the events of one chunk of one run: the fields that the survey's document would have."""
    first, last = number * CHUNK, min((number + 1) * CHUNK, trace.n_events)
    if not 0 <= first < max(last, 1):
        raise ValueError(f"there is no chunk {number}: {trace.n_events} events make {-(-trace.n_events // CHUNK)}")
    return event_objects(_rows_of(trace, first, last))


def _rows_of(trace: Trace, first: int, last: int) -> Trace:
    """Some events of a run, with their options and votes; what points at another event is left out."""
    columns: dict[str, Any] = {}
    owners = {"e": np.arange(trace.n_events), "o": trace.event_o, "v": trace.event_v}
    for name, axis, kind in COLUMNS:
        values = getattr(trace, name)
        if axis in ("n", "a"):
            columns[name] = values
        elif axis in owners and (kind != "row" or name[:-2] == "event"):
            rows = np.flatnonzero((owners[axis] >= first) & (owners[axis] < last))
            columns[name] = values[rows] - first if kind == "row" else _taken(values, rows)
    return Trace.of(**columns)


def _taken(values: Any, rows: I) -> Any:
    if isinstance(values, Mapping):
        return {name: _taken(column, rows) for name, column in values.items()}
    return values[rows] if isinstance(values, np.ndarray) else values.take(rows)
