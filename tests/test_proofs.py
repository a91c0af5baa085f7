"""Every benchmark runs, at a very small size, and its exact promises hold there: counts, errors, laws and refusals.

Times, sizes and what dice and learning give are judged by `make proofs`, at full size and on a quiet machine. No clock decides here.
"""

from __future__ import annotations

import ast
import gc
import importlib
from pathlib import Path

import pytest

from bench import trace
from bench.proofs import BENCHES, page
from bench.table import KINDS, at_least, at_most, fact, missed

BENCH = Path(trace.__file__).parent
ELSEWHERE = {  # whose small size is a test of its own
    "counterfactual": "tests/experiments/test_counterfactual.py",
    "demo": "tests/test_demo.py",
    "lm": "tests/learn/lm",
    "outside": "tests/test_outside.py",
    "sb3": "tests/test_sb3.py",
    "study": "tests/study",
    "view": "tests/doors/test_browser.py",
}
PARTS = [*trace.PARTS, *(name for name in BENCHES if name not in {"trace", *ELSEWHERE})]


@pytest.mark.parametrize("part", PARTS)
def test_a_benchmark_runs_and_its_exact_promises_hold(part: str) -> None:
    gc.collect()  # what other tests left is not to be collected where the stack is deep
    rows = importlib.import_module(f"bench.{part}").measure(False)
    assert rows
    assert len({r["id"] for r in rows}) == len(rows)
    assert missed(rows, "exact") == []


def test_what_is_not_run_here_is_tested_elsewhere() -> None:
    assert {name for name in ELSEWHERE if name not in BENCHES} == set()
    assert [path for path in ELSEWHERE.values() if not (BENCH.parent / path).exists()] == []


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_every_promise_says_of_which_kind_it_is(path: Path) -> None:
    """Known without running it: the last argument of `at_least` and `at_most` is a kind."""
    calls = [
        call
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("at_least", "at_most")
    ]
    for call in calls:
        assert len(call.args) == 5, f"{path.name}, line {call.lineno}: a promise without its kind, one of {KINDS}"
        if isinstance(call.args[4], ast.Constant):
            assert call.args[4].value in KINDS, f"{path.name}, line {call.lineno}"


def test_a_verdict_is_what_the_figure_says() -> None:
    rows = [
        at_least("a", "w", 3.0, 3.0, "exact"),
        at_least("b", "w", 2.9, 3.0, "time"),
        at_most("c", "w", 3.1, 3.0, "exact"),
        at_most("d", "w", float("nan"), 3.0, "sampled"),
        fact("e", "w", 1.0),
    ]
    assert [r["ok"] for r in rows] == [True, False, False, False, None]
    assert [r["id"] for r in missed(rows)] == ["b", "c", "d"]
    assert [r["id"] for r in missed(rows, "exact")] == ["c"]
    assert "**misses**" in page(rows)


def test_what_is_not_measured_again_stays_on_the_page() -> None:
    old = page([fact("a", "one", 1.0), fact("b", "two", 2.0)])
    new = page([fact("b", "two", 3.0)], old)
    assert [line for line in new.splitlines() if "`" in line and line.startswith("| `")] == [
        "| `a` | one | 1 |  |  |",
        "| `b` | two | 3 |  |  |",
    ]
