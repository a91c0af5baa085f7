"""`podium train` and `podium compare`: what they print, write and refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from podium.cli.train import _line
from tests.pages import report_of

RECIPE = 'world = "jury"\niterations = 3\nrows = 300\nworlds = 2\n'


def podium(*args: str, at: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "podium.cli", *args], cwd=at, capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_train(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    told = strict(podium("train", "small.toml", "--json", at=tmp_path).stdout)
    assert told["world"] == "jury"
    assert told["iterations"] == 3
    assert told["regret"] == pytest.approx((told["optimum"] - told["value"]) / told["optimum"], abs=0.05)
    assert {m["dimension"] for m in told["metrics"]} == {"E1", "E2", "E3", "E4"}
    page = (tmp_path / "out/small/report.html").read_text()
    for picture in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + picture.split("</svg>")[0] + "</svg>")
    again = podium("train", "small.toml", at=tmp_path)  # it is done: nothing is trained, the same is told
    assert f"{told['value']:.4f}" in again.stdout
    assert podium("check", "out/small/after.jsonl", at=tmp_path).stdout == "clean\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere"], "cannot read the recipe 'nowhere'"),
        (["wrong.toml"], "wrong.toml: world 'nowhere' is not there"),
        (["small.toml", "--out", "full"], "full is not empty and holds no run"),
        (["small.toml", "--out", "small.toml"], "small.toml"),
    ],
)
def test_what_cannot_be_trained(tmp_path: Path, args: list[str], says: str) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    (tmp_path / "wrong.toml").write_text('world = "nowhere"')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    assert says in podium("train", *args, at=tmp_path, code=2).stderr


def test_compare(tmp_path: Path) -> None:
    small = ["--envs", "jury", "--seeds", "2", "--iterations", "2", "--episodes", "64"]
    told = strict(
        podium("compare", "--methods", "grpo,maporl,dr_mas", *small, "--out", "board", "--json", at=tmp_path).stdout
    )
    assert {row["method"] for row in told["rows"]} == {"grpo", "dr_mas"}
    assert told["refused"] == [{"method": "maporl", "env": "jury", "why": "maporl needs a judge"}]
    assert [row["share_of_gap"] for row in told["rows"]] == sorted(row["share_of_gap"] for row in told["rows"])
    assert "| jury | " in (tmp_path / "board/board.md").read_text()
    assert report_of((tmp_path / "board/board.html").read_text())["table"] == told["rows"]
    assert "no method called" in podium("compare", "--methods", "nosuch", *small, at=tmp_path, code=2).stderr
    wrong = podium("compare", "--methods", "grpo", "--envs", "nowhere", at=tmp_path, code=2)
    assert "nowhere" in wrong.stderr


def test_bench_regret(tmp_path: Path) -> None:
    told = strict(
        podium(
            "bench", "regret", "--envs", "relay", "--seeds", "2", "--iterations", "2", "--json", at=tmp_path
        ).stdout
    )
    (row,) = told["rows"]
    assert set(row) == {"env", "decision", "regret", "share_of_gap", "interval", "error", "seeds", "promise"}
    assert (row["env"], row["decision"], row["seeds"]) == ("relay", "communicate", 2)
    assert "no world 'nowhere'" in podium("bench", "regret", "--envs", "nowhere", at=tmp_path, code=2).stderr


def test_the_share_of_decisions_paid_is_printed(tmp_path: Path) -> None:
    small = ["--envs", "scouts", "--seeds", "1", "--iterations", "1", "--episodes", "64"]
    printed = json.loads(
        podium("compare", "--methods", "grpo,spawn_branching,owl", *small, "--json", at=tmp_path).stdout
    )
    paid = {row["method"]: row["paid"] for row in printed["rows"]}
    assert paid["grpo"] == 1.0
    assert 0 < paid["spawn_branching"] < 1
    assert [(row["method"], row["env"]) for row in printed["refused"]] == [("owl", "scouts")]
    assert "by role they are lead" in printed["refused"][0]["why"]


def test_a_line_of_training_prints_what_was_paid() -> None:
    line = {"iteration": 0, "score": 0.5, "regret": 0.1, "entropy": 0.1, "gradient": 0.1, "gradients": {}}
    line |= {"decisions": 10, "mix": {}, "seconds": {"rollout": 1.0}}
    heads = [
        [str(c.header) for c in _line(SimpleNamespace(last=2), one).columns]
        for one in (line, line | {"paid": 0.25})
    ]
    assert "paid" not in heads[0]
    assert "paid" in heads[1]
    assert list(_line(SimpleNamespace(last=2), line | {"paid": 0.25}).columns[5].cells) == ["25.0%"]
