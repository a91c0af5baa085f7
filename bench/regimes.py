"""Regimes, schedules and staleness in `relay`, the world with two roles: what each leaves of the gap, on worlds that no setting was chosen on."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from podium.learn.evaluate import Judged, judged, over_seeds
from podium.learn.params import held_out, training
from podium.learn.regimes import network, started
from podium.learn.train import Learner, Recipe, begin, train
from podium.study.regret import UNTOUCHED

__all__ = ["ROWS", "learned", "main"]

WORLD, RECIPE = "relay", Recipe(iterations=40)  # as the recipe `communicate`
HALF = "frozen at half"  # from a joint run that was ended half-way
ROWS: dict[str, Mapping[str, Any]] = {
    "B, shared": {},
    "B, joint": {"regime": "joint"},
    "A, frozen from the start": {"regime": "frozen"},
    "A, " + HALF: {"regime": "frozen"},
    "C, decoupled": {"regime": "decoupled"},
    "C, alternate, period 5": {"regime": "decoupled", "schedule": "alternate"},
    "C, alternate, period 1": {"regime": "decoupled", "schedule": "alternate", "period": 1},
    "C, metric, period 3": {"regime": "decoupled", "schedule": "metric", "period": 3},
    "B, stale by 2, clip": {"staleness": 2},
    "B, stale by 2, truncated": {"staleness": 2, "correction": "truncated"},
    "B, stale by 8, clip": {"staleness": 8},
    "B, stale by 8, truncated": {"staleness": 8, "correction": "truncated"},
}


def learned(
    recipe: Recipe, seed: int, start: Learner | None = None, most: int | None = None
) -> tuple[Any, Learner]:
    """The network and the learner after the recipe, or after so many of its iterations."""
    net = network(training(WORLD, seed, 0, 0), recipe)
    learner = begin(net, seed)
    if start is not None:
        learner = replace(learner, w=started(learner.w, start.w))
    steps = train(net, recipe, lambda i, k: training(WORLD, seed, i + 1, k), learner)
    *_, (learner, _) = islice(steps, most)
    return net, learner


def row(name: str, seed: int, recipe: Recipe, episodes: int) -> list[Judged]:
    start = None
    if name.endswith(HALF):
        start = learned(replace(recipe, regime="joint"), seed, most=recipe.iterations // 2)[1]
    net, learner = learned(replace(recipe, **ROWS[name]), seed, start)
    return [judged(held_out(WORLD, i), net, learner.w, episodes, most=recipe.most) for i in UNTOUCHED]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=RECIPE.iterations)
    parser.add_argument("--episodes", type=int, default=20_000, help="of each held-out world")
    parser.add_argument("--rows", default=";".join(ROWS), help="names with semicolons")
    given = parser.parse_args(argv)
    recipe = replace(RECIPE, iterations=given.iterations)
    print("| regime and schedule | share of the gap | interval | regret |\n|---|---|---|---|")
    for name in given.rows.split(";"):
        share, regret = over_seeds([row(name, seed, recipe, given.episodes) for seed in range(given.seeds)])
        told = f"{share.mean:.3f} | {share.low:.3f} to {share.high:.3f} | {regret.mean:.2%}"
        print(f"| {name} | {told} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
