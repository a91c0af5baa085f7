"""Rollout cost and asynchronous collection: where the time goes, what staleness costs, and what a correction gives
back, in `scouts`.

With a staleness of s the episodes of iteration i are played by the weights of iteration i - s. Waiting costs
rollout + update an iteration; not waiting costs the longer of the two, so that an asynchronous run has (r + u) /
max(r, u) times the iterations in the same time: the arms "as long" have those, with r and u the seconds of rollout
and of all else that the synchronous arm took on the machine the recipe was written on (`faster`; what this machine
took is in the table). The single agent is the best play with one worker at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from podium.envs.world import World, make
from podium.learn.params import held_out, training
from podium.registry import register
from podium.study.figure import Line, Panel, band, lines_of, picture
from podium.study.loop import OURS, SHUFFLED, marks, recipe_of, train_lesson
from podium.study.question import Experiment, Headline, Measurements, Report, column, summarise, table

__all__ = ["How", "arms", "measure", "report"]

WORLD, ALONE = "scouts", "one agent"
STAGES = ("rollout", "graph", "reward", "credit", "update")
LONG = "as long"


@dataclass(frozen=True)
class How:
    staleness: tuple[int, ...]
    corrections: tuple[str, ...]
    faster: float
    tests: int
    judged: int
    ours: dict[str, int | float]


def arms(how: How) -> list[str]:
    late = [f"{s}/{c}" for s in how.staleness if s for c in how.corrections]
    return ["0/clip", *late, f"{how.staleness[-1]}/{how.corrections[-1]}/{LONG}", SHUFFLED, ALONE]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    recipe = recipe_of(how.ours)
    tests = [held_out(WORLD, i) for i in range(how.tests)]
    if arm == ALONE:
        return {"share": float("nan"), "regret": np.mean([_alone(w) for w in tests]), "decisions": 0}
    if arm != SHUFFLED:
        late, correction, *long = arm.split("/")
        many = round(recipe.iterations * (how.faster if long else 1.0))
        recipe = replace(recipe, staleness=int(late), correction=correction, iterations=many)
    credit = SHUFFLED if arm == SHUFFLED else OURS
    lesson = train_lesson(credit, recipe, lambda i, k: training(WORLD, seed, i + 1, k), seed)
    evaluations = marks(lesson, tests, how.judged, recipe.most)
    return {
        "share": np.mean([j.share for j in evaluations]),
        "regret": np.mean([j.regret for j in evaluations]),
        "decisions": lesson.decisions,
        "took": lesson.took,
    }


def _alone(world: World) -> float:
    """What best play with one worker at a time lacks."""
    one = make(WORLD, c=world.params.c, latency=world.params.latency, widest=1)
    return (world.optimum() - one.optimum()) / world.optimum()


def _headline(how: How, regret: dict[str, Any]) -> list[Headline]:
    worst, last = how.staleness[-1], how.corrections[-1]
    return [
        summarise("sync", "regret without staleness", regret["0/clip"], most=0.05),
        *(
            summarise(f"{worst}.{c}", f"regret, {worst} iterations late, correction: {c}", regret[f"{worst}/{c}"])
            for c in how.corrections
        ),
        summarise(
            f"{worst}.bias",
            f"what {worst} iterations late cost in optima, correction: {last}",
            regret[f"{worst}/{last}"] - regret["0/clip"],
        ),
        summarise(
            f"{worst}.long",
            f"the same with {how.faster:g} times the iterations, as many as fit in the same time",
            regret[f"{worst}/{last}/{LONG}"] - regret["0/clip"],
        ),
        summarise("shuffled", "regret with shuffled credit", regret[SHUFFLED]),
        summarise("alone", "regret of best play with one worker at a time", regret[ALONE]),
    ]


def report(how: How, found: Measurements) -> Report:
    regret = {arm: column(found, arm, "regret") for arm in arms(how)}
    worst = how.staleness[-1]
    last = how.corrections[-1]
    headline = _headline(how, regret)
    rows = []
    for arm in arms(how):
        r, s = summarise("", "", regret[arm]), summarise("", "", column(found, arm, "share"))
        rows.append(
            [
                arm,
                f"{r.mean:.2%} ({r.low:.2%} to {r.high:.2%})",
                f"{s.mean:.2f}",
                f"{column(found, arm, 'decisions').mean():,.0f}",
                f"{np.mean(found.seconds[arm]):.1f}",
            ]
        )
    base = regret["0/clip"]
    lines = [
        lines_of(
            f"correction: {c}",
            how.staleness,
            np.array([base if not s else regret[f"{s}/{c}"] for s in how.staleness]).T,
        )
        for c in how.corrections
    ]
    long = band(worst, regret[f"{worst}/{last}/{LONG}"])
    lines.append(Line(f"correction: {last}, as long", [long]))
    lines.append(
        lines_of(
            "best play, one worker at a time", how.staleness, np.tile(regret[ALONE][:, None], len(how.staleness))
        )
    )
    panel = Panel("regret in held-out worlds", "iterations that the weights that act are late", lines)
    took = found.took["0/clip"]
    total = sum(sum(one.values()) for one in took)
    stages = [[stage, f"{sum(one[stage] for one in took) / total:.0%}"] for stage in STAGES]
    head = ["staleness/correction", "regret", "share of the gap", "decisions played", "seconds of one core"]
    return Report(
        headline,
        {"arms": table(head, rows), "stages": table(["stage", "share of the time, synchronous"], stages)},
        picture("Collecting with old weights", [panel]),
    )


register("study", "asynchrony")(Experiment(How, arms, measure, report))
