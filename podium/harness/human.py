"""The door for people: a socket beside a run, at which they pause it, read what waits to be seen, change it, tell
agents something, and let the run go on. `python -m podium.harness.human SOCKET` is a terminal at it.

Who knocks is a fact: the operating system says which user is at the other end of the socket, and only the run's own
user can open it. All that a person does is recorded as a `human_intervention`.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from podium.errors import WrongUse
from podium.harness.types import Fault, Item, Running
from podium.plain import plain

__all__ = ["BadDoor", "door_at", "main", "terminal"]

HELP = """who                    the agents at work
waiting                what waits to be seen, each with its event
pause                  no further step begins
resume                 the run goes on
tell AGENT TEXT        tells an agent something
edit EVENT TEXT        changes something that waits to be seen
quit                   leaves; the run goes on as it is"""
LONGEST_LINE, LONGEST_PATH = 1 << 16, 107


class BadDoor(WrongUse, ValueError):
    """A door that cannot be opened where it was asked for."""


def door_at(path: str | Path, patience: float = 60.0) -> Callable[[Running], Awaitable[None]]:
    """A door for `play(team, door=...)`, at a socket that must not be there yet. A run that is paused, or in which
    everyone waits, is kept for `patience` seconds with nobody at the door; then it goes on, or ends."""
    at = Path(path)
    if len(os.fsencode(at)) > LONGEST_PATH:
        raise BadDoor(f"the path of a socket has at most {LONGEST_PATH} bytes; {str(at)!r} has more")
    _clear(at)

    async def door(running: Running) -> None:
        await _Door(at, patience, running).stand_open()

    return door


def _clear(at: Path) -> None:
    """Removes a socket that a run which was killed left behind."""
    if at.is_socket() and not _someone_is(at):
        at.unlink()
    if at.exists():
        raise BadDoor(f"expected a path for a new door, and {at} is there already")


def _someone_is(at: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.connect(str(at))
        except OSError:
            return False
    return True


class _Door:
    def __init__(self, at: Path, patience: float, running: Running) -> None:
        self.at, self.patience, self.running = at, patience, running
        self._guests: set[asyncio.Task[None]] = set()
        self._left: asyncio.TimerHandle | None = None

    async def stand_open(self) -> None:
        """Lets people in until the run is over."""
        self.at.parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self.at))
            os.chmod(self.at, 0o600)
        except OSError as error:
            listener.close()
            raise Fault("door", f"cannot open a door at {self.at}: {error.strerror}") from None
        server = await asyncio.start_unix_server(self._knock, sock=listener, limit=LONGEST_LINE)
        self._attend()
        try:
            await self.running.finished()
        finally:
            server.close()
            if self._left is not None:
                self._left.cancel()
            for guest in self._guests:
                guest.cancel()
            await asyncio.gather(*self._guests, return_exceptions=True)
            await server.wait_closed()
            self.at.unlink(missing_ok=True)

    async def _knock(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        guest = asyncio.current_task()
        assert guest
        self._guests.add(guest)
        self._attend()
        try:
            await self._converse(reader, writer, _user(writer.get_extra_info("socket")))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._guests.discard(guest)
            self._attend()
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    def _attend(self) -> None:
        """Someone came or left."""
        if self._left is not None:
            self._left.cancel()
            self._left = None
        if not self._guests:
            self._left = asyncio.get_running_loop().call_later(self.patience, self._give_up)
        self.running.attend(True)

    def _give_up(self) -> None:
        self.running.resume(f"nobody was at the door for {self.patience:g} s")
        self.running.attend(False)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, by: str) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                writer.write(b"no: a line of more than %d bytes\n" % LONGEST_LINE)
                return
            words = line.decode(errors="replace").strip()
            if not line or words == "quit":
                return
            if words:
                answer = map(plain, self._answer(words, by).split("\n"))  # agents said some of it
                writer.write(("\n".join(answer) + "\n").encode())
                await writer.drain()

    def _answer(self, words: str, by: str) -> str:
        """What the door says to a line; the last line is `ok`, or `no` and why."""
        verb, _, rest = words.partition(" ")
        try:
            answer = _VERBS[verb](self.running, rest.strip(), by) if verb in _VERBS else None
        except (ValueError, Fault) as error:
            return f"no: {error}"
        if answer is None:
            return f"no: {verb!r} is none of {', '.join(_VERBS)}"
        return f"{answer}\nok" if answer else "ok"


def _who(running: Running, rest: str, by: str) -> str:
    del rest, by
    return "\n".join(running.agents())


def _waiting(running: Running, rest: str, by: str) -> str:
    del rest, by
    return "\n".join(_line(to, item) for to, item in running.waiting())


def _line(to: str, item: Item) -> str:
    content = item.content if isinstance(item.content, str) else repr(item.content)
    shown = " ".join(content.split())
    doubt = " (from outside)" if item.trusted is False else ""
    return f"{item.event}  {item.kind} from {item.source} to {to}{doubt}: {shown[:200]}"


def _pause(running: Running, rest: str, by: str) -> str:
    del rest
    if running.paused:
        raise ValueError("the run is paused already")
    running.pause(by)
    return ""


def _resume(running: Running, rest: str, by: str) -> str:
    del rest
    if not running.paused:
        raise ValueError("the run is not paused")
    running.resume(by)
    return ""


def _tell(running: Running, rest: str, by: str) -> str:
    agent, _, text = rest.partition(" ")
    if not text:
        raise ValueError("expected: tell AGENT TEXT")
    running.inject(agent, text.strip(), by)
    return ""


def _edit(running: Running, rest: str, by: str) -> str:
    event, _, text = rest.partition(" ")
    if not text:
        raise ValueError("expected: edit EVENT TEXT")
    running.edit(event, text.strip(), by)
    return ""


def _help(running: Running, rest: str, by: str) -> str:
    del running, rest, by
    return HELP


_VERBS: dict[str, Callable[[Running, str, str], str]] = {
    "who": _who,
    "waiting": _waiting,
    "pause": _pause,
    "resume": _resume,
    "tell": _tell,
    "edit": _edit,
    "help": _help,
}


def _user(end: socket.socket) -> str:
    """The user at the other end, as the operating system has it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return f"uid {os.getuid()}"  # only this user can open the socket
    _, uid, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def terminal(path: str, hear: Callable[[], str] = input, say: Callable[[str], None] = print) -> int:
    """A terminal at the door: lines go in, answers come out, until either side ends."""
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.connect(path)
        except OSError as error:
            say(f"no door at {path}: {error.strerror}")
            return 1
        with (
            end.makefile("r", encoding="utf-8", errors="replace") as answers,
            suppress(EOFError, KeyboardInterrupt),
        ):
            while (line := hear().strip()) != "quit":
                if line and not _exchanged(end, line, answers, say):
                    say("the run is over")
                    break
    return 0


def _exchanged(end: socket.socket, line: str, answers: TextIO, say: Callable[[str], None]) -> bool:
    """Says a line and tells what is answered. False where nobody answers any more."""
    with suppress(ConnectionError):
        end.sendall(line.encode() + b"\n")
        for answer in answers:
            say(answer.rstrip("\n"))
            if answer == "ok\n" or answer.startswith("no: "):
                return True
    return False


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("expected the path of a door: python -m podium.harness.human SOCKET")
    if sys.stdin.isatty():
        print("help lists what you can say; the run goes on when you leave")
    sys.exit(terminal(sys.argv[1]))


if __name__ == "__main__":
    main()
