"""The columnar store: a folder of traces that loses nothing and answers SQL.

    runs/
      podium-store.json       {"podium_store": 1}
      part-000000/            what one `add` wrote, named by the first rollout in it
        rollouts.parquet  agents.parquet  events.parquet  edges.parquet  tokens.parquet  votes.parquet
        options.parquet

A file holds the columns of one axis, their suffix dropped. Before them come `rollout`, numbered over the whole
store, and `row`, counted inside the rollout; what points to an event or an agent gives its row inside the same
rollout. So the tables join on (rollout, row). Absent is null, a word is a word, and a column in which nothing
was recorded is not written.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain, compress
from pathlib import Path
from threading import Timer
from typing import IO, Any

import numpy as np

from podium.errors import WrongUse
from podium.trace.columns import AXES, COLUMNS, I, Names, Text, Trace, absent_column, concat
from podium.trace.options import option_axis
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, TOPOLOGIES

__all__ = [
    "QueryError",
    "StoreError",
    "add",
    "create",
    "is_store",
    "listing",
    "locked",
    "read",
    "size",
    "sql",
    "sync",
]

VERSION = 1
MARKER, ADDING = "podium-store.json", ".adding"
WORDS = {"topology_n": TOPOLOGIES, "type_e": EVENT_TYPES, "decision_e": DECISIONS, "type_x": EDGE_TYPES}
POINTS = {"row": "e", "agent": "a"}
SQL_TYPES = {"float": "DOUBLE", "int": "BIGINT", "row": "INTEGER", "tri": "BOOLEAN"}  # any other: VARCHAR


class StoreError(WrongUse, ValueError):
    """The folder is not a store that can be used so."""


class QueryError(StoreError):
    """The query is not one that can be answered."""


# the folder


def is_store(store: Path) -> bool:
    return (Path(store) / MARKER).is_file()


def create(store: Path) -> None:
    """Make an empty store of a folder that is empty or not there yet; a store stays as it is."""
    with _locked(Path(store)):
        pass


def size(store: Path) -> int:
    """How many rollouts a store holds."""
    return sum(map(len, _parts(Path(store)).values()))


def add(store: Path, trace: Trace) -> range:
    """Store the rollouts of a trace, all of them or none; returns the numbers they got."""
    store = Path(store)
    _check(trace)
    with _locked(store):
        first = size(store)
        try:
            if len(trace):
                _write(store, trace, first)
        except UnicodeEncodeError as error:
            raise StoreError(f"a string is no text that can be stored: {error}") from error
    return range(first, first + len(trace))


def read(store: Path, rollouts: slice | Sequence[int] | None = None) -> Trace:
    """The rollouts of these numbers in this order, or all of them, as one trace."""
    parts = _parts(Path(store))
    if rollouts is None:
        return concat([_read_part(*part) for part in parts.items()])
    wanted = _numbers(sum(map(len, parts.values())), rollouts)
    used = {part: numbers for part, numbers in parts.items() if np.isin(numbers, wanted).any()}
    place = {number: i for i, number in enumerate(chain.from_iterable(used.values()))}
    return concat([_read_part(*part) for part in used.items()])[[place[w] for w in wanted]]


def listing(store: Path) -> list[dict[str, Any]]:
    """One row a rollout: its number, which run of which task it is, and how large it is."""
    shown = ["rollout", "trace_id", "task_id", "topology", "events", "agents", "edges"]
    rows = (row for part in _parts(Path(store)) for row in _load(part, "n", shown).to_pylist())
    return [{name: row.get(name) for name in shown} for row in rows]


def _parts(store: Path) -> dict[Path, range]:
    """The parts of a store in order, each with the numbers of its rollouts."""
    if not is_store(store):
        raise StoreError(f"{store} is not a Podium store: it has no {MARKER}")
    try:
        version = json.loads((store / MARKER).read_bytes())["podium_store"]
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{store / MARKER} is damaged") from None
    if version != VERSION:
        raise StoreError(f"{store} is a store of version {version}; this Podium reads version {VERSION}")
    first = {part: int(part.name[5:]) for part in store.glob("part-[0-9]*")}
    parts = sorted(first, key=lambda part: first[part])
    ends = [first[part] for part in parts[1:]]
    if parts:
        ends.append(first[parts[-1]] + len(_load(parts[-1], "n", ["rollout"])))
    return {part: range(first[part], end) for part, end in zip(parts, ends, strict=True)}


def _numbers(n: int, rollouts: slice | Sequence[int]) -> list[int]:
    if isinstance(rollouts, slice):
        return [*range(n)[rollouts]]
    if wrong := [i for i in rollouts if not -n <= i < n]:
        raise StoreError(f"the store holds {n} rollouts, none is numbered {wrong[0]}")
    return [range(n)[i] for i in rollouts]


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Holds a folder, which others that hold it so wait for. Raises StoreError where one does and nobody is to
    wait."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise StoreError(
                f"{folder}: another process writes there; wait for it, or name another folder"
            ) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _locked(store: Path) -> Iterator[None]:
    """One writer at a time; makes the store if there is none, and clears away what a killed writer left."""
    if store.exists() and not store.is_dir():
        raise StoreError(f"{store} is a file, not a folder")
    store.mkdir(parents=True, exist_ok=True)
    if MARKER not in (names := os.listdir(store)) and set(names) - {".lock", ADDING}:
        raise StoreError(f"{store} is not empty and not a Podium store: it has no {MARKER}")
    with locked(store):
        shutil.rmtree(store / ADDING, ignore_errors=True)
        (store / ADDING).mkdir()
        try:
            if not is_store(store):
                marker = json.dumps({"podium_store": VERSION}).encode()
                _save(store / ADDING / MARKER, lambda file: file.write(marker))
                _publish(store / ADDING / MARKER, store / MARKER)
            yield
        finally:
            shutil.rmtree(store / ADDING, ignore_errors=True)


def _save(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _publish(new: Path, name: Path) -> None:
    """Give what is on disk its name, in one step."""
    os.rename(new, name)
    sync(name.parent)


def sync(folder: Path) -> None:
    """Puts on disk which files a folder has."""
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


# writing


def _check(trace: Trace) -> None:
    """What the store takes for granted: axes sorted by rollout, and no pointer into an earlier rollout."""
    for axis, what in AXES.items():
        of = trace.rollout_of(axis)
        if len(of) and (of[0] < 0 or of[-1] >= len(trace) or (np.diff(of) < 0).any()):
            raise StoreError(f"the {what} are not sorted by rollout, or there are fewer rollouts")
    for name, axis, kind in COLUMNS:
        if kind in POINTS:
            row = getattr(trace, name)
            if ((row >= 0) & (row < _start(trace, kind, axis))).any():
                raise StoreError(f"{name} points into another rollout")


def _start(trace: Trace, kind: str, axis: str) -> I | np.int32:
    """For each row of an axis, the row from which what it points to is counted."""
    if len(trace) < 2:
        return np.int32(0)
    return trace.first_of(POINTS[kind]).astype(np.int32)[trace.rollout_of(axis)]


def _write(store: Path, trace: Trace, first: int) -> None:
    """Every file of a part is on disk before the part gets its name, so a part is whole or not there."""
    part = store / ADDING / "part"
    part.mkdir()
    for axis, what in AXES.items():
        if len(trace.rollout_of(axis)):
            _save(part / f"{what}.parquet", partial(_write_parquet, _table(trace, axis, first)))
    sync(part)
    _publish(part, store / f"part-{first:06d}")


def _table(trace: Trace, axis: str, first: int) -> Any:
    """One axis of a trace as an Arrow table. A column without nulls says so: it is faster to read."""
    pa = _need("pyarrow")
    of = trace.rollout_of(axis)
    cells = {"rollout": _integers(of + first)}
    if axis == "n":
        cells |= {what: _integers(np.diff(trace.first_of(a))) for a, what in AXES.items() if a != "n"}
    else:
        cells["row"] = _integers((np.arange(len(of)) - trace.first_of(axis)[of]).astype(np.int32))
    for column in COLUMNS:
        if column.axis == axis and column.kind != "rollout":
            values = getattr(trace, column.name)
            if column.kind in POINTS:
                values = np.where(values < 0, values, values - _start(trace, column.kind, axis))
            for name, kind, part in _flat(column.name[:-2], column.kind, values):
                cells[name] = _cells(kind, part, WORDS.get(column.name))
    recorded = {name: c for name, c in cells.items() if c.null_count < len(c)}
    fields = [pa.field(name, c.type, nullable=c.null_count > 0) for name, c in recorded.items()]
    return pa.Table.from_arrays([*recorded.values()], schema=pa.schema(fields))


def _flat(name: str, kind: str, values: Any) -> Iterator[tuple[str, str, Any]]:
    """The columns of a file that one column of a trace becomes: two for ids, one a key for a mapping."""
    match kind:
        case "name":
            yield name, "text", values.prefix
            yield f"{name}_number", "int", values.number
        case "floats" | "texts":
            yield from ((f"{name}_{key}", kind[:-1], part) for key, part in values.items())
        case _:
            yield name, kind, values


def _cells(kind: str, values: Any, words: Sequence[str] | None) -> Any:
    if kind == "float":
        return _need("pyarrow").array(values, mask=np.isnan(values))
    if words is not None:
        if values.max() >= len(words):
            raise StoreError(f"{values.max()} is the code of no word: there are {', '.join(words)}")
        return _strings(Text(values, words))
    return _strings(values) if kind == "text" else _integers(values)


def _integers(values: I) -> Any:
    return _need("pyarrow").array(values, mask=values == -1)


def _strings(text: Text) -> Any:
    """Dictionary-encoded strings, or plain ones if no word occurs twice."""
    pa = _need("pyarrow")
    count = np.bincount(text.codes + 1, minlength=len(text.words) + 1)[1:]
    place = np.append(np.cumsum(count > 0) - 1, -1).astype(np.int32)
    words = pa.array([*compress(text.words, count)], pa.large_string())
    codes = _integers(place[text.codes])
    once = len(count) > 0 and count.max() == 1
    return words.take(codes) if once else pa.DictionaryArray.from_arrays(codes, words)


def _write_parquet(table: Any, file: IO[bytes]) -> None:
    """Values that repeat go by dictionary, other whole numbers by their steps, other floats byte by byte."""
    types = _need("pyarrow").types
    repeating, encoding = [], {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if types.is_dictionary(column.type):
            repeating.append(name)
        elif types.is_integer(column.type) or types.is_floating(column.type):
            if _repeats(column):
                repeating.append(name)
            else:
                encoding[name] = "DELTA_BINARY_PACKED" if types.is_integer(column.type) else "BYTE_STREAM_SPLIT"
    _need("pyarrow.parquet").write_table(
        table,
        file,
        compression="zstd",
        use_dictionary=repeating,
        column_encoding=encoding or None,
        dictionary_pagesize_limit=1 << 26,
        write_page_checksum=True,
    )


def _repeats(column: Any) -> bool:
    """Whether values repeat, judged by rows spread over the column."""
    rows = np.linspace(0, len(column) - 1, min(len(column), 10_000)).astype(np.int64)
    sample = column.take(rows).drop_null()
    return len(sample.unique()) * 2 <= len(sample)


# reading


def _load(part: Path, axis: str, columns: Sequence[str] | None = None) -> Any:
    """A file of a part as an Arrow table: these columns, or all but the two that are there for SQL alone."""
    pa, pq = _need("pyarrow"), _need("pyarrow.parquet")
    path = part / f"{AXES[axis]}.parquet"
    try:
        with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
            there = [c for c in file.schema_arrow.names if c not in ("rollout", "row")]
            return file.read(columns=there if columns is None else [*columns])
    except FileNotFoundError:
        raise StoreError(f"{path} is missing") from None
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} is damaged: {error}") from error


def _read_part(part: Path, numbers: range) -> Trace:
    n = len(numbers)
    tables = {"n": _load(part, "n")}
    _expect(part / "rollouts.parquet", tables["n"], n)
    there = {axis: what for axis, what in AXES.items() if what in tables["n"].column_names}
    count = {axis: _numpy(tables["n"][what]) for axis, what in there.items()}
    first = {axis: (np.cumsum(c) - c).astype(np.int32) for axis, c in count.items()}
    for axis, c in count.items():
        if total := int(c.sum()):
            tables[axis] = _load(part, axis)
            _expect(part / f"{AXES[axis]}.parquet", tables[axis], total)
    columns: dict[str, Any] = {}
    for name, axis, kind in COLUMNS:
        if axis not in tables:
            continue
        if kind == "rollout":
            columns[name] = np.repeat(np.arange(n, dtype=np.int32), count[axis])
            continue
        values = columns[name] = _values(name[:-2], kind, tables[axis], WORDS.get(name))
        if kind in POINTS and n > 1:
            columns[name] = np.where(values < 0, values, values + np.repeat(first[POINTS[kind]], count[axis]))
    if "o" not in there and "e" in tables:  # a store from before options had an axis
        columns |= option_axis(_values("options", "text", tables["e"], None))
    return Trace.of(**columns)


def _expect(path: Path, table: Any, rows: int) -> None:
    if len(table) != rows:
        raise StoreError(f"{path} has {len(table)} rows and not {rows}: a part of the store is missing or damaged")


def _values(name: str, kind: Any, table: Any, words: Sequence[str] | None) -> Any:
    """A column of a trace, out of the columns of a file."""
    if kind == "name":
        return Names(_values(name, "text", table, None), _values(f"{name}_number", "int", table, None))
    if kind in ("floats", "texts"):
        keys = [c.removeprefix(f"{name}_") for c in table.column_names if c.startswith(f"{name}_")]
        return {key: _values(f"{name}_{key}", kind[:-1], table, None) for key in keys}
    if name not in table.column_names:
        return absent_column(kind, len(table))
    if kind == "text":
        return _text(table[name])
    if words is not None:
        text = _text(table[name])
        if unknown := set(text.words) - set(words):
            raise StoreError(f"{name} has words that this Podium does not know: {', '.join(sorted(unknown))}")
        return text.recoded(words)
    return table[name].to_numpy() if kind == "float" else _numpy(table[name])


def _numpy(cells: Any) -> I:
    whole: I = (cells.fill_null(-1) if cells.null_count else cells).to_numpy()
    return whole


def _text(cells: Any) -> Text:
    if _need("pyarrow").types.is_dictionary(cells.type):
        cells = cells.unify_dictionaries()
        words, codes = cells.chunk(0).dictionary, [_numpy(chunk.indices) for chunk in cells.chunks]
        return Text(codes[0] if len(codes) == 1 else np.concatenate(codes), _words(words))
    there = cells.is_valid().to_numpy()
    return Text(np.where(there, np.cumsum(there) - 1, -1), _words(cells.drop_null()))


def _words(strings: Any) -> tuple[str, ...]:
    return tuple(strings.to_numpy(zero_copy_only=False).tolist())


# SQL


def sql(
    store: Path, query: str, seconds: float = 60.0, rows: int = 1_000_000, memory_mb: int = 2_048
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names and rows of what a SELECT finds in rollouts, agents, events, edges, tokens, votes and options.

    Each has its `rollout`. An event is named by its `row` there: `src` and `dst` of an edge, `context` of an event,
    `owner` of a token, `event` and `source` of a vote, `event` of an option are such rows. `from`, `to` and `end`
    are words of SQL: write events.from or "from". The query reads the store and nothing else, and writes nothing.
    It may take so many seconds and so much memory, and its answer have so many rows.
    """
    duckdb = _need("duckdb")
    parts = _parts(Path(store))
    safe = {"autoload_known_extensions": False, "python_enable_replacements": False, "temp_directory": ""}
    safe |= {"memory_limit": f"{memory_mb}MB"}
    with duckdb.connect(":memory:", config=safe) as db:
        try:
            _lock_down(db, {axis: _files(parts, what) for axis, what in AXES.items()})
        except duckdb.Error as error:
            raise StoreError(f"{store} is damaged: {error}") from error
        try:
            statements = db.extract_statements(query)
            if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
                raise QueryError("a query of the store is one SELECT")
            alarm = Timer(seconds, db.interrupt)
            alarm.start()
            try:
                answer = db.execute(statements[0])
                names, lines = [column[0] for column in answer.description], answer.fetchmany(rows + 1)
            finally:
                alarm.cancel()
        except duckdb.InterruptException:
            raise QueryError(f"no answer within {seconds:g} s; ask for less, or give it longer") from None
        except duckdb.OutOfMemoryException:
            raise QueryError(f"the query needs more than {memory_mb} MB; ask for less, or give it more") from None
        except duckdb.Error as error:
            raise QueryError(str(error)) from error
    if len(lines) > rows:
        raise QueryError(f"an answer of more than {rows:,} rows; narrow it down, or end it with LIMIT {rows}")
    return names, lines


def _files(parts: Iterable[Path], what: str) -> list[str]:
    paths = (part.absolute() / f"{what}.parquet" for part in parts)
    return [str(path) for path in paths if path.exists()]


def _lock_down(db: Any, files: dict[str, list[str]]) -> None:
    """Show the files as views; from then on nothing but these files can be read."""
    for axis, what in AXES.items():
        db.execute(f"CREATE VIEW {what} AS {_view(db, axis, files[axis])}")
    db.execute(f"SET allowed_paths = {_literal([*chain(*files.values())])}")
    db.execute("SET enable_external_access = false")
    db.execute("SET lock_configuration = true")


def _view(db: Any, axis: str, files: list[str]) -> str:
    """The SELECT that shows every column of an axis, whether or not a file has it, and agents by their names."""
    scan = f"read_parquet({_literal(files)}, union_by_name = true)" if files else "(SELECT 1 WHERE false)"
    there = [row[0] for row in db.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()]
    own = [what for a, what in AXES.items() if a != "n"] if axis == "n" else ["row"]
    shown = [_shown(name, "int", there) for name in ("rollout", *own)]
    joined = []
    for name, _, kind in (c for c in COLUMNS if c.axis == axis and c.kind != "rollout"):
        if kind in ("floats", "texts"):
            shown += [_shown(c, kind[:-1], there) for c in there if c.startswith(f"{name[:-2]}_")]
            continue
        shown.append(_shown(name[:-2], kind, there))
        if kind == "agent" and name[:-2] in there:
            agent, column = _quoted(f"of {name[:-2]}"), _quoted(name[:-2])
            joined.append(f"LEFT JOIN agents {agent} ON {agent}.rollout = t.rollout AND {agent}.row = t.{column}")
    return f"SELECT {', '.join(shown)} FROM {scan} t {' '.join(joined)}"


def _shown(name: str, kind: str, there: Sequence[str]) -> str:
    """How a view shows a column: absent is NULL, an id is whole, an agent is a name, yes and no are booleans."""
    column = _quoted(name)
    value = f"t.{column}"
    if name not in there:
        value = f"NULL::{SQL_TYPES.get(kind, 'VARCHAR')}"
    elif kind == "name" and f"{name}_number" in there:
        value = f"concat({value}, t.{_quoted(f'{name}_number')})"
    elif kind == "agent":
        value = f"{_quoted(f'of {name}')}.name"
    elif kind == "tri":
        value = f"{value}::BOOLEAN"
    return f"{value} AS {column}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(strings: Sequence[str]) -> str:
    return "[" + ", ".join("'" + s.replace("'", "''") + "'" for s in strings) + "]"


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise StoreError(f"the store needs {package}: pip install 'podium[store]'") from None
