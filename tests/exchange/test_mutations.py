"""Logs with something broken at random: no traceback, no hang, and what is wrong is named by its line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from podium.trace import files
from podium.trace.findings import Unreadable
from tests.exchange import sessions

SEEDS = int(os.environ.get("PODIUM_MUTATIONS", "300"))
VALUES = [
    None,
    0,
    -1,
    1e308,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    True,
    "2026-13-45T99:99:99Z",
    "\ud800"[:0],
    [None],
    "toolu" * 50,
]


def whole() -> list[bytes]:
    main, own = sessions.with_progress()
    parts = [sessions.simple(), main, own, sessions.notified(), sessions.inline(), sessions.resumed_twice()]
    return [p.data() for p in parts] + [sessions.streamed()]


LOGS = whole()


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.splitlines(True)
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(len(lines)))
        match int(rng.integers(9)):
            case 0:
                cut = int(rng.integers(len(lines[i])))
                lines[i] = lines[i][:cut] + b"\n"
            case 1:
                at = int(rng.integers(len(lines[i])))
                lines[i] = lines[i][:at] + bytes([int(rng.integers(256))]) + lines[i][at + 1 :]
            case 2:
                lines[i] = lines[i].rstrip() + lines[int(rng.integers(len(lines)))]
            case 3:
                lines.insert(i, lines[int(rng.integers(len(lines)))])
            case 4:
                del lines[i]
                lines = lines or [b"\n"]
            case 5:
                j = int(rng.integers(len(lines)))
                lines[i], lines[j] = lines[j], lines[i]
            case 6 | 7:
                lines[i] = changed(lines[i], rng)
            case 8:
                lines[i] = re.sub(rb"2026-02-05T12:\d\d", b"20%02d-02-05T12:00" % rng.integers(100), lines[i])
    return b"".join(lines)


def changed(line: bytes, rng: np.random.Generator) -> bytes:
    """The same line with another value somewhere."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    at = record
    while isinstance(at, (dict, list)) and len(at):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = keys[int(rng.integers(len(keys)))]
        inner = at[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.3:
            if isinstance(at, dict) and rng.random() < 0.3:
                del at[key]
            else:
                at[key] = VALUES[int(rng.integers(len(VALUES)))]
            break
        at = inner
    return json.dumps(record).encode() + b"\n"


def attempted(path: Path) -> list[files.Read]:
    try:
        return list(files.read(path))
    except Unreadable:  # in one line, which the command prints
        return []


@pytest.mark.parametrize("part", range(6))
def test_mutated_logs(part: int, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for seed in range(part, SEEDS, 6):
        rng = np.random.default_rng(seed)
        path.write_bytes(mutated(LOGS[int(rng.integers(len(LOGS)))], rng))
        for read in attempted(path):
            errors = [f for f in read.findings if f.level == "error"]
            assert not errors, (seed, errors)
            for finding in read.findings:
                assert finding.rule != "log-fault" or re.search(r"\.jsonl(:\d+)?$", finding.file), (seed, finding)
