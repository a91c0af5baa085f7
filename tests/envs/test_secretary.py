"""The secretary problem: backward induction, the classical sum, and every order of a few candidates."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proving import rules_broken, same_bytes, scripted, standard_errors_off, with_new_seed, worst_margin

from podium.envs.draws import seeds
from podium.envs.world import BadParameter, episodes, make, play, worlds


@pytest.mark.parametrize(
    ("n", "value"), [(1, 1.0), (2, 0.5), (10, 0.39869), (20, 0.38421), (50, 0.37428), (100, 0.37104)]
)
def test_check_values(n: int, value: float) -> None:
    assert make("secretary", n=n).optimum() == pytest.approx(value, abs=5e-6)


@pytest.mark.parametrize("n", [2, 3, 7, 30, 100])
def test_induction_is_the_classical_sum(n: int) -> None:
    best = max((r / n * sum(1 / k for k in range(r, n)) for r in range(1, n)), default=0.0)
    assert make("secretary", n=n).optimum() == pytest.approx(max(best, 1 / n), abs=1e-12)


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_induction_is_what_all_orders_of_a_few_candidates_say(n: int) -> None:
    def wins(order: tuple[int, ...], reject: int) -> bool:
        bar = max(order[:reject], default=-1)
        return next((x for x in order[reject:] if x > bar), -1) == n - 1

    orders = list(permutations(range(n)))
    best = max(sum(wins(o, r) for o in orders) / len(orders) for r in range(n))
    assert make("secretary", n=n).optimum() == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("n", [1, 3, 20, 100])
def test_optimal_play_earns_the_optimum(n: int) -> None:
    world = make("secretary", n=n)
    if n == 1:
        assert (episodes(world, world.optimal(), 100) == 1).all()
    else:
        assert standard_errors_off(world, world.optimal(), world.optimum(), 100_000) < 4


def test_trivial_policies_win_one_time_in_n() -> None:
    world = make("secretary")
    for name in ("take the first", "take number 10", "take the last"):
        assert standard_errors_off(world, world.trivial()[name], 1 / 20) < 4
    assert worst_margin(world) > 0.05


def test_one_candidate_in_an_episode_is_the_best() -> None:
    world = make("secretary", n=40)
    taken = np.array([play(world, scripted(*[1] * k), seeds(4, 300)).score for k in range(1, 41)])
    np.testing.assert_array_equal(taken.sum(axis=0), 1)
    assert (play(world, scripted(), seeds(4, 300)).score == 0).all()  # who looks at nobody has nobody


def test_ranks_are_ranks_among_those_so_far() -> None:
    shown = play(make("secretary", n=6), scripted(*[1] * 6), seeds(5, 60_000)).state.shown[:, :6]
    for k in range(6):
        share = np.bincount(shown[:, k].astype(int), minlength=8)[1:] / len(shown)
        np.testing.assert_allclose(share, np.r_[np.full(k + 1, 1 / (k + 1)), np.zeros(6 - k)], atol=0.01)


def test_traces_keep_the_rules_and_repeat(tmp_path: Path) -> None:
    assert rules_broken(make("secretary")) == []
    assert same_bytes(make("secretary"), tmp_path)


def test_a_changed_decision_meets_the_same_candidates() -> None:
    world = make("secretary")
    short, long = (play(world, scripted(*[1] * k), seeds(2, 50)).state.shown for k in (2, 4))
    np.testing.assert_array_equal(short[:, :2], long[:, :2])


def test_a_new_seed_leaves_the_past_alone() -> None:
    one, two = with_new_seed(make("secretary", n=30), [1] * 8, [1] * 8)
    np.testing.assert_array_equal(one.shown[:, :8], two.shown[:, :8])
    assert (one.shown[:, 8:16] != two.shown[:, 8:16]).mean() > 0.8


@pytest.mark.parametrize("n", [0, -3, 2.5, "many", 10**6, None])
def test_bad_parameters(n: Any) -> None:
    with pytest.raises(BadParameter, match="n must be a whole number from 1 to 10000: candidates, got"):
        make("secretary", n=n)


def test_held_out_sizes_are_others() -> None:
    dice = np.random.default_rng(0)
    assert all(worlds()["secretary"].held_out(dice)["n"] not in (20,) for _ in range(300))
