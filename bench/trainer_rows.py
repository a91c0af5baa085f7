"""Podium's credit inside other trainers: what issue 29 promises, measured.

    python -m bench.trainers            makes the trainers' environments, once
    python -m bench.trainer_rows --full the rows of 29; those of an environment that is not there are left out

The cost of advantages needs no trainer. What needs one runs in its environment (`bench/trainer_side.py`).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import podium
from bench import trainers
from bench.table import Row, at_most, best, command, fact
from bench.trainer_side import ROWS, TOKENS

__all__ = ["measure"]

OTHERS = "dr_grpo rloo gspo opo pass_at_k dapo reinforce_pp dr_mas rema agent_lightning marshal".split()


def measure(full: bool) -> list[Row]:
    """A row a promise."""
    return [*cost(full), *(beside_verl() if full and trainers.ready("verl") else [])]


def asked(name: str, function: str) -> dict[str, Any]:
    """The figures that a function of bench/trainer_side.py prints in an environment."""
    lines = trainers.ask(name, "bench/trainer_side.py", function).splitlines()
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def cost(full: bool) -> list[Row]:
    """Seconds for a batch of numpy's, GRPO beside one product; then other methods, of which some look at each token."""
    rows, width = (ROWS, TOKENS) if full else (64, 64)
    dice = np.random.default_rng(0)
    mask = (np.arange(width) < dice.integers(1, width, rows)[:, None]).astype(np.int64)
    batch = {"task": np.arange(rows) // 8, "reward": dice.random(rows), "mask": mask}
    a = dice.random(rows)
    seconds = best(5, lambda: podium.advantages(batch, "grpo", unpaid=0.0), lambda: a[:, None] * mask)
    what = f"advantages of {rows:,} rows of {width:,} tokens"
    made = [at_most("29.3.product", f"{what}: GRPO over one product", seconds[0] / seconds[1], 2.0, "time")]
    made.append(fact("29.3.grpo", f"{what}: GRPO, seconds", seconds[0]))
    for name in OTHERS if full else ():
        (took,) = best(1, lambda name=name: podium.advantages(batch, name, unpaid=0.0))  # type: ignore[misc]
        made.append(fact(f"29.3.{name}", f"{what}: {name}, seconds", took))
    return made


def beside_verl() -> list[Row]:
    """The same beside verl's vectorised GRPO, tensors of 32 bits, one thread."""
    print("measuring in verl's environment ...", file=sys.stderr)
    one = asked("verl", "verl_cost")
    return [
        at_most("29.3.verl", "GRPO over verl's vectorised GRPO, seconds", one["ours"] / one["verl"], 1.2, "time"),
        at_most("29.3.verl.apart", "largest difference between the two", one["apart"], 1e-6, "exact"),
    ]


if __name__ == "__main__":
    command(measure, __doc__)
