"""`make demo` as it is promised: its time, what every decision leaves of the gap, and whether the same seed gives the same table.

python -m bench.demo --full [--json]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

from bench.table import Row, adding, at_most, best, command, fact

__all__ = ["measure"]

ROOT = Path(__file__).parents[1]
SECONDS, SHARE = 120.0, 0.3


def measure(full: bool) -> list[Row]:
    """The demo twice; the quick size, which `tests/test_demo.py` holds instead, has no rows."""
    if not full:
        return []
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        seconds, table = _played(Path(one))
        shares = {
            path.parent.name: float(np.mean([j["share"] for j in msgspec.json.decode(path.read_bytes())]))
            for path in sorted(Path(one).glob("out/five/*/judged.json"))
        }
        again = _played(Path(two))[1]
    return [
        at_most("6.2.seconds", "make demo: seconds after the install", seconds, SECONDS, "time"),
        fact("6.2.adding", "seconds of adding ten million numbers in the same run", best(1, adding)[0]),
        *(
            at_most(f"6.2.{d}", f"make demo, {d}: share of the gap", share, SHARE, "sampled")
            for d, share in shares.items()
        ),
        at_most(
            "6.2.differ", "lines of the table that differ when it is run again", _differ(table, again), 0, "exact"
        ),
    ]


def _played(folder: Path) -> tuple[float, list[str]]:
    began = perf_counter()
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples/learn_the_five.py")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return perf_counter() - began, [line for line in ran.stdout.splitlines() if " s. Open " not in line]


def _differ(one: list[str], two: list[str]) -> int:
    return sum(a != b for a, b in zip(one, two, strict=False)) + abs(len(one) - len(two))


if __name__ == "__main__":
    command(measure, __doc__)
