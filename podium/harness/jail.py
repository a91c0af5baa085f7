"""One command in a jail, and the watch over it from outside, where the command can name and signal nothing."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import resource
import select
import signal
import struct
import subprocess
import time
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import msgspec

from podium.harness import seccomp
from podium.harness.cgroup import group
from podium.harness.folder import FILES, PAGE, measured, opened, update
from podium.harness.types import Refused

__all__ = ["Ended", "Job", "Limits", "NoIsolation", "confined", "landlock_version"]

LAST_STEP = Path(__file__).with_name("jail.pl").read_text()
WALLS = (
    "bwrap --die-with-parent --new-session"
    " --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try"
)
USER, ROOT = "--unshare-user --uid 1000 --gid 1000", "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID"
SPARE, USERS = 61_400, 4_000  # whom a command of root's runs as: one of these users, who own nothing
PROGRAMS = "/usr /bin /sbin /lib /lib32 /lib64 /etc/alternatives /etc/ld.so.cache".split()
DEVICES = "/dev/null /dev/zero /dev/full /dev/random /dev/urandom".split()
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/work", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
STACK = 2 << 20  # bytes of each thread
SOCKET = 416 << 10  # bytes that the kernel may hold for one
NEARLY = 0.9  # of the memory that a command may use, at which it is ended where no control group holds it
MANY = 100  # refusals of one call, after which the command waits for each
TICK = 0.01  # seconds between two looks at what the kernel does not hold to its limit
ASKED, ANSWER = 0xC0502100, 0xC0182101  # what is asked of, and answered to, who listens to a filter
PIDFD_GETFD, LANDLOCK, ADD_SEALS = 438, 444, 1033
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = count(os.getpid() * 61)


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


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A command: its words, what it reads, and in which folder; folders that it may read; its limits."""

    argv: list[str]
    stdin: bytes
    folder: Path
    read: tuple[str, ...]
    limits: Limits


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What a command came to: its exit code as a shell has it (None where it was ended), what it wrote, and the
    limit that ended it."""

    code: int | None
    stdout: bytes
    stderr: bytes
    hit: str | None = None  # seconds, memory, processes, disk, output
    denied: dict[str, int] = {}  # system calls that it was not allowed, and how often it tried
    seconds: float = 0.0


def confined(job: Job, stop: int) -> Ended:
    """Runs a command on a copy of its folder, and writes back what it changed if it ended by itself. It blocks until
    nothing is left of it; `stop` is a pipe, and closing its other end ends the command."""
    start = time.monotonic()
    hit = None
    with ExitStack() as undo:
        undo.callback(os.close, stop)
        undo.callback(os.close, folder := opened(job.folder))
        if os.fstat(folder).st_mode & 0o002:
            raise NoIsolation(f"{job.folder} is not a folder of the run's own, since everybody may write to it")
        _, size = measured(folder, 2 * job.limits.disk)
        room = max(job.limits.disk, size + (1 << 20))  # a folder that is full can still be cleared
        jail = _Jail(job, room, stop, start + job.limits.seconds, undo)
        try:
            jail.enter()
            before = update(jail.work, folder, {}, room, jail.user)
            jail.begin()
            jail.watch()
            update(folder, jail.work, before, room)
        except _Over as over:
            hit = str(over)
        except Refused as refused:
            if refused.kind != "disk":
                raise
            hit = "disk"
        finally:
            jail.end()
        out, err = (bytes(data[: job.limits.output]) for data in jail.wrote.values())
        code = None if hit else jail.bwrap.returncode
        taken = time.monotonic() - start
        return Ended(code=code, stdout=out, stderr=err, hit=hit, denied=jail.denied, seconds=taken)


class _Over(Exception):
    """The command is to be ended, for this limit."""


class _Jail:
    """A jail that bubblewrap builds, and the one command in it."""

    def __init__(self, job: Job, room: int, stop: int, deadline: float, undo: ExitStack) -> None:
        self.limits, self.stop, self.deadline, self.undo = job.limits, stop, deadline, undo
        self.group = undo.enter_context(group({"memory": job.limits.memory, "processes": job.limits.processes}))
        self.user = SPARE + next(_numbers) % USERS if _is_root() else -1
        self.denied: dict[str, int] = {}
        self.first, self.base, self.room = -1, 0, room  # process 1 in there; bytes of its files
        self.looks = 0
        with ExitStack() as given:
            (said, say), (hear, tell) = os.pipe(), os.pipe()
            user = str(1000 if self.user < 0 else self.user)
            users, stdin = _file(f"agent:x:{user}:{user}::/work:/bin/sh\n".encode()), _file(job.stdin)
            for handle in (say, hear, users, stdin):
                given.callback(os.close, handle)
            self.said, self.tell = self._keep(said), self._keep(tell)
            step = ["/usr/bin/perl", "-e", LAST_STEP, "--", str(say), str(hear), *_last_step(self.user)]
            self.bwrap = subprocess.Popen(
                [*_walls(job, room, self.user, users), *step, *job.argv],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                pass_fds=(say, hear, users),
                start_new_session=True,
                bufsize=0,
            )
        undo.callback(self.bwrap.__exit__, None, None, None)
        assert self.bwrap.stdout
        assert self.bwrap.stderr
        self.wrote = {stream.fileno(): bytearray() for stream in (self.bwrap.stdout, self.bwrap.stderr)}

    def _keep(self, handle: int) -> int:
        """A handle that is closed in the end."""
        self.undo.callback(os.close, handle)
        return handle

    def enter(self) -> None:
        """Waits until the jail is built, and takes hold of it."""
        if self._hear() != "ready":
            why = os.read(max(self.wrote), 300).decode(errors="replace").strip()
            raise NoIsolation(why or "bubblewrap ended without a word")
        first = _child(self.bwrap.pid)
        self.first, self.last = self._keep(os.pidfd_open(first)), _child(first)
        self.work, self.tmp, self.proc = (
            self._keep(os.open(f"/proc/{self.last}/root/{name}", os.O_RDONLY | os.O_DIRECTORY))
            for name in ("work", "tmp", "proc")
        )
        if self.user >= 0:
            os.fchown(self.work, self.user, self.user)

    def begin(self) -> None:
        """Sets the limits, and lets the command begin."""
        most, self.base = self.limits, self._used()
        self.group.add(self.last)
        Path(f"/proc/{self.last}/oom_score_adj").write_text("1000")
        os.setpriority(os.PRIO_PROCESS, self.last, 5)
        data = most.memory + most.processes * STACK
        limits = {
            "DATA": data,
            "NPROC": most.processes + 4,
            "NOFILE": most.files,
            "SIGPENDING": 256,
            "STACK": STACK,
        }
        for name, value in {**limits, "CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0}.items():
            resource.prlimit(self.last, getattr(resource, f"RLIMIT_{name}"), (value, value))
        os.write(self.tell, seccomp.program(data, self.room))
        what, _, told = self._hear().partition(" ")
        if what != "listener":
            raise NoIsolation(told or "the last step into the jail ended without a word")
        self.listener = self._keep(_libc.syscall(PIDFD_GETFD, self._keep(os.pidfd_open(self.last)), int(told), 0))
        os.write(self.tell, b".")
        if fault := self._hear():
            raise Refused("command", fault)

    def watch(self) -> None:
        """Until the command has ended and nothing is left of it, or it is to be ended."""
        poll, ended = select.poll(), self._keep(os.pidfd_open(self.bwrap.pid))
        for handle in (self.listener, *self.wrote, self.stop, ended):
            poll.register(handle, select.POLLIN)
        look, events = 0.0, dict[int, int]()
        while ended not in events:
            if (now := time.monotonic()) >= self.deadline:
                raise _Over("seconds")
            if now >= look:
                look = now + TICK
                self._look()
            events = dict(poll.poll(1000 * TICK))
            if self.stop in events:
                raise _Over("cancelled")
            if events.get(self.listener, 0) & select.POLLIN:
                self._answer()
            for handle in events.keys() & {*self.wrote, self.listener}:
                if not events[handle] & select.POLLIN or (handle in self.wrote and not self._read(handle)):
                    poll.unregister(handle)
        self.end()
        for handle in self.wrote:
            while self._read(handle):
                pass
        self._look()

    def end(self) -> None:
        """Ends all that is in the jail, and waits until it is gone."""
        if self.first < 0:
            self.bwrap.kill()
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)
            _ready(None, self.first)
        self.bwrap.wait()

    def _answer(self) -> None:
        """Decides a call that waits: it may not be made, unless it ends a process, before which there is a look."""
        asked = bytearray(80)
        with suppress(FileNotFoundError):  # whoever asked is gone
            fcntl.ioctl(self.listener, ASKED, asked)
            ident, _, _, number, machine = struct.unpack_from("=QIIiI", asked)
            if (name := seccomp.call_name(machine, number)) == "exit_group":
                self._look()
                error = 0
            else:
                self.denied[name] = self.denied.get(name, 0) + 1
                error = -errno.EPERM
                if self.denied[name] > MANY:
                    time.sleep(TICK)
            fcntl.ioctl(self.listener, ANSWER, struct.pack("=QqiI", ident, 0, error, not error))

    def _look(self) -> None:
        """Ends the command if it has gone over a limit."""
        for handle in (self.work, self.tmp):
            room = os.statvfs(handle)
            if not room.f_bfree or room.f_files - room.f_ffree > FILES:
                raise _Over("disk")
        if hit := self.group.hit():
            raise _Over(hit)
        if "processes" not in self.group.folders and self._threads() > self.limits.processes:
            raise _Over("processes")
        if "memory" not in self.group.folders and self._memory() > NEARLY * self.limits.memory:
            raise _Over("memory")

    def _processes(self) -> list[str]:
        with suppress(OSError):  # nobody is in there any more
            return [name for name in os.listdir(self.proc) if name.isdigit() and name != "1"]
        return []

    def _threads(self) -> int:
        threads = 0
        for name in self._processes():
            with suppress(OSError):
                threads += os.stat(f"{name}/task", dir_fd=self.proc).st_nlink - 2
        return threads

    def _memory(self) -> int:
        """Bytes that are held for the command. Most looks count those of each process, which takes no time. Some, and
        all where those would be too many, count once what processes share, page tables, and what sockets could hold."""
        self.looks += 1
        processes, files = self._processes(), self._used() - self.base
        pages = 0
        for name in processes:
            with suppress(OSError):
                _, resident, mapped, *_ = map(int, self._text(f"{name}/statm").split())
                pages += resident - mapped
        if self.looks % 8 and pages * PAGE + files < NEARLY * self.limits.memory:
            return pages * PAGE + files
        kilobytes = sockets = 0
        for name in processes:
            with suppress(OSError):
                text = self._text(f"{name}/smaps_rollup") + self._text(f"{name}/status")
                kilobytes += sum(map(int, re.findall(r"(?:Pss_Anon|Pss_Shmem|VmPTE):\s+(\d+)", text)))
                sockets = int(self._text(f"{name}/net/sockstat").split()[2])
        return (kilobytes << 10) + sockets * SOCKET + files

    def _text(self, path: str) -> str:
        with open(os.open(path, os.O_RDONLY, dir_fd=self.proc)) as file:
            return file.read()

    def _used(self) -> int:
        rooms = [os.statvfs(handle) for handle in (self.work, self.tmp)]
        return sum((room.f_blocks - room.f_bfree) * room.f_frsize for room in rooms)

    def _read(self, handle: int) -> bool:
        piece = os.read(handle, 1 << 16)
        self.wrote[handle] += piece
        if len(self.wrote[handle]) > self.limits.output:
            raise _Over("output")
        return bool(piece)

    def _hear(self) -> str:
        """What the last step says next; nothing when it has become the command, or is gone."""
        ready = _ready(self.deadline - time.monotonic(), self.said, self.stop)
        if self.stop in ready or not ready:
            raise _Over("cancelled" if ready else "seconds")
        return os.read(self.said, 1000).decode(errors="replace")


def _walls(job: Job, room: int, user: int, users: int) -> list[str]:
    """How bubblewrap is called."""
    words = f"{WALLS} {USER if user < 0 else ROOT} --file {users} /etc/passwd".split()
    words += "--perms 0755 --dir /dev --proc /proc".split()
    for path in PROGRAMS:
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    for kind, paths in (("--ro-bind", job.read), ("--dev-bind", DEVICES)):
        words += [word for path in paths for word in (kind, path, path)]
    words += f"--size {room} --tmpfs /work --perms 1777 --size {job.limits.scratch} --tmpfs /tmp".split()
    return words + "--symlink /tmp /dev/shm --symlink /proc/self/fd /dev/fd --remount-ro / --chdir /work".split()


def _last_step(user: int) -> list[str]:
    """What the last step into the jail has to know: whom to become, and what Landlock is to allow."""
    write = 0x1FF2 | 0x2000 | 0x4000  # to change files in any way
    version, attributes = landlock_version(), b""
    if version >= 4:  # versions before know fewer ways, and no network
        attributes = struct.pack("QQ", write, 3) + (struct.pack("Q", 3) if version >= 6 else b"")
    numbers = (str(seccomp.call_number(name)) for name in ("capset", "seccomp"))
    return [str(max(user, 0)), *numbers, attributes.hex(), str(write)]


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 if none."""
    return max(0, int(_libc.syscall(LANDLOCK, None, ctypes.c_size_t(0), 1)))


def _is_root() -> bool:
    """Whether this is a root that has other users: in a user namespace, it has only those that it was given."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [tuple(map(int, line.split())) for line in lines]
    return os.geteuid() == 0 and any(first <= SPARE and first + n > SPARE + USERS for first, _, n in ranges)


def _file(data: bytes) -> int:
    """A file of memory that can only be read."""
    handle = os.memfd_create("data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(os.dup(handle), "wb") as file:
        file.write(data)
    fcntl.fcntl(handle, ADD_SEALS, 0xF)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def _ready(seconds: float | None, *handles: int) -> set[int]:
    """Those that can be read, as soon as one can."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return set(dict(poll.poll(None if seconds is None else max(0.0, 1000 * seconds))))
