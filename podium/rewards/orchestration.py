"""R7, orchestration: how well the team was put together, put to work and stopped.

`instantiate`, `finish` and `speedup` are as published, and pay for empty work too. `contributed`, `completed` and
`useful_speedup` pay only for what led to an answer; the shape `earned` makes any of them follow the outcome.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium import graph
from podium.graph.ancestry import ancestors
from podium.graph.grouping import any_by, changes, count_by, last_by, mean_by, ratio, rows_by, sum_by, take
from podium.graph.labels import label, number, stated
from podium.graph.spans import wall_clock
from podium.graph.steps import spawned
from podium.graph.units import actor, rows
from podium.registry import register
from podium.rewards.individual import channel_of_events
from podium.rewards.ledger import BadReward
from podium.rewards.outcome import channel_of_rollouts
from podium.rewards.tools import LEADS_ON, answers_of_the_lead
from podium.trace.columns import B, F, I, Trace, ranges
from podium.trace.vocabulary import decision, edge, event

__all__ = ["combined", "crossing", "spawned", "speedup", "used", "wall_clock"]

R7: dict[str, Any] = {"unit": "team", "families": ("R7",), "better": "higher"}
WORK = "what sub-agents did: calls, messages, contents or tokens out"
NO_END = "an event that does not say when it ended took no time"
UNMARKED = "in a run that marks any return, what is left unmarked is right, relevant and new"

DECISION, SPAWN, DESPAWN = event("orchestrator_decision"), event("spawn"), event("despawn")
MESSAGE, CALL = event("message"), event("tool_call")
RESULT, RETURN, AGGREGATE, SAFETY = event("tool_result"), event("return"), event("aggregate"), event("safety_event")
TEMPORAL, STOP = edge("temporal"), decision("stop")


# who was spawned, and what came of it


def used(trace: Trace) -> B:
    """The agents of whom something reached another (`crossing`)."""
    return any_by(actor(trace)[trace.src_x], crossing(trace), trace.n_agents)


def crossing(trace: Trace) -> B:
    """The edges, not merely temporal, by which one agent's doing reached another's.

    A tool result is the caller's doing; to be despawned or noticed by a safety check is no use.
    """
    who_e = actor(trace)
    crosses_x: B = (who_e[trace.src_x] != who_e[trace.dst_x]) & (trace.type_x != TEMPORAL)
    return crosses_x & ~np.isin(trace.type_e, (DESPAWN, SAFETY))[trace.dst_x]


def _nameless(trace: Trace) -> NDArray[np.int64]:
    """How many spawns of each rollout do not say whom."""
    return count_by(trace.rollout_e, (trace.type_e == SPAWN) & (trace.to_e < 0), len(trace))


def _silent(trace: Trace) -> B:
    """The rollouts of which nothing is recorded."""
    silent_n: B = rows(trace, "team") < 0
    return silent_n


def _share(trace: Trace, which_a: B, none: float) -> F:
    """The share of each rollout's spawned agents that are such; `none` without spawns, NaN if not recorded."""
    born_a = spawned(trace)
    all_n, such_n = (count_by(trace.rollout_a, a, len(trace)) for a in (born_a, born_a & which_a))
    share_n = np.where(all_n > 0, ratio(such_n, all_n), none)
    return np.where(_silent(trace) | (_nameless(trace) > 0), np.nan, share_n)


@register("score", **R7, needs="spawn events")
def instantiate(trace: Trace, most: int = 8) -> F:
    """How many sub-agents were instantiated, up to a bound.

        r = min(spawned, most) / most

    It pays for the spawn alone: eight idle workers at weight .3 beat an honest .2. K2.5 gives no form and anneals
    it.
    pays: the team.   needs: spawn events; an agent that is spawned twice counts once.   from: Kimi K2.5, section 3.
    """
    count_n = count_by(trace.rollout_a, spawned(trace), len(trace)) + _nameless(trace)
    return np.where(_silent(trace), np.nan, np.minimum(count_n, most) / most)


@register("score", **R7, needs="spawn events that name whom, and returns")
def finish(trace: Trace, none: float = np.nan) -> F:
    """The share of the sub-tasks assigned that were finished.

        r = |{a spawned : a returned, and not only what is marked invalid}| / |{a spawned}|

    An empty return counts here; `completed` asks for work and use.
    pays: the team.   needs: spawns that name whom, else NaN; `none` without spawns.   from: Kimi K2.5, section 3.
    """
    finished_e = (trace.type_e == RETURN) & (trace.valid_e != 0)
    return _share(trace, any_by(trace.agent_e, finished_e, trace.n_agents), none)


@register("score", unit="team", families=("R7",), better="lower", needs="spawn events that name whom, and edges")
def wasted_spawns(trace: Trace, none: float = np.nan) -> F:
    """The share of spawned agents of whom nothing reached anybody else.

        w = |{a spawned : no edge but temporal leads from a to an act of another}| / |{a spawned}|

    pays: the team.   needs: spawns that name whom, else NaN; `none` where nobody was spawned.
    """
    return _share(trace, ~used(trace), none)


@register("score", **R7, needs=f"spawns that name whom, edges, and {WORK}")
def contributed(trace: Trace, most: int = 8) -> F:
    """How many sub-agents the answer rests on, up to a bound: `instantiate` for those who worked and were used.

        r = min(|{a spawned : a worked, and something that a did led to an answer of the lead}|, most) / most

    Work is a tool call, message, spawn, aggregate, tokens written, or a return with content or marked valid; none
    marked invalid. Answers: `rewards.tools.answers_of_the_lead`. Made-up work that the lead takes in pays: use it
    under `earned`.
    pays: the team.   needs: spawns that name whom, and whether each who led to an answer worked (tokens out of 0
    say no), else NaN.   from: ours, against spurious parallelism (Kimi K2.5, section 3).
    """
    worked_a, unknown_a = _worked(trace, np.ones(trace.n_events, np.bool_))
    count_n, unknown_n = (count_by(trace.rollout_a, a, len(trace)) for a in (worked_a, unknown_a))
    absent_n = _silent(trace) | (_nameless(trace) > 0) | ((unknown_n > 0) & (count_n < most))
    return np.where(absent_n, np.nan, np.minimum(count_n, most) / most)


@register("score", **R7, needs=f"spawns that name whom, returns, edges, and {WORK}")
def completed(trace: Trace, none: float = np.nan) -> F:
    """The share of the sub-tasks assigned whose return rests on work and was used: `finish` without empty returns.

        r = |{a spawned : a worked, and a valid return of a led to an answer of the lead}| / |{a spawned}|

    pays: the team.   needs: as `contributed`, else NaN; `none` without spawns.   from: ours, after Kimi K2.5.
    """
    worked_a, unknown_a = _worked(trace, trace.type_e == RETURN)
    unknown_n = any_by(trace.rollout_a, unknown_a, len(trace))
    return np.where(unknown_n, np.nan, _share(trace, worked_a, none))


def _worked(trace: Trace, by_e: B) -> tuple[B, B]:
    """Of the spawned agents of whom such an event led to an answer: who worked, and of whom nothing says so."""
    shows_e = np.isin(trace.type_e, (CALL, MESSAGE, SPAWN, AGGREGATE)) | (trace.tokens_out_e > 0)
    shows_e |= (trace.type_e == RETURN) & ((trace.content_ref_e.codes >= 0) | (trace.valid_e == 1))
    heard_e = by_e & (trace.valid_e != 0) & ancestors(trace, answers_of_the_lead(trace), LEADS_ON)
    open_e = heard_e & np.isnan(trace.tokens_out_e)
    heard_a, shows_a, open_a = (
        any_by(trace.agent_e, e, trace.n_agents) for e in (heard_e, shows_e & (trace.valid_e != 0), open_e)
    )
    heard_a &= spawned(trace)
    return heard_a & shows_a, heard_a & ~shows_a & open_a


# time and steps


@register(
    "score",
    unit="team",
    families=("R7", "E2"),
    better="higher",
    needs="when events began and ended",
    assumes=NO_END,
)
def speedup(trace: Trace, over: str = "wall", guess: bool = False) -> F:
    """How much faster than one worker: the serial time of the work over the time it took.

        S = T₁ / T_team   (over="wall", as it ran),   or   S = T₁ / T_∞   (over="path", as its causes would allow)

    T₁ is the sum of the team's work, T_∞ the critical path, T_team the wall clock less waiting for people
    (`graph.waiting`). With `guess` work is the time since the latest cause, for logs without ends. Sleeping workers
    speed up too: `useful_speedup`, `earned` and `clip` bound it.
    pays: the team.   needs: ends of events, else NaN.   from: the survey's table 13, parallelism efficiency.
    """
    if over not in ("wall", "path"):
        raise BadReward(f"speedup is over 'wall' or 'path', got {over!r}")
    every_e = graph.inferred_work(trace) if guess else graph.work(trace)
    work_e = graph.team_work(trace, every_e)
    serial_n = graph.serial_time(trace, work_e).time_n
    if over == "path":
        time_n = graph.critical_path(trace, work_e).time_n
    else:
        start_e = trace.t_e - every_e if guess else trace.t_e
        time_n = wall_clock(trace) - graph.waiting(trace, start_e, every_e)
    return serial_n / np.where(time_n > 0, time_n, np.nan)


@register("score", **R7, needs="when events began and ended, and edges to what they led to", assumes=NO_END)
def useful_speedup(trace: Trace) -> F:
    """`speedup` of the work that the answer rests on: what led to no answer of the lead is time spent and no work.

        S = T_useful / T_team,   T_useful = Σ w_e over the lead's answers and all that led to one, not in time only

    What is slept through and then taken in counts: as a reward use it under `earned`.
    pays: the team.   needs: ends of events, else NaN.   from: ours.
    """
    answer_e, work_e = answers_of_the_lead(trace), graph.team_work(trace)
    idle_e = ~(answer_e | ancestors(trace, answer_e, LEADS_ON)) & ~np.isnan(work_e)
    time_n = wall_clock(trace) - graph.waiting(trace, trace.t_e, graph.work(trace))
    return graph.serial_time(trace, np.where(idle_e, 0.0, work_e)).time_n / np.where(time_n > 0, time_n, np.nan)


@register("score", unit="team", families=("R7", "E2"), better="lower", needs="events and edges")
def critical_steps(trace: Trace) -> F:
    """The steps of the run when what ran in parallel counts once.

        Σ_stages ( S_main + max_i S_sub,i )

    pays: the team.   needs: events.   from: Kimi K2.5, section 3; see `graph.critical_steps`.
    """
    return np.where(_silent(trace), np.nan, graph.critical_steps(trace).astype(np.float64))


@register("score", unit="team", families=("R7",), better="lower", needs="events and edges")
def over_budget(trace: Trace, most: float = 100.0) -> F:
    """By how much the critical steps exceed a budget, as a share of it.

        o = max(0, steps / most - 1)

    pays: the team.   needs: events.   from: Kimi K2.5, section 3 (critical steps as a budget).
    """
    if not most > 0:
        raise BadReward(f"a budget is above 0, got {most!r}")
    return np.maximum(0.0, critical_steps(trace) / most - 1.0)


# splitting, aggregating, stopping


@register("score", **R7, needs="verdicts on returns: valid, task_relevant or duplicate_of", assumes=UNMARKED)
def split_correctness(trace: Trace) -> F:
    """The share of the parts handed out that came back right, to the point and new.

        c = |{p : returned, valid, relevant and no duplicate}| / |{p}|
        p: each return of a spawned agent, and each spawned agent that acted and did not return

    Who never acted is a wasted spawn, not a wrong split.
    pays: the team.   needs: `valid`, `task_relevant` or `duplicate_of` on a return of the run, else NaN.   from:
    ours.
    """
    return_e, born_a = trace.type_e == RETURN, spawned(trace)
    valid_e, relevant_e, twice_e = trace.valid_e, label(trace, "task_relevant"), stated(trace, "duplicate_of")
    part_e = return_e & take(born_a, trace.agent_e)
    acted_a, back_a = (any_by(trace.agent_e, e, trace.n_agents) for e in (trace.type_e != RESULT, return_e))
    lost_a = born_a & acted_a & ~back_a
    right_e = part_e & (valid_e != 0) & (relevant_e != 0) & ~twice_e
    judged_e = part_e & ((valid_e >= 0) | (relevant_e >= 0) | twice_e)
    right_n, judged_n, returned_n = (count_by(trace.rollout_e, e, len(trace)) for e in (right_e, judged_e, part_e))
    parts_n = returned_n + count_by(trace.rollout_a, lost_a, len(trace))
    return np.where(judged_n > 0, ratio(right_n, parts_n), np.nan)


def combined(trace: Trace) -> tuple[I, I]:
    """What each aggregate combined, as pairs (row of the input, row of the aggregate), each once.

    The votes it states; the returns and messages with an edge to it, or to a decision that has one to it.
    """
    is_input_e, is_aggregate_e = np.isin(trace.type_e, (RETURN, MESSAGE)), trace.type_e == AGGREGATE
    causal = trace.type_x != TEMPORAL
    src, dst = trace.src_x[causal], trace.dst_x[causal]
    direct = is_input_e[src] & is_aggregate_e[dst]
    heard = np.flatnonzero(is_input_e[src] & (trace.type_e == DECISION)[dst])  # by a decision, in their order
    led = np.flatnonzero((trace.type_e == DECISION)[src] & is_aggregate_e[dst])  # decision -> aggregate
    first = np.searchsorted(dst[heard], src[led])
    count = np.searchsorted(dst[heard], src[led], side="right") - first
    via = heard[ranges(first, count)]
    voted = np.flatnonzero(trace.source_v >= 0)
    row = np.concatenate([src[direct], src[via], trace.source_v[voted]]).astype(np.int64)
    of = np.concatenate([dst[direct], np.repeat(dst[led], count), trace.event_v[voted]]).astype(np.int64)
    order = rows_by(row)
    order = order[rows_by(of[order])]
    row, of = row[order], of[order]
    new = changes(row) | changes(of)
    return row[new], of[new]


@register(
    "score",
    unit="team",
    families=("R7", "E3"),
    better="higher",
    needs="a verdict on what was combined and on the aggregate: the reward channel on events, else valid",
    assumes="the outcome is the verdict on the lead's last aggregate, where that has none of its own",
)
def aggregation_quality(trace: Trace, channel: str = "verdict", outcome: str = "team") -> F:
    """What aggregating added: how right the aggregate is, less how right what it combined was on average.

        q = mean over aggregates g of   worth_g - mean(worth_i : i combined by g)

    0 is no better than passing on any one input; a lead is not paid for good inputs.
    pays: the team.   needs: the worth of an aggregate and of an input of it, reward_e[channel] or `valid`, else
    NaN.   from: ours.
    """
    verdict_e = channel_of_events(trace, channel)
    worth_e = np.where(np.isnan(verdict_e) & (trace.valid_e >= 0), trace.valid_e, verdict_e)
    row, of = combined(trace)
    own_e = np.where(np.isnan(worth_e), _outcome_at_the_end(trace, outcome), worth_e)
    added_e = own_e - mean_by(of, worth_e[row], trace.n_events)
    return mean_by(trace.rollout_e, np.where(trace.type_e == AGGREGATE, added_e, np.nan), len(trace))


def _outcome_at_the_end(trace: Trace, channel: str) -> F:
    """The outcome of a run, on the last aggregate of its lead."""
    last_n = last_by(trace.rollout_e, _by_lead(trace) & (trace.type_e == AGGREGATE), len(trace))
    end_e = np.full(trace.n_events + 1, np.nan)
    end_e[last_n] = channel_of_rollouts(trace, channel)
    return end_e[:-1]


def _by_lead(trace: Trace) -> B:
    by: B = (trace.agent_e >= 0) & (trace.agent_e == graph.lead(trace)[trace.rollout_e])
    return by


@register(
    "score",
    **R7,
    needs="value on results, returns or messages, and cost on events",
    assumes="the lead may take any answer that it has; events that do not state a cost are free where others do",
)
def stop_timeliness(trace: Trace, worth: str | None = None, price: float | None = None) -> F:
    """What the lead had in hand when it stopped, less all that was paid for it.

        s = max(value_e : e led to an aggregate or a decision to stop of the lead) - Σ cost_e

    One more answer changes it by max(0, value - best) - cost. `worth` names a reward channel of the run to take for
    the value of the answer; `price` is the cost of a result, return or message where no event of the run states
    one.
    pays: the team.   needs: a stop of the lead, `value` (or `worth`) and `cost` (or `price`), else NaN; 0 where it
    stopped at once.   from: ours.
    """
    look_e = np.isin(trace.type_e, (RESULT, RETURN, MESSAGE))
    stop_e = _by_lead(trace) & ((trace.type_e == AGGREGATE) | (trace.decision_e == STOP))
    stops_n, looks_n = (count_by(trace.rollout_e, e, len(trace)) for e in (stop_e, look_e))
    paid_n, _ = sum_by(trace.rollout_e, trace.cost_e, len(trace))
    paid_n = np.where(np.isnan(paid_n) & (looks_n == 0), 0.0, paid_n)
    if price is not None:
        paid_n = np.where(np.isnan(paid_n), price * looks_n, paid_n)
    best_n = channel_of_rollouts(trace, worth) if worth else _in_hand(trace, look_e, stop_e, looks_n)
    return np.where(stops_n > 0, best_n - paid_n, np.nan)


def _in_hand(trace: Trace, look_e: B, stop_e: B, looks_n: I) -> F:
    """The best value that led to a stop; 0 where there was none to be had yet, NaN where none is recorded."""
    value_e = np.where(look_e, number(trace, "value"), np.nan)
    rows = np.flatnonzero(graph.ancestors(trace, stop_e) & ~np.isnan(value_e))
    best_n = np.full(len(trace), -np.inf)
    np.maximum.at(best_n, trace.rollout_e[rows], value_e[rows])
    known_n = any_by(trace.rollout_e, ~np.isnan(value_e), len(trace))
    return np.where(np.isinf(best_n), np.where(known_n | (looks_n == 0), 0.0, np.nan), best_n)
