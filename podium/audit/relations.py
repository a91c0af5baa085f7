"""What several detectors ask of a trace: who spawned whom, whose doing an event is, who took a message up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.audit.detector import Second, Suspects
from podium.graph.ancestry import ancestors
from podium.graph.grouping import first_by, rows_by, rows_by_time, take
from podium.graph.labels import label
from podium.graph.steps import IS_STEP
from podium.graph.units import call_of
from podium.trace.columns import B, F, I, Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES, EdgeType, edge, event

__all__ = [
    "LINKS",
    "Family",
    "Heeded",
    "about_agents",
    "copies",
    "crossing",
    "doers",
    "family",
    "heeded",
    "median_by",
    "median_of_others",
    "peers",
    "privileged",
    "specialists",
    "stepped",
]

SPAWN, MESSAGE, TEMPORAL = event("spawn"), event("message"), edge("temporal")
LINKS: tuple[EdgeType, ...] = tuple(t for t in EDGE_TYPES if t != "temporal")  # type: ignore[misc]
ACTS = np.isin(EVENT_TYPES, ("orchestrator_decision", "spawn", "tool_call", "return", "aggregate"))


class Family(NamedTuple):
    """For each agent the row that spawned it first, who did so and its own role; -1 where there is none."""

    spawn_a: NDArray[np.int64]
    parent_a: NDArray[np.int64]
    role_a: NDArray[np.int64]


def family(trace: Trace) -> Family:
    """Who was spawned, by whom, and the first role that an agent's own events state."""
    spawn_a = first_by(trace.to_e, trace.type_e == SPAWN, trace.n_agents)
    stated_a = first_by(trace.agent_e, trace.role_e.codes >= 0, trace.n_agents)
    role_a = take(trace.role_e.codes, stated_a).astype(np.int64)
    return Family(spawn_a, take(trace.agent_e, spawn_a).astype(np.int64), role_a)


def peers(trace: Trace, kin: Family) -> NDArray[np.int64]:
    """The group of each spawned agent: the same run, spawner and role; -1 for others and without a role."""
    grouped = np.flatnonzero((kin.spawn_a >= 0) & (kin.role_a >= 0))
    roles = len(trace.role_e.words) + 1
    group_a = np.full(trace.n_agents, -1)
    key = trace.rollout_a[grouped] * np.int64(trace.n_agents + 1) + kin.parent_a[grouped] + 1
    group_a[grouped] = np.unique(key * roles + kin.role_a[grouped], return_inverse=True)[1]
    return group_a


def specialists(trace: Trace, kin: Family) -> B:
    """Spawned agents that alone have their role in their run."""
    special_a = (kin.spawn_a >= 0) & (kin.role_a >= 0)
    known = np.flatnonzero(special_a)
    role, _ = copies(known, trace.rollout_a[known], kin.role_a[known])
    special_a[known] = np.bincount(role, minlength=1)[role] == 1
    return special_a


def stepped(trace: Trace) -> B:
    """Events that are a step of an agent: decisions, messages, tool calls, returns and aggregates."""
    steps_e: B = IS_STEP[trace.type_e] & (trace.agent_e >= 0)
    return steps_e


def doers(trace: Trace) -> I:
    """Whose doing each event is: its agent's, and for a tool result that of the agent that called."""
    call_e = call_of(trace)
    return np.where(call_e >= 0, trace.agent_e[call_e], trace.agent_e)


def crossing(trace: Trace, who_e: I) -> NDArray[np.int64]:
    """The edges, other than temporal, by which one agent's doing leads to another's."""
    from_x, to_x = who_e[trace.src_x], who_e[trace.dst_x]
    return np.flatnonzero((trace.type_x != TEMPORAL) & (from_x != to_x) & (from_x >= 0) & (to_x >= 0))


class Heeded(NamedTuple):
    """Messages that somebody was sent, those that could be acted upon, how many acted upon each, and the runs whose
    edges say so."""

    sent_e: B
    could_e: B
    takers_e: NDArray[np.int64]
    known_n: B


def heeded(trace: Trace) -> Heeded:
    """Which messages others acted upon.

        takers_m = |{d : m → d of another agent, which acts with d or later, or whose message d has takers}|

    Acts are decisions, spawns, tool calls, returns and aggregates. What the sender itself does next is not an
    effect of its message. Nobody could act upon a message to one who acts no more once it is there. A message is
    sent if it has an addressee, or an edge to another agent; an agent that speaks to nobody narrates.
    """
    message_e = trace.type_e == MESSAGE
    acts = np.flatnonzero(ACTS[trace.type_e] & (trace.agent_e >= 0))
    last_a = np.full(trace.n_agents + 1, -np.inf)
    np.fmax.at(last_a, trace.agent_e[acts], trace.t_e[acts])
    heard = np.flatnonzero(message_e[trace.src_x] & (trace.type_x != TEMPORAL))
    heard = heard[trace.agent_e[trace.src_x[heard]] != trace.agent_e[trace.dst_x[heard]]]
    src, dst = trace.src_x[heard], trace.dst_x[heard]
    goes_on_e = ACTS[trace.type_e] | (trace.t_e <= last_a[trace.agent_e])
    goes_on_e |= ancestors(Trace.of(type_e=trace.type_e, src_x=src, dst_x=dst), goes_on_e)
    takers_e = np.bincount(src[goes_on_e[dst]], minlength=trace.n_events)
    addressed_e = message_e & (trace.to_e >= 0) & (trace.to_e != trace.agent_e)
    sent_e = addressed_e.copy()
    sent_e[src] = True
    in_time_e = np.fmax(trace.end_e, trace.t_e) <= last_a[trace.to_e]
    could_e = (takers_e > 0) | (addressed_e & in_time_e)
    return Heeded(sent_e, could_e, takers_e, np.bincount(trace.rollout_e[dst], minlength=len(trace)) > 0)


def median_by(group: I, values: F, n: int) -> F:
    """The median of each group's recorded values; NaN where there is none. Groups below 0 do not count.

    >>> median_by(np.array([0, 0, 1, 0]), np.array([4.0, 1.0, 7.0, 2.0]), 3)
    array([ 2.,  7., nan])
    """
    valued = np.flatnonzero((group >= 0) & ~np.isnan(values))
    order = valued[rows_by_time(values[valued])]
    order = order[rows_by(group[order])]
    count = np.bincount(group[valued], minlength=n)
    first = np.cumsum(count) - count
    ordered = np.append(values[order], np.nan)
    low, high = ordered[first + np.maximum(count - 1, 0) // 2], ordered[first + count // 2]
    return np.where(count > 0, (low + high) / 2, np.nan)


def median_of_others(group: I, member: I, values: F, n: int) -> tuple[F, I]:
    """For each member the median of the values in its group that are not its own, and how many those are.

    A member belongs to one group. In the sorted values of a group, the k-th that is not one's own lies k places
    plus as many as one has at or before it: with own places p_0 < p_1 < ... that is k + |{i : p_i - i ≤ k}|.

    >>> median_of_others(np.array([0, 0, 0, 0]), np.array([0, 0, 1, 2]), np.array([9.0, 8.0, 1.0, 2.0]), 4)
    (array([1.5, 8. , 8. , nan]), array([2, 3, 3, 0]))
    """
    order = rows_by_time(values)
    order = order[rows_by(group[order])]
    size = np.bincount(group, minlength=1)
    first = np.cumsum(size) - size
    group_m = np.zeros(n, np.int64)
    group_m[member] = group
    own_m = np.bincount(member, minlength=n)
    others_m = np.where(own_m > 0, size[group_m] - own_m, 0)
    place = np.arange(len(order)) - first[group[order]]
    by_member = rows_by(member[order])
    whose = member[order][by_member]
    nth = np.arange(len(whose)) - (np.cumsum(own_m) - own_m)[whose]
    width = np.int64(len(order) + 2)
    before = whose * width + place[by_member] - nth  # ascending: it does not fall inside a member
    ordered = np.append(values[order], np.nan)

    def other(k: I) -> F:
        skipped = np.searchsorted(before, np.arange(n) * width + k, side="right") - (np.cumsum(own_m) - own_m)
        return ordered[np.where(others_m > 0, first[group_m] + k + skipped, -1)]

    return (other(np.maximum(others_m - 1, 0) // 2) + other(others_m // 2)) / 2, others_m


def copies(rows: I, *keys: I) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows with the same keys: for each row the number of its group, and the first row of that group.

    >>> copies(np.array([3, 5, 8]), np.array([1, 2, 1]))[1]
    array([3, 5, 3])
    """
    key = np.zeros(len(rows), np.int64)
    for column in keys:
        key = np.unique(key * (int(column.max(initial=-1)) + 2) + column + 1, return_inverse=True)[1]
    first = np.full(len(rows), -1)
    first[key[::-1]] = rows[::-1]
    return key, first[key]


def about_agents(trace: Trace, figure_a: F, threshold: float, rows: I, whose: I, tells_n: B) -> Suspects:
    """Agents whose figure reaches the threshold. Evidence: each of these rows, for the agent it is about.

    Where one is found the detector could tell, whatever it could not say of others in that run.
    """
    suspects = np.flatnonzero(figure_a >= threshold)
    place_a = np.full(trace.n_agents + 1, -1)
    place_a[suspects] = np.arange(len(suspects))
    evidence = np.flatnonzero(place_a[whose] >= 0)
    evidence = evidence[np.argsort(rows[evidence], kind="stable")]
    rollout = trace.rollout_a[suspects]
    tells_n = tells_n | (np.bincount(rollout, minlength=len(trace)) > 0)
    return Suspects(rollout, figure_a[suspects], suspects, rows[evidence], place_a[whose[evidence]], tells_n)


def privileged(trace: Trace, second: Second) -> B:
    """Events that were labelled privileged, or whose tool was named as such."""
    tools = [code for code, word in enumerate(trace.tool_e.words) if word in second.privileged]
    privileged_e: B = (label(trace, "privileged") == 1) | np.isin(trace.tool_e.codes, tools)
    return privileged_e
