"""Runs a command in a jail, with limits: no network, no files but the ones it is shown, no processes but its own.

bubblewrap builds the jail. The command works on a copy of its folder, which is memory of a limited size; what it changed
is written back when it has ended by itself. Where this cannot be had, nothing is run: `NoIsolation` says why.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from podium.harness import seccomp
from podium.harness.bounded import beside
from podium.harness.jail import Ended, Job, Limits, NoIsolation, confined
from podium.harness.types import Refused

__all__ = ["Ended", "Limits", "NoIsolation", "Sandbox", "isolation"]

LONGEST = 32 << 10  # bytes of a command


class Sandbox:
    """A folder, and commands that see a copy of it as /work, and nothing else that can be written but /tmp.

    The folder is come to by no link. They see the programs of the system, and the folders in `read`, read-only; an
    environment of four variables, none of the caller's; a /proc with their own processes only; and a network without any
    way out. Of a command that ends by itself, what it changed is written back; one that is ended leaves the folder as it was.
    """

    def __init__(self, folder: str | Path, limits: Limits | None = None, read: Sequence[str | Path] = ()) -> None:
        self.folder = Path(folder).absolute()
        self.limits = limits or Limits()
        self.read = tuple(str(Path(p).resolve(strict=True)) for p in read)

    async def run(self, argv: Sequence[str], stdin: bytes = b"", seconds: float | None = None) -> Ended:
        """Runs the command, within its limits and within `seconds` if that is less."""
        if why := await isolation():
            raise NoIsolation(why)
        if (size := sum(len(word.encode()) + 1 for word in argv)) > LONGEST:
            raise Refused(
                "command", f"a command of {size} bytes; at most {LONGEST} are taken, put the rest in a file"
            )
        return await _run(self, argv, stdin, seconds)


_known: list[str] = []


async def isolation() -> str:
    """Why commands cannot be isolated here; empty if they can."""
    if not _known:
        _known.append(_missing() or await _try())
    return _known[0]


def _missing() -> str:
    if sys.platform != "linux":
        return f"it takes the namespaces of Linux, and this is {sys.platform}"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: apt-get install bubblewrap, or dnf install bubblewrap"
    if not os.path.exists("/usr/bin/perl"):
        return "Perl, which starts commands in the jail, is not installed: apt-get install perl, or dnf install perl"
    with suppress(OSError):
        return "" if seccomp.call_number("seccomp") >= 0 else "the kernel has no seccomp"
    return "libseccomp is not installed: apt-get install libseccomp2, or dnf install libseccomp"


async def _try() -> str:
    with TemporaryDirectory() as folder:
        try:
            ended = await _run(Sandbox(Path(folder).resolve()), ["true"], b"", None)
        except NoIsolation as refused:
            return refused.why.partition("isolated: ")[2]
    return (
        "" if ended.code == 0 else f"a trial run of `true` ended with {ended.code}: {ended.stderr.decode()[:200]}"
    )


async def _run(box: Sandbox, argv: Sequence[str], stdin: bytes, seconds: float | None) -> Ended:
    limits = box.limits
    if seconds is not None:
        limits = replace(limits, seconds=min(seconds, limits.seconds))
    job = Job(argv=list(argv), stdin=stdin, folder=box.folder, read=box.read, limits=limits)
    stop, end = os.pipe()
    work = beside(lambda: confined(job, stop))
    try:
        return await asyncio.shield(work)
    finally:
        os.close(end)
        await asyncio.wait([work])
