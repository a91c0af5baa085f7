"""`podium methods` and `podium credit`, as a user meets them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "methods"))

from handmade import on, run, runs

from podium.cli.credit import credit_rows
from podium.credit import BadCredit, Credit
from podium.credit.at_unit import at_unit
from podium.methods import METHODS
from podium.methods.table import counted, described, extent
from podium.trace import save
from tests.verbs import verb

RUNS = runs(
    run(on("decide lead lead"), on("spawn lead>w lead"), on("say w worker"), name="good", team=1.0),
    run(on("decide lead lead"), on("decide lead lead"), name="bad", team=0.0),
)


def podium(*words: object) -> subprocess.CompletedProcess[str]:
    done = verb(*words, COLUMNS="200")
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    save(RUNS, file)
    return file


# podium methods


def test_the_table_shows_every_method_and_says_how_many_run() -> None:
    shown = podium("methods").stdout
    assert all(name in shown for name in METHODS)
    many = counted()
    assert shown.splitlines()[-1] == (
        f"{len(METHODS)} methods: {many['all']} run, {many['part']} are partly known and run that part, {many['card']} are cards"
    )


def test_the_table_as_json() -> None:
    told = json.loads(podium("methods", "--json").stdout)
    assert [row["method"] for row in told["methods"]] == sorted(METHODS)
    assert sum(told["runs"].values()) == len(METHODS)
    parl = next(row for row in told["methods"] if row["method"] == "parl")
    assert (parl["reward"], parl["pays"], parl["runs"], parl["known"]) == (
        "parl",
        "orchestrator",
        "part",
        "partial",
    )


def test_a_method_in_full() -> None:
    shown = podium("methods", "parl").stdout
    assert shown.startswith("parl runs in part; its description is partial\n")
    for word in ("center(by=", "refused", "not published", "conflicts", "the survey calls r_parallel a speed-up"):
        assert word in shown
    assert json.loads(podium("methods", "parl", "--json").stdout)["method"] == "parl"
    assert "nothing of it runs" in podium("methods", "latentmas").stdout


ASKED = """
    grpo dr_grpo rloo reinforce_pp remax dapo gspo gigpo dr_mas magrpo mareinforce marloo maremax collm_cc collm_dc ippo mappo
    marft_action marft_token maporl c3_reward_only c3_value_only c3_value_assisted sharp m_grpo matpo agent_lightning wideseek_r1
    marsrl malt fold_grpo depart collabuiagents lamo sirius owl comas mae sage mpdf magic rema spiral marshal marti_margin mars2
    debate_as_reward multiagent_finetuning parl puppeteer paramanager agent_q_mix halo hera langmarl agentspawn mas_zero latentmas
    coma vdn qmix maddpg shapley_q difference
"""


def test_every_method_of_the_survey_and_the_classics_has_a_row() -> None:
    assert set(ASKED.split()) <= set(METHODS)


def test_every_row_says_all_there_is_to_say() -> None:
    for row in METHODS.values():
        assert row.source, row.name
        assert row.unknown or extent(row) == "all", f"{row.name} must say what of it is unknown"
        assert row.known == "formula" or row.unknown, row.name
    assert {row["runs"] for row in described()} == {"all", "part", "card"}


def test_methods_for_runs(path: Path) -> None:
    shown = podium("methods", "--for", path).stdout
    questions = [line for line in shown.splitlines() if "?" in line]
    assert [q.partition("?")[2].split(":")[0].strip() for q in questions] == ["yes", "yes", "no", "roles"]
    assert "hera" in shown
    assert "no run branched from another: " in shown
    told = json.loads(podium("methods", "--for", path, path, "--json").stdout)
    assert told["runs_tried"] == 4
    assert len(told["answers"]) == 4
    fits = {fit["method"]: fit for fit in told["methods"]}
    assert (fits["hera"]["paid"], fits["hera"]["units"], fits["hera"]["differs"]) == (4, 4, False)
    assert set(fits) | set(told["lacks"]) == set(METHODS)


# podium credit


def test_credit_by_unit(path: Path) -> None:
    answer = podium("credit", path, "--method", "parl", "--progress", 1)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[1] == f"parl runs in part; missing: {METHODS['parl'].unknown}"
    assert [line.split() for line in answer.stdout.splitlines()[2:]] == [
        ["run", "orchestrator", "row", "credit", "weight"],
        ["good", "lead", "0", "0.5", "0.3333333333333333"],
        ["bad", "lead", "0", "-0.5", "0.3333333333333333"],
        ["bad", "lead", "1", "-0.5", "0.3333333333333333"],
        "3 of 3 units (orchestrator) get credit, from -0.5 to 0.5, mean -0.166667".split(),
    ]


def test_credit_as_json_and_at_another_unit(path: Path) -> None:
    told = json.loads(
        podium("credit", path, "--method", "parl", "--progress", 1, "--unit", "team", "--json").stdout
    )
    assert (told["method"], told["unit"], told["paid"], told["units"]) == ("parl", "team", 2, 2)
    assert (told["runs"], told["missing"]) == ("part", METHODS["parl"].unknown)
    assert told["column"] == [
        {"run": "good", "team": None, "row": 0, "credit": 0.5},
        {"run": "bad", "team": None, "row": 0, "credit": -1.0},  # two decisions of -.5
    ]


def test_credit_is_written(path: Path, tmp_path: Path) -> None:
    for kind in ("csv", "jsonl", "npy"):
        file = tmp_path / f"credit.{kind}"
        answer = podium("credit", path, "--method", "hera", "--out", file)
        assert (answer.returncode, "written: " in answer.stdout) == (0, True), answer.stderr
    assert np.load(tmp_path / "credit.npy").tolist() == [0.5, -0.5]
    lines = (tmp_path / "credit.jsonl").read_text().splitlines()
    assert [json.loads(line)["credit"] for line in lines] == [0.5, -0.5]
    with (tmp_path / "credit.csv").open() as table:
        assert [(row["run"], row["credit"]) for row in csv.DictReader(table)] == [("good", "0.5"), ("bad", "-0.5")]
    told = json.loads(podium("credit", path, "--method", "hera", "--out", tmp_path / "credit.csv", "--json").stdout)
    assert "column" not in told


def test_many_units_are_cut(tmp_path: Path) -> None:
    save(runs(*(run("say a", name=f"r{i}", team=float(i)) for i in range(50))), tmp_path / "many.jsonl")
    assert "… 10 more; --json prints all" in podium("credit", tmp_path / "many.jsonl", "--method", "hera").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "nobody"), "no method called 'nobody'"),
        (("--method", "latentmas"), "latentmas is a card"),
        (("--method", "parl"), "progress"),
        (("--method", "vdn"), "needs the column 'q' at unit turn"),
        (("--method", "hera", "--unit", "bee"), "no unit called 'bee'"),
        (("--method", "hera", "--unit", "agent", "--by", "luck"), "--by takes"),
        (("--method", "hera", "--by", "tokens"), "say which with --unit"),
        (
            ("--method", "c3_reward_only"),
            "c3_reward_only pays nobody here: it needs branches (no run branched from another)",
        ),
        (("--method", "hera", "--unit", "message"), "hold no message"),
        (("--method", "hera", "--out", "credit.xls"), "--out writes"),
    ],
)
def test_wrong_use_is_said_in_one_line(path: Path, words: tuple[str, ...], said: str) -> None:
    answer = podium("credit", path, *words)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_an_unknown_method_is_an_error_too() -> None:
    answer = podium("methods", "nobody")
    assert (answer.returncode, "no method called" in answer.stderr) == (2, True)


def test_up_after_down_is_the_identity() -> None:
    credit = Credit(RUNS, "team", np.array([3.0, -1.0]))
    for unit in ("agent", "turn", "orchestrator"):
        for by in ("equal", "tokens", "time"):
            np.testing.assert_allclose(at_unit(at_unit(credit, unit, by), "team").value, [3.0, -1.0])
    assert at_unit(credit, "team") is credit
    with pytest.raises(BadCredit, match="would be lost"):
        at_unit(credit, "tool_call")


def test_no_credit_is_null() -> None:
    rows = credit_rows(Credit(RUNS, "team", np.array([np.nan, 2.0]), np.array([np.nan, 0.5])))
    assert [(row["credit"], row["weight"]) for row in rows] == [(None, None), (2.0, 0.5)]


def test_a_method_that_runs_whole_misses_nothing(path: Path) -> None:
    answer = podium("credit", path, "--method", "rema")
    assert "missing" not in answer.stdout
    told = json.loads(podium("credit", path, "--method", "rema", "--json").stdout)
    assert (told["runs"], told["missing"]) == ("all", None)


LONG = runs(
    run(on("say a", tokens=4), on("say b", tokens=1), name="good", team=1.0),
    run(on("say a", tokens=2), name="bad", team=0.0),
)


def test_going_down_an_advantage_is_broadcast_and_a_share_asked_for_by_name(tmp_path: Path) -> None:
    save(LONG, tmp_path / "long.jsonl")

    def column(*words: str) -> list[float]:
        told = podium("credit", tmp_path / "long.jsonl", "--method", "hera", "--unit", "token", *words, "--json")
        return [row["credit"] for row in json.loads(told.stdout)["column"]]

    assert column() == [0.5] * 5 + [-0.5] * 2
    np.testing.assert_allclose(column("--by", "equal"), [0.1] * 5 + [-0.25] * 2)


def test_weights_are_shared_where_advantages_are_broadcast() -> None:
    weighed = Credit(LONG, "team", np.array([1.0, -1.0]), np.array([0.5, 0.5]))
    tokens = at_unit(weighed, "token")
    assert tokens.weight is not None
    np.testing.assert_allclose(tokens.weight, [0.1] * 5 + [0.25] * 2)


@pytest.mark.parametrize("name", ["vdn", "qmix", "agent_q_mix", "shapley_q"])
def test_what_only_reads_a_fitted_column_runs_in_part(name: str) -> None:
    assert extent(METHODS[name]) == "part"
    shown = podium("methods", name).stdout
    assert shown.startswith(f"{name} runs in part")
    assert "fitted" in shown
