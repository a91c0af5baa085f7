"""MCP servers to try the client on: two from the registries, where `make mcp` has installed them, and one that misbehaves."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["BAD", "EVERYTHING", "TIME", "behaving", "everything_over_http", "missing", "patience"]

HERE = Path(sys.prefix) / "mcp"
_SCRIPT = HERE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
EVERYTHING = ["node", str(_SCRIPT), "stdio"]  # the reference server, from npm
TIME = [str(HERE / "py/bin/mcp-server-time"), "--local-timezone", "UTC"]  # from PyPI


def missing(command: list[str]) -> str:
    """Why a server cannot be tried; empty if it can."""
    gone = [w for w in command[:2] if not (Path(w).exists() or shutil.which(w) or w.startswith("-"))]
    return f"{' and '.join(gone)} not there: make mcp" if gone else ""


@contextmanager
def everything_over_http() -> Iterator[str]:
    """The address of the reference server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["node", str(_SCRIPT), "streamableHttp"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=os.environ | {"PORT": str(port)}, stdout=quiet, stderr=quiet) as process:
        try:
            _await_port(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def _await_port(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody listens at port {port}")


_SERVER = r"""
import json, subprocess, sys, time
how = sys.argv[1]
def say(text): sys.stdout.write(text + "\n"); sys.stdout.flush()
def answer(number, **said): say(json.dumps({"jsonrpc": "2.0", "id": number, **said}))
if how == "dies": sys.exit("no such luck")
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked["method"]
    if number is None: continue
    if method == "initialize":
        if how == "stalls": time.sleep(600)
        if how == "prints": print("hello, I am a server")
        version = "1999-01-01" if how == "old" else "2025-06-18"
        answer(number, result={"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": how}})
    elif method == "tools/list":
        if how == "lists nonsense": answer(number, result={"tools": [{"title": "nameless"}]}); continue
        tools = [{"name": "act", "inputSchema": {"type": "object"}}]
        if how == "endless pages": answer(number, result={"tools": [], "nextCursor": "on"}); continue
        if how == "pages":
            page = int(asked.get("params", {}).get("cursor", 0))
            more = {"nextCursor": str(page + 1)} if page < 2 else {}
            answer(number, result={"tools": [{"name": f"act{page}"}], **more})
            continue
        answer(number, result={"tools": tools})
    elif how == "asks back":
        answer("s1", method="sampling/createMessage", params={})
        back = json.loads(sys.stdin.readline())
        answer(number, result={"content": [{"type": "text", "text": str(back["error"]["code"])}]})
    elif how == "odd ids":
        for odd in ([1], {"a": 1}, None, 1.5, True): answer(odd, result={})
        answer(number, result={"content": [{"type": "text", "text": "done"}]})
    elif how == "leaves a child":
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        answer(number, result={"content": [{"type": "text", "text": "done"}]})
    elif how == "pings without end":
        while True: answer("p", method="ping")
    elif how == "dies in a call": sys.exit("it was too much")
    elif how == "stalls in a call": time.sleep(600)
    elif how == "says no": answer(number, error={"code": -32602, "message": "not like this"})
    elif how == "answers nonsense": answer(number, result="forty-two")
    elif how == "content of nonsense": answer(number, result={"content": "forty-two"})
    elif how == "fails": answer(number, result={"content": [{"type": "text", "text": "it fell"}], "isError": True})
    elif how == "endless line": sys.stdout.write("x" * (20 << 20)); sys.stdout.flush(); time.sleep(600)
    elif how == "answers others": answer(number + 1000, result={}); answer("x", result={}); say("[1, null]"); time.sleep(600)
    else: answer(number, result={"content": [{"type": "text", "text": "done"}]})
"""
BAD = {  # how a server behaves, when it is started or when it is called, and the fault that is
    "start": {
        "dies": "mcp dropped",
        "stalls": "mcp stalled",
        "old": "mcp nonsense",
        "lists nonsense": "mcp nonsense",
        "endless pages": "mcp nonsense",
    },
    "call": {
        "dies in a call": "mcp dropped",
        "stalls in a call": "mcp stalled",
        "says no": "mcp said no",
        "answers nonsense": "mcp nonsense",
        "content of nonsense": "mcp nonsense",
        "fails": "tool",
        "endless line": "mcp dropped",
        "pings without end": "mcp dropped",
        "answers others": "mcp stalled",
    },
}


def patience(kind: str, stalled: float) -> float:
    """Seconds to give a server that fails so: few only if it stalls, and else more than a busy machine needs."""
    return stalled if kind == "mcp stalled" else 60.0


def behaving(how: str) -> list[str]:
    """The command of a server that behaves so."""
    return [sys.executable, "-c", _SERVER, how]
