"""Control groups of the kernel's, of either version: they hold a command's processes and memory to a limit."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

__all__ = ["Group", "group"]

# Of each limit: its controller; the files that set it, to this value or to the limit; and where the kernel counts
# what it refused.
FILES: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "memory": (
        "memory",
        {"memory.max": "", "memory.swap.max": "0", "memory.limit_in_bytes": "", "memory.memsw.limit_in_bytes": ""},
        {"memory.events": "oom_kill", "memory.oom_control": "oom_kill"},
    ),
    "processes": ("pids", {"pids.max": ""}, {"pids.events": "max"}),
}
_numbers = count()


class Group:
    """The folder of the control group that keeps each limit; a limit that this user cannot set has none."""

    def __init__(self, folders: dict[str, Path], undo: ExitStack) -> None:
        self.folders = folders
        self._events = [
            (limit, re.compile(rb"^%s [1-9]" % what.encode(), re.MULTILINE), undo.enter_context(path.open("rb", 0)))
            for limit, folder in folders.items()
            for file, what in FILES[limit][2].items()
            if (path := folder / file).exists()
        ]

    def add(self, pid: int) -> None:
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def hit(self) -> str | None:
        """The limit at which the kernel refused something."""
        hits = (limit for limit, refused, file in self._events if refused.search(os.pread(file.fileno(), 4096, 0)))
        return next(hits, None)


@contextmanager
def group(limits: dict[str, int]) -> Iterator[Group]:
    """A control group for one command, with as many of these limits as this user can set."""
    folders: dict[str, Path] = {}
    with ExitStack() as undo:
        name = f"podium-{os.getpid()}-{next(_numbers)}"
        for limit, most in limits.items():
            controller, files, _ = FILES[limit]
            for folder in (parent / name for parent in _parents(controller) if limit not in folders):
                with suppress(OSError):
                    if folder not in folders.values():
                        folder.mkdir()
                        undo.callback(_remove, folder)
                    for file in (file for file in files if (folder / file).exists()):
                        (folder / file).write_text(files[file] or str(most))
                        folders[limit] = folder
        yield Group(folders, undo)


@cache
def _parents(controller: str) -> list[Path]:
    """Where a group under this controller can be made, if anywhere: in our own group or beside it."""
    parents = []
    mounts = [line.split()[1:4] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for at, kind, options in mounts:
            if kind == "cgroup" and controller in controllers.split(",") and controller in options.split(","):
                parents += [Path(at + path), Path(at)]
            elif kind == "cgroup2" and not controllers:
                parents += [Path(at + path), Path(at + path).parent]
    for folder in (left for parent in parents for left in parent.glob("podium-*-*")):
        if not os.path.exists(f"/proc/{folder.name.split('-')[1]}"):  # of a harness that was killed
            with suppress(OSError):
                folder.rmdir()
    return parents


def _remove(folder: Path) -> None:
    for _ in range(100):  # the last process may not be gone altogether
        with suppress(OSError):
            return folder.rmdir()
        time.sleep(0.01)
    return None
