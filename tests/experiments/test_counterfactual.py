"""The learned counterfactual estimator: its parts by hand, its gradient, its laws, and that it learns without anything exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.counterfactual import TESTED, _common, asked, training_teams
from experiments.counterfactual import Asked, Fit, Lesson, Work, asked_of, fit, lesson, stamped, unfitted
from experiments.counterfactual.fitted import loss
from experiments.counterfactual.hypotheses import GUESSES, SPREADS, _told, contrasts, guesses, steps
from experiments.counterfactual.network import M, batched, initial, join_batches, worth
from experiments.estimators import branching, within_budget
from experiments.fidelity import Found, Marks, spearman
from experiments.recorded import Decided, Recorded, decided, luck, record_runs, tried
from experiments.table import dressed, recorded_trace
from podium.credit import BadCredit, Credit
from podium.credit.critics import own_action, plugged
from podium.envs.branch import branch
from podium.envs.planted import Planted, PlantedParams
from podium.graph import units
from podium.learn import tape
from podium.trace.columns import F, concat
from podium.trace.do import Do

NAN = np.nan


def sees(world: Planted, runs: int, budget: int = 8) -> tuple[Recorded, Decided, F, F]:
    """Runs, decisions, the tries that fit the budget, and as many more."""
    log = record_runs(world, runs, 7)
    decisions = decided(log)
    wanted = within_budget(decisions, budget, np.random.default_rng(0))
    n = wanted.shape[2]
    earned = tried(log, decisions, 2 * n)
    return log, decisions, np.where(wanted, earned[:, :, :n], NAN), np.where(wanted, earned[:, :, n:], NAN)


@pytest.fixture(scope="module")
def world() -> Planted:
    return Planted(PlantedParams(team=468, noise=0.5))


@pytest.fixture(scope="module")
def some(world: Planted) -> Asked:
    log, decisions, seen, _ = sees(world, 24)
    return asked(log, decisions, seen)


@pytest.fixture(scope="module")
def taught() -> list[Lesson]:
    made = []
    for _, team in zip(range(4), training_teams(2, 1), strict=False):
        log, decisions, seen, kept = sees(team, 24)
        made.append(lesson(asked(log, decisions, seen), kept))
    return made


@pytest.fixture(scope="module")
def stirred() -> Fit:
    """Parameters of which none is 0."""
    dice = np.random.default_rng(3)
    return Fit({k: (v + 0.1 * dice.standard_normal(v.shape)).astype(np.float32) for k, v in initial(0).items()})


# by hand


def chain() -> Work:
    """0 → 2 → 4 and 1 → 3; both ends make the outcome."""
    five, none = np.zeros(5, np.int64), np.full(5, -1)
    return Work(five, none, five, ((), (), (0,), (1,), (2,)), (3, 4))


def test_a_state_is_what_something_later_depends_on() -> None:
    assert chain().live == ((), (0,), (0, 1), (1, 2), (2, 3))
    assert chain().after(0) == {0, 2, 4}


def test_what_meets_in_the_outcome_alone_is_told_apart() -> None:
    assert chain().meets(2) == set()  # 1 goes to another end; 0 stands before it
    both = replace(chain(), causes=((), (), (0,), (1,), (2, 3)), ends=(4,))
    assert both.meets(2) == {1}


def test_contrasts_by_hand() -> None:
    """Two decisions of one state: options 1, 0 twice and 1, 1 once; a try of one option alone is left out."""
    earned = np.array([[[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, NAN]]])
    sets, mean, variance = contrasts(earned, np.zeros(2, np.int64), 1)
    assert sets.tolist() == [3]
    np.testing.assert_allclose(mean, [[1 / 3, -1 / 3]])
    square = 2 * (2 * (1 / 6) ** 2 + (1 / 3) ** 2)
    np.testing.assert_allclose(variance, [square / 2 + 1e-5])


def test_a_guess_is_a_normal_posterior() -> None:
    """Against the formula, written out with a solve; with a mean too."""
    dice = np.random.default_rng(0)
    likeness = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, 0.3], [0.3, 0.3, 1.0]])
    y, sets, m = dice.normal(size=(3, 2)), np.array([2.0, 5.0, 1.0]), np.array([0.4, -0.4])
    y -= y.mean(axis=1, keepdims=True)
    likely, cross, square, told, rest = _told(likeness, y, sets)
    for a, v in enumerate(SPREADS):
        whole = v * likeness + np.diag(1 / sets)
        expected = m + v * likeness @ np.linalg.solve(whole, y - m)
        np.testing.assert_allclose(told[:, :, a] + rest[:, a, None] * m, expected, atol=1e-12)
        log_p = -0.5 * np.sum((y - m) * np.linalg.solve(whole, y - m)) - 0.5 * np.linalg.slogdet(whole)[1]
        mine = likely[a] + m @ cross[:, a] - 0.5 * square[a] * m @ m
        np.testing.assert_allclose(mine, log_p - 0.5 * np.log(sets).sum(), atol=1e-12)


def test_a_state_without_a_try_is_told_by_those_it_is_like() -> None:
    y, sets = np.array([[0.5, -0.5], [0.0, 0.0]]), np.array([1e6, 0.0])
    told = _told(np.array([[1.0, 0.3], [0.3, 1.0]]), y, sets)[3]
    np.testing.assert_allclose(told[1, :, -1], [0.15, -0.15], atol=1e-5)


def test_guesses_are_the_same_every_time() -> None:
    assert np.array_equal(guesses(chain(), 3), guesses(chain(), 3))
    assert guesses(chain(), 3).shape == (GUESSES, 2)


# reductions


def test_before_it_learns_guesses_are_believed_as_likely_as_they_are(some: Asked) -> None:
    q = unfitted().worth(some)
    for s in steps(some)[:4]:
        odds = np.exp(s.likely - s.likely.max())
        expected = s.worth @ (odds / odds.sum()) * s.noise[:, None]
        np.testing.assert_allclose(q[s.at, : s.options], expected[s.state], atol=1e-5)


def test_with_many_tries_and_nothing_alike_it_is_branching(world: Planted) -> None:
    log = record_runs(world, 3, 0)
    decisions = decided(log).take(np.arange(3))
    earned = tried(log, decisions, 4000)
    told = unfitted().credit(asked(log, decisions, earned))
    np.testing.assert_allclose(told, branching(decisions, earned).credit, atol=0.01)


# laws


def test_the_gradient_is_that_of_finite_differences(taught: list[Lesson], stirred: Fit) -> None:
    one = taught[0]
    held = {k: tape.Var(v.astype(np.float64)) for k, v in stirred.parameters.items()}
    tape.backward(loss(held, one.batch, one.pi, one.target, one.weight))
    dice = np.random.default_rng(0)
    for name, var in held.items():
        along = dice.standard_normal(var.value.shape)

        def at(step: float, name: str = name, along: Any = along) -> float:
            moved = {k: v.value + (step * along if k == name else 0.0) for k, v in held.items()}
            return float(loss(moved, one.batch, one.pi, one.target, one.weight))

        assert var.grad is not None
        assert np.sum(var.grad * along) == pytest.approx((at(1e-5) - at(-1e-5)) / 2e-5, rel=1e-3, abs=1e-6), name


def test_teams_side_by_side_are_teams_alone(taught: list[Lesson], stirred: Fit) -> None:
    alone = [tape.value_of(worth(stirred.parameters, one.batch)) for one in taught]
    together = tape.value_of(worth(stirred.parameters, join_batches([one.batch for one in taught])))
    np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-5)


def test_the_order_of_decisions_says_nothing(some: Asked, stirred: Fit) -> None:
    mixed = np.random.default_rng(0).permutation(len(some))
    parts = {name: getattr(some, name)[mixed] for name in ("step", "taken", "pi", "seen", "earned")}
    np.testing.assert_allclose(
        stirred.credit(replace(some, **parts)), stirred.credit(some)[mixed], rtol=1e-3, atol=1e-5
    )


def test_credit_is_nothing_on_average_under_the_policy(some: Asked, stirred: Fit) -> None:
    q = stirred.worth(some)
    each = [stirred.credit(replace(some, taken=np.full(len(some), k))) for k in range(some.pi.shape[1])]
    mean = np.nansum(some.pi * np.array(each).T, axis=1)
    np.testing.assert_allclose(mean, 0.0, atol=1e-6)
    assert np.array_equal(np.isnan(q), some.pi == 0)


def test_decisions_without_a_try_are_paid_a_number(some: Asked, stirred: Fit) -> None:
    silent = some.earned.copy()
    silent[::3] = NAN
    assert np.isfinite(stirred.credit(replace(some, earned=silent))).all()


def test_no_team_is_too_small() -> None:
    team = Planted(PlantedParams(team=5, agents=1, values=2, noise=0.5))
    log, decisions, seen, _ = sees(team, 2)
    assert np.isfinite(unfitted().credit(asked(log, decisions, seen))).all()


# the record


@pytest.fixture(scope="module")
def forest(world: Planted) -> tuple[Any, Asked]:
    """Runs with three tries of every option as they are recorded, and the same on the columns of the model."""
    log = record_runs(world, 6, 5)
    decisions, trace = decided(log), recorded_trace(world, 6, 5)
    order = np.lexsort((decisions.row, decisions.run))
    decisions = decisions.take(order)
    seeds, rows = luck(log, decisions, 3), units.rows(trace, "orchestrator")
    dos, fresh = [], []
    for d, row in enumerate(rows.tolist()):
        for k in range(int(decisions.options[d])):
            for j in range(int(k == decisions.taken[d]), 3):
                dos.append(Do(row, "choose", str(k)))
                fresh.append(seeds[d, j])
    started = np.array(fresh, np.uint64)
    whole = concat([trace, branch(world, trace, dos, world.behaviour(started), started)])
    return dressed(world, whole), asked(log, decisions, tried(log, decisions, 3))


def test_a_recorded_forest_asks_what_the_model_does(forest: tuple[Any, Asked], stirred: Fit) -> None:
    mine, rows = asked_of(forest[0])
    for name in ("step", "taken", "seen"):
        assert np.array_equal(getattr(mine, name), getattr(forest[1], name)), name
    many = mine.pi.shape[1]
    np.testing.assert_allclose(mine.pi, forest[1].pi[:, :many])
    assert np.array_equal(mine.earned, forest[1].earned[:, :many], equal_nan=True)
    assert all(mine.work.live[i] == forest[1].work.live[i] for i in np.unique(mine.step))
    np.testing.assert_allclose(stirred.credit(mine), stirred.credit(forest[1]), atol=1e-5)
    assert (forest[0].parent_n.codes[forest[0].rollout_e[rows]] < 0).all()


def test_credit_steps_read_it_as_a_column_with_the_id_of_the_fit(forest: tuple[Any, Asked], stirred: Fit) -> None:
    trace = stamped(forest[0], stirred)
    credit = Credit(trace, "orchestrator", np.zeros(len(units.rows(trace, "orchestrator"))))
    paid = plugged(credit, "counterfactual").value
    own = trace.parent_n.codes[credit.rollout] < 0
    np.testing.assert_allclose(paid[own], stirred.credit(asked_of(forest[0])[0]))
    assert np.isnan(paid[~own]).all()
    np.testing.assert_allclose(own_action(credit, "counterfactual_q").value[own], paid[own], atol=1e-9)
    told = trace.extra_e["counterfactual_fit"].take(credit.rows).strings()
    assert set(told) == {stirred.id, None}
    assert [t is not None for t in told] == own.tolist()


def test_teams_in_one_trace_tell_nothing_of_each_other(forest: tuple[Any, Asked], stirred: Fit) -> None:
    other = Planted(PlantedParams(team=12, agents=2, noise=0.5))
    second = dressed(other, recorded_trace(other, 4, 1))
    both = stamped(concat([forest[0], second]), stirred).reward_e["counterfactual"]
    alone = [stamped(t, stirred).reward_e["counterfactual"] for t in (forest[0], second)]
    np.testing.assert_allclose(both, np.concatenate(alone), atol=1e-6)


def test_what_is_missing_is_named(world: Planted) -> None:
    with pytest.raises(BadCredit, match="or the label 'pi'"):
        asked_of(recorded_trace(world, 2, 0))


# learning


def test_it_learns_from_kept_tries_and_repeats(taught: list[Lesson]) -> None:
    def off(w: Fit) -> float:
        return sum(float(tape.value_of(loss(w.parameters, o.batch, o.pi, o.target, o.weight))) for o in taught)

    one, two = fit(taught, rounds=4), fit(taught, rounds=4)
    assert one.id == two.id != unfitted().id
    assert off(one) < off(unfitted())


def test_it_is_truer_than_branching_alone(world: Planted, taught: list[Lesson]) -> None:
    """In a team of another size than it was taught with."""
    log, decisions, seen, _ = sees(world, 64)
    live = np.abs(decisions.exact) >= 0.01
    ours = fit(taught, rounds=4).credit(asked(log, decisions, seen))
    alone = branching(decisions, seen).credit
    exact = decisions.exact[live]
    assert spearman(ours[live], exact) > spearman(alone[live], exact) + 0.1


def test_the_batch_has_a_row_for_each_option_of_each_state(some: Asked) -> None:
    found = steps(some)
    batch = batched(some.work, found, 0.5)
    assert batch.told.shape == (sum(len(s.times) * s.options for s in found), M)
    assert batch.thing_first[-1] == len(batch.things)


def test_estimators_are_compared_over_the_same_teams() -> None:
    """One that ranks nothing in a hard team must not be spared that team alone."""

    def found(*rho: float) -> Found:
        return Found("", marks=[Marks(r, 0.0, 0.0, 13.0, 1.0) for r in rho])

    marks = {13: {"learned": found(0.9, 0.5), "other": found(0.8, NAN)}}
    same = _common(dict.fromkeys(TESTED, marks), 13)
    assert {name: (one.mean().mean, one.mean().n) for name, one in same.items()} == {
        "learned": (pytest.approx(0.9), len(TESTED)),
        "other": (pytest.approx(0.8), len(TESTED)),
    }
