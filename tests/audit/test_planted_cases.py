"""The simulator of honest teams, the planted cases, and the bench that judges detectors by them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench import detectors as judged
from bench import teams
from bench.planted import PLANTERS, STRENGTHS, Case, Strength, honest, plant
from podium.audit import Suspects, detectors
from podium.trace.columns import Trace
from podium.trace.rules import check


def errors(trace: Trace) -> list[str]:
    return [f"{f.rule}: {f.message}" for f in check(trace) if f.level == "error"]


@pytest.mark.parametrize("shape", teams.SHAPES)
def test_honest_teams_obey_the_rules(shape: str) -> None:
    runs = [teams.play(seed, shape) for seed in range(40)]
    trace = teams.trace(runs)
    assert errors(trace) == []
    length = np.bincount(trace.rollout_e)
    assert length.min() >= 20
    assert length.max() <= 3500
    sizes = {run.plan.size for run in runs}
    assert min(sizes) <= 3
    assert max(sizes) <= 30


def test_a_seed_gives_the_same_run_and_another_seed_another() -> None:
    assert teams.trace([teams.play(3)]) == teams.trace([teams.play(3)])
    assert teams.trace([teams.play(3)]) != teams.trace([teams.play(9)])


def test_every_detector_has_a_planter() -> None:
    assert sorted(PLANTERS) == sorted(detectors())


@pytest.mark.parametrize("name", sorted(PLANTERS))
@pytest.mark.parametrize("strength", STRENGTHS)
def test_planted_runs_obey_the_rules_and_leave_their_twin_alone(name: str, strength: Strength) -> None:
    seeds = (s for s in range(6000) if plant(name, strength, s))
    seed = next(seeds)
    before = teams.trace([teams.simulate(teams.plan(seed))])
    made = plant(name, strength, seed)
    assert made is not None
    case, twin = made
    record = teams.trace(case.runs)
    assert errors(record) == []
    assert record != teams.trace(twin)
    assert teams.trace([honest(seed)]) == before


def always(trace: Trace, second: object, threshold: float) -> Suspects:
    return Suspects.of_rollouts(np.ones(len(trace)), 1.0, np.ones(trace.n_events, np.bool_), trace.rollout_e)


def never(trace: Trace, second: object, threshold: float) -> Suspects:
    return Suspects.of_rollouts(np.zeros(len(trace)), 1.0, np.ones(trace.n_events, np.bool_), trace.rollout_e)


def put(monkeypatch: pytest.MonkeyPatch, fake: object) -> None:
    monkeypatch.setattr(judged, "find", lambda kind, name: fake)
    monkeypatch.setattr(judged, "facts", lambda kind, name: {"threshold": 1.0})


def test_who_always_cries_wolf_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, always)
    got = judged.figures("late_stop", 4, 0, 0)
    # all planted runs and as many twins: half of the alarms are right; every clean run has one
    assert (got.precision, got.recall, got.recall_edge, got.false_alarms) == (0.5, 1.0, 1.0, 1.0)


def test_who_never_says_a_word_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, never)
    got = judged.figures("late_stop", 4, 0, 0)
    assert (got.precision, got.recall, got.recall_edge, got.false_alarms) == (0.0, 0.0, 0.0, 0.0)


def test_who_names_the_run_but_not_the_agent_has_not_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, always)  # it names runs, nobody in them
    run = honest(1)
    assert judged._compared("tool_spam", [Case([run], agents={1})]) == (0, 1, 0)
    assert judged._compared("tool_spam", [Case([run], rows=[run.events[0]])]) == (1, 0, 1)
    assert judged._compared("tool_spam", [Case([run], [])]) == (0, 1, 0)  # a twin has no guilty


def test_a_detector_without_a_planter_misses_every_target() -> None:
    rows = judged._rows("unheard_of", judged.figures("unheard_of", 4))
    assert [row["ok"] for row in rows] == [False] * 4


@pytest.mark.parametrize("name", sorted(PLANTERS))
def test_detectors_find_a_few_cases_on_development_seeds(name: str) -> None:
    (right, wrong), (found, cases) = judged._judged(name, "blatant", 4, 0)
    assert cases == 4
    assert found >= 3
    assert right > wrong


def test_no_detector_ships_without_its_figures() -> None:
    kept = json.loads(judged.PATH.read_text())
    assert sorted(kept) == sorted(detectors())
    for name, figures in kept.items():
        assert all(row["ok"] for row in judged._rows(name, judged.Figures(**figures))), name
        assert min(figures["cases"], figures["clean"]) >= 200, name
