"""The package as a user gets it: a wheel in an empty environment, with what it needs and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pip(python: Path | str, *words: object) -> None:
    """What the index does not give is no fault of the package: skipped."""
    command = [str(python), "-m", "pip", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    away = ("Could not find a version", "No matching distribution", "Connection", "Failed to establish", "SSLError")
    if done.returncode and any(word in done.stderr for word in away):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment into which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("clean")
    source = folder / "source"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):  # built from a copy: a build leaves folders beside its source
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    pip(sys.executable, "wheel", "--no-deps", "--quiet", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("podium-*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip(folder / "venv/bin/python", "install", "--quiet", "--disable-pip-version-check", wheel)
    return folder / "venv/bin"


def ran(installed: Path, *words: str) -> str:
    """What a command prints, in a folder that has nothing of ours and without our paths."""
    env = {"PATH": "/usr/bin:/bin", "COLUMNS": "120", "HOME": str(installed)}
    done = subprocess.run(words, cwd=installed.parent, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], "Usage: podium"),
        (["methods"], "grpo"),  # reads fidelity.json
        (["envs", "jury", "--episodes", "20"], "optimum"),
        (["audit", "--list"], "injection"),  # reads detectors.toml
        (["train", "--help"], "Usage: podium train"),
    ],
)
def test_a_verb_works_without_extras(installed: Path, words: list[str], expected: str) -> None:
    assert expected in ran(installed, str(installed / "podium"), *words)


def test_nothing_heavy_was_installed(installed: Path) -> None:
    code = (
        "from importlib.util import find_spec; print([n for n in ('torch', 'transformers', 'ray') if find_spec(n)])"
    )
    assert ran(installed, str(installed / "python"), "-c", code).strip() == "[]"


def test_a_run_is_recorded_and_read(installed: Path) -> None:
    code = (
        "from podium.trace import Recorder\n"
        "from podium import load\n"
        "with Recorder('run') as record:\n    record.add('orchestrator_decision', 'lead')\n"
        "print(load('run').n_events)"
    )
    assert ran(installed, str(installed / "python"), "-c", code).strip() == "1"


def test_a_study_says_that_it_needs_a_checkout(installed: Path) -> None:
    words = [str(installed / "podium"), "study", "all"]
    done = subprocess.run(words, cwd=installed.parent, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "`experiments` of a checkout of Podium" in line
