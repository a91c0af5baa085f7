"""R5: validity and the pay of calls, by hand; and that spamming pays nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acting import NAN, act, lawful, near, nothing

from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.rewards import score
from podium.rewards.tools import invalid_calls, invalid_turns, tool_validity, used_tool, useful_calls
from podium.trace.columns import Trace


def calls() -> Trace:
    return act(
        {"is": "call a", "valid": 1, "tool": "ls"},
        {"is": "call a", "valid": 0, "tool": "cat"},
        {"is": "call b", "after": [1], "tool": "ls"},
        {"is": "result ls", "after": [2], "valid": 0},
        {"is": "call b", "after": [3]},
        {"is": "message c", "after": [4]},
        reward_n={"team": np.array([1.0])},
    )


def test_invalid_calls_are_counted_and_silence_is_not_validity() -> None:
    near(invalid_calls(calls()), [0, 1, 1, NAN])  # the third by its result
    near(invalid_calls(calls(), unstated=0.0), [0, 1, 1, 0])
    near(score(calls(), "invalid_calls(unstated=0.0)", "agent"), [1, 1, 0, 0])  # a, b, the tool ls, c


def test_a_turn_is_fined_once() -> None:
    near(invalid_turns(calls()), [1, 1, 1, 0])  # b's second turn opens with the invalid result
    twice = act({"is": "call a", "valid": 0}, {"is": "call a", "valid": 0}, reward_n={"team": np.array([1.0])})
    near(score(twice, "outcome - 0.1 * invalid_turns"), [0.9])  # Dr. MAS
    near(invalid_turns(act("call a")), [NAN])
    near(invalid_turns(act("call a"), unstated=0.0), [0])
    near(invalid_turns(act({"is": "message a", "valid": 0})), [1])


def test_the_share_of_valid_calls() -> None:
    near(tool_validity(calls()), [0.5, 0, NAN, NAN])  # b: one invalid, one not stated
    near(tool_validity(calls(), unstated=0.0), [0.5, 0.5, NAN, NAN])


def test_using_a_tool_once_is_as_good_as_often() -> None:
    near(used_tool(calls()), [1])
    near(used_tool(calls(), "ls"), [1])
    near(used_tool(calls(), "cat"), [NAN])  # that call was invalid, and one call does not name its tool
    near(used_tool(act({"is": "call a", "tool": "ls"}), "cat"), [0])
    near(used_tool(act("message a")), [0])


def research(a: int = 1, b: int = 1, outcome: float = 1.0, same: bool = False, **more: Any) -> Trace:
    """a and b make so many calls each, whose results they return to the lead, who answers."""
    events: list[dict[str, Any]] = [{"is": "decide lead"}]
    returns = []
    for who, many in (("a", a), ("b", b)):
        results = []
        for i in range(many):
            events.append(
                {
                    "is": f"call {who}",
                    "tool": "search",
                    "content_ref": "same" if same else f"{who}{i}",
                    "after": [0],
                    **more,
                }
            )
            events.append({"is": "result web", "after": [(len(events) - 1, "tool_dependency")]})
            results.append(len(events) - 1)
        events.append({"is": f"return {who}>lead", "after": [*results, 0]})
        returns.append((len(events) - 1, "return"))
    events.append({"is": "aggregate lead", "after": returns})
    return act(*events, reward_n={"team": np.array([outcome])})


def paid(trace: Trace, unit: str) -> Any:
    return score(trace, "useful_calls", unit)


def test_the_calls_that_the_answer_rests_on_share_the_outcome() -> None:
    near(useful_calls(research(1, 2)), [1 / 2, 1 / 4, 1 / 4])  # two agents, b's half in two
    near(useful_calls(research(1, 2, outcome=0.0)), [0, 0, 0])
    near(useful_calls(research(1, 2, outcome=-1.0)), [0, 0, 0])
    near(useful_calls(research(1, 1, outcome=NAN)), [NAN, NAN])


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("spam", [2, 10, 200])
def test_spamming_pays_nothing_more(spam: int, same: bool) -> None:
    """However many calls a makes, new ones or the same one again: neither a nor the team gets more, and b does not get less."""
    honest, spammer = research(1, 3), research(spam, 3, same=same)
    near(paid(spammer, "agent"), paid(honest, "agent"))
    near(paid(spammer, "team"), [1])


def test_spamming_costs_where_calls_have_a_price() -> None:
    price = "useful_calls - 0.01 * at(spent('tool_calls'), 'team')"
    assert score(research(10, 1), price, "team")[0] < score(research(1, 1), price, "team")[0]


def test_spamming_with_what_leads_nowhere_or_fails_pays_nothing() -> None:
    aside = act(
        {"is": "decide lead"},
        {"is": "call a", "after": [0]},
        {"is": "aggregate lead"},
        reward_n={"team": np.array([1.0])},
    )
    near(useful_calls(aside), [0])
    near(useful_calls(research(2, 1, valid=0)), [0, 0, 0])


def test_a_repeated_call_is_not_useful_again() -> None:
    near(useful_calls(research(3, 1, same=True)), [1 / 2, 0, 0, 1 / 2])


def test_calls_whose_content_is_not_recorded_are_not_repeats() -> None:
    near(useful_calls(research(2, 1, content_ref=None)), [1 / 4, 1 / 4, 1 / 2])
    one = research(2, 1, content_ref="first of its kind")
    near(useful_calls(one), [1 / 2, 0, 1 / 2])


@pytest.mark.parametrize("name", ["costly_search", "expedition", "planted"])
def test_in_the_worlds_a_run_with_calls_pays_its_outcome_and_no_more(name: str) -> None:
    world = make(name)
    trace = world.trace(play(world, random_policy(), seeds(3, 40), log=True).state)
    earned, called = np.maximum(trace.reward_n["team"], 0.0), used_tool(trace) > 0
    assert called.any()
    near(paid(trace, "team")[called], earned[called])
    near(paid(trace, "team")[~called], 0.0)


def test_of_nothing_nothing_is_known() -> None:
    for trace in nothing():
        for what in (invalid_calls, invalid_turns, tool_validity, useful_calls):
            assert len(what(trace)) == 0
        near(used_tool(trace), [NAN] * len(trace))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("invalid_calls", {}),
        ("invalid_turns", {}),
        ("tool_validity", {}),
        ("used_tool", {}),
        ("used_tool", {"tool": "cat"}),
        ("useful_calls", {}),
    ],
)
def test_the_laws_hold_where_everything_is_recorded(name: str, options: dict[str, Any]) -> None:
    lawful(name, **options)
