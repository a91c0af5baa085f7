"""Control groups of the kernel's, of either version: they hold a command's processes and memory to a limit."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

__all__ = ["control_group", "refused"]

TOP = Path("/sys/fs/cgroup")
CONTROLLERS = {"memory": "memory", "processes": "pids"}
# Of a controller, the files that set its limit, to this or to what is asked for; where the kernel counts refusals.
SETTINGS: dict[str, dict[str, str]] = {
    "memory": {"max": "", "swap.max": "0", "limit_in_bytes": "", "memsw.limit_in_bytes": ""},
    "pids": {"max": ""},
}
COUNTS = {"memory": r"(?m)^oom_kill [1-9]", "pids": r"(?m)^max [1-9]"}
_numbers = count()


@contextmanager
def control_group(limits: dict[str, int]) -> Iterator[dict[str, Path]]:
    """The folders of control groups for one command, of those limits that this user can set."""
    name, tried, folders = f"podium-{os.getpid()}-{next(_numbers)}", set[Path](), dict[str, Path]()
    try:
        for limit, most in limits.items():
            for folder in (parent / name for parent in _parents(CONTROLLERS[limit]) if limit not in folders):
                for left in folder.parent.glob("podium-*-*"):
                    if not os.path.exists(f"/proc/{left.name.split('-')[1]}"):  # of a harness that was killed
                        tried.add(left)
                with suppress(OSError):
                    folder.mkdir(exist_ok=True)
                    tried.add(folder)
                    for setting, value in SETTINGS[CONTROLLERS[limit]].items():
                        if (file := folder / f"{CONTROLLERS[limit]}.{setting}").exists():
                            file.write_text(value or str(most))
                            folders[limit] = folder
        yield folders
    finally:
        for folder in tried:
            _remove(folder)


def refused(folders: dict[str, Path]) -> str | None:
    """The limit at which the kernel refused something."""
    for limit, folder in folders.items():
        for kind in ("events", "oom_control"):
            with suppress(FileNotFoundError):
                if re.search(COUNTS[CONTROLLERS[limit]], (folder / f"{CONTROLLERS[limit]}.{kind}").read_text()):
                    return limit
    return None


def _parents(controller: str) -> Iterator[Path]:
    """Where a group under this controller may be made: in our own group or beside it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            yield from (Path(f"{TOP}/{controllers}{path}"), TOP / controllers)
        elif not controllers:
            yield from (Path(f"{TOP}{path}"), Path(f"{TOP}{path}").parent)


def _remove(folder: Path) -> None:
    for _ in range(100):  # the last process may not be gone altogether
        with suppress(OSError):
            return folder.rmdir()
        time.sleep(0.01)
    return None
