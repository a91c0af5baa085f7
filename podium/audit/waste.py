"""Work that nobody used, and work that was done twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from podium.audit.detector import Second, Suspects, detector
from podium.audit.relations import Family, about_agents, copies, crossing, doers, family, privileged, specialists
from podium.graph.grouping import any_by, last_by, take
from podium.trace.columns import B, I, Trace
from podium.trace.vocabulary import decision, event

__all__ = ["dead_spawn", "repeated_work"]

SPAWN, DESPAWN, CALL, RESULT = event("spawn"), event("despawn"), event("tool_call"), event("tool_result")
RETURN, AGGREGATE, STOP = event("return"), event("aggregate"), decision("stop")


@detector
def dead_spawn(trace: Trace, second: Second, threshold: float) -> Suspects:
    """A spawned agent without effect outside itself.

        figure_a = 1 if no event of a leads, along edges other than temporal, to an event of another agent, else 0

    What its tools answer is its own doing. Its despawn is no effect, nor is what it asks of agents it spawned
    itself, unless they reach others than itself; a call of a privileged tool is one, because it acts on the world.
    Where whoever spawned it only spawns and returns, the last return to it is the answer of the run, and is used.
    Where no edge in the run shows an effect of any spawned agent, only those that did nothing at all are told. One
    that neither returned nor was despawned, and whose parent does not aggregate, return or stop after it, is an
    observation: it may still be at work where the record ends.
    """
    kin, who_e = family(trace), doers(trace)
    parent_a = np.append(kin.parent_a, -1)
    x = crossing(trace, who_e)
    x = x[(trace.type_e[trace.dst_x[x]] != DESPAWN)]
    giver, taker = who_e[trace.src_x[x]], who_e[trace.dst_x[x]]
    used_a = np.zeros(trace.n_agents + 1, np.bool_)
    used_a[giver[parent_a[taker] != giver]] = True
    above = parent_a[giver]
    used_a[above[(taker != above) & (parent_a[taker] != above)]] = True  # whom it spawned reached others
    used_a[trace.agent_e[privileged(trace, second) & (trace.type_e == CALL)]] = True
    used_a[-1] = False
    spawned_a = kin.spawn_a >= 0
    acted_a = np.bincount(trace.agent_e[trace.agent_e >= 0], minlength=trace.n_agents) > 0
    linked_n = np.bincount(trace.rollout_a[spawned_a & used_a[:-1]], minlength=len(trace)) > 0
    used_a[trace.agent_e[_answers_of_workflows(trace, kin)]] = True
    dead_a = spawned_a & ~used_a[:-1] & (~acted_a | linked_n[trace.rollout_a])
    tells_n = linked_n | (np.bincount(trace.rollout_a[spawned_a & acted_a], minlength=len(trace)) == 0)
    own, born = np.flatnonzero(trace.agent_e >= 0), np.flatnonzero(spawned_a)
    rows, whose = np.concatenate([kin.spawn_a[born], own]), np.concatenate([born, trace.agent_e[own]])
    suspects = about_agents(trace, dead_a.astype(np.float64), threshold, rows, whose, tells_n)
    return replace(suspects, open=_at_work(trace, kin)[suspects.agent])


def _answers_of_workflows(trace: Trace, kin: Family) -> I:
    """For each agent that only spawns, despawns and returns, the last return of those it spawned: what the workflow
    gives back.
    """
    acts_e = ~np.isin(trace.type_e, (SPAWN, DESPAWN, RETURN, RESULT))
    last_a = last_by(take(kin.parent_a, trace.agent_e), trace.type_e == RETURN, trace.n_agents)
    return last_a[~any_by(trace.agent_e, acts_e, trace.n_agents) & (last_a >= 0)]


def _at_work(trace: Trace, kin: Family) -> B:
    """Agents that may still be at work where the record ends: they neither returned nor were despawned, and who
    spawned them does not aggregate, return or stop afterwards.
    """
    who_e, n = trace.agent_e, trace.n_agents
    last_a = np.maximum(kin.spawn_a, last_by(who_e, np.ones(trace.n_events, np.bool_), n))
    over_e = np.isin(trace.type_e, (RETURN, AGGREGATE)) | (trace.decision_e == STOP)
    end_a = take(last_by(who_e, over_e, n), kin.parent_a)
    ended_a = any_by(np.where(trace.to_e >= 0, trace.to_e, who_e), trace.type_e == DESPAWN, n)
    gone_a = ended_a | any_by(who_e, trace.type_e == RETURN, n)
    return (kin.spawn_a >= 0) & ~gone_a & (end_a <= last_a)


@detector
def repeated_work(trace: Trace, second: Second, threshold: float) -> Suspects:
    """The share of tool calls that repeat another agent's: the same tool, the same content.

        figure = |{c : another agent made the same call before}| / |calls with contents|,      at least 5 of them

    Before is by time, so that it does not matter how the log interleaves agents. Sharper: calls of a spawned agent
    that alone has its role are left out on both sides, because a critic who runs an executor's tests again does its
    work.
    """
    kin = family(trace)
    special_a = np.append(specialists(trace, kin), True)  # nobody's calls do not count either
    calls = np.flatnonzero((trace.type_e == CALL) & ~special_a[trace.agent_e])
    answered = calls[trace.content_ref_e.codes[calls] >= 0]
    answered = answered[np.argsort(trace.t_e[answered], kind="stable")]
    who, t = trace.agent_e[answered], trace.t_e[answered]
    same, first = copies(
        answered, trace.rollout_e[answered], trace.tool_e.codes[answered], trace.content_ref_e.codes[answered]
    )
    other = who != trace.agent_e[first]
    joined = np.full(len(answered) + 1, np.inf)  # when a second agent first made the same call
    np.minimum.at(joined, same[other], t[other])
    again_e, evidence_e = np.zeros((2, trace.n_events), np.bool_)
    again_e[answered[other | (t > joined[same])]] = True
    evidence_e[answered[np.isfinite(joined[same])]] = True
    calls_n, told_n, again_n = (
        np.bincount(trace.rollout_e[rows], minlength=len(trace))
        for rows in (calls, answered, np.flatnonzero(again_e))
    )
    figure_n = np.where(told_n >= 5, again_n / np.maximum(told_n, 1), np.where(2 * told_n < calls_n, np.nan, 0.0))
    return Suspects.of_rollouts(figure_n, threshold, evidence_e, trace.rollout_e)
