"""The trace: one run or many, as numpy columns.

A suffix names the axis a column lives on: `_n` rollouts, `_a` agents, `_e` events, `_x` edges, `_k` tokens,
`_v` votes, `_o` options. Every axis is sorted by rollout. Inside a rollout a cause has a lower row than its effect,
and edges are sorted by the row they point to, so any recursion over a trace is one sweep.

What was not recorded is NaN in a column of floats and -1 in any other. A column in which nothing was recorded
takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.trace.vocabulary import TOPOLOGIES

__all__ = [
    "AXES",
    "COLUMNS",
    "OWNERS",
    "B",
    "Column",
    "F",
    "I",
    "Names",
    "Text",
    "Trace",
    "absent_column",
    "concat",
    "joined_columns",
    "ranges",
    "recorded",
    "take_rows",
]

F = NDArray[np.float64]
I = NDArray[np.signedinteger[Any]]
B = NDArray[np.bool_]

AXES: dict[str, str] = {
    "n": "rollouts",
    "a": "agents",
    "e": "events",
    "x": "edges",
    "k": "tokens",
    "v": "votes",
    "o": "options",
}
OWNERS = {"x": "dst_x", "k": "owner_k", "v": "event_v", "o": "event_o"}  # the events by which an axis is sorted
Kind = Literal["float", "int", "tri", "code", "row", "agent", "rollout", "text", "name", "floats", "texts"]
_DTYPES: dict[str, type[np.generic]] = {
    "float": np.float64,
    "int": np.int64,
    "tri": np.int8,
    "code": np.int8,
    "row": np.int32,
    "agent": np.int32,
    "rollout": np.int32,
}


def ranges(first: I, count: I) -> NDArray[np.int64]:
    """The whole numbers of each range, one range after the other.

    >>> ranges(np.array([0, 5]), np.array([2, 3])).tolist()
    [0, 1, 5, 6, 7]
    """
    ends = np.cumsum(count, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    whole: NDArray[np.int64] = np.arange(total) + np.repeat(first - (ends - count), count)
    return whole


class Text:
    """A column of strings, dictionary-encoded: `codes[i]` is a place in `words`, or -1 where there is none.

    >>> names = Text.of(["ann", None, "ann"])
    >>> names.codes.tolist(), list(names.words), names[0], names[1]
    ([0, -1, 0], ['ann'], 'ann', None)
    """

    __slots__ = ("codes", "words")

    def __init__(self, codes: I, words: Sequence[str]) -> None:
        self.codes = _frozen(np.asarray(codes, np.int32))
        self.words = words

    @staticmethod
    def of(strings: Iterable[str | None]) -> Text:
        strings = list(strings)
        words = tuple(word for word in dict.fromkeys(strings) if word is not None)
        codes: dict[str | None, int] = {None: -1, **dict(zip(words, range(len(words)), strict=True))}
        return Text(np.fromiter(map(codes.__getitem__, strings), np.int32, len(strings)), words)

    def __reduce__(self) -> tuple[Any, ...]:
        return Text, (self.codes, tuple(self.words))

    @staticmethod
    def constant(word: str | None, n: int) -> Text:
        """The same word, or none, in every row; takes no memory."""
        return Text(_constant("row" if word is None else "rollout", n), () if word is None else (word,))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.words[code]

    def strings(self) -> list[str | None]:
        words: list[str | None] = [*self.words, None]
        return [words[c] for c in self.codes.tolist()]

    def take(self, rows: I) -> Text:
        return Text(self.codes[rows], self.words)

    def code(self, word: str) -> int:
        """The code of a word, -2 (which no row has) if no row has it.

        >>> Text.of(["a", "b"]).code("b"), Text.of(["a"]).code("z")
        (1, -2)
        """
        return next((i for i, w in enumerate(self.words) if w == word), -2)

    def recoded(self, words: Sequence[str]) -> NDArray[np.int32]:
        """The codes these strings have among other words; -2 for a string that is not among them."""
        if self.words is words or not self.words:
            return self.codes
        return self._placed(dict(zip(words, range(len(words)), strict=True)))

    def _placed(self, place: Mapping[str, int]) -> NDArray[np.int32]:
        table = np.fromiter(map(place.get, self.words, repeat(-2)), np.int32, len(self.words))
        placed: NDArray[np.int32] = np.append(table, np.int32(-1))[self.codes]
        return placed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and np.array_equal(self.codes, other.recoded(self.words))

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def concat(parts: Sequence[Text]) -> Text:
        first = parts[0].words
        if all(p.words is first for p in parts):
            return Text(_joined([p.codes for p in parts]), first)
        place: dict[str, int] = {}
        for words in {id(p.words): p.words for p in parts}.values():
            for word in words:
                place.setdefault(word, len(place))
        return Text(np.concatenate([p._placed(place) for p in parts]), tuple(place))


class Names:
    """A column of ids. `prefix` + `number` spells an id, `prefix` alone where the number is -1.

    What Podium names itself ("w0.17") needs no string per row this way.

    >>> Names(Text.constant("w0.", 2), np.array([16, 17])).strings()
    ['w0.16', 'w0.17']
    """

    __slots__ = ("number", "prefix")

    def __init__(self, prefix: Text, number: I | None = None) -> None:
        self.prefix = prefix
        plain = np.broadcast_to(np.int64(-1), len(prefix)) if number is None else number
        self.number = _frozen(np.asarray(plain, np.int64))

    def __len__(self) -> int:
        return len(self.prefix)

    def __getitem__(self, row: int) -> str:
        number = int(self.number[row])
        return f"{self.prefix[row]}{number if number >= 0 else ''}"

    def strings(self) -> list[str]:
        return [
            f"{p}{n if n >= 0 else ''}" for p, n in zip(self.prefix.strings(), self.number.tolist(), strict=True)
        ]

    def take(self, rows: I) -> Names:
        return Names(self.prefix.take(rows), self.number[rows])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Names):
            return False
        same = np.array_equal(self.number, other.number) and self.prefix == other.prefix
        return same or self.strings() == other.strings()

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def concat(parts: Sequence[Names]) -> Names:
        return Names(Text.concat([p.prefix for p in parts]), _joined([p.number for p in parts]))


class Channels(Mapping[str, Any]):
    """Columns by name, that cannot be changed."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return repr(self._columns)


class Column(NamedTuple):
    """One column of a trace: its name, the axis it lives on and what its values are."""

    name: str
    axis: str
    kind: Kind


def _column(kind: Kind) -> Any:
    return field(metadata={"kind": kind})


class _Referred:
    """Lets a class with slots be referred to without being kept alive."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Trace(_Referred):
    """One run or many. Build it with `Trace.of`, which fills in what you leave out."""

    # rollouts: one row a run
    trace_id_n: Text = _column("text")
    task_id_n: Text = _column("text")
    system_n: Text = _column("text")
    topology_n: I = _column("code")
    group_n: Text = _column("text")  # runs of one task that are compared with each other
    batch_n: I = _column("int")
    parent_n: Text = _column("text")  # the trace this run branched from ...
    branch_n: I = _column("int")  # ... the row there at which it did ...
    do_n: Text = _column("text")  # ... and what was done there, as JSON: what, value
    harness_n: Text = _column("text")
    env_n: Text = _column("text")
    params_n: Text = _column("text")  # JSON
    seed_n: Text = _column("text")  # JSON
    clock_skew_n: F = _column("float")  # seconds by which clocks may disagree
    reward_n: Mapping[str, F] = _column("floats")
    cost_n: Mapping[str, F] = _column("floats")
    metric_n: Mapping[str, F] = _column("floats")
    measured_n: I = _column("tri")  # whether it states metrics, be there any or none
    tells_n: I = _column("tri")  # 0: what it earned is not what its own choices earn, because it explored
    cut_n: I = _column("int")  # the row at which the stretch of the task ended that its branch is paid for ...
    earned_n: F = _column("float")  # ... what it had earned there ...
    value_n: F = _column("float")  # ... and what is expected of the rest, by which it is bootstrapped

    # agents: everyone named in a run, whether or not they act
    rollout_a: I = _column("rollout")
    name_a: Text = _column("text")

    # events
    rollout_e: I = _column("rollout")
    id_e: Names = _column("name")
    position_e: I = _column("int")  # place in the file it was read from, -1 where that is its row
    t_e: F = _column("float")
    end_e: F = _column("float")
    type_e: I = _column("code")
    agent_e: I = _column("agent")
    from_e: I = _column("agent")
    to_e: I = _column("agent")
    role_e: Text = _column("text")
    tool_e: Text = _column("text")
    content_ref_e: Text = _column("text")
    trusted_e: I = _column("tri")
    valid_e: I = _column("tri")
    truncated_e: I = _column("tri")  # its cause lies outside the record
    tokens_in_e: F = _column("float")
    tokens_out_e: F = _column("float")
    cache_read_e: F = _column("float")  # tokens read from a cache, not among tokens_in
    cache_write_e: F = _column("float")  # tokens read and written to a cache, not among tokens_in
    cache_write_1h_e: F = _column("float")  # those of them that the cache keeps for an hour
    task_e: I = _column("int")  # which of the tasks that a run was given, from 0
    cost_e: F = _column("float")
    stage_e: I = _column("int")
    decision_e: I = _column("code")
    chosen_e: Text = _column("text")
    logp_e: F = _column("float")
    call_e: I = _column("int")  # which call of the policy decided it, of those that decided many at once
    chance_e: F = _column("float")  # how likely the decision was to be branched
    model_e: Text = _column("text")
    version_e: Text = _column("text")  # of the policy
    context_e: I = _column("row")  # the generation whose context this one extends
    start_e: I = _column("int")  # place of its first token in that context
    random_e: Text = _column("text")  # JSON: the random state a replay needs
    reward_e: Mapping[str, F] = _column("floats")
    extra_e: Mapping[str, Text] = _column("texts")  # JSON of fields Podium does not know

    # edges
    src_x: I = _column("row")
    dst_x: I = _column("row")
    type_x: I = _column("code")
    inferred_x: I = _column("tri")
    rule_x: Text = _column("text")  # by which rule it was inferred

    # tokens, each owned by one generation
    owner_k: I = _column("row")
    token_k: I = _column("int")
    logp_k: F = _column("float")
    mask_k: I = _column("tri")  # 1: sampled by the policy, 0: given to it

    # votes that an aggregate combined
    event_v: I = _column("row")
    source_v: I = _column("row")
    value_v: Text = _column("text")
    weight_v: F = _column("float")

    # options that a decision had, in their order
    event_o: I = _column("row")
    label_o: Text = _column("text")
    number_o: I = _column("int")  # what the source calls it, where that is a number
    item_o: I = _column("int")  # the item of the observation that it is about
    logp_o: F = _column("float")  # under the policy, exact
    behaviour_o: F = _column("float")  # under the policy that acted, among the options that were tried there

    @staticmethod
    def of(**given: Any) -> Trace:
        """A trace of these columns; those left out are absent. An axis is as long as its columns are.

        >>> Trace.of(trace_id_n=Text.of(["run"]), t_e=np.array([0.0, 1.0]))
        Trace(1 rollout, 2 events, 0 edges, 0 agents)
        """
        length = dict.fromkeys(AXES, 0)
        given = {name: values for name, values in given.items() if values is not None}
        for name, values in given.items():
            for part in values.values() if isinstance(values, Mapping) else (values,):
                length[name[-1]] = len(part)
        columns: dict[str, Any] = {}
        absent: dict[tuple[str, str], Any] = {}  # one for all columns of a kind on an axis: it cannot be changed
        for name, axis, kind in COLUMNS:
            values = given.pop(name, None)
            values = absent.get((kind, axis)) if values is None else _coerced(kind, values)
            if values is None:
                values = absent[kind, axis] = absent_column(kind, length[axis])
            if kind not in ("floats", "texts") and len(values) != length[axis]:
                raise ValueError(f"{name} has {len(values)} rows, {AXES[axis]} has {length[axis]}")
            columns[name] = values
        if given:
            raise TypeError(f"a trace has no column {', '.join(sorted(given))}")
        return Trace(**columns)

    @property
    def n_events(self) -> int:
        return len(self.t_e)

    @property
    def n_edges(self) -> int:
        return len(self.src_x)

    @property
    def n_agents(self) -> int:
        return len(self.rollout_a)

    def __len__(self) -> int:
        return len(self.trace_id_n)

    def __iter__(self) -> Iterator[Trace]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, rollouts: int | slice | I | list[int]) -> Trace:
        """These rollouts, in this order, as a trace of their own."""
        if isinstance(rollouts, (int, np.integer)):
            if not -len(self) <= rollouts < len(self):
                raise IndexError(f"there are {len(self)} rollouts, not one numbered {rollouts}")
            rollouts = [int(rollouts)]
        return _take(self, np.arange(len(self), dtype=np.int64)[rollouts])

    def rollout_of(self, axis: str) -> I:
        """For each row of an axis, the rollout it belongs to."""
        if axis not in AXES:
            raise ValueError(f"no axis {axis!r}; there are {', '.join(AXES)}")
        if axis in OWNERS:
            of: I = self.rollout_e[getattr(self, OWNERS[axis])]
            return of
        return {"n": np.arange(len(self)), "a": self.rollout_a, "e": self.rollout_e}[axis]

    def first_of(self, axis: str) -> NDArray[np.int64]:
        """Where each rollout begins on an axis, and at the end the length of that axis."""
        return np.searchsorted(self.rollout_of(axis), np.arange(len(self) + 1))

    def options_of(self, rows: I) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the options of these events begin on the axis `_o`, and how many each has."""
        first = np.searchsorted(self.event_o, rows)
        return first, np.searchsorted(self.event_o, rows, side="right") - first

    def options(self, row: int) -> list[str]:
        """The labels of the options of one event, in their order; none if it states none."""
        (first,), (many,) = self.options_of(np.array([row]))
        return [str(word) for word in self.label_o.take(np.arange(first, first + many)).strings()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and not differences(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = {AXES[axis]: len(_axis(self, axis)) for axis in ("nexak" if len(self.token_k) else "nexa")}
        return f"Trace({', '.join(f'{n} {what if n != 1 else what[:-1]}' for what, n in counts.items())})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from podium.registry import find

        return str(find("viewer", "inline")(self))

    def topology(self, rollout: int = 0) -> str | None:
        code = int(self.topology_n[rollout])
        return None if code < 0 else TOPOLOGIES[code]


COLUMNS: tuple[Column, ...] = tuple(Column(f.name, f.name[-1], f.metadata["kind"]) for f in fields(Trace))
_LENGTH = {axis: name for name, axis, kind in reversed(COLUMNS) if kind not in ("floats", "texts")}  # as long as it


def concat(traces: Sequence[Trace]) -> Trace:
    """The rollouts of all of them, one after the other: a batch is a longer trace."""
    if not traces:
        return Trace.of()
    if len(traces) == 1:
        return traces[0]
    lengths = {axis: [len(_axis(t, axis)) for t in traces] for axis in AXES}
    shift = {axis: np.cumsum([0, *lengths[axis][:-1]]) for axis in AXES}
    points = {"row": "e", "agent": "a", "rollout": "n"}
    columns: dict[str, Any] = {}
    for name, axis, kind in COLUMNS:
        parts = [getattr(t, name) for t in traces]
        if kind in points:
            by = shift[points[kind]]
            parts = [p if s == 0 else np.where(p < 0, p, p + s) for p, s in zip(parts, by, strict=True)]
        columns[name] = joined_columns(kind, parts, lengths[axis])
    return Trace.of(**columns)


def differences(a: Trace, b: Trace) -> list[str]:
    """The names of the columns in which two traces differ; a length that differs comes first, alone."""
    if lengths := [AXES[x] for x in AXES if len(_axis(a, x)) != len(_axis(b, x))]:
        return lengths
    return [c.name for c in COLUMNS if not _same(getattr(a, c.name), getattr(b, c.name))]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping):
        names = {k for m in (a, b) for k, v in m.items() if not _is_absent(v)}
        return all(k in a and k in b and _same(a[k], b[k]) for k in names)
    if isinstance(a, (Text, Names)):
        return bool(a == b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _is_absent(values: F | Text) -> bool:
    return not recorded(values).any()


def recorded(values: NDArray[Any] | Text) -> B:
    """The rows of a column in which something is recorded."""
    if isinstance(values, Text):
        values = values.codes
    there: B = ~np.isnan(values) if values.dtype.kind == "f" else values >= 0
    return there


def _axis(trace: Trace, axis: str) -> Any:
    """Any column that is as long as its axis."""
    return getattr(trace, _LENGTH[axis])


def take_rows(values: Any, rows: I) -> Any:
    """These rows of a column of any kind."""
    if isinstance(values, Mapping):
        return {name: take_rows(column, rows) for name, column in values.items()}
    return values.take(rows) if isinstance(values, Text | Names) else values[rows]


def _take(trace: Trace, rollouts: NDArray[np.int64]) -> Trace:
    rows, place = {}, {}
    for axis in AXES:
        first = trace.first_of(axis)
        rows[axis] = ranges(first[rollouts], np.diff(first)[rollouts])
    for kind, axis in (("row", "e"), ("agent", "a"), ("rollout", "n")):
        table = np.full(len(_axis(trace, axis)) + 1, -1, np.int32)
        table[rows[axis]] = np.arange(len(rows[axis]))
        place[kind] = table  # its last entry serves -1, absent
    columns: dict[str, Any] = {}
    for name, axis, kind in COLUMNS:
        values = take_rows(getattr(trace, name), rows[axis])
        columns[name] = place[kind][values] if kind in place else values
    if len(np.unique(rollouts)) != len(rollouts):
        raise ValueError("a rollout may be taken once; concat traces to repeat one")
    return Trace.of(**columns)


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    if values.flags.writeable:
        values = values.view()
        values.flags.writeable = False
    return values


def _coerced(kind: str, values: Any) -> Any:
    if kind in _DTYPES:
        return _frozen(np.asarray(values, _DTYPES[kind]))
    if kind == "floats":
        return Channels({k: _frozen(np.asarray(v, np.float64)) for k, v in values.items()})
    return Channels(values) if kind == "texts" else values


def absent_column(kind: str, n: int) -> Any:
    """A column of this kind in which nothing is recorded; it takes no memory."""
    match kind:
        case "text":
            return Text.constant(None, n)
        case "name":
            return Names(Text.constant("", n), np.arange(n))
        case "floats" | "texts":
            return Channels({})
        case _:
            return _constant(kind, n)


_CELLS = {  # what stands in every row of an absent column
    kind: dtype(np.nan if kind == "float" else 0 if kind == "rollout" else -1).tobytes()
    for kind, dtype in _DTYPES.items()
}


def _constant(kind: str, n: int) -> NDArray[Any]:
    """As np.broadcast_to, in a tenth of the time."""
    return np.ndarray(n, _DTYPES[kind], _CELLS[kind], strides=(0,))


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenation that keeps a constant column free of memory."""
    flat = [p for p in parts if len(p)]
    if flat and all(p.strides == (0,) for p in flat):
        value = flat[0][0]
        if all(p[0] == value or (p[0] != p[0] and value != value) for p in flat):
            return np.broadcast_to(value, sum(map(len, flat)))
    return np.concatenate(parts)


def joined_columns(kind: str, parts: list[Any], lengths: list[int]) -> Any:
    """One column from parts of it; None where nothing is recorded, in so many rows."""
    parts = [absent_column(kind, n) if p is None else p for p, n in zip(parts, lengths, strict=True)]
    if kind in ("floats", "texts"):
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: joined_columns(kind[:-1], [part.get(name) for part in parts], lengths) for name in names}
    if kind == "text":
        return Text.concat(parts)
    return Names.concat(parts) if kind == "name" else _joined(parts)
