"""Error amplification, redundancy and utilisation are exact: against a count by hand of plain lists, under every attack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.naive_counts import ATTACKS, COUNTED, Counts, expedition, largest_deviation, planted
from podium.envs.draws import seeds
from podium.envs.expedition import Expedition
from podium.envs.planted import Planted
from podium.envs.world import BadParameter, make
from podium.metrics import METRICS
from podium.registry import facts, find
from podium.trace.columns import Trace


def exact(trace: Trace, wanted: list[Counts]) -> None:
    got = [find("score", name)(trace) for name in COUNTED]
    assert largest_deviation(got, wanted) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("attack", ATTACKS["expedition"], ids=str)
def test_in_expedition(attack: dict[str, Any]) -> None:
    world = make("expedition", **attack)
    assert isinstance(world, Expedition)
    counted = Counts()
    for k in range(20):
        trace, wanted = expedition(world, seeds(k, 20), k)
        exact(trace, wanted)
        counted = Counts(*map(sum, zip(counted, *wanted, strict=True)))
    assert 0 < counted.again < counted.said
    assert 0 < counted.relevant < counted.steps
    assert (counted.first > 20, counted.later > 5) == (bool(attack), bool(attack))


@pytest.mark.parametrize("attack", ATTACKS["planted"], ids=str)
def test_in_planted(attack: dict[str, Any]) -> None:
    counted, teams = Counts(), 0
    for k in range(30):
        try:
            world = make("planted", **{"team": k, "tools": 2, "messages": 2, "fan": 2} | attack)
        except BadParameter:  # its tables would be too large
            continue
        assert isinstance(world, Planted)
        trace, wanted = planted(world, seeds(k, 8), k)
        exact(trace, wanted)
        counted, teams = Counts(*map(sum, zip(counted, *wanted, strict=True))), teams + 1
    assert teams >= 25
    assert 0 < counted.relevant < counted.steps
    assert (counted.first > 20, counted.later > 20) == (bool(attack), bool(attack))


def test_the_comparison_bites() -> None:
    wanted = [Counts(2, 1, 1, 4, 1, 2), Counts()]
    right = [np.array([2.0, np.nan]), np.array([0.25, np.nan]), np.array([0.5, np.nan])]
    assert largest_deviation(right, wanted) == [0.0, 0.0, 0.0]
    assert largest_deviation([right[0], right[1] + 0.25, np.zeros(2)], wanted) == [0.0, 0.25, float("inf")]


def test_without_labels_the_metric_says_what_it_assumed() -> None:
    for metric in METRICS:
        if metric.scores[0] in COUNTED:
            assert "assumes" not in facts("score", metric.scores[0])
            assert all(facts("score", score)["assumes"] for score in metric.scores[1:])
