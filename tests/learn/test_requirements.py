"""Learning by any method's credit: which event a decision is, what it is paid, and that it learns."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from podium.credit import BadCredit, apply
from podium.envs.draws import seeds
from podium.learn.folder import BadRecipe, read_recipe
from podium.learn.loop import TRIES
from podium.learn.params import training
from podium.learn.policy import Net
from podium.learn.requirements import branching, cannot, with_anchors, with_decision_tokens
from podium.learn.rows import TrainingRows, training_rows
from podium.learn.source import WorldSource
from podium.learn.train import NetPolicy, Recipe, begin, updated_by_regime
from podium.learn.unpaid import at_rows, unpaid
from podium.methods import METHODS, Method, credit_of, scored
from podium.rewards.ledger import Now
from tests.learn.playing import made, record, step, trace_of, train

ENVS = ("costly_search", "scouts", "crew", "relay", "jury", "pandora")
SMALL = Recipe(iterations=8, worlds=2, episodes=400, most=20)


@pytest.mark.parametrize("env", ENVS)
def test_a_row_is_the_event_of_its_decision(env: str) -> None:
    world = training(env, 0, 0, 0)
    net = Net(world)
    one = record(world, net, begin(net, 0).w, seeds(0, 50))
    codes = net.words.codes(world.options)
    trace, every = trace_of(one), made(one)
    rows = np.concatenate([some.row for some in every])
    assert sorted(rows.tolist()) == np.flatnonzero(trace.decision_e >= 0).tolist()
    for some in every:
        assert np.array_equal(some.logp[some.entry], trace.logp_e[some.row].astype(np.float32))
        for entry, row in zip(some.entry.tolist(), some.row.tolist(), strict=True):
            if some.seen.item[entry] < 0:
                assert some.seen.option[entry] == codes[world.options.index(str(trace.chosen_e[row]))]


def test_a_decision_is_paid_what_its_unit_is_paid() -> None:
    world = training("scouts", 0, 0, 0)
    net = Net(world)
    one = record(world, net, begin(net, 0).w, seeds(0, 40))
    trace = with_decision_tokens(trace_of(one))
    rows = one.observations.decisions[0].row
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
    one = record(world, net, begin(net, 0).w, seeds(0, 30), share=1.0)
    grown = trace_of(one)
    decisions = sum(len(some.row) for some in one.observations.decisions)
    assert len(grown) == 30 + decisions  # two options: one branch a decision
    assert (grown.parent_n.codes[30:] >= 0).all()


@pytest.mark.parametrize("method", ["grpo", "puppeteer", "branching_policy"])
def test_it_learns(method: str) -> None:
    net = Net(training("costly_search", 0, 0, 0))
    worlds = lambda i, k: training("costly_search", 0, 1, k)  # noqa: E731
    scores = [done.score for _, done in train(net, SMALL, worlds, begin(net, 0), method=method)]
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
    one = record(training(env, 0, 1, 0), net, old.w, seeds(0, 40), share=0.25)
    given = credit_of(with_decision_tokens(trace_of(one)), method, Now(0.0, ()))
    every = made(one)
    paid = [at_rows(given, some.row) for some in every]
    rows, zeros = [], []
    for some_made, x in zip(every, paid, strict=True):
        seen = some_made.seen
        entries = [np.arange(a, b) for a, b in zip(seen.start[:-1], seen.start[1:], strict=True)]
        items = [np.arange(a, b) for a, b in zip(seen.first[:-1], seen.first[1:], strict=True)]
        there = np.flatnonzero(~np.isnan(x)).tolist()
        whole = np.zeros(len(some_made.logp), np.float32)
        whole[some_made.entry] = np.where(np.isnan(x), 0.0, x) / np.exp(some_made.logp[some_made.entry])
        zeros.append(TrainingRows(seen, some_made.logp, whole, np.ones(len(x), np.float32)))
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
        rows.append(TrainingRows(some, some_made.logp[at], whole[at], np.ones(len(there), np.float32)))
    assert 0 < sum(len(r.seen) for r in rows) < sum(map(len, paid))
    by_hand = updated_by_regime(net, SMALL, rows, old)[0].w
    learned = training_rows([one.observations.decisions], [given]).rows
    by_us = updated_by_regime(net, SMALL, learned, old)[0].w
    by_zeros = updated_by_regime(net, SMALL, zeros, old)[0].w
    assert all(np.array_equal(by_hand[k], by_us[k]) for k in by_hand)
    assert not all(np.allclose(by_zeros[k], by_us[k]) for k in by_hand)


def test_the_share_of_decisions_paid_is_told() -> None:
    worlds = lambda i, k: training("scouts", 0, 1, k)  # noqa: E731
    net = Net(worlds(0, 0))
    _, whole = step(net, SMALL, worlds, "grpo", begin(net, 0))
    assert whole.change.paid == 1.0
    assert whole.change.credit
    _, some = step(net, SMALL, worlds, "spawn_branching", begin(net, 0))
    source = WorldSource(worlds, METHODS["spawn_branching"], by_doubt=False)
    again = source.rollouts(NetPolicy(net, SMALL, begin(net, 0)))
    every = sum(len(d.row) for one in again for d in one.observations.decisions)
    assert some.change.paid == pytest.approx(some.change.rows / every)
    assert 0 < some.change.rows < every


def test_an_iteration_that_pays_nobody_is_no_update() -> None:
    """A method that paid before is not refused for it, and nothing moves."""
    worlds = lambda i, k: training("jury", 0, 1, k)  # noqa: E731
    net = Net(worlds(0, 0))
    old = replace(begin(net, 0), updates=5, iteration=4)
    new, done = step(net, SMALL, worlds, "owl", old)
    change = done.change
    assert (change.paid, change.credit, change.rows, change.gradient) == (0.0, None, 0, 0.0)
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
    for _ in range(TRIES - 1):
        learner, done = step(net, small, lambda i, k: training(env, 0, 1, k), method, learner)
        assert done.change.paid == 0.0
    with pytest.raises(BadCredit, match=why):
        step(net, small, lambda i, k: training(env, 0, 1, k), method, learner)
    with pytest.raises(
        BadRecipe, match=f"{method} cannot be paid in {env}: no decision of the policy is paid: .*{why}"
    ):
        read_recipe(f'world = "{env}"\nmethod = "{method}"', "a recipe")


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
    one = record(world, net, begin(net, 0).w, seeds(0, 40))
    told = unpaid(with_decision_tokens(trace_of(one)), row, one.rows, Now(0.0, ()))
    assert re.search(why, told), told


@pytest.mark.parametrize("env", ["costly_search", "jury", "scouts"])
def test_siblings_are_branches(env: str) -> None:
    """MAGRPO compares what was tried in the same place: after an agent's first turn only branches are there to
    compare with, also where a turn begins with the result of a call, which its siblings share."""
    assert branching(METHODS["magrpo"], 0.25) == 1.0
    assert branching(METHODS["branching_policy"], 0.25) == 0.25
    assert not branching(METHODS["mareinforce"], 0.25)
    worlds = lambda i, k: training(env, 0, 1, k)  # noqa: E731
    net, recipe = Net(worlds(0, 0)), replace(SMALL, iterations=2, episodes=60, decisions=400)
    paid = step(net, recipe, worlds, "magrpo", begin(net, 0))[1].change.paid
    assert paid is not None
    assert paid > 0.95  # some decisions have one option alone


@pytest.mark.parametrize("method", ["dr_mas", "dapo", "agent_lightning"])
def test_what_a_world_knows_without_saying_it_is_on_the_trace(method: str) -> None:
    """A call that it allowed was valid, and a decision is one token long: these methods read that, and pay
    everyone."""
    worlds = lambda i, k: training("costly_search", 0, 1, k)  # noqa: E731
    net = Net(worlds(0, 0))
    assert step(net, SMALL, worlds, method, begin(net, 0))[1].change.paid == 1.0


def test_decisions_that_saw_the_same_share_an_anchor() -> None:
    world = training("costly_search", 0, 0, 0)
    net = Net(world)
    one = record(world, net, net.initial(0), seeds(0, 30), most=50)
    trace = with_anchors(one._replace(trace=trace_of(one)))
    label = trace.extra_e["anchor"]
    saw: dict[str, set[bytes]] = {}
    for seen, rows in one.observations.decisions:
        for i, row in enumerate(rows.tolist()):
            items = seen.items[seen.first[i] : seen.first[i + 1]]
            saw.setdefault(str(label[row]), set()).add(seen.facts[i].tobytes() + items.tobytes())
    assert all(len(some) == 1 for some in saw.values())
    assert len(set.union(*saw.values())) == len(saw)
    rows = one.observations.decisions[0].row
    assert (
        sum(label[row] == label[int(rows[0])] for row in trace.first_of("e")[:-1].tolist()) > 1
    )  # all begin alike
    given = apply(scored(with_decision_tokens(trace), METHODS["gigpo"], Now(0.0, ())), METHODS["gigpo"].credit)
    assert not np.isnan(at_rows(given, rows)).any()
