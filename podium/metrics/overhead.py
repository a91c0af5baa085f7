"""E4, protocol overhead: what coordination costs, how far an error spreads, where untrusted content gets to."""

from __future__ import annotations

from typing import Any

import numpy as np

from podium import graph
from podium.graph.grouping import any_by
from podium.graph.labels import label
from podium.graph.steps import IS_STEP, spawned
from podium.graph.trust import trusting
from podium.metrics.views import count, share
from podium.registry import register
from podium.rewards.outcome import spent_by_events, total_over
from podium.trace import sweep
from podium.trace.columns import B, F, Trace
from podium.trace.vocabulary import EVENT_TYPES, decision, edge, event

__all__ = ["COORDINATION"]

E4: dict[str, Any] = {"unit": "team", "families": ("E4",), "better": "lower"}

SPAWN, MESSAGE, CALL, RETURN = event("spawn"), event("message"), event("tool_call"), event("return")
TEMPORAL, DELEGATE = edge("temporal"), decision("delegate")
TOKENS = "tokens read and written, both on every event that states either, of every sub-agent that worked"
UNMARKED = "what neither a mark nor the table of tools calls untrusted is trusted, in runs without any mark too"
COORDINATION = ("orchestrator_decision", "spawn", "despawn", "message", "tool_call")
IS_COORDINATION = np.isin(EVENT_TYPES, COORDINATION)


def _coordination(trace: Trace) -> tuple[F, F]:
    """The tokens of each rollout that went into coordination, and all; NaN where the record lacks some of them."""
    tokens_e, says_e = spent_by_events(trace, "tokens")
    tokens_e = tokens_e + np.nan_to_num(trace.cache_read_e) + np.nan_to_num(trace.cache_write_e)
    total_n = total_over(trace.rollout_e, (tokens_e, says_e), len(trace))
    total_n[_with_silent_agents(trace, says_e)] = np.nan
    coordinates_e = IS_COORDINATION[trace.type_e] & ~_thinks_aloud(trace)
    own_e = np.where(coordinates_e | np.isnan(tokens_e), tokens_e, 0.0)
    spent_n = total_over(trace.rollout_e, (own_e, says_e), len(trace))
    return np.where(np.isnan(total_n), np.nan, spent_n), total_n


def _thinks_aloud(trace: Trace) -> B:
    """Messages of an agent to itself or to a person: a turn of its own work, or its answer."""
    person_e = np.append(graph.persons(trace), False)[trace.to_e]
    aloud_e: B = (trace.type_e == MESSAGE) & (((trace.to_e == trace.agent_e) & (trace.to_e >= 0)) | person_e)
    return aloud_e


def _with_silent_agents(trace: Trace, says_e: B) -> B:
    """Rollouts in which a spawned agent made calls or returned and no event of it states tokens."""
    works_a = any_by(trace.agent_e, np.isin(trace.type_e, (CALL, RETURN)), trace.n_agents)
    says_a = any_by(trace.agent_e, says_e, trace.n_agents)
    return any_by(trace.rollout_a, spawned(trace) & works_a & ~says_a, len(trace))


@register("score", **E4, needs=TOKENS)
def protocol_overhead(trace: Trace) -> F:
    """The share of all tokens that went into coordination rather than work.

        o = Σ tokens, cached too, of (decisions, spawns, despawns, messages to others, tool calls) / Σ tokens

    pays: the team.   needs: tokens on an event, no event that states one kind only, and tokens of every spawned
    agent that calls or returns, else NaN.   from: the survey's table 13.
    """
    spent_n, total_n = _coordination(trace)
    return spent_n / np.where(total_n > 0, total_n, np.nan)


@register("score", **E4, needs=f"{TOKENS}; delegations")
def tokens_per_delegation(trace: Trace) -> F:
    """What it took to hand out one piece of work: coordination tokens over delegations.

        p = coordination tokens / max(spawns, decisions to delegate)

    pays: the team.   needs: tokens on an event and one delegation, else NaN.   from: the survey, E4.
    """
    spent_n, _ = _coordination(trace)
    handed_n = np.maximum(count(trace, trace.type_e == SPAWN), count(trace, trace.decision_e == DELEGATE))
    return spent_n / np.where(handed_n > 0, handed_n, np.nan)


@register("score", **E4, needs="the label corrupted on events")
def error_amplification(trace: Trace) -> F:
    """How many corrupted events an initial one led to.

        a = |{corrupted, downstream of a corrupted one}| / |{corrupted, downstream of none}|,   not in time only

    pays: the team.   needs: a corrupted event, else NaN.   from: the survey's table 13, error amplification ratio.
    """
    causal = np.flatnonzero(trace.type_x != TEMPORAL)
    src_x, dst_x = trace.src_x[causal], trace.dst_x[causal]
    bad_e = label(trace, "corrupted") == 1
    later_e = any_by(dst_x, sweep.reach(bad_e, src_x, dst_x)[src_x], trace.n_events)
    first_n = count(trace, bad_e & ~later_e)
    return count(trace, bad_e & later_e) / np.where(first_n > 0, first_n, np.nan)


def _flow(trace: Trace) -> F:
    steps_e = IS_STEP[trace.type_e]
    return share(trace, steps_e & graph.taint(trusting(trace, {})), steps_e)


@register("score", **E4, needs="marks of trust on events: a run that has any marks all sources")
def injection_flow(trace: Trace) -> F:
    """The share of the team's steps that derive from content which nobody vouches for.

        f = |{steps : tainted}| / |{steps}|,   steps: decisions, messages, calls, returns and aggregates

    pays: the team.   needs: an event that is marked trusted or untrusted, else NaN.   from: the survey, E4.
    """
    return np.where(count(trace, trace.trusted_e >= 0) > 0, _flow(trace), np.nan)


@register("score", **E4, needs="steps", assumes=UNMARKED)
def injection_flow_unmarked(trace: Trace) -> F:
    """`injection_flow` where runs without untrusted content carry no mark at all.

    pays: the team.   needs: a step, else NaN.
    """
    return _flow(trace)
