"""Forests written by hand, for the tests of counterfactuals: the runs of tests/methods/handmade.py, with branches."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "methods"))

from handmade import NAN, Event, near, on, run, runs

from podium.credit import Credit, apply
from podium.rewards import score
from podium.trace.columns import Text, Trace

__all__ = ["NAN", "Event", "choose", "decides", "masks", "near", "on", "paid", "run", "runs", "seeded"]


def paid(trace: Trace, expression: str, unit: str = "team", reward: str = "outcome") -> np.ndarray:
    """What an expression makes of a reward that is read at a unit."""
    return apply(Credit(trace, unit, score(trace, reward, unit)), expression).value


def decides(chosen: str, options: str = "xyz", kind: str = "spawn", **more: Any) -> Event:
    return on("decide lead", decision=kind, options=list(options), chosen=chosen, **more)


def choose(*taken: str, at: int, reward: float, parent: str = "run0", **more: Any) -> Trace:
    """A branch that left at its decision number `at`, where it chose otherwise; all events are decisions."""
    do = {"what": "choose", "value": taken[at]}
    return run(*map(decides, taken), parent=parent, branch=at, do=do, team=reward, **more)


def masks(*agents: str, there: str, reward: float, **more: Any) -> Trace:
    """A branch in which agents are masked from the start, and others say a word each."""
    do = {"what": "mask", "value": list(agents)}
    return run(*(f"say {a}" for a in there), parent="run0", branch=0, do=do, team=reward, **more)


def seeded(trace: Trace, *seeds: str) -> Trace:
    return replace(trace, seed_n=Text.of(seeds))
