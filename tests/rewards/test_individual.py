"""R2: what each agent, message, call and decision earned on its own account, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from acting import NAN, act, lawful, near, nothing

from podium.rewards import score
from podium.rewards.individual import agent_outcome, called, decided, individual, said


def run() -> object:
    return act(
        {"is": "decide lead>", "r": {"decision": 0.5, "agent": 1.0}},
        {"is": "call a", "after": [0], "r": {"tool": 0.25, "agent": 2.0}},
        {"is": "result ls", "after": [1], "r": {"tool": -1.0}},
        {"is": "message a>lead", "after": [2], "r": {"message": 3.0, "agent": 4.0}},
        {"is": "message b>lead", "after": [3]},
    )


def test_an_agent_gets_the_sum_and_ends_with_the_last() -> None:
    near(individual(run()), [1, 6, NAN, NAN])  # lead, a: 2 + 4, the tool ls, b
    near(agent_outcome(run()), [1, 4, NAN, NAN])


def test_messages_calls_and_decisions() -> None:
    near(said(run()), [3, NAN])
    near(called(run()), [-0.75])  # 0.25 on the call, -1 on its result
    near(decided(run()), [0.5])


def test_a_channel_nobody_states_scores_nobody() -> None:
    near(individual(run(), "gold"), [NAN] * 4)


def test_what_messages_earn_is_what_their_senders_earn() -> None:
    trace = act(
        {"is": "message a", "r": {"message": 1.5}},
        {"is": "message b", "r": {"message": 2.0}},
        {"is": "message a", "r": {"message": 1}},
    )
    near(score(trace, "said", "agent"), individual(trace, "message"))


def test_of_nothing_nothing_is_known() -> None:
    for trace in nothing():
        for what in (individual, agent_outcome, said, called, decided):
            assert len(what(trace)) == 0


@pytest.mark.parametrize(
    ("name", "options"), [("individual", {}), ("agent_outcome", {}), ("said", {}), ("called", {}), ("decided", {})]
)
def test_the_laws_hold_where_everything_is_recorded(name: str, options: dict[str, Any]) -> None:
    lawful(name, **options)
