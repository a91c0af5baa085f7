"""Runs with every kind of fault injected: none hangs, everything is on record, nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness_faults import faulty, missing, overspent
from podium.harness import Budget, run
from podium.harness.chaos import AGENT_FAULTS, Injected, injured
from podium.harness.topologies import research, swarm


@pytest.mark.parametrize("i", range(20))
def test_a_run_with_faults(i: int, tmp_path: Path) -> None:
    told = faulty(tmp_path, i)
    assert (told["hung"], told["findings"], told["missing"], told["overspent"], told["left"]) == (False, 0, 0, 0, 0)


@pytest.mark.parametrize("kind", AGENT_FAULTS)
def test_every_kind_alone_in_every_step_of_the_hands(kind: str) -> None:
    log: list[Injected] = []
    ran = run(injured(research(), 1, 1.0, log, (kind,)), seed=4)
    assert log
    assert missing(ran.trace, log) == []


def test_the_checks_bite() -> None:
    log: list[Injected] = []
    trace = run(injured(research(), 1, 0.0, log)).trace
    assert missing(trace, [Injected("exception", "researcher-1", 0, None)]) != []
    assert missing(trace, [Injected("timeout", "researcher-1", -1, "search")]) != []
    assert overspent(run(swarm()).trace, Budget(steps=5)) > 0
    assert overspent(run(swarm()).trace, Budget(agents=5)) == 15
    assert overspent(trace, Budget(depth=0)) == 5
