"""What the one method leaves of the optimum in every world, on parameters that nothing was chosen on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from podium.learn.evaluate import Judged, judged, over_seeds
from podium.learn.params import held_out, training
from podium.learn.policy import Net
from podium.learn.train import Recipe, begin, one_thread, train

__all__ = ["PROMISES", "Promise", "rows"]

UNTOUCHED = range(15, 20)  # held-out worlds that no setting was chosen on


class Promise(NamedTuple):
    """The decision that a world is about, and the most that may be left: of the gap, and of the optimum."""

    decision: str
    share: float
    regret: float


PROMISES = {
    "scouts": Promise("spawn", 0.2, 0.02),
    "crew": Promise("delegate", 0.15, 0.01),
    "relay": Promise("communicate", 0.15, 0.01),
    "jury": Promise("aggregate", 0.15, 0.01),
    "costly_search": Promise("stop", 0.15, 0.01),
    "sprt": Promise("stop", 0.15, 0.01),
    "secretary": Promise("stop", 0.15, 0.01),
    "cayley_moser": Promise("stop", 0.15, 0.01),
    "pandora": Promise("delegate, stop", 0.2, 0.02),
    "expedition": Promise("all five", 0.2, 0.05),
    "expedition/large": Promise("all five", 0.3, 0.1),
}


def rows(
    envs: Sequence[str],
    seeds: Sequence[int],
    recipe: Recipe,
    episodes: int,
    cores: int = 2,
    say: Callable[[str], Any] = lambda text: None,
) -> list[dict[str, Any]]:
    """A row for each world: means over seeds of means over held-out worlds, so many episodes of each, and the interval of the share of the gap over seeds."""
    jobs = list(product(envs, seeds))
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        found: dict[str, list[list[Judged]]] = {env: [] for env in envs}
        for (env, seed), one in zip(
            jobs, pool.map(_learned, jobs, [recipe] * len(jobs), [episodes] * len(jobs)), strict=True
        ):
            found[env].append(one)
            say(f"{env}, seed {seed}: {np.mean([j.share for j in one]):.3f} of the gap")
    return [_row(env, found[env]) for env in envs]


def _learned(job: tuple[str, int], recipe: Recipe, episodes: int) -> list[Judged]:
    env, seed = job
    with one_thread():
        net = Net(training(env, seed, 0, 0))
        *_, (learner, _) = train(net, recipe, lambda i, k: training(env, seed, i + 1, k), begin(net, seed))
        return [judged(held_out(env, i), net, learner.w, episodes, most=recipe.most) for i in UNTOUCHED]


def _row(env: str, found: list[list[Judged]]) -> dict[str, Any]:
    share, regret = over_seeds(found)
    promise = PROMISES[env]
    return {
        "env": env,
        "decision": promise.decision,
        "regret": regret.mean,
        "share_of_gap": share.mean,
        "interval": [share.low, share.high],
        "seeds": len(found),
        "promise": {"share_of_gap": promise.share, "regret": promise.regret},
    }
