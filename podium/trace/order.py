"""Rows in which causes come first: by time, then by place in the file, as far as the edges allow."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F, I

__all__ = ["causes_first", "one_cycle"]


def causes_first(t_e: F, src_x: I, dst_x: I) -> tuple[NDArray[np.int64] | None, B]:
    """The order to take events in (None: as they are), and the edges that must go because they close a cycle.

    The order is the one that takes, again and again, the earliest event (by time, then place) all of whose causes
    have been taken. An event without a time is taken to follow the one before it in the file.

    >>> order, closing = causes_first(np.array([2.0, 1.0, 1.0]), np.array([2]), np.array([1]))
    >>> order.tolist(), closing.tolist()
    ([2, 1, 0], [False])
    """
    n = len(t_e)
    when = t_e
    if np.isnan(t_e).any():
        known = np.maximum.accumulate(np.where(np.isnan(t_e), -1, np.arange(n)))
        when = np.where(known < 0, 0.0, t_e[known])
    order: NDArray[np.int64] | None = None
    src, dst = src_x, dst_x
    if n and (when[1:] < when[:-1]).any():
        order = np.argsort(when, kind="stable")
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        src, dst = rank[src_x], rank[dst_x]
    closing = np.zeros(len(src_x), np.bool_)
    if (src < dst).all():
        return order, closing
    taken, stuck = _kahn(n, src, dst)
    if stuck.any():  # take what is in or behind a cycle in the order of time, without the edges against it
        closing = stuck[src] & stuck[dst] & (src >= dst)
        taken, _ = _kahn(n, src[~closing], dst[~closing])
    return taken if order is None else order[taken], closing


def _kahn(n: int, src: I, dst: I) -> tuple[NDArray[np.int64], B]:
    """Kahn's algorithm, lowest first; and which could not be taken."""
    waits = np.bincount(dst, minlength=n).tolist()
    by_source = np.argsort(src, kind="stable")
    first = np.searchsorted(src[by_source], np.arange(n + 1)).tolist()
    effects = dst[by_source].tolist()
    ready = [i for i in range(n) if not waits[i]]  # sorted, hence a heap
    taken = []
    while ready:
        i = heapq.heappop(ready)
        taken.append(i)
        for j in effects[first[i] : first[i + 1]]:
            waits[j] -= 1
            if not waits[j]:
                heapq.heappush(ready, j)
    stuck = np.ones(n, np.bool_)
    stuck[taken] = False
    return np.array(taken, np.int64), stuck


def one_cycle(n: int, src_x: I, dst_x: I) -> list[int]:
    """A cycle, where there is one: the events in it, cause before effect.

    >>> one_cycle(4, np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3]))
    [2, 0, 1]
    """
    _, stuck = _kahn(n, src_x, dst_x)
    inside = stuck[src_x] & stuck[dst_x]
    cause = dict(zip(dst_x[inside].tolist(), src_x[inside].tolist(), strict=True))
    place: dict[int, int] = {}
    at = next(iter(cause))  # who is stuck has a cause that is: going back must come round
    while at not in place:
        place[at] = len(place)
        at = cause[at]
    return list(place)[place[at] :][::-1]
