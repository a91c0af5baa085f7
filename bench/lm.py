"""What a language model learns from nothing on two cores: `podium train stop --policy lm --model tiny`, timed and judged. And its
tests, timed: the whole path, and every way in which a model or an endpoint fails.

python -m bench.lm [--full] [--json]
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import msgspec

from bench.table import Row, adding, at_least, at_most, best, command, fact

__all__ = ["measure"]

ROOT = Path(__file__).parents[1]
TESTS, FAULTS = ROOT / "tests" / "learn" / "lm", "endpoint or memory or fault or garbage"
SECONDS, TESTED, LEARNED = 300.0, 120.0, 0.5


def measure(full: bool) -> list[Row]:
    """The run whole. The quick size has no rows: `tests/learn/lm` goes the same way with fewer iterations."""
    if not full:
        return []
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "podium.cli",
                "train",
                "stop",
                "--policy",
                "lm",
                "--model",
                "tiny",
                "--json",
                "--out",
                "out",
            ],
            cwd=folder,
            capture_output=True,
            check=True,
        )
        seconds = perf_counter() - began
        told = msgspec.json.decode(ran.stdout)
        checked = _tokens(Path(folder) / "out" / "after.jsonl")
    whole, _, failed = _tested(f"not ({FAULTS})")
    _, handled, unhandled = _tested(FAULTS)
    gained = (told["value"] - told["before"]) / (told["optimum"] - told["before"])
    return [
        at_most("9.3.seconds", "podium train stop --policy lm --model tiny: seconds", seconds, SECONDS, "time"),
        fact("9.3.adding", "seconds of adding ten million numbers in the same run", best(1, adding)[0]),
        fact("9.3.before", "its likeliest answers before training: score", told["before"]),
        fact("9.3.after", "its likeliest answers after training: score", told["value"]),
        fact("9.3.trivial", "the best policy that ignores what it sees: score", told["trivial"]),
        fact("9.3.optimum", "the exact optimum: score", told["optimum"]),
        at_least(
            "9.3.gained", "of the way from before to the optimum, what was learned", gained, LEARNED, "sampled"
        ),
        at_most("9.3.tokens", "its traces: exit status of podium check --tokens", checked, 0, "exact"),
        at_most(
            "9.3.tests", "seconds of the tests that go the whole path with the tiny model", whole, TESTED, "time"
        ),
        at_most("9.3.tests.failed", "of these tests, those that fail", failed, 0, "exact"),
        fact("9.4.faults", "tests of models and endpoints that fail in some way: passed", handled),
        at_most("9.4.faults.failed", "of these, a fault that is neither recorded nor said", unhandled, 0, "exact"),
    ]


def _tested(which: str) -> tuple[float, int, int]:
    """Seconds of some of the tests, how many pass, and how many do not."""
    began = perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", str(TESTS), "-k", which], cwd=ROOT, capture_output=True, text=True
    )
    found = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?)", ran.stdout.splitlines()[-1])}
    passed = found.pop("passed", 0)
    return perf_counter() - began, passed, sum(found.values()) + (not passed)


def _tokens(trace: Path) -> int:
    return subprocess.run(
        [sys.executable, "-m", "podium.cli", "check", "--tokens", str(trace)], capture_output=True
    ).returncode


if __name__ == "__main__":
    command(measure, __doc__)
