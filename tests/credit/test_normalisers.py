"""How large credit is."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from grown import NAN, near, paid, run, runs

from podium.credit import BadCredit
from podium.trace.columns import Trace

Z = NormalDist().inv_cdf


def scored(*rewards: float, tasks: str = "qqqqqqqqqq") -> Trace:
    return runs(*(run("say a", task=q, team=r) for q, r in zip(tasks, rewards, strict=False)))


def test_whitening() -> None:
    # mean 2, variance (1 + 0 + 1) / 2 = 1
    near(paid(scored(1, 2, 3, tasks="qpq"), "whiten(eps=0.0)"), [-1, 0, 1])
    near(paid(scored(1, 2, 3), "whiten(eps=0.0, shift=False)"), [1, 2, 3])
    near(paid(scored(1, 2, 3), "whiten(eps=3.0)"), [-0.5, 0, 0.5])


def test_whitening_is_a_zscore_with_the_eps_inside() -> None:
    trace = scored(*np.random.default_rng(0).random(9))
    near(paid(trace, "whiten(by='task', eps=0.0)"), paid(trace, "zscore(eps=0.0)"))


def test_whitening_stays_in_its_batch() -> None:
    trace = replace(scored(1, 2, 10, 30, NAN), batch_n=np.array([0, 0, 1, 1, 1]))
    near(paid(trace, "whiten(eps=0.0)"), np.array([-1, 1, -1, 1, NAN]) / 2**0.5)


def test_ranks_through_the_inverse_normal() -> None:
    # ranks 3, 1, 2 of 3: quantiles 5/6, 1/6, 1/2, which are centred already
    near(paid(scored(7, -1, 0), "rank_gaussian()"), [Z(5 / 6), Z(1 / 6), 0])
    # equal values share ranks 1 and 2: 1.5, 1.5, 3 -> quantiles 1/3, 1/3, 5/6
    x = np.array([Z(1 / 3), Z(1 / 3), Z(5 / 6)])
    near(paid(scored(0, 0, 1), "rank_gaussian()"), x - x.mean())


def test_only_the_order_counts() -> None:
    trace = scored(*np.random.default_rng(1).normal(size=8))
    near(
        paid(trace, "rank_gaussian()"),
        paid(replace(trace, reward_n={"team": np.exp(trace.reward_n["team"])}), "rank_gaussian()"),
    )


def test_soft_ranks() -> None:
    def logistic(x: float) -> float:
        return float(1 / (1 + np.exp(-x)))

    # of 1 and 0 at τ = 0.5: 0.5 + 0.5 + σ(2) and 0.5 + 0.5 + σ(-2)
    q = np.array([(0.5 + logistic(2)) / 2, (0.5 + logistic(-2)) / 2])
    x = np.array([Z(q[0]), Z(q[1])])
    near(paid(scored(1, 0), "rank_gaussian(tau=0.5)"), x - x.mean())


def test_soft_ranks_harden() -> None:
    dice = np.random.default_rng(2)
    trace = scored(*dice.permutation(10).astype(float), tasks="qpqqpqqpqq")
    near(paid(trace, "rank_gaussian(tau=0.01)"), paid(trace, "rank_gaussian()"))


def test_soft_ranks_of_many_groups_are_those_of_each() -> None:
    dice = np.random.default_rng(3)
    sizes = (1, 2, 3, 3, 5, 2)
    values = [dice.integers(0, 3, n) / 2.0 for n in sizes]
    trace = runs(*(run("say a", task=str(g), team=float(v)) for g, group in enumerate(values) for v in group))
    want = []
    for v in values:
        rank = 0.5 + (1 / (1 + np.exp(-(v[:, None] - v) / 0.8))).sum(axis=1)
        x = np.array([Z(q) for q in (rank - 0.5) / len(v)])
        want += (x - x.mean()).tolist() if len(v) > 1 else [NAN]
    near(paid(trace, "rank_gaussian(tau=0.8)"), want)


def test_threshold_and_clip() -> None:
    near(paid(scored(0.5, 0.51, -3, NAN), "threshold()"), [0, 1, 0, NAN])
    near(paid(scored(0.5, 0.51, -3, NAN), "threshold(0.0, -1.0, 2.0)"), [2, 2, -1, NAN])
    near(paid(scored(0.5, 7, -3, NAN), "clip(0.0, 1.0)"), [0.5, 1, 0, NAN])
    with pytest.raises(BadCredit, match="low <= high"):
        paid(scored(1), "clip(1.0, 0.0)")
    with pytest.raises(BadCredit, match="above 0"):
        paid(scored(1, 0), "rank_gaussian(tau=0.0)")


@pytest.mark.parametrize("step", ["whiten()", "rank_gaussian()", "rank_gaussian(tau=0.5)"])
def test_edges(step: str) -> None:
    near(paid(scored(3.0), step), [NAN])  # alone
    near(paid(scored(2, 2), step), [0, 0])
    assert np.isnan(paid(scored(1, NAN, 0), step)[1])
    near(paid(scored(1, NAN, 0), step)[::2], paid(scored(1, 0), step))
    assert len(paid(scored(1)[:0], step)) == 0
    assert np.isnan(paid(scored(NAN, NAN), step)).all()


def test_who_is_alone_may_be_told_otherwise() -> None:
    near(paid(scored(3.0), "rank_gaussian(alone='zero')"), [0])
