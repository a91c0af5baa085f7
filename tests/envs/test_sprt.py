"""Sequential verification: exact risk, by a second programme and by simulation."""

from __future__ import annotations

from functools import cache
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proving import (
    recorded,
    rules_broken,
    same_bytes,
    scripted,
    standard_errors_off,
    with_new_seed,
    worst_margin,
)

from podium.envs.draws import seeds
from podium.envs.world import BadParameter, View, episodes, make, play, worlds
from podium.trace.vocabulary import event


@pytest.mark.parametrize(
    ("p", "c", "risk"),
    [
        (0.7, 0.01, 0.12611),
        (0.7, 0.001, 0.02006),
        (0.6, 0.01, 0.29897),
        (1.0, 0.01, 0.01),
        (0.5, 0.01, 0.5),
        (0.7, 0.5, 0.5),
        (0.7, 3.0, 0.5),
    ],
)
def test_check_values(p: float, c: float, risk: float) -> None:
    world = make("sprt", p=p, c=c)
    assert world.risk() == pytest.approx(risk, abs=5e-6)  # type: ignore[attr-defined]
    assert world.optimum() == pytest.approx(1 - risk, abs=5e-6)


def by_sequences(p: float, c: float, most: int) -> float:
    """The least risk over votes for and against, from Bayes' rule and nothing else."""

    @cache
    def least(ayes: int, noes: int) -> float:
        like = [p**ayes * (1 - p) ** noes, p**noes * (1 - p) ** ayes]
        yes = like[0] / sum(like)
        stop = min(yes, 1 - yes)
        if ayes + noes == most:
            return stop
        aye = yes * p + (1 - yes) * (1 - p)
        return min(stop, c + aye * least(ayes + 1, noes) + (1 - aye) * least(ayes, noes + 1))

    return least(0, 0)


@pytest.mark.parametrize("p", [0.55, 0.7, 0.95])
@pytest.mark.parametrize("c", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("most", [1, 2, 5, 60])
def test_thresholds_are_what_programming_over_votes_finds(p: float, c: float, most: int) -> None:
    assert make("sprt", p=p, c=c, most=most).risk() == pytest.approx(by_sequences(p, c, most), abs=1e-12)  # type: ignore[attr-defined]


def by_gamblers_ruin(p: float, c: float, lead: int) -> float:
    """The risk of stopping at a lead, by the formulas of the gambler's ruin."""
    r = (1 - p) / p
    error = r**lead / (1 + r**lead)
    votes = lead * (1 - 2 * error) / (2 * p - 1)
    return error + c * votes


@pytest.mark.parametrize(("p", "c", "lead"), [(0.7, 0.01, 4), (0.7, 0.001, 7), (0.6, 0.01, 4), (0.51, 0.0001, 40)])
def test_the_best_lead_is_that_of_the_gamblers_ruin(p: float, c: float, lead: int) -> None:
    risk = make("sprt", p=p, c=c).risk()  # type: ignore[attr-defined]
    assert risk == pytest.approx(by_gamblers_ruin(p, c, lead), abs=1e-12)
    assert risk == pytest.approx(min(by_gamblers_ruin(p, c, d) for d in range(1, 80)), abs=1e-12)


@pytest.mark.parametrize("params", [{}, {"p": 0.6, "c": 0.02}, {"most": 3}, {"p": 0.9, "c": 0.001}])
def test_optimal_play_earns_the_optimum(params: dict[str, Any]) -> None:
    world = make("sprt", **params)
    assert standard_errors_off(world, world.optimal(), world.optimum(), 100_000) < 4


def test_trivial_policies_lose_and_their_number_is_the_best() -> None:
    world = make("sprt")
    right = {
        k: sum(comb(k, i) * 0.7**i * 0.3 ** (k - i) for i in range(k // 2 + 1, k + 1)) for k in range(1, 40, 2)
    }
    best = max(right, key=lambda k: right[k] - 0.01 * k)
    name = f"buy {best} votes"
    assert standard_errors_off(world, world.trivial()[name], right[best] - 0.01 * best, 100_000) < 4
    assert worst_margin(world) > 0.05


def test_who_stops_at_once_tosses_a_coin() -> None:
    score = episodes(make("sprt"), scripted(0), 40_000)
    assert set(score.tolist()) == {0.0, 1.0}
    assert abs(score.mean() - 0.5) < 4 * 0.5 / 200


def test_worked_episode() -> None:
    world = make("sprt", c=0.1)
    state = play(world, scripted(1, 1, 1), seeds(0, 100)).state
    answer = state.votes[:, :3].sum(axis=1) >= 2
    np.testing.assert_allclose(state.score, (answer == state.truth) - 0.3)


def test_facts_are_counts_of_the_record() -> None:
    world = make("sprt")

    def policy(view: View) -> Any:
        votes, owner = view.items()
        np.testing.assert_array_equal(view.facts[:, 2], np.bincount(owner, votes[:, 0], len(view)))
        np.testing.assert_array_equal(view.facts[:, 3], np.bincount(owner, 1 - votes[:, 0], len(view)))
        return world.optimal()(view)

    play(world, policy, seeds(1, 500))


def test_traces_keep_the_rules_and_repeat(tmp_path: Path) -> None:
    assert rules_broken(make("sprt", most=40)) == []
    assert same_bytes(make("sprt"), tmp_path)


def test_every_vote_is_a_verifier_that_was_spawned_and_returned() -> None:
    trace = recorded(make("sprt"), scripted(1, 1), 3)
    for word in ("spawn", "return", "despawn"):
        assert (trace.type_e == event(word)).sum() == 6  # type: ignore[arg-type]
    assert {str(trace.name_a[a]) for a in range(trace.n_agents)} == {"lead", "verifier 0", "verifier 1"}


def test_a_changed_decision_meets_the_same_votes() -> None:
    world = make("sprt")
    short, long = (play(world, scripted(*[1] * k), seeds(2, 50)).state for k in (2, 5))
    np.testing.assert_array_equal(short.votes[:, :2], long.votes[:, :2])
    np.testing.assert_array_equal(short.truth, long.truth)


def test_a_new_seed_leaves_the_past_alone() -> None:
    one, two = with_new_seed(make("sprt"), [1] * 4, [1] * 8)
    np.testing.assert_array_equal(one.truth, two.truth)
    np.testing.assert_array_equal(one.votes[:, :4], two.votes[:, :4])
    assert (one.votes[:, 4:12] != two.votes[:, 4:12]).any(axis=1).mean() > 0.9


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"p": 1.2}, "p must be a probability from 0.5 to 1"),
        ({"p": 0.3}, "p must be a probability from 0.5 to 1"),
        ({"c": -1}, "c must be a price above 0 for a vote, got -1"),
        ({"most": 0}, "most must be a whole number from 1 to 1000000"),
        ({"q": 0.7}, "sprt has no parameter 'q'; there are p, c, most"),
    ],
)
def test_bad_parameters(params: dict[str, Any], said: str) -> None:
    with pytest.raises(BadParameter) as error:
        make("sprt", **params)
    assert said in str(error.value)


def test_held_out_prices_are_fit_too() -> None:
    dice = np.random.default_rng(0)
    for _ in range(20):
        world = make("sprt", **worlds()["sprt"].held_out(dice))
        c = world.params.c
        assert c != 0.01
        right = [
            sum(comb(k, i) * 0.7**i * 0.3 ** (k - i) for i in range(k // 2 + 1, k + 1)) for k in range(1, 40, 2)
        ]
        assert max(r - c * (2 * i + 1) for i, r in enumerate(right)) < 0.95 * world.optimum()
