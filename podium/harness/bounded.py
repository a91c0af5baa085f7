"""Work that must be over in time, whatever it does when it is told to stop."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from podium.harness.types import Fault

__all__ = ["Bounded", "in_thread", "interrupted"]


class _Late(BaseException):
    pass


@contextmanager
def interrupted(seconds: float | None, what: str) -> Iterator[None]:
    """Ends what blocks the main thread for longer, by SIGALRM, again every tenth of a second.
    Raises Fault("timeout")."""
    if seconds is None:
        yield
        return
    at_work = True

    def interrupt(*_: Any) -> None:
        if at_work:
            raise _Late

    handler, timer = signal.signal(signal.SIGALRM, interrupt), signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
    try:
        yield
    except _Late:
        raise Fault("timeout", f"{what} took more than {seconds:g} s", retry=True) from None
    finally:
        at_work = False
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """What the work comes to, in a thread of its own, which nobody waits for when the program ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def set_result(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(work)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(set_result, result, error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Bounded:
    """Runs coroutines, each within its seconds. A late one is cancelled and left behind; `end` waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._strays: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Any], seconds: float | None, what: str) -> Any:
        """What the work comes to. Raises Fault("timeout") where it takes too long, and Fault("cancelled") where it
        cancels itself."""
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
