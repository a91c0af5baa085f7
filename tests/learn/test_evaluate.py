"""A policy is judged by what its choices lost where the world can tell, and by scores elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import podium.envs  # noqa: F401  (fills the registry)
from podium.envs.draws import seeds
from podium.envs.expedition import LARGE
from podium.envs.world import World, make, play
from podium.learn.collect import capped, greedy, played
from podium.learn.evaluate import Judged, beside, judged
from podium.learn.policy import Net

N, MOST = 2_000, 40


def opinion(world: World, seed: int) -> tuple[Net, Any]:
    """A network with random weights."""
    net, dice = Net(world), np.random.default_rng(seed)
    return net, {k: x + 0.3 * dice.standard_normal(x.shape).astype(x.dtype) for k, x in net.initial(seed).items()}


def both(world: World, seed: int) -> tuple[Judged, Judged]:
    """The same policy on the same episodes, by `judged` and by its scores."""
    net, w = opinion(world, seed)
    by_scores = beside(
        world, lambda dice: played(world, net, w, dice, most=MOST, sharp=np.inf).score, N, batch=N // 2
    )
    return judged(world, net, w, N, most=MOST, batch=N // 2), by_scores


TOLD = {
    "plain": {"leg_price": 0.1},
    "attacked": {"inject": 0.1, "lie": 0.2, "poison": 2},
    "large": {**LARGE, "pool": 20, "legs": 4},
}


@pytest.mark.parametrize("params", TOLD.values(), ids=TOLD)
def test_by_losses_and_by_scores_are_the_same_with_less_noise(params: dict[str, Any]) -> None:
    by_losses, by_scores = both(make("expedition", **params), 0)
    assert abs(by_losses.value - by_scores.value) < 4 * np.hypot(by_losses.error, by_scores.error)
    assert by_losses.error < 0.8 * by_scores.error
    assert by_losses.best == by_scores.best
    assert abs(by_losses.trivial - by_scores.trivial) < 4 * by_scores.error
    assert by_losses.episodes == by_scores.episodes == N


@pytest.mark.parametrize("name", ["costly_search", "jury", "crew"])
def test_a_world_that_cannot_tell_is_judged_by_scores(name: str) -> None:
    world = make(name)
    view = world.view(world.start(seeds(0, 3)))
    assert view is not None
    assert np.isnan(world.lost(view, view.allowed.argmax(axis=1))).all()
    one, other = both(world, 0)
    assert one == other


def test_what_remembers_plays_as_what_reads_anew() -> None:
    world = make("expedition", leg_price=0.1)
    net, w = opinion(world, 0)
    plain = play(world, capped(world, greedy(net, w, world), 200, 8), seeds(1, 200))
    found = played(world, net, w, seeds(1, 200), most=8, sharp=np.inf)
    # float32 sums in another order: where two options are alike to 1e-6, another may be taken
    assert (found.score == plain.score).mean() >= 0.99
    assert found.made == pytest.approx(plain.decisions, rel=0.01)
