"""The leader-board: methods that can act in a world, at equal budgets, beside optimum and trivial policies.

Every method has the same network, the same number of episodes (branches count), the same clipped update and the
same dice. What differs is the credit: the method's own expression, evaluated on the traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from podium.credit import BadCredit
from podium.interval import Estimate
from podium.learn.evaluate import Judged, judged, over_seeds
from podium.learn.folder import BadRecipe
from podium.learn.params import held_out, trainable, training
from podium.learn.policy import Net
from podium.learn.requirements import cannot
from podium.learn.source import iterations
from podium.learn.train import Learner, NetPolicy, Recipe, begin, one_thread
from podium.methods import METHODS, Method, named
from podium.registry import alternatives
from podium.rewards.ledger import BadReward

__all__ = ["BUDGET", "Board", "Standing", "chosen", "compare", "train_method"]

BUDGET = Recipe(iterations=30, worlds=4, entropy=0.1, epochs=2)


class Standing(NamedTuple):
    """How a method did in a world."""

    method: str
    env: str
    share: Estimate  # of the gap, over seeds
    regret: Estimate
    paid: float  # the share of decisions that the method paid, mean of iterations and seeds


class Board(NamedTuple):
    """The standings, best first in each world, and why other methods are not among them."""

    standings: list[Standing]
    refused: dict[tuple[str, str], str]  # by method and world


def train_method(env: str, method: Method, recipe: Recipe, seed: int) -> tuple[Net, Learner, float]:
    """A policy trained by a method's credit, and the share of decisions paid. Raises BadCredit or BadReward
    where the worlds lack what it needs."""
    policy = NetPolicy(net := Net(training(env, seed, 0, 0)), recipe, begin(net, seed))
    done = list(iterations(policy, lambda i, k: training(env, seed, i, k), method, by_doubt=False))
    return net, policy.learner, fmean(one.change.paid or 0.0 for one in done)


def compare(
    methods: Sequence[Method],
    envs: Sequence[str],
    seeds: Sequence[int],
    recipe: Recipe = BUDGET,
    tests: int = 3,
    episodes: int = 20_000,
    say: Callable[[str], Any] = lambda text: None,
) -> Board:
    """Trains every method in every world on every seed, and judges it on held-out parameters."""
    if unknown := [env for env in envs if env not in trainable()]:
        raise BadRecipe(f"no world {unknown[0]!r} to train in; {alternatives(unknown[0], trainable(), 'world')}")
    standings: list[Standing] = []
    refused: dict[tuple[str, str], str] = {}
    for env in envs:
        for method in methods:
            if why := cannot(method):
                refused[method.name, env] = why
                continue
            say(f"{env}: {method.name}")
            try:
                with one_thread():
                    judgements = [_judged(env, method, recipe, seed, tests, episodes) for seed in seeds]
            except (BadCredit, BadReward) as error:
                refused[method.name, env] = str(error).partition("; there are")[0]
                continue
            worth, paid = zip(*judgements, strict=True)
            standings.append(Standing(method.name, env, *over_seeds(worth), fmean(paid)))
    order = {env: i for i, env in enumerate(envs)}
    return Board(sorted(standings, key=lambda s: (order[s.env], s.share.mean)), refused)


def _judged(
    env: str, method: Method, recipe: Recipe, seed: int, tests: int, episodes: int
) -> tuple[list[Judged], float]:
    net, learner, paid = train_method(env, method, recipe, seed)
    return [judged(held_out(env, i), net, learner.w, episodes, most=recipe.most) for i in range(tests)], paid


def chosen(names: Sequence[str]) -> list[Method]:
    """Methods by name; all that can act if none is named."""
    return [named(n) for n in names] if names else [m for m in METHODS.values() if not cannot(m)]
