"""Commands in isolation: what they see, what ends them, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from podium.harness import sandbox
from podium.harness.commands import Program, command_tool, command_words, file_tools, python_tool
from podium.harness.folder import Folder, path_names
from podium.harness.sandbox import Ended, Limits, NoIsolation, Sandbox, isolation, promises
from podium.harness.types import Caller, Fault, Refused

WHY = asyncio.run(isolation())
isolated = pytest.mark.skipif(bool(WHY), reason=f"no isolation here: {WHY}")
SMALL = Limits(seconds=5, memory=64 << 20, processes=12, disk=4 << 20, output=10_000)


def ran(folder: Path, *argv: str, stdin: bytes = b"", limits: Limits = SMALL) -> Ended:
    return asyncio.run(Sandbox(folder, limits).run(argv, stdin))


def left(of: int = os.getpid()) -> list[str]:
    """What is left of the jails that this process started, or that nobody owns any more. Others may run beside."""
    jails = {pid: told for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (told := _told_of(pid))}
    found = []
    for parent, line in jails.values():
        while parent in jails:
            parent = jails[parent][0]
        if parent in (0, 1, of):
            found.append(line)
    return found


def _told_of(pid: int) -> tuple[int, str] | None:
    """Who started a process, and how, if it belongs to a jail."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    parent = next(int(part.split()[1]) for part in status.splitlines() if part.startswith("PPid:"))
    return (parent, line) if line.startswith("bwrap ") or "podium-marked" in line else None


@isolated
def test_a_command_reads_and_writes_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("three")
    got = ran(tmp_path, "sh", "-c", "cat in - > out; echo done; echo beside >&2; exit 3", stdin=b" more")
    assert (got.code, got.stdout, got.stderr, got.hit, got.denied) == (3, b"done\n", b"beside\n", None, {})
    assert (tmp_path / "out").read_text() == "three more"


@isolated
def test_a_command_sees_nothing_else(tmp_path: Path) -> None:
    os.environ["PODIUM_SECRET"] = "hidden"
    try:
        got = ran(
            tmp_path, "sh", "-c", "ls -A / /etc /dev; env; id -u; ls /proc | grep -c '^[0-9]'; ls /sys /root /home"
        )
    finally:
        del os.environ["PODIUM_SECRET"]
    said = got.stdout.decode()
    assert "hidden" not in said
    assert "shadow" not in said
    assert "root" not in said
    for gone in ("/sys", "/root", "/home"):
        assert f"cannot access '{gone}'" in got.stderr.decode()


@isolated
@pytest.mark.parametrize("path", ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/x", "/bin/x"])
def test_only_its_folder_and_tmp_can_be_written(tmp_path: Path, path: str) -> None:
    assert ran(tmp_path, "sh", "-c", f"echo > {path}").code != 0
    assert ran(tmp_path, "sh", "-c", "echo > /tmp/x && echo > x").code == 0


@isolated
@pytest.mark.parametrize(
    "call",
    [
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "os.mknod('/work/disk', 0o60666, os.makedev(254, 0))",
        "ctypes.CDLL(None).unshare(0x10000000) and 1/0",
        "ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, b'') and 1/0",
        "ctypes.CDLL(None).ptrace(16, 1, 0, 0) and 1/0",
        "os.kill(1, 9) or os.kill(1, 0) or 1/0",
        "os.memfd_create('x')",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "open('/proc/1/mem')",
        "os.listdir('/proc/1/root')",
        "open('/proc/sys/kernel/hostname', 'w')",
        "os.setpriority(os.PRIO_PROCESS, 0, -5)",
        "resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))",
        "os.read(6, 1) or os.read(9, 1)",
    ],
)
def test_a_command_has_no_privileges(tmp_path: Path, call: str) -> None:
    code = f"import ctypes, os, resource, socket\n{call}\nprint('got it')"
    got = ran(tmp_path, "python3", "-I", "-", stdin=code.encode())
    assert got.stdout == b""
    assert got.code != 0


@isolated
@pytest.mark.parametrize(
    ("script", "hit"),
    [
        ("sleep 60", "seconds"),
        ("yes", "output"),
        ("yes >&2", "output"),
        ("head -c 9000000 /dev/zero > a; sleep 9", "disk"),
        ("for i in 1 2 3 4 5 6; do head -c 1000000 /dev/zero > $i; done", "disk"),
        ("i=0; while [ $i -lt 21000 ]; do : > f$i; i=$((i+1)); done", "disk"),
        ("python3 -c 'x = [b\"x\" * (1 << 20) for i in range(75)]; import time; time.sleep(9)'", "memory"),
        ("for i in $(seq 40); do sleep 9 & done; wait", "processes"),
    ],
)
def test_a_limit_ends_a_command(tmp_path: Path, script: str, hit: str) -> None:
    limits = replace(SMALL, seconds=0.3 if hit == "seconds" else 60.0)  # a busy machine makes many files slowly
    got = ran(tmp_path, "bash", "-c", script, limits=limits)
    assert got.hit == hit
    assert len(got.stdout) <= SMALL.output
    assert left() == []


@isolated
def test_a_full_folder_can_be_cleared(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (5 << 20))
    assert ran(tmp_path, "rm", "large").hit is None
    assert os.listdir(tmp_path) == []


@isolated
@pytest.mark.parametrize("script", ["setsid sleep 60 & sleep 60 & echo", "trap '' TERM INT HUP; sleep 60 &"])
def test_nothing_is_left_of_a_command(tmp_path: Path, script: str) -> None:
    assert ran(tmp_path, "sh", "-c", f"{script} # podium-marked").code == 0
    assert left() == []


@isolated
def test_nothing_is_left_of_a_command_that_is_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        some = [asyncio.create_task(Sandbox(tmp_path, SMALL).run(["sleep", "60"])) for _ in range(4)]
        await asyncio.sleep(0.3)
        for one in some:
            one.cancel()
        assert all(
            isinstance(g, asyncio.CancelledError) for g in await asyncio.gather(*some, return_exceptions=True)
        )

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert left() == []
    assert len(os.listdir("/proc/self/fd")) == before


def soon(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether it comes to hold; the seconds are there so that nothing hangs."""
    stop = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > stop:
            return False
        time.sleep(0.05)
    return True


@isolated
def test_nothing_is_left_when_the_harness_is_killed(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom podium.harness.sandbox import Sandbox\n"
        "async def main():\n    b = Sandbox(sys.argv[1])\n    t = asyncio.create_task(b.run(['sleep', '60']))\n"
        "    await asyncio.sleep(0)\n    print('now', flush=True)\n    await t\nasyncio.run(main())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "now\n"
        assert soon(lambda: bool(left(of=process.pid)))
        process.kill()
    assert soon(lambda: not left()), f"still there: {left()}"


@isolated
def test_many_at_once(tmp_path: Path) -> None:
    async def main() -> list[Ended]:
        boxes = []
        for i in range(12):
            (tmp_path / str(i)).mkdir()
            boxes.append(Sandbox(tmp_path / str(i), SMALL).run(["sh", "-c", f"echo {i} > x; ls; cat x"]))
        return await asyncio.gather(*boxes)

    assert [e.stdout for e in asyncio.run(main())] == [f"x\n{i}\n".encode() for i in range(12)]


@isolated
def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no program 'nonesuch'"):
        ran(tmp_path, "nonesuch")
    for large in (["x" * 40_000], [""] * 40_000):
        with pytest.raises(Refused, match="at most 32768 are taken"):
            ran(tmp_path, "echo", *large)


@isolated
def test_without_namespaces_nothing_runs_and_it_is_said() -> None:
    if not shutil.which("unshare") or os.geteuid():
        pytest.skip("it takes root and `unshare` to take user namespaces away")
    code = "import asyncio; from podium.harness.sandbox import *; print(asyncio.run(isolation()))"
    inner = f"echo 0 > /proc/sys/user/max_user_namespaces && exec {sys.executable} -c '{code}'"
    said = subprocess.run(["unshare", "-Ur", "sh", "-c", inner], capture_output=True, text=True, check=True).stdout
    assert said.startswith("bwrap: ")


def test_where_nothing_isolates_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal() -> str:
        monkeypatch.setattr(sandbox, "_known", [])
        with pytest.raises(NoIsolation, match="cannot be isolated: ") as caught:
            ran(tmp_path, "true")
        return caught.value.why.partition("isolated: ")[2]

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "plan9")
        assert refusal() == "it takes the namespaces of Linux, and this is plan9"
    with monkeypatch.context() as without:
        without.setattr(sandbox.shutil, "which", lambda _: None)
        assert refusal() == "bubblewrap is not installed: apt-get install bubblewrap, or dnf install bubblewrap"

    def missing(_: str) -> int:
        raise OSError

    monkeypatch.setattr(sandbox.shutil, "which", lambda _: "/usr/bin/bwrap")
    monkeypatch.setattr(sandbox.os.path, "exists", lambda _: True)
    monkeypatch.setattr(sandbox.seccomp, "call_number", missing)
    assert refusal().startswith("libseccomp is not installed")


@isolated
def test_what_the_kernel_does_not_hold_is_said_and_can_be_refused(tmp_path: Path) -> None:
    table = {promise.what: promise for promise in asyncio.run(promises())}
    assert list(table) == list(sandbox.TRIALS)
    assert all(promise.kept for promise in table.values())
    weak = [what for what, promise in table.items() if promise.lacks]
    assert set(weak) <= {"memory", "processes"}
    if weak:
        with pytest.raises(NoIsolation, match=r"does not limit .* as was asked for"):
            ran(tmp_path, "true", limits=replace(SMALL, strict=True))
    else:
        assert ran(tmp_path, "true", limits=replace(SMALL, strict=True)).code == 0


@isolated
def test_a_promise_that_a_trial_does_not_bear_out_refuses_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_known", [])
    monkeypatch.setitem(sandbox.TRIALS, "network", ("true", "socket", "nothing"))
    with pytest.raises(NoIsolation, match="a trial was not held to network"):
        ran(tmp_path, "true")


@isolated
def test_what_a_command_changed_is_written_back_once_it_has_ended(tmp_path: Path) -> None:
    for name in ("old", "kept", "folder/inner"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    before = (tmp_path / "kept").stat()
    script = "rm old; rm -r folder; ln -s kept folder; mkdir -p a/b; echo x > a/b/c; chmod 755 a/b/c; mkfifo pipe"
    assert ran(tmp_path, "sh", "-c", script).code == 0
    assert sorted(os.listdir(tmp_path)) == ["a", "folder", "kept"]
    assert os.readlink(tmp_path / "folder") == "kept"
    assert ((tmp_path / "a/b/c").read_text(), (tmp_path / "a/b/c").stat().st_mode & 0o777) == ("x\n", 0o755)
    assert (tmp_path / "kept").stat() == before
    assert ran(tmp_path, "sh", "-c", "rm kept; yes").hit == "output"
    assert (tmp_path / "kept").stat() == before


# The tools ---------------------------------------------------------------------------------------------------------------


def caller(folder: Path | None, seconds: float = 5.0) -> Caller:
    return Caller("ann", folder, seconds, 0)


@isolated
def test_the_command_tool(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("to do: rest\nto do: work\n")
    tool = command_tool([Program("grep", ("-n", "-i")), "cat", Program("python3", ("-c",), free=True)])
    assert (tool.outside, tool.caller, tool.effect) == (True, True, "replayable")

    def call(line: str | list[str]) -> dict[str, object]:
        result = asyncio.run(tool.run(caller(tmp_path), line))
        assert result.trusted is False
        return dict(result.content)

    assert call('grep -n "do: w" plan.txt') == {"code": 0, "stdout": "2:to do: work\n", "stderr": ""}
    assert call(["cat", "-"])["code"] == 0
    assert call("grep nothing plan.txt")["code"] == 1
    assert call(["python3", "-c", "print('/etc/passwd')"])["stdout"] == "/etc/passwd\n"
    with pytest.raises(Fault, match="ended after") as caught:
        asyncio.run(tool.run(caller(tmp_path, 0.3), ["python3", "-c", "while True: pass"]))
    assert caught.value.kind == "timeout"


@isolated
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import ctypes\nctypes.CDLL(None).syscall(0x40000000 | 39)", "system call"),
        ("import ctypes\nctypes.CDLL(None).unshare(0x10000000)", "isolation"),
        ("import os\nos.memfd_create('x')", "memory"),
        ("import os\nos.inotify = __import__('ctypes').CDLL(None).fanotify_init(0, 0)", "system call"),
        ("import socket\nsocket.socket(socket.AF_INET)", "network"),
    ],
)
def test_what_a_program_tries_and_hides_is_refused_by_name(tmp_path: Path, code: str, kind: str) -> None:
    hidden = f"import os\nif not os.fork():\n    exec({code!r})\nos.wait()" if "40000000" not in code else code
    with pytest.raises(Refused) as caught:
        asyncio.run(python_tool().run(caller(tmp_path), f"try:\n    exec({hidden!r})\nexcept OSError:\n    pass"))
    assert caught.value.kind == kind


@isolated
def test_the_python_tool(tmp_path: Path) -> None:
    tool = python_tool()
    assert asyncio.run(tool.run(caller(tmp_path), "print(6 * 7)")).content["stdout"] == "42\n"
    for nonsense in (7, None, ["print(1)"]):
        with pytest.raises(Fault, match="expected a Python program"):
            asyncio.run(tool.run(caller(tmp_path), nonsense))


def test_tools_without_a_folder_are_refused() -> None:
    for tool in file_tools():
        with pytest.raises(Refused, match="'ann' has no working folder"):
            tool.run(caller(None), **dict.fromkeys(tool.params["required"] if tool.params else (), "x"))


@pytest.mark.parametrize("line", ["", "  ", [], [""][:0], 7, None, ["a", 7], "cat 'open", ["a\0b"]])
def test_a_line_that_makes_no_sense_is_a_fault(line: object) -> None:
    with pytest.raises(Fault):
        command_words(line)  # type: ignore[arg-type]


def test_quotes_make_words() -> None:
    assert command_words("grep 'a; b | $c' \"it's\"") == ["grep", "a; b | $c", "it's"]


# Whose folder it is -------------------------------------------------------------------------------------------------------


@isolated
def test_a_link_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    with pytest.raises(Refused, match="which is a link"):
        asyncio.run(Sandbox(tmp_path / "link", SMALL).run(["true"]))


@isolated
def test_nothing_changes_hands(tmp_path: Path) -> None:
    outside, shared, own = tmp_path / "outside", tmp_path / "shared", tmp_path / "own"
    outside.write_text("root's")
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(NoIsolation, match="not a folder of the run's own"):
        asyncio.run(Sandbox(shared, SMALL).run(["true"]))
    own.mkdir()
    os.link(outside, own / "hard")
    os.symlink(outside, own / "soft")
    assert asyncio.run(Sandbox(own, SMALL).run(["true"])).code == 0
    assert {p.lstat().st_uid for p in (outside, shared, own, own / "hard", own / "soft")} == {os.geteuid()}
    assert asyncio.run(
        Sandbox(own, SMALL).run(["sh", "-c", "echo x > hard; rm soft; ln -s /etc/passwd soft; echo y > soft"])
    )
    assert outside.read_text() == "root's"
    assert os.readlink(own / "soft") == "/etc/passwd"


# The folder --------------------------------------------------------------------------------------------------------------


def test_files_in_a_folder(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.write("a/b/c.txt", "čtyři") == 7
    assert folder.read("a/./b//c.txt") == "čtyři"
    assert folder.names() == ["a/"]
    assert folder.write("a/b/c.txt", "x") == 1
    assert folder.read("a/b/c.txt") == "x"
    with pytest.raises(Fault, match="No such file"):
        folder.read("none")
    with pytest.raises(Refused, match="not a plain file"):
        folder.read("a")
    (tmp_path / "large").write_bytes(b"x" * (1 << 20) + b"y")
    with pytest.raises(Fault, match="more than 1048576 bytes"):
        folder.read("large")


def test_a_folder_holds_no_more_than_its_quota(tmp_path: Path) -> None:
    folder = Folder(tmp_path, most=3 * 4096)
    assert [folder.write(f"f{i}", "x") for i in range(3)] == [1, 1, 1]
    with pytest.raises(Refused, match="may hold 12288 bytes") as caught:
        folder.write("f3", "x")
    assert caught.value.kind == "disk"
    assert not (tmp_path / "f3").exists()


def test_a_pipe_with_nobody_at_its_end_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="not a plain file"):
        Folder(tmp_path).read("pipe")
    with pytest.raises(Fault, match="No such device or address"):
        Folder(tmp_path).write("pipe", "x")


@pytest.mark.parametrize(
    "path", ["", "/", ".", "..", "a/..", "../a", "/etc", "~", "~root/x", "a\0b", "././..", 7, None]
)
def test_paths_that_are_none(path: object) -> None:
    with pytest.raises(Refused):
        path_names(path)  # type: ignore[arg-type]


def test_a_folder_that_turns_into_a_link_leads_nowhere(tmp_path: Path) -> None:
    """However often the agent swaps a folder for a link meanwhile, nothing outside is read."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (inside / "real").mkdir(parents=True)
    (inside / "real" / "file").write_text("own")
    os.symlink(outside, inside / "fake")
    swap = (
        "import os, sys\nos.chdir(sys.argv[1])\nprint(flush=True)\nwhile True:\n"
        "    os.rename('real', 'at'); os.rename('at', 'real'); os.rename('fake', 'at'); os.rename('at', 'fake')"
    )
    seen, tries = set(), 0
    with subprocess.Popen([sys.executable, "-c", swap, str(inside)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        stop = time.monotonic() + 60
        both = {"own", "symlink"}  # until both have been met, and many times
        while not (both <= seen and tries >= 2000) and time.monotonic() < stop:
            tries += 1
            try:
                seen.add(Folder(inside).read("at/file"))
            except Fault as fault:
                seen.add(fault.kind)
        process.kill()
    assert "secret" not in seen
    assert both <= seen
