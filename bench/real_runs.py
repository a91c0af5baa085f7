"""What real runs of agent teams look like beside what the survey says of them: writes docs/real-runs.md.

    python -m bench.real_runs [--json]

Reads the logs in ../shared/data/logs: coding sessions (Claude Code, Codex) and runs of agents on benchmarks
(TRAIL, deerflow). Left out are runs of scripted models and samples that were written to test a viewer: they are
nobody's work. Only figures go into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podium import graph
from podium.graph.labels import number as label_number
from podium.graph.steps import IS_STEP
from podium.interval import Estimate, estimate
from podium.rewards.orchestration import spawned, wall_clock
from podium.trace import files
from podium.trace.columns import F, Trace, concat
from podium.trace.vocabulary import event

__all__ = ["FanOut", "Sizes", "fan_outs", "page", "sizes"]

LOGS = Path(__file__).parents[2] / "shared/data/logs"
PAGE = Path(__file__).parents[1] / "docs/real-runs.md"
SESSIONS = ("claude_code", "claude_code_subagents", "codex")
BENCHMARKS = ("trail", "deerflow")
SPAWN, CALL, RETURN, HUMAN = event("spawn"), event("tool_call"), event("return"), event("human_intervention")
NAN = float("nan")


class Sizes(NamedTuple):
    """How large each run is. NaN where the record does not say."""

    steps: F  # decisions, messages, tool calls, returns and aggregates
    calls: F  # in the log, and for sub-agents whose calls are not in it as many as their return states
    tasks: F  # what the person asked for, one after the other
    agents: F  # spawned
    width: F  # spawned agents alive at once, at most
    read: F  # tokens read anew, written to the cache and read from it
    cached: F  # the share of them that came from the cache
    wrote: F
    silent: F  # the share of spawned agents without tokens
    wall_s: F
    team_s: F  # without the time in which only a person was busy
    person: F  # the share of the wall clock that waited for a person
    sub_agents: F  # the share of the team's work that spawned agents did, by time


class FanOut(NamedTuple):
    """One group of agents that were spawned by one agent and lived at the same time, and how it ended."""

    run: int
    width: int
    seconds: float  # from the first spawn to the last return
    tail: float  # the share of that time in which only the slowest had not returned
    tail_s: float
    times: float  # how many times as long the slowest took as the median of the others
    idle: float  # the share of all agents' time that those who had returned waited for the slowest
    gated: bool  # whether who spawned them did nothing of its own during the tail


def sizes(trace: Trace) -> Sizes:
    """The size of each run of a trace."""

    def count(rows_e: F) -> F:
        return np.bincount(trace.rollout_e[rows_e], minlength=len(trace)).astype(float)

    born_a = spawned(trace)
    agents = np.bincount(trace.rollout_a[born_a], minlength=len(trace)).astype(float)
    says_e = ~np.isnan(trace.tokens_in_e)
    read_e = trace.tokens_in_e + np.nan_to_num(trace.cache_read_e) + np.nan_to_num(trace.cache_write_e)
    read, cached, wrote = (_sum(trace, column) for column in (read_e, trace.cache_read_e, trace.tokens_out_e))
    says_a = np.bincount(trace.agent_e[says_e], minlength=trace.n_agents) > 0
    silent = np.bincount(trace.rollout_a[born_a & ~says_a], minlength=len(trace))
    half_told = np.bincount(trace.rollout_e[says_e & np.isnan(trace.tokens_out_e)], minlength=len(trace)) > 0
    work_e, team_e = graph.work(trace), graph.team_work(trace)
    wall, team = wall_clock(trace), _sum(trace, team_e)
    waits = np.where(np.isnan(_sum(trace, work_e)), np.nan, graph.waiting(trace, trace.t_e, work_e))
    theirs = _sum(trace, np.where(np.append(born_a, False)[trace.agent_e], team_e, np.nan))
    task_count = np.full(len(trace), np.nan)
    np.fmax.at(task_count, trace.rollout_e, np.where(trace.task_e >= 0, trace.task_e + 1.0, np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        return Sizes(
            count(IS_STEP[trace.type_e] & (trace.agent_e >= 0)),
            count(trace.type_e == CALL) + _stated_calls(trace),
            task_count,
            agents,
            _width(trace),
            np.where(silent > 0, np.nan, read),
            cached / read,
            np.where((silent > 0) | half_told, np.nan, wrote),
            np.where(agents > 0, silent / agents, np.nan),
            wall,
            wall - waits,
            waits / wall,
            np.where(agents > 0, np.nan_to_num(theirs) / team, np.nan),
        )


def _sum(trace: Trace, column: F) -> F:
    known = ~np.isnan(column)
    total = np.bincount(trace.rollout_e[known], column[known], minlength=len(trace))
    return np.where(np.bincount(trace.rollout_e[known], minlength=len(trace)) > 0, total, np.nan)


def _stated_calls(trace: Trace) -> F:
    """The calls that returns state of sub-agents whose calls are not in the log."""
    stated_e = label_number(trace, "tool_uses")
    calls_a = np.bincount(trace.agent_e[(trace.type_e == CALL) & (trace.agent_e >= 0)], minlength=trace.n_agents)
    silent = np.flatnonzero((trace.type_e == RETURN) & (trace.agent_e >= 0) & ~np.isnan(stated_e))
    silent = silent[calls_a[trace.agent_e[silent]] == 0]
    return np.bincount(trace.rollout_e[silent], stated_e[silent], minlength=len(trace))


def _lives(trace: Trace) -> tuple[F, F]:
    """When each spawned agent was spawned and when it last returned; NaN where it is not recorded."""
    start_a, end_a = np.full((2, trace.n_agents), np.nan)
    born = np.flatnonzero((trace.type_e == SPAWN) & (trace.to_e >= 0))[::-1]
    start_a[trace.to_e[born]] = trace.t_e[born]  # the first spawn is written last
    back = np.flatnonzero((trace.type_e == RETURN) & (trace.agent_e >= 0))
    np.fmax.at(end_a, trace.agent_e[back], np.fmax(trace.t_e[back], trace.end_e[back]))
    return start_a, np.where(end_a > start_a, end_a, np.nan)


def _width(trace: Trace) -> F:
    """The most spawned agents that were alive at once, by spawn and return; 0 where nobody was spawned, NaN where
    nobody returned."""
    start_a, end_a = _lives(trace)
    width_n = np.where(np.bincount(trace.rollout_a[spawned(trace)], minlength=len(trace)) > 0, np.nan, 0.0)
    for n in range(len(trace)):
        alive = np.flatnonzero((trace.rollout_a == n) & ~np.isnan(end_a))
        if len(alive):
            t = np.concatenate([start_a[alive], end_a[alive]])
            change = np.repeat([1, -1], len(alive))[np.lexsort((np.repeat([1, -1], len(alive)), t))]
            width_n[n] = change.cumsum().max()
    return width_n


def fan_outs(trace: Trace) -> list[FanOut]:
    """Every group of spawned agents of one spawner whose lives overlap, one after the other linked, by spawn and
    return."""
    start_a, end_a = _lives(trace)
    parent_a = np.full(trace.n_agents, -1)
    born = np.flatnonzero((trace.type_e == SPAWN) & (trace.to_e >= 0))
    parent_a[trace.to_e[born]] = trace.agent_e[born]
    known = np.flatnonzero(~np.isnan(end_a) & (parent_a >= 0))
    known = known[np.lexsort((start_a[known], parent_a[known]))]
    groups: list[list[int]] = []
    for agent in known.tolist():
        last = groups[-1] if groups else []
        if last and parent_a[last[0]] == parent_a[agent] and start_a[agent] < max(end_a[a] for a in last):
            last.append(agent)
        else:
            groups.append([agent])
    return [_fan_out(trace, np.array(g), int(parent_a[g[0]]), start_a, end_a) for g in groups if len(g) > 1]


def _fan_out(trace: Trace, group: np.ndarray, parent: int, start_a: F, end_a: F) -> FanOut:
    ends = np.sort(end_a[group])
    first, last, second = start_a[group].min(), ends[-1], ends[-2]
    waited = (last - end_a[group]).sum() / (last - start_a[group]).sum()
    own_e = (trace.agent_e == parent) & IS_STEP[trace.type_e] & (trace.t_e > second) & (trace.t_e < last)
    tail = (last - second) / (last - first)
    took = np.sort(end_a[group] - start_a[group])
    times = float(took[-1] / np.median(took[:-1]))
    return FanOut(
        int(trace.rollout_a[group[0]]),
        len(group),
        last - first,
        tail,
        last - second,
        times,
        waited,
        not own_e.any(),
    )


def by_run(fans: list[FanOut], values: list[float], runs: int) -> F:
    """The mean of each run's fan-outs; NaN where it has none. Runs, not fan-outs, are independent."""
    run = np.array([fan.run for fan in fans], int)
    count = np.bincount(run, minlength=runs)
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, np.bincount(run, values, minlength=runs) / count, np.nan)


# ---- the page


def loaded(folders: tuple[str, ...]) -> Trace:
    """The runs in these folders, each once: one that is in two files counts as the longest."""

    def runs() -> Iterator[Trace]:
        for folder in folders:
            for read in files.read(LOGS / folder):
                if read.trace is not None:
                    yield read.trace

    longest: dict[str, Trace] = {}
    for trace in runs():
        name = trace.trace_id_n[0] or str(len(longest))
        if name not in longest or longest[name].n_events < trace.n_events:
            longest[name] = trace
    return concat(list(longest.values()))


def shown(value: float, share: bool = False) -> str:
    if value != value:
        return "–"
    if share:
        return f"{100 * value:.0f} %"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def between(interval: Estimate, share: bool = False) -> str:
    """A mean with its interval."""
    if interval.low != interval.low:
        return shown(interval.mean, share)
    low, high = (
        (max(0.0, interval.low), min(1.0, interval.high)) if share else (max(0.0, interval.low), interval.high)
    )
    return f"{shown(interval.mean, share)} ({shown(low, share)} to {shown(high, share)})"


SHOWN = {
    "steps": "steps (decisions, messages, calls, returns, aggregates)",
    "calls": "tool calls",
    "tasks": "tasks that a person gave",
    "agents": "sub-agents spawned",
    "width": "sub-agents alive at once, at most",
    "wall_s": "wall clock, s",
    "team_s": "the team's time, s (without waiting for the person)",
    "read": "tokens read, cache included",
    "wrote": "tokens written",
}


def distribution(of: Sizes, runs: int) -> list[str]:
    """A row for each size: median, the range that holds 9 of 10 runs, the largest; and of how many runs it is
    absent."""
    rows = ["| | n | absent | median | 5 % to 95 % | largest |", "|---|---|---|---|---|---|"]
    for name, words in SHOWN.items():
        values = getattr(of, name)
        known = values[~np.isnan(values)]
        if not len(known):
            rows.append(f"| {words} | 0 | {runs} | – | – | – |")
            continue
        low, middle, high = np.quantile(known, [0.05, 0.5, 0.95]).tolist()
        spread = f"{shown(low)} to {shown(high)}"
        rows.append(
            f"| {words} | {len(known)} | {runs - len(known)} | {shown(middle)} | {spread} | "
            f"{shown(float(known.max()))} |"
        )
    return rows


def shares(questions: dict[str, F]) -> list[str]:
    rows = ["| share of runs | n | share (95 % interval) |", "|---|---|---|"]
    for words, values in questions.items():
        interval = estimate(values)
        rows.append(f"| {words} | {interval.n} | {between(interval, True)} |")
    return rows


def beyond(values: F, limit: float) -> F:
    """1 where a size is above a limit, 0 where it is not, NaN where it is absent."""
    return np.where(np.isnan(values), np.nan, (values > limit).astype(float))


def page(sessions: Trace, others: Trace) -> str:
    """The whole page."""
    ours, theirs = sizes(sessions), sizes(others)
    fans = fan_outs(sessions)
    return "\n".join(
        [
            *HEAD,
            "",
            f"## Coding sessions: {len(sessions)} runs of Claude Code and Codex",
            "",
            *distribution(ours, len(sessions)),
            "",
            f"## Agents on benchmarks: {len(others)} runs (TRAIL, deerflow)",
            "",
            *distribution(theirs, len(others)),
            "",
            "## The scale envelope",
            "",
            "The survey puts the literature at T ≤ 100 steps and industry at 100 sub-agents with 1,500 steps "
            "(Kimi K2.5) and 300 with",
            "4,000 (K2.6). A session may hold several tasks, so its steps are also divided by them.",
            "",
            *envelope(ours),
            "",
            *stragglers(fans, sessions),
            "",
            *cost(ours),
            "",
        ]
    )


HEAD = [
    "# Real runs",
    "",
    "How long, wide and dear real runs of agent teams are, and whether what the survey says of them holds. "
    "Written by",
    "`python -m bench.real_runs` from published logs that are no part of this repository "
    "(`../shared/data/logs`); no content of a log is",
    "here. Left out: runs of scripted models, and samples that were written for tests of viewers.",
    "",
    "Means and shares have 95 % intervals over runs (Wilson for shares of runs, Student otherwise). What a log "
    "does not record is absent,",
    "never 0. These are the sessions that somebody chose to publish: nobody drew them at random, so an "
    "interval says how much",
    "such sessions differ, not how far they are from everybody's.",
]


def envelope(of: Sizes) -> list[str]:
    per_task = of.steps / of.tasks
    questions = {
        "more than 100 steps": beyond(of.steps, 100),
        "more than 100 steps a task, on average": beyond(per_task, 100),
        "more than 1,500 steps": beyond(of.steps, 1500),
        "more than 4,000 steps": beyond(of.steps, 4000),
        "a sub-agent at all": beyond(of.agents, 0),
        "two or more sub-agents at once": beyond(of.width, 1),
        "more than 10 sub-agents at once": beyond(of.width, 10),
        "more than 100 sub-agents at once": beyond(of.width, 100),
    }
    n, long, wide = len(of.steps), int((of.steps > 100).sum()), int((of.width > 10).sum())
    industrial = int(((of.steps >= 1500) | (of.calls >= 1500) | (of.width >= 100)).sum())
    return [
        *shares(questions),
        "",
        f"**Verdict.** {long} of {n} sessions are longer than the literature's T ≤ 100; a benchmark that stops "
        f"there does not see them. {industrial} of",
        f"{n} reach the industrial length or width, and {wide} run more than ten sub-agents at once: the "
        "longest has",
        f"{shown(float(np.nanmax(of.steps)))} steps in its log, the widest {shown(float(np.nanmax(of.width)))} "
        "sub-agents at once. Steps are a lower bound where a sub-agent's own are",
        "not in the log; its calls are counted as its return states them.",
    ]


def stragglers(fans: list[FanOut], sessions: Trace) -> list[str]:
    runs = len(sessions)

    def over_runs(name: str) -> F:
        return by_run(fans, [float(getattr(fan, name)) for fan in fans], runs)

    tail, gated, times = (estimate(over_runs(name)) for name in ("tail", "gated", "times"))
    long = estimate(by_run(fans, [float(fan.tail >= 0.25) for fan in fans], runs))
    team_s = sizes(sessions).team_s
    lost = estimate(over_runs("tail_s") * np.bincount([fan.run for fan in fans], minlength=runs) / team_s)
    _, end_a = _lives(sessions)
    born_a = spawned(sessions)
    width = np.array([fan.width for fan in fans] or [NAN])
    return [
        '## "The slowest sub-agent gates the trace"',
        "",
        "A fan-out is a group of sub-agents of one agent whose lives, from spawn to return, overlap. The "
        "*tail* is the time in which only the",
        "slowest has not returned; *idle* is the share of all agents' time that the others have returned and "
        "the slowest has not.",
        "",
        f"{len(fans)} fan-outs in {tail.n} of {runs} runs, {shown(float(np.median(width)))} agents wide in the "
        f"median, {shown(float(width.max()))} at most. Absent:",
        f"{int((born_a & np.isnan(end_a)).sum())} of {int(born_a.sum())} sub-agents have no return in the log "
        "and are left out.",
        "",
        "| mean over runs with a fan-out | n | mean (95 % interval) |",
        "|---|---|---|",
        f"| of a fan-out's time, tail | {tail.n} | {between(tail, True)} |",
        f"| of its agents' time, idle behind the slowest | {tail.n} | "
        f"{between(estimate(over_runs('idle')), True)} |",
        f"| the slowest's time over the median of the others' | {times.n} | {between(times)} |",
        f"| fan-outs whose tail is a quarter of their time or more | {long.n} | {between(long, True)} |",
        f"| fan-outs whose spawner does nothing of its own in the tail | {gated.n} | {between(gated, True)} |",
        f"| of the team's time in the run, tails | {lost.n} | {between(lost, True)} |",
        "",
        f"**Verdict.** In part. The slowest takes {shown(times.mean)} times as long as the median of the others "
        f"and runs alone for {shown(tail.mean, True)} of the",
        f"fan-out. It gates its spawner in {shown(gated.mean, True)} of the fan-outs; in the others the spawner "
        "goes on meanwhile. Of all the time that the",
        f"team works, tails are {shown(lost.mean, True)}. How much an early stop would lose is not in a log: "
        "what the slowest found may be what mattered.",
    ]


def cost(of: Sizes) -> list[str]:
    teams = of.agents > 0
    rows = ["| | n | absent | mean (95 % interval) |", "|---|---|---|---|"]
    measures = {
        "tokens read, runs with sub-agents": (of.read[teams], False),
        "tokens read, runs without": (of.read[~teams], False),
        "tokens read a task": (of.read / of.tasks, False),
        "tool calls a task": (of.calls / of.tasks, False),
        "share of the tokens read that came from the cache": (of.cached, True),
        "share of a run's sub-agents without any tokens in the log": (of.silent[teams], True),
        "share of the wall clock that waited for the person": (of.person, True),
        "share of the team's working time that was sub-agents'": (of.sub_agents[teams], True),
    }
    for words, (values, share) in measures.items():
        mean = estimate(values)
        rows.append(f"| {words} | {mean.n} | {len(values) - mean.n} | {between(mean, share)} |")
    silent = estimate(of.silent[teams])
    return [
        "## Rollout cost",
        "",
        "The survey's normalisation point is a single-agent rollout of 100 to 1,000 tokens and one or two tool "
        "calls, and it puts teams at 10 to",
        "100 times a single agent.",
        "",
        *rows,
        "",
        f"**Verdict.** A task of these sessions reads {shown(estimate(of.read / of.tasks).mean)} tokens and "
        f"makes {shown(estimate(of.calls / of.tasks).mean)} calls (means), far from the normalisation",
        f"point. {shown(estimate(of.cached).mean, True)} of what is read comes from the cache, so tokens say "
        "little about money. Whether a team costs 10 to 100 times a",
        f"single agent cannot be told here: {shown(silent.mean, True)} of a run's sub-agents (mean) have no "
        "tokens in the log, and no task was run both ways. The",
        "comparison of runs with and without sub-agents is of different tasks.",
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true", help="the sizes of every run and all fan-outs, and no page")
    args = options.parse_args()
    if not LOGS.is_dir():
        sys.exit(f"the real logs are not at {LOGS}; without them there is nothing to count")
    sessions, others = loaded(SESSIONS), loaded(BENCHMARKS)
    if args.json:
        rows = {
            name: [None if v != v else v for v in values.tolist()]
            for name, values in sizes(sessions)._asdict().items()
        }
        print(
            json.dumps(
                {"sessions": rows, "fan_outs": [f._asdict() for f in fan_outs(sessions)]},
                allow_nan=False,
                default=float,
            )
        )
        return
    PAGE.write_text(page(sessions, others))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
