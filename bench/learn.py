"""Training throughput, where the time goes, and what same-prefix credit does where to stop at once is a trap.

python -m bench.learn [--full] [--json]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np

from bench.table import Row, adding, at_least, best, command, fact
from podium.envs.draws import seeds
from podium.envs.world import World, make
from podium.learn.collect import played
from podium.learn.loop import Iteration
from podium.learn.params import training
from podium.learn.policy import Net
from podium.learn.source import OURS, Mapped, iterations
from podium.learn.train import NetPolicy, Recipe, begin, one_thread, players

__all__ = ["measure"]

WORLDS = ("scouts", "crew", "relay", "jury", "costly_search")  # a world for each decision
CORES, SPEED = 2, 100_000
PLAIN = "grpo"
TRAP = {"legs": 4, "pool": 6, "widest": 3}  # random play loses here, and who stops at once loses nothing


def measure(full: bool) -> list[Row]:
    how = Recipe() if full else Recipe(iterations=2, rows=200)
    return [*_speed(how), *_trap(how, *((40, 3, 20_000) if full else (2, 1, 200)))]


def _speed(how: Recipe) -> list[Row]:
    """Decisions a second of whole trainings on both cores, how long each stage was waited for; for a method of the table, paid from traces, too."""
    iterations_ = how.iterations - 1
    with one_thread(), players(CORES) as mapped:
        ours = {name: _timed(_training(name, how, mapped=mapped), iterations_) for name in WORLDS}
        traced = _timed(_training("costly_search", how, "dr_mas"), min(iterations_, 12))
    total = sum(sum(t.decisions for t in told) for told, _ in ours.values()) / sum(s for _, s in ours.values())
    rows = [
        at_least(
            "6.4.decisions",
            "decisions a second in training, rollout, credit and update, all five worlds",
            total,
            SPEED,
            "time",
        ),
        fact("6.4.adding", "seconds of adding ten million numbers in the same run", best(1, adding)[0]),
    ]
    for name, (told, seconds) in {**ours, "costly_search by dr_mas from traces": traced}.items():
        id = name.split()[0] + (".traced" if " " in name else "")
        rows.append(fact(f"6.4.{id}", f"{name}: decisions a second", sum(t.decisions for t in told) / seconds))
        rows += [
            fact(
                f"6.4.{id}.{stage}",
                f"{name}: share of the time in {stage}",
                sum(t.seconds[stage] for t in told) / seconds,
            )
            for stage in told[0].seconds
        ]
    return rows


def _timed(steps: Iterator[Iteration], iterations: int) -> tuple[list[Iteration], float]:
    """Some iterations after the first, and their seconds."""
    next(steps)
    clock = perf_counter()
    done = [next(steps) for _ in range(iterations)]
    return done, perf_counter() - clock


def _training(name: str, how: Recipe, method: str = OURS, mapped: Mapped = map) -> Iterator[Iteration]:
    net = Net(training(name, 0, 0, 0))
    policy = NetPolicy(net, how, begin(net, 0))
    return iterations(policy, lambda i, k: training(name, 0, i + 1, k), method, mapped=mapped)


def _trap(how: Recipe, iterations: int, seeds_: int, judged: int) -> list[Row]:
    """Expeditions in which any option at random loses: what is learned, from the same start, with as many episodes or more by plain."""
    world = make("expedition", **TRAP)
    recipe = replace(how, iterations=iterations, rows=min(how.rows, 1_000), worlds=1)
    with one_thread():
        ours, plain = (
            [_worth(world, recipe, seed, judged, method) for seed in range(seeds_)] for method in (OURS, PLAIN)
        )
    at_random, optimum = world.random_value(), world.optimum()
    where = f"a small expedition, {seeds_} seeds"
    return [
        fact("6.1.trap.random", f"{where}: any option at random (0: to stop at once)", at_random),
        fact(
            "6.1.trap.plain",
            f"{where}: learned by {PLAIN}'s outcome credit, share of the optimum",
            np.mean(plain) / optimum,
        ),
        fact(
            "6.1.trap.ours",
            f"{where}: learned by same-prefix credit, share of the optimum",
            np.mean(ours) / optimum,
        ),
        at_least(
            "6.1.trap",
            f"{where}: same-prefix credit less {PLAIN}, of the optimum",
            (np.mean(ours) - np.mean(plain)) / optimum,
            0.0,
            "sampled",
        ),
    ]


def _worth(world: World, recipe: Recipe, seed: int, judged: int, method: str) -> float:
    net = Net(world)
    policy = NetPolicy(net, recipe, begin(net, seed))
    for _ in iterations(policy, lambda i, k: world, method):
        pass
    dice, w = seeds(99, judged), policy.learner.w
    return float(played(world, net, w, dice, most=recipe.most, sharp=np.inf).score.mean())


if __name__ == "__main__":
    command(measure, __doc__)
