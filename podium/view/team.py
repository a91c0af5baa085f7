"""Who worked: the tree of agents, what each cost, how its context grew, and what became of what it returned."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from podium.graph.grouping import rows_by
from podium.trace.columns import B, F, I
from podium.view.clock import extent
from podium.view.columns import (
    CALL,
    RESULT,
    RETURN,
    SPAWN,
    RunColumns,
    content_of,
    marks,
    said,
    stated,
    strings,
    text_of,
)
from podium.view.spending import Tally, tallies

__all__ = ["Agent", "Context", "Return", "agent_rows", "compactions", "context_e"]

LEAST_MARKS = 3  # words of its own that a return needs for its use to be told
Fate = Literal["used", "no trace", "not read", "none", "not recorded"]


class Context(Struct):
    """How many tokens an agent's turns read, of all kinds. NaN where none says."""

    first: float
    most: float
    last: float
    stated: float  # at its end, as its return says
    compactions: int


class Return(Struct):
    """What became of what a sub-agent returned.

    `used`: words that only it brought up (names of files, identifiers, numbers) are in what its parent wrote later.
    `no trace`: none of them is. `not read`: no later turn of its parent is in the log. `none`: it never returned.
    `not recorded`: the log, or what was kept of it, does not say.
    """

    fate: Fate
    words: int  # of its own, in its returns
    found: int  # of them in what its parent wrote later
    failed: bool  # its launch ended in failure


class Agent(Struct):
    """One agent. NaN is not recorded."""

    name: str
    parent: str | None
    depth: int
    role: str | None
    task: str | None  # what it was launched for, in the words of its parent
    models: list[str]
    launches: int  # how often it was launched
    begun: float  # seconds since the run began, of its first event ...
    ended: float  # ... and of its last
    busy: float  # seconds in which it worked
    calls: int
    stated_calls: float  # as many as its return says it made
    failed_calls: int
    tally: Tally
    missing: bool  # turns of it are not in the log
    context: Context
    returned: Return | None  # None for who was launched by nobody


def agent_rows(run: RunColumns) -> list[Agent]:
    """The agents of a run: each after its parent, in the order in which they began."""
    trace = run.trace
    names = [str(name) for name in trace.name_a.strings()]
    parent_a, first_a, count_a = _parents(run)
    begun_a, ended_a, busy_a = _lives(run)
    bills = tallies(run, trace.agent_e, trace.n_agents)
    failed_e = run.call_e & (run.result_of_e >= 0) & (trace.valid_e[run.result_of_e] == 0)
    calls_a, failed_a = (np.bincount(trace.agent_e[e], minlength=trace.n_agents) for e in (run.call_e, failed_e))
    contexts, returns = _contexts(run), _returns(run, parent_a)
    called_a = _stated(run, "tool_uses")
    models_a, launching = _models(run), _calls_of_spawns(run)
    rows = []
    for agent, depth in _tree(parent_a, begun_a, run):
        parent, spawn = int(parent_a[agent]), int(first_a[agent])
        missing = bool(run.silent_a[agent]) or bool(called_a[agent] > calls_a[agent])
        bill = bills[agent]
        bill.at_least |= missing
        rows.append(
            Agent(
                names[agent], names[parent] if parent >= 0 else None, depth,
                None if spawn < 0 else trace.role_e[spawn], _launched_for(run, launching, spawn),
                models_a.get(agent, []), int(count_a[agent]), begun_a[agent], ended_a[agent], busy_a[agent],
                int(calls_a[agent]), called_a[agent], int(failed_a[agent]), bill, missing, contexts[agent],
                returns.get(agent),
            )
        )  # fmt: skip
    return rows


def _parents(run: RunColumns) -> tuple[I, I, I]:
    """Of each agent who launched it first, by which event, and how often it was."""
    trace = run.trace
    spawns = np.flatnonzero((trace.type_e == SPAWN) & (trace.to_e >= 0))[::-1]
    parent_a, first_a = np.full(trace.n_agents, -1), np.full(trace.n_agents, -1)
    parent_a[trace.to_e[spawns]] = trace.agent_e[spawns]
    first_a[trace.to_e[spawns]] = spawns
    parent_a[parent_a == np.arange(trace.n_agents)] = -1
    return parent_a, first_a, np.bincount(trace.to_e[spawns], minlength=trace.n_agents)


def _lives(run: RunColumns) -> tuple[list[float], list[float], list[float]]:
    """When each agent began and ended, and for how many seconds it worked; several things at once count once."""
    trace = run.trace
    start = (extent(trace) or (0.0, 0.0))[0]
    n = trace.n_agents
    begun_a, ended_a = np.full(n, np.nan), np.full(n, np.nan)
    busy_a: F = np.zeros(n)
    known = np.flatnonzero((trace.agent_e >= 0) & ~np.isnan(trace.t_e))
    np.fmin.at(begun_a, trace.agent_e[known], trace.t_e[known])
    np.fmax.at(ended_a, trace.agent_e[known], np.fmax(trace.t_e, trace.end_e)[known])
    work = np.flatnonzero((run.work_e > 0) & (trace.agent_e >= 0))
    order = work[np.lexsort((trace.t_e[work], trace.agent_e[work]))]
    who, t, end = trace.agent_e[order], trace.t_e[order], trace.end_e[order]
    if len(order):
        shift = np.concatenate([[0], np.cumsum(np.diff(who) != 0)]) * (2 * (float(end.max()) - float(t.min())) + 1)
        t, end = (
            t + shift,
            end + shift,
        )  # each agent's time after that of the one before it, so that they do not overlap
        until = np.concatenate([[-np.inf], np.maximum.accumulate(end)[:-1]])
        busy_a = np.bincount(who, np.maximum(0.0, end - np.maximum(t, until)), minlength=n).astype(np.float64)
    timed_a = np.bincount(trace.agent_e[~np.isnan(run.work_e) & (trace.agent_e >= 0)], minlength=n) > 0
    busy_a = np.where(timed_a, busy_a, np.nan)
    return (begun_a - start).tolist(), (ended_a - start).tolist(), busy_a.tolist()


def _tree(parent_a: I, begun_a: list[float], run: RunColumns) -> list[tuple[int, int]]:
    """Agents that acted or were launched, and their depth: children after parents. The person is none of them."""
    trace = run.trace
    there_a = np.zeros(trace.n_agents + 1, np.bool_)
    there_a[trace.agent_e[~run.person_e & (trace.type_e != RESULT)]] = True
    there_a[:-1] |= parent_a >= 0
    children: dict[int, list[int]] = {}
    for agent in np.flatnonzero(there_a[:-1]).tolist():
        children.setdefault(int(parent_a[agent]) if there_a[parent_a[agent]] else -1, []).append(agent)
    key = [t if t == t else float("inf") for t in begun_a]
    rows: list[tuple[int, int]] = []
    todo = [(agent, 0) for agent in sorted(children.get(-1, []), key=lambda a: (key[a], a), reverse=True)]
    while todo:
        agent, depth = todo.pop()
        rows.append((agent, depth))
        todo += [(c, depth + 1) for c in sorted(children.get(agent, []), key=lambda a: (key[a], a), reverse=True)]
    return rows


def _models(run: RunColumns) -> dict[int, list[str]]:
    """The models of each agent, the most used first."""
    trace, model_e, words = run.trace, run.bill.model_e, run.bill.models
    rows = np.flatnonzero((model_e >= 0) & (trace.agent_e >= 0))
    pairs, counts = np.unique(
        trace.agent_e[rows].astype(np.int64) * max(len(words), 1) + model_e[rows], return_counts=True
    )
    models: dict[int, list[str]] = {}
    for pair in pairs[np.argsort(-counts, kind="stable")].tolist():
        models.setdefault(pair // len(words), []).append(words[pair % len(words)])
    for row in stated(trace, "agent_model").tolist():
        if isinstance(model := said(trace, "agent_model", row), str):
            models.setdefault(int(trace.agent_e[row]), [model])
    return models


def _launched_for(run: RunColumns, calls: dict[int, int], spawn: int) -> str | None:
    """What a launch says its agent is for, in the input of its call."""
    raw = content_of(run.trace, calls[spawn]) if spawn in calls else None
    value = None if raw is None else msgspec.json.decode(raw)
    if isinstance(value, str):  # arguments as text
        with suppress(msgspec.MsgspecError):
            value = msgspec.json.decode(value)
    named = (
        [value[name] for name in ("description", "task_name") if name in value] if isinstance(value, dict) else []
    )
    return next((text for text in named if isinstance(text, str)), None)


def _calls_of_spawns(run: RunColumns) -> dict[int, int]:
    trace = run.trace
    launches_x = (trace.type_e[trace.dst_x] == SPAWN) & (trace.type_e[trace.src_x] == CALL)
    return dict(zip(trace.dst_x[launches_x].tolist(), trace.src_x[launches_x].tolist(), strict=True))


def _stated(run: RunColumns, name: str, latest: bool = False) -> list[float]:
    """The sum, or the latest, of a number that the returns of each agent state."""
    trace = run.trace
    total_a = np.full(trace.n_agents, np.nan)
    for row in stated(trace, name).tolist():
        count, agent = said(trace, name, row), trace.agent_e[row]
        if isinstance(count, int | float) and agent >= 0:
            total_a[agent] = count if latest else np.nan_to_num(total_a[agent]) + count
    listed: list[float] = total_a.tolist()
    return listed


# ---- contexts


def context_e(run: RunColumns) -> F:
    """The tokens that each turn read, of all kinds; NaN where it does not say."""
    read = run.bill.tokens_fe[:4]
    total: F = np.where(np.isnan(read).all(axis=0), np.nan, np.nansum(read, axis=0))
    return total


def compactions(run: RunColumns) -> B:
    """Events that say that a context was compacted."""
    compacted_e = np.zeros(run.trace.n_events, np.bool_)
    compacted_e[stated(run.trace, "compacted")] = True
    return compacted_e


def _contexts(run: RunColumns) -> list[Context]:
    trace, read_e = run.trace, context_e(run)
    rows = np.flatnonzero((read_e > 0) & (trace.agent_e >= 0))
    rows = rows[rows_by(trace.agent_e[rows])]
    who = trace.agent_e[rows]
    first_a, most_a, last_a = (np.full(trace.n_agents, np.nan) for _ in range(3))
    first_a[who[::-1]] = read_e[rows[::-1]]
    last_a[who] = read_e[rows]
    np.fmax.at(most_a, who, read_e[rows])
    compacted_a = np.bincount(trace.agent_e[compactions(run)], minlength=trace.n_agents)
    stated_a = _stated(run, "context_tokens", latest=True)
    columns = zip(first_a.tolist(), most_a.tolist(), last_a.tolist(), stated_a, compacted_a.tolist(), strict=True)
    return [Context(*row) for row in columns]


# ---- returns


def _returns(run: RunColumns, parent_a: I) -> dict[int, Return]:
    """What became of the returns of every agent that was launched."""
    trace = run.trace
    launched = np.flatnonzero(parent_a >= 0)
    if not len(launched):
        return {}
    by_agent: dict[int, list[int]] = {}
    for row in np.flatnonzero(trace.type_e == RETURN).tolist():
        by_agent.setdefault(int(trace.agent_e[row]), []).append(row)
    readable = "content" in trace.extra_e
    outputs = {int(p): _outputs(run, int(p)) for p in np.unique(parent_a[launched])} if readable else {}
    last_a = np.full(trace.n_agents, -1)  # the last turn of each agent
    turns = np.flatnonzero(run.model_e & (trace.agent_e >= 0))
    np.maximum.at(last_a, trace.agent_e[turns], turns)
    fates = {}
    for agent in launched.tolist():
        returns, parent = by_agent.get(agent, []), int(parent_a[agent])
        failed = bool(returns) and all(trace.valid_e[row] == 0 for row in returns)
        if not returns:
            fates[agent] = Return("none", 0, 0, False)
            continue
        words, found, told = 0, 0, False
        for row in returns:
            own = _own_marks(run, agent, row, outputs.get(parent, [])) if readable else None
            if own is not None:
                later = set().union(*(m for at, m in outputs[parent] if _after(run, at, row)), set())
                words, found, told = words + len(own), found + len(own & later), True
        enough = told and words >= LEAST_MARKS
        fate: Any = "used" if found else "no trace" if enough else "not recorded"
        if not found and last_a[parent] >= 0 and not _after(run, int(last_a[parent]), returns[0]):
            fate = "not read"
        fates[agent] = Return(fate, words, found, failed)
    return fates


def _after(run: RunColumns, row: int, back: int) -> bool:
    """Whether an event began when a return had come; by their rows where a time is not known."""
    begun, came = run.trace.t_e[row], np.fmax(run.trace.end_e[back], run.trace.t_e[back])
    return bool(begun >= came and row != back) if begun == begun and came == came else row > back


def _outputs(run: RunColumns, agent: int) -> list[tuple[int, set[str]]]:
    """What an agent wrote, texts and inputs of calls: the row, and the words by which it can be told apart."""
    trace = run.trace
    wrote_e = (trace.agent_e == agent) & ~run.person_e & (trace.type_e != RESULT)
    rows = [(row, content_of(trace, row)) for row in np.flatnonzero(wrote_e).tolist()]
    return [(row, marks("\n".join(strings(msgspec.json.decode(raw))))) for row, raw in rows if raw is not None]


def _own_marks(run: RunColumns, agent: int, row: int, outputs: list[tuple[int, set[str]]]) -> set[str] | None:
    """The words in a return that its parent had not written before, its prompt among them."""
    text = text_of(content_of(run.trace, row))
    if text is None:
        return None
    own = marks(text)
    for at, before in outputs:
        if not _after(run, at, row):
            own -= before
    return own
