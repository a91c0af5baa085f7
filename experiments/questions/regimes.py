"""Shared, role-wise and decoupled training in `relay`, the world with two roles: what each leaves of the gap, in
held-out worlds.

The regimes are those of `podium.learn.regimes`: A frozen, B joint or shared, C decoupled. A lead alone, who hears
nothing, is the single agent beside the team.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from podium.envs.relay import Relay
from podium.envs.world import World, play
from podium.learn.evaluate import beside
from podium.learn.params import held_out, training
from podium.registry import register
from podium.study.figure import dots
from podium.study.loop import OURS, SHUFFLED, marks, recipe_of, train_lesson
from podium.study.question import Experiment, Measurements, Report, column, summarise, table

__all__ = ["How", "arms", "measure", "report"]

WORLD, ALONE = "relay", "lead alone"


@dataclass(frozen=True)
class How:
    tests: int
    judged: int
    half: str
    arms: dict[str, dict[str, str | int | float]]
    ours: dict[str, int | float]


def arms(how: How) -> list[str]:
    return [*how.arms, ALONE]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    tests = [held_out(WORLD, i) for i in range(how.tests)]
    if arm == ALONE:
        regrets = [_alone(world, how.judged) for world in tests]
        return {
            "share": np.mean([j.share for j in regrets]),
            "regret": np.mean([j.regret for j in regrets]),
            "decisions": 0,
        }
    settings: dict[str, Any] = how.arms[arm]
    recipe = replace(recipe_of(how.ours), **settings)

    def worlds(iteration: int, number: int) -> World:
        return training(WORLD, seed, iteration + 1, number)

    start, before = None, 0
    if arm == how.half:
        half = recipe.iterations // 2
        first = train_lesson(OURS, replace(recipe, regime="joint"), worlds, seed, most=half)
        start, before = first.learner, first.decisions
        recipe = replace(recipe, iterations=recipe.iterations - half)
    lesson = train_lesson(SHUFFLED if SHUFFLED in arm else OURS, recipe, worlds, seed, start)
    regrets = marks(lesson, tests, how.judged)
    return {
        "share": np.mean([j.share for j in regrets]),
        "regret": np.mean([j.regret for j in regrets]),
        "decisions": before + lesson.decisions,
    }


def _alone(world: Any, episodes: int) -> Any:
    """A lead whose mates say nothing."""
    assert isinstance(world, Relay)
    silent = world.trivial()["all silent"]
    return beside(world, lambda dice: play(world, silent, dice.copy()).score, episodes, batch=episodes)


def report(how: How, found: Measurements) -> Report:
    regret = {arm: column(found, arm, "regret") for arm in arms(how)}
    share = {arm: column(found, arm, "share") for arm in arms(how)}
    headline = [
        summarise(
            arm.replace(",", "").replace(" ", "_"),
            f"{arm}: regret in held-out worlds",
            regret[arm],
            most=0.05 if arm == "shared" else None,
        )
        for arm in arms(how)
    ]
    gain = share["decoupled"] - share["shared"]
    headline.append(
        summarise("difference", "share of the gap that decoupled training leaves more than shared", gain)
    )
    rows = []
    for arm in arms(how):
        s, r = summarise("", "", share[arm]), summarise("", "", regret[arm])
        rows.append(
            [
                arm,
                f"{s.mean:.3f}",
                f"{s.low:.3f} to {s.high:.3f}",
                f"{r.mean:.2%}",
                f"{column(found, arm, 'decisions').mean():,.0f}",
            ]
        )
    marks_ = [(arm, *summarise("", "", regret[arm])[2:5]) for arm in arms(how)]
    figure = dots("Who learns with whose parameters: regret in held-out worlds", "regret", marks_, {"optimum": 0.0})
    head = ["regime", "share of the gap", "95 % interval", "regret", "decisions played"]
    return Report(headline, {"arms": table(head, rows)}, figure)


register("study", "regimes")(Experiment(How, arms, measure, report))
