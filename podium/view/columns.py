"""What the figures of a run are made of: turns of a model, calls of tools, the person's events, content."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium import graph
from podium.graph.path import work
from podium.metrics.prices import PriceRow, TurnBill, turn_bill
from podium.rewards.orchestration import spawned
from podium.trace.columns import B, F, I, Trace
from podium.trace.vocabulary import edge, event

__all__ = ["RunColumns", "content_of", "marks", "run_columns", "said", "stated", "strings", "text_of"]

CALL, RESULT, SPAWN, DESPAWN = event("tool_call"), event("tool_result"), event("spawn"), event("despawn")
DECISION, MESSAGE, RETURN, AGGREGATE = (
    event("orchestrator_decision"),
    event("message"),
    event("return"),
    event("aggregate"),
)
HUMAN, SAFETY = event("human_intervention"), event("safety_event")
TEMPORAL = edge("temporal")
_SPLIT = re.compile(r"[^\w./\\@#$%&*+~-]+")
_FIRST = ("command", "cmd", "file_path", "pattern", "path")
LEAST_MARK = 4  # letters of a word that is looked for


class RunColumns(NamedTuple):
    """One run, and columns that several figures need."""

    trace: Trace
    bill: TurnBill
    work_e: F  # seconds
    person_e: B  # the person's doing
    model_e: B  # a turn of a model: what it read and wrote is known, or would be
    call_e: B
    turn_of_e: I  # for a call: the row of the turn that made it, else -1
    result_of_e: I  # for a call: the row of its result, else -1
    silent_a: B  # agents that were launched, and of whose work only the end is in the log


def run_columns(trace: Trace, prices: Sequence[PriceRow]) -> RunColumns:
    if len(trace) != 1:
        raise ValueError(f"expected one run, got {len(trace)}")
    bill = turn_bill(trace, prices)
    kind_e, call_e = trace.type_e, trace.type_e == CALL
    person_e = (kind_e == HUMAN) | (trace.role_e.codes == trace.role_e.code("user"))
    acts_e = ~person_e & np.isin(kind_e, (DECISION, MESSAGE, RETURN, AGGREGATE))
    works_a = np.zeros(trace.n_agents + 1, np.bool_)
    counts = trace.tokens_in_e, trace.tokens_out_e, trace.cache_read_e, trace.cache_write_e
    counted_e = ~np.isnan(counts).all(axis=0)  # not what only a return says of a last turn
    works_a[trace.agent_e[call_e | (trace.model_e.codes >= 0) | counted_e]] = True
    silent_a = spawned(trace) & ~works_a[:-1] & bill.turn_e.any()
    silent_e = np.append(silent_a, False)[trace.agent_e]
    return RunColumns(
        trace,
        bill,
        work(trace),
        person_e,
        acts_e & ~silent_e,
        call_e,
        _turn_of(trace, acts_e, bill.turn_e),
        _result_of(trace),
        silent_a,
    )


def _turn_of(trace: Trace, acts_e: B, priced_e: B) -> I:
    """For each call the turn of its agent that caused it.

    A decision that follows a turn which read what came back is part of that turn.
    """
    src, dst = trace.src_x, trace.dst_x
    own_x = (trace.agent_e[src] == trace.agent_e[dst]) & acts_e[src]
    turn_e = np.full(trace.n_events, -1, np.int64)
    stated_x = own_x & (trace.type_x != TEMPORAL)
    for such_x in (own_x, stated_x):  # what is stated goes before what only follows
        latest = np.full(trace.n_events, -1, np.int64)
        np.maximum.at(latest, dst[such_x], src[such_x])
        turn_e = np.where(latest >= 0, latest, turn_e)
    before_e = turn_e.copy()
    rows = np.flatnonzero((trace.type_e == CALL) & (turn_e >= 0))
    made_by = turn_e[rows]
    bare = ~priced_e[made_by] & (before_e[made_by] >= 0) & priced_e[before_e[made_by]]
    turn_of_e = np.full(trace.n_events, -1, np.int64)
    turn_of_e[rows] = np.where(bare, before_e[made_by], made_by)
    return turn_of_e


def _result_of(trace: Trace) -> I:
    call_e = graph.call_of(trace)
    rows = np.flatnonzero(call_e >= 0)
    result_e = np.full(trace.n_events, -1, np.int64)
    result_e[call_e[rows]] = rows
    return result_e


def stated(trace: Trace, name: str) -> NDArray[np.intp]:
    """The rows that state something under this name."""
    column = trace.extra_e.get(name)
    return np.zeros(0, np.intp) if column is None else np.flatnonzero(column.codes >= 0)


def said(trace: Trace, name: str, row: int) -> Any:
    """What an event states under this name; None where it states nothing."""
    column = trace.extra_e.get(name)
    word = None if column is None else column[row]
    return None if word is None else msgspec.json.decode(word)


def content_of(trace: Trace, row: int) -> str | None:
    """The content of an event as JSON, where it was kept."""
    column = trace.extra_e.get("content")
    return None if column is None else column[row]


def text_of(raw: str | None) -> str | None:
    """The text in a content: itself, or that of its blocks.

    >>> text_of('"fix it"'), text_of('[{"type": "text", "text": "one"}, "two"]'), text_of(None)
    ('fix it', 'one\\ntwo', None)
    """
    if raw is None:
        return None
    value = msgspec.json.decode(raw)
    parts = value if isinstance(value, list) else [value]
    texts = [p.get("text") if isinstance(p, dict) else p for p in parts]
    text = "\n".join(t for t in texts if isinstance(t, str))
    return text or None


def strings(value: Any) -> Iterator[str]:
    """All texts in a content, those of arguments written as JSON among them; a command or a path first.

    >>> list(strings({"limit": 3, "pattern": "*.py", "command": "ls"})), list(strings('{"cmd": "ls"}'))
    (['ls', '*.py'], ['ls'])
    """
    if isinstance(value, str):
        if value[:1] == "{":
            try:
                yield from strings(msgspec.json.decode(value))
                return
            except msgspec.MsgspecError:
                pass
        yield value
    elif isinstance(value, dict):
        for name in sorted(value, key=lambda n: _FIRST.index(n) if n in _FIRST else len(_FIRST)):
            yield from strings(value[name])
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


def marks(text: str | None) -> set[str]:
    """The words of a text by which it can be told apart: names of files, identifiers, numbers; no plain words.

    >>> sorted(marks("Look at src/podium/view.py and runColumns, not at the others (line 1204)"))
    ['1204', 'runColumns', 'view.py']
    """
    names = set()
    for word in _SPLIT.split(text or ""):
        bare = re.split(r"[/\\]", word.strip(".-*~"))[-1]
        if len(bare) >= LEAST_MARK and not (
            bare.isalpha() and (bare.islower() or bare.istitle() or bare.isupper())
        ):
            names.add(bare)
    return names
