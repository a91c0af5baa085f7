"""TRL as it is, TRL with our credit, and our own loop, on one task: `python -m bench.trainer_compare [--page]`.

The task is the relay (`bench/relay_task.py`): two agents, one token each, a network of a few thousand weights at random.
Every arm has the same seeds, network, learning rate and tokens an update (64 rows of a token). What differs is who pays
them. The figure is exact: the chance that the team earns 1, over all that it may say. Curves are kept in
docs/results/trainers.json and drawn in docs/trainers.svg.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bench import trainers
from bench.table import Row, fact

__all__ = ["ARMS", "curves", "rows"]

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "results" / "trainers.json"
STEPS, EVERY, SEEDS = 300, 10, 8
ARMS = {  # the arm, who trains, the method, whether runs branch
    "TRL as it is": ("trl", "", False),
    "TRL, Dr. MAS": ("trl", "dr_mas", False),
    "TRL, C3": ("trl", "c3_reward_only", True),
    "TRL as it is, runs that branch": ("trl", "", True),
    "own loop, Dr. MAS": ("own", "dr_mas", False),
    "own loop, C3": ("own", "c3_reward_only", True),
}


def curves(steps: int = STEPS, seeds: int = SEEDS) -> dict[str, Any]:
    """For each arm and seed the chance to earn 1, every few updates."""
    arms = {name: [list(arm), list(range(seeds)), steps, EVERY] for name, arm in ARMS.items()}
    lines = trainers.ask("trl", "bench/trainer_side.py", "relay_curves", json.dumps(arms), seconds=3000)
    found: dict[str, Any] = json.loads(lines.splitlines()[-1])
    return found


def rows() -> list[Row]:
    """The figures that are kept: the mean of a run over all its updates, and its end."""
    kept = json.loads(KEPT.read_text())["curves"]
    table = []
    for name, some in kept.items():
        values = np.array(some)
        for what, column in (("mean over the run", values.mean(1)), ("at the end", values[:, -1])):
            table.append(fact(f"29.4.{name}.{what}", f"{name}: chance to earn 1, {what}", float(column.mean())))
    return table
