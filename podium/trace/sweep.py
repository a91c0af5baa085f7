"""Recursions along edges, each one pass.

Edges are sorted by the row they point to and every cause has a lower row than its effect, so when an edge is
met its source is final. Nothing here works level by level: a chain of a million events has a million levels.

Most events have one cause and simply take its value on. Those are folded into the event they get it from, all at
once, by doubling steps; what remains, the events where several causes meet, is swept in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F, I

__all__ = ["done_times", "latest", "reach"]


def reach(seed_e: B, src_x: I, dst_x: I) -> B:
    """The seeds and everything downstream of them.

        reach_j = seed_j or any(reach_i : i → j)

    >>> reach(np.array([False, True, False, False]), np.array([0, 1]), np.array([2, 3])).tolist()
    [False, True, False, True]
    """
    up_e, src, dst = _folded(seed_e, src_x, dst_x)
    hit = bytearray(np.ascontiguousarray(seed_e).view(np.uint8))
    for s, d in _rows(up_e[src], dst):
        if hit[s]:
            hit[d] = 1
    return np.frombuffer(hit, np.bool_)[up_e]


def latest(mark_e: B, src_x: I, dst_x: I) -> NDArray[np.int64]:
    """For each event the latest marked row among its ancestors and itself, -1 if there is none.

        latest_j = j if mark_j else max(latest_i : i → j)

    >>> latest(np.array([True, False, True, False]), np.array([0, 1, 2]), np.array([1, 3, 3])).tolist()
    [0, 0, 2, 2]
    """
    up_e, src, dst = _folded(mark_e, src_x, dst_x)
    found_e = np.where(mark_e, np.arange(len(mark_e)), -1)
    latest_row = found_e.data
    for s, d in _rows(up_e[src], dst):
        row = latest_row[s]
        if row > latest_row[d]:
            latest_row[d] = row
    return found_e[up_e]


def done_times(work_e: F, src_x: I, dst_x: I) -> F:
    """When each event is done if it waits only for its causes. Work is at least 0.

        done_j = work_j + max(0, done_i : i → j)

    >>> done_times(np.array([1.0, 2.0, 4.0, 1.0]), np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3])).tolist()
    [1.0, 3.0, 5.0, 6.0]
    """
    took_e = work_e.copy()
    up_e, src, dst = _folded(np.zeros(len(work_e), np.bool_), src_x, dst_x, took_e)
    took_e += np.where(up_e == np.arange(len(work_e)), 0.0, work_e[up_e])
    start = [0.0] * len(work_e)
    for s, d, took in _rows(up_e[src], dst, took_e[src]):
        done = start[s] + took
        if done > start[d]:
            start[d] = done
    return np.fromiter(start, np.float64, len(start))[up_e] + took_e


def _folded(stop_e: B, src_x: I, dst_x: I, sum_e: F | None = None) -> tuple[NDArray[np.intp], I, I]:
    """The event that each takes its value from, and the edges that are left to sweep.

        up_j = up_i if i → j is the only edge into j and j is no stop, else j

    On the way `sum_e`, if given, is summed in place over the events from j back to up_j, without up_j itself.
    """
    begins = np.ones(len(dst_x) + 1, np.bool_)
    np.not_equal(dst_x[1:], dst_x[:-1], out=begins[1:-1])
    only_x, open_x = begins[1:] & begins[:-1], ~stop_e[dst_x]
    fold, rest = np.flatnonzero(only_x & open_x), np.flatnonzero(~only_x & open_x)
    row, cause = dst_x[fold].astype(np.intp), src_x[fold].astype(np.intp)
    up_e = np.arange(len(stop_e))
    up_e[row] = cause
    while len(row):
        beyond = up_e[cause]
        moved = np.flatnonzero(beyond != cause)
        row, cause, beyond = row[moved], cause[moved], beyond[moved]
        if sum_e is not None:
            sum_e[row] += sum_e[cause]
        up_e[row] = cause = beyond
    return up_e, src_x[rest], dst_x[rest]


def _rows(*columns: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of these columns as Python numbers, made a few at a time so that they stay in the cache."""
    some = 1 << 13
    blocks = ([c[i : i + some].tolist() for c in columns] for i in range(0, len(columns[0]), some))
    return chain.from_iterable(zip(*block, strict=True) for block in blocks)
