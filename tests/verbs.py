"""`podium` as a user meets it, a process with its output and exit code, without half a second of imports each time.

One process imports `podium.cli`, as `python -m podium.cli` does, and nothing else; each command is a fork of it, in a folder and an environment of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["verb"]

HANGS = 600.0  # seconds after which a command is taken to hang
SERVER = """
import json, os, socket, sys
import podium.cli
asked = socket.socket(fileno=int(sys.argv[1])).makefile("rwb", buffering=0)
for line in asked:
    told = json.loads(line)
    if not (child := os.fork()):
        code = 1
        try:
            for number, path in enumerate(told["files"]):
                opened = os.open(path, os.O_RDWR)
                os.dup2(opened, number)
                os.close(opened)
            asked.close()
            os.chdir(told["cwd"])
            os.environ.clear()
            os.environ.update(told["env"])
            sys.argv = told["argv"]
            podium.cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
    asked.write(b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@cache
def _server(columns: str) -> BinaryIO:
    """Of this process, for a terminal of some width, which is read on import: started once, ended with it."""
    ours, theirs = socket.socketpair()
    code = [sys.executable, "-c", SERVER, str(theirs.fileno())]
    null: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL)
    process = subprocess.Popen(code, pass_fds=[theirs.fileno()], env=os.environ | {"COLUMNS": columns}, **null)
    theirs.close()
    ours.settimeout(HANGS)
    asked: BinaryIO = ours.makefile("rwb", buffering=0)

    def end() -> None:
        asked.close()
        ours.close()
        process.wait()

    atexit.register(end)
    return asked


def verb(
    *words: object, stdin: bytes | None = None, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command, its exit code and what it printed."""
    argv = ["podium", *map(str, words)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("in", "out", "err")]
        for file in files:
            file.write_bytes((stdin or b"") if file.name == "in" else b"")
        env = {**os.environ, "COLUMNS": "120", **environment}
        told = {"argv": argv, "cwd": str(cwd or os.getcwd()), "env": env, "files": [str(file) for file in files]}
        server = _server(env["COLUMNS"])
        server.write(json.dumps(told).encode() + b"\n")
        code = int(server.readline())
        out, err = (file.read_bytes().decode() for file in files[1:])
    return subprocess.CompletedProcess(argv, code, out, err)
