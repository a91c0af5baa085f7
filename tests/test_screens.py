"""What verbs make of any number, of any width of screen, and of no screen at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.models import OptionInfo

from podium.cli import output
from podium.cli.app import VERBS, app
from podium.cli.limits import LIMITS
from podium.cli.output import column_widths, wrap
from podium.envs.world import BadParameter, make
from podium.methods import METHODS

STRANGE = ["-1", "0", "nan", "inf", "-inf", str(10**18), str(10**400), "1e999", "1.5", "", "many"]


def podium(*words: object, at: Path, columns: int = 80) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "podium.cli", *map(str, words)]
    environment = os.environ | {"COLUMNS": str(columns), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=at, env=environment, check=False)
    assert "Traceback" not in done.stderr + done.stdout
    return done


# ---- numbers


def numeric_options() -> list[tuple[str, str, type[Any], OptionInfo]]:
    """Every option and argument of every verb that is a number: the verb, its name, its type, and how it is declared."""
    for module, _ in VERBS.values():
        import_module(f"podium.cli.{module}")
    apps = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    found = []
    for prefix, one in apps:
        assert one is not None
        for command in one.registered_commands:
            assert command.callback is not None
            verb = prefix + (command.name or command.callback.__name__)
            for name, hint in typing.get_type_hints(command.callback, include_extras=True).items():
                if typing.get_origin(hint) is not Annotated:
                    continue
                bare, info = typing.get_args(hint)[:2]
                kinds = {k for k in (bare, *typing.get_args(bare)) if k in (int, float)}
                found += [(verb, name, kind, info) for kind in kinds]
    return found


def tried(parser: Any, value: str) -> Any:
    """The number, or what is said instead."""
    try:
        return parser(value)
    except typer.BadParameter as error:
        return str(error)


def test_every_number_of_every_verb_has_limits() -> None:
    options = numeric_options()
    verbs = {verb for verb, *_ in options}
    assert verbs >= {
        "envs",
        "train",
        "compare",
        "bench regret",
        "study",
        "credit",
        "reward",
        "run",
        "replay",
        "show",
    }
    for verb, name, kind, info in options:
        assert info.parser is not None, f"{verb} {name} takes any number"
        limits = LIMITS[info.parser.__name__]
        assert limits.kind is kind
        for value in (*STRANGE, str(limits.low - 1), str(limits.high + 1)):
            read = tried(info.parser, value)
            if isinstance(read, str):
                assert read == f"expected {limits.sentence}, got {value[:40]}", (verb, name)
            else:
                assert type(read) is kind
                assert limits.low <= read <= limits.high, (verb, name)
        assert (info.parser(str(limits.low)), info.parser(str(limits.high))) == (limits.low, limits.high)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["envs", "jury", "--episodes", 10**13],
            "expected a whole number from 2 to 10,000,000, got 10000000000000",
        ),
        (["envs", "jury", "--episodes", -1], "got -1"),
        (["envs", "jury", "--seed", 2**64], "expected a whole number from 0 to 9,223,372,036,854,775,807"),
        (["reward", "team", "--progress", "nan"], "expected a number from 0 to 1, got nan"),
        (["compare", "--seeds", 0], "expected a whole number from 1 to 1,000, got 0"),
        (["bench", "regret", "--iterations", "nan"], "got nan"),
        (["train", "stop", "--cores", 10**18], "expected a whole number from 1 to 256"),
        (["envs", "crew", "--set", "W=true"], "W must be a whole number from 1 to 8: the workers, got True"),
        (["envs", "planted", "--set", "team=1e18"], "team must be a whole number from 0"),
        (
            ["envs", "planted", "--set", "agents=2.0"],
            "agents must be a whole number of sub-agents from 0 to 12, got 2.0",
        ),
        (["envs", "jury", "--set", "m=nan"], "m must be a number or a list of numbers, got 'nan'"),
    ],
)
def test_a_number_out_of_its_limits_is_refused_in_one_line(tmp_path: Path, words: list[Any], says: str) -> None:
    answer = podium(*words, at=tmp_path)
    assert answer.returncode == 2
    assert says in answer.stderr.strip().split("\n")[-1]
    assert answer.stdout == ""


def test_numbers_within_their_limits_run(tmp_path: Path) -> None:
    answer = podium("envs", "jury", "--episodes", 2, "--seed", 2**63 - 1, "--json", at=tmp_path)
    assert (answer.returncode, json.loads(answer.stdout)["episodes"]) == (0, 2)


@pytest.mark.parametrize(("world", "name"), [("crew", "W"), ("jury", "s"), ("relay", "n"), ("scouts", "widest")])
def test_yes_is_no_number(world: str, name: str) -> None:
    with pytest.raises(BadParameter, match=f"{name} must be .*, got True"):
        make(world, **{name: True})


# ---- tables


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_table_of_methods_is_readable_at_any_width(tmp_path: Path, columns: int) -> None:
    answer = podium("methods", at=tmp_path, columns=columns)
    lines = answer.stdout.split("\n")
    assert max(map(len, lines[:-2])) <= columns  # the last is a sentence, which the terminal wraps
    assert "…" not in answer.stdout
    words = {word for line in lines for word in line.split()}
    assert words >= set(METHODS)


@pytest.mark.parametrize(
    "words", [["methods"], ["reward"], ["envs"], ["rules"], ["envs", "planted", "--episodes", 2]]
)
def test_a_narrow_screen_drops_nothing_and_cuts_no_word(tmp_path: Path, words: list[Any]) -> None:
    wide, narrow = (podium(*words, at=tmp_path, columns=n).stdout for n in (2_000, 60))
    assert "…" not in narrow
    body = wide.split("\n")[1:] if words != ["envs", "planted", "--episodes", 2] else wide.split("\n")
    short = {word for line in body for word in line.split() if len(word) <= 50}
    there = narrow.split()
    assert short - set(there) == set()


def test_rows_that_do_not_fit_are_lists_of_names_and_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output.out, "_width", 30)
    row = {"method": "a_name_of_24_characters", "pays": "orchestrator", "needs": None, "about": "words " * 8}
    output.print_rows([row], False, list(row))
    assert [line.rstrip() for line in capsys.readouterr().out.split("\n")] == [
        "method:",
        "    a_name_of_24_characters",
        "  pays: orchestrator",
        "  about: words words words",
        "    words words words words",
        "    words",
        "",
    ]


def test_lines_are_broken_between_words() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("one two three", 80) == ["one two three"]
    assert wrap("clip(spent,1,2)", 8, "  ") == ["clip(", "  spent,", "  1,2)"]
    assert wrap("unbreakable", 4) == ["unbr", "eaka", "ble"]
    assert wrap("", 4) == [""]
    assert column_widths([["a", "b"], ["1", "2"]], 10) == [1, 1]


# ---- no screen


RECIPE = 'world = "jury"\niterations = 3\nrows = 100\nworlds = 1\n'


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_training_off_a_terminal_says_how_far_it_is(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    answer = podium("train", "small.toml", *more, at=tmp_path)
    assert answer.returncode == 0
    lines = answer.stderr.strip().split("\n")
    assert lines[0] == "training in out/small, 3 iterations"
    assert [line.split(":")[0] for line in lines[1:]] == [f"iteration {i} of 3" for i in (1, 2, 3)]
    assert all(": return " in line and "decisions/s" in line for line in lines[1:])
    if more:
        assert json.loads(answer.stdout)["iterations"] == 3
    else:
        assert "iteration 1 of 3" not in answer.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "--methods", "grpo", "--envs", "jury", "--seeds", 1, "--iterations", 1, "--episodes", 16], "jury: grpo"),
        (["bench", "regret", "--envs", "relay", "--seeds", 1, "--iterations", 1], "relay, seed 0: "),
        (["envs", "cayley_moser", "--episodes", 100_001], "optimal play: 100,001 episodes, policy 1 of "),
    ],
)  # fmt: skip
def test_other_work_off_a_terminal_says_how_far_it_is(tmp_path: Path, words: list[Any], says: str) -> None:
    answer = podium(*words, "--json", at=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.startswith(says)
    json.loads(answer.stdout)


def test_lines_come_no_more_often_than_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress(json=True, every=1e9) as tell:
        for text in ("first\x1b", "second"):
            tell(text)
    assert capsys.readouterr().err == "first\\x1b\n"
