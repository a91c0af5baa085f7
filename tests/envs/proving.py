"""What the tests of single worlds ask again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import Policy, View, World, episodes, play
from podium.trace import check, save


def standard_errors_off(world: World, policy: Policy, value: float, n: int = 200_000, seed: int = 11) -> float:
    """By how many standard errors the mean score of a policy is away from a value."""
    score = episodes(world, policy, n, seed)
    return float(abs(score.mean() - value) / (score.std(ddof=1) / np.sqrt(n)))


def worst_margin(world: World, n: int = 40_000) -> float:
    """How far below the optimum the best trivial policy stays, as a share of the optimum."""
    best = max(episodes(world, policy, n, 12).mean() for policy in world.trivial().values())
    return float((world.optimum() - best) / abs(world.optimum()))


def recorded(world: World, policy: Policy, n: int = 60, seed: int = 13) -> Any:
    return world.trace(play(world, policy, seeds(seed, n), log=True).state)


def rules_broken(world: World) -> list[str]:
    """By optimal play, by random play, and by whoever never stops of their own accord for 300 decisions."""
    found = [check(recorded(world, p)) for p in (world.optimal(), random_policy(), patient(300))]
    return [f"{f.rule}: {f.message}" for findings in found for f in findings]


def patient(decisions: int) -> Policy:
    """The last option that is allowed, so many times; then the first."""
    made = [0]

    def policy(view: View) -> NDArray[np.int64]:
        made[0] += 1
        last = view.allowed.shape[1] - 1 - np.argmax(view.allowed[:, ::-1], axis=1)
        return last if made[0] <= decisions else np.zeros(len(view), np.int64)

    return policy


def same_bytes(world: World, folder: Path) -> bool:
    for name in ("one.jsonl", "two.jsonl"):
        save(recorded(world, random_policy(3), 5), folder / name)
    return (folder / "one.jsonl").read_bytes() == (folder / "two.jsonl").read_bytes()


def scripted(*choices: int) -> Policy:
    """The same choices for every episode, one after the other; those past the end stop."""
    left = list(choices)
    return lambda view: np.full(len(view), left.pop(0) if left else 0)


def with_new_seed(world: World, before: list[int], after: list[int], n: int = 200) -> tuple[Any, Any]:
    """Episodes that make the choices `before` and then `after`: as they were, and drawn anew after `before`."""
    ends = []
    for seed in (21, 22):
        state = world.start(seeds(21, n))
        for i, choice in enumerate(before + after + [0]):
            if i == len(before):
                state.seed = seeds(seed, n)
            view = world.view(state)
            assert view is not None
            world.act(state, view, np.full(n, choice))
        ends.append(state)
    return ends[0], ends[1]
