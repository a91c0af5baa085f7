"""`podium reward`, as a user meets it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scripted import run

from podium.cli.rewards import listing, paid_runs, paid_units
from podium.registry import names
from podium.rewards import Now, ledger
from podium.trace import save
from podium.trace.columns import Trace, concat
from tests.verbs import verb


def team(reward: float, name: str) -> Trace:
    return run(
        ("decide lead", (), {"decision": "spawn", "role": "lead"}),
        ("spawn lead>ann", [(0, "spawn")]),
        ("spawn lead>bob", [(0, "spawn")]),
        ("return ann>lead", [(1, "spawn")], {"role": "worker"}),
        ("aggregate lead", [(3, "aggregate")], {"role": "lead"}),
        reward={"team": reward},
        name=name,
    )


RUNS = concat([team(1.0, "one"), team(np.nan, "two")])


def podium(*words: object) -> subprocess.CompletedProcess[str]:
    done = verb(*words)
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    save(RUNS, folder / "runs.jsonl")
    return folder / "runs.jsonl"


def test_what_runs_got(path: Path) -> None:
    answer = podium("reward", path, "--reward", "outcome - 0.5 * finish")
    assert answer.returncode == 0, answer.stderr
    assert [line.split() for line in answer.stdout.splitlines()] == [
        ["outcome", "-", "0.5", "*", "finish"],
        ["run", "paid"],
        ["one", "0.75"],  # 1 - .5 x 1/2
        ["two", "not", "scored"],
        ["1", "of", "2", "runs", "scored,", "mean", "0.75"],
    ]


def test_the_ledger_says_who_paid_and_adds_up(path: Path) -> None:
    answer = podium("reward", path, "--reward", "parl", "--progress", 0.5, "--ledger", "--json")
    told = json.loads(answer.stdout)
    assert told["reward"] == "outcome + anneal(0.3 * instantiate(8)) + anneal(0.3 * finish(none=0.0))"
    one, two = told["runs"]
    assert [(c["channel"], c["unit"], c["units"], c["unscored"]) for c in one["channels"]] == [
        ("outcome", "team", 1, 0),
        ("instantiate(8)", "team", 1, 0),
        ("finish(none=0.0)", "team", 1, 0),
    ]
    assert (
        sum(c["paid"] for c in one["channels"]) == pytest.approx(one["paid"]) == pytest.approx(1 + 0.0375 + 0.075)
    )
    assert two["paid"] is None
    assert two["channels"][0] == {"channel": "outcome", "unit": "team", "units": 1, "unscored": 1, "paid": None}
    shown = podium("reward", path, "--reward", "parl", "--progress", 0.5, "--ledger").stdout
    assert [line.split()[1:] for line in shown.splitlines()[2:6]] == [
        ["outcome", "team", "1", "0", "1"],
        ["instantiate(8)", "team", "1", "0", "0.0375"],
        ["finish(none=0.0)", "team", "1", "0", "0.075"],
        ["total", "1.1125"],
    ]


def test_by_unit() -> None:
    book = ledger(RUNS, "outcome")
    assert paid_units(book, "agent")[:3] == [
        {"run": "one", "agent": "lead", "row": 0, "paid": 1.0},
        {"run": "one", "agent": "ann", "row": 3, "paid": 1.0},
        {"run": "one", "agent": "bob", "row": None, "paid": 1.0},
    ]
    assert [(u["role"], u["row"]) for u in paid_units(book, "role")] == [("lead", 0), ("worker", 3)] * 2
    assert [u["orchestrator"] for u in paid_units(book, "orchestrator")] == ["lead", "lead"]
    assert paid_units(book, "team")[1] == {"run": "two", "team": None, "row": 0, "paid": None}
    assert paid_units(book, "tool_call") == paid_units(book, "token") == []


def test_runs_without_channels_unless_asked() -> None:
    assert paid_runs(ledger(RUNS, "outcome", Now()))[0] == {"run": "one", "paid": 1.0}


def test_many_rows_are_cut(tmp_path: Path) -> None:
    save(concat([team(1.0, f"run {i}") for i in range(50)]), tmp_path / "many.jsonl")
    answer = podium("reward", tmp_path / "many.jsonl", "--reward", "outcome")
    assert "… 10 more; --json prints all" in answer.stdout
    assert "50 of 50 runs scored, mean 1" in answer.stdout


def test_the_scores_are_listed() -> None:
    answer = podium("reward", "--json")
    told = json.loads(answer.stdout)
    assert answer.returncode == 0
    assert set(told) == {"scores", "shapes", "rewards"}
    assert {"outcome", "split_correctness"} <= {row["score"] for row in told["scores"]}
    assert all(row["unit"] and row["families"] and row["needs"] and row["about"] for row in told["scores"])
    shown = podium("reward").stdout
    for kind in ("score", "shape", "reward"):
        assert all(name in shown for row in told[f"{kind}s"] for name in [row[kind]])
    assert len(listing()["scores"]) == len(names("score"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--reward", "nobody"), "no score, shape or reward called 'nobody'"),
        (("--reward", "outcome +"), "expected an expression"),
        (("--reward", "parl"), "give progress"),
        (("--reward", "outcome", "--unit", "bee"), "no unit called 'bee'"),
        (("--reward", "over_budget('x')"), "over_budget('x')"),
        ((), "--reward"),
    ],
)
def test_wrong_use_is_said_in_one_line(path: Path, words: tuple[str, ...], said: str) -> None:
    answer = podium("reward", path, *words)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_no_runs_are_an_error_too() -> None:
    answer = podium("reward", "--reward", "outcome")
    assert (answer.returncode, "which runs" in answer.stderr) == (2, True)
