"""R3: role tables by hand, and those of published methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acting import NAN, act, lawful, near, nothing

from podium.rewards import BadReward, score
from podium.rewards.roles import of_role, one, role_score
from podium.trace.columns import Trace


def team(main_format: float = 1.0, outcome: float = 1.0) -> Trace:
    """A main agent, two sub-agents of which the second writes badly, and a tool."""
    return act(
        {"is": "decide m main", "r": {"format": main_format, "role": 0.5}},
        {"is": "call s sub", "after": [0], "r": {"format": 1.0, "expert": 0.6, "role": 1.0}},
        {"is": "result ls", "after": [1]},
        {"is": "return t>m sub", "after": [0], "r": {"format": 0.0, "expert": 0.9, "role": 2.0}},
        {"is": "aggregate m main", "after": [1, 3], "r": {"role": 0.25}},
        reward_n={"team": np.array([outcome]), "format": np.array([1.0])},
    )


def test_a_role_gets_what_its_events_earn() -> None:
    near(role_score(team()), [0.75, 3])  # main: 0.5 + 0.25; sub: 1 + 2


def test_only_those_who_play_the_role_are_paid() -> None:
    near(score(team(), "for_role(outcome, 'sub')"), [0, 1, 0, 1])  # m, s, the tool, t
    near(score(team(), "for_role(role_score('role'), 'main')"), [0.75, 0])
    near(score(team(), "for_role(outcome, 'nobody')"), [0, 0, 0, 0])


def test_a_worker_without_a_role_is_not_known() -> None:
    near(
        score(act("message a", "result ls", reward_n={"team": np.array([1.0])}), "for_role(outcome, 'main')"),
        [NAN, 0],
    )


def test_the_mean_over_a_role() -> None:
    near(of_role(team(), "sub", "format"), [0.5])
    near(of_role(team(), "sub", "expert"), [0.75])
    near(of_role(team(), "critic", "format"), [NAN])
    near(of_role(team(), "critic", "format", if_none=1.0), [1])
    near(of_role(team(), "main", "expert"), [NAN])  # it plays, and nobody said how well


def test_m_grpo() -> None:
    # main: 0.1 + 0.9; first sub 0.1 + 0.4 + 0.5 * 0.6 = 0.8; second sub: bad format, 0; the tool: 0
    # turns: m, s, s with the result that the tool recorded, t, m
    near(score(team(), "m_grpo"), [1, 0.8, 0.8, 0, 1])
    near(score(team(outcome=0.0), "m_grpo"), [0.1, 0.4, 0.4, 0, 0.1])  # 0.1 + 0.5 * 0.6
    near(score(team(main_format=0.0), "m_grpo"), [0, 0.8, 0.8, 0, 0])


def test_a_turn_that_opens_with_a_tools_result_is_played_by_the_caller() -> None:
    """As docs/recording.md has it: the result is recorded under the name of the tool."""
    trace = act(
        {"is": "call w solver", "r": {"correct": 0.0}},
        {"is": "result ls", "after": [(0, "return")]},
        {"is": "message w solver", "after": [1], "r": {"correct": 1.0}},
        {"is": "message v verifier", "after": [2]},
        reward_n={"team": np.array([0.5])},
    )
    near(score(trace, "for_role(step('correct'), 'solver')"), [0, 1, 0])
    near(score(trace, "at(for_role(outcome, 'solver'), 'turn')"), [0.5, 0.5, 0])
    near(score(trace, "for_role(at(outcome, 'turn'), 'solver')"), [0.5, 0.5, 0])
    near(score(trace, "for_role(outcome, 'solver')"), [0.5, 0, 0])  # w, the tool, v: a tool plays no role


def test_what_a_tool_states_is_not_the_callers_role() -> None:
    trace = act(
        {"is": "call w solver"},
        {"is": "result ls tool", "after": [(0, "return")]},
        {"is": "message w", "after": [1]},
        reward_n={"team": np.array([0.5])},
    )
    near(score(trace, "for_role(at(outcome, 'turn'), 'solver')"), [0.5, 0.5])
    near(score(trace, "for_role(at(outcome, 'turn'), 'tool')"), [0, 0])


def test_an_invocation_is_paid_for_itself() -> None:
    trace = act(
        "decide m main",
        {"is": "call s sub", "after": [(0, "message")], "r": {"expert": 0.25}},
        {"is": "result ls", "after": [(1, "return")]},
        {"is": "return s>m sub", "after": [2], "r": {"expert": 0.5}},
        {"is": "decide m main", "after": [(3, "return")]},
        {"is": "return s>m sub", "after": [(4, "message")], "r": {"expert": 1.0}},
        {"is": "message m main", "after": [(5, "return")]},
        reward_n={"team": np.array([1.0])},
    )
    # turns: m, s calls, s with the result, m, s again, m
    near(score(trace, "invoked('expert')"), [NAN, 0.75, 0.75, NAN, 1, NAN])
    near(score(trace, "individual('expert')"), [NAN, 1.75, NAN])


def test_matpo() -> None:
    reward = "matpo('main', 'sub')"
    near(score(team(), reward), [0.9 + 0.1 * 0.5 * (1 + 0.5)])
    near(score(team(outcome=0.0), reward), [0.075])


def test_wideseek() -> None:
    trace = act(
        {"is": "call a", "tool": "access", "tokens_out": 4000},
        {"is": "message a", "tokens_out": 10},
        reward_n={"team": np.array([0.4]), "format": np.array([1.0])},
    )
    near(score(trace, "wideseek"), [0.4 + 0.1 + 0.05 - 0.1 * 0.5])  # (4000 - 3000) / 2000 = 0.5
    near(score(trace, "wideseek('search')"), [0.4 + 0.1 - 0.05])


def test_mae_pays_hard_questions_only_where_they_are_good() -> None:
    def evolve(judged: float) -> Trace:
        return act(
            {"is": "message p proposer", "r": {"score": judged, "format": 1.0}},
            {"is": "message s solver", "after": [0], "r": {"score": 0.25, "format": 1.0}},
            {"is": "message t solver", "after": [0], "r": {"score": 0.75, "format": 0.0}},
            {"is": "message j judge", "after": [1, 2], "r": {"format": 1.0}},
        )

    # good: (0.9 + (1 - 0.5) + 1) / 3 = 0.8; solvers (0.25 + 1) / 2, 0.75 / 2; judge 1
    near(score(evolve(0.9), "mae"), [0.8, 0.625, 0.375, 1])
    near(score(evolve(0.6), "mae")[0], 1.6 / 3)  # not good enough: (0.6 + 1) / 3


def test_an_antisymmetric_table_is_magics() -> None:
    trace = act({"is": "message x attacker"}, {"is": "message y defender", "after": [0], "r": {"safe": 1.5}})
    paid = score(
        trace,
        "for_role(of_role('defender', 'safe'), 'defender') - for_role(of_role('defender', 'safe'), 'attacker')",
    )
    near(paid, [-1.5, 1.5])


def test_a_role_is_a_name() -> None:
    with pytest.raises(BadReward, match="needs the name of a role, got 3"):
        score(team(), "for_role(outcome, 3)")


def test_of_nothing_nothing_is_known() -> None:
    for trace in nothing():
        assert len(role_score(trace)) == 0
        near(of_role(trace), [NAN] * len(trace))
        near(one(trace), [NAN] * len(trace))
        assert len(score(trace, "m_grpo")) == 0


@pytest.mark.parametrize(
    ("name", "options"), [("role_score", {}), ("of_role", {}), ("of_role", {"if_none": 0.5}), ("one", {})]
)
def test_the_laws_hold_where_everything_is_recorded(name: str, options: dict[str, Any]) -> None:
    lawful(name, **options)
