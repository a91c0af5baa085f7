"""The parts of the studies, each against an answer that is known otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.questions import (
    aggregation,
    diffusion,
    dr_mas,
    identify,
    intervention,
    leaderboard,
    length,
    parl,
    stopping,
    width,
)
from podium.envs.draws import seeds
from podium.envs.jury import Jury
from podium.envs.sprt import Sprt
from podium.envs.world import make, play
from podium.learn.evaluate import judged
from podium.learn.params import training
from podium.learn.train import Recipe
from podium.study.loop import OURS, SHUFFLED, marks, train_lesson
from podium.study.question import read_study
from podium.trace.rules import check
from podium.trace.vocabulary import event


def test_credit_of_the_three_roles_is_that_of_the_table_on_traces() -> None:
    how, dice = read_study("dr_mas", quick=True).how, np.random.default_rng(0)
    tables = {role: np.zeros((places, 3)) for role, (_, places) in dr_mas.ROLES.items()}
    runs = dr_mas.runs_of(how, tables, how.tasks * how.group, dice)
    for team in how.teams:
        for name in ("grpo", "dr_mas", "mean only"):
            given, report = dr_mas.credit_of_team(how, team, name, runs, dice), dr_mas.traced(how, team, name, runs)
            np.testing.assert_allclose(given, report, atol=1e-9)


def test_success_of_the_three_roles_is_what_runs_of_them_have() -> None:
    how = read_study("dr_mas", quick=True).how
    tables = {role: np.tile([1.0, 0.0, 0.5], (places, 1)) for role, (_, places) in dr_mas.ROLES.items()}
    runs = dr_mas.runs_of(how, tables, 100_000, np.random.default_rng(1))
    assert runs.success.mean() == pytest.approx(dr_mas.value(how, tables), abs=0.005)


def test_legs_paid_by_hand() -> None:
    score, dice = np.array([[1.0, 2.0], [4.0, 8.0]]), np.random.default_rng(0)
    assert length.paid("outcome", score, dice).tolist() == [[3.0, 3.0], [12.0, 12.0]]
    assert length.paid("togo", score, dice).tolist() == [[3.0, 2.0], [12.0, 8.0]]
    assert length.paid("graph", score, dice).tolist() == score.tolist()
    assert sorted(length.paid("shuffled", score, dice).ravel().tolist()) == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("paid", ["broadcast", "branches", "local", "alone", "shuffled"])
def test_credit_points_uphill_but_for_the_control(paid: str) -> None:
    how = replace(read_study("diffusion").how, batch=256)
    dice, p, matter = np.random.default_rng(0), np.full(20, 0.5), np.ones(20, np.bool_)
    up = np.mean([diffusion.credit_of_case(how, paid, p, matter, dice).mean() for _ in range(40)])
    assert abs(up) < 0.005 if paid == "shuffled" else up > 0.01


def test_ten_decisions_alone_are_a_broadcast_over_ten() -> None:
    """The single agent of a run of ten is the whole run."""
    how = replace(read_study("diffusion").how, batch=4_000)
    p, matter = np.full(10, 0.5), np.ones(10, np.bool_)
    one, two = (
        diffusion.credit_of_case(how, paid, p, matter, np.random.default_rng(1)) for paid in ("alone", "broadcast")
    )
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_the_best_play_with_a_person_reaches_its_value_and_is_recorded() -> None:
    world = intervention.Steered(0.03, 0.2)
    played = play(world, world.optimal(), seeds(0, 40_000))
    error = played.score.std() / 200
    assert abs(played.score.mean() - world.optimum()) < 4 * error + 1e-4
    deaf = play(world, stopping.CostlySearch(world.params).optimal(), seeds(0, 40_000))
    assert deaf.score.mean() < played.score.mean()
    trace = world.trace(play(world, world.optimal(), seeds(0, 50), log=True).state)
    assert (trace.type_e == event("human_intervention")).any()
    assert check(trace) == []


def test_a_verifier_that_knows_is_better_than_one_that_guesses() -> None:
    world = make("sprt", c=0.01)
    assert isinstance(world, Sprt)
    dice = seeds(3, 4_000)
    knows, guesses = (stopping.sprt_verified(world, dice, q).mean() for q in (1.0, 0.5))
    assert knows > guesses
    assert knows > 0.9


def test_a_narrowed_world_allows_less_and_scores_the_same() -> None:
    world = make("scouts", c=0.03, latency=0.02, widest=4)
    two = width.narrowed(world, width._only(2))
    view = two.view(two.start(seeds(0, 5)))
    assert view is not None
    assert view.allowed.sum(axis=1).tolist() == [2] * 5
    assert two.optimum() == world.optimum()
    capped = width.narrowed(world, width._capped(2))
    state = play(capped, lambda seen: np.argmax(seen.allowed, axis=1), seeds(0, 50)).state
    assert state.rounds.tolist() == [2] * 50  # type: ignore[attr-defined]


def test_the_majority_of_sources_where_nobody_copies_half() -> None:
    world = make("jury", m=9, s=4, copy=1.0)
    assert isinstance(world, Jury)
    by_source = play(world, aggregation.by_source, seeds(0, 20_000)).score.mean()
    assert world.majority() < by_source < world.optimum() + 0.01


def test_what_is_best_of_a_spawn_is_at_least_what_any_policy_is_worth() -> None:
    how = read_study("identify", quick=True).how
    for case in identify.cases(how, 2):
        states = identify._states(case.team, case.row)
        dice = np.random.default_rng(0)
        for _ in range(5):
            p = dice.random(states)
            assert case.value(np.stack([1 - p, p], 1)) <= case.best(states) + 1e-12


def test_a_single_agent_is_never_better_than_the_best_of_a_team() -> None:
    how = read_study("identify", quick=True).how
    assert all(identify._never(case) >= -1e-12 for case in identify.cases(how, 2))
    assert 0 < length.measure(read_study("length").how, length.SINGLE, 0)["short"][0] < 1
    assert 0 < parl.measure(read_study("parl").how, parl.SINGLE, 0)["short"] < 1
    for env in ("sprt", "costly_search", "pandora"):
        world, dice = training(env, 0, 0, 0), seeds(5, 4_000)
        assert stopping._single(world, dice).mean() < play(world, world.optimal(), dice.copy()).score.mean()
    for env in ("costly_search", "scouts", "jury"):
        assert leaderboard._single(training(env, 0, 0, 0), 2_000).regret >= 0


def test_a_policy_that_is_not_sure_is_played_as_it_draws() -> None:
    """By its likeliest option one who stops with less than even odds never stops."""
    world = make("costly_search", c=0.05)
    lesson = train_lesson(OURS, Recipe(iterations=1, rows=20, worlds=1), lambda i, k: world, 0)
    by_likeliest = judged(world, lesson.net, lesson.learner.w, 1_000, most=100, batch=1_000)
    assert marks(lesson, [world], 1_000)[0].value >= by_likeliest.value - 0.05


def test_time_to_a_target_is_the_geometric_one() -> None:
    one, four = np.zeros((parl.BINS + 1, 5)), np.zeros((parl.BINS + 1, 5))
    one[:, 1], four[:, 4] = 50.0, 50.0
    assert parl.rounds_to(one, 0.8, 0) == pytest.approx(5.0, rel=0.15)
    assert parl.rounds_to(four, 0.8, 0) == pytest.approx(1 / (1 - 0.8**4), rel=0.15)


def test_shuffled_credit_teaches_nothing() -> None:
    """Same episodes, same update, and what options earned dealt out anew: no better than the best trivial policy."""
    recipe = Recipe(iterations=12, rows=600, worlds=2)
    worlds = [training("jury", 9, 0, 0)]
    share = {
        credit: marks(train_lesson(credit, recipe, lambda i, k: training("jury", 0, i + 1, k), 0), worlds, 4_000)[
            0
        ].share
        for credit in (OURS, SHUFFLED)
    }
    assert share[OURS] < 0.9
    assert share[SHUFFLED] > share[OURS] + 0.5
