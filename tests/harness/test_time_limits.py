"""Every call of a tool ends at its limit of time, whatever the tool does: it waits, blocks the event loop, or a thread."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from podium.harness import Call, Ran, See, Stop, Team, run
from podium.harness.tools import Tool


def spins() -> None:
    while True:
        pass


def deaf() -> None:
    stop = time.monotonic() + 1.0
    while time.monotonic() < stop:
        try:
            time.sleep(5)
        except BaseException:
            continue


async def waits() -> None:
    await asyncio.sleep(60)


def called(tool: Tool) -> Ran:
    async def lead(see: See) -> Any:
        return Stop(answer=[i.fault for i in see.new]) if see.turn else Call(tool=tool.name)

    return run(Team("late", lead, tools=[tool]), "go")


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("work", [spins, lambda: time.sleep(60), waits], ids=["spins", "sleeps", "waits"])
def test_a_call_ends_at_its_limit(work: Callable[[], Any], thread: bool) -> None:
    if thread and work is spins:
        pytest.skip("a thread that never ends would take a core of the tests that follow")
    start = time.monotonic()
    handler = signal.getsignal(signal.SIGALRM)
    assert called(Tool("late", work, thread=thread, seconds=0.2)).answer == ["timeout"]
    assert time.monotonic() - start < 30  # of sixty
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_tool_that_catches_everything_is_told_again() -> None:
    assert called(Tool("late", deaf, seconds=0.2)).answer in (["timeout"], [None])


def test_a_harness_beside_the_main_thread_keeps_its_limits() -> None:
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(called(Tool("late", lambda: time.sleep(3), seconds=0.2)).answer)
    )
    thread.start()
    thread.join(60)
    assert answers == [["timeout"]]


def test_a_threaded_tool_answers_what_it_returns_or_raises() -> None:
    async def later() -> int:
        return 7

    assert called(Tool("fine", lambda: 7, thread=True)).answer == [None]
    assert called(Tool("fine", lambda: later(), thread=True)).answer == [None]
    assert called(Tool("bad", lambda: 1 / 0, thread=True)).answer == ["exception"]
