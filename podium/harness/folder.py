"""An agent's working folder: files are read and written in it, and nowhere else, whatever path is asked for.

A path is walked name by name and no link is followed on the way, so nothing that an agent's commands do to the
folder meanwhile can lead the walk outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from podium.harness.types import Fault, Refused

__all__ = ["Folder", "checked", "opened"]

LARGEST = 1 << 20  # bytes of a file that are read or written at once


class Folder:
    """Reads, writes and lists files by paths such as `notes/plan.txt`.

    >>> from tempfile import mkdtemp
    >>> folder = Folder(mkdtemp())
    >>> folder.write("notes/plan.txt", "search, then write")
    18
    >>> folder.read("notes/plan.txt")
    'search, then write'
    >>> folder.names("notes")
    ['plan.txt']
    >>> folder.read("../secret")
    Traceback (most recent call last):
        ...
    podium.harness.types.Refused: '../secret' leaves the working folder by a parent folder
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def read(self, path: str) -> str:
        """The text of a file."""
        with self._opened(path, os.O_RDONLY) as file:
            data = os.read(file, LARGEST + 1)
        if len(data) > LARGEST:
            raise Fault("too large", f"{path!r} has more than {LARGEST} bytes; read it in parts with a command")
        return data.decode(errors="replace")

    def write(self, path: str, text: str) -> int:
        """Writes a file, making the folders on its way; how many bytes it has."""
        data = text.encode()
        if len(data) > LARGEST:
            raise Fault("too large", f"{len(data)} bytes for {path!r}; at most {LARGEST} are written at once")
        with self._opened(path, os.O_WRONLY | os.O_CREAT, make=True) as file:
            os.ftruncate(file, 0)
            for start in range(0, len(data), 1 << 16):
                os.write(file, data[start : start + (1 << 16)])
        return len(data)

    def names(self, path: str = ".") -> list[str]:
        """What a folder holds, folders with a slash."""
        names = [] if path in (".", "") else checked(path)
        with self._walked(path, names, make=False) as handle, os.scandir(handle) as entries:
            return sorted(e.name + "/" * e.is_dir(follow_symlinks=False) for e in entries)

    @contextmanager
    def _opened(self, path: str, flags: int, make: bool = False) -> Iterator[int]:
        *folders, name = checked(path)
        with self._walked(path, folders, make) as handle:
            file = _open(path, name, flags | os.O_NONBLOCK, handle)  # nobody may be at the other end of a pipe
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Refused("file", f"{path!r} is not a plain file")
                yield file
            finally:
                os.close(file)

    @contextmanager
    def _walked(self, path: str, names: list[str], make: bool) -> Iterator[int]:
        """The handle of the folder at the end of these names."""
        handle = opened(self.root)
        try:
            for name in names:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=handle)
                inner = _open(path, name, os.O_RDONLY | os.O_DIRECTORY, handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def opened(folder: Path) -> int:
    """The handle of a folder, come to by no link: the folders of a run have none in their paths when they are made,
    and an agent's commands may have put one there since."""
    handle = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    *parents, last = folder.absolute().parts[1:] or (".",)
    for name, flags in [*((name, os.O_PATH) for name in parents), (last, os.O_RDONLY)]:
        try:
            inner = _open(str(folder), name, flags | os.O_DIRECTORY, handle)
        finally:
            os.close(handle)
        handle = inner
    return handle


def checked(path: str) -> list[str]:
    """The names that a path is made of, none of which leads out of the folder.

    >>> checked("notes//plan.txt")
    ['notes', 'plan.txt']
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise Refused("path", f"expected the path of a file in the working folder, got {path!r}")
    if path.startswith(("/", "~")):
        raise Refused("absolute path", f"{path!r} is not a path in the working folder")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise Refused("parent folder", f"{path!r} leaves the working folder by a parent folder")
    if not names:
        raise Refused("path", f"{path!r} names the working folder itself, not a file in it")
    return names


def _open(path: str, name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    except OSError as error:
        if _is_link(name, folder):
            raise Refused(
                "symlink", f"{path!r} goes through {name!r}, which is a link; links are not followed"
            ) from None
        raise Fault("no file", f"{path!r}: {os.strerror(error.errno or 0)}") from None


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
