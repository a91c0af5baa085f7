"""A hundred more attempts, by programs inside the jail: each says what it tries, and what the record must say of it.

Every program ends by itself or at its limits, which are small, and touches no address but loopback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.attempts import BUDGET, DONE, Scene, filled, follows
from podium.harness.commands import file_tools, python_tool
from podium.harness.provenance import GUARDS
from podium.harness.run import run
from podium.harness.sandbox import Limits
from podium.harness.team import Role, Team
from podium.harness.types import Call
from podium.trace.rules import check

__all__ = ["ESCAPES", "SMALL", "Escape", "escaped"]

SMALL = Limits(seconds=4, memory=64 << 20, processes=16, disk=8 << 20, scratch=4 << 20, output=100_000)
HELD = "HELD"  # what a program writes that was not given what it tried to get, and ran to its end

START = """import ctypes, fcntl, mmap, os, resource, signal, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    result = libc.syscall(*args)
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
try:
"""
END = """
    print('GOT-IT-ALL')
except (OSError, MemoryError, ValueError, RuntimeError, subprocess.CalledProcessError) as error:
    print('HELD', error)
"""


@dataclass(frozen=True)
class Escape:
    """What is tried, and the kinds of refusal that it may be recorded as. None: there is nothing there to refuse, the program
    finds that out, and its result is on record with no refusal; "time": the call is recorded as a fault, it was too slow."""

    kind: str
    code: str
    expected: tuple[str, ...] = ()
    then: tuple[tuple[str, dict[str, str]], ...] = ()  # other tools that are called afterwards


def _team(escape: Escape) -> Callable[[Scene], Team]:
    lines = "\n".join("    " + line for line in escape.code.splitlines())
    calls = [Call(tool="python", args={"code": START + lines + END})]
    calls += [Call(tool=tool, args=dict(args)) for tool, args in escape.then]

    def team(here: Scene) -> Team:
        steps: list[Any] = [
            Call(tool=c.tool, args={k: filled(v, here.facts()) for k, v in c.args.items()}) for c in calls
        ]
        lead = Role(follows(steps), tools=("python", "read_file", "write_file", "list_files"))
        tools = [*file_tools(), python_tool(SMALL)]
        return Team("escape", lead, tools=tools, guards=GUARDS, budget=BUDGET)

    return team


def escaped(escape: Escape, number: int, here: Scene) -> tuple[bool, bool, str]:
    """Whether it is recorded rightly, whether it got anything, and what is on record."""
    at = here.root / f"escape{number}"
    here.furnish(at.parent / f"{at.name}.folders")
    before, calls = here.outside(), here.calls
    ran = run(_team(escape)(here), "try it", folder=at, folders=True)
    log = b"".join(p.read_bytes() for p in at.glob("*.jsonl")).decode()
    answer = repr(ran.answer)
    kinds = here.refusals(log)
    got = here.secret in log or DONE in answer or here.outside() != before or here.calls != calls
    got = got or here.file.read_text() != here.secret
    if escape.expected == ("time",):
        recorded = not kinds and "'timeout'" in answer
    elif escape.expected:
        recorded = bool(kinds) and set(kinds) <= set(escape.expected)
    else:
        recorded = not kinds and HELD in answer
    return recorded and not check(ran.trace), got, f"{escape.kind}: {kinds} {answer[:300]}"


def _some(kind: str, expected: tuple[str, ...], *codes: str) -> list[Escape]:
    return [Escape(kind, code, expected) for code in codes]


FILL = "while True: "
ESCAPES: list[Escape] = [
    # files: what is not there is not found, and what is there cannot be changed
    *_some(
        "files", (),
        "open('/usr/bin/mine', 'w')",
        "open('/etc/passwd', 'a').write('x')",
        "print(open('/etc/shadow').read())",
        "os.listdir('/root')",
        "os.listdir('/home')",
        "print(open('{secret}').read())",
        "open('{folder}/mine', 'w')",
        "print(open('/proc/1/root{secret}').read())",
        "print(open('/proc/1/cwd/secret.txt').read())",
        "os.chmod('/usr', 0o777)",
        "os.rename('/work', '/elsewhere')",
        "os.rename('/usr/bin/env', '/usr/bin/vne')",
        "os.mknod('disk', 0o60666, os.makedev(254, 0)); open('disk', 'rb').read(9)",
        "open('/dev/vda', 'rb')",
        "open('/dev/mem', 'rb')",
        "open('/sys/kernel/mm/ksm/run', 'w')",
        "open('/proc/sys/kernel/core_pattern', 'w').write('|/work/x')",
        "open('/proc/sysrq-trigger', 'w').write('b')",
        "os.unlink('/etc/passwd')",
        "found = [n for n in range(3, 99) if os.path.isdir(f'/proc/self/fd/{n}') and os.listdir(f'/proc/self/fd/{n}')]\nif not found: raise OSError('no folder is open')",
    ),
    *_some("files", ("system call",), "call(304, -100, b'x', 0)", "call(303, -100, b'/', b'x' * 200, b'x' * 8, 0)"),
    # links
    *_some(
        "links", (),
        "os.symlink('{secret}', 'mine'); print(open('mine').read())",
        "os.symlink('{folder}', 'there'); open('there/mine', 'w')",
        "os.link('/etc/passwd', 'mine'); open('mine', 'a').write('x')",
        "os.link('/usr/bin/env', 'mine')",
        "os.symlink('../outside/secret.txt', 'mine'); print(open('mine').read())",
        "os.symlink('/proc/1/root', 'root'); print(os.listdir('root/root'))",
    ),
    *[
        Escape("links", code + "\nraise OSError('planted')", ("symlink",), ((tool, args),))
        for code, tool, args in (
            ("os.unlink('own.txt'); os.symlink('{secret}', 'own.txt')", "read_file", {"path": "own.txt"}),
            ("os.symlink('{folder}', 'new')", "write_file", {"path": "new/mine", "text": "x"}),
            ("os.symlink('{folder}', 'new')", "list_files", {"path": "new"}),
            ("os.symlink('{secret}', 'a'); os.symlink('a', 'b')", "read_file", {"path": "b"}),
            ("os.rename('inner', 'was'); os.symlink('{folder}', 'inner')", "read_file", {"path": "inner/secret.txt"}),
        )
    ],
    # the network
    *_some(
        "network", ("network",),
        "socket.create_connection(('127.0.0.1', {port}), 1)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
        "socket.create_connection(('::1', {port}), 1)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
        "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
        "socket.socket(socket.AF_BLUETOOTH, socket.SOCK_STREAM, 3)",
        "call(41, 44, 3, 0)",
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()",
        "call(53, 2, 1, 0, b'x' * 8)",
    ),
    *_some(
        "network", (),
        "s = socket.socket(socket.AF_UNIX); s.connect('\\0podium-{port}')",
        "s = socket.socket(socket.AF_UNIX); s.connect('/run/dbus/system_bus_socket')",
    ),
    # privileges
    *_some(
        "privileges", ("privileges",),
        "os.setuid(0)", "os.setgid(0)", "os.setgroups([0])", "os.setresuid(0, 0, 0)",
        "call(126, struct.pack('II', 0x20080522, 0), b'\\xff' * 24)",
        "call(321, 0, b'x' * 64, 64)", "call(298, b'x' * 128, 0, -1, -1, 0)", "call(175, b'x', 1, b'')",
        "call(169, 0xfee1dead, 672274793, 0x4321fedc, 0)", "call(173, 0, 9, 1)", "call(250, 0, -3, 0)", "call(135, 0x40000)",
    ),
    *_some(
        "privileges", ("isolation",),
        "call(272, 0x10000000)", "call(272, 0x00020000)", "call(56, 0x10000011, 0, 0, 0, 0)", "call(165, b'x', b'/tmp', b'tmpfs', 0, 0)",
        "call(161, b'/tmp')", "call(155, b'.', b'.')", "call(308, os.open('/proc/self/ns/net', 0), 0)", "call(430, b'tmpfs', 0)",
    ),
    *_some("privileges", ("system call",), "call(0x40000000 | 39)", "call(317, 1, 8, b'x' * 16)", "socket.sethostname('x')"),
    # other processes, and signals
    *_some(
        "processes", ("other processes",),
        "os.kill(1, 9)", "os.kill(1, signal.SIGINT)", "call(234, 1, 1, 9)", "call(101, 16, 1, 0, 0)", "call(310, 1, b'x' * 16, 1, b'x' * 16, 1, 0)",
        "resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))", "call(424, os.pidfd_open(1), 9, 0, 0)", "call(438, os.pidfd_open(1), 0, 0)",
    ),
    *_some(
        "processes", (),
        "open('/proc/1/mem', 'rb').read(1)", "[open(f'/proc/1/fd/{n}') for n in os.listdir('/proc/1/fd')]", "open('/proc/1/oom_score_adj', 'w').write('1000')",
        "os.setpriority(os.PRIO_PROCESS, 0, -5)",
        "pids = [int(p) for p in os.listdir('/proc') if p.isdigit()]\nif max(pids) < 99: raise OSError('nobody else is there')",
        "resource.setrlimit(resource.RLIMIT_NPROC, (999, 999))",
    ),
    *_some(
        "processes", ("too many processes",),
        "for _ in range(99):\n    if not os.fork(): time.sleep(9); os._exit(0)",
        "for _ in range(99): threading.Thread(target=time.sleep, args=(2,)).start()",
        "for _ in range(99):\n    if not os.fork():\n        os.setsid()\n        if not os.fork(): time.sleep(9)\n        os._exit(0)",
        "for _ in range(99): subprocess.Popen(['sleep', '9'])",
    ),
    # memory of every kind
    *_some(
        "memory", ("memory",),
        "x = b'x' * (1 << 30)",
        "x = [b'x' * (1 << 20) for _ in range(300)]; time.sleep(1)",
        "x = mmap.mmap(-1, 300 << 20)",
        "x = mmap.mmap(-1, 4096)\nraise OSError",
        "f = os.open('/dev/zero', os.O_RDWR); x = mmap.mmap(f, 300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1",
        "for _ in range(8):\n    if not os.fork(): x = [b'x' * (1 << 20) for _ in range(20)]; time.sleep(3); os._exit(0)\ntime.sleep(2)",
        "os.memfd_create('x')", "call(29, 0, 99 << 20, 0o1600)", "call(68, 0, 0o1600)", "call(64, 0, 99, 0o1600)",
        "call(240, b'x', 0o102, 0o600, 0)", "call(149, b'x', 1)", "call(425, 8, b'x' * 200)", "call(323, 0)", "call(253)",
        "call(278, 1, b'x' * 16, 1, 0)", "call(248, b'user', b'x', b'y', 1, -3)", "fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)",
        "keep = []\nfor _ in range(120):\n    a, b = socket.socketpair(); keep += [a, b]; a.setblocking(False)\n    try:\n        while True: a.send(b'x' * 4096)\n"
        "    except BlockingIOError: pass\n    if len(keep) > 200 and os.fork(): keep = []\ntime.sleep(2)",
    ),
    *_some("memory", (), "os.setxattr('own.txt', 'user.x', b'x' * 9000)"),
    # disk of every kind
    *_some(
        "disk", ("disk",),
        "open('large', 'wb').write(b'x' * (20 << 20))",
        "for i in range(20): open(f'f{i}', 'wb').write(b'x' * (1 << 20))",
        "f = open('gone', 'wb'); os.unlink('gone')\nfor _ in range(20): f.write(b'x' * (1 << 20)); f.flush()",
        "for i in range(40000): open(f'f{i}', 'w').close()",
        "open('/tmp/large', 'wb').write(b'x' * (9 << 20))",
        "open('/dev/shm/large', 'wb').write(b'x' * (9 << 20))",
        "f = open('large', 'wb'); os.posix_fallocate(f.fileno(), 0, 20 << 20)",
        "f = open('large', 'w+b'); f.truncate(1 << 40)\nraise OSError('sparse')",
        "for i in range(99): os.mkdir('deep'); os.chdir('deep')\nraise OSError('deep')",
        "for _ in range(20): open('own.txt', 'ab').write(b'x' * (1 << 20))",
    ),
    # time
    *_some(
        "time", ("time",),
        "while True: pass",
        "time.sleep(60)",
        "for s in range(1, 32):\n    if s not in (9, 17, 19, 32): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "os.close(1); os.close(2); time.sleep(60)",
        "os.fork(); os.setsid(); os.fork(); time.sleep(60)",
    ),
    *_some("time", (), "if not os.fork(): os.setsid(); time.sleep(60)\nraise OSError('it is left behind')"),
    *_some("time", ("clock",), "time.clock_settime(0, 0)", "call(164, struct.pack('QQ', 0, 0), 0)", "call(159, b'x' * 208)", "call(305, 0, b'x' * 208)"),
    # evidence: what was tried cannot be taken back
    *_some(
        "evidence", ("network",),
        "if not os.fork():\n    if not os.fork(): socket.socket(socket.AF_INET)\n    os._exit(0)\nos.wait(); time.sleep(.2)\nraise OSError('hidden')",
        "if not os.fork():\n    try: socket.socket()\n    finally: os.kill(-1, 9)\ntime.sleep(.2)\nraise OSError('all are gone')",
        "try: socket.socket()\nexcept OSError: os._exit(0)",
        "for _ in range(3000):\n    try: socket.socket()\n    except OSError: pass\nraise OSError('many')",
        "try: socket.socket()\nexcept OSError: os.closerange(0, 99); os._exit(0)",
        "t = threading.Thread(target=lambda: socket.socket()); t.start(); t.join()\nraise OSError('a thread')",
        "try: socket.socket()\nexcept OSError: print('x' * 999999)",
        "try: socket.socket()\nexcept OSError: time.sleep(60)",
        "try: socket.socket()\nexcept OSError: os.kill(os.getpid(), 9)",
        "try: socket.socket()\nexcept OSError: x = open('large', 'wb').write(b'x' * (20 << 20))",
    ),
    *_some(
        "evidence", (),
        "for n in range(3, 99):\n    try: os.write(n, b'{\"denied\": {}}')\n    except OSError: pass\nraise OSError('nobody listens')",
        "for n in range(3, 99):\n    try: fcntl.ioctl(n, 0xC0182101, b'x' * 24)\n    except OSError: pass\nraise OSError('nobody listens')",
        "print(os.listdir('/work/..'), os.listdir('/work')); open('/work/../w0.jsonl', 'w')",
        "if any(os.path.exists('/proc/self/fd/%d' % n) for n in range(3, 99)): print('GOT-IT-ALL')\nraise OSError('no handle')",
    ),
    *_some("evidence", ("output",), "print('x' * 999999)", "os.write(2, b'x' * 999999)"),
]  # fmt: skip
