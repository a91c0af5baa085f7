"""E4, with numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import run

from podium.metrics import overhead as o
from podium.trace.columns import Text, Trace, concat

SCORES = tuple(getattr(o, name) for name in o.__all__ if name.islower())
EMPTY = Trace.of(trace_id_n=Text.of([]))
SILENT = Trace.of(trace_id_n=Text.of(["silent"]))
BAD, FINE = {"corrupted": True}, {"corrupted": False}


@pytest.mark.parametrize("score", SCORES, ids=lambda f: f.__name__)
def test_of_nothing_nothing_is_known(score) -> None:
    assert score(EMPTY).shape == (0,)
    assert np.isnan(score(SILENT)).all()
    if score is not o.injection_flow_unmarked:  # which takes a run without marks for a clean one, and says so
        assert np.isnan(score(run("message ann", ("decide lead", [0])))).all()


# tokens


def spent(*tokens: tuple[float, float]) -> Trace:
    """Decision, spawn, call, return: tokens in and out of each."""
    told = [{"tokens_in": a, "tokens_out": b} for a, b in tokens]
    return run(
        ("decide lead", (), told[0] | {"decision": "spawn"}),
        ("spawn lead>ann", [(0, "spawn")], told[1]),
        ("call ann", [1], told[2]),
        ("return ann>lead", [2], told[3]),
    )


def test_overhead_is_the_share_of_tokens_that_are_not_work() -> None:
    # decision 100 + 10, call 20 + 20, return 300 + 50: (110 + 40) / 500; a call is tool management
    one = spent((100, 10), (np.nan, np.nan), (20, 20), (300, 50))
    assert o.protocol_overhead(one) == pytest.approx([150 / 500])
    assert o.tokens_per_delegation(one).tolist() == [150.0]  # one spawn


def test_who_states_one_kind_only_has_not_said_how_many() -> None:
    half = spent((np.nan, 10), (np.nan, np.nan), (20, 20), (300, 50))
    assert np.isnan(o.protocol_overhead(half)).all()
    assert np.isnan(o.tokens_per_delegation(half)).all()


def test_a_decision_to_delegate_is_a_delegation() -> None:
    told = {"tokens_in": 30.0, "tokens_out": 10.0, "decision": "delegate"}
    assert o.tokens_per_delegation(run(("decide lead", (), told))).tolist() == [40.0]
    assert np.isnan(o.tokens_per_delegation(run(("decide lead", (), told | {"decision": "stop"})))).all()


def test_no_tokens_at_all_are_not_no_overhead() -> None:
    nothing = spent(*[(np.nan, np.nan)] * 4)
    assert np.isnan(o.protocol_overhead(nothing)).all()
    assert np.isnan(o.tokens_per_delegation(nothing)).all()
    assert o.protocol_overhead(spent((0, 0), (np.nan, np.nan), (0, 0), (1, 0))).tolist() == [0.0]


def team_with(**worker: float) -> Trace:
    """A lead that thinks and delegates, a worker that calls and returns, an answer to the user; counts on the worker as told."""
    return run(
        ("message user>lead", (), {"role": "user"}),
        ("message lead>lead", [(0, "message")], {"tokens_in": 40.0, "tokens_out": 10.0}),
        (
            "decide lead",
            [(1, "causal")],
            {"tokens_in": 20.0, "tokens_out": 5.0, "cache_read": 75.0, "decision": "spawn"},
        ),
        ("spawn lead>ann", [(2, "spawn")]),
        ("call ann", [(3, "spawn")]),
        ("return ann>lead", [(4, "causal")], worker),
        ("message lead>user", [(5, "causal")], {"tokens_in": 30.0, "tokens_out": 20.0}),
    )


def test_a_turn_that_an_agent_keeps_to_itself_and_an_answer_to_a_person_are_work() -> None:
    # turn 50, decision 100 with what it read from the cache, return 50, answer 50
    assert o.protocol_overhead(team_with(tokens_in=45.0, tokens_out=5.0)) == pytest.approx([100 / 250])


def test_a_sub_agent_without_tokens_leaves_the_share_open() -> None:
    assert np.isnan(o.protocol_overhead(team_with())).all()
    assert np.isnan(o.tokens_per_delegation(team_with())).all()


# errors


def test_amplification_is_later_errors_over_first_errors() -> None:
    # First: 0 and 4. Later: 1 (from 0) and 3 (from 0 through 2, which is fine itself). 5 follows 4 in time only: first.
    one = run(
        ("result web", (), BAD),
        ("message ann>bob", [0], BAD),
        ("decide lead", [0], FINE),
        ("aggregate lead", [2], BAD),
        ("message eve>bob", (), BAD),
        ("message bob>ann", [(4, "temporal")], BAD),
    )
    assert o.error_amplification(one) == pytest.approx([2 / 3])


def test_one_error_that_goes_nowhere_and_one_down_a_chain() -> None:
    assert o.error_amplification(run(("result web", (), BAD), ("call ann", [0], FINE))).tolist() == [0.0]
    chain = run(("result web", (), BAD), *[("message ann", [i], BAD) for i in range(5)])
    assert o.error_amplification(chain).tolist() == [5.0]


def test_without_an_error_there_is_nothing_to_amplify() -> None:
    assert np.isnan(o.error_amplification(run(("result web", (), FINE)))).all()


# injections


def test_injection_flow_is_the_share_of_tainted_steps() -> None:
    # Steps: two decisions, an aggregate, a call. The decision from the untrusted result and the aggregate from it: 2 / 4.
    one = run(
        ("decide lead", ()),
        ("result web", [0], {"trusted": 0}),
        ("decide lead", [1]),
        ("aggregate lead", [2]),
        ("call ann", [0]),
    )
    assert o.injection_flow(one).tolist() == o.injection_flow_unmarked(one).tolist() == [0.5]
    assert o.injection_flow(run(("result web", (), {"trusted": 1}), ("decide lead", [0]))).tolist() == [0.0]


def test_untrusted_is_not_corrupted() -> None:
    assert np.isnan(o.error_amplification(run(("result web", (), {"trusted": 0}), ("decide lead", [0])))).all()


def test_a_result_that_anyone_can_write_is_a_source_without_a_mark() -> None:
    one = run(("call ann", (), {"tool": "WebFetch"}), ("result web", [0]), ("decide ann", [1]))
    assert o.injection_flow_unmarked(one).tolist() == [0.5]


def test_a_run_without_marks_is_clean_by_assumption_only() -> None:
    plain = run("decide lead", ("call ann", [0]))
    assert np.isnan(o.injection_flow(plain)).all()
    assert o.injection_flow_unmarked(plain).tolist() == [0.0]


def test_a_batch_is_a_longer_trace() -> None:
    one, two = run(("result web", (), BAD), ("message ann", [0], BAD)), spent(*[(1, 2)] * 4)
    for score in SCORES:
        apart = np.concatenate([score(one), score(SILENT), score(two)])
        np.testing.assert_array_equal(score(concat([one, SILENT, two])), apart)
