from itertools import product

import numpy as np
import pytest

from podium.envs.conformance import score_of
from podium.envs.draws import seeds
from podium.envs.relay import Relay, every_rule, frugal, value_of_rules
from podium.envs.world import BadParameter, make, play
from podium.trace.rules import check
from podium.trace.vocabulary import decision, event

P_ONE = (0.04, 0.10, 0.16, 0.20, 0.22, 0.28)


def chances(rules, p_one):
    """P(heard given coin) of each rule, written out: [rule, coin, heard]."""
    levels = len(p_one)
    out = np.zeros((len(rules), 2, levels + 3))
    for r, rule in enumerate(rules):
        for level, words in enumerate(rule):
            heard = 0 if words == 0 else 1 + (level >= levels // 2) if words == 1 else 3 + level
            out[r, 1, heard] += p_one[level]
            out[r, 0, heard] += p_one[levels - 1 - level]
    return out


def brute_force(p_one, c):
    """Two mates, every pair of the 3^E rules, nothing left out."""
    rules = list(product((0, 1, 2), repeat=len(p_one)))
    heard = chances(rules, p_one)
    prior = (np.array(p_one) + np.array(p_one[::-1])) / 2
    price = c * (np.array(rules) @ prior)
    best = -np.inf
    for a, paid in zip(heard, price, strict=True):
        joint = 0.5 * a[None, :, :, None] * heard[:, :, None, :]
        best = max(best, float((joint.max(1).sum((1, 2)) - price - paid).max()))
    return best


@pytest.mark.parametrize(("c", "value"), [(0.02, 0.7448), (0.04, 0.7256)])
def test_check_values_of_the_issue(c, value):
    assert make("relay", n=2, p=P_ONE, c=c).optimum() == pytest.approx(value, abs=1e-9)
    assert make("relay", c=c).optimum() == pytest.approx(value, abs=1e-9)


def test_every_pair_of_rules_gives_the_same():
    assert make("relay").optimum() == pytest.approx(brute_force(P_ONE, 0.02), abs=1e-12)


@pytest.mark.parametrize("c", [0.0, 0.013, 0.06, 0.3])
def test_brute_force_at_other_prices_and_levels(c):
    p_one = (0.07, 0.25, 0.08, 0.33, 0.27)
    assert make("relay", E=5, p=p_one, c=c).optimum() == pytest.approx(brute_force(p_one, c), abs=1e-12)


@pytest.mark.parametrize("c", [0.01, 0.05])
def test_brute_force_of_three_mates(c):
    world = make("relay", n=3, E=3, p=(0.1, 0.35, 0.55), c=c)
    rules = every_rule(3)
    best = max(
        value_of_rules(rules[list(team)], world.params)
        for team in product(range(27), repeat=3)
        if list(team) == sorted(team)
    )
    assert world.optimum() == pytest.approx(best, abs=1e-12)


def test_too_dear_means_silence_and_free_means_full():
    assert make("relay", c=5.0).optimum() == 0.5
    assert make("relay", n=1, c=0.0).optimum() == pytest.approx(0.7)
    assert len(frugal(make("relay", c=0.02).params)) < 729


def test_optimal_play_earns_the_optimum():
    for given in ({}, {"n": 3, "E": 4, "c": 0.01}, {"n": 1, "E": 5}):
        world = make("relay", **given)
        mean, error = score_of(world, world.optimal(), 200_000)
        assert abs(mean - world.optimum()) < 4 * error


def test_trivial_policies_lose_a_twentieth():
    world = make("relay")
    scores = {name: score_of(world, policy, 100_000)[0] for name, policy in world.trivial().items()}
    assert max(scores.values()) < 0.95 * world.optimum()
    full = value_of_rules(np.full((2, 6), 2), world.params)
    assert scores["all full"] == pytest.approx(full, abs=0.006)
    assert scores["all silent"] == pytest.approx(0.5, abs=0.006)


def test_a_mate_sees_its_own_level_and_nothing_else():
    world = make("relay", n=3, E=4)
    state = world.start(seeds(0, 200))
    for i in range(3):
        view = world.view(state)
        assert (view.agent, view.kind) == (f"mate {i + 1}", "communicate")
        assert np.array_equal(view.facts[:, 4], state.level[:, i] + 1)
        assert len(view.items()[0]) == 0
        assert (state.level[:, i + 1 :] == -1).all()
        assert view.allowed.all(0).tolist() == [True, True, True, False, False]
        world.act(state, view, np.full(200, i))
    view = world.view(state)
    assert (view.agent, view.kind) == ("lead", "aggregate")
    assert view.allowed.any(0).tolist() == [False, False, False, True, True]
    assert (view.facts[:, 3:] == 0).all()
    mate, words, told = view.items()[0].reshape(200, 3, 3).transpose(2, 0, 1)
    assert (mate == [1, 2, 3]).all()
    assert (words == [0, 1, 2]).all()
    assert np.array_equal(told, np.stack([np.zeros(200), 1 + state.level[:, 1] // 2, 1 + state.level[:, 2]], 1))
    world.act(state, view, 3 + state.coin)
    assert np.allclose(state.score, 1 - 3 * 0.02)


def test_levels_come_as_often_as_said():
    world = make("relay")
    state = play(world, world.optimal(), seeds(1, 200_000)).state
    for i in range(2):
        seen = np.bincount(state.level[state.coin == 1, i]) / (state.coin == 1).sum()
        assert seen == pytest.approx(P_ONE, abs=0.005)


def test_traces_obey_the_rules_and_repeat():
    world = make("relay")
    one, two = (play(world, world.optimal(), seeds(2, 60), log=True) for _ in range(2))
    trace = world.trace(one.state)
    assert check(trace) == []
    assert trace == world.trace(two.state)
    assert (trace.type_e == event("orchestrator_decision")).sum() == one.decisions == 180
    assert (trace.decision_e == decision("communicate")).sum() == 120
    assert (trace.type_e == event("message")).sum() == (one.state.words > 0).sum()
    paid = np.bincount(trace.rollout_e, np.nan_to_num(trace.cost_e))
    assert np.allclose(paid, 0.02 * one.state.words.sum(1))


def test_another_word_meets_the_same_world():
    world = make("relay")
    levels = []
    for first in (0, 2):
        state = world.start(seeds(3, 500))
        for said in (first, 1):
            world.act(state, world.view(state), np.full(500, said))
        levels.append((state.level, state.coin))
    assert np.array_equal(levels[0][0], levels[1][0])
    assert np.array_equal(levels[0][1], levels[1][1])


def test_a_fresh_continuation_keeps_the_past():
    world = make("relay")
    state = world.start(seeds(4, 500))
    first, coin = state.level[:, 0].copy(), state.coin.copy()
    state.seed = seeds(5, 500)
    world.act(state, world.view(state), np.zeros(500, int))
    assert np.array_equal(state.level[:, 0], first)
    assert np.array_equal(state.coin, coin)
    other = world.start(seeds(4, 500))
    world.act(other, world.view(other), np.zeros(500, int))
    assert not np.array_equal(other.level[:, 1], state.level[:, 1])


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"n": 0}, "n"),
        ({"E": 1}, "E"),
        ({"E": 6.0}, "E"),
        ({"c": -0.1}, "c"),
        ({"p": (0.5, 0.6)}, "p"),
        ({"p": (0.5, 0.5)}, "p must be E=6"),
        ({"n": 4, "E": 6}, "n must be at most 3"),
        ({"price": 1}, "price"),
    ],
)
def test_bad_parameters_are_named(bad, word):
    with pytest.raises(BadParameter, match=word):
        make("relay", **bad)


def test_held_out_parameters_are_others_and_work():
    given = Relay.held_out(np.random.default_rng(0))
    assert given["c"] != 0.02
    assert make("relay", **(given | {"n": 2})).optimum() > 0.5
