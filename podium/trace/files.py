"""Traces from and to files: which form a path has, and everything that can be wrong with one.

A path is a survey document, JSON lines of them, an event log, a store, a log of another system that an importer
knows, or a folder of any of these; `-` is standard input. Compressed files are read as they are.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import select
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import msgspec
import numpy as np

from podium.registry import find
from podium.trace import log, store, survey
from podium.trace.columns import Trace, concat
from podium.trace.findings import BadTrace, Finding, Unreadable
from podium.trace.log import Segment
from podium.trace.loose import Loose, Place, settle
from podium.trace.rules import LEVELS, check
from podium.trace.scan import LOG_EVENTS, Shape

__all__ = [
    "Read",
    "check_paths",
    "finished",
    "groups_of",
    "load",
    "load_with_files",
    "read",
    "read_together",
    "save",
    "write_whole",
]

MOST_BYTES, PIECE = 8 << 30, 64 << 20  # of one document, uncompressed, and of one read
MOST_UNPACKED, MOST_TIMES = 64 << 20, 100  # an archive may grow to the larger of this and so many times its size
MOST_BLANK = 1 << 20  # before a document or log begins
PIPE_PATIENCE_S = 20.0
BUFFER = 1 << 17  # bytes that are read at a time
SUFFIXES = (".json", ".jsonl", ".ndjson")
COMPRESSED = (".gz", ".xz", ".zst")
Progress = Callable[[int], None] | None
Stream = AbstractContextManager[io.BufferedReader]


class Read(NamedTuple):
    """What came of reading one run: the trace, if there is one, and what is wrong with it."""

    file: str
    trace: Trace | None
    findings: list[Finding]


def load(*paths: str | Path) -> Trace:
    """All runs at these paths as one trace. Raises Unreadable, or BadTrace if a rule of level error is broken."""
    return load_with_files(*paths)[0]


def load_with_files(*paths: str | Path) -> tuple[Trace, list[str]]:
    """`load`, and the file that each run comes from."""
    reads = list(read(*paths))
    if errors := [f for r in reads for f in r.findings if f.level == "error"]:
        raise BadTrace(errors)
    traces = [r.trace for r in reads if r.trace is not None]
    return concat(traces), [r.file for r in reads if r.trace is not None for _ in range(len(r.trace))]


def check_paths(*paths: str | Path, progress: Progress = None) -> Iterator[Finding]:
    """What is wrong with the runs at these paths. Reads only what the rules look at."""
    for one in read(*paths, shape=log.CHECKED, progress=progress):
        yield from one.findings


def read(
    *paths: str | Path, shape: Shape = LOG_EVENTS, progress: Progress = None, keep: bool = False
) -> Iterator[Read]:
    """Every run at these paths, with what is wrong with it. Raises Unreadable where there is no telling. `progress`
    is told how many bytes of a log were read, as they are. `keep` asks for the content of imported logs."""
    for path in paths:
        if str(path) != "-" and os.path.isdir(path):
            yield from _read_folder(Path(path), shape, progress, keep)
        elif str(path) == "-" or _is_ours(str(path)):
            yield from _read_files([str(path)], "", shape, progress)
        else:
            yield from _read_foreign([str(path), *find("reader", "beside")(str(path))], False, keep, progress)


def groups_of(paths: Iterable[str]) -> list[list[str]]:
    """These paths, each once and none that lies in another; logs of other systems together, since one may be a copy
    or the beginning of another."""
    places = {os.path.realpath(path): path for path in paths}
    whole = [path for place, path in places.items() if not any(str(p) in places for p in Path(place).parents)]
    foreign = [path for path in whole if not os.path.isdir(path) and path != "-" and not _is_ours(path)]
    return [[path] for path in whole if path not in foreign] + ([foreign] if foreign else [])


def read_together(paths: list[str], keep: bool) -> Iterator[Read]:
    """The runs in one group of paths."""
    if len(paths) == 1:
        yield from read(*paths, keep=keep)
    else:
        files = [file for path in paths for file in (path, *find("reader", "beside")(path))]
        yield from _read_foreign(files, True, keep, None)


def _is_ours(file: str) -> bool:
    """Whether a file is one of Podium's own forms, or so broken that there is no telling."""
    if not os.path.isfile(file):
        return True  # a pipe can be read once
    try:
        with opened(file) as stream:
            start = stream.read(1 << 16)
    except Unreadable:
        return True  # whoever reads it will say what is wrong
    return not start.strip() or log.is_log(start) or survey.resembles(start)


def _read_foreign(paths: list[str], several: bool, keep: bool, progress: Progress) -> Iterator[Read]:
    """The runs in logs of other systems. A file that nobody knows is told in one line, among several as a
    warning."""
    for one in find("reader", "read_foreign")(paths, keep, progress):
        if isinstance(one, Read):
            yield one
            continue
        start = _start(one)
        what = find("reader", "looks_like")(start, one)
        if not several:
            nameless = not any(survey.top_fields(start)) and (start[:1] != b"{" or survey.resembles(start))
            if _is_trace_name(Path(one)) and nameless:
                yield from _read_files([one], "", LOG_EVENTS, progress)  # which says how it is not a trace
                continue
            raise Unreadable(one, what)
        yield Read(one, None, [Finding(one, None, "log-unknown", LEVELS["log-unknown"], what)])


def _start(file: str) -> bytes:
    with opened(file) as stream:
        return stream.read(1 << 16)


def _read_folder(folder: Path, shape: Shape, progress: Progress, keep: bool) -> Iterator[Read]:
    if store.is_store(folder):
        trace = store.read(folder)
        yield Read(str(folder), trace, check(trace, str(folder)))
        return
    files = sorted(f for f in folder.rglob("*") if f.is_file() and not _hidden(f, folder))
    ours = [f for f in files if _is_trace_name(f) and _is_ours(str(f))]
    others = [str(f) for f in files if f not in set(ours)]
    for together in _by_run(ours).values():
        yield from _read_files([str(f) for f in together], str(together[0].parent), shape, progress)
    foreign, unknown = 0, []
    for one in _read_foreign(others, True, keep, progress) if others else ():
        foreign += one.trace is not None
        if one.trace is None:
            unknown.append(one)
        else:
            yield one
    named = [one for one in unknown if _is_trace_name(Path(one.file))]
    if ours or foreign:
        yield from unknown if foreign else named  # beside our own traces lie notes and figures
    elif named:
        raise Unreadable(named[0].file, named[0].findings[0].message)
    else:
        what = f"a folder without traces; expected files named *{', *'.join(SUFFIXES)}, or a store"
        raise Unreadable(str(folder), what)


def _by_run(files: list[Path]) -> dict[tuple[Path, str], list[Path]]:
    """The files that must be read together: logs of one folder that name the same run are segments of it."""
    groups: dict[tuple[Path, str], list[Path]] = {}
    for file in files:
        groups.setdefault((file.parent, _names_run(file) or file.name), []).append(file)
    return groups


def _names_run(file: Path) -> str | None:
    """The run that the first line of a log names; None for what is not a log."""
    try:
        with opened(str(file)) as stream:
            line = stream.readline(1 << 20)
        return log.header_of(line).trace_id if log.is_log(line) else None
    except (Unreadable, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # whoever reads it will say what is wrong


def _read_files(files: list[str], folder: str, shape: Shape, progress: Progress) -> Iterator[Read]:
    runs: list[list[Segment]] = []
    words = shape.dictionaries()
    for file in files:
        for one in _read_any(file, shape, words, progress):
            if isinstance(one, Segment):
                _joined(runs, one)
            else:
                yield one
    for segments in runs:
        several = len({s.file for s in segments}) > 1
        yield finished(log.run_of(segments), folder if several else segments[0].file)


def _joined(runs: list[list[Segment]], segment: Segment) -> None:
    """Puts a segment to the run that it names and where its writer is not yet; else it begins another."""
    for run in runs:
        same = run[0].header.trace_id == segment.header.trace_id
        if same and all(s.header.writer != segment.header.writer for s in run):
            run.append(segment)
            return
    runs.append([segment])


def _read_any(file: str, shape: Shape, words: dict[str, Any], progress: Progress) -> Iterator[Read | Segment]:
    """The documents of a file, or the segments of a log."""
    name = "standard input" if file == "-" else file
    with opened(file) as stream, complaints(name):
        blank = 0
        while not (start := stream.peek(1 << 16)).strip():
            blank += len(stream.read(len(start)))
            if not start or blank > MOST_BLANK:
                raise Unreadable(name, "empty; expected a trace")
        if log.is_log(start):
            yield from log.read_segments(blocks(stream, progress), name, shape, words)
            return
        data = _whole(stream, name)
    if not os.path.isfile(file) and not survey.resembles(
        data[: 1 << 16]
    ):  # a pipe, which could not be looked into before
        runs = list(find("reader", "read_piped")(data, name))
        if runs:
            yield from runs
            return
    yield from _documents(data, name)


def _whole(stream: IO[bytes], name: str) -> bytes:
    """All of a stream; one that says how long it is, in one piece."""
    pieces, size = [], 0
    known = (
        os.fstat(stream.fileno()).st_size
        if isinstance(stream, io.BufferedReader) and stream.raw.__class__ is io.FileIO
        else 0
    )
    while piece := stream.read() if 0 < known <= MOST_BYTES else stream.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise Unreadable(
                name, f"larger than {MOST_BYTES >> 30} GiB; write it as an event log to read it in pieces"
            )
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _documents(data: bytes, file: str) -> Iterator[Read]:
    """One document, or one a line."""
    end = data.find(b"\n", len(data) - len(data.lstrip()))
    if (
        end > 0
        and data[max(0, end - 99) : end].rstrip().endswith(b"}")
        and data[end : end + 99].lstrip().startswith(b"{")
    ):
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                where = f"{file}:{number}"
                yield finished(survey.read_document(line, where), where)
    else:
        yield finished(survey.read_document(data, file), file)


def finished(loose: Loose | list[Place], file: str) -> Read:
    """The run that was read, once its rules are checked; or the ways in which it could not be."""
    if isinstance(loose, list):
        return Read(file, None, [Finding(file, p.position, p.rule, LEVELS[p.rule], p.message) for p in loose])
    trace, broken, order = settle(loose)
    rows = np.arange(0) if order is None or not broken else np.argsort(order)  # by place in the file
    findings = [
        Finding(
            file,
            p.position if order is None or p.position is None else int(rows[p.position]),
            p.rule,
            LEVELS[p.rule],
            p.message,
        )
        for p in broken
    ]
    return Read(file, trace, findings + check(trace, file))


def _is_trace_name(path: Path) -> bool:
    name = path.name
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(SUFFIXES)


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def blocks(stream: IO[bytes], progress: Progress, size: int = log.BLOCK) -> Iterator[bytes]:
    """The stream in blocks of whole lines; the last may end within one."""
    pieces: list[bytes] = []
    while block := stream.read(size):
        if progress:
            progress(len(block))
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*pieces, block[:cut]])
            pieces = [block[cut:]] if cut < len(block) else []
        else:
            pieces.append(block)
    if pieces:
        yield b"".join(pieces)


@contextmanager
def complaints(file: str) -> Iterator[None]:
    """Whatever a file, an archive or the machine has to complain of, as Unreadable."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise Unreadable(file, f"a damaged or truncated archive: {error}") from None
    except OSError as error:
        raise Unreadable(file, error.strerror or str(error)) from None
    except MemoryError:
        raise Unreadable(file, "too large for this machine's memory") from None


@contextmanager
def opened(file: str) -> Iterator[io.BufferedReader]:
    name = "standard input" if file == "-" else file
    with complaints(name):
        source: Any = sys.stdin.buffer.raw if file == "-" else _patient(file)  # type: ignore[union-attr]
        raw = io.BufferedReader(source, BUFFER)
        try:
            yield uncompressed(raw, name)
        finally:
            raw.detach() if file == "-" else raw.close()


def _patient(file: str) -> io.RawIOBase:
    """The file, opened."""
    try:
        mode = os.stat(file).st_mode
    except ValueError as error:  # a name that no file can have
        raise OSError(0, str(error)) from None
    if not stat.S_ISFIFO(mode):
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            raise OSError(0, "not a file, a pipe or a folder")
        return open(file, "rb", buffering=0)
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a writer
    os.set_blocking(descriptor, True)
    return _Pipe(descriptor)


class _Pipe(io.FileIO):
    """A pipe. One that nobody writes to is waited for, but not for ever."""

    def readinto(self, buffer: Any, /) -> int | None:
        if not select.select([self], [], [], PIPE_PATIENCE_S)[0]:
            raise OSError(0, f"a pipe to which nothing was written for {PIPE_PATIENCE_S:g} s")
        return super().readinto(buffer)


def uncompressed(file: IO[bytes], name: str) -> io.BufferedReader:
    """What a stream holds, uncompressed if it is compressed."""
    raw: Any = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file, BUFFER)
    start, packed = raw.peek(6)[:6], _Counted(raw)
    if start.startswith(b"\x1f\x8b"):
        return io.BufferedReader(
            _Unpacked(gzip.GzipFile(fileobj=io.BufferedReader(packed, BUFFER)), packed), BUFFER
        )
    if start.startswith(b"\xfd7zXZ\x00"):
        return io.BufferedReader(_Unpacked(lzma.LZMAFile(io.BufferedReader(packed, BUFFER)), packed), BUFFER)
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        try:
            import pyarrow as pa
        except ImportError:
            raise Unreadable(name, "reading .zst needs pyarrow: pip install 'podium[store]'") from None
        unpacked = pa.CompressedInputStream(io.BufferedReader(packed, BUFFER), "zstd")
        return io.BufferedReader(_Unpacked(unpacked, packed), BUFFER)
    return cast(io.BufferedReader, raw)


class _Counted(io.RawIOBase):
    """A stream, and how many bytes of it were read."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        count = self.stream.readinto(buffer)
        self.count += count or 0
        return cast("int | None", count)


class _Unpacked(_Counted):
    """What an archive holds. A small one that would fill the memory is left alone."""

    def __init__(self, stream: Any, packed: _Counted) -> None:
        super().__init__(stream)
        self.packed = packed

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        if self.count > max(MOST_UNPACKED, MOST_TIMES * self.packed.count):
            why = f"unpacks to more than {MOST_TIMES} times its size, {self.count >> 20} MiB so far"
            raise OSError(0, f"{why}; unpack it yourself if it is to be read")
        return count


def save(trace: Trace, path: str | Path) -> None:
    """Write a trace in the form that the path's name asks for; all of it or nothing.

    `.json` a survey document (one run), `.jsonl` an event log, `.store` a store, a name that ends in `/` a folder
    of documents; `.gz` and `.xz` after the first two compress.
    """
    text = str(path)
    path = Path(path)
    if text.endswith("/"):
        _save_folder(trace, path)
    elif path.name.endswith(".store"):
        store.add(path, trace)
    else:
        write_whole(path, _packed(path.name, _encoded(trace, path)))


def _encoded(trace: Trace, path: Path) -> bytes:
    name = path.name
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    if name.endswith(".json"):
        if len(trace) != 1:
            raise Unreadable(
                str(path), f"a .json file holds one run, there are {len(trace)}: use .jsonl, .store or a folder/"
            )
        return survey.write(trace)
    if name.endswith(".jsonl"):
        return b"".join(log.write(one) for one in trace)
    raise Unreadable(str(path), "what form? expected a name that ends in .json, .jsonl, .store or /")


def _packed(name: str, data: bytes) -> bytes:
    if name.endswith(".gz"):
        return gzip.compress(data, mtime=0)
    if name.endswith(".xz"):
        return lzma.compress(data)
    if name.endswith(".zst"):
        try:
            import pyarrow as pa
        except ImportError:
            raise Unreadable(name, "writing .zst needs pyarrow: pip install 'podium[store]'") from None
        return bytes(pa.compress(data, codec="zstd", asbytes=True))
    return data


def _save_folder(trace: Trace, folder: Path) -> None:
    with complaints(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Unreadable(str(folder), "not empty; expected a new or empty folder")
    width = len(str(len(trace)))
    for i, one in enumerate(trace):
        write_whole(folder / f"{i:0{width}}.json", survey.write(one))


def write_whole(path: Path, data: bytes) -> None:
    with complaints(str(path)):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
