"""Difference rewards from runs in which a unit was masked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, decides, masks, near, paid, run, runs

from podium.credit import BadCredit, Credit, apply
from podium.envs.branch import branch
from podium.envs.draws import seeds
from podium.envs.planted_credit import worth
from podium.envs.world import make, play
from podium.trace.columns import Trace, concat
from podium.trace.do import Do


def trio(batch: int = 0) -> Trace:
    return runs(
        run("say a", "say b", "say c", team=1.0, batch=batch),
        masks("a", there="bc", reward=0.25, batch=batch),
        masks("a", there="bc", reward=0.75, batch=batch),
        masks("b", there="ac", reward=1.0, batch=batch),
        masks("b", "c", there="a", reward=0.0, batch=batch),
    )


def test_what_the_team_loses_without_an_agent() -> None:
    # without a (.25 + .75) / 2: a is worth .5; without b 1: nothing; c was never masked alone. Masked runs pay nobody
    near(paid(trio(), "masked()"), [0.5, 0.0, NAN] + [NAN] * 7)


def test_a_mask_by_name_is_a_mask_of_one() -> None:
    trace = trio()
    words = [w.replace('["a"]', '"a"') for w in trace.do_n.words]
    near(paid(replace(trace, do_n=type(trace.do_n)(trace.do_n.codes, words)), "masked()")[:3], [0.5, 0.0, NAN])


def test_an_agent_that_acted_before_it_was_masked_does_not_count() -> None:
    do = {"what": "mask", "value": ["a"]}
    late = run("say a", "say b", parent="run0", branch=1, do=do, team=0.0)
    near(paid(runs(run("say a", "say b", "say a", team=1.0), late), "masked()"), [NAN] * 4)


def test_an_event_that_was_removed() -> None:
    without = run("say a", "say c", parent="run0", branch=1, do={"what": "remove", "value": None}, team=0.25)
    trace = runs(run("say a", "say b", "say c", team=1.0), without)
    near(paid(trace, 'masked("message")'), [NAN, 0.75, NAN, NAN, NAN])


def test_a_branch_of_a_run_that_is_not_there_tells_of_nobody() -> None:
    gone = run("say a", "say c", parent="elsewhere", branch=1, do={"what": "remove", "value": None}, team=0.25)
    unplaced = run("say a", "say c", parent="run0", do={"what": "remove", "value": None}, team=0.25)
    trace = runs(run("say a", "say b", "say c", team=1.0), gone, unplaced)
    assert np.isnan(paid(trace, 'masked("message")')).all()


def test_the_first_event_of_a_run_may_be_removed() -> None:
    without = run("say b", parent="run0", branch=0, do={"what": "remove", "value": None}, team=0.25)
    trace = runs(run("say a", team=0.0, name="other"), run("say a", "say b", team=1.0), without)
    near(paid(trace, 'masked("message")'), [NAN, 0.75, NAN, NAN])


def test_credit_may_come_from_a_copied_team_reward_but_not_from_one_that_differs() -> None:
    trace = trio()
    near(paid(trace, "masked()", unit="agent"), paid(trace, "masked()"))
    with pytest.raises(BadCredit, match="one number a run"):
        apply(Credit(trace, "agent", np.arange(10.0)), "masked()")
    with pytest.raises(BadCredit, match="not 'team'"):
        paid(trace, 'masked("team")')


def test_runs_that_were_not_scored_give_nothing() -> None:
    trace = trio()
    told = trace.reward_n["team"].copy()
    told[1] = NAN
    near(paid(replace(trace, reward_n={"team": told}), "masked()")[:3], [0.25, 0.0, NAN])
    told[0] = NAN
    assert np.isnan(paid(replace(trace, reward_n={"team": told}), "masked()")).all()


def test_batches_do_not_meet() -> None:
    one, two = trio(), trio(batch=1)
    two = replace(two, reward_n={"team": np.array([0.5, 0.5, 0.5, 0.0, 0.0])})
    near(paid(concat([one, two]), "masked()"), np.concatenate([paid(one, "masked()"), paid(two, "masked()")]))


def test_without_branches_there_is_nothing_to_compare() -> None:
    assert np.isnan(paid(runs(run("say a", decides("x"), team=1.0)), "masked()")).all()


# masks in a world


def test_masked_runs_of_a_planted_team_earn_what_the_model_says() -> None:
    world, n = make("planted"), 3000
    seed = seeds(3, 1)
    root = world.trace(play(world, world.behaviour(seed), seed, log=True).state)
    for names in (("lead",), ("agent1",), ("agent2",), ("agent2", "agent3"), ()):
        fresh = seeds(9, n)
        grown = branch(world, root, [Do(0, "mask", names)] * n, world.behaviour(fresh), fresh)
        assert not {*names} & {str(grown.name_a[a]) for a in np.unique(grown.agent_e)}
        exact = worth(world.model, absent=tuple(0 if a == "lead" else int(a[5:]) for a in names)).start
        earned = grown.reward_n["team"]
        assert abs(earned.mean() - exact) <= 4 * earned.std() / n**0.5 + 1e-12


def test_difference_rewards_of_a_planted_team_are_on_average_what_removal_costs() -> None:
    world, n = make("planted"), 1500
    seed, fresh = seeds(5, n), seeds(6, 3 * n)
    root = world.trace(play(world, world.behaviour(seed), seed, log=True).state)
    dos = [Do(int(first), "mask", f"agent{a}") for first in root.first_of("e")[:-1] for a in (1, 2, 3)]
    grown = branch(world, root, dos, world.behaviour(fresh), fresh)
    whole = worth(world.model).start
    made = paid(concat([root, grown]), "masked()")[: root.n_agents]
    for a in (1, 2, 3):
        mine = made[root.name_a.codes == root.name_a.code(f"agent{a}")]
        told = mine[~np.isnan(mine)]
        there = root.rollout_a[root.name_a.codes == root.name_a.code(f"agent{a}")]
        # of the runs that have the agent: what they earned less what the team earns without it
        exact = root.reward_n["team"][there].mean() - worth(world.model, absent=(a,)).start
        assert len(told) == len(there)
        assert abs(told.mean() - exact) <= 4 * 0.5 / len(told) ** 0.5
    assert abs(root.reward_n["team"].mean() - whole) <= 4 * 0.5 / n**0.5
