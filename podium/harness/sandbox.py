"""Runs a command in isolation, with limits: no network, no files but the ones it is shown, no processes but its own.

Where the operating system offers no isolation, nothing is run: `NoIsolation` says why.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from podium.harness import seccomp
from podium.harness.folder import opened
from podium.harness.types import Refused

__all__ = ["Ended", "Limits", "NoIsolation", "Sandbox", "isolation"]

JAIL = Path(__file__).with_name("jail.py")
WORK = "/work"  # where the command finds its folder
SPARE = 61_399  # whom root becomes: a user that owns nothing
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": WORK, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
USERS = "agent:x:1000:1000::/work:/bin/sh\n"
ROOM = 8 << 30  # bytes of addresses beyond its memory: threads and runtimes reserve what they never use
LONGEST = 32 << 10  # bytes of a command
GRACE = 5.0  # seconds beyond its own limit after which the jail is ended from outside


class NoIsolation(Refused):
    """The operating system does not isolate: nothing was run."""

    def __init__(self, why: str) -> None:
        super().__init__("no isolation", f"commands are not run here, because they cannot be isolated: {why}")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes of a command may use together."""

    seconds: float = 10.0
    memory: int = 256 << 20
    processes: int = 32  # threads count
    disk: int = 64 << 20  # in its folder, together with what is there
    scratch: int = 32 << 20  # in /tmp, which is memory
    output: int = 1 << 20  # on each of its two streams
    files: int = 256  # open at once


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What a command came to: its exit code (None where it was ended), what it wrote, and the limit that ended it."""

    code: int | None
    stdout: bytes
    stderr: bytes
    hit: str | None = None  # seconds, memory, processes, disk, output
    denied: dict[str, int] = {}  # system calls that it was not allowed, and how often it tried
    peak: dict[str, int] = {}
    seconds: float = 0.0


class Sandbox:
    """A folder, and commands that see it as /work and nothing else that can be written.

    The folder is come to by no link, and a folder that others may change is not taken from root.
    They see the programs of the system, and the folders in `read`, read-only; an environment of four variables, none of
    the caller's; a /proc with their own processes only; and a network without any way out.
    """

    def __init__(self, folder: str | Path, limits: Limits | None = None, read: Sequence[str | Path] = ()) -> None:
        self.folder = Path(folder).absolute()
        self.limits = limits or Limits()
        self.read = tuple(str(Path(p).resolve(strict=True)) for p in read)

    async def run(self, argv: Sequence[str], stdin: bytes = b"", seconds: float | None = None) -> Ended:
        """Runs the command, within its limits and within `seconds` if that is less."""
        if why := await isolation():
            raise NoIsolation(why)
        if (size := sum(len(word.encode()) for word in argv)) > LONGEST:
            raise Refused(
                "command", f"a command of {size} bytes; at most {LONGEST} are taken, put the rest in a file"
            )
        return await _run(self, list(argv), stdin, seconds)


async def isolation() -> str:
    """Why commands cannot be isolated here; empty if they can."""
    if not _known:
        _known.append(await _tried())
    return _known[0]


_known: list[str] = []


async def _tried() -> str:
    if sys.platform != "linux":
        return f"it takes the namespaces of Linux, and this is {sys.platform}"
    if platform.machine() not in seccomp.MACHINES:
        return f"no list of system calls for {platform.machine()}; there are {', '.join(seccomp.MACHINES)}"
    with TemporaryDirectory() as folder:
        try:
            ended = await _run(Sandbox(Path(folder).resolve()), ["true"], b"", None)
        except NoIsolation as refused:
            return refused.why.partition("isolated: ")[2]
    return (
        "" if ended.code == 0 else f"a trial run of `true` ended with {ended.code}: {ended.stderr.decode()[:200]}"
    )


async def _run(box: Sandbox, argv: list[str], stdin: bytes, seconds: float | None) -> Ended:
    limits = box.limits
    if seconds is not None:
        limits = msgspec.structs.replace(limits, seconds=min(seconds, limits.seconds))
    with _pipes() as (lifeline, alive, report, say):
        try:
            plan = _plan(box, limits, argv)
        except OSError as error:
            raise NoIsolation(f"the folder cannot be handed over: {error}") from None
        alive.write(msgspec.json.encode(plan) + b"\n")
        jail = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(JAIL), str(lifeline.fileno()), str(say.fileno())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(lifeline.fileno(), say.fileno()),
            start_new_session=True,
            env={},
        )
        for end in (lifeline, say):
            end.close()
        try:
            async with asyncio.timeout(limits.seconds + GRACE):
                out, err, over = await _talk(jail, stdin, limits.output)
        except TimeoutError:
            raise NoIsolation(f"the jail did not end within {limits.seconds + GRACE:g} s") from None
        finally:
            await _end(jail)
        return _ended(report.read(1 << 16) or b"", out, err, over)


@contextmanager
def _pipes() -> Iterator[tuple[FileIO, FileIO, FileIO, FileIO]]:
    """A pipe whose closing ends the jail, and one on which it reports. Whoever hands an end on may close it before."""
    with ExitStack() as open_ends:
        lifeline, alive = (
            open_ends.enter_context(FileIO(end, mode)) for end, mode in zip(os.pipe(), "rw", strict=True)
        )
        report, say = (
            open_ends.enter_context(FileIO(end, mode)) for end, mode in zip(os.pipe(), "rw", strict=True)
        )
        yield lifeline, alive, report, say


async def _talk(jail: asyncio.subprocess.Process, stdin: bytes, most: int) -> tuple[bytes, bytes, bool]:
    """Feeds the command and reads what it writes, until it ends or has written too much."""
    assert jail.stdin
    assert jail.stdout
    assert jail.stderr
    feed = asyncio.create_task(_feed(jail.stdin, stdin))
    readers = [asyncio.create_task(_read(stream, most)) for stream in (jail.stdout, jail.stderr)]
    try:
        for reader in asyncio.as_completed(readers):
            if len(await reader) > most:
                break
    finally:
        for task in (feed, *readers):
            task.cancel()
        await asyncio.gather(feed, *readers, return_exceptions=True)
    out, err = (r.result() if not r.cancelled() else b"" for r in readers)
    return out[:most], err[:most], len(out) > most or len(err) > most


async def _feed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):
        pipe.write(data)
        await pipe.drain()
    pipe.close()


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    """All of it, or a little more than the most that is allowed."""
    pieces, size = [], 0
    while size <= most and (piece := await stream.read(1 << 16)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


async def _end(jail: asyncio.subprocess.Process) -> None:
    """The jail and all in it are gone, however it went."""
    with suppress(ProcessLookupError):
        os.killpg(jail.pid, signal.SIGKILL)
    await asyncio.shield(_gone(jail))


async def _gone(jail: asyncio.subprocess.Process) -> None:
    """asyncio counts a process as gone only when its streams have been read to their ends."""
    for stream in (jail.stdout, jail.stderr):
        while stream and await stream.read(1 << 16):
            pass
    await jail.wait()


def _ended(report: bytes, out: bytes, err: bytes, over: bool) -> Ended:
    if over:
        return Ended(code=None, stdout=out, stderr=err, hit="output")
    if not report:
        raise NoIsolation(f"the jail ended without a word: {err.decode(errors='replace')[-300:]}")
    said = msgspec.json.decode(report)
    if fault := said.get("fault"):
        if fault.startswith(("no program", "the command could not be started")):
            raise Refused("command", fault)
        raise NoIsolation(fault)
    code = None if said["status"] is None else os.waitstatus_to_exitcode(said["status"])
    return Ended(
        code=code,
        stdout=out,
        stderr=err,
        hit=said["hit"],
        denied=said["denied"],
        peak=said["peak"],
        seconds=said["seconds"],
    )


def _plan(box: Sandbox, limits: Limits, argv: list[str]) -> dict[str, Any]:
    """All that the jail needs to know, as JSON has it."""
    user, group = os.geteuid(), os.getegid()
    handle = opened(box.folder)
    try:
        known = os.fstat(handle)
        if user == 0 and _is_mapped(SPARE):
            user = group = SPARE
            _hand_over(box.folder, handle, user)
    finally:
        os.close(handle)
    address_space = limits.memory + ROOM
    resources = {  # a little more than the watch allows, so that it sees what goes over
        "AS": address_space,
        "NPROC": limits.processes + 4,
        "NOFILE": limits.files,
        "FSIZE": limits.disk + (1 << 16),
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
    }
    told = {k: v for k, v in msgspec.structs.asdict(limits).items() if k not in ("output", "files")}
    return {
        "argv": argv,
        "env": ENVIRONMENT,
        "folder": {"path": str(box.folder), "is": [known.st_dev, known.st_ino]},
        "work": WORK,
        "user": user,
        "group": group,
        "limits": told | {"resources": resources},
        "names": seccomp.names(platform.machine()),
        "filter": seccomp.program(platform.machine(), address_space).hex(),
        "bind": _binds(box),
        "links": dict(_links()) | {"/dev/shm": "/tmp", "/dev/fd": "/proc/self/fd"},
        "files": {"/etc/passwd": USERS, "/etc/group": "agent:x:1000:\n"},
    }


def _binds(box: Sandbox) -> list[dict[str, Any]]:
    linked = dict(_links())
    readable = [p for p in (*PROGRAMS, *box.read) if p not in linked and os.path.exists(p)]
    binds = [{"from": p, "to": p, "write": False, "device": False} for p in readable]
    return binds + [{"from": p, "to": p, "write": True, "device": True} for p in DEVICES]


@cache
def _links() -> tuple[tuple[str, str], ...]:
    """Those of the system's folders that are links to others of them."""
    return tuple((p, os.readlink(p)) for p in PROGRAMS if os.path.islink(p))


def _is_mapped(user: int) -> bool:
    """Whether there is such a user: in a user namespace of its own, root has only those that it was given."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [tuple(map(int, line.split())) for line in lines]
    return any(first <= user < first + count for first, _, count in ranges)


def _hand_over(folder: Path, handle: int, user: int) -> None:
    """Root's jails run as a user that owns nothing but their folder: all in it that is root's becomes that user's.

    What everybody may write to, such as /tmp, what others own, and a file that is elsewhere too by a hard link, is not
    given away.
    """
    told = os.fstat(handle)
    if told.st_mode & 0o002 or told.st_uid not in (0, user):
        raise PermissionError(f"{folder} is not a folder of the run's own")
    for _, folders, files, inside in os.fwalk(dir_fd=handle, follow_symlinks=False):
        os.fchown(inside, user, user)
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # a command of another agent's may be at work in there
                told = os.stat(name, dir_fd=inside, follow_symlinks=False)
                if told.st_uid == 0 and (told.st_nlink == 1 or stat.S_ISDIR(told.st_mode)):
                    os.chown(name, user, user, dir_fd=inside, follow_symlinks=False)
