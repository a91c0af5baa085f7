"""Width and stop learned together, apart, and one of them fixed; in `scouts`, whose optimum is Morgan & Manning's.

together       one policy chooses among stopping and every width
stop alone     the width is fixed, the stop is learned
width alone    the rounds are fixed, the width is learned
apart          the stop of the one and the width of the other, put together without having met
one agent      at most one worker at a time: the stop is learned, with the same prices for work and for rounds
shuffled       together, with its credit shuffled: the control

All have the same number of branched decisions. Where less is to be decided episodes are shorter, and training takes
less time: the arms "as long" have so many times the branched decisions that they take about as long as `together`
does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from podium.envs.draws import U, seeds
from podium.envs.world import Policy, View, World, play
from podium.learn.collect import capped, greedy
from podium.learn.evaluate import DICE, beside
from podium.learn.params import held_out, training
from podium.learn.train import Recipe
from podium.registry import register
from podium.study.figure import dots
from podium.study.loop import OURS, SHUFFLED, Lesson, recipe_of, train_lesson
from podium.study.question import Experiment, Measurements, Report, column, summarise, table
from podium.trace.columns import B, F

__all__ = ["How", "arms", "measure", "narrowed", "report"]

ROUNDS = 2  # the place of the rounds among the facts
MOST = 20  # rounds after which anybody stops
LONG = ", as long"
ARMS = ("together", "apart", f"apart{LONG}", "stop alone", "width alone", "one agent", f"one agent{LONG}", SHUFFLED)


@dataclass(frozen=True)
class How:
    width: int
    rounds: int
    longer: float
    tests: int
    judged: int
    ours: dict[str, int | float]


def arms(how: How) -> list[str]:
    return list(ARMS)


def narrowed(world: World, allow: Callable[[View], B]) -> World:
    """The same world, where less is allowed; its optimum stays that of the whole."""

    class Narrow(type(world)):  # type: ignore[misc]
        def view(self, state: Any) -> View | None:
            view: View | None = super().view(state)
            return None if view is None else replace(view, allowed=view.allowed & allow(view))

    narrow: World = Narrow(world.params)
    return narrow


def _only(width: int) -> Callable[[View], B]:
    return lambda view: np.isin(np.arange(view.allowed.shape[1]), (0, width))[None]


def _capped(rounds: int) -> Callable[[View], B]:
    def allow(view: View) -> B:
        over = view.facts[:, ROUNDS] >= rounds
        return np.where(np.arange(view.allowed.shape[1])[None] == 0, over[:, None], ~over[:, None])

    return allow


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """Regret on held-out worlds, and the mean width and rounds of play there."""
    policies = {"stop alone": _only(how.width), "width alone": _capped(how.rounds), "one agent": _only(1)}
    recipe = recipe_of(how.ours)
    if arm.endswith(LONG):
        arm, recipe = arm.removesuffix(LONG), replace(recipe, rows=round(recipe.rows * how.longer))
    needed = ["stop alone", "width alone"] if arm == "apart" else [arm]
    lessons = {
        name: _lesson(recipe, policies.get(name), seed, SHUFFLED if name == SHUFFLED else OURS) for name in needed
    }
    regret, share, width, rounds = [], [], [], []
    for number in range(how.tests):
        world = held_out("scouts", number)
        policy = _policy(world, lessons, policies)
        evaluation = beside(world, partial(_score, world, policy), how.judged, batch=how.judged)
        some = min(how.judged, 2_000)
        state = play(world, capped(world, policy, some, MOST), seeds(DICE, some)).state
        regret.append(evaluation.regret)
        share.append(evaluation.share)
        width.append(float(state.count.sum() / max(1, state.rounds.sum())))  # type: ignore[attr-defined]
        rounds.append(float(state.rounds.mean()))  # type: ignore[attr-defined]
    played = sum(lesson.decisions for lesson in lessons.values())
    figures = {"regret": regret, "share": share, "width": width, "rounds": rounds}
    return {name: float(np.mean(values)) for name, values in figures.items()} | {"decisions": played}


def _score(world: World, policy: Policy, dice: U) -> F:
    return play(world, capped(world, policy, len(dice), MOST), dice.copy()).score


def _lesson(recipe: Recipe, allow: Callable[[View], B] | None, seed: int, credit: str) -> Lesson:
    def world(iteration: int, number: int) -> World:
        trained = training("scouts", seed, iteration + 1, number)
        return trained if allow is None else narrowed(trained, allow)

    return train_lesson(credit, recipe, world, seed)


def _policy(world: World, lessons: dict[str, Lesson], held: dict[str, Callable[[View], B]]) -> Policy:
    """The likeliest option; of two lessons, whether to stop by the first and how wide by the second."""
    acts = {name: greedy(lesson.net, lesson.learner.w, world) for name, lesson in lessons.items()}

    def choose(name: str, view: View) -> Any:
        allow = held.get(name)
        return acts[name](view if allow is None else replace(view, allowed=view.allowed & allow(view)))[0]

    if len(lessons) == 1:
        return lambda view: choose(next(iter(lessons)), view)

    def both(view: View) -> Any:
        stops = choose("stop alone", view) == 0
        wide = replace(view, facts=np.where(np.arange(view.facts.shape[1]) == ROUNDS, 0.0, view.facts))
        return np.where(stops, 0, np.maximum(choose("width alone", wide), 1))

    return both


def report(how: How, found: Measurements) -> Report:
    names = {arm: arm if arm != SHUFFLED else "together, shuffled credit" for arm in ARMS}
    regret = {arm: column(found, arm, "regret") for arm in ARMS}
    headline = [
        summarise(
            "together", "regret of width and stop learned together, held-out prices", regret["together"], most=0.02
        ),
        summarise("apart", "regret of the two learned apart and put together", regret["apart"]),
        summarise(
            "apart.long",
            f"the same, with {how.longer:g} times the branched decisions: as long by the clock as together",
            regret[f"apart{LONG}"],
        ),
        summarise(
            "one",
            "regret of one agent at a time, whose stop is learned, against the team's optimum",
            regret["one agent"],
        ),
        summarise(
            "one.long", f"the same, with {how.longer:g} times the branched decisions", regret[f"one agent{LONG}"]
        ),
        summarise(
            "gain", "what learning together gains over apart, in optima", regret["apart"] - regret["together"]
        ),
        summarise("shuffled", "regret with shuffled credit", regret[SHUFFLED]),
    ]
    rows = []
    for arm in ARMS:
        mean = summarise("", "", regret[arm])
        cells = [f"{mean.mean:.1%}", f"{mean.low:.1%} to {mean.high:.1%}"]
        cells += [f"{np.mean(column(found, arm, what)):.2f}" for what in ("share", "width", "rounds")]
        rows.append([names[arm], *cells, f"{np.mean(column(found, arm, 'decisions')):,.0f}"])
    head = ["learned", "regret", "95 % interval", "share of the gap", "mean width", "rounds", "decisions played"]
    marks = [(names[arm], *summarise("", "", regret[arm])[2:5]) for arm in ARMS if arm != SHUFFLED]
    figure = dots("Width and stop: regret in held-out worlds", "regret", marks, {"optimum": 0.0})
    return Report(headline, {"arms": table(head, rows)}, figure)


register("study", "width")(Experiment(How, arms, measure, report))
