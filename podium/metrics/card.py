"""The report card: the survey's five-point reporting checklist (table 14), filled in from the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from podium.expression import calls
from podium.graph import units
from podium.graph.grouping import any_by
from podium.graph.spans import wall_clock
from podium.graph.steps import spawned
from podium.metrics.report import WORDS, Measured, measure
from podium.metrics.table import DIMENSIONS
from podium.metrics.views import count
from podium.registry import facts, kind_of
from podium.rewards.ledger import read_reward
from podium.rewards.outcome import spent
from podium.trace.columns import Trace
from podium.trace.vocabulary import edge, event

__all__ = ["NATIVE", "card"]

NATIVE = 3  # dimensions that a benchmark reports to be native to multi-agent systems
SPAWN, DESPAWN, MESSAGE, CALL = event("spawn"), event("despawn"), event("message"), event("tool_call")
RESULT, RETURN, HUMAN = event("tool_result"), event("return"), event("human_intervention")
TEMPORAL = edge("temporal")


def card(
    trace: Trace, measured: Sequence[Measured] | None = None, reward: str | None = None, credit: str | None = None
) -> dict[str, Any]:
    """The checklist as plain data; None for what is not recorded.

    `reward` is the expression that runs were trained with, `credit` the finest unit paid: the record says neither.
    """
    dimensions = _dimensions(measure(trace) if measured is None else measured)
    return {
        "1 topology and roles": _topology(trace),
        "2 trace scale": _scale(trace),
        "3 reward channels": _rewards(trace, reward),
        "4 credit unit": {"finest unit paid": credit or _finest(trace, reward)},
        "5 safety instrumentation": _safety(trace),
        "dimensions": dimensions,
        "native": sum(bool(d["reported"]) for d in dimensions.values()) >= NATIVE,
    }


def _topology(trace: Trace) -> dict[str, Any]:
    kinds, runs = np.unique(trace.topology_n, return_counts=True)
    spawns_n, gone_n = count(trace, trace.type_e == SPAWN), count(trace, trace.type_e == DESPAWN)
    dynamic = int((spawns_n > 0).sum())
    some = f"dynamic in {dynamic} of {len(trace)} runs" if dynamic else "fixed"
    team = "dynamic" if dynamic == len(trace) and dynamic else some
    return {
        "topologies": {WORDS[k]: n for k, n in zip(kinds.tolist(), runs.tolist(), strict=True)},
        "active roles": sorted({role for role in trace.role_e.strings() if role is not None}) or None,
        "spawns a run": _mean(spawns_n),
        "despawns a run": _mean(gone_n),
        "team": team,
    }


def _scale(trace: Trace) -> dict[str, Any]:
    born, stated_n = spawned(trace), spent(trace, "wall_clock_s")
    return {
        "runs": len(trace),
        "events a run": _mean(np.bincount(trace.rollout_e, minlength=len(trace))),
        "messages a run": _mean(spent(trace, "messages")),
        "tool calls a run": _mean(spent(trace, "tool_calls")),
        "sub-agents a run": _mean(np.bincount(trace.rollout_a[born], minlength=len(trace))),
        "wall clock a run, s": _mean(np.where(np.isnan(stated_n), wall_clock(trace), stated_n)),
        "tokens a run": _mean(spent(trace, "tokens")),
        "edges that were inferred": int((trace.inferred_x == 1).sum()),
    }


def _mean(values: Any) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _stated(channels: Any) -> list[str]:
    return sorted(name for name, values in channels.items() if not np.isnan(values).all())


def _rewards(trace: Trace, reward: str | None) -> dict[str, Any]:
    return {
        "on runs": _stated(trace.reward_n),
        "on events": _stated(trace.reward_e),
        "expression": reward,
        "auxiliaries annealed": None
        if reward is None
        else any("anneal" in name for name in _names(reward, "shape")),
    }


def _names(reward: str, kind: str) -> list[str]:
    """The names of this kind in a reward expression."""
    return [c.name for c in calls(read_reward(reward)) if kind_of(c.name, "score", "shape") == kind]


def _finest(trace: Trace, reward: str | None) -> str | None:
    """The finest unit that the reward pays; without one, the finest at which the record has rewards."""
    if reward is not None:
        paid = [facts("score", name)["unit"] for name in _names(reward, "score")]
        return max(paid, key=list(units.UNITS).index, default=None)
    if _stated(trace.reward_e):
        return "event (rewards on events; which unit they pay is not recorded)"
    return "team (rewards on runs only)" if _stated(trace.reward_n) else None


def _safety(trace: Trace) -> dict[str, Any]:
    def marks(which: Any) -> dict[str, int]:
        return {"events": int(which.sum()), "marked trusted or not": int((which & (trace.trusted_e >= 0)).sum())}

    return {
        "tool output": marks(trace.type_e == RESULT),
        "messages between agents": marks((trace.type_e == MESSAGE) | (trace.type_e == RETURN)),
        "shared memory": marks(_shared(trace)),
        "human interventions": int((trace.type_e == HUMAN).sum()),
        "untrusted": int((trace.trusted_e == 0).sum()),
    }


def _shared(trace: Trace) -> Any:
    """Tool results of one agent that lead straight to a tool call or result of another."""
    who_e, tool_e = units.actor(trace), (trace.type_e == CALL) | (trace.type_e == RESULT)
    passed_x = (trace.type_e == RESULT)[trace.src_x] & tool_e[trace.dst_x] & (trace.type_x != TEMPORAL)
    passed_x &= who_e[trace.src_x] != who_e[trace.dst_x]
    return any_by(trace.dst_x, passed_x, trace.n_events)


def _dimensions(measured: Sequence[Measured]) -> dict[str, Any]:
    """Which of E1-E4 the runs report: by a metric that says something, and whether without assumptions."""
    dimensions = {}
    for dimension, about in DIMENSIONS.items():
        of = [m for m in measured if m.metric.dimension == dimension]
        reported = [m for m in of if m.score is not None]
        dimensions[dimension] = {
            "about": about,
            "reported": bool(reported),
            "by": [m.metric.name for m in reported],
            "assuming": [m.metric.name for m in reported if m.assumes],
            "silent": [m.metric.name for m in of if m.score is None],
        }
    return dimensions
