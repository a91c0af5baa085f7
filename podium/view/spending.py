"""Tokens and money of a run: in all, and by agent, model, tool and task.

A turn of the model belongs to its agent, its model and its task. Its tokens and its price are shared equally among
the calls that it makes; a turn that makes none only spoke, and is counted under "text".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podium.trace.columns import F, I
from podium.view.columns import RunColumns

__all__ = ["Spending", "Tally", "spending_by", "tallies", "tally", "tool_tallies"]

TEXT = "text"


class Tally(Struct):
    """Tokens and dollars of some turns. NaN where none of them states a figure."""

    turns: float  # a share of one where several calls share a turn
    input: float  # tokens read anew
    cache_write: float  # read and written to the cache
    cache_write_1h: float  # those of them that it keeps for an hour
    cache_read: float
    output: float
    hit: float  # of the tokens read, the share that came from the cache
    usd: float  # what is known of the price; NaN where nothing is
    at_least: bool  # some of it is not known, or has no price
    unread: int  # turns that do not say what they read ...
    unwritten: int  # ... or what they wrote
    unpriced: int  # ... or whose tokens have no price


class Spending(Struct):
    """The tally of an agent, a model, a tool or a task."""

    name: str
    tally: Tally


def tally(run: RunColumns) -> Tally:
    """Of the whole run."""
    return tallies(run, np.zeros(run.trace.n_events, np.int64), 1)[0]


def tallies(run: RunColumns, code_e: I, groups: int, weight_e: F | None = None) -> list[Tally]:
    """Of the turns of each group; -1 is no group."""
    rows = np.flatnonzero(run.bill.turn_e & (code_e >= 0))
    weight = np.ones(len(rows)) if weight_e is None else weight_e[rows]
    return _tallied(run, rows, code_e[rows], groups, weight)


def _tallied(run: RunColumns, rows: NDArray[np.intp], code: I, groups: int, weight: F) -> list[Tally]:
    bill = run.bill

    def added(values: F) -> F:
        """Sums of a group; NaN where no turn of it states anything."""
        known = ~np.isnan(values)
        total = np.bincount(code[known], (values * weight)[known], minlength=groups)
        return np.where(np.bincount(code[known], minlength=groups) > 0, total, np.nan)

    def counted(which: NDArray[np.bool_]) -> list[int]:
        return [int(n) for n in np.bincount(code[which[rows]], minlength=groups)]

    fresh, brief, hour, read, written = (added(tokens_e[rows]) for tokens_e in bill.tokens_fe)
    write = np.where(np.isnan(brief) & np.isnan(hour), np.nan, np.nan_to_num(brief) + np.nan_to_num(hour))
    given = np.nan_to_num(fresh) + np.nan_to_num(write) + np.nan_to_num(read)
    with np.errstate(invalid="ignore"):
        hit = np.where(given > 0, read / given, np.nan)
    turns = np.bincount(code, weight, minlength=groups)
    price, vague = added(bill.usd_e[rows]), counted(bill.turn_e & ~bill.exact_e)
    unread, unwritten, unpriced = (counted(e) for e in (bill.unread_e, bill.unwritten_e, bill.unpriced_e))
    return [
        Tally(
            float(turns[g]),
            float(fresh[g]),
            float(write[g]),
            float(hour[g]),
            float(read[g]),
            float(written[g]),
            float(hit[g]),
            float(price[g]),
            vague[g] > 0,
            unread[g],
            unwritten[g],
            unpriced[g],
        )
        for g in range(groups)
    ]


def spending_by(run: RunColumns, code_e: I, words: Sequence[str]) -> list[Spending]:
    """Tallies by a code, the dearest first, those without turns left out."""
    rows = [Spending(word, one) for word, one in zip(words, tallies(run, code_e, len(words)), strict=True)]
    return sorted((r for r in rows if r.tally.turns), key=lambda r: -_amount(r.tally))


def tool_tallies(run: RunColumns) -> list[Spending]:
    """Tallies by tool; each call has an equal share of the turn that makes it."""
    trace = run.trace
    calls = np.flatnonzero(run.call_e & (run.turn_of_e >= 0))
    turn = run.turn_of_e[calls]
    calls, turn = calls[run.bill.turn_e[turn]], turn[run.bill.turn_e[turn]]
    calls_of_turn = np.bincount(turn, minlength=trace.n_events)
    spoke = np.flatnonzero(run.bill.turn_e & (calls_of_turn == 0))
    words = [*trace.tool_e.words, TEXT]
    code = np.concatenate([trace.tool_e.codes[calls], np.full(len(spoke), len(words) - 1)])
    rows, weight = np.concatenate([turn, spoke]), np.concatenate([1 / calls_of_turn[turn], np.ones(len(spoke))])
    known = code >= 0
    tallies = _tallied(run, rows[known], code[known], len(words), weight[known])
    shares = [Spending(word, one) for word, one in zip(words, tallies, strict=True) if one.turns]
    return sorted(shares, key=lambda s: -_amount(s.tally))


def _amount(one: Tally) -> float:
    """What a tally is ordered by: its price, or where it has none a millionth of its tokens."""
    tokens = np.nansum([one.input, one.cache_write, one.cache_read, one.output])
    return one.usd if one.usd == one.usd else float(tokens) * 1e-12
