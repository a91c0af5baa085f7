"""What fitted things say."""

from __future__ import annotations

import numpy as np
import pytest
from grown import NAN, decides, near, on, paid, run, runs

from podium.credit import BadCredit
from podium.trace.columns import Trace


def decided(
    chosen: str = "y", q: object = (1.0, 3.0, 2.0), pi: object = (0.5, 0.25, 0.25), team: float = 1.0
) -> Trace:
    labels = {k: list(v) for k, v in (("q", q), ("pi", pi)) if v is not None}  # type: ignore[call-overload]
    return runs(run(decides(chosen, **labels), team=team))


def test_the_option_taken_against_ones_own_policy() -> None:
    # 3 - (0.5 + 0.75 + 0.5)
    near(paid(decided(), "to('orchestrator') >> own_action()"), [1.25])


def test_a_policy_that_is_sure_has_no_advantage() -> None:
    near(paid(decided(pi=(0, 1, 0)), "to('orchestrator') >> own_action()"), [0])


def test_the_advantages_of_all_options_sum_to_0_under_the_policy() -> None:
    pi = np.array([0.5, 0.25, 0.25])
    made = [paid(decided(option), "to('orchestrator') >> own_action()")[0] for option in "xyz"]
    near(pi @ made, 0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadCredit, match=r"row 0: 3 options .x, y, z. but 2 numbers in 'q'"):
        paid(decided(q=(1.0, 2.0)), "to('orchestrator') >> own_action()")
    with pytest.raises(BadCredit, match="needs the label 'q'"):
        paid(decided(q=None), "to('orchestrator') >> own_action()")
    with pytest.raises(BadCredit, match="pays decisions"):
        paid(decided(), "to('turn') >> own_action()")


def test_a_decision_without_labels_or_reward_gets_nothing() -> None:
    trace = runs(run(decides("y", q=[1.0, 3.0, 2.0], pi=[0.5, 0.25, 0.25]), decides("x"), team=1.0))
    near(paid(trace, "to('orchestrator') >> own_action()"), [1.25, NAN])
    near(paid(decided(team=NAN), "to('orchestrator') >> own_action()"), [NAN])


def mixed() -> Trace:
    return runs(
        run(
            on("say a", q=2.0, w=-0.5, step=1.0),
            on("say b", q=-4.0, w=0.25, step=NAN),
            on("say c", q=NAN, w=1.0, step=1.0),
        )
    )


def test_terms_of_a_sum_and_of_a_monotone_mixer() -> None:
    near(paid(mixed(), "vdn('q')", "turn", "step"), [2, NAN, NAN])
    near(paid(mixed(), "qmix('q', 'w')", "turn", "step"), [1, NAN, NAN])  # |w| q
    near(paid(mixed(), "plugged('q')", "turn", "step"), [2, NAN, NAN])


def test_a_mixer_of_slope_1_is_a_sum() -> None:
    trace = runs(run(on("say a", q=2.0, one=1.0, step=1.0), on("say b", q=-4.0, one=-1.0, step=0.0)))
    near(paid(trace, "qmix('q', 'one')", "turn", "step"), paid(trace, "vdn('q')", "turn", "step"))


@pytest.mark.parametrize("step", ["vdn('q')", "qmix('q', 'w')", "plugged('q')"])
def test_edges(step: str) -> None:
    assert len(paid(mixed()[:0], step, "turn", "step")) == 0
    with pytest.raises(BadCredit, match="needs the column"):
        paid(mixed(), step)  # of runs there is none
    assert len(paid(decided()[:0], "to('orchestrator') >> own_action()")) == 0
