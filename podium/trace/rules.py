"""The rules a trace obeys: one table, checked once, at the door. Inside, code trusts the columns.

Structural rules are broken before there are rows to look at: the readers find those and name them by the ids below.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F, I, Trace
from podium.trace.findings import Finding, Level
from podium.trace.loose import backwards
from podium.trace.options import chosen_options
from podium.trace.sweep import latest, reach
from podium.trace.vocabulary import EVENT_TYPES, STEPS, EventType, edge, event
from podium.trace.vocabulary import decision as decision_code

__all__ = [
    "LEVELS",
    "ROUNDING",
    "RULES",
    "Rule",
    "check",
    "joined_calls",
    "released",
    "trust_edges",
    "unmatched_calls",
]

IS_STEP = np.isin(EVENT_TYPES, STEPS)
LIMIT = 1000  # findings of one rule in one trace that are spelled out
ROUNDING = 1e-4  # by which a log-probability in 32-bit arithmetic may exceed 0

Broken = Iterable[tuple[int, str]]


class Rule(NamedTuple):
    """A rule: its id, how bad it is to break it, what it says, and the rows that break it."""

    id: str
    level: Level
    sentence: str
    broken: Callable[[Trace], Broken] | None = None


def check(trace: Trace, file: str = "") -> list[Finding]:
    """Every rule of the table that this trace breaks."""
    findings: list[Finding] = []
    for rule in RULES:
        for count, (row, message) in enumerate(rule.broken(trace) if rule.broken else ()):
            if count == LIMIT:
                message = f"and more than the {LIMIT} shown: {rule.sentence}"
            findings.append(Finding(file, row, rule.id, rule.level, message))
            if count == LIMIT:
                break
    return findings


def skew(trace: Trace) -> NDArray[np.float64]:
    """Seconds by which clocks may disagree, per rollout."""
    return np.where(np.isnan(trace.clock_skew_n), 0.0, trace.clock_skew_n)


def _backwards(trace: Trace, beyond: bool) -> Iterator[tuple[int, str]]:
    later = np.flatnonzero(trace.t_e[trace.src_x] > trace.t_e[trace.dst_x])
    late_x = trace.t_e[trace.src_x[later]] - trace.t_e[trace.dst_x[later]]
    tolerance_x = skew(trace)[trace.rollout_e[trace.dst_x[later]]]
    for i in np.flatnonzero((late_x > tolerance_x) == beyond).tolist():
        s, d, tolerance = int(trace.src_x[later[i]]), int(trace.dst_x[later[i]]), float(tolerance_x[i])
        message = backwards(trace.id_e, trace.t_e, s, d)
        yield d, message if beyond else f"{message}, within the clock tolerance of {tolerance:g} s"


def lifetime(trace: Trace) -> Broken:
    spawns = np.flatnonzero((trace.type_e == event("spawn")) & (trace.to_e >= 0))
    if not len(spawns):
        return
    despawns = np.flatnonzero(trace.type_e == event("despawn"))
    gone = np.where(trace.to_e[despawns] >= 0, trace.to_e[despawns], trace.agent_e[despawns])
    born_a, died_a = np.full(trace.n_agents, np.inf), np.full(trace.n_agents, -np.inf)
    np.fmin.at(born_a, trace.to_e[spawns], trace.t_e[spawns])
    np.fmax.at(died_a, gone, trace.t_e[despawns])
    born_a[trace.to_e[spawns[np.isnan(trace.t_e[spawns])]]] = np.inf  # it may have lived before those with a time
    spawned_a = np.isfinite(born_a)
    born_a = np.where(spawned_a, born_a, -np.inf)
    last_a = np.full((2, trace.n_agents), -1)  # rows: its last spawn, its last despawn
    last_a[0, trace.to_e[spawns]], last_a[1, gone] = spawns, despawns
    died_a = np.where(spawned_a & np.isfinite(died_a) & (last_a[0] < last_a[1]), died_a, np.inf)
    acts_e = (trace.type_e != event("tool_result")) & (trace.agent_e >= 0)
    slack_e = skew(trace)[trace.rollout_e]
    early_e = acts_e & (trace.t_e < born_a[trace.agent_e] - slack_e)
    late_e = acts_e & (trace.t_e > died_a[trace.agent_e] + slack_e)
    for row in np.flatnonzero(early_e | late_e).tolist():
        agent = int(trace.agent_e[row])
        despawned = f"after its last despawn (t={died_a[agent]:g})"
        when = f"before it was spawned (t={born_a[agent]:g})" if early_e[row] else despawned
        yield row, f"{trace.id_e[row]}: {trace.name_a[agent]!r} acts at t={trace.t_e[row]:g}, {when}"


def joined_calls(trace: Trace) -> NDArray[np.int64]:
    """The edges that join a tool call to its result."""
    call_x = trace.type_e[trace.src_x] == event("tool_call")
    return np.flatnonzero(call_x & (trace.type_e[trace.dst_x] == event("tool_result")))


def unmatched_calls(trace: Trace) -> tuple[list[int], list[int]]:
    """Results without a call, and calls without a result.

    A recorded edge joins the two. Where none does, a result is taken to answer the earliest earlier call of the
    same tool that nothing else answers; where one of the two names no tool, of the same agent.
    """
    single_e = (trace.type_e == event("tool_call")) | (trace.type_e == event("tool_result"))
    joined = joined_calls(trace)
    single_e[trace.src_x[joined]] = False
    single_e[trace.dst_x[joined]] = False
    single = np.flatnonzero(single_e)
    if not len(single):
        return [], []
    named_a = np.append(trace.name_a.recoded(trace.tool_e.words), -2)  # the tool that an agent is
    agent_e = trace.agent_e[single]
    columns = (trace.type_e[single], trace.rollout_e[single], trace.tool_e.codes[single], agent_e, named_a[agent_e])
    waiting: dict[tuple[int, str, int], deque[int]] = {}
    results, unanswered = [], set()
    for row, type_, run, tool, agent, named in zip(single.tolist(), *(c.tolist() for c in columns), strict=True):
        if type_ == event("tool_call"):
            unanswered.add(row)
            for key in (run, "of", agent), (run, "to", tool) if tool >= 0 else (run, "by", agent):
                waiting.setdefault(key, deque()).append(row)
            continue
        keys = ((run, "to", tool), (run, "by", agent)) if tool >= 0 else ((run, "to", named), (run, "of", agent))
        for calls in (waiting.get(key, deque()) for key in keys):
            while calls and calls[0] not in unanswered:
                calls.popleft()
        call = next((waiting[key].popleft() for key in keys if waiting.get(key)), None)
        if call is None:
            results.append(row)
        else:
            unanswered.discard(call)
    return results, sorted(unanswered)


def orphan_result(trace: Trace) -> Broken:
    for row in unmatched_calls(trace)[0]:
        if trace.truncated_e[row] != 1:
            yield row, f"{trace.id_e[row]} is a tool result, but no earlier call asked for it"


def open_call(trace: Trace) -> Broken:
    for row in unmatched_calls(trace)[1]:
        yield row, f"{trace.id_e[row]} is a tool call without a result"


def orphan_return(trace: Trace) -> Broken:
    """A return answers what reached the agent since its return before: what was addressed to it, or an edge into
    its events from another agent's."""
    spawned_a = np.zeros(trace.n_agents + 1, np.bool_)
    spawned_a[trace.to_e[trace.type_e == event("spawn")]] = True
    spawned_a[-1] = False
    returns = np.flatnonzero((trace.type_e == event("return")) & spawned_a[trace.agent_e])
    if not len(returns):
        return
    world_e = trace.type_e == event("tool_result")
    addressed = np.flatnonzero(
        (trace.to_e >= 0) & ~world_e & ((trace.to_e != trace.agent_e) | (trace.type_e == event("spawn")))
    )
    across_x = (trace.agent_e[trace.src_x] != trace.agent_e[trace.dst_x]) & (trace.type_x != edge("temporal"))
    reached = trace.dst_x[across_x & ~world_e[trace.src_x]]
    n = np.int64(trace.n_events + 1)  # an agent and a row as one number
    inputs = np.sort(np.append(trace.to_e[addressed] * n + addressed, trace.agent_e[reached] * n + reached))
    answers = np.sort(trace.agent_e[returns] * n + returns)
    before = np.append(-1, answers[:-1])
    since = np.where(
        before // n == answers // n, before, answers // n * n - 1
    )  # the return before, or the beginning
    last = np.searchsorted(inputs, answers, side="right") - 1
    for key in answers[(last < 0) | (inputs[last] <= since)].tolist():
        row = key % n
        if trace.truncated_e[row] != 1:
            fault = "returns, but nothing has reached it since its last return, or ever"
            yield row, f"{trace.id_e[row]}: {trace.name_a[key // n]!r} {fault}"


def acts_after_stop(trace: Trace) -> Broken:
    stops = np.flatnonzero(
        (trace.decision_e == decision_code("stop")) & (trace.chosen_e.codes == trace.chosen_e.code("stop"))
    )
    if not len(stops):
        return
    stopped_a = np.full(trace.n_agents, trace.n_events)
    np.minimum.at(stopped_a, trace.agent_e[stops], stops)
    may = [event("aggregate"), event("return"), event("despawn"), event("tool_result")]
    after_e = np.arange(trace.n_events) > stopped_a[trace.agent_e]
    for row in np.flatnonzero(after_e & ~np.isin(trace.type_e, may)).tolist():
        agent = int(trace.agent_e[row])
        stop = trace.id_e[int(stopped_a[agent])]
        yield row, f"{trace.id_e[row]}: {trace.name_a[agent]!r} decided to stop at {stop}, yet goes on"


def token_owner(trace: Trace) -> Broken:
    for k in np.flatnonzero((trace.owner_k < 0) | (trace.owner_k >= trace.n_events)).tolist():
        yield 0, f"token {k} belongs to no event"
    for row in _circular(trace.context_e):
        yield row, f"{trace.id_e[row]}: the context it extends is made of its own tokens"
    placed = np.flatnonzero(trace.start_e >= 0)
    if not len(placed):
        return
    owned_e = np.bincount(trace.owner_k[trace.owner_k >= 0], minlength=trace.n_events)
    context = trace.context_e[placed]
    end = np.where(context < 0, 0, trace.start_e[context] + owned_e[context])
    known = (context < 0) | (trace.start_e[context] >= 0)
    for i in np.flatnonzero(known & (trace.start_e[placed] != end)).tolist():
        row, start = int(placed[i]), int(trace.start_e[placed[i]])
        owners = "two owners" if start < end[i] else "no owner"
        what = f"its tokens start at {start}, the context it extends ends at {end[i]}"
        yield row, f"{trace.id_e[row]}: {what}: {abs(end[i] - start)} tokens have {owners}"


def _circular(context_e: I) -> list[int]:
    """Events whose context leads back to them, or to others of which that is true."""
    if not (context_e >= np.arange(len(context_e))).any():
        return []
    up_e = np.append(context_e, -1)
    for _ in range(len(up_e).bit_length()):
        up_e = up_e[up_e]
    return np.flatnonzero(up_e >= 0).tolist()


def totals(trace: Trace) -> Broken:
    """Counts of calls and messages, and tokens and cost where every event that does a step states them."""
    cut_n = np.bincount(trace.rollout_e[trace.truncated_e == 1], minlength=len(trace)) > 0
    for name, stated_n in trace.cost_n.items():
        if name not in _FIGURES:
            continue
        figure_e, silent_e = _FIGURES[name](trace)
        sum_n = np.bincount(trace.rollout_e, figure_e, minlength=len(trace))
        silent_n = np.bincount(trace.rollout_e[silent_e & IS_STEP[trace.type_e]], minlength=len(trace)) > 0
        silent_n |= np.bincount(trace.rollout_e[~silent_e], minlength=len(trace)) == 0
        differs_n = ~cut_n & ~silent_n & ~np.isnan(stated_n) & ~np.isclose(stated_n, sum_n, rtol=1e-9, atol=1e-9)
        for i in np.flatnonzero(differs_n).tolist():
            what = f"costs.{name} says {stated_n[i]:g}, the events add up to {sum_n[i]:g}"
            yield int(trace.first_of("e")[i]), what


def _count(word: EventType) -> Callable[[Trace], tuple[B, B]]:
    return lambda trace: (trace.type_e == event(word), np.zeros(trace.n_events, np.bool_))


def _tokens(trace: Trace) -> tuple[F, B]:
    spent_e = np.nan_to_num(trace.tokens_in_e) + np.nan_to_num(trace.tokens_out_e)
    return spent_e, np.isnan(trace.tokens_in_e) & np.isnan(trace.tokens_out_e)


_FIGURES: dict[str, Callable[[Trace], tuple[Any, B]]] = {  # what each event adds, and where it does not say
    "tool_calls": _count("tool_call"),
    "messages": _count("message"),
    "tokens": _tokens,
    "cost": lambda trace: (np.nan_to_num(trace.cost_e), np.isnan(trace.cost_e)),
}


def released(trace: Trace) -> B:
    """Events that let untrusted content go no further: a person or a safety check looked at it."""
    looked_e = (trace.type_e == event("human_intervention")) | (trace.type_e == event("safety_event"))
    released_e: B = looked_e & (trace.trusted_e != 0)
    return released_e


def trust_edges(trace: Trace) -> tuple[I, I]:
    """The edges along which untrusted content travels: none that is only an order in time, none into a release."""
    carries_x = (trace.type_x != edge("temporal")) & ~released(trace)[trace.dst_x]
    return trace.src_x[carries_x], trace.dst_x[carries_x]


def trust_laundering(trace: Trace) -> Broken:
    untrusted_e = trace.trusted_e == 0
    if not untrusted_e.any() or not (trace.trusted_e == 1).any():
        return
    edges = trust_edges(trace)
    laundered = np.flatnonzero(reach(untrusted_e, *edges) & (trace.trusted_e == 1))
    source_e = latest(untrusted_e, *edges) if len(laundered) else laundered
    for row in laundered.tolist():
        source = trace.id_e[int(source_e[row])]
        fault = f"derives from {source}, which is not, and nobody released it"
        yield row, f"{trace.id_e[row]} is marked trusted but {fault}"


def end_before_start(trace: Trace) -> Broken:
    early_e = np.flatnonzero(trace.end_e < trace.t_e)
    for row in early_e[_beyond(trace, early_e, trace.t_e[early_e] - trace.end_e[early_e])].tolist():
        yield row, f"{trace.id_e[row]} starts at t={trace.t_e[row]:g} and ends at t={trace.end_e[row]:g}, before it"


def _beyond(trace: Trace, rows: I, late: F) -> B:
    """Whether these times lie further apart than the clock tolerance of their rollout."""
    beyond: B = late > skew(trace)[trace.rollout_e[rows]]
    return beyond


def unknown_choice(trace: Trace) -> Broken:
    """What is marked invalid was tried and not done."""
    rows = np.flatnonzero((trace.chosen_e.codes >= 0) & (trace.valid_e != 0))
    rows = rows[trace.options_of(rows)[1] > 0]
    for row in rows[chosen_options(trace, rows) < 0].tolist():
        among = ", ".join(trace.options(row)[:8])
        yield row, f"{trace.id_e[row]}: {trace.chosen_e[row]!r} was chosen, which is none of its options ({among})"


def positive_logp(trace: Trace) -> Broken:
    for row in np.flatnonzero(trace.logp_e > ROUNDING).tolist():
        yield row, f"{trace.id_e[row]}: its log-probability is {trace.logp_e[row]:g}; expected at most 0"
    for o in np.flatnonzero(trace.logp_o > ROUNDING).tolist():
        row = int(trace.event_o[o])
        what = f"the log-probability of its option {trace.label_o[o]!r} is {trace.logp_o[o]:g}"
        yield row, f"{trace.id_e[row]}: {what}; expected at most 0"
    tokens = np.flatnonzero(trace.logp_k > ROUNDING)
    owners, first = np.unique(trace.owner_k[tokens], return_index=True)
    for row, k in zip(owners.tolist(), tokens[first].tolist(), strict=True):
        place = int(k - np.searchsorted(trace.owner_k, row))
        logp = f"the log-probability of its token {place} is {trace.logp_k[k]:g}"
        yield max(row, 0), f"{trace.id_e[max(row, 0)]}: {logp}; expected at most 0"


def other_tool(trace: Trace) -> Broken:
    """Only calls of other tools lead to a result. An edge that is an order in time says nothing of who answers
    whom."""
    joined = joined_calls(trace)
    joined = joined[trace.type_x[joined] != edge("temporal")]
    call, result = trace.src_x[joined], trace.dst_x[joined]
    tool = trace.tool_e.codes
    differs_x = (tool[call] >= 0) & (tool[result] >= 0) & (tool[call] != tool[result])
    if not differs_x.any():
        return
    answers_e = np.zeros(trace.n_events, np.bool_)
    answers_e[result[~differs_x]] = True
    wrong = np.flatnonzero(differs_x & ~answers_e[result])
    for x in wrong[np.unique(result[wrong], return_index=True)[1]].tolist():
        row, asked = int(result[x]), int(call[x])
        tools = f"{trace.tool_e[row]!r}, but answers {trace.id_e[asked]}, a call of {trace.tool_e[asked]!r}"
        yield row, f"{trace.id_e[row]} is a result of {tools}"


def early_count(trace: Trace) -> Broken:
    """By time, beyond the clock tolerance; by row where the times are equal or one is not known."""
    known = np.flatnonzero(trace.source_v >= 0)
    vote, counted = trace.source_v[known], trace.event_v[known]
    late = trace.t_e[vote] - trace.t_e[counted]
    after = _beyond(trace, counted, late) | ((vote > counted) & ~(late > 0) & ~(late < 0))
    for row, source in zip(counted[after].tolist(), vote[after].tolist(), strict=True):
        when = f"which is cast later (t={trace.t_e[source]:g})"
        yield row, f"{trace.id_e[row]} counts at t={trace.t_e[row]:g} the vote of {trace.id_e[source]}, {when}"


def self_spawn(trace: Trace) -> Broken:
    own_e = (trace.type_e == event("spawn")) & (trace.to_e >= 0) & (trace.to_e == trace.agent_e)
    for row in np.flatnonzero(own_e).tolist():
        yield row, f"{trace.id_e[row]}: {trace.name_a[int(trace.agent_e[row])]!r} spawns itself"


def own_parent(trace: Trace) -> Broken:
    parent = trace.parent_n.recoded(trace.trace_id_n.words)
    for run in np.flatnonzero((parent >= 0) & (parent == trace.trace_id_n.codes)).tolist():
        yield int(trace.first_of("e")[run]), f"{trace.trace_id_n[run]!r} is said to have branched from itself"


def missing_branch(trace: Trace) -> Broken:
    for run in np.flatnonzero((trace.parent_n.codes >= 0) & (trace.branch_n < 0)).tolist():
        name = f"{trace.trace_id_n[run]!r} branched from {trace.parent_n[run]!r}"
        yield int(trace.first_of("e")[run]), f"{name}, but does not say at which row: expected `branch`"


RULES: tuple[Rule, ...] = (
    Rule("schema", "error", "a trace has the fields and types of its schema"),
    Rule("duplicate-id", "error", "an id names one event"),
    Rule("reference", "error", "what is named exists"),
    Rule("cycle", "error", "no event is a cause of itself"),
    Rule(
        "backwards-time",
        "error",
        "a cause is not later than its effect, beyond the clock tolerance",
        partial(_backwards, beyond=True),
    ),
    Rule("lifetime", "error", "a spawned agent acts after its spawn and not after its last despawn", lifetime),
    Rule("orphan-result", "error", "a tool result has an earlier call, unless it is truncated", orphan_result),
    Rule("orphan-return", "error", "a spawned agent returns to answer something, unless truncated", orphan_return),
    Rule("acts-after-stop", "error", "who decided to stop only aggregates, returns or despawns", acts_after_stop),
    Rule("token-owner", "error", "a token has one owner", token_owner),
    Rule("options", "error", "what is recorded of options is recorded once for each"),
    Rule(
        "end-before-start",
        "error",
        "an event does not end before it starts, beyond the clock tolerance",
        end_before_start,
    ),
    Rule("unknown-choice", "error", "a valid choice is one of its options", unknown_choice),
    Rule("positive-logp", "error", "a log-probability is at most 0", positive_logp),
    Rule("other-tool", "error", "a tool result answers a call of the same tool", other_tool),
    Rule("early-count", "error", "a vote is cast before it is counted", early_count),
    Rule("self-spawn", "error", "an agent does not spawn itself", self_spawn),
    Rule("own-parent", "error", "a run is not its own parent", own_parent),
    Rule("missing-branch", "error", "a run with a parent says at which row it branched", missing_branch),
    Rule("missing-line", "error", "a log that was closed has as many events as it says"),
    Rule("empty-run", "warning", "a log has events"),
    Rule("torn-line", "warning", "a log ends with a whole line"),
    Rule("lost-cause", "warning", "a cause in an unfinished log was written before its writer died"),
    Rule("log-fault", "warning", "a log of another system can be read whole"),
    Rule("log-unknown", "warning", "a file is a trace or a log that an importer knows"),
    Rule("log-order", "warning", "in a log of another system no cause is later than its effect"),
    Rule("clock-skew", "warning", "a cause is not later than its effect", partial(_backwards, beyond=False)),
    Rule("open-call", "warning", "a tool call has a result", open_call),
    Rule("totals", "warning", "stated totals are the sums over events", totals),
    Rule(
        "trust-laundering", "warning", "what derives from untrusted content is not marked trusted", trust_laundering
    ),
)

LEVELS: dict[str, Level] = {rule.id: rule.level for rule in RULES}
