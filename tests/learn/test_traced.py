"""Learning by any method's credit: which event a decision is, what it is paid, and that it learns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from podium.envs.draws import seeds
from podium.learn.params import training
from podium.learn.policy import Net
from podium.learn.traced import at_rows, cannot, dressed, forest, record, traced_step
from podium.learn.train import Recipe, begin
from podium.methods import METHODS, credit_of

ENVS = ("costly_search", "scouts", "crew", "relay", "jury", "pandora")
SMALL = Recipe(iterations=8, worlds=2, episodes=400, most=20)


@pytest.mark.parametrize("env", ENVS)
def test_a_row_is_the_event_of_its_decision(env: str) -> None:
    world = training(env, 0, 0, 0)
    net = Net(world)
    one = record(world, net, begin(net, 0).w, seeds(0, 50), "task", 100)
    codes = net.words.codes(world.options)
    rows = np.concatenate([made.row for made in one.made])
    assert sorted(rows.tolist()) == np.flatnonzero(one.trace.decision_e >= 0).tolist()
    for made in one.made:
        assert np.allclose(made.logp[made.entry], one.trace.logp_e[made.row])
        for entry, row in zip(made.entry.tolist(), made.row.tolist(), strict=True):
            if made.seen.item[entry] < 0:
                assert made.seen.option[entry] == codes[world.options.index(str(one.trace.chosen_e[row]))]


def test_a_decision_is_paid_what_its_unit_is_paid() -> None:
    world = training("scouts", 0, 0, 0)
    net = Net(world)
    one = record(world, net, begin(net, 0).w, seeds(0, 40), "task", 100)
    trace = dressed(one.trace)
    rows = one.made[0].row
    outcome = trace.reward_n["team"]
    given = credit_of(trace, "grpo")
    z = (outcome - outcome.mean()) / outcome.std(ddof=1)
    tokens = np.bincount(trace.rollout_e[trace.owner_k], minlength=len(trace))
    weighed = z / tokens / len(trace)  # every rollout counts alike, whatever its length
    assert np.allclose(at_rows(given, rows), weighed[trace.rollout_e[rows]], atol=1e-6)
    team = replace(given, unit="team", value=outcome, weight=None)
    assert np.array_equal(at_rows(team, rows), outcome[trace.rollout_e[rows]])


def test_branches_go_on_with_the_same_dice() -> None:
    """A branch that takes what was taken anyway would end the same; every other option is tried once at a decision."""
    world = training("costly_search", 0, 0, 0)
    net = Net(world)
    one = record(world, net, begin(net, 0).w, seeds(0, 30), "task", 100)
    grown = forest(one, net, begin(net, 0).w, 1.0, 100)
    decisions = sum(len(made.row) for made in one.made)
    assert len(grown) == len(one.trace) + decisions  # two options: one branch a decision
    assert (grown.parent_n.codes[len(one.trace) :] >= 0).all()


@pytest.mark.parametrize("method", ["grpo", "puppeteer", "branching_policy"])
def test_it_learns(method: str) -> None:
    net = Net(training("costly_search", 0, 0, 0))
    learner, scores = begin(net, 0), []
    while learner.iteration < SMALL.iterations:
        learner, told = traced_step(
            net, SMALL, lambda i, k: training("costly_search", 0, 1, k), METHODS[method], learner
        )
        scores.append(told.score)
    assert scores[-1] > scores[0] + 0.1


def test_why_a_method_cannot() -> None:
    assert cannot(METHODS["grpo"]) == ""
    assert cannot(METHODS["coma"]) == ""
    assert "a critic that reads language" in cannot(METHODS["langmarl"])
    assert "is a card" in cannot(METHODS["latentmas"])
