"""Where the time of a run went.

Every moment from the first event to the last counts once: for the model if a model was writing, else for a tool if
one was running, else for sub-agents of whose work only the end is in the log, else for the person if the team
waited for the person, else it is idle. A tool that only waits for sub-agents counts where none of them works.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from podium import graph
from podium.trace.columns import B, F, Trace
from podium.view.columns import HUMAN, RunColumns

__all__ = ["Clock", "CriticalPath", "Share", "clock", "critical_path_shares", "extent", "union_length"]

WAITS = ("wait_agent", "TaskOutput", "AgentOutputTool")  # tools that wait for sub-agents


class Share(Struct):
    """So many seconds of something, and on how many events."""

    name: str
    seconds: float
    events: int


class CriticalPath(Struct):
    """The chain of causes that took longest, and whose time it is. With these causes nobody could have been
    faster."""

    seconds: float  # NaN where no event says how long it took
    events: int
    steps: int  # turns of the model in a row, at least
    kinds: list[Share]  # model, tools, sub-agents, person
    agents: list[Share]
    tools: list[Share]


class Clock(Struct):
    """Seconds of a run. The first five parts add up to `wall`."""

    wall: float  # from the first event to the end of the last
    model: float
    tools: float
    unseen: float  # sub-agents of whose work only the end is in the log
    person: float
    idle: float  # nothing of all that
    prompts: float  # of the person's: until the next prompt
    approvals: float  # ... and until leave or an answer was given
    serial: float  # all work of models, tools and sub-agents, one after the other
    timed_events: int  # events that say how long they took
    most_at_once: float  # agents at work
    mean_at_once: float  # ... while any was


def extent(trace: Trace) -> tuple[float, float] | None:
    """When the first event began and the last ended; None where no event says when it happened."""
    known = trace.t_e[~np.isnan(trace.t_e)]
    if not len(known):
        return None
    return float(known.min()), float(
        max(known.max(), np.max(trace.end_e, initial=-np.inf, where=~np.isnan(trace.end_e)))
    )


def union_length(begun: F, ended: F) -> float:
    """How long at least one of these lasted.

    >>> union_length(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    4.0
    """
    order = np.argsort(begun, kind="stable")
    begun, ended = begun[order], ended[order]
    if not len(begun):
        return 0.0
    until = np.maximum.accumulate(ended)
    before = np.concatenate([begun[:1], until[:-1]])
    return float(np.maximum(0.0, ended - np.maximum(begun, before)).sum())


def clock(run: RunColumns) -> Clock:
    """Seconds by what they were spent on."""
    trace = run.trace
    times = extent(trace)
    nan = float("nan")
    timed_e = run.work_e > 0
    silent_e = np.append(run.silent_a, False)[trace.agent_e] & ~run.person_e
    waits_e = run.call_e & np.isin(trace.tool_e.codes, [trace.tool_e.code(name) for name in WAITS])
    layers = [run.model_e, run.call_e & ~waits_e, silent_e, waits_e, run.person_e]
    parts, covered_e, covered = [], np.zeros(trace.n_events, np.bool_), 0.0
    for layer in layers:
        covered_e = covered_e | (layer & timed_e)
        total = union_length(trace.t_e[covered_e], trace.end_e[covered_e])
        parts.append(total - covered)
        covered = total
    if times is None or not timed_e.any():
        return Clock(
            nan if times is None else times[1] - times[0], nan, nan, nan, nan, nan, nan, nan, nan, 0, nan, nan
        )
    wall, (model, tools, unseen, waits, person) = times[1] - times[0], parts
    prompts, approvals = _person(run, timed_e)
    team_e = timed_e & ~run.person_e
    return Clock(
        wall,
        model,
        tools + waits,
        unseen,
        person,
        max(0.0, wall - covered),
        prompts,
        approvals,
        float(run.work_e[team_e].sum()),
        int((~np.isnan(run.work_e)).sum()),
        *_at_once(trace, team_e),
    )


def _person(run: RunColumns, timed_e: B) -> tuple[float, float]:
    """Seconds until the next prompt, and until leave or an answer, each counted once."""
    trace = run.trace
    what = trace.extra_e.get("what")
    leave_e = run.person_e & timed_e & (trace.type_e == HUMAN)
    if what is not None:
        leave_e |= run.person_e & timed_e & (what.codes == what.code('"approved"'))
    prompt_e = run.person_e & timed_e & ~leave_e
    prompts, leave = (union_length(trace.t_e[e], trace.end_e[e]) for e in (prompt_e, leave_e))
    return prompts, leave


def _at_once(trace: Trace, team_e: B) -> tuple[float, float]:
    """The most agents at work at once, and the average while any was."""
    rows = np.flatnonzero(team_e & (trace.agent_e >= 0))
    t = np.concatenate([trace.t_e[rows], trace.end_e[rows]])
    who = np.tile(trace.agent_e[rows], 2)
    step = np.repeat(np.array([1, -1]), len(rows))
    order = np.lexsort((-step, t))
    # an agent with several pieces of work at once counts once
    by_agent = np.lexsort((-step, t, who))
    depth = np.cumsum(step[by_agent])
    first = np.flatnonzero(np.diff(who[by_agent], prepend=-1))
    depth -= np.repeat(depth[first] - step[by_agent][first], np.diff(np.append(first, len(depth))))
    change = np.zeros(len(t), np.int64)
    change[by_agent] = np.where(depth == (step[by_agent] > 0), step[by_agent], 0)
    busy, t = np.cumsum(change[order]), t[order]
    width = np.diff(t)
    some = busy[:-1] > 0
    lasted = float(width[some].sum())
    mean = float((busy[:-1] * width)[some].sum() / lasted) if lasted > 0 else float("nan")
    return float(busy[:-1][width > 0].max(initial=0)) if len(t) > 1 else float("nan"), mean


def critical_path_shares(run: RunColumns, steps: int) -> CriticalPath:
    """The critical path by what it was spent on, by agent and by tool."""
    trace = run.trace
    path = graph.critical_path(trace)
    on_e = path.on_e & (run.work_e > 0)
    silent_e = np.append(run.silent_a, False)[trace.agent_e] & ~run.person_e
    kinds = {"model": run.model_e, "tools": run.call_e, "sub-agents": silent_e, "person": run.person_e}
    return CriticalPath(
        float(path.time_n[0]),
        int(path.on_e.sum()),
        steps,
        [s for name, e in kinds.items() if (s := _share(name, run, on_e & e)).events],
        _shares(run, on_e & ~run.person_e, trace.agent_e, [str(n) for n in trace.name_a.strings()]),
        _shares(run, on_e & run.call_e, trace.tool_e.codes, trace.tool_e.words),
    )


def _share(name: str, run: RunColumns, which_e: B) -> Share:
    return Share(name, float(run.work_e[which_e].sum()), int(which_e.sum()))


def _shares(run: RunColumns, which_e: B, code_e: object, words: object) -> list[Share]:
    """Seconds by a code, the most first."""
    codes = np.asarray(code_e)[which_e]
    known = codes >= 0
    names = list(words)  # type: ignore[call-overload]
    seconds = np.bincount(codes[known], run.work_e[which_e][known], minlength=len(names))
    count = np.bincount(codes[known], minlength=len(names))
    order = [i for i in np.argsort(-seconds, kind="stable").tolist() if count[i]]
    return [Share(names[i], float(seconds[i]), int(count[i])) for i in order]
