"""What the one method leaves of the optimum in every world: `podium bench regret --full`, as rows.

python -m bench.regret --full [--json]

About two hours on two cores; what was learned is kept in out/regret, so that it can be ended and gone on with.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.table import Row, at_most, command, fact
from podium.learn.train import Recipe
from podium.study.regret import PROMISES, rows

__all__ = ["measure"]

ROOT = Path(__file__).parents[1]


def measure(full: bool) -> list[Row]:
    """Every world with five seeds; or one with one seed and few iterations."""
    recipe = Recipe() if full else Recipe(iterations=2, rows=300)
    found = rows(
        list(PROMISES) if full else ["costly_search"],
        range(5 if full else 1),
        recipe,
        40_000 if full else 200,
        ROOT / "out" / "regret",
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    return [row for one in found for row in _promised(one)]


def _promised(one: dict[str, object]) -> list[Row]:
    promise, (low, high) = PROMISES[str(one["env"])], one["interval"]  # type: ignore[misc]
    id, where = f"6.1.{one['env']}", f"{one['env']} ({one['decision']}), held out, mean of {one['seeds']} seeds"
    return [
        at_most(f"{id}.share", f"{where}: share of the gap", float(one["share_of_gap"]), promise.share, "sampled"),  # type: ignore[arg-type]
        at_most(f"{id}.regret", f"{where}: regret", float(one["regret"]), promise.regret, "sampled"),  # type: ignore[arg-type]
        fact(f"{id}.error", f"{where}: standard error of the regret, by the dice", float(one["error"])),  # type: ignore[arg-type]
        fact(f"{id}.low", f"{where}: share of the gap, 95 % interval from", low),
        fact(f"{id}.high", f"{where}: share of the gap, 95 % interval to", high),
    ]


if __name__ == "__main__":
    command(measure, __doc__)
