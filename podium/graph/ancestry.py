"""What led to an event and what it led to."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from podium.graph.grouping import any_by, rows_by
from podium.trace import sweep
from podium.trace.columns import B, I, Trace
from podium.trace.vocabulary import EdgeType, edge

__all__ = ["ancestors", "descendants"]

Rows = I | B | list[int] | int


def descendants(trace: Trace, rows: Rows, types: Iterable[EdgeType] | None = None) -> B:
    """Everything that these rows led to, along edges of these types (all, unless told).

    A row is among its own descendants only if another of the rows led to it.
    """
    src_x, dst_x = _edges(trace, types)
    return _beyond(_seeds(trace, rows), src_x, dst_x)


def ancestors(trace: Trace, rows: Rows, types: Iterable[EdgeType] | None = None) -> B:
    """Everything that led to these rows, along edges of these types (all, unless told)."""
    src_x, dst_x = _edges(trace, types)
    last = trace.n_events - 1  # read from the end, an effect is a cause
    order = rows_by(src_x)[::-1]
    return _beyond(_seeds(trace, rows)[::-1], last - dst_x[order], last - src_x[order])[::-1]


def _beyond(seed_e: B, src_x: I, dst_x: I) -> B:
    return any_by(dst_x, sweep.reach(seed_e, src_x, dst_x)[src_x], len(seed_e))


def _seeds(trace: Trace, rows: Rows) -> B:
    seed_e = np.zeros(trace.n_events, np.bool_)
    seed_e[rows] = True
    return seed_e


def _edges(trace: Trace, types: Iterable[EdgeType] | None) -> tuple[I, I]:
    if types is None:
        return trace.src_x, trace.dst_x
    keep_x = np.isin(trace.type_x, [edge(t) for t in types])
    return trace.src_x[keep_x], trace.dst_x[keep_x]
