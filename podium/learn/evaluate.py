"""What a learned policy is worth beside the optimum and the best trivial policy of its world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from podium.envs.draws import U, seeds
from podium.envs.world import Policy, View, World, play
from podium.interval import Estimate, estimate
from podium.learn.collect import acting
from podium.learn.policy import Net, Parameters
from podium.trace.columns import F

__all__ = ["DICE", "Judged", "beside", "judged", "over_seeds"]

DICE = 99_991  # what seeds of episodes for judging come from


class Judged(NamedTuple):
    """V* is exact. Values are V* less the mean loss of an episode, which is unbiased and less noisy than the mean
    score: the sum of what its choices lost (`World.lost`) where the world can tell, else what optimal play on the
    same dice scored more."""

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
    optimal = world.optimal()

    def lost(policy: Policy, dice: U) -> F:
        by_choice = np.zeros(len(dice))

        def watched(view: View) -> Any:
            chosen = policy(view)
            by_choice[view.row] += world.lost(view, chosen)
            return chosen

        score = play(world, watched, dice.copy()).score
        if not np.isnan(by_choice).any():
            return by_choice
        return play(world, optimal, dice.copy()).score - score

    def learned(dice: U) -> F:
        return lost(acting(world, net, w, dice, most=most, sharp=np.inf), dice)

    return _by_losses(world, learned, lost, episodes, seed, batch)


def beside(world: World, score: Callable[[U], F], episodes: int, seed: int = DICE, batch: int = 20_000) -> Judged:
    """What scores by their seeds are worth beside optimal play on the same dice, from so many episodes less those
    without a score (NaN)."""
    optimal = world.optimal()

    def learned(dice: U) -> F:
        return play(world, optimal, dice.copy()).score - score(dice)

    def lost(policy: Policy, dice: U) -> F:
        return play(world, optimal, dice.copy()).score - play(world, policy, dice.copy()).score

    return _by_losses(world, learned, lost, episodes, seed, batch)


def _by_losses(
    world: World,
    learned: Callable[[U], F],
    lost: Callable[[Policy, U], F],
    episodes: int,
    seed: int,
    batch: int,
) -> Judged:
    """From what was lost in each episode, by its seed: by what was learned, and by a trivial policy, which the
    first batch judges."""
    best = world.optimum()
    simple = {
        name: best - float(lost(policy, seeds(seed, batch)).mean()) for name, policy in world.trivial().items()
    }
    name = max(simple, key=lambda k: simple[k])
    less = np.concatenate([learned(seeds(seed, min(batch, episodes - i), i)) for i in range(0, episodes, batch)])
    less = less[~np.isnan(less)]
    error = float(less.std() / np.sqrt(len(less)))
    return Judged(best, best - float(less.mean()), error, simple[name], name, len(less))


def over_seeds(found: Sequence[Sequence[Judged]]) -> tuple[Estimate, Estimate]:
    """Share of the gap and regret, each a mean over seeds of its mean over worlds, with its interval over seeds."""
    share, regret = (
        estimate(np.array([np.mean([getattr(j, what) for j in one]) for one in found]))
        for what in ("share", "regret")
    )
    return share, regret
