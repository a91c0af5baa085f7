"""What the team would have earned without a unit: runs in which it was masked, against the run it was masked in.

The intervention `mask` of such a run (`do_n`) says whom it masks; they do nothing in it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.forest import parents
from podium.graph import units
from podium.graph.grouping import last_by, mean_by, take
from podium.registry import register
from podium.trace.columns import B, F, I, Trace

__all__ = ["Masks", "mask_runs", "team_value"]


class Masks(NamedTuple):
    """The runs that a mask made, and who is masked in them: one entry a run and agent."""

    made_n: (
        B  # whether a run was made by a mask, of anybody or nobody, and whoever it masks does nothing in all of it
    )
    run: NDArray[np.int64]
    name: NDArray[np.int64]  # a place in `words`
    words: tuple[str, ...]  # the names of agents, those of the trace first


def team_value(credit: Credit) -> F:
    """What each run was worth, from credit at the team, or at a unit where all units of a run have the same."""
    if credit.unit == "team":
        return credit.value
    value_n = take(credit.value, last_by(credit.rollout, ~np.isnan(credit.value), len(credit.trace)))
    off = np.abs(credit.value - value_n[credit.rollout])
    if (off > 1e-9 * np.maximum(1.0, np.abs(value_n[credit.rollout]))).any():
        raise BadCredit(f"needs one number a run, got {credit.unit} credit that differs inside a run")
    return value_n


def mask_runs(trace: Trace) -> Masks:
    """Who is masked where."""
    absent = [_masked(word) for word in trace.do_n.words]
    words = {name: place for place, name in enumerate(trace.name_a.words)}
    many = np.array([-1 if names is None else len(names) for names in absent] + [-1])
    flat = [words.setdefault(name, len(words)) for names in absent if names for name in names]
    made_n = many[trace.do_n.codes] >= 0
    runs = np.flatnonzero(made_n)
    count = many[trace.do_n.codes[runs]]
    start = np.concatenate([[0], np.cumsum(np.maximum(many[:-1], 0))])
    run = np.repeat(runs, count)
    nth = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    name = np.array(flat, np.int64)[start[trace.do_n.codes[run]] + nth]
    acts = np.unique(_pair(trace.rollout_e, trace.name_a.codes[trace.agent_e], trace.agent_e >= 0, len(words)))
    partly = np.isin(run * len(words) + name, acts)
    made_n[run[partly]] = False
    whole = made_n[run]
    return Masks(made_n, run[whole], name[whole], tuple(words))


def _pair(run: I, name: I, there: B, words: int) -> NDArray[np.int64]:
    pair: NDArray[np.int64] = run[there].astype(np.int64) * words + name[there]
    return pair


def _masked(word: str) -> list[str] | None:
    """Whom an intervention masks; None if it is no mask, or does not name them."""
    done = msgspec.json.decode(word)
    if not isinstance(done, dict) or done.get("what") != "mask":
        return None
    value = done.get("value")
    return [value] if isinstance(value, str) else value if isinstance(value, list) else None


@register("step")
def masked(credit: Credit, unit: str = "agent") -> Credit:
    """Difference reward: what the run earned beyond what it earned without the unit.

        D_u = R - mean R : runs that branched from it, in which u was masked (an agent) or removed (an event)

    An agent counts where it alone was masked, and did nothing in the whole run; an event where the branch left at
    its row.
    pays: agents, messages, tool calls, decisions, turns.   needs: such runs, else NaN.   from: Wolpert & Tumer
    2002; SHARP.
    """
    if unit in ("team", "token", "role") or unit not in units.UNITS:
        raise BadCredit(f"masked pays agents and events, not {unit!r}")
    trace, value_n = credit.trace, team_value(credit)
    runs, place = _without_agent(trace) if unit == "agent" else _without_event(trace, unit)
    without = mean_by(place, value_n[runs], len(units.rows(trace, unit)))
    return Credit(trace, unit, value_n[units.rollouts(trace, unit)] - without)


def _without_agent(trace: Trace) -> tuple[I, I]:
    """Runs in which one agent alone is masked, and its place in the run they left; -1 where it is not there."""
    masks, up = mask_runs(trace), parents(trace)
    alone = np.bincount(masks.run)[masks.run] == 1
    run, words = masks.run[alone], len(masks.words)
    have = _pair(trace.rollout_a, trace.name_a.codes, np.ones(trace.n_agents, np.bool_), words)
    order = np.argsort(have, kind="stable")
    want = np.where(up[run] < 0, -1, up[run] * words + masks.name[alone])
    at = np.searchsorted(have[order], want)
    return run, take(order, np.where(take(have[order], at) == want, at, -1))


def _without_event(trace: Trace, unit: str) -> tuple[I, I]:
    """Runs that left where an event was removed, and the place of its unit in the run they left."""
    removes = [msgspec.json.decode(word).get("what") == "remove" for word in trace.do_n.words]
    run = np.flatnonzero(np.array([*removes, False])[trace.do_n.codes])
    up, first = parents(trace)[run], trace.first_of("e")
    start = take(first[:-1], np.where(up < len(trace), up, -1))
    row = np.where((start >= 0) & (trace.branch_n[run] >= 0), start + trace.branch_n[run], -1)
    return run, take(units.place(trace, unit), row)
