"""The first screen of a run as data: `podium show` prints it, `--json` writes it, the page draws it.

A pure function of a trace and a table of prices. NaN and None (null in JSON) mean that the log does not say; a zero
was counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from podium import graph
from podium.metrics.prices import PriceRow, default_prices
from podium.trace.columns import F, I, Trace
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES
from podium.view.apart import Apart, ran_apart
from podium.view.clock import Clock, CriticalPath, clock, critical_path_shares, extent
from podium.view.columns import HUMAN, MESSAGE, RunColumns, content_of, run_columns, text_of
from podium.view.habits import Habit, habits
from podium.view.spending import Spending, Tally, spending_by, tallies, tally, tool_tallies
from podium.view.team import Agent, agent_rows
from podium.view.trouble import MACHINE, Tool, Trouble, tool_rows, trouble

__all__ = ["Ending", "RunSummary", "Task", "summary"]

_COMMAND = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
UNNAMED = "not recorded"  # the model of turns that do not name it
TEXT_OF_SPANS = ("content", "text", "task", "ai", "input", "output")  # under which spans have what was said
MOST_TEXT = 400  # letters of a prompt or an answer
How = Literal[
    "answered", "interrupted", "call without a result", "no answer", "error of the model's API", "not recorded"
]


class Task(Struct):
    """A prompt of the person, and what was done for it."""

    number: int
    prompt: str | None  # None where content was not kept, or there was none
    begun: float  # seconds since the run began
    team: float  # seconds until its last event, without those that the person took
    calls: int
    tally: Tally


class Ending(Struct):
    """How a run ended, by the last that its lead did."""

    how: How
    text: str | None  # what the lead said last


class RunSummary(Struct):
    """One run, by the questions that people ask of it. Times are seconds, prices dollars."""

    trace_id: str | None
    task_id: str | None
    system: str | None
    harness: str | None
    topology: str | None
    project: str | None
    started: float | None  # seconds since 1970, UTC
    lead: str | None
    ending: Ending
    tasks: list[Task]
    agents: list[Agent]
    clock: Clock
    critical_path: CriticalPath
    spending: Tally
    stated_usd: float  # what the log itself says that the run cost
    missing_agents: int  # agents of which turns are not in the log
    by_model: list[Spending]
    by_tool: list[Spending]
    by_day: list[Spending]  # of the turns of each day, UTC; empty where the log does not say when it began
    tools: list[Tool]
    apart: list[Apart] | None  # None where no content was kept to tell by
    trouble: Trouble
    habits: list[Habit]
    events: dict[str, int]
    edges: int
    inferred_edges: int
    decisions: dict[str, int]
    untrusted_events: int
    tainted_events: int
    rewards: dict[str, float]
    costs: dict[str, float]


def summary(trace: Trace, prices: Sequence[PriceRow] | None = None) -> RunSummary:
    """What a trace says about one run."""
    run = run_columns(trace, default_prices() if prices is None else prices)
    lead = int(graph.lead(trace)[0])
    agents, apart, wrong, times = agent_rows(run), ran_apart(run), trouble(run), clock(run)
    missing = sum(agent.missing for agent in agents)
    spending, models = tally(run), run.bill.models
    spending.at_least |= missing > 0
    params = _params(trace)
    taint_e = graph.taint(trace)
    return RunSummary(
        trace_id=trace.trace_id_n[0],
        task_id=trace.task_id_n[0],
        system=trace.system_n[0],
        harness=trace.harness_n[0] or _text(params.get("version")),
        topology=trace.topology(),
        project=_project(params),
        started=_number(params.get("started")),
        lead=trace.name_a[lead] if lead >= 0 else None,
        ending=_ending(run, lead),
        tasks=_tasks(run),
        agents=agents,
        clock=times,
        critical_path=critical_path_shares(run, int(graph.critical_steps(trace)[0])),
        spending=spending,
        stated_usd=_stated(trace),
        missing_agents=missing,
        by_model=spending_by(
            run, np.where(run.bill.model_e < 0, len(models), run.bill.model_e), [*models, UNNAMED]
        ),
        by_tool=tool_tallies(run),
        by_day=_by_day(run, _number(params.get("started"))),
        tools=tool_rows(run),
        apart=apart,
        trouble=wrong,
        habits=habits(run, agents, apart, wrong, times),
        events=_counts(trace.type_e, EVENT_TYPES),
        edges=trace.n_edges,
        inferred_edges=int((trace.inferred_x == 1).sum()),
        decisions=_counts(trace.decision_e, DECISIONS),
        untrusted_events=int((trace.trusted_e == 0).sum()),
        tainted_events=int(taint_e.sum()),
        rewards={k: float(v[0]) for k, v in trace.reward_n.items()},
        costs={k: float(v[0]) for k, v in trace.cost_n.items()},
    )


def _params(trace: Trace) -> dict[str, Any]:
    value = msgspec.json.decode(trace.params_n[0] or "null")
    return value if isinstance(value, dict) else {}


def _project(params: dict[str, Any]) -> str | None:
    """The project that a run says it was in, else the name of the folder it was in."""
    named = _text(params.get("project")) or _text(params.get("cwd"))
    return None if named is None else named.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or named


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _stated(trace: Trace) -> float:
    """What a run says that it cost: in all, or by its events."""
    total = trace.cost_n.get("cost", trace.cost_n.get("usd"))
    if total is not None and not np.isnan(total[0]):
        return float(total[0])
    known = trace.cost_e[~np.isnan(trace.cost_e)]
    return float(known.sum()) if len(known) else float("nan")


def _counts(codes: Any, words: tuple[str, ...]) -> dict[str, int]:
    counts = np.bincount(codes[codes >= 0], minlength=len(words))
    return {word: int(n) for word, n in zip(words, counts, strict=True) if n}


def _by_day(run: RunColumns, started: float | None) -> list[Spending]:
    times = extent(run.trace)
    if started is None or times is None or not run.bill.turn_e.any():
        return []
    day_e = np.floor((started + np.nan_to_num(run.trace.t_e - times[0])) / 86_400).astype(np.int64)
    first = int(day_e[run.bill.turn_e].min())
    count = int(day_e[run.bill.turn_e].max()) - first + 1
    names = [str(date(1970, 1, 1) + timedelta(days=first + n)) for n in range(count)]
    bills = tallies(run, np.maximum(day_e - first, -1), count)
    return [Spending(name, one) for name, one in zip(names, bills, strict=True) if one.turns]


# ---- tasks


def _tasks(run: RunColumns) -> list[Task]:
    """The tasks of a run, in their order. A run that numbers none has one, if a person said what to do."""
    trace = run.trace
    task_e = trace.task_e
    if (task_e < 0).all() and (run.person_e & (trace.type_e == MESSAGE)).any():
        task_e = np.zeros(trace.n_events, np.int64)
    count = int(task_e.max(initial=-1)) + 1
    if not count:
        return []
    start = (extent(trace) or (0.0, 0.0))[0]
    bills = tallies(run, task_e, count)
    calls = np.bincount(task_e[run.call_e & (task_e >= 0)], minlength=count)
    begun, ended = np.full(count, np.nan), np.full(count, np.nan)
    # a prompt takes as long as the person took: its task begins when it is there
    at_e = np.where(run.person_e & (trace.type_e == MESSAGE), np.fmax(trace.end_e, trace.t_e), trace.t_e)
    known = np.flatnonzero((task_e >= 0) & ~np.isnan(at_e))
    np.fmin.at(begun, task_e[known], at_e[known])
    np.fmax.at(ended, task_e[known], np.fmax(trace.end_e, at_e)[known])
    waited = _waited(run, task_e, count)
    prompts = _prompts(run, task_e, count)
    return [
        Task(
            n, prompts[n], float(begun[n] - start), float(max(0.0, ended[n] - begun[n] - waited[n])), int(calls[n]),
            bills[n],
        )
        for n in range(count)
    ]  # fmt: skip


def _waited(run: RunColumns, task_e: I, count: int) -> F:
    """Seconds that the person took within each task, for leave and answers."""
    trace = run.trace
    what = trace.extra_e.get("what")
    leave_e = run.person_e & (run.work_e > 0) & (task_e >= 0) & (trace.type_e == HUMAN)
    if what is not None:
        leave_e |= run.person_e & (run.work_e > 0) & (what.codes == what.code('"approved"')) & (task_e >= 0)
    waited: F = np.bincount(task_e[leave_e], run.work_e[leave_e], minlength=count).astype(np.float64)
    return waited


def _prompts(run: RunColumns, task_e: I, count: int) -> list[str | None]:
    trace = run.trace
    prompts: list[str | None] = [None] * count
    for row in np.flatnonzero(run.person_e & (trace.type_e == MESSAGE) & (task_e >= 0)).tolist():
        task = int(task_e[row])
        if prompts[task] is None:
            prompts[task] = _short(text_of(content_of(trace, row)))
    return prompts


def _unpacked(text: str) -> str:
    """The text itself, where it is JSON: spans have it as a list, or under the name of its part.

    >>> [_unpacked(text) for text in ('["Look it up."]', '{"role": "user", "content": "Done."}', "[1] is open")]
    ['Look it up.', 'Done.', '[1] is open']
    """
    if text[:1] not in ("{", "["):
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
    parts = value if isinstance(value, list) else [value.get(name) for name in TEXT_OF_SPANS]
    return next((part for part in parts if isinstance(part, str) and part), text)


def _short(text: str | None) -> str | None:
    if text is None:
        return None
    if command := _COMMAND.search(text):  # a command of Claude Code, in its own marks
        given = _ARGUMENTS.search(text)
        text = f"{command[1]} {given[1] if given else ''}"
    joined = " ".join(_unpacked(text).split())
    return joined if len(joined) <= MOST_TEXT else joined[: MOST_TEXT - 1] + "…"


# ---- the end


def _ending(run: RunColumns, lead: int) -> Ending:
    """By the last turn of the lead, and what came after it."""
    trace = run.trace
    mine = np.flatnonzero((trace.agent_e == lead) & ~run.person_e)
    turns = mine[run.model_e[mine]]
    if lead < 0 or not len(turns) or not run.bill.turn_e.any():
        return Ending("not recorded", None)
    spoken = [row for row in turns[::-1].tolist()[:20] if content_of(trace, row) is not None]
    text = next((t for row in spoken if (t := _short(text_of(content_of(trace, row)))) is not None), None)
    last = int(turns[-1])
    person = np.flatnonzero(run.person_e)
    calls = np.flatnonzero(run.call_e & (run.turn_of_e == last))
    stops = person[(trace.type_e[person] == HUMAN) & (person > last)]
    how: How = "answered"
    if len(stops):
        how = "interrupted"
    elif trace.model_e[last] == MACHINE:
        how = "error of the model's API"
    elif len(calls) and (run.result_of_e[calls] < 0).any():
        how = "call without a result"
    elif len(calls) or (len(person) and person[-1] > last and trace.type_e[person[-1]] == MESSAGE):
        how = "no answer"
    return Ending(how, text)
