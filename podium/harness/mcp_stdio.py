"""Messages to and from an MCP server that is a process: one line of JSON each, by its standard streams."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import deque
from contextlib import suppress
from typing import Any

import msgspec

from podium.harness.types import Fault
from podium.trace.depth import TOO_DEEP, is_deep

__all__ = ["Stdio"]

LARGEST = 16 << 20  # bytes of a line
INHERITED = ("PATH", "HOME", "LANG")
PATIENCE = 1.0  # seconds that a server has to end by itself, and again for what it started
MOST_REQUESTS = 10_000  # of a server to its client, of which it needs none
MOST_UNREAD = 1 << 16  # bytes of answers that a server has yet to read; further requests get none
_encode, _decode = msgspec.json.encode, msgspec.json.decode
_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')


class Stdio:
    """A process that is asked by lines. Whoever waits is told when it ends."""

    def __init__(self, command: list[str], env: dict[str, str], folder: str | None) -> None:
        self.command, self.folder = command, folder
        self.env = {name: os.environ[name] for name in INHERITED if name in os.environ} | env
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._complaints: deque[bytes] = deque(maxlen=20)
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: Fault | None = None
        self._requests = 0

    async def start(self) -> None:
        if not self.command:
            raise Fault("mcp unreachable", "cannot start a server: its command is empty")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self.env,
                cwd=self.folder,
                limit=LARGEST,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise Fault("mcp unreachable", f"cannot start {' '.join(self.command)!r}: {error}") from None
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._complain())]

    def agreed(self, version: str) -> None:
        del version  # nothing in what is sent depends on it

    def forget(self, request: int) -> None:
        """Says that nobody waits for an answer any more."""
        params = {"requestId": request, "reason": "nobody waits for it"}
        if self._ended is None and self._process.stdin and not self._process.stdin.is_closing():
            message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            self._process.stdin.write(_encode(message) + b"\n")

    async def ask(self, message: dict[str, Any], seconds: float) -> Any:
        if self._ended is not None:
            raise self._ended
        answer = self._waiting[message["id"]] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self.tell(message)
                return await answer
        except TimeoutError:
            raise Fault("mcp stalled", f"no answer to {message['method']} within {seconds:g} s", True) from None
        finally:
            self._waiting.pop(message["id"], None)

    async def tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(_encode(message) + b"\n")
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):
            raise self._ended or Fault("mcp dropped", "it reads no more") from None

    async def _listen(self) -> None:
        assert self._process.stdout
        why = "it ended"
        try:
            while line := await self._process.stdout.readline():
                self._take(line)
                if self._requests > MOST_REQUESTS:
                    why = f"it asked its client for more than {MOST_REQUESTS} things"
                    break
                await asyncio.sleep(0)  # a server that never stops writing must not stop our clock
        except ValueError:
            why = f"it wrote a line of more than {LARGEST} bytes"
        await asyncio.wait({self._tasks[1]}, timeout=0.2)  # it may yet say why
        last_words = b"".join(self._complaints).decode(errors="replace").strip()[-300:]
        self._ended = Fault("mcp dropped", f"{why}{': ' + last_words if last_words else ''}")
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._ended)

    def _take(self, line: bytes) -> None:
        """A line that is no message is passed over, as servers that print do write some."""
        if is_deep(line):
            self._refuse(line)
            return
        try:
            reply = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._complaints.append(b"(not JSON) " + line[:200])
            return
        for one in reply if isinstance(reply, list) else [reply]:
            if not isinstance(one, dict):
                continue
            number = one.get("id")
            if "method" in one and "id" in one:
                self._decline(one)
            elif isinstance(number, int) and (answer := self._waiting.get(number)) and not answer.done():
                answer.set_result(one)

    def _decline(self, request: dict[str, Any]) -> None:
        """Answers a request of the server, if it reads what was answered before."""
        self._requests += 1
        stdin = self._process.stdin
        if stdin and not stdin.is_closing() and stdin.transport.get_write_buffer_size() < MOST_UNREAD:
            stdin.write(_encode(declined(request)) + b"\n")

    def _refuse(self, line: bytes) -> None:
        """Whoever waits for an answer that this line may be is told that it cannot be read."""
        numbers = {int(number) for number in _ID.findall(line)}
        for number, answer in self._waiting.items():
            if number in numbers and not answer.done():
                answer.set_exception(Fault("mcp nonsense", f"an answer that is {TOO_DEEP}"))
        self._complaints.append(b"(nested too deeply) " + line[:200])

    async def _complain(self) -> None:
        assert self._process.stderr
        while piece := await self._process.stderr.read(1 << 12):
            self._complaints.append(piece)

    async def close(self) -> None:
        """Hangs up; a server that does not end then is ended, and what it started with it."""
        process = self._process
        if process.stdin:
            process.stdin.close()
        gone = asyncio.create_task(self._gone())
        await asyncio.wait({gone}, timeout=PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait({gone}, timeout=PATIENCE)
        if not gone.done():  # what it started in a session of its own still holds its streams
            for task in (gone, *self._tasks):
                task.cancel()
            await asyncio.gather(gone, *self._tasks, return_exceptions=True)
            process._transport.close()  # type: ignore[attr-defined]

    async def _gone(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._process.stdout
        while await self._process.stdout.read(1 << 16):
            pass
        await self._process.wait()


def declined(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to what a server asks of its client: yes to a ping, no to anything else."""
    if request["method"] == "ping":
        return {"jsonrpc": "2.0", "id": request["id"], "result": {}}
    error = {"code": -32601, "message": f"podium does not answer {request['method']}"}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}
