"""Balancing by spread, and shares of the variance, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from podium.expression import spell
from podium.rewards import BadReward, Now, score
from podium.rewards.balance import balanced, shares
from podium.trace.columns import Text, Trace


def runs(**channels: list[float]) -> Trace:
    n = len(next(iter(channels.values())))
    return Trace.of(
        trace_id_n=Text.of(f"run {i}" for i in range(n)), reward_n={k: np.array(v) for k, v in channels.items()}
    )


# team varies by 1, big by 10, small by .1; big and team do not vary together
FOUR = runs(team=[1, -1, 1, -1], big=[10, 10, -10, -10], small=[0.1, -0.1, 0.1, -0.1], flat=[2, 2, 2, 2])


def test_a_weight_comes_to_mean_a_share_of_the_anchors_spread() -> None:
    got = balanced("outcome + 0.5 * outcome('big') - 0.25 * outcome('small')", FOUR)
    # .5 x 1/10 and .25 x 1/.1
    assert spell(got) == "outcome + 0.05 * outcome('big') - 2.5 * outcome('small')"
    assert score(FOUR, got).std() == pytest.approx(
        np.std([1 + 0.5 - 0.25, -0.75 + 0.5, 0.75 - 0.5, -1 - 0.5 + 0.25])
    )


def test_together_they_never_drown_the_anchor() -> None:
    got = balanced("2 * outcome + 3 * outcome('big') + outcome('small')", FOUR)
    # the anchor varies by 2; 3 + 1 = 4 times that is 4 times too much: 3/4 x 2/10 and 1/4 x 2/.1
    assert spell(got) == "2.0 * outcome + 0.15 * outcome('big') + 5.0 * outcome('small')"
    half = balanced("outcome + outcome('big')", FOUR, most=0.5)
    assert spell(half) == "outcome + 0.05 * outcome('big')"
    rng = np.random.default_rng(0)
    dice = runs(team=rng.normal(size=50).tolist(), a=rng.exponential(9, 50).tolist(), b=rng.random(50).tolist())
    tree = balanced("outcome + 5 * outcome('a') - 7 * outcome('b')", dice)
    others = score(dice, tree) - score(dice, "outcome")
    assert others.std() <= score(dice, "outcome").std() * (1 + 1e-9)


def test_what_does_not_vary_keeps_its_weight() -> None:
    assert spell(balanced("outcome + 0.5 * outcome('flat')", FOUR)) == "outcome + 0.5 * outcome('flat')"
    assert spell(balanced("outcome", FOUR)) == "outcome"
    with pytest.raises(BadReward, match=r"outcome\('flat'\) does not vary over these 4 runs"):
        balanced("outcome('flat') + outcome", FOUR)
    with pytest.raises(BadReward, match="does not vary over these 0 runs"):
        balanced("outcome + outcome('big')", FOUR[:0])


def test_balancing_again_changes_nothing_but_the_meaning_of_the_weights() -> None:
    once = balanced("outcome + outcome('big')", FOUR)
    assert score(FOUR, once).tolist() == [2.0, 0.0, 0.0, -2.0]


def test_shares_add_up_to_one() -> None:
    got = shares("outcome + outcome('big') - 5 * outcome('small')", FOUR)
    # the sum is 10.5, 9.5, -9.5, -10.5; variance 100.25. Cov with it: team .5, big 100, small -.5 x -.5 ... = -.25
    assert [s.part for s in got] == ["outcome", "outcome('big')", "-5.0 * outcome('small')"]
    assert [s.spread for s in got] == pytest.approx([1.0, 10.0, 0.5])
    assert [s.share for s in got] == pytest.approx([0.5 / 100.25, 100 / 100.25, -0.25 / 100.25])
    assert sum(s.share for s in got) == pytest.approx(1.0)
    assert {s.n for s in got} == {4}


def test_shares_of_parts_that_move_alone_are_their_variances() -> None:
    got = shares("outcome + outcome('big')", FOUR)
    assert [s.share for s in got] == pytest.approx([1 / 101, 100 / 101])


def test_only_runs_with_every_part_count() -> None:
    trace = runs(team=[1, 0, 1, 0], judge=[1, np.nan, 0, 0])
    got = shares("outcome + outcome('judge')", trace)
    assert got[0].n == 3
    none = shares("outcome + outcome('nobody')", trace)
    assert none[0].n == 0
    assert np.isnan(none[0].share)
    assert np.isnan(shares("outcome('flat')", FOUR)[0].share)


def test_schedules_are_seen_where_training_is() -> None:
    late = shares("outcome + anneal(outcome('big'))", FOUR, Now(1.0))
    assert [s.share for s in late] == pytest.approx([1.0, 0.0])
