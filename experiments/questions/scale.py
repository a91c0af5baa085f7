"""Training with at most 30 agents and testing with 300 and 1,000: `expedition` with the prices and the menu of
`LARGE`, and stakes of its own.

Beside what is learned: the best trivial policy (a share of the gap of 1), a single agent with the same prices,
which is best play with one scout a leg, and the same training with its credit shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.envs.expedition import LARGE
from podium.envs.world import World, make
from podium.registry import register
from podium.study.figure import Panel, lines_of, picture
from podium.study.loop import OURS, SHUFFLED, marks, recipe_of, train_lesson
from podium.study.question import Experiment, Measurements, Report, column, summarise, table

__all__ = ["How", "arms", "measure", "report"]

ALONE = "one agent a leg"


@dataclass(frozen=True)
class How:
    sizes: tuple[int, ...]
    trained: int  # agents that there are at most in training
    legs: int  # as many in tests, and at most as many in training
    stakes: tuple[float, ...]
    judged: int
    ours: dict[str, int | float]


def arms(how: How) -> list[str]:
    return [OURS, SHUFFLED, ALONE]


def _world(how: How, **changes: Any) -> World:
    return make(
        "expedition", **{**LARGE, "stakes": how.stakes, "tail": 0.0, "legs": how.legs, "calls": 0, **changes}
    )


def _lesson(how: How, *address: int) -> World:
    """A world to train in: any number of agents up to the most there are, and of legs, small numbers as likely as
    twice as large ones."""
    dice = np.random.default_rng(address)
    legs = int(np.exp(dice.uniform(0.0, np.log(how.legs + 1))))
    return _world(how, pool=int(dice.integers(2, how.trained + 1)), legs=legs)


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """Regret and share of the gap at every size."""
    tests = [_world(how, pool=size) for size in how.sizes]
    if arm == ALONE:
        best = [
            (w.optimum(), _world(how, pool=n, widest=1).optimum()) for n, w in zip(how.sizes, tests, strict=True)
        ]
        return {
            "regret": [(team - one) / team for team, one in best],
            "share": [float("nan")] * len(best),
            "decisions": 0,
        }
    lesson = train_lesson(arm, recipe_of(how.ours), lambda i, k: _lesson(how, seed, i + 1, k), seed)
    evaluations = marks(lesson, tests, how.judged)
    return {
        "regret": [j.regret for j in evaluations],
        "share": [j.share for j in evaluations],
        "decisions": lesson.decisions,
    }


def report(how: How, found: Measurements) -> Report:
    headline = []
    for i, size in enumerate(how.sizes):
        share, regret = (column(found, OURS, what)[:, i] for what in ("share", "regret"))
        most = 0.3 if size > how.trained else None
        headline.append(summarise(f"{size}.share", f"{size} agents: share of the gap left", share, most=most))
        headline.append(summarise(f"{size}.regret", f"{size} agents: regret", regret))
    headline.append(
        summarise(
            "shuffled",
            f"{how.sizes[-1]} agents: share of the gap left with shuffled credit",
            column(found, SHUFFLED, "share")[:, -1],
        )
    )
    headline.append(
        summarise(
            "alone",
            f"{how.sizes[-1]} agents: what best play with one scout a leg lacks",
            column(found, ALONE, "regret")[:, -1],
        )
    )
    rows = [
        [
            arm,
            *(f"{x:.1%}" for x in column(found, arm, "regret").mean(axis=0)),
            *("" if np.isnan(x) else f"{x:.2f}" for x in column(found, arm, "share").mean(axis=0)),
        ]
        for arm in arms(how)
    ]
    head = ["policy", *(f"regret, {s} agents" for s in how.sizes), *(f"share, {s} agents" for s in how.sizes)]
    lines = [lines_of(arm, how.sizes, column(found, arm, "regret")) for arm in arms(how)]
    panel = Panel("regret", "agents that there are", lines, log_x=True, high=1.2)
    return Report(
        headline, {"sizes": table(head, rows)}, picture(f"Trained with at most {how.trained} agents", [panel])
    )


register("study", "scale")(Experiment(How, arms, measure, report))
