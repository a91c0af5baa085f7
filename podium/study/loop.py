"""Training for the studies: the one method, one of the table, or the control with shuffled credit; and its cost.

The budget is counted in decisions, branches included: each is one call of the policy, and a branch is shorter than
an episode. A recipe that puts a method of the table beside the one method has three budgets: `ours`; `traced`,
which takes the method about as long by the clock; and `few`, by which the one method plays about as many decisions
as the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, seeds
from podium.envs.world import World
from podium.learn.collect import played
from podium.learn.evaluate import DICE, Judged, beside
from podium.learn.policy import Net
from podium.learn.regimes import network, started
from podium.learn.source import Worlds, iterations
from podium.learn.train import Learner, NetPolicy, Recipe, begin
from podium.trace.columns import F

__all__ = ["FEW", "OURS", "SAID", "SHUFFLED", "Lesson", "budget", "marks", "recipe_of", "train_lesson"]

OURS, FEW, SHUFFLED = "same-prefix", "few", "shuffled"
SAID = {
    OURS: "same-prefix credit",
    FEW: "same-prefix, as many decisions as GRPO",
    "grpo": "GRPO",
    SHUFFLED: "shuffled credit",
}


class Lesson(NamedTuple):
    """What was learned, how many decisions were played for it, seconds by stage, and what was paid, where they
    were told."""

    net: Net
    learner: Learner
    decisions: int
    took: dict[str, float]
    paid: float | None = (
        None  # by a method of the table: the share of decisions that it paid, mean of iterations ...
    )
    credit: float | None = None  # ... and the most that the root mean square of it was in any


def recipe_of(settings: Mapping[str, Any]) -> Recipe:
    """A recipe with some settings other than the default ones."""
    return replace(Recipe(), **dict(settings))


def budget(how: Any, credit: str) -> Recipe:
    """The recipe of a credit among the three of a study."""
    own = {OURS: "ours", SHUFFLED: "ours", FEW: "few"}
    return recipe_of(getattr(how, own.get(credit, "traced")))


def train_lesson(
    credit: str,
    recipe: Recipe,
    worlds: Worlds,
    seed: int,
    start: Learner | None = None,
    most: int | None = None,
) -> Lesson:
    """Trains by same-prefix credit, by it shuffled, or by a method of the table: to the end of the recipe, or so
    many iterations; from the parameters of another learner, if one is given."""
    net = network(worlds(0, 0), recipe)
    learner = begin(net, seed)
    if start is not None:
        learner = replace(learner, w=started(learner.w, start.w))
    policy = NetPolicy(net, recipe, learner)
    ours = credit in (OURS, FEW, SHUFFLED)
    if credit == SHUFFLED:
        policy.deal = lambda n: _dealt(policy, n)
    count, took = 0, dict[str, float]()
    paid, sizes = list[float](), list[float]()
    for done in iterations(policy, worlds, "branching_policy" if ours else credit, by_doubt=ours, last=most):
        count += done.decisions
        paid.append(done.change.paid or 0.0)
        sizes.append(done.change.credit or 0.0)
        took = {stage: took.get(stage, 0.0) + s for stage, s in done.seconds.items()}
    return Lesson(
        net, policy.learner, count, took, None if ours else float(np.mean(paid)), max(sizes, default=None)
    )


def _dealt(policy: NetPolicy, n: int) -> NDArray[np.int64]:
    """The control: what decisions of a kind earned is dealt out anew among all of them."""
    return np.random.default_rng([policy.learner.seed, policy.iteration, n, 0x5F1E]).permutation(n)


def marks(lesson: Lesson, worlds: Sequence[World], episodes: int, most: int = 100) -> list[Judged]:
    """What was learned beside the optimum and the best trivial policy of each world: played as the policy draws or
    by its likeliest option, whichever earned more on other episodes. By its likeliest option a policy that is not
    sure yet may never stop."""

    def one(world: World) -> Judged:
        def score(dice: U, sharp: float) -> F:
            return played(world, lesson.net, lesson.learner.w, dice, most=most, sharp=sharp).score

        other = seeds(DICE + 1, min(episodes, 1_000))
        sharp = max((np.inf, 1.0), key=lambda s: float(score(other, s).mean()))
        return beside(world, lambda dice: score(dice, sharp), episodes, batch=min(episodes, 20_000))

    return [one(world) for world in worlds]
