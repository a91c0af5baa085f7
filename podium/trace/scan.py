"""JSON objects of one shape into columns.

`objects` says what is meant, with msgspec. Where the C module was built, plain input takes its way instead, several
times faster and to the same columns; whatever it will not answer for comes back here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType
from numpy.typing import NDArray

from podium.trace.columns import Text
from podium.trace.depth import TOO_DEEP, is_deep
from podium.trace.wire import Edge, Event, Extension, LogEvent, fields_of

__all__ = [
    "EDGES",
    "EMPTY",
    "EVENTS",
    "FAST",
    "LOG_EVENTS",
    "Odd",
    "Shape",
    "Table",
    "Words",
    "WordsPy",
    "check_fields",
    "extra_columns",
    "objects",
    "objects_py",
    "skip",
]

try:
    from podium.trace._scan import Words, skip
    from podium.trace._scan import scan as _scan_c

    FAST = True
except ImportError:
    FAST = False

_DTYPES = {"n": np.float64, "i": np.float64, "b": np.int8, "s": np.int32, "j": np.int32}
MOST_FIELDS, MOST_CELLS = 1 << 16, 1 << 28


class Odd(ValueError):
    """Input that is not of the shape it should be; `explain` in the reader says how."""


class WordsPy(Sequence[str]):
    """Strings to codes, in order of first appearance."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._words: list[str] = []

    def code(self, word: str) -> int:
        """The code of a word, a new one if need be."""
        code = self._codes.setdefault(word, len(self._words))
        if code == len(self._words):
            self._words.append(word)
        return code

    def valid(self) -> bool:
        """Whether every word is UTF-8; a Python string is."""
        return True

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, code: Any) -> Any:
        return self._words[code]


if not FAST:
    Words = WordsPy  # type: ignore[misc,assignment]

    def skip(data: bytes, start: int, /) -> int | None:
        return None


@dataclass(frozen=True)
class Shape:
    """The fields of an object: name → (kind, the dictionary that its words go to).

    Kinds are those of `wire.Field`; beside them o is the nested object, and q a string and v any JSON that are
    checked but not kept.
    """

    struct: type[msgspec.Struct]
    top: dict[str, tuple[str, str]]
    nested: dict[str, tuple[str, str]] = field(default_factory=dict)
    open: bool = False  # fields that it does not name are kept
    dropped: frozenset[str] = frozenset()  # what a reader should not keep

    def without(self, names: str) -> Shape:
        """The same, with some fields, or `extra` ones, not kept."""
        dropped, unread = frozenset(names.split()), {"s": ("q", ""), "j": ("v", "")}
        top, nested = (
            {n: unread.get(f[0], f) if n in dropped else f for n, f in fields.items()}
            for fields in (self.top, self.nested)
        )
        return replace(self, top=top, nested=nested, dropped=dropped)

    def dictionaries(self) -> dict[str, Any]:
        """New ones; in those of names, which may not be empty, the empty string has the code `EMPTY`."""
        words = {d: Words() for _, d in (*self.top.values(), *self.nested.values()) if d}
        for name in words.keys() & set(_SHARED.values()):
            words[name].code("")
        return words


EMPTY = 0
_SHARED = dict.fromkeys(("id", "context", "src", "dst"), "ids") | dict.fromkeys(("agent", "from", "to"), "agents")


def _shape(struct: type[msgspec.Struct]) -> dict[str, tuple[str, str]]:
    kinds = {name: one.kind for name, one in fields_of(struct).items()}
    kinds |= {name: kind for name, kind in {"podium": "o", "options": "j"}.items() if name in kinds}
    return {name: (kind, _SHARED.get(name, name) if kind in "sj" else "") for name, kind in kinds.items()}


_EXTENSION = _shape(Extension)
EVENTS = Shape(Event, _shape(Event), _EXTENSION, open=True)
LOG_EVENTS = Shape(LogEvent, _shape(LogEvent), _EXTENSION, open=True)
EDGES = Shape(Edge, _shape(Edge))


@dataclass
class Table:
    """Objects as columns: floats for numbers, -1/0/1 for booleans, codes for strings. A field that no object
    has is not among them."""

    n: int
    words: dict[str, Any]
    columns: dict[str, NDArray[Any]]
    raw: dict[str, tuple[NDArray[np.int64], list[bytes]]]
    extras: dict[str, Text]

    def text(self, name: str, words: str | None = None) -> Text | None:
        codes = self.columns.get(name)
        return None if codes is None else Text(codes, self.words[words or name])


def objects(data: bytes, start: int, lines: bool, shape: Shape, words: dict[str, Any]) -> tuple[Table, int]:
    """The objects of the array that starts at a place in the data, or of its lines, and the place after them."""
    if FAST:
        fields = [tuple((n, k, words.get(d)) for n, (k, d) in s.items()) for s in (shape.top, shape.nested)]
        if answer := _scan_c(data, start, lines, *fields):
            end, n, columns, extras = answer
            if (table := _table_c(data, n, columns, extras, shape, words)) is not None:
                return table, end
    if not lines:
        raise Odd("not a plain array of objects")
    return objects_py(data, lines, shape, words), len(data)


def _table_c(
    data: bytes, n: int, columns: dict[str, bytes], extras: list[Any], shape: Shape, words: dict[str, Any]
) -> Table | None:
    if extras and not shape.open:
        return None
    kinds = shape.top | shape.nested
    table = Table(n, words, {}, {}, {})
    for name, raw in columns.items():
        kind = kinds[name][0]
        if kind == "r":
            spans = np.frombuffer(raw, np.int64).reshape(-1, 3)
            table.raw[name] = (spans[:, 0], [data[a:b] for a, b in spans[:, 1:].tolist()])
        else:
            table.columns[name] = np.frombuffer(raw, _DTYPES[kind])
    for name_, rows, codes, own in extras:
        if not own.valid():
            return None
        check_fields(len(extras), n)
        column = np.full(n, -1, np.int32)
        column[np.frombuffer(rows, np.int32)] = np.frombuffer(codes, np.int32)
        try:
            table.extras[name_.decode()] = Text(column, own)
        except UnicodeDecodeError:
            return None
    return table if all(w.valid() for w in words.values()) else None


def objects_py(data: bytes, lines: bool, shape: Shape, words: dict[str, Any]) -> Table:
    """The same, by msgspec, for any input; it raises what msgspec raises."""
    unknown = False
    try:
        rows = _decoded(_decoder(shape.struct, lines), data, lines)
    except msgspec.ValidationError as error:
        if "unknown field" not in str(error) or not shape.open:
            raise
        rows = _decoded(_decoder(shape.struct, lines, strict=False), data, lines)
        unknown = True
    table = Table(len(rows), words, {}, {}, {})
    _fill(table, rows, np.arange(len(rows)), shape.top, words)
    if shape.nested:
        have = [(i, r.podium) for i, r in enumerate(rows) if r.podium is not UNSET]
        at = np.array([i for i, _ in have], np.int64)
        _fill(table, [r for _, r in have], at, shape.nested, words)
    if unknown:
        _extras_py(table, data, lines, set(shape.top))
    return table


def _fill(
    table: Table, rows: list[Any], at: NDArray[np.int64], kinds: dict[str, tuple[str, str]], words: dict[str, Any]
) -> None:
    for name, (kind, dictionary) in kinds.items():
        if kind in "oq":
            continue
        attribute = "from_" if name == "from" else name
        values = list(map(attrgetter(attribute), rows))
        missing, places = values.count(UNSET), at
        if missing == len(values):
            continue
        if missing:
            places = at[[i for i, v in enumerate(values) if v is not UNSET]]
            values = [v for v in values if v is not UNSET]
        if kind == "v":
            for value in values:
                _shallow(value).decode()
            continue
        if kind == "r":
            table.raw[name] = (places, [_shallow(v) for v in values])
            continue
        if kind in "sj":
            code = words[dictionary].code
            values = list(map(code, map(_one_line, values) if kind == "j" else values))
        column = np.full(table.n, np.nan if kind in "ni" else -1, _DTYPES[kind])
        column[places] = values
        table.columns[name] = column


def _extras_py(table: Table, data: bytes, lines: bool, known: set[str]) -> None:
    kind: Any = dict[str, Raw]
    rows = _decoded(msgspec.json.Decoder(kind if lines else list[kind]), data, lines)
    unknown = [{name: value for name, value in item.items() if name not in known} for item in rows]
    table.extras |= extra_columns(table.n, range(table.n), unknown)


def extra_columns(n: int, rows: Iterable[int], maps: Iterable[Mapping[Any, Raw]]) -> dict[str, Text]:
    """Fields that nobody knows, by row, as one column of JSON a name."""
    by_name: dict[str, tuple[list[int], list[str]]] = {}
    for row, item in zip(rows, maps, strict=True):
        for name, value in item.items():
            places, texts = by_name.setdefault(name, ([], []))
            places.append(row)
            texts.append(_one_line(value))
    check_fields(len(by_name), n)
    columns = {}
    for name, (places, texts) in by_name.items():
        values = Text.of(texts)
        column = np.full(n, -1, np.int32)
        column[places] = values.codes
        columns[name] = Text(column, values.words)
    return columns


def check_fields(fields: int, n: int) -> None:
    """Raises if so many fields that are not in the schema are too many to keep as a column each."""
    if fields > MOST_FIELDS or fields * n > MOST_CELLS:
        raise Odd(
            f"{fields:,} different unknown fields or channels on {n:,} events; each is a column, which is too many"
        )


def _shallow(raw: Raw) -> bytes:
    text = bytes(raw)
    if is_deep(text):
        raise Odd(TOO_DEEP)
    return text


def _one_line(raw: Raw) -> str:
    text = _shallow(raw)
    return (msgspec.json.format(text, indent=-1) if b"\n" in text else text).decode()


def _decoded(decoder: Any, data: bytes, lines: bool) -> list[Any]:
    rows: list[Any] = decoder.decode_lines(data) if lines else decoder.decode(data)
    return rows


@cache
def _decoder(struct: type[msgspec.Struct], lines: bool, strict: bool = True) -> Any:
    """Of this struct with nested parts left raw; one that is not strict drops fields that it does not know."""
    nested = _raw(Extension, [name for name, (kind, _) in _EXTENSION.items() if kind in "rj"], strict=True)
    raw = _raw(struct, ["after", "also"], strict, podium=nested | UnsetType)
    return msgspec.json.Decoder(raw if lines else list[raw])  # type: ignore[valid-type]


def _raw(struct: type[msgspec.Struct], left: Iterable[str], strict: bool, **others: Any) -> Any:
    """The same struct with these fields left raw, and some of other types."""
    fields: list[tuple[str, Any, Any]] = []
    for f in msgspec.structs.fields(struct):
        kind = Raw | UnsetType if f.encode_name in left else others.get(f.name, f.type)
        options = {} if f.required else {"default": f.default}
        fields.append((f.name, kind, msgspec.field(name=f.encode_name, **options)))
    return msgspec.defstruct(struct.__name__, fields, forbid_unknown_fields=strict, kw_only=True, gc=False)
