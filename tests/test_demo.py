"""What `make demo` runs: one of its five decisions, whole, and the page that it ends with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from podium.trace.files import load
from podium.view.training import Lesson, lessons_page
from tests.pages import report_of

ROOT = Path(__file__).parents[1]


def test_a_decision_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("learn_the_five", ROOT / "examples/learn_the_five.py")
    assert spec
    assert spec.loader
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.chdir(tmp_path)
    row = demo.learn("communicate")
    assert row["share of the gap"] <= 0.3
    assert row["before"] < row["learned"] <= row["exact optimum"] + 0.01
    folder = tmp_path / demo.OUT / "communicate"
    runs = [load(folder / f"{name}.jsonl")[0] for name in ("before", "after")]
    lines = demo.runs.Run(demo.asked("communicate"), folder).lines
    page = lessons_page("demo", [row], [Lesson("communicate", lines, *runs)])
    report = report_of(page)
    assert report["table"] == [row]
    (lesson,) = report["lessons"]
    assert (lesson["before"], lesson["after"]) == (0, 1)
    last = lesson["lines"][-1]
    assert last["regret"] < lesson["lines"][0]["regret"]
    assert set(last["mix"]) == {"communicate", "aggregate"}
    assert len(last["gradients"]) == 2  # one for each role
