"""A team at work: agents as asyncio tasks, recorded as they go."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from inspect import isawaitable
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from podium.harness.bounded import Bounded
from podium.harness.core import Core, Stamp
from podium.harness.member import GONE, IDLE, QUEUED, RESTING, THINKING, Mail, Member
from podium.harness.team import BadTeam, Team, fingerprint
from podium.harness.tools import Tool, begin, finish, result
from podium.harness.types import Caller, Fault, Item, Result, Running, See, crash, shown
from podium.harness.understand import Understood, content_of, understood
from podium.trace.columns import Trace
from podium.trace.files import load
from podium.trace.recorder import Recorder

__all__ = [
    "Door",
    "Interrupted",
    "Live",
    "Ran",
    "answered",
    "awaited",
    "new_folder",
    "play",
    "recorder",
    "run",
    "to_the_end",
]

T = TypeVar("T")
Door = Callable[[Running], Awaitable[None]]
FAIR = 16  # steps that an agent may take at a stretch
GRACE = 1.0  # seconds in which a step that is told to stop must have
FLUSH = 0.4  # seconds after which, at the next sweep, what was recorded is handed to the operating system
STATES = {IDLE: "waits", RESTING: "rests", QUEUED: "wants a slot", THINKING: "thinks", GONE: "gone"}


@dataclass(frozen=True)
class Ran:
    """A run that is over. A record for which no folder was named lies in a temporary one, which goes when this
    object does: ask it for the trace while you have it."""

    answer: Any
    fault: Fault | None  # why it ended, where that is not the lead's doing
    reward: float | None
    folder: Path
    metrics: dict[str, float]

    @property
    def trace(self) -> Trace:
        return load(self.folder)


class Interrupted(KeyboardInterrupt):
    """A signal ended the run. What happened until then is on record, and that it was interrupted."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class _Worker:
    """What drives one agent: its task, the future it waits on, the calls it is to make, and those under way."""

    __slots__ = ("calls", "deadline", "jobs", "late", "task", "waker")

    def __init__(self) -> None:
        self.deadline = inf  # of its step
        self.late = False  # it was told that it is over
        self.task: asyncio.Task[None] | None = None
        self.waker: asyncio.Future[None] | None = None
        self.jobs: list[int] = []
        self.calls: set[asyncio.Task[None]] = set()


class Live:
    """A run under way. It is the core's driver, and what a person's door sees."""

    def __init__(
        self,
        team: Team,
        task: Any,
        seed: int,
        record: Recorder,
        stamp: Stamp,
        folder: Path | None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._bounded = Bounded()
        self._time = clock  # what times on record are read off
        self._zero = clock()
        self._over = self._loop.create_future()
        self._go: asyncio.Event | None = None  # set to go on, where the run is paused
        self._busy = 0  # agents and calls that are not waiting, and alarms
        self._attended = False  # a person may yet say something
        self._clock: asyncio.TimerHandle | None = None
        self.core = Core(team, task, seed, record, stamp, self, folder)

    def tick(self) -> None:
        """Sets the time, which is later than it was."""
        now = self._time() - self._zero
        core = self.core
        core.now = now if now > core.now else core.now + 1e-9

    async def play(self, door: Door | None) -> None:
        """Plays the run to its end. Nothing of it is left running."""
        limit = self.core.team.budget.seconds
        if limit is not None:
            self._clock = self._loop.call_later(limit, self._run_out)
        self._attended = door is not None
        beside = {self._loop.create_task(self._sweep())}
        if door is not None:
            beside.add(self._loop.create_task(self._visit(door)))
        self.started(self.core.lead)
        try:
            await self._over
        except asyncio.CancelledError as error:
            if not self.core.over:
                self.tick()
                self.core.interrupt(str(error) or "it was cancelled")
            raise
        except Exception as error:  # a fault of the harness itself: the record says so
            if not self.core.over:
                self.tick()
                with suppress(Exception):
                    self.core.interrupt(f"a fault of the harness: {shown(error)}")
            raise
        finally:
            if self._clock is not None:
                self._clock.cancel()
            left = {
                t for m in self.core.members.values() if m.worker for t in (m.worker.task, *m.worker.calls) if t
            }
            stubborn = await self._bounded.end(left | beside)
            self.core.counted["stubborn"] = stubborn

    async def _visit(self, door: Door) -> None:
        try:
            await door(self)
        finally:
            self._attended = False
            self._check_stall()

    # what the core asks for

    def started(self, member: Member) -> None:
        worker = member.worker = _Worker()
        self._busy += 1
        worker.task = self._loop.create_task(self._work(member, worker))

    def wake(self, member: Member) -> None:
        waker = member.worker.waker
        if waker is not None and not waker.done():
            waker.set_result(None)
            self._busy += 1

    def call(self, member: Member, at: int) -> None:
        member.worker.jobs.append(at)

    def alarm(self, member: Member) -> None:
        assert member.role.patience is not None
        self._busy += 1
        self._loop.call_later(member.role.patience, self._ring, member, member.turn)

    def drop(self, member: Member) -> None:
        worker = member.worker
        if worker is None:
            return
        if worker.task is not None and worker.task is not asyncio.current_task():
            worker.task.cancel()
        for task in worker.calls:
            if task is not asyncio.current_task():
                task.cancel()
        if member.parent is None and not self._over.done():
            self._over.set_result(None)

    def acting(self, member: Member, at: int) -> None:
        pass

    def reworded(self, key: str, item: Item) -> None:
        pass

    def altered(self, to: Member, mail: Mail) -> Mail | None:
        return mail

    # agents

    async def _work(self, member: Member, worker: _Worker) -> None:
        try:
            await self._steps(member, worker)
        except asyncio.CancelledError:
            if member.state != GONE and not self.core.over:
                self.tick()
                self._crashed(member, Fault("cancelled", f"{member.name} was cancelled"))
        except Exception as error:
            if not self.core.over:
                self._fail(error)
        finally:
            self._busy -= 1
            self._check_stall()

    async def _steps(self, member: Member, worker: _Worker) -> None:
        core, steps = self.core, 0
        while member.state != GONE and not core.over:
            steps += 1
            if not steps % FAIR:
                await asyncio.sleep(0)  # an agent that never waits must not keep the others from their turn
                continue
            if self._go is not None:
                await self._go.wait()
                continue
            if member.state == QUEUED or (member.state == IDLE and not member.ready()):
                await self._sleep(worker)
                continue
            self.tick()
            if not core.admit(member):
                continue
            see = core.begin(member)
            if see is None:
                return
            outcome = await self._think(member, worker, see)
            if member.state != THINKING or core.over:
                return
            self.tick()
            rest = core.end(member, outcome)
            if rest is not None:
                await asyncio.sleep(rest)
            elif len(worker.jobs) == 1 and member.role.wait == "all":
                await self._make_call(member, worker.jobs.pop())
            elif worker.jobs:
                self._make_calls(member, worker)

    async def _sleep(self, worker: _Worker) -> None:
        waker = worker.waker = self._loop.create_future()
        self._busy -= 1
        try:
            if not self._busy:
                self._check_stall()
            await waker
        finally:
            worker.waker = None
            if not waker.done() or waker.cancelled():
                self._busy += 1  # nobody woke it

    async def _think(self, member: Member, worker: _Worker, see: See) -> Understood | Fault:
        role = member.role
        worker.late = False
        if role.seconds is not None:
            worker.deadline = monotonic() + role.seconds
        outcome: Understood | Fault
        try:
            outcome = understood(await role.agent(see))
        except asyncio.CancelledError:
            if not worker.late and worker.task is not None and worker.task.cancelling():
                raise  # by someone outside
            outcome = Fault("cancelled", "the step was cancelled", retry=True)
        except Fault as fault:
            outcome = fault if fault.kind != "nonsense" else Fault("nonsense", fault.why, retry=True)
        except Exception as error:
            outcome = Fault("exception", shown(error), retry=True)
        except BaseException as error:
            outcome = crash(error)
        worker.deadline = inf
        if worker.late:
            if worker.task is not None:
                worker.task.uncancel()
            outcome = Fault("timeout", f"a step took more than {role.seconds:g} s", retry=True)
        return outcome

    async def _sweep(self) -> None:
        """Tells steps that they are late, and gives those up that do not heed it. Whoever kills this process loses
        half a second of the record at most."""
        limits = [
            r.seconds for r in (self.core.team.leader, *self.core.team.cast.values()) if r.seconds is not None
        ]
        pause = min(max(min(limits, default=1.0) / 10, 0.002), 0.1)
        flushed = monotonic()
        while True:
            await asyncio.sleep(pause)
            now = monotonic()
            if now > flushed + FLUSH:
                self.core.record.flush()
                flushed = now
            for member in [m for m in self.core.members.values() if m.worker.deadline < now]:
                worker = member.worker
                if not worker.late:
                    worker.late = True
                    worker.task.cancel()
                elif now > worker.deadline + GRACE and member.state == THINKING:
                    worker.deadline = inf
                    self.tick()
                    self.core.end(
                        member, Fault("timeout", "a step took too long and does not heed its cancellation")
                    )

    def _crashed(self, member: Member, fault: Fault) -> None:
        """The task of an agent was ended by someone else."""
        if member.state == THINKING:
            self.core.end(member, fault)
        else:
            self.core.cut_calls(member, fault, [])
            self.core.counted["faults"] += 1
            self.core.lose(member, fault, outside=True)

    # calls

    def _make_calls(self, member: Member, worker: _Worker) -> None:
        jobs, worker.jobs = worker.jobs, []
        for at in jobs:
            self._busy += 1
            task = self._loop.create_task(self._call_beside(member, worker, at))
            worker.calls.add(task)
            task.add_done_callback(worker.calls.discard)

    async def _call_beside(self, member: Member, worker: _Worker, at: int) -> None:
        try:
            await self._make_call(member, at)
        except asyncio.CancelledError:
            if at in member.calls and not self.core.over:
                self.tick()
                self.core.result(member, at, Fault("cancelled", "the call was cancelled"))
        except Exception as error:
            self._fail(error)
        finally:
            self._busy -= 1
            self._check_stall()

    async def _make_call(self, member: Member, at: int) -> None:
        call = member.calls[at].call
        tool = self.core.tools[call.tool]
        outcome = answered(tool, call.args, member, at)
        if not isinstance(outcome, Result | Fault):
            outcome = await awaited(self._bounded, tool, call.args, outcome)
        if at in member.calls and not self.core.over:
            self.tick()
            self.core.result(member, at, outcome)

    # the end, time and people

    def _fail(self, error: Exception) -> None:
        """A fault of the harness itself ends the run, and is raised to whoever runs it."""
        if not self._over.done():
            self._over.set_exception(error)

    def _check_stall(self) -> None:
        if self._busy or self._attended or self._go is not None or self.core.over or self._over.done():
            return
        self.tick()
        self.core.stall()

    def _ring(self, member: Member, turn: int) -> None:
        self._busy -= 1
        if member.state != GONE and member.turn == turn and not self.core.over:
            if self._go is not None:
                self.alarm(member)  # nobody is late while the run is paused
                return
            self.tick()
            self.core.expire(member)
        self._check_stall()

    def _run_out(self) -> None:
        if not self.core.over:
            self.tick()
            self.core.run_out()

    def attend(self, there: bool) -> None:
        """Someone is at the door and may yet say something, or nobody is: then a team that only waits is done."""
        self._attended = there
        if not there:
            self._check_stall()

    @property
    def paused(self) -> bool:
        return self._go is not None

    def pause(self, by: str) -> None:
        """No step begins until the run is resumed; what is under way goes on."""
        if self._go is None and not self.core.over:
            self._go = asyncio.Event()
            self.tick()
            self.core.intervene("pause", by)

    def resume(self, by: str) -> None:
        if self._go is not None:
            self.tick()
            if not self.core.over:
                self.core.intervene("resume", by)
            self._go.set()
            self._go = None

    def inject(self, to: str, content: Any, by: str) -> None:
        """Tells an agent something. Raises ValueError where there is no such agent at work."""
        member = self.core.members.get(to)
        if member is None or member.state == GONE or self.core.over:
            raise ValueError(f"no agent {to!r} is there to be told; there are {', '.join(self.agents())}")
        self.tick()
        self.core.inject(to, content, by)

    def edit(self, event: str, content: Any, by: str) -> None:
        """Changes something that waits to be seen. Raises ValueError where nothing waits under that id."""
        self.tick()
        if not self.core.edit(event, content, by):
            raise ValueError(f"nothing waits to be seen under {event!r}")

    def waiting(self) -> Sequence[tuple[str, Item]]:
        return [
            (m.name, mail.item) for m in self.core.members.values() for mail in m.inbox if mail.event is not None
        ]

    def agents(self) -> Sequence[str]:
        return [m.name for m in self.core.members.values() if m.state != GONE]

    def status(self) -> list[tuple[str, str, str, int]]:
        """A line per agent: its name, its role, what it does, and its steps."""
        return [(m.name, m.role_name, _doing(m), m.turn) for m in self.core.members.values()]

    async def finished(self) -> Any:
        await asyncio.wait({self._over})
        return self.core.answer


def _doing(member: Member) -> str:
    if member.calls:
        return "calls " + ", ".join(p.call.tool for p in member.calls.values())
    if member.awaiting and member.state == IDLE:
        return f"waits for {len(member.awaiting)}"
    return STATES.get(member.state, "waits")


def answered(tool: Tool, args: dict[str, Any], member: Member, at: int) -> Any:
    """What a tool answers an agent, a Result or a Fault; or what to await for it."""
    try:
        answer = begin(tool, args, Caller(member.name, member.folder, tool.seconds, member.dice + at))
        return answer if isawaitable(answer) else result(tool, answer)
    except Fault as fault:
        return fault


async def awaited(bounded: Bounded, tool: Tool, args: dict[str, Any], answer: Any) -> Result | Fault:
    """What it comes to."""
    try:
        return result(tool, await finish(tool, args, answer, bounded))
    except Fault as fault:
        return fault


def recorder(
    folder: Path, stamp: Stamp, team: Team, task: Any, seed: Any, spec: str | None, do: Any = None, **more: Any
) -> Recorder:
    """A recorder whose header says which team, task, seed and harness this is, and what was done otherwise in a
    branch."""
    params = {"team": spec or team.name, "task": content_of(task)}
    if do is not None:
        more["do"] = do
    fields = {"task_id": _task_id(task), **more}
    return Recorder(
        folder, clock=stamp, system="podium", topology=team.topology, env=f"harness:{team.name}", params=params,
        seed=seed, harness=fingerprint(team), **fields,
    )  # fmt: skip


def new_folder(folder: Path, wrong: type[Exception]) -> None:
    """Makes a folder for a record, or takes an empty one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise wrong(f"{folder} cannot be made: {error.strerror}; expected a new folder") from None
    if (folder / "w0.jsonl").exists():
        raise wrong(f"{folder} holds a run already; expected a new folder")
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        raise wrong(f"{folder} is not empty; expected a new folder")


def _task_id(task: Any) -> str:
    text = task if isinstance(task, str) else "" if task is None else str(task)
    return text[:60] or "task"


async def play(
    team: Team,
    task: Any = None,
    *,
    folder: str | Path | None = None,
    seed: int = 0,
    door: Door | None = None,
    folders: bool = False,
    watch: Callable[[Live], None] | None = None,
    spec: str | None = None,
    clock: Callable[[], float] = monotonic,
    **more: Any,
) -> Ran:
    """Runs a team on a task, in the running event loop. The record is in `folder`, and without one in a temporary
    folder that goes when the `Ran` does; with `folders`, agents have folders of their own beside it. Times on
    record are what `clock` shows; steps and tools are timed by the real one. Whoever cancels this ends the run: the
    record has its end, and says that it was interrupted."""
    task = content_of(team.task if task is None else task)
    with ExitStack() as undo:
        if folder is None:
            own = tempfile.mkdtemp(prefix="podium-")
            undo.callback(shutil.rmtree, own, ignore_errors=True)
            folder = Path(own) / "run"
        at, stamp = Path(folder), Stamp()
        new_folder(at, BadTeam)
        with recorder(at, stamp, team, task, seed, spec, **more) as record:
            live = Live(team, task, seed, record, stamp, _desk(at) if folders else None, clock)
            outcome = await _played(live, door, watch, record)
        core = live.core
        ran = Ran(core.answer, core.fault, outcome["rewards"].get("team"), at, outcome["metrics"])
        weakref.finalize(ran, undo.pop_all().close)
    return ran


def _desk(at: Path) -> Path:
    desk = at.parent / f"{at.name}.folders"
    desk.mkdir(parents=True, exist_ok=True)
    return desk.resolve()


async def _played(
    live: Live, door: Door | None, watch: Callable[[Live], None] | None, record: Recorder
) -> dict[str, dict[str, float]]:
    """Plays a run to its end, watched: its outcome, which is on record also where it was interrupted."""
    watching = None if watch is None else asyncio.get_running_loop().create_task(_watched(live, watch))
    outcome: dict[str, dict[str, float]] = {}
    try:
        await live.play(door)
    finally:
        if live.core.over:
            outcome = live.core.outcome()
            record.outcome(**outcome)
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})
    if watch is not None:
        watch(live)
    return outcome


async def _watched(live: Live, watch: Callable[[Live], None]) -> None:
    while True:
        watch(live)
        await asyncio.sleep(0.1)


def run(team: Team, task: Any = None, **options: Any) -> Ran:
    """Runs a team on a task, start to end: `play` for those without an event loop. SIGINT and SIGTERM end the run,
    and come as `Interrupted` when its record is whole.

    >>> async def shout(see):
    ...     return see.task.upper()
    >>> run(Team("one", shout), "hello").answer
    'HELLO'
    """
    return to_the_end(play(team, task, **options))


def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Runs this in an event loop of its own. The first SIGINT or SIGTERM cancels it and comes as `Interrupted` when
    that is done; a second one does what it would without us."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    caught: list[int] = []

    def heed(number: int) -> None:
        caught.append(number)
        task.cancel(f"by {signal.Signals(number).name}")
        loop.call_soon_threadsafe(lambda: None)  # it may be asleep

    try:
        with _heeded(heed) as ours:
            while True:
                try:
                    return loop.run_until_complete(task)
                except (KeyboardInterrupt, SystemExit):  # in a task that an agent made, and there is who awaits it
                    if caught or not ours or task.done():
                        raise
    except asyncio.CancelledError:
        if not caught:
            raise
        raise Interrupted(caught[0]) from None
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def _heeded(heed: Callable[[int], None]) -> Iterator[bool]:
    """While it lasts, the first signal to end is handed to this, unless someone else handles it or this is not the
    main thread. Whether SIGINT is, which else may be raised anywhere."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    main = threading.current_thread() is threading.main_thread()
    before = {number: how for number, how in usual.items() if main and signal.getsignal(number) == how}

    def restore() -> None:
        for number, how in before.items():
            signal.signal(number, how)

    def first(number: int, _: Any) -> None:
        restore()
        heed(number)

    for number in before:
        signal.signal(number, first)
    try:
        yield signal.SIGINT in before
    finally:
        restore()
