"""How much work there was, and the chain of it that nothing could have shortened."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.graph.grouping import any_by, sum_by
from podium.trace import sweep
from podium.trace.columns import B, F, I, Trace

__all__ = ["CriticalPath", "SerialTime", "critical_path", "inferred_work", "serial_time", "work"]


class SerialTime(NamedTuple):
    """The work of each rollout done by one worker, and how many events say how long they took."""

    time_n: F
    count_n: I


class CriticalPath(NamedTuple):
    """The length of each rollout's critical path, and the events on it."""

    time_n: F
    on_e: B


def work(trace: Trace) -> F:
    """How long each event took; NaN where its end is not recorded.

    w_e = max(0, end_e - t_e)
    """
    return np.maximum(0.0, trace.end_e - trace.t_e)


def inferred_work(trace: Trace) -> F:
    """A guess for logs that say only when events began: the time since the latest cause. Includes waiting.

    w_j = max(0, t_j - max(t_i : i → j)),   0 for an event without causes
    """
    cause_e = np.full(trace.n_events, -np.inf)
    with np.errstate(invalid="ignore"):  # a cause of unknown time makes the guess unknown
        np.maximum.at(cause_e, trace.dst_x, trace.t_e[trace.src_x])
    return np.where(np.isinf(cause_e), 0.0, np.maximum(0.0, trace.t_e - cause_e))


def serial_time(trace: Trace, work_e: F | None = None) -> SerialTime:
    """T₁ = Σ w_e per rollout; NaN where no event says how long it took."""
    return SerialTime(*sum_by(trace.rollout_e, work(trace) if work_e is None else work_e, len(trace)))


def critical_path(trace: Trace, work_e: F | None = None) -> CriticalPath:
    """The chain of causes that takes longest.

        T_∞ = max_j finish_j,   finish_j = w_j + max(0, finish_i : i → j)

    Work that is not recorded counts as none; where nothing is recorded T_∞ is NaN and no event is on the path.
    Of equal chains, the one through the lowest rows, from its end back.
    """
    given_e = work(trace) if work_e is None else work_e
    cost_e = np.where(np.isnan(given_e), 0.0, given_e)
    done_e = sweep.done_times(cost_e, trace.src_x, trace.dst_x)
    known_n = any_by(trace.rollout_e, ~np.isnan(given_e), len(trace))
    time_n = np.full(len(trace), -np.inf)
    np.maximum.at(time_n, trace.rollout_e, done_e)
    time_n = np.where(known_n, time_n, np.nan)
    last = np.flatnonzero(done_e == time_n[trace.rollout_e])
    _, first = np.unique(trace.rollout_e[last], return_index=True)
    return CriticalPath(time_n, _back(trace, last[first], done_e))


def _back(trace: Trace, ends: NDArray[np.intp], done_e: F) -> B:
    """These events, the cause that each waited for longest, the cause that one waited for longest, and so on."""
    waited_e = np.full(trace.n_events, -np.inf)
    done_x = done_e[trace.src_x]
    np.maximum.at(waited_e, trace.dst_x, done_x)
    binds = np.flatnonzero(done_x == waited_e[trace.dst_x])
    cause_e = np.full(trace.n_events, trace.n_events, trace.src_x.dtype)
    np.minimum.at(cause_e, trace.dst_x[binds], trace.src_x[binds])
    on_e = np.zeros(trace.n_events, np.bool_)
    cause, on = cause_e.data, on_e.data
    for row in ends.tolist():
        while row < trace.n_events:
            on[row] = True
            row = cause[row]
    return on_e
