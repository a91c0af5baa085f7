"""Folders by their handles: an agent's files, and the copies that its commands work on.

A path is walked name by name and no link is followed on the way, so nothing that an agent's commands leave in a
folder can lead the walk outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from podium.harness.types import Fault, Refused

__all__ = ["DISK", "FILES", "PAGE", "Folder", "checked", "measured", "opened", "update"]

LARGEST = 1 << 20  # bytes of a file that are read or written at once
DISK, FILES, DEPTH, PAGE = 64 << 20, 20_000, 60, 4096  # what a folder may hold, in pages; folders in folders

Held = dict[
    str, tuple[int, bytes]
]  # what a folder holds: by path, its mode and a digest of its bytes or its target


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

    def __init__(self, root: str | Path, most: int = DISK) -> None:
        self.root, self.most = Path(root), most

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
        with self._walked(".", [], make=False) as handle:
            measured(handle, self.most, len(data))
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
        handle = _walk(opened(self.root), path, names, make)
        try:
            yield handle
        finally:
            os.close(handle)


def opened(folder: Path) -> int:
    """The handle of a folder, come to by no link: the folders of a run have none in their paths when they are made,
    and an agent's commands may have put one there since."""
    start = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return _walk(start, str(folder), folder.absolute().parts[1:] or (".",))


def _walk(handle: int, path: str, names: Sequence[str], make: bool = False) -> int:
    """The handle of the folder at the end of these names, from a handle that is closed."""
    for left, name in enumerate(names, 1 - len(names)):
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            inner = _open(path, name, os.O_DIRECTORY | (os.O_PATH if left else os.O_RDONLY), handle)
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


# Copies


def update(to: int, source: int, before: Held, most: int, owner: int = -1) -> Held:
    """Makes one folder as another is, where that is not what it was `before`. What it is now: plain files, folders
    and links, without privileges. Raises Refused("disk") if that is too much, and then nothing is changed."""
    there, _ = measured(source, most)
    for path in sorted(
        (p for p in before if stat.S_IFMT(there.get(p, 0)) != stat.S_IFMT(before[p][0])), reverse=True
    ):
        _place(to, path, 0, b"")
    now: Held = {}
    for path, mode, name, folder in _entries(source):
        data = os.readlink(name, dir_fd=folder).encode(errors="surrogateescape") if stat.S_ISLNK(mode) else b""
        if stat.S_ISREG(mode):
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
                data = file.read(most)
        now[path] = mode, blake2b(data, digest_size=16).digest()
        if before.get(path) != now[path]:
            _place(to, path, mode, data, owner)
    return now


def _entries(handle: int) -> Iterator[tuple[str, int, str, int]]:
    """Everything in a folder: its path and mode, and its name in which folder."""
    for at, folders, files, inside in os.fwalk(dir_fd=handle, onerror=_raise):
        if at.count("/") > DEPTH:
            raise Refused("disk", f"a folder may hold folders in folders {DEPTH} deep")
        for name in (*folders, *files):
            mode = os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
                yield os.path.normpath(f"{at}/{name}"), stat.S_IFMT(mode) | mode & 0o777, name, inside


def _raise(error: OSError) -> None:
    raise error


def measured(handle: int, most: int, more: int = 0) -> tuple[dict[str, int], int]:
    """The mode of everything in a folder, and the bytes that it takes with `more`, if that is not too much."""
    modes = {}
    for path, modes[path], name, inside in _entries(handle):
        if stat.S_ISREG(modes[path]):
            more += -(-os.stat(name, dir_fd=inside, follow_symlinks=False).st_size // PAGE) * PAGE
        if more > most or len(modes) > FILES:
            raise Refused("disk", f"a working folder may hold {most} bytes in {FILES} files")
    return modes, more


def _place(root: int, path: str, mode: int, data: bytes, owner: int = -1) -> None:
    """Puts a file, a link or a folder in the place of what is there; without a mode, nothing."""
    *folders, name = path.split("/")
    inside = _walk(os.dup(root), path, folders)
    try:
        _clear(name, inside, stat.S_ISDIR(mode))
        if stat.S_ISLNK(mode):
            os.symlink(data, name, dir_fd=inside)
        elif stat.S_ISDIR(mode):
            with suppress(FileExistsError):
                os.mkdir(name, mode & 0o777 | 0o700, dir_fd=inside)
        elif stat.S_ISREG(mode):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(name, flags, 0o600, dir_fd=inside), "wb") as file:
                os.fchmod(file.fileno(), mode & 0o777)
                file.write(data)
        if mode and owner >= 0:
            os.chown(name, owner, owner, dir_fd=inside, follow_symlinks=False)
    finally:
        os.close(inside)


def _clear(name: str, inside: int, folder: bool) -> None:
    """Takes away what has this name, unless both it and what is to come are folders."""
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=inside)
        elif not folder:
            os.rmdir(name, dir_fd=inside)
