"""Recursions along edges, each one pass.

Edges are sorted by the row they point to and every cause has a lower row than its effect, so when an edge is
met its source is final. Plain Python over lists: a chain of a million events has a million levels, and nothing
that works level by level survives it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F, I

__all__ = ["latest", "longest", "reach"]


def reach(seed_e: B, src_x: I, dst_x: I) -> B:
    """The seeds and everything downstream of them.

        reach_j = seed_j or any(reach_i : i → j)

    >>> reach(np.array([False, True, False, False]), np.array([0, 1]), np.array([2, 3])).tolist()
    [False, True, False, True]
    """
    hit = bytearray(np.ascontiguousarray(seed_e).view(np.uint8))
    for s, d in zip(src_x.tolist(), dst_x.tolist(), strict=True):
        if hit[s]:
            hit[d] = 1
    return np.frombuffer(hit, np.bool_)


def latest(mark_e: B, src_x: I, dst_x: I) -> NDArray[np.int64]:
    """For each event the latest marked row among its ancestors and itself, -1 if there is none.

        latest_j = j if mark_j else max(latest_i : i → j)

    >>> latest(np.array([True, False, True, False]), np.array([0, 1, 2]), np.array([1, 3, 3])).tolist()
    [0, 0, 2, 2]
    """
    rows = np.arange(len(mark_e))
    found = np.where(mark_e, rows, -1).tolist()
    for s, d in zip(src_x.tolist(), dst_x.tolist(), strict=True):
        if found[s] > found[d]:
            found[d] = found[s]
    return np.array(found, np.int64)


def longest(work_e: F, src_x: I, dst_x: I) -> F:
    """When each event can start if it waits only for its causes.

        start_j = max(0, start_i + work_i : i → j)

    >>> longest(np.array([1.0, 2.0, 4.0, 1.0]), np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3])).tolist()
    [0.0, 1.0, 1.0, 5.0]
    """
    start, work = [0.0] * len(work_e), work_e.tolist()
    for s, d in zip(src_x.tolist(), dst_x.tolist(), strict=True):
        done = start[s] + work[s]
        if done > start[d]:
            start[d] = done
    return np.array(start)
