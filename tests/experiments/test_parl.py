"""The study of serial collapse runs on a tiny budget, repeats, and pays what Podium's own rewards pay."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from bench.parl import figure, rows
from experiments.legs import ARMS, SETTINGS, WORLD, Arm, Run, Study, expedition, learn, margin, optimal_play
from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.expedition_journal import Travelling
from podium.envs.log import Log
from podium.envs.world import make, play
from podium.rewards import Now, score

TINY = Study(updates=3, batch=16, judged=200)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return learn(TINY, ARMS, [100, 101])


def same(a: Run, b: Run) -> bool:
    return all(np.array(x).tobytes() == np.array(y).tobytes() for x, y in zip(a[2:], b[2:], strict=True))


def test_the_same_seed_gives_the_same_bytes_whoever_else_runs(runs: list[Run]) -> None:
    assert [(r.arm, r.seed) for r in runs] == [(arm, seed) for arm in ARMS for seed in (100, 101)]
    alone = learn(TINY, {"parl": ARMS["parl"]}, [101])
    assert same(alone[0], next(r for r in runs if (r.arm, r.seed) == ("parl", 101)))
    assert not same(runs[0], runs[1])


def test_every_promise_has_a_row_and_the_figure_is_well_formed(runs: list[Run]) -> None:
    told = {row["id"]: row for row in rows(runs)}
    assert {i for i, row in told.items() if row["ok"] is not None} == {
        "4.2.plain.width",
        "4.2.plain.checks",
        "4.2.constant.width",
        "4.2.constant.below",
        "4.2.parl.short",
    }
    drawn = figure(runs)
    assert drawn == figure(runs)
    lines = list(ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 2 * len(ARMS) * 3  # two panels, a line for each of two seeds and one for their mean


@pytest.mark.parametrize("arm", [*ARMS.values(), SETTINGS["parl 5 to 0.5"]], ids=lambda arm: arm.reward)
def test_what_an_arm_pays_is_what_its_expression_pays_on_the_traces(arm: Arm) -> None:
    world = expedition()
    played = play(world, random_policy(7), seeds(100, 60), log=True)  # some stop at once and spawn nobody
    state = played.state
    assert isinstance(state, Travelling)
    assert (state.used == 0).any()
    for progress in (0.0, 0.05, 0.3, 1.0):
        paid = score(world.trace(state), arm.reward, "team", Now(progress=progress))
        np.testing.assert_allclose(paid, state.score + arm.weight(progress) * arm.auxiliary(state.used), atol=1e-12)


def test_weights_worked_by_hand() -> None:
    arm = Arm(parallel=8.0, finished=1.0, end=0.5)
    assert [arm.weight(p) for p in (0.0, 0.25, 0.5, 0.9)] == [1.0, 0.5, 0.0, 0.0]
    # of 40 scouts none, 10, 40 and 41: 8 x 0 + 0, 8 x 10/40 + 1, 8 x 1 + 1, the same
    assert arm.auxiliary(np.array([0, 10, 40, 41])).tolist() == [0.0, 3.0, 9.0, 9.0]


def test_the_margin_is_the_one_that_the_view_shows() -> None:
    world = expedition()
    state = world.start(seeds(3, 40), Log(40))
    dice, seen = random_policy(3), 0
    while (view := world.view(state)) is not None:
        if view.kind == "aggregate":
            items, owner = view.items()
            now = items[:, 0] == world.params.legs - view.facts[owner, 0]
            says: list[dict[float, int]] = [{} for _ in range(len(view))]
            for who, source, vote in zip(owner[now], items[now, 2], items[now, 3], strict=True):
                says[who][source] = int(vote)
            assert margin(world, state, view).tolist() == [abs(sum(s.values())) for s in says]
            seen += len(view)
        world.act(state, view, dice(view)[0])
    assert seen


def test_at_the_start_one_scout_is_spawned(runs: list[Run]) -> None:
    assert all(r.width_u[0] < 1.2 for r in runs)


def test_alone_a_check_is_best_in_every_leg_so_the_collapse_is_a_trap() -> None:
    """One scout and a check against one scout believed: a - price / (u (1 + w)) against the best reliability there is."""
    p = expedition().params
    assert p.a - p.check_price / (min(p.stakes) * (1 + p.w)) > max(p.specialist)
    # yet others do better: the best play with one scout, in a world of one, is far below the optimum
    alone = make("expedition", **{**WORLD, "widest": 1, "pool": p.legs})
    assert alone.optimum() < 0.75 * expedition().optimum()
    assert optimal_play(2_000)[0] > 3
