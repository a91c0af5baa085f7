"""TRL as it is, TRL with our credit, and our own loop, on one task.

    python -m bench.trainers trl            makes TRL's environment, once
    python -m bench.trainer_compare         runs every arm (five minutes of a core), writes the page
    python -m bench.trainer_compare --show  prints the table of the curves that are kept

The task is the relay (`bench/relay_task.py`): two agents, one token each, a network of a few thousand weights that starts at
random. Every arm has the same seeds, network, optimizer, learning rate and tokens an update (64 rows of one token). What
differs is who is paid what, and whether runs branch. The figure is exact: what the team earns on average, over all that it
may say. Curves are kept in docs/results/trainers.json.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from bench import trainers
from bench.table import Row, fact
from experiments.chart import chart
from podium.interval import estimate
from podium.study.figure import Line

__all__ = ["ARMS", "curves", "rows", "table"]

DOCS = Path(__file__).parents[1] / "docs"
KEPT, PAGE, PICTURE = (
    DOCS / "results/trainers.json",
    DOCS / "trainers-comparison.md",
    DOCS / "trainers-comparison.svg",
)
STEPS, EVERY, SEEDS = 300, 10, 8
DRAWN = (1, 2, 4, 8, 16, 30)  # of the points of a curve
ARMS = {  # who trains, the method, whether runs branch
    "TRL as it is": ("trl", "", False),
    "TRL, Dr. MAS": ("trl", "dr_mas", False),
    "TRL, C3": ("trl", "c3_reward_only", True),
    "TRL as it is, runs that branch": ("trl", "", True),
    "own loop, Dr. MAS": ("own", "dr_mas", False),
    "own loop, C3": ("own", "c3_reward_only", True),
}


def curves(steps: int = STEPS, seeds: int = SEEDS) -> dict[str, list[list[float]]]:
    """For each arm and seed what the team earns, every few updates."""
    arms = {name: [list(arm), list(range(seeds)), steps, EVERY] for name, arm in ARMS.items()}
    lines = trainers.ask("trl", "bench/trainer_side.py", "relay_curves", json.dumps(arms), seconds=3600)
    found: dict[str, list[list[float]]] = json.loads(lines.splitlines()[-1])
    return found


def _spelled(values: Any) -> str:
    one = estimate(np.asarray(values))
    return f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]"


def table(kept: dict[str, Any]) -> str:
    """Means with 95 % intervals over seeds; the difference from TRL as it is, seed by seed."""
    base = np.array(kept["TRL as it is"])
    lines = [
        "| arm | first three seeds, mean over the run | all seeds, mean over the run | at the end | less TRL as it is, mean over the run |",
        "|---|---|---|---|---|",
    ]
    for name, some in kept.items():
        values = np.array(some)
        run = values.mean(1)
        cells = [_spelled(run[:3]), _spelled(run), _spelled(values[:, -1]), _spelled(run - base.mean(1))]
        lines.append(
            f"| {name} | "
            + " | ".join(cells[:3] + (["-"] if values is base or name == "TRL as it is" else cells[3:]))
            + " |"
        )
    return "\n".join(lines)


def picture(kept: dict[str, Any]) -> str:
    lines = []
    for name, some in kept.items():
        values = np.array(some)
        points = [(float(i * EVERY), *estimate(values[:, i])[:3]) for i in DRAWN]
        lines.append(Line(name, tuple(points)))
    return chart(
        "What the team earns (best 1); bands are 95 % intervals over seeds", "updates", "mean reward", lines
    )


def rows() -> list[Row]:
    """The figures that are kept."""
    if not KEPT.exists():
        return []
    kept = json.loads(KEPT.read_text())["curves"]
    return [
        fact(
            f"29.4.{name}", f"the relay, {name}, {len(some)} seeds: reward, mean over the run", float(np.mean(some))
        )
        for name, some in kept.items()
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--show", action="store_true", help="only print the table of what is kept")
    options.add_argument(
        "--from", dest="file", type=Path, help="curves that were printed before, instead of new ones"
    )
    args = options.parse_args()
    if args.show:
        print(table(json.loads(KEPT.read_text())["curves"]))
        return
    found = json.loads(args.file.read_text()) if args.file else curves()
    KEPT.write_text(json.dumps({"steps": STEPS, "every": EVERY, "curves": found}))
    PICTURE.write_text(picture(found))
    if PAGE.exists():
        new = "<!-- table -->\n" + table(found) + "\n<!-- end -->"
        PAGE.write_text(re.sub(r"<!-- table -->.*?<!-- end -->", lambda _: new, PAGE.read_text(), flags=re.DOTALL))
    print(table(found))


if __name__ == "__main__":
    main()
