"""What others bring, as files and as an installed package: a method, a score, a world, a detector, used without touching Podium."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import podium
from podium.envs.world import BadParameter, make
from podium.outside import BadFile, load_file, use
from podium.registry import Taken, names, register
from tests.verbs import verb

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/extend.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of docs/extend.md and a recorded run."""
    folder = tmp_path_factory.mktemp("outside")
    blocks = re.findall(
        r"^```(?:python|toml)\n# out/(\S+)\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    assert [name for name, _ in blocks] == ["mine.py", "offers.py", "offers.toml"]
    for name, text in blocks:
        (folder / name).write_text(text.replace("out/", ""))
    ticks = iter(range(99))
    with podium.Recorder(folder / "run", task_id="q", clock=lambda: float(next(ticks))) as record:
        said = record.add("message", "ann", to="bob")
        for _ in range(3):
            said = record.add("message", "bob", to="ann", after=[said])
        record.outcome(rewards={"team": 1.0})
    return folder


def install(site: Path, name: str, *modules: str, **files: str) -> None:
    """What `pip install` leaves behind: modules, and the metadata that names them as entry points."""
    site.mkdir(exist_ok=True)
    for stem, text in files.items():
        (site / f"{stem}.py").write_text(text)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = "".join(f"{module} = {module}\n" for module in modules)
    (info / "entry_points.txt").write_text(f"[podium]\n{points}")


def run(*words: Any, cwd: Path, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A process of its own, with an environment in which a package may be installed."""
    path = os.pathsep.join(map(str, [ROOT, *([site] if site else [])]))
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "120"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, check=False)


def test_files_are_used_by_every_verb(folder: Path) -> None:
    def said(*words: str) -> Any:
        done = verb(*words, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    paid = said("credit", "run", "--method", "mine.py:halved")
    assert [row["credit"] for row in paid["column"]] == [3.0, 3.0]  # half of 10 - 4 events, to each turn
    assert said("reward", "run", "--reward", "mine.py:brevity")["runs"][0]["paid"] == 6.0
    found = said("audit", "run", "--only", "mine.py:chatty")["found"]
    assert [(one["detector"], one["count"]) for one in found] == [("chatty", 1)]
    assert said("envs", "offers.py:Offers", "--set", "price=0.5", "--episodes", "100")["optimum"] == 0.125
    assert said("methods", "mine.py:halved")["runs"] == "all"
    assert said("train", "offers.toml", "--out", "learned")["world"] == "offers"
    board = said("compare", "--methods", "mine.py:halved", "--envs", "offers.py:Offers", "--seeds", "1",
                 "--iterations", "1", "--episodes", "16")  # fmt: skip
    assert [(row["method"], row["env"]) for row in board["rows"]] == [("halved", "offers")]


def test_a_loaded_file_serves_expressions(folder: Path) -> None:
    def said(*words: str) -> Any:
        done = verb("--load", "mine.py", *words, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert said("reward", "run", "--reward", "outcome + 0.5 * brevity(most=6)")["runs"][0]["paid"] == 2.0
    paid = said("credit", "run", "--reward", "brevity", "--credit", "half >> half")
    assert (paid["method"], [row["credit"] for row in paid["column"]]) == ("ad hoc", [1.5])
    assert "chatty" in [one["detector"] for one in said("audit", "--list")]
    assert "brevity" in [one["score"] for one in said("reward")["scores"]]


def test_a_method_or_world_that_is_only_named_is_registered(folder: Path) -> None:
    """A file need not call `add` or `register` for what it holds."""
    for name in ("mine", "offers"):
        text = (
            (folder / f"{name}.py")
            .read_text()
            .replace("halved = add(", "halved = (")
            .replace("@register\nclass", "class")
        )
        (folder / f"bare_{name}.py").write_text(text)
    assert verb("credit", "run", "--method", "bare_mine.py:halved", cwd=folder).returncode == 0
    assert verb("envs", "bare_offers.py:Offers", "--episodes", "10", cwd=folder).returncode == 0


def test_expressions_make_a_method(folder: Path) -> None:
    done = verb("credit", "run", "--method", "rema", "--credit", 'to("turn")', "--json", cwd=folder)
    told = json.loads(done.stdout)
    assert (told["method"], told["credit"], told["paid"]) == ("rema, changed", 'to("turn")', 2)
    done = verb("credit", "run", "--reward", "outcome", "--credit", 'to("turn")', "--at", "agent", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words, why in [
        (["--reward", "outcome"], "say which method with --method, or what to pay with --reward and --credit"),
        (["--reward", "outcome", "--credit", "nonsense"], "no step called 'nonsense'"),
        (["--reward", "outcom", "--credit", "half"], "no score, shape or reward called 'outcom'"),
        (["--reward", "outcome", "--credit", "whiten", "--at", "moon"], "no unit called 'moon'"),
    ]:
        done = verb("credit", "run", *words, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["credit", "run", "--method", "gone.py:x"], "there is no file gone.py"),
        (["credit", "run", "--method", "mine.py:x"], "mine.py has no 'x'; of kind method it has halved"),
        (["credit", "run", "--method", "mine.py:half"], "mine.py:half: expected a Method, got function"),
        (["audit", "run", "--only", "mine.py:half"], "mine.py:half is not registered as a detector"),
        (["envs", "mine.py:half"], "mine.py:half: expected a subclass of World"),
        (["reward", "run", "--reward", "mine.py:half"], "mine.py:half is not registered as a score"),
        (["--load", "wrong.py", "methods"], "wrong.py cannot be loaded: ZeroDivisionError"),
        (["--load", "taken.py", "methods"], "taken.py cannot be loaded: Taken: score 'outcome' is already taken"),
        (["--load", "lacks.py", "methods"], "detector 'lazy' must state group, threshold"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(folder: Path, words: list[str], why: str) -> None:
    (folder / "wrong.py").write_text("1 / 0")
    (folder / "taken.py").write_text(
        "from podium import register\n@register('score', unit='team')\ndef outcome(t): ...\n"
    )
    (folder / "lacks.py").write_text("from podium import register\n@register('detector')\ndef lazy(t): ...\n")
    done = verb(*words, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert why in done.stderr


def test_a_fault_in_a_users_file_is_told_as_that_files(folder: Path) -> None:
    (folder / "faulty.py").write_text(
        "from podium import register\n@register('score', unit='team')\ndef faulty(t):\n    return 1 / 0\n"
    )
    done = verb("reward", "run", "--reward", "faulty.py:faulty", cwd=folder)
    assert done.returncode == 70
    assert (
        done.stderr
        == f"podium: ZeroDivisionError: division by zero ({folder / 'faulty.py'}, line 4, which is not Podium's)\n"
    )


USED = """
import numpy as np, podium
trace = podium.load("run")
print(podium.credit_of(trace, "halved").value.tolist(), podium.score(trace, "brevity").tolist())
print([answer.name for answer in podium.audit_of(trace, only=["chatty"])], podium.make("offers", price=0.5).optimum())
"""


def test_an_installed_package_is_used_by_cli_and_python(folder: Path, tmp_path: Path) -> None:
    source, world = ((folder / name).read_text() for name in ("mine.py", "offers.py"))
    install(tmp_path / "site", "theirs", "theirs_mine", "theirs_offers", theirs_mine=source, theirs_offers=world)

    def said(*words: str) -> str:
        done = run(*words, cwd=folder, site=tmp_path / "site")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert said("-c", USED).splitlines() == ["[3.0, 3.0] [6.0]", "['chatty'] 0.125"]
    assert json.loads(said("-m", "podium.cli", "credit", "run", "--method", "halved", "--json"))["paid"] == 2
    assert "offers" in said("-m", "podium.cli", "envs")
    assert "chatty" in said("-m", "podium.cli", "audit", "--list")
    assert "outcome + brevity" in said("-m", "podium.cli", "reward", "run", "--reward", "outcome + brevity")
    code = 'import podium; print(podium.train({"world": "offers", "method": "halved", "iterations": 1, "worlds": 1, "episodes": 8}, "theirs")["method"])'
    assert said("-c", code) == "halved\n"


def test_a_broken_package_is_warned_of_in_a_line_and_stops_nothing(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "broken", "broken_plugin", broken_plugin="import nothing_of_that_name")
    install(
        site,
        "greedy",
        "greedy_plugin",
        greedy_plugin="from podium import register\n@register('step')\ndef center(c): ...\n",
    )
    install(
        site,
        "fine",
        "zfine",
        zfine="from podium import register\n@register('score', unit='team')\ndef fine(t): ...\n",
    )
    done = run("-m", "podium.cli", "reward", "--json", cwd=folder, site=site)
    assert done.returncode == 0
    assert "fine" in [one["score"] for one in json.loads(done.stdout)["scores"]]
    assert done.stderr.splitlines() == [
        "podium: warning: the plug-in 'broken_plugin' of broken 1.0 (broken_plugin) cannot be loaded: "
        "ModuleNotFoundError: No module named 'nothing_of_that_name'",
        "podium: warning: the plug-in 'greedy_plugin' of greedy 1.0 (greedy_plugin) cannot be loaded: "
        "Taken: step 'center' is already taken",
    ]


def test_what_needs_no_package_looks_for_none(folder: Path, tmp_path: Path) -> None:
    """Also where names of ours are looked up: only an unknown one, or a list of all, needs the packages."""
    install(tmp_path / "site", "loud", "loud", loud="print('loaded')")
    ours = "import podium; t = podium.load('run'); podium.credit_of(t, 'rema'); podium.score(t, 'clip(outcome, 0, 1)'); podium.make('jury')"
    for words in (["-m", "podium.cli", "--help"], ["-m", "podium.cli", "check", "run"], ["-c", ours]):
        done = run(*words, cwd=folder, site=tmp_path / "site")
        assert (done.returncode, "loaded" in done.stdout) == (0, False), done.stderr
    code = """
import sys
import podium.cli
sys.argv = ["podium", "--help"]
try:
    podium.cli.main()
except SystemExit:
    print("\\n", sorted({"importlib.metadata", "podium.outside", "podium.methods"} & set(sys.modules)))
"""
    assert run("-c", code, cwd=folder).stdout.split("\n")[-2].strip() == "[]"
    asked = run("-m", "podium.cli", "methods", cwd=folder, site=tmp_path / "site")
    assert asked.stdout.startswith("loaded\n")


def test_a_name_in_a_record_is_never_loaded(tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"from pathlib import Path; Path({str(tmp_path / 'sprung')!r}).touch()")
    with pytest.raises(BadParameter, match="no world called"):
        make(f"{trap}:World")
    with pytest.raises(ValueError):
        podium.credit_of(podium.Trace.of(), f"{trap}:method")
    with pytest.raises(ValueError):
        podium.score(podium.Trace.of(), f"{trap}:score")
    assert not (tmp_path / "sprung").exists()
    load_file(str(trap))
    assert (tmp_path / "sprung").exists()


def test_a_file_runs_once_and_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "again_and_again.py"
    text = "from podium import register\n@register('test-again')\ndef thing(): return {}\n"
    path.write_text(text.format(1))
    assert use("test-again", f"{path}:thing") == "thing"
    first = load_file(str(path))
    assert load_file(str(path)) is first
    path.write_text(text.format(2))
    os.utime(path, (1, 1))
    assert load_file(str(path)).thing() == 2  # the same definition again takes the earlier one's place
    other = tmp_path / "other.py"
    other.write_text(text.format(3))
    with pytest.raises(BadFile, match="already taken"):
        load_file(str(other))


def test_a_clash_is_the_newcomers_whoever_comes_first() -> None:
    """In a process that has not imported ours."""
    code = "from podium.registry import register\n@register('score', unit='team')\ndef outcome(t): ..."
    done = run("-c", code, cwd=ROOT)
    assert done.stderr.splitlines()[-1] == "podium.registry.Taken: score 'outcome' is already taken"
    with pytest.raises(Taken):
        register("method", "grpo")(object())


def test_the_front_door_has_what_users_need() -> None:
    wanted = "load save check Recorder credit_of advantages score measure audit_of train make Trace __version__"
    assert set(wanted.split()) <= set(podium.__all__)
    code = """
import podium
assert podium.credit_of and podium.audit_of and podium.measure
import podium.credit, podium.audit, podium.metrics
assert callable(podium.credit_of) and callable(podium.audit_of) and callable(podium.measure) and podium.credit.Credit
print(all(hasattr(podium, name) for name in podium.__all__))
"""
    assert run("-c", code, cwd=ROOT).stdout == "True\n"
    assert "grpo" in names("method")
    assert "jury" in names("world")
