"""What went wrong in a run, by what its log states: failures, repeated calls, refusals, calls without a result."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podium.view.columns import HUMAN, RETURN, SAFETY, RunColumns, content_of, said, text_of

__all__ = ["Repeat", "Tool", "Trouble", "retries", "tool_rows", "trouble"]

INTERRUPTED = "[Request interrupted"
MACHINE = "<synthetic>"  # what Claude Code calls itself where it answers in the place of a model


class Tool(Struct):
    """The calls of one tool."""

    name: str
    calls: int
    failed: int
    open: int  # without a result
    seconds: float  # of all calls, those side by side counted each; NaN where no call says how long it took


class Repeat(Struct):
    """A call that failed and was made again just as it was, by the same agent."""

    agent: str
    tool: str
    rows: list[int]  # the calls, the first failure first


class Trouble(Struct):
    """How often what went wrong."""

    failed_calls: int
    calls: int
    repeats: list[Repeat]  # failed calls that were made again unchanged
    open_calls: int  # without a result
    truncated: int  # events whose beginning or end lies outside the log
    failed_agents: int
    interruptions: int  # by the person
    refusals: int  # calls that the person refused
    denials: int  # by a rule of permission, a guard or a hook
    model_errors: int  # answers of the program in the place of a model: errors of the API


def tool_rows(run: RunColumns) -> list[Tool]:
    """The tools of a run, those that took longest first."""
    trace, n = run.trace, len(run.trace.tool_e.words)
    calls = np.flatnonzero(run.call_e & (trace.tool_e.codes >= 0))
    code, result = trace.tool_e.codes[calls], run.result_of_e[calls]
    took = run.work_e[calls]
    timed = ~np.isnan(took)
    seconds = np.where(
        np.bincount(code[timed], minlength=n) > 0, np.bincount(code[timed], took[timed], minlength=n), np.nan
    )
    columns = (
        np.bincount(code, minlength=n),
        np.bincount(code[(result >= 0) & (trace.valid_e[result] == 0)], minlength=n),
        np.bincount(code[result < 0], minlength=n),
    )
    rows = [
        Tool(word, int(count), int(failed), int(unanswered), float(s))
        for word, count, failed, unanswered, s in zip(trace.tool_e.words, *columns, seconds, strict=True)
        if count
    ]
    return sorted(rows, key=lambda row: (-np.nan_to_num(row.seconds), -row.calls))


def retries(run: RunColumns) -> list[Repeat]:
    """Calls that failed and were made again, with the same input, by the same agent; told by the hash of the
    input."""
    trace = run.trace
    failed_e = run.call_e & (run.result_of_e >= 0) & (trace.valid_e[run.result_of_e] == 0)
    failed_e &= trace.content_ref_e.codes >= 0
    if not failed_e.any():
        return []
    inputs = np.unique(trace.content_ref_e.codes[failed_e])
    same: dict[tuple[int, int, int], list[int]] = {}
    such = np.flatnonzero(run.call_e & np.isin(trace.content_ref_e.codes, inputs))
    for row in such.tolist():
        key = int(trace.agent_e[row]), int(trace.tool_e.codes[row]), int(trace.content_ref_e.codes[row])
        same.setdefault(key, []).append(row)
    repeats = []
    for (agent, tool, _), rows in same.items():
        first = next(i for i, row in enumerate(rows) if failed_e[row]) if any(failed_e[rows]) else len(rows)
        again = rows[first:]
        # after a failure, as long as it fails; the call that succeeds at last is among them
        ends = next((i for i, row in enumerate(again) if not failed_e[row]), len(again) - 1)
        again = again[: ends + 1]
        if len(again) > 1:
            repeats.append(Repeat(str(trace.name_a[agent]), trace.tool_e.words[tool] if tool >= 0 else "", again))
    return sorted(repeats, key=lambda r: r.rows[0])


def trouble(run: RunColumns) -> Trouble:
    """How often what went wrong."""
    trace = run.trace
    result = run.result_of_e[run.call_e]
    human = np.flatnonzero(trace.type_e == HUMAN)
    why = [said(trace, "what", row) for row in human.tolist()]
    texts = [text_of(content_of(trace, row)) or "" for row in human.tolist()]
    return Trouble(
        int(((result >= 0) & (trace.valid_e[result] == 0)).sum()),
        int(run.call_e.sum()),
        retries(run),
        int((result < 0).sum()),
        int((trace.truncated_e == 1).sum()),
        _failed_agents(run),
        sum(_interrupts(run, row, w, t) for row, w, t in zip(human.tolist(), why, texts, strict=True)),
        sum(w == "refused" for w in why),
        int((trace.type_e == SAFETY).sum()),
        int((trace.model_e.codes == trace.model_e.code(MACHINE)).sum()),
    )


def _interrupts(run: RunColumns, row: int, why: Any, text: str) -> bool:
    """Whether what the person did was to stop the team: said so, or neither a text nor an answer to anything."""
    return text.startswith(INTERRUPTED) or bool(why is None and run.trace.content_ref_e.codes[row] < 0)


def _failed_agents(run: RunColumns) -> int:
    trace = run.trace
    failed: NDArray[Any] = trace.agent_e[(trace.type_e == RETURN) & (trace.valid_e == 0)]
    return len(np.unique(failed))
