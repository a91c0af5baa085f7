"""Cayley-Moser: the recursion, a second method, and that optimal play earns it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proving import rules_broken, same_bytes, scripted, standard_errors_off, with_new_seed, worst_margin

from podium.envs.draws import seeds
from podium.envs.world import BadParameter, make, play


@pytest.mark.parametrize(("n", "value"), [(1, 0.5), (5, 0.77508), (10, 0.8611), (20, 0.91989), (100, 0.98121)])
def test_check_values(n: int, value: float) -> None:
    assert make("cayley_moser", n=n).optimum() == pytest.approx(value, abs=5e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_the_recursion_is_what_programming_on_a_grid_finds(n: int) -> None:
    x = (np.arange(100_000) + 0.5) / 100_000
    value = 0.0
    for _ in range(n):
        value = float(np.maximum(x, value).mean())
    assert make("cayley_moser", n=n).optimum() == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("n", [1, 2, 10, 20])
def test_optimal_play_earns_the_optimum(n: int) -> None:
    world = make("cayley_moser", n=n)
    assert standard_errors_off(world, world.optimal(), world.optimum()) < 4


def test_trivial_policies_earn_a_half() -> None:
    world = make("cayley_moser")
    for name in ("take the first", "take number 10", "take the last"):
        assert standard_errors_off(world, world.trivial()[name], 0.5) < 4
    assert worst_margin(world) > 0.05


def test_worked_episode() -> None:
    world = make("cayley_moser", n=3)
    played = play(world, scripted(1, 1), seeds(0, 5))
    np.testing.assert_array_equal(played.score, played.state.shown[:, 1])
    assert (play(world, scripted(), seeds(0, 5)).score == 0).all()


def test_traces_keep_the_rules_and_repeat(tmp_path: Path) -> None:
    assert rules_broken(make("cayley_moser")) == []
    assert same_bytes(make("cayley_moser"), tmp_path)


def test_a_changed_decision_meets_the_same_candidates() -> None:
    world = make("cayley_moser")
    short, long = (play(world, scripted(*[1] * k), seeds(2, 50)).state.shown for k in (2, 4))
    np.testing.assert_array_equal(short[:, :2], long[:, :2])


def test_a_new_seed_leaves_the_past_alone() -> None:
    one, two = with_new_seed(make("cayley_moser"), [1, 1], [1, 1])
    np.testing.assert_array_equal(one.shown[:, :2], two.shown[:, :2])
    assert (one.shown[:, 2:4] != two.shown[:, 2:4]).all()


@pytest.mark.parametrize("n", [0, -1, 1.5, "ten"])
def test_bad_parameters(n: Any) -> None:
    with pytest.raises(BadParameter, match="n must be a whole number from 1 to 10000: candidates, got"):
        make("cayley_moser", n=n)
