"""Runs a command in a jail, with limits: no network, no files but the ones it is shown, no processes but its own.

bubblewrap builds the jail. The command works on a copy of its folder, which is memory of a limited size; what it
changed is written back when it has ended by itself. Where this cannot be had, nothing is run: `NoIsolation` says why.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from podium.harness import seccomp
from podium.harness.bounded import beside
from podium.harness.cgroup import group
from podium.harness.jail import Ended, Job, Limits, NoIsolation, confined, landlock_version
from podium.harness.types import Refused

__all__ = ["Ended", "Limits", "NoIsolation", "Promise", "Sandbox", "isolation", "promises"]

LONGEST = 32 << 10  # bytes of a command
TRIAL = Limits(memory=48 << 20, processes=8, disk=1 << 20)
TRIALS = {  # of each promise: a command that breaks it, and what that comes to: an exit code, a limit or a call
    "files": ("test ! -e /home -a ! -e /root -a ! -w /usr -a ! -w / -a ! -w /etc -a ! -w /dev", "0"),
    "network": ("perl -e 'socket(S, 2, 1, 0)'", "socket"),
    "privileges": ("grep -q CapEff:.0*$ /proc/self/status && grep NoNewPrivs:.1 /proc/self/status", "0"),
    "system calls": ("unshare -r true", "unshare"),
    "other processes": ("kill -9 1", "kill"),
    "seconds": ("sleep 60", "seconds"),
    "output": ("yes", "output"),
    "disk": ("head -c 3000000 /dev/zero > x; sleep 60", "disk"),
    "memory": ("for i in 1 2 3 4; do perl -e '$x = q(y) x 15e6; sleep 60' & done; wait", "memory"),
    "processes": ("for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait", "processes"),
}


class Sandbox:
    """A folder, and commands that see a copy of it as /work, and nothing else that can be written but /tmp.

    The folder is come to by no link. They see the programs of the system, and the folders in `read`, read-only; an
    environment of four variables, none of the caller's; a /proc with their own processes only; and a network without
    any way out. Of a command that ends by itself, what it changed is written back; one that is ended leaves the
    folder as it was.
    """

    def __init__(self, folder: str | Path, limits: Limits | None = None, read: Sequence[str | Path] = ()) -> None:
        self.folder = Path(folder).absolute()
        self.limits = limits or Limits()
        self.read = tuple(str(Path(p).resolve(strict=True)) for p in read)

    async def run(self, argv: Sequence[str], stdin: bytes = b"", seconds: float | None = None) -> Ended:
        """Runs the command, within its limits and within `seconds` if that is less."""
        start, most = (
            time.monotonic(),
            self.limits.seconds if seconds is None else min(seconds, self.limits.seconds),
        )
        if why := await isolation():
            raise NoIsolation(why)
        if self.limits.strict and (weak := [p.what for p in await promises() if p.lacks]):
            raise NoIsolation(f"the kernel does not limit {' and '.join(weak)} for this user, as was asked for")
        if (size := sum(len(word.encode()) + 1 for word in argv)) > LONGEST:
            raise Refused(
                "command", f"a command of {size} bytes; at most {LONGEST} are taken, put the rest in a file"
            )
        return await _run(self, argv, stdin, most - (time.monotonic() - start))


_known: list[str] = []
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def isolation() -> str:
    """Why commands cannot be isolated here; empty if they can. Before the first of them, what is promised is tried."""
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not _known:
            try:
                broken = [promise.what for promise in await promises() if not promise.kept]
                _known.append(f"a trial was not held to {', '.join(broken)}" if broken else "")
            except NoIsolation as refused:
                _known.append(refused.why.partition("isolated: ")[2])
    return _known[0]


def _missing() -> str:
    if sys.platform != "linux":
        return f"it takes the namespaces of Linux, and this is {sys.platform}"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: apt-get install bubblewrap, or dnf install bubblewrap"
    if not os.path.exists("/usr/bin/perl"):
        return (
            "Perl, which starts commands in the jail, is not installed: apt-get install perl, or dnf install perl"
        )
    with suppress(OSError):
        return "" if seccomp.call_number("seccomp") >= 0 else "the kernel has no seccomp"
    return "libseccomp is not installed: apt-get install libseccomp2, or dnf install libseccomp"


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a command is held to on this machine: by what, whether a trial was, and what that lacks."""

    what: str
    by: str
    kept: bool
    lacks: str = ""


async def promises() -> list[Promise]:
    """All that commands are held to here, tried out. Raises NoIsolation where no jail can be built."""
    if why := _missing():
        raise NoIsolation(why)
    with group({"memory": 1 << 30, "processes": 99}) as made:
        held = set(made.folders)
    version = landlock_version()
    landlock = f", Landlock {version}" if version >= 4 else ""
    by = {
        "files": f"bubblewrap: mounts{landlock}",
        "network": f"bubblewrap: network namespace; seccomp{landlock}",
        "privileges": "no capabilities, none to be had",
        "system calls": "seccomp, a list of those allowed",
        "other processes": "bubblewrap: process namespace; seccomp",
        "seconds": "a watch outside",
        "output": "a watch outside",
        "disk": "tmpfs of that size",
        "memory": "control group" if "memory" in held else "a watch outside; RLIMIT_DATA for each process",
        "processes": "control group" if "processes" in held else "a watch outside; RLIMIT_NPROC, four more",
    }
    with TemporaryDirectory() as folder:
        box = Sandbox(Path(folder).resolve(), TRIAL)
        runs = [
            _run(box, ["sh", "-c", script], b"", 0.5 if what == "seconds" else 20)
            for what, (script, _) in TRIALS.items()
        ]
        came = await asyncio.gather(*runs, return_exceptions=True)
    for ended in came:
        if isinstance(ended, BaseException):
            raise ended
    return [
        Promise(
            what=what,
            by=by[what],
            kept=expected in {str(ended.code), ended.hit, *ended.denied},
            lacks="" if what in held or what not in ("memory", "processes") else "not held by the kernel",
        )
        for (what, (_, expected)), ended in zip(TRIALS.items(), came, strict=True)
        if isinstance(ended, Ended)
    ]


async def _run(box: Sandbox, argv: Sequence[str], stdin: bytes, seconds: float) -> Ended:
    limits = replace(box.limits, seconds=seconds)
    job = Job(argv=list(argv), stdin=stdin, folder=box.folder, read=box.read, limits=limits)
    stop, end = os.pipe()
    work = beside(lambda: confined(job, stop))
    try:
        return await asyncio.shield(work)
    finally:
        os.close(end)
        await asyncio.wait([work])
