"""What a trace says about one run, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from podium import graph
from podium.trace.columns import Trace
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES

__all__ = ["extent", "summary"]

WORKERS = (1, 2, 4, 8, 16)


def summary(trace: Trace) -> dict[str, Any]:
    """The counts, the times and the risks of one run. None where the record does not say."""
    if len(trace) != 1:
        raise ValueError(f"expected one run, got {len(trace)}")
    lead = int(graph.lead(trace)[0])
    path = graph.critical_path(trace)
    serial = graph.serial_time(trace)
    taint_e = graph.taint(trace)
    return {
        "trace_id": trace.trace_id_n[0],
        "task_id": trace.task_id_n[0],
        "topology": trace.topology(),
        "lead": trace.name_a[lead] if lead >= 0 else None,
        "agents": trace.n_agents,
        "events": _counts(trace.type_e, EVENT_TYPES),
        "edges": trace.n_edges,
        "inferred_edges": int((trace.inferred_x == 1).sum()),
        "decisions": _counts(trace.decision_e, DECISIONS),
        "units": {name: _distinct(unit(trace)) for name, unit in graph.UNITS.items()},
        "wall_clock_s": None if (times := extent(trace)) is None else times[1] - times[0],
        "serial_s": _number(serial.time_n[0]),
        "timed_events": int(serial.count_n[0]),
        "critical_path_s": _number(path.time_n[0]),
        "critical_path_events": int(path.on_e.sum()),
        "critical_steps": int(graph.critical_steps(trace)[0]),
        "peak_busy_agents": _number(graph.peak(trace)[0]),
        "mean_busy_agents": _number(graph.mean(trace)[0]),
        "with_workers_s": {k: _number(graph.with_workers(trace, k).time_n[0]) for k in WORKERS},
        "untrusted_events": int((trace.trusted_e == 0).sum()),
        "tainted_events": int(taint_e.sum()),
        "rewards": {k: _number(v[0]) for k, v in trace.reward_n.items()},
        "costs": {k: _number(v[0]) for k, v in trace.cost_n.items()},
    }


def extent(trace: Trace) -> tuple[float, float] | None:
    """When the first event began and the last ended; None where no event says when it happened."""
    known = trace.t_e[~np.isnan(trace.t_e)]
    if not len(known):
        return None
    return float(known.min()), float(
        max(known.max(), np.max(trace.end_e, initial=-np.inf, where=~np.isnan(trace.end_e)))
    )


def _counts(codes: Any, words: tuple[str, ...]) -> dict[str, int]:
    found = np.bincount(codes[codes >= 0], minlength=len(words))
    return {word: int(n) for word, n in zip(words, found, strict=True) if n}


def _distinct(units: Any) -> int:
    return len(np.unique(units[units >= 0]))


def _number(value: Any) -> float | None:
    return None if value != value else float(value)
