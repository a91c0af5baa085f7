"""Training runs that are killed, for the tests that look at how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

CODE = """
import sys
from importlib import import_module
from pathlib import Path

module, name, read, recipe, folder = sys.argv[1:]
lm = import_module(module)
for _ in getattr(lm, name)(getattr(lm, read)(recipe, "here"), Path(folder)).iterations():
    print(flush=True)
"""


def killed(kind: type[Any], read: Any, recipe: str, folder: Path) -> None:
    """A run of this kind, in a process that is killed after its first iteration."""
    argv = [sys.executable, "-c", CODE, kind.__module__, kind.__name__, read.__name__, recipe, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)


def finished(run: Any) -> Any:
    """The run, at the end of its recipe."""
    for _ in run.iterations():
        pass
    return run


def kept(folder: Path) -> dict[str, bytes]:
    """All that two runs of one seed have in common."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "seconds.jsonl")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
