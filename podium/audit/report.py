"""What an audit has to say, as plain data: what was found, what was observed, what cannot be told, what was not
found.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from podium.audit.detector import Answer, Second, audit, detectors
from podium.audit.interventions import RULES, Interventions, interventions, invalidated
from podium.graph.grouping import rows_by
from podium.registry import facts, find
from podium.trace.columns import B, I, Trace

__all__ = ["described", "figures", "report"]

FIGURES = Path(__file__).parent / "figures.json"
STATED = {"level": "finding", "confidence": "likely"}  # unless a detector says otherwise
SHOWN = ("group", "vector", "layer", "severity", "finds", "todo", "threshold")


def figures() -> dict[str, dict[str, float]]:
    """For each detector its precision, recall, recall_edge and false_alarms on so many cases, as measured by
    `bench/detectors.py`; nothing for one that has not been measured."""
    return msgspec.json.decode(FIGURES.read_bytes(), type=dict[str, dict[str, float]]) if FIGURES.exists() else {}


def described() -> list[dict[str, Any]]:
    """Every detector: what it finds, its formula, threshold and needs, and how well it does."""
    measured = figures()
    return [
        {"detector": name, **STATED, **facts("detector", name), "says": _says(name), "figures": measured.get(name)}
        for name in detectors()
    ]


def _says(name: str) -> str:
    return inspect.getdoc(find("detector", name)) or ""


def report(
    trace: Trace,
    second: Second = Second(),  # noqa: B008 (immutable)
    only: Sequence[str] | None = None,
    most: int | None = None,
    files: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The audit of a trace, worst first; of each detector's suspects at most so many are spelled out. `files` are
    where the runs come from, one a run.

    `found` are faults that the evidence shows, `observed` what is worth knowing; a detector can be in both. Rows
    count from the first event of their run.
    """
    answers = audit(trace, second, only)
    untold = [(a, int((~a.suspects.tells_n).sum())) for a in answers]
    return {
        "runs": len(trace),
        "events": trace.n_events,
        "detectors": len(answers),
        "found": [_suspected(trace, a, a.finding, "finding", most, files) for a in answers if a.finding.any()],
        "observed": [
            _suspected(trace, a, ~a.finding, "observation", most, files) for a in answers if (~a.finding).any()
        ],
        "interventions": None if only else _interventions(trace, most),
        "cannot_tell": [
            {"detector": a.name, "needs": a.facts["needs"], "runs": runs} for a, runs in untold if runs
        ],
        "not_found": [
            a.name for a, runs in untold if not len(a.suspects) and (runs < len(trace) or not len(trace))
        ],
    }


def _suspected(
    trace: Trace, answer: Answer, which: B, level: str, most: int | None, files: Sequence[str] | None
) -> dict[str, Any]:
    """What a detector has to say at one level."""
    suspects, told = answer.suspects, answer.facts
    every = suspects.worst()
    worst, first_n = every[which[every]][:most], trace.first_of("e")
    evidence = suspects.evidence() if most is None else {i: answer.rows(i) for i in worst.tolist()}
    confidence = answer.confidence(trace)
    return {
        "detector": answer.name,
        "level": level,
        **{k: told[k] for k in SHOWN if k in told},
        "count": int(which.sum()),
        "runs": len(np.unique(suspects.rollout[which])),
        "cannot_tell": int((~suspects.tells_n).sum()),
        "suspects": [
            {
                **({} if files is None else {"file": files[int(suspects.rollout[i])]}),
                **_run(trace, int(suspects.rollout[i])),
                "agent": _name(trace, int(suspects.agent[i])),
                "saw": told.get("saw", "figure {figure:.4g}").format(figure=float(suspects.figure[i])),
                "figure": float(suspects.figure[i]),
                "confidence": confidence[i],
                **({"needs": told["settles"]} if confidence[i] == "possible" and "settles" in told else {}),
                **_rows(trace, int(first_n[suspects.rollout[i]]), evidence[i]),
            }
            for i in worst.tolist()
        ],
    }


def _run(trace: Trace, rollout: int) -> dict[str, Any]:
    return {"run": rollout, "trace_id": trace.trace_id_n[rollout]}


def _name(trace: Trace, agent: int) -> str | None:
    return trace.name_a[agent] if agent >= 0 else None


def _rows(trace: Trace, first: int, rows: I) -> dict[str, Any]:
    rows = np.unique(rows)
    return {"rows": (rows - first).tolist(), "events": [trace.id_e[row] for row in rows.tolist()]}


def _interventions(trace: Trace, most: int | None) -> dict[str, Any]:
    """Interventions, those that invalidate most first. `invalid` is null where it was not worked out."""
    acts = interventions(trace)
    row, of, looked = invalidated(trace, acts)
    order = rows_by(of)
    parts = np.split(row[order], np.searchsorted(of[order], np.arange(1, len(acts)))) if len(acts) else []
    first_n = trace.first_of("e")
    size = np.where(looked, [len(part) for part in parts], -1)
    return {
        "count": len(acts),
        "worst": [
            _intervention(trace, acts, first_n, i, parts[i] if looked[i] else None)
            for i in np.argsort(-size, kind="stable")[:most].tolist()
        ],
    }


def _intervention(trace: Trace, found: Interventions, first_n: I, i: int, invalid: I | None) -> dict[str, Any]:
    row, decision = int(found.row[i]), int(found.decision[i])
    rollout = int(trace.rollout_e[row])
    first = int(first_n[rollout])
    after = None if invalid is None else int((trace.t_e[invalid] > trace.t_e[row]).sum())
    return {
        **_run(trace, rollout),
        "row": row - first,
        "event": trace.id_e[row],
        "by": _name(trace, int(trace.agent_e[row])),
        "to": _name(trace, int(trace.to_e[row])),
        "decision": decision - first if decision >= 0 else None,
        "decided_by": _name(trace, int(trace.agent_e[decision])) if decision >= 0 else None,
        "rule": RULES[found.rule[i]] if decision >= 0 else None,
        "invalid": None if invalid is None else (invalid - first).tolist(),
        "invalid_after": after,
    }
