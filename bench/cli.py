"""What it costs to ask Podium for its help or version, in processor time, beside a Python that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys

from bench import table
from bench.table import Row, at_most, fact

WORDS = {"help": "--help", "h": "-h", "version": "--version"}


def measure(full: bool = True) -> list[Row]:
    tries = 10 if full else 2
    rows = [fact("24.7.python", "s of processor time for `python -c pass`", seconds(["-c", "pass"], tries))]
    for name, word in WORDS.items():
        cost = seconds(["-m", "podium.cli", word], tries)
        rows.append(at_most(f"24.7.{name}", f"s of processor time for `podium {word}`", cost, 0.4, "time"))
    return rows


def seconds(words: list[str], tries: int) -> float:
    """Processor time of a process, user and system, the median of several."""
    costs = []
    for _ in range(tries):
        before = os.times()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        after = os.times()
        user, system = after.children_user - before.children_user, after.children_system - before.children_system
        costs.append(user + system)
    return sorted(costs)[len(costs) // 2]


if __name__ == "__main__":
    table.command(measure, __doc__)
