"""Votes: how right a consensus is, and what some of its votes did to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.graph.grouping import changes, count_of, first_by, mean_by, numbered_together, take, total_by
from podium.rewards.individual import channel_of_events
from podium.trace.columns import F, I, Trace

__all__ = ["Votes", "difference", "votes"]


class Votes(NamedTuple):
    """Votes that count: the aggregate, answer (numbered over all aggregates), source and weight of each."""

    aggregate: NDArray[np.int64]
    answer: NDArray[np.int64]
    source: I
    weight: F
    right: F  # how right each answer is: the mean of what its votes come from, NaN if none was checked
    of: NDArray[np.int64]  # the aggregate of each answer


def votes(trace: Trace, channel: str, weighted: bool) -> Votes:
    """The votes of all aggregates that name source and answer, with how right that is (`channel`, on sources)."""
    known = np.flatnonzero((trace.source_v >= 0) & (trace.value_v.codes >= 0))
    weight = trace.weight_v[known] if weighted else np.ones(len(known))
    source, event = trace.source_v[known], trace.event_v[known].astype(np.int64)
    answer = numbered_together(event, trace.value_v.codes[known])
    n = count_of(answer)
    right = mean_by(answer, channel_of_events(trace, channel)[source], n)
    return Votes(event, answer, source, weight, right, event[first_by(answer, answer >= 0, n)])


def difference(cast: Votes, group: I) -> F:
    """What each group of votes did to the consensus of its aggregate.

        D_g = C - C_{-g},    C = how right the answer with most votes is

    Ties count by their mean, no votes as 0. `group` is 0, 1, ... for votes of one aggregate, -1 for none. NaN where
    a weight is not known, or how right a winner is.
    """
    held, none = group >= 0, np.zeros(0, np.int64)
    aggregate = cast.aggregate[first_by(group, held, count_of(group))]
    unsure = np.isin(aggregate, cast.aggregate[np.isnan(cast.weight)])
    levels, weight = _levels(cast), np.nan_to_num(cast.weight)
    gain = _consensus(levels, aggregate, none, none, np.zeros(0))
    gain -= _consensus(levels, aggregate, group[held], cast.answer[held], weight[held])
    return np.where(unsure, np.nan, gain)


class _Levels(NamedTuple):
    """Answers in levels by their weight, the levels of an aggregate one after the other, heaviest first."""

    right: F  # of each answer
    heavy: F  # its weight
    level: NDArray[np.int64]  # its level
    sums: F  # of each level: answers, how right they are in all, those of which nobody knows; a row of 0 at the end
    weight: F  # of each level
    event: NDArray[np.int64]  # the aggregates ...
    first: NDArray[np.int64]  # ... and where the levels of each begin, with the end of the last


def _levels(cast: Votes) -> _Levels:
    n = len(cast.of)
    heavy: F = np.round(total_by(cast.answer, np.nan_to_num(cast.weight), n), 9)  # 0.1 + 0.2 ties with 0.3
    order = np.lexsort((-heavy, cast.of))
    opens = changes(cast.of[order]) | changes(heavy[order])
    level = np.empty(n, np.int64)
    level[order] = np.cumsum(opens) - 1
    event, first = np.unique(cast.of[order[opens]], return_index=True)
    many = int(np.count_nonzero(opens))
    sums = _sums(level, cast.right, many + 1)
    return _Levels(cast.right, heavy, level, sums, heavy[order[opens]], event, np.append(first, many))


def _sums(at: I, right: F, many: int) -> F:
    columns = (np.ones(len(at)), np.nan_to_num(right), np.isnan(right))
    return np.column_stack([total_by(at, c, many) for c in columns])


def _consensus(levels: _Levels, aggregate: I, group: I, answer: I, weight: F) -> F:
    """How right the consensus of each aggregate is once votes are out: those of the group of this place.

    What a group does not touch is best at the first level that it does not touch whole.
    """
    one = numbered_together(group, answer)
    at = first_by(one, one >= 0, count_of(one))
    group, answer = group[at], answer[at]
    left = np.round(levels.heavy[answer] - total_by(one, weight, len(at)), 9)
    place = np.searchsorted(levels.event, aggregate)
    top, free = _untouched(levels, levels.first[place], levels.first[place + 1], group, answer)
    best = np.where(free[:, 0] > 0, np.append(levels.weight, 0.0)[top], -np.inf)
    own = np.full(len(aggregate), -np.inf)
    np.maximum.at(own, group, np.where(left > 0, left, -np.inf))
    wins = (left > 0) & (left >= np.maximum(best, own)[group])
    winners = np.where((best >= own)[:, None], free, 0.0)
    winners += _sums(group[wins], levels.right[answer[wins]], len(aggregate))
    mean: F = np.divide(winners[:, 1], winners[:, 0], out=np.zeros(len(aggregate)), where=winners[:, 0] > 0)
    return np.where(winners[:, 2] > 0, np.nan, mean)


def _untouched(levels: _Levels, top: I, end: I, group: I, answer: I) -> tuple[I, F]:
    """For each group the first level with answers that it does not touch, and the sums over those; or the end."""
    span = len(levels.sums)
    key = group.astype(np.int64) * span + levels.level[answer]
    touched, which = np.unique(key, return_inverse=True)
    less = np.vstack([_sums(which, levels.right[answer], len(touched)), np.zeros((1, 3))])
    here, top = np.arange(len(top)) * span, top.copy()
    while True:  # as many rounds as a group has answers
        at = np.searchsorted(touched, here + top)
        at = np.where(take(touched, at) == here + top, at, len(touched))
        free = np.where((top < end)[:, None], levels.sums[top] - less[at], 0.0)
        full = (top < end) & (free[:, 0] <= 0)
        if not full.any():
            return np.where(top < end, top, span - 1), free
        top += full
