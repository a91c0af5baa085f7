"""Messages to and from an MCP server at an address: each is posted, and answered by JSON or by a stream of
events."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from podium.engine.keys import hide_in, login
from podium.engine.lines import Lines
from podium.harness.mcp_stdio import declined
from podium.harness.types import Fault
from podium.trace.depth import TOO_DEEP, is_deep

if TYPE_CHECKING:
    import httpx

__all__ = ["Http"]

LARGEST = 16 << 20  # bytes of an answer
SESSION = "mcp-session-id"


class Http:
    """An address that is posted to. The session that the server gives is kept."""

    def __init__(self, url: str, key_from: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"expected the address of an MCP server such as http://localhost:3001/mcp, got {url!r}"
            )
        self._login = login(url)
        self.url, self.key_from = self._login.url, key_from
        self._headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        self._headers["accept-encoding"] = "identity"
        self._client: httpx.AsyncClient | None = None

    def agreed(self, version: str) -> None:
        self._headers["mcp-protocol-version"] = version

    def forget(self, request: int) -> None:
        del request  # hanging up on the answer says it

    async def ask(self, message: dict[str, Any], seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return self._hide(await self._posted(message, wants=True))
        except TimeoutError:
            raise Fault("mcp stalled", f"no answer to {message['method']} within {seconds:g} s", True) from None
        except Fault as fault:
            raise Fault(fault.kind, self._hide(fault.why), fault.retry) from None

    def _hide(self, said: Any) -> Any:
        return hide_in(said, self._login.secrets(self.key_from))

    async def tell(self, message: dict[str, Any]) -> None:
        await self._posted(message, wants=False)

    async def _posted(self, message: dict[str, Any], wants: bool) -> Any:
        _need_httpx()
        import httpx

        try:
            async with self._open().stream(
                "POST", self.url, content=msgspec.json.encode(message), headers=self._all_headers()
            ) as answer:
                return await self._heard(answer, message, wants)
        except (httpx.ConnectError, httpx.InvalidURL) as error:
            raise Fault("mcp unreachable", f"{self.url}: {error}", True) from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise Fault("mcp dropped", f"{self.url}: the connection broke: {reason}", True) from None

    def _open(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                auth=self._login.pair,
                timeout=None,
                trust_env=self.url.startswith("https:"),
                follow_redirects=False,
            )
        return self._client

    def _all_headers(self) -> dict[str, str]:
        if self.key_from is None:
            return self._headers
        if not (key := os.environ.get(self.key_from)):
            raise Fault("mcp refused", f"its key was to be in the variable {self.key_from}, which is not set")
        return self._headers | {"authorization": f"Bearer {key}"}

    async def _heard(self, answer: httpx.Response, message: dict[str, Any], wants: bool) -> Any:
        if (packed := answer.headers.get("content-encoding", "identity")) != "identity":
            raise Fault("mcp nonsense", f"{self.url}: expected an answer as it is, got one packed by {packed!r}")
        if SESSION in answer.headers:
            self._headers[SESSION] = answer.headers[SESSION]
        if answer.status_code not in (200, 202):
            reason = (await _limited(answer)).decode(errors="replace").strip()[:300]
            raise Fault(
                "mcp refused", f"{self.url}: status {answer.status_code}: {reason}", answer.status_code >= 500
            )
        if not wants:
            return None
        if "text/event-stream" in answer.headers.get("content-type", ""):
            return await self._streamed(answer, message)
        return _the_answer(_read(await _limited(answer)), message, self.url)

    async def _streamed(self, answer: httpx.Response, message: dict[str, Any]) -> Any:
        """The answer, from a stream that may say other things before it."""
        data, lines = b"", Lines()
        async for piece in answer.aiter_bytes():
            if lines.size + len(piece) > LARGEST:
                raise Fault("mcp nonsense", f"{self.url}: an answer of more than {LARGEST} bytes")
            for line in lines.take(piece):
                if line.startswith(b"data:"):
                    data += line[5:].strip()
                elif not line and data:
                    said, data = _read(data), b""
                    if isinstance(said, dict) and "method" in said and "id" in said:
                        with suppress(Fault):
                            await self.tell(declined(said))
                    elif isinstance(said, dict) and said.get("id") == message["id"]:
                        return said
        raise Fault("mcp dropped", f"{self.url}: the stream ended before the answer to {message['method']}", True)

    async def close(self) -> None:
        """Ends the session, if the server still listens."""
        if self._client is None:
            return
        import httpx

        if SESSION in self._headers:
            with suppress(httpx.HTTPError, Fault, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._client.delete(self.url, headers=self._all_headers())
        await self._client.aclose()
        self._client = None


def _need_httpx() -> None:
    try:
        import httpx  # noqa: F401
    except ImportError:
        raise Fault("mcp missing", "an MCP server over HTTP needs httpx: pip install 'podium[serve]'") from None


async def _limited(answer: httpx.Response) -> bytes:
    pieces, size = [], 0
    async for piece in answer.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise Fault("mcp nonsense", f"an answer of more than {LARGEST} bytes")
    return b"".join(pieces)


def _read(data: bytes) -> Any:
    if is_deep(data):
        raise Fault("mcp nonsense", f"an answer that is {TOO_DEEP}")
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        shown = data[:80].decode(errors="replace")
        raise Fault("mcp nonsense", f"expected JSON, got {shown!r}: {error}", True) from None


def _the_answer(said: Any, message: dict[str, Any], url: str) -> Any:
    for one in said if isinstance(said, list) else [said]:
        if isinstance(one, dict) and one.get("id") == message["id"]:
            return one
    raise Fault("mcp nonsense", f"{url}: expected the answer to {message['method']}, got {str(said)[:120]}", True)
