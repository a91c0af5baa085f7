"""R6: zero-sum pairs, resolution, verdicts and panels, by hand; and that talking pays nothing."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from acting import NAN, act, lawful, near, nothing

from podium.rewards import BadReward, score
from podium.rewards.debate import critique, panel, pivotal, resolution, verdict_agreement, zero_sum
from podium.trace.columns import Text, Trace, concat


def test_two_rivals() -> None:
    trace = act({"is": "message a", "r": {"agent": 0.7}}, {"is": "message b", "r": {"agent": 0.1}}, "message c")
    near(zero_sum(trace), [0.6, -0.6, 0])


def test_one_or_three_are_no_pair() -> None:
    near(zero_sum(act({"is": "message a", "r": {"agent": 1.0}}, "message b")), [NAN, NAN])
    near(zero_sum(act(*({"is": f"message {x}", "r": {"agent": 1.0}} for x in "abc"))), [NAN] * 3)


def test_a_pair_sums_to_zero_exactly() -> None:
    dice = np.random.default_rng(0)
    for x, y in dice.normal(size=(200, 2)) * 10.0 ** dice.integers(-8, 8, (200, 1)):
        trace = act({"is": "message a", "r": {"agent": x}}, {"is": "message b", "r": {"agent": y}})
        assert zero_sum(trace).sum() == 0.0


def criticised(*verdicts: float) -> Trace:
    critics = ({"is": f"message c{i}", "after": [0, 1], "r": {"verdict": v}} for i, v in enumerate(verdicts))
    return act("message s", "message t", *critics)


def test_a_critique_gains_what_the_solutions_lose() -> None:
    # each critique is of two solutions: s and t lose 1/4 by the first and gain 1/2 by the second
    near(critique(criticised(0.25, 1.0)), [0.25, 0.25, 0.5, -1.0])
    near(critique(criticised()), [NAN, NAN])
    alone = act(
        "message s",
        {"is": "message c", "after": [0], "r": {"verdict": 1.0}},
        {"is": "message c", "after": [1], "r": {"verdict": 0.0}},
    )
    near(critique(alone), [0.5, -0.5, 0])  # nobody criticises himself


def test_critiques_sum_to_zero_exactly() -> None:
    dice = np.random.default_rng(1)
    for _ in range(100):
        assert critique(criticised(*dice.random(dice.integers(1, 30)))).sum() == 0.0


def test_comas_up_to_its_constant() -> None:
    for level in (1, 2, 3):  # CoMAS: (τ - 1) / 2 for the solution, 1 less that for the critique
        v = (level - 1) / 2
        pair = act("message s", {"is": "message c", "after": [0], "r": {"verdict": v}})
        near(critique(pair) + 0.5, [v, 1 - v])


def talk(told: int = 1, also: int = 0, before: float = 0.0, after: float = 1.0) -> Trace:
    """c answers, hears a in so many messages and b in so many, and answers again."""
    events: list[Any] = [{"is": "message c", "r": {"correct": before}}]
    events += [{"is": f"message {who}>c"} for who, many in (("a", told), ("b", also)) for _ in range(many)]
    heard = range(1, len(events))
    return act(*events, {"is": "message c", "after": [(i, "message") for i in heard], "r": {"correct": after}})


def test_whoever_moved_another_to_the_right_answer_is_paid() -> None:
    near(resolution(talk()), [0, 1, 0])
    near(resolution(talk(before=1.0, after=0.0)), [0, -1, 0])
    near(resolution(talk(after=0.0)), [0, 0, 0])
    near(resolution(talk(1, 2)), [0, 1 / 2, 1 / 4, 1 / 4, 0])


@pytest.mark.parametrize("length", [2, 10, 100])
def test_length_pays_nothing(length: int) -> None:
    near(score(talk(length, 1), "resolution", "agent"), score(talk(1, 1), "resolution", "agent"))
    near(score(talk(length, 1), "resolution", "team"), [1])


def test_what_is_said_after_the_answer_or_not_heard_pays_nothing() -> None:
    trace = act(
        {"is": "message c", "r": {"correct": 0.0}},
        "message a>c",
        {"is": "message b>c"},
        {"is": "message c", "after": [(2, "message")], "r": {"correct": 1.0}},
        {"is": "message c", "after": [(1, "message")]},
    )
    near(resolution(trace), [0, 0, 1, 0, 0])


def test_a_message_may_move_several() -> None:
    trace = act(
        {"is": "message c", "r": {"correct": 0.0}},
        {"is": "message d", "r": {"correct": 1.0}},
        {"is": "message e", "r": {"correct": 0.0}},
        {"is": "message a"},
        {"is": "message c", "after": [3], "r": {"correct": 1.0}},
        {"is": "message d", "after": [3], "r": {"correct": 0.0}},
        {"is": "message e", "after": [3], "r": {"correct": 1.0}},
    )
    near(score(trace, "resolution", "team"), [1])  # two to the right, one away
    near(resolution(trace)[3], 1)


def test_resolution_needs_correctness() -> None:
    near(resolution(act("message a>b", {"is": "message b", "after": [0]})), [NAN, NAN])
    near(resolution(talk(before=NAN)), [0, 0, 0])  # c's only answer that states its correctness is its first
    unchecked = act(
        {"is": "message c", "r": {"correct": 0.0}},
        "message a>c",
        {"is": "message c", "after": [1], "value": "3"},
    )
    near(resolution(unchecked), [0, NAN, 0])


def test_a_verifier_is_paid_for_being_right() -> None:
    trace = act(
        {"is": "message s", "r": {"correct": 1.0}},
        {"is": "message t", "r": {"correct": 0.0}},
        {"is": "message v", "after": [0], "r": {"verdict": 1.0}},
        {"is": "message v", "after": [1], "r": {"verdict": 0.8}},
        {"is": "message w", "after": [0, 1], "r": {"verdict": 0.1}},
        "message x",
    )
    near(verdict_agreement(trace), [NAN, NAN, 1, 0, 0.5, NAN])


def voted(*votes: tuple[str, float], right: dict[str, float] | None = None) -> Trace:
    """Each vote comes from an agent of its own; an aggregate counts them."""
    known = right or {}
    events: list[Any] = [
        {"is": f"return v{i}", "r": {"correct": known[v]} if v in known else {}} for i, (v, _) in enumerate(votes)
    ]
    n = len(votes)
    return act(
        *events,
        "aggregate lead",
        event_v=np.full(n, n),
        source_v=np.arange(n),
        value_v=Text.of(v for v, _ in votes),
        weight_v=np.array([w for _, w in votes], float),
    )


def test_a_panel_decides_by_majority_weight_or_all() -> None:
    jury = voted(("yes", 1), ("no", 3), ("0.9", 1))
    near(panel(jury), [1])  # 2 of 3
    near(panel(jury, "weighted"), [0])  # 2 of 5
    near(panel(jury, "unanimous"), [0])
    near(panel(voted(("true", 1), ("pass", 1)), "unanimous"), [1])
    near(panel(voted(("true", 1), ("false", 1))), [0])  # a tie does not pass
    near(panel(voted(("true", 0.3), ("false", 0.1), ("false", 0.2)), "weighted"), [0])  # nor one by rounding


def test_a_panel_that_says_nothing_has_not_refused() -> None:
    near(panel(voted(("Paris", 1), ("Rome", 1))), [NAN])
    near(panel(voted(("yes", NAN)), "weighted"), [NAN])
    near(panel(voted(("yes", 1), ("Paris", 1))), [1])
    with pytest.raises(BadReward, match="majority, weighted or unanimous, got 'shouting'"):
        panel(voted(("yes", 1)), "shouting")


def test_whose_vote_decided() -> None:
    near(
        pivotal(voted(("x", 1), ("x", 1), ("y", 1), right={"x": 1.0, "y": 0.0})), [0.5, 0.5, 0, 0]
    )  # without one x: a tie, half right
    near(pivotal(voted(("x", 1), ("y", 1), right={"x": 1.0, "y": 0.0})), [0.5, -0.5, 0])
    near(pivotal(voted(("x", 1), right={"x": 1.0})), [1, 0])  # without it no answer
    near(pivotal(voted(("x", 1), ("y", 1))), [NAN] * 3)  # nobody checked
    near(pivotal(voted(("x", 3), ("y", 2), right={"x": 0.0, "y": 1.0}), by="weighted"), [-1, 0, 0])
    near(pivotal(voted(("x", NAN), right={"x": 1.0}), by="weighted"), [NAN, 0])
    with pytest.raises(BadReward, match="by majority or weighted, got 'luck'"):
        pivotal(voted(("x", 1)), by="luck")


@pytest.mark.parametrize("by", ["majority", "weighted"])
def test_counting_again_is_counting_without(by: str) -> None:
    """Against the definition, over all ballots of up to four votes for three values."""
    right = {"x": 1.0, "y": 0.25, "z": 0.0}

    def consensus(votes: list[tuple[str, float]]) -> float:
        heavy: dict[str, float] = {}
        for value, weight in votes:
            heavy[value] = heavy.get(value, 0.0) + (weight if by == "weighted" else 1.0)
        top = max(heavy.values(), default=0.0)
        best = [right[v] for v, w in heavy.items() if abs(w - top) < 1e-9]
        return float(np.mean(best)) if best else 0.0

    ballots = [
        [(v, [0.1, 0.2, 0.3, 0.4][i]) for i, v in enumerate(b)]
        for n in range(1, 5)
        for b in product("xyz", repeat=n)
    ]
    got = pivotal(concat([voted(*b, right=right) for b in ballots]), by=by)
    want = [
        g for b in ballots for g in [*(consensus(b) - consensus(b[:i] + b[i + 1 :]) for i in range(len(b))), 0.0]
    ]
    near(got, want)


def test_of_nothing_nothing_is_known() -> None:
    for trace in nothing():
        for what in (zero_sum, critique, resolution, verdict_agreement, pivotal):
            assert len(what(trace)) == 0
        near(panel(trace), [NAN] * len(trace))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("zero_sum", {}),
        ("critique", {}),
        ("resolution", {}),
        ("verdict_agreement", {}),
        ("panel", {}),
        ("panel", {"by": "weighted"}),
        ("pivotal", {}),
        ("pivotal", {"by": "weighted"}),
    ],
)
def test_the_laws_hold_where_everything_is_recorded(name: str, options: dict[str, Any]) -> None:
    lawful(name, **options)
