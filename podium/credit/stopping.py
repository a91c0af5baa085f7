"""Credit for going on and for stopping, from runs whose intermediate answers can be graded.

What an earlier stop would have earned is the grade of the answer at hand; what going on was worth is what the rule
that is followed makes of it, not the best stop that came after.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.keys import By, groups, numbered_together
from podium.credit.masks import team_value
from podium.credit.orders import timeline
from podium.credit.returns import column
from podium.graph.grouping import changes, count_of, ends, mean_by, rows_by, take
from podium.graph.labels import number
from podium.registry import register
from podium.trace import sweep
from podium.trace.columns import B, F, I, Trace
from podium.trace.vocabulary import decision

__all__: list[str] = []

STOP = decision("stop")


class _Chances(NamedTuple):
    """Decisions whether to stop, in the order of their stage: the how many-th of their agent in their run."""

    unit: NDArray[np.int64]  # the place of each among all units
    stage: NDArray[np.int64]
    next: NDArray[np.int64]  # the place of the chance after it, among these; -1 if it was the last
    went_on: B
    grade: F  # what stopping there earns
    final: F  # what the run earned


@register("step")
def stopping(
    credit: Credit,
    graded: str = "graded",
    rule: Literal["policy", "best"] = "policy",
    by: By | None = None,
    value: str | None = None,
    stop: str = "stop",
) -> Credit:
    """What going on was worth beyond stopping, and stopping beyond going on.

        A_k = C_k - g_k  where it went on,   A_k = g_k - C_k  where it stopped

    g_k is the grade of the latest event that led to the decision and states `graded`, a reward channel or a label.
    C_k is what going on is worth:
        "policy"  the mean of what runs earned that went on at that stage of the group `by`, else the run alone
        "best"    C_k = mean W_{k+1} of the other runs of the group that went on; W_k = g_k if g_k ≥ C_k, else what
                  came after: backward induction in which no run sees its own future
    Where no run tells C_k, the column `value` does.
    pays: decisions to stop that say what was chosen, else NaN.   needs: team credit at decisions, grades.   from:
    ours; Longstaff & Schwartz 2001 for the induction over runs.
    """
    if credit.unit != "orchestrator":
        raise BadCredit(f"stopping pays decisions (unit orchestrator), not {credit.unit}; move credit with `to`")
    if rule not in ("policy", "best"):
        raise BadCredit(f"rule must be policy or best, got {rule!r}")
    chances = _chances(credit, graded, stop)
    group = np.arange(len(chances.unit)) if by is None else groups(credit, by)[chances.unit]
    group = numbered_together(np.where(group >= 0, group, -1), chances.stage)
    beyond = _policy(chances, group) if rule == "policy" else _best(chances, group)
    if value is not None:
        beyond = np.where(np.isnan(beyond), column(credit, value)[chances.unit], beyond)
    paid = np.full(len(credit.value), np.nan)
    paid[chances.unit] = np.where(chances.went_on, beyond - chances.grade, chances.grade - beyond)
    return credit.where_known(paid)


def _chances(credit: Credit, graded: str, stop: str) -> _Chances:
    trace, rows = credit.trace, credit.rows
    unit = np.flatnonzero((trace.decision_e[rows] == STOP) & (trace.chosen_e.codes[rows] >= 0))
    line = timeline(credit, "agent")
    unit = unit[np.lexsort((line.at[unit], trace.agent_e[rows[unit]], credit.rollout[unit]))]
    who = numbered_together(credit.rollout[unit], trace.agent_e[rows[unit]])
    opens = changes(who)
    stage = np.arange(len(unit)) - np.flatnonzero(opens)[np.cumsum(opens) - 1]
    after = np.where(ends(who), -1, np.arange(len(unit)) + 1)
    went_on = trace.chosen_e.codes[rows[unit]] != trace.chosen_e.code(stop)
    final = team_value(credit)[credit.rollout[unit]]
    return _Chances(unit, stage, after, went_on, _grades(trace, rows[unit], graded), final)


def _grades(trace: Trace, rows: I, graded: str) -> F:
    """The grade that the latest event which led to each of these rows, or itself, states; NaN if none does."""
    grade_e = trace.reward_e.get(graded, number(trace, graded))
    latest = sweep.latest(~np.isnan(grade_e), trace.src_x, trace.dst_x)[rows]
    return take(grade_e, latest)


def _policy(chances: _Chances, group: I) -> F:
    earned = np.where(chances.went_on, chances.final, np.nan)
    return take(mean_by(group, earned, count_of(group)), group)


def _best(chances: _Chances, group: I) -> F:
    """Stage by stage from the last: what the others that went on make of it."""
    worth, beyond = np.full(len(group) + 1, np.nan), np.full(len(group), np.nan)
    order = rows_by(chances.stage)
    first = np.searchsorted(chances.stage[order], np.arange(count_of(chances.stage) + 1))
    for stage in range(len(first) - 2, -1, -1):
        now = order[first[stage] : first[stage + 1]]
        after = np.where(chances.next[now] >= 0, worth[chances.next[now]], chances.final[now])
        of = np.unique(group[now], return_inverse=True)[1]
        tells = chances.went_on[now] & ~np.isnan(after) & (group[now] >= 0)
        value = np.where(tells, after, 0.0)
        total, many = np.bincount(of, value), np.bincount(of, tells)
        with np.errstate(divide="ignore", invalid="ignore"):
            others = (total[of] - value) / (many[of] - tells)
        beyond[now] = others
        grade, on = chances.grade[now], chances.went_on[now]
        best = np.where(np.isnan(others) | (grade >= others), grade, np.where(on, after, others))
        worth[now] = np.where(np.isnan(others) & on, after, best)
    return beyond
