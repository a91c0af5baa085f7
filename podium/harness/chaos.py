"""Faults on purpose: a team whose agents and tools fail at random, to see that nothing worse comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from podium.harness.team import Team
from podium.harness.tools import Tool
from podium.harness.types import Agent, Caller, Fault, See

__all__ = ["AGENT_FAULTS", "TOOL_FAULTS", "Injected", "injured"]

AGENT_FAULTS = (
    "exception",
    "transient",
    "timeout",
    "nonsense",
    "cancelled",
    "crash",
    "straggler",
    "killed",
    "deaf",
)
TOOL_FAULTS = ("exception", "timeout", "nonsense", "cancelled", "crash")


class Injected(NamedTuple):
    """A fault that was done to someone."""

    kind: str
    agent: str
    turn: int  # -1 for a call
    tool: str | None


def injured(
    team: Team,
    seed: int,
    rate: float,
    log: list[Injected],
    kinds: Sequence[str] = AGENT_FAULTS,
    jitter: float = 0.002,
) -> Team:
    """The same team, where a step or a call goes wrong with this probability, and each takes a random while. What
    was done is written into the log. Which steps go wrong depends on the seeds alone."""
    settings: dict[str, Any] = {"seconds": 0.1, "retries": 1}
    roles = {
        n: replace(r, agent=_hurt(r.agent, seed, rate, log, kinds, jitter), **settings)
        for n, r in team.cast.items()
    }
    agent = _hurt(team.leader.agent, seed, rate / 4, log, kinds, jitter)
    lead = replace(team.leader, agent=agent, patience=(0.03, 0.4)[seed % 2], **settings)
    tools = [_hurt_tool(t, seed, rate, log, jitter) for t in team.toolbox]
    return replace(team, lead=lead, roles=roles, tools=tools)


def _hurt(agent: Agent, seed: int, rate: float, log: list[Injected], kinds: Sequence[str], jitter: float) -> Agent:
    async def hurt(see: See) -> Any:
        dice = Random(see.seed ^ seed)
        await asyncio.sleep(dice.random() * jitter)
        if dice.random() >= rate:
            return await agent(see)
        kind = dice.choice(list(kinds))
        log.append(Injected(kind, see.name, see.turn, None))
        return await _suffer(kind)

    return hurt


async def _suffer(kind: str) -> Any:
    match kind:
        case "exception":
            raise RuntimeError("something broke")
        case "transient":
            raise Fault("transient", "try again", retry=True)
        case "timeout":
            await asyncio.sleep(60.0)
        case "straggler":
            await asyncio.sleep(0.04)
            return None
        case "nonsense":
            return object()
        case "cancelled":
            raise asyncio.CancelledError
        case "crash":
            raise SystemExit(3)
        case "killed":
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(60.0)
        case "deaf":  # it hears that it is late, and takes its time
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                await asyncio.sleep(0.02)
    return None


def _hurt_tool(tool: Tool, seed: int, rate: float, log: list[Injected], jitter: float) -> Tool:
    async def hurt(caller: Caller, **args: Any) -> Any:
        dice = Random(caller.seed ^ seed ^ 0x5EED)
        await asyncio.sleep(dice.random() * jitter)
        if dice.random() >= rate:
            answer = tool.run(*([caller] if tool.caller else []), **args)
            return await answer if asyncio.iscoroutine(answer) else answer
        kind = dice.choice(TOOL_FAULTS)
        log.append(Injected(kind, caller.agent, -1, tool.name))
        return await _suffer(kind)

    return replace(tool, run=hurt, caller=True, seconds=0.08)
