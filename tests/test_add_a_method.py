"""docs/add-a-method.md, done: its two files put into a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/add-a-method.md"


def test_a_method_is_added_in_two_files(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [path for path, _ in blocks] == ["podium/methods/median.py", "tests/methods/test_median.py"]
    shutil.copytree(ROOT / "podium", tmp_path / "podium", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests/methods").mkdir(parents=True)
    shutil.copy(ROOT / "tests/methods/handmade.py", tmp_path / "tests/methods")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, text in blocks:
        assert not (ROOT / path).exists()
        (tmp_path / path).write_text(text)

    def run(*words: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "COLUMNS": "120"}
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "2 passed" in run("pytest", "tests/methods/test_median.py", "-p", "no:cacheprovider")
    assert 'minus_median(by="task") >> to("turn")' in run("podium.cli", "methods", "median")
    paths = [str(tmp_path / path) for path, _ in blocks]
    run("ruff", "check", "--config", str(ROOT / "pyproject.toml"), *paths)
    run("ruff", "format", "--check", "--config", str(ROOT / "pyproject.toml"), *paths)
