"""What the harness costs, and whether its runs replay and survive faults: `python -m bench.harness [--full] [--json]`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from bench import harness_faults, harness_replay, table
from bench.table import Row, at_least, at_most, fact
from podium.harness.run import run
from podium.harness.team import Role, Team
from podium.harness.tools import tool
from podium.harness.types import Aggregate, Call, Return, See, Spawn, Stop

__all__ = ["fan_out", "measure", "plain", "scale"]

ROOT = Path(__file__).parents[1]


@tool(effect="pure")
def double(x: int) -> int:
    return 2 * x


def fan_out(agents: int, steps: int) -> Team:
    """A lead and so many workers, each of which takes so many steps: a call of a tool in each but the last."""

    async def lead(see: See) -> Any:
        if see.turn == 0:
            return [Spawn(role="worker", task=i) for i in range(agents)]
        return [Aggregate(how="total"), Stop()]

    return Team("fan-out", lead, {"worker": Role(worker_of(steps))}, [double], "swarm")


def worker_of(steps: int) -> Any:
    async def worker(see: See) -> Any:
        await asyncio.sleep(0)
        if see.turn < steps - 1:
            return Call(tool="double", args={"x": see.turn})
        return Return(content=see.new[-1].content)

    return worker


async def plain(agents: int, steps: int) -> int:
    """The same workers, tool and time limits in asyncio alone, nothing recorded."""
    act = worker_of(steps)

    async def one(i: int) -> int:
        last: Any = None
        see = See(f"worker-{i}", "worker", "lead", i, None, 0, [], [], [], (), ("double",), 1, None, 0)
        for see.turn in range(steps):
            async with asyncio.timeout(60.0):
                did = await act(see) if see.turn < steps - 1 else await _last(last)
            if isinstance(did, Call):
                last = double.run(**did.args)
        return int(last)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(i)) for i in range(agents)]
    return sum(t.result() for t in tasks)


async def _last(value: Any) -> Any:
    await asyncio.sleep(0)
    return Return(content=value)


def scale(agents: int, steps: int, folder: str) -> dict[str, Any]:
    """One run of the harness: seconds of this process and of the clock, what it came to, and its steps."""
    start, cpu = perf_counter(), process_time()
    ran = run(fan_out(agents, steps), "go", folder=folder)
    told = {"cpu": process_time() - cpu, "s": perf_counter() - start}
    return told | {"answer": ran.answer, "steps": ran.metrics["steps"]}


def _apart(code: str, *words: object) -> dict[str, Any]:
    """What a piece of Python says, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


RUN = """
import json, sys
from bench.harness import scale
told = scale(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
told["peak"] = next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(json.dumps(told))
"""
PLAIN = """
import asyncio, json, sys
from time import process_time
from bench.harness import plain
start = process_time()
answer = asyncio.run(plain(int(sys.argv[1]), int(sys.argv[2])))
print(json.dumps({"cpu": process_time() - start, "answer": answer}))
"""
LANGGRAPH = """
import json, sys
from bench.langgraph_team import fan_out
print(json.dumps(fan_out(int(sys.argv[1]), int(sys.argv[2]))))
"""


def _scale(full: bool, folder: Path) -> list[Row]:
    from podium.trace.files import read

    agents, steps, few, rounds = (1000, 20, 10, 5) if full else (20, 5, 5, 1)
    total = agents * steps
    many: list[dict[str, Any]] = []
    small, alone = [], []
    for i in range(rounds):  # taking turns, the best of each: another program's burst of work only adds
        many.append(_apart(RUN, agents, steps, folder / f"many{i}"))
        small.append(_apart(RUN, few, total // few, folder / f"few{i}")["cpu"])
        alone.append(_apart(PLAIN, agents, steps)["cpu"])
    (one,) = read(folder / "many0")
    clean = not one.findings and one.trace is not None
    best, plain_s = min(m["cpu"] for m in many), min(alone)
    finished = many[0]["steps"] >= total and many[0]["answer"] == agents * 2 * (steps - 2)
    rows = [
        at_least("8.1.finishes", f"a run with {agents:,} sub-agents and {many[0]['steps']:,.0f} steps finishes, all rules kept", float(finished and clean), 1.0, "exact"),
        at_most("8.1.memory", "GB at its peak", max(m["peak"] for m in many) / 1e9, 1.0, "size"),
        at_most("8.1.adds", "microseconds a step that the harness adds to asyncio alone", (best - plain_s) / total * 1e6, 60.0, "time"),
        at_most("8.1.ratio", "times as long as asyncio alone in the same run", best / plain_s, 6.0, "time"),
        fact("8.1.plain", "microseconds a step in asyncio alone, nothing recorded", plain_s / total * 1e6),
        fact("8.1.s", "seconds of the clock for the run, writing to disk included", min(m["s"] for m in many)),
        at_most("8.1.growth", f"cost per step with {agents:,} agents over that with {few} that take as many steps in all", best / min(small), 1.25, "time"),
    ]  # fmt: skip
    return rows + _langgraph(full)


def _langgraph(full: bool) -> list[Row]:
    agents, steps = (1000, 20) if full else (10, 5)
    try:
        told = _apart(LANGGRAPH, agents, steps)
    except AssertionError as error:
        if "No module named" in str(error):
            return []
        raise
    what = f"microseconds a step in LangGraph {told['version']} on the same fan-out of {agents:,}, nothing recorded"
    return [fact("8.1.langgraph", what, told["s"] / (agents * steps) * 1e6)]


def _readable() -> list[Row]:
    team = (ROOT / "examples/research_team.py").read_text().splitlines()
    page = (ROOT / "docs/harness.md").read_text()
    own = page.split("<!-- an agent of your own -->")[1].split("```")[1].splitlines()[1:]
    return [
        at_most("8.5.team", "lines of the centralised research team", len(team), 40, "exact"),
        at_most("8.5.agent", "lines in which a user's own async function becomes an agent", len([x for x in own if x.startswith((">>>", "..."))]), 3, "exact"),
    ]  # fmt: skip


def measure(full: bool) -> list[Row]:
    with TemporaryDirectory() as folder:
        rows = _scale(full, Path(folder))
    return rows + harness_replay.measure(full) + harness_faults.measure(full) + _readable()


if __name__ == "__main__":
    table.command(measure, __doc__)
