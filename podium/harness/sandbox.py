"""Runs a command in a jail, with limits: no network, no files but the ones it is shown, no processes but its own.

bubblewrap builds the jail. The command works on a copy of its folder, which is memory of a limited size; what it
changed is written back when it has ended by itself. A watch outside, which the command can neither name nor signal,
ends it at a limit and records what it tries. Where this cannot be had, nothing is run: `NoIsolation` says why.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakKeyDictionary

import msgspec

from podium.harness import cgroup, seccomp
from podium.harness.bounded import in_thread
from podium.harness.folder import FILES, Contents, change, contents, opened
from podium.harness.types import Refused

__all__ = ["Ended", "Limits", "NoIsolation", "Promise", "Sandbox", "isolation", "promises"]

WALLS = (
    "bwrap --die-with-parent --new-session --unshare-user --uid 1000 --gid 1000 --unshare-ipc --unshare-pid"
    " --unshare-net --unshare-uts --unshare-cgroup-try --perms 0755 --dir /dev --proc /proc"
)
PROGRAMS = "/usr /bin /sbin /lib /lib32 /lib64 /etc/alternatives /etc/ld.so.cache".split()
DEVICES = "/dev/null /dev/zero /dev/full /dev/random /dev/urandom".split()
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/work", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
LAST_STEP = Path(__file__).with_name("jail.pl").read_text()
LONGEST = 32 << 10  # bytes of a command
SPARE, USERS = 61_400, 4_000  # whom a command of root's runs as: one of these users, who own nothing
STACK, SOCKET = 2 << 20, 416 << 10  # bytes of each thread, and that the kernel may hold for a socket
NEARLY = 0.9  # of the memory that a command may use, at which it is ended where no control group holds it
MANY, TICK = 100, 0.01  # refusals, after which the command waits for each; seconds between two looks at its limits
QUESTION, ANSWER = 0xC0502100, 0xC0182101  # to and from who listens to a filter
PIDFD_GETFD, LANDLOCK, ADD_SEALS = 438, 444, 1033
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = count(os.getpid() * 61)
_known: list[str] = []
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class NoIsolation(Refused):
    """Commands cannot be confined here as they should be: nothing was run."""

    def __init__(self, why: str) -> None:
        super().__init__("no isolation", f"commands are not run here, because they cannot be isolated: {why}")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes of a command may use together."""

    seconds: float = 10.0
    memory: int = 256 << 20  # with the files that it writes, which are memory
    processes: int = 32  # threads count
    disk: int = 64 << 20  # in its folder, together with what is there
    scratch: int = 32 << 20  # in /tmp
    output: int = 1 << 20  # on each of its two streams
    files: int = 256  # open at once, in each process
    strict: bool = False  # run nothing where only a look now and then keeps one of these


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What a command came to: its exit code as a shell has it (None where it was ended), what it wrote, and the
    limit that ended it."""

    code: int | None
    stdout: bytes
    stderr: bytes
    hit: str | None = None  # seconds, memory, processes, disk, output
    denied: dict[str, int] = {}  # system calls that it was not allowed, and how often it tried
    seconds: float = 0.0


class Sandbox:
    """A folder, and commands that see a copy of it as /work, and nothing else that can be written but /tmp.

    The folder is come to by no link. They see the programs of the system, and the folders in `read`, read-only, as
    any user may; an environment of four variables, none of the caller's; a /proc with their own processes only; and
    a network without any way out. Of a command that ends by itself, what it changed is written back; one that is
    ended leaves the folder as it was.
    """

    def __init__(self, folder: str | Path, limits: Limits | None = None, read: Sequence[str | Path] = ()) -> None:
        self.folder, self.limits = Path(folder).absolute(), limits or Limits()
        self.read = tuple(str(Path(p).resolve(strict=True)) for p in read)

    async def run(self, argv: Sequence[str], stdin: bytes = b"", seconds: float | None = None) -> Ended:
        """Runs the command, within its limits and within `seconds` if that is less."""
        deadline = time.monotonic() + min(self.limits.seconds, self.limits.seconds if seconds is None else seconds)
        if why := await isolation():
            raise NoIsolation(why)
        if self.limits.strict and (weak := [p.what for p in await promises() if p.lacks]):
            raise NoIsolation(f"the kernel does not limit {' and '.join(weak)} for this user, as was asked for")
        if (size := sum(len(word.encode()) + 1 for word in argv)) > LONGEST:
            raise Refused("command", f"{size} bytes; at most {LONGEST} are taken, put the rest in a file")
        return await _run(self, argv, stdin, deadline)


async def _run(box: Sandbox, argv: Sequence[str], stdin: bytes, deadline: float) -> Ended:
    stop, end = os.pipe()
    work = in_thread(lambda: _Jail(box, stop, deadline).run(list(argv), stdin))
    try:
        return await asyncio.shield(work)
    finally:
        os.close(end)
        await asyncio.wait([work])


class _Over(Exception):
    """The command is to be ended, for this limit."""


class _Jail(ExitStack):
    """A jail that bubblewrap builds, and the one command in it. `stop` is a pipe; closing its other end ends it."""

    def __init__(self, box: Sandbox, stop: int, deadline: float) -> None:
        super().__init__()
        self.box, self.limits, self.stop, self.deadline = box, box.limits, self.keep(stop), deadline
        self.first, self.denied = -1, dict[str, int]()

    def keep(self, handle: int) -> int:
        """A handle that is closed in the end."""
        self.callback(os.close, handle)
        return handle

    def run(self, argv: list[str], stdin: bytes) -> Ended:
        """Runs the command on a copy of its folder. It blocks until nothing is left of it."""
        start, hit, most = time.monotonic(), None, self.limits
        with self:
            folder = self.enter_context(opened(self.box.folder))
            if os.fstat(folder).st_mode & 0o002:
                raise NoIsolation(f"{self.box.folder} is not a folder of the run's own: everybody may write to it")
            before = contents(folder, 2 * most.disk)
            size = sum(-(-len(data) // 4096) * 4096 for _, data in before.values())
            room = max(most.disk, size + (1 << 20))  # a folder that is full can still be cleared
            self.groups = self.enter_context(
                cgroup.control_group({"memory": most.memory, "processes": most.processes})
            )
            self.build(argv, stdin, room)
            try:
                self.begin(before)
                self.watch()
                change(folder, before, contents(self.work, room))
            except _Over as over:
                hit = str(over)
            except Refused as refused:
                if (hit := refused.kind) != "disk":
                    raise
            finally:
                self.end()
            out, err = (bytes(data[: most.output]) for data in self.wrote.values())
            code, seconds = None if hit else self.bwrap.returncode, time.monotonic() - start
            return Ended(code=code, stdout=out, stderr=err, hit=hit, denied=self.denied, seconds=seconds)

    def build(self, argv: list[str], stdin: bytes, room: int) -> None:
        """Starts bubblewrap, as a user of its own where that can be had."""
        root = os.geteuid() == 0 and "4294967295" in Path("/proc/self/uid_map").read_text()
        self.user = SPARE + next(_numbers) % USERS if root else None
        (self.said, say), (hear, self.tell) = os.pipe(), os.pipe()
        most = self.limits.processes + (4 if "processes" in self.groups else 1)  # with process 1; the group counts
        given = say, hear, _file(b"agent:x:1000:1000::/work:/bin/sh\n"), _file(stdin)
        self.keep(self.said), self.keep(self.tell)
        try:
            self.bwrap = subprocess.Popen(
                [*_walls(self.box, room, given[2]), *_last_step(self.limits, room, most, say, hear), *argv],
                stdin=given[3],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                pass_fds=given[:3],
                start_new_session=True,
                bufsize=0,
                user=self.user,
                group=self.user,
                extra_groups=[] if root else None,
            )
        finally:
            for handle in given:
                os.close(handle)
        self.enter_context(self.bwrap)
        self.wrote = {stream.fileno(): bytearray() for stream in (self.bwrap.stdout, self.bwrap.stderr) if stream}

    def begin(self, before: Contents) -> None:
        """Takes hold of the jail once it is built, and lets the command begin."""
        what, _, listener = self.hear().partition(" ")
        if what != "listener":
            why = f"{what} {listener}".strip() or os.read(max(self.wrote), 300).decode(errors="replace").strip()
            raise NoIsolation(why or "bubblewrap ended without a word")
        self.first = self.keep(os.pidfd_open(process := _child(self.bwrap.pid)))
        last = self.keep(os.pidfd_open(process := _child(process)))
        self.listener = self.keep(_libc.syscall(PIDFD_GETFD, last, int(listener), 0))
        folders = (os.open(f"/proc/{process}/root/{name}", os.O_DIRECTORY) for name in ("work", "tmp", "proc"))
        self.work, self.tmp, proc = map(self.keep, folders)
        self.proc = Path(f"/proc/self/fd/{proc}")
        Path(f"/proc/{process}/oom_score_adj").write_text("1000")
        with _as_user(self.user):
            change(self.work, {}, before)
        self.base = self.used()
        for group in set(self.groups.values()):
            (group / "cgroup.procs").write_text(str(process))
        os.write(self.tell, b".")
        if fault := self.hear():
            raise Refused("command", fault)

    def hear(self) -> str:
        """What the last step says next; nothing when it has become the command, or is gone."""
        while not self.wait(self.said):
            pass
        return os.read(self.said, 1000).decode(errors="replace")

    def wait(self, *handles: int) -> dict[int, int]:
        """What happens to these within a tick."""
        poll = select.poll()
        for handle in (self.stop, *handles):
            poll.register(handle, select.POLLIN)
        events = dict(poll.poll(1000 * TICK))
        if self.stop in events or time.monotonic() >= self.deadline:
            raise _Over("cancelled" if self.stop in events else "seconds")
        return events

    def watch(self) -> None:
        """Until the command has ended and nothing is left of it, or it is to be ended."""
        ended, look = self.keep(os.pidfd_open(self.bwrap.pid)), 0.0
        handles = {ended, self.listener, *self.wrote}
        while ended not in (events := self.wait(*handles)):
            if time.monotonic() >= look:
                self.look()
                look = time.monotonic() + TICK
            for handle, event in events.items():
                if not event & select.POLLIN or (handle in self.wrote and not self.read(handle)):
                    handles.remove(handle)
                elif handle == self.listener:
                    self.answer()
        self.end()
        for handle in self.wrote:
            while self.read(handle):
                pass
        self.look()

    def end(self) -> None:
        """Ends all that is in the jail, and waits until it is gone."""
        with suppress(ProcessLookupError, BrokenPipeError, subprocess.TimeoutExpired):
            if self.first >= 0:
                signal.pidfd_send_signal(self.first, signal.SIGKILL)
            else:  # a bubblewrap that is killed while it builds may leave a child behind
                os.write(self.tell, b"!")
            self.bwrap.wait(1)
        self.bwrap.kill()
        self.bwrap.wait()
        if self.first >= 0:
            poll = select.poll()
            poll.register(self.first, select.POLLIN)
            poll.poll()

    def answer(self) -> None:
        """Decides a call that waits: it may not be made, unless it ends a process, before which there is a look."""
        question = bytearray(80)
        with suppress(FileNotFoundError):  # whoever called is gone
            fcntl.ioctl(self.listener, QUESTION, question)
            ident, _, _, number, machine = struct.unpack_from("=QIIiI", question)
            if (name := seccomp.call_name(machine, number)) == "exit_group":
                self.look()
            else:
                self.denied[name] = self.denied.get(name, 0) + 1
                time.sleep(TICK if self.denied[name] > MANY else 0)
            reply = (0, 1) if name == "exit_group" else (-errno.EPERM, 0)
            fcntl.ioctl(self.listener, ANSWER, struct.pack("=QqiI", ident, 0, *reply))

    def look(self) -> None:
        """Ends the command if it has gone over a limit."""
        for room in map(os.statvfs, (self.work, self.tmp)):
            if not room.f_bfree or room.f_files - room.f_ffree > FILES:
                raise _Over("disk")
        if hit := cgroup.refused(self.groups):
            raise _Over(hit)
        if len(self.groups) < 2:
            threads, memory = self.usage()
            if "processes" not in self.groups and threads >= self.limits.processes:
                raise _Over("processes")
            if "memory" not in self.groups and memory > NEARLY * self.limits.memory:
                raise _Over("memory")

    def usage(self) -> tuple[int, int]:
        """Threads, and bytes that are held for the command: those of each process, and if these are too many, those
        that processes share counted once."""
        threads = memory = 0
        for exact in (False, True):
            threads = kilobytes = sockets = 0
            kind = "Pss_Anon|Pss_Shmem" if exact else "RssAnon|RssShmem"
            with suppress(OSError):
                sockets = int((self.proc / "1/net/sockstat").read_text().split()[2])
            for process in self.proc.glob("[0-9]*"):
                with suppress(OSError):
                    if process.name != "1":
                        text = (process / "status").read_text()
                        threads += int(re.findall(r"Threads:\s+(\d+)", text)[0])
                        text += (process / "smaps_rollup").read_text() if exact else ""
                        kilobytes += sum(map(int, re.findall(rf"(?:{kind}|VmPTE):\s+(\d+)", text)))
            memory = (kilobytes << 10) + sockets * SOCKET + self.used() - self.base
            if memory < NEARLY * self.limits.memory:
                break
        return threads, memory

    def used(self) -> int:
        rooms = map(os.statvfs, (self.work, self.tmp))
        return sum((room.f_blocks - room.f_bfree) * room.f_frsize for room in rooms)

    def read(self, handle: int) -> bool:
        piece = os.read(handle, 1 << 16)
        self.wrote[handle] += piece
        if len(self.wrote[handle]) > self.limits.output:
            raise _Over("output")
        return bool(piece)


@contextmanager
def _as_user(user: int | None) -> Iterator[None]:
    """Files that this thread makes are this user's: nobody else can make any where only that user is known."""
    _libc.setfsgid(os.getegid() if user is None else user)
    _libc.setfsuid(os.geteuid() if user is None else user)
    try:
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())


def _walls(box: Sandbox, room: int, users: int) -> list[str]:
    """How bubblewrap is called."""
    words = f"{WALLS} --file {users} /etc/passwd".split()
    for path in PROGRAMS:
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    for kind, paths in (("--ro-bind", box.read), ("--dev-bind", DEVICES)):
        words += [word for path in paths for word in (kind, path, path)]
    words += f"--size {room} --tmpfs /work --perms 1777 --size {box.limits.scratch} --tmpfs /tmp".split()
    return words + "--symlink /tmp /dev/shm --symlink /proc/self/fd /dev/fd --remount-ro / --chdir /work".split()


def _last_step(most: Limits, room: int, processes: int, say: int, hear: int) -> list[str]:
    """The last step into the jail: limits of each process, what Landlock is to allow, the filter of calls."""
    data = most.memory + most.processes * STACK
    limits = {"DATA": data, "NPROC": processes, "NOFILE": most.files, "SIGPENDING": 256, "STACK": STACK}
    limits |= {"CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0}
    values = ",".join(f"{getattr(resource, f'RLIMIT_{name}')}={value}" for name, value in limits.items())
    write, version = 0x7FF2, landlock_version()  # to change files in any way
    rules = struct.pack("QQQ", write, 3, 3)[: 24 if version >= 6 else 16] if version >= 4 else b""
    setrlimit, filters = (str(seccomp.call_number(name)) for name in ("setrlimit", "seccomp"))
    last = ["/usr/bin/perl", "-e", LAST_STEP, "--", str(say), str(hear), values, setrlimit, rules.hex(), str(write)]
    return [*last, filters, seccomp.program(data, room).hex()]


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 if none."""
    return max(0, int(_libc.syscall(LANDLOCK, None, ctypes.c_size_t(0), 1)))


def _file(data: bytes) -> int:
    """A file of memory that can only be read."""
    handle = os.memfd_create("data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(handle, "wb", closefd=False) as file:
        file.write(data)
    fcntl.fcntl(handle, ADD_SEALS, 0xF)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


# What is promised

BY_LOOKS = "a watch outside; a limit of each process"
TRIAL = Limits(memory=48 << 20, processes=8, disk=1 << 20)
TRIALS = {  # of each promise: a command that breaks it, what comes of that (exit code, limit or call), by what
    "files": ("! test -e /home -o -e /root -o -w /usr -o -w / -o -w /etc -o -w /dev", "0", "bubblewrap: mounts{}"),
    "network": ("perl -e 'socket(S, 2, 1, 0)'", "socket", "bubblewrap: network namespace; seccomp{}"),
    "privileges": ("cd /proc/self && grep CapEff:.0*$ status && grep NoNewPrivs:.1 status", "0", "no capabilities"),
    "system calls": ("unshare -r true", "unshare", "seccomp, a list of those allowed"),
    "other processes": ("kill -9 1", "kill", "bubblewrap: process namespace; seccomp"),
    "seconds": ("sleep 60", "seconds", "a watch outside"),
    "output": ("yes", "output", "a watch outside"),
    "disk": ("head -c 3000000 /dev/zero > x; sleep 60", "disk", "tmpfs of that size"),
    "memory": ("for i in 1 2 3 4; do perl -e '$x = q(y) x 15e6; sleep 60' & done; wait", "memory", BY_LOOKS),
    "processes": ("for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait", "processes", "RLIMIT_NPROC"),
}  # fmt: skip


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a command is held to on this machine: by what, whether a trial was, and what that lacks."""

    what: str
    by: str
    kept: bool
    lacks: str = ""


async def isolation() -> str:
    """Why commands cannot be isolated here; empty if they can. What is promised is tried before the first."""
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not _known:
            try:
                broken = [promise.what for promise in await promises() if not promise.kept]
                _known.append(f"a trial was not held to {', '.join(broken)}" if broken else "")
            except NoIsolation as refused:
                _known.append(refused.why.partition("isolated: ")[2])
    return _known[0]


def _missing() -> str:
    if sys.platform != "linux":
        return f"it takes the namespaces of Linux, and this is {sys.platform}"
    for package, there in (("bubblewrap", shutil.which("bwrap")), ("perl", os.path.exists("/usr/bin/perl"))):
        if not there:
            return f"{package} is not installed: apt-get install {package}, or dnf install {package}"
    with suppress(OSError):
        return "" if seccomp.call_number("seccomp") >= 0 else "the kernel has no seccomp"
    return "libseccomp is not installed: apt-get install libseccomp2, or dnf install libseccomp"


async def promises() -> list[Promise]:
    """All that commands are held to here, tried out. Raises NoIsolation where no jail can be built."""
    if why := _missing():
        raise NoIsolation(why)
    with cgroup.control_group({"memory": 1 << 30, "processes": 99}) as groups:
        pass
    landlock = f", Landlock {version}" if (version := landlock_version()) >= 4 else ""
    with TemporaryDirectory() as folder:
        box, now = Sandbox(Path(folder).resolve(), TRIAL), time.monotonic()
        limits = ((script, now + (0.5 if what == "seconds" else 20)) for what, (script, _, _) in TRIALS.items())
        runs = [_run(box, ["sh", "-c", script], b"", deadline) for script, deadline in limits]
        results = await asyncio.gather(*runs, return_exceptions=True)
    table = []
    for (what, (_, expected, by)), ended in zip(TRIALS.items(), results, strict=True):
        if isinstance(ended, BaseException):
            raise ended
        by = "control group" if what in groups else by.format(landlock)
        lacks = "not held by the kernel" if by == BY_LOOKS else ""
        came_to = {str(ended.code), ended.hit, *ended.denied}
        table.append(Promise(what=what, by=by, kept=expected in came_to, lacks=lacks))
    return table
