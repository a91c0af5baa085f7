"""The jail that commands run in: `python -m bench.harness_jail [--full] [--json]`. Root measures it for itself and for a user."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import table
from bench.attempts import ATTEMPTS, CONTAINED, scene, tried
from bench.escapes import ESCAPES, escaped
from bench.table import Row, at_least, at_most, fact
from podium.harness.commands import python_tool
from podium.harness.run import play
from podium.harness.sandbox import Limits, Sandbox, isolation
from podium.harness.team import Role, Team
from podium.harness.tools import Tool
from podium.harness.types import Call, Return, See, Spawn, Stop, Wait

__all__ = ["HARMLESS", "measure"]

USER = 61_300  # an ordinary user, for root to become
ROOT = Path(__file__).parents[1]
OURS = [
    "cgroup.py", "commands.py", "folder.py", "jail.pl", "sandbox.py", "seccomp.py",
]  # fmt: skip


def measure(full: bool) -> list[Row]:
    rows: list[Row] = []
    with TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        for who in ("root", "user") if os.geteuid() == 0 else ("user",):
            folder = Path(name) / who
            folder.mkdir()
            rows += _as(who, lambda folder=folder, who=who: _measured(folder, who, full), folder)
    lines = sum(len((ROOT / "podium/harness" / file).read_text().splitlines()) for file in OURS)
    return [*rows, at_most("31.4.lines", "lines of ours that confine commands", lines, 500, "size")]


def _as(who: str, work: Callable[[], list[Row]], folder: Path) -> list[Row]:
    """What the work comes to; a user's is done in a process of that user's."""
    if os.geteuid() or who == "root":
        return work()
    os.chown(folder, USER, USER)
    hear, say = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        os.environ["HOME"] = str(folder)
        try:
            with open(say, "w") as file:
                json.dump(work(), file)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(say)
    with open(hear) as file:
        text = file.read()
    os.waitpid(child, 0)
    if not text:
        raise RuntimeError("measuring as an ordinary user came to nothing")
    rows: list[Row] = json.loads(text)
    return rows


def _measured(folder: Path, who: str, full: bool) -> list[Row]:
    if why := asyncio.run(isolation()):
        return [fact(f"31.{who}", f"figures of the jail, which cannot be had here: {why}", float("nan"))]
    return (
        _harmless(folder, who, 20 if full else 2)
        + _attempts(folder, who, full)
        + _hostile(folder, who, 50 if full else 8)
    )


# 31.1: harmless programs -------------------------------------------------------------------------------------------------

HARMLESS = {  # a command each, and the start of what it prints
    "python": (["python3", "-c", "print(sum(range(10)))"], "45"),
    "asyncio": (["python3", "-c", "import asyncio; print(asyncio.run(asyncio.sleep(0, 7)))"], "7"),
    "git": (["sh", "-c", "git init -q r && cd r && git config user.email a@b && git config user.name a && git commit -q --allow-empty -m m && git log --oneline | wc -l"], "1"),
    "gcc": (["sh", "-c", "echo 'int main(){return 42;}' > a.c && gcc a.c -o a && ./a; echo $?"], "42"),
    "make": (["sh", "-c", "printf 'all: x y\\nx:\\n\\t@echo x\\ny:\\n\\t@echo y\\n' > Makefile && make -j2 | sort"], "x"),
    "node": (["node", "-e", "console.log(6 * 7)"], "42"),
    "perl": (["perl", "-e", "print 6 * 7"], "42"),
    "tar": (["sh", "-c", "echo hi > f && tar -czf f.tgz f && rm f && tar -xzf f.tgz && cat f"], "hi"),
    "grep": (["grep", "-c", "o", "own.txt"], "1"),
    "sed": (["sed", "s/own/OWN/", "own.txt"], "OWN"),
    "awk": (["awk", "BEGIN { print 6 * 7 }"], "42"),
    "find": (["find", ".", "-name", "own.txt"], "./own.txt"),
    "sort": (["sh", "-c", "seq 20000 | sort -rn | head -1"], "20000"),
    "bash": (["bash", "-c", "x=(1 2 3); echo ${#x[@]}"], "3"),
    "gzip": (["sh", "-c", "gzip -k own.txt && gzip -dc own.txt.gz"], "own"),
    "diff": (["sh", "-c", "diff own.txt own.txt && echo same"], "same"),
    "openssl": (["openssl", "version"], "OpenSSL"),
    "sqlite": (["python3", "-c", "import sqlite3; c = sqlite3.connect('d.db'); c.execute('create table t(a)'); c.commit(); print(c.execute('select count(*) from t').fetchone()[0])"], "0"),
    "pool": (["python3", "-c", "import multiprocessing as m; print(m.Pool(2).map(abs, [-1])[0])"], "1"),
    "xz": (["sh", "-c", "xz -k own.txt && xz -dc own.txt.xz"], "own"),
    "cp": (["sh", "-c", "cp -a own.txt b && mv b c && ls -l c | wc -l"], "1"),
    "head": (["sh", "-c", "head -c 100000 /dev/urandom | sha256sum | wc -c"], "68"),
}  # fmt: skip


def _harmless(folder: Path, who: str, starts: int) -> list[Row]:
    at = folder / "harmless"
    at.mkdir()
    (at / "own.txt").write_text("own\n")
    box = Sandbox(at, Limits(seconds=60, memory=512 << 20))
    ran, added = [], []
    there = {
        name: job
        for name, job in HARMLESS.items()
        if name in ("asyncio", "sqlite", "pool") or shutil.which(job[0][0])
    }
    for name, (argv, answer) in there.items():
        ended = asyncio.run(box.run(argv))
        if ended.code == 0 and not ended.denied and ended.stdout.decode().startswith(answer):
            ran.append(name)
        else:
            print(f"31.1 {who}: {name}: {ended}", file=sys.stderr)
    used = []
    for argv in [["true"]] * starts:
        (plain, plain_used), (jailed, jailed_used) = _seconds(argv, None), _seconds(argv, box)
        added.append(jailed - plain)
        used.append(jailed_used - plain_used)
    return [
        at_least(f"31.1.{who}.run", f"of {len(there)} harmless programs that run in the jail, as {who}", len(ran), len(there), "exact"),
        at_most(f"31.1.{who}.ms", f"milliseconds that it adds to a start, median of {starts} pairs", 1000 * median(added), 30, "time"),
        fact(f"31.1.{who}.cpu_ms", "milliseconds of processor time among them", 1000 * median(used)),
        fact(f"31.1.{who}.load", "processes that wanted one of the processors then", os.getloadavg()[0]),
    ]  # fmt: skip


def _seconds(argv: list[str], box: Sandbox | None) -> tuple[float, float]:
    """How long a program takes from asking for it to its end, and how much processor time."""

    async def main() -> tuple[float, float]:
        start, used = time.perf_counter(), _used()
        if box is None:
            process = await asyncio.create_subprocess_exec(*argv, stdout=-1, stderr=-1)
            await process.communicate()
        else:
            await box.run(argv)
        return time.perf_counter() - start, _used() - used

    return asyncio.run(main())


def _used() -> float:
    both = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(r.ru_utime + r.ru_stime for r in both)


# 31.2: attempts ----------------------------------------------------------------------------------------------------------


def _attempts(folder: Path, who: str, full: bool) -> list[Row]:
    rounds = 5 if full else 1
    before, others = _outside(folder), _children()
    recorded, succeeded, contained = [], 0, 0
    for turn in range(rounds):
        with scene(folder / f"round{turn}") as here:
            for attempt in ATTEMPTS if full else ATTEMPTS[::6]:
                got = tried(attempt, here)
                recorded.append(got.recorded and not got.findings)
                succeeded += got.succeeded
            contained += sum(tried(a, here).succeeded for a in CONTAINED)
    with scene(folder / "escapes") as here:
        more = [escaped(e, i, here) for i, e in enumerate(ESCAPES if full else ESCAPES[::9])]
    for right, got, what in more:
        if not right or got:
            print(f"31.2 {who}: {what}", file=sys.stderr)
    changed = [path for path, known in _outside(folder).items() if before.get(path) != known]
    for path in changed[:9]:
        print(f"31.2 {who}: changed: {path}", file=sys.stderr)
    return [
        at_least(f"31.2.{who}.recorded", f"of {len(recorded)} attempts of 8.4, refused and recorded rightly, as {who}", sum(recorded), len(recorded), "exact"),
        at_least(f"31.2.{who}.more", f"of {len(more)} more by programs inside, recorded rightly", sum(right for right, _, _ in more), len(more), "exact"),
        at_most(f"31.2.{who}.succeeded", "of all these that succeeded", succeeded + contained + sum(got for _, got, _ in more), 0, "exact"),
        at_most(f"31.2.{who}.orphans", "processes and control groups that are left", _left(others), 0, "exact"),
        at_most(f"31.2.{who}.changed", f"of {len(before):,} files outside the runs' folders, those whose owner, mode or bytes changed", len(changed), 0, "exact"),
    ]  # fmt: skip


def _outside(own: Path) -> dict[str, Any]:
    """Owner, mode and bytes of the files in /etc and of what lies in /tmp and can be read, and owner, mode and size of programs."""
    known: dict[str, Any] = {}
    for top in ("/etc", "/usr/bin", "/usr/sbin", "/tmp/podium-decoys", str(ROOT / "podium")):
        for path in [Path(top), *Path(top).rglob("*")]:
            with suppress(OSError):
                told = path.lstat()
                if "__pycache__" not in str(path):
                    data = path.read_bytes() if stat.S_ISREG(told.st_mode) and not top.startswith("/usr") else b""
                    known[str(path)] = (
                        told.st_uid,
                        told.st_gid,
                        told.st_mode,
                        told.st_size,
                        hashlib.md5(data).hexdigest(),
                    )
    for path in (Path("/tmp"), Path("/"), Path("/dev/shm"), Path("/var/tmp")):
        told = path.stat()
        known[str(path)] = told.st_uid, told.st_gid, told.st_mode
    return known


def _children() -> set[str]:
    """Processes of this process's, or of a jail of its."""
    some = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            text = status.read_text()
            parent, user = (int(re.findall(rf"^{what}:\s+(\d+)", text, re.M)[0]) for what in ("PPid", "Uid"))
            ours = 61_400 <= user < 65_400 or (
                user == os.geteuid() == USER and status.parent.name != str(os.getpid())
            )
            if "State:\tZ" not in text and (ours or parent == os.getpid()):
                some.add(status.parent.name)
    return some


def _left(others: set[str]) -> int:
    """Processes that belong to a jail of this process's, or to nobody, and were not there before; its control groups."""
    time.sleep(0.2)
    groups = [*Path("/sys/fs/cgroup").glob(f"**/podium-{os.getpid()}-*")]
    return len(_children() - others) + len(groups)


# 31.3: fifty at once -----------------------------------------------------------------------------------------------------

HOSTILE = [  # each takes what it can get, for ever
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "import os\nf = open('f', 'wb'); os.unlink('f')\nwhile True:\n    try: f.write(b'x' * (1 << 20))\n    except OSError: pass",
    "while True: print('x' * 99999)",
    "while True: pass",
    "import socket\nwhile True:\n    try: socket.socket()\n    except OSError: pass",
    "import os, time\nfor _ in range(6):\n    if not os.fork(): x = bytearray(20 << 20); time.sleep(60)\ntime.sleep(60)",
    "import os, signal, time\nfor s in range(1, 32):\n    if s not in (9, 17, 19): signal.signal(s, signal.SIG_IGN)\nos.setsid()\ntime.sleep(60)",
    "import os\ni = 0\nwhile True:\n    i += 1\n    try: open(f'f{i}', 'w').close()\n    except OSError: pass",
    "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass",
]
TIGHT = Limits(seconds=10, memory=32 << 20, processes=8, disk=4 << 20, scratch=1 << 20, output=100_000)


def _hostile(folder: Path, who: str, many: int) -> list[Row]:
    """A team whose lead lets this many hostile programs run at once, and whose worker works on meanwhile."""
    steps: list[float] = []
    seconds: list[float] = []
    tool, others = python_tool(TIGHT), _children()

    async def timed(caller: Any, code: str) -> Any:
        start = time.monotonic()
        try:
            return await tool.run(caller, code)
        finally:
            seconds.append(time.monotonic() - start)

    async def lead(see: See) -> Any:
        if not see.turn:
            return [
                Spawn(role="worker", task="go"),
                *(Call(tool="python", args={"code": HOSTILE[i % len(HOSTILE)]}) for i in range(many)),
            ]
        results = see.items("result")
        return Stop(answer=[i.fault for i in results]) if len(results) == many else Wait()

    async def worker(see: See) -> Any:
        for _ in range(60):
            steps.append(time.monotonic())
            await asyncio.sleep(0.1)
        return Return(content="done")

    hostile = Tool("python", timed, params=tool.params, outside=True, caller=True)
    team = Team("hostile", Role(lead, spawns=("worker",), tools=("python",)), {"worker": worker}, [hostile])
    assert not asyncio.run(isolation())  # its trials are over before anyone looks
    with _watched() as peak:
        ran = asyncio.run(play(team, "go", folder=folder / "hostile", folders=True))
    ended = len(ran.answer)
    gaps = [b - a for a, b in pairwise(steps)]
    what = f"of {many} hostile programs at once, as {who},"
    return [
        at_least(f"31.3.{who}.ended", f"{what} those whose call came to its end", ended, many, "exact"),
        at_most(f"31.3.{who}.seconds", "slowest call over its limit of time", max(seconds) / TIGHT.seconds, 1.2, "time"),
        at_most(f"31.3.{who}.memory", "most memory of one of them over its limit, sampled from outside", peak["memory"] / TIGHT.memory, 1.0, "sampled"),
        at_most(f"31.3.{who}.disk", "most disk of one of them over its limit", peak["disk"] / TIGHT.disk, 1.0, "sampled"),
        at_most(f"31.3.{who}.processes", "most processes of one of them over its limit", peak["processes"] / TIGHT.processes, 1.0, "sampled"),
        at_most(f"31.3.{who}.pause", "longest pause of a worker of the team that works on every tenth of a second, s", max(gaps), 2.0, "time"),
        at_most(f"31.3.{who}.left", "processes and control groups that are left", _left(others), 0, "exact"),
        fact(f"31.3.{who}.samples", "times that they were looked at from outside", peak["samples"]),
    ]  # fmt: skip


SAMPLER = """
import json, os, re, sys, time
own, peak = os.readlink("/proc/self/ns/pid"), dict(memory=0, disk=0, processes=0, samples=0)
parent = os.getppid()
print("ready", flush=True)
while os.getppid() == parent and not os.path.exists(sys.argv[1]):
    jails = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            space = os.readlink(f"/proc/{pid}/ns/pid")
            if space != own: jails.setdefault(space, []).append(pid)
        except OSError: pass
    for pids in jails.values():  # of one jail at a time, so that its processes are looked at at nearly the same time
        memory = threads = disk = 0
        try:
            rooms = [os.statvfs(f"/proc/{pids[-1]}/root/{name}") for name in ("work", "tmp")]
        except OSError: continue
        if any(v.f_blocks * v.f_frsize > 1 << 27 for v in rooms): continue  # of somebody else's
        disk, memory = [(v.f_blocks - v.f_bfree) * v.f_frsize for v in rooms][0], sum((v.f_blocks - v.f_bfree) * v.f_frsize for v in rooms)
        for pid in pids:
            try:
                text = open(f"/proc/{pid}/status").read()
                if re.search(r"NSpid:.*\\t1$", text, re.M): continue
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    memory += sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem):\\s+(\\d+)", file.read(), re.M))) * 1024
                threads += int(re.findall(r"Threads:\\t(\\d+)", text)[0])
            except OSError: pass
        for what, amount in (("memory", memory), ("disk", disk), ("processes", threads)):
            peak[what] = max(peak[what], amount)
    peak["samples"] += 1
    time.sleep(.02)
print(json.dumps(peak))
"""


@contextmanager
def _watched() -> Iterator[dict[str, float]]:
    """What one jail used at most, sampled by a process beside this one that knows nothing of our limits."""
    peak: dict[str, float] = defaultdict(float)
    with TemporaryDirectory() as folder:
        end = Path(folder) / "end"
        watch = subprocess.Popen(["/usr/bin/python3", "-c", SAMPLER, str(end)], stdout=subprocess.PIPE, text=True)
        assert watch.stdout
        watch.stdout.readline()
        yield peak
        end.touch()
        peak |= json.loads(watch.communicate()[0])


if __name__ == "__main__":
    table.command(measure, __doc__)
