"""Scores at their bounds, and on records that leave something out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "methods"))

from handmade import NAN, near, on, run, runs

from podium.methods.choose import choose
from podium.metrics.report import _of_differences
from podium.rewards import score
from podium.rewards.orchestration import wall_clock

nan = NAN


def test_a_verdict_of_one_half_says_right() -> None:
    """Both bounds belong to "right": a half about an answer of a half agrees, a half about a wrong one does not."""
    for verdict, correct, agrees in (
        (0.5, 0.5, 1.0),
        (0.5, 1.0, 1.0),
        (0.5, 0.0, 0.0),
        (0.49, 0.5, 0.0),
        (0.0, 0.49, 1.0),
    ):
        trace = runs(run(on("say ann solver", correct=correct), on("say bob verifier", verdict=verdict)))
        near(score(trace, "verdict_agreement", "turn"), [nan, agrees])


def test_a_run_that_took_no_time_took_none() -> None:
    trace = runs(run(on("say ann", t=3.0)), run(on("say ann", t=nan)), run(on("say ann", t=3.0, end=5.0)))
    near(wall_clock(trace), [0.0, nan, 2.0])


def test_where_a_spawn_does_not_say_whom_nobody_can_say_who_finished() -> None:
    named = run("decide lead", "spawn lead>bob", "return bob")
    nameless = run("decide lead", "spawn lead>bob", "spawn lead", "return bob")
    near(score(runs(named, nameless), "finish"), [1.0, nan])
    near(score(runs(named, nameless), "wasted_spawns"), [1.0, nan])
    near(score(runs(named, nameless), "instantiate"), [1 / 8, 2 / 8])


def test_the_interval_of_differences_is_students() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1 with n - 1 below the line, t(2) = 4.3027."""
    told = _of_differences(np.array([1.0, 2.0, 3.0, nan]))
    near([told.mean, told.n], [2.0, 3])
    near([told.mean - told.low, told.high - told.mean], [4.30265273 / np.sqrt(3)] * 2)
    two, one = _of_differences(np.array([1.0, 3.0])), _of_differences(np.array([1.0]))
    near([two.mean - two.low, two.high - two.mean], [12.70620474] * 2, 1e-6)  # t(1); deviation √2 over √2
    near([one.mean, one.n], [1.0, 1])
    assert np.isnan([one.low, one.high]).all()


def test_work_that_is_not_on_the_critical_path_makes_no_bottleneck() -> None:
    """The lead's 2 s are on the path with bob's 8; its own long wait beside them is not."""
    trace = runs(
        run(
            on("decide lead", t=0.0, end=2.0),
            on("say bob", t=2.0, end=10.0, after=[0]),
            on("say lead", t=2.0, end=9.0, after=[0]),
            on("return bob", t=10.0, end=10.0, after=[1]),
            team=1.0,
        )
    )
    (answer,) = [a for a in choose(trace).answers if "bottleneck" in a.question]
    assert "20% of the critical path" in answer.because
