"""The one client of OpenAI-compatible endpoints: a JSON body goes there, an answer or a stream of events comes
back. Needs httpx.

An endpoint that cannot be reached, refuses, stalls, drops or answers nonsense is an `EndpointFault` that says
which, and whether trying again may help. Answers are bounded in bytes and in seconds and never compressed (a few
bytes may be many), redirects are not followed, and a key is in no message and no record.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from podium.engine.keys import hide_in, login
from podium.engine.lines import Lines

if TYPE_CHECKING:
    import httpx

__all__ = ["Client", "EndpointFault", "patiently", "wait_for"]

T = TypeVar("T")
LARGEST = 16 << 20  # bytes of an answer
AGAIN = (408, 409, 425, 429)  # refused now; all from 500 on too
LONGEST_REST = 60.0  # seconds that an endpoint may ask to be left alone


class EndpointFault(Exception):
    """No answer. `kind` is unreachable, dropped, stalled, busy, failed, refused, nonsense or missing; `retry`: the
    next try may do."""

    def __init__(self, kind: str, why: str, retry: bool = False) -> None:
        super().__init__(f"{kind}: {why}")
        self.kind, self.why, self.retry = kind, why, retry


class Client:
    """Where an endpoint is, and how long and how much it may say.

    The key is read from the environment variable `key_from` when it is needed. `idle` are the seconds without a
    word after which the endpoint has stalled, `seconds` those that an answer may take in all. In an `async with`
    connections are kept open between calls.
    """

    def __init__(
        self,
        url: str,
        *,
        key_from: str | None = None,
        key: str = "",
        idle: float | None = None,
        seconds: float = 300.0,
        largest: int = LARGEST,
    ) -> None:
        self._login = login(url)
        self.url, self.key_from, self._key = self._login.url, key_from, key
        self.idle, self.seconds, self.largest = idle, seconds, largest
        self._client: httpx.AsyncClient | None = None
        self._rest_until = 0.0

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def hide(self, said: Any) -> Any:
        """What the endpoint said, or what is said of it, without the key."""
        return hide_in(said, self._login.secrets(self.key_from, self._key))

    async def __aenter__(self) -> Client:
        self._client = self._new_client()
        return self

    async def __aexit__(self, *unused: object) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def post(self, path: str, body: bytes, on_event: Callable[[bytes], None] | None = None) -> bytes | None:
        """The whole answer; None of one that is streamed, and `on_event` is given the data of each event as it
        comes."""
        try:
            async with asyncio.timeout(self.seconds):
                await self._wait_as_told()
                return await self._post(path, body, on_event)
        except TimeoutError:
            raise EndpointFault("stalled", f"no whole answer within {self.seconds:g} s", True) from None
        except EndpointFault as fault:
            raise EndpointFault(fault.kind, self.hide(fault.why), fault.retry) from None

    async def _wait_as_told(self) -> None:
        """Leaves the endpoint alone for as long as it asked for."""
        if (left := self._rest_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)

    async def _post(self, path: str, body: bytes, on_event: Callable[[bytes], None] | None) -> bytes | None:
        client_class = _httpx()
        try:
            async with self._connected() as client:
                request = client.build_request("POST", f"{self.url}{path}", content=body, headers=self._headers())
                async with self._within_idle() as alive:
                    answer = await client.send(request, stream=True)
                    try:
                        return await self._listen(answer, on_event, alive)
                    finally:
                        await answer.aclose()
        except (client_class.ConnectError, client_class.ConnectTimeout, client_class.InvalidURL) as error:
            raise EndpointFault("unreachable", str(error) or type(error).__name__, True) from None
        except client_class.HTTPError as error:
            why = str(error) or type(error).__name__
            raise EndpointFault("dropped", f"the connection broke: {why}", True) from None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[httpx.AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with self._new_client() as client:
            yield client

    def _new_client(self) -> httpx.AsyncClient:
        """A client that goes by the proxies and certificates of the environment, except to a plain address
        nearby."""
        client: httpx.AsyncClient = _httpx().AsyncClient(
            auth=self._login.pair,
            timeout=None,
            trust_env=self.url.startswith("https:"),
            follow_redirects=False,
        )
        return client

    @asynccontextmanager
    async def _within_idle(self) -> AsyncIterator[Callable[[], None]]:
        """Ends what is inside when nothing was heard for too long; what it yields is called on every word."""
        if self.idle is None:
            yield lambda: None
            return
        now, idle = asyncio.get_running_loop().time, self.idle
        limit = asyncio.timeout(idle)
        try:
            async with limit:
                yield lambda: limit.reschedule(now() + idle)
        except TimeoutError:
            if not limit.expired():
                raise
            raise EndpointFault("stalled", f"not a word for {idle:g} s", True) from None

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        headers["accept-encoding"] = "identity"
        key = self._key
        if self.key_from and not (key := os.environ.get(self.key_from, "")):
            raise EndpointFault("refused", f"expected its key in the variable {self.key_from}, which is not set")
        return headers | ({"authorization": f"Bearer {key}"} if key else {})

    async def _listen(
        self, answer: httpx.Response, on_event: Callable[[bytes], None] | None, alive: Callable[[], None]
    ) -> bytes | None:
        if answer.status_code != 200:
            await self._turned_down(answer)
        if (packed := answer.headers.get("content-encoding", "identity")) != "identity":
            raise EndpointFault("nonsense", f"expected an answer as it is, which was asked for, got {packed!r}")
        streamed = on_event is not None and "text/event-stream" in answer.headers.get("content-type", "")
        lines, whole = Lines(), []
        async for piece in answer.aiter_bytes():
            if lines.size + len(piece) > self.largest:
                raise EndpointFault("nonsense", f"an answer of more than {self.largest} bytes", True)
            complete = lines.take(piece)
            if not streamed:
                whole += complete
                alive()
                continue
            for line in complete:
                if line.startswith(b"data:"):  # anything else is there to keep the connection open
                    alive()
                    _pass_on(line, on_event)
        if not streamed:
            return b"\n".join([*whole, lines.rest()]).strip()
        _pass_on(lines.rest(), on_event)
        return None

    async def _turned_down(self, answer: httpx.Response) -> None:
        body = b""
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > 2000:
                break
        if rest := _rest_asked(answer.headers.get("retry-after")):
            self._rest_until = asyncio.get_running_loop().time() + rest
        status = answer.status_code
        shown = " ".join(body[:300].decode(errors="replace").split())
        kind = "busy" if status == 429 else "failed" if status >= 500 else "refused"
        raise EndpointFault(kind, f"status {status}: {shown}".rstrip(": "), status in AGAIN or status >= 500)


def _pass_on(line: bytes, on_event: Callable[[bytes], None] | None) -> None:
    if on_event is not None and line.startswith(b"data:"):
        on_event(line[5:].strip())


async def patiently(
    call: Callable[[], Awaitable[T]],
    tries: int,
    pause: float,
    may_pass: Callable[[EndpointFault], bool] = lambda fault: fault.retry,
) -> T:
    """What a call gives, tried again where the fault may pass, after `pause` seconds and twice as many before each
    further try."""
    for number in range(tries - 1):
        try:
            return await call()
        except EndpointFault as fault:
            if not may_pass(fault):
                raise
        await asyncio.sleep(pause * 2**number)
    return await call()


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to, in synchronous code, whether or not an event loop runs there."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        why = "an endpoint needs httpx, which is not installed: pip install 'podium[serve]'"
        raise EndpointFault("missing", why) from None
    return httpx


def _rest_asked(header: str | None) -> float:
    try:
        return min(max(0.0, float(header or 0)), LONGEST_REST)
    except ValueError:
        return 0.0
