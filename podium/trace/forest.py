"""Runs that branched, packed: a branch holds its own rows only, and repeats those of its parent before them.

What learns from branches makes many of them, and each is mostly what its parent was. A `Forest` keeps every row
once. `whole()` is the `Trace` that it stands for, in which each run has all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import COLUMNS, OWNERS, I, Text, Trace, ranges, take_rows

__all__ = ["Forest", "roots"]

N64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forest:
    """Runs, parents first. Not a trace: its edges may come from rows of a run's parent, and an agent is named only
    in runs whose own rows name it. An own row that repeats one of the parent's that is later than the branch is in
    both."""

    rows: Trace  # the own rows of each run
    parent_n: I  # the place of each run's parent, -1 for none
    shared_n: I  # how many rows of its parent a run repeats before its own

    def __len__(self) -> int:
        return len(self.rows)

    def stamped(self, **columns: Any) -> Forest:
        """The same with columns in place of others."""
        return replace(self, rows=replace(self.rows, **columns))

    def local_rows(self, rows: I) -> N64:
        """The place of own rows in their runs."""
        run = self.rows.rollout_e[rows]
        place: N64 = rows - self.rows.first_of("e")[run] + self.shared_n[run]
        return place

    def whole_rows(self, rows: I) -> N64:
        """The rows of `whole()` that own rows are."""
        first = self.rows.first_of("e")
        start = np.concatenate([[0], np.cumsum(np.diff(first) + self.shared_n)])
        place: N64 = start[self.rows.rollout_e[rows]] + self.local_rows(rows)
        return place

    def whole(self) -> Trace:
        """Every run with all its rows."""
        packed, n = self.rows, len(self)
        first = packed.first_of("e")
        own = np.diff(first)
        start = np.concatenate([[0], np.cumsum(own + self.shared_n)])
        source = self._sources(start, own)
        run = np.repeat(np.arange(n), np.diff(start))
        local = np.arange(packed.n_events) - np.repeat(first[:-1] - self.shared_n, own)
        places = {"e": source, "n": np.arange(n)}
        owners: dict[str, N64] = {"e": np.arange(len(source))}
        for axis, name in OWNERS.items():
            at = np.searchsorted(getattr(packed, name), np.arange(packed.n_events + 1))
            many = np.diff(at)[source]
            places[axis], owners[axis] = ranges(at[source], many), np.repeat(owners["e"], many)
        agents, cast = self._agents(run, source)
        columns: dict[str, Any] = {"rollout_e": run, **agents, **cast}
        for name, axis, kind in COLUMNS:
            if name in columns or axis == "a":
                continue
            values, at = getattr(packed, name), places[axis]
            if name == OWNERS.get(axis):
                columns[name] = owners[axis]
            elif kind == "row":  # of the same run, in which a shared row has the place that it has in the parent
                of = values[at]
                columns[name] = np.where(of >= 0, start[run[owners[axis]]] + local[of], -1)
            else:
                columns[name] = take_rows(values, at)
        return Trace.of(**columns)

    def _sources(self, start: N64, own: N64) -> N64:
        """Of each whole row the own row that it is."""
        source = np.empty(start[-1], np.int64)
        source[ranges(start[:-1] + self.shared_n, own)] = np.arange(own.sum())
        depth = np.where(self.parent_n >= 0, 1, 0)
        while ((deeper := np.where(self.parent_n >= 0, depth[self.parent_n] + 1, 0)) != depth).any():
            depth = deeper
        for d in range(1, int(depth.max(initial=0)) + 1):
            at = np.flatnonzero(depth == d)
            up, many = self.parent_n[at], self.shared_n[at]
            source[ranges(start[at], many)] = source[ranges(start[up], many)]
        return source

    def _agents(self, run: N64, source: N64) -> tuple[dict[str, Any], dict[str, Any]]:
        """Who acts and is named in each run, by the order of names."""
        name_a, size = self.rows.name_a, max(len(self.rows.name_a.words), 1)
        code = np.append(name_a.codes, -1)
        keys = {}
        for name in ("agent_e", "from_e", "to_e"):
            who = code[getattr(self.rows, name)][source]
            keys[name] = np.where(who >= 0, run * size + who, -1)
        cast = np.unique(np.concatenate(list(keys.values())))
        cast = cast[cast >= 0]
        placed = {name: np.where(key >= 0, np.searchsorted(cast, key), -1) for name, key in keys.items()}
        return placed, {"rollout_a": cast // size, "name_a": Text(cast % size, name_a.words)}


def roots(runs: Trace | Forest, most: int) -> Trace:
    """The first runs, of so many at most, that branched off no other: these come first, and have all their rows."""
    trace = runs.rows if isinstance(runs, Forest) else runs
    branches = np.flatnonzero(trace.parent_n.codes >= 0)
    return trace[: min([most, *branches[:1].tolist()])]
