"""R4: steps, rubrics, changes of correctness, step costs and FoldGRPO's terms, by hand."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
from acting import NAN, act, lawful, near, nothing

from podium.registry import find
from podium.rewards import BadReward, score
from podium.rewards.process import context_overflow, correctness_delta, fold_grpo, overlong, rubric, step, step_cost
from podium.trace.columns import Trace, concat

CONSTANTS = {
    "context_overflow": [32768.0, 0.5],  # Context-Folding
    "overlong": [3000.0, 2000.0],  # WideSeek-R1
    "step_cost": [1.0, 10.0, None],  # Puppeteer
}


def test_a_turn_gets_what_its_events_earn() -> None:
    trace = act(
        {"is": "decide a", "r": {"step": 1.0}},
        {"is": "call a", "after": [0], "r": {"step": 0.5}},
        {"is": "result ls", "after": [1], "r": {"step": 2.0}},  # an input: a's second turn
        {"is": "message a", "after": [2]},
        {"is": "message b", "after": [3]},
    )
    near(step(trace), [1.5, 2, NAN])


def test_a_rubric_gives_points_for_what_every_event_of_a_turn_says() -> None:
    trace = act(
        {"is": "call a", "valid": 1, "trusted": 1},
        {"is": "call a", "valid": 0},
        {"is": "message b", "valid": 1, "trusted": 0, "after": [1], "corrupted": "false"},
        {"is": "message c", "after": [2]},
    )
    near(rubric(trace), [0, 1, NAN])  # one of a's calls is invalid; c says nothing
    near(rubric(trace, (("valid", 2.0), ("trusted", 1.0))), [1, 2, NAN])
    near(rubric(trace, (("valid", 1.0), ("not corrupted", 0.5))), [NAN, 1.5, NAN])
    near(rubric(trace, (("not trusted", 1.0),)), [0, 1, NAN])
    near(score(trace, "0.5 * rubric((('valid', 1.0),))"), [0, 0.5, NAN])


def debate(**changed: float) -> Trace:
    """a answers wrong, then right; b right, then wrong, then right; c listens."""
    right = {"a0": 0.0, "b0": 1.0, "a1": 1.0, "b1": 0.0, "b2": 1.0} | changed
    return act(
        {"is": "message a", "r": {"correct": right["a0"]}, "value": "1"},
        {"is": "message b", "r": {"correct": right["b0"]}, "value": "2"},
        {"is": "message a", "after": [1], "r": {"correct": right["a1"]}, "value": "2"},
        {"is": "message b", "after": [0], "r": {"correct": right["b1"]}, "value": "1"},
        {"is": "message c", "after": [3]},
        {"is": "message b", "after": [2], "r": {"correct": right["b2"]}, "value": "2"},
    )


def test_correctness_is_paid_when_it_changes() -> None:
    # turns by their first row: a's first, b's first, a's second, b's second, c's, b's third
    near(correctness_delta(debate()), [0, 0, 1, -1, 0, 1])
    near(correctness_delta(debate(), before=0.25), [-0.25, 0.75, 1, -1, 0, 1])


def test_changes_add_up_to_the_last_less_the_first() -> None:
    near(score(debate(), "correctness_delta", "agent"), [1, 0, 0])  # back and forth pays b nothing


def test_an_answer_that_was_not_checked_is_not_known_nor_is_the_next() -> None:
    near(correctness_delta(debate(b1=NAN)), [0, 0, 1, NAN, 0, NAN])
    near(correctness_delta(act("message a", "message b")), [NAN, NAN])  # a run that states no correctness


def test_an_agent_with_one_answer_changed_nothing() -> None:
    near(correctness_delta(act({"is": "message a", "r": {"correct": 1.0}})), [0])


def test_later_decisions_cost_more_ever_more_slowly() -> None:
    trace = act(*["decide a"] * 3, "decide b")
    near(step_cost(trace, 2.0, 4.0), 2 * np.log([1.25, 1.5, 1.75, 1.25]))  # b's first decision is a first one
    run = act(*["decide a"] * 2, reward_n={"team": np.array([1.0])})
    near(score(run, "outcome - 0.1 * step_cost(budget=4.0)", "team"), [1 - 0.1 * np.log(1.25 * 1.5)])  # Puppeteer's


def test_a_decision_may_cost_by_the_tokens_it_led_to() -> None:
    trace = act(
        {"is": "decide a", "tokens_in": 5, "tokens_out": 1},
        {"is": "message b", "after": [0], "tokens_in": 2, "tokens_out": 2},
        {"is": "decide a", "after": [1]},
    )
    near(step_cost(trace, by="tokens"), [10 * np.log(1.1), NAN])
    before = act(
        {"is": "message c", "tokens_in": 3, "tokens_out": 3}, {"is": "decide a", "tokens_out": 2, "tokens_in": 2}
    )
    near(step_cost(before, by="tokens"), [4 * np.log(1.1)])  # what no decision led to costs none
    silent = act({"is": "message c", "tokens_in": 3, "tokens_out": 3}, "decide a")
    near(step_cost(concat([before, silent]), by="tokens"), [4 * np.log(1.1), NAN])
    priced = act({"is": "decide a", "cost": 0.5}, {"is": "message b", "cost": 0.25, "after": [0]}, "decide b")
    near(step_cost(priced, 2.0, by="cost"), [1.5 * np.log(1.1), NAN])


def test_a_step_cost_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadReward, match="a budget above 0, got 0"):
        step_cost(act("decide a"), budget=0)
    with pytest.raises(BadReward, match="by tokens or cost, got 'luck'"):
        step_cost(act("decide a"), by="luck")


def folding() -> Trace:
    """The lead thinks, branches, and works on in a full context; of two branches one leaves its scope."""
    return act(
        {"is": "message m main", "tokens_in": 40},
        {"is": "spawn m>x main", "after": [0]},
        {"is": "call x branch", "after": [(1, "spawn")], "r": {"out_of_scope": 1.0}, "valid": 1},
        {"is": "return x>m branch", "after": [2]},
        {"is": "message m main", "after": [3], "tokens_in": 60},
        {"is": "spawn m>y main", "after": [4]},  # branching in a full context is what it should do
        {"is": "call y branch", "after": [(5, "spawn")], "r": {"out_of_scope": 0.0}, "valid": 0},
        {"is": "return y>m branch", "after": [6]},
        {"is": "message m main", "after": [7], "tokens_in": 70},
        reward_n={"team": np.array([1.0])},
    )


def test_a_lead_that_works_on_in_a_full_context() -> None:
    near(context_overflow(folding(), 100.0), [0, 0, 0, 0, 1])  # m, x, m (spawns), y, m
    near(context_overflow(folding(), 1000.0), [0, 0, 0, 0, 0])
    near(context_overflow(folding(), 140.0), [0, 0, 0, 0, 0])  # half of 140 is 70: full to the bound, not beyond
    near(context_overflow(folding(), 139.9), [0, 0, 0, 0, 1])
    near(context_overflow(folding(), 100.0, share=0.7), [0, 0, 0, 0, 0])
    near(context_overflow(act("message m", "message m"), 1.0), [NAN])


def test_fold_grpo_bites_only_where_the_run_succeeded() -> None:
    near(score(folding(), "fold_grpo(limit=100)"), [1, 0.8, 1, 0, 0])  # out of scope, failed call, full context
    failed = concat([folding(), act("message a main", reward_n={"team": np.array([0.0])})])
    near(score(failed, "fold_grpo(limit=100)")[:5], [1, 0.8, 1, 0, 0])
    from dataclasses import replace

    lost = replace(folding(), reward_n={"team": np.array([0.0])})
    near(score(lost, "fold_grpo(limit=100)"), [0, 0, 0, 0, 0])


def test_the_longest_generation_is_too_long() -> None:
    trace = act({"is": "message a", "tokens_out": 3500}, {"is": "message b", "tokens_out": 10})
    near(overlong(trace), [0.25])  # (3500 - 3000) / 2000
    near(overlong(trace, 10, 10), [1])
    near(overlong(act("message a")), [NAN])


def test_of_nothing_nothing_is_known() -> None:
    for trace in nothing():
        for what in (step, rubric, correctness_delta, step_cost, context_overflow):
            assert len(what(trace)) == 0
        near(overlong(trace), [NAN] * len(trace))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("step", {}),
        ("rubric", {}),
        ("rubric", {"criteria": (("valid", 1.0), ("not trusted", 0.5))}),
        ("correctness_delta", {}),
        ("correctness_delta", {"before": 0.5}),
        ("step_cost", {}),
        ("step_cost", {"by": "tokens"}),
        ("context_overflow", {}),
        ("overlong", {}),
    ],
)
def test_the_laws_hold_where_everything_is_recorded(name: str, options: dict[str, Any]) -> None:
    lawful(name, **options)


def test_constants_are_those_of_the_papers() -> None:
    assert fold_grpo() == fold_grpo(
        "branch", 32768.0, "out_of_scope", 0.0
    )  # Context-Folding: 32k, of which half may be full
    told = {name: [p.default for p in signature(find("score", name)).parameters.values()][1:] for name in CONSTANTS}
    assert told == CONSTANTS
