"""Work that must be over in time, whatever it does when it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from podium.harness.types import Fault

__all__ = ["Bounded"]


class Bounded:
    """Runs coroutines each within its seconds. One that is late is cancelled and left behind; `end` sees them off."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._strays: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Any], seconds: float | None, what: str) -> Any:
        """What the work comes to. Raises Fault("timeout") where it takes too long, Fault("cancelled") where it cancels
        itself."""
        task = self._loop.create_task(work)
        over = self._loop.create_future()

        def finish(_: Any = None) -> None:
            if not over.done():
                over.set_result(None)

        task.add_done_callback(finish)
        timer = None if seconds is None else self._loop.call_later(seconds, finish)
        try:
            await over
        except asyncio.CancelledError:
            self._leave(task)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if not task.done():
            self._leave(task)
            raise Fault("timeout", f"{what} took more than {seconds:g} s", retry=True)
        if task.cancelled():
            raise Fault("cancelled", f"{what} was cancelled", retry=True)
        return task.result()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        if not task.done():
            task.cancel()
            self._strays.add(task)
            task.add_done_callback(self._seen_off)

    def _seen_off(self, task: asyncio.Task[Any]) -> None:
        self._strays.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it any more

    async def end(self, tasks: set[asyncio.Task[Any]], grace: float = 1.0) -> int:
        """Cancels these tasks and all that was left behind, and waits for them a while: how many do not heed it."""
        for task in tasks:
            self._leave(task)
        for _ in range(3):
            if not self._strays:
                return 0
            for task in self._strays:
                task.cancel()
            await asyncio.wait(set(self._strays), timeout=grace / 3)
        for task in self._strays:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was told often enough
        return len(self._strays)
