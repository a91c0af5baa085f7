"""Advantages of rows as trainers have them, against the credit of a trace of the same runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import NAN, near, on, run, runs
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.graph import units
from podium.methods import METHODS, credit_of
from podium.methods.batch import BadBatch, advantages, trace_of_rows
from podium.trace.rules import check
from podium.trace.vocabulary import event

# what structure alone decides: tasks, rollouts, agents, roles, turns, rewards, tokens
STRUCTURAL = (
    "dr_mas rema agent_lightning sirius owl hera marshal magrpo mareinforce marloo maremax "
    "grpo dr_grpo rloo reinforce_pp reinforce_pp_baseline gspo pass_at_k opo"
).split()
MESSAGE = event("message")
ROLES = {"ann": "planner", "bob": "solver", "eve": "critic"}


def turn() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "agent": st.sampled_from(sorted(ROLES)),
            "step": st.sampled_from([0.0, 0.5, 1.0]),
            "valid": st.booleans(),
            "length": st.integers(1, 3),
        }
    )


def rollouts() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {
            "task": st.sampled_from("pq"),
            "reward": st.sampled_from([0.0, 0.25, 1.0, NAN]),
            "turns": st.lists(turn(), min_size=1, max_size=4),
        }
    )
    return st.lists(one, min_size=2, max_size=6)


def rows_of(told: list[dict[str, Any]], extra: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"task": r["task"], "rollout": n, "reward": r["reward"], "turn": k, "role": ROLES[t["agent"]]}
        | {name: t[name] for name in ("agent", "valid", "length", *extra)}
        for n, r in enumerate(told)
        for k, t in enumerate(r["turns"])
    ]


def recorded(told: list[dict[str, Any]], extra: tuple[str, ...]) -> Any:
    """The runs as a team would record them: a message a turn, which the next follows; who goes on alone calls a tool in between."""
    parts = []
    for n, r in enumerate(told):
        events: list[Any] = []
        for k, t in enumerate(r["turns"]):
            who = t["agent"]
            if k and r["turns"][k - 1]["agent"] == who:
                events += [on(f"call {who} {ROLES[who]}", tool="look"), on("result look", tool="look", valid=1)]
            given = {name: t[name] for name in extra}
            events.append(on(f"say {who} {ROLES[who]}", tokens=t["length"], valid=int(t["valid"]), **given))
        parts.append(run(*events, name=f"r{n}", task=r["task"], team=r["reward"]))
    return runs(*parts)


def by_message(trace: Any, method: str) -> Any:
    """What a method pays the unit of each message; of tokens, the first."""
    paid = credit_of(trace, method)
    message = np.flatnonzero(trace.type_e == MESSAGE)
    if paid.unit == "token":
        return paid.value[np.searchsorted(trace.owner_k, message)]
    return np.append(paid.value, NAN)[units.place(trace, paid.unit)[message]]


@pytest.mark.parametrize("method", STRUCTURAL)
@settings(max_examples=15, deadline=None)
@given(told=rollouts(), shuffled=st.randoms(use_true_random=False))
def test_rows_get_what_the_trace_of_their_runs_pays(method: str, told: list[dict[str, Any]], shuffled: Any) -> None:
    extra = ("step",) if method in ("marshal", "mareinforce") else ()
    rows = rows_of(told, extra)
    want = by_message(recorded(told, extra), method)
    order = list(range(len(rows)))
    shuffled.shuffle(order)
    batch = [rows[i] for i in order]
    if np.isnan(want).all() or ("group" in METHODS[method].needs and len({r["task"] for r in told}) == len(told)):
        with pytest.raises(BadBatch, match=r"pays no row of this batch|no two runs of one task"):
            advantages(batch, method)
    else:
        near(advantages(batch, method), want[order], 1e-12)


BATCH = {
    "task": ["q"] * 6,
    "rollout": ["x", "x", "x", "y", "y", "y"],
    "agent": ["ann", "bob", "ann"] * 2,
    "role": ["planner", "solver", "planner"] * 2,
    "turn": [0, 1, 2] * 2,
    "reward": [1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    "length": [2, 1, 3, 1, 1, 1],
}


@pytest.mark.parametrize("method", STRUCTURAL)
def test_every_such_method_pays_rows(method: str) -> None:
    assert not np.isnan(advantages(BATCH, method)).all()


def test_columns_arrays_and_rows_are_one_batch() -> None:
    want = advantages(BATCH, "dr_mas")
    near(advantages({k: np.array(v) for k, v in BATCH.items()}, "dr_mas"), want)
    near(
        advantages([dict(zip(BATCH, row, strict=True)) for row in zip(*BATCH.values(), strict=True)], "dr_mas"),
        want,
    )


def test_numbers_worked_by_hand() -> None:
    rows = {"task": ["q"] * 4, "rollout": [0, 0, 1, 1], "agent": ["a", "b"] * 2, "reward": [1.0, 1.0, 0.0, 0.0]}
    near(advantages(rows, "mareinforce"), [1.0, 1.0, 0.0, 0.0])
    near(
        advantages(rows | {"valid": [True, False, True, True]}, "dr_mas"), [0.5**0.5] * 2 + [-(0.5**0.5)] * 2, 1e-5
    )
    near(advantages(rows | {"length": [5, 1, 2, 2]}, "dr_grpo"), [0.5, 0.5, -0.5, -0.5])


def test_tokens_have_their_rows_advantage_where_the_policy_sampled_them() -> None:
    rows = {"task": ["q", "q"], "rollout": [0, 1], "reward": [1.0, 0.0], "mask": [[1, 0, 1], [1]]}
    near(advantages(rows, "dr_grpo", per="token"), [[0.5, NAN, 0.5], [-0.5, NAN, NAN]])
    near(advantages(rows, "dr_grpo"), [0.5, -0.5])
    value = np.sqrt(0.5) * np.array([[1.0, NAN, 1.0], [-1.0, NAN, NAN]])
    near(advantages(rows, "rema", per="token"), value, 1e-5)


def test_a_row_whose_tokens_are_paid_differently_has_no_one_advantage() -> None:
    rows = {"task": ["q", "q"], "rollout": [0, 1], "reward": [1.0, 0.5], "length": [1, 2]}
    ahead = replace(METHODS["dr_grpo"], credit='to("token") >> togo("agent", 0.5)')
    near(advantages(rows, ahead, per="token"), [[1.0, NAN], [0.75, 0.5]])
    with pytest.raises(BadBatch, match="pays tokens of row 1 differently: ask for per='token'"):
        advantages(rows, ahead)
    near(advantages(rows | {"length": [1, 1]}, ahead), [1.0, 0.5])  # of one token there is one


def test_rows_with_one_turn_number_are_generated_at_once() -> None:
    rows = {"task": ["q"] * 3, "rollout": [0] * 3, "agent": ["b", "a", "c"], "turn": [1, 1, 0], "reward": [1.0] * 3}
    trace, place = trace_of_rows(rows)
    assert [f for f in check(trace) if f.level == "error"] == []
    assert trace.t_e[place].tolist() == [1.0, 1.0, 0.0]
    assert len(units.rows(trace, "turn")) == 3
    assert sorted(zip(trace.src_x.tolist(), trace.dst_x.tolist(), strict=True)) == [(0, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("change", "method", "why"),
    [
        (
            {"reward": [1.0, 1.0, 0.5, 0, 0, 0]},
            "rema",
            "row 2, reward: 0.5, but row 0 of the same rollout 'x' has 1.0",
        ),
        ({"task": ["q", "p", "q", "q", "q", "q"]}, "rema", "row 1, task: 'p', but row 0"),
        ({"turn": [0, 1, 0, 0, 1, 2]}, "rema", "row 2, turn: 0, which row 0 of the same rollout and agent has too"),
        ({"turn": [0, 1, "x", 0, 1, 2]}, "rema", "row 2, turn: expected a number, got 'x'"),
        ({"reward": ["a"] * 6}, "rema", "row 0, reward: expected a number, got 'a'"),
        ({"length": [2, 1, -3, 1, 1, 1]}, "rema", "row 2, length: expected 0 or more, got -3"),
        ({"agent": ["ann"]}, "rema", "the field 'agent' has 1 rows, task has 6"),
        ({"reward": None}, "rema", "the batch has no field 'reward'; it has task, rollout"),
        ({"length": None}, "opo", "opo counts tokens: expected the field length or mask"),
        ({"rollout": ["x"] * 6, "turn": range(6), "reward": [1.0] * 6}, "rema", "rema needs group"),
        ({"reward": [NAN] * 6}, "rema", "rema pays no row of this batch; `outcome` needs the reward channel"),
        ({}, "qmixx", "no method called 'qmixx'"),
        ({}, "branching", "branching needs branches (no run branched from another) in the batch"),
    ],
)
def test_what_is_wrong_is_named_by_row_and_field(change: dict[str, Any], method: str, why: str) -> None:
    rows = {k: v for k, v in (BATCH | change).items() if v is not None}
    with pytest.raises(ValueError) as error:
        advantages(rows, method)
    assert why in str(error.value)


def test_a_row_that_lacks_a_field_is_named() -> None:
    with pytest.raises(BadBatch, match="row 1 has no field 'reward'"):
        advantages([{"task": "q", "rollout": 0, "reward": 1.0}, {"task": "q", "rollout": 1}])


def test_per_is_row_or_token() -> None:
    with pytest.raises(BadBatch, match="per must be row or token, got 'column'"):
        advantages(BATCH, "rema", per="column")  # type: ignore[arg-type]
