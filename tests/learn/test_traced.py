"""Learning by any method's credit: which event a decision is, what it is paid, and that it learns."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from podium.credit import BadCredit, apply
from podium.envs.draws import seeds
from podium.learn.folder import BadRecipe, read
from podium.learn.params import training
from podium.learn.policy import Net
from podium.learn.traced import (
    TRIED,
    _grown,
    at_rows,
    branching,
    cannot,
    credited,
    dressed,
    forest,
    record,
    traced_step,
    with_anchors,
)
from podium.learn.train import Credited, Recipe, begin, taught
from podium.learn.unpaid import unpaid
from podium.methods import METHODS, Method, credit_of, scored
from podium.rewards.ledger import Now

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


def test_decisions_that_are_not_paid_are_not_in_the_update() -> None:
    """The update is that of the paid rows alone, picked by hand from what was seen; with 0 in place of what is
    absent it is another."""
    env, method = "scouts", METHODS["spawn_branching"]
    net = Net(training(env, 0, 0, 0))
    old = begin(net, 0)
    one, grown = _grown(training(env, 0, 1, 0), net, replace(SMALL, worlds=1), method, old, 0)
    given = credit_of(dressed(grown), method, Now(0.0, ()))
    paid = [at_rows(given, made.row) for made in one.made]
    rows, zeros = [], []
    for made, x in zip(one.made, paid, strict=True):
        seen = made.seen
        entries = [np.arange(a, b) for a, b in zip(seen.start[:-1], seen.start[1:], strict=True)]
        items = [np.arange(a, b) for a, b in zip(seen.first[:-1], seen.first[1:], strict=True)]
        there = np.flatnonzero(~np.isnan(x)).tolist()
        whole = np.zeros(len(made.logp), np.float32)
        whole[made.entry] = np.where(np.isnan(x), 0.0, x) / np.exp(made.logp[made.entry])
        zeros.append(Credited(seen, made.logp, whole, np.ones(len(x), np.float32)))
        if not there:
            continue
        at, of = np.concatenate([entries[i] for i in there]), np.concatenate([items[i] for i in there])
        place = {int(old_item): new_item for new_item, old_item in enumerate(of)}
        some = replace(
            seen,
            facts=seen.facts[there],
            items=seen.items[of],
            first=np.cumsum([0, *(len(items[i]) for i in there)]),
            start=np.cumsum([0, *(len(entries[i]) for i in there)]),
            option=seen.option[at],
            item=np.array([place[i] if i >= 0 else -1 for i in seen.item[at].tolist()]),
            new=seen.new[there],
        )
        rows.append(Credited(some, made.logp[at], whole[at], np.ones(len(there), np.float32)))
    assert 0 < sum(len(r.seen) for r in rows) < sum(map(len, paid))
    by_hand = taught(net, SMALL, rows, old)[0].w
    by_us = taught(net, SMALL, [r for made, x in zip(one.made, paid, strict=True) for r in credited(made, x)], old)[
        0
    ].w
    by_zeros = taught(net, SMALL, zeros, old)[0].w
    assert all(np.array_equal(by_hand[k], by_us[k]) for k in by_hand)
    assert not all(np.allclose(by_zeros[k], by_us[k]) for k in by_hand)


def test_the_share_of_decisions_paid_is_told() -> None:
    worlds = lambda i, k: training("scouts", 0, 1, k)  # noqa: E731
    net = Net(worlds(0, 0))
    _, whole = traced_step(net, SMALL, worlds, METHODS["grpo"], begin(net, 0))
    assert whole.paid == 1.0
    assert whole.credit
    _, some = traced_step(net, SMALL, worlds, METHODS["spawn_branching"], begin(net, 0))
    made = sum(
        len(m.row)
        for k in range(2)
        for m in _grown(worlds(0, k), net, SMALL, METHODS["spawn_branching"], begin(net, 0), k)[0].made
    )
    assert some.paid == pytest.approx(some.rows / made)
    assert 0 < some.rows < made


def test_an_iteration_that_pays_nobody_is_no_update() -> None:
    """A method that paid before is not refused for it, and nothing moves."""
    worlds = lambda i, k: training("jury", 0, 1, k)  # noqa: E731
    net = Net(worlds(0, 0))
    old = replace(begin(net, 0), updates=5, iteration=4)
    new, progress = traced_step(net, SMALL, worlds, METHODS["owl"], old)
    assert (progress.paid, progress.credit, progress.rows, progress.gradient) == (0.0, None, 0, 0.0)
    assert (new.updates, new.iteration) == (5, 5)
    assert all(np.array_equal(new.w[k], old.w[k]) for k in old.w)


@pytest.mark.parametrize(
    ("method", "env", "why"),
    [
        ("owl", "jury", r"after `only\('role', 'planner'\)` none of these has credit: by role they are lead"),
        ("spawn_branching", "costly_search", "by decision they are stop"),
        ("multiagent_finetuning", "scouts", "it pays by message, and these runs have no message"),
        ("mars2", "jury", r"`step\('tests'\)`, which needs the reward channel on events, is absent everywhere"),
        ("debate_as_reward", "jury", "`panel`, which needs votes that are numbers"),
    ],
)
def test_a_method_that_pays_nobody_is_refused_with_the_reason(method: str, env: str, why: str) -> None:
    net = Net(training(env, 0, 0, 0))
    learner = begin(net, 0)
    small = replace(SMALL, worlds=1, episodes=40)
    for _ in range(TRIED - 1):
        learner, progress = traced_step(net, small, lambda i, k: training(env, 0, 1, k), METHODS[method], learner)
        assert progress.paid == 0.0
    with pytest.raises(BadCredit, match=why):
        traced_step(net, small, lambda i, k: training(env, 0, 1, k), METHODS[method], learner)
    with pytest.raises(
        BadRecipe, match=f"{method} cannot be paid in {env}: no decision of the policy is paid: .*{why}"
    ):
        read(f'world = "{env}"\nmethod = "{method}"', "a recipe")


def _row(reward: str, credit: str, unit: str) -> Method:
    return Method("mine", reward, credit, unit, unit, "clip(token)", "joint", (), "a test")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (_row("outcome", 'center(by="model")', "turn"), "none has the key 'model'"),
        (_row("step", 'center(by=("parent", "agent"))', "turn"), "the only turn of its group by parent and agent"),
        (_row("outcome", 'center(by="task") + 2.0 * only("agent", "nobody")', "turn"), "by agent they are lead"),
        (_row("outcome", 'center(by="task")', "turn"), "^$"),
    ],
)
def test_why_a_method_of_your_own_pays_nobody(row: Method, why: str) -> None:
    world = training("jury", 0, 0, 0)
    net = Net(world)
    one = record(world, net, begin(net, 0).w, seeds(0, 40), "task", 100)
    rows = np.concatenate([made.row for made in one.made])
    told = unpaid(dressed(one.trace), row, rows, Now(0.0, ()))
    assert re.search(why, told), told


def test_siblings_are_branches() -> None:
    """MAGRPO compares what was tried in the same place: after an agent's first turn only branches are there to
    compare with."""
    assert branching(METHODS["magrpo"])
    assert branching(METHODS["branching_policy"])
    assert not branching(METHODS["mareinforce"])
    worlds = lambda i, k: training("jury", 0, 1, k)  # noqa: E731
    net = Net(worlds(0, 0))
    _, progress = traced_step(net, SMALL, worlds, METHODS["magrpo"], begin(net, 0))
    assert progress.paid is not None
    assert 0.1 < progress.paid < 0.5  # a quarter of decisions is branched


@pytest.mark.parametrize("method", ["dr_mas", "dapo", "agent_lightning"])
def test_what_a_world_knows_without_saying_it_is_on_the_trace(method: str) -> None:
    """A call that it allowed was valid, and a decision is one token long: these methods read that, and pay
    everyone."""
    worlds = lambda i, k: training("costly_search", 0, 1, k)  # noqa: E731
    net = Net(worlds(0, 0))
    assert traced_step(net, SMALL, worlds, METHODS[method], begin(net, 0))[1].paid == 1.0


def test_decisions_that_saw_the_same_share_an_anchor() -> None:
    world = training("costly_search", 0, 0, 0)
    net = Net(world)
    one = with_anchors(record(world, net, net.initial(0), seeds(0, 30), "task", 50))
    label = one.trace.extra_e["anchor"]
    saw: dict[str, set[bytes]] = {}
    for made in one.made:
        for i, row in enumerate(made.row.tolist()):
            items = made.seen.items[made.seen.first[i] : made.seen.first[i + 1]]
            saw.setdefault(str(label[row]), set()).add(made.seen.facts[i].tobytes() + items.tobytes())
    assert all(len(some) == 1 for some in saw.values())
    assert len(set.union(*saw.values())) == len(saw)
    first = [label[int(made.row[0])] for made in one.made]
    assert sum(label[row] == first[0] for row in one.trace.first_of("e")[:-1].tolist()) > 1  # all begin alike
    given = apply(scored(dressed(one.trace), METHODS["gigpo"], Now(0.0, ())), METHODS["gigpo"].credit)
    assert not np.isnan(at_rows(given, one.made[0].row)).any()
