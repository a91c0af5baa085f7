"""Other people's estimators, each asked in a process of its own.

    python -m bench.peers          prepares them in .peers, which git ignores: about 2 GB and a few minutes
    python -m bench.peers --check  says whether they are there

verl needs a transformers that our `lm` extra does not, and all three need torch, so they live in a virtual environment of their own
and never in ours. What is installed is what their modules with the estimators import, no more: verl, trl and comlrl themselves without
their dependencies. Numbers go there and back as files (`ask`); what runs there is `bench/peer_side.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FOLDER", "ask", "prepare", "ready"]

FOLDER = Path(__file__).parents[1] / ".peers"
NEEDED = (
    "torch==2.13.0",  # the CPU build where the index has one
    "numpy>=2,<3",
    "transformers>=5.5.3,!=5.6.0,<5.11",
    "tensordict>=0.8,!=0.9.0,<=0.10.0",
    "ray>=2.41,<3",
    "accelerate",
    "codetiming",
    "datasets",
    "dill",
    "omegaconf",
    "pandas",
    "wandb",
)
ALONE = ("verl==0.9.1", "trl==1.16.0", "comlrl==1.4.3")
PYTHON = FOLDER / "bin" / "python"


Names = tuple[str, ...]


def _recipe(needed: Names, alone: Names) -> str:
    return hashlib.sha256("\n".join((*needed, *alone)).encode()).hexdigest()


def ready(folder: Path = FOLDER, needed: Names = NEEDED, alone: Names = ALONE) -> bool:
    """Whether the peers are there, as this file asks for them; or others, in another folder."""
    mark = folder / "prepared"
    return mark.exists() and mark.read_text() == _recipe(needed, alone)


def prepare(folder: Path = FOLDER, needed: Names = NEEDED, alone: Names = ALONE) -> None:
    """Installs the peers, unless they are there; `alone` without what they ask for."""
    if ready(folder, needed, alone):
        return
    venv.create(folder, clear=True, with_pip=True)
    for options in ([*needed], ["--no-deps", *alone])[: 2 if alone else 1]:
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*command, "--disable-pip-version-check", *options], check=True)
    (folder / "prepared").write_text(_recipe(needed, alone))


def ask(what: str, **given: Any) -> dict[str, np.ndarray]:
    """What a peer makes of some arrays: `what` is a function of bench/peer_side.py."""
    with tempfile.TemporaryDirectory() as folder:
        there, back = Path(folder) / "there.npz", Path(folder) / "back.npz"
        np.savez(there, **given)
        side = Path(__file__).with_name("peer_side.py")
        done = subprocess.run([PYTHON, "-W", "ignore", side, what, there, back], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{what}: {done.stderr.strip()[-2000:]}")
        with np.load(back) as found:
            return dict(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="only say whether they are there")
    if options.parse_args().check:
        sys.exit(0 if ready() else "the peers are not there; prepare them with: python -m bench.peers")
    prepare()


if __name__ == "__main__":
    main()
