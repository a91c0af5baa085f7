"""The benchmark of an iteration through the one loop: its lines, and what is read from lines that were kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench import lm_loop as bench
from bench.lm_jobs import TINY


def test_a_line_says_what_an_iteration_took() -> None:
    (line,) = bench.lines_of(replace(TINY, episodes=4, most=2), "tiny", 1)
    assert {"rollout", "credit", "update", "decisions", "host", "read", "size"} <= set(line)
    assert line["decisions"] > 4 < line["read"]


@pytest.mark.parametrize(("rollout", "holds"), [(1.9, True), (2.1, False)])
def test_rollouts_are_held_against_the_update(rollout: float, holds: bool) -> None:
    def line(number: int, seconds: float) -> dict[str, Any]:
        figures = {"credit": 0.1, "update": 1.0, "host": 0.5, "decisions": 1_000}
        return {"id": f"256 {number}", "size": "256", "rollout": seconds, **figures}

    kept = {one["id"]: one for one in (line(0, 99.0), line(1, rollout), line(2, rollout), line(3, rollout))}
    first, *others = bench.rows_of(kept, "here")
    assert (first["id"], first["figure"], first["ok"]) == ("24.3.lm.256", rollout, holds)
    assert [row["id"] for row in others] == ["24.3.lm.256.credit", "24.3.lm.256.host"]
    assert bench.rows_of({}, "here") == []
