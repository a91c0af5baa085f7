"""The event log: a header line, then one event a line, appended as things happen, then perhaps a closing line.

A file holds one or more segments, each begun by a header. Segments with one trace id are one run: each writer of a
run appends to a segment of its own and names its events (writer, number). What survives a crash is every whole
line; a torn last line is dropped with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec
import numpy as np
from msgspec import UNSET, Raw
from numpy.typing import NDArray

from podium.trace.columns import Names, Text, Trace, concat
from podium.trace.loose import (
    Edges,
    Loose,
    Place,
    channels,
    event_columns,
    mark_inferred,
    nested,
    run_columns,
    tokens_of,
    topology_code,
    votes_of,
    whole,
)
from podium.trace.scan import LOG_EVENTS, Odd, Shape, Table, WordsPy, extra_columns, objects
from podium.trace.vocabulary import EDGE_TYPES
from podium.trace.wire import LOG_VERSION, Cause, Closing, ClosingLine, Header, HeaderLine, LogEvent, RunFields, Taken
from podium.trace.write import costs, event_objects, figures, run_fields

__all__ = ["CHECKED", "Segment", "header_line", "is_log", "read_segments", "run_of", "write"]

CHECKED = LOG_EVENTS.without("content_ref", "random", "model", "version", "role")
BLOCK = 1 << 22
MOST_EXPLAINED = 100
_MARK = re.compile(rb'^[ \t]*\{[ \t]*"podium_(?:log|end)"', re.MULTILINE)
_CAUSES = msgspec.json.Decoder(list[list[Cause]])
_ALSO = msgspec.json.Decoder(list[dict[Taken, Raw]])
_EDGE_CODE = {word: code for code, word in enumerate(EDGE_TYPES)}


def is_log(start: bytes) -> bool:
    """Whether what starts like this is an event log."""
    return re.match(rb'\s*\{\s*"podium_log"', start) is not None


@dataclass
class Segment:
    """What one writer wrote of a run."""

    file: str
    header: Header
    words: dict[str, Any]
    closing: Closing | None = None
    n: list[NDArray[np.int64]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)  # columns of events, a block each
    tables: list[tuple[int, Table]] = field(default_factory=list)  # nested fields, and where their block starts
    causes: list[tuple[NDArray[Any], ...]] = field(default_factory=list)  # effect, number, writer, type
    writers: WordsPy = field(default_factory=WordsPy)
    broken: list[Place] = field(default_factory=list)
    count: int = 0


def read_segments(blocks: Iterable[bytes], file: str, shape: Shape, words: dict[str, Any]) -> Iterator[Segment]:
    """The segments of a log, from blocks of whole lines (the last line may be torn). Those of one run must share
    their dictionaries, `words`."""
    segment: Segment | None = None
    line = 1
    for block in blocks:
        for piece, mark in _pieces(block):
            torn = not piece.endswith(b"\n")
            if mark:
                try:
                    if b'"podium_log"' in piece[:64]:
                        if segment:
                            yield segment
                        segment = Segment(file, _header(piece), words)
                    elif segment:
                        segment.closing = msgspec.json.decode(piece, type=ClosingLine).podium_end
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    if segment is None:
                        segment = Segment(file, Header(LOG_VERSION, "unknown", "unknown"), words)
                    place = Place("torn-line", None, f"line {line} is torn; dropped") if torn and _is_torn(piece) else None
                    segment.broken.append(place or Place("schema", None, f"line {line}: {error}"))
            elif segment:
                _add(segment, piece, line, shape)
            line += piece.count(b"\n")
    if segment:
        yield segment


def _pieces(block: bytes) -> Iterator[tuple[bytes, bool]]:
    """The block cut into header or closing lines and the runs of lines between them."""
    at = 0
    for mark in _MARK.finditer(block):
        if mark.start() > at:
            yield block[at : mark.start()], False
        end = block.find(b"\n", mark.start()) + 1 or len(block)
        yield block[mark.start() : end], True
        at = end
    if at < len(block):
        yield block[at:], False


def _header(line: bytes) -> Header:
    header = msgspec.json.decode(line, type=HeaderLine).podium_log
    if header.version > LOG_VERSION:
        raise msgspec.ValidationError(f"log version {header.version}; this Podium reads up to {LOG_VERSION}")
    return header


def _is_torn(line: bytes) -> bool:
    """Whether a line ends before its JSON does."""
    try:
        msgspec.json.decode(line)
        return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True


def _add(segment: Segment, lines: bytes, line: int, shape: Shape) -> None:
    if not lines.strip():
        return
    if not lines.endswith(b"\n"):
        lines, last = _without_last(lines)
        if _is_torn(last):
            number = line + lines.count(b"\n")
            segment.broken.append(Place("torn-line", None, f"line {number} is torn (it ends after {len(last)} bytes); dropped"))
        else:
            lines += last
        if not lines.strip():
            return
    try:
        table, _ = objects(lines, 0, True, shape, segment.words)
        _append(segment, table)
    except (Odd, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        found = list(_explain(lines, line, segment.count))[:MOST_EXPLAINED]
        segment.broken += found or [Place("schema", None, f"line {line} and on: {error}")]


def _without_last(lines: bytes) -> tuple[bytes, bytes]:
    cut = lines.rfind(b"\n") + 1
    return lines[:cut], lines[cut:]


def _append(segment: Segment, table: Table) -> None:
    if "n" not in table.columns or np.isnan(table.columns["n"]).any():
        raise Odd("an event without n")
    columns = event_columns(table)
    rows, raw = table.raw.pop("also", ((), []))
    columns["extra_e"] = table.extras | extra_columns(table.n, rows, _ALSO.decode(b"[" + b",".join(raw) + b"]"))
    segment.n.append(whole(table.columns["n"]))
    for name in ("id", "context"):
        if name in table.columns:
            columns[name] = table.columns[name]
    segment.parts.append(columns)
    rows, raw = table.raw.pop("after", (np.zeros(0, np.int64), []))
    after = _CAUSES.decode(b"[" + b",".join(raw) + b"]")
    flat = [c for causes in after for c in causes]
    if any(not causes for causes in after):
        raise Odd("after: empty")
    effect = np.repeat(rows, [len(causes) for causes in after]) + segment.count
    code = segment.writers.code
    segment.causes.append(
        (
            effect.astype(np.int32),
            np.array([c.n for c in flat], np.int64),
            np.array([code(c.writer) for c in flat], np.int32),
            np.array([_EDGE_CODE[c.type] for c in flat], np.int8),
        )
    )
    if table.raw:
        segment.tables.append((segment.count, Table(table.n, segment.words, {}, table.raw, {})))
    segment.count += table.n


def _explain(lines: bytes, line: int, row: int) -> Iterator[Place]:
    decoder = msgspec.json.Decoder(LogEvent)
    for offset, text in enumerate(lines.split(b"\n")):
        if not text.strip():
            continue
        try:
            decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            yield Place("schema", row + offset, f"line {line + offset}: {error}")


def run_of(segments: Sequence[Segment]) -> Loose | list[Place]:
    """One run from its segments, in the order of their writers."""
    segments = sorted(segments, key=lambda s: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", s.header.writer)])
    broken = [p for s in segments for p in s.broken]
    if any(p.rule == "schema" for p in broken):
        return broken
    if len({s.header.writer for s in segments}) < len(segments):
        return [*broken, Place("duplicate-id", None, "two segments of one run have the same writer")]
    first = np.cumsum([0, *(s.count for s in segments)])
    total = int(first[-1])
    if not total:
        return [*broken, Place("schema", None, "a run holds at least one event; this one has none")]
    names = {s.header.writer: _numbers(s, int(at), broken) for s, at in zip(segments, first, strict=False)}
    columns, ids, explicit = _columns(segments, first)
    row_of = _row_of(names, ids, explicit)
    edges = _edges(segments, first, names, columns, broken)
    if "context" in columns:
        codes, words = columns.pop("context"), segments[0].words["ids"]
        columns["context_e"] = np.full(total, -1, np.int32)
        for row in np.flatnonzero(codes >= 0).tolist():
            columns["context_e"][row] = row_of(words[codes[row]])
            if columns["context_e"][row] < 0:
                broken.append(Place("reference", row, f"its context names {words[codes[row]]!r}, which does not exist"))
    whole_table = _merged(segments, first, total)
    broken += mark_inferred(whole_table, edges, row_of)
    tokens, wrong = tokens_of(whole_table)
    votes, astray = votes_of(whole_table, row_of)
    run = _run(segments)
    if any("trace_id" in names for names in nested(whole_table, "absent")[1]):
        run["trace_id_n"] = Text.of([None])
    return Loose(run, columns, segments[0].words["agents"], edges, tokens, votes, broken + wrong + astray)


Lookup = Callable[[Any], NDArray[np.int64]]


def _numbers(segment: Segment, first: int, broken: list[Place]) -> tuple[Lookup, int, bool]:
    """From the numbers of a segment's events to their places (-1: none); the next number; whether it was closed."""
    n = np.concatenate(segment.n) if segment.n else np.zeros(0, np.int64)
    segment.n = [n]
    closed = segment.closing is not None
    if np.array_equal(n, np.arange(len(n))):
        return lambda at: np.where((at >= 0) & (at < len(n)), at + first, -1), len(n), closed
    by_number = np.argsort(n, kind="stable")
    ordered = n[by_number]
    for i in np.flatnonzero(ordered[1:] == ordered[:-1])[:MOST_EXPLAINED].tolist():
        row = int(by_number[i + 1])
        name = f"{segment.header.writer}.{ordered[i]}"
        broken.append(Place("duplicate-id", row + first, f"the name {name} is also that of an earlier event"))

    def find(at: Any) -> NDArray[np.int64]:
        place = np.minimum(np.searchsorted(ordered, at), len(ordered) - 1)
        return np.where(ordered[place] == at, by_number[place] + first, -1)

    return find, int(n.max(initial=-1)) + 1, closed


def _columns(segments: Sequence[Segment], first: Any) -> tuple[dict[str, Any], Names, dict[str, int]]:
    """The columns of all events, and the ids that were given rather than made from writer and number."""
    parts = [p for s in segments for p in s.parts]
    names = dict.fromkeys(k for p in parts for k in p)
    blocks = [len(p["t_e"]) for p in parts]
    columns: dict[str, Any] = {}
    for name in names:
        columns[name] = _stacked(name, [p.pop(name, None) for p in parts], blocks)
    for s in segments:
        s.parts = []
    prefix = Text.concat([Text.constant(f"{s.header.writer}.", s.count) for s in segments])
    number = np.concatenate([s.n[0] for s in segments])
    explicit: dict[str, int] = {}
    if "id" in columns:
        codes, words = columns.pop("id"), segments[0].words["ids"]
        if (codes >= 0).all():
            ids = Names(Text(codes, words))
        else:
            given = Text(codes, words).strings()
            ids = Names(
                Text.of(g if g is not None else p for g, p in zip(given, prefix.strings(), strict=True)),
                np.where(codes >= 0, -1, number),
            )
        explicit = dict(zip((words[c] for c in codes[codes >= 0].tolist()), np.flatnonzero(codes >= 0).tolist(), strict=True))
    else:
        ids = Names(prefix, number)
    columns["id_e"] = ids
    return columns, ids, explicit


def _stacked(name: str, parts: list[Any], counts: list[int]) -> Any:
    """One column from its blocks, by way of the trace's own rule for putting traces together."""
    if name in ("id", "context", "agent_e", "from_e", "to_e", "t_e"):
        full = [np.full(n, -1, np.int32) if p is None else p for p, n in zip(parts, counts, strict=True)]
        return np.concatenate(full)
    traces = [Trace.of(t_e=np.broadcast_to(0.0, n), **({} if p is None else {name: p})) for p, n in zip(parts, counts, strict=True)]
    return getattr(concat(traces), name)


def _row_of(names: dict[str, tuple[Lookup, int, bool]], ids: Names, explicit: dict[str, int]) -> Callable[[str], int]:
    def row_of(name: str) -> int:
        if name in explicit:
            return explicit[name]
        writer, _, number = name.rpartition(".")
        if writer in names and number.isdecimal() and len(number) < 16:
            row = int(names[writer][0](int(number)))
            return row if row >= 0 and ids[row] == name else -1
        return -1

    return row_of


def _edges(
    segments: Sequence[Segment], first: Any, names: dict[str, Any], columns: dict[str, Any], broken: list[Place]
) -> Edges:
    src_parts, dst_parts, type_parts = [], [], []
    lost: list[int] = []
    for segment, at in zip(segments, first.tolist(), strict=False):
        if not segment.causes:
            continue
        effect, number, writer, kind = (np.concatenate(c) for c in zip(*segment.causes, strict=True))
        segment.causes = []
        src = np.full(len(effect), -1, np.int32)
        for code, word in enumerate(segment.writers):
            own = word or segment.header.writer
            mine = np.flatnonzero(writer == code)
            find, after_last, closed = names.get(own, (None, 0, True))
            if find is not None:
                src[mine] = find(number[mine])
            for i in mine[src[mine] < 0].tolist():
                row, name = int(effect[i]) + at, f"{own}.{number[i]}"
                if find is not None and not closed:
                    broken.append(Place("lost-cause", row, f"its cause {name} was not written before its writer ended"))
                    lost.append(row)
                else:
                    broken.append(Place("reference", row, f"its cause {name} does not exist"))
        src_parts.append(src)
        dst_parts.append(effect + np.int32(at))
        type_parts.append(kind)
    if lost:
        columns["truncated_e"] = np.array(columns.get("truncated_e", np.full(int(first[-1]), -1, np.int8)))
        columns["truncated_e"][lost] = 1
    none = np.zeros(0, np.int32)
    return Edges(*(np.concatenate([none, *p]) if p else none for p in (src_parts, dst_parts, type_parts)))


def _merged(segments: Sequence[Segment], first: Any, total: int) -> Table:
    """The nested fields of all segments as one table."""
    raw: dict[str, tuple[NDArray[np.int64], list[bytes]]] = {}
    for segment, at in zip(segments, first.tolist(), strict=False):
        for start, table in segment.tables:
            for name, (rows, texts) in table.raw.items():
                known_rows, known = raw.get(name, (np.zeros(0, np.int64), []))
                raw[name] = (np.concatenate([known_rows, rows + start + at]), known + texts)
    return Table(total, segments[0].words, {}, raw, {})


def _run(segments: Sequence[Segment]) -> dict[str, Any]:
    def told(name: str) -> Any:
        return next((v for s in segments if (v := getattr(s.header, name)) is not UNSET), UNSET)

    def text(name: str) -> Text:
        word = told(name)
        return Text.of([None if word is UNSET else word])

    def stated(name: str) -> Any:
        maps = [m for s in segments if s.closing and (m := getattr(s.closing, name)) is not UNSET]
        return {k: v for m in maps for k, v in m.items()} if maps else None

    fields = told("run")
    return run_columns(RunFields() if fields is UNSET else fields) | {
        "trace_id_n": text("trace_id"),
        "task_id_n": text("task_id"),
        "system_n": text("system"),
        "topology_n": topology_code(told("topology")),
        "measured_n": np.array([int(stated("metrics") is not None)]),
        "reward_n": channels(1, [0], [stated("rewards") or {}]),
        "cost_n": channels(1, [0], [stated("costs") or {}]),
        "metric_n": channels(1, [0], [stated("metrics") or {}]),
    }


def header_line(header: Header) -> bytes:
    return msgspec.json.encode(HeaderLine(header)) + b"\n"


def write(trace: Trace, writer: str = "w0") -> bytes:
    """One rollout as a log of one closed segment, its events in the order of rows."""
    if len(trace) != 1:
        raise ValueError(f"a segment holds one run, not {len(trace)}")
    head: dict[str, Any] = {"version": LOG_VERSION, "trace_id": trace.trace_id_n[0] or "unnamed", "writer": writer}
    for name in ("task_id", "system"):
        if (word := getattr(trace, f"{name}_n")[0]) is not None:
            head[name] = word
    if (topology := trace.topology()) is not None:
        head["topology"] = topology
    if fields := run_fields(trace):
        head["run"] = fields
    events = event_objects(trace)
    for row, event in enumerate(events):
        if event["id"] == f"{writer}.{row}":
            del event["id"]
        if also := {name: event.pop(name) for name in get_args(Taken) if name in event}:
            event["also"] = also
        event["n"] = row
    for row in np.flatnonzero(trace.position_e >= 0).tolist():
        events[row]["position"] = int(trace.position_e[row])
    if trace.trace_id_n[0] is None:
        first = events[0].setdefault("podium", {})
        first["absent"] = [*first.get("absent", []), "trace_id"]
    edges = zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True)
    for src, dst, kind in edges:
        events[dst].setdefault("after", []).append([EDGE_TYPES[kind], src])
    end: dict[str, Any] = {"events": len(events)}
    end |= {"rewards": figures(trace.reward_n).get(0, {}), "costs": figures(trace.cost_n).get(0, {})}
    if (metrics := figures(trace.metric_n).get(0, {})) or trace.measured_n[0] == 1:
        end["metrics"] = metrics
    lines = [{"podium_log": head}, *events, {"podium_end": end}]
    return msgspec.json.Encoder().encode_lines(lines)
