"""What a voter did to the consensus, exactly, by counting the votes again without it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.keys import numbered_together
from podium.graph import units
from podium.graph.grouping import changes, count_of, take
from podium.registry import register
from podium.trace.columns import F, I, Trace

__all__ = ["revote"]


class _Ballots(NamedTuple):
    """Votes that count: the aggregate, the answer (numbered over all aggregates), the voter (a unit) and the weight of each."""

    aggregate: NDArray[np.int64]
    answer: NDArray[np.int64]
    voter: I
    weight: F
    right: F  # how right each answer is
    of: NDArray[np.int64]  # the aggregate of each answer


@register("step")
def revote(credit: Credit, channel: str = "correct", by: Literal["majority", "weighted"] = "majority") -> Credit:
    """Difference reward of a voter, without another run: the consensus, less what it would have been without its votes.

        D_u = Σ_aggregates ( C - C_{-u} ),    C = how right the answer with most votes is

    An answer is as right as those who voted for it are (`channel`, on the events that the votes come from); answers that tie count
    by their mean, and no votes as 0. All votes of the unit are taken out at once.
    pays: the credit's own unit (agents, messages, turns, roles); 0 for who did not vote.   needs: a run with votes, their sources and
    their correctness, else NaN.   from: Learning to Deliberate (MPDF); Wolpert & Tumer 2002.
    """
    trace = credit.trace
    if credit.unit in ("team", "token"):
        raise BadCredit(f"voters are agents, roles, messages or turns, not {credit.unit}; move credit with `to`")
    if by not in ("majority", "weighted"):
        raise BadCredit(f"votes are counted by majority or weighted, got {by!r}")
    if channel not in trace.reward_e:
        raise BadCredit(f"needs how right each vote's source is, the channel {channel!r} on events")
    votes = _ballots(trace, credit.unit, channel, by == "weighted")
    levels = _levels(votes)
    pair = numbered_together(votes.aggregate, votes.voter)
    held = pair >= 0
    first = np.unique(pair[held], return_index=True)[1]
    aggregate, voter = votes.aggregate[held][first], votes.voter[held][first]
    none = np.zeros(0, np.int64)
    gain = _consensus(levels, aggregate, none, none, np.zeros(0))
    gain -= _consensus(levels, aggregate, pair[held], votes.answer[held], votes.weight[held])
    paid = np.bincount(voter, gain, minlength=len(credit.value)).astype(np.float64)
    tells_n = np.zeros(len(trace), np.bool_)
    tells_n[trace.rollout_e[votes.aggregate[~np.isnan(votes.right[votes.answer])]]] = True
    return credit.of(np.where(tells_n[credit.rollout] & ~np.isnan(credit.value), paid, np.nan))


def _ballots(trace: Trace, unit: str, channel: str, weighted: bool) -> _Ballots:
    known = np.flatnonzero((trace.source_v >= 0) & (trace.value_v.codes >= 0))
    weight = trace.weight_v[known] if weighted else np.ones(len(known))
    source, event = trace.source_v[known], trace.event_v[known].astype(np.int64)
    answer = numbered_together(event, trace.value_v.codes[known])
    n = count_of(answer)
    told = trace.reward_e[channel][source]
    checked = ~np.isnan(told)
    with np.errstate(invalid="ignore"):
        right = np.bincount(answer[checked], told[checked], minlength=n) / np.bincount(answer[checked], minlength=n)
    of = np.zeros(n, np.int64)
    of[answer] = event
    return _Ballots(event, answer, units.place(trace, unit)[source], weight, right, of)


class _Levels(NamedTuple):
    """Answers in levels by their weight, the levels of an aggregate one after the other, heaviest first."""

    right: F  # of each answer
    heavy: F  # its weight
    level: NDArray[np.int64]  # its level
    sums: F  # of each level: answers, how right they are in all, those of which nobody knows; a row of 0 at the end
    weight: F  # of each level
    event: NDArray[np.int64]  # the aggregates ...
    first: NDArray[np.int64]  # ... and where the levels of each begin, with the end of the last


def _levels(votes: _Ballots) -> _Levels:
    n = len(votes.of)
    weighed: F = np.bincount(votes.answer, votes.weight, minlength=n).astype(np.float64)
    heavy = np.round(weighed, 9)  # 0.1 + 0.2 ties with 0.3
    order = np.lexsort((-heavy, votes.of))
    opens = changes(votes.of[order]) | changes(heavy[order])
    level = np.empty(n, np.int64)
    level[order] = np.cumsum(opens) - 1
    event, first = np.unique(votes.of[order[opens]], return_index=True)
    many = int(np.count_nonzero(opens))
    sums = _sums(level, votes.right, many + 1)
    return _Levels(votes.right, heavy, level, sums, heavy[order[opens]], event, np.append(first, many))


def _sums(at: I, right: F, many: int) -> F:
    columns = (np.ones(len(at)), np.nan_to_num(right), np.isnan(right))
    return np.column_stack([np.bincount(at, c, minlength=many) for c in columns])


def _consensus(levels: _Levels, aggregate: I, pair: I, answer: I, weight: F) -> F:
    """How right the consensus of each aggregate is once votes are out: those of the pair of this place, for an answer, of a weight.

    What a pair does not touch is best at the first level that it does not touch whole.
    """
    one = numbered_together(pair, answer)
    at = np.unique(one, return_index=True)[1]
    pair, answer = pair[at], answer[at]
    left = np.round(levels.heavy[answer] - np.bincount(one, weight, minlength=len(at)), 9)
    place = np.searchsorted(levels.event, aggregate)
    top, free = _untouched(levels, levels.first[place], levels.first[place + 1], pair, answer)
    best = np.where(free[:, 0] > 0, np.append(levels.weight, 0.0)[top], -np.inf)
    own = np.full(len(aggregate), -np.inf)
    np.maximum.at(own, pair, np.where(left > 0, left, -np.inf))
    wins = (left > 0) & (left >= np.maximum(best, own)[pair])
    winners = np.where((best >= own)[:, None], free, 0.0)
    winners += _sums(pair[wins], levels.right[answer[wins]], len(aggregate))
    mean: F = np.divide(winners[:, 1], winners[:, 0], out=np.zeros(len(aggregate)), where=winners[:, 0] > 0)
    return np.where(winners[:, 2] > 0, np.nan, mean)


def _untouched(levels: _Levels, top: I, end: I, pair: I, answer: I) -> tuple[I, F]:
    """For each pair the first level with answers that it does not touch, and the sums over those; one past the end if there is none."""
    span = len(levels.sums)
    key = pair.astype(np.int64) * span + levels.level[answer]
    touched, which = np.unique(key, return_inverse=True)
    less = np.vstack([_sums(which, levels.right[answer], len(touched)), np.zeros((1, 3))])
    here, top = np.arange(len(top)) * span, top.copy()
    while True:  # as many rounds as a pair has answers
        at = np.searchsorted(touched, here + top)
        at = np.where(take(touched, at) == here + top, at, len(touched))
        free = np.where((top < end)[:, None], levels.sums[top] - less[at], 0.0)
        full = (top < end) & (free[:, 0] <= 0)
        if not full.any():
            return np.where(top < end, top, span - 1), free
        top += full
