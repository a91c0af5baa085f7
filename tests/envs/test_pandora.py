"""Pandora's boxes: Weitzman's index, the closed form, dynamic programming, and play."""

from __future__ import annotations

from itertools import chain, combinations
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

from podium.envs.conformance import fit
from podium.envs.draws import seeds
from podium.envs.pandora import KINDS, Box, Pandora, by_programming, closed_form, index, kept_best
from podium.envs.world import BadParameter, make, play, worlds
from podium.trace.vocabulary import decision, event


def some_boxes(dice: np.random.Generator) -> list[Box]:
    """Up to six boxes of up to four prizes, some of them worth nothing and some not worth their price."""
    boxes = []
    for _ in range(dice.integers(1, 7)):
        size = int(dice.integers(1, 5))
        prizes = np.where(
            dice.random(size) < 0.3, np.round(dice.uniform(-1, 2, size), 1), dice.uniform(-1, 2, size)
        )
        boxes.append(Box(float(dice.uniform(0, 0.8)), prizes.tolist(), dice.dirichlet(np.ones(size)).tolist()))
    return boxes


def test_the_closed_form_is_what_programming_finds_on_300_instances() -> None:
    dice = np.random.default_rng(0)
    values = np.array([(closed_form(b), by_programming(b)) for b in (some_boxes(dice) for _ in range(300))])
    assert np.abs(values[:, 0] - values[:, 1]).max() < 1e-9
    assert 30 < (values[:, 0] == 0).sum() + (values[:, 0] > 1).sum() < 270  # they are not all alike


def test_the_index_makes_a_box_just_pay() -> None:
    dice = np.random.default_rng(1)
    for box in chain.from_iterable(some_boxes(dice) for _ in range(100)):
        gain = np.maximum(np.asarray(box.prizes) - index(box), 0) @ np.asarray(box.p)
        assert gain == pytest.approx(box.price, abs=1e-12)


def test_worked_numbers() -> None:
    """Weitzman's own example: the risky box goes first although it is worth less on its own."""
    steady, risky = Box(15, (100, 55), (0.5, 0.5)), Box(20, (240, 0), (0.2, 0.8))
    assert (index(steady), index(risky)) == (70, 140)
    assert closed_form([steady, risky]) == pytest.approx(0.2 * 140 + 0.8 * (0.5 * 70 + 0.5 * 55))
    assert by_programming([steady, risky]) == pytest.approx(closed_form([steady, risky]))


def test_one_kind_of_many_boxes_is_costly_search() -> None:
    prizes = (np.arange(400) + 0.5) / 400
    boxes = [Box(0.02, prizes.tolist(), [1 / 400] * 400)] * 64
    assert closed_form(boxes) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"kinds": (2, 2, 2), "prices": (0.05, 0.1, 0.3)},
        {"kinds": (0,), "prices": (0.2,)},
        {"kinds": (3, 1), "prices": (0, 0)},
    ],
)
def test_optimal_play_earns_the_optimum(params: dict[str, Any]) -> None:
    world = make("pandora", **params)
    assert isinstance(world, Pandora)
    assert world.optimum() == pytest.approx(by_programming(world.boxes), abs=1e-12)
    assert standard_errors_off(world, world.optimal(), world.optimum(), 100_000) < 4


def test_boxes_that_cost_too_much_stay_shut() -> None:
    world = make("pandora", kinds=(0, 1, 2), prices=(0.6, 0.5, 0.3))
    assert world.optimum() == 0
    assert (play(world, world.optimal(), seeds(0, 50)).score == 0).all()


def test_trivial_policies_lose_and_the_fixed_set_is_the_best() -> None:
    world = make("pandora")
    assert isinstance(world, Pandora)
    worth = {
        s: kept_best([(world.boxes[i].prizes, world.boxes[i].p) for i in s]) - sum(world.boxes[i].price for i in s)
        for s in chain.from_iterable(combinations(range(8), k) for k in range(1, 9))
    }
    best = max(worth, key=lambda s: worth[s])
    name = f"open {', '.join(map(str, best))}"
    assert standard_errors_off(world, world.trivial()[name], worth[best], 100_000) < 4
    assert worst_margin(world) > 0.05


def test_a_large_roster_has_a_fixed_set_too() -> None:
    world = make("pandora", kinds=(0, 1, 2, 3) * 5, prices=(0.05,) * 20)
    assert worst_margin(world, 4000) > 0
    assert standard_errors_off(world, world.optimal(), world.optimum(), 50_000) < 4


def test_prizes_come_as_their_kind_says() -> None:
    world = make("pandora", kinds=(0, 1, 2, 3), prices=(0.1,) * 4)
    prize = play(world, scripted(1, 2, 3, 4), seeds(3, 50_000)).state.prize
    for i, (values, p) in enumerate(KINDS):
        share = [(prize[:, i] == v).mean() for v in values]
        np.testing.assert_allclose(share, p, atol=0.01)


def test_worked_episode() -> None:
    world = make("pandora")
    state = play(world, scripted(3, 1), seeds(0, 50)).state
    np.testing.assert_allclose(state.score, state.prize.max(axis=1) - 0.09)
    assert state.order[0].tolist() == [2, 0, 1, 0, 0, 0, 0, 0]


def test_a_view_shows_the_boxes_and_what_each_option_is_about() -> None:
    world = make("pandora", kinds=(2, 3), prices=(0.1, 0.2))
    state = world.start(seeds(0, 2))
    view = world.view(state)
    assert view is not None
    assert view.about is not None
    assert view.about.tolist() == [[-1, 0, 1]] * 2
    world.act(state, view, np.array([2, 1]))
    view = world.view(state)
    assert view is not None
    items, owner = view.items()
    assert owner.tolist() == [0, 0, 1, 1]
    assert items[:, :3].tolist() == [[0.1, 2, 0], [0.2, 3, 1], [0.1, 2, 1], [0.2, 3, 0]]
    assert view.allowed.tolist() == [[True, True, False], [True, False, True]]
    np.testing.assert_array_equal(items[[1, 2], 3], view.facts[:, 2])


def test_traces_keep_the_rules_and_repeat(tmp_path: Path) -> None:
    assert rules_broken(make("pandora")) == []
    assert same_bytes(make("pandora"), tmp_path)


def test_who_opens_a_box_spawns_a_specialist() -> None:
    trace = recorded(make("pandora", kinds=(0, 1), prices=(0.1, 0.2)), patient(2), 1)
    rows = np.flatnonzero(trace.type_e == event("orchestrator_decision"))
    assert [trace.chosen_e[int(r)] for r in rows] == ["open 1", "open 0", "stop"]
    assert trace.decision_e[rows].tolist() == [decision("delegate"), decision("delegate"), decision("stop")]
    options = [trace.options(int(r)) for r in rows]
    assert options == [["stop", "open 0", "open 1"], ["stop", "open 0"], ["stop"]]
    spawns = trace.type_e == event("spawn")
    assert [str(trace.name_a[a]) for a in trace.to_e[spawns]] == ["specialist 1", "specialist 0"]
    assert trace.cost_e[spawns].tolist() == [0.2, 0.1]


def test_a_changed_decision_meets_the_same_prizes() -> None:
    world = make("pandora")
    one, two = (play(world, scripted(*order), seeds(2, 50)).state.prize for order in ((1, 2, 3), (5, 3, 2, 1)))
    np.testing.assert_array_equal(one[:, :3], two[:, :3])


def test_a_new_seed_leaves_the_past_alone() -> None:
    one, two = with_new_seed(make("pandora"), [1, 3], [4, 7])
    np.testing.assert_array_equal(one.prize[:, [0, 2]], two.prize[:, [0, 2]])
    assert (one.prize[:, [3, 6]] != two.prize[:, [3, 6]]).any(axis=1).mean() > 0.5


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"kinds": (0, 9)}, "kinds must be 1 to 64 whole numbers from 0 to 3"),
        ({"kinds": ()}, "kinds must be 1 to 64 whole numbers"),
        ({"kinds": 3}, "kinds must be 1 to 64 whole numbers"),
        ({"kinds": (0,), "prices": (-0.1,)}, "prices must be as many numbers from 0 on"),
        ({"kinds": (0,), "prices": ("dear",)}, "prices must be as many numbers from 0 on"),
        ({"kinds": (0, 1), "prices": (0.1,)}, "prices must be as many numbers as kinds, which are 2, got 1"),
        ({"c": 1}, "pandora has no parameter 'c'; there are kinds, prices"),
    ],
)
def test_bad_parameters(params: dict[str, Any], said: str) -> None:
    with pytest.raises(BadParameter) as error:
        make("pandora", **params)
    assert said in str(error.value)


def test_held_out_rosters_are_fit_too() -> None:
    dice = np.random.default_rng(0)
    for _ in range(4):
        assert fit(make("pandora", **worlds()["pandora"].held_out(dice)), 20_000) == []
