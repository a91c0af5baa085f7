"""Advantages for other trainers: rows as they have them in, one advantage for each row or token out.

A row is what one agent generated in one turn of one rollout. The rows become a trace; each gets its unit's credit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.credit import BadCredit, Credit
from podium.expression import calls, spell
from podium.graph import units
from podium.graph.grouping import count_of
from podium.methods.choose import lacking
from podium.methods.method import Method, credit_of, named
from podium.registry import facts, kind_of
from podium.rewards.ledger import Now, read_reward, score
from podium.trace.columns import F, Text, Trace
from podium.trace.vocabulary import edge, event

__all__ = ["BadBatch", "advantages", "trace_of_rows"]

N64 = NDArray[np.int64]
NEEDED = ("task", "rollout", "reward")
KNOWN = (*NEEDED, "agent", "role", "turn", "length", "mask", "valid")
MESSAGE, CAUSAL = event("message"), edge("causal")


class BadBatch(BadCredit):
    """Rows that cannot be paid; says which row and field."""


class Rows(NamedTuple):
    """The trace of a batch, and the event of each of its rows."""

    trace: Trace
    event: N64


def advantages(
    batch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    method: Method | str = "dr_mas",
    *,
    per: Literal["row", "token"] = "row",
    now: Now = Now(),  # noqa: B008 (immutable)
) -> F:
    """The advantage of every row by a method: what it pays the row's unit, broadcast. NaN where it pays none.

    `batch` is a dict of columns or a list of dicts. Each row has a `task` (rollouts of one task are compared), a
    `rollout` and the `reward` of that rollout, and may have:

        agent, role    who generated it; one agent called "agent" unless given
        turn           its place in the rollout; rows with one number came at once. Unless given, in order
        length, mask   how many tokens it has, or of each 1 if the policy sampled it, else 0. Unless given, one
        valid          whether it could be used: False is an invalid action; not stated unless given
        others         a number is a reward or fitted value of that name (`step`, `value`), else a label (`anchor`)

    `per="token"` gives one row of tokens each, as wide as the longest, NaN after the end.

    >>> rows = {"task": ["q", "q"], "rollout": [0, 1], "reward": [1.0, 0.0]}
    >>> advantages(rows, "rema").round(3).tolist()
    [0.707, -0.707]
    """
    row = named(method) if isinstance(method, str) else method
    table = _columns(batch)
    if row.counts == "tokens" and not {"length", "mask"} & set(table):
        raise BadBatch(f"{row.name} counts tokens: expected the field length or mask, got {', '.join(table)}")
    trace, place = trace_of_rows(table)
    lacks = lacking(trace)
    if why := [f"{need} ({lacks[need]})" for need in row.needs if need in lacks]:
        raise BadBatch(f"{row.name} needs {' and '.join(why)} in the batch")
    paid = credit_of(trace, row, now)
    if len(place) and np.isnan(paid.value).all():
        raise BadBatch(f"{row.name} pays no row of this batch{_unscored(trace, row, now)}")
    tokens = _by_token(paid)
    if per == "token":
        return _padded(tokens, trace, place)
    if per != "row":
        raise BadBatch(f"per must be row or token, got {per!r}")
    return _by_row(paid, place) if paid.unit != "token" else _uniform(tokens, trace, place, row)


def trace_of_rows(batch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Rows:
    """The rows as a trace: a message each. Between two turns of a rollout stands a message of nobody, the input."""
    table = _columns(batch)
    n = len(table["task"])
    runs, run = _numbered(table["rollout"])
    for field in ("task", "reward"):
        _check_same(field, table[field], run, table["rollout"])
    agents, agent = _numbered([str(a) for a in table.get("agent", ["agent"] * n)])
    level = _levels(table, run, agent)
    order = np.lexsort((np.arange(n), level, run))
    opens = np.r_[False, (np.diff(level[order]) > 0) & (np.diff(run[order]) == 0)][:n]  # a turn after the first
    at = np.arange(n) + np.cumsum(opens)  # the event of each row, in order; before a turn stands its input
    many = n + int(opens.sum())
    rows_e, is_row = np.full(many, -1), np.zeros(many, np.bool_)
    rows_e[at], is_row[at] = order, True
    rows_e[at[opens] - 1] = order[opens]  # an input is of the run, and just before the time, of the row it opens
    src, dst = _edges(is_row, run[rows_e])
    cast, who = np.unique(run * max(len(agents), 1) + agent, return_inverse=True)
    lengths, mask_k = _tokens(table, n)
    owner = np.repeat(order, lengths[order])
    first = np.cumsum(lengths) - lengths
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(lengths[order]) - lengths[order], lengths[order])
    event_of = np.empty(n, np.int64)
    event_of[order] = at
    one_of = np.empty(len(runs), np.int64)
    one_of[run[::-1]] = np.arange(n)[::-1]  # the first row of each rollout
    trace = Trace.of(
        trace_id_n=Text.of(map(str, runs)),
        task_id_n=Text.of(str(table["task"][i]) for i in one_of),
        reward_n={"team": np.array([_number("reward", table["reward"][i], int(i)) for i in one_of])},
        rollout_a=cast // max(len(agents), 1),
        name_a=Text(cast % max(len(agents), 1), agents),
        rollout_e=run[rows_e],
        t_e=level[rows_e] - np.where(is_row, 0.0, 0.5),
        tokens_out_e=np.where(is_row, np.bincount(np.repeat(np.arange(n), lengths), mask_k, n)[rows_e], np.nan),
        type_e=np.full(many, MESSAGE),
        agent_e=np.where(is_row, who[rows_e], -1),
        **_fields(table, rows_e, is_row),
        src_x=src,
        dst_x=dst,
        type_x=np.full(len(src), CAUSAL),
        owner_k=event_of[owner],
        token_k=np.zeros(len(owner), np.int64),
        mask_k=mask_k[first[owner] + inside],
    )
    return Rows(trace, event_of)


def _columns(batch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The batch as columns of one length."""
    if isinstance(batch, Mapping):
        table = dict(batch)
    else:
        names = dict.fromkeys(name for row in batch for name in row)
        for i, row in enumerate(batch):
            if missing := [name for name in names if name not in row]:
                raise BadBatch(f"row {i} has no field {missing[0]!r}; other rows have it")
        table = {name: [row[name] for row in batch] for name in names}
    if missing := [name for name in NEEDED if name not in table]:
        raise BadBatch(f"the batch has no field {missing[0]!r}; it has {', '.join(table) or 'none'}")
    n = len(table["task"])
    for name, column in table.items():
        if len(column) != n:
            raise BadBatch(f"the field {name!r} has {len(column)} rows, task has {n}")
    return table


def _numbered(values: Any) -> tuple[list[Any], N64]:
    """The different values in the order in which they come, and the number of each."""
    number: dict[Any, int] = {}
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)
    codes = np.array([number.setdefault(v, len(number)) for v in plain], np.int64)
    return list(number), codes


def _check_same(field: str, values: Any, run: N64, names: Any) -> None:
    """Rows of one rollout must agree in what is the rollout's."""
    first: dict[int, int] = {}
    for i, r in enumerate(run.tolist()):
        j = first.setdefault(r, i)
        if values[i] != values[j] and not (values[i] != values[i] and values[j] != values[j]):
            raise BadBatch(
                f"row {i}, {field}: {values[i]!r}, but row {j} of the same rollout {names[i]!r} has {values[j]!r}"
            )


def _levels(table: Mapping[str, Any], run: N64, agent: N64) -> N64:
    """For each row its turn in the rollout, 0, 1, ..."""
    if "turn" not in table:
        return _rank(run, np.arange(len(run)))
    turn = np.array([_number("turn", t, i) for i, t in enumerate(table["turn"])])
    first: dict[tuple[int, int, float], int] = {}
    for i, key in enumerate(zip(run.tolist(), agent.tolist(), turn.tolist(), strict=True)):
        if (j := first.setdefault(key, i)) != i:
            raise BadBatch(
                f"row {i}, turn: {table['turn'][i]!r}, which row {j} of the same rollout and agent has too"
            )
    return _rank(run, turn)


def _rank(run: N64, value: NDArray[Any]) -> N64:
    """The place of each value among the different ones of its run."""
    order = np.lexsort((value, run))
    new = np.r_[False, (np.diff(value[order]) != 0) | (np.diff(run[order]) != 0)][: len(run)]
    number = np.cumsum(new)
    start = np.full(count_of(run), len(run))
    np.minimum.at(start, run[order], number)
    rank = np.empty(len(run), np.int64)
    rank[order] = number - start[run[order]]
    return rank


def _edges(is_row: NDArray[np.bool_], run_e: N64) -> tuple[N64, N64]:
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
    return src[order], dst[order]


def _tokens(table: Mapping[str, Any], n: int) -> tuple[N64, N64]:
    """How many tokens each row has, and which of all were sampled, row after row."""
    if "mask" not in table:
        lengths = np.array([_number("length", x, i) for i, x in enumerate(table.get("length", [1] * n))], np.int64)
        if (lengths < 0).any():
            i = int(np.argmax(lengths < 0))
            raise BadBatch(f"row {i}, length: expected 0 or more, got {lengths[i]}")
        return lengths, np.ones(int(lengths.sum()), np.int64)
    masks = [np.asarray(mask).ravel().astype(np.int64) for mask in table["mask"]]
    return np.array([len(m) for m in masks], np.int64), np.concatenate([np.zeros(0, np.int64), *masks])


def _fields(table: Mapping[str, Any], rows_e: N64, is_row: NDArray[np.bool_]) -> dict[str, Any]:
    """The columns of events that the rows state: role, validity, rewards and labels."""

    def of_rows(values: Sequence[Any]) -> list[Any]:
        return [values[i] if row else None for i, row in zip(rows_e.tolist(), is_row.tolist(), strict=True)]

    rewards, labels = {}, {}
    for name in (name for name in table if name not in KNOWN):
        plain = table[name].tolist() if isinstance(table[name], np.ndarray) else list(table[name])
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in plain):
            rewards[name] = np.where(is_row, np.array(plain, np.float64)[rows_e], np.nan)
        else:
            labels[name] = Text.of(None if v is None else msgspec.json.encode(v).decode() for v in of_rows(plain))
    valid = np.array([-1 if v is None else bool(v) for v in of_rows(table["valid"])]) if "valid" in table else None
    role = (
        [None if r is None else str(r) for r in of_rows(table["role"])] if "role" in table else [None] * len(rows_e)
    )
    return {
        "role_e": Text.of(role),
        "valid_e": valid,
        "reward_e": rewards,
        "extra_e": labels,
    }


def _number(field: str, value: Any, row: int) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadBatch(f"row {row}, {field}: expected a number, got {value!r}") from None


def _unscored(trace: Trace, method: Method, now: Now) -> str:
    """Which scores of the reward are absent in all rows, and what they need."""
    absent = [
        call
        for call in calls(read_reward(method.reward))
        if kind_of(call.name, "score", "shape") == "score" and np.isnan(score(trace, call, now=now)).all()
    ]
    return "".join(f"; `{spell(c)}` needs {facts('score', c.name).get('needs', 'more')}" for c in absent)


def _by_row(paid: Credit, place: N64) -> F:
    values: F = np.append(paid.value, np.nan)[units.place(paid.trace, paid.unit)[place]]
    return values


def _by_token(paid: Credit) -> F:
    """The credit of each token: its own, or that of its unit where the policy sampled it."""
    if paid.unit == "token":
        return paid.value
    trace = paid.trace
    values = np.append(paid.value, np.nan)[units.place(trace, paid.unit)[trace.owner_k]]
    return np.where(trace.mask_k == 1, values, np.nan)


def _padded(tokens: F, trace: Trace, place: N64) -> F:
    count = np.bincount(trace.owner_k, minlength=trace.n_events)
    first = np.cumsum(count) - count
    values = np.full((len(place), int(count[place].max(initial=0))), np.nan)
    for i, e in enumerate(place.tolist()):
        values[i, : count[e]] = tokens[first[e] : first[e] + count[e]]
    return values


def _uniform(tokens: F, trace: Trace, place: N64, method: Method) -> F:
    """One advantage a row, where all its sampled tokens have the same."""
    low, high = np.full(trace.n_events, np.inf), np.full(trace.n_events, -np.inf)
    there = ~np.isnan(tokens)
    np.minimum.at(low, trace.owner_k[there], tokens[there])
    np.maximum.at(high, trace.owner_k[there], tokens[there])
    if len(differ := np.flatnonzero(low[place] < high[place])):
        raise BadBatch(f"{method.name} pays tokens of row {differ[0]} differently: ask for per='token'")
    return np.where(np.isfinite(low[place]), low[place], np.nan)
