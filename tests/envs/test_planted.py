"""Exact credit against a second, naive account: every history below a row is walked through, from the rows' own tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pytest

from bench.naive_credit import Naive, naive_effects, naive_shapley, small_teams
from podium.envs.branch import branch, choices
from podium.envs.draws import seeds
from podium.envs.planted import Planted
from podium.envs.planted_credit import (
    coalitions,
    credit,
    do_effects,
    fixed_plan,
    noise_share,
    removal,
    shapley,
    with_noise,
    worth,
)
from podium.envs.planted_team import Row, Team, attacked, simulate
from podium.envs.world import BadParameter, episodes, make, play
from podium.graph import ancestors
from podium.trace import check
from podium.trace.do import Do
from podium.trace.vocabulary import edge, event


def test_credit_is_what_walking_through_every_history_gives_on_200_teams():
    nested = unborn = 0
    for k, team in enumerate(small_teams(200)):
        values = simulate(team, seeds(k, 1))
        effects, paid, removed = naive_effects(team, values[0].tolist())
        np.testing.assert_allclose(do_effects(team, values)[0], effects, atol=1e-9, rtol=0)
        np.testing.assert_allclose(credit(team, values)[0], paid, atol=1e-9, rtol=0)
        np.testing.assert_allclose(removal(team, values)[0], removed, atol=1e-9, rtol=0)
        np.testing.assert_allclose(shapley(team), naive_shapley(team), atol=1e-9, rtol=0)
        nested += max(team.spawner) > 0
        unborn += bool((values[0][[b for b in team.born if b >= 0]] == 0).any())
    assert nested == 100
    assert unborn >= 40


def test_the_optimum_is_the_best_of_every_history():
    for team in list(small_teams(40))[::2]:
        for lead_only in (False, True):
            rows = team.decisions(lead_only)
            assert worth(team, best=rows).start == pytest.approx(Naive(team).best([], frozenset(rows)), abs=1e-9)


def test_a_fixed_plan_is_as_good_as_the_best_of_all_plans():
    checked = 0
    for team in small_teams(60):
        rows = team.decisions()
        plans = list(product(*(range(team.rows[i].arity) for i in rows)))
        if len(plans) > 100:
            continue
        best = max(
            worth(team, given={i: np.eye(team.rows[i].arity)[x] for i, x in zip(rows, plan, strict=True)}).start
            for plan in plans
        )
        assert fixed_plan(team, rows)[1] == pytest.approx(best, abs=1e-9)
        checked += 1
    assert checked >= 10


def chain() -> Team:
    """The lead spawns agent 1, which spawns agent 2, whose return is all that counts.

    Decision to spawn (1/2), spawn 1, decision to spawn (1/2), spawn 2, its return (1 with probability .8), aggregate.
    """
    half, copy, work = np.array([0.5, 0.5]), np.eye(2), np.array([0.2, 0.8])
    rows = (
        Row("orchestrator_decision", 0, half, (), (), decision="spawn"),
        Row("spawn", 0, copy, (0,), (), to=1),
        Row("orchestrator_decision", 1, half, (), (1,), decision="spawn"),
        Row("spawn", 1, copy, (2,), (), to=2),
        Row("return", 2, work, (), (3,), to=1),
        Row("return", 1, copy, (4,), (1,), to=0),
        Row("aggregate", 0, copy, (5,), ()),
    )
    return Team(rows, (-1, 0, 1), (-1, 1, 3), "any", (1.0,))


def test_worked_numbers():
    """E[Y] = ½ · ½ · .8 = .2; an agent that only the last one's work makes worth anything gets nothing."""
    team, values = chain(), np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0], [0] * 7])
    np.testing.assert_allclose(shapley(team), [0, 0, 0.2], atol=1e-12)
    paid = credit(team, values)
    np.testing.assert_allclose(paid[0, [0, 2]], [0.4 - 0.2, 0.8 - 0.4], atol=1e-12)
    np.testing.assert_allclose(paid[1, [0, 2]], [0.2, -0.4], atol=1e-12)
    np.testing.assert_allclose(paid[2, 0], -0.2, atol=1e-12)
    assert np.isnan(paid[2, 1:]).all()  # what never was has no credit
    np.testing.assert_allclose(removal(team, values)[0], [0.4, 0.4, 0.8, 0.8, 1, 1, 1], atol=1e-12)
    assert worth(team, best=team.decisions()).start == pytest.approx(0.8)


def test_laws_of_credit():
    """Mean credit of a row is 0 given its past; all credit and luck add up to the outcome; Shapley values to E[Y]."""
    world = make("planted", noise=0.3)
    team = world.model
    values = simulate(team, seeds(5, 2000))
    effects, paid, tables = do_effects(team, values), credit(team, values), worth(team)
    for i in team.decisions():
        p = team.law[i][tuple(values[:, j] for j in team.causes(i))]
        there = team.present(values)[:, i]
        mean = (p * effects[:, i, : team.rows[i].arity]).sum(axis=1)
        np.testing.assert_allclose(mean[there], tables.before(i, values)[there], atol=1e-12)
    steps = np.stack([tables.before(i, values) for i in range(len(team) + 1)])
    np.testing.assert_allclose(steps[-1], team.expected(values[:, list(team.aggregates)]))
    chosen = [i for i, row in enumerate(team.rows) if row.chosen]
    np.testing.assert_allclose(np.nan_to_num(paid[:, chosen]), np.diff(steps, axis=0).T[:, chosen], atol=1e-12)
    nothing = worth(team, absent=tuple(range(len(team.spawner)))).start
    assert shapley(team).sum() == pytest.approx(tables.start - nothing, abs=1e-12)


def test_shapley_without_nesting_is_over_all_orders():
    assert len(coalitions((-1, 0, 0, 0))) == 1 + 2**3
    with pytest.raises(ValueError, match="coalitions"):
        coalitions((-1,) + (0,) * 20)


def test_noise_is_the_share_of_variance_from_below():
    for rule in range(5):
        plain = make("planted", rule=rule).model
        noisy = with_noise(plain, 0.9)
        assert noise_share(noisy) == pytest.approx(0.9, abs=1e-9)
        values = simulate(noisy, seeds(rule, 20_000))
        last = max(i for i, row in enumerate(noisy.rows) if row.chosen)
        y = noisy.expected(values[:, list(noisy.aggregates)])
        known = worth(noisy).before(last + 1, values)
        assert 1 - known.var() / (y.mean() * (1 - y.mean())) == pytest.approx(0.9, abs=0.02)


def test_simulation_agrees_with_the_tables():
    world = make("planted")
    values = simulate(world.model, seeds(1, 50_000))
    y = world.model.expected(values[:, list(world.model.aggregates)])
    assert abs(y.mean() - worth(world.model).start) < 4 * y.std() / np.sqrt(len(y))
    score = episodes(world, world.optimal(), 50_000, seed=2)
    assert abs(score.mean() - world.optimum()) < 4 * score.std() / np.sqrt(len(score))


def test_the_world_under_the_behaviour_policy_is_the_simulation():
    for params in ({}, {"who": 0}, {"liar": 0.4, "inject": 2, "poison": 0}):
        world = make("planted", **params)
        played = play(world, world.behaviour(seeds(3, 500)), seeds(3, 500), log=True)
        np.testing.assert_array_equal(played.state.values, simulate(world.model, seeds(3, 500)))
        trace = world.trace(played.state)
        chosen = np.isfinite(trace.logp_e)
        np.testing.assert_array_equal(
            chosen, np.isin(trace.type_e, [event("orchestrator_decision"), event("message")])
        )


def test_the_team_is_fit_for_a_promise():
    world = make("planted")
    assert world.fit()
    assert world.optimum() == pytest.approx(0.86796, abs=5e-6)
    assert world.plan[1] == pytest.approx(0.73839, abs=5e-6)
    assert make("planted", who=0).optimum() == pytest.approx(0.48610, abs=5e-6)
    for name, policy in world.trivial().items():
        score = episodes(world, policy, 20_000)
        assert score.mean() < 0.95 * world.optimum(), name
    held = make("planted", **Planted.held_out(np.random.default_rng(0)))
    assert held.fit()


@pytest.mark.parametrize("team", range(6))
def test_traces_obey_the_rules_and_carry_the_model(team):
    world = make("planted", team=team, agents=4, depth=3, messages=2)
    state = play(world, world.behaviour(seeds(team, 50)), seeds(team, 50), log=True).state
    trace = world.trace(state)
    assert check(trace) == []
    rows = world.along(state, np.arange(len(world.model)))
    told = [-1 if s is None else msgspec.json.decode(s) for s in trace.extra_e["row"].strings()]
    np.testing.assert_array_equal(np.nan_to_num(rows, nan=-1), told)
    words = [-1 if s is None else msgspec.json.decode(s) for s in trace.extra_e["value"].strings()]
    decided = trace.type_e == event("orchestrator_decision")
    np.testing.assert_array_equal(
        np.array(words)[decided], [int(c) for c in trace.chosen_e.strings() if c is not None]
    )
    kinds = np.array([event(r.type) for r in world.model.rows])
    there = rows == rows
    np.testing.assert_array_equal(trace.type_e[there], kinds[rows[there].astype(int)])


def test_graph_parents_are_the_parents_of_the_model():
    """Edges that are more than an order in time are exactly the causes that are in the record."""
    world = make("planted")
    state = play(world, world.behaviour(seeds(8, 20)), seeds(8, 20), log=True).state
    trace, row_e = world.trace(state), world.along(state, np.arange(len(world.model)))
    for e in np.flatnonzero(row_e == row_e).tolist():
        into = (trace.dst_x == e) & (trace.type_x != edge("temporal"))
        there = world.model.present(state.values)[trace.rollout_e[e]]
        causes = {j for j in world.model.causes(int(row_e[e])) if there[j]}
        assert {int(row_e[s]) for s in trace.src_x[into]} == causes
    assert ancestors(trace, [trace.n_events - 1]).any()


def test_common_random_numbers_and_replay_give_the_do_effect():
    """Another choice leaves what does not depend on it as it was; fresh continuations average to the do-effect."""
    world = make("planted")
    policy = world.behaviour(seeds(6, 1))
    trace = world.trace(play(world, policy, seeds(6, 1), log=True).state)
    values = simulate(world.model, seeds(6, 1))
    rows, _ = choices(world, trace)
    effects = do_effects(world.model, values)[0]
    at = int(rows[2])
    i, n = msgspec.json.decode(trace.extra_e["row"][at]), 3000
    for x in range(world.model.rows[i].arity):
        fresh = seeds(100 + x, n)
        again = branch(world, trace, [Do(at, "choose", str(x))] * n, world.behaviour(fresh), fresh)
        y = again.reward_n["team"]
        assert abs(y.mean() - effects[i, x]) < 4 * y.std() / np.sqrt(n) + 1e-9
        assert branch(world, trace, [Do(at, "choose", str(x))], policy).type_e[: at + 1].tolist() == (
            trace.type_e[: at + 1].tolist()
        )


def test_attacks_have_exact_effects_and_a_clean_twin():
    world = make("planted", inject=3, liar=0.5, poison=0)
    effects = world.attack_effects()
    assert effects["unaware"] <= effects["optimum"] + 1e-12
    assert make("planted", liar=0.5).attack_effects()["loss"] == pytest.approx(0.06448, abs=5e-6)
    assert make("planted", poison=0).attack_effects()["unaware_loss"] == pytest.approx(0.07670, abs=5e-6)
    told = make("planted", inject=3).attack_effects()
    assert told["behaviour"] != pytest.approx(told["clean_behaviour"], abs=1e-6)
    score = episodes(world, world.clean().optimal(), 50_000)
    assert abs(score.mean() - effects["unaware"]) < 4 * score.std() / np.sqrt(len(score)) + 1e-9
    hit = [i for i, row in enumerate(world.model.rows) if row.attack is not None]
    assert {world.model.rows[i].type for i in hit} >= {"return", "tool_result"}
    dirty, clean = simulate(world.model, seeds(2, 400)), simulate(world.clean().model, seeds(2, 400))
    np.testing.assert_array_equal(dirty[:, : min(hit)], clean[:, : min(hit)])
    lies = simulate(make("planted", liar=0.5).model, seeds(2, 400))
    honest = np.all(lies == clean, axis=1)
    assert 40 < honest.sum() < 360  # who does not happen to lie lives the clean twin's life to the end
    state = play(world, world.behaviour(seeds(2, 30)), seeds(2, 30), log=True).state
    trace, row_e = world.trace(state), world.along(state, np.arange(len(world.model)))
    np.testing.assert_array_equal(trace.trusted_e == 0, np.isin(row_e, hit))
    flows = trace.type_x == edge("safety_flow")
    assert flows.any()
    assert np.isin(row_e[trace.src_x[flows]], hit).all()
    assert check(trace) == []


def test_an_attack_that_does_nothing_changes_nothing():
    team = make("planted").model
    assert worth(attacked(team, liar=1e-300)).start == pytest.approx(worth(team).start, abs=1e-12)
    assert worth(replace(team, coin=0.5)).start == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("team", -1),
        ("agents", 13),
        ("values", 5),
        ("rule", 7),
        ("rule", "best"),
        ("noise", 1.2),
        ("liar", -0.1),
        ("inject", 4),
        ("aggregates", 0),
        ("fan", 1),
        ("who", 2),
        ("certain", float("nan")),
        ("poison", 0.5),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(BadParameter, match=name):
        make("planted", **{name: value})


def test_a_team_too_wide_for_exact_tables_says_so():
    with pytest.raises(BadParameter, match="agents, parallel"):
        make("planted", agents=12, parallel=4, fan=4)
