"""Habits that cost time or money: each rule has a figure and the events that show it.

Context read again at full price. A turn of an agent that reads less from the cache than the turn before it had read
pays for text that it had already paid for. Of turn i, with c_i tokens read in all,

    again_i = max(0, min(c_i, c_{i-1}) - cache_read_i),     unless the context was compacted in between

tokens are paid at the price of writing to the cache, or of plain input, instead of that of reading from it. Mostly
the cache had run out: the pause since the turn before was longer than it keeps a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from podium.graph.grouping import rows_by
from podium.view.apart import Apart
from podium.view.clock import Clock
from podium.view.columns import RunColumns
from podium.view.spending import Tally
from podium.view.team import Agent, compactions, context_e
from podium.view.trouble import Trouble

__all__ = ["HABITS", "Habit", "habits"]

HABITS: dict[str, str] = {
    "context_again": "context read again at full price, after the cache had run out or was not used",
    "unused_agents": "sub-agents whose return left no trace in what their parent wrote later",
    "apart": "independent reads, or sub-agents, one after the other",
    "same_call_again": "a call that failed, made again unchanged",
    "compactions": "contexts that grew until they were compacted",
    "approvals": "waiting for leave or an answer by the person",
}
KEPT_S = 300.0  # seconds that a cache keeps a text, at least
LEAST_AGAIN, LEAST_SHARE = 1000.0, 0.1  # tokens, and of the context; less is what caches do not keep anyway


class Habit(Struct):
    """A rule that found something."""

    rule: str  # a key of HABITS
    times: int
    usd: float  # what it cost, at most what could have been saved; NaN where no price is known
    seconds: float  # likewise; NaN where it is not about time
    tokens: float
    evidence: str
    rows: list[int]  # the events


def habits(
    run: RunColumns, agents: Sequence[Agent], apart: Sequence[Apart] | None, wrong: Trouble, clock: Clock
) -> list[Habit]:
    """What these rules found, the dearest first; where no price is known, what took longest."""
    habits = [
        _context_again(run),
        _unused(agents),
        _apart(apart or ()),
        _same_call(run, wrong),
        _compacted(run),
        _approvals(run, clock),
    ]
    return sorted((h for h in habits if h.times), key=lambda h: (-np.nan_to_num(h.usd), -np.nan_to_num(h.seconds)))


def _context_again(run: RunColumns) -> Habit:
    trace, tokens, rate = run.trace, run.bill.tokens_fe, run.bill.rate_fe
    read_e = context_e(run)
    rows = np.flatnonzero((read_e > 0) & (trace.agent_e >= 0) & ~np.isnan(tokens[3]))
    rows = rows[rows_by(trace.agent_e[rows])]
    before, after = rows[:-1], rows[1:]
    eras = np.cumsum(compactions(run))
    follows = (trace.agent_e[before] == trace.agent_e[after]) & (eras[before] == eras[after])
    again = np.minimum(read_e[after], read_e[before]) - tokens[3, after]
    hit = follows & (again >= LEAST_AGAIN) & (again >= LEAST_SHARE * read_e[before])
    after, before, again = after[hit], before[hit], again[hit]
    write_1h, write = (np.nan_to_num(tokens[k, after]) for k in (2, 1))
    by_hour = np.minimum(again, write_1h)
    by_write = np.minimum(again - by_hour, write)
    fresh = again - by_hour - by_write
    paid = [part * (rate[k, after] - rate[3, after]) for part, k in ((by_hour, 2), (by_write, 1), (fresh, 0))]
    usd = np.sum(
        [np.where(part > 0, p, 0.0) for part, p in zip((by_hour, by_write, fresh), paid, strict=True)], axis=0
    )
    pause = trace.t_e[after] - np.fmax(trace.end_e, trace.t_e)[before]
    long = int((pause > KEPT_S).sum())
    evidence = (
        f"{again.sum() / 1e6:,.2f} million tokens; {long} of {len(after)} after a pause of more than 5 minutes"
    )
    return Habit(
        "context_again", len(after), _sum(usd / 1e6), float("nan"), float(again.sum()), evidence, after.tolist()
    )


def _unused(agents: Sequence[Agent]) -> Habit:
    such = [a for a in agents if a.returned is not None and a.returned.fate in ("no trace", "not read")]
    known = [a.tally.usd for a in such if a.tally.usd == a.tally.usd]
    return Habit(
        "unused_agents",
        len(such),
        sum(known) if known else float("nan"),
        float(np.nansum([a.busy for a in such])),
        float(np.nansum([_read(a.tally) for a in such])),
        "what they changed in files is no such trace" + _names([a.task or a.name for a in such]),
        [],
    )


def _read(tally: Tally) -> float:
    return float(np.nansum([tally.input, tally.cache_write, tally.cache_read]))


def _apart(groups: Sequence[Apart]) -> Habit:
    return Habit(
        "apart",
        sum(len(g.rows) - 1 for g in groups),
        _sum(np.array([g.usd for g in groups])),
        sum(g.seconds for g in groups),
        float("nan"),
        f"{len(groups)} group{'s' * (len(groups) != 1)}; no word of an input is in what came back before it",
        [row for g in groups for row in g.rows],
    )


def _same_call(run: RunColumns, wrong: Trouble) -> Habit:
    calls = np.array([row for repeat in wrong.repeats for row in repeat.rows[1:]], np.intp)
    turns = np.unique(run.turn_of_e[calls]) if len(calls) else calls
    turns = turns[turns >= 0]
    seconds = float(np.nan_to_num(run.work_e[calls]).sum() + np.nan_to_num(run.work_e[turns]).sum())
    tools = sorted({repeat.tool for repeat in wrong.repeats})
    return Habit(
        "same_call_again",
        len(calls),
        _sum(run.bill.usd_e[turns]),
        seconds,
        float("nan"),
        f"of {', '.join(tools)}",
        calls.tolist(),
    )


def _compacted(run: RunColumns) -> Habit:
    """A compaction costs what the turn after it reads anew, and the turn that wrote it where the log has it."""
    trace = run.trace
    rows = np.flatnonzero(compactions(run))
    turns = np.flatnonzero(run.bill.turn_e & ~np.isnan(context_e(run)))
    after = [turns[(turns > row) & (trace.agent_e[turns] == trace.agent_e[row])][:1] for row in rows.tolist()]
    first = np.concatenate(after) if after else np.zeros(0, np.intp)
    tokens, rate = run.bill.tokens_fe[:3, first], run.bill.rate_fe[:3, first]
    usd = np.where(np.nan_to_num(tokens) > 0, tokens * rate, 0.0).sum(axis=0) / 1e6
    evidence = f"{np.nansum(tokens) / 1e6:,.2f} million tokens were read anew after"
    return Habit(
        "compactions", len(rows), _sum(usd), float("nan"), float(np.nansum(tokens)), evidence, rows.tolist()
    )


def _approvals(run: RunColumns, clock: Clock) -> Habit:
    trace = run.trace
    what = trace.extra_e.get("what")
    asked_e = run.person_e & (run.work_e > 0)
    asked_e &= (
        np.isin(what.codes, [what.code(f'"{w}"') for w in ("approved", "answered", "refused")]) if what else False
    )
    rows = np.flatnonzero(asked_e)
    return Habit(
        "approvals",
        len(rows),
        float("nan"),
        clock.approvals,
        float("nan"),
        f"the longest {run.work_e[rows].max(initial=0) / 60:,.0f} minutes",
        rows.tolist(),
    )


def _sum(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """The sum of what is known; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else float("nan")


def _names(names: list[str]) -> str:
    return f": {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}" if names else ""
