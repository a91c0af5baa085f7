"""The tools of an MCP server, over stdio or HTTP, as tools of a team. HTTP needs httpx
(`pip install 'podium[serve]'`).

A client of the Model Context Protocol, as far as tools go: initialize, list the tools, call them. What a server
says comes from outside: its results are untrusted, and so is what it says of its tools. A server that does not
start, stalls, breaks off or answers nonsense is a `Fault` that says which.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from podium.harness.mcp_http import Http
from podium.harness.mcp_stdio import Stdio
from podium.harness.tools import Tool
from podium.harness.types import Effect, Fault, Result

__all__ = ["Server", "mcp_http", "mcp_stdio"]

VERSION = "2025-06-18"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # whose calls of tools are the same
MOST_TOOLS, MOST_PAGES = 1000, 100


class Transport(Protocol):
    """Carries messages to a server and what it says back."""

    async def ask(self, message: dict[str, Any], seconds: float) -> Any: ...
    async def tell(self, message: dict[str, Any]) -> None: ...
    async def close(self) -> None: ...
    def forget(self, request: int) -> None: ...
    def agreed(self, version: str) -> None: ...


class Server:
    """A server that has been spoken to: what it calls itself, and its tools."""

    def __init__(self, name: str, transport: Transport, seconds: float, effects: Mapping[str, Effect]) -> None:
        self.name, self.seconds = name, seconds
        self.calls_itself = ""
        self.tools: list[Tool] = []
        self._transport, self._effects = transport, effects
        self._count = 0

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        try:
            reply = await self._transport.ask(message, self.seconds)
        except Fault as fault:
            raise Fault(fault.kind, f"MCP server {self.name!r}: {fault.why}", fault.retry) from None
        except asyncio.CancelledError:
            self._transport.forget(message["id"])
            raise
        if isinstance(error := reply.get("error"), dict):
            raise self._fault("said no", f"{method}: {str(error.get('message'))[:300]} (code {error.get('code')})")
        if not isinstance(result := reply.get("result"), dict):
            raise self._fault("nonsense", f"{method}: expected a result, got {str(reply)[:120]}")
        return result

    async def start(self) -> None:
        """Greets the server and asks for its tools."""
        greeting = {
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "podium", "version": "0.1.0"},
        }
        reply = await self._ask("initialize", greeting)
        version = reply.get("protocolVersion")
        if version not in VERSIONS:
            raise self._fault("nonsense", f"it speaks version {version!r}; known are {', '.join(VERSIONS)}")
        self._transport.agreed(version)
        info = reply.get("serverInfo")
        self.calls_itself = str(info.get("name", "")) if isinstance(info, dict) else ""
        await self._transport.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        cursor: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            page = await self._ask("tools/list", cursor)
            self.tools += self._listed(page.get("tools"))
            if len(self.tools) > MOST_TOOLS:
                raise self._fault("nonsense", f"tools/list: more than {MOST_TOOLS} tools")
            if not page.get("nextCursor"):
                return
            cursor = {"cursor": page["nextCursor"]}
        raise self._fault("nonsense", f"tools/list: more than {MOST_PAGES} pages")

    def _listed(self, listed: Any) -> list[Tool]:
        try:
            return [self._tool(one) for one in msgspec.convert(listed, list[_Listed])]
        except msgspec.ValidationError as error:
            raise self._fault("nonsense", f"tools/list: {error}") from None

    def _tool(self, one: _Listed) -> Tool:
        async def run(**args: Any) -> Result:
            return await self.call(one.name, args)

        hints = one.annotations or _Hints()
        effect = self._effects.get(one.name, "replayable" if hints.readOnlyHint else "once")
        return Tool(
            name=re.sub(r"[^\w-]", "_", f"{self.name}_{one.name}"),  # as endpoints want the names of tools
            run=run,
            effect=effect,
            about=(one.description or "").split("\n")[0][:500],
            params=one.inputSchema,
            outside=True,
            seconds=self.seconds + 1.0,  # what says that it stalled is the server's own limit
        )

    async def call(self, tool: str, args: dict[str, Any]) -> Result:
        """What a tool of the server answers."""
        reply = await self._ask("tools/call", {"name": tool, "arguments": args})
        try:
            answer = msgspec.convert(reply, _Answer)
        except msgspec.ValidationError as error:
            raise self._fault("nonsense", f"{tool}: {error}") from None
        content = _content(answer)
        if answer.isError:
            raise Fault("tool", f"{self.name}.{tool}: {str(content)[:500]}")
        return Result(content, trusted=False, source=f"mcp:{self.name}")

    def _fault(self, what: str, why: str) -> Fault:
        return Fault(f"mcp {what}", f"MCP server {self.name!r}: {why}")


@asynccontextmanager
async def mcp_stdio(
    name: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    folder: str | None = None,
    seconds: float = 60.0,
    effects: Mapping[str, Effect] | None = None,
) -> AsyncIterator[Server]:
    """A server started as a process of its own, and ended with the block. It has the variables in `env`, and PATH,
    HOME and LANG. `seconds` is how long an answer may take. Its tools are called `name_tool`; unless `effects` says
    otherwise, one that says it only reads is replayable and any other must not be repeated."""
    transport = Stdio(list(command), dict(env or {}), folder)
    try:
        await transport.start()
    except Fault as fault:
        raise Fault(fault.kind, f"MCP server {name!r}: {fault.why}") from None
    async with _served(name, transport, seconds, effects) as server:
        yield server


@asynccontextmanager
async def mcp_http(
    name: str,
    url: str,
    *,
    key_from: str | None = None,
    seconds: float = 60.0,
    effects: Mapping[str, Effect] | None = None,
) -> AsyncIterator[Server]:
    """A server at an address (streamable HTTP). `key_from` names the environment variable that holds its key."""
    async with _served(name, Http(url, key_from), seconds, effects) as server:
        yield server


@asynccontextmanager
async def _served(
    name: str, transport: Transport, seconds: float, effects: Mapping[str, Effect] | None
) -> AsyncIterator[Server]:
    server = Server(name, transport, seconds, effects or {})
    try:
        await server.start()
        yield server
    finally:
        await transport.close()


class _Hints(msgspec.Struct):
    readOnlyHint: bool = False  # noqa: N815


class _Listed(msgspec.Struct):
    name: str
    description: str | None = None
    inputSchema: dict[str, Any] | None = None  # noqa: N815
    annotations: _Hints | None = None


class _Answer(msgspec.Struct):
    content: list[dict[str, Any]] = []
    structuredContent: Any = None  # noqa: N815
    isError: bool = False  # noqa: N815


def _content(answer: _Answer) -> Any:
    """What the answer says: what it says as data, else its text; other parts by their kind."""
    if answer.structuredContent is not None and not answer.isError:
        return answer.structuredContent
    parts = [_part(part) for part in answer.content]
    if all(isinstance(part, str) for part in parts):
        return "\n".join(parts)
    return parts


def _part(part: dict[str, Any]) -> Any:
    return part.get("text", "") if part.get("type") == "text" else part
