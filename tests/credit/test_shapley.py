"""Shapley values: against all orders, closed forms, and coalitions played as masked runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, masks, near, paid, run, runs

from bench.shapley import all_orders, closed_forms, glove, orders_error, sampling_error, spawn_orders_error
from podium.credit import BadCredit
from podium.credit.shapley import (
    antithetic_orders,
    ask_coalitions,
    sampled_values,
    shapley_values,
    spawn_shapley_values,
)
from podium.envs import planted_credit
from podium.envs.branch import branch
from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.trace.columns import Trace, concat
from podium.trace.do import Do

# games


def test_exact_is_the_average_over_all_orders_up_to_7_agents() -> None:
    assert orders_error(4) <= 1e-9


def test_exact_under_spawns_is_the_average_over_all_orders_that_can_be() -> None:
    assert spawn_orders_error(6) <= 1e-9


@pytest.mark.parametrize("game", ["additive", "majority", "glove", "spawn-chain"])
def test_closed_forms_up_to_12_agents(game: str) -> None:
    assert closed_forms(12)[game] <= 1e-9


def test_the_glove_game_by_hand() -> None:
    # left, right, right: the left one makes a pair unless it comes first: 2/3; a right one only straight after the left: 1/6
    near(glove(3, 1), [2 / 3, 1 / 6, 1 / 6])
    near(shapley_values(np.array([0.0, 0, 0, 1, 0, 1, 0, 1])), [2 / 3, 1 / 6, 1 / 6])


def test_values_add_up_to_the_worth_of_all() -> None:
    worth = np.random.default_rng(0).normal(size=(3, 1 << 9))
    near(shapley_values(worth).sum(axis=1), worth[:, -1] - worth[:, 0])
    near(spawn_shapley_values(worth, (-1, 0, 0, 1, 1, 2, -1, 6, 6)).sum(axis=1), worth[:, -1] - worth[:, 0])


def test_without_spawns_the_two_agree() -> None:
    worth = np.random.default_rng(1).normal(size=(2, 1 << 8))
    near(spawn_shapley_values(worth, (-1,) * 8), shapley_values(worth))


def test_a_coalition_without_a_worth_makes_no_value() -> None:
    assert np.isnan(shapley_values(np.array([0.0, 1.0, NAN, 2.0]))).all()
    near(spawn_shapley_values(np.array([0.0, 1.0, NAN, 2.0]), (-1, 0)), [1.0, 1.0])  # nobody asks for it


def test_one_who_is_its_own_ancestor_is_refused() -> None:
    with pytest.raises(BadCredit, match="own ancestor"):
        spawn_shapley_values(np.zeros(4), (1, 0))


# orders


def test_antithetic_orders_are_reversed_in_pairs() -> None:
    orders = antithetic_orders(5, 6)
    assert (orders[::2] == orders[1::2, ::-1]).all()
    assert (np.sort(orders) == np.arange(5)).all()


def test_orders_under_spawns_are_all_equally_likely() -> None:
    spawner = (-1, 0, 0, 2)  # 0 first, then 1 anywhere, 2 before 3: 3 orders
    count = Counter(map(tuple, antithetic_orders(4, 6000, spawner=spawner).tolist()))
    assert set(count) == {(0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 3, 1)}
    assert all(abs(n - 2000) < 5 * 2000**0.5 for n in count.values())


def test_one_spawn_is_enough_to_leave_one_order_of_two() -> None:
    assert antithetic_orders(2, 50, spawner=(-1, 0)).tolist() == [[0, 1]] * 50
    assert {tuple(o) for o in antithetic_orders(2, 50, spawner=(-1, -1)).tolist()} == {(0, 1), (1, 0)}


def test_sampling_every_order_once_is_exact() -> None:
    worth = np.random.default_rng(2).normal(size=8)
    orders = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    near(sampled_values(np.arange(8), worth, orders), all_orders(worth))


def test_antithetic_pairs_are_exact_where_marginals_lean_one_way() -> None:
    # v(S) = |S|²: who comes k-th adds 2k - 1, and k-th in one order is (n + 1 - k)-th in the other, so each pair gives n
    size = np.array([s.bit_count() for s in range(16)])
    near(sampled_values(np.arange(16), size**2.0, antithetic_orders(4, 2)), [4.0] * 4)


def test_antithetic_pairs_are_nearer_than_as_many_orders() -> None:
    plain, paired = sampling_error(200)
    assert paired < plain


# steps


def gloves(batch: int = 0, **rewards: float) -> Trace:
    """l has a left glove, r and s have right ones: a pair is worth 1. All coalitions but the whole are masked runs."""
    worth = {"": 0.0, "l": 0.0, "r": 0.0, "s": 0.0, "lr": 1.0, "ls": 1.0, "rs": 0.0}
    others = (masks(*(set("lrs") - set(c)), there=c, reward=v, batch=batch) for c, v in worth.items())
    return runs(run("say l", "say r", "say s", team=1.0, batch=batch), *others)


def test_runs_that_are_coalitions() -> None:
    near(paid(gloves(), "shapley()")[:3], [2 / 3, 1 / 6, 1 / 6])
    assert np.isnan(paid(gloves(), "shapley()")[3:]).all()


def test_several_runs_of_a_coalition_count_by_their_mean() -> None:
    trace = gloves()
    again = runs(trace, *(masks("l", there="rs", reward=0.6, batch=0, name=name) for name in ("more", "yet more")))
    # v(rs) = (0 + .6 + .6) / 3 = .4: l adds .4 less when last (1/3), r and s .4 more when second after the other (1/6 each)
    near(paid(again, "shapley()")[:3], [2 / 3 - 0.4 / 3, 1 / 6 + 0.4 / 6, 1 / 6 + 0.4 / 6])


def test_a_missing_coalition_is_not_guessed() -> None:
    assert np.isnan(paid(gloves()[list(range(7))], "shapley()")).all()


def test_orders_pass_through_the_coalitions_that_were_asked_for() -> None:
    trace = gloves()
    dos = ask_coalitions(trace, ("l", "r", "s"), permutations=2, seed=1)
    asked = {frozenset(d.value) for d in dos}  # type: ignore[arg-type]
    kept = [i for i in range(8) if i == 0 or frozenset(_masked(trace, i)) in asked]
    orders = antithetic_orders(3, 2, seed=1)
    worth = np.array([0.0, 0, 0, 1, 0, 1, 0, 1])
    near(paid(trace[kept], "shapley(permutations=2, seed=1)")[:3], sampled_values(np.arange(8), worth, orders))


def test_what_is_asked_for_unless_told_is_what_shapley_reads_unless_told() -> None:
    trace = gloves()
    asked = {frozenset(d.value) for d in ask_coalitions(trace, ("l", "r", "s"), permutations=1)}  # type: ignore[arg-type]
    kept = [i for i in range(8) if i == 0 or frozenset(_masked(trace, i)) in asked]
    for step in ("shapley", "spawn_shapley"):
        near(paid(trace[kept], f"{step}(permutations=1)"), paid(trace, f"{step}(permutations=1)")[:6])


def _masked(trace: Trace, i: int) -> list[str]:
    there = {str(trace.name_a[a]) for a in np.flatnonzero(trace.rollout_a == i)}
    return sorted(set("lrs") - there)


def test_all_coalitions_of_a_run() -> None:
    dos = ask_coalitions(gloves(), ("l", "r", "s"))
    assert len(dos) == 7  # of the one run that branched from none; the coalition of all is the run itself
    assert Do(0, "mask", ("l", "r", "s")) in dos
    with pytest.raises(BadCredit, match="permutations"):
        ask_coalitions(gloves(), tuple("abcdefghijklmnopq"))


def crowd(n: int) -> Trace:
    """A run of n agents, and each of them masked alone: without number i it earns 1 less i."""
    names = [f"a{i}" for i in range(n)]
    gone = (
        run(parent="run0", branch=0, do={"what": "mask", "value": [a]}, team=1.0 - i) for i, a in enumerate(names)
    )
    return runs(run(*(f"say {a}" for a in names), team=1.0), *gone)


@pytest.mark.parametrize("step", ["shapley", "spawn_shapley"])
def test_sixteen_have_exact_values_and_sixty_two_sampled_ones(step: str) -> None:
    assert np.isnan(paid(crowd(16), f"{step}()")).all()  # smaller coalitions were not played
    with pytest.raises(BadCredit, match="17 players have 131072 coalitions"):
        paid(crowd(17), f"{step}()")
    last = antithetic_orders(62, 2)[:, -1]
    want = [i if i in last else NAN for i in range(62)]  # an order tells of the one who comes last
    near(paid(crowd(62), f"{step}(permutations=2)"), want)
    with pytest.raises(BadCredit, match="63 agents are masked in one group of runs; at most 62"):
        paid(crowd(63), f"{step}(permutations=2)")
    assert len(ask_coalitions(crowd(2)[:1], tuple("abcdefghijklmnop"))) == 2**16 - 1


def chain(**more: float) -> Trace:
    """The lead spawns a, a spawns b; b alone finds the answer."""
    team = ("spawn lead>a", "spawn a>b", "say b")
    alone, pair = ("say lead",), ("spawn lead>a", "say a")

    def without(*agents: str, there: tuple[str, ...], reward: float) -> Trace:
        do = {"what": "mask", "value": list(agents)}
        return run(*there, parent="run0", branch=0, do=do, team=reward)

    return runs(
        run(*team, team=1.0),
        without("lead", there=(), reward=0.0),
        without("a", there=alone, reward=0.25),
        without("b", there=pair, reward=0.5),
    )


def test_a_child_cannot_be_there_without_its_parent() -> None:
    # one order: lead adds .25 - 0, a .5 - .25, b 1 - .5. To mask the lead masks all; to mask a masks b
    near(paid(chain(), "spawn_shapley()")[:3], [0.25, 0.25, 0.5])
    assert np.isnan(paid(chain(), "shapley()")).all()  # which would ask what b does without a


def test_sampled_orders_obey_spawns_too() -> None:
    near(paid(chain(), "spawn_shapley(permutations=5)")[:3], [0.25, 0.25, 0.5])


def test_who_is_never_masked_is_always_there() -> None:
    trace = chain()
    kept = trace[[0, 2, 3]]
    near(paid(kept, "spawn_shapley()")[:3], [NAN, 0.25, 0.5])


def test_batches_do_not_meet_and_groups_may_be_wider_than_a_tree() -> None:
    one, two = gloves(), gloves(batch=1)
    two = replace(two, reward_n={"team": 2.0 * two.reward_n["team"]})
    both = concat([one, two])
    apart = np.concatenate([paid(one, "shapley()"), paid(two, "shapley()")])
    near(paid(both, "shapley()"), apart)
    near(paid(both, 'shapley(by="task")'), apart)
    pooled = concat([one, replace(two, batch_n=np.zeros(8), trace_id_n=two.trace_id_n)])
    near(paid(pooled, 'shapley(by="task")')[:3], 1.5 * np.array([2 / 3, 1 / 6, 1 / 6]))


def test_runs_that_were_not_scored_pay_nobody() -> None:
    trace = gloves()
    told = trace.reward_n["team"].copy()
    told[0] = NAN
    assert np.isnan(paid(replace(trace, reward_n={"team": told}), "shapley()")).all()


def test_without_masks_there_is_no_game() -> None:
    assert np.isnan(paid(runs(run("say a", team=1.0)), "shapley()")).all()
    assert np.isnan(paid(runs(run("say a", team=1.0)), "spawn_shapley()")).all()


def test_a_planted_team_played_in_all_coalitions_has_the_exact_values() -> None:
    world, each = make("planted", agents=2), 1500
    players = ("lead", "agent1", "agent2")
    seed = seeds(3, 1)
    root = world.trace(play(world, world.behaviour(seed), seed, log=True).state)
    dos = [do for do in [*ask_coalitions(root, players), Do(0, "mask", ())] for _ in range(each)]
    fresh = seeds(8, len(dos))
    forest = concat([root, branch(world, root, dos, world.behaviour(fresh), fresh)])
    made = paid(forest, "spawn_shapley()")[: root.n_agents]
    exact = planted_credit.shapley(world.model)
    for a, name in enumerate(players):
        got = made[root.name_a.strings().index(name)] if name in root.name_a.strings() else NAN
        assert np.isnan(got) or abs(got - exact[a]) < 4 * (2 * 0.25 / each) ** 0.5
    assert not np.isnan(made[root.name_a.strings().index("lead")])
