"""A trace as the objects that are written on disk: the same for a survey document and an event log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Raw

from podium.trace.columns import COLUMNS, Text, Trace
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES

__all__ = ["costs", "event_objects", "figures", "run_fields"]

_TOP = {
    "from": "from_e",
    "to": "to_e",
    "role": "role_e",
    "tool": "tool_e",
    "content_ref": "content_ref_e",
    "trusted": "trusted_e",
}
_EXTENSION = [
    "end",
    "tokens_in",
    "tokens_out",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "task",
    "cost",
    "stage",
    "decision",
    "chosen",
    "logp",
    "call",
    "chance",
    "valid",
    "truncated",
    "model",
    "version",
    "context",
    "start",
    "random",
]
_RAW = {"random_e"}


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
    for name, column in _TOP.items():
        for row, value in _there(trace, column, names, ids):
            events[row][name] = value
    for name, texts in trace.extra_e.items():
        for row in np.flatnonzero(texts.codes >= 0).tolist():
            events[row][name] = Raw(str(texts[row]).encode())
    added: dict[int, dict[str, Any]] = {}
    for name in _EXTENSION:
        for row, value in _there(trace, f"{name}_e", names, ids):
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


def _there(trace: Trace, column: str, names: list[str], ids: list[str]) -> Any:
    """(row, value) for each event that has a value in a column."""
    values: Any = getattr(trace, column)
    if isinstance(values, Text):
        raw = column in _RAW
        return (
            (row, Raw(str(values[row]).encode()) if raw else values[row])
            for row in np.flatnonzero(values.codes >= 0).tolist()
        )
    kind = next(c.kind for c in COLUMNS if c.name == column)
    rows = np.flatnonzero(~np.isnan(values) if kind == "float" else values >= 0).tolist()
    values_ = values[rows].tolist()
    match kind:
        case "agent":
            values_ = [names[a] for a in values_]
        case "row":
            values_ = [ids[r] for r in values_]
        case "tri":
            values_ = [bool(v) for v in values_]
        case "code":
            values_ = [DECISIONS[c] for c in values_]
    return zip(rows, values_, strict=True)


def _nested(trace: Trace, ids: list[str]) -> Any:
    """(row, field, value) for what is more than one value an event."""
    for row, rewards in figures(trace.reward_e).items():
        yield row, "rewards", rewards
    if len(trace.token_k):
        rows, first = np.unique(trace.owner_k, return_index=True)
        for row, a, b in zip(rows.tolist(), first.tolist(), [*first[1:].tolist(), len(trace.token_k)], strict=True):
            yield row, "tokens", trace.token_k[a:b].tolist()
            logps, mask = trace.logp_k[a:b], trace.mask_k[a:b]
            if not np.isnan(logps).all():
                yield row, "logps", [None if v != v else v for v in logps.tolist()]
            if (mask >= 0).any():
                yield row, "mask", [None if v < 0 else bool(v) for v in mask.tolist()]
    yield from _offered(trace)
    votes: dict[int, list[dict[str, Any]]] = {}
    for v in range(len(trace.event_v)):
        vote: dict[str, Any] = {"value": trace.value_v[v]}
        if trace.source_v[v] >= 0:
            vote["source"] = ids[trace.source_v[v]]
        if trace.weight_v[v] == trace.weight_v[v]:
            vote["weight"] = float(trace.weight_v[v])
        votes.setdefault(int(trace.event_v[v]), []).append(vote)
    for row, cast in votes.items():
        yield row, "votes", cast
    guesses: dict[int, list[dict[str, Any]]] = {}
    for x in np.flatnonzero(trace.inferred_x == 1).tolist():
        guess = {"src": ids[trace.src_x[x]], "type": EDGE_TYPES[trace.type_x[x]]}
        if (rule := trace.rule_x[x]) is not None:
            guess["rule"] = rule
        guesses.setdefault(int(trace.dst_x[x]), []).append(guess)
    for row, guessed in guesses.items():
        yield row, "inferred", guessed


def _offered(trace: Trace) -> Any:
    """(row, field, value) of the options of decisions."""
    if not len(trace.event_o):
        return
    rows, first = np.unique(trace.event_o, return_index=True)
    labels, ends = trace.label_o.strings(), [*first[1:].tolist(), len(trace.event_o)]
    beside = {
        "option_numbers": (trace.number_o, trace.number_o >= 0),
        "option_items": (trace.item_o, trace.item_o >= 0),
        "option_logps": (trace.logp_o, ~np.isnan(trace.logp_o)),
        "option_behaviours": (trace.behaviour_o, ~np.isnan(trace.behaviour_o)),
    }
    beside = {name: (values, there) for name, (values, there) in beside.items() if there.any()}
    for row, a, b in zip(rows.tolist(), first.tolist(), ends, strict=True):
        yield row, "options", labels[a:b]
        for name, (values, there) in beside.items():
            if there[a:b].any():
                known = zip(values[a:b].tolist(), there[a:b].tolist(), strict=True)
                yield row, name, [v if ok else None for v, ok in known]


def figures(columns: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Columns of figures, one a name, as one map a row; what was not recorded is left out."""
    maps: dict[int, dict[str, float]] = {}
    for name, values in columns.items():
        for row in np.flatnonzero(~np.isnan(values)).tolist():
            maps.setdefault(row, {})[name] = float(values[row])
    return maps


def run_fields(trace: Trace) -> dict[str, Any]:
    """What is known of a rollout and has no place in the survey's document."""
    fields: dict[str, Any] = {}
    for name in ("group", "parent", "harness", "env"):
        if (word := getattr(trace, f"{name}_n")[0]) is not None:
            fields[name] = word
    for name in ("params", "seed", "do"):
        if (word := getattr(trace, f"{name}_n")[0]) is not None:
            fields[name] = Raw(word.encode())
    for name in ("batch", "branch", "cut"):
        if (number := int(getattr(trace, f"{name}_n")[0])) >= 0:
            fields[name] = number
    if trace.tells_n[0] >= 0:
        fields["tells"] = bool(trace.tells_n[0])
    for name in ("clock_skew_s", "earned", "value"):
        if (figure := float(getattr(trace, f"{name.removesuffix('_s')}_n")[0])) == figure:
            fields[name] = figure
    return fields


def costs(trace: Trace) -> tuple[dict[str, float], list[str]]:
    """The costs of a rollout with the required ones filled in, and the names of those that were not recorded."""
    known = figures(trace.cost_n).get(0, {})
    missing = [name for name in ("tokens", "wall_clock_s") if name not in known]
    return {"tokens": 0.0, "wall_clock_s": 0.0} | known, [f"costs.{name}" for name in missing]


def _all_finite(trace: Trace) -> None:
    for name, _, kind in COLUMNS:
        columns = (
            getattr(trace, name) if kind == "floats" else {"": getattr(trace, name)} if kind == "float" else {}
        )
        for key, values in columns.items():
            if np.isinf(values).any():
                where = f"{name}{f'[{key}]' if key else ''}"
                raise ValueError(
                    f"{where} has an infinite value in row {int(np.argmax(np.isinf(values)))}; JSON has none"
                )
