"""Failure attribution: the trivial guesses are those that are known, and a fit finds a rule that is there."""

from __future__ import annotations

import numpy as np
import pytest
from foreign import here

from bench.attribution import (
    Case,
    accuracy,
    cases,
    features,
    fitted,
    guesses,
    most_frequent,
    out_of_fold,
    random_guess,
)
from podium.exchange.build import Run


def made(speakers: str, blamed: int, question: str = "q") -> Case:
    run = Run(question, system="x")
    for name in speakers:
        run.add("message", name, None)
    trace, _ = run.built("log")
    assert trace is not None
    return Case(question, tuple(trace.agent_e.tolist()), blamed, int(trace.agent_e[blamed]), trace)


def test_guesses_by_hand() -> None:
    case = made("abbca", 2)
    assert most_frequent(case) == (0, 0)
    assert random_guess(case) == (1 / 3, 1 / 5)
    table = features(case)
    assert table.shape[0] == 5
    np.testing.assert_array_equal(table[:, 6], [1, 1, 0, 1, 0])  # the agent's first word
    assert accuracy([case], [(1, 2)])["step"]["share"] == 1.0
    assert accuracy([case, case], [(1, 0), None])["agent"]["share"] == 0.5


def test_a_rule_that_is_there_is_fitted_to_other_questions() -> None:
    rng = np.random.default_rng(0)
    some = []
    for i in range(40):
        speakers = "".join(rng.choice(list("abc"), size=8))
        step = next(i for i in range(1, 8) if i == 7 or speakers[i] == speakers[i + 1])  # who speaks twice running
        some.append(made(speakers, step, str(i)))
    assert (
        np.mean([step == case.blamed for case, (_, step) in zip(some, out_of_fold(some, fitted), strict=True)])
        > 0.5
    )


@here
def test_the_trivial_guesses_on_the_real_runs_are_those_that_are_known() -> None:
    every = cases()
    rows = {name: accuracy(every, answers) for name, answers in guesses(every).items() if "fitted" not in name}
    assert len(every) == 126
    assert rows["most frequent speaker, first word"]["agent"]["share"] == pytest.approx(0.540, abs=5e-4)
    assert rows["constant step 1"]["step"]["share"] == pytest.approx(0.270, abs=5e-4)
    assert np.mean([random_guess(case) for case in every], axis=0) == pytest.approx([0.291, 0.120], abs=1e-3)
