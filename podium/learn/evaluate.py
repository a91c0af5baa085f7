"""What a learned policy is worth beside the optimum and the best trivial policy of its world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from podium.envs.draws import U, seeds
from podium.envs.world import Policy, World, play
from podium.interval import Estimate, estimate
from podium.learn.collect import played
from podium.learn.policy import Net, Parameters
from podium.trace.columns import F

__all__ = ["DICE", "Judged", "beside", "judged", "over_seeds"]

DICE = 99_991  # what seeds of episodes for judging come from


class Judged(NamedTuple):
    """V* is exact. Values are V* less the mean loss against optimal play on the same dice, which is unbiased and less noisy."""

    optimum: float
    value: float
    error: float  # standard error of the value
    trivial: float
    best: str  # the name of the best trivial policy
    episodes: int

    @property
    def regret(self) -> float:
        """(V* - V) / |V*|."""
        return (self.optimum - self.value) / abs(self.optimum)

    @property
    def share(self) -> float:
        """(V* - V) / (V* - best trivial)."""
        return (self.optimum - self.value) / (self.optimum - self.trivial)


def judged(
    world: World, net: Net, w: Parameters, episodes: int, seed: int = DICE, most: int = 1000, batch: int = 20_000
) -> Judged:
    """The likeliest option always, from so many episodes."""
    return beside(
        world, lambda dice: played(world, net, w, dice, most=most, sharp=np.inf).score, episodes, seed, batch
    )


def beside(world: World, score: Callable[[U], F], episodes: int, seed: int = DICE, batch: int = 20_000) -> Judged:
    """What scores by their seeds are worth, from so many episodes less those without a score (NaN); the first batch judges the trivial policies."""
    optimal, trivial = world.optimal(), world.trivial()
    best = world.optimum()

    def lost(score: Callable[[U], F], first: int, n: int) -> F:
        dice = seeds(seed, n, first)
        return play(world, optimal, dice.copy()).score - score(dice)

    def of(policy: Policy) -> Callable[[U], F]:
        return lambda dice: play(world, policy, dice.copy()).score

    simple = {name: best - float(lost(of(policy), 0, batch).mean()) for name, policy in trivial.items()}
    name = max(simple, key=lambda k: simple[k])
    learned = np.concatenate([lost(score, i, min(batch, episodes - i)) for i in range(0, episodes, batch)])
    learned = learned[~np.isnan(learned)]
    error = float(learned.std() / np.sqrt(len(learned)))
    return Judged(best, best - float(learned.mean()), error, simple[name], name, len(learned))


def over_seeds(found: Sequence[Sequence[Judged]]) -> tuple[Estimate, Estimate]:
    """Share of the gap and regret, each a mean over seeds of its mean over worlds, with its interval over seeds."""
    share, regret = (
        estimate(np.array([np.mean([getattr(j, what) for j in one]) for one in found]))
        for what in ("share", "regret")
    )
    return share, regret
