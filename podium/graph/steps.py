"""Critical steps: how many steps a run takes when what is parallel counts once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.graph.grouping import any_by, changes, count_of, first_by, take, unset
from podium.trace import sweep
from podium.trace.columns import B, I, Trace
from podium.trace.vocabulary import EVENT_TYPES, STEPS, EventType, event

__all__ = ["critical_steps", "lead", "spawned", "spawns"]

SPAWN = event("spawn")
OUTSIDE: tuple[EventType, ...] = ("tool_result", "human_intervention", "safety_event")
LEADING: tuple[EventType, ...] = ("orchestrator_decision", "spawn", "aggregate")
IS_STEP, IS_OUTSIDE, IS_LEADING = (np.isin(EVENT_TYPES, words) for words in (STEPS, OUTSIDE, LEADING))


def spawned(trace: Trace) -> B:
    """The agents that a spawn names."""
    return any_by(trace.to_e, trace.type_e == SPAWN, trace.n_agents)


def spawns(trace: Trace) -> I:
    """For each agent the row of the first spawn of it that says whose it was; -1 for none."""
    return first_by(trace.to_e, (trace.type_e == SPAWN) & (trace.agent_e >= 0), trace.n_agents)


def lead(trace: Trace) -> I:
    """The agent that leads each rollout: of those whom nobody spawned the first to decide, spawn or aggregate.

    Where there is none, the first of them to act at all who is no user by role, else the first, else the first to
    act. A user who only writes the task leads nobody; tool results, human interventions and safety events are not
    the team's doing. First is by time, then by row. -1 for a rollout in which nobody acts.
    """
    own_e = ~IS_OUTSIDE[trace.type_e] & (trace.agent_e >= 0)
    root_e = own_e & ~take(spawned(trace), trace.agent_e)
    lead_n = unset(len(trace))
    user_e = trace.role_e.codes == trace.role_e.code("user")
    for fits_e in (root_e & IS_LEADING[trace.type_e], root_e & ~user_e, root_e, own_e, trace.agent_e >= 0):
        if (lead_n >= 0).all():
            break
        rows = np.flatnonzero(fits_e)
        rows = _earliest(trace, rows[lead_n[trace.rollout_e[rows]] < 0])
        lead_n[trace.rollout_e[rows]] = trace.agent_e[rows]
    return lead_n


def _earliest(trace: Trace, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of these rows the first of each rollout, by time and then by row; one without a time comes after all that
    have one.
    """
    t = np.where(np.isnan(trace.t_e[rows]), np.inf, trace.t_e[rows])
    first_n = np.full(len(trace), np.inf)
    np.minimum.at(first_n, trace.rollout_e[rows], t)
    rows = rows[t == first_n[trace.rollout_e[rows]]]
    return rows[changes(trace.rollout_e[rows])]


def critical_steps(trace: Trace) -> I:
    """The steps of each rollout with parallel sub-agents counted once.

        Σ_stages ( S_main + max_i S_sub,i )

    Steps are decisions, messages, tool calls, returns and aggregates. A stage is what the lead launched between
    two of its own steps, or what the log records where it records stages. A sub-agent that has sub-agents of its
    own counts as its steps plus the longest of theirs, so the sum inside a stage is taken down the tree of spawns:

        S(a, stage) = own(a, stage) + max(0, S(b, stage) : b spawned by a)

    from: Kimi K2.5, section 3.
    """
    lead_n = lead(trace)
    parent_a, depth_a = _tree(trace, lead_n)
    stage_e = _stages(trace, lead_n)
    step_e = IS_STEP[trace.type_e] & (trace.agent_e >= 0)
    stages = count_of(stage_e)
    key, own = np.unique(trace.agent_e[step_e] * np.int64(stages) + stage_e[step_e], return_counts=True)
    depth = depth_a[key // stages]
    order = np.argsort(depth, kind="stable")
    first = np.searchsorted(depth[order], np.arange(int(depth.max(initial=0)) + 2))
    below, longest = key[:0], own[:0]
    for level in range(len(first) - 2, -1, -1):
        of_level = order[first[level] : first[level + 1]]
        key_g, group = np.unique(np.concatenate([key[of_level], below]), return_inverse=True)
        total_g = np.zeros(len(key_g), np.int64)
        np.add.at(total_g, group, np.concatenate([own[of_level], longest]))
        if level == 0:
            break
        above, group = np.unique(parent_a[key_g // stages] * stages + key_g % stages, return_inverse=True)
        below, longest = above, np.zeros(len(above), np.int64)
        np.maximum.at(longest, group, total_g)
    steps_n = np.zeros(len(trace), np.int64)
    np.add.at(steps_n, trace.rollout_a[key_g // stages], total_g)
    return steps_n


def _stages(trace: Trace, lead_n: I) -> I:
    """The stage of each event: 0 before the first, else 1 + its recorded number or the row that opened it."""
    recorded_e = any_by(trace.rollout_e, trace.stage_e >= 0, len(trace))[trace.rollout_e]
    lead_e: B = IS_STEP[trace.type_e] & (trace.agent_e == lead_n[trace.rollout_e])
    opener_e = sweep.latest(np.where(recorded_e, trace.stage_e >= 0, lead_e), trace.src_x, trace.dst_x)
    number_e = np.append(np.where(recorded_e, trace.stage_e, np.arange(trace.n_events)), -1)
    return number_e[opener_e] + 1


def _tree(trace: Trace, lead_n: I) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Who spawned each agent, and how far it is from the lead. Whom nobody spawned hangs on the lead."""
    born_a, parent_a = spawns(trace), lead_n[trace.rollout_a].astype(np.int64)
    born_a[lead_n[lead_n >= 0]] = -1
    child = np.flatnonzero(born_a >= 0)
    by = trace.agent_e[born_a[child]]
    older = born_a[by] < born_a[child]  # a record in which it is not makes no tree
    parent_a[child[older]] = by[older]
    up_a = np.where((parent_a < 0) | (np.arange(trace.n_agents) == lead_n[trace.rollout_a]), -1, parent_a)
    depth_a = np.append(np.where(up_a >= 0, 1, 0), 0)
    while (up_a >= 0).any():
        depth_a[:-1] += depth_a[up_a]
        up_a = take(up_a, up_a)
    return parent_a, depth_a[:-1]
