"""What comes after what."""

from __future__ import annotations

import numpy as np
import pytest
from grown import NAN, near, on, run, runs

from podium.credit import BadCredit, Credit
from podium.credit.orders import backward, before, mean_at, previous, sum_at, timeline
from podium.graph import units
from podium.trace.columns import Trace


def credit(trace: Trace, unit: str = "turn") -> Credit:
    n = len(units.rows(trace, unit))
    return Credit(trace, unit, np.arange(1.0, n + 1))


def talk(times: tuple[float, ...] = (0, 1, 1, 2), who: str = "abca") -> Trace:
    return runs(
        run(*(on(f"say {w}", t=float(t), stage=i // 2) for i, (w, t) in enumerate(zip(who, times, strict=True))))
    )


def test_what_begins_at_once_shares_a_moment() -> None:
    line = timeline(credit(talk()), "rollout")
    assert line.at.tolist() == [0, 1, 1, 2]
    assert line.last.tolist() == [False, False, True]
    assert line.chain.tolist() == [0, 0, 0]


def test_chains_of_agents_and_rounds() -> None:
    line = timeline(credit(talk()), "agent")
    assert line.at.tolist() == [0, 2, 3, 1]  # a, a, b, c
    assert line.last.tolist() == [False, True, True, True]
    assert timeline(credit(talk()), "round").at.tolist() == [0, 0, 1, 1]


def test_where_a_chain_does_not_say_when_rows_tell() -> None:
    trace = runs(
        run(on("say a", t=5.0), on("say b", t=NAN), on("say c", t=0.0)), run(on("say a", t=1.0), on("say b", t=0.0))
    )
    assert timeline(credit(trace), "rollout").at.tolist() == [0, 1, 2, 4, 3]


def test_units_may_be_left_out() -> None:
    line = timeline(credit(talk()), "rollout", np.array([True, False, False, True]))
    assert line.at.tolist() == [0, -1, -1, 1]


def test_tokens_of_generations_that_began_at_once_go_side_by_side() -> None:
    trace = runs(run(on("say a", tokens=2, t=0.0), on("say b", tokens=3, t=0.0), on("say a", tokens=1, t=1.0)))
    assert timeline(credit(trace, "token"), "rollout").at.tolist() == [0, 1, 0, 1, 2, 3]
    assert timeline(credit(trace, "token"), "agent").at.tolist() == [0, 1, 3, 4, 5, 2]


def test_sums_and_means_at_moments() -> None:
    line = timeline(credit(talk()), "rollout")
    near(sum_at(line, np.array([1.0, 2, 3, 4])), [1, 5, 4])
    near(mean_at(line, np.array([1.0, 2, NAN, 4])), [1, NAN, 4])
    near(before(line, np.array([1.0, 2, 3, 4])), [NAN, 1, 1, 2.5])
    assert previous(line).tolist() == [-1, 0, 0, 1]


def test_backward_is_the_recursion() -> None:
    dice = np.random.default_rng(1)
    for n in (0, 1, 2, 17, 64, 100):
        value, factor = dice.normal(size=n), dice.choice([0.0, 0.5, 0.9, 1.0], n)
        want = value.copy()
        for i in range(n - 2, -1, -1):
            want[i] += factor[i] * want[i + 1]
        near(backward(value, factor), want)


def test_nothing_passes_a_factor_of_0() -> None:
    near(backward(np.array([1.0, NAN, 2.0]), np.array([0.0, 1.0, 1.0])), [1, NAN, 2])


def test_refusals_and_nothing() -> None:
    with pytest.raises(BadCredit, match="along must be one of"):
        timeline(credit(talk()), "sideways")
    line = timeline(credit(talk()[:0]), "rollout")
    assert len(line.at) == len(line.last) == len(line.chain) == 0
    assert len(previous(line)) == len(before(line, np.zeros(0))) == 0
