"""R4, process: what each step was worth, whatever came of it.

A learned process scorer is a column too: `engine.judges.judged` makes it, `attach` states it, `step` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium.graph import units
from podium.graph.grouping import any_by, changes, count_by, count_of, rows_by, total_by
from podium.graph.labels import label, stated
from podium.graph.steps import IS_STEP, lead
from podium.registry import register
from podium.rewards.individual import channel_of_events, total_of
from podium.rewards.ledger import BadReward
from podium.rewards.outcome import channel_of_rollouts, spent_by_events, total_over
from podium.trace.columns import F, Trace
from podium.trace.vocabulary import EVENT_TYPES, event

__all__ = ["answers"]

RESULT, SPAWN = event("tool_result"), event("spawn")
IS_SAID = np.isin(EVENT_TYPES, ("message", "return", "aggregate"))
Criteria = Sequence[tuple[str, float]]


@register("score", unit="turn", families=("R4",), better="higher", needs="the reward channel on events")
def step(
    trace: Trace, channel: str = "step", unstated: float | None = None, end: str | None = None, each: str = "run"
) -> F:
    """What a turn earned: by the world, or by a process scorer whose column is on the trace.

        r_t = Σ_{e of t} reward_e[channel],   unstated where no event of t states it and one of its run does
        r_t = reward_n[end] at the last turn, 0 before, in a run of which no event states the channel

    `unstated` is for worlds, which pay 0 where they say nothing, not for a scorer that was silent. `end`, the
    channel of runs, goes to the last turn of the run, shared by those that begin last; with each="agent" in full to
    the last turn of each agent that takes steps.
    pays: turns.   needs: an event of the turn that states the channel, else NaN, unless given.   from: GiGPO,
    MARSHAL.
    """
    if each not in ("run", "agent"):
        raise BadReward(f"step pays the end of each run or agent, got {each!r}")
    paid_t = total_of(trace, "turn", channel_of_events(trace, channel))
    run_t = units.rollouts(trace, "turn")
    tells_n = any_by(run_t, ~np.isnan(paid_t), len(trace))
    if unstated is not None:
        paid_t = np.where(np.isnan(paid_t) & tells_n[run_t], unstated, paid_t)
    if end is not None:
        paid_t = np.where(tells_n[run_t], paid_t, channel_of_rollouts(trace, end)[run_t] * _last(trace, each))
    return paid_t


def _last(trace: Trace, each: str) -> F:
    """What share of what comes at the end goes to each turn."""
    stands, run_t = units.rows(trace, "turn"), units.rollouts(trace, "turn")
    acts_t = any_by(units.place(trace, "turn"), IS_STEP[trace.type_e], len(stands))
    acts_t |= ~any_by(run_t, acts_t, len(trace))[run_t]
    of_t = run_t if each == "run" else units.agents(trace, "turn")
    begins_t = trace.t_e[stands]
    timed = ~any_by(of_t, np.isnan(begins_t), count_of(of_t))
    begins_t = np.where(timed[of_t], begins_t, stands)
    last = np.full(len(timed), -np.inf)
    np.maximum.at(last, of_t[acts_t], begins_t[acts_t])
    is_last = acts_t & (begins_t == last[of_t])
    share: F = is_last / np.maximum(count_by(of_t, is_last, len(timed)), 1)[of_t]
    return share


@register(
    "score", unit="turn", families=("R4",), better="higher", needs="the columns or labels that the rubric names"
)
def rubric(trace: Trace, criteria: Criteria = (("valid", 1.0),)) -> F:
    """A step rubric over recorded columns: points for every criterion that a turn meets.

        r_t = Σ_i w_i 1[every event of t that says says yes to i],     i: valid, trusted, a label, "not" one of them

    pays: turns.   needs: for each criterion an event of the turn that says, else NaN.   from: the survey's R4.
    """
    place_e, n = units.place(trace, "turn"), len(units.rows(trace, "turn"))
    r_t = np.zeros(n)
    for name, weight in criteria:
        says_e = _says(trace, name)
        says_t, fails_t = any_by(place_e, says_e >= 0, n), any_by(place_e, says_e == 0, n)
        r_t += np.where(says_t, weight * ~fails_t, np.nan)
    return r_t


def _says(trace: Trace, criterion: str) -> NDArray[np.signedinteger]:
    """1 where an event meets a criterion, 0 where it does not, -1 where it does not say."""
    name = criterion.removeprefix("not ")
    says_e = {"valid": trace.valid_e, "trusted": trace.trusted_e}.get(name)
    if says_e is None:
        says_e = label(trace, name)
    return says_e if name == criterion else np.where(says_e < 0, says_e, 1 - says_e)


@register(
    "score",
    unit="turn",
    families=("R4", "R6"),
    better="higher",
    needs="the correctness of stated answers, a reward channel on events",
    assumes="a turn that states no answer changed none; an agent's first answer changes nothing unless `before` is "
    "given",
)
def correctness_delta(trace: Trace, channel: str = "correct", before: float | None = None) -> F:
    """How much more right an agent is after a turn than before it.

        r_t = Σ_{answers k in t} (c_k - c_{k-1}),     c_k the correctness of the agent's k-th answer, c_0 = before

    pays: turns.   needs: a run that states correctness, else NaN; NaN where one of the two answers was not checked.
    from: Learning to Deliberate (MPDF); MAPoRL's own transition.
    """
    rows, right = answers(trace, channel)
    who = trace.agent_e[rows]
    first = changes(who)
    last = np.append(np.nan, right)[:-1]
    delta = np.where(first, 0.0 if before is None else right - before, right - last)
    stands = units.rows(trace, "turn")
    r_t = total_by(units.place(trace, "turn")[rows], delta, len(stands))
    tells_n = any_by(trace.rollout_e[rows], ~np.isnan(right), len(trace))
    return np.where(tells_n[trace.rollout_e[stands]], r_t, np.nan)


def answers(trace: Trace, channel: str) -> tuple[NDArray[np.int64], F]:
    """The rows at which agents state an answer, agent by agent in their own order, and how right each is.

    An answer is what states its correctness (a tool result is not), or a message, return or aggregate that states a
    `value`; NaN where it was not checked.
    """
    right_e = channel_of_events(trace, channel)
    is_answer_e = ~np.isnan(right_e) | (stated(trace, "value") & IS_SAID[trace.type_e])
    rows = np.flatnonzero(is_answer_e & (trace.agent_e >= 0) & (trace.type_e != RESULT))
    rows = rows[rows_by(trace.agent_e[rows])]
    return rows, right_e[rows]


@register("score", unit="orchestrator", families=("R4", "R7"), better="lower", needs="decisions and who takes them")
def step_cost(trace: Trace, factor: float = 1.0, budget: float = 10.0, by: str | None = None) -> F:
    """What one more decision costs: later ones cost more, ever more slowly.

        C_d = F log(1 + t_d / φ),   t_d = 1, 2, ... among its agent's decisions,   φ = budget
        F = factor, with `by` times the tokens or cost of all events that d is the nearest decision of

    pays: decisions.   needs: who decides; with `by` the tokens or costs, else NaN.   from: Puppeteer.
    """
    if not budget > 0:
        raise BadReward(f"step_cost needs a budget above 0, got {budget!r}")
    rows = units.rows(trace, "orchestrator")
    order = rows_by(trace.agent_e[rows])
    opens = changes(trace.agent_e[rows[order]])
    at = np.arange(len(rows))
    t_d = np.empty(len(rows))
    t_d[order] = at - np.maximum.accumulate(np.where(opens, at, 0)) + 1
    cost = factor * np.log1p(t_d / budget)
    return np.where(trace.agent_e[rows] >= 0, cost * _worth(trace, by), np.nan)


def _worth(trace: Trace, by: str | None) -> F | float:
    if by is None:
        return 1.0
    if by not in ("tokens", "cost"):
        raise BadReward(f"step_cost counts by tokens or cost, got {by!r}")
    unit_e, (total_e, says_e) = units.place(trace, "orchestrator"), spent_by_events(trace, by)
    return total_over(unit_e, (total_e, says_e & (unit_e >= 0)), len(units.rows(trace, "orchestrator")))


@register("score", unit="turn", families=("R4",), better="lower", needs="tokens in, on the lead's events")
def context_overflow(trace: Trace, limit: float = 32768.0, share: float = 0.5) -> F:
    """Whether the lead worked on in a context that is too full, instead of branching.

        q_t = 1[ max_{e of t} tokens_in_e > share · limit  and no spawn in t ] for turns of the lead, 0 for others

    pays: turns.   needs: tokens in on an event of the lead's turn, else NaN.   from: FoldGRPO, with weight -1.
    """
    place_e, stands = units.place(trace, "turn"), units.rows(trace, "turn")
    full_t, spawns_t = np.full(len(stands), -np.inf), any_by(place_e, trace.type_e == SPAWN, len(stands))
    inside = place_e >= 0
    np.fmax.at(full_t, place_e[inside], trace.tokens_in_e[inside])
    lead_t = units.agents(trace, "turn") == lead(trace)[trace.rollout_e[stands]]
    over_t = np.where(np.isinf(full_t), np.nan, full_t > share * limit)
    return np.where(lead_t & ~spawns_t, over_t, 0.0)


@register("score", unit="team", families=("R4",), better="lower", needs="tokens out, on events")
def overlong(trace: Trace, allowed: float = 3000.0, over: float = 2000.0) -> F:
    """How far the longest generation of the run went beyond what is allowed.

        q_n = clip((max_e tokens_out_e - allowed) / over, 0, 1)

    pays: the team.   needs: tokens out on an event, else NaN.   from: DAPO; WideSeek-R1, with weight -0.1.
    """
    longest_n = np.full(len(trace), -np.inf)
    np.fmax.at(longest_n, trace.rollout_e, trace.tokens_out_e)
    return np.where(np.isinf(longest_n), np.nan, np.clip((longest_n - allowed) / over, 0.0, 1.0))


@register("reward")
def fold_grpo(
    branch: str = "branch", limit: float = 32768.0, scope: str = "out_of_scope", unstated: float = 0.0
) -> str:
    """The numerator of FoldGRPO, turn by turn: the outcome less its process terms.

        clip(R + Q, 0, 1),   Q = -1 in an overfull main thread, -0.2 in a branch out of scope, -1 for a failed call

    `scope` is the channel in which a judge says 1 of a branch that left its scope; `unstated` what an unstated
    validity counts as.   from: Context-Folding, as its text has it (its code loses the 0.2).

    >>> print(fold_grpo(limit=100).replace(" - ", "\\n- "))
    clip(at(outcome
    - 0.2 * for_role(individual('out_of_scope'), 'branch'), 'turn')
    - context_overflow(100)
    - invalid_turns(0.0), 0.0, 1.0)
    """
    out = f"0.2 * for_role(individual({scope!r}), {branch!r})"
    return (
        f"clip(at(outcome - {out}, 'turn') - context_overflow({limit!r}) - invalid_turns({unstated!r}), 0.0, 1.0)"
    )
