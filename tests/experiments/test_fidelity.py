"""Fidelity: the estimators by hand, what is played against what is branched, and that exact credit marks itself as exact."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import report
from experiments.asked import asking
from experiments.chart import chart
from experiments.diffusion import diffusion
from experiments.effects import coverage, forest, points
from experiments.estimators import (
    Estimates,
    branching,
    every_option,
    leave_one_out,
    pooled,
    price,
    sampled,
    within_budget,
)
from experiments.fidelity import curve, designs, mark, row, spearman
from experiments.identify import biased, identification, spawns_that_react
from experiments.recorded import Decided, decided, held_out_teams, luck, record_runs, tried
from experiments.table import dressed, exact_at, recorded_trace, summed_at, table
from experiments.worlds import WORLDS, world_table
from podium.cli import app
from podium.credit import Credit
from podium.envs.branch import branch
from podium.envs.planted import Planted, PlantedParams
from podium.envs.planted_credit import worth
from podium.envs.world import make, play
from podium.graph import units
from podium.methods import METHODS, credit_of
from podium.metrics.effects import effects
from podium.study.figure import Line
from podium.trace.do import Do

ROOT = Path(__file__).parents[2]
NAN = np.nan


@pytest.fixture(scope="module")
def world() -> Planted:
    return Planted(PlantedParams(team=468, noise=0.5))


def one(pi: list[float], taken: int = 0) -> Decided:
    zero = np.zeros(1, np.int64)
    odds = np.array([pi + [0.0] * (4 - len(pi))])
    return Decided(zero, zero, np.array([taken]), odds, np.zeros(1), zero)


def earned(*options: list[float]) -> np.ndarray:
    whole = np.full((1, 4, max(map(len, options))), NAN)
    for k, tries in enumerate(options):
        whole[0, k, : len(tries)] = tries
    return whole


# marks


def test_ties_get_their_mean_rank() -> None:
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)
    assert spearman(np.array([0.0, 1.0, 1.0, 2.0]), np.arange(4.0)) == pytest.approx(4.5 / np.sqrt(22.5))
    assert spearman(np.array([3.0, NAN, 2.0, 1.0]), np.array([0.0, 9.0, 1.0, 2.0])) == -1.0
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)))


def test_marks_by_hand() -> None:
    exact, given = np.array([0.5, -0.5, 0.2, 0.0, 0.001]), np.array([0.4, -0.6, NAN, 0.0, 0.3])
    told = mark(given, exact, 3.0)
    assert told.false == 0.5  # of two inert ones, one is credited
    assert told.paid == pytest.approx(2 / 3)
    assert told.error == pytest.approx(np.sqrt((0.01 + 0.01 + 0.0 + 0.299**2) / 4))
    assert told.price == 3.0


# estimators


def test_branching_by_hand() -> None:
    # D_1 = mean(1-0, 1-1) = 0.5, D_2 = mean(1-0, 1-0) = 1; Q_x - sum pi Q = 0.2 * 0.5 + 0.3 * 1
    told = branching(one([0.5, 0.2, 0.3]), earned([1, 1], [0, 1], [0, 0]))
    assert told.credit == pytest.approx([0.4])
    # tries of one luck off the mean: 0.2 * (0.5, -0.5) / 2, so squares 2 * 0.05^2, times n/(n-1) for the mean and n for one try
    assert told.variance == pytest.approx([2 * 0.05**2 * 2 * 2])


def test_only_tries_that_share_their_luck_are_compared() -> None:
    told = branching(one([0.5, 0.5]), earned([1, 0, 0, 0], [0]))
    assert told.credit == pytest.approx([0.5 * (1 - 0)])


def test_an_option_that_was_not_tried_is_left_out() -> None:
    told = branching(one([0.5, 0.1, 0.4]), earned([1], [], [0]))
    assert told.credit == pytest.approx([0.5])  # (1 - 0.5) * (1 - 0)
    with pytest.raises(ValueError, match="has to be tried"):
        branching(one([0.5, 0.5]), earned([], [1]))


def test_leave_one_out_by_hand() -> None:
    assert leave_one_out(np.array([1.0]), np.array([[0.0, 1.0, 0.0, 0.0]])) == pytest.approx([0.75])


def test_prices() -> None:
    decisions = one([0.5, 0.25, 0.25])
    assert price(decisions, every_option(decisions, 16)) == 47  # the run itself is one of 48
    dice = np.random.default_rng(0)
    for budget in (1, 2, 3, 8, 100):
        assert 1 <= price(decisions, within_budget(decisions, budget, dice))[0] <= budget
    assert price(decisions, within_budget(decisions, 8, dice)) == 8  # three sets of three, less the run itself
    assert price(decisions, sampled(decisions, 8, 16, dice)) == 127


def test_pooling_without_noise_changes_nothing_and_without_difference_takes_the_mean() -> None:
    group = np.repeat([0, 1], 50)
    clear = Estimates(np.linspace(-1, 1, 100), np.full(100, 1e-12), np.full(100, 8.0))
    np.testing.assert_allclose(pooled(clear, group), clear.credit, atol=1e-6)
    truth = np.where(group == 0, 0.5, -0.5)
    noisy = Estimates(truth + np.random.default_rng(0).normal(0, 1, 100), np.full(100, 4.0), np.full(100, 4.0))
    drawn = pooled(noisy, group)
    assert np.abs(drawn - truth).mean() < 0.25 * np.abs(noisy.credit - truth).mean()


def test_pooling_helps_most_where_there_is_least(world: Planted) -> None:
    found = curve([world], 64, 3, (2, 8, 64))
    gain = [
        found[b]["branching, pooled by state"].mean().mean - found[b]["branching"].mean().mean
        for b in sorted(found)
    ]
    assert gain[0] > gain[-1] > -0.05


# what is played


def test_what_is_played_is_what_branching_plays(world: Planted) -> None:
    runs = record_runs(world, 12, 5)
    trace = recorded_trace(world, 12, 5)
    np.testing.assert_array_equal(trace.reward_n["team"], runs.outcome)
    decisions = decided(runs)
    played, seed = tried(runs, decisions, 3), luck(runs, decisions, 3)
    rows = units.rows(trace, "orchestrator")
    model = np.array([int(w) for w in trace.extra_e["row"].take(rows).strings() if w is not None])
    event = {(int(n), int(i)): int(r) for n, i, r in zip(trace.rollout_e[rows], model, rows, strict=True)}
    dos, fresh, want = [], [], []
    for d, k, m in zip(*np.nonzero(~np.isnan(played)), strict=True):
        dos.append(Do(event[int(decisions.run[d]), int(decisions.row[d])], "choose", str(k)))
        fresh.append(seed[d, m])
        want.append(played[d, k, m])
    seeds = np.array(fresh, np.uint64)
    made = branch(world, trace, dos, world.behaviour(seeds), seeds)
    assert len(want) > 500
    np.testing.assert_array_equal(made.reward_n["team"], want)


def test_the_run_itself_is_try_0_of_the_option_taken(world: Planted) -> None:
    runs = record_runs(world, 20, 1)
    decisions = decided(runs)
    own = tried(runs, decisions, 1)[np.arange(len(decisions)), decisions.taken, 0]
    np.testing.assert_array_equal(own, runs.outcome[decisions.run])


def test_many_tries_find_the_exact_credit(world: Planted) -> None:
    runs = record_runs(world, 6, 2)
    decisions = decided(runs)
    told = branching(decisions, tried(runs, decisions, 4000))
    assert np.abs(told.credit - decisions.exact).max() < 0.04
    z = (told.credit - decisions.exact) / np.sqrt(told.variance / told.tries + 1e-12)
    assert 0.7 < z[np.abs(decisions.exact) > 1e-9].std() < 1.3


def test_held_out_teams_are_half_noise() -> None:
    from podium.envs.planted_credit import noise_share

    assert [noise_share(w.model) for w in held_out_teams(2, 4)] == pytest.approx([0.5, 0.5], abs=0.005)


# effects


def test_intervals_read_off_a_forest_of_decisions_alone() -> None:
    won = np.array([[[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 1.0]]])
    seeds = np.arange(4, dtype=np.uint64)[None]
    told = effects(Credit(forest("spawn", won, seeds), "orchestrator", won.ravel()))
    assert told.mean == pytest.approx([-0.5] * 4 + [0.5] * 4)
    assert (told.low < told.mean).all()


def test_spawn_and_stop_intervals_cover(world: Planted) -> None:
    for kind in ("spawn", "stop"):
        at = points([world], kind, 1)[0]
        doing = worth(world.model).doing(at.row, at.values[None])[0]
        assert abs(at.exact) == pytest.approx(abs(doing[1] - doing[0]))
        assert 0.9 < coverage(at, 200, 256, 3)[0] <= 1.0


# the table


def test_an_exact_critic_gives_exact_credit(world: Planted) -> None:
    trace = dressed(world, recorded_trace(world, 8, 3))
    told = credit_of(trace, "coma")
    np.testing.assert_allclose(told.value, exact_at(world, trace, "orchestrator"), atol=1e-12)


def test_exact_credit_of_a_run_is_the_sum_of_its_choices(world: Planted) -> None:
    trace = dressed(world, recorded_trace(world, 8, 3))
    parts = exact_at(world, trace, "token")
    total = np.bincount(trace.rollout_e[trace.owner_k], parts, minlength=len(trace))
    for unit in ("team", "agent", "turn", "role"):
        at = exact_at(world, trace, unit)
        whole = np.bincount(units.rollouts(trace, unit), np.nan_to_num(at), minlength=len(trace))
        np.testing.assert_allclose(whole, total, atol=1e-12)


def test_broadcast_methods_agree_and_branching_beats_them(world: Planted) -> None:
    made = table([world], 12, 3)
    rho = {f.method: f.mean().mean for f in made.found}
    assert rho["grpo"] == pytest.approx(rho["rloo"])
    assert rho["branching_policy"] > rho["paramanager"]
    assert set(rho) | set(made.refused) == set(METHODS)
    assert "card" in made.refused["agentspawn"]


def test_closed_forms_of_the_worlds_are_their_optima() -> None:
    for name, (params, values) in WORLDS.items():
        made = make(name, **params)
        view = made.view(made.start(np.array([1], np.uint64)))
        assert view is not None
        assert values(made, view).max() == pytest.approx(made.optimum(), abs=1e-9)
    found = {(f.env, f.method): f.mean().mean for f in world_table(16, 2)}
    assert found["costly_search", "branching"] > found["costly_search", "paramanager"]
    assert found["scouts", "branching"] > 0.8


def test_what_is_asked_for_is_played(world: Planted) -> None:
    trace = recorded_trace(world, 4, 1)
    whole = asking(world, trace, 40, 2)
    assert len(whole) == 44
    assert (whole.parent_n.codes[4:] >= 0).all()


def test_credit_that_nobody_has_is_nan(world: Planted) -> None:
    trace = recorded_trace(world, 2, 1)
    assert np.isnan(summed_at(trace, np.full(trace.n_events, NAN), "agent")).all()


# the two observations


def test_signal_to_noise_falls_with_the_root_of_length() -> None:
    short, long = diffusion((16, 1600), 100_000)
    assert short.broadcast / long.broadcast == pytest.approx(10, rel=0.35)
    assert long.broadcast < long.apart < long.shared


def test_without_coverage_only_branches_know_the_effect() -> None:
    cases = spawns_that_react([Planted(PlantedParams(team=t, noise=0.5)) for t in range(30)])[:2]
    world, i = cases[0]
    assert biased(world.model, i, 0.0).rows[i].table.max() == 1.0
    covered, bare = identification(cases, 1000, 3, (0.5, 0.0))
    assert np.isnan(bare.states)
    assert bare.told == 0.0
    assert covered.told > 0.9
    assert bare.branches < 0.5 * bare.policy


# what is told


def test_the_promised_designs_at_a_small_size() -> None:
    found = designs(held_out_teams(3, 8), 128, 8)
    assert found["branching, pooled by state (every option)"].mean().mean > 0.88
    assert found["branching (8 in all)"].mean().mean > found["c3 (8 in all)"].mean().mean
    told = row(found["broadcast"])
    assert {"method", "env", "unit", "spearman", "interval", "rollouts"} <= set(told)


def test_a_chart_is_one_picture() -> None:
    drawn = chart(
        "a < b",
        "x",
        "y",
        [Line("one", [(1, 0.1, 0.0, 0.2), (10, 0.5, 0.4, 0.6)]), Line("two", [(1, NAN), (10, 0.2)])],
    )
    assert drawn.startswith("<svg")
    assert "a &lt; b" in drawn
    assert "nan" not in drawn


def test_the_verb_ends_with_one_line_of_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = Planted(PlantedParams(team=468, noise=0.5))
    few = designs([world], 16, 1)
    study = report.Study(few, [], {}, {}, {}, [], {"x": "y"}, [], [], [])
    monkeypatch.setattr("experiments.report.study", lambda full: study)
    said = CliRunner().invoke(app, ["bench", "fidelity", "--json"])
    rows = json.loads(said.stdout.splitlines()[-1])["rows"]
    assert [r["method"] for r in rows] == list(few)
    assert "broadcast" in CliRunner().invoke(app, ["bench", "fidelity"]).stdout


def test_the_page_shows_what_was_written() -> None:
    page = (ROOT / "docs/fidelity.md").read_text()
    written = json.loads((ROOT / "podium/methods/fidelity.json").read_text())["rows"]
    assert {r["method"] for r in written} <= set(METHODS)
    for told in written:
        shown = re.search(rf"\| `{told['method']}` \| {told['env']} \| {told['unit']} \| (\S+) \|", page)
        assert shown
        assert float(shown[1]) == pytest.approx(told["spearman"], abs=0.006)
    for name in re.findall(r"\]\((fidelity/\w+\.svg)\)", page):
        assert (ROOT / "docs" / name).read_text().startswith("<svg")


def test_play_of_recorded_runs_repeats(world: Planted) -> None:
    a, b = record_runs(world, 5, 9), record_runs(world, 5, 9)
    np.testing.assert_array_equal(a.values, b.values)
    score = play(world, world.behaviour(a.seed), a.seed).score
    np.testing.assert_array_equal(score, a.outcome)
