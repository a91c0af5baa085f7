"""The ways in which orchestration fails: six of the survey's, and stopping too early or too late."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.audit.detector import Second, Suspects, detector
from podium.audit.relations import (
    SPAWN,
    TEMPORAL,
    Family,
    copies,
    doers,
    family,
    heeded,
    specialists,
    stepped,
)
from podium.graph import labels, lead
from podium.graph.grouping import any_by, last_by, rows_by
from podium.graph.path import serial_time
from podium.graph.people import team_work
from podium.graph.spans import covered
from podium.graph.steps import IS_OUTSIDE
from podium.graph.units import call_of
from podium.trace import sweep
from podium.trace.columns import B, F, I, Trace
from podium.trace.rules import joined_calls, unmatched_calls
from podium.trace.vocabulary import TOPOLOGIES, decision, event

__all__ = [
    "aggregation_leakage",
    "dominant_agent",
    "late_stop",
    "over_communication",
    "premature_stop",
    "serial_collapse",
    "topology_mismatch",
]

DECIDES, DESPAWN, MESSAGE = event("orchestrator_decision"), event("despawn"), event("message")
CALL, RETURN, AGGREGATE = event("tool_call"), event("return"), event("aggregate")
STOP = decision("stop")


@detector
def serial_collapse(trace: Trace, second: Second, threshold: float) -> Suspects:
    """How much of the parallelism that was there went unused.

        figure = 1 - (T₁/T_busy - 1) / (T₁/T_∞ - 1)       where T₁/T_∞ ≥ 1.5, else 0

    T₁ is all work, T_busy the time in which anybody worked, T_∞ the longest chain of causes. Sharper than with the
    time on the clock: waiting that nobody recorded as work is not serial work. And an agent does one thing at a
    time: T_∞ follows temporal edges inside an agent, never between agents, and an agent's own order where no edge
    gives it, and is no shorter than what any one agent was busy.
    """
    work_e = team_work(trace)
    timed = np.flatnonzero(~np.isnan(work_e) & (trace.agent_e >= 0))
    start, end = trace.t_e[timed], trace.t_e[timed] + work_e[timed]
    total_n = serial_time(trace, work_e).time_n
    busy_n = covered(trace.rollout_e[timed], start, end, len(trace))
    src, dst = _bindings(trace)
    path_n = _longest_chain(trace, work_e, src, dst)
    np.maximum.at(path_n, trace.rollout_a, covered(trace.agent_e[timed], start, end, trace.n_agents))
    with np.errstate(invalid="ignore", divide="ignore"):
        could_n = total_n / path_n
        unused_n = 1 - (total_n / busy_n - 1) / (could_n - 1)
    step_e = stepped(trace)
    steps_n = np.bincount(trace.rollout_e[step_e], minlength=len(trace))
    known_n = np.bincount(trace.rollout_e[step_e & ~np.isnan(work_e)], minlength=len(trace))
    tells_n = (2 * known_n >= steps_n) & (total_n > 0)
    figure_n = np.where(tells_n, np.where(could_n >= 1.5, unused_n, 0.0), np.nan)
    return Suspects.of_rollouts(figure_n, threshold, _waited(trace, src, dst, 0.1 * path_n), trace.rollout_e)


def _bindings(trace: Trace) -> tuple[I, I]:
    """The edges that make an event wait: all but temporal ones between agents; an agent's own order besides."""
    who_e = doers(trace)
    binds = np.flatnonzero((trace.type_x != TEMPORAL) | (who_e[trace.src_x] == who_e[trace.dst_x]))
    own_e = ~IS_OUTSIDE[trace.type_e] & (trace.agent_e >= 0)  # a tool serves many at once
    bare_e, anchored_e = own_e.copy(), own_e | (call_of(trace) >= 0)
    bare_e[trace.dst_x[anchored_e[trace.src_x] & (who_e[trace.src_x] == who_e[trace.dst_x])]] = False
    own = np.flatnonzero(own_e)
    order = own[rows_by(trace.agent_e[own])]
    before, after = order[:-1], order[1:]
    done_e = np.fmax(trace.end_e, trace.t_e)
    rows = np.flatnonzero(
        (trace.agent_e[before] == trace.agent_e[after]) & bare_e[after] & (done_e[before] <= trace.t_e[after])
    )
    src = np.concatenate([trace.src_x[binds], before[rows]])
    dst = np.concatenate([trace.dst_x[binds], after[rows]])
    by_effect = rows_by(dst)
    return src[by_effect], dst[by_effect]


def _longest_chain(trace: Trace, work_e: F, src: I, dst: I) -> F:
    path_n = np.zeros(len(trace))
    np.maximum.at(path_n, trace.rollout_e, sweep.done_times(np.nan_to_num(work_e), src, dst))
    return path_n


def _waited(trace: Trace, src: I, dst: I, least_n: F) -> B:
    """Events that began at least so long after everything that they had to wait for was done."""
    ready_e = np.full(trace.n_events, np.inf)
    ready_e[dst] = -np.inf
    with np.errstate(invalid="ignore"):  # a log without times: of who waited nothing is known
        np.maximum.at(ready_e, dst, np.fmax(trace.end_e, trace.t_e)[src])
    waited_e: B = trace.t_e - ready_e > least_n[trace.rollout_e]
    return waited_e


@detector
def dominant_agent(trace: Trace, second: Second, threshold: float) -> Suspects:
    """The largest share of steps among spawned agents, from 0 (all the same) to 1 (one does everything).

        figure = (share - 1/n) / (1 - 1/n),      n ≥ 3 agents with 20 steps or more between them

    Sharper: an agent that alone has its role is a specialist and is left out, because an executor between a planner
    and a critic is meant to do most. Where roles are not recorded nobody is.
    """
    kin = family(trace)
    born = np.flatnonzero((kin.spawn_a >= 0) & ~specialists(trace, kin))
    rollout = trace.rollout_a[born]
    step_e = stepped(trace)
    steps = np.bincount(trace.agent_e[step_e], minlength=trace.n_agents)[born]
    many_n, total_n = np.bincount(rollout, minlength=len(trace)), np.bincount(rollout, steps, minlength=len(trace))
    largest_n = np.zeros(len(trace))
    np.maximum.at(largest_n, rollout, steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        above_n = (largest_n / total_n - 1 / many_n) / (1 - 1 / many_n)
    figure_n = np.where((many_n >= 3) & (total_n >= 20), above_n, 0.0)
    asked_a = np.zeros(trace.n_agents + 1, np.bool_)
    asked_a[born[steps == largest_n[rollout]]] = True
    evidence_e = (trace.type_e == SPAWN) | (asked_a[trace.to_e] & (trace.type_e == MESSAGE))
    return Suspects.of_rollouts(figure_n, threshold, evidence_e, trace.rollout_e)


@detector
def over_communication(trace: Trace, second: Second, threshold: float) -> Suspects:
    """The share of messages to others that no other agent acts upon, at once, later or by passing them on.

        figure = |{m : nobody takes m up and then decides, spawns, calls, returns or aggregates}| / |messages|

    To take it up is an edge, other than temporal, to an event of another agent; what the sender itself does next
    does not count, else every message would lead to something. Sharper: a message that arrives after its receiver's
    last act is left out on both sides, because the sender could not know. What an agent says to nobody is narration
    and no message; where 10 messages or more all go to nobody, the log does not say to whom, and it cannot tell.
    """
    messages = heeded(trace)
    lost_e = messages.could_e & (messages.takers_e == 0)
    sent_n = np.bincount(trace.rollout_e[messages.could_e], minlength=len(trace))
    lost_n = np.bincount(trace.rollout_e[lost_e], minlength=len(trace))
    figure_n = np.where(sent_n < 10, 0.0, np.where(messages.known_n, lost_n / np.maximum(sent_n, 1), np.nan))
    spoken_n = np.bincount(trace.rollout_e[trace.type_e == MESSAGE], minlength=len(trace))
    to_nobody_n = np.bincount(trace.rollout_e[messages.sent_e], minlength=len(trace)) == 0
    figure_n[to_nobody_n & (spoken_n >= 10)] = np.nan
    return Suspects.of_rollouts(figure_n, threshold, lost_e, trace.rollout_e)


@detector
def aggregation_leakage(trace: Trace, second: Second, threshold: float) -> Suspects:
    """Aggregates of at least 2 inputs that combine nothing.

        figure = max(copied, poured),     copied = 1 if its content is that of exactly one input
        poured = min(1, r) if r ≤ 1.25 and Σ ≥ 200,     r = tokens it wrote / Σ,     Σ = tokens out of its inputs

    Inputs are returns, messages and aggregates of other agents that lead to it, or to the decision it carries out.
    Sharper: what two inputs agree on may be repeated, and so may what was voted for; who writes a quarter more than
    it read, or reads next to nothing, does not copy. Where inputs do not say what they wrote, r is against the
    tokens it read.
    """
    source, into = _inputs(trace)
    content_e = trace.content_ref_e.codes
    inputs_e = np.bincount(into, minlength=trace.n_events)
    wrote = trace.tokens_out_e[source]
    known_e = np.bincount(into, ~np.isnan(wrote), minlength=trace.n_events) == inputs_e
    read_e = np.where(known_e, np.bincount(into, np.nan_to_num(wrote), minlength=trace.n_events), trace.tokens_in_e)
    same = (content_e[source] == content_e[into]) & (content_e[into] >= 0)
    voted_e = np.zeros(trace.n_events, np.bool_)
    voted_e[trace.event_v] = True
    copied_e = (np.bincount(into, same, minlength=trace.n_events) == 1) & ~voted_e
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio_e = np.where(read_e >= 200, trace.tokens_out_e / read_e, np.where(read_e >= 0, 0.0, np.nan))
    ratio_e = np.where(ratio_e > 1.25, 0.0, np.minimum(1.0, ratio_e))
    compared_e = (content_e >= 0) & (np.bincount(into, content_e[source] >= 0, minlength=trace.n_events) > 0)
    several_e = (trace.type_e == AGGREGATE) & (inputs_e >= 2)
    figure_e = np.where(copied_e, 1.0, np.fmax(ratio_e, np.where(compared_e, 0.0, np.nan)))
    figure_e = np.where(several_e, figure_e, np.nan)
    there_n = np.bincount(trace.rollout_e[several_e], minlength=len(trace))
    judged_n = np.bincount(trace.rollout_e[~np.isnan(figure_e)], minlength=len(trace))
    suspects = np.flatnonzero(figure_e >= threshold)
    place_e = np.full(trace.n_events, -1)
    place_e[suspects] = np.arange(len(suspects))
    shown = np.flatnonzero((place_e[into] >= 0) & (same | ~copied_e[into]))
    row, of = np.concatenate([suspects, source[shown]]), np.concatenate([place_e[suspects], place_e[into[shown]]])
    tells_n = (there_n == 0) | (judged_n > 0)
    return Suspects(trace.rollout_e[suspects], figure_e[suspects], trace.agent_e[suspects], row, of, tells_n)


def _inputs(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What aggregates combine: rows of inputs, and the aggregate that each goes into, once."""
    carries_e = np.full(trace.n_events, -1)
    ours_x = (trace.type_x != TEMPORAL) & (trace.type_e[trace.dst_x] == AGGREGATE)
    planned = np.flatnonzero(ours_x & (trace.type_e[trace.src_x] == DECIDES))
    carries_e[trace.src_x[planned]] = trace.dst_x[planned]
    carries_e[trace.type_e == AGGREGATE] = np.flatnonzero(trace.type_e == AGGREGATE)
    brings_e = np.isin(trace.type_e, (RETURN, MESSAGE, AGGREGATE))
    across_x = trace.agent_e[trace.src_x] != trace.agent_e[trace.dst_x]
    x = np.flatnonzero(
        (trace.type_x != TEMPORAL) & across_x & brings_e[trace.src_x] & (carries_e[trace.dst_x] >= 0)
    )
    pair = np.unique(carries_e[trace.dst_x[x]] * np.int64(trace.n_events) + trace.src_x[x])
    return pair % max(trace.n_events, 1), pair // max(trace.n_events, 1)


@detector
def topology_mismatch(trace: Trace, second: Second, threshold: float) -> Suspects:
    """How far a run is from the runs of training.

        figure = log₂( agents / most agents in training ),     9 for a topology that was never trained

    Agents are those that were spawned or acted; tools, people and who only writes the task are none. Where the
    topology is not recorded, only the number counts.
    """
    trained = second.trained
    if trained is None or not len(trained):
        return Suspects.of_rollouts(
            np.full(len(trace), np.nan), threshold, np.zeros(trace.n_events, np.bool_), trace.rollout_e
        )
    most = max(int(_team_size(trained).max(initial=1)), 1)
    size_n = _team_size(trace)
    said_n = (trace.topology_n >= 0) & (trace.topology_n != TOPOLOGIES.index("unknown"))
    new_n = said_n & ~np.isin(trace.topology_n, trained.topology_n)
    figure_n = np.where(new_n, 9.0, np.log2(np.maximum(size_n, 1) / most))
    first = trace.first_of("e")
    evidence_e = trace.type_e == SPAWN
    bare_n = np.bincount(trace.rollout_e[evidence_e], minlength=len(trace)) == 0
    evidence_e[first[:-1][bare_n & (np.diff(first) > 0)]] = True
    return Suspects.of_rollouts(figure_n, threshold, evidence_e, trace.rollout_e)


def _team_size(trace: Trace) -> I:
    kin = family(trace)
    member_a = kin.spawn_a >= 0
    member_a[trace.agent_e[~IS_OUTSIDE[trace.type_e] & (trace.type_e != MESSAGE) & (trace.agent_e >= 0)]] = True
    return np.bincount(trace.rollout_a[member_a], minlength=len(trace))


@detector
def late_stop(trace: Trace, second: Second, threshold: float) -> Suspects:
    """The share of steps after the stated answer last changed.

        figure = |{steps with t > t*}| / |steps|,     t* = when the lead first stated the answer it kept to the end

    An answer is the label `value` of an aggregate, else the value that most of its votes (by weight) are for. Only
    what the lead states counts: others answer other questions.
    """
    answer_e = _answers(trace)
    answers = np.flatnonzero((answer_e >= 0) & (trace.agent_e == lead(trace)[trace.rollout_e]))
    rollout = trace.rollout_e[answers]
    said_n = np.bincount(rollout, minlength=len(trace))
    new = np.ones(len(answers), np.bool_)
    new[1:] = (answer_e[answers[1:]] != answer_e[answers[:-1]]) | (rollout[1:] != rollout[:-1])
    settled_n = np.full(len(trace), -1)
    settled_n[rollout[new]] = answers[new]  # rows ascend, so the last change stays
    since_n = np.append(trace.t_e, np.nan)[settled_n]
    step_e = stepped(trace)
    after_n = np.bincount(trace.rollout_e[step_e & (trace.t_e > since_n[trace.rollout_e])], minlength=len(trace))
    steps_n = np.bincount(trace.rollout_e[step_e], minlength=len(trace))
    figure_n = np.where(said_n >= 3, after_n / np.maximum(steps_n, 1), np.nan)
    evidence_e = np.zeros(trace.n_events, np.bool_)
    evidence_e[answers[answers >= settled_n[rollout]]] = True
    return Suspects.of_rollouts(figure_n, threshold, evidence_e, trace.rollout_e)


def _answers(trace: Trace) -> I:
    """The answer that each aggregate states, as a number; -1 where it states none."""
    aggregate_e = trace.type_e == AGGREGATE
    value_e = np.where(aggregate_e, labels.number(trace, "value"), np.nan)
    answer_e = np.full(trace.n_events, -1)
    words = len(trace.value_v.words) + 1
    votes = np.flatnonzero((trace.event_v >= 0) & (trace.value_v.codes >= 0))
    if len(votes):
        weight = np.where(np.isnan(trace.weight_v[votes]), 1.0, trace.weight_v[votes])
        pair, which = np.unique(
            trace.event_v[votes] * np.int64(words) + trace.value_v.codes[votes], return_inverse=True
        )
        order = np.lexsort((np.bincount(which, weight), pair // words))
        answer_e[pair[order] // words] = pair[order] % words  # the heaviest comes last, so it stays
        answer_e[~aggregate_e] = -1
    stated = np.flatnonzero(~np.isnan(value_e))
    answer_e[stated] = words + np.unique(value_e[stated], return_inverse=True)[1]
    return answer_e


@detector
def premature_stop(trace: Trace, second: Second, threshold: float) -> Suspects:
    """The share of what the lead sent out that is outstanding when it stops.

        figure = max( |open agents| / |agents it spawned|,  |open calls| / |calls it made| ),     of at least 2 each

    The stop is the lead's last stop or aggregate, if it sends out nothing after it. Sharper than one share of both,
    in which a lead's many small calls would hide its few agents. An agent has answered with a return or a despawn;
    where nobody of its role in the run ever returns, with anything that reached another agent. A call has answered
    with its result. Where all that acted were told to after their spawn, one that was never told and never acted
    was only enrolled: nothing of it is outstanding.
    """
    kin = family(trace)
    lead_n = lead(trace)
    stop_n = _last_stop(trace, lead_n)
    until_n = np.append(trace.t_e, np.nan)[stop_n]
    agents = _set_to_work(
        trace, kin, np.flatnonzero((kin.spawn_a >= 0) & (kin.parent_a == lead_n[trace.rollout_a]))
    )
    calls = np.flatnonzero((trace.type_e == CALL) & (trace.agent_e == lead_n[trace.rollout_e]))
    figure_n = np.where(stop_n >= 0, 0.0, np.nan)
    evidence_e = np.zeros(trace.n_events, np.bool_)
    evidence_e[stop_n[stop_n >= 0]] = True
    for sent, back in (
        (kin.spawn_a[agents], _agents_answered(trace, kin.role_a)[agents]),
        (calls, _calls_answered(trace)[calls]),
    ):
        rollout = trace.rollout_e[sent]
        out = trace.t_e[sent] <= until_n[rollout]
        open_ = out & ~(back <= until_n[rollout])
        out_n, open_n = (np.bincount(rollout[which], minlength=len(trace)) for which in (out, open_))
        figure_n = np.maximum(figure_n, np.where(out_n >= 2, open_n / np.maximum(out_n, 1), 0.0))
        evidence_e[sent[open_]] = True
    return Suspects.of_rollouts(figure_n, threshold, evidence_e, trace.rollout_e)


def _set_to_work(trace: Trace, kin: Family, agents: I) -> I:
    """Of these agents those that a spawn or a later word set to work: all, but for the idle where words do it."""
    acted_a = any_by(trace.agent_e, np.ones(trace.n_events, np.bool_), trace.n_agents)
    boss_x = np.append(kin.parent_a, -2)[trace.agent_e[trace.dst_x]]
    told_x = (
        (trace.agent_e[trace.src_x] == boss_x) & (trace.type_e[trace.src_x] != SPAWN) & (trace.type_x != TEMPORAL)
    )
    told_a = any_by(trace.agent_e[trace.dst_x], told_x, trace.n_agents)
    told_a |= any_by(trace.to_e, trace.type_e == MESSAGE, trace.n_agents)
    at_once, acting = agents[acted_a[agents] & ~told_a[agents]], agents[acted_a[agents]]
    words_n = (np.bincount(trace.rollout_a[acting], minlength=len(trace)) > 0) & (
        np.bincount(trace.rollout_a[at_once], minlength=len(trace)) == 0
    )
    at_work: I = agents[acted_a[agents] | told_a[agents] | ~words_n[trace.rollout_a[agents]]]
    return at_work


def _last_stop(trace: Trace, lead_n: I) -> NDArray[np.int64]:
    """The lead's last stop or aggregate, if it then sends out nothing more; else -1."""
    own_e = trace.agent_e == lead_n[trace.rollout_e]
    ends_e = own_e & ((trace.type_e == AGGREGATE) | (trace.decision_e == STOP))
    goes_e = own_e & np.isin(trace.type_e, (DECIDES, SPAWN, CALL)) & ~ends_e
    end_n, go_n = (last_by(trace.rollout_e, which_e, len(trace)) for which_e in (ends_e, goes_e))
    return np.where(end_n > go_n, end_n, -1)


def _agents_answered(trace: Trace, role_a: I) -> F:
    """When each agent first gave back what it was spawned for; infinite where it never did."""
    returned_a, reached_a, gone_a = (np.full(trace.n_agents, np.inf) for _ in range(3))
    gave = np.flatnonzero((trace.type_e == RETURN) & (trace.agent_e >= 0))
    np.fmin.at(returned_a, trace.agent_e[gave], trace.t_e[gave])
    gone = np.flatnonzero((trace.type_e == DESPAWN) & (trace.to_e >= 0))
    np.fmin.at(gone_a, trace.to_e[gone], trace.t_e[gone])
    told_x = (
        (trace.type_x != TEMPORAL) & (trace.type_e[trace.dst_x] != DESPAWN) & (trace.type_e[trace.src_x] != SPAWN)
    )
    x = np.flatnonzero(
        told_x & (trace.agent_e[trace.src_x] != trace.agent_e[trace.dst_x]) & (trace.agent_e[trace.src_x] >= 0)
    )
    x = x[~IS_OUTSIDE[trace.type_e[trace.dst_x[x]]]]
    np.fmin.at(reached_a, trace.agent_e[trace.src_x[x]], trace.t_e[trace.src_x[x]])
    group, _ = copies(np.arange(trace.n_agents), trace.rollout_a, role_a)
    returns_g = np.bincount(group, np.isfinite(returned_a), minlength=1) > 0
    answered_a: F = np.minimum(np.where(returns_g[group], returned_a, reached_a), gone_a)
    return answered_a


def _calls_answered(trace: Trace) -> F:
    """When each call had its result: 0 for one that the rules pair without an edge, infinite for one without."""
    when_e = np.zeros(trace.n_events)
    joined = joined_calls(trace)
    when_e[trace.src_x[joined]] = np.inf
    np.fmin.at(when_e, trace.src_x[joined], trace.t_e[trace.dst_x[joined]])
    when_e[np.array(unmatched_calls(trace)[1], np.int64)] = np.inf
    return when_e
