"""R1: the shared outcome, a threshold, pass@k and the user's prices, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acting import NAN, act, lawful, near, nothing

from podium.rewards import BadReward, score
from podium.rewards.outcome import outcome, pass_at, solved, spent
from podium.trace.columns import Trace, concat


def runs() -> Trace:
    a = act(
        {"is": "message a", "tokens_in": 10, "tokens_out": 2},
        {"is": "call a", "tokens_in": 3, "tokens_out": 5, "end": 4.0},
    )
    b = act("message a", name="b")
    one, other = {"reward_n": {"team": [0.75]}, "cost_n": {"tokens": [100.0]}}, {"reward_n": {"team": [NAN]}}
    return concat([a, _with(a, one), _with(b, other)])


def _with(trace: Trace, columns: dict[str, dict[str, list[float]]]) -> Trace:
    from dataclasses import replace

    return replace(trace, **{k: {c: np.array(v) for c, v in some.items()} for k, some in columns.items()})


def test_the_outcome_is_what_the_trace_states() -> None:
    near(outcome(runs()), [NAN, 0.75, NAN])
    near(outcome(runs(), "other"), [NAN, NAN, NAN])


def test_a_threshold_keeps_what_is_not_known() -> None:
    near(solved(runs()), [NAN, 0, NAN])  # 0.75 < 1
    near(solved(runs(), least=0.75), [NAN, 1, NAN])


def test_a_stated_cost_counts_before_the_events() -> None:
    near(spent(runs()), [20, 100, NAN])  # (10 + 2) + (3 + 5)
    near(spent(runs(), "tool_calls"), [1, 1, 0])
    near(spent(runs(), "messages"), [1, 1, 1])
    near(spent(runs(), "wall_clock_s"), [4, 4, NAN])  # from 0 to the end of the call; the last run states no end
    near(spent(runs(), "tokens_out"), [7, 7, NAN])


def test_half_a_token_count_is_none() -> None:
    near(
        spent(act({"is": "message a", "tokens_in": 10, "tokens_out": 1}, {"is": "message a", "tokens_out": 1})),
        [NAN],
    )


def test_the_outcome_less_the_users_prices() -> None:
    trace = _with(act("call a", "call a"), {"reward_n": {"team": [1.0]}, "cost_n": {"tokens": [2000.0]}})
    near(score(trace, "outcome - 1e-4 * spent('tokens') - 0.05 * spent('tool_calls')"), [0.7])  # 1 - 0.2 - 0.1


def test_an_unknown_cost_is_refused() -> None:
    with pytest.raises(BadReward, match="no cost called 'gold'; there are tokens, "):
        spent(runs(), "gold")


def test_pass_at_k() -> None:
    # 4 runs, 2 solved: pass@1 = 1/2, pass@2 = 1 - C(2,2)/C(4,2) = 5/6, pass@3 = 1; a second group of one run
    passed, group = np.array([1.0, 0.0, 1.0, 0.0, 0.0]), np.array([0, 0, 0, 0, 1])
    near(pass_at(passed, group, 1), [0.5, 0])
    near(pass_at(passed, group, 2), [5 / 6, NAN])
    near(pass_at(passed, group, 3), [1, NAN])


def test_pass_at_one_is_the_mean() -> None:
    passed = (np.random.default_rng(0).random(50) < 0.3).astype(float)
    near(pass_at(passed, np.zeros(50, int), 1), [passed.mean()])


def test_of_nothing_nothing_is_known() -> None:
    for trace in nothing():
        for what in (outcome, solved, spent):
            near(what(trace), [NAN] * len(trace))
    assert len(pass_at(np.zeros(0), np.zeros(0, int), 1)) == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("outcome", {}),
        ("solved", {}),
        ("spent", {}),
        ("spent", {"what": "wall_clock_s"}),
        ("spent", {"what": "tool_calls"}),
    ],
)
def test_the_laws_hold_where_everything_is_recorded(name: str, options: dict[str, Any]) -> None:
    lawful(name, **options)
