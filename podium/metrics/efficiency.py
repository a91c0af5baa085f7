"""E2, parallelism efficiency: how much of the team was at work, and how much faster it could have been."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from podium import graph
from podium.graph.ancestry import ancestors
from podium.graph.grouping import any_by
from podium.graph.labels import label
from podium.graph.spans import wall_clock
from podium.graph.steps import IS_STEP
from podium.metrics.views import share, sub_agents
from podium.registry import register
from podium.rewards.orchestration import NO_END, crossing, speedup
from podium.rewards.tools import LEADS_ON
from podium.trace import sweep
from podium.trace.columns import B, F, Trace
from podium.trace.vocabulary import edge

__all__: list[str] = []

E2: dict[str, Any] = {"unit": "team", "families": ("E2",), "better": "higher"}
LOWER = E2 | {"better": "lower"}
AT_ONCE = "what is only an order in time could have run at once"
SINCE = "an event took the time since its latest cause, waiting included"
EFFECT = "what a sub-agent did was to the point if it led to anything that another agent did"

TEMPORAL = edge("temporal")


def _acts(trace: Trace) -> B:
    """What spawned agents did: decisions, messages, calls, returns, aggregates."""
    acts_e: B = IS_STEP[trace.type_e] & sub_agents(trace)[trace.agent_e]
    return acts_e


@register("score", **E2, needs="spawns, and the label task_relevant on what spawned agents did")
def utilisation(trace: Trace) -> F:
    """The share of what sub-agents did that was to the point.

        u = |{actions of spawned agents : task_relevant}| / |{actions of spawned agents that say}|

    Actions are decisions, messages, calls, returns and aggregates.
    pays: the team.   needs: a labelled action, else NaN.   from: the survey's table 13, useful-agent utilisation.
    """
    relevant_e = label(trace, "task_relevant")
    acts_e = _acts(trace) & (relevant_e >= 0)
    return share(trace, acts_e & (relevant_e == 1), acts_e)


@register("score", **E2, needs="spawns, and edges", assumes=EFFECT)
def utilisation_by_effect(trace: Trace) -> F:
    """The share of what sub-agents did that reached another agent.

        u = |{a : a led, along edges but temporal, to an act of another (`crossing`)}| / |{a : of spawned agents}|

    pays: the team.   needs: an action of a spawned agent, else NaN.
    """
    out_e = any_by(trace.src_x, crossing(trace), trace.n_events)
    acts_e = _acts(trace)
    return share(trace, acts_e & (out_e | ancestors(trace, out_e, LEADS_ON)), acts_e)


@register("score", **E2, needs="when events began and ended")
def busy_agents(trace: Trace) -> F:
    """How many agents were busy at once, on average from the team's first piece of work to the end of its last.

        b = ∫ busy(t) dt / (t_last - t_first - waiting),   waiting: a person was busy and no agent (`graph.waiting`)

    pays: the team.   needs: ends of events, else NaN.
    """
    team = replace(trace, end_e=trace.t_e + graph.team_work(trace))
    first_n, last_n = np.full((2, len(trace)), np.nan)
    np.fmin.at(first_n, trace.rollout_e, np.where(np.isnan(team.end_e), np.nan, team.t_e))
    np.fmax.at(last_n, trace.rollout_e, team.end_e)
    span_n = last_n - first_n
    start_e = np.maximum(trace.t_e, first_n[trace.rollout_e])
    end_e = np.minimum(trace.end_e, last_n[trace.rollout_e])
    time_n = span_n - graph.waiting(trace, start_e, np.maximum(0.0, end_e - start_e))
    busy_n: F = graph.mean_busy(team) * span_n / np.where(time_n > 0, time_n, np.nan)
    return busy_n


def _starts(trace: Trace) -> Trace:
    """The trace without its ends, so that events that have one are not taken for longer than the others."""
    return replace(trace, end_e=np.broadcast_to(np.nan, trace.n_events))


def _headroom(trace: Trace, start_e: F, every_e: F) -> F:
    work_e = graph.team_work(trace, every_e)
    keep = np.flatnonzero(trace.type_x != TEMPORAL)
    done_e = sweep.done_times(np.where(np.isnan(work_e), 0.0, work_e), trace.src_x[keep], trace.dst_x[keep])
    path_n = np.zeros(len(trace))
    np.maximum.at(path_n, trace.rollout_e, done_e)
    return (wall_clock(trace) - graph.waiting(trace, start_e, every_e)) / np.where(path_n > 0, path_n, np.nan)


@register("score", **LOWER, needs="when events began and ended, and edges", assumes=f"{AT_ONCE}; {NO_END}")
def headroom(trace: Trace) -> F:
    """What if there were workers enough: how many times faster the same work could have been done.

        h = T_team / T_∞,   the wall clock less waiting for people, over the longest chain of work, not in time only

    pays: the team.   needs: ends of events, else NaN.
    """
    return _headroom(trace, trace.t_e, graph.work(trace))


@register("score", **LOWER, needs="when events began, and edges", assumes=f"{SINCE}; {AT_ONCE}")
def headroom_from_starts(trace: Trace) -> F:
    """`headroom` for logs that say only when events began.

    h = T_team / T_∞   with   w_j = t_j - max(t_i : i → j)

    pays: the team.   needs: starts of events, else NaN.
    """
    work_e = graph.inferred_work(trace)
    return _headroom(_starts(trace), trace.t_e - work_e, work_e)


@register("score", **E2, needs="when events began, and edges", assumes=SINCE)
def speedup_from_starts(trace: Trace) -> F:
    """`speedup` for logs that say only when events began.

    S = T₁ / T_team   with   w_j = t_j - max(t_i : i → j)

    pays: the team.   needs: starts of events, else NaN.
    """
    return speedup(_starts(trace), guess=True)
