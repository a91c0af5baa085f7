"""The survey's JSON document: one run in one object. Reading it back loses nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from podium.trace.columns import Names, Trace
from podium.trace.depth import TOO_DEEP, is_deep
from podium.trace.findings import Unreadable
from podium.trace.loose import Edges, Loose, Place, block_of, edge_codes, loose, rollout_columns
from podium.trace.scan import EDGES, EMPTY, EVENTS, Odd, Table, objects, objects_py, skip
from podium.trace.vocabulary import EDGE_TYPES
from podium.trace.wire import Costs, Document, Edge, Event
from podium.trace.write import costs, event_objects, figures, run_fields

__all__ = ["explain", "read_document", "write"]

MOST_EXPLAINED = 100
_FIELDS = {f.name: f for f in msgspec.structs.fields(Document)}
_HEAD = msgspec.json.Decoder(  # a document without its events and edges
    msgspec.defstruct(
        "Head",
        [
            (f.name, dict[str, float] if f.name == "costs" else f.type, *(() if f.required else (UNSET,)))
            for f in _FIELDS.values()
            if f.name not in ("events", "edges")
        ],
        forbid_unknown_fields=True,
    )
)
_RAW = [(name, Raw | UnsetType, UNSET) for name in _FIELDS]
_PARTS = msgspec.json.Decoder(msgspec.defstruct("Parts", _RAW, forbid_unknown_fields=True))
_MEMBER = re.compile(rb'[ \t\r\n]*"([a-z_]+)"[ \t\r\n]*:[ \t\r\n]*')
_AFTER = re.compile(rb"[ \t\r\n]*([,}])")
_NOTHING_AND_MORE = re.compile(rb"\s*\{\s*\}\s*\S")


def resembles(start: bytes) -> bool:
    """Whether what starts like this is meant to be a document: half of the fields of its first object are a
    document's.

    >>> [resembles(text) for text in (b'{"trace_id": "a", "events": [{"id": ', b'{"type": "user", "uuid": ', b"[]")]
    [True, False, False]
    >>> resembles(b'{"trace_id": "a", "spans": ['), resembles(b'{}\\n{"a"')  # other systems name traces too
    (False, False)
    """
    fields = set(top_fields(start))
    named = fields & {name.encode() for name in _FIELDS}
    if named == {b"trace_id"} or _NOTHING_AND_MORE.match(start):
        return False
    return start.lstrip()[:1] in (b"{", b"[") and 2 * len(named) >= max(len(fields), start.lstrip()[:1] == b"[")


def top_fields(start: bytes) -> Iterator[bytes]:
    """The fields of the object that this starts with, or of the first in the array that it starts with, as far as
    it goes.

    >>> list(top_fields(b'[{"a": {"b": "]"}, "c": 1}, {"d": '))
    [b'a', b'c']
    """
    start = start.lstrip()
    depth, base = 0, 1 if start[:1] == b"{" else 2
    for token in re.finditer(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]', start):
        mark = token[0][:1]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth < base:
                return
        elif token[2] and depth == base:
            yield token[1]


def read_document(data: bytes, file: str) -> Loose | list[Place]:
    """The run in a document, or the ways in which it is not one. What is not JSON raises Unreadable."""
    try:
        head, events, edges = _plain(data) or _any(data, file)
        return _loose(head, events, edges)
    except (Odd, msgspec.ValidationError) as error:
        return explain(data, file) or [Place("schema", None, str(error))]


def _plain(data: bytes) -> tuple[Any, Table, Table] | None:
    """In one pass over the bytes, where they are plain."""
    words = EVENTS.dictionaries()
    words_x = words | {"type": EDGES.dictionaries()["type"]}
    tables: dict[str, Table] = {}
    rest = []
    if not (opening := re.match(rb"[ \t\r\n]*\{", data)):
        return None
    at = opening.end()
    while member := _MEMBER.match(data, at):
        name, start = member[1].decode(), member.end()
        if name in tables:
            return None
        try:
            if name == "events":
                tables[name], at = objects(data, start, False, EVENTS, words)
            elif name == "edges":
                tables[name], at = objects(data, start, False, EDGES, words_x)
            else:
                end = skip(data, start)
                if end is None:
                    return None
                rest.append(data[member.start() : end])
                at = end
        except Odd:
            return None
        after = _AFTER.match(data, at)
        if not after:
            return None
        at = after.end()
        if after[1] == b"}":
            if data[at:].strip(b" \t\r\n") or len(tables) < 2:
                return None
            try:
                return _HEAD.decode(b"{" + b",".join(rest) + b"}"), tables["events"], tables["edges"]
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return None
    return None


def _any(data: bytes, file: str) -> tuple[Any, Table, Table]:
    """By msgspec, whatever they are like."""
    parts = decoded(_PARTS, data, file)
    if parts.events is UNSET or parts.edges is UNSET:
        raise Odd("a document without events or edges")
    rest = [(name, raw) for name in _FIELDS if (raw := getattr(parts, name)) is not UNSET]
    head = b",".join(b'"%s":%s' % (name.encode(), raw) for name, raw in rest if name not in ("events", "edges"))
    words = EVENTS.dictionaries()
    words_x = words | {"type": EDGES.dictionaries()["type"]}
    try:
        events = objects_py(bytes(parts.events), False, EVENTS, words)
        edges = objects_py(bytes(parts.edges), False, EDGES, words_x)
    except (UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(file, _why(error)) from None
    return decoded(_HEAD, b"{" + head + b"}", file), events, edges


def decoded(decoder: Any, data: bytes, file: str) -> Any:
    """Decode, or say why it is not JSON; a wrong shape is msgspec.ValidationError."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(file, _why(error)) from None


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: byte 0x{error.object[error.start]:02x}"
    if isinstance(error, RecursionError):
        return "nested too deeply to be a trace"
    return f"not JSON: {error}"


def _loose(head: Any, events: Table, edges: Table) -> Loose:
    if not head.trace_id or not head.task_id or not events.n:
        raise Odd("an empty trace_id, task_id or events")
    msgspec.convert(head.costs, Costs)
    n, ids = events.n, events.words["ids"]
    if "id" not in events.columns or (id_e := events.columns["id"]).min() < 0:
        raise Odd("an event without id")
    row_of_code = np.full(len(ids) + 1, -1, np.int32)
    row_of_code[id_e[::-1]] = np.arange(n - 1, -1, -1, dtype=np.int32)  # the first of a name keeps it
    row_of_code[-1] = -1
    block = block_of(events)
    block.columns["id_e"] = Names(block.columns.pop("id"))
    block.broken += [
        Place("duplicate-id", row, f"the id {ids[id_e[row]]!r} is also that of event {row_of_code[id_e[row]]}")
        for row in np.flatnonzero(row_of_code[id_e] != np.arange(n))[:MOST_EXPLAINED].tolist()
    ]
    absent = {name for _, names in block.values("absent") for name in names}
    (fields,) = [fields for _, fields in block.values("run")][:1] or [UNSET]
    stated = {name: getattr(head, name) for name in _FIELDS if name not in ("events", "edges")}
    return loose(
        block,
        rollout_columns(fields, absent, **stated),
        events.words["agents"],
        _edges(edges, row_of_code, ids, block.broken),
        lambda names: row_of_code[np.maximum(names.recoded(ids), -1)],
    )


def _edges(table: Table, row_of_code: Any, ids: Any, broken: list[Place]) -> Edges:
    if not table.n:
        return Edges(*(np.zeros(0, np.int32) for _ in range(3)))
    columns = table.columns
    if any(c not in columns or (columns[c] < 0).any() for c in ("src", "dst", "type")):
        raise Odd("an edge without src, dst or type")
    if any((columns[c] == EMPTY).any() for c in ("src", "dst")):
        raise Odd("an edge with an empty src or dst")
    ends = row_of_code[columns["src"]], row_of_code[columns["dst"]]
    for x in np.flatnonzero((ends[0] < 0) | (ends[1] < 0))[:MOST_EXPLAINED].tolist():
        for end, rows in zip(("src", "dst"), ends, strict=True):
            if rows[x] < 0:
                name, other = ids[columns[end][x]], max(int(ends[0][x]), int(ends[1][x]))
                place = other if other >= 0 else None
                broken.append(
                    Place("reference", place, f"edge {x}: {end} names event {name!r}, which does not exist")
                )
    return Edges(*ends, edge_codes(columns["type"], table.words["type"]))


def explain(data: bytes, file: str) -> list[Place]:
    """Every way, up to a hundred, in which JSON is not a document of the survey's schema."""
    return list(_explain(data, file))[:MOST_EXPLAINED]


def _explain(data: bytes, file: str) -> Iterator[Place]:
    try:
        parts = decoded(_PARTS, data, file)
    except msgspec.ValidationError as error:
        yield Place("schema", None, str(error))
        return
    for name, kind in _FIELDS.items():
        raw = getattr(parts, name)
        if raw is UNSET:
            if kind.required:
                yield Place("schema", None, f"the document lacks the required field `{name}`")
        elif name in ("events", "edges"):
            yield from _explain_array(name, bytes(raw), file)
        else:
            of = dict[str, float] if name == "costs" else kind.type
            for expected in (of, kind.type):
                if problem := _problem(bytes(raw), expected, f"$.{name}", file):
                    yield Place("schema", None, problem)
                    break


def _explain_array(name: str, data: bytes, file: str) -> Iterator[Place]:
    try:
        items = decoded(msgspec.json.Decoder(list[Raw]), data, file)
    except msgspec.ValidationError as error:
        yield Place("schema", None, f"$.{name}: {error}")
        return
    if name == "events" and not items:
        yield Place("schema", None, "$.events: expected at least one event, got none")
    for i, item in enumerate(items):
        if problem := _problem(bytes(item), Event if name == "events" else Edge, f"$.{name}[{i}]", file):
            yield Place("schema", i if name == "events" else None, problem)


def _problem(data: bytes, kind: Any, path: str, file: str) -> str | None:
    if is_deep(data):
        return f"{path}: {TOO_DEEP}"
    try:
        decoded(msgspec.json.Decoder(kind), data, file)
        return None
    except msgspec.ValidationError as error:
        why, _, where = str(error).partition(" - at `$")
        return f"{why} - at `{path}{where or '`'}"


def write(trace: Trace) -> bytes:
    """One rollout as a document, its events in the order of the file they came from."""
    if len(trace) != 1:
        raise ValueError(f"a survey document holds one run, not {len(trace)}")
    events = event_objects(trace)
    if not events:
        raise ValueError("a survey document holds at least one event; this run has none")
    ids = [e["id"] for e in events]
    placed = trace.position_e[0] >= 0
    order = np.argsort(trace.position_e, kind="stable").tolist() if placed else range(len(events))
    first = events[order[0]]
    spent, absent = costs(trace)
    names = {"trace_id": trace.trace_id_n[0], "task_id": trace.task_id_n[0]}
    absent += [k for k, v in names.items() if v is None]
    fields = run_fields(trace)
    if absent or fields:
        extension = first.setdefault("podium", {})
        if absent:
            extension["absent"] = extension.get("absent", []) + absent
        if fields:
            extension["run"] = fields
    document: dict[str, Any] = {name: value if value is not None else "unnamed" for name, value in names.items()}
    if (system := trace.system_n[0]) is not None:
        document["system"] = system
    if (topology := trace.topology()) is not None:
        document["topology"] = topology
    document["events"] = [events[i] for i in order]
    document["edges"] = [
        {"src": ids[s], "dst": ids[d], "type": EDGE_TYPES[c]}
        for s, d, c in zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True)
    ]
    document["rewards"] = figures(trace.reward_n).get(0, {})
    document["costs"] = spent
    metrics = figures(trace.metric_n).get(0, {})
    if metrics or trace.measured_n[0] == 1:
        document["metrics"] = metrics
    return msgspec.json.encode(document)
