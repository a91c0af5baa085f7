"""From what a file says to a trace: words into codes, names into rows, causes first.

A reader (survey document, event log) reads events into a `Block`, or several; `loose` makes a `Loose` of it: events
in the order of the file, edges as they were written. `settle` turns that into a trace of one rollout and says which
structural rules were broken on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from podium.trace.columns import (
    COLUMNS,
    OWNERS,
    F,
    I,
    Names,
    Text,
    Trace,
    absent_column,
    joined_columns,
    ranges,
    take_rows,
)
from podium.trace.options import option_axis
from podium.trace.order import causes_first, one_cycle
from podium.trace.scan import EMPTY, Odd, Table, check_fields
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, TOPOLOGIES
from podium.trace.wire import LISTS, Event, Extension, Listed, LogEvent, RunFields, fields_of

__all__ = [
    "Block",
    "Edges",
    "Loose",
    "Place",
    "backwards",
    "block_of",
    "edge_codes",
    "event_columns",
    "joined_blocks",
    "loose",
    "nested",
    "rollout_columns",
    "settle",
    "whole",
]


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
    events: dict[
        str, Any
    ]  # columns of events, tokens, options and votes, in the order of the file; agents as codes
    agents: Sequence[str]
    edges: Edges
    broken: list[Place] = field(default_factory=list)


@dataclass
class Block:
    """Events that were read together: columns of a trace, and what names other events, still as it was written."""

    n: int
    columns: dict[str, Any]  # of events, tokens, options and, in a log, edges
    nested: dict[str, tuple[NDArray[np.int64], list[Any]]]  # rows and values
    broken: list[Place]

    def values(self, name: str) -> list[tuple[int, Any]]:
        """(row, value) of the events that have a nested field."""
        rows, values = self.nested.get(name, (np.zeros(0, np.int64), []))
        return list(zip(rows.tolist(), values, strict=True))


_AS_WRITTEN = {"id": "text", "context": "text", "n": "int", "number_x": "int", "writer_x": "text"}
_KINDS: dict[str, str] = {c.name: c.kind for c in COLUMNS} | _AS_WRITTEN
_FIELDS = fields_of(LogEvent) | fields_of(Event) | fields_of(Extension)
_RUN = fields_of(RunFields)
_CODES = {"type": EVENT_TYPES, "decision": DECISIONS}
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


def edge_codes(codes: I, words: Sequence[str]) -> NDArray[np.int8]:
    return coded(codes, words, EDGE_TYPES)


def whole(values: F) -> NDArray[np.int64]:
    """Counts from floats, -1 where there is none."""
    return np.where(np.isnan(values), -1.0, values).astype(np.int64)


def nested(table: Table, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    """The rows that have a nested field, and its values."""
    rows, raw = table.raw.get(name, (np.zeros(0, np.int64), []))
    try:
        return rows, _DECODERS[name].decode(b"[" + b",".join(raw) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Odd(f"{name}: {error}") from None


def event_columns(table: Table) -> dict[str, Any]:
    """The columns of events that are one value an event, once it is certain that they are what they should be."""
    got = table.columns
    for name in ("t", "type", "agent"):
        if name not in got or (np.isnan(got[name]) if name == "t" else got[name] < 0).any():
            raise Odd(f"an event without {name}")
    columns: dict[str, Any] = {"extra_e": table.extras}
    for name, values in got.items():
        if _FIELDS[name].filled and (values == EMPTY).any():
            raise Odd(f"an empty {name}")
        if _FIELDS[name].least and (values < 0).any():
            raise Odd(f"{name} below 0")
        match _KINDS.get(f"{name}_e"):
            case "float" | "tri" | "agent":
                columns[f"{name}_e"] = values
            case "int":
                columns[f"{name}_e"] = whole(values)
            case "text":
                columns[f"{name}_e"] = table.text(name)
            case "code":
                columns[f"{name}_e"] = coded(values, table.words[name], _CODES[name])
    if "options" in got:
        for text in table.words["options"]:
            _choices(text)
    columns["reward_e"] = channels(table.n, *nested(table, "rewards"))
    rows, absent = nested(table, "absent")
    if missing := [row for row, names in zip(rows.tolist(), absent, strict=True) if "t" in names]:
        columns["t_e"] = np.array(got["t"])
        columns["t_e"][missing] = np.nan
    return columns


def _choices(text: str) -> None:
    try:
        msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise Odd(f"options: {error}") from None


def channels(n: int, rows: I, maps: Iterable[dict[str, float | None]]) -> dict[str, F]:
    """Maps from names to numbers, as one column a name."""
    maps = list(maps)
    names = dict.fromkeys(name for entries in maps for name in entries)
    check_fields(len(names), n)
    columns = {name: np.full(n, np.nan) for name in names}
    for row, entries in zip(rows.tolist(), maps, strict=True):
        for name, value in entries.items():
            columns[name][row] = np.nan if value is None else value
    return columns


def block_of(table: Table) -> Block:
    """The events of a table. Raises Odd where they are not what they should be."""
    columns = event_columns(table)
    columns |= {name: table.text(name, "ids") for name in ("id", "context") if name in table.columns}
    block = Block(table.n, columns, {name: nested(table, name) for name in table.raw}, [])
    rows, tokens = block.nested.get("tokens", (np.zeros(0, np.int64), []))
    columns["owner_k"] = np.repeat(rows, np.array([len(some) for some in tokens], np.int64))
    columns["token_k"] = np.fromiter(chain.from_iterable(tokens), np.int64)
    columns |= option_axis(table.text("options") or Text.constant(None, table.n))
    for listed in LISTS:
        _add_lists(block, listed)
    block.nested = {
        name: block.nested[name] for name in ("votes", "inferred", "absent", "run") if name in block.nested
    }
    return block


def _add_lists(block: Block, listed: Listed) -> None:
    """What is listed beside the tokens or options of events, as columns."""
    many_e = np.bincount(block.columns[listed.owner], minlength=block.n)
    first_e, n = np.cumsum(many_e) - many_e, len(block.columns[listed.owner])
    what, *beside = listed.fields
    for name in beside:
        rows, lists = block.nested.get(name, (np.zeros(0, np.int64), []))
        fits = many_e[rows] == np.array([len(values) for values in lists], np.int64)
        for i in np.flatnonzero(~fits).tolist():
            row, entries = int(rows[i]), len(lists[i])
            fault = f"{listed.sentence}: {name} has {entries} entries for {many_e[row]} {what}"
            block.broken.append(Place(listed.rule, row, fault))
        if fits.any():
            column = listed.fields[name]
            values = np.array(absent_column(_KINDS[column], n))
            absent = np.nan if values.dtype.kind == "f" else -1
            flat = chain.from_iterable(compress(lists, fits))
            values[ranges(first_e[rows[fits]], many_e[rows[fits]])] = [absent if v is None else v for v in flat]
            block.columns[column] = values


def joined_blocks(blocks: Sequence[Block]) -> Block:
    """Blocks that were read one after the other, as one. They are used up, a column at a time, to save memory."""
    if len(blocks) == 1:
        return blocks[0]
    lengths = {axis: [len(b.columns[OWNERS[axis]]) for b in blocks] for axis in "kox"} | {
        "e": [b.n for b in blocks]
    }
    first = np.cumsum([0, *lengths["e"]])[:-1].tolist()
    columns = {}
    for name in dict.fromkeys(name for b in blocks for name in b.columns):
        parts = [b.columns.pop(name, None) for b in blocks]
        if name in OWNERS.values():
            parts = [rows + at for rows, at in zip(parts, first, strict=True)]
        columns[name] = joined_columns(_KINDS[name], parts, lengths[name[-1] if "_" in name else "e"])
    fields = {}
    for name in dict.fromkeys(name for b in blocks for name in b.nested):
        pairs = [(b.nested[name], at) for b, at in zip(blocks, first, strict=True) if name in b.nested]
        values = [value for (_, some), _ in pairs for value in some]
        fields[name] = np.concatenate([rows + at for (rows, _), at in pairs]), values
    broken = [
        p if p.position is None else p._replace(position=p.position + at)
        for b, at in zip(blocks, first, strict=True)
        for p in b.broken
    ]
    return Block(sum(lengths["e"]), columns, fields, broken)


def rollout_columns(fields: RunFields | UnsetType, absent: set[str], **head: Any) -> dict[str, Any]:
    """The columns of a rollout: what `RunFields` holds, and the head of a document or a log. What is not stated is
    UNSET; what is `absent` was written only because it is required."""
    run: dict[str, Any] = {
        "topology_n": np.array([-1 if (word := head["topology"]) is UNSET else TOPOLOGIES.index(word)])
    }
    for name, (kind, *_) in _RUN.items():
        if (value := getattr(fields, name, UNSET)) is not UNSET:
            text = value if kind == "s" else msgspec.json.encode(value).decode()
            run[f"{name.removesuffix('_s')}_n"] = Text.of([text]) if kind in "sj" else np.array([value])
    for name in ("trace_id", "task_id", "system"):
        run[f"{name}_n"] = Text.of([None if name in absent or head[name] is UNSET else head[name]])
    for name in ("reward", "cost", "metric"):
        stated = {} if (figures := head[f"{name}s"]) is UNSET else figures
        known = {key: None if f"{name}s.{key}" in absent else value for key, value in stated.items()}
        run[f"{name}_n"] = channels(1, np.zeros(1, np.int64), [known])
    return run | {"measured_n": np.array([int(head["metrics"] is not UNSET)])}


RowsOf = Callable[[Text], I]


def loose(block: Block, run: dict[str, Any], agents: Sequence[str], edges: Edges, rows_of: RowsOf) -> Loose:
    """A run, once it is known which events (`rows_of`, -1 for none) have which ids."""
    columns, broken = block.columns, block.broken
    if "context" in columns:
        names = columns.pop("context")
        columns["context_e"] = rows_of(names)
        for row in np.flatnonzero((names.codes >= 0) & (columns["context_e"] < 0)).tolist():
            broken.append(Place("reference", row, f"its context names {names[row]!r}, which does not exist"))
    broken += _mark_inferred(block, edges, rows_of)
    cast = [(row, vote) for row, votes in block.values("votes") for vote in votes]
    names = Text.of(None if vote.source is UNSET else vote.source for _, vote in cast)
    columns["source_v"] = rows_of(names)
    for v in np.flatnonzero((names.codes >= 0) & (columns["source_v"] < 0)).tolist():
        broken.append(Place("reference", cast[v][0], f"a vote names event {names[v]!r}, which does not exist"))
    columns["event_v"] = np.array([row for row, _ in cast], np.int64)
    columns["value_v"] = Text.of(vote.value for _, vote in cast)
    columns["weight_v"] = np.array(
        [np.nan if vote.weight is UNSET else vote.weight for _, vote in cast], np.float64
    )
    return Loose(run, columns, agents, edges, broken)


def _mark_inferred(block: Block, edges: Edges, rows_of: RowsOf) -> list[Place]:
    """Marks the edges that an event says were inferred; each entry marks one edge."""
    entries = [(row, entry) for row, some in block.values("inferred") for entry in some]
    if not entries:
        return []
    broken: list[Place] = []
    edges.inferred = np.full(len(edges.src), -1, np.int8)
    rules: list[str | None] = [None] * len(edges.src)
    same: dict[tuple[int, int, int], list[int]] = {}
    for x in np.flatnonzero(np.isin(edges.dst, [row for row, _ in entries]))[::-1].tolist():
        same.setdefault((int(edges.src[x]), int(edges.dst[x]), int(edges.type[x])), []).append(x)
    causes = rows_of(Text.of(entry.src for _, entry in entries)).tolist()
    for cause, (row, entry) in zip(causes, entries, strict=True):
        if rest := same.get((cause, row, EDGE_TYPES.index(entry.type))):
            x = rest.pop()
            edges.inferred[x] = 1
            rules[x] = None if entry.rule is UNSET else entry.rule
        else:
            fault = f"an inferred {entry.type} edge from {entry.src!r}, but there is no such edge"
            broken.append(Place("reference", row, fault))
    edges.rule = Text.of(rules)
    return broken


def settle(loose: Loose) -> tuple[Trace, list[Place], NDArray[np.int64] | None]:
    """A trace of one rollout; the structural rules broken; and the order its rows were taken in, if not the file's.

    What cannot stand in a trace (an edge to nowhere, an edge that closes a cycle) is left out, so that the other
    rules can be checked all the same.
    """
    columns, edges, broken = loose.events, loose.edges, loose.broken
    n = len(columns["t_e"])
    keep = (edges.src >= 0) & (edges.dst >= 0)
    src, dst = (edges.src, edges.dst) if keep.all() else (edges.src[keep], edges.dst[keep])
    order, closing = causes_first(columns["t_e"], src, dst)
    if closing.any():
        broken += _cycle(loose, src, dst, closing)
        keep[np.flatnonzero(keep)[closing]] = False
        src, dst = src[~closing], dst[~closing]
    if order is not None:
        rank = np.full(n + 1, -1, np.int32)  # its last entry serves -1, absent
        rank[order] = np.arange(n, dtype=np.int32)
        src, dst = rank[src], rank[dst]
        columns = _reordered(columns, order, rank)
    by_effect: Any = slice(None) if keep.all() else np.flatnonzero(keep)
    if not (dst[1:] >= dst[:-1]).all():
        sort = np.argsort(dst, kind="stable")
        src, dst, by_effect = src[sort], dst[sort], np.arange(len(keep))[by_effect][sort]
    written = {"type_x": edges.type, "inferred_x": edges.inferred, "rule_x": edges.rule}
    written = {name: take_rows(values, by_effect) for name, values in written.items() if values is not None}
    columns = _named_agents(loose.agents, columns) | written
    return Trace.of(**loose.run, **columns, src_x=src, dst_x=dst), broken, order


def _reordered(columns: dict[str, Any], order: NDArray[np.int64], rank: NDArray[np.int32]) -> dict[str, Any]:
    """The columns with events in this order, and what belongs to events in theirs."""
    owners = {axis: columns[name] for axis, name in OWNERS.items() if name in columns}
    rows = {"e": order} | {axis: np.argsort(rank[owner], kind="stable") for axis, owner in owners.items()}
    moved = {"position_e": order} | {name: take_rows(values, rows[name[-1]]) for name, values in columns.items()}
    return {name: rank[values] if _KINDS[name] == "row" else values for name, values in moved.items()}


def _named_agents(names: Sequence[str], columns: dict[str, Any]) -> dict[str, Any]:
    """The columns with agents numbered in order of first naming by row, and those agents' names."""
    naming = [c for c in ("agent_e", "from_e", "to_e") if c in columns]
    never = 3 * len(columns["t_e"])
    first = np.full(len(names) + 1, never)
    for i, column in enumerate(naming):
        named = np.full(len(names) + 1, never)
        named[columns[column][::-1]] = np.arange(never - 3 + i, -1, -3)  # the first row is the last to be put down
        first = np.minimum(first, named)
    by_naming = np.argsort(first[:-1], kind="stable")[: int((first[:-1] < never).sum())]
    place = np.full(len(names) + 1, -1, np.int32)
    place[by_naming] = np.arange(len(by_naming))
    words = tuple(names[i] for i in by_naming.tolist())
    return (
        columns | {name: place[columns[name]] for name in naming} | {"name_a": Text(np.arange(len(words)), words)}
    )


def _cycle(loose: Loose, src: I, dst: I, closing: Any) -> list[Place]:
    ids, t = loose.events["id_e"], loose.events["t_e"]
    loop = one_cycle(len(t), src, dst)
    way = " → ".join(ids[i] for i in [*loop, loop[0]]) if len(loop) <= 6 else f"a way of {len(loop)} events"
    broken = [Place("cycle", loop[0], f"{ids[loop[0]]} is a cause of itself: {way}")]
    skew = float(loose.run["clock_skew_n"][0]) if "clock_skew_n" in loose.run else 0.0
    for x in np.flatnonzero(closing & (t[src] > t[dst] + skew))[:20].tolist():
        broken.append(Place("backwards-time", int(dst[x]), backwards(ids, t, int(src[x]), int(dst[x]))))
    return broken


def backwards(ids: Names, t: F, src: int, dst: int) -> str:
    """What is said of a cause that is later than its effect."""
    return f"{ids[dst]} at t={t[dst]:g} has the cause {ids[src]}, which is later (t={t[src]:g})"
