"""Folders by their handles: an agent's files, and the copies that its commands work on.

The kernel follows no link on the way to a file, so nothing that commands leave in a folder leads outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from podium.harness.types import Fault, Refused

__all__ = ["FILES", "Contents", "Folder", "change", "contents", "opened", "path_names"]

LARGEST = 1 << 20  # bytes of a file that are read or written at once
DISK, FILES, DEPTH, PAGE = 64 << 20, 20_000, 60, 4096  # what a folder may hold, in pages; folders in folders
OPENAT2, NO_LINKS, BENEATH, NO_FOLDER = 437, 0x04, 0x08, -100
Contents = dict[str, tuple[int, bytes]]  # of a folder: by path, the mode, and a file's bytes or a link's target
_libc = ctypes.CDLL(None, use_errno=True)


class Folder:
    """Reads, writes and lists files by paths such as `notes/plan.txt`.

    >>> from tempfile import mkdtemp
    >>> folder = Folder(mkdtemp())
    >>> folder.write("notes/plan.txt", "search, then write")
    18
    >>> folder.read("notes/plan.txt"), folder.names("notes")
    ('search, then write', ['plan.txt'])
    """

    def __init__(self, root: str | Path, most: int = DISK) -> None:
        self.root, self.most = Path(root), most

    def read(self, path: str) -> str:
        """The text of a file."""
        with opened(self.root) as root, opened("/".join(path_names(path)), os.O_RDONLY, root) as file:
            data = os.read(_plain(file, path), LARGEST + 1)
        if len(data) > LARGEST:
            raise Fault("too large", f"{path!r} has more than {LARGEST} bytes; read it in parts with a command")
        return data.decode(errors="replace")

    def write(self, path: str, text: str) -> int:
        """Writes a file, making the folders on its way; how many bytes it has."""
        data, names = text.encode(), path_names(path)
        if len(data) > LARGEST:
            raise Fault("too large", f"{len(data)} bytes for {path!r}; at most {LARGEST} are written at once")
        with opened(self.root) as root:
            contents(root, self.most, len(data), read=False)
            for end in range(1, len(names)):
                with opened("/".join([".", *names[: end - 1]]), at=root) as inside, suppress(FileExistsError):
                    os.mkdir(names[end - 1], dir_fd=inside)
            with opened("/".join(names), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, root) as file:
                return _write(_plain(file, path), data)

    def names(self, path: str = ".") -> list[str]:
        """What a folder holds, folders with a slash."""
        names = [] if path in (".", "") else path_names(path)
        with (
            opened(self.root) as root,
            opened("/".join([".", *names]), at=root) as inside,
            os.scandir(inside) as all_,
        ):
            return sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in all_)


def path_names(path: str) -> list[str]:
    """The names that a path is made of, none of which leads out of the folder.

    >>> path_names("notes//plan.txt")
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


@contextmanager
def opened(path: str | Path, flags: int = os.O_DIRECTORY, at: int = NO_FOLDER) -> Iterator[int]:
    """The handle of a file or folder, come to by no link; one in the folder `at` if that is given."""
    if sys.platform != "linux":
        raise Refused("folder", f"folders of agents take a system call of Linux, and this is {sys.platform}")
    flags |= os.O_CLOEXEC | os.O_NONBLOCK  # nobody may be at the other end of a pipe
    how = struct.pack("QQQ", flags, 0o644 if flags & os.O_CREAT else 0, NO_LINKS | (BENEATH if at >= 0 else 0))
    handle = _libc.syscall(OPENAT2, at, os.fsencode(path), how, len(how))
    if handle < 0 and (error := ctypes.get_errno()) == errno.ELOOP:
        raise Refused("symlink", f"'{path}' goes through a name which is a link; links are not followed")
    if handle < 0:
        raise Fault("no file", f"'{path}': {os.strerror(error)}")
    try:
        yield handle
    finally:
        os.close(handle)


def _plain(file: int, path: str) -> int:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise Refused("file", f"{path!r} is not a plain file")
    return file


def _write(file: int, data: bytes) -> int:
    with open(file, "wb", closefd=False) as stream:
        return stream.write(data)


# Copies


def contents(folder: int, most: int, size: int = 0, read: bool = True) -> Contents:
    """All plain files, folders and links in a folder, unless they and `size` bytes more are too much."""
    entries: Contents = {}
    for path, folders, files, inside in os.fwalk(dir_fd=folder, onerror=_raise):
        for name in (*folders, *files):
            status, data = os.stat(name, dir_fd=inside, follow_symlinks=False), b""
            if stat.S_ISREG(status.st_mode):
                size += -(-status.st_size // PAGE) * PAGE
            elif stat.S_ISLNK(status.st_mode):
                data = os.fsencode(os.readlink(name, dir_fd=inside))
            elif not stat.S_ISDIR(status.st_mode):
                continue
            if size > most or len(entries) >= FILES or path.count("/") > DEPTH:
                raise Refused(
                    "disk", f"a working folder may hold {most} bytes in {FILES} files, {DEPTH} folders deep"
                )
            if stat.S_ISREG(status.st_mode) and read:
                with opened(name, os.O_RDONLY, inside) as file, open(file, "rb", closefd=False) as stream:
                    data = stream.read(status.st_size)
            entries[os.path.normpath(f"{path}/{name}")] = stat.S_IFMT(status.st_mode) | status.st_mode & 0o777, data
    return entries


def _raise(error: OSError) -> None:
    raise error


def change(root: int, old: Contents, new: Contents) -> None:
    """Makes what differs between the old and the new contents of a folder."""
    others = (path for path in old if stat.S_IFMT(new.get(path, (0,))[0]) != stat.S_IFMT(old[path][0]))
    for path in sorted(others, reverse=True):
        _place(root, path, 0, b"")
    for path, (mode, data) in new.items():
        if old.get(path) != (mode, data):
            _place(root, path, mode, data)


def _place(root: int, path: str, mode: int, data: bytes) -> None:
    """Puts a file, a link or a folder in the place of what is there; without a mode, nothing."""
    folder, _, name = path.rpartition("/")
    with opened(folder or ".", at=root) as inside:
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=inside)
            elif not stat.S_ISDIR(mode):
                os.rmdir(name, dir_fd=inside)
        if stat.S_ISLNK(mode):
            os.symlink(data, os.fsencode(name), dir_fd=inside)
        elif stat.S_ISDIR(mode):
            with suppress(FileExistsError):
                os.mkdir(name, mode & 0o777 | 0o700, dir_fd=inside)
        elif mode:
            with opened(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, inside) as file:
                _write(file, data)
                os.fchmod(file, mode & 0o777)
