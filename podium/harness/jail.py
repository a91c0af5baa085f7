"""The program that runs a command in a jail of its own: `python -I -S jail.py LIFELINE REPORT`. Linux only; the standard library only.

Three processes stand between the harness and the command. The first stays outside and says who is who inside. The second
enters new namespaces (users, mounts, processes, network, IPC, host name, cgroups). The third is process 1 in there: it builds a
root that holds little more than programs to read and one folder to write, starts the command as nobody, watches
what it uses, and ends with it, which ends whatever the command has left behind.

It is no part of the package's import graph: `podium.harness.sandbox` starts it by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["main"]

NAMESPACES = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "host name": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "process": 0x20000000,
    "network": 0x40000000,
}
RECURSIVE, PRIVATE, NOSUID, NODEV, NOEXEC = 0x4000, 0x40000, 2, 4, 8  # flags of mount
CLONE_TREE, RECURSIVELY, EMPTY_PATH = 0x80001, 0x8000, 0x1000  # flags of open_tree, mount_setattr, move_mount
HERE, DETACH = -100, 2
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
READ_ONLY, NO_SUID, NO_DEV = 1, 2, 4  # attributes of mount_setattr
DUMPABLE, NO_NEW_PRIVILEGES, PARENT_DIED = 4, 38, 1  # of prctl
CALLS = {"x86_64": (155, 317), "aarch64": (41, 277)}  # pivot_root, seccomp
WITH_LISTENER = 8  # a flag of seccomp
ASKED, ANSWER = 0xC0502100, 0xC0182101  # what is asked of, and answered to, who listens
INSIDE = 1000  # who the command is inside
TICK, DISK_EVERY, MOST_FILES = 0.01, 0.2, 20_000

_libc = ctypes.CDLL(None, use_errno=True)


class Fault(Exception):
    """The jail could not be built."""


def main() -> None:
    lifeline, report = int(sys.argv[1]), int(sys.argv[2])
    for end in (lifeline, report):
        os.set_inheritable(end, False)  # the command must not hold these
    plan = _plan(lifeline) | {"lifeline": lifeline, "report": report}
    _write("/proc/self/oom_score_adj", "1000")
    unshared, mapped = os.pipe(), os.pipe()
    second = os.fork()
    if not second:
        _guarded(plan, lambda: _second(plan, unshared[1], mapped[0]))
    os.close(unshared[1])
    if os.read(unshared[0], 1):
        _guarded(plan, lambda: _map_users(second, plan), leave=False)
        os.write(mapped[1], b".")
    os.close(mapped[1])
    os.waitpid(second, 0)


def _plan(lifeline: int) -> dict[str, Any]:
    """What the harness says first: a line of JSON. It says nothing more; when it hangs up, all is over."""
    said = b""
    while not said.endswith(b"\n"):
        piece = os.read(lifeline, 1 << 16)
        if not piece:
            sys.exit("the harness hung up before it said what to run")
        said += piece
    plan: dict[str, Any] = json.loads(said)
    return plan


def _guarded(plan: dict[str, Any], work: Callable[[], None], leave: bool = True) -> None:
    """Does the work; what goes wrong is reported."""
    try:
        work()
    except (OSError, Fault) as error:
        _report(plan, fault=str(error))
        os._exit(1)
    if leave:
        os._exit(0)


def _report(plan: dict[str, Any], **said: Any) -> None:
    os.write(plan["report"], json.dumps(said).encode())


def _call(what: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise Fault(f"{what}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")
    return result


# Who is who ------------------------------------------------------------------------------------------------------------


def _second(plan: dict[str, Any], say: int, hear: int) -> None:
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            os.setgroups([])
    _call("new namespaces (user namespaces may be switched off)", _libc.unshare(sum(NAMESPACES.values())))
    os.write(say, b".")
    if not os.read(hear, 1):
        raise Fault("nobody was named inside the new user namespace")
    _call("prctl", _libc.prctl(PARENT_DIED, signal.SIGKILL, 0, 0, 0))
    first = os.fork()
    if not first:
        _guarded(plan, lambda: _first(plan))
    os.waitpid(first, 0)


def _map_users(pid: int, plan: dict[str, Any]) -> None:
    """One user inside, who is the harness's own outside or, if that is root, one that owns nothing."""
    if os.geteuid():
        _write(f"/proc/{pid}/setgroups", "deny")
    _write(f"/proc/{pid}/uid_map", f"{INSIDE} {plan['user']} 1")
    _write(f"/proc/{pid}/gid_map", f"{INSIDE} {plan['group']} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


# The root --------------------------------------------------------------------------------------------------------------


def _build_root(plan: dict[str, Any]) -> None:
    """A new root: what the plan binds, fresh /proc and /tmp, and nothing of the old one."""
    _call("private mounts", _libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None))
    trees = [(_tree(HERE, b["from"], b["write"], b["device"]), b["to"]) for b in plan["bind"]]
    trees.append((_tree(_open_folder(plan["folder"]), "", write=True, device=False), plan["work"]))
    root = "/usr"  # covered by the new root, in here only
    _mount("tmpfs", root, "tmpfs", NOSUID | NODEV, f"size=1m,mode=755,uid={INSIDE},gid={INSIDE}")
    os.chdir(root)
    os.setresgid(INSIDE, INSIDE, INSIDE)
    os.setresuid(INSIDE, INSIDE, INSIDE)  # with all privileges in here still, which the command has not
    for tree, to in trees:
        _make_target("." + to, os.fstat(tree).st_mode)
        _move(tree, "." + to)
    for to, text in plan["files"].items():
        _make_target("." + to, 0)
        _write("." + to, text)
    for to, target in plan["links"].items():
        os.makedirs(os.path.dirname("." + to), exist_ok=True)
        os.symlink(target, "." + to)
    for name in ("proc", "tmp"):
        os.makedirs(name, exist_ok=True)
    _mount("proc", "proc", "proc", NOSUID | NODEV | NOEXEC, "")
    _mount("tmpfs", "tmp", "tmpfs", NOSUID | NODEV, f"size={plan['limits']['scratch']},mode=1777")
    _call("pivot_root", _libc.syscall(CALLS[os.uname().machine][0], b".", b"."))
    _call("leave the old root", _libc.umount2(b".", DETACH))
    os.chdir("/")
    _set_attributes(HERE, b"/", 0, READ_ONLY | NO_SUID | NO_DEV)


def _open_folder(folder: dict[str, Any]) -> int:
    """The command's folder, if it is still the one that the harness looked at; no link is followed to it."""
    handle = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name in folder["path"].split("/")[1:]:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
    told = os.fstat(handle)
    if [told.st_dev, told.st_ino] != folder["is"]:
        raise Fault(f"{folder['path']} has become another folder")
    return handle


def _tree(start: int, path: str, write: bool, device: bool) -> int:
    flags = CLONE_TREE | RECURSIVELY | (0 if path else EMPTY_PATH)
    tree = _call(f"bind {path or 'the folder'}", _libc.syscall(OPEN_TREE, start, path.encode(), flags))
    attributes = NO_SUID | (0 if write else READ_ONLY) | (0 if device else NO_DEV)
    _set_attributes(tree, b"", EMPTY_PATH | RECURSIVELY, attributes)
    return tree


def _set_attributes(tree: int, path: bytes, flags: int, attributes: int) -> None:
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _call("mount attributes", _libc.syscall(MOUNT_SETATTR, tree, path, flags, wanted, size))


def _move(tree: int, to: str) -> None:
    _call(f"mount at {to}", _libc.syscall(MOVE_MOUNT, tree, b"", HERE, to.encode(), 4))
    os.close(tree)


def _mount(source: str, to: str, kind: str, flags: int, options: str) -> None:
    _call(f"mount {kind}", _libc.mount(source.encode(), to.encode(), kind.encode(), flags, options.encode()))


def _make_target(path: str, mode: int) -> None:
    if os.path.lexists(path):
        return
    if mode & 0o170000 == 0o040000:
        os.makedirs(path)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


# The command -----------------------------------------------------------------------------------------------------------


def _first(plan: dict[str, Any]) -> None:
    """Process 1: starts the command and watches it."""
    _call("prctl", _libc.prctl(PARENT_DIED, signal.SIGKILL, 0, 0, 0))
    _build_root(plan)
    _call("prctl", _libc.prctl(DUMPABLE, 0, 0, 0, 0))
    hear, say = socket.socketpair()
    command = os.fork()
    if not command:
        _start(plan, say)
    say.close()
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    _, listeners, _, _ = socket.recv_fds(hear, 1, 1)
    if complaint := hear.recv(1000):
        raise Fault(complaint.decode())
    _report(plan, **_watch(plan, command, listeners[0]))


def _start(plan: dict[str, Any], say: socket.socket) -> NoReturn:
    """Becomes the command: with limits, and without privileges, which an exec takes from all but root."""
    try:
        os.setsid()
        os.chdir(plan["work"])
        os.nice(5)
        for name, most in plan["limits"]["resources"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        _call("prctl", _libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        socket.send_fds(say, [b"."], [_install_filter(bytes.fromhex(plan["filter"]))])
        os.execvpe(plan["argv"][0], plan["argv"], plan["env"])
    except FileNotFoundError:
        say.send(f"no program {plan['argv'][0]!r} in the jail".encode())
    except (OSError, Fault) as error:
        say.send(f"the command could not be started: {error}".encode())
    os._exit(127)


def _install_filter(program: bytes) -> int:
    """From now on the filter decides; what it is in doubt about comes to the listener that is returned."""

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))

    wanted = Filter(len(program) // 8, program)
    number = CALLS[os.uname().machine][1]
    return _call("seccomp", _libc.syscall(number, 1, WITH_LISTENER, ctypes.byref(wanted)))


# The watch -------------------------------------------------------------------------------------------------------------


def _watch(plan: dict[str, Any], command: int, listener: int) -> dict[str, Any]:
    """What the command came to: how it ended, the limit that ended it, the most it used, what it was denied."""
    limits, start = plan["limits"], time.monotonic()
    peak = {"processes": 0, "memory": 0, "disk": 0}
    denied: dict[str, int] = {}
    held = max(limits["disk"], _disk(plan["work"]))  # a folder that is full already can still be cleared
    wake = select.poll()
    wake.register(plan["lifeline"], select.POLLIN | select.POLLHUP)
    wake.register(listener, select.POLLIN)
    wake.register(os.pidfd_open(command), select.POLLIN)
    hit, status, next_look, next_disk = None, None, 0.0, DISK_EVERY
    while status is None and hit is None:
        ready = wake.poll(TICK * 1000)
        seconds = time.monotonic() - start
        if (listener, select.POLLIN) in ready:
            name = plan["names"].get(_denied(listener), "gone")
            denied[name] = denied.get(name, 0) + 1
        if any(handle == plan["lifeline"] for handle, _ in ready):
            hit = "cancelled"
        if seconds >= next_look:
            next_look = seconds + TICK
            now = dict(zip(("processes", "memory"), _usage(), strict=True))
            if seconds >= next_disk:
                next_disk = seconds + DISK_EVERY
                now["disk"] = _disk(plan["work"])
            peak |= {name: max(peak[name], figure) for name, figure in now.items()}
            hit = hit or _over(peak, limits | {"disk": held}, seconds)
        status = _reaped(command)
        if (listener, select.POLLHUP) in ready:
            wake.unregister(listener)
    last = dict(zip(peak, (*_usage(), _disk(plan["work"])), strict=True))  # what it has left behind is still there
    peak = {name: max(peak[name], last[name]) for name in peak}
    hit = hit or _over(peak, limits | {"disk": held}, 0.0)
    return {"status": status, "hit": hit, "peak": peak, "denied": denied, "seconds": time.monotonic() - start}


def _over(peak: dict[str, int], limits: dict[str, Any], seconds: float) -> str | None:
    return next(
        (name for name in peak if peak[name] > limits[name]), "seconds" if seconds > limits["seconds"] else None
    )


def _denied(listener: int) -> str:
    """The number of the call that waited for an answer, which is that it may not be made; empty if nobody waits."""
    asked = bytearray(80)
    try:
        fcntl.ioctl(listener, ASKED, asked)
        ident, _, _, number = struct.unpack_from("=QIIi", asked)
        fcntl.ioctl(listener, ANSWER, struct.pack("=QqiI", ident, 0, -errno.EPERM, 0))
    except OSError as error:
        if error.errno != errno.ENOENT:  # whoever asked is gone
            raise
        return ""
    return str(number)


def _reaped(command: int) -> int | None:
    """The command's status once it has ended; others that ended are forgotten."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == command:
            return status
        if not pid:
            return None


def _usage() -> tuple[int, int]:
    """Threads, and bytes of memory that nothing but the command holds, over all processes but this one."""
    threads = memory = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"/proc/{name}/status") as file:
                said = dict(line.split(":", 1) for line in file)
        except OSError:
            continue
        threads += int(said["Threads"])
        memory += sum(int(said.get(part, "0").split()[0]) for part in ("RssAnon", "RssShmem", "VmPTE"))
    held = os.statvfs("/tmp")
    return threads, memory * 1024 + (held.f_blocks - held.f_bfree) * held.f_frsize


def _disk(folder: str) -> int:
    """Bytes in the folder; more files than anyone needs count as more bytes than there are."""
    total, files, waiting = 0, 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
        if files > MOST_FILES:
            return 1 << 62
    return total


if __name__ == "__main__":
    main()
