"""Which branches to ask for next: those that change what is known of a decision the most, for the continuations
they cost.

A pure function of the forest so far. Whoever runs the loop (`study`, `learn`) carries the list out with `branch`,
puts the new runs beside the old ones and asks again. `turn_of` says how many-th try of its option each is: tries
with the same number share a seed, so that options are compared under the same luck.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit.branches import alternatives, chance
from podium.credit.credit import BadCredit, Credit
from podium.credit.forest import contexts
from podium.graph import units
from podium.rewards import score
from podium.trace.columns import F, I, Trace, ranges
from podium.trace.do import Do

__all__ = ["asks", "turn_of"]

PRIOR = 16.0  # runs that what is known of all decisions counts for, against those of one


class _Arms(NamedTuple):
    """Every option of every decision that can be asked about."""

    row: I  # of the decision
    option: list[str]
    context: I
    n: NDArray[np.int64]  # runs there are


def asks(
    trace: Trace, budget: int, reward: str = "outcome", rows: I | None = None, pi: dict[int, F] | None = None
) -> list[Do]:
    """The next branches, so many of them: they force the options of the decisions whose credit is least sure.

    Options are tried in sets, all of a decision under the same luck. The next set goes where it lowers the variance
    of credit by most for what it costs,

        max  s² Σ_k c_k² ( 1/n - 1/(n + 1) ) / K,     c = 1 - π of the option taken, π of another

    n are the sets so far, the run itself being the first of the option it took; K is what a set costs; s² is what
    the outcome varies by, less what runs of one seed share, in the decision's own runs and, for 16 more, in all.
    What was never tried comes first. π are the probabilities of the options by row, equal unless told. Asked are
    the decisions at `rows`, all those of runs that branched from none unless told.
    """
    arms = _arms(trace, rows)
    if budget <= 0 or not len(arms.row):
        return []
    taken = trace.chosen_e.take(arms.row).strings()
    k = np.bincount(arms.context)[arms.context]
    odds = 1.0 / k if pi is None else _told(trace, arms, pi)
    weight = np.where(np.array(arms.option) == np.array(taken), 1.0 - odds, odds) ** 2
    queue = _greedy(arms, weight, _noise(trace, reward, arms), budget)
    return [Do(int(arms.row[a]), "choose", arms.option[a]) for a in queue]


def _greedy(arms: _Arms, weight: F, noise: F, budget: int) -> list[int]:
    """Arms, set by set where it helps most; the last set may be cut, the heavier options first."""
    first = np.searchsorted(arms.context, np.arange(int(arms.context[-1]) + 2))
    have = arms.n.tolist()
    whole = np.bincount(arms.context, weight) * noise[first[:-1]]

    def least(decision: int) -> tuple[int, list[int]]:
        mine = range(int(first[decision]), int(first[decision + 1]))
        n = min(have[a] for a in mine)
        return n, sorted((a for a in mine if have[a] == n), key=lambda a: -weight[a])

    def gain(decision: int) -> tuple[bool, float, int]:
        n, arms_ = least(decision)
        return n > 0, -float(whole[decision]) / max(n * (n + 1), 1) / len(arms_), decision

    heap = [gain(d) for d in range(len(first) - 1) if first[d + 1] > first[d]]
    heapify(heap)
    queue: list[int] = []
    while len(queue) < budget:
        decision = heap[0][-1]
        for arm in least(decision)[1]:
            queue.append(arm)
            have[arm] += 1
        heapreplace(heap, gain(decision))
    return queue[:budget]


def _decisions(trace: Trace, rows: I | None) -> I:
    """The rows of decisions that state options, of runs that branched from none."""
    may = units.rows(trace, "orchestrator")
    may = may[(trace.parent_n.codes[trace.rollout_e[may]] < 0) & (trace.options_of(may)[1] > 0)]
    if rows is None:
        return may
    if len(odd := np.setdiff1d(rows, may)):
        raise BadCredit(f"row {odd[0]} is not a decision with options in a run that branched from none")
    return np.unique(rows)


def _arms(trace: Trace, rows: I | None) -> _Arms:
    at = _decisions(trace, rows)
    first, many = trace.options_of(at)
    option = [str(label) for label in trace.label_o.take(ranges(first, many)).strings()]
    code = {word: i for i, word in enumerate(trace.chosen_e.words)}
    place = np.repeat(np.arange(len(at)), many)
    chosen = np.array([code.get(o, -2) for o in option], np.int64)
    runs = _tries(trace, at)
    n = np.array([runs.get((p, c), 0) for p, c in zip(place.tolist(), chosen.tolist(), strict=True)], np.int64)
    return _Arms(np.repeat(at, many), option, place, n)


def _tries(trace: Trace, at: I) -> dict[tuple[int, int], int]:
    """How many runs there are of each option (a code of `chosen_e`) at each of these decisions (a place among
    them).
    """
    credit = Credit(trace, "orchestrator", np.zeros(len(units.rows(trace, "orchestrator"))))
    alts = alternatives(credit, "option")
    where = contexts(trace, credit.rows)
    place = {c: i for i, c in enumerate(contexts(trace, at).tolist())}
    tellers = np.flatnonzero(alts.counts_u & (alts.of_u >= 0))
    pair = np.column_stack([where[tellers], trace.chosen_e.codes[credit.rows[tellers]]])
    different, count = np.unique(pair, axis=0, return_counts=True)
    pairs = zip(different.tolist(), count.tolist(), strict=True)
    return {(place[c], o): n for (c, o), n in pairs if c in place}


def _noise(trace: Trace, reward: str, arms: _Arms) -> F:
    """What the outcome varies by at each arm's decision, runs of one seed compared with each other."""
    credit = Credit(trace, "orchestrator", score(trace, reward, "orchestrator"))
    alts = alternatives(credit, "option")
    square, freedom = chance(credit, alts)
    everywhere = float(square.sum() / freedom.sum()) if freedom.sum() > 0 else 1.0
    spread = (square + PRIOR * everywhere) / (freedom + PRIOR)
    tellers = np.flatnonzero(alts.of_u >= 0)
    row, where = credit.rows[tellers], alts.context[alts.of_u[tellers]]
    of_row = dict(zip(contexts(trace, row).tolist(), where.tolist(), strict=True))
    place = [of_row.get(c, -1) for c in contexts(trace, arms.row).tolist()]
    noise: F = np.append(spread, everywhere)[place]
    return np.maximum(noise, 1e-12)


def _told(trace: Trace, arms: _Arms, pi: dict[int, F]) -> F:
    """The probability of each arm's option."""
    first = np.flatnonzero(np.append(True, arms.row[1:] != arms.row[:-1]))
    odds = np.empty(len(arms.row))
    for start, end in zip(first, np.append(first[1:], len(arms.row)), strict=True):
        row = int(arms.row[start])
        if row not in pi or len(pi[row]) != end - start:
            raise BadCredit(f"expected {end - start} probabilities for the decision at row {row}")
        odds[start:end] = pi[row]
    return odds


def turn_of(trace: Trace, dos: list[Do]) -> NDArray[np.int64]:
    """How many-th try of its option each Do is at its decision, from 0, with those of the forest and the run itself
    before it.

    Number 0 of another option is to be tried with the luck of the run itself, which is number 0 of the option it
    took.
    """
    rows = np.unique([do.row for do in dos]).astype(np.int64)
    runs = _tries(trace, rows)
    place = {int(row): i for i, row in enumerate(rows)}
    code = {word: i for i, word in enumerate(trace.chosen_e.words)}
    turns = []
    for do in dos:
        key = place[do.row], code.setdefault(str(do.value), len(code))
        turns.append(runs.get(key, 0))
        runs[key] = turns[-1] + 1
    return np.array(turns, np.int64)
