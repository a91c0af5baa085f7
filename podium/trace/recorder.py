"""The recorder: what a running team calls. Safe under asyncio, threads and several processes that write one run.

A run is a folder. Each writer (a process) appends to a segment of its own there, `w0.jsonl`, `w1.jsonl`, ..., and
names its events (writer, number). Loading the folder merges the segments, causes first.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import ValidationError

from podium.trace.columns import Trace
from podium.trace.depth import TOO_DEEP, is_deep
from podium.trace.files import load
from podium.trace.log import header_line
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES, Decision, EdgeType, EventType
from podium.trace.wire import LOG_VERSION, Closing, ClosingLine, Extension, Header, HeaderLine, LogEvent

__all__ = ["Name", "Recorder", "Span"]

Name = tuple[str, int]
Causes = Name | Iterable[Name | tuple[EdgeType, Name]]

_DRAIN_EVERY = 4096
_STATED = ("to", "role", "tool", "content_ref", "trusted")  # what the survey's event has beside type and agent
_LISTS = {"tokens", "logps", "mask"}  # one entry a token: may be given as arrays
_encode, _convert = msgspec.json.Encoder().encode, msgspec.convert
_TAKEN = {f.encode_name for f in msgspec.structs.fields(LogEvent)}
_live: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder:
    """Records a run, event by event. A cause is the name of an event that has happened.

    >>> folder = tempfile.mkdtemp()
    >>> ticks = count()
    >>> with Recorder(f"{folder}/run", task_id="sum", clock=lambda: float(next(ticks))) as record:
    ...     plan = record.decide("lead", "spawn", "yes", options=["yes", "no"])
    ...     hire = record.add("spawn", "lead", to="ann", after=[("spawn", plan)])
    ...     done = record.add("return", "ann", to="lead", after=[("spawn", hire)])
    ...     record.outcome(rewards={"team": 1.0})
    >>> record.trace()
    Trace(1 rollout, 3 events, 2 edges, 2 agents)
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        trace_id: str | None = None,
        task_id: str | None = None,
        system: str | None = None,
        topology: str | None = None,
        **run: Any,
    ) -> None:
        """Starts a run in a new folder, or joins the one that is there. `run` are fields of the run: group, seed,
        env, params, harness, parent, branch, do, batch, clock_skew_s."""
        self.folder = Path(folder)
        self._clock = clock
        given = {
            "trace_id": trace_id,
            "task_id": task_id,
            "system": system,
            "topology": topology,
            "run": run or None,
        }
        stated = {"trace_id": self.folder.name} | {k: v for k, v in given.items() if v is not None}
        self._header = msgspec.convert(stated | {"version": LOG_VERSION, "writer": "w"}, Header)
        self._named = trace_id is not None
        self._lock = threading.Lock()
        self._open()
        _live.add(self)

    def _open(self) -> None:
        """A segment of its own: a new writer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        joined = _header_there(self.folder)
        trace_id = self._header.trace_id
        if joined is None:
            self._zero = self._clock()
        else:
            if self._named and trace_id != joined.trace_id:
                raise ValueError(f"{self.folder} holds the run {joined.trace_id!r}, not {trace_id!r}")
            trace_id = joined.trace_id
            self._zero = self._clock() if joined.clock is msgspec.UNSET else joined.clock
            if self._clock() < self._zero:
                raise ValueError(
                    f"the clock shows less than at the start of the run in {self.folder}: not the same clock"
                )
        header = msgspec.structs.replace(self._header, trace_id=trace_id, clock=self._zero)
        self.writer, self._file = _new_segment(self.folder, header)
        self._count = count()
        self._lines: deque[bytes] = deque()
        self._outcome: dict[str, dict[str, float]] = {}
        self._written = 0
        self._closed = False

    def add(
        self,
        type: EventType,
        agent: str,
        *,
        after: Causes = (),
        to: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        content_ref: str | None = None,
        trusted: bool | None = None,
        extra: dict[str, Any] | None = None,
        name: Name | None = None,
        **podium: Any,
    ) -> Name:
        """Something happened: the event's name, for others to give as a cause.

        `after` are its causes, each a name or (edge type, name); `podium` are Podium's fields (end, tokens_in,
        decision, rewards, ...); `extra` are fields of your own; `name` is one that `reserve` gave.
        """
        t, n = self._clock() - self._zero, next(self._count) if name is None else name[1]
        self._write(n, t, type, agent, after, (to, role, tool, content_ref, trusted), extra, podium)
        return (self.writer, n)

    def reserve(self) -> Name:
        """The name of an event that is under way and will be added when it is over. Each must be added once."""
        return (self.writer, next(self._count))

    def _write(
        self,
        n: int,
        t: float,
        type: str,
        agent: str,
        after: Causes,
        stated: tuple[Any, ...],
        extra: dict[str, Any] | None,
        podium: dict[str, Any],
    ) -> None:
        line: dict[str, Any] = {"n": n, "t": t, "type": type, "agent": agent}
        to, role, tool, content_ref, trusted = stated
        if to is not None:
            line["to"] = to
            if type == "message" or type == "return":
                line["from"] = agent
        if role is not None:
            line["role"] = role
        if tool is not None:
            line["tool"] = tool
        if content_ref is not None:
            line["content_ref"] = content_ref
        if trusted is not None:
            line["trusted"] = trusted
        if after:
            line["after"] = self._causes(after)
        if podium:
            line["podium"] = _recorded(podium)
        try:
            _convert(line, LogEvent)
        except ValidationError as error:
            raise ValueError(_explained(line, error)) from None
        if extra:
            line |= _own(extra)
        if self._closed:
            raise ValueError(f"the recorder of {self.folder} is closed")
        self._lines.append(_spelled(line))
        if not n % _DRAIN_EVERY:
            self.flush()

    def _causes(self, after: Any) -> list[Any]:
        writer, causes = self.writer, []
        if after.__class__ is tuple and len(after) == 2 and after[1].__class__ is int:
            after = (after,)
        for cause in after:
            try:
                kind, name = ("causal", cause) if cause[1].__class__ is int else cause
                owner, n = name
            except (TypeError, IndexError, ValueError):
                raise ValueError(f"after: expected names of events or (edge type, name), got {cause!r}") from None
            causes.append((kind, n) if owner == writer else (kind, n, owner))
        return causes

    def decide(
        self,
        agent: str,
        kind: Decision,
        chosen: str,
        *,
        options: list[str] | None = None,
        logp: float | None = None,
        option_logps: list[float] | None = None,
        **more: Any,
    ) -> Name:
        """One of the five decisions: what could be chosen, what was, and how likely that and every option was."""
        if kind not in DECISIONS:
            raise ValueError(f"no decision {kind!r}; there are {', '.join(DECISIONS)}")
        given = {"options": options, "logp": logp, "option_logps": option_logps}
        more |= {k: v for k, v in given.items() if v is not None}
        return self.add("orchestrator_decision", agent, decision=kind, chosen=chosen, **more)

    @contextmanager
    def span(self, type: EventType, agent: str, **fields: Any) -> Iterator[Span]:
        """An event that takes time: it has its name at once, and is written with its end when the block is left. An
        exception marks it `valid=False` and goes on."""
        span = Span((self.writer, next(self._count)), fields)
        start = self._clock() - self._zero
        try:
            yield span
        except BaseException:
            fields["valid"] = False
            raise
        finally:
            after, extra = fields.pop("after", ()), fields.pop("extra", None)
            stated = tuple(fields.pop(name, None) for name in _STATED)
            fields["end"] = self._clock() - self._zero
            self._write(span.name[1], start, type, agent, after, stated, extra, fields)

    def outcome(
        self,
        rewards: dict[str, float] | None = None,
        costs: dict[str, float] | None = None,
        metrics: dict[str, float] | None = None,
    ) -> None:
        """What the run as a whole earned, cost and measured; written when the recorder is closed."""
        for name, figures in (("rewards", rewards), ("costs", costs), ("metrics", metrics)):
            if figures is not None:
                self._outcome.setdefault(name, {}).update(figures)

    def flush(self, disk: bool = False) -> None:
        """Returns when all that was added is with the operating system (a killed process loses none of it); with
        `disk`, when it is on disk (a power cut loses none of it)."""
        with self._lock:
            self._drain()
            if disk:
                os.fsync(self._file)

    def _drain(self) -> None:
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        if lines:
            _write_all(self._file, b"\n".join(lines) + b"\n")
            self._written += len(lines)

    def close(self) -> None:
        """Writes what is left and the closing line. Nothing can be added after."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._drain()
            end = Closing(events=self._written, **self._outcome)  # type: ignore[arg-type]
            _write_all(self._file, _encode(ClosingLine(end)) + b"\n")
            os.fsync(self._file)
            os.close(self._file)

    def trace(self) -> Trace:
        """The run so far, checked: all segments of all writers, as far as they have been flushed."""
        if not self._closed:
            self.flush()
        return load(self.folder)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _joined, (self.folder, self._clock)


class Span:
    """An event under way: its name, and what becomes known of it before it ends."""

    __slots__ = ("_fields", "name")

    def __init__(self, name: Name, fields: dict[str, Any]) -> None:
        self.name, self._fields = name, fields

    def set(self, **fields: Any) -> None:
        self._fields.update(fields)


def _explained(line: dict[str, Any], error: ValidationError) -> str:
    message = f"{line['type']} by {line['agent']!r}: {error}"
    if line["type"] not in EVENT_TYPES:
        return f"no event type {line['type']!r}; there are {', '.join(EVENT_TYPES)}"
    if "unknown field" in message:
        return f"{message}; there are {', '.join(f.encode_name for f in msgspec.structs.fields(Extension))}"
    if "$.podium.mask" in message:
        mask = "a mask has, for each token, 1 or True: sampled by the policy, 0 or False: given to it, or None"
        return f"{message}; {mask}"
    return message


def _spelled(line: dict[str, Any]) -> bytes:
    """A line as it is written. What could not be read back is refused."""
    try:
        text = _encode(line)
    except RecursionError:
        text = None
    if text is None or is_deep(text):
        raise ValueError(f"{line['type']} by {line['agent']!r}: its fields are {TOO_DEEP}")
    return text


def _recorded(podium: dict[str, Any]) -> dict[str, Any]:
    """Without what is None or NaN: that is not recorded. JSON has no Infinity."""
    fields = {}
    for name, value in podium.items():
        if value.__class__ is dict:
            value = _recorded(value)
        elif name in _LISTS:
            value = _as_list(value)
        if value is None or value != value or value == {}:
            continue
        if value.__class__ is float and abs(value) == inf:
            raise ValueError(f"{name} is infinite, which JSON cannot say")
        fields[name] = value
    return fields


def _as_list(value: Any) -> Any:
    """An array, a tuple, or a list of an array's numbers, as a list of Python's own; anything else as it is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if value.__class__ is tuple:
        value = list(value)
    if value.__class__ is list and value and hasattr(value[0], "item"):
        return [v.item() if hasattr(v, "item") else v for v in value]
    return value


def _own(extra: dict[str, Any]) -> dict[str, Any]:
    """The caller's own fields, none of which may be one that an event has."""
    if not _TAKEN.isdisjoint(extra):
        taken = ", ".join(sorted(_TAKEN & extra.keys()))
        raise ValueError(f"extra fields may not be called {taken}: an event has these already")
    return extra


def _header_there(folder: Path) -> Header | None:
    """The header of the run's first segment, if the folder has one."""
    first = folder / "w0.jsonl"
    if first.exists():
        with first.open("rb") as f:
            return msgspec.json.decode(f.readline(), type=HeaderLine).podium_log
    if any(p for p in folder.iterdir() if not p.name.startswith(".")):
        raise ValueError(f"{folder} is not empty and not a run; expected a new folder or one with a w0.jsonl")
    return None


def _new_segment(folder: Path, header: Header) -> tuple[str, int]:
    """A segment that did not exist, its header in it from the moment it is there; the writer's name and the
    file."""
    taken = [int(m[1]) for p in os.listdir(folder) if (m := re.fullmatch(r"w(\d+)\.jsonl", p))]
    for number in count(max(taken, default=-1) + 1):
        writer = f"w{number}"
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new.")
        try:
            _write_all(handle, header_line(msgspec.structs.replace(header, writer=writer)))
            os.fsync(handle)
            os.chmod(temporary, 0o644)
            os.link(temporary, folder / f"{writer}.jsonl")
        except FileExistsError:
            continue
        finally:
            os.close(handle)
            os.unlink(temporary)
        return writer, os.open(folder / f"{writer}.jsonl", os.O_WRONLY | os.O_APPEND)
    raise AssertionError("unreachable")


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _joined(folder: Path, clock: Callable[[], float]) -> Recorder:
    return Recorder(folder, clock=clock)


def _after_fork() -> None:
    """A forked process is a writer of its own; what its parent had not yet written is the parent's to write."""
    for recorder in list(_live):
        if not recorder._closed:
            recorder._lock = threading.Lock()
            os.close(recorder._file)
            recorder._open()


os.register_at_fork(after_in_child=_after_fork)
