"""Rows as trainers have them, and the trace of them.

A row is what one agent generated in one turn of one rollout. Without the field `edges` the rows of a rollout are
messages, turn after turn, and between two turns stands a message of nobody, the input. With `edges` each row is an
event, in order, and states its causes: that is how `rows_of_trace` writes any trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.credit import BadCredit
from podium.credit.forest import copies, parents
from podium.graph.grouping import count_of
from podium.trace.columns import COLUMNS, Text, Trace, ranges, recorded, take_rows
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, TOPOLOGIES, edge, event

__all__ = [
    "BadBatch",
    "Batch",
    "Rows",
    "check_mask",
    "columns_of",
    "flat_mask",
    "lengths_of",
    "listed",
    "numbers",
    "rows_of_trace",
    "trace_of_rows",
]

N64 = NDArray[np.int64]
Batch = Mapping[str, Any] | Sequence[Mapping[str, Any]] | Any  # or a data frame, a data set, a DataProto
MESSAGE, CAUSAL = event("message"), edge("causal")
OWN = (
    "task rollout reward agent to from turn parent branch length mask tokens prompt logp edges votes options"
).split()
CODES = {"type": EVENT_TYPES, "decision": DECISIONS, "topology": TOPOLOGIES}
EVENT = {
    c.name[:-2]: c.kind for c in COLUMNS if c.axis == "e" and c.kind in ("float", "text", "int", "tri", "code")
}
RUN = {c.name[:-2]: c.kind for c in COLUMNS if c.axis == "n" and c.kind in ("float", "text", "int", "tri", "code")}
ABSENT = {"float": np.nan, "int": -1, "tri": -1, "code": -1}
_OPTION_FIELDS = {"options_logp": "logp_o", "options_behaviour": "behaviour_o"}


class BadBatch(BadCredit):
    """Rows that cannot be paid; says which row and field."""


class Rows(NamedTuple):
    """The trace of a batch, and the event of each of its rows."""

    trace: Trace
    event: N64


@dataclass(frozen=True)
class _Layout:
    """Which row stands where in the trace. A run that branched repeats rows of its parent before its own."""

    run_p: N64  # of each place its run
    row_p: N64  # ... and its row of the batch
    shared_n: N64  # how many places each run repeats
    parent_n: N64  # the run that each run branched from, -1 for none


# what comes in


def columns_of(batch: Batch, fields: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The batch as columns of one length. `fields` says what the batch calls ours: {"task": "uid"}."""
    if isinstance(batch, Mapping):
        table = dict(batch)
    elif isinstance(batch, Sequence):
        table = _of_dicts(batch)
    elif hasattr(batch, "non_tensor_batch"):  # verl's DataProto
        tensors = {} if batch.batch is None else dict(batch.batch.items())
        table = {**tensors, **batch.non_tensor_batch}
    elif (names := getattr(batch, "column_names", getattr(batch, "columns", None))) is not None:
        table = {str(name): batch[name] for name in names}  # a Hugging Face data set or a data frame
    else:
        raise BadBatch(f"expected a dict of columns, a list of dicts or a data set, got {type(batch).__name__}")
    for ours, theirs in (fields or {}).items():
        if theirs not in table:
            raise BadBatch(f"the batch has no field {theirs!r} ({ours}); it has {', '.join(table) or 'none'}")
        table[ours] = table.pop(theirs)
    if missing := [name for name in ("task", "reward") if name not in table]:
        raise BadBatch(f"the batch has no field {missing[0]!r}; it has {', '.join(table) or 'none'}")
    n = len(table["task"])
    table.setdefault("rollout", range(n))
    for name, column in table.items():
        if len(column) != n:
            raise BadBatch(f"the field {name!r} has {len(column)} rows, task has {n}")
    return {name: _plain(column) for name, column in table.items()}


def _of_dicts(batch: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in batch for name in row)
    for i, row in enumerate(batch):
        if missing := [name for name in names if name not in row]:
            raise BadBatch(f"row {i} has no field {missing[0]!r}; other rows have it")
    return {name: [row[name] for row in batch] for name in names}


def _plain(column: Any) -> Any:
    """A tensor as an array; a list of tensors as a list of arrays."""
    if hasattr(column, "detach"):
        column = column.detach().cpu()
        return (column.float() if column.is_floating_point() else column).numpy()
    if isinstance(column, Sequence) and len(column) and hasattr(column[0], "detach"):
        return [_plain(one) for one in column]
    return column


def listed(values: Any) -> list[Any]:
    """A column as a list of Python's own values."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def numbers(field: str, values: Any) -> NDArray[np.float64]:
    """A column of numbers; the row that has none is named. None is NaN."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    column = np.empty(len(values))
    for i, value in enumerate(listed(values)):
        try:
            column[i] = np.nan if value is None else float(value)
        except (TypeError, ValueError):
            raise BadBatch(f"row {i}, {field}: expected a number, got {value!r}") from None
    return column


# rows to a trace


def trace_of_rows(batch: Batch, tokens: bool = True, counts: bool = True) -> Rows:
    """The rows as a trace; with `tokens` also the tokens of each row, else with `counts` how many were sampled."""
    table = columns_of(batch)
    n = len(table["task"])
    runs, run = _numbered(table["rollout"])
    check_one_per_run(table, run)
    agents, agent = ["agent"], np.zeros(n, np.int64)
    if "agent" in table:
        agents, agent = _numbered([str(a) for a in listed(table["agent"])])
    turn = numbers("turn", table["turn"]) if "turn" in table else None
    if "edges" not in table and turn is not None:
        _check_turns(run, agent, turn)
    elif "edges" not in table and "tokens" in table:
        _check_repeats(table, run, agent)
    layout = _layout(table, runs, run, turn)
    steps = "edges" not in table  # rows of turns, between which stand inputs
    level = _levels(layout, turn) if steps else np.arange(len(layout.row_p))
    opens = np.zeros(len(level), np.bool_)
    if steps:
        opens[1:] = (np.diff(level) > 0) & (np.diff(layout.run_p) == 0)
    at = np.arange(len(level)) + np.cumsum(opens)  # the event of each place; before a turn stands its input
    many = len(level) + int(opens.sum())
    place_e, is_row = np.zeros(many, np.int64), np.zeros(many, np.bool_)
    place_e[at], is_row[at] = np.arange(len(level)), True
    place_e[at[opens] - 1] = np.flatnonzero(opens)  # an input is of the run, and just before the time, of its turn
    run_e, row_e = layout.run_p[place_e], np.where(is_row, layout.row_p[place_e], n)
    own = ~_repeated(layout)
    event_of = np.empty(n, np.int64)
    event_of[layout.row_p[own]] = at[own]
    times: dict[str, Any] = {"t_e": level[place_e] - np.where(is_row, 0.0, 0.5)} if steps else {}
    columns = times | {
        "trace_id_n": _words(runs, np.arange(len(runs))),
        **_run_columns(table, run, layout, at),
        "rollout_e": run_e,
        **_cast(table, agents, agent, run_e, row_e),
        **_event_columns(table, row_e),
        **(_inferred_edges(is_row, run_e) if steps else _stated_edges(table, layout)),
        **_lists(table, at, layout),
        **_token_columns(table, row_e, at, layout, tokens, counts),
    }
    return Rows(Trace.of(**columns), event_of)


def _numbered(values: Any) -> tuple[list[Any], N64]:
    """The different values in the order in which they come, and the number of each."""
    if isinstance(values, range) and values == range(len(values)):
        return list(values), np.arange(len(values))
    number: dict[Any, int] = {}
    codes = np.array([number.setdefault(v, len(number)) for v in listed(values)], np.int64)
    return list(number), codes


def _words(values: list[Any], codes: N64) -> Text:
    words = [str(value) for value in values]
    return Text(codes, words) if len(set(words)) == len(words) else Text.of(words[c] for c in codes.tolist())


def check_one_per_run(table: Mapping[str, Any], run: N64) -> None:
    """Rows of one rollout must agree in what is the rollout's."""
    shared = [name for name in table if name in ("task", "reward", "parent", "branch") or name.startswith("run.")]
    first_n = np.full(count_of(run), len(run))
    np.minimum.at(first_n, run, np.arange(len(run)))
    if len(first_n) == len(run):
        return
    first, names = first_n[run].tolist(), table["rollout"]
    for field in shared:
        values = listed(table[field])
        for i, j in enumerate(first):
            a, b = values[i], values[j]
            if a != b and not (a != a and b != b):
                raise BadBatch(f"row {i}, {field}: {a!r}, but row {j} of the same rollout {names[i]!r} has {b!r}")


def _check_turns(run: N64, agent: N64, turn: NDArray[np.float64]) -> None:
    key = np.stack([run, agent, turn], 1)
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[group.ravel()] != np.arange(len(run)))
    if len(again):
        i = int(again[0])
        j = int(first[group.ravel()[i]])
        raise BadBatch(f"row {i}, turn: {turn[i]:g}, which row {j} of the same rollout and agent has too")


def _check_repeats(table: Mapping[str, Any], run: N64, agent: N64) -> None:
    """Without turns, a row with the tokens of another of its rollout and agent may be that row again."""
    first: dict[Any, int] = {}
    for i, ids in enumerate(table["tokens"]):
        key = int(run[i]), int(agent[i]), np.asarray(ids).tobytes()
        if (j := first.setdefault(key, i)) != i:
            raise BadBatch(
                f"row {i}, tokens: those of row {j} of the same rollout and agent; if another turn, state turn"
            )


def _layout(table: Mapping[str, Any], runs: list[Any], run: N64, turn: NDArray[np.float64] | None) -> _Layout:
    """Every run's rows in order, behind those that it shares with the run that it branched from."""
    n, many = len(run), len(runs)
    order = np.lexsort((np.arange(n), np.arange(n) if turn is None or "edges" in table else turn, run))
    parent_n, shared_n = np.full(many, -1), np.zeros(many, np.int64)
    named = listed(table["parent"]) if "parent" in table else [None] * n
    if all(p is None for p in named):
        return _Layout(run[order], order, shared_n, parent_n)
    number = {name: r for r, name in enumerate(runs)}
    own = np.split(order, np.flatnonzero(np.diff(run[order])) + 1)
    rows: dict[int, N64] = {}
    for r in _parents_first(named, number, own, parent_n):
        mine, up = own[r], rows.get(int(parent_n[r]))
        if up is None:
            rows[r] = mine
            continue
        first = int(mine[0])
        if "branch" in table and table["branch"][first] is not None:
            shared = int(_whole("branch", table["branch"][first], first, len(up)))
        elif turn is not None:
            shared = int((turn[up] < turn[first]).sum())
        else:
            raise BadBatch(
                f"row {first}, parent: the rollout branched, so the batch needs the field branch or turn"
            )
        if turn is not None and "edges" not in table and shared and turn[up[:shared]].max() >= turn[first]:
            raise BadBatch(
                f"row {first}, turn: {turn[first]:g}, which its parent {named[first]!r} has before the branch"
            )
        rows[r], shared_n[r] = np.concatenate([up[:shared], mine]), shared
    lengths = [len(rows[r]) for r in range(many)]
    return _Layout(
        np.repeat(np.arange(many), lengths), np.concatenate([rows[r] for r in range(many)]), shared_n, parent_n
    )


def _parents_first(named: list[Any], number: Mapping[Any, int], own: list[N64], parent_n: N64) -> Iterable[int]:
    """The runs, each after the one it branched from."""
    for r, rows in enumerate(own):
        name, i = named[int(rows[0])], int(rows[0])
        if name is not None and number.get(name, r) == r:
            what = "itself" if name in number else "no rollout of the batch"
            raise BadBatch(f"row {i}, parent: {name!r} is {what}")
        parent_n[r] = -1 if name is None else number[name]
    depth = np.zeros(len(own), np.int64)
    for _ in range(len(own) + 1):
        deeper = np.where(parent_n >= 0, depth[parent_n] + 1, 0)
        if (deeper == depth).all():
            return np.argsort(depth, kind="stable").tolist()  # type: ignore[no-any-return]
        depth = deeper
    i = int(own[int(np.argmax(depth))][0])
    raise BadBatch(f"row {i}, parent: rollouts branch from each other in a circle")


def _whole(field: str, value: Any, row: int, most: int) -> int:
    number = numbers(field, [value])[0]
    if not 0 <= number <= most or number != int(number):
        raise BadBatch(f"row {row}, {field}: expected a number of its parent's {most} rows, got {value!r}")
    return int(number)


def _levels(layout: _Layout, turn: NDArray[np.float64] | None) -> N64:
    """For each place its turn in its run, 0, 1, ..."""
    run = layout.run_p
    new = np.ones(len(run), np.bool_)
    if turn is not None and len(run):
        new[1:] = (np.diff(turn[layout.row_p]) != 0) | (np.diff(run) != 0)
    number = np.cumsum(new)
    return number - number[np.searchsorted(run, run)]


def _repeated(layout: _Layout) -> NDArray[np.bool_]:
    """Whether a place repeats one of the parent's."""
    first = np.searchsorted(layout.run_p, np.arange(len(layout.shared_n)))
    repeats: NDArray[np.bool_] = np.arange(len(layout.run_p)) - first[layout.run_p] < layout.shared_n[layout.run_p]
    return repeats


def _inferred_edges(is_row: NDArray[np.bool_], run_e: N64) -> dict[str, Any]:
    """From the rows of a turn to the input of the next, and from an input to the rows of its turn."""
    every = np.arange(len(is_row))
    before = np.maximum.accumulate(np.where(is_row, -1, every)) if len(every) else every  # the input of each row
    after = np.full(len(every), len(every))
    after[:-1] = np.where(is_row, len(every), every)[1:]
    after = np.minimum.accumulate(after[::-1])[::-1] if len(every) else every  # the next input
    hears = is_row & (before >= 0)
    hears[hears] = run_e[before[hears]] == run_e[hears]
    tells = is_row & (after < len(every))
    tells[tells] = run_e[after[tells]] == run_e[tells]
    src, dst = np.r_[before[hears], every[tells]], np.r_[every[hears], after[tells]]
    order = np.lexsort((src, dst))
    return {"src_x": src[order], "dst_x": dst[order], "type_x": np.full(len(src), CAUSAL)}


def _finder(layout: _Layout) -> Callable[[N64, N64], N64]:
    """Where a row stands in a run; -1 where it does not. Without inputs, places are events."""
    n = count_of(layout.row_p) + 1
    key = layout.run_p * n + layout.row_p
    order = np.argsort(key, kind="stable")

    def place(run: N64, row: N64) -> N64:
        at = np.minimum(np.searchsorted(key[order], run * n + row), max(len(key) - 1, 0))
        return np.where((row < n) & (key[order][at] == run * n + row), order[at], -1) if len(key) else at

    return place


def _stated_edges(table: Mapping[str, Any], layout: _Layout) -> dict[str, Any]:
    """The causes that the rows state: numbers of rows, alone or with the type of the edge."""
    causes: list[tuple[int, int, int]] = []
    n = len(table["task"])
    for i, some in enumerate(table["edges"]):
        for one in some or ():
            row, kind = (one, "causal") if isinstance(one, int | np.integer) else one
            if kind not in EDGE_TYPES:
                raise BadBatch(f"row {i}, edges: no edge {kind!r}; there are {', '.join(EDGE_TYPES)}")
            if not 0 <= row < n:
                raise BadBatch(f"row {i}, edges: there is no row {row}")
            causes.append((i, int(row), EDGE_TYPES.index(kind)))
    of, row, kinds = np.array(causes, np.int64).reshape(-1, 3).T
    first, many = _spread(of, layout.row_p, n)
    dst = np.repeat(np.arange(len(layout.row_p)), many)
    src = _finder(layout)(layout.run_p[dst], row[first])
    if len(wrong := np.flatnonzero((src < 0) | (src >= dst))):
        i, j = int(layout.row_p[dst[wrong[0]]]), int(row[first[wrong[0]]])
        raise BadBatch(f"row {i}, edges: row {j} is not before it in the same rollout")
    return {"src_x": src, "dst_x": dst, "type_x": kinds[first]}


def _spread(of: N64, row_p: N64, n: int) -> tuple[N64, N64]:
    """Of entries that belong to rows, in the order of rows: those of each place, one place after the other."""
    start = np.searchsorted(of, np.arange(n + 1))
    many = np.diff(start)[row_p]
    return ranges(start[row_p], many), many


def _run_columns(table: Mapping[str, Any], run: N64, layout: _Layout, at: N64) -> dict[str, Any]:
    """The columns of rollouts: task, rewards, parents and whatever is called `run.NAME`."""
    many = len(layout.shared_n)
    one_of = np.empty(many, np.int64)
    one_of[run[::-1]] = np.arange(len(run))[::-1]  # the first row of each run
    columns: dict[str, Any] = {"task_id_n": _words(*_numbered(np.asarray(listed(table["task"]), object)[one_of]))}
    rewards = {"team": numbers("reward", table["reward"])[one_of]}
    costs: dict[str, Any] = {}
    for name in (name for name in table if name.startswith("run.")):
        what = name[4:]
        if what in RUN:
            columns[f"{what}_n"] = _typed(name, RUN[what], table[name], one_of)
        elif what.startswith("cost."):
            costs[what[5:]] = numbers(name, table[name])[one_of]
        else:
            rewards[what] = numbers(name, table[name])[one_of]
    if (layout.parent_n >= 0).any():
        first = np.searchsorted(layout.run_p, np.arange(many))
        start = np.minimum(first + layout.shared_n, len(at) - 1)
        beyond = layout.shared_n >= np.diff(np.append(first, len(at)))[layout.parent_n]  # the parent had ended
        alone = beyond & (layout.shared_n > 0) & (at[start] - at[start - 1] > 1)  # the input, then, is the branch's
        branch = at[start] - at[first] - alone
        names = listed(table["parent"])
        columns["parent_n"] = Text.of(None if names[i] is None else str(names[i]) for i in one_of.tolist())
        columns["branch_n"] = np.where(layout.parent_n >= 0, branch, -1)
    return columns | {"reward_n": rewards, "cost_n": costs}


def _typed(name: str, kind: str, values: Any, rows: N64) -> Any:
    """Some rows of a field as a column of its kind; row n, beyond the last, is absent."""
    if kind == "text":
        return Text.of([None if v is None else str(v) for v in listed(values)] + [None]).take(rows)
    if kind == "code":
        words = CODES[name.removeprefix("run.")]
        column = np.full(len(values) + 1, -1)
        for i, v in enumerate(listed(values)):
            if v is not None and v not in words:
                raise BadBatch(f"row {i}, {name}: expected one of {', '.join(words)}, got {v!r}")
            column[i] = -1 if v is None else words.index(v)
        return column[rows]
    column = np.append(numbers(name, values), np.nan)[rows]
    return column if kind == "float" else np.where(np.isnan(column), -1, column).astype(np.int64)


def _cast(table: Mapping[str, Any], agents: list[str], agent: N64, run_e: N64, row_e: N64) -> dict[str, Any]:
    """Who acts and is named in each run. An input is nobody's."""
    names = {name: i for i, name in enumerate(agents)}
    codes = {"agent_e": agent}
    for field in ("from", "to"):
        if field in table:
            some = [None if w is None else str(w) for w in listed(table[field])]
            codes[f"{field}_e"] = np.array(
                [-1 if w is None else names.setdefault(w, len(names)) for w in some], np.int64
            )
    size = max(len(names), 1)
    keys = {name: np.append(code, -1)[row_e] for name, code in codes.items()}
    keys = {name: np.where(code >= 0, run_e * size + code, -1) for name, code in keys.items()}
    cast = np.unique(np.concatenate(list(keys.values())))
    cast = cast[cast >= 0]
    who = {name: np.where(key >= 0, np.searchsorted(cast, key), -1) for name, key in keys.items()}
    return {"rollout_a": cast // size, "name_a": Text(cast % size, tuple(names)), **who}


def _event_columns(table: Mapping[str, Any], row_e: N64) -> dict[str, Any]:
    """The columns of events that the rows state; any other name is a reward if it is all numbers, else a label."""
    columns: dict[str, Any] = {}
    rewards: dict[str, Any] = {}
    labels: dict[str, Text] = {}
    for name, values in table.items():
        if name in OWN or name.startswith("run.") or name in _OPTION_FIELDS:
            continue
        if name in EVENT:
            columns[f"{name}_e"] = _typed(name, EVENT[name], values, row_e)
            continue
        kind, _, what = name.partition(".") if name.startswith(("reward.", "label.")) else ("", "", name)
        plain = listed(values)
        if kind != "label" and all(v is None or (isinstance(v, int | float) and v is not True) for v in plain):
            rewards[what] = np.append(numbers(name, plain), np.nan)[row_e]
        else:
            words = [None if v is None else msgspec.json.encode(v).decode() for v in plain]
            labels[what] = Text.of([*words, None]).take(row_e)
    if "type" not in table:
        columns["type_e"] = np.full(len(row_e), MESSAGE)
    return columns | {"reward_e": rewards, "extra_e": labels}


def _lists(table: Mapping[str, Any], at: N64, layout: _Layout) -> dict[str, Any]:
    """The votes and options that rows state."""
    columns: dict[str, Any] = {}
    n = len(table["task"])
    if "options" in table:
        some = [list(one or ()) for one in table["options"]]
        of = np.repeat(np.arange(n), [len(one) for one in some])
        first, many = _spread(of, layout.row_p, n)
        columns["event_o"] = np.repeat(at, many)
        columns["label_o"] = Text.of(str(word) for one in some for word in one).take(first)
        for field, column in _OPTION_FIELDS.items():
            if field in table:
                for i, (one, values) in enumerate(zip(some, table[field], strict=True)):
                    if len(one) != len(values or ()):
                        raise BadBatch(f"row {i}, {field}: {len(values or ())} numbers for {len(one)} options")
                flat = [v for values in table[field] for v in values or ()]
                columns[column] = numbers(field, flat)[first]
    if "votes" in table:
        votes = [(i, *vote, 1.0)[:4] for i, one in enumerate(table["votes"]) for vote in one or ()]
        of = np.array([i for i, *_ in votes], np.int64)
        first, many = _spread(of, layout.row_p, n)
        event_v = np.repeat(np.arange(len(at)), many)
        source = _finder(layout)(layout.run_p[event_v], np.array([s for _, s, *_ in votes], np.int64)[first])
        if len(wrong := np.flatnonzero(source < 0)):
            raise BadBatch(f"row {layout.row_p[event_v[wrong[0]]]}, votes: not of a row of the same rollout")
        columns |= {"event_v": at[event_v], "source_v": at[source]}
        columns["value_v"] = Text.of(None if v is None else str(v) for _, _, v, _ in votes).take(first)
        columns["weight_v"] = np.array([w for *_, w in votes], np.float64)[first]
    return columns


def _token_columns(
    table: Mapping[str, Any], row_e: N64, at: N64, layout: _Layout, tokens: bool, counts: bool
) -> dict[str, Any]:
    """How many tokens each event wrote and, if they are asked for, each of them."""
    lengths = lengths_of(table)
    columns: dict[str, Any] = {}
    if "tokens_out" not in table and (tokens or counts):
        sampled = _sampled(table, lengths)
        columns["tokens_out_e"] = np.append(sampled.astype(np.float64), np.nan)[row_e]
    if not tokens:
        return columns
    first = np.cumsum(lengths) - lengths
    many = lengths[layout.row_p]
    place = ranges(first[layout.row_p], many)
    ids = np.zeros(len(place), np.int64)
    if "tokens" in table:
        flat = [np.asarray(one, np.int64).ravel() for one in table["tokens"]]
        ids = np.concatenate([np.zeros(0, np.int64), *flat])[place]
    columns |= {"owner_k": np.repeat(at, many), "token_k": ids}
    columns["mask_k"] = flat_mask(table, lengths)[place]
    if "logp" in table and len(table["logp"]) and hasattr(table["logp"][0], "__len__"):
        parts = [np.asarray(one, np.float64).ravel() for one in table["logp"]]
        if wrong := [i for i, one in enumerate(parts) if len(one) != lengths[i]]:
            raise BadBatch(f"row {wrong[0]}, logp: {len(parts[wrong[0]])} of them for {lengths[wrong[0]]} tokens")
        columns["logp_k"] = np.concatenate([np.zeros(0), *parts])[place]
    elif "logp" in table:
        columns["logp_e"] = np.append(numbers("logp", table["logp"]), np.nan)[row_e]
    return columns


def lengths_of(table: Mapping[str, Any]) -> N64:
    """How many tokens each row has."""
    n = len(table["task"])
    if "mask" in table:
        mask = table["mask"]
        flat = isinstance(mask, np.ndarray) and mask.ndim == 2
        lengths = np.full(n, mask.shape[1], np.int64) if flat else np.array([len(one) for one in mask], np.int64)
        _check_prompts(table, mask, lengths)
    elif "length" not in table and "tokens" in table:
        lengths = np.array([len(one) for one in table["tokens"]], np.int64)
    else:
        lengths = numbers("length", table.get("length", [1] * n)).astype(np.int64)
        for i in np.flatnonzero(lengths < 0)[:1].tolist():
            raise BadBatch(f"row {i}, length: expected 0 or more, got {lengths[i]}")
    for i, ids in enumerate(table.get("tokens", ())):
        if len(ids) != lengths[i]:
            raise BadBatch(f"row {i}, tokens: {len(ids)} of them, its mask or length says {lengths[i]}")
    return lengths


def _sampled(table: Mapping[str, Any], lengths: N64) -> N64:
    """How many tokens of each row the policy sampled."""
    if "mask" not in table:
        return lengths
    counts = np.empty(len(lengths), np.int64)
    for i, one in enumerate(table["mask"]):
        check_mask(np.asarray(one), i)
        counts[i] = np.count_nonzero(one)
    return counts


def check_mask(mask: NDArray[Any], row: int) -> None:
    """Refuses what is neither 0 nor 1. `mask` is of one row, or of several from that row on.

    Of whole numbers no bit but the last may be set. Of others no bit that 1 has not; such fractions are below 1, so
    that of them Σm² < Σm.
    """
    flat = np.ascontiguousarray(mask).reshape(-1)
    if flat.dtype.kind in "iu":
        fine = bool(np.bitwise_or.reduce(flat) in (0, 1))
    elif flat.dtype.kind == "f":
        bits = flat.view(f"u{flat.dtype.itemsize}")
        one = np.ones(1, flat.dtype).view(bits.dtype)[0]
        fine = bool(not np.bitwise_or.reduce(bits) & ~one and flat @ flat == flat @ np.ones_like(flat))
    else:
        fine = flat.dtype == np.bool_
    if not fine:
        wrong = int(np.flatnonzero((flat != 0) & (flat != 1))[0])
        which = row + (wrong // mask.shape[1] if mask.ndim == 2 else 0)
        raise BadBatch(f"row {which}, mask: expected 0 and 1, got {flat[wrong]}")


def flat_mask(table: Mapping[str, Any], lengths: N64) -> NDArray[np.int8]:
    """Of every token of every row 1 if the policy sampled it, else 0."""
    if "mask" not in table:
        return np.ones(int(lengths.sum()), np.int8)
    parts = [np.asarray(one) for one in table["mask"]]
    for i, one in enumerate(parts):
        check_mask(one, i)
    return np.concatenate([np.zeros(0, np.int8), *(one.ravel().astype(np.int8) for one in parts)])


def _check_prompts(table: Mapping[str, Any], mask: Any, lengths: N64) -> None:
    """A mask may not train the prompt that the tokens of a row begin with."""
    if "prompt" not in table:
        return
    for i, (many, one) in enumerate(zip(numbers("prompt", table["prompt"]), mask, strict=True)):
        if not 0 <= many <= lengths[i]:
            raise BadBatch(f"row {i}, prompt: {many:g} tokens of {lengths[i]}")
        if trained := int(np.count_nonzero(np.asarray(one)[: int(many)])):
            raise BadBatch(f"row {i}, mask: trains {trained} of the {many:g} tokens of its prompt")


# a trace to rows


def rows_of_trace(trace: Trace) -> dict[str, list[Any]]:
    """Every event as a row, with its causes; of a run that branched, the events after the branch.

    >>> batch = {"task": ["q"] * 2, "rollout": [0, 1], "agent": ["ann", "bob"], "reward": [1.0, 0.0]}
    >>> rows = rows_of_trace(trace_of_rows(batch).trace)
    >>> rows["rollout"], rows["agent"], rows["type"], rows["edges"]
    (['0', '1'], ['ann', 'bob'], ['message', 'message'], [[], []])
    """
    up = parents(trace)
    if (lost := np.flatnonzero(up >= len(trace))).size:
        raise BadBatch(f"{trace.trace_id_n[int(lost[0])]} branched from a run that is not among these")
    every = np.arange(trace.n_events)
    own = np.flatnonzero(~copies(trace, every))
    row_of = _canonical_rows(trace, up, own)
    run = trace.rollout_e[own]
    rows: dict[str, list[Any]] = {
        "task": trace.task_id_n.take(run).strings(),
        "rollout": trace.trace_id_n.take(run).strings(),
        "reward": trace.reward_n.get("team", np.full(len(trace), np.nan))[run].tolist(),
        "parent": trace.parent_n.take(run).strings(),
        "branch": [None if b < 0 else b for b in trace.branch_n[run].tolist()],
    }
    names = Text(np.append(trace.name_a.codes, -1), trace.name_a.words)
    for field in ("agent", "from", "to"):
        who = getattr(trace, f"{field}_e")[own]
        if field == "agent" or (who >= 0).any():
            rows[field] = names.take(who).strings()
    for name, kind in EVENT.items():
        if name not in ("logp", "agent") and recorded(column := take_rows(getattr(trace, f"{name}_e"), own)).any():
            rows[name] = _spelled(name, kind, column)
    for name, kind in RUN.items():
        if name in ("trace_id", "task_id", "parent", "branch") or not recorded(getattr(trace, f"{name}_n")).any():
            continue
        rows[f"run.{name}"] = _spelled(name, kind, take_rows(getattr(trace, f"{name}_n"), run))
    rows |= {f"run.{k}": v[run].tolist() for k, v in trace.reward_n.items() if k != "team"}
    rows |= {f"run.cost.{k}": v[run].tolist() for k, v in trace.cost_n.items()}
    rows |= {f"reward.{k}": v[own].tolist() for k, v in trace.reward_e.items()}
    for k, words in trace.extra_e.items():
        rows[f"label.{k}"] = [None if w is None else msgspec.json.decode(w) for w in words.take(own).strings()]
    return rows | _row_lists(trace, own, row_of)


def _canonical_rows(trace: Trace, up: N64, own: N64) -> N64:
    """Of each event the row that it, or the event it repeats, has."""
    row_of = np.full(trace.n_events, -1)
    row_of[own] = np.arange(len(own))
    first = trace.first_of("e")
    while len(rest := np.flatnonzero(row_of < 0)):
        run = trace.rollout_e[rest]
        row_of[rest] = row_of[first[up[run]] + rest - first[run]]
    return row_of


def _spelled(name: str, kind: str, column: Any) -> list[Any]:
    if kind == "text":
        return list(column.strings())
    if kind == "code":
        return [None if c < 0 else CODES[name][c] for c in column.tolist()]
    return [None if v != v or (kind != "float" and v < 0) else v for v in column.tolist()]


def _row_lists(trace: Trace, own: N64, row_of: N64) -> dict[str, list[Any]]:
    """Causes, votes, options and tokens of the rows."""
    lists: dict[str, list[Any]] = {"edges": [[] for _ in own]}
    is_own = np.zeros(trace.n_events, np.bool_)
    is_own[own] = True
    for src, dst, kind in zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True):
        if is_own[dst]:
            lists["edges"][row_of[dst]].append((int(row_of[src]), EDGE_TYPES[kind]))
    if len(trace.event_v):
        lists["votes"] = [[] for _ in own]
        votes = (trace.event_v.tolist(), trace.source_v.tolist(), trace.value_v.strings(), trace.weight_v.tolist())
        for at, source, value, weight in zip(*votes, strict=True):
            if is_own[at]:
                lists["votes"][row_of[at]].append((int(row_of[source]), value, weight))
    if len(trace.event_o):
        lists["options"] = [trace.options(row) for row in own.tolist()]
        first, many = trace.options_of(own)
        for field, name in _OPTION_FIELDS.items():
            if recorded(column := getattr(trace, name)).any():
                pairs = zip(first.tolist(), many.tolist(), strict=True)
                lists[field] = [column[a : a + m].tolist() for a, m in pairs]
    if len(trace.owner_k):
        at = np.searchsorted(trace.owner_k, own)
        end = np.searchsorted(trace.owner_k, own, "right")
        for field, column in (("tokens", trace.token_k), ("mask", trace.mask_k), ("logp", trace.logp_k)):
            if field == "mask" or recorded(column).any():
                some = [column[a:b] for a, b in zip(at.tolist(), end.tolist(), strict=True)]
                lists[field] = [np.abs(one) for one in some] if field == "mask" else some
    if "logp" not in lists and recorded(trace.logp_e).any():
        lists["logp"] = trace.logp_e[own].tolist()
    return lists
