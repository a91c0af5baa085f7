"""What recording costs, and whether a log of ten million events is checked in bounded memory:
`python -m bench.record [--full] [--json]`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec

from bench import table
from bench.generate import trace
from bench.table import Row, at_least, at_most, best, calibration, exponent, fact
from podium.trace import Recorder, log
from podium.trace.files import read

__all__ = ["crowd", "kills", "long_log", "measure"]


def measure(full: bool) -> list[Row]:
    with TemporaryDirectory() as folder:
        rows = [*_cost(Path(folder), 1_000_000 if full else 10_000), *_crowd(Path(folder), full)]
        rows += _kills(Path(folder), 200 if full else 12)
        rows += _long(Path(folder), 10_000_000 if full else 10_000)
    return rows


def _cost(folder: Path, n: int) -> list[Row]:
    turn = iter(range(10**6))

    def recorded(n: int = n) -> None:
        with Recorder(folder / f"run{next(turn)}") as record:
            cause = record.add("orchestrator_decision", "lead", role="lead")
            for _ in range(n):
                cause = record.add("message", "agent-12", to="agent-7", role="worker", after=[("causal", cause)])

    def written() -> None:
        with open(folder / "plain", "wb") as f:
            for i in range(n):
                row = {"n": i, "t": i * 1.2345678901234, "type": "message", "agent": "agent-12", "to": "agent-7"}
                row |= {"from": "agent-12", "role": "worker", "after": [["causal", i]]}
                f.write(msgspec.json.encode(row))

    mine, plain = best(5, recorded, written)
    sizes = [n // 100, n // 10, n]
    growth = exponent(sizes, [best(3, lambda n=m: recorded(n))[0] for m in sizes])
    return [
        at_most("2.3.exponent", f"growth of the time to record, {sizes[0]:,} to {n:,} events", growth, 1.1, "time"),
        at_most(
            "2.3.record.us",
            "microseconds to record an event, closing the file included",
            mine / n * 1e6,
            5.0,
            "time",
        ),
        at_most(
            "2.3.record.ratio", "the same over file.write(msgspec.json.encode(row))", mine / plain, 4.0, "time"
        ),
        calibration("2.3", n >= 10**6),
    ]


def crowd(folder: Path, events: int, agents: int = 1000, threads: int = 16, processes: int = 4) -> int:
    """One run written at once by agents under asyncio, by threads and by processes; how many events it should have."""
    record = Recorder(folder, trace_id="crowd", task_id="crowd")
    root = record.add("orchestrator_decision", "lead")
    record.flush()

    async def agent(name: str) -> None:
        cause = root
        for _ in range(events):
            cause = record.add("message", name, after=[("causal", cause)])
            await asyncio.sleep(0)

    async def all_agents() -> None:
        await asyncio.gather(*(agent(f"task-{i}") for i in range(agents)))

    def thread(name: str) -> None:
        cause = root
        for _ in range(events):
            cause = record.add("message", name, after=[("causal", cause)])

    others = [threading.Thread(target=thread, args=(f"thread-{i}",)) for i in range(threads)]
    context = get_context("spawn")
    joined = [
        context.Process(target=_process, args=(str(folder), root, f"process-{i}", events)) for i in range(processes)
    ]
    for worker in [*joined, *others]:
        worker.start()
    asyncio.run(all_agents())
    for worker in [*others, *joined]:
        worker.join()
    if any(p.exitcode for p in joined):
        raise AssertionError(f"a process failed: {[p.exitcode for p in joined]}")
    record.close()
    return 1 + (agents + threads + processes) * events


def _process(folder: str, cause: Any, name: str, events: int) -> None:
    with Recorder(folder) as record:
        for _ in range(events):
            cause = record.add("message", name, after=[("causal", cause)])


def _crowd(folder: Path, full: bool) -> list[Row]:
    agents, threads, processes = (1000, 16, 4) if full else (100, 4, 2)
    start = perf_counter()
    expected = crowd(folder / "crowd", 20 if full else 4, agents, threads, processes)
    seconds = perf_counter() - start
    (one,) = read(folder / "crowd")
    assert one.trace is not None
    whole = one.trace.n_events == expected and one.trace.n_edges == expected - 1 and not one.findings
    writers = f"{agents:,} agents under asyncio, {threads} threads and {processes} processes"
    what = f"{writers} write one run: share of events there, all rules kept"
    return [
        at_least("2.3.crowd", what, one.trace.n_events / expected if whole else 0.0, 1.0, "exact"),
        fact("2.3.crowd.s", f"seconds for its {expected:,} events, starting the processes included", seconds),
    ]


def kills(folder: Path, number: int, seed: int = 0) -> tuple[int, int, int]:
    """Kills a recording process at random moments, again and again: how many of the runs loaded, how many events had
    been acknowledged, and how many of those are missing."""
    dice = random.Random(seed)
    loaded = safe = missing = 0
    for i in range(number):
        run = folder / f"kill{i}"
        acknowledged = _killed(run, dice.uniform(0.0, 0.03), dice.randrange(1, 40))
        if not list(run.glob("*.jsonl")):  # killed before there was a run
            loaded += not acknowledged
            continue
        found = list(read(run))
        loaded += not [f for one in found for f in one.findings if f.level == "error"]
        there = {name for one in found if one.trace is not None for name in one.trace.id_e.strings()}
        safe += len(acknowledged)
        missing += len([n for n in acknowledged if f"w0.{n}" not in there])
    return loaded, safe, missing


def _killed(run: Path, delay: float, burst: int) -> list[int]:
    """The numbers of the events of which a child that records until it is killed was told that they are safe."""
    told, say = os.pipe()
    child = os.fork()
    if not child:
        try:
            _record_for_ever(run, say, burst)
        finally:
            os._exit(1)
    os.close(say)
    deadline = perf_counter() + delay
    while perf_counter() < deadline:
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    heard = b""
    while piece := os.read(told, 1 << 16):
        heard += piece
    os.close(told)
    return [n for (n,) in struct.iter_unpack("<q", heard[: len(heard) // 8 * 8])]


def _record_for_ever(run: Path, say: int, burst: int) -> None:
    """Three threads record bursts of events, flush, and report the numbers of those that were flushed."""
    record = Recorder(run, trace_id="kill", task_id="kill")

    def bursts(name: str) -> None:
        while True:
            done = [record.add("message", name, content_ref="x" * 50) for _ in range(burst)]
            record.flush()
            os.write(say, b"".join(struct.pack("<q", n) for _, n in done))

    for i in range(2):
        threading.Thread(target=bursts, args=(f"agent-{i}",), daemon=True).start()
    bursts("agent-2")


def long_log(path: Path, n: int) -> None:
    """A log of one run of about n events: blocks of the generator's trace one after the other, each with agents of
    its own."""
    size = min(n, 100_000)
    lines = log.write(trace(size, ids="podium")).split(b"\n")
    block = [json.loads(line) for line in lines[1:-2]]
    seconds = block[-1]["t"] + 1.0
    encode = msgspec.json.Encoder().encode_lines
    with path.open("wb") as f:
        f.write(lines[0] + b"\n")
        for k in range(max(1, n // size)):
            f.write(encode(_shifted(block, k, len(block), seconds)))
        f.write(json.dumps({"podium_end": {"events": max(1, n // size) * len(block)}}).encode() + b"\n")


def _shifted(block: list[dict[str, Any]], k: int, rows: int, seconds: float) -> Iterator[dict[str, Any]]:
    for event in block:
        moved = event | {"n": event["n"] + k * rows, "t": event["t"] + k * seconds}
        for name in ("agent", "from", "to"):
            if name in event:
                moved[name] = f"{k}.{event[name]}"
        if "after" in event:
            moved["after"] = [[kind, n + k * rows] for kind, n in event["after"]]
        if "end" in event.get("podium", ()):
            moved["podium"] = event["podium"] | {"end": event["podium"]["end"] + k * seconds}
        yield moved


def _long(folder: Path, n: int) -> list[Row]:
    path = folder / "long.jsonl"
    long_log(path, n)
    start = perf_counter()
    command = [sys.executable, "-c", CHECK, str(path)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    seconds = perf_counter() - start
    if answer.returncode:
        raise AssertionError(f"podium check failed: {answer.stdout[-500:]}{answer.stderr[-500:]}")
    peak = float(answer.stdout.split()[-1]) / 1e9
    return [
        at_most("2.5.memory", f"GB at the peak of `podium check` on a log of {n:,} events", peak, 1.5, "size"),
        fact("2.5.size", "GB of that log", path.stat().st_size / 1e9),
        fact("2.5.s", "seconds it took", seconds),
    ]


CHECK = """
import sys
from podium.cli import app
try:
    app(["check", sys.argv[1]])
finally:
    print(next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM")))
"""


def _kills(folder: Path, number: int) -> list[Row]:
    loaded, safe, missing = kills(folder, number)
    return [
        at_least(
            "2.6.loaded",
            f"runs that load out of {number} killed with SIGKILL while recording",
            loaded,
            number,
            "exact",
        ),
        at_most("2.6.missing", f"events missing of {safe:,} that had been acknowledged", missing, 0, "exact"),
    ]


if __name__ == "__main__":
    table.command(measure, __doc__)
