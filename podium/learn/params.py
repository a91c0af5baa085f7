"""Parameters of worlds to train on, kept apart from those to test on.

Tests are drawn by the world's own `held_out`. Training draws prices from ranges a little wider, so that none is met
again; sizes are others than those of `held_out` where it knows few (`crew`, `jury`), or never those of a test world
(`secretary`, `cayley_moser`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from podium.envs.expedition import LARGE
from podium.envs.world import BadParameter, World, make, worlds

__all__ = ["TESTS", "TRAINING", "held_out", "trainable", "training"]

TEST, TESTS = 0x7E57, 25  # the address of test worlds, and how many training stays away from
DRAWS = 1_000  # to find a world to train on that is none of them
Draw = Callable[[np.random.Generator], Mapping[str, Any]]


def _price(dice: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(dice.uniform(np.log(low), np.log(high))))


def _crew(dice: np.random.Generator) -> Mapping[str, Any]:
    workers, tasks = ((2, 5), (2, 7), (2, 8), (2, 9), (3, 6), (3, 8), (4, 5), (4, 6))[int(dice.integers(8))]
    return {"W": workers, "N": tasks, "lam": float(dice.uniform(0.04, 0.32))}


def _pandora(dice: np.random.Generator) -> Mapping[str, Any]:
    n = int(dice.integers(6, 10))
    return {"kinds": tuple(dice.integers(0, 4, n).tolist()), "prices": tuple(dice.uniform(0.02, 0.14, n).tolist())}


def _scouts(dice: np.random.Generator) -> Mapping[str, Any]:
    c = dice.uniform(0.02, 0.033)
    return {"c": c, "latency": dice.uniform(0.05, 0.6) * c, "widest": int(dice.integers(5, 8))}


def _expedition(dice: np.random.Generator) -> Mapping[str, Any]:
    def about(v: float) -> float:
        return float(v * dice.uniform(0.55, 1.6))

    return {
        "legs": int(dice.integers(3, 10)),
        "pool": int(dice.integers(8, 23)),
        "widest": int(dice.integers(3, 10)),
        "lam": about(0.02),
        "check_price": about(0.3),
        "leg_price": about(0.06),
        "prices": (about(0.02), about(0.03)),
        "messages": (0.0, about(0.04), about(0.1)),
    }


def _large(dice: np.random.Generator) -> Mapping[str, Any]:
    """The prices, stakes and menu of `LARGE`, with at most 30 agents for at most 8 legs: with 20 legs each could
    have but one or two, and a policy would learn that many legs mean few agents, rather than few agents a leg."""
    return {**LARGE, "pool": int(dice.integers(2, 31)), "legs": int(_price(dice, 1, 9)), "calls": 0}


TRAINING: dict[str, Draw] = {
    "costly_search": lambda d: {"c": _price(d, 0.008, 0.07)},
    "sprt": lambda d: {"c": _price(d, 0.005, 0.025)},
    "secretary": lambda d: {"n": int(d.integers(5, 66))},
    "cayley_moser": lambda d: {"n": int(d.integers(5, 66))},
    "crew": _crew,
    "relay": lambda d: {"n": int(d.integers(2, 4)), "c": float(d.uniform(0.02, 0.055))},
    "jury": lambda d: {"m": int(d.choice([6, 8, 9, 10, 12, 14])), "s": int(d.integers(3, 6))},
    "pandora": _pandora,
    "scouts": _scouts,
    "expedition": _expedition,
    "expedition/large": _large,
}


def held_out(name: str, number: int) -> World:
    """Test world number so and so; of "expedition/large" those with 300 and with 1,000 agents."""
    return make(name.split("/")[0], **_held_out(name, number))


@cache
def _held_out(name: str, number: int) -> Mapping[str, Any]:
    if name == "expedition/large":
        return {**LARGE, "pool": (300, 1000)[number % 2]}
    return dict(worlds()[name].held_out(np.random.default_rng([TEST, number])))


def trainable() -> list[str]:
    """The worlds that can be trained in: ours, and those from outside that have a `training` of their own."""
    others = [name for name, world in worlds().items() if name not in TRAINING and _says_how(world)]
    return [*TRAINING, *others]


def _says_how(world: type[World]) -> bool:
    """Whether a world has a `training` of its own."""
    return any("training" in vars(kind) for kind in world.__mro__ if kind is not World)


def training(name: str, seed: int, step: int, number: int) -> World:
    """A world to train on, by address: never one of the first test worlds."""
    dice = np.random.default_rng([seed, step, number])
    draw: Draw = TRAINING[name] if name in TRAINING else worlds()[name].training
    tests = [_held_out(name, i) for i in range(TESTS)]
    for _ in range(DRAWS):
        given = dict(draw(dice))
        if given not in tests:
            return make(name.split("/")[0], **given)
    raise BadParameter(
        f"{name}: {DRAWS:,} draws of `training` are all among the worlds of `held_out`; expected others to train in"
    )
