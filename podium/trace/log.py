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
    Edges,
    Loose,
    Place,
    channels,
    event_columns,
    mark_inferred,
    nested,
    options_of,
    run_columns,
    tokens_of,
    topology_code,
    votes_of,
    whole,
)
from podium.trace.scan import LOG_EVENTS, Odd, Shape, Table, Words, WordsPy, check_fields, extra_columns, objects
from podium.trace.vocabulary import EDGE_TYPES
from podium.trace.wire import (
    LOG_VERSION,
    Cause,
    Closing,
    ClosingLine,
    Header,
    HeaderLine,
    LogEvent,
    RunFields,
    Taken,
)
from podium.trace.write import event_objects, figures, run_fields

__all__ = ["CHECKED", "Segment", "header_line", "header_of", "is_log", "read_segments", "run_of", "write"]

CHECKED = LOG_EVENTS.without("content_ref", "random", "model", "version", "role").only(
    "id context t_e end_e type_e agent_e to_e tool_e trusted_e valid_e truncated_e tokens_in_e tokens_out_e "
    "cost_e decision_e "
    "options_e chosen_e logp_e start_e tokens logps mask votes option_logps option_numbers option_items inferred "
    "absent run"
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


class Pile:
    """A column that grows in place, block by block, so that it is never in memory twice."""

    def __init__(self, dtype: Any, text: bool = False) -> None:
        self._bytes, self._dtype = bytearray(), np.dtype(dtype)
        self._words: Any = Words() if text else None
        self._same: Any = None  # the words that every block had so far, if all had the same

    def add(self, values: Any) -> None:
        if isinstance(values, Text):
            values = self._recoded(values)
        self._bytes += np.ascontiguousarray(values, self._dtype).data.cast("B")

    def pad(self, n: int) -> None:
        """Rows in which nothing is recorded."""
        self.add(np.full(n, np.nan if self._dtype.kind == "f" else -1, self._dtype))

    def __len__(self) -> int:
        return len(self._bytes) // int(self._dtype.itemsize)

    def values(self) -> Any:
        values = np.frombuffer(self._bytes, self._dtype)
        return values if self._words is None else Text(values, self._words if self._same is None else self._same)

    def _recoded(self, text: Text) -> NDArray[np.int32]:
        if not len(self._words) and (self._same is None or self._same is text.words):
            self._same = text.words
            return text.codes
        if self._same is not None:
            for word in self._same:
                self._words.code(word)
            self._same = None
        table = np.array([*map(self._words.code, text.words), -1], np.int32)
        recoded: NDArray[np.int32] = table[text.codes]
        return recoded


@dataclass
class Segment:
    """What one writer wrote of a run."""

    file: str
    header: Header
    words: dict[str, Any]
    closing: Closing | None = None
    n: Pile = field(default_factory=lambda: Pile(np.int64))  # the events' numbers
    columns: dict[str, Pile | dict[str, Pile]] = field(default_factory=dict)  # the events' columns
    raw: dict[str, tuple[list[NDArray[np.int64]], list[bytes]]] = field(
        default_factory=dict
    )  # nested fields: rows, JSON
    causes: tuple[Pile, ...] = field(
        default_factory=lambda: tuple(map(Pile, (np.int32, np.int64, np.int32, np.int8)))
    )
    writers: WordsPy = field(default_factory=WordsPy)  # of causes, which are effect, number, writer and edge type
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
                    place = (
                        Place("torn-line", None, f"line {line} is torn; dropped")
                        if torn and _is_torn(piece)
                        else None
                    )
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
        lines, last = _without_last(lines)
        if _is_torn(last):
            number = line + lines.count(b"\n")
            segment.broken.append(
                Place("torn-line", None, f"line {number} is torn (it ends after {len(last)} bytes); dropped")
            )
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


def _without_last(lines: bytes) -> tuple[bytes, bytes]:
    cut = lines.rfind(b"\n") + 1
    return lines[:cut], lines[cut:]


def _append(segment: Segment, table: Table, shape: Shape) -> None:
    if "n" not in table.columns or np.isnan(table.columns["n"]).any():
        raise Odd("an event without n")
    number, columns = whole(table.columns["n"]), event_columns(table)
    rows, raw = table.raw.pop("also", ((), []))
    columns["extra_e"] = table.extras | extra_columns(table.n, rows, _ALSO.decode(b"[" + b",".join(raw) + b"]"))
    rows, raw = table.raw.pop("after", (np.zeros(0, np.int64), []))
    after = _CAUSES.decode(b"[" + b",".join(raw) + b"]")
    if any(not causes for causes in after):
        raise Odd("after: empty")
    for name in table.raw:
        nested(table, name)  # to hear now, while there are lines to point to, if something is wrong
    for name in ("extra_e", "reward_e"):
        fields = {*columns[name], *segment.columns.get(name, {})}  # type: ignore[misc]
        check_fields(len(fields), segment.count + table.n)
    segment.n.add(number)
    columns |= {name: table.columns[name] for name in ("id", "context") if name in table.columns}
    wanted = {k: v for k, v in columns.items() if shape.wanted is None or k in shape.wanted}
    _grow(segment.columns, wanted, segment.count, table.n)
    flat = [c for causes in after for c in causes]
    effect = np.repeat(rows, [len(causes) for causes in after]) + segment.count
    code = segment.writers.code
    columns_x = effect, [c.n for c in flat], [code(c.writer) for c in flat], [_EDGE_CODE[c.type] for c in flat]
    for pile, values in zip(segment.causes, columns_x, strict=True):
        pile.add(values)
    for name, (at, texts) in table.raw.items():
        if shape.wanted is None or name in shape.wanted:
            rows_, known = segment.raw.setdefault(name, ([], []))
            rows_.append(at + segment.count)
            known += texts
    segment.count += table.n


def _grow(piles: dict[str, Any], columns: dict[str, Any], before: int, n: int) -> None:
    """Adds a block of n rows to columns that have some already; a column that is only in one of the two is
    padded."""
    for name, values in columns.items():
        if isinstance(values, dict):
            _grow(piles.setdefault(name, {}), values, before, n)
        else:
            if name not in piles:
                text = isinstance(values, Text)
                piles[name] = Pile(np.int32 if text else values.dtype, text)
                piles[name].pad(before)
            piles[name].add(values)
    for name, pile in piles.items():
        if name not in columns:
            _grow(pile, {}, before, n) if isinstance(pile, dict) else pile.pad(n)


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
    first = np.cumsum([0, *(s.count for s in segments)])
    total = int(first[-1])
    if not total:
        return [*broken, Place("empty-run", None, "nothing was recorded before the writer ended")]
    names = {s.header.writer: _numbers(s, int(at), broken) for s, at in zip(segments, first, strict=False)}
    columns, ids, explicit = _columns(segments, broken)
    row_of = _row_of(names, ids, explicit, broken)
    edges = _edges(segments, first, names, columns, broken)
    if "context" in columns:
        codes, words = columns.pop("context"), segments[0].words["ids"]
        columns["context_e"] = np.full(total, -1, np.int32)
        for row in np.flatnonzero(codes >= 0).tolist():
            columns["context_e"][row] = row_of(words[codes[row]])
            if columns["context_e"][row] < 0:
                broken.append(
                    Place("reference", row, f"its context names {words[codes[row]]!r}, which does not exist")
                )
    whole_table = _merged(segments, first, total)
    broken += mark_inferred(whole_table, edges, row_of)
    tokens, wrong = tokens_of(whole_table)
    votes, astray = votes_of(whole_table, row_of)
    options, odd = options_of(columns.pop("options_e", None), whole_table)
    run = _run(segments)
    if any("trace_id" in names for names in nested(whole_table, "absent")[1]):
        run["trace_id_n"] = Text.of([None])
    broken += wrong + astray + odd
    return Loose(run, columns, segments[0].words["agents"], edges, tokens, votes, options, broken)


Lookup = Callable[[Any], NDArray[np.int64]]


def _numbers(segment: Segment, first: int, broken: list[Place]) -> tuple[Lookup, bool]:
    """From the numbers of a segment's events to their places (-1: none), and whether the segment was closed."""
    n = segment.n.values()
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


def _columns(segments: Sequence[Segment], broken: list[Place]) -> tuple[dict[str, Any], Names, dict[str, int]]:
    """The columns of all events, and the ids that were given rather than made from writer and number."""
    piles: dict[str, Any] = segments[0].columns
    for before, segment in zip(np.cumsum([s.count for s in segments]).tolist(), segments[1:], strict=False):
        _grow(piles, _values(segment.columns), before, segment.count)
        segment.columns = {}
    columns = _values(piles)
    prefix = Text.concat([Text.constant(f"{s.header.writer}.", s.count) for s in segments])
    number = segments[0].n.values() if len(segments) == 1 else np.concatenate([s.n.values() for s in segments])
    ids = Names(prefix, number)
    explicit: dict[str, int] = {}
    if "id" in columns:
        codes, words = columns.pop("id"), segments[0].words["ids"]
        given = codes >= 0
        if given.all():
            ids = Names(Text(codes, words))
        else:
            spelled = zip(Text(codes, words).strings(), prefix.strings(), strict=True)
            ids = Names(Text.of(p if g is None else g for g, p in spelled), np.where(given, -1, number))
        for row, code in zip(np.flatnonzero(given).tolist(), codes[given].tolist(), strict=True):
            if explicit.setdefault(words[code], row) != row:
                broken.append(
                    Place("duplicate-id", row, f"the id {words[code]!r} is also that of an earlier event")
                )
    columns["id_e"] = ids
    return columns, ids, explicit


def _values(piles: dict[str, Any]) -> dict[str, Any]:
    return {name: _values(pile) if isinstance(pile, dict) else pile.values() for name, pile in piles.items()}


def _row_of(
    names: dict[str, tuple[Lookup, bool]], ids: Names, explicit: dict[str, int], broken: list[Place]
) -> Callable[[str], int]:
    """The place of an event by its id, given or made from writer and number; -1 if there is none."""

    def issued(name: str) -> int:
        writer, _, number = name.rpartition(".")
        if writer in names and number.isdecimal() and len(number) < 16:
            row = int(names[writer][0](int(number)))
            return row if row >= 0 and ids[row] == name else -1
        return -1

    if len(explicit) < len(ids):
        for name, row in explicit.items():
            if issued(name) not in (-1, row):
                broken.append(Place("duplicate-id", row, f"the id {name!r} is also the name of another event"))
    return lambda name: explicit[name] if name in explicit else issued(name)


def _edges(
    segments: Sequence[Segment], first: Any, names: dict[str, Any], columns: dict[str, Any], broken: list[Place]
) -> Edges:
    parts: list[tuple[NDArray[Any], ...]] = []
    lost: list[int] = []
    for segment, at in zip(segments, first.tolist(), strict=False):
        writers = [word or segment.header.writer for word in segment.writers]
        effect, number, writer, kind = (pile.values() for pile in segment.causes)
        src = np.full(len(effect), -1, np.int32)
        for code, word in enumerate(writers):
            if word in names:
                mine = slice(None) if len(writers) == 1 else np.flatnonzero(writer == code)
                src[mine] = names[word][0](number[mine])
        for i in np.flatnonzero(src < 0).tolist():
            row, word = int(effect[i]) + at, writers[writer[i]]
            closed = names[word][1] if word in names else True
            fault = "does not exist" if closed else "was not written before its writer ended"
            if closed or len(lost) < MOST_EXPLAINED:
                broken.append(
                    Place("reference" if closed else "lost-cause", row, f"its cause {word}.{number[i]} {fault}")
                )
            if not closed:
                lost.append(row)
        segment.causes = ()
        parts.append((src, effect + np.int32(at) if at else effect, kind))
    if lost:
        columns["truncated_e"] = np.array(columns.get("truncated_e", np.full(int(first[-1]), -1, np.int8)))
        columns["truncated_e"][lost] = 1
    return Edges(*(part[0] if len(parts) == 1 else np.concatenate(part) for part in zip(*parts, strict=True)))


def _merged(segments: Sequence[Segment], first: Any, total: int) -> Table:
    """The nested fields of all segments as one table."""
    raw: dict[str, tuple[list[NDArray[np.int64]], list[bytes]]] = {}
    for segment, at in zip(segments, first.tolist(), strict=False):
        for name, (rows, texts) in segment.raw.items():
            known_rows, known = raw.setdefault(name, ([], []))
            known_rows += [r + at for r in rows]
            known += texts
    merged = {name: (np.concatenate(rows), texts) for name, (rows, texts) in raw.items()}
    return Table(total, segments[0].words, {}, merged, {})


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
