"""`podium metrics`, as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.metrics import METRICS
from podium.trace import save
from tests.verbs import verb

ROOT = Path(__file__).parents[2]


def podium(*words: object) -> subprocess.CompletedProcess[str]:
    done = verb(*words)
    assert "Traceback" not in done.stderr + done.stdout
    return done


def told(*words: object) -> dict[str, Any]:
    """What it says in JSON, which is strict: no NaN, no infinity."""
    done = podium("metrics", *words, "--json")
    assert done.returncode == 0, done.stderr

    def never(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    answer: dict[str, Any] = json.loads(done.stdout, parse_constant=never)
    return answer


def outcome(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (one,) = (row for row in rows if row["metric"] == "outcome")
    return one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve expeditions under attack, and their clean twins."""
    where = tmp_path_factory.mktemp("runs")
    world = make("expedition", inject=0.5, leg_price=0.1)
    policy = world.clean()._same(0, 0, 1, 2, 2)
    for name, one in (("attacked", world), ("clean", world.clean())):
        save(one.trace(play(one, policy, seeds(1, 12), log=True).state), where / f"{name}.jsonl")
    return where


def test_every_metric_in_json(folder: Path) -> None:
    got = told(folder / "attacked.jsonl")
    assert got["runs"] == 12
    assert [row["metric"] for row in got["metrics"]] == [m.name for m in METRICS]
    assert set(got) == {"runs", "events", "metrics"}
    one = outcome(got["metrics"])
    assert one["low"] < one["mean"] < one["high"]
    assert (one["n"], one["absent"]) == (12, 0)


def test_the_table_names_what_was_assumed(folder: Path) -> None:
    shown = podium("metrics", folder / "clean.jsonl").stdout
    for metric in METRICS:
        assert metric.name in shown
    assert "cannot tell" in shown  # a clean run has no error to amplify
    assert "assumes that" in shown


def test_by_stratum(folder: Path) -> None:
    got = told(folder / "clean.jsonl", folder / "attacked.jsonl", "--by", "topology")
    assert list(got["by"]) == ["centralized"]
    assert outcome(got["by"]["centralized"]) == outcome(got["metrics"])
    bands = told(folder / "clean.jsonl", "--by", "band")["by"]
    assert sum(outcome(rows)["n"] for rows in bands.values()) == 12
    assert "centralized" in podium("metrics", folder / "clean.jsonl", "--by", "topology").stdout


def test_margins_against_clean_twins(folder: Path) -> None:
    got = told(folder / "attacked.jsonl", "--clean", folder / "clean.jsonl")
    loss, hurt = outcome(got["margins"])["mean"], outcome(got["metrics"])["mean"]
    assert loss == pytest.approx(hurt - outcome(told(folder / "clean.jsonl")["metrics"])["mean"])
    assert loss < 0
    shown = podium("metrics", folder / "attacked.jsonl", "--clean", folder / "clean.jsonl").stdout
    assert "less the clean twins" in shown


def test_costs_at_ones_own_prices(folder: Path) -> None:
    costs = told(folder / "clean.jsonl", "--prices", "tool_call=0.5")["costs"]
    # two legs of three briefed scouts with two calls each, and a note by the lead in each leg: 14 calls
    assert costs["total"]["mean"] == pytest.approx(7.0)
    assert costs["sub-agents"]["mean"] == pytest.approx(6.0)
    assert costs["predicted from the size of the team"]["mean"] == pytest.approx(7.0)
    assert costs["stated by the runs"]["n"] in (0, 12)
    assert "cost of a run" in podium("metrics", folder / "clean.jsonl", "--prices", "token_in=1e-6").stdout


def test_a_partial_bill_is_a_lower_bound_in_words_and_in_json(tmp_path: Path) -> None:
    demo = [sys.executable, ROOT / "examples/record_a_team.py"]
    subprocess.run(demo, cwd=tmp_path, check=True, capture_output=True)
    words = (tmp_path / "out/demo-run", "--prices", "token_in=3e-6,token_out=15e-6")
    # 2,700 tokens read and 940 written are on record; 7 events of sub-agents and 2 of the lead say only what they wrote
    total = told(*words)["costs"]["total"]
    assert total["mean"] == pytest.approx(2700 * 3e-6 + 940 * 15e-6)
    assert (total["at_least"], total["low"], total["events_lacking_counts"], total["partial"]) == (True, None, 9, 1)
    shown = " ".join(podium("metrics", *words).stdout.split())
    assert "total at least 0.0222 1 run, 9 events lack a token count" in shown
    free = told(words[0], "--prices", "token_out=15e-6")["costs"]["total"]
    assert (free["mean"], free["at_least"]) == (pytest.approx(940 * 15e-6), False)


def test_the_card(folder: Path) -> None:
    got = told(
        folder / "attacked.jsonl", "--card", "--reward", "outcome + anneal(0.1 * finish)", "--credit", "turn"
    )
    assert got["card"]["native"] is True
    assert got["card"]["3 reward channels"]["auxiliaries annealed"] is True
    assert got["card"]["4 credit unit"]["finest unit paid"] == "turn"
    shown = podium("metrics", folder / "attacked.jsonl", "--card").stdout
    assert "4 of 4: native to multi-agent systems" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "colour"), "colour"),
        (("--prices", "gold=1"), "gold"),
        (("--prices", "token_in=cheap"), "cheap"),
        (("--prices", "spawn=-1"), "0 or more"),
        (("--clean", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--card", "--reward", "no_such_score"), "no_such_score"),
    ],
)
def test_what_cannot_be_done_is_said(folder: Path, words: tuple[str, ...], said: str) -> None:
    done = podium("metrics", folder / "clean.jsonl", *words)
    assert done.returncode != 0
    assert said in done.stderr


def test_runs_that_are_no_twins(folder: Path, tmp_path: Path) -> None:
    world = make("jury")
    save(world.trace(play(world, world.optimal(), seeds(0, 2), log=True).state), tmp_path / "other.jsonl")
    done = podium("metrics", folder / "attacked.jsonl", "--clean", tmp_path / "other.jsonl")
    assert done.returncode != 0
    assert "trace id" in done.stderr


def test_no_such_file() -> None:
    done = podium("metrics", "nowhere.jsonl")
    assert done.returncode != 0
    assert "nowhere.jsonl" in done.stderr
