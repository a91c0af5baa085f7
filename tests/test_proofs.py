"""Every promised figure holds at a size that fits in a minute. `make proofs` measures them at full size."""

from __future__ import annotations

import pytest

from bench import (
    credit,
    detectors,
    envs,
    fidelity,
    harness,
    harness_doors,
    inputs,
    learn,
    lm_generate,
    lm_packed,
    lm_results,
    metrics,
    mutation,
    parl,
    regret,
    shapley,
    trace,
)
from bench.proofs import page
from bench.table import at_least, at_most, fact

# A small size says nothing of these: fixed costs weigh too much. They are held at full size, by `make proofs`.
ONLY_IN_FULL = ("2.2.read", "exponent", "6.4.decisions")
TRIES = 3  # another program's burst of work can only make a time worse


PARTS = trace.PARTS | {
    "envs": envs,
    "inputs": inputs,
    "metrics": metrics,
    "parl": parl,
    "detectors": detectors,
    "shapley": shapley,
    "credit": credit,
    "fidelity": fidelity,
    "harness": harness,
    "harness_doors": harness_doors,
    "learn": learn,
    "regret": regret,
    "lm_packed": lm_packed,
    "lm_generate": lm_generate,
    "lm_results": lm_results,
    "mutation": mutation,
}


@pytest.mark.parametrize("part", PARTS)
def test_promises_hold(part: str) -> None:
    for _ in range(TRIES):
        rows = PARTS[part].measure(False)
        assert len({r["id"] for r in rows}) == len(rows)
        missed = [r for r in rows if r["ok"] is False and not r["id"].endswith(ONLY_IN_FULL)]
        if not missed:
            return
    pytest.fail(f"missed in each of {TRIES} tries: {missed}")


def test_a_verdict_is_what_the_figure_says() -> None:
    rows = [
        at_least("a", "w", 3.0, 3.0),
        at_least("b", "w", 2.9, 3.0),
        at_most("c", "w", 3.1, 3.0),
        fact("d", "w", 1.0),
    ]
    assert [r["ok"] for r in rows] == [True, False, False, None]
    assert "**misses**" in page(rows)


def test_what_is_not_measured_again_stays_on_the_page() -> None:
    old = page([fact("a", "one", 1.0), fact("b", "two", 2.0)])
    new = page([fact("b", "two", 3.0)], old)
    assert [line for line in new.splitlines() if "`" in line and line.startswith("| `")] == [
        "| `a` | one | 1 |  |  |",
        "| `b` | two | 3 |  |  |",
    ]
