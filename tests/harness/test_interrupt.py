"""A run that someone ends: its record is whole, says so, and replays; one that is killed loses no more than half a second."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from podium.harness import Interrupted, Return, See, Spawn, Stop, Team, replay, run
from podium.harness.run import FLUSH
from podium.trace.files import load, read

HANGS = 120.0  # seconds after which a verb is taken to hang
TEAM = """
import asyncio
from podium.harness import Call, Spawn, Stop, Team, tool

@tool(effect="pure")
async def nap():
    await asyncio.sleep(0.01)

async def lead(see):
    return [Spawn(role="hand", task=i) for i in range(3)] if see.turn == 0 else Stop()

async def hand(see):
    await asyncio.sleep(0.01)
    return Call(tool="nap")

team = Team("endless", lead, {"hand": hand}, [nap], verify=lambda task, answer: 1.0)
"""


def begun(folder: Path, *words: object) -> subprocess.Popen[str]:
    """A verb that has begun to write its record in a folder."""
    command = [sys.executable, "-m", "podium.cli", *map(str, words), "--out", str(folder)]
    verb = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder.parent)
    until = time.monotonic() + HANGS
    while time.monotonic() < until and len(lines(folder)) < 5:
        time.sleep(0.05)
    return verb


def lines(folder: Path) -> list[str]:
    record = folder / "w0.jsonl"
    return record.read_text().splitlines() if record.exists() else []


def latest(folder: Path) -> float:
    """When the last event on record that is whole happened, by the run's own clock."""
    whole = [line for line in lines(folder) if line.endswith("}")]
    return float(json.loads(whole[-1]).get("t", 0.0)) if whole else 0.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_in_order(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(TEAM)
    verb = begun(tmp_path / "run", "run", "endless.py:team")
    verb.send_signal(number)
    said, wrong = verb.communicate(timeout=HANGS)
    assert (verb.returncode, said) == (128 + number, "")
    assert wrong == f"podium: interrupted by {number.name}; the record until then: {tmp_path / 'run'}\n"
    (one,) = read(tmp_path / "run")
    assert one.findings == []
    assert one.trace is not None
    assert (one.trace.metric_n["interrupted"][0], one.trace.reward_n) == (1, {})  # and it is not scored
    ends = [json.loads(why) for why in one.trace.extra_e["fault"].strings() if why is not None]
    assert {"kind": "interrupted", "why": f"by {number.name}"} in ends


def test_a_killed_run_has_its_record_until_just_before(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(TEAM)
    verb = begun(tmp_path / "run", "run", "endless.py:team")
    until = time.monotonic() + HANGS
    while (
        time.monotonic() < until and not latest(tmp_path / "run") > 4 * FLUSH
    ):  # written while it runs, not when it ends
        time.sleep(0.05)
    before = latest(tmp_path / "run")
    verb.kill()
    verb.communicate(timeout=HANGS)
    assert latest(tmp_path / "run") >= before > 4 * FLUSH
    replayed = begun(
        tmp_path / "again", "replay", tmp_path / "run", "--team", "endless.py:team"
    )  # from where it was torn on, it runs live
    replayed.send_signal(signal.SIGINT)
    _, wrong = replayed.communicate(timeout=HANGS)
    assert (replayed.returncode, "Traceback" in wrong) == (130, False)
    assert load(tmp_path / "again").metric_n["interrupted"][0] == 1


def test_an_interrupted_run_replays(tmp_path: Path) -> None:
    async def lead(see: See) -> Any:
        if see.turn == 0:
            return [Spawn(role="hand", task=1), Spawn(role="hand", task=2)]
        return Stop(answer=see.returns)

    async def hand(see: See) -> Any:
        if see.task == 2:
            Thread(target=signal.raise_signal, args=[signal.SIGINT]).start()
            await asyncio.sleep(60)
        return Return(content=see.task)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    team = Team("cut", lead, {"hand": hand})
    with pytest.raises(Interrupted) as told:
        run(team, folder=tmp_path / "a")
    assert told.value.number == signal.SIGINT
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    (one,) = read(tmp_path / "a")
    assert one.findings == []
    assert one.trace is not None
    replay(team, one.trace, folder=tmp_path / "b")
    assert (tmp_path / "a/w0.jsonl").read_bytes() == (tmp_path / "b/w0.jsonl").read_bytes()


def test_a_run_in_another_thread_leaves_signals_alone() -> None:
    async def lead(see: See) -> Any:
        return "done"

    answers: list[Any] = []
    thread = Thread(target=lambda: answers.append(run(Team("thread", lead)).answer))
    thread.start()
    thread.join()
    assert answers == ["done"]
