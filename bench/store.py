"""How fast the columnar store reads back, and how small it is: `python -m bench.store [--full] [--json]`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from bench.generate import trace
from bench.table import Row, at_least, at_most, best, calibration, command, exponent, fact
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


def measure(full: bool) -> list[Row]:
    sizes = [10_000, 100_000, 1_000_000] if full else [1_000, 5_000]
    n = sizes[-1]
    speed, first, small = _stored(trace(n, ids="podium", content=False), full)
    random_speed, random_first, random_bytes = _stored(trace(n, ids="random", content=True), full)
    return [
        at_least(
            "2.2.read", f"events a second read from the store, {n:,} events, ids by Podium", speed, FAST, "time"
        ),
        fact("2.2.exponent", f"growth of the time to read, {sizes[0]:,} to {n:,} events", _growth(sizes)),
        fact("2.2.read.first", "the same, first read of a process", first),
        fact("2.2.read.random", "the same, random ids and content refs", random_speed),
        fact("2.2.read.random.first", "the same, first read of a process", random_first),
        at_most("2.2.bytes", "bytes an event on disk, ids by Podium, no content refs", small, SMALL, "size"),
        fact("2.2.bytes.random", "the same, random ids and content refs", random_bytes),
        calibration("2.2", full),
        fact(
            "2.2.copy.s",
            "seconds to copy 100 MB in numpy, this run",
            best(3, np.ones(100_000_000, np.int8).copy)[0],
        ),
    ]


def _growth(sizes: list[int]) -> float:
    seconds = []
    with TemporaryDirectory() as folder:
        for n in sizes:
            store.add(Path(folder) / str(n), trace(n, ids="podium", content=False))
            seconds.append(best(7, lambda n=n: store.read(Path(folder) / str(n)))[0])
    return exponent(sizes, seconds)


def _stored(run: Trace, full: bool) -> tuple[float, float, float]:
    """Events read a second, warm and by a new process, and bytes an event, once nothing was seen to be lost."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs"
        store.add(path, run)
        if store.read(path) != run:
            raise AssertionError("the store lost something")
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        first = median(_first(path) for _ in range(5 if full else 1))
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


if __name__ == "__main__":
    command(measure, __doc__)
