from itertools import product

import numpy as np
import pytest

from podium.envs.conformance import score_of
from podium.envs.draws import seeds
from podium.envs.jury import Jury
from podium.envs.world import BadParameter, make, play
from podium.trace.rules import check
from podium.trace.vocabulary import event


def every_history(p):
    """The optimum and the majority from the story itself: types, joins, what sources say, ballot by ballot."""
    best = most = 0.0
    for types in product(p.reliability, repeat=p.s):
        for joins in product(*(range(b) for b in range(p.s, p.m))):
            source = list(range(p.s))
            for j in joins:
                source.append(source[j])
            chance = 1 / (len(p.reliability) ** p.s * np.prod([float(b) for b in range(p.s, p.m)]))
            for votes in product((0, 1), repeat=p.m):
                given = [_likely(p, types, source, votes, y) for y in (0, 1)]
                best += chance * max(given) / 2
                tie = 2 * sum(votes) == p.m
                most += chance * (sum(given) / 2 if tie else given[int(2 * sum(votes) > p.m)]) / 2
    return best, most


def _likely(p, types, source, votes, y):
    whole = 0.0
    for said in product((0, 1), repeat=p.s):
        chance = np.prod([r if v == y else 1 - r for r, v in zip(types, said, strict=True)])
        for s, v in zip(source, votes, strict=True):
            afresh = types[s] if v == y else 1 - types[s]
            chance *= p.copy * (v == said[s]) + (1 - p.copy) * afresh
        whole += chance
    return whole


def test_check_values_of_the_issue():
    """About .796; the best type alone is right .750. The majority gets .733 here; the issue says .729 and does not say
    how ballots fall to sources."""
    world = make("jury", m=9, copy=0.9)
    assert world.optimum() == pytest.approx(0.796, abs=0.0005)
    assert max(world.params.reliability) == 0.75
    assert world.majority() == pytest.approx(0.7331, abs=5e-5)


@pytest.mark.parametrize(
    "given",
    [{"m": 4, "s": 2}, {"m": 5, "s": 2, "copy": 0.6, "reliability": (0.8, 0.4)}, {"m": 4, "s": 3, "copy": 0.5}],
)
def test_the_sum_agrees_with_the_story(given):
    world = make("jury", **given)
    best, most = every_history(world.params)
    assert world.optimum() == pytest.approx(best, abs=1e-12)
    assert world.majority() == pytest.approx(most, abs=1e-12)


def test_reductions():
    one = {"reliability": (0.7,)}
    assert make("jury", m=7, s=2, copy=1.0, **one).optimum() == pytest.approx(0.7)  # two equal voices: no gain
    assert make("jury", m=3, s=3, copy=0.3, **one).majority() == pytest.approx(0.7**3 + 3 * 0.7**2 * 0.3)
    free = make("jury", m=3, s=1, copy=0.0, **one)
    assert free.optimum() == pytest.approx(free.majority())
    assert make("jury", m=5, s=2, reliability=(0.5,)).optimum() == pytest.approx(0.5)


@pytest.mark.parametrize("given", [{}, {"m": 6, "s": 3, "copy": 0.7, "reliability": (0.9, 0.3)}, {"m": 1, "s": 1}])
def test_optimal_play_earns_the_optimum(given):
    world = make("jury", **given)
    mean, error = score_of(world, world.optimal(), 300_000)
    assert abs(mean - world.optimum()) < 4 * error


def test_trivial_policies_lose_a_twentieth():
    world = make("jury")
    scores = {name: score_of(world, policy, 200_000) for name, policy in world.trivial().items()}
    assert max(mean for mean, _ in scores.values()) < 0.95 * world.optimum()
    assert abs(scores["majority"][0] - world.majority()) < 4 * scores["majority"][1]
    assert abs(scores["first ballot"][0] - np.mean(world.params.reliability)) < 4 * scores["first ballot"][1]


def test_every_split_of_ballots_is_as_likely():
    world = make("jury", m=5, s=3)
    source = world.start(seeds(0, 60_000)).source
    sizes = np.stack([(source == j).sum(1) for j in range(3)], 1)
    _, count = np.unique(sizes, axis=0, return_counts=True)
    assert len(count) == 6
    assert count == pytest.approx([10_000] * 6, rel=0.05)


def test_a_view_shows_type_source_and_vote():
    world = make("jury")
    state = world.start(seeds(0, 30))
    view = world.view(state)
    ballots, owner = view.items()
    assert ballots.shape == (270, 3)
    assert np.array_equal(owner, np.repeat(np.arange(30), 9))
    type_, source, vote = ballots.reshape(30, 9, 3).transpose(2, 0, 1).astype(int)
    assert np.array_equal(source[:, :4], np.tile([1, 2, 3, 4], (30, 1)))
    assert np.array_equal(vote, state.vote)
    assert np.array_equal(type_, 1 + state.type[np.arange(30)[:, None], source - 1])
    world.act(state, view, state.coin)
    assert state.score.tolist() == [1.0] * 30
    assert world.view(state) is None


def test_traces_obey_the_rules_and_repeat():
    world = make("jury")
    one, two = (play(world, world.optimal(), seeds(2, 50), log=True) for _ in range(2))
    trace = world.trace(one.state)
    assert check(trace) == []
    assert trace == world.trace(two.state)
    assert (trace.type_e == event("orchestrator_decision")).sum() == one.decisions == 50
    assert (trace.type_e == event("return")).sum() == (trace.type_e == event("spawn")).sum() == 450


def test_another_answer_changes_only_the_score():
    world = make("jury")
    zero = play(world, lambda view: np.zeros(len(view), int), seeds(3, 500))
    one = play(world, lambda view: np.ones(len(view), int), seeds(3, 500))
    assert np.array_equal(zero.state.vote, one.state.vote)
    assert np.array_equal(zero.score + one.score, np.ones(500))


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"m": 0}, "m"),
        ({"m": 9.5}, "m"),
        ({"s": 0}, "s"),
        ({"m": 3, "s": 4}, "s must be at most m=3"),
        ({"copy": 1.2}, "copy"),
        ({"reliability": ()}, "reliability"),
        ({"reliability": (0.7, 1.2)}, "reliability"),
        ({"reliability": 0.7}, "reliability"),
        ({"ballots": 3}, "ballots"),
    ],
)
def test_bad_parameters_are_named(bad, word):
    with pytest.raises(BadParameter, match=word):
        make("jury", **bad)


def test_held_out_parameters_are_others_and_work():
    given = Jury.held_out(np.random.default_rng(0))
    assert given["m"] != 9
    assert make("jury", **given).optimum() > 0.7
