"""The unit that each event belongs to, at eight levels from the team to the token.

A unit is a whole number; -1 where an event belongs to none. Decisions, messages and tool calls are named by their
row; roles and turns are numbered in the order of the first row they hold.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from podium.graph.grouping import changes, numbered, rows_by
from podium.trace import sweep
from podium.trace.columns import I, Trace
from podium.trace.vocabulary import edge, event

__all__ = ["UNITS", "agent", "call_of", "message", "orchestrator", "role", "team", "token", "tool_call", "turn"]

DECISION, MESSAGE = event("orchestrator_decision"), event("message")
CALL, RESULT, TEMPORAL = event("tool_call"), event("tool_result"), edge("temporal")


def team(trace: Trace) -> I:
    """The rollout."""
    return trace.rollout_e


def orchestrator(trace: Trace) -> I:
    """The row of the nearest orchestrator decision: itself, or an ancestor with no other decision in between.

        unit_j = j if j decides, else max(unit_i : i → j)

    Where several are nearest, which can only be decisions that do not know of each other, the latest.
    """
    return sweep.latest(trace.type_e == DECISION, trace.src_x, trace.dst_x)


def role(trace: Trace) -> I:
    """The role its agent played, inside its rollout; -1 if no role is recorded."""
    code_e = trace.role_e.codes
    order = rows_by(code_e)[np.count_nonzero(code_e < 0) :]
    return numbered(order, changes(code_e[order]) | changes(trace.rollout_e[order]), trace.n_events)


def agent(trace: Trace) -> I:
    """The agent whose event it is."""
    return trace.agent_e


def call_of(trace: Trace) -> I:
    """For each tool result the row of the call it answers (the latest, if edges name several), else -1."""
    into = np.flatnonzero((trace.type_e == RESULT)[trace.dst_x])
    into = into[(trace.type_e == CALL)[trace.src_x[into]]]
    call_e = np.full(trace.n_events, -1, trace.src_x.dtype)
    np.maximum.at(call_e, trace.dst_x[into], trace.src_x[into])
    return call_e


def turn(trace: Trace) -> I:
    """An agent's events from one input it received to the next.

    A tool result is an input to the agent that made the call. So is whatever another agent or a tool result
    leads to by an edge that is not merely temporal. Inputs that come one after the other, before the agent has
    acted on them, are one input.
    """
    call_e = call_of(trace)
    who_e = np.where(call_e >= 0, trace.agent_e[call_e], trace.agent_e)
    result_e = trace.type_e == RESULT
    told_x = (who_e[trace.src_x] != who_e[trace.dst_x]) | result_e[trace.src_x]
    input_e = result_e.copy()
    input_e[trace.dst_x[told_x & (trace.type_x != TEMPORAL)]] = True
    order = rows_by(who_e)[np.count_nonzero(who_e < 0) :]
    opens = input_e[order]
    opens[1:] &= ~result_e[order[:-1]]
    return numbered(order, opens | changes(who_e[order]), trace.n_events)


def message(trace: Trace) -> I:
    """The row of the message: for the message event, and for the generation that wrote it.

    A generation carries a model or owns tokens. A message that is none was written by the latest generation of
    the same agent that an edge joins to it; a generation that wrote several messages belongs to the first.
    """
    message_e = trace.type_e == MESSAGE
    unit_e = np.where(message_e, np.arange(trace.n_events), -1)
    wrote_e = trace.model_e.codes >= 0
    wrote_e[trace.owner_k[changes(trace.owner_k)]] = True
    into = np.flatnonzero((message_e & ~wrote_e)[trace.dst_x])
    into = into[(wrote_e & ~message_e & (trace.type_e != CALL))[trace.src_x[into]]]
    into = into[trace.agent_e[trace.src_x[into]] == trace.agent_e[trace.dst_x[into]]]
    writer_e = np.full(trace.n_events, -1, trace.src_x.dtype)
    np.maximum.at(writer_e, trace.dst_x[into], trace.src_x[into])
    written = np.flatnonzero(writer_e >= 0)[::-1]  # the first message comes last, so it stays
    unit_e[writer_e[written]] = written
    return unit_e


def tool_call(trace: Trace) -> I:
    """The row of the call: for the call, and for each result that an edge joins to it."""
    return np.where(trace.type_e == CALL, np.arange(trace.n_events), call_of(trace))


def token(trace: Trace) -> I:
    """Each token is a unit of its own. This column lives on the token axis."""
    return np.arange(len(trace.token_k))


UNITS: dict[str, Callable[[Trace], I]] = {
    f.__name__: f for f in (team, orchestrator, role, agent, turn, message, tool_call, token)
}
