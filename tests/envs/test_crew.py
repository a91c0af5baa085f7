from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from podium.envs.conformance import fit, score_of
from podium.envs.crew import Crew, CrewParams
from podium.envs.draws import seeds
from podium.envs.log import Log
from podium.envs.world import BadParameter, make, play
from podium.trace.rules import check
from podium.trace.vocabulary import event


def by_histories(p):
    """The optimum from raw histories: which joint types remain, how likely, no counts, no symmetry."""
    q = p.success()
    joint = list(product(range(p.H), repeat=p.W))

    @lru_cache(None)
    def value(weights, loads, t):
        total = sum(weights)
        if t == p.N:
            return -p.lam * max(loads)
        best = []
        for k in range(p.K):
            worth = []
            for w in range(p.W):
                wins = tuple(x * q[types[w], k] for x, types in zip(weights, joint, strict=True))
                fails = tuple(x - y for x, y in zip(weights, wins, strict=True))
                after = tuple(load + (i == w) for i, load in enumerate(loads))
                worth.append(
                    sum(
                        sum(some) / total * (gain + value(some, after, t + 1))
                        for some, gain in ((wins, 1), (fails, 0))
                        if sum(some) > 1e-15
                    )
                )
            best.append(max(worth))
        return sum(best) / p.K

    def card_chance(types, cards):
        return np.prod([1 - p.e if a == b else p.e / (p.H - 1) for a, b in zip(types, cards, strict=True)])

    whole = 0.0
    for cards in joint:
        weights = tuple(float(card_chance(types, cards)) / p.H**p.W for types in joint)
        whole += sum(weights) * value(weights, (0,) * p.W, 0) if sum(weights) > 0 else 0.0
    return whole


def test_check_values_of_the_issue():
    q = ((0.9, 0.4), (0.4, 0.9))
    assert make("crew", W=3, N=8, K=2, H=2, q=q, e=0.35, lam=0.15).optimum() == pytest.approx(5.5032, abs=5e-5)
    assert make("crew", W=2, N=4, q=q, e=0.3, lam=0.1).optimum() == pytest.approx(2.65378, abs=5e-6)


@pytest.mark.parametrize(
    "given",
    [
        {"W": 2, "N": 4},
        {"W": 2, "N": 3, "K": 3, "q": ((0.9, 0.2, 0.5), (0.3, 0.85, 0.6))},
        {"W": 2, "N": 3, "H": 3, "K": 2, "q": ((0.9, 0.2), (0.3, 0.8), (0.6, 0.65)), "e": 0.4, "lam": 0.02},
        {"W": 3, "N": 3, "lam": 0.5},
        {"W": 2, "N": 3, "q": ((1.0, 0.0), (0.0, 1.0)), "e": 0.3},
        {"W": 1, "N": 3},
        {"W": 2, "N": 3, "e": 0.0},
    ],
)
def test_the_programming_agrees_with_raw_histories(given):
    world = make("crew", **given)
    assert world.optimum() == pytest.approx(by_histories(world.params), abs=1e-9)


def test_one_type_of_worker_leaves_only_the_load():
    world = make("crew", H=1, K=1, W=2, N=5, e=0.0, q=((0.6,),), lam=0.1)
    assert world.optimum() == pytest.approx(5 * 0.6 - 0.1 * 3)


@pytest.mark.parametrize("given", [{}, {"W": 2, "N": 5, "K": 3, "H": 3, "e": 0.2}])
def test_optimal_play_earns_the_optimum(given):
    world = make("crew", **given)
    mean, error = score_of(world, world.optimal(), 200_000)
    assert abs(mean - world.optimum()) < 4 * error


def test_trivial_policies_score_what_they_must():
    world = make("crew")
    scores = {name: score_of(world, policy, 100_000) for name, policy in world.trivial().items()}
    for name, exact in (("one worker", 8 * 0.65 - 0.15 * 8), ("in turn", 8 * 0.65 - 0.15 * 3)):
        assert abs(scores[name][0] - exact) < 4 * scores[name][1]
    assert max(mean for mean, _ in scores.values()) < 0.95 * world.optimum()
    assert fit(world) == []


def test_cards_are_wrong_as_often_as_said():
    world = make("crew", H=3, K=3, W=2, N=3, e=0.3)
    state = world.start(seeds(0, 100_000))
    assert np.mean(state.card == state.type, axis=0) == pytest.approx([0.7, 0.7], abs=0.01)
    wrong = (state.card - state.type)[state.card != state.type] % 3
    assert np.mean(wrong == 1) == pytest.approx(0.5, abs=0.01)


def test_a_view_shows_cards_and_counts():
    world = make("crew", W=2, N=3)
    state = world.start(seeds(0, 4))
    kinds = []
    for worker in (0, 1, 0):
        view = world.view(state)
        kinds.append(view.facts[:, 0].astype(int) - 1)
        world.act(state, view, np.full(4, worker))
    assert world.view(state) is None
    assert view.facts.shape == (4, len(world.facts))
    values, owner = view.items()
    assert owner.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert values.shape == (8, len(world.items))
    assert values[0::2, 1].tolist() == [2] * 4
    assert values[1::2, 1].tolist() == [1] * 4
    assert (values[:, 0].reshape(4, 2) == state.card + 1).all()
    assert (values[:, 2:].sum(1) == values[:, 1]).all()
    right = values[:, 3::2].reshape(4, -1).sum(1)
    assert np.allclose(state.score, right - 0.15 * 2)
    assert all((state.count[i, :, kinds[t][i]].sum() > 0) for t in range(3) for i in range(4))


def test_traces_obey_the_rules_and_repeat():
    world = make("crew")
    one, two = (play(world, world.optimal(), seeds(2, 50), log=True) for _ in range(2))
    trace = world.trace(one.state)
    assert check(trace) == []
    assert trace == world.trace(two.state)
    assert (trace.type_e == event("orchestrator_decision")).sum() == one.decisions == 400
    assert np.array_equal(trace.reward_n["team"], play(world, world.optimal(), seeds(2, 50)).score)
    assert trace.n_events == 50 * (3 + 8 * 2 + 1)


def test_another_decision_meets_the_same_world():
    world = make("crew")

    def kinds_met(first):
        state, kinds = world.start(seeds(3, 500)), []
        while (view := world.view(state)) is not None:
            kinds.append(view.facts[:, 0])
            world.act(state, view, np.full(500, first if len(kinds) == 1 else 1))
        return state, np.array(kinds)

    (a, kinds_a), (b, kinds_b) = kinds_met(0), kinds_met(1)
    assert np.array_equal(kinds_a, kinds_b)
    assert np.array_equal(a.type, b.type)
    assert np.array_equal(a.card, b.card)
    alike = a.type[:, 0] == a.type[:, 1]  # the same task, a worker of the same type: the same luck
    assert np.array_equal(a.count[alike].sum(1), b.count[alike].sum(1))
    assert not np.array_equal(a.count.sum(1), b.count.sum(1))


def test_a_fresh_continuation_keeps_the_past():
    world = make("crew")
    state = world.start(seeds(4, 2000), Log(2000))
    world.act(state, world.view(state), np.zeros(2000, int))
    past, kind = state.count.copy(), state.kind.copy()
    state.seed = seeds(5, 2000)
    world.act(state, world.view(state), np.ones(2000, int))
    assert np.array_equal(state.count[:, 0], past[:, 0])
    other = make("crew").start(seeds(4, 2000))
    world.act(other, world.view(other), np.zeros(2000, int))
    assert np.array_equal(other.kind, kind)
    world.act(other, world.view(other), np.ones(2000, int))
    assert not np.array_equal(other.kind, state.kind)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"W": 0}, "W"),
        ({"N": 0}, "N"),
        ({"N": 2.5}, "N"),
        ({"e": 1.2}, "e"),
        ({"lam": -0.1}, "lam"),
        ({"q": ((1.2, 0.4), (0.4, 0.9))}, "q"),
        ({"q": ((0.9, 0.4),)}, "q must be H=2 rows"),
        ({"q": "no"}, "q"),
        ({"H": 1}, "e must be 0"),
        ({"W": 6, "N": 20}, "N must be smaller"),
        ({"workers": 3}, "workers"),
    ],
)
def test_bad_parameters_are_named(bad, word):
    with pytest.raises(BadParameter, match=word):
        make("crew", **bad)


def test_held_out_parameters_are_others_and_work():
    defaults = CrewParams()
    for i in range(5):
        given = Crew.held_out(np.random.default_rng(i))
        assert (given["W"], given["N"]) != (defaults.W, defaults.N)
        assert make("crew", **given).optimum() > 0


def test_lists_are_taken_as_json_has_them():
    assert make("crew", q=[[0.9, 0.4], [0.4, 0.9]]).optimum() == make("crew").optimum()
