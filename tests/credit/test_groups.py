"""How often a unit counts, and who is alone."""

from __future__ import annotations

import numpy as np
import pytest
from grown import NAN, near, on, paid, run, runs

from podium.credit import BadCredit, Credit
from podium.credit.groups import counts, moments
from podium.credit.keys import groups
from podium.rewards import score
from podium.trace.columns import Trace


def turns(*of_runs: tuple[float, ...]) -> Trace:
    """ann alone speaks, and hears bob in between, who is paid nothing."""
    parts = []
    for rewards in of_runs:
        events = [e for r in rewards for e in (on("say ann", step=r), on("say bob", step=NAN))]
        parts.append(run(*events[:-1]))
    return runs(*parts)


def credit(trace: Trace) -> Credit:
    return Credit(trace, "turn", score(trace, "step", "turn"))


def test_by_row_by_rollout_by_unique_value() -> None:
    # runs: (1, 1, 1) and (0); rows: mean 3/4; rollouts: 1/2; unique values 1 and 0: 1/2
    trace = turns((1.0, 1.0, 1.0), (0.0,))
    ann = ~np.isnan(credit(trace).value)
    near(paid(trace, "center(count='row')", "turn", "step")[ann], [0.25, 0.25, 0.25, -0.75])
    near(paid(trace, "center(count='rollout')", "turn", "step")[ann], [0.5, 0.5, 0.5, -0.5])
    near(paid(trace, "center(count='unique')", "turn", "step")[ann], [0.5, 0.5, 0.5, -0.5])
    # (1, 0, 0) and (1): rows 1/2; rollouts (1/3 + 1) / 2 = 2/3
    other = turns((1.0, 0.0, 0.0), (1.0,))
    near(paid(other, "center(count='rollout')", "turn", "step")[ann], [1 / 3, -2 / 3, -2 / 3, 1 / 3])


def test_the_share_of_a_unit() -> None:
    trace = turns((1.0, 1.0), (0.0,))
    made = credit(trace)
    group = groups(made, "task")
    near(counts(made, group, "row"), [1, 0, 1, 1])
    near(counts(made, group, "rollout"), [0.5, 0, 0.5, 1])
    near(counts(made, group, "unique"), [0.5, 0, 0.5, 1])
    with pytest.raises(BadCredit, match="row, rollout or unique"):
        counts(made, group, "agent")  # type: ignore[arg-type]


def test_counted_by_rollout_a_run_with_itself_is_alone_and_by_row_it_is_not() -> None:
    trace = turns((1.0, 0.0))
    near(paid(trace, "center()", "turn", "step"), [0.5, NAN, -0.5])
    near(paid(trace, "center(count='rollout')", "turn", "step"), [NAN, NAN, NAN])


def test_equal_values_are_not_alone() -> None:
    trace = turns((1.0, 1.0))
    near(paid(trace, "center(count='unique')", "turn", "step"), [0, NAN, 0])
    near(paid(trace, "zscore(count='unique')", "turn", "step"), [0, NAN, 0])


def test_mean_and_variance_of_a_group() -> None:
    at = moments(credit(turns((1.0, 3.0), (2.0,))), "task", "row", 1)
    near(at.mean[at.group][[0, 2, 3]], [2, 2, 2])
    near(at.variance[at.group][[0, 2, 3]], [1, 1, 1])  # (1 + 1 + 0) / 2
    near(moments(credit(turns((1.0, 3.0), (2.0,))), "task").variance[0], 2 / 3)
    assert not at.alone[0]
    assert at.alone[-1]  # of those in no group


def test_a_unit_without_the_key_is_in_no_group() -> None:
    trace = runs(run("say a solver", "say b", team=1.0), run("say a solver", "say b", team=0.0))
    near(paid(trace, "to('turn') >> center(by=('task', 'role'))"), [0.5, NAN, -0.5, NAN])
    near(
        paid(trace, "to('turn') >> center(by=('task', 'role'), alone='zero')"), [0.5, NAN, -0.5, NAN]
    )  # not alone: not compared
    near(paid(trace, "to('turn') >> zscore(by=('task', 'role'), alone='raw')")[[1, 3]], [NAN, NAN])


def test_of_nothing() -> None:
    at = moments(credit(turns((1.0,))[:0]), "task")
    assert len(at.group) == 0
