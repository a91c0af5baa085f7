"""Scouts: the reservation value of a round, by programming and by simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proving import (
    recorded,
    rules_broken,
    same_bytes,
    scripted,
    standard_errors_off,
    with_new_seed,
    worst_margin,
)

from podium.envs.conformance import random_policy, score_of
from podium.envs.draws import seeds
from podium.envs.world import BadParameter, View, episodes, make, play, worlds
from podium.trace.vocabulary import decision, event


@pytest.mark.parametrize(
    ("c", "latency", "width", "value"),
    [
        (0.01, 0.05, 7, 0.7705),
        (0.01, 0.0, 1, 0.8586),
        (0.01, 0.02, 5, 0.8106),
        (0.002, 0.05, 19, 0.8647),
        (0.5, 0.0, 0, 0.0),
        (0.01, 0.9, 0, 0.0),
        (2.0, 0.0, 0, 0.0),
    ],
)
def test_check_values(c: float, latency: float, width: int, value: float) -> None:
    world = make("scouts", c=c, latency=latency)
    assert world.optimum() == pytest.approx(value, abs=5e-5)
    assert world.best_width() == width  # type: ignore[attr-defined]


def test_one_at_a_time_without_latency_is_costly_search() -> None:
    for c in (0.003, 0.02, 0.2):
        one = make("scouts", c=c, latency=0).optimum()
        assert one == pytest.approx(make("costly_search", c=c).optimum(), abs=1e-12)


def by_programming(c: float, latency: float, widest: int, rounds: int = 60, points: int = 4001) -> float:
    """V(x) = max(x, max_k x^k V(x) + ∫ₓ¹ V(m) k m^(k-1) dm - c k - latency), round by round on a grid."""
    x = np.linspace(0.0, 1.0, points)
    value = x
    for _ in range(rounds):
        best = x
        for k in range(1, widest + 1):
            steps = (value[1:] + value[:-1]) / 2 * np.diff(x**k)
            above = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
            best = np.maximum(best, x**k * value + above - c * k - latency)
        value = best
    return float(value[0])


@pytest.mark.parametrize(("c", "latency"), [(0.03, 0.02), (0.01, 0.05), (0.05, 0.0), (0.05, 0.3), (0.3, 0.3)])
def test_the_round_value_is_what_programming_finds(c: float, latency: float) -> None:
    world = make("scouts", c=c, latency=latency)
    assert world.optimum() == pytest.approx(by_programming(c, latency, 12), abs=2e-6)


@pytest.mark.parametrize("c", [0.00011, 0.0007, 0.002, 0.011, 0.1, 0.4, 0.49])
@pytest.mark.parametrize("latency", [0.0, 0.03, 0.3])
def test_the_widest_round_leaves_out_no_width_that_pays(c: float, latency: float) -> None:
    free, wider = make("scouts", c=c, latency=latency), make("scouts", c=c, latency=latency, widest=300)
    assert free.optimum() == pytest.approx(wider.optimum(), abs=1e-12)


@pytest.mark.parametrize("params", [{}, {"c": 0.01, "latency": 0.05}, {"widest": 1}, {"c": 0.002, "latency": 0.05}])
def test_optimal_play_earns_the_optimum(params: dict[str, Any]) -> None:
    world = make("scouts", **params)
    assert standard_errors_off(world, world.optimal(), world.optimum(), 100_000) < 4


def test_where_no_round_pays_the_best_is_to_stop() -> None:
    world = make("scouts", c=0.5, latency=0.0)
    assert (episodes(world, world.optimal(), 10) == 0).all()


def test_trivial_policies_lose_on_the_defaults_but_not_on_the_check_value() -> None:
    world = make("scouts")
    assert worst_margin(world) > 0.05
    assert standard_errors_off(world, world.trivial()["spawn 5 once"], 5 / 6 - 0.15 - 0.02) < 4
    assert worst_margin(make("scouts", c=0.01, latency=0.05)) < 0.02


def test_worked_episode() -> None:
    world = make("scouts", c=0.1, latency=0.01, widest=4)
    state = play(world, scripted(3, 1), seeds(0, 50)).state
    np.testing.assert_allclose(state.score, state.value[:, :4].max(axis=1) - 0.42)
    assert state.at[0, :4].tolist() == [0, 0, 0, 1]


def test_the_best_is_the_best_of_the_record() -> None:
    world = make("scouts")

    def policy(view: View) -> Any:
        record, owner = view.items()
        best = np.zeros(len(view))
        np.maximum.at(best, owner, record[:, 1])
        np.testing.assert_array_equal(view.facts[:, 4], best)
        np.testing.assert_array_equal(view.facts[:, 3], np.bincount(owner, minlength=len(view)))
        return world.optimal()(view)

    play(world, policy, seeds(1, 500))


def test_traces_keep_the_rules_and_repeat(tmp_path: Path) -> None:
    assert rules_broken(make("scouts")) == []
    assert same_bytes(make("scouts"), tmp_path)


def test_a_round_is_spawns_and_returns_that_the_next_decision_follows() -> None:
    trace = recorded(make("scouts"), scripted(3, 2), 1)
    for word in ("spawn", "return", "despawn"):
        assert (trace.type_e == event(word)).sum() == 5  # type: ignore[arg-type]
    rows = np.flatnonzero(trace.type_e == event("orchestrator_decision"))
    assert trace.decision_e[rows].tolist() == [decision("spawn"), decision("spawn"), decision("stop")]
    assert [trace.chosen_e[int(r)] for r in rows] == ["spawn 3", "spawn 2", "stop"]
    assert [int((trace.dst_x == r).sum()) for r in rows] == [0, 3, 2]


def test_a_changed_width_meets_the_same_scouts() -> None:
    world = make("scouts")
    narrow, wide = (play(world, scripted(k, 2), seeds(2, 50)).state.value for k in (1, 3))
    np.testing.assert_array_equal(narrow[:, 0], wide[:, 0])
    np.testing.assert_array_equal(narrow[:, 1:3], wide[:, 3:5])  # the second round, whatever the first was


def test_a_new_seed_leaves_the_past_alone() -> None:
    one, two = with_new_seed(make("scouts"), [3], [2])
    np.testing.assert_array_equal(one.value[:, :3], two.value[:, :3])
    assert (one.value[:, 3:5] != two.value[:, 3:5]).all()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"c": -0.1}, "c must be a price from 0.00001 on for a worker, got -0.1"),
        ({"c": 0}, "c must be a price from 0.00001 on for a worker, got 0"),
        ({"latency": -1}, "latency must be a price from 0 on for a round, got -1"),
        ({"widest": -1}, "widest must be a whole number from 1 to 1000"),
        ({"widest": 1.5}, "widest must be a whole number from 1 to 1000"),
        ({"k": 3}, "scouts has no parameter 'k'; there are c, latency, widest"),
    ],
)
def test_bad_parameters(params: dict[str, Any], said: str) -> None:
    with pytest.raises(BadParameter) as error:
        make("scouts", **params)
    assert said in str(error.value)


def test_held_out_prices_are_fit_too() -> None:
    dice = np.random.default_rng(0)
    for _ in range(15):
        world = make("scouts", **worlds()["scouts"].held_out(dice))
        c, latency = world.params.c, world.params.latency
        assert world.options == make("scouts").options
        assert max(k / (k + 1) - c * k - latency for k in range(1, 30)) < 0.95 * world.optimum()
        assert score_of(world, random_policy(), 5000)[0] > 0
