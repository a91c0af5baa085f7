"""A trace as the objects that are written on disk: the same for a survey document and an event log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from msgspec import Raw

from podium.trace.columns import COLUMNS, Text, Trace, recorded
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES
from podium.trace.wire import LISTS, Event, Extension, RunFields, fields_of

__all__ = ["costs", "event_objects", "figures", "run_fields"]

_KINDS = {c.name: c.kind for c in COLUMNS}
_JSON = {"random_e", "params_n", "seed_n", "do_n"}  # texts that are JSON
_ALWAYS = ("id", "t", "type", "agent")
_TOP, _EXTENSION = (
    [name for name in fields_of(struct) if f"{name}_e" in _KINDS and name not in _ALWAYS]
    for struct in (Event, Extension)
)


def event_objects(trace: Trace) -> list[dict[str, Any]]:
    """The events of a rollout as objects of the survey's schema, in the order of rows."""
    _all_finite(trace)
    names = _names(trace)
    ids = trace.id_e.strings()
    types = [EVENT_TYPES[c] for c in trace.type_e.tolist()]
    agents = [names[a] for a in trace.agent_e.tolist()]
    clock = np.nan_to_num(trace.t_e).tolist()
    events: list[dict[str, Any]] = [
        {"id": i, "t": t, "type": y, "agent": a} for i, t, y, a in zip(ids, clock, types, agents, strict=True)
    ]
    for name in _TOP:
        for row, value in zip(*_cells(trace, f"{name}_e", names, ids), strict=True):
            events[row][name] = value
    for name, texts in trace.extra_e.items():
        for row in np.flatnonzero(texts.codes >= 0).tolist():
            events[row][name] = Raw(str(texts[row]).encode())
    added: dict[int, dict[str, Any]] = {}
    for name in _EXTENSION:
        for row, value in zip(*_cells(trace, f"{name}_e", names, ids), strict=True):
            added.setdefault(row, {})[name] = value
    for row, name, value in _nested(trace, ids):
        added.setdefault(row, {}).setdefault(name, value)
    for row in np.flatnonzero(np.isnan(trace.t_e)).tolist():
        added.setdefault(row, {})["absent"] = ["t"]
    for row, fields in added.items():
        events[row]["podium"] = fields
    return events


def _names(trace: Trace) -> list[str]:
    if (trace.agent_e < 0).any():
        raise ValueError(f"event {int(np.argmax(trace.agent_e < 0))} has no agent; an event on disk must name one")
    return [str(w) for w in trace.name_a.strings()]


def _cells(
    trace: Trace, name: str, names: Sequence[str] = (), ids: Sequence[str] = ()
) -> tuple[list[int], list[Any]]:
    """The rows of a column in which something is recorded, and what is written for each."""
    column: Any = getattr(trace, name)
    rows = np.flatnonzero(recorded(column))
    if isinstance(column, Text):
        words = [str(column.words[code]) for code in column.codes[rows].tolist()]
        return rows.tolist(), [Raw(word.encode()) for word in words] if name in _JSON else words
    values = column[rows].tolist()
    match _KINDS[name]:
        case "agent":
            values = [names[a] for a in values]
        case "row":
            values = [ids[r] for r in values]
        case "tri":
            values = [bool(v) for v in values]
        case "code":
            values = [DECISIONS[c] for c in values]
    return rows.tolist(), values


def _nested(trace: Trace, ids: list[str]) -> Iterator[tuple[int, str, Any]]:
    """(row, field, value) for what is more than one value an event."""
    for row, rewards in figures(trace.reward_e).items():
        yield row, "rewards", rewards
    for listed in LISTS:
        owner = getattr(trace, listed.owner)
        rows, first = np.unique(owner, return_index=True)
        spans = list(zip(rows.tolist(), first.tolist(), [*first[1:].tolist(), len(owner)], strict=False))
        for name, column in listed.fields.items():
            cells: list[Any] = [None] * len(owner)
            for place, value in zip(*_cells(trace, column), strict=True):
                cells[place] = value
            yield from ((row, name, cells[a:b]) for row, a, b in spans if any(v is not None for v in cells[a:b]))
    votes = zip(
        trace.event_v.tolist(),
        trace.value_v.strings(),
        trace.source_v.tolist(),
        trace.weight_v.tolist(),
        strict=True,
    )
    for row, some in groupby(votes, key=itemgetter(0)):
        yield (
            row,
            "votes",
            [
                {"value": value}
                | ({"source": ids[source]} if source >= 0 else {})
                | ({"weight": weight} if weight == weight else {})
                for _, value, source, weight in some
            ],
        )
    guesses = np.flatnonzero(trace.inferred_x == 1)
    for row, edges in groupby(guesses.tolist(), key=lambda x: int(trace.dst_x[x])):
        yield (
            row,
            "inferred",
            [
                {"src": ids[trace.src_x[x]], "type": EDGE_TYPES[trace.type_x[x]]}
                | ({} if (rule := trace.rule_x[x]) is None else {"rule": rule})
                for x in edges
            ],
        )


def figures(columns: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Columns of figures, one a name, as one map a row; what was not recorded is left out."""
    maps: dict[int, dict[str, float]] = {}
    for name, values in columns.items():
        for row in np.flatnonzero(~np.isnan(values)).tolist():
            maps.setdefault(row, {})[name] = float(values[row])
    return maps


def run_fields(trace: Trace) -> dict[str, Any]:
    """What is known of a rollout and has no place in the survey's document."""
    cells = {name: _cells(trace, f"{name.removesuffix('_s')}_n")[1] for name in fields_of(RunFields)}
    return {name: values[0] for name, values in cells.items() if values}


def costs(trace: Trace) -> tuple[dict[str, float], list[str]]:
    """The costs of a rollout with the required ones filled in, and the names of those that were not recorded."""
    known = figures(trace.cost_n).get(0, {})
    missing = [name for name in ("tokens", "wall_clock_s") if name not in known]
    return {"tokens": 0.0, "wall_clock_s": 0.0} | known, [f"costs.{name}" for name in missing]


def _all_finite(trace: Trace) -> None:
    for name, _, kind in COLUMNS:
        values = getattr(trace, name)
        columns = values if kind == "floats" else {"": values} if kind == "float" else {}
        for key, column in columns.items():
            if len(rows := np.flatnonzero(np.isinf(column))):
                where = f"{name}[{key}]" if key else name
                raise ValueError(f"{where} has an infinite value in row {rows[0]}; JSON has none")
