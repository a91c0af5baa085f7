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

from podium.trace.columns import Names, Text, Trace
from podium.trace.depth import TOO_DEEP, is_deep
from podium.trace.loose import (
    Block,
    Edges,
    Loose,
    Place,
    block_of,
    joined_blocks,
    loose,
    rollout_columns,
    whole,
)
from podium.trace.scan import LOG_EVENTS, Odd, Shape, Table, check_fields, extra_columns, objects
from podium.trace.vocabulary import EDGE_TYPES
from podium.trace.wire import LOG_VERSION, Cause, Closing, ClosingLine, Header, HeaderLine, LogEvent, Taken
from podium.trace.write import event_objects, figures, run_fields

__all__ = ["CHECKED", "Segment", "header_line", "header_of", "is_log", "read_segments", "run_of", "write"]

CHECKED = LOG_EVENTS.without(
    "content_ref random model version role from cache_read cache_write cache_write_1h task stage call chance "
    "position reward extra behaviour"
)
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
    blocks: list[Block] = field(default_factory=list)
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
                        begun = Segment(file, header_of(piece), words)
                        if segment:
                            yield segment
                        segment = begun
                    elif segment:
                        segment.closing = msgspec.json.decode(piece, type=ClosingLine).podium_end
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    if segment is None:
                        segment = Segment(file, Header(LOG_VERSION, "unknown", "unknown"), words)
                    rule, what = (
                        ("torn-line", " is torn; dropped") if torn and _is_torn(piece) else ("schema", f": {error}")
                    )
                    segment.broken.append(Place(rule, None, f"line {line}{what}"))
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


def header_of(line: bytes) -> Header:
    """What a header line says."""
    if is_deep(line):
        raise msgspec.ValidationError(TOO_DEEP)
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
        cut = lines.rfind(b"\n") + 1
        lines, last = lines[:cut], lines[cut:]
        if _is_torn(last):
            number = line + lines.count(b"\n")
            fault = f"line {number} is torn (it ends after {len(last)} bytes); dropped"
            segment.broken.append(Place("torn-line", None, fault))
        else:
            lines += last
        if not lines.strip():
            return
    try:
        table, _ = objects(lines, 0, True, shape, segment.words)
        _append(segment, table, shape)
    except (Odd, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        faults = list(_explain(lines, line, segment.count))[:MOST_EXPLAINED]
        segment.broken += faults or [Place("schema", None, f"line {line} and on: {error}")]


def _append(segment: Segment, table: Table, shape: Shape) -> None:
    if "n" not in table.columns or np.isnan(table.columns["n"]).any():
        raise Odd("an event without n")
    rows, raw = table.raw.pop("also", ((), []))
    also = extra_columns(table.n, rows, _ALSO.decode(b"[" + b",".join(raw) + b"]"))
    rows, raw = table.raw.pop("after", (np.zeros(0, np.int64), []))
    after = _CAUSES.decode(b"[" + b",".join(raw) + b"]")
    if not all(after):
        raise Odd("after: empty")
    block = block_of(table)
    block.columns["extra_e"] |= also
    for name in ("extra_e", "reward_e"):
        names = {key for one in (*segment.blocks, block) for key in one.columns.get(name, ())}
        check_fields(len(names), segment.count + table.n)
    flat = [cause for causes in after for cause in causes]
    block.columns = {name: c for name, c in block.columns.items() if name.partition("_")[0] not in shape.dropped}
    block.columns |= {
        "n": whole(table.columns["n"]),
        "dst_x": np.repeat(np.asarray(rows, np.int32), [len(causes) for causes in after]),
        "number_x": np.array([cause.n for cause in flat], np.int64),
        "writer_x": Text.of(cause.writer or segment.header.writer for cause in flat),
        "type_x": np.array([_EDGE_CODE[cause.type] for cause in flat], np.int8),
    }
    segment.blocks.append(block)
    segment.count += table.n


def _explain(lines: bytes, line: int, row: int) -> Iterator[Place]:
    decoder = msgspec.json.Decoder(LogEvent)
    for offset, text in enumerate(lines.split(b"\n")):
        if not text.strip():
            continue
        try:
            if is_deep(text):
                raise msgspec.ValidationError(TOO_DEEP)
            decoder.decode(text)
            text.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            yield Place("schema", row + offset, f"line {line + offset}: {error}")


def run_of(segments: Sequence[Segment]) -> Loose | list[Place]:
    """One run from its segments, each of another writer, in the order of their names."""
    segments = sorted(
        segments, key=lambda s: [int(p) if p.isdecimal() else p for p in re.split(r"(\d+)", s.header.writer)]
    )
    broken = [p for s in segments for p in s.broken]
    if any(p.rule == "schema" for p in broken):
        return broken
    for s in segments:
        if s.closing and s.closing.events != s.count:
            fault = f"the log of {s.header.writer} says that it has {s.closing.events} events, there are {s.count}"
            broken.append(Place("missing-line", None, fault))
    first = np.cumsum([0, *(s.count for s in segments)]).tolist()
    if not first[-1]:
        return [*broken, Place("empty-run", None, "nothing was recorded before the writer ended")]
    block, words = joined_blocks([b for s in segments for b in s.blocks]), segments[0].words
    numbers = block.columns.pop("n")
    names = {
        s.header.writer: _lookup(s, numbers[at : at + s.count], at, broken)
        for s, at in zip(segments, first, strict=False)
    }
    rows_of = _rows_of(names, *_name_events(segments, block, numbers, broken), broken)
    edges = _edges(names, block.columns, broken)
    block.broken = broken + block.broken
    return loose(block, _run(segments, block), words["agents"], edges, rows_of)


Lookup = Callable[[Any], NDArray[np.int64]]


def _lookup(segment: Segment, n: NDArray[np.int64], first: int, broken: list[Place]) -> tuple[Lookup, bool]:
    """From the numbers of a segment's events to their places (-1: none), and whether the segment was closed."""
    closed = segment.closing is not None
    if np.array_equal(n, np.arange(len(n))):
        return lambda at: np.where((at >= 0) & (at < len(n)), at + first, -1), closed
    by_number = np.argsort(n, kind="stable")
    ordered = n[by_number]
    for i in np.flatnonzero(ordered[1:] == ordered[:-1])[:MOST_EXPLAINED].tolist():
        row = int(by_number[i + 1])
        name = f"{segment.header.writer}.{ordered[i]}"
        broken.append(Place("duplicate-id", row + first, f"the name {name} is also that of an earlier event"))

    def find(at: Any) -> NDArray[np.int64]:
        place = np.minimum(np.searchsorted(ordered, at), len(ordered) - 1)
        return np.where(ordered[place] == at, by_number[place] + first, -1)

    return find, closed


def _name_events(
    segments: Sequence[Segment], block: Block, numbers: NDArray[np.int64], broken: list[Place]
) -> tuple[Names, dict[str, int]]:
    """The ids of events, and those of them that were given rather than made from writer and number."""
    prefix = Text.concat([Text.constant(f"{s.header.writer}.", s.count) for s in segments])
    ids = Names(prefix, numbers)
    explicit: dict[str, int] = {}
    if "id" in block.columns:
        given = block.columns.pop("id")
        is_given = given.codes >= 0
        if is_given.all():
            ids = Names(given)
        else:
            spelled = zip(given.strings(), prefix.strings(), strict=True)
            ids = Names(Text.of(p if g is None else g for g, p in spelled), np.where(is_given, -1, numbers))
        for row in np.flatnonzero(is_given).tolist():
            if explicit.setdefault(given[row], row) != row:
                fault = f"the id {given[row]!r} is also that of an earlier event"
                broken.append(Place("duplicate-id", row, fault))
    block.columns["id_e"] = ids
    return ids, explicit


def _rows_of(
    names: dict[str, tuple[Lookup, bool]], ids: Names, explicit: dict[str, int], broken: list[Place]
) -> Callable[[Text], NDArray[np.int32]]:
    """The places of events by their ids, given or made from writer and number; -1 if there is none."""

    def issued(name: str) -> int:
        writer, _, number = name.rpartition(".")
        if writer in names and number.isdecimal() and len(number) < 16:
            row = int(names[writer][0](int(number)))
            return row if row >= 0 and ids[row] == name else -1
        return -1

    def rows_of(text: Text) -> NDArray[np.int32]:
        used, place = np.unique(text.codes, return_inverse=True)
        spelled = [text.words[code] for code in used.tolist() if code >= 0]
        rows = [explicit[name] if name in explicit else issued(name) for name in spelled]
        return np.array([*[-1] * (len(used) - len(rows)), *rows], np.int32)[place]

    if len(explicit) < len(ids):
        for name, row in explicit.items():
            if issued(name) not in (-1, row):
                broken.append(Place("duplicate-id", row, f"the id {name!r} is also the name of another event"))
    return rows_of


def _edges(names: dict[str, tuple[Lookup, bool]], columns: dict[str, Any], broken: list[Place]) -> Edges:
    dst, number, writer, kind = (columns.pop(f"{name}_x") for name in ("dst", "number", "writer", "type"))
    src = np.full(len(dst), -1, np.int32)
    for code, word in enumerate(writer.words):
        if word in names:
            of_it = slice(None) if len(writer.words) == 1 else np.flatnonzero(writer.codes == code)
            src[of_it] = names[word][0](number[of_it])
    lost: list[int] = []
    for x in np.flatnonzero(src < 0).tolist():
        row, word = int(dst[x]), str(writer[x])
        closed = names[word][1] if word in names else True
        fault = "does not exist" if closed else "was not written before its writer ended"
        if closed or len(lost) < MOST_EXPLAINED:
            broken.append(
                Place("reference" if closed else "lost-cause", row, f"its cause {word}.{number[x]} {fault}")
            )
        if not closed:
            lost.append(row)
    if lost:
        none = np.full(len(columns["t_e"]), -1, np.int8)
        columns["truncated_e"] = np.array(columns.get("truncated_e", none))
        columns["truncated_e"][lost] = 1
    return Edges(src, dst, kind)


def _run(segments: Sequence[Segment], block: Block) -> dict[str, Any]:
    def header(name: str) -> Any:
        return next((v for s in segments if (v := getattr(s.header, name)) is not UNSET), UNSET)

    def closing(name: str) -> Any:
        maps = [m for s in segments if s.closing and (m := getattr(s.closing, name)) is not UNSET]
        return {k: v for m in maps for k, v in m.items()} if maps else UNSET

    absent = {name for _, names in block.values("absent") for name in names}
    head = {name: header(name) for name in ("trace_id", "task_id", "system", "topology")}
    end = {name: closing(name) for name in ("rewards", "costs", "metrics")}
    return rollout_columns(header("run"), absent, **head, **end)


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
