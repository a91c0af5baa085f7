"""What happens in a batch of episodes, collected step by step for all of them at once, as a trace in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import COLUMNS, Names, Text, Trace, ranges
from podium.trace.forest import Forest
from podium.trace.vocabulary import Decision, EdgeType, EventType, decision, edge, event

__all__ = ["Log", "Spelled"]

_KIND = {c.name: c.kind for c in COLUMNS}


class Spelled(Sequence[str]):
    """Numbers as words, spelled when somebody asks.

    >>> list(Spelled("run-{}", np.array([3, 4])))
    ['run-3', 'run-4']
    """

    def __init__(self, form: str, numbers: NDArray[Any]) -> None:
        self._form, self._numbers = form, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, code: Any) -> Any:
        return self._form.format(self._numbers[code].item())


class Log:
    """Events of many episodes. `add` takes one event for each of some episodes and gives back their handles, which
    later events name as causes.

    An episode is a row of the world's state. `room` is how many rows there are beside the first n; such a row is
    written down from when it is a branch of another (`fork`).
    """

    def __init__(self, n: int, room: int = 0) -> None:
        self.n = n  # runs so far
        self.run = np.append(np.arange(n), np.full(room, -1))  # of each row of the state: the run that it writes
        self.decided = np.full(n + room, -1)  # ... and the handle of its latest decision
        self.length = np.zeros(n + room, np.int64)  # ... how many events its run has so far
        self._latest = np.full(n + room, -np.inf)  # ... and the time of the latest of them
        self._forks: list[
            tuple[NDArray[Any], ...]
        ] = []  # parents, and of each how many events there were, and the latest
        self._agents: dict[str, int] = {}
        self._words: dict[str, dict[str, int]] = {}
        self._events: list[tuple[NDArray[np.int64], dict[str, Any]]] = []
        self._edges: list[tuple[NDArray[np.int64], NDArray[np.int64], int]] = []
        self._options: list[tuple[NDArray[np.int64], ...]] = []  # handles, options of each, their labels
        self._menus: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._offers: list[tuple[Any, ...]] = []
        self._notes: dict[str, list[tuple[Any, ...]]] = {}
        self._count = 0  # of events so far
        self._rank = np.zeros(0, np.int64)  # of each event its row, once they are a trace

    def fork(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the state go on as branches of others, which share all that these wrote so far; gives the numbers
        of their runs.
        """
        parent = self.run[source]
        runs = np.arange(self.n, self.n + len(target))
        self.n += len(target)
        self._forks.append((parent, self.length[source], self._latest[source]))
        for column in (self.decided, self.length, self._latest):
            column[target] = column[source]
        self.run[target] = runs
        return runs

    def add(
        self,
        rows: NDArray[np.int64],
        kind: EventType,
        agent: str | Sequence[str] | NDArray[Any] | Text,
        t: Any,
        after: Sequence[tuple[EdgeType, NDArray[np.int64]]] = (),
        **columns: Any,
    ) -> NDArray[np.int64]:
        """One event in each of the episodes `rows` (an episode may stand there several times).

        `agent` and `to` are names, one for all or one a row. `after` are (edge type, handles), a handle of -1 is no
        cause. Other columns are those of a trace without their suffix: end, tokens_in, cost, role, tool, trusted,
        stage, valid, ..., a value for all or one a row (strings also as a Text); absent is NaN, -1 or None. `value`
        is what was found, said or voted, and becomes a field of that name on the event.
        """
        run = self.run[rows]
        if len(run) and run.min() < 0:  # rows that are no run yet
            some = np.flatnonzero(run >= 0)
            return self._add_some(some, rows, kind, agent, t, after, columns)
        handles = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        np.add.at(self.length, rows, 1)
        if np.ndim(t):
            np.maximum.at(self._latest, rows, t)
        else:
            self._latest[rows] = np.maximum(self._latest[rows], t)
        data: dict[str, Any] = {"type": event(kind), "t": t, "agent": self._codes(agent)}
        for name, values in columns.items():
            if name in ("to", "from"):
                data[name] = self._codes(values)
            elif name == "value":
                data[name] = np.asarray(values, np.float64)
            elif _KIND[f"{name}_e"] == "text":
                data[name] = self._coded(name, values)
            else:
                data[name] = values
        self._events.append((run, data))
        for word, causes in after:
            there = np.asarray(causes) >= 0  # copies, since a world may go on to change what it gave and got
            self._edges.append((np.asarray(causes)[there], handles[there], edge(word)))
        return handles

    def _add_some(
        self, at: NDArray[np.int64], rows: Any, kind: Any, agent: Any, t: Any, after: Any, columns: Any
    ) -> NDArray[np.int64]:
        def some(values: Any) -> Any:
            if isinstance(values, Text):
                return values.take(at)
            return np.asarray(values)[at] if np.ndim(values) else values

        handles: NDArray[np.int64] = np.full(len(rows), -1)
        causes = [(word, some(handles_)) for word, handles_ in after]
        more = {name: some(values) for name, values in columns.items()}
        handles[at] = self.add(rows[at], kind, some(agent), some(t), causes, **more)
        return handles

    def parents(self) -> NDArray[np.int64]:
        """The number of each run's parent, -1 for none."""
        up = [up for up, *_ in self._forks]
        return np.concatenate([np.full(self.n - sum(map(len, up)), -1), *up])

    def rows(self, handles: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of events in the trace or the forest that was made last."""
        return self._rank[handles]

    def note(self, name: str, rows: NDArray[np.int64], values: Any) -> None:
        """A column of the latest decision of each of these episodes, of which the world itself knows nothing."""
        self._notes.setdefault(name, []).append((self.decided[rows], values))

    def decide(
        self,
        rows: NDArray[np.int64],
        kind: Decision,
        agent: Any,
        t: Any,
        options: Sequence[str] | Sequence[Sequence[str]],
        chosen: Sequence[str] | NDArray[Any] | Text,
        logp: Any = np.nan,
        after: Sequence[tuple[EdgeType, NDArray[np.int64]]] = (),
        **columns: Any,
    ) -> NDArray[np.int64]:
        """A labelled decision: its options (one list for all, or one a row), the one chosen, its logp."""
        more = {"decision": decision(kind), "chosen": chosen, "logp": logp}
        handles = self.add(rows, "orchestrator_decision", agent, t, after, **more, **columns)
        self.decided[rows] = handles
        if len(options):
            self._options.append((handles.copy(), *self._listed(options, len(rows))))
        return handles

    def _listed(self, options: Sequence[str] | Sequence[Sequence[str]], n: int) -> tuple[NDArray[np.int64], ...]:
        """How many options each of n decisions has, and the codes of their labels, one decision after the other."""
        if isinstance(options[0], str):
            codes = self._labels(tuple(map(str, options)))
            return np.full(n, len(codes)), np.tile(codes, n)
        parts = [self._labels(tuple(some)) for some in options]
        return np.array([len(p) for p in parts]), np.concatenate(parts)

    def _labels(self, labels: tuple[str, ...]) -> NDArray[np.int64]:
        if labels not in self._menus:
            words = self._words.setdefault("label", {})
            self._menus[labels] = np.array([words.setdefault(label, len(words)) for label in labels], np.int64)
        return self._menus[labels]

    def offer(
        self,
        rows: NDArray[np.int64],
        many: NDArray[np.int64],
        number: NDArray[np.int64],
        logp: NDArray[Any],
        item: Any = None,
        behaviour: Any = None,
    ) -> None:
        """What is known of the options of the latest decision of each of these episodes, so `many` each, in their
        order: the option's number in the world, its log-probability under the policy, the item that it is about,
        its log-probability among those that are tried.
        """
        self._offers.append((self.decided[rows], many, number, logp, item, behaviour))

    def _codes(self, names: Any) -> Any:
        if isinstance(names, str):
            return self._agents.setdefault(names, len(self._agents))
        if isinstance(names, Text):
            codes = [self._agents.setdefault(str(n), len(self._agents)) for n in names.words]
            return np.array(codes, np.int64)[names.codes]
        return np.array([self._agents.setdefault(str(n), len(self._agents)) for n in names], np.int64)

    def _coded(self, name: str, values: Any) -> Any:
        words = self._words.setdefault(name, {})
        if values is None:
            return -1
        if isinstance(values, str):
            return words.setdefault(values, len(words))
        if isinstance(values, Text):
            return np.array([*(words.setdefault(w, len(words)) for w in values.words), -1], np.int64)[values.codes]
        if isinstance(values, np.ndarray) and values.dtype.kind == "U":
            found, place = np.unique(values, return_inverse=True)
            return np.array([words.setdefault(str(v), len(words)) for v in found], np.int64)[place]
        return np.array([-1 if v is None else words.setdefault(str(v), len(words)) for v in values], np.int64)

    def trace(self, **rollouts: Any) -> Trace:
        """Everything as a trace: a rollout an episode, causes first, times non-decreasing along rows.

        `rollouts` are its columns `_n`: trace_id_n, task_id_n, env_n, params_n, seed_n, reward_n, cost_n, ...
        """
        return self.forest(**rollouts).whole() if self._forks else self._packed(**rollouts)[0]

    def forest(self, **rollouts: Any) -> Forest:
        """The same, packed: episodes and the branches of them. `branch_n` is known from here."""
        rows, parent, shared = self._packed(**rollouts)
        return Forest(rows, parent, shared)

    def _packed(self, **rollouts: Any) -> tuple[Trace, NDArray[np.int64], NDArray[np.int64]]:
        run = _end_to_end([run for run, _ in self._events])
        names = dict.fromkeys(name for _, data in self._events for name in data)
        flat = {name: self._flat(name) for name in names} | self._noted()
        by_run = np.argsort(run.astype(np.uint16) if self.n < 1 << 16 else run, kind="stable")
        first = np.searchsorted(run[by_run], np.arange(self.n + 1))
        t = flat["t"][by_run] if len(by_run) else np.zeros(0)
        late = (np.diff(t) < 0) & (np.diff(run[by_run]) == 0)
        parent, shared, repeats = self._shared(run, by_run, first, flat["t"] if len(by_run) else t)
        order = by_run
        if len(repeats[0]):
            run = np.concatenate([run, repeats[0]])
            handle = np.concatenate([np.arange(self._count), repeats[1]])
            flat = {name: values[handle] for name, values in flat.items()}
            order = np.lexsort((handle, flat["t"], run))
        elif late.any():
            order = np.lexsort((flat["t"], run))
        rows = _Rows(self._count, run, order, repeats)
        self._rank = rows.rank
        src, dst, kind = self._causes(rows)
        rollout, columns = run[order], {name: values[order] for name, values in flat.items()}
        agents, name_a, rollout_a = self._cast(rollout, columns)
        first = np.searchsorted(rollout, np.arange(self.n))
        value = columns.pop("value", None)
        events: dict[str, Any] = {f"{k}_e": self._typed(k, v) for k, v in (columns | agents).items()}
        if value is not None:
            events["extra_e"] = {"value": _as_json(value)}
        if self._forks:
            rollouts["branch_n"] = np.where(parent >= 0, shared, -1)
        trace = Trace.of(
            rollout_e=rollout,
            id_e=Names(Text.constant("e", len(order)), np.arange(len(order)) + (shared - first)[rollout]),
            src_x=src,
            dst_x=dst,
            type_x=kind,
            name_a=name_a,
            rollout_a=rollout_a,
            **self._option_axis(rows),
            **events,
            **rollouts,
        )
        return trace, parent, shared

    def _shared(
        self, run: NDArray[np.int64], by_run: NDArray[np.int64], first: NDArray[np.int64], t: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Of each run its parent and how many rows they share; and what was written before a branch though it is
        later than its first event, which the branch repeats: runs, handles.
        """
        parent, shared = self.parents(), np.zeros(self.n, np.int64)
        none = np.zeros(0, np.int64)
        if not self._forks:
            return parent, shared, (none, none)
        up, length, latest = (np.concatenate(part) for part in zip(*self._forks, strict=True))
        branch = np.arange(self.n - len(up), self.n)
        if (parent[up] >= 0).any() or (first[branch + 1] == first[branch]).any():
            raise AssertionError("a branch of a branch, or one in which nothing happened")
        shared[branch] = length
        begins = t[by_run[first[branch]]]
        if not (over := np.flatnonzero(latest > begins)).size:
            return parent, shared, (none, none)
        many = shared[branch[over]]
        handle, of = by_run[ranges(first[up[over]], many)], np.repeat(over, many)
        later = t[handle] > begins[of]
        repeats = branch[of[later]], handle[later]
        shared -= np.bincount(repeats[0], minlength=self.n)
        return parent, shared, repeats

    def _causes(self, rows: _Rows) -> tuple[NDArray[np.int64], ...]:
        """Edges by the row that they lead to, in the order in which they were written."""
        src, dst, kind = (
            _end_to_end(part)
            for part in (
                [s for s, _, _ in self._edges],
                [d for _, d, _ in self._edges],
                [np.full(len(d), k) for _, d, k in self._edges],
            )
        )
        at, into = rows.spread(dst)
        src, kind = rows.place(rows.run[rows.order[into]], src[at]), kind[at]
        order = np.argsort(into, kind="stable")
        src, into, kind = src[order], into[order], kind[order]
        if (src >= into).any():
            raise AssertionError("a world logged an effect before its cause")
        return src, into, kind

    def _noted(self) -> dict[str, NDArray[Any]]:
        columns = {}
        for name, parts in self._notes.items():
            columns[name] = np.full(self._count, np.nan if _KIND[f"{name}_e"] == "float" else -1)
            for handles, values in parts:
                columns[name][handles] = values
        return columns

    def _option_axis(self, rows: _Rows) -> dict[str, Any]:
        """The options of decisions, by the row of their event."""
        if not self._options:
            return {}
        handles, counts, codes = (np.concatenate(part) for part in zip(*self._options, strict=True))
        begins = np.cumsum(counts) - counts
        offered = self._offered(handles, begins, counts) if self._offers else {}
        of, row = rows.spread(handles)
        order = np.argsort(row, kind="stable")
        of, row = of[order], row[order]
        at = ranges(begins[of], counts[of])
        return {
            "event_o": np.repeat(row, counts[of]),
            "label_o": Text(codes[at], tuple(self._words["label"])),
            **{name: values[at] for name, values in offered.items()},
        }

    def _offered(self, handles: Any, begins: Any, counts: Any) -> dict[str, Any]:
        """What was offered, at the options it belongs to: a decision's entries are in the order of its options."""
        handle, many, *parts = zip(*self._offers, strict=True)
        sizes = [len(h) for h in parts[0]]
        asked, number = np.concatenate(handle), np.concatenate(many)
        place = np.full(self._count, -1)
        place[handles] = np.arange(len(handles))
        if (place[asked] < 0).any() or (counts[place[asked]] != number).any():
            raise AssertionError("a world logged other options than it allowed")
        at = ranges(begins[place[asked]], number)
        columns: dict[str, Any] = {}
        for name, values in zip(("number", "logp", "item", "behaviour"), parts, strict=True):
            if any(part is not None for part in values):
                absent: Any = -1 if name in ("number", "item") else np.nan
                columns[f"{name}_o"] = np.full(counts.sum(), absent)
                columns[f"{name}_o"][at] = np.concatenate(
                    [np.full(n, absent) if part is None else part for n, part in zip(sizes, values, strict=True)]
                )
        return columns

    def _flat(self, name: str) -> NDArray[Any]:
        absent: Any = np.nan if name in ("t", "value") or _KIND[f"{name}_e"] == "float" else -1
        return np.concatenate([np.broadcast_to(data.get(name, absent), len(rows)) for rows, data in self._events])

    def _typed(self, name: str, values: NDArray[Any]) -> Any:
        return Text(values, tuple(self._words[name])) if _KIND[f"{name}_e"] == "text" else values

    def _cast(self, rollout: Any, columns: dict[str, Any]) -> tuple[dict[str, Any], Text, NDArray[np.int64]]:
        """The agents of each episode: whoever is named in it, by code."""
        size = max(len(self._agents), 1)
        named = [c for c in ("agent", "from", "to") if c in columns]
        keys = {c: np.where(columns[c] >= 0, rollout * size + columns[c], -1) for c in named}
        if self.n * size <= 16 * len(rollout) + 1024:  # a table of everyone who could be named
            there = np.zeros(self.n * size + 1, np.bool_)
            for key in keys.values():
                there[key] = True
            there[-1] = False
            cast, place = np.flatnonzero(there), np.where(there, np.cumsum(there) - 1, -1)
            placed: dict[str, Any] = {c: place[key] for c, key in keys.items()}
        else:
            cast = np.unique(np.concatenate([np.zeros(0, np.int64), *(key[key >= 0] for key in keys.values())]))
            placed = {c: np.where(key >= 0, np.searchsorted(cast, key), -1) for c, key in keys.items()}
        return placed, Text(cast % size, tuple(self._agents)), np.asarray(cast // size, np.int64)


class _Rows:
    """Where events come to lie: own rows, and those that branches repeat."""

    def __init__(self, count: int, run: Any, order: Any, repeats: Any) -> None:
        self.run, self.order, self.count = run, order, count
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.rank, self._again = rank[:count], rank[count:]
        by = np.argsort(repeats[0] * count + repeats[1], kind="stable")
        self._keys, self._again = (repeats[0] * count + repeats[1])[by], self._again[by]
        self._repeated = repeats[1][by]

    def place(self, run: NDArray[np.int64], handle: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of an event, as a run sees it."""
        row = self.rank[handle]
        if len(self._keys):
            key = run * self.count + handle
            at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
            row = np.where(self._keys[at] == key, self._again[at], row)
        return row

    def spread(self, handle: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What belongs to these events, in all rows that they are: which of it, and the row."""
        own = np.arange(len(handle)), self.rank[handle]
        if not len(self._keys):
            return own
        by = np.argsort(self._repeated, kind="stable")
        first = np.searchsorted(self._repeated[by], handle)
        many = np.searchsorted(self._repeated[by], handle, side="right") - first
        again = np.repeat(own[0], many), self._again[by[ranges(first, many)]]
        return np.concatenate([own[0], again[0]]), np.concatenate([own[1], again[1]])


def _end_to_end(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _as_json(values: NDArray[np.float64]) -> Text:
    """Numbers as a column of JSON; none where there is NaN."""
    there = ~np.isnan(values)
    different, which = np.unique(values[there], return_inverse=True)
    codes = np.full(len(values), -1, np.int32)
    codes[there] = which
    return Text(codes, Spelled("{!r}", different))
