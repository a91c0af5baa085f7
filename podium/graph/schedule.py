"""What if: the time the same work would take with another number of workers."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from podium.graph.grouping import rows_by
from podium.graph.path import critical_path, serial_time, work
from podium.trace.columns import F, Trace

__all__ = ["Schedule", "with_workers"]


class Schedule(NamedTuple):
    """The makespan of each rollout, between what no schedule can beat and what no greedy one exceeds."""

    time_n: F
    lower_n: F
    upper_n: F


def with_workers(trace: Trace, k: int, work_e: F | None = None) -> Schedule:
    """The time T_k that k workers need for the work of each rollout, by a list schedule in the order of rows.

        max(T₁/k, T_∞)  ≤  T_k  ≤  T₁/k + (1 - 1/k) T_∞

    Whenever a worker is free it takes the lowest row whose causes are done. Any worker can do any event; an event
    without recorded work takes no worker and no time. NaN for a rollout without recorded work.

    from: Graham 1969.
    """
    if k < 1:
        raise ValueError(f"there must be at least one worker, not {k}")
    given_e = work(trace) if work_e is None else work_e
    serial_n, path_n = serial_time(trace, given_e).time_n, critical_path(trace, given_e).time_n
    cost = np.where(np.isnan(given_e), 0.0, given_e).tolist()
    by_cause = rows_by(trace.src_x)
    effect = trace.dst_x[by_cause].tolist()
    first_effect = np.searchsorted(trace.src_x[by_cause], np.arange(trace.n_events + 1)).tolist()
    waits = np.bincount(trace.dst_x, minlength=trace.n_events).tolist()
    bounds = trace.first_of("e").tolist()
    time_n = np.full(len(trace), np.nan)
    for n in np.flatnonzero(~np.isnan(serial_n)).tolist():
        time_n[n] = _makespan(range(bounds[n], bounds[n + 1]), k, cost, waits, effect, first_effect)
    return Schedule(time_n, np.maximum(serial_n / k, path_n), serial_n / k + (1 - 1 / k) * path_n)


def _makespan(
    rows: range, k: int, cost: list[float], waits: list[int], effect: list[int], first_effect: list[int]
) -> float:
    """Play the schedule. `waits` counts the causes of each event that are not done; it is used up."""
    now = 0.0
    done = [row for row in rows if not waits[row] and not cost[row] > 0]
    ready = [row for row in rows if not waits[row] and cost[row] > 0]
    running: list[tuple[float, int]] = []
    heapify(ready)
    while done or ready or running:
        while done:
            row = done.pop()
            for e in effect[first_effect[row] : first_effect[row + 1]]:
                waits[e] -= 1
                if not waits[e]:
                    heappush(ready, e) if cost[e] > 0 else done.append(e)
        while ready and len(running) < k:
            row = heappop(ready)
            heappush(running, (now + cost[row], row))
        if running:
            now = running[0][0]
        while running and running[0][0] == now:
            done.append(heappop(running)[1])
    return now
