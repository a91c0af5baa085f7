"""Training for the studies: the one method, a method of the table, or the control whose credit was shuffled; and what was played for it.

The budget is counted in decisions, branches included: each is one call of the policy, and a branch is shorter than an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from podium.envs.world import World
from podium.learn.collect import Batch
from podium.learn.evaluate import Judged, judged
from podium.learn.policy import Net
from podium.learn.regimes import network, started
from podium.learn.traced import traced_step
from podium.learn.train import Learner, Mapped, Recipe, Worlds, begin, step
from podium.methods import named

__all__ = ["OURS", "SHUFFLED", "Lesson", "dealt", "learned", "marks", "recipe_of"]

OURS, SHUFFLED = "same-prefix", "shuffled"


class Lesson(NamedTuple):
    """What was learned, how many decisions were played for it, and seconds by stage, where they were told."""

    net: Net
    learner: Learner
    decisions: int
    took: dict[str, float]


def recipe_of(settings: Mapping[str, Any]) -> Recipe:
    """A recipe with some settings other than the default ones."""
    return replace(Recipe(), **dict(settings))


def learned(
    credit: str,
    recipe: Recipe,
    worlds: Worlds,
    seed: int,
    start: Learner | None = None,
    most: int | None = None,
) -> Lesson:
    """Trains by same-prefix credit, by it shuffled, or by a method of the table: to the end of the recipe, or so many iterations; from
    the parameters of another learner, if one is given."""
    net = network(worlds(0, 0), recipe)
    learner, played = begin(net, seed), 0
    if start is not None:
        learner = replace(learner, w=started(learner.w, start.w))
    took: dict[str, float] = {}
    while learner.iteration < min(recipe.iterations, most or recipe.iterations):
        if credit in (OURS, SHUFFLED):
            learner, told = step(net, recipe, worlds, learner, map if credit == OURS else dealt(learner))
        else:
            learner, told = traced_step(net, recipe, worlds, named(credit), learner)
        played += told.decisions
        took = {stage: took.get(stage, 0.0) + s for stage, s in told.seconds.items()}
    return Lesson(net, learner, played, took)


def dealt(learner: Learner) -> Mapped:
    """The control: plays as `map` does, and what options earned is dealt out anew among all that were tried in decisions of a kind."""
    dice = np.random.default_rng([learner.seed, learner.iteration, 0x5F1E])

    def mapped(play: Callable[[Any], Batch], orders: Iterable[Any]) -> Iterator[Batch]:
        for batch in map(play, orders):
            yield batch._replace(rows=[r._replace(earned=dice.permutation(r.earned)) for r in batch.rows])

    return mapped


def marks(lesson: Lesson, worlds: Sequence[World], episodes: int, most: int = 100) -> list[Judged]:
    """What was learned beside the optimum and the best trivial policy of each world."""
    return [
        judged(w, lesson.net, lesson.learner.w, episodes, most=most, batch=min(episodes, 20_000)) for w in worlds
    ]
