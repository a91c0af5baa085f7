"""From what a file says to a trace: words into codes, names into rows, causes first.

A reader (survey document, event log) makes a `Loose`: events in the order of the file, edges as they were written.
`settle` turns it into a trace of one rollout and says which structural rules were broken on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from podium.trace.columns import F, I, Names, Text, Trace
from podium.trace.options import option_axis
from podium.trace.order import causes_first, one_cycle
from podium.trace.scan import Odd, Table, check_fields
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, TOPOLOGIES
from podium.trace.wire import Extension, RunFields

__all__ = ["Edges", "Loose", "Place", "backwards", "edge_codes", "event_columns", "run_columns", "settle"]


class Place(NamedTuple):
    """A structural rule broken at a place in the file (None: the file as a whole)."""

    rule: str
    position: int | None
    message: str


@dataclass
class Edges:
    """Edges by place in the file; -1 where the event they name is not there."""

    src: Any
    dst: Any
    type: Any
    inferred: Any = None
    rule: Any = None  # Text


@dataclass
class Loose:
    """A run as a file has it."""

    run: dict[str, Any]  # columns `_n`
    events: dict[str, Any]  # columns `_e`, in the order of the file; agents as codes of `agents`
    agents: Sequence[str]
    edges: Edges
    tokens: dict[str, Any] = field(default_factory=dict)  # columns `_k`
    votes: dict[str, Any] = field(default_factory=dict)  # columns `_v`
    options: dict[str, Any] = field(default_factory=dict)  # columns `_o`
    broken: list[Place] = field(default_factory=list)


_INTEGERS = {"stage": "stage_e", "task": "task_e", "start": "start_e", "position": "position_e", "call": "call_e"}
_FLOATS = {
    "end": "end_e",
    "tokens_in": "tokens_in_e",
    "tokens_out": "tokens_out_e",
    "cache_read": "cache_read_e",
    "cache_write": "cache_write_e",
    "cache_write_1h": "cache_write_1h_e",
    "cost": "cost_e",
    "logp": "logp_e",
    "chance": "chance_e",
}
_TRI = {"trusted": "trusted_e", "valid": "valid_e", "truncated": "truncated_e"}
_TEXTS = ("role", "tool", "content_ref", "options", "chosen", "model", "version", "random")
_DECODERS = {
    field.name: msgspec.json.Decoder(list[field.type])  # type: ignore[name-defined]
    for field in msgspec.structs.fields(Extension)
}


def coded(codes: I, words: Sequence[str], vocabulary: Sequence[str]) -> NDArray[np.int8]:
    """Codes of words as places in a vocabulary."""
    table = [vocabulary.index(w) if w in vocabulary else -2 for w in words]
    places = np.array([*table, -1], np.int8)[codes]
    if (places == -2).any():
        raise Odd("a word that is not in the vocabulary")
    return places


def whole(values: F) -> NDArray[np.int64]:
    """Counts from floats, -1 where there is none."""
    return np.where(np.isnan(values), -1.0, values).astype(np.int64)


def nested(table: Table, name: str) -> tuple[list[int], list[Any]]:
    """The rows that have a nested field, and its values."""
    if name not in table.raw:
        return [], []
    rows, raw = table.raw[name]
    try:
        return rows.tolist(), _DECODERS[name].decode(b"[" + b",".join(raw) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Odd(f"{name}: {error}") from None


def event_columns(table: Table) -> dict[str, Any]:
    """The columns of events that are one value an event."""
    got = table.columns
    for name in ("t", "type", "agent"):
        if name not in got or (np.isnan(got[name]) if name == "t" else got[name] < 0).any():
            raise Odd(f"an event without {name}")
    for name, words in (("id", "ids"), ("agent", "agents"), ("context", "ids")):
        if name in got and has_empty(got[name], table.words[words]):
            raise Odd(f"an empty {name}")
    for name in ("t", "end", "tokens_in", "tokens_out", "cache_read", "cache_write", "cache_write_1h"):
        if name in got and (got[name] < 0).any():
            raise Odd(f"{name} below 0")
    events: dict[str, Any] = {
        "t_e": got["t"],
        "type_e": coded(got["type"], table.words["type"], EVENT_TYPES),
        "agent_e": got["agent"],
        "extra_e": table.extras,
    }
    events |= {f"{name}_e": got[name] for name in ("from", "to") if name in got}
    events |= {column: whole(got[name]) for name, column in _INTEGERS.items() if name in got}
    events |= {column: got[name] for name, column in (_FLOATS | _TRI).items() if name in got}
    events |= {f"{name}_e": table.text(name) for name in _TEXTS if name in got}
    if "decision" in got:
        events["decision_e"] = coded(got["decision"], table.words["decision"], DECISIONS)
    if "options" in got:
        for text in table.words["options"]:
            _choices(text)
    rows, values = nested(table, "rewards")
    events["reward_e"] = channels(table.n, rows, values)
    rows, values = nested(table, "absent")
    if missing := [r for r, names in zip(rows, values, strict=True) if "t" in names]:
        events["t_e"] = np.array(got["t"])
        events["t_e"][missing] = np.nan
    return events


def has_empty(codes: I, words: Any) -> bool:
    """Whether the empty string is among these."""
    empty = next((i for i, w in enumerate(words) if not w), None) if len(words) < 1000 else _empty_code(words)
    return empty is not None and bool((codes == empty).any())


def _empty_code(words: Any) -> int | None:
    before = len(words)
    code = words.code("")
    return code if code < before else None


def _choices(text: str) -> None:
    try:
        msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise Odd(f"options: {error}") from None


def channels(n: int, rows: Sequence[int], maps: Iterable[dict[str, float | None]]) -> dict[str, F]:
    """Maps from names to numbers, as one column a name."""
    maps = list(maps)
    names = dict.fromkeys(name for entries in maps for name in entries)
    check_fields(len(names), n)
    columns = {name: np.full(n, np.nan) for name in names}
    for row, entries in zip(rows, maps, strict=True):
        for name, value in entries.items():
            columns[name][row] = np.nan if value is None else value
    return columns


def run_columns(fields: RunFields) -> dict[str, Any]:
    """The columns of a rollout that `RunFields` holds."""
    run: dict[str, Any] = {}
    for name in ("group", "parent", "harness", "env"):
        if (value := getattr(fields, name)) is not UNSET:
            run[f"{name}_n"] = Text.of([value])
    for name in ("params", "seed", "do"):
        if (value := getattr(fields, name)) is not UNSET:
            run[f"{name}_n"] = Text.of([msgspec.json.encode(value).decode()])
    for name in ("batch", "branch", "clock_skew_s", "tells", "cut", "earned", "value"):
        if (value := getattr(fields, name)) is not UNSET:
            run[f"{name.removesuffix('_s')}_n"] = np.array([value])
    return run


def topology_code(word: Any) -> NDArray[np.int8]:
    return np.array([-1 if word is UNSET else TOPOLOGIES.index(word)], np.int8)


def edge_codes(codes: I, words: Sequence[str]) -> NDArray[np.int8]:
    return coded(codes, words, EDGE_TYPES)


def tokens_of(table: Table) -> tuple[dict[str, Any], list[Place]]:
    """The token axis: the tokens of each generation, with what was recorded of each."""
    rows, tokens = nested(table, "tokens")
    counts = np.array([len(t) for t in tokens], np.int64)
    beside = {name: dict(zip(*nested(table, name), strict=True)) for name in ("logps", "mask")}
    broken = []
    for name, lists in beside.items():
        sizes = dict(zip(rows, counts.tolist(), strict=True))
        for row, values in lists.items():
            if len(values) != sizes.get(row, 0):
                fault = f"{name} has {len(values)} entries for {sizes.get(row, 0)} tokens"
                broken.append(Place("token-owner", row, f"every token needs one owner: {fault}"))
    if broken or not rows:
        return {}, broken
    columns: dict[str, Any] = {
        "owner_k": np.repeat(np.array(rows, np.int64), counts),
        "token_k": np.array([k for t in tokens for k in t], np.int64),
    }
    for name, column, kind in (("logps", "logp_k", float), ("mask", "mask_k", np.int8)):
        if beside[name]:
            absent = np.nan if kind is float else -1
            columns[column] = np.array(
                [
                    absent if v is None else v
                    for row, count in zip(rows, counts.tolist(), strict=True)
                    for v in beside[name].get(row, [None] * count)
                ],
                kind,
            )
    return columns, broken


_BESIDE = {
    "option_numbers": ("number_o", np.int64, -1),
    "option_items": ("item_o", np.int64, -1),
    "option_logps": ("logp_o", np.float64, np.nan),
    "option_behaviours": ("behaviour_o", np.float64, np.nan),
}


def options_of(listed: Text | None, table: Table) -> tuple[dict[str, Any], list[Place]]:
    """The option axis: the labels that decisions list, a column of JSON, and what was recorded of each option."""
    columns = option_axis(Text.constant(None, table.n) if listed is None else listed)
    many = np.bincount(columns["event_o"], minlength=table.n)
    first, broken = np.cumsum(many) - many, []
    for name, (column, kind, absent) in _BESIDE.items():
        filled = np.full(len(columns["event_o"]), absent, kind)
        for row, values in zip(*nested(table, name), strict=True):
            if len(values) != many[row]:
                fault = f"{name} has {len(values)} entries for {many[row]} options"
                broken.append(Place("options", row, f"every option is described once: {fault}"))
            else:
                filled[first[row] : first[row] + many[row]] = [absent if v is None else v for v in values]
            columns[column] = filled
    return columns if len(columns["event_o"]) else {}, broken


def votes_of(table: Table, row_of: Any) -> tuple[dict[str, Any], list[Place]]:
    """The vote axis; `row_of` gives the place of an event by its id, -1 if there is none."""
    broken, flat = [], []
    for row, votes in zip(*nested(table, "votes"), strict=True):
        for vote in votes:
            source = -1 if vote.source is UNSET else row_of(vote.source)
            if source < 0 and vote.source is not UNSET:
                broken.append(Place("reference", row, f"a vote names event {vote.source!r}, which does not exist"))
            flat.append((row, source, vote.value, np.nan if vote.weight is UNSET else vote.weight))
    if not flat:
        return {}, broken
    event, source, value, weight = zip(*flat, strict=True)
    return {
        "event_v": np.array(event),
        "source_v": np.array(source),
        "value_v": Text.of(value),
        "weight_v": np.array(weight),
    }, broken


def mark_inferred(table: Table, edges: Edges, row_of: Any) -> list[Place]:
    """Marks the edges that an event says were inferred; each entry marks one edge."""
    rows, lists = nested(table, "inferred")
    if not rows:
        return []
    broken: list[Place] = []
    inferred = np.full(len(edges.src), -1, np.int8)
    rules: list[str | None] = [None] * len(edges.src)
    at: dict[tuple[int, int, int], list[int]] = {}
    guessed = np.isin(edges.dst, rows)
    for x in np.flatnonzero(guessed)[::-1].tolist():
        at.setdefault((int(edges.src[x]), int(edges.dst[x]), int(edges.type[x])), []).append(x)
    for row, entries in zip(rows, lists, strict=True):
        for entry in entries:
            same = at.get((row_of(entry.src), row, EDGE_TYPES.index(entry.type)))
            if not same:
                fault = f"an inferred {entry.type} edge from {entry.src!r}, but there is no such edge"
                broken.append(Place("reference", row, fault))
                continue
            x = same.pop()
            inferred[x] = 1
            rules[x] = None if entry.rule is UNSET else entry.rule
    edges.inferred, edges.rule = inferred, Text.of(rules)
    return broken


def settle(loose: Loose) -> tuple[Trace, list[Place], NDArray[np.int64] | None]:
    """A trace of one rollout; the structural rules broken; and the order its rows were taken in, if not the file's.

    What cannot stand in a trace (an edge to nowhere, an edge that closes a cycle) is left out, so that the other
    rules can be checked all the same.
    """
    events, edges, broken = loose.events, loose.edges, loose.broken
    n = len(events["t_e"])
    keep = (edges.src >= 0) & (edges.dst >= 0)
    src, dst = (edges.src, edges.dst) if keep.all() else (edges.src[keep], edges.dst[keep])
    order, closing = causes_first(events["t_e"], src, dst)
    if closing.any():
        broken += _cycle(events, loose, src, dst, closing)
        keep[np.flatnonzero(keep)[closing]] = False
        src, dst = src[~closing], dst[~closing]
    rank = np.arange(n, dtype=np.int32)
    if order is not None:
        rank[order] = np.arange(n, dtype=np.int32)
        src, dst = rank[src], rank[dst]
        events = {k: _taken(v, order) for k, v in events.items()}
        if "position_e" not in events:
            events["position_e"] = order
    by_effect = None if (dst[1:] >= dst[:-1]).all() else np.argsort(dst, kind="stable")

    def edge(values: Any) -> Any:
        if values is None:
            return None
        column = values if keep.all() else _taken(values, np.flatnonzero(keep))
        return column if by_effect is None else _taken(column, by_effect)

    for name in ("context_e",):
        if name in events:
            events[name] = np.where(events[name] < 0, -1, rank[events[name]])
    agents, events = _agents(loose.agents, events)
    trace = Trace.of(
        **loose.run,
        **events,
        **agents,
        src_x=src if by_effect is None else src[by_effect],
        dst_x=dst if by_effect is None else dst[by_effect],
        type_x=edge(edges.type),
        inferred_x=edge(edges.inferred),
        rule_x=edge(edges.rule),
        **_owned(loose.tokens, "owner_k", rank),
        **_owned(loose.votes, "event_v", rank),
        **_owned(loose.options, "event_o", rank),
    )
    return trace, broken, order


def _taken(values: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(values, dict):
        return {k: _taken(v, rows) for k, v in values.items()}
    return values.take(rows) if isinstance(values, (Text, Names)) else values[rows]


def _agents(names: Sequence[str], events: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The agents named by any event, in order of first naming by row, and the events that point to them."""
    columns = [c for c in ("agent_e", "from_e", "to_e") if c in events]
    never = 3 * len(events["t_e"])
    first = np.full(len(names) + 1, never)
    for i, column in enumerate(columns):
        named = np.full(len(names) + 1, never)
        named[events[column][::-1]] = np.arange(never - 3 + i, -1, -3)  # the first row is the last to be put down
        first = np.minimum(first, named)
    by_naming = np.argsort(first[:-1], kind="stable")[: int((first[:-1] < never).sum())]
    if np.array_equal(by_naming, np.arange(len(names))):
        return {"name_a": Text(by_naming, names)}, events
    place = np.full(len(names) + 1, -1, np.int32)
    place[by_naming] = np.arange(len(by_naming))
    named_words = tuple(names[i] for i in by_naming.tolist())
    return {"name_a": Text(np.arange(len(named_words)), named_words)}, events | {
        c: place[events[c]] for c in columns
    }


def _owned(columns: dict[str, Any], owner: str, rank: NDArray[np.int32]) -> dict[str, Any]:
    """Tokens or votes, sorted by the event they belong to."""
    if not columns:
        return {}
    rows = rank[columns[owner]]
    by_owner = np.argsort(rows, kind="stable")
    moved = {k: _taken(v, by_owner) for k, v in columns.items()} | {owner: rows[by_owner]}
    if "source_v" in moved:
        moved["source_v"] = np.where(moved["source_v"] < 0, -1, rank[moved["source_v"]])
    return moved


def _cycle(events: dict[str, Any], loose: Loose, src: I, dst: I, closing: Any) -> list[Place]:
    ids, t, found = events["id_e"], events["t_e"], []
    loop = one_cycle(len(t), src, dst)
    way = " → ".join(ids[i] for i in [*loop, loop[0]]) if len(loop) <= 6 else f"a way of {len(loop)} events"
    found.append(Place("cycle", loop[0], f"{ids[loop[0]]} is a cause of itself: {way}"))
    skew = float(loose.run["clock_skew_n"][0]) if "clock_skew_n" in loose.run else 0.0
    for x in np.flatnonzero(closing & (t[src] > t[dst] + skew))[:20].tolist():
        found.append(Place("backwards-time", int(dst[x]), backwards(ids, t, int(src[x]), int(dst[x]))))
    return found


def backwards(ids: Names, t: F, src: int, dst: int) -> str:
    """What is said of a cause that is later than its effect."""
    return f"{ids[dst]} at t={t[dst]:g} has the cause {ids[src]}, which is later (t={t[src]:g})"
