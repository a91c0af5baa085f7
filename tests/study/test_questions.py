"""Every study runs at a small size, repeats, keeps what it measured, and has a recipe, a page, a figure and numbers that agree."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import bench.study
from experiments.questions import leaderboard
from podium.learn.folder import BadRecipe
from podium.study import question
from podium.study.loop import Lesson
from podium.study.question import (
    SHIPPED,
    Measurements,
    fill_tables,
    fingerprint,
    in_time,
    load_measurements,
    measure_all,
    read_study,
    report_of,
    study_names,
    summarise,
    write_report,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", study_names())
def test_a_study_runs_at_a_small_size_and_is_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = read_study(name, quick=True)
    found = measure_all(asked, tmp_path / "kept", cores=1)
    report = write_report(asked, found, tmp_path / "told")
    ElementTree.fromstring(report.figure)
    assert len({s.id for s in report.headline}) == len(report.headline) > 0
    stages = question.first_stage(asked, found), question.second_stage(asked, found)
    assert list(found.arms) == [arm for stage in stages for arm in stage]
    monkeypatch.setattr(question, "one_thread", lambda: pytest.fail("it was measured already"))
    again = measure_all(asked, tmp_path / "kept", cores=1)
    assert again == found
    there = load_measurements(asked, tmp_path / "told")
    assert there is not None
    assert there == (found, True)
    assert repr(report_of(asked, there[0])) == repr(report)  # NaN is unequal to itself


@pytest.mark.parametrize("name", ["diffusion", "identify", "dr_mas"])
def test_the_same_seed_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    asked = read_study(name, quick=True)
    arm = asked.experiment.arms(asked.how)[0]
    one, two = (question._plain(asked.experiment.measure(asked.how, arm, 1)) for _ in range(2))
    assert json.dumps(one) == json.dumps(two)


@pytest.mark.parametrize("name", [n for n in study_names() if (SHIPPED / f"{n}.json").exists()])
def test_pages_say_what_was_measured(name: str) -> None:
    asked = read_study(name)
    there = load_measurements(asked)
    assert there is not None
    report = report_of(asked, there[0])
    page = (SHIPPED / f"{name}.md").read_text()
    assert fill_tables(page, report.tables) == page, f"run podium study {name} --out docs/studies"
    assert (SHIPPED / f"{name}.svg").read_text() == report.figure
    assert f"]({name}.svg)" in page
    assert "<!-- measured: headline -->" in page
    assert all(len(some) == len(asked.seeds) >= 5 for some in there[0].arms.values())


def test_the_readme_leads_to_the_leader_board() -> None:
    page = (ROOT / "README.md").read_text()
    assert "(docs/studies/leaderboard.md)" in page
    assert "share of the gap left" not in page  # which is on its page, with what each row pays


def _board() -> tuple[leaderboard.How, Measurements]:
    """A board of one world and two seeds, from shares, coverage and why not."""
    how = replace(
        read_study("leaderboard", quick=True).how, methods=("grpo", "rloo", "opo", "owl", "coma", "dr_mas")
    )
    figures = {
        "grpo": [(0.5, 1.0, "")] * 2,
        "rloo": [(0.6, 1.0, "")] * 2,
        "opo": [(0.7, 0.25, ""), (0.9, 0.35, "")],
    }
    figures |= {"coma": [(0.5, 1.0, "")] * 2, "owl": [(None, 0.0, "by role they are lead")] * 2}
    figures |= {"dr_mas": [(0.1, 0.5, ""), (None, 0.0, "nobody")]}
    found: dict[str, list[dict[str, object]]] = {}
    for arm in leaderboard.arms(how):
        some = figures.get(arm.split("/")[1], [(1.5 + len(found), None, "")] * 2)
        found[arm] = [{"share": x, "regret": x, "decisions": 9, "paid": p, "refused": why} for x, p, why in some]
    return how, Measurements(found, {arm: [1.0, 1.0] for arm in found}, {})


def test_the_board_tells_what_is_paid_and_ranks_no_row_that_pays_nobody() -> None:
    how, found = _board()
    report = leaderboard.report(how, found)
    board = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.tables["board"].splitlines()[2:]]
    named = {row[1]: row for row in board}
    assert "`owl`" not in named
    assert named["`opo`"][5] == "30%"
    assert named["`grpo`"][5] == "100%"
    assert named["`coma`"][6] == "`grpo`"
    assert named["`grpo`"][6] == "`coma`"
    assert named["`rloo`"][6] == ""
    assert "`dr_mas`" not in named  # not paid on one of its seeds: the mean of the others would be another figure
    refused = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in report.tables["refused"].splitlines()[2:]
    ]
    assert ["`owl`", "jury", "0%", "by role they are lead"] in refused
    assert ["`dr_mas`", "jury", "25%", "nobody (1 of 2 seeds)"] in refused
    assert "1. `grpo` | 0.50 ± 0.00 (100% paid)" in report.tables["short"]
    assert "`owl`" not in report.tables["short"]
    assert "4 rows" in report.tables["short"]
    assert report.headline[0].what.endswith("the best method, grpo")


def test_a_row_whose_credit_is_0_everywhere_is_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    how = read_study("leaderboard", quick=True).how
    lesson = Lesson(None, None, 40, {}, 1.0, 0.0)  # type: ignore[arg-type]
    monkeypatch.setattr(leaderboard, "train_lesson", lambda *args: lesson)
    report = leaderboard.measure(how, "jury/grpo", 0)
    assert report["refused"] == "every decision that it pays gets 0"
    assert report["paid"] == 1.0


def test_the_board_says_why_a_method_is_not_paid() -> None:
    how = read_study("leaderboard", quick=True).how
    report = leaderboard.measure(how, "jury/owl", 0)
    assert (report["paid"], report["share"] == report["share"]) == (0.0, False)
    assert "by role they are lead" in report["refused"]
    paid = leaderboard.measure(how, "jury/branching", 0)["paid"]
    assert 0 < paid < 1
    assert leaderboard.measure(how, "jury/magrpo", 0)["paid"] == 1


def test_the_best_rows_and_the_known_ones_are_trained_longer() -> None:
    how, found = _board()
    longer = leaderboard.then(how, found)
    assert longer == [
        f"jury/{name}, more decisions" for name in ("grpo", "rloo", "opo", "same-prefix")
    ]  # coma is as grpo
    assert "at 2 times" in leaderboard.report(how, found).tables["board"]
    for arm in longer:
        found.arms[arm] = [{"share": 0.25, "regret": 0.1, "decisions": 18, "paid": 1.0, "refused": ""}] * 2
    report = leaderboard.report(how, found)
    assert "1. `grpo` | 0.50 ± 0.00, then 0.25 ± 0.00 (100% paid)" in report.tables["short"]
    assert report.headline[-1].id == "jury.longer"
    assert "| jury | `grpo`, `coma` | equal credit here, to the bit |" in report.tables["same"]


@pytest.mark.parametrize("name", ["grpo", "magrpo", "same-prefix"])
def test_all_rows_of_the_board_make_as_many_decisions(name: str) -> None:
    """Whatever a run or a branch costs: of 2,880 decisions at most a twentieth more or less."""
    how = replace(read_study("leaderboard", quick=True).how, decisions={"costly_search": 2_880}, judged=20)
    how = replace(how, budget={**how.budget, "iterations": 6, "most": 40})
    made = leaderboard.measure(how, f"costly_search/{name}", 0)["decisions"]
    assert made == pytest.approx(2_880, rel=0.05)


def test_the_key_is_of_code_and_settings_and_not_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint(read_study("diffusion")) != fingerprint(read_study("diffusion", quick=True))
    tells = "x = 1\n\ndef report(): return 2"
    assert question.meaning("x = 1  # a") == question.meaning(tells, until="report") != question.meaning(tells)
    assert question.meaning("x = 1") != question.meaning("x = 2")


def test_an_interval_worked_by_hand() -> None:
    made = summarise("id", "what", [1.0, 2.0, 3.0])
    assert made.mean == 2.0
    assert made.high - made.mean == pytest.approx(4.3027 / 3**0.5, abs=1e-3)
    assert summarise("id", "what", [0.0, 0.0])[2:5] == (0.0, 0.0, 0.0)


def test_a_curve_in_the_time_of_the_quickest() -> None:
    """One that is twice as slow has gone half as far: between its first look and its last."""
    curves = {"quick": [{"left": [1.0, 0.5, 0.0]}], "slow": [{"left": [1.0, 0.6, 0.0]}]}
    found = Measurements(curves, {"quick": [2.0], "slow": [4.0]}, {})
    assert [in_time(found, arm, "left", list(curves)).tolist() for arm in curves] == [[0.0], [0.6]]


def test_an_unknown_study_lists_those_there_are() -> None:
    with pytest.raises(BadRecipe, match=r"no study called 'nothing'; there are 15; podium study lists them"):
        read_study("nothing")


def test_the_verb(tmp_path: Path) -> None:
    def podium(*words: str) -> str:
        command = [sys.executable, "-m", "podium.cli", "study", *words]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
        return done.stdout

    report = json.loads(podium("diffusion", "--quick", "--cores", "1", "--json"))
    assert report["study"] == "diffusion"
    assert {"id", "what", "figure", "interval", "promise"} == set(report["rows"][0])
    assert (tmp_path / "out/studies/quick/diffusion.svg").exists()
    listed = json.loads(podium("all", "--json"))["studies"]
    assert [row["study"] for row in listed] == study_names()
    assert all(isinstance(row["question"], str) for row in listed)
    assert "diffusion: " in podium("all")


COIN = """
from dataclasses import dataclass
import numpy as np
from podium.registry import register
from podium.study.question import Experiment, Report, column, summarise

@dataclass(frozen=True)
class Settings:
    tosses: int

def arms(settings):
    return ["fair", "bent"]

def measure(settings, arm, seed):
    heads = np.random.default_rng(seed).random(settings.tosses) < (0.5 if arm == "fair" else 0.9)
    return {"heads": heads.mean()}

def report(settings, found):
    return Report([summarise(arm, f"heads, {arm}", column(found, arm, "heads")) for arm in arms(settings)], {}, "<svg/>")

coin = register("study", "coin")(Experiment(Settings, arms, measure, report))
"""


def test_a_study_of_a_users_file_runs_in_processes_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "toss.py").write_text(COIN)
    (tmp_path / "coin.toml").write_text('question = "Is it fair?"\nseeds = 2\ntosses = 500\n')
    command = [sys.executable, "-m", "podium.cli", "study", "toss.py:coin", "--json"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    rows = {row["id"]: row["figure"] for row in json.loads(done.stdout)["rows"]}
    assert rows["7.coin.fair"] == pytest.approx(0.5, abs=0.1)
    assert rows["7.coin.bent"] == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize("words", [["study", "all"], ["study", "width"], ["bench", "fidelity"]])
def test_without_a_checkout_one_line_says_where_the_questions_are(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "podium").symlink_to(ROOT / "podium")
    code = "import sys, podium; podium.__path__ = [sys.argv.pop(1)]; from podium.cli import main; main()"
    command = [sys.executable, "-c", code, str(tmp_path / "podium"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"`experiments` of a checkout of Podium, and {tmp_path}/experiments is not there" in line


def test_found_is_plain() -> None:
    assert question._plain({"a": [1.0, float("nan")]}) == {"a": [1.0, None]}
    assert Measurements({}, {}, {}).arms == {}


def test_how_long_the_longest_study_takes_is_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def took(asked: question.Question) -> tuple[Measurements, bool]:
        return Measurements({}, {"one": [30.0, 30.0], "two": [1800.0 if asked.name == "parl" else 60.0]}, {}), True

    monkeypatch.setattr("bench.study.load_measurements", took)
    rows = {row["id"]: row for row in bench.study.of_all()}
    assert rows["7.1.studies"]["figure"] == len(study_names())
    assert rows["7.1.seeds"]["ok"]
    assert rows["7.1.minutes.parl"]["figure"] == rows["7.1.minutes"]["figure"] == 15.5
    assert rows["7.1.minutes"]["ok"] is False
    monkeypatch.setattr("bench.study.load_measurements", lambda asked: None)
    assert [(row["id"], row["ok"]) for row in bench.study.of_all()] == [("7.1.studies", False)]
