"""Logs with something broken at random: no traceback, no hang, and what is wrong is named by its line. `make
proofs` breaks a hundred thousand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bench.exchange_mutants import faults_of, mutated, one_a_line, seeds
from tests.exchange import sessions

SEEDS = int(os.environ.get("PODIUM_MUTATIONS", "800"))


def generations() -> list[bytes]:
    main, own = sessions.with_progress()
    logs = [sessions.simple(), main, own, sessions.notified(), sessions.inline(), sessions.resumed_twice()]
    return [log.data() for log in logs] + [sessions.streamed()]


LOGS = [*generations(), *seeds(False).values()]


@pytest.mark.parametrize("part", range(4))
def test_mutated_logs(part: int, tmp_path: Path) -> None:
    for seed in range(part, SEEDS, 4):
        rng = np.random.default_rng(seed)
        log = LOGS[seed // 4 % len(LOGS)]
        lines = one_a_line(log)
        path = tmp_path / ("log.jsonl" if lines else "log.json")
        assert faults_of(path, mutated(log, rng), lines) == [], seed


def test_a_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge bites: a reader that fails, and one that says nothing of a broken line."""
    log = sessions.simple().data()
    broken = log + b"{\n" + log.splitlines(True)[-1]
    monkeypatch.setattr("podium.trace.files.read", lambda path: 1 / 0)
    assert faults_of(tmp_path / "log.jsonl", broken, True) == ["ZeroDivisionError: division by zero"]
    monkeypatch.setattr("podium.trace.files.read", lambda path: [])
    assert faults_of(tmp_path / "log.jsonl", broken, True) == [f"line {log.count(bytes([10])) + 1} is not named"]
