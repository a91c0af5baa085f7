"""What there is to know of a world: its parameters, its optimum, and what simple policies score."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from podium.envs.conformance import random_policy, score_of
from podium.envs.world import World

__all__ = ["report"]


def report(
    world: World, n: int = 20_000, seed: int = 0, tell: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """The exact optimum, and the mean score over n episodes of optimal play, of random play and of trivial
    policies. `tell` hears what is being played."""
    policies = {"optimal play": world.optimal(), "random play": random_policy(seed)} | world.trivial()
    scores = {}
    for number, (name, policy) in enumerate(policies.items(), 1):
        if tell is not None:
            tell(f"{name}: {n:,} episodes, policy {number} of {len(policies)}")
        scores[name] = score_of(world, policy, n, seed)
    description: dict[str, Any] = {
        "world": world.name,
        "decides": list(world.decides),
        "params": dataclasses.asdict(world.params),
        "optimum": world.optimum(),
        "scores": {name: {"mean": mean, "error": error} for name, (mean, error) in scores.items()},
        "episodes": n,
    }
    for extra in ("risk", "best_width"):
        if hasattr(world, extra):
            description[extra] = getattr(world, extra)()
    return description
