"""The verbs, as a user meets them: a process, its output, its exit code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import podium as package
from podium.cli import app
from podium.cli.app import VERBS
from tests.verbs import verb

SHARED = Path(__file__).parents[2] / "shared/data/survey"
DOCUMENT: dict[str, Any] = {
    "trace_id": "run",
    "task_id": "task",
    "topology": "centralized",
    "events": [
        {"id": "a", "t": 0, "type": "orchestrator_decision", "agent": "lead", "podium": {"end": 1.0}},
        {"id": "b", "t": 1, "type": "spawn", "agent": "lead", "to": "ann"},
        {"id": "c", "t": 2, "type": "return", "agent": "ann", "to": "lead", "podium": {"end": 4.0}},
    ],
    "edges": [{"src": "a", "dst": "b", "type": "spawn"}, {"src": "b", "dst": "c", "type": "causal"}],
    "rewards": {"team": 1},
    "costs": {"tokens": 10, "wall_clock_s": 4},
}


def podium(*words: object, stdin: bytes | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    answer = verb(*words, stdin=stdin, cwd=cwd)
    assert "Traceback" not in answer.stderr + answer.stdout
    return answer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


def broken(path: Path, **changes: Any) -> Path:
    events = [dict(e) for e in DOCUMENT["events"]]
    events[2] |= changes
    path.write_text(json.dumps(DOCUMENT | {"events": events}))
    return path


def test_check_says_clean(run: Path) -> None:
    answer = podium("check", run)
    assert (answer.returncode, answer.stdout.strip()) == (0, "clean")
    answer = podium("check", run, "--json")
    assert (answer.returncode, json.loads(answer.stdout)) == (0, {"ok": True, "findings": []})


def test_check_of_a_broken_trace_exits_with_one(tmp_path: Path) -> None:
    path = broken(tmp_path / "bad.json", t=0.5)
    answer = podium("check", path, "--json")
    said = json.loads(answer.stdout)
    assert (answer.returncode, said["ok"]) == (1, False)
    assert {f["rule"] for f in said["findings"]} == {"backwards-time", "lifetime"}
    assert all(
        f.keys() == {"file", "row", "rule", "level", "message"} and f["file"] == str(path) for f in said["findings"]
    )
    assert "2 errors" in podium("check", path).stdout


def test_check_of_what_cannot_be_read_exits_with_two(tmp_path: Path) -> None:
    (tmp_path / "noise.json").write_bytes(b"\x89PNG\r\n")
    for path in (tmp_path / "noise.json", tmp_path / "none.json", tmp_path):
        answer = podium("check", path)
        assert answer.returncode == 2
        assert str(path) in answer.stderr
        said = json.loads(podium("check", path, "--json").stdout)
        assert (said["ok"], said["findings"][0]["rule"]) == (False, "unreadable")


def test_check_goes_on_after_a_broken_file(run: Path, tmp_path: Path) -> None:
    bad = broken(tmp_path / "bad.json", type="retrun")
    said = json.loads(podium("check", bad, run, "--json").stdout)
    assert [(f["rule"], f["row"]) for f in said["findings"]] == [("schema", 2)]


def test_check_goes_on_after_what_cannot_be_read(run: Path, tmp_path: Path) -> None:
    bad = broken(tmp_path / "bad.json", type="retrun")
    answer = podium("check", tmp_path / "none.json", bad, run)
    assert answer.returncode == 2
    assert "1 error, 0 warnings, 1 cannot be read" in answer.stdout
    said = json.loads(podium("check", tmp_path / "none.json", bad, "--json").stdout)
    assert [f["rule"] for f in said["findings"]] == ["unreadable", "schema"]


def test_check_reads_standard_input() -> None:
    assert podium("check", "-", stdin=json.dumps(DOCUMENT).encode()).returncode == 0
    assert podium("check", "-", stdin=b"").returncode == 2


def test_show_prints_and_writes_a_page(run: Path, tmp_path: Path) -> None:
    answer = podium("show", run, "--html", tmp_path / "page.html")
    assert answer.returncode == 0
    for said in (
        "run\ncentralized\nTask    task\n",
        "Where the time went  4.0 s in all",
        "Critical path 3.0 s",
        "Who worked  2 agents",
    ):
        assert said in answer.stdout
    page = (tmp_path / "page.html").read_text()
    assert 'data-key="run?run=0"' in page  # self-contained: it carries its answers
    told = json.loads(podium("show", run, "--json").stdout)
    path = told["critical_path"]
    assert (told["clock"]["serial"], path["seconds"], path["steps"]) == (3.0, 3.0, 2)


def test_show_of_hostile_names_is_harmless(tmp_path: Path) -> None:
    path = broken(tmp_path / "x.json", agent="[red]\x1b[31m<script>alert(1)</script>[/]", type="message")
    answer = podium("show", path, "--html", tmp_path / "page.html")
    assert answer.returncode == 0
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    assert r"[red]\x1b[31m" in answer.stdout
    assert "\x1b" not in answer.stdout


def test_show_of_a_run_that_is_not_there(run: Path) -> None:
    answer = podium("show", run, "--run", 3)
    assert answer.returncode == 2
    assert "there is no run 3; there is 1" in answer.stderr


@pytest.mark.parametrize("suffix", [".jsonl", ".json.gz", ".jsonl.xz", ".store", "/"])
def test_convert_there_and_back(run: Path, tmp_path: Path, suffix: str) -> None:
    there, back = f"{tmp_path}/there{suffix}", tmp_path / "back.json"
    assert podium("convert", run, there).returncode == 0
    assert podium("convert", there, back, "--json").returncode == 0
    first, second = json.loads(run.read_text()), json.loads(back.read_text())
    assert first == second


def test_convert_to_nobody_knows_what(run: Path, tmp_path: Path) -> None:
    answer = podium("convert", run, tmp_path / "out.txt")
    assert answer.returncode == 2
    assert "expected a name that ends in .json" in answer.stderr
    assert not (tmp_path / "out.txt").exists()
    assert podium("convert", run, tmp_path / "no" / "such" / "out.json").returncode == 2


def test_convert_refuses_a_trace_that_breaks_rules(tmp_path: Path) -> None:
    answer = podium("convert", broken(tmp_path / "bad.json", t=0.5), tmp_path / "out.json")
    assert answer.returncode == 1
    assert "backwards-time" in answer.stderr
    assert not (tmp_path / "out.json").exists()


def test_store(run: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs.store"
    assert json.loads(podium("store", "add", store, run, "--json").stdout)["runs"] == 1
    assert "1 run added, 2 in all" in podium("store", "add", store, run).stdout
    rows = json.loads(podium("store", "ls", store, "--json").stdout)
    assert [(r["rollout"], r["trace_id"], r["events"]) for r in rows] == [(0, "run", 3), (1, "run", 3)]
    query = "select type, count(*) n from events group by type order by type"
    assert json.loads(podium("store", "sql", store, query, "--json").stdout)[0] == {
        "type": "orchestrator_decision",
        "n": 2,
    }
    assert podium("store", "sql", store, "selec").returncode == 2
    assert podium("store", "ls", tmp_path / "none").returncode == 2
    assert podium("check", store).returncode == 0


def test_schema_and_rules_are_json() -> None:
    assert json.loads(podium("schema").stdout)["$schema"].endswith("2020-12/schema")
    assert {"id", "level", "sentence"} == set(json.loads(podium("rules", "--json").stdout)[0])
    assert "trust-laundering" in podium("rules").stdout


def test_mistakes_are_told() -> None:
    answer = podium("chek", "x")
    assert answer.returncode == 2
    assert "No such command" in answer.stderr
    assert podium("check").returncode == 2


HEAVY = (
    "numpy msgspec rich torch pyarrow duckdb threadpoolctl networkx httpx starlette transformers importlib.metadata "
    "podium.trace podium.graph podium.rewards podium.credit podium.methods podium.metrics podium.audit podium.envs "
    "podium.harness podium.learn podium.study podium.view"
).split()


def imported(*words: str) -> set[str]:
    """The modules that a verb imports, of those that cost time."""
    code = f"""
import sys, atexit
atexit.register(lambda: print("imported", *[m for m in {HEAVY} if m in sys.modules], file=sys.stderr))
sys.argv = ["podium", *{list(words)}]
from podium.cli import main
main()
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stderr.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("word", ["--help", "-h", "--version"])
def test_help_and_version_import_nothing_heavy(word: str) -> None:
    assert imported(word) == set()


def test_a_verb_imports_what_it_uses() -> None:
    assert imported("rules", "--json").isdisjoint(
        {"podium.learn", "podium.study", "podium.harness", "podium.methods"}
    )
    assert imported("envs", "--json").isdisjoint({"podium.learn", "podium.study", "podium.harness", "podium.audit"})


def test_help_has_a_short_name_everywhere() -> None:
    top = podium("-h")
    assert (top.returncode, top.stdout) == (0, podium("--help").stdout)
    assert [name for name in VERBS if not re.search(rf"^  {name} ", top.stdout, re.M)] == []
    for words in (("check",), ("store",), ("store", "add")):
        assert podium(*words, "-h").stdout == podium(*words, "--help").stdout != ""


def test_the_version_is_in_one_place() -> None:
    answer = podium("--version")
    assert (answer.returncode, answer.stdout) == (0, f"podium {package.__version__}\n")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "podium.__version__"}


def test_the_licence_is_here() -> None:
    root = Path(__file__).parents[1]
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"
    text = (root / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_package_offers_its_names_when_they_are_used() -> None:
    code = "import sys, podium; print('numpy' in sys.modules, {*podium.__all__} <= {*dir(podium)}, podium.load.__module__)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.split() == ["False", "True", "podium.trace.files"]
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        package.laod  # noqa: B018


def test_reward_does_what_its_help_says(run: Path) -> None:
    said = " ".join(podium("reward", "-h").stdout.split())
    assert "PATH needs --reward; with neither, the scores are listed" in said
    answer = podium("reward", run)
    assert (answer.returncode, "say what to pay with --reward" in answer.stderr) == (2, True)
    assert json.loads(podium("reward", "--json").stdout)["scores"]


def every_verb() -> list[tuple[str, Any]]:
    for module, _ in VERBS.values():
        import_module(f"podium.cli.{module}")
    return commands(app)


def test_the_table_of_verbs_is_what_the_verbs_say() -> None:
    own = {name.split()[1]: verb.callback.__doc__ for name, verb in every_verb() if name.count(" ") == 1}
    own |= {group.name: group.typer_instance.info.help for group in app.registered_groups}
    assert {name: " ".join(doc.split()).partition(". ")[0].rstrip(".") + "." for name, doc in own.items()} == {
        name: sentence for name, (_, sentence) in VERBS.items()
    }


def commands(group: Any, name: str = "podium") -> list[tuple[str, Any]]:
    found = []
    for one in group.registered_commands:
        found.append((f"{name} {one.name or one.callback.__name__}", one))
    for inner in group.registered_groups:
        found += commands(inner.typer_instance, f"{name} {inner.name}")
    return found


@pytest.mark.parametrize(("name", "verb"), every_verb(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_verb_has_json_and_an_example(name: str, verb: Any) -> None:
    assert verb.epilog.startswith(f"Example: {name}")
    assert "json" in verb.callback.__annotations__
    help_ = CliRunner().invoke(app, [*name.split()[1:], "--help"]).output
    assert f"Example: {name}" in help_
    assert "--json" in help_


@pytest.mark.skipif(not SHARED.exists(), reason="../shared with the survey's public data is not here")
def test_the_published_example_has_one_finding() -> None:
    said = json.loads(podium("check", SHARED / "example_trace.json", "--json").stdout)
    assert [(f["row"], f["rule"], f["level"]) for f in said["findings"]] == [(6, "trust-laundering", "warning")]
    assert said["ok"]


def test_run_and_replay(tmp_path: Path) -> None:
    answer = podium("run", "research", "--out", tmp_path / "run")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "5 agents, 12 steps, 0 faults, 0 refusals, reward 1" in answer.stdout
    assert podium("check", tmp_path / "run").stdout == "clean\n"
    told = json.loads(podium("replay", tmp_path / "run", "--out", tmp_path / "again", "--json").stdout)
    assert (told["shared"], told["rewards"]) == (told["events"], {"team": 1.0})
    assert (tmp_path / "run/w0.jsonl").read_bytes() == (tmp_path / "again/w0.jsonl").read_bytes()
    told = json.loads(podium("replay", tmp_path / "run", "--at", 2, "--do", "choose=none", "--json").stdout)
    assert (told["was"], told["rewards"]) == ({"team": 1.0}, {"team": 0.0})
    assert 0 < told["shared"] < told["events"]
    assert podium("check", told["trace"]).returncode == 0


def test_run_a_team_of_ones_own_on_a_task(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from podium.harness import Team\n"
        "async def shout(see):\n    return see.task.upper()\n"
        "async def breaks(see):\n    raise RuntimeError('odd')\n"
        "team, broken, nothing = Team('mine', shout), Team('broken', breaks), 7\n"
    )
    told = json.loads(podium("run", "mine.py:team", "--task", "hello", "--json", cwd=tmp_path).stdout)
    assert (told["answer"], told["trace"]) == ("HELLO", "out/mine")
    assert podium("replay", "out/mine", "--team", "mine.py:team", cwd=tmp_path).returncode == 0
    answer = podium("run", "mine.py:broken", "--task", "x", cwd=tmp_path)
    assert (answer.returncode, "RuntimeError: odd" in answer.stdout) == (1, True)
    for team, said in (
        ("nope", "no team 'nope'; there are research"),
        ("mine.py:nothing", "expected a Team or a function that makes one, got int"),
        ("none.py:team", "there is no file none.py"),
        ("no.such.module:team", "cannot be loaded: ModuleNotFoundError"),
    ):
        answer = podium("run", team, cwd=tmp_path)
        assert (answer.returncode, said in answer.stderr) == (2, True)


def test_a_replay_that_cannot_be_says_why(tmp_path: Path, run: Path) -> None:
    podium("run", "swarm", "--out", tmp_path / "run")
    for words, said in (
        ((tmp_path / "run", "--at", 9999), "there is no row 9999"),
        ((tmp_path / "run", "--at", 0, "--do", "shout"), "expected choose=VALUE"),
        ((tmp_path / "run", "--do", "remove"), "at which row?"),
        ((tmp_path / "run", "--at", 0, "--do", "choose=x"), "no option 'x'; there are counter, none, stop"),
        ((run,), "it was not recorded by the harness"),
        ((tmp_path / "run", "--team", "debate"), "its tools, prompts or limits are others"),
        ((tmp_path / "nothing",), "nothing"),
    ):
        answer = podium("replay", *words)
        assert (answer.returncode, said in answer.stderr) == (2, True), answer.stderr


def test_what_the_machine_refuses_is_no_fault_of_ours(tmp_path: Path) -> None:
    """A full disk, a folder that is a file: a line, before hours of work, and nothing half-written."""
    (tmp_path / "taken").write_text("mine")
    answer = podium("study", "leaderboard", "--quick", "--out", tmp_path / "taken" / "it")
    assert (answer.returncode, answer.stderr) == (2, f"podium: {tmp_path / 'taken/it/quick'}: Not a directory\n")
    recipe = tmp_path / "jury.toml"
    recipe.write_text('world = "jury"\niterations = 1\nepisodes = 64')
    podium("train", recipe, "--out", tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "full", ignore=shutil.ignore_patterns("learner*", "*.jsonl"))
    (tmp_path / "full" / "learner.npz.part").symlink_to("/dev/full")
    answer = podium("train", recipe, "--out", tmp_path / "full")
    assert (answer.returncode, answer.stderr.splitlines()[-1]) == (2, "podium: No space left on device")
    assert not (tmp_path / "full" / "learner.npz").exists()
