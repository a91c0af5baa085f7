"""Other people's trainers, each in an environment of its own: what our plug-ins are tried in.

    python -m bench.trainers [NAME...]          makes the environments in .trainers, which git ignores
    python -m bench.trainers --check [NAME...]  says which are there

An environment uses the packages of the one that makes it (torch and transformers of the extra `lm`) where the trainer
accepts them, and has the rest of its own. Podium is installed there as it stands, so that its entry points are found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

__all__ = ["ENVIRONMENTS", "Recipe", "ask", "prepare", "ready"]

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".trainers"


class Recipe(NamedTuple):
    """What an environment has: packages with what they ask for, and packages alone."""

    needed: tuple[str, ...]
    alone: tuple[str, ...] = ()


ENVIRONMENTS = {
    "trl": Recipe(("trl==1.16.0",)),
    "verl": Recipe(
        (
            "transformers<5.11",
            "ray>=2.41,<3",
            "tensordict<=0.10.0",
            "cachetools",
            "fastapi",
            "uvicorn",
            "TransferQueue>=0.1.10",
            "pyzmq",
            "verl==0.9.1",
        )
    ),
    "verifiers": Recipe(("verifiers==0.4.0",)),
    "comlrl": Recipe(("comlrl==1.4.3",)),
    "worlds": Recipe(("stable-baselines3==2.9.2", "pettingzoo==1.27.0")),
    "skyrl": Recipe(
        ("ray>=2.41,<3", "omegaconf", "loguru", "jaxtyping", "tensordict", "pandas", "polars"),
        ("skyrl==0.3.0", "skyrl-gym==0.4.0"),
    ),
}


def ready(name: str) -> bool:
    """Whether an environment is there, as this file asks for it."""
    mark = FOLDER / name / "prepared"
    return mark.exists() and mark.read_text() == _recipe(name)


def prepare(name: str) -> None:
    """Makes an environment, unless it is there."""
    if ready(name):
        return
    folder, recipe = FOLDER / name, ENVIRONMENTS[name]
    venv.create(folder, clear=True, with_pip=True)
    ours = [place for place in sys.path if place.endswith("site-packages")]
    (place,) = folder.glob("lib/python3.*/site-packages")
    (place / "podium_base.pth").write_text("\n".join(ours) + "\n")
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraint = ["-c", str(ROOT / "constraints.txt")] if name != "verl" else []
    subprocess.run([*pip, *constraint, "setuptools>=77", *recipe.needed], check=True)
    if recipe.alone:
        subprocess.run([*pip, "--no-deps", *recipe.alone], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    (folder / "prepared").write_text(_recipe(name))


def _recipe(name: str) -> str:
    return hashlib.sha256(json.dumps(ENVIRONMENTS[name]).encode()).hexdigest()


def python_of(name: str) -> Path:
    return FOLDER / name / "bin" / "python"


def ask(name: str, *arguments: str, seconds: float = 600) -> str:
    """What a command prints in an environment; it is started in the project's folder."""
    command = [str(python_of(name)), "-W", "ignore", *arguments]
    quiet = os.environ | {"WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, env=quiet)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", help=f"of {', '.join(ENVIRONMENTS)}; all unless given")
    options.add_argument("--check", action="store_true", help="only say which are there")
    args = options.parse_args()
    if unknown := set(args.names) - set(ENVIRONMENTS):
        options.error(f"no trainer {', '.join(sorted(unknown))}; there are {', '.join(ENVIRONMENTS)}")
    missing = []
    for name in args.names or ENVIRONMENTS:
        if not args.check:
            prepare(name)
        if not ready(name):
            missing.append(name)
    if missing:
        sys.exit(f"not there: {', '.join(missing)}; make them with: python -m bench.trainers {' '.join(missing)}")


if __name__ == "__main__":
    main()
