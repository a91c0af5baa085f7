"""How fast the columnar store reads back, and how small it is: `python -m bench.store [--full] [--json]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from bench.generate import trace
from podium.trace import store
from podium.trace.columns import Trace

__all__ = ["measure"]

FAST, SMALL = 5e6, 40.0
FIRST = """
import sys, time, pyarrow.parquet
from podium.trace import store
start = time.perf_counter()
store.read(sys.argv[1])
print(time.perf_counter() - start)
"""


def measure(full: bool) -> list[dict[str, Any]]:
    n = 1_000_000 if full else 100_000
    speed, first, small = _stored(trace(n, ids="podium", content=False))
    random_speed, random_first, random_bytes = _stored(trace(n, ids="random", content=True))
    return [
        _row(
            "2.2.read", f"events/s read, {n:,} events, ids by Podium", speed, FAST, speed >= FAST if full else None
        ),
        _row("2.2.read.first", "the same, first read of a process", first),
        _row("2.2.read.random", "events/s read, random ids and content refs", random_speed),
        _row("2.2.read.random.first", "the same, first read of a process", random_first),
        _row("2.2.bytes", "bytes an event, ids by Podium", small, SMALL, small <= SMALL),
        _row("2.2.bytes.random", "bytes an event, random ids and content refs", random_bytes),
        _row("2.2.python_s", "seconds to add 10 million numbers in Python", _seconds(lambda: sum(range(10**7)), 3)),
        _row("2.2.copy_s", "seconds to copy 100 MB in numpy", _seconds(np.ones(100_000_000, np.int8).copy, 3)),
    ]


def _stored(run: Trace) -> tuple[float, float, float]:
    """Events read a second, warm and by a new process, and bytes an event, once nothing was seen to be lost."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs"
        store.add(path, run)
        if store.read(path) != run:
            raise AssertionError("the store lost something")
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        first = median(_first(path) for _ in range(5))
        return run.n_events / _seconds(lambda: store.read(path), 7), run.n_events / first, size / run.n_events


def _first(path: Path) -> float:
    """Seconds for the first read of a new process, imports not counted."""
    return float(subprocess.check_output([sys.executable, "-c", FIRST, str(path)]))


def _seconds(call: Callable[[], object], times: int) -> float:
    """The median of some calls."""
    took = []
    for _ in range(times):
        start = perf_counter()
        call()
        took.append(perf_counter() - start)
    return median(took)


def _row(id: str, what: str, figure: float, target: float | None = None, ok: bool | None = None) -> dict[str, Any]:
    return {"id": id, "what": what, "figure": figure, "target": target, "ok": ok}


def _plain(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="a million events")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    args = parser.parse_args()
    rows = measure(args.full)
    if args.json:
        print(json.dumps(rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "what", "figure", "target", "ok")
    for row in rows:
        target = "" if row["target"] is None else f"{row['target']:,.0f}"
        table.add_row(
            row["id"], row["what"], f"{_plain(row['figure'])}", target, {None: "", True: "yes"}.get(row["ok"], "no")
        )
    Console().print(table)


if __name__ == "__main__":
    main()
