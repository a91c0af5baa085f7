"""Branches that end with a stretch of a task, and the value of the rest of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from podium.envs.draws import seeds
from podium.envs.expedition import Expedition
from podium.envs.world import make
from podium.learn.bootstrap import bootstrap_returns
from podium.learn.collect import Collected, StretchEnds
from podium.learn.params import training
from podium.learn.policy import Net
from tests.learn.playing import Tried, collected, rollouts_of, tried

LEGS = {"legs": 3, "pool": 9, "widest": 4}


def strayed(whole: float, episodes: int = 60) -> Collected:
    """Decisions of episodes that all stray, branched.

    Batches of different size are compared below, and a BLAS kernel may round a product of more rows otherwise. Weights are in double
    precision, so that this is of the order of 1e-16 and no draw of an option falls to the other side.
    """
    world = make("expedition", **LEGS)
    net = Net(world)
    w = {name: value.astype(np.float64) for name, value in net.initial(0).items()}
    how: dict[str, Any] = {"share": 9.0, "room": 40_000, "wander": 1.0, "sharp": 10.0, "whole": whole}
    return collected(world, net, w, seeds(0, episodes), **how)


def ends_of(rows: Tried) -> StretchEnds:
    assert rows.ends is not None
    return StretchEnds(*(column[rows.run] for column in rows.ends))


def test_a_stretch_and_what_came_after_it_are_what_the_whole_branch_earned(monkeypatch: pytest.MonkeyPatch) -> None:
    stretched = tried(strayed(1.0))
    monkeypatch.setattr(Expedition, "stretches", False)
    for part, plain in zip(stretched, tried(strayed(1.0)), strict=True):
        assert plain.ends is None
        assert np.array_equal(part.option, plain.option)
        np.testing.assert_allclose(part.earned + ends_of(part).later, plain.earned, atol=1e-9)


def test_branches_that_end_with_their_stretch_earned_the_same_in_it() -> None:
    whole, some, none = strayed(1.0), strayed(0.5), strayed(0.0)
    assert none.made < some.made < whole.made
    for a, b, c in zip(tried(whole), tried(some), tried(none), strict=True):
        assert np.array_equal(a.earned, b.earned)
        assert np.array_equal(a.earned, c.earned)
        np.testing.assert_allclose(ends_of(a).context, ends_of(c).context, rtol=1e-5, atol=1e-6)  # float32
        assert np.array_equal(np.isnan(ends_of(c).later), ends_of(c).going)
        looked = ~np.isnan(ends_of(b).later)
        assert 0 < (looked & ends_of(b).going).sum() < ends_of(b).going.sum()
        np.testing.assert_allclose(ends_of(a).later[looked], ends_of(b).later[looked])


def test_where_a_branch_was_cut_is_on_the_record() -> None:
    """A branch that ends with its stretch is cut after its last event, one that goes on before."""
    for whole in (0.0, 1.0):
        batch = strayed(whole)
        assert batch.forest is not None
        trace = batch.forest.whole()
        length, going = np.diff(trace.first_of("e")), trace.cut_n >= 0
        assert going.any()
        assert (trace.cut_n[going] <= length[going]).all()
        assert (trace.cut_n[going] == length[going]).all() == (whole == 0.0)


def test_nothing_is_ahead_of_the_last_leg_and_of_a_stop() -> None:
    stop = next(rows for rows in tried(strayed(1.0)) if rows.seen.kind == "stop")
    stops = stop.option == 0
    assert not ends_of(stop).going[stops].any()
    assert (ends_of(stop).later[~ends_of(stop).going] == 0).all()
    last = np.repeat(stop.seen.facts[:, 0] == 1, np.diff(stop.seen.start))
    assert not ends_of(stop).going[last].any()


def test_a_task_that_is_paid_as_a_whole_has_no_stretches() -> None:
    world = training("relay", 0, 1, 0)
    net = Net(world)
    batch = collected(world, net, net.initial(0), seeds(0, 40), whole=0.0)
    assert batch.ends is None
    one = rollouts_of(batch)
    assert bootstrap_returns([one]) == [one]


def test_what_is_ahead_is_told_by_the_other_half_of_the_episodes() -> None:
    """What came later is what a line says and luck, which nothing ahead tells of: the line is found, the luck is not paid."""
    dice = np.random.default_rng(0)
    batch = strayed(1.0, episodes=300)
    assert batch.ends is not None
    going, slope = batch.ends.going, dice.standard_normal(128)
    context = np.where(going[:, None], dice.standard_normal(batch.ends.context.shape), 0.0)
    true = np.where(going, context @ slope + 7.0, 0.0)
    for luck, close in ((0.0, 0.99), (5.0, 0.9)):
        later = np.where(going, true + luck * dice.standard_normal(len(true)), 0.0)
        given = batch._replace(ends=StretchEnds(context, going, later))
        (told,) = bootstrap_returns([rollouts_of(given)])
        value_n = told.trace.rows.value_n
        for part in tried(given):
            x, start, many = true[part.run], part.seen.start, np.diff(part.seen.start)
            about = x - np.repeat(np.add.reduceat(x, start[:-1]) / many, many)
            assert np.corrcoef(value_n[part.run], about)[0, 1] > close


@pytest.mark.parametrize(("name", "left"), [("expedition", 0.9), ("crew", 1.0)])
def test_what_reads_stretches_that_are_over_fades(name: str, left: float) -> None:
    net = Net(training(name, 0, 0, 0))
    w = net.initial(0)
    before, half = w["pool"].copy(), 2 * net.shape.item
    net.fade(w, w, 0.01)
    np.testing.assert_allclose(w["pool"][:half], left * before[:half], rtol=1e-6)
    assert np.array_equal(w["pool"][half:], before[half:])
