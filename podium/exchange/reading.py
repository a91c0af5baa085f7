"""Which importer reads a file, which files are one run, and what is said of a file that nobody knows.

Files, folders and archives (.zip, .tar, and .gz, .xz and .zst of anything) are read as they are. A run is held in
memory, not more.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from struct import unpack
from typing import IO, NamedTuple, Protocol

import msgspec

from podium.exchange.build import Fault, Run
from podium.registry import facts, find, names, register
from podium.trace import files
from podium.trace.files import Read
from podium.trace.findings import Finding, Unreadable
from podium.trace.rules import LEVELS
from podium.trace.survey import top_fields

__all__ = ["Importer", "Source", "known_formats", "looks_like", "read_foreign"]

START = 1 << 16  # bytes that a format is recognised by
CERTAIN = 0.9  # a format that is so sure is not doubted: the others are not asked
ZSTD, ENCRYPTED = 93, 1  # how a member of a zip archive is packed, and a flag of it


class Source(NamedTuple):
    """A file to import: its name, how it starts, and its lines."""

    name: str
    start: bytes
    lines: Callable[[], Iterable[bytes]]

    def data(self) -> bytes:
        """All of it, for a format that is one document."""
        return b"".join(self.lines())


class Importer(Protocol):
    """Reads the files of one run, or of several; `keep` asks for content, redacted, beside its hash."""

    __name__: str

    def __call__(self, sources: Sequence[Source], keep: bool) -> Iterable[Run]: ...


def known_formats() -> str:
    """The systems whose logs are read, in words."""
    return ", ".join(sorted((facts("importer", name)["title"] for name in names("importer")), key=str.lower))


def importer_of(start: bytes, name: str) -> str | None:
    """The name of the importer that is surest that this is its own."""
    best, surest = None, 0.0
    for one in names("importer"):
        sure = float(facts("importer", one)["detect"](start, name))
        if sure > surest:
            best, surest = one, sure
        if sure >= CERTAIN:
            break
    return best


@register("reader")
def read_foreign(paths: Sequence[str], keep: bool = False, progress: files.Progress = None) -> Iterator[Read | str]:
    """The runs that importers read in these files and archives, and the names of the files that are not theirs to
    read.

    A file that nobody knows is told in one line: also one in an archive with logs, since nobody else reads
    archives."""
    groups: dict[str, list[Source]] = {}  # by importer
    broken: dict[str, str] = {}  # files that could not be read to their end
    for path in paths:
        known, others = 0, []
        for source in _opened(path, progress, broken, len(paths) > 1):
            importer = importer_of(source.start, source.name)
            if importer is None:
                others.append(Read(source.name, None, [unknown(source.name, source.start)]))
            else:
                groups.setdefault(importer, []).append(source)
                known += 1
        if known:
            yield from others
        elif others:
            yield path
    for importer, sources in groups.items():
        for together in _together(sources, facts("importer", importer).get("group")):
            yield from _imported(importer, together, keep, broken)
    for name, why in broken.items():
        yield Read(name, None, [Fault(name, None, why).finding()])


def _opened(path: str, progress: files.Progress, broken: dict[str, str], several: bool) -> Iterator[Source]:
    """The sources in a file or archive. One that cannot be read is left out where there are others."""
    try:
        yield from _sources(path, progress, broken)
    except Unreadable as error:
        if not several:
            raise
        broken[path] = error.why


@register("reader")
def read_piped(data: bytes, name: str) -> Iterator[Read]:
    """The runs in what came through a pipe; none where no importer knows it."""
    importer = importer_of(data[:START], name)
    if importer is not None:
        yield from _imported(importer, [Source(name, data[:START], partial(io.BytesIO, data))], False, {})


def unknown(name: str, start: bytes) -> Finding:
    return Finding(name, None, "log-unknown", LEVELS["log-unknown"], looks_like(start, name))


def _imported(importer: str, sources: Sequence[Source], keep: bool, broken: dict[str, str]) -> Iterator[Read]:
    for run in find("importer", importer)(sources, keep):
        where = run.file or sources[0].name
        for source in sources:
            if why := broken.pop(source.name, None):
                run.fault(source.name, None, why)
        yield Read(where, *run.built(where))


def _together(sources: list[Source], group: Callable[[bytes, str], Iterable[str]] | None) -> list[list[Source]]:
    """The sources that are one run: those that have a key in common, or are joined by others that have."""
    if group is None:
        return [[source] for source in sources]
    of: dict[str, list[Source]] = {}  # the run that each key leads to
    for source in sources:
        keys = list(group(source.start, source.name)) or [source.name]
        runs = {id(of[key]): of[key] for key in keys if key in of}
        joined = [s for run in runs.values() for s in run] + [source]
        for key, run in of.items():
            if id(run) in runs:
                of[key] = joined
        of |= dict.fromkeys(keys, joined)
    return list({id(run): run for run in of.values()}.values())


def _sources(path: str, progress: files.Progress, broken: dict[str, str]) -> Iterator[Source]:
    with files.opened(path) as stream:
        start = stream.read(START)
        is_tar = start[257:262] == b"ustar"
    if start.startswith(b"PK\x03\x04"):
        yield from _zipped(path, progress, broken)
    elif is_tar:
        yield from _tarred(path, progress, broken)
    else:
        yield Source(path, start, partial(_lines, partial(files.opened, path), progress, path, broken))


def _zipped(path: str, progress: files.Progress, broken: dict[str, str]) -> Iterator[Source]:
    with files.complaints(path):
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise Unreadable(path, f"a damaged archive: {error}") from None
        with archive:
            members = [m.filename for m in archive.infolist() if not m.is_dir() and not _hidden(m.filename)]

    def opener(member: str) -> Callable[[], files.Stream]:
        @contextmanager
        def opened() -> Iterator[io.BufferedReader]:
            with (
                files.complaints(f"{path}:{member}"),
                zipfile.ZipFile(path) as archive,
                _member(archive, path, member) as raw,
            ):
                try:
                    yield files.uncompressed(raw, f"{path}:{member}")
                except zipfile.BadZipFile as error:  # found while it is read
                    raise Unreadable(f"{path}:{member}", f"a damaged archive: {error}") from None

        return opened

    yield from _members(path, members, opener, progress, broken)


def _member(archive: zipfile.ZipFile, path: str, member: str) -> IO[bytes]:
    """A file in an archive; what is damaged, encrypted, or packed in a way that this Python does not know, is
    unreadable; so is a little that would unpack to a lot."""
    info = archive.getinfo(member)
    if info.file_size > max(files.MOST_UNPACKED, files.MOST_TIMES * info.compress_size):
        why = f"unpacks to more than {files.MOST_TIMES} times its size, {info.file_size >> 20} MiB"
        raise Unreadable(f"{path}:{member}", f"{why}; unpack it yourself if it is to be read")
    try:
        if info.compress_type == ZSTD and not info.flag_bits & ENCRYPTED:
            return io.BytesIO(_packed(path, info))
        return archive.open(member)
    except (NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise Unreadable(f"{path}:{member}", f"cannot be unpacked here: {error}") from None


def _packed(path: str, info: zipfile.ZipInfo) -> bytes:
    """A member as it lies in the archive, to be unpacked like a file: Python's zipfile does not know its method."""
    with open(path, "rb") as file:
        file.seek(info.header_offset + 26)
        file.seek(sum(unpack("<HH", file.read(4))), os.SEEK_CUR)
        data = file.read(info.compress_size)
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        raise zipfile.BadZipFile("not packed with Zstandard, as the archive says")
    return data


def _tarred(path: str, progress: files.Progress, broken: dict[str, str]) -> Iterator[Source]:
    with files.opened(path) as stream, _tar(path, stream) as archive:
        members = [m.name for m in archive if m.isfile() and not _hidden(m.name)]

    def opener(member: str) -> Callable[[], files.Stream]:
        @contextmanager
        def opened() -> Iterator[io.BufferedReader]:
            with files.opened(path) as stream, _tar(path, stream) as archive:
                wanted = next(m for m in archive if m.name == member)
                raw = archive.extractfile(wanted)
                assert raw is not None
                yield files.uncompressed(raw, f"{path}:{member}")

        return opened

    yield from _members(path, members, opener, progress, broken)


@contextmanager
def _tar(path: str, stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            yield archive
    except tarfile.TarError as error:
        raise Unreadable(path, f"a damaged archive: {error}") from None


def _members(
    path: str,
    members: list[str],
    opener: Callable[[str], Callable[[], files.Stream]],
    progress: files.Progress,
    broken: dict[str, str],
) -> Iterator[Source]:
    damaged: dict[str, str] = {}
    for member in members:
        opened, name = opener(member), f"{path}:{member}"
        try:
            with opened() as stream:
                start = stream.read(START)
        except Unreadable as error:
            damaged[name] = error.why
            continue
        yield Source(name, start, partial(_lines, opened, progress, name, broken))
    alike = len(damaged) == len(members) and len(set(damaged.values())) == 1
    broken |= {path: f"all that is in it {damaged.popitem()[1]}"} if alike else damaged


def _hidden(member: str) -> bool:
    return (
        any(part.startswith(".") for part in member.split("/") if part not in (".", "..")) or "__MACOSX" in member
    )


def _lines(
    opened: Callable[[], files.Stream], progress: files.Progress, name: str, broken: dict[str, str]
) -> Iterator[bytes]:
    """What a file holds, as far as it can be read."""
    try:
        with opened() as stream:
            if progress is None:
                yield from stream
                return
            for line in stream:
                progress(len(line))
                yield line
    except Unreadable as error:
        broken[name] = error.why


@register("reader")
def looks_like(start: bytes, name: str = "") -> str:
    """One line: what a file looks like, and what is read.

    >>> looks_like(b'{"a": 1, "b": []}').split(";")[0]
    'not a log that Podium knows: it looks like JSON with the fields a, b'
    """
    kind = _kind(start.lstrip(b"\xef\xbb\xbf \t\r\n"), os.path.basename(name))
    return (
        f"not a log that Podium knows: it looks like {kind}; read are Podium's own traces and logs of "
        f"{len(names('importer'))} systems, such as Claude Code, Codex and OTLP: podium import --help names all"
    )


def _kind(start: bytes, name: str) -> str:
    if not start:
        return "an empty file"
    if start.startswith(b"PK\x03\x04") or start[257:262] == b"ustar":
        return "an archive in which there is no such log"
    if start[:1] in b"{[":
        shape = "an array of JSON" if start[:1] == b"[" else "JSON"
        if start[:1] == b"{" and _whole_line(start):
            shape = "JSON lines"
        names = (key.decode(errors="replace")[:40] for key in islice(top_fields(start), 6))
        fields = list(dict.fromkeys("".join(c if c.isprintable() else "\ufffd" for c in name) for name in names))
        return f"{shape} with the fields {', '.join(fields)}" if fields else shape
    try:
        text = start[:4096].decode()
    except UnicodeDecodeError as error:
        text = start[: error.start].decode() if error.start > 4000 else "\0"
    if "\0" in text:
        return f"binary data{f' ({name})' if name else ''}"
    return f"text, {text.splitlines()[0][:40]!r}"


def _whole_line(start: bytes) -> bool:
    line, end, rest = start.partition(b"\n")
    try:
        return bool(end and rest.strip()) and isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
