"""Advantages of rows as trainers have them, against the credit of a trace of the same runs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from handmade import NAN, near, on, run, runs
from hypothesis import given, settings
from hypothesis import strategies as st
from teams import forest, plain, solo

from podium.credit.forest import copies
from podium.exchange.trainers.batch import advantages
from podium.exchange.trainers.rows import BadBatch, rows_of_trace, trace_of_rows
from podium.graph import units
from podium.methods import METHODS, credit_of
from podium.methods.choose import lacking
from podium.rewards.ledger import Now
from podium.trace.columns import Text, Trace, differences
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


def rows_of(teams: list[dict[str, Any]], extra: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"task": r["task"], "rollout": n, "reward": r["reward"], "turn": k, "role": ROLES[t["agent"]]}
        | {name: t[name] for name in ("agent", "valid", "length", *extra)}
        for n, r in enumerate(teams)
        for k, t in enumerate(r["turns"])
    ]


def recorded(teams: list[dict[str, Any]], extra: tuple[str, ...]) -> Any:
    """The runs as a team would record them: a message a turn, which the next follows; who goes on alone calls a tool in between."""
    parts = []
    for n, r in enumerate(teams):
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
@given(teams=rollouts(), shuffled=st.randoms(use_true_random=False))
def test_rows_get_what_the_trace_of_their_runs_pays(
    method: str, teams: list[dict[str, Any]], shuffled: Any
) -> None:
    extra = ("step",) if method in ("marshal", "mareinforce") else ()
    rows = rows_of(teams, extra)
    want = by_message(recorded(teams, extra), method)
    order = list(range(len(rows)))
    shuffled.shuffle(order)
    batch = [rows[i] for i in order]
    if np.isnan(want).all() or ("group" in METHODS[method].needs and len({r["task"] for r in teams}) == len(teams)):
        with pytest.raises(BadBatch, match=r"pays no row of this batch|no two runs of one task"):
            advantages(batch, method)
    else:
        near(advantages(batch, method, per="row"), want[order], 1e-12)


RUNNABLE = sorted(name for name, row in METHODS.items() if row.credit)
TEAMS = {
    **{f"plain {seed}": lambda seed=seed: plain(seed, length=18) for seed in range(3)},
    **{f"forest {seed}": lambda seed=seed: forest(seed, 12) for seed in (10, 11)},
    "alone": solo,
}


@cache
def grown(name: str) -> tuple[Trace, dict[str, list[Any]]]:
    """A team by dice, some of whose runs were not scored; as a trace and as rows."""
    trace = TEAMS[name]()
    if name != "alone":
        unscored = np.arange(len(trace)) % 5 == 4
        rewards = {k: np.where(unscored, NAN, v) for k, v in trace.reward_n.items()}
        votes = Text.of({"x": "1", "y": "0"}.get(str(v)) for v in trace.value_v.strings())
        spent = {"tokens": np.arange(len(trace)) * 1000.0}
        trace = replace(trace, reward_n=rewards, cost_n=spent, value_v=votes)
    return trace, rows_of_trace(trace)


@pytest.mark.parametrize("name", TEAMS)
def test_a_trace_goes_to_rows_and_back(name: str) -> None:
    trace, rows = grown(name)
    back = trace_of_rows(rows).trace
    assert set(differences(trace, back)) <= {"id_e", "name_a", "agent_e", "to_e", "extra_e"}
    for who in ("agent_e", "to_e"):  # agents are named in another order, ids are of the file, JSON has no spaces
        assert names_of(trace, who) == names_of(back, who)
    for name, words in trace.extra_e.items():
        assert [*map(parsed, words.strings())] == [*map(parsed, back.extra_e[name].strings())]


def names_of(trace: Trace, column: str) -> list[str | None]:
    return Text(np.append(trace.name_a.codes, -1), trace.name_a.words).take(getattr(trace, column)).strings()


def parsed(word: str | None) -> Any:
    return word and json.loads(word)


@pytest.mark.parametrize("method", RUNNABLE)
def test_every_method_of_the_table_pays_rows_as_it_pays_their_trace(method: str) -> None:
    paid = 0
    for name in TEAMS:
        trace, rows = grown(name)
        own = np.flatnonzero(~copies(trace, np.arange(trace.n_events)))
        now = Now(0.5, ())
        credit = credit_of(trace, method, now)
        unmet = [need for need in METHODS[method].needs if need in lacking(trace)]
        if unmet or np.isnan(credit.value).all():
            with pytest.raises(BadBatch, match="|".join([*unmet, "pays no row"])):
                advantages(rows, method, now=now)
            continue
        values = advantages(rows, method, per="token", now=now)
        want = credit.value
        if credit.unit != "token":
            value_e = np.append(credit.value, NAN)[units.place(trace, credit.unit)]
            want = np.where(trace.mask_k == 1, value_e[trace.owner_k], NAN)
            near(advantages(rows, method, per="row", now=now), value_e[own], 1e-9)
        first, end = (np.searchsorted(trace.owner_k, own, side) for side in ("left", "right"))
        for i in range(len(own)):
            size = end[i] - first[i]
            near(values[i, :size], want[first[i] : end[i]], 1e-9)
            assert np.isnan(values[i, size:]).all()
        paid += 1
    assert paid


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
    near(advantages(rows | {"length": [5, 1, 2, 2]}, "dr_grpo", per="row"), [0.5, 0.5, -0.5, -0.5])


def test_tokens_have_their_rows_advantage_where_the_policy_sampled_them() -> None:
    rows = {"task": ["q", "q"], "rollout": [0, 1], "reward": [1.0, 0.0], "mask": [[1, 0, 1], [1]]}
    near(advantages(rows, "dr_grpo"), [[0.5, NAN, 0.5], [-0.5, NAN, NAN]])
    near(advantages(rows, "dr_grpo", per="row"), [0.5, -0.5])
    value = np.sqrt(0.5) * np.array([[1.0, NAN, 1.0], [-1.0, NAN, NAN]])
    near(advantages(rows, "rema", per="token"), value, 1e-5)


def test_a_row_whose_tokens_are_paid_differently_has_no_one_advantage() -> None:
    rows = {"task": ["q", "q"], "rollout": [0, 1], "reward": [1.0, 0.5], "length": [1, 2]}
    ahead = replace(METHODS["dr_grpo"], credit='to("token") >> togo("agent", 0.5)')
    near(advantages(rows, ahead, per="token"), [[1.0, NAN], [0.75, 0.5]])
    with pytest.raises(BadBatch, match="pays tokens of row 1 differently: ask for per='token'"):
        advantages(rows, ahead, per="row")
    near(advantages(rows | {"length": [1, 1]}, ahead, per="row"), [1.0, 0.5])  # of one token there is one


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


# runs that branched


TREE: dict[str, list[Any]] = {  # two plans, each carried out twice
    "task": ["q"] * 6,
    "rollout": ["a", "a", "a1", "b", "b", "b1"],
    "agent": ["ann", "bob", "bob", "ann", "bob", "bob"],
    "role": ["planner", "solver", "solver", "planner", "solver", "solver"],
    "turn": [0, 1, 1, 0, 1, 1],
    "parent": [None, None, "a", "a", "a", "b"],
    "reward": [1.0, 1.0, 0.0, 0.25, 0.25, 0.75],
}


def test_what_a_run_shares_with_the_one_it_left_is_stated_once_and_paid_once() -> None:
    want = [0.0, 1.0, -1.0, 0.0, -0.5, 0.5]  # the mean of two runs each; a plan is as good as the other
    near(advantages(TREE, "c3_reward_only"), want)
    order = [5, 2, 0, 4, 1, 3]
    near(advantages({k: [v[i] for i in order] for k, v in TREE.items()}, "c3_reward_only"), np.array(want)[order])
    without = {k: v for k, v in TREE.items() if k != "turn"} | {"branch": [None, None, 1, 0, 0, 1]}
    near(advantages(without, "c3_reward_only"), want)
    trace = trace_of_rows(TREE).trace
    assert [f for f in check(trace) if f.level == "error"] == []
    assert trace.branch_n.tolist() == [-1, 2, 0, 2]


def test_a_run_that_goes_on_where_its_parent_ended() -> None:
    rows = {"task": ["q"] * 2, "rollout": [0, 1], "turn": [0, 1], "parent": [None, 0], "reward": [1.0, 0.0]}
    trace, place = trace_of_rows(rows)
    assert trace.branch_n.tolist() == [-1, 1]
    assert place.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"parent": [None, None, "z", "a", "a", "b"]}, "row 2, parent: 'z' is no rollout of the batch"),
        ({"parent": [None, None, "a1", "a", "a", "b"]}, "row 2, parent: 'a1' is itself"),
        ({"parent": ["b", "b", "a", "a", "a", "b"]}, "row 0, parent: rollouts branch from each other in a circle"),
        ({"turn": [0] * 6}, "row 2, turn"),
        ({"turn": None}, "row 2, parent: the rollout branched, so the batch needs the field branch or turn"),
        (
            {"turn": None, "branch": [None, None, 9, 0, 0, 1]},
            "row 2, branch: expected a number of its parent's 2 rows, got 9",
        ),
        ({"branch": [None, None, 2, 0, 0, 1]}, "row 2, turn: 1, which its parent 'a' has before the branch"),
    ],
)
def test_branches_that_do_not_fit_are_refused(change: dict[str, Any], why: str) -> None:
    rows = {k: v for k, v in (TREE | change).items() if v is not None}
    if change == {"turn": [0] * 6}:
        rows["agent"] = ["ann", "ann", "bob", "ann", "bob", "bob"]
        why = "row 1, turn: 0, which row 0 of the same rollout and agent has too"
    with pytest.raises(BadBatch) as error:
        advantages(rows, "c3_reward_only")
    assert why in str(error.value)


# what comes in, and goes out as it came


def test_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    mask = torch.tensor([[1, 1, 0], [0, 1, 0]])
    batch = {"task": ["q", "q"], "reward": torch.tensor([1.0, 0.0]), "mask": mask}
    tokens = advantages(batch, "dr_grpo", unpaid=0.0)
    assert tokens.dtype == torch.float32
    assert tokens.tolist() == [[0.5, 0.5, 0.0], [0.0, -0.5, 0.0]]
    near(advantages(batch, "dr_grpo").numpy(), [[0.5, 0.5, NAN], [NAN, -0.5, NAN]])
    assert advantages(batch, "dr_grpo", per="row").tolist() == [0.5, -0.5]
    half = batch | {"reward": torch.tensor([1.0, 0.0], dtype=torch.bfloat16)}
    assert advantages(half, "dr_grpo", per="row").tolist() == [0.5, -0.5]


def test_a_data_set_a_frame_and_a_data_proto_are_batches() -> None:
    class Table:
        """As a data frame or a Hugging Face data set: columns by name."""

        def __init__(self, names: str, columns: dict[str, Any]) -> None:
            self.own = columns
            setattr(self, names, list(columns))

        def __getitem__(self, name: str) -> Any:
            return self.own[name]

    want = advantages(BATCH, "dr_mas")
    near(advantages(Table("columns", BATCH), "dr_mas"), want)
    near(advantages(Table("column_names", BATCH), "dr_mas"), want)
    proto = SimpleNamespace(
        batch={"response_mask": np.array([[1, 1], [1, 0]])},
        non_tensor_batch={"uid": np.array(["q", "q"], object), "reward": np.array([1.0, 0.0])},
    )
    near(advantages(proto, "dr_grpo"), [[0.5, 0.5], [-0.5, NAN]])


def test_fields_of_other_names() -> None:
    rows = {"uid": ["q", "q"], "score": [1.0, 0.0]}
    near(advantages(rows, "hera", fields={"task": "uid", "reward": "score"}), [0.5, -0.5])
    with pytest.raises(BadBatch, match="the batch has no field 'uids'"):
        advantages(rows, "dr_grpo", fields={"task": "uids"})
    with pytest.raises(BadBatch, match="fields must be a dict or one of trl, verl"):
        advantages(rows, "dr_grpo", fields="marl")
    with pytest.raises(BadBatch, match="expected a dict of columns, a list of dicts or a data set, got int"):
        advantages(7)


@pytest.mark.parametrize("kind", [np.int64, np.bool_, np.float32, np.float64, list])
def test_a_mask_of_any_kind(kind: Any) -> None:
    mask: Any = [[1, 0, 1], [0, 1, 0]]
    mask = mask if kind is list else np.array(mask, kind)
    rows = {"task": ["q", "q"], "reward": [1.0, 0.0], "mask": mask}
    near(advantages(rows, "dr_grpo", unpaid=0.0), [[0.5, 0.0, 0.5], [0.0, -0.5, 0.0]])
    near(advantages(rows, "opo", unpaid=0.0), [[1 / 3, 0, 1 / 3], [0, -2 / 3, 0]])


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.float64, list])
@pytest.mark.parametrize("wrong", [2, -1, 0.5, 0.25])
@pytest.mark.parametrize("method", ["dr_grpo", "opo"])
def test_a_mask_is_of_zeros_and_ones(kind: Any, wrong: float, method: str) -> None:
    mask: Any = [[1, 0, 1], [0, wrong, 0]]
    if kind is np.int64 and wrong != int(wrong):
        return
    mask = mask if kind is list else np.array(mask, kind)
    with pytest.raises(BadBatch, match=f"row 1, mask: expected 0 and 1, got {wrong}"):
        advantages({"task": ["q", "q"], "reward": [1.0, 0.0], "mask": mask}, method)


@pytest.mark.parametrize(
    ("change", "method", "why"),
    [
        (
            {"tokens": [[7], [7, 8]], "mask": [[1], [1]]},
            "dr_grpo",
            "row 1, tokens: 2 of them, its mask or length says 1",
        ),
        ({"mask": [[1, 1], [0, 1]], "prompt": [0, 1]}, "dr_grpo", None),
        (
            {"mask": [[0, 1], [1, 1]], "prompt": [1, 1]},
            "dr_grpo",
            "row 1, mask: trains 1 of the 1 tokens of its prompt",
        ),
        ({"mask": [[0, 1], [1, 1]], "prompt": [1, 3]}, "dr_grpo", "row 1, prompt: 3 tokens of 2"),
        ({"role": ["boss", "clerk"]}, "owl", "it pays the roles planner, and the field role has boss, clerk"),
        ({"reward": [1.0, "x"]}, "hera", "row 1, reward: expected a number, got 'x'"),
        ({"type": ["message", "dance"]}, "hera", "row 1, type: expected one of"),
        (
            {"rollout": [0, 0], "reward": [1.0, 1.0], "tokens": [[7], [7]]},
            "sirius",
            "row 1, tokens: those of row 0 of the same",
        ),
        ({"edges": [[], [0]]}, "hera", "row 1, edges: row 0 is not before it in the same rollout"),
        ({"edges": [[], [5]]}, "hera", "row 1, edges: there is no row 5"),
        ({"edges": [[], [(0, "hope")]]}, "hera", "row 1, edges: no edge 'hope'"),
        (
            {"edges": [[], []], "votes": [None, [(0, "x")]]},
            "hera",
            "row 1, votes: not of a row of the same rollout",
        ),
        (
            {"options": [["a", "b"], None], "options_logp": [[-1.0], None]},
            "hera",
            "row 0, options_logp: 1 numbers for 2 options",
        ),
        (
            {"tokens": [[7], [8]], "logp": [[-1.0], [-1.0, -2.0]]},
            "reinforce_pp",
            "row 1, logp: 2 of them for 1 tokens",
        ),
    ],
)
def test_rows_of_a_wrong_shape_are_refused(change: dict[str, Any], method: str, why: str | None) -> None:
    rows = {"task": ["q", "q"], "reward": [1.0, 0.0]} | change
    if why is None:
        assert advantages(rows, method).shape == (2, 2)
        return
    with pytest.raises(BadBatch) as error:
        advantages(rows, method)
    assert why in str(error.value)


def test_half_a_group_is_refused_where_its_size_is_stated() -> None:
    rows = {"task": ["q", "q", "p"], "reward": [1.0, 0.0, 0.5]}
    with pytest.raises(BadBatch, match="row 2, task: 'p' has 1 rollouts, expected 2"):
        advantages(rows, "hera", rollouts=2)
    near(advantages({"task": ["q", "q"], "reward": [1.0, 0.0]}, "hera", rollouts=2), [0.5, -0.5])
