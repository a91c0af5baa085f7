"""What is said to a person at the command line who asks for what cannot be: one line, and exit 2."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from podium.cli.run import main
from podium.harness.find import find_team
from podium.harness.run import run

FILES = {
    "mine.py": (
        "from aside import NAME\n"
        "from podium.harness import Team, run\n"
        "async def lead(see):\n    return NAME\n"
        "def makes():\n    import beside\n    return Team(beside.NAME, lead)\n"
        "def leaves():\n    raise SystemExit(4)\n"
        "team = Team('mine', lead)\n"
    ),
    "aside.py": "NAME = 'of the module aside'\n",
    "beside.py": "NAME = 'of the module beside'\n",
    "bare.py": "x = 7\n",
    "quits.py": "import sys\nsys.exit('bye')\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name in FILES:
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    return tmp_path


def test_a_team_imports_what_lies_beside_it(tmp_path: Path) -> None:
    path = list(sys.path)
    assert run(find_team(str(tmp_path / "mine.py") + ":team")).answer == "of the module aside"
    assert find_team("mine.py:makes").name == "of the module beside"
    assert sys.path == path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "quits.py:team"], "quits.py cannot be loaded: SystemExit: bye"),
        (["run", "mine.py:leaves"], "mine.py:leaves cannot be made: SystemExit: 4"),
        (["run", "mine.py:missing"], "mine.py has no 'missing'; it has makes, leaves, team"),
        (["run", "bare.py:team"], "bare.py has no 'team'; it has no team"),
        (["run", "mine.py:team", "--task", '{"a":'], "--task: expected JSON, or text that does not start like it"),
        (["run", "mine.py:team", "--out", "bare.py"], "bare.py cannot be made: File exists; expected a new folder"),
        (["run", "mine.py:team", "--out", "bare.py/x"], "bare.py/x cannot be made: Not a directory"),
        (["run", "mine.py:team", "--out", "."], ". is not empty; expected a new folder"),
        (
            ["replay", "out", "--team", "mine.py:team", "--seed", "3"],
            "seed 3 is for what runs live from a row on: expected `at`",
        ),
        (
            ["replay", "out", "--team", "mine.py:team", "--out", "bare.py"],
            "bare.py cannot be made: File exists; expected a new folder",
        ),
        (
            ["replay", "out", "--team", "mine.py:team", "--at", "0", "--do", "mask=eve"],
            "row 0: no agent 'eve' to mask; there are lead",
        ),
        (
            ["replay", "out", "--team", "mine.py:team", "--at", "0", "--do", "choose"],
            "row 0: choose takes an option, got None",
        ),
    ],
    ids=lambda w: " ".join(w) if isinstance(w, list) else "",
)
def test_it_is_said_in_a_line(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if words[0] == "replay":
        run(find_team("mine.py:team"), folder="out", spec="mine.py:team")
    monkeypatch.setattr(sys, "argv", ["podium", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    wrong = capsys.readouterr().err
    assert ended.value.code == 2
    assert wrong.startswith(f"podium: {said}")
    assert wrong.count("\n") == 1


@pytest.mark.parametrize("spec", ["os:abort", "gift.py:team", "gift:team", "no such team", "", "mine.py:team"])
def test_code_that_a_record_names_is_not_run(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gift = "open('opened', 'w').close()\nfrom podium.harness import Team\nasync def lead(see): return 1\nteam = Team('t', lead)"
    (tmp_path / "gift.py").write_text(gift)
    run(find_team("debate"), folder="out", spec=spec or "unnamed")
    if not spec:
        header, *events = Path("out/w0.jsonl").read_text().splitlines(keepends=True)
        Path("out/w0.jsonl").write_text("".join([header.replace('"unnamed"', '""'), *events]))
    loaded = set(sys.modules)
    monkeypatch.setattr(sys, "argv", ["podium", "replay", "out"])
    monkeypatch.setattr(os, "abort", lambda: pytest.fail("it was run"))
    with pytest.raises(SystemExit) as ended:
        main()
    wrong = capsys.readouterr().err
    assert ended.value.code == 2
    assert wrong.startswith(
        f"podium: the record names the team {spec!r}, which is none of Podium's own (research, "
    )
    assert "--team FILE.py:NAME" in wrong
    assert wrong.count("\n") == 1
    assert not (tmp_path / "opened").exists()
    assert not {"gift", "mine"} & (set(sys.modules) - loaded)


def test_a_record_whose_team_is_no_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(find_team("debate"), folder="out", spec="unnamed")
    text = Path("out/w0.jsonl").read_text()
    Path("out/w0.jsonl").write_text(text.replace('"unnamed"', '["os:abort"]'))
    monkeypatch.setattr(sys, "argv", ["podium", "replay", "out"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "podium: out: expected the name of its team, got ['os:abort']\n"
