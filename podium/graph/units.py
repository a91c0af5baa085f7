"""The unit that each event belongs to, at eight levels from the team to the token.

A unit is a whole number; -1 where an event belongs to none. Decisions, messages and tool calls are named by their
row; roles and turns are numbered in the order of the first row they hold.

A column of scores or credit at a unit has one entry for each unit of that kind, in this order: rollouts, agents,
tokens as on their axes, all others by the row that stands for them (`rows`): the decision, the message, the call,
the first row of a role or turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from weakref import ref

import numpy as np

from podium.graph.grouping import any_by, changes, count_of, first_by, numbered, rows_by, take, unset
from podium.trace import sweep
from podium.trace.columns import I, Trace
from podium.trace.vocabulary import edge, event

__all__ = [
    "UNITS",
    "actor",
    "agent",
    "agents",
    "call_of",
    "finer",
    "first_stated",
    "invocation",
    "kept",
    "message",
    "orchestrator",
    "place",
    "role",
    "roles",
    "rollouts",
    "rows",
    "team",
    "token",
    "tool_call",
    "turn",
    "within",
]

DECISION, MESSAGE = event("orchestrator_decision"), event("message")
CALL, RESULT, TEMPORAL = event("tool_call"), event("tool_result"), edge("temporal")
RETURN, ANSWER = event("return"), edge("return")


_LATEST: list[tuple[ref[Trace], dict[tuple[str, ...], I]]] = []  # the columns of one trace; none once it is gone


def kept(column: Callable[..., I]) -> Callable[..., I]:
    """Columns of the trace that was asked for last, computed once: a method asks for the same ones many times."""

    @wraps(column)
    def once(trace: Trace, *of: str) -> I:
        if not _LATEST or _LATEST[0][0]() is not trace:
            _LATEST[:] = [(ref(trace, lambda _: _LATEST.clear()), {})]
        columns, key = _LATEST[0][1], (column.__name__, *of)
        if key not in columns:
            columns[key] = column(trace, *of)
            columns[key].flags.writeable = False
        return columns[key]

    return once


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
    """For each tool result the row of the call it answers (the latest, if edges name several), else -1. That it
    only came after a call is no answer."""
    into = np.flatnonzero((trace.type_e == RESULT)[trace.dst_x])
    into = into[(trace.type_e == CALL)[trace.src_x[into]] & (trace.type_x[into] != TEMPORAL)]
    call_e = np.full(trace.n_events, -1, trace.src_x.dtype)
    np.maximum.at(call_e, trace.dst_x[into], trace.src_x[into])
    return call_e


def actor(trace: Trace) -> I:
    """The agent whose work it is: for the result of a tool call, whoever records it, the one that made the call."""
    call_e, who_e = call_of(trace), trace.agent_e.copy()
    results = np.flatnonzero(call_e >= 0)
    who_e[results] = trace.agent_e[call_e[results]]
    return who_e


def turn(trace: Trace) -> I:
    """An agent's events from one input it received to the next.

    A tool result is an input to the agent that made the call. So is whatever another agent or a tool result
    leads to by an edge that is not merely temporal. Inputs that come one after the other, before the agent has
    acted on them, are one input.
    """
    who_e = actor(trace)
    result_e = trace.type_e == RESULT
    told_x = (who_e[trace.src_x] != who_e[trace.dst_x]) | result_e[trace.src_x]
    input_e = result_e | any_by(trace.dst_x, told_x & (trace.type_x != TEMPORAL), trace.n_events)
    order = rows_by(who_e)[np.count_nonzero(who_e < 0) :]
    opens = input_e[order]
    opens[1:] &= ~result_e[order[:-1]]
    return numbered(order, opens | changes(who_e[order]), trace.n_events)


@kept
def invocation(trace: Trace) -> I:
    """An agent's events from one task that another agent gave it to the next; -1 for events of nobody. Not a unit
    of its own.

    A task arrives by an edge from another agent's event that is neither temporal nor the answer to something the
    agent asked for itself (an edge or an event of type `return`). The result of a tool call is its caller's.
    """
    who_e = actor(trace)
    given_x = (who_e[trace.src_x] != who_e[trace.dst_x]) & (who_e[trace.src_x] >= 0)
    given_x &= (trace.type_x != TEMPORAL) & (trace.type_x != ANSWER) & (trace.type_e[trace.src_x] != RETURN)
    opens_e = any_by(trace.dst_x, given_x, trace.n_events)
    order = rows_by(who_e)[np.count_nonzero(who_e < 0) :]
    return numbered(order, opens_e[order] | changes(who_e[order]), trace.n_events)


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


@kept
def rows(trace: Trace, unit: str) -> I:
    """The row that stands for each unit of a kind; -1 for a rollout without events and for an idle agent."""
    match unit:
        case "team":
            first = trace.first_of("e")
            return np.where(first[1:] > first[:-1], first[:-1], -1)
        case "agent":
            return first_by(trace.agent_e, trace.agent_e >= 0, trace.n_agents)
        case "token":
            return trace.owner_k
        case "orchestrator" | "message" | "tool_call":
            return np.flatnonzero(trace.type_e == {"orchestrator": DECISION, "message": MESSAGE}.get(unit, CALL))
    unit_e = place(trace, unit)
    return first_by(unit_e, unit_e >= 0, count_of(unit_e))


@kept
def place(trace: Trace, unit: str) -> I:
    """For each event the place of its unit in a column at that unit, -1 if it belongs to none. Not for tokens."""
    unit_e = UNITS[unit](trace)
    if unit not in ("orchestrator", "message", "tool_call"):
        return unit_e
    place_e = unset(trace.n_events + 1)
    stands = rows(trace, unit)
    place_e[stands] = np.arange(len(stands))
    return place_e[unit_e]


@kept
def rollouts(trace: Trace, unit: str) -> I:
    """The rollout of each unit of a kind."""
    axis = {"team": "n", "agent": "a", "token": "k"}.get(unit)
    return trace.rollout_of(axis) if axis else trace.rollout_e[rows(trace, unit)]


@kept
def within(trace: Trace, unit: str, coarser: str) -> I:
    """For each unit the place of the coarser unit that its row belongs to; -1 if there is none.

    A turn is inside the agent whose work it is, though it may begin with a tool's answer, and inside the role that
    this agent states first in it.
    """
    if unit == coarser:
        return np.arange(len(rows(trace, unit)))
    if coarser in ("team", "agent"):
        return rollouts(trace, unit) if coarser == "team" else agents(trace, unit)
    place_e = place(trace, coarser)
    return (
        first_stated(trace, unit, place_e)
        if (unit, coarser) == ("turn", "role")
        else take(place_e, rows(trace, unit))
    )


def first_stated(trace: Trace, unit: str, code_e: I) -> I:
    """For each unit the first code of 0 or more among its events, of those that its own agent recorded; -1 if there
    is none.

    A turn may open with a result that a tool recorded in its own name: what that event states is the tool's.
    """
    if unit not in ("agent", "turn"):
        return take(code_e, rows(trace, unit))
    place_e = place(trace, unit)
    own_e = trace.agent_e == take(agents(trace, unit), place_e)
    return take(code_e, first_by(place_e, (code_e >= 0) & own_e, len(rows(trace, unit))))


@kept
def roles(trace: Trace, unit: str) -> I:
    """The code of the role in which each unit is played: the first that it states, else the first that its agent
    does; -1 for none."""
    role_u, role_a = (first_stated(trace, kind, trace.role_e.codes) for kind in (unit, "agent"))
    return role_u if unit == "agent" else np.where(role_u >= 0, role_u, take(role_a, agents(trace, unit)))


@kept
def agents(trace: Trace, unit: str) -> I:
    """The agent whose work each unit is; -1 for none. A turn that begins with a tool's result is the caller's."""
    if unit == "agent":
        return np.arange(trace.n_agents)
    return take(actor(trace) if unit == "turn" else trace.agent_e, rows(trace, unit))


def finer(unit: str, other: str) -> bool:
    """Whether the first of two kinds of unit comes later in the list from team to token."""
    order = list(UNITS)
    return order.index(unit) > order.index(other)
