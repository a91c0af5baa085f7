"""Runs with every kind of fault injected at random: none hangs, everything is on record, nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench import table
from bench.harness_replay import mixed
from bench.table import Row, at_least, at_most, fact
from podium.harness.budget import Budget
from podium.harness.chaos import Injected
from podium.harness.run import play
from podium.harness.team import Role, Team
from podium.harness.types import Did, See
from podium.trace.columns import Trace
from podium.trace.files import read

__all__ = ["faulty", "measure", "missing", "overspent"]

PATIENCE_S = 60.0  # a run that takes less than a second and is not over by then hangs, on a busy machine too
KIND = {"deaf": "timeout", "killed": "cancelled"}  # under which name a fault is recorded


def spending(team: Team) -> Team:
    """The same team, in which every step uses ten tokens and a cent."""

    def spend(role: Role) -> Role:
        async def agent(see: See) -> Any:
            did = await role.agent(see)
            return did if isinstance(did, Did) or did.__class__ is object else Did(did, tokens_out=10, cost=0.01)

        return replace(role, agent=agent)

    roles = {name: spend(role) for name, role in team.cast.items()}
    return replace(team, lead=spend(team.leader), roles=roles)


def faulty(folder: Path, i: int) -> dict[str, Any]:
    """Run number i, with faults: what is wrong with it."""
    log: list[Injected] = []
    team = spending(mixed(i, log, 0.3))
    if i % 5 == 3:
        team = replace(team, budget=Budget(tokens=100, cost=0.15))
    before, start = _processes(), perf_counter()
    left, hung = asyncio.run(_played(team, i, folder / f"run{i}"))
    seconds = perf_counter() - start
    (one,) = read(folder / f"run{i}")
    assert one.trace is not None
    return {
        "hung": hung,
        "seconds": seconds,
        "findings": len(one.findings),
        "faults": len(log),
        "kinds": Counter(f"{x.kind}{' of a tool' if x.tool else ''}" for x in log),
        "missing": len(missing(one.trace, log)),
        "overspent": overspent(one.trace, team.budget),
        "left": left + len(_processes() - before),
    }


async def _played(team: Team, seed: int, folder: Path) -> tuple[int, bool]:
    """How many tasks are left when a run is over, and whether it had to be ended."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await play(team, seed=seed, folder=folder)
        hung = False
    except TimeoutError:
        hung = True
    return len(asyncio.all_tasks()) - 1, hung


def _processes() -> set[str]:
    """The processes that this one has started and that are there."""
    found = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        found |= set((task / "children").read_text().split())
    return found


def _extra(trace: Trace, name: str) -> list[Any]:
    text = trace.extra_e.get(name)
    if text is None:
        return [None] * trace.n_events
    return [None if s is None else json.loads(s) for s in text.strings()]


def missing(trace: Trace, log: list[Injected]) -> list[Injected]:
    """Faults that were done to agents and tools and are not on record."""
    at, faults, steps = _extra(trace, "at"), _extra(trace, "fault"), _extra(trace, "step")
    names, tools = trace.name_a.strings(), trace.tool_e.strings()
    there: Counter[tuple[Any, ...]] = Counter()
    for e in range(trace.n_events):
        if tools[e] is not None and int(trace.to_e[e]) >= 0 and faults[e]:
            kind = "cut" if faults[e].get("cut") else faults[e]["kind"]
            there[kind, names[int(trace.to_e[e])], tools[e]] += 1
        elif steps[e] is not None and faults[e]:
            kind = "cut" if steps[e].get("cut") else faults[e]["kind"]
            there[kind, names[int(trace.agent_e[e])], str(at[e])] += 1
    lost = []
    for fault in log:
        spot = fault.tool if fault.tool is not None else str(fault.turn)
        for kind in (KIND.get(fault.kind, fault.kind), "cut"):
            if there[kind, fault.agent, spot]:
                there[kind, fault.agent, spot] -= 1
                break
        else:
            if fault.kind != "straggler":  # which is only slow, unless it is cut
                lost.append(fault)
    return lost


def overspent(trace: Trace, budget: Budget) -> int:
    """Steps that began after a budget was used up, and agents beyond what it allows."""
    steps, hits = _extra(trace, "step"), _extra(trace, "hit")
    begun = [e for e in range(trace.n_events) if steps[e] is not None and hits[e] is None]
    over = max(0, len(begun) - budget.steps) if budget.steps is not None else 0
    ends = sorted((float(steps[e].get("end", trace.t_e[e])), e) for e in begun)
    for limit, column in ((budget.tokens, trace.tokens_out_e), (budget.cost, trace.cost_e)):
        spent, used_up = 0.0, float("inf")
        for end, e in ends:
            spent += 0.0 if column[e] != column[e] else float(column[e])
            if limit is not None and spent >= limit - 1e-9:
                used_up = end
                break
        over += sum(float(trace.t_e[e]) > used_up for e in begun)
    spawned = [trace.name_a[int(a)] or "" for a in trace.to_e[trace.type_e == 1]]
    if budget.agents is not None:
        over += max(0, len(spawned) - budget.agents)
    if budget.depth is not None:
        over += sum(name.count("/") + 1 > budget.depth for name in spawned)
    if budget.seconds is not None:
        over += sum(float(trace.t_e[e]) > budget.seconds for e in begun)
    return over


def measure(full: bool) -> list[Row]:
    runs = 300 if full else 12
    with TemporaryDirectory() as folder:
        told = [faulty(Path(folder), i) for i in range(runs)]
    kinds = sum((t["kinds"] for t in told), Counter[str]())
    faults = sum(t["faults"] for t in told)
    return [
        at_most("8.3.hang", f"of {runs} runs with every kind of fault injected at random, those that hang", sum(t["hung"] for t in told), 0, "exact"),
        at_most("8.3.rules", "findings of all rules in their traces", sum(t["findings"] for t in told), 0, "exact"),
        at_most("8.3.missing", f"faults missing from the traces, of {faults:,} of {len(kinds)} kinds injected", sum(t["missing"] for t in told), 0, "exact"),
        at_most("8.3.budget", "steps begun and agents spawned beyond a budget", sum(t["overspent"] for t in told), 0, "exact"),
        at_most("8.3.left", "tasks and processes left behind", sum(t["left"] for t in told), 0, "exact"),
        at_least("8.3.kinds", "kinds of fault among them", len(kinds), 14, "sampled"),
        fact("8.3.slowest", "seconds of the slowest run", max(t["seconds"] for t in told)),
    ]  # fmt: skip


if __name__ == "__main__":
    table.command(measure, __doc__)
