"""What a record of runs with odd places gets: spawns of the first agent, runs without an author, wrong arguments; and the laws' own tools."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import numpy as np
import pytest
from credit_laws import split
from grown import near, on, paid, run, runs
from teams import plain

import podium.credit
import podium.graph
import podium.methods
import podium.metrics
import podium.rewards
from podium.credit import BadCredit, Credit, apply
from podium.credit.credit import read_credit
from podium.graph import units

PACKAGES = (podium.credit, podium.graph, podium.methods, podium.metrics, podium.rewards)
MODULES = [m.name for p in PACKAGES for m in pkgutil.iter_modules(p.__path__, f"{p.__name__}.")]


@pytest.mark.parametrize("name", MODULES)
def test_a_record_does_not_change(name: str) -> None:
    """Columns in, one column out: no dataclass of these packages can be written to."""
    module = importlib.import_module(name)
    for kind in vars(module).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == name:
            assert kind.__dataclass_params__.frozen, f"{kind} can be written to"


@pytest.mark.parametrize("wrong", ["center(colour=1)", "center(1, 2, 3, 4, 5)", "gae()"])
def test_an_argument_that_a_step_does_not_take_is_bad_credit(wrong: str) -> None:
    trace = runs(run("say ann", team=1.0))
    with pytest.raises(BadCredit, match=wrong.split("(")[0]):
        apply(Credit(trace, "team", np.ones(1)), wrong)


def test_what_is_no_expression_is_bad_credit() -> None:
    with pytest.raises(BadCredit):
        read_credit("center(")


def test_whoever_the_record_names_first_can_be_spawned_too() -> None:
    """`ann` is agent number 0, speaks first and is spawned by bob, who thus stands at the root of both."""
    trace = runs(run("say ann", "say bob", "spawn bob>ann", team=1.0))
    credit = Credit(trace, "agent", np.array([1.0, 5.0]))
    near(apply(credit, "along_spawns()").value, [5.0, 5.0])


def test_the_first_spawn_on_record_says_who_spawned_an_agent() -> None:
    trace = runs(run("say ann", "spawn ann>cy", "spawn bob>cy", "say cy", team=1.0))
    credit = Credit(trace, "agent", np.array([1.0, 2.0, 4.0]))
    assert trace.name_a.strings() == ["ann", "cy", "bob"]
    near(apply(credit, "along_spawns()").value, [1.0, 1.0, 4.0])


def test_only_pays_no_orchestrator_where_no_decision_was_made() -> None:
    trace = runs(run("say ann", "decide lead", team=1.0), run("say ann", "decide lead", team=0.0))
    made = apply(Credit(trace, "turn", np.ones(len(units.rows(trace, "turn")))), 'only("orchestrator")')
    near(made.value, [np.nan, 1.0, np.nan, 1.0])


def test_units_of_one_moment_with_one_credit_share_the_places_they_fill() -> None:
    """Three alike and two places: two thirds of a place each."""
    trace = runs(run(*(on(f"say {who} sub", t=0.0, after=[]) for who in ("ann", "bob", "cy")), team=1.0))
    drawn = apply(Credit(trace, "turn", np.ones(3)), 'resample(by=("task", "role"), d=2)')
    near(drawn.weight, [2 / 3] * 3)


def test_credit_of_different_units_is_not_added_be_they_as_many() -> None:
    credit = Credit(runs(run("say ann", "say bob", team=1.0)), "team", np.ones(1))
    with pytest.raises(BadCredit, match=r"different units \(agent, message\)"):
        apply(credit, "to('agent') + to('message')")


def test_one_number_a_run_may_differ_by_a_rounding_of_its_size() -> None:
    """Masks compare whole runs: numbers of a million may differ in the tenth digit, numbers of one thousandth may not in the second."""
    trace = runs(run("say ann", "say bob", team=1.0))
    apply(Credit(trace, "turn", np.array([1e6, 1e6 + 5e-4])), 'masked("agent")')
    apply(Credit(trace, "turn", np.array([1e-3, 1e-3 + 5e-10])), 'masked("agent")')
    with pytest.raises(BadCredit, match="one number a run"):
        apply(Credit(trace, "turn", np.array([1e-3, 1e-3 + 1.5e-9])), 'masked("agent")')


def test_a_span_that_is_split_shares_its_time_tokens_and_cost() -> None:
    whole = on("return bob", t=4.0, end=10.0, tokens_out=7.0, cost=3.0, step=0.5, tokens=4)
    trace = runs(run("decide lead", "say bob", whole, on("say lead", after=[2]), team=1.0))
    other, old = split(trace, 2)
    assert old.tolist() == [0, 1, 2, 2, 3]
    near(other.t_e[2:4], [4.0, 7.0])
    near(other.end_e[2:4], [7.0, 10.0])
    near(other.cost_e[2:4], [1.5, 1.5])
    near(other.tokens_out_e[2:4].sum(), trace.tokens_out_e[2])
    near(other.reward_e["step"][2:4], [0.5, 0.0])
    assert other.owner_k.tolist() == [2, 2, 3, 3]
    edges = set(zip(other.src_x.tolist(), other.dst_x.tolist(), strict=True))
    assert edges == {(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)}
    assert (np.diff(other.dst_x) >= 0).all()
    ids = other.id_e.strings()
    assert len(set(ids)) == 5
    assert ids[2] == trace.id_e.strings()[2]
    assert ids[4] == trace.id_e.strings()[3]


def test_splitting_leaves_every_other_row_as_it_was() -> None:
    trace = plain(0)
    row = 12
    other, old = split(trace, row)
    rest = np.flatnonzero(old != row)
    for name in ("t_e", "end_e", "tokens_out_e", "cost_e", "type_e", "agent_e", "rollout_e"):
        np.testing.assert_array_equal(getattr(other, name)[rest], getattr(trace, name)[old[rest]])
    assert other.n_events == trace.n_events + 1
    assert len(other.src_x) == len(trace.src_x) + 2


def test_shapley_of_samples_takes_the_mean_of_a_coalition_that_was_played_twice() -> None:
    from grown import masks

    trace = runs(
        run("say ann", "say bob", team=6.0),
        masks("ann", there=("bob",), reward=1.0),
        masks("ann", there=("bob",), reward=3.0),
        masks("bob", there=("ann",), reward=4.0),
        masks("ann", "bob", there=("user",), reward=0.0),
    )
    near(paid(trace, "shapley()")[:2], [4.0, 2.0])  # alone ann is worth 4 and bob the mean of 1 and 3
    near(paid(trace, "shapley(permutations=2)")[:2], [4.0, 2.0])


def test_credit_is_added_unit_by_unit() -> None:
    trace = runs(run("say ann", team=1.0), run("say ann", team=0.0), run("say ann", team=0.5))
    near(paid(trace, "2 * center() + center()"), [1.5, -1.5, 0.0])
    start = Credit(trace, "team", np.array([1.0, 0.0, 0.5]))
    weighed = dataclasses.replace(start, weight=np.array([1.0, 2.0, 3.0]))
    assert apply(start, "center() + center()").weight is None
    assert list(apply(weighed, "center() + center()").weight) == [1.0, 2.0, 3.0]
