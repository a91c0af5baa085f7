"""Runs by dice that leave much unsaid, and what a plain loop asks of them, for tests against formulas."""

from __future__ import annotations

import sys
from functools import cache
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "methods"))

from dataclasses import replace

from handmade import on, run, runs

from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

__all__ = ["SEEDS", "edges", "kind", "led_to", "mean", "rows_of", "same", "team", "total"]

KINDS = (
    "decide",
    "spawn",
    "despawn",
    "say",
    "say",
    "call",
    "result",
    "return",
    "return",
    "aggregate",
    "aggregate",
    "safety_event",
)
CAST = ("lead", "ann", "bob", "cy")
CHANNELS = ("agent", "verdict", "correct", "step", "message", "use", "own")
SEEDS = range(6)


def event(dice: np.random.Generator, row: int) -> tuple[str, dict[str, Any]]:
    kind = KINDS[int(dice.integers(len(KINDS)))] if row else "decide"
    who, whom = (CAST[int(i)] for i in dice.integers(len(CAST), size=2))
    who = who if row else "lead"
    more: dict[str, Any] = {"after": []}
    if row:
        causes = {
            (int(s), EDGE_TYPES[int(k)])
            for s, k in zip(dice.integers(row, size=3), dice.integers(6, size=3), strict=True)
        }
        more["after"] = sorted(causes)[: int(dice.integers(1, 4))]
    said: dict[str, Any] = {
        "end": row + float(dice.integers(0, 5)) / 2,
        "tokens_out": float(dice.integers(0, 3)),
        "tokens_in": float(dice.integers(0, 9)),
        "cost": float(dice.integers(1, 5)) / 8,
        "valid": int(dice.integers(2)),
        "content_ref": f"c{dice.integers(2)}",
        "value": float(dice.integers(0, 9)) / 4,
        "task_relevant": bool(dice.random() < 0.7),
        "corrupted": bool(dice.random() < 0.7),
        "trusted": int(dice.random() < 0.6),
        "duplicate_of": 0,
        "tool": "search" if dice.random() < 0.7 else "read",
    }
    odds = {"valid": 0.4, "task_relevant": 0.2, "corrupted": 0.3, "trusted": 0.2, "duplicate_of": 0.1, "value": 0.5}
    more |= {k: v for k, v in said.items() if dice.random() < odds.get(k, 0.7)}
    if "value" in more:
        more["value"] = str(more["value"])  # a label, not a channel
    if "duplicate_of" in more:
        more["duplicate_of"] = "0"
    more |= {k: float(dice.integers(0, 5)) / 4 for k in CHANNELS if dice.random() < 0.5}
    if kind == "decide":
        more["decision"] = ("spawn", "stop", "delegate")[int(dice.integers(3))]
    if kind == "aggregate" and row:
        words = ("yes", "no", "0.5", "0.2", "Paris")
        more["votes"] = [
            (int(s), words[int(dice.integers(5))], (0.5, 1.0, 2.0)[int(dice.integers(3))])
            for s in dice.integers(row, size=int(dice.integers(0, 4)))
        ]
    if (kind == "spawn" and dice.random() < 0.95) or kind in ("say", "return", "despawn"):
        return on(f"{kind} {who}>{whom}", **more)
    return on(f"{kind} {who}", **more)


@cache
def team(seed: int, n: int = 8, length: int = 16) -> Trace:
    dice = np.random.default_rng(seed)
    parts = [
        run(*(event(dice, i) for i in range(int(dice.integers(1, length)))), team=float(dice.normal()))
        for _ in range(n)
    ]
    trace = runs(*parts, run(team=1.0))
    nobody = dice.random(trace.n_events) < 0.06
    value = trace.extra_e.get("value")
    assert value is not None
    return replace(
        trace,
        agent_e=np.where(nobody, -1, trace.agent_e),
        t_e=np.where(dice.random(trace.n_events) < 0.1, nan, trace.t_e),
        reward_n={"team": np.where(dice.random(len(trace)) < 0.2, nan, trace.reward_n["team"])},
        extra_e={**trace.extra_e, "value": Text(value.codes, [w.strip(chr(34)) for w in value.words])},
    )


def same(got: np.ndarray, want: list[float]) -> None:
    np.testing.assert_allclose(got, np.array(want, float), rtol=1e-9, atol=1e-9)


def kind(trace: Trace, row: int) -> str:
    return EVENT_TYPES[int(trace.type_e[row])]


def rows_of(trace: Trace, n: int) -> range:
    first = trace.first_of("e")
    return range(int(first[n]), int(first[n + 1]))


def edges(trace: Trace) -> list[tuple[int, int]]:
    """All edges but temporal ones."""
    joined = zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True)
    return [(s, d) for s, d, k in joined if EDGE_TYPES[k] != "temporal"]


def led_to(trace: Trace, ends: set[int]) -> set[int]:
    """What led to these rows, along edges but temporal ones; they themselves where they led to another."""
    found: set[int] = set()
    for s, d in sorted(edges(trace), key=lambda e: -e[1]):
        if d in ends or d in found:
            found.add(s)
    return found


def total(values: list[float]) -> float:
    held = [v for v in values if not isnan(v)]
    return sum(held) if held else nan


def mean(values: list[float]) -> float:
    held = [v for v in values if not isnan(v)]
    return sum(held) / len(held) if held else nan
