"""Credit of a decision with the help of decisions like it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, choose, decides, near, paid, run, runs

from podium.credit import BadCredit
from podium.trace.columns import Trace, concat

STEP = 'pooled_prefix(baseline="mean")'


def place(name: str, x: list[float], y: list[float], batch: int = 0) -> list[Trace]:
    first = run(decides("x", "xy"), team=x[0], name=name, batch=batch)
    more = [("x", r) for r in x[1:]] + [("y", r) for r in y]
    return [
        first,
        *(choose(o, at=0, reward=r, parent=name, name=f"{name}{i}", batch=batch) for i, (o, r) in enumerate(more)),
    ]


def test_by_hand() -> None:
    trace = runs(*place("p", [1.0, 0.0], [0.0, 0.0]), *place("q", [1.0, 1.0], [0.0, 1.0]))
    # x against the mean of x and y: p: .5 - .25 = .25; q: 1 - .75 = .25. Both alike: m = .25, nothing between them beyond chance
    near(paid(trace, STEP, "orchestrator"), [0.25, 0.25, -0.25, -0.25, 0.25, 0.25, -0.25, -0.25])
    apart = runs(*place("p", [1.0, 0.0], [0.0, 0.0]), *place("q", [1.0, 1.0], [0.0, 0.0]))
    # p .25, q .5: m = .375. Squares: p x .5, freedom 2; q 0, freedom 2; together .5 / 4 = .125.
    # per run p (.5 + 4 x .125) / 6 = 1/6, q .5 / 6 = 1/12; variance of a contrast (1/4 + 1/4) v / 2: 1/24 and 1/48
    # between: (.125² - s²/2) a context is below 0: drawn all the way
    near(paid(apart, STEP, "orchestrator"), [0.375, 0.375, -0.375, -0.375] * 2)


def test_what_differs_beyond_chance_stays() -> None:
    far = runs(*place("p", [1.0, 0.9], [0.0, 0.1]), *place("q", [0.0, 0.1], [1.0, 0.9]))
    # p .45, q -.45: m = 0. Squares .01 a context, freedom 2 each: v = .005 in both, s² = .005 / 4 = .00125
    # between: 2 (.2025 - .000625) / (2 x .5) = .40375 for x and the same for y: kept .40375 / (.40375 + .00125)
    keep = 0.40375 / 0.405
    near(paid(far, STEP, "orchestrator"), np.array([0.45, 0.45, -0.45, -0.45, -0.45, -0.45, 0.45, 0.45]) * keep)


def test_one_context_alone_is_same_prefix() -> None:
    trace = runs(*place("p", [1.0, 0.25], [0.5]))
    near(paid(trace, STEP, "orchestrator"), paid(trace, 'same_prefix("mean", same="option")', "orchestrator"))


def test_against_the_policy_it_weighs_by_it() -> None:
    trace = runs(run(decides("x", "xy", pi=[0.75, 0.25]), team=1.0), choose("y", at=0, reward=0.0))
    near(paid(trace, "pooled_prefix()", "orchestrator"), [0.25, -0.75])
    with pytest.raises(BadCredit, match="policy or mean"):
        paid(trace, 'pooled_prefix(baseline="loo")', "orchestrator")


def test_what_nobody_tried_otherwise_gets_nothing() -> None:
    trace = runs(run(decides("x"), team=1.0))
    near(paid(trace, STEP, "orchestrator"), [NAN])
    near(paid(trace, 'pooled_prefix(baseline="mean", alone="zero")', "orchestrator"), [NAN])  # no run branched
    zero = 'pooled_prefix(baseline="mean", alone="zero")'
    forest = runs(run(decides("x"), decides("x"), team=1.0), choose("y", at=0, reward=0.0))
    assert paid(forest, zero, "orchestrator")[1] == 0.0


def test_batches_do_not_meet() -> None:
    one = runs(*place("p", [1.0, 0.0], [0.0, 0.0]), *place("q", [1.0, 1.0], [0.0, 0.0]))
    two = runs(*place("p", [0.0, 0.0], [0.0, 1.0], 1), *place("q", [1.0, 1.0], [0.0, 0.0], 1))
    apart = np.concatenate([paid(t, STEP, "orchestrator") for t in (one, two)])
    near(paid(concat([one, two]), STEP, "orchestrator"), apart)


def test_twice_the_reward_is_twice_the_credit() -> None:
    trace = runs(*place("p", [1.0, 0.5], [0.0, 0.25]), *place("q", [0.25, 1.0], [0.75, 0.0]))
    twice = replace(trace, reward_n={"team": 2 * trace.reward_n["team"]})
    near(paid(twice, STEP, "orchestrator"), 2 * paid(trace, STEP, "orchestrator"))
