"""Branches that end with a stretch of a task, and what is ahead of them there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from podium.envs.draws import seeds
from podium.envs.expedition import Expedition
from podium.envs.world import make
from podium.learn.ahead import foreseen
from podium.learn.collect import Ahead, Batch, Rows, collect
from podium.learn.params import training
from podium.learn.policy import Net

LEGS = {"legs": 3, "pool": 9, "widest": 4}


def tried(whole: float, episodes: int = 60) -> Batch:
    """Decisions of episodes that all stray, branched.

    Batches of different size are compared below, and a BLAS kernel may round a product of more rows otherwise. Weights are in double
    precision, so that this is of the order of 1e-16 and no draw of an option falls to the other side.
    """
    world = make("expedition", **LEGS)
    net = Net(world)
    w = {name: value.astype(np.float64) for name, value in net.initial(0).items()}
    how: dict[str, Any] = {"share": 9.0, "room": 40_000, "wander": 1.0, "sharp": 10.0, "whole": whole}
    return collect(world, net, w, seeds(0, episodes), **how)


def ahead_of(rows: Rows) -> Ahead:
    assert rows.ahead is not None
    return rows.ahead


def test_a_stretch_and_what_came_after_it_are_what_the_whole_branch_earned(monkeypatch: pytest.MonkeyPatch) -> None:
    stretched = tried(1.0)
    monkeypatch.setattr(Expedition, "stretches", False)
    for part, plain in zip(stretched.rows, tried(1.0).rows, strict=True):
        assert plain.ahead is None
        assert np.array_equal(part.option, plain.option)
        np.testing.assert_allclose(part.earned + ahead_of(part).later, plain.earned, atol=1e-9)


def test_branches_that_end_with_their_stretch_earned_the_same_in_it() -> None:
    whole, some, none = tried(1.0), tried(0.5), tried(0.0)
    assert none.decisions < some.decisions < whole.decisions
    for a, b, c in zip(whole.rows, some.rows, none.rows, strict=True):
        assert np.array_equal(a.earned, b.earned)
        assert np.array_equal(a.earned, c.earned)
        np.testing.assert_allclose(ahead_of(a).context, ahead_of(c).context, rtol=1e-5, atol=1e-6)  # float32
        assert np.array_equal(np.isnan(ahead_of(c).later), ahead_of(c).going)
        looked = ~np.isnan(ahead_of(b).later)
        assert 0 < (looked & ahead_of(b).going).sum() < ahead_of(b).going.sum()
        np.testing.assert_allclose(ahead_of(a).later[looked], ahead_of(b).later[looked])


def test_nothing_is_ahead_of_the_last_leg_and_of_a_stop() -> None:
    stop = next(rows for rows in tried(1.0).rows if rows.seen.kind == "stop")
    stops = stop.option == 0
    assert not ahead_of(stop).going[stops].any()
    assert (ahead_of(stop).later[~ahead_of(stop).going] == 0).all()
    last = np.repeat(stop.seen.facts[:, 0] == 1, np.diff(stop.seen.start))
    assert not ahead_of(stop).going[last].any()


def test_a_task_that_is_paid_as_a_whole_has_no_stretches() -> None:
    world = training("relay", 0, 1, 0)
    net = Net(world)
    batch = collect(world, net, net.initial(0), seeds(0, 40), whole=0.0)
    assert all(rows.ahead is None for rows in batch.rows)
    assert foreseen([batch]) == [batch]


def test_what_is_ahead_is_told_by_the_other_half_of_the_episodes() -> None:
    """What came later is what a line says and luck, which nothing ahead tells of: the line is found, the luck is not paid."""
    dice = np.random.default_rng(0)
    batch = tried(1.0, episodes=300)
    slope = dice.standard_normal(128)

    def made(rows: Rows, luck: float) -> Rows:
        ahead = ahead_of(rows)
        context = np.where(ahead.going[:, None], dice.standard_normal(ahead.context.shape), 0.0)
        later = np.where(ahead.going, context @ slope + 7.0 + luck * dice.standard_normal(len(context)), 0.0)
        return rows._replace(earned=np.zeros(len(later)), ahead=Ahead(context, ahead.going, later))

    for luck, close in ((0.0, 0.99), (5.0, 0.9)):
        given = batch._replace(rows=[made(rows, luck) for rows in batch.rows])
        (told,) = foreseen([given])
        for was, now in zip(given.rows, told.rows, strict=True):
            true = np.where(ahead_of(was).going, ahead_of(was).context @ slope + 7.0, 0.0)
            start, many = was.seen.start, np.diff(was.seen.start)
            about = true - np.repeat(np.add.reduceat(true, start[:-1]) / many, many)
            assert now.ahead is None
            assert np.corrcoef(now.earned, about)[0, 1] > close


def test_credit_that_is_dealt_anew_takes_what_is_ahead_along() -> None:
    rows = tried(1.0).rows[0]
    order = np.random.default_rng(0).permutation(len(rows.earned))
    dealt = rows.dealt(order)
    assert np.array_equal(dealt.earned, rows.earned[order])
    assert np.array_equal(ahead_of(dealt).later, ahead_of(rows).later[order], equal_nan=True)


@pytest.mark.parametrize(("name", "left"), [("expedition", 0.9), ("crew", 1.0)])
def test_what_reads_stretches_that_are_over_fades(name: str, left: float) -> None:
    net = Net(training(name, 0, 0, 0))
    w = net.initial(0)
    before, half = w["pool"].copy(), 2 * net.shape.item
    net.fade(w, w, 0.01)
    np.testing.assert_allclose(w["pool"][:half], left * before[:half], rtol=1e-6)
    assert np.array_equal(w["pool"][half:], before[half:])
