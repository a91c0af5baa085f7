"""Costly search with recall: Weitzman's reservation value, and that it is what optimal play earns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proving import (
    patient,
    recorded,
    rules_broken,
    same_bytes,
    scripted,
    standard_errors_off,
    with_new_seed,
    worst_margin,
)

from podium.envs.draws import seeds
from podium.envs.world import BadParameter, episodes, make, play, worlds
from podium.trace.vocabulary import event


@pytest.mark.parametrize(
    ("c", "value"),
    [(0.005, 0.9), (0.01, 0.85858), (0.02, 0.8), (0.05, 0.68377), (0.0001, 0.98586), (0.5, 0.0), (0.7, 0.0)],
)
def test_check_values(c: float, value: float) -> None:
    assert make("costly_search", c=c).optimum() == pytest.approx(value, abs=5e-6)


def by_programming(c: float, most: int, points: int = 20001) -> float:
    """V_m(x) = max(x, x V_{m-1}(x) + ∫ₓ¹ V_{m-1} - c) on a grid."""
    x = np.linspace(0.0, 1.0, points)
    value = x
    for _ in range(most):
        steps = (value[1:] + value[:-1]) / 2 * (x[1] - x[0])
        above = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
        value = np.maximum(x, x * value + above - c)
    return float(value[0])


@pytest.mark.parametrize(("c", "most"), [(0.02, 1), (0.02, 3), (0.1, 2), (0.02, 40), (0.6, 5)])
def test_the_closed_form_is_what_programming_finds(c: float, most: int) -> None:
    assert make("costly_search", c=c, most=most).optimum() == pytest.approx(by_programming(c, most), abs=1e-7)


@pytest.mark.parametrize("params", [{}, {"c": 0.1, "most": 2}, {"c": 0.6}])
def test_optimal_play_earns_the_optimum(params: dict[str, Any]) -> None:
    world = make("costly_search", **params)
    if world.optimum() == 0:
        assert (episodes(world, world.optimal(), 100) == 0).all()
    else:
        assert standard_errors_off(world, world.optimal(), world.optimum()) < 4


def test_trivial_policies_lose() -> None:
    world = make("costly_search")
    assert worst_margin(world) > 0.05
    assert standard_errors_off(world, world.trivial()["look 6 times"], 6 / 7 - 0.12) < 4


def test_worked_episode() -> None:
    world = make("costly_search", c=0.1)
    played = play(world, scripted(1, 1, 1), seeds(0, 5))
    assert played.decisions == 20
    np.testing.assert_allclose(played.score, np.nanmax(played.state.seen, axis=1) - 0.3)


def test_traces_keep_the_rules_and_repeat(tmp_path: Path) -> None:
    assert rules_broken(make("costly_search", most=30)) == []
    assert same_bytes(make("costly_search"), tmp_path)


def test_who_has_seen_all_candidates_may_only_stop() -> None:
    trace = recorded(make("costly_search", most=2), patient(9), 1)
    rows = np.flatnonzero(trace.type_e == event("orchestrator_decision"))
    options = [trace.options(int(r)) for r in rows]
    assert options == [["stop", "go on"], ["stop", "go on"], ["stop"]]
    assert [trace.chosen_e[int(r)] for r in rows] == ["go on", "go on", "stop"]


def test_a_changed_decision_meets_the_same_candidates() -> None:
    world = make("costly_search")
    short, long = (play(world, scripted(*[1] * k), seeds(2, 50)).state.seen for k in (2, 5))
    np.testing.assert_array_equal(short[:, :2], long[:, :2])


def test_a_new_seed_leaves_the_past_alone() -> None:
    one, two = with_new_seed(make("costly_search"), [1, 1], [1, 1])
    np.testing.assert_array_equal(one.seen[:, :2], two.seen[:, :2])
    assert (one.seen[:, 2:4] != two.seen[:, 2:4]).all()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"c": -0.1}, "c must be a price above 0, got -0.1"),
        ({"c": 0}, "c must be a price above 0, got 0"),
        ({"c": float("nan")}, "c must be a price above 0, got nan"),
        ({"c": "much"}, "c must be a price above 0, got 'much'"),
        ({"most": 0}, "most must be a whole number from 1"),
        ({"most": 2.5}, "most must be a whole number from 1"),
        ({"price": 1}, "costly_search has no parameter 'price'; there are c, most"),
    ],
)
def test_bad_parameters(params: dict[str, Any], said: str) -> None:
    with pytest.raises(BadParameter) as error:
        make("costly_search", **params)
    assert said in str(error.value)


def test_held_out_prices_are_fit_too() -> None:
    dice = np.random.default_rng(0)
    for _ in range(20):
        world = make("costly_search", **worlds()["costly_search"].held_out(dice))
        c = world.params.c
        assert c != 0.02
        assert max(k / (k + 1) - c * k for k in range(30)) < 0.95 * world.optimum()
