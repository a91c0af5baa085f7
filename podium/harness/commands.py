"""Tools that act in an agent's folder: commands and Python in the sandbox, files by path.

What an agent asks for is looked at before anything runs, and what it then tries is watched. Either way an attempt
at more than it may do is a `Refused`, which the run records as a safety event. The sandbox is the wall; the look is
so that the record says what was tried.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from podium.harness.folder import Folder, path_names
from podium.harness.sandbox import Ended, Limits, Sandbox
from podium.harness.tools import Tool
from podium.harness.types import Caller, Fault, Refused, Result

__all__ = ["Program", "command_tool", "command_words", "file_tools", "look_at", "python_tool"]

KINDS = {  # what it is recorded as that a command tried one of these calls
    "network": "socket socketpair",
    "memory": "mmap fcntl memfd_create memfd_secret mlock mlock2 mlockall shmget shmat msgget msgsnd semget semop "
    "mq_open io_uring_setup userfaultfd vmsplice tee add_key inotify_init inotify_init1 mbind",
    "isolation": "clone unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsmount",
    "privileges": "setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset bpf "
    "init_module finit_module delete_module perf_event_open kexec_load reboot swapon ioperm iopl keyctl "
    "request_key personality",
    "other processes": "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd pidfd_send_signal kill tkill "
    "tgkill rt_sigqueueinfo rt_tgsigqueueinfo prlimit64 process_madvise",
    "disk": "fallocate",
    "clock": "clock_settime settimeofday adjtimex clock_adjtime",
}
DENIED = {call: kind for kind, calls in KINDS.items() for call in calls.split()}


class Program(msgspec.Struct, frozen=True):
    """A program that an agent may run: its name, the options it may be given, and whether its other arguments are
    anything at all rather than paths in the folder."""

    name: str
    options: tuple[str, ...] = ()
    free: bool = False


def command_tool(
    programs: Sequence[Program | str],
    limits: Limits | None = None,
    read: Sequence[str | Path] = (),
    name: str = "command",
) -> Tool:
    """A tool that runs one of these programs in the caller's folder. It takes a line such as
    `grep -n "to do" plan.txt`, which no shell reads, or a list of words."""
    known = {p.name: p for p in (Program(p) if isinstance(p, str) else p for p in programs)}

    async def run(caller: Caller, line: str | list[str]) -> Result:
        folder, argv = _folder_of(caller), command_words(line)
        look_at(argv, known, folder)
        return _result(await Sandbox(folder, limits, read).run(argv, seconds=caller.seconds), argv[0])

    about = f"Runs one of {', '.join(known) or 'no program'} in your folder; no shell reads the line."
    return _tool(name, run, about, {"line": {"type": "string", "description": 'such as: grep -n "to do" plan.txt'}})


def python_tool(limits: Limits | None = None, read: Sequence[str | Path] = (), name: str = "python") -> Tool:
    """A tool that runs a Python program in the caller's folder."""

    async def run(caller: Caller, code: str) -> Result:
        if not isinstance(code, str):
            raise Fault("nonsense", f"expected a Python program as a string, got {type(code).__name__}")
        box = Sandbox(_folder_of(caller), limits, read)
        return _result(await box.run(["python3", "-I", "-"], code.encode(), caller.seconds), "python3")

    return _tool(name, run, "Runs a Python program in your folder.", {"code": {"type": "string"}})


def file_tools() -> list[Tool]:
    """Tools that read, write and list files in the caller's folder: `read_file`, `write_file`, `list_files`."""

    def read_file(caller: Caller, path: str) -> str:
        return Folder(_folder_of(caller)).read(path)

    def write_file(caller: Caller, path: str, text: str) -> int:
        if not isinstance(text, str):
            raise Fault("nonsense", f"expected text for {path!r}, got {type(text).__name__}")
        return Folder(_folder_of(caller)).write(path, text)

    def list_files(caller: Caller, path: str = ".") -> list[str]:
        return Folder(_folder_of(caller)).names(path)

    path, text = {"path": {"type": "string"}}, {"text": {"type": "string"}}
    return [
        _tool("read_file", read_file, "Reads a file in your folder.", path),
        _tool("write_file", write_file, "Writes a file in your folder.", path | text),
        _tool("list_files", list_files, "Lists a folder in your folder.", path, needs=()),
    ]


def _tool(name: str, run: Any, about: str, params: dict[str, Any], needs: Sequence[str] | None = None) -> Tool:
    required = list(params if needs is None else needs)
    schema = {"type": "object", "properties": params, "required": required, "additionalProperties": False}
    return Tool(name=name, run=run, about=about, params=schema, outside=True, caller=True)


def _folder_of(caller: Caller) -> Path:
    if caller.folder is None:
        why = f"{caller.agent!r} has no working folder; run the team with a folder to give it one"
        raise Refused("no folder", why)
    return caller.folder


def command_words(line: str | list[str]) -> list[str]:
    """The words of a command line, by quotes alone: whatever a shell would act on is refused.

    >>> command_words('grep -n "to do" plan.txt')
    ['grep', '-n', 'to do', 'plan.txt']
    """
    argv = line
    if isinstance(line, str):
        bare = re.sub(r"""'[^']*'|("[^"]*")""", r"\1", line)
        if variable := re.search(r"\$(\w|{).{0,40}", bare):
            raise Refused("environment", f"variables are not filled in: {variable[0]!r}")
        unquoted = re.sub(r'"[^"]*"', "", bare)
        if sign := re.search(r"[$`\\]", bare) or re.search(r"[;|&<>`(){}*?[\]!#\n\r]", unquoted):
            why = f"no shell reads the line, so {sign[0]!r} means nothing in it"
            raise Refused("shell", f"{why}: quote it, or ask for one command at a time")
        try:
            argv = shlex.split(line)
        except ValueError as error:
            raise Fault("nonsense", f"cannot tell the words of {line!r}: {error}") from None
    if not isinstance(argv, list) or not argv or not all(isinstance(w, str) and "\0" not in w for w in argv):
        raise Fault("nonsense", f"expected a program and its arguments, as a line or as words, got {line!r}")
    return argv


def look_at(argv: list[str], known: dict[str, Program], folder: Path) -> None:
    """Refuses a command that is not one of the programs, with options that it has, on paths in the folder."""
    name, *rest = argv
    if re.fullmatch(r"\w+=.*", name, re.DOTALL):
        raise Refused("environment", f"{name!r} would set a variable; commands have an environment of their own")
    if name not in known:
        programs = ", ".join(known) or "none"
        raise Refused("program", f"no program {name!r}; there are {programs}, by exactly these names")
    for word in rest:
        option, _, value = word.partition("=")
        if word.startswith("-") and word not in ("-", "--"):
            if option not in known[name].options:
                allowed = ", ".join(known[name].options) or "none"
                raise Refused("argument injection", f"{name} may not be given {word!r}; its options are {allowed}")
            word = value
        for piece in () if known[name].free else re.split(r"[=:,@]", word):
            _look_at_path(piece, folder)


def _look_at_path(word: str, folder: Path) -> None:
    if re.match(r"/+proc(/|$)", word):
        raise Refused("proc", f"{word!r} is not in the working folder")
    is_path = word.startswith(("/", "~")) or "/" in word or word == ".."
    for name in path_names(word) if is_path else [word] * bool(word):
        folder /= name
        if folder.is_symlink():
            raise Refused("symlink", f"{word!r} goes through {name!r}, which is a link; links are not followed")


def _result(ended: Ended, program: str) -> Result:
    """What a command came to, or what it tried that it may not do."""
    for call, times in ended.denied.items():
        raise Refused(DENIED.get(call, "system call"), f"{program} tried {times} times to call {call}, and may not")
    if ended.hit == "seconds":
        raise Fault("timeout", f"{program} was ended after {ended.seconds:.3g} s")
    if ended.hit is not None:
        kind = "too many processes" if ended.hit == "processes" else ended.hit
        raise Refused(kind, f"{program} was ended: it went over its limit of {ended.hit}")
    out, err = (text.decode(errors="replace") for text in (ended.stdout, ended.stderr))
    return Result({"code": ended.code, "stdout": out, "stderr": err}, trusted=False, source=f"command:{program}")
