"""A training run on disk: the same bytes however often it is ended, and clear words for what cannot be run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from podium.learn.folder import BadRecipe, Run, read_recipe
from podium.trace.files import load
from podium.trace.store import StoreError

SMALL = 'world = "costly_search"\niterations = 8\nrows = 400\nworlds = 2\nmost = 20\n'
KEPT = ("asked.json", "iterations.jsonl", "learner.npz", "judged.json", "before.jsonl", "after.jsonl")


def finished(folder: Path, recipe: str = SMALL) -> Run:
    run = Run(read_recipe(recipe, "here"), folder)
    for _ in run.iterations():
        pass
    run.played(20)
    run.judged(1, 200)
    return run


def kept(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in KEPT}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = finished(tmp_path / "one"), finished(tmp_path / "two")
    assert kept(one.folder) == kept(two.folder)
    assert [line["iteration"] for line in one.lines] == list(range(8))
    assert len(load(one.folder / "after.jsonl")) == 3
    other = finished(tmp_path / "other", SMALL + "seed = 1\n")
    assert kept(other.folder)["learner.npz"] != kept(one.folder)["learner.npz"]


def test_others_may_play_and_the_result_is_the_same(tmp_path: Path) -> None:
    for number, text in enumerate((SMALL, SMALL + "staleness = 1\n")):
        alone = finished(tmp_path / f"alone{number}", text)
        run = Run(read_recipe(text, "here"), tmp_path / f"beside{number}", cores=2)
        for _ in run.iterations():
            pass
        run.played(20)
        run.judged(1, 200)
        assert kept(run.folder) == kept(alone.folder)


def test_a_run_that_is_killed_at_any_moment_ends_the_same(tmp_path: Path) -> None:
    whole = finished(tmp_path / "whole")
    (tmp_path / "recipe.toml").write_text(SMALL)
    code = (
        "import sys; from pathlib import Path; from podium.learn.folder import Run, read_recipe\n"
        "run = Run(read(Path(sys.argv[1]).read_text(), 'here'), Path(sys.argv[2]))\n"
        "for _ in run.iterations(): print(flush=True)\n"
    )
    for wait in (0.0, 0.05, 0.15):
        argv = [sys.executable, "-c", code, str(tmp_path / "recipe.toml"), str(tmp_path / "killed")]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(wait)
            os.kill(process.pid, signal.SIGKILL)
    assert kept(finished(tmp_path / "killed").folder) == kept(whole.folder)


def test_another_recipe_does_not_go_on_with_a_run(tmp_path: Path) -> None:
    Run(read_recipe(SMALL, "here"), tmp_path / "run")
    with pytest.raises(BadRecipe, match="holds another run"):
        Run(read_recipe(SMALL + "seed = 3", "here"), tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(BadRecipe, match="is not empty and holds no run"):
        Run(read_recipe(SMALL, "here"), tmp_path / "full")


def test_a_damaged_checkpoint_is_said(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    (run.folder / "learner.npz").write_bytes(b"PK nothing")
    with pytest.raises(BadRecipe, match=r"learner\.npz cannot be read"):
        Run(run.asked, run.folder)


def test_patience_ends_a_run(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", SMALL.replace("iterations = 8", "iterations = 90") + "patience = 1\n")
    assert len(run.lines) < 90


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("world = ", "expected TOML"),
        ("", "no world; there are cayley_moser, costly_search"),
        ('world = "nowhere"', "world 'nowhere' is not there; there are"),
        ('world = "planted"', "world 'planted' cannot be trained in"),
        ('world = "jury"\nrats = 1', "no setting 'rats'; there are 32, the nearest rate"),
        ('world = "jury"\nrate = "fast"', "expected `float`, got `str`"),
        ('world = "jury"\niterations = 0', "iterations must be 1 or more, got 0"),
        ('world = "jury"\nmethod = "magic dust"', "no method called 'magic dust'; there are"),
        ('world = "jury"\nmethod = "maporl"', "maporl needs a judge"),
        ('world = "jury"\nmethod = "latentmas"', "latentmas is a card"),
        ('world = "jury"\nmethod = "spiral"', "spiral"),
    ],
)
def test_a_wrong_recipe_is_said_before_anything_runs(text: str, says: str) -> None:
    with pytest.raises(BadRecipe, match="here: ") as caught:
        read_recipe(text, "here")
    assert says in str(caught.value)


def test_lines_are_strict_json(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    for line in (run.folder / "iterations.jsonl").read_bytes().splitlines():
        assert set(msgspec.json.decode(line)) == {
            "iteration", "score", "decisions", "rows", "paid", "credit", "entropy", "gradient", "gradients", "mix", "regret",
        }  # fmt: skip


def test_lines_of_a_method_of_the_table_say_what_was_paid(tmp_path: Path) -> None:
    text = 'world = "scouts"\nmethod = "spawn_branching"\niterations = 2\nworlds = 1\nepisodes = 64\nmost = 20\n'
    run = finished(tmp_path / "run", text)
    assert all(0 < line["paid"] < 1 and line["credit"] > 0 for line in run.lines)


def test_nobody_else_trains_in_the_folder_meanwhile(tmp_path: Path) -> None:
    asked = read_recipe('world = "jury"\niterations = 6\nepisodes = 64', "here")
    steps = Run(asked, tmp_path / "run").iterations()
    next(steps)
    with pytest.raises(StoreError, match="another process writes there"):
        next(Run(asked, tmp_path / "run").iterations())
    assert len([*steps]) == 5
    assert [*Run(asked, tmp_path / "run").iterations()] == []
