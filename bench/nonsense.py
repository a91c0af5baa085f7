"""Agents that answer nonsense and tools that fail, in every way that has been thought of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from podium.harness.run import Ran, run
from podium.harness.team import Role, Team
from podium.harness.tools import Tool
from podium.harness.types import Call, Did, Fault, Return, See, Send, Spawn, Stop

__all__ = ["AGENTS", "TOOLS", "with_agent", "with_tool"]


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class _Late(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def _deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


def _circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def _raises(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


async def _exits() -> Any:
    raise SystemExit(3)


def _recursion() -> Any:
    return _recursion()


ANSWERS: dict[str, Callable[[], Any]] = {
    "a number": lambda: 7,
    "a class": lambda: Return,
    "an object": object,
    "something unprintable": _Unprintable,
    "bytes": lambda: b"\xff\xfe",
    "an object in a return": lambda: Return(content=object()),
    "a function in a message": lambda: Send(to="lead", content=print),
    "nonsense, then an action": lambda: [7, Return(content=1)],
    "a circle": lambda: Return(content=_circle()),
    "something very deep": lambda: Return(content=_deep()),
    "a lone surrogate": lambda: Return(content="\ud800"),
    "negative tokens": lambda: Did("x", tokens_in=-1),
    "tokens that are no number": lambda: Did("x", tokens_out="many"),  # type: ignore[arg-type]
    "a role that is no string": lambda: Spawn(role=7, task=1),  # type: ignore[arg-type]
    "arguments that are no dict": lambda: Call(tool="x", args=[1]),  # type: ignore[arg-type]
    "an exception": _raises(ValueError("it fell")),
    "an exception with a lone surrogate": _raises(OSError(2, "No such file", "\udcff")),
    "an exception that cannot be shown": _raises(_Late()),
    "a group of exceptions": _raises(ExceptionGroup("many", [ValueError("one"), KeyError("two")])),
    "an exit": _raises(SystemExit(3)),
    "an exit in a task of its own": lambda: asyncio.gather(_exits()),
    "an interrupt": _raises(KeyboardInterrupt()),
    "an exit of generators": _raises(GeneratorExit()),
    "an exception of the lowest kind": _raises(BaseException("low")),
    "a stop of iteration": _raises(StopIteration()),
    "endless recursion": _recursion,
    "a cancellation": _raises(asyncio.CancelledError()),
    "a generator": lambda: (i for i in range(3)),
    "a fault of its own": _raises(Fault("odd", "as it pleases")),
}
AGENTS = dict(ANSWERS)
TOOLS: dict[str, Callable[[], Any]] = {
    name: ANSWERS[name]
    for name in ANSWERS
    if name.startswith(("an exc", "a group", "an exit", "an interrupt", "a stop", "endless", "a cancel", "a fault"))
} | {
    "a result that JSON cannot say": object,
    "a circle": _circle,
    "something very deep": _deep,
    "something unprintable": _Unprintable,
    "a lone surrogate": lambda: "\ud800",
    "an operating system's error": _raises(FileNotFoundError(2, "No such file")),
    "too little memory": _raises(MemoryError()),
}


async def _hires(see: See) -> Any:
    if not see.turn:
        return Spawn(role="worker", task="go")
    return Stop(answer=[[i.fault, str(i.content)] for i in see.items("return")])


def with_agent(answer: Callable[[], Any]) -> Ran:
    """A team whose only worker answers so."""

    async def worker(see: See) -> Any:
        said = answer()
        return await said if asyncio.isfuture(said) else said

    return run(Team("nonsense", Role(_hires, spawns=("worker",)), {"worker": Role(worker, seconds=5)}), "go")


def with_tool(answer: Callable[[], Any]) -> Ran:
    """A team whose lead calls a tool that fails so."""

    async def lead(see: See) -> Any:
        if not see.turn:
            return Call(tool="act")
        return Stop(answer=[[i.fault, str(i.content)] for i in see.new])

    return run(Team("fails", lead, tools=[Tool("act", answer, seconds=5)]), "go")
