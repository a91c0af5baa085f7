"""What units are compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grown import choose, decides, on, run, runs

from podium.credit import BadCredit, Credit
from podium.credit.keys import groups, numbered_together
from podium.graph import units
from podium.registry import find, names
from podium.trace.columns import Text, Trace


def by(trace: Trace, key: str, unit: str = "turn") -> list[int]:
    """Which units a key holds to be the same: the first of each kind, -1 for none."""
    told = find("key", key)(trace, unit).tolist()
    return [told.index(code) if code >= 0 else -1 for code in told]


def test_numbers_for_tuples_in_the_order_of_tuples() -> None:
    dice = np.random.default_rng(0)
    for most in (3, 10**6, 10**12):
        columns = [dice.integers(-1, most, 200) for _ in range(3)]
        made = numbered_together(*columns)
        tuples = list(zip(*(c.tolist() for c in columns), strict=True))
        order = {t: i for i, t in enumerate(sorted({t for t in tuples if min(t) >= 0}))}
        assert made.tolist() == [order.get(t, -1) for t in tuples]
    assert numbered_together(np.array([], int)).tolist() == []
    assert numbered_together(np.array([-1, -1])).tolist() == [-1, -1]


def team() -> Trace:
    return runs(
        run(on("say ann solver", player="white", anchor="s"), on("say bob", model="m"), "say ann critic"),
        run("say bob solver", on("say ann", anchor="s", player="black"), group="g"),
        run("say bob solver", task="other"),
    )


def test_keys_of_runs_agents_and_events() -> None:
    assert by(team(), "rollout") == [0, 0, 0, 3, 3, 5]
    assert by(team(), "task") == [0, 0, 0, 3, 3, 5]  # a group that is recorded is another than its task
    assert by(team(), "agent") == [0, 1, 0, 1, 0, 1]
    assert by(team(), "role") == [0, -1, 2, 0, -1, 0]
    assert by(team(), "player") == [0, 1, 2, 1, 4, 1]  # without a label it is the agent
    assert by(team(), "anchor") == [0, -1, -1, -1, 0, -1]
    assert by(team(), "model") == [-1, 1, -1, -1, -1, -1]
    assert by(team(), "turn") == [0, 0, 2, 0, 0, 0]
    assert by(team(), "agent", "agent") == [0, 1, 1, 0, 1]
    assert by(team(), "role", "agent") == [0, -1, 0, -1, 0]  # the first that it states


def test_the_kind_of_a_decision() -> None:
    trace = runs(run(decides("x"), decides("x", kind="stop"), decides("y"), "say lead"))
    assert by(trace, "decision", "orchestrator") == [0, 1, 0]


def test_the_answer_of_a_tool_opens_a_turn_of_whoever_called_it() -> None:
    trace = runs(
        run(
            on("call ann solver", tool="t"),
            on("result tool", tool="t", after=[(0, "tool_dependency")]),
            "say ann solver",
        )
    )
    assert units.rows(trace, "turn").tolist() == [0, 1]
    assert by(trace, "agent") == [0, 0]
    assert by(trace, "role") == [0, 0]
    assert by(trace, "turn") == [0, 1]
    assert units.within(trace, "turn", "agent").tolist() == [0, 0]


def test_runs_that_name_no_batch_are_of_one() -> None:
    trace = runs(run("say a"), run("say a"), run("say a", batch=0))
    assert by(trace, "batch", "team") == [0, 0, 2]


def test_branches_share_a_context_where_they_left_and_a_tree() -> None:
    trace = runs(run(*map(decides, "xxx")), choose("x", "y", "x", at=1, reward=1.0), run(*map(decides, "xxx")))
    assert by(trace, "context", "orchestrator") == [0, 1, 2, 0, 1, 5, 6, 7, 8]
    assert by(trace, "tree", "team") == [0, 0, 2]


def test_upstream_is_what_others_told_it_last() -> None:
    trace = runs(
        run("say ann", "say bob", on("say cy", after=[0]), on("say dee", after=[0, 1]), on("say eve", after=[1, 0]))
    )
    # ann heard nobody; bob and cy ann, dee and eve both; events of one run
    assert by(trace, "upstream", "message") == [0, 1, 1, 3, 3]


def test_what_an_agent_did_before() -> None:
    trace = runs(run("say ann", "say bob", "say ann"), run("say ann", "say bob", "say ann"))
    assert by(trace, "parent") == [0, 0, 2, 0, 0, 5]  # first things: the task


def test_groups_agree_in_all_keys_and_in_batch() -> None:
    trace = replace(
        team(), batch_n=np.array([0, 0, 1]), task_id_n=Text.of(["q", "q", "q"]), group_n=Text.of([None] * 3)
    )
    credit = Credit(trace, "turn", np.zeros(6))
    assert groups(credit, ("task", "agent")).tolist() == [0, 1, 0, 1, 0, 2]
    assert groups(credit, "task").tolist() == [0, 0, 0, 0, 0, 1]
    with pytest.raises(BadCredit, match="no key called 'colour'"):
        groups(credit, "colour")


@pytest.mark.parametrize("key", names("key"))
@pytest.mark.parametrize("unit", units.UNITS)
def test_every_key_is_a_number_for_each_unit(key: str, unit: str) -> None:
    for trace in (team(), team()[:0]):
        told = find("key", key)(trace, unit)
        assert told.shape == (len(units.rows(trace, unit)),)
        assert told.dtype.kind == "i"
        assert (told >= -1).all()
        assert find("key", key).__doc__


def tool_user(result: str = "result ls") -> Trace:
    return run(
        on("call s solver", model="m", player="white"), result, on("say s solver", model="m", player="white")
    )


@pytest.mark.parametrize("result", ["result ls", "result s solver"])
def test_its_own_tool_result_is_no_other_agents_input(result: str) -> None:
    """Whoever records the result: the tool (docs/recording.md) or the caller."""
    trace = runs(tool_user(result), tool_user(result))
    assert by(trace, "upstream") == [0, 0, 0, 0]
    for key in ("role", "model", "player", "agent"):
        assert by(trace, key) == [0, 0, 0, 0], key


def test_an_invocation_goes_from_one_task_to_the_next() -> None:
    trace = runs(
        run(
            "say m main",
            on("call s sub", after=[(0, "message")]),
            on("result ls", after=[(1, "return")]),
            on("say s sub", after=[2]),
            on("return t sub", after=[(3, "message")]),
            on("return s sub", after=[(4, "return")]),
            on("say m main", after=[(5, "return")]),
            on("say s sub", after=[(6, "spawn")]),
        )
    )
    # m; s with its tool and with what it asked of t; t; m goes on; s is given another task
    assert by(trace, "invocation") == [0, 1, 1, 3, 1, 0, 6]
