"""Worlds to train in and to test in: parameters that the worlds themselves draw, kept apart.

Tests are drawn by a world's own `held_out`. Its `training` draws prices from ranges a little wider, so that none is
met again; sizes are others than those of `held_out` where it knows few (`crew`, `jury`), or never those of a test
world (`secretary`, `cayley_moser`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from podium.envs.expedition import LARGE
from podium.envs.world import BadParameter, World, log_uniform, make, worlds

__all__ = ["LARGE_EXPEDITION", "TESTS", "held_out", "trainable", "training"]

TEST, TESTS = 0x7E57, 25  # the address of test worlds, and how many training stays away from
DRAWS = 1_000  # to find a world to train on that is none of them
LARGE_EXPEDITION = "expedition/large"  # the expedition with the prices, stakes and menu of `LARGE`


def held_out(name: str, number: int) -> World:
    """The n-th test world; of "expedition/large" those with 300 and with 1,000 agents."""
    return make(name.split("/")[0], **_held_out(name, number))


@cache
def _held_out(name: str, number: int) -> Mapping[str, Any]:
    if name == LARGE_EXPEDITION:
        return {**LARGE, "pool": (300, 1000)[number % 2]}
    return dict(worlds()[name].held_out(np.random.default_rng([TEST, number])))


def _training(name: str, dice: np.random.Generator) -> Mapping[str, Any]:
    """Parameters to train with; of "expedition/large" at most 30 agents for at most 8 legs: with 20 legs each could
    have but one or two, and a policy would learn that many legs mean few agents, rather than few agents a leg."""
    if name != LARGE_EXPEDITION:
        return worlds()[name].training(dice)
    return {**LARGE, "pool": int(dice.integers(2, 31)), "legs": int(log_uniform(dice, 1, 9)), "calls": 0}


def trainable() -> list[str]:
    """The worlds that can be trained in: those that have a `training` of their own."""
    kinds = {name: [kind for kind in world.__mro__ if kind is not World] for name, world in worlds().items()}
    return [
        *(name for name, some in kinds.items() if any("training" in vars(kind) for kind in some)),
        LARGE_EXPEDITION,
    ]


def training(name: str, seed: int, step: int, number: int) -> World:
    """A world to train on, by address: never one of the first test worlds."""
    dice = np.random.default_rng([seed, step, number])
    tests = [_held_out(name, i) for i in range(TESTS)]
    for _ in range(DRAWS):
        given = dict(_training(name, dice))
        if given not in tests:
            return make(name.split("/")[0], **given)
    raise BadParameter(
        f"{name}: {DRAWS:,} draws of `training` are all among the worlds of `held_out`; expected others to train in"
    )
