"""R5, tool use: whether calls were valid, and pay for calls that no amount of further calls can raise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.graph import units
from podium.graph.ancestry import ancestors
from podium.graph.grouping import any_by, count_by, last_by, mean_by, take
from podium.graph.steps import lead
from podium.registry import register
from podium.rewards.outcome import channel_of_rollouts
from podium.trace.columns import B, F, Trace
from podium.trace.vocabulary import EDGE_TYPES, EdgeType, decision, event

__all__ = ["answers_of_the_lead", "tool_validity"]

CALL, RESULT, RETURN, AGGREGATE = event("tool_call"), event("tool_result"), event("return"), event("aggregate")
STOP = decision("stop")
LEADS_ON: tuple[EdgeType, ...] = tuple(t for t in EDGE_TYPES if t != "temporal")  # type: ignore[misc]
NEEDS = "whether calls were valid"


@register("score", unit="tool_call", families=("R5",), better="lower", needs=NEEDS)
def invalid_calls(trace: Trace, unstated: float = np.nan) -> F:
    """Calls that the record says were not valid; summed, how many.

        q_c = 1[the call or a result of it is invalid]

    pays: tool calls.   needs: validity on the call or its result, else `unstated` (0 where a log marks only
    failures).   from: Dr. MAS, with weight -0.1 (mathematics) or -0.01 (search).
    """
    place_e, n = units.place(trace, "tool_call"), len(units.rows(trace, "tool_call"))
    bad, good = (any_by(place_e, trace.valid_e == valid, n) for valid in (0, 1))
    return np.where(bad, 1.0, np.where(good, 0.0, unstated))


@register("score", unit="turn", families=("R5",), better="lower", needs=NEEDS)
def invalid_turns(trace: Trace, unstated: float = np.nan) -> F:
    """Turns in which something was invalid, however often.

        q_t = 1[an event of t is invalid, or a call of t has an invalid result]

    pays: turns.   needs: validity on every call of the turn or its result, else `unstated`.   from: Dr. MAS,
    FoldGRPO.
    """
    n = len(units.rows(trace, "turn"))
    turn_e = units.place(trace, "turn")
    calls, turn_c = invalid_calls(trace), turn_e[units.rows(trace, "tool_call")]
    bad_t = any_by(turn_e, trace.valid_e == 0, n) | any_by(turn_c, calls == 1, n)
    return np.where(bad_t, 1.0, np.where(any_by(turn_c, np.isnan(calls), n), unstated, 0.0))


@register("score", unit="agent", families=("R5",), better="higher", needs=NEEDS)
def tool_validity(trace: Trace, unstated: float = np.nan) -> F:
    """The share of an agent's calls that were valid.

        r_a = mean(1 - q_c : c called by a),     q = invalid_calls

    pays: agents.   needs: a call of the agent whose validity is on record, else NaN.   from: SHARP, MATPO.
    """
    who = trace.agent_e[units.rows(trace, "tool_call")]
    return mean_by(who, 1.0 - invalid_calls(trace, unstated), trace.n_agents)


@register("score", unit="team", families=("R5",), better="higher", needs="tool calls, and the names of their tools")
def used_tool(trace: Trace, tool: str | None = None) -> F:
    """Whether the run made a call that is not said to be invalid, of one tool or of any: once is as good as often.

        r_n = 1[some call of the tool in n]

    pays: the team.   needs: events; with `tool` the tool of every call, unless one is known to be of it, else NaN.
    from: WideSeek-R1, 0.05 if any page was opened.
    """
    code_c, run_c = trace.tool_e.codes[units.rows(trace, "tool_call")], units.rollouts(trace, "tool_call")
    of_it_c = np.ones(len(code_c), np.bool_) if tool is None else code_c == trace.tool_e.code(tool)
    used_n = any_by(run_c, of_it_c & (invalid_calls(trace, 0.0) == 0), len(trace))
    unsure_n = any_by(run_c, ~of_it_c & (code_c < 0), len(trace)) | (units.rows(trace, "team") < 0)
    return np.where(used_n, 1.0, np.where(unsure_n, np.nan, 0.0))


@register(
    "score",
    unit="tool_call",
    families=("R5",),
    better="higher",
    needs="the outcome, and edges from calls to what they led to",
    assumes="a call is not invalid unless it is said to be; calls without contents are not repeats",
)
def useful_calls(trace: Trace, channel: str = "team") -> F:
    """A fixed purse, the outcome, for the calls that the answer rests on: more calls share it, and do not raise it.

        r_c = max(0, R) / (|A| k_a) for each useful call c of agent a, 0 for any other

    A are the agents with a useful call and k_a the useful calls of a. A call is useful if an answer of the lead
    (`answers_of_the_lead`) descends from it, not merely in time, it is not invalid and no repeat of its agent's.
    pays: tool calls.   needs: the outcome, else NaN.   from: ours, after the survey's remedy for tool spam.
    """
    rows = units.rows(trace, "tool_call")
    of_n = trace.rollout_e[rows]
    leads_e = ancestors(trace, answers_of_the_lead(trace), LEADS_ON)
    useful = leads_e[rows] & (trace.agent_e[rows] >= 0) & ~_repeats(trace, rows) & (invalid_calls(trace, 0.0) == 0)
    k_a = count_by(trace.agent_e[rows], useful, trace.n_agents)
    agents_n = count_by(trace.rollout_a, k_a > 0, len(trace))
    purse = np.maximum(channel_of_rollouts(trace, channel)[of_n], 0.0)  # NaN stays
    shares = agents_n[of_n] * take(k_a, trace.agent_e[rows])
    paid = np.divide(purse, shares, out=np.zeros(len(rows)), where=useful)
    return np.where(np.isnan(purse), np.nan, paid)


def answers_of_the_lead(trace: Trace) -> B:
    """The events with which a run's lead answers: its aggregates, returns and stops, else the last thing it did."""
    own_e = (trace.agent_e >= 0) & (trace.agent_e == lead(trace)[trace.rollout_e]) & (trace.type_e != RESULT)
    ends_e = (trace.type_e == AGGREGATE) | (trace.type_e == RETURN) | (trace.decision_e == STOP)
    answers_e: B = own_e & ends_e
    last_n = last_by(trace.rollout_e, own_e, len(trace))
    answers_e[last_n[(last_n >= 0) & ~any_by(trace.rollout_e, answers_e, len(trace))]] = True
    return answers_e


def _repeats(trace: Trace, rows: NDArray[np.int64]) -> B:
    """Whether an agent has made this call before: the same tool with the same content, which is not read."""
    calls = np.stack([trace.agent_e[rows], trace.tool_e.codes[rows], trace.content_ref_e.codes[rows]])
    repeats = trace.content_ref_e.codes[rows] >= 0
    repeats[np.unique(calls, axis=1, return_index=True)[1]] = False
    return repeats
