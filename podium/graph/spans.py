"""How long agents lived, and how many were busy at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from podium.graph.grouping import changes, ends, first_by, last_by, rows_by, rows_by_time, sum_by, take
from podium.trace.columns import F, I, Trace
from podium.trace.vocabulary import event

__all__ = ["Concurrency", "Lives", "concurrency", "covered", "lives", "mean_busy", "peak", "wall_clock"]

SPAWN, DESPAWN = event("spawn"), event("despawn")


class Lives(NamedTuple):
    """When each agent's life began and when it ended."""

    start_a: F
    end_a: F


class Concurrency(NamedTuple):
    """A step function: from time `t` on, until the next step of that rollout, this many agents are `busy`."""

    rollout: I
    t: F
    busy: I


def lives(trace: Trace) -> Lives:
    """From an agent's first spawn to its last despawn.

    Never spawned, it lives from its first event; not despawned, to the end of its last. A despawn ends a life only
    if no spawn comes after it. NaN where the record does not say.
    """
    spawn_e, despawn_e, n = trace.type_e == SPAWN, trace.type_e == DESPAWN, trace.n_agents
    first_spawn_a, spawned_a = first_by(trace.to_e, spawn_e, n), last_by(trace.to_e, spawn_e, n)
    despawned_a = last_by(np.where(trace.to_e >= 0, trace.to_e, trace.agent_e), despawn_e, n)
    done_e = np.where(np.isnan(trace.end_e), trace.t_e, trace.end_e)
    start_a, end_a = np.full(n, np.inf), np.full(n, -np.inf)
    acts_e = (trace.agent_e >= 0) & ~np.isnan(trace.t_e)
    who = trace.agent_e[acts_e]
    np.minimum.at(start_a, who, trace.t_e[acts_e])
    np.maximum.at(end_a, who, done_e[acts_e])
    start_a = np.where(spawned_a >= 0, take(trace.t_e, first_spawn_a), start_a)
    end_a = np.where(despawned_a > spawned_a, take(trace.t_e, despawned_a), end_a)
    return Lives(np.where(np.isinf(start_a), np.nan, start_a), np.where(np.isinf(end_a), np.nan, end_a))


def concurrency(trace: Trace) -> Concurrency:
    """How many agents are busy, as a step function of time in each rollout.

        busy(t) = |{a : t_e ≤ t < end_e for an event e of a}|

    An agent with several pieces of work at once counts once; events that do not say when they ended do not count.
    """
    work = np.flatnonzero((trace.end_e > trace.t_e) & (trace.agent_e >= 0))
    t = np.concatenate([trace.t_e[work], trace.end_e[work]])
    # by rollout, then time, and at the same time starts before ends, so that touching pieces of work are one
    order = rows_by_time(t)
    if len(trace) > 1:
        order = order[rows_by(np.tile(trace.rollout_e[work], 2)[order])]
    step = np.where(order < len(work), np.int8(1), np.int8(-1))
    row = np.concatenate([work, work])[order]
    lane = rows_by(trace.agent_e[row])
    step_lane = step[lane]
    in_hand = np.cumsum(step_lane, dtype=np.int64)  # an agent's pieces of work; every agent ends at 0
    change = np.empty(len(t), np.bool_)
    change[lane] = in_hand == (step_lane > 0)  # a start that makes it 1, an end that makes it 0
    rollout, t, busy = trace.rollout_e[row[change]], t[order[change]], np.cumsum(step[change], dtype=np.int64)
    final = ends(t) | ends(rollout)
    return Concurrency(rollout[final], t[final], busy[final])


def peak(trace: Trace) -> F:
    """The most agents that were busy at once, per rollout; NaN where no work is recorded."""
    rollout, _, busy = concurrency(trace)
    peak_n = np.full(len(trace), -np.inf)
    np.maximum.at(peak_n, rollout, busy)
    return np.where(np.isinf(peak_n), np.nan, peak_n)


def mean_busy(trace: Trace) -> F:
    """The average number of busy agents from the first piece of work to the end of the last, per rollout.

    mean = ∫ busy(t) dt / (t_last - t_first)
    """
    rollout, t, busy = concurrency(trace)
    inside = rollout[1:] == rollout[:-1]
    width = np.diff(t)[inside]
    area_n, _ = sum_by(rollout[1:][inside], width * busy[:-1][inside], len(trace))
    width_n, _ = sum_by(rollout[1:][inside], width, len(trace))
    return area_n / width_n


def covered(key: I, start: F, end: F, n: int) -> F:
    """For each key the time that its intervals cover, what they share counted once.

    >>> covered(np.array([0, 0, 1]), np.array([0.0, 1.0, 5.0]), np.array([2.0, 4.0, 6.0]), 2)
    array([4., 1.])
    """
    order = rows_by_time(start)
    order = order[rows_by(key[order])]
    by_end = rows_by_time(end)
    rank = np.empty(len(end), np.int64)
    rank[by_end] = np.arange(len(end))
    key, start = key[order], start[order]
    top = np.maximum.accumulate(key * np.int64(len(end)) + rank[order])  # a later key is above all earlier ones
    until = end[by_end][top % max(len(end), 1)]
    opens = changes(key)
    opens[1:] |= start[1:] > until[:-1]
    closes = np.append(opens[1:], True)[: len(opens)]
    total: F = np.bincount(key[opens], until[closes] - start[opens], minlength=n).astype(np.float64)
    return total


def wall_clock(trace: Trace) -> F:
    """From the first start to the last end (or start) of each rollout; NaN where no time is recorded."""
    first_n, last_n = np.full(len(trace), np.inf), np.full(len(trace), -np.inf)
    np.fmin.at(first_n, trace.rollout_e, trace.t_e)
    np.fmax.at(last_n, trace.rollout_e, np.fmax(trace.t_e, trace.end_e))
    took_n: F = np.subtract(last_n, first_n, out=np.full(len(trace), np.nan), where=last_n >= first_n)
    return took_n
