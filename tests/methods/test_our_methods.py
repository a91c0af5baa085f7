"""Methods of our own, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from handmade import NAN, Event, credit, near, on, run, runs

from podium.credit.credit import Credit
from podium.metrics.effects import effects
from podium.trace.columns import Trace


def decides(kind: str, chosen: str, **more: Any) -> Event:
    return on("decide lead", decision=kind, options=["yes", "no"], chosen=chosen, **more)


def forced(option: str, reward: float, kind: str = "spawn", row: int = 0) -> Trace:
    """A branch that decides otherwise at a row, and goes on."""
    events = [decides(kind, "yes")] * row + [decides(kind, option), "say w"]
    return run(*events, parent="run0", branch=row, do={"what": "choose", "value": option}, team=reward)


def test_branching_pays_an_option_what_it_beat_the_others_by() -> None:
    trace = runs(run(decides("spawn", "yes"), "say w", team=1.0), forced("yes", 0.0), forced("no", 0.25))
    # yes: (1 + 0) / 2 = .5, no: .25; each against the other
    near(credit(trace, "branching"), [0.25, 0.25, -0.25])
    near(credit(trace, "spawn_branching"), [0.25, 0.25, -0.25])
    near(credit(trace, "stop_branching"), [NAN, NAN, NAN])


def test_how_often_an_option_was_tried_does_not_matter() -> None:
    twice = runs(run(decides("stop", "yes"), team=1.0), forced("no", 0.25, "stop"), forced("no", 0.25, "stop"))
    near(credit(twice, "stop_branching"), [0.75, -0.75, -0.75])


def test_a_decision_that_nobody_tried_otherwise_gets_none() -> None:
    trace = runs(run(decides("spawn", "yes"), decides("spawn", "yes"), team=1.0), forced("no", 0.0, row=1))
    # the first decision is the same in both; the second was forced
    near(credit(trace, "branching"), [NAN, 1.0, NAN, -1.0])


def test_with_two_branches_of_one_level_it_is_leave_one_out() -> None:
    trace = runs(run(decides("spawn", "yes"), team=0.75), forced("no", 0.25))
    near(credit(trace, "branching"), [0.75 - 0.25, 0.25 - 0.75])
    made = effects(Credit(trace, "orchestrator", np.array([0.75, 0.25])))
    near(made.mean, credit(trace, "branching"))


def test_branching_against_the_policy_is_coma_with_runs() -> None:
    pi = {"pi": [0.75, 0.25]}
    trace = runs(run(decides("spawn", "yes", **pi), team=1.0), forced("no", 0.0))
    # Σ π Q = .75 x 1 + .25 x 0
    near(credit(trace, "branching_policy"), [0.25, -0.75])
    critic = runs(run(decides("spawn", "yes", q=[1.0, 0.0], **pi), team=1.0))
    near(credit(critic, "coma"), [0.25])


def looks(*grades: float, stops: bool = True, reward: float | None = None) -> Trace:
    """A search that grades the answer at hand and decides each time whether to go on; at the end it stops, or goes on."""
    events: list[Event] = []
    for i, grade in enumerate(grades):
        events.append(on("say w", graded=grade))
        last = stops and i == len(grades) - 1
        events.append(
            on("decide lead", decision="stop", options=["stop", "go on"], chosen="stop" if last else "go on")
        )
    return run(*events, team=grades[-1] if reward is None else reward)


def test_stopping_credit_from_one_run() -> None:
    # stopped with .6: going on from .2 earned .6 - .2, from .9 it lost .3; what stopping forwent no run tells
    near(credit(runs(looks(0.2, 0.9, 0.6)), "stopping"), [0.4, -0.3, NAN])


def test_stopping_credit_of_a_run_that_never_improves_is_nothing() -> None:
    near(credit(runs(looks(0.5, 0.5, 0.5)), "stopping"), [0.0, 0.0, NAN])


def test_the_best_rule_does_not_peek() -> None:
    trace = runs(looks(0.5, 1.0), looks(0.5, 0.0))
    # each sees only what the other made of going on: run 0 expects 0, run 1 expects 1; neither its own luck
    near(credit(trace, "stopping_best"), [0.0 - 0.5, NAN, 1.0 - 0.5, NAN])


def test_the_best_rule_stops_where_others_found_nothing_better() -> None:
    trace = runs(looks(0.5), looks(0.5, 0.25), looks(0.5, 0.25))
    # stopping at .5 beat going on, which earned the others .25
    near(credit(trace, "stopping_best")[0], 0.25)


def test_a_vote_is_worth_what_it_turned() -> None:
    votes = [(0, "x"), (1, "x"), (2, "y")]
    events = [on("say a", correct=1.0), on("say b", correct=1.0), on("say c", correct=0.0)]
    trace = runs(run(*events, on("aggregate lead", votes=votes), team=1.0))
    # x wins, right. Without a (or b) it is a tie of right and wrong: 1 - .5. Without c nothing changes. The lead has no vote
    near(credit(trace, "revote"), [0.5, 0.5, 0.0, 0.0])


def test_a_lone_voter_holds_the_whole_consensus() -> None:
    trace = runs(run(on("say a", correct=1.0), on("aggregate lead", votes=[(0, "x")]), team=1.0))
    near(credit(trace, "revote"), [1.0, 0.0])


def mask(*agents: str, reward: float, there: tuple[str, ...]) -> Trace:
    do = {"what": "mask", "value": list(agents)}
    return run(*(f"say {a}" for a in there), parent="run0", branch=0, do=do, team=reward)


def glove() -> Trace:
    """A left glove (l), two right ones (r, s): a pair is worth 1."""
    return runs(
        run("say l", "say r", "say s", team=1.0),
        mask("l", reward=0.0, there=("r", "s")),
        mask("r", reward=1.0, there=("l", "s")),
        mask("s", reward=1.0, there=("l", "r")),
        mask("l", "r", reward=0.0, there=("s",)),
        mask("l", "s", reward=0.0, there=("r",)),
        mask("r", "s", reward=0.0, there=("l",)),
        mask("l", "r", "s", reward=0.0, there=()),
    )


def test_shapley_of_the_glove_game() -> None:
    near(credit(glove(), "shapley")[:3], [4 / 6, 1 / 6, 1 / 6])  # l completes the pair in 4 of 6 orders


def test_difference_of_the_glove_game_does_not_add_up_until_it_is_closed() -> None:
    near(credit(glove(), "difference")[:3], [1.0, 0.0, 0.0])
    near(credit(glove(), "closed_difference")[:3], [1.0, 0.0, 0.0])
    two = runs(
        run("say a", "say b", team=1.0), mask("a", reward=0.0, there=("b",)), mask("b", reward=0.0, there=("a",))
    )
    near(credit(two, "difference")[:2], [1.0, 1.0])
    near(credit(two, "closed_difference")[:2], [0.5, 0.5])  # each claims all of it: 1 + (1 - 2) / 2


def test_nobody_comes_before_its_spawner() -> None:
    trace = runs(
        run(on("spawn a>b"), on("say b", after=[(0, "spawn")]), team=4.0),
        mask("b", reward=1.0, there=("a",)),
        mask("a", "b", reward=0.0, there=()),
        mask("a", reward=0.0, there=()),
    )
    # the only order is a, b: 1 - 0 and 4 - 1
    near(credit(trace, "spawn_shapley")[:2], [1.0, 3.0])


def test_without_spawns_it_is_shapley() -> None:
    near(credit(glove(), "spawn_shapley"), credit(glove(), "shapley"))


def test_prefix_value_is_how_much_a_turn_raised_it() -> None:
    trace = runs(
        run(on("say a", value_graph=0.5), on("say b", value_graph=0.75), on("say c", value_graph=0.25), team=1.0)
    )
    # .75 - .5, .25 - .75, 1 - .25: what a run was worth at first, .5, and all it was raised by make the outcome
    near(credit(trace, "prefix_value"), [0.25, -0.5, 0.75])
    near(0.5 + sum(credit(trace, "prefix_value")), 1.0)


def test_prefix_value_of_a_true_and_certain_value_is_nothing() -> None:
    trace = runs(run(on("say a", value_graph=1.0), on("say b", value_graph=1.0), team=1.0))
    near(credit(trace, "prefix_value"), [0.0, 0.0])


@pytest.mark.parametrize("method", ["branching", "shapley", "closed_difference", "stopping"])
def test_what_was_not_scored_is_not_paid(method: str) -> None:
    trace = {
        "branching": runs(run(decides("spawn", "yes"), team=NAN), forced("no", NAN)),
        "stopping": runs(looks(0.5, NAN)),
    }
    unscored = trace.get(method, runs(run("say a", team=NAN), mask("a", reward=NAN, there=())))
    assert np.isnan(credit(unscored, method)).all()
