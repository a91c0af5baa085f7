"""`podium train` with a live team: its folder, its resumption, a team of one's own, and what is refused before anything runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.audit.exactness import exactness  # noqa: E402
from podium.cli import main  # noqa: E402
from podium.cli.train import train  # noqa: E402
from podium.credit.forest import roots  # noqa: E402
from podium.engine.models import policy_team  # noqa: E402
from podium.engine.protocol import BadEngine  # noqa: E402
from podium.harness.team import BadTeam  # noqa: E402
from podium.learn.folder import BadRecipe  # noqa: E402
from podium.learn.lm.live import tasks_from  # noqa: E402
from podium.learn.lm.live_run import TEAMS, LiveRun, find_live, read_team_recipe, rehearse, sound  # noqa: E402
from podium.learn.lm.settings import Settings  # noqa: E402
from podium.trace.files import load  # noqa: E402
from podium.trace.rules import check  # noqa: E402
from tests.learn.lm import runs  # noqa: E402
from tests.pages import report_of  # noqa: E402

OFFICE = TEAMS["office"]()
SMALL = """
team = "office"
[lm]
iterations = 2
episodes = 4
worlds = 2
branched = 0.3
parts = 1
epochs = 1
watched = 2
judged = 4
keep = 1
"""
PAIR = """
from podium.harness import Did, Return, Role, Spawn, Stop, Team
from podium.learn.lm.live import Live, tasks_from

def pair(speak):
    async def lead(see):
        if see.turn == 0:
            who, said = await speak(see, "spawn", f"a {see.task} is lost", ["dog", "cat"])
            return Did([Spawn(role=role, task=see.task) for role in (who + " person", "clerk")], said=said)
        return Stop(answer=see.returns)

    async def person(see):
        word, said = await speak(see, "communicate", f"find the {see.task}", ["whistle", "wait"])
        return Did([Return(content=word)], said=said)

    async def clerk(see):
        return "noted"

    def right(task, answer):
        return float("whistle" in answer) / 2 + float(task == "dog") / 2

    return Team("pair", lead, {"dog person": person, "cat person": person, "clerk": clerk}, verify=right)

mine = Live("pair", pair, ("lead", "dog person", "cat person"), tasks_from(["dog", "cat"], ["dog", "cat", "hen"]))
less = Live("less", pair, ("lead", "dog person"), tasks_from(["dog"], ["cat"]))
no_team = Live("no team", lambda speak: 3, ("lead",), tasks_from(["dog"], ["cat"]))
no_role = Live("no role", pair, ("lead", "boss"), tasks_from(["dog"], ["cat"]))
no_tasks = Live("no tasks", pair, ("lead",), lambda n, seed, held_out: [] if held_out else ["dog"] * n)
few = Live("few", pair, ("lead",), lambda n, seed, held_out: ["dog", "cat"][:n])
odd = Live("odd", pair, ("lead",), tasks_from([{1, 2}, object()], ["cat"]))
raises = Live("raises", pair, ("lead",), lambda n, seed, held_out: 1 / 0)
unjudged = Live("unjudged", lambda speak: Team("x", pair(speak).lead, pair(speak).roles), ("lead",), tasks_from(["dog"], ["cat"]))
unsure = Live("unsure", pair, ("lead",), tasks_from(["dog"], ["cat"]), "high")

async def shy(see):
    return "nothing"
silent = Live("silent", lambda speak: Team("x", shy, verify=lambda task, answer: 1.0), ("lead",), tasks_from([1], [2]))
wrong = Live("wrong", lambda speak: Team("x", pair(speak).lead, pair(speak).roles, verify=lambda task, answer: answer["x"]), ("lead",), tasks_from(["dog"], ["cat"]))
"""


def finished(folder: Path, recipe: str = SMALL) -> LiveRun:
    run: LiveRun = runs.finished(LiveRun(read_team_recipe(recipe, "here"), folder))
    run.played(2)
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> LiveRun:
    return finished(tmp_path_factory.mktemp("run") / "whole")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a team of one's own."""
    (tmp_path / "pair_team.py").write_text(PAIR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "pair_team", raising=False)
    return tmp_path


def test_a_run_tells_of_every_iteration_and_role(whole: LiveRun) -> None:
    assert [line["iteration"] for line in whole.lines] == [0, 1]
    for line in whole.lines:
        assert set(line["roles"]) <= {"lead", "worker", "critic"}
        assert all(told["gradient"] >= 0 and told["tokens"] > 0 for told in line["roles"].values())
        assert set(line["mix"]) >= {"spawn", "delegate", "communicate"}
        assert line["regret"] is not None
    told = whole.told()
    assert told["optimum"] == pytest.approx(0.88)
    assert told["regret"] == pytest.approx((0.88 - told["after"]["reward"]) / 0.88)
    assert told["before"]["tasks"] == told["after"]["tasks"] == 4
    assert set(told["roles"]) == {"first", "last"}


def test_its_traces_are_of_the_harness_and_exact(whole: LiveRun) -> None:
    for name in ("before.jsonl", "after.jsonl", "traces/0.0.jsonl"):
        trace = load(whole.folder / name)
        assert check(trace) == []
        found = exactness(trace)
        assert found.count("clean") == len(found.row_g) > 0
    forest = load(whole.folder / "traces/0.0.jsonl")
    assert len(np.unique(roots(forest))) == 4
    assert len(forest) > 4


def test_a_run_that_is_killed_at_any_moment_ends_the_same(whole: LiveRun, tmp_path: Path) -> None:
    runs.killed(LiveRun, read_team_recipe, SMALL, tmp_path / "killed")
    killed = finished(tmp_path / "killed")
    names = ("asked.json", "iterations.jsonl", "learner.safetensors", "judged.json", "before.jsonl", "after.jsonl")
    assert {*names, "traces/0.0.jsonl", "traces/1.0.jsonl"} == set(runs.kept(whole.folder))
    assert runs.kept(killed.folder) == runs.kept(whole.folder)
    with pytest.raises(BadRecipe, match="holds another run"):
        LiveRun(replace(whole.asked, seed=3), whole.folder)


def test_a_team_of_ones_own(here: Path) -> None:
    """It does not know its optimum; its agents have names that the harness gave them; a role without a model has no policy."""
    recipe = SMALL.replace('"office"', '"pair_team.py:mine"') + 'share = "role"\nlora = 2\n'
    run = LiveRun(read_team_recipe(recipe, "here"), here / "run")
    lines = list(run.iterations())
    assert set(run.learner.team.policies) == {"lead", "dog person", "cat person"}
    assert set(lines[0]["gradients"]) == {"lead", "dog person", "cat person"}
    assert np.isnan(lines[0]["regret"])
    assert run.lines[0]["regret"] is None
    before, _ = run.played(2)
    assert {"dog person-1", "clerk-1"} & set(before.name_a.strings())
    told = run.told()
    assert told["optimum"] is told["regret"] is None
    assert 0.0 <= told["after"]["reward"] <= 1.0
    assert runs.kept(finished(here / "again", recipe).folder) == runs.kept(
        run.folder
    )  # also where agents work at once


def test_tasks_of_two_lists() -> None:
    questions = tasks_from([1, 2, 3], [4, 5])
    assert questions(5, 0, False) == questions(5, 0, False) != questions(5, 1, False)
    assert set(questions(50, 0, False)) == {1, 2, 3}
    assert questions(3, 7, True) == [4, 5, 4]
    with pytest.raises(BadTeam, match="others held out, got 1 and 0"):
        tasks_from([1], [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("team = ", 'here: expected TOML such as world = "scouts" or team = "office"'),
        ("team = 3", "here: expected `str`, got `int` in `team`"),
        ('team = "office"\nrows = 3', "no setting 'rows' for a live team; there are team, lm, method"),
        ('team = "office"\niterations = 0', "iterations must be 1 or more, got 0"),
        ('team = "office"\nseed = -1', "seed must be 0 or more, got -1"),
        ('team = "office"\nmethod = "wizardry"', "here: no method called 'wizardry'; there are"),
        ('team = "office"\nmethod = "maporl"', "here: maporl needs a judge"),
        ('team = "office"\nmethod = "remax"', "here: remax needs the outcome of a greedy run"),
        ('team = "office"\n[lm]\nrats = 1', "no setting 'rats' in [lm]"),
        ('team = "office"\n[lm]\nparams = { c = 1 }', "lm.params is about a world's text"),
        ('team = "office"\n[lm]\nshare = "agent"', 'expected lm.share = "one" or "role", got "agent"'),
        ('team = "office"\n[lm]\nepisodes = 4\nworlds = 8', "lm.episodes must be 8 or more"),
        (
            'team = "office"\nmethod = "c3_reward_only"\n[lm]\nendpoint = "http://localhost:1"',
            "c3_reward_only needs branches",
        ),
    ],
)
def test_a_wrong_recipe_is_said(text: str, says: str) -> None:
    with pytest.raises(BadRecipe) as caught:
        read_team_recipe(text, "here")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "no team 'nowhere'; there are office, or say FILE.py:NAME"),
        ("nowhere.py:mine", "there is no file nowhere.py"),
        ("no.such.module:mine", "no.such.module cannot be loaded: ModuleNotFoundError"),
        ("pair_team.py:mien", "pair_team.py has no 'mien'; it has mine, less"),
        ("pair_team.py:PAIRS", "pair_team.py has no 'PAIRS'"),
        ("pair_team.py:Team", "pair_team.py:Team cannot be made"),
        ("pair_team.py:tasks_from", "cannot be made"),
        ("pair_team.py:no_team", "expected a function from speak to a Team, got one to int"),
        ("pair_team.py:no_role", "speaks for, out of lead, dog person, cat person, clerk, got lead, boss"),
        ("pair_team.py:no_tasks", "expected as many tasks held out as asked for, 1000, got 0"),
        ("pair_team.py:few", "expected as many tasks to learn from as asked for, 200, got 2"),
        ("pair_team.py:odd", "odd: it gives no tasks to learn from: "),
        ("pair_team.py:raises", "no tasks to learn from: ZeroDivisionError"),
        ("pair_team.py:unjudged", "nobody says what an answer is worth"),
        ("pair_team.py:unsure", "expected a number for its optimum, or none, got 'high'"),
    ],
)
def test_a_team_that_cannot_be_trained_is_said(here: Path, name: str, says: str) -> None:
    with pytest.raises(BadTeam) as caught:
        sound(find_live(name), name, Settings())
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "method", "how", "says"),
    [
        ("silent", "grpo", "", "silent: no agent said anything by a model"),
        ("wrong", "grpo", "", "wrong: a run has no reward; expected verify(task, answer) to give a number"),
        ("less", "grpo", 'share = "role"', "no policy for 'cat person'; there are lead, dog person"),
        ("mine", "ippo", "", "mine: ippo cannot be paid here: needs the column 'value_local'"),
        ("mine", "stop_branching", "", "mine: stop_branching pays nothing that is said here"),
    ],
)
def test_a_rehearsal_finds_what_only_play_shows(here: Path, name: str, method: str, how: str, says: str) -> None:
    spec = f"pair_team.py:{name}"
    asked = read_team_recipe(f'team = "{spec}"\nmethod = "{method}"\n[lm]\n{how}', "here")
    with pytest.raises((BadTeam, BadRecipe, BadEngine)) as caught:
        LiveRun(asked, here / "run")
    assert says in str(caught.value)
    assert not (here / "run").exists()


def test_no_patience_without_an_optimum(here: Path) -> None:
    with pytest.raises(BadRecipe, match="does not say its optimum"):
        LiveRun(read_team_recipe('team = "pair_team.py:mine"\npatience = 3', "here"), here / "run")


def test_from_the_command_line(here: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    small = SMALL.replace('"office"', '"pair_team.py:mine"').replace("iterations = 2", "iterations = 1")
    (here / "pair.toml").write_text(small)
    train("pair.toml", policy="lm", json=True)
    told = msgspec.json.decode(capfdbinary.readouterr().out)
    assert (told["team"], told["iterations"], told["optimum"]) == ("pair_team.py:mine", 1, None)
    report = report_of((here / "out/pair-lm/report.html").read_text())
    assert report["title"] == "Training the team pair_team.py:mine"
    assert [len(lesson["lines"]) for lesson in report["lessons"]] == [1]
    train("pair.toml", policy="lm")  # it is done: nothing is trained, the same is told
    again = capfdbinary.readouterr().out.decode()
    assert f"{told['after']['reward']:.3f}" in again
    assert "gradient, first" in again


@pytest.mark.parametrize(
    ("text", "policy", "says"),
    [
        ('team = "office"', "net", "recipe.toml: a live team is played by language models: expected --policy lm"),
        ('team = "office"\nworld = "jury"', "lm", "expected a world or a team, got both, 'jury' and 'office'"),
        ('team = "offices"', "lm", "no team 'offices'; there are office"),
        ('team = "pair_team.py:silent"', "lm", "no agent said anything by a model"),
    ],
)
def test_the_command_line_refuses(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    policy: str,
    says: str,
) -> None:
    (here / "recipe.toml").write_text(text)
    monkeypatch.setattr(sys, "argv", ["podium", "train", "recipe.toml", "--policy", policy])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    assert not (here / "out").exists()


def test_rehearsing_changes_nothing() -> None:
    asked, made = read_team_recipe(SMALL, "here"), policy_team("tiny", OFFICE.agents)
    before = {name: w.detach().clone() for name, w in made.model.module.named_parameters()}
    rehearse(OFFICE, asked, made)
    assert all(torch.equal(before[name], w) for name, w in made.model.module.named_parameters())
