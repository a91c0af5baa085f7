"""Any OpenAI-compatible endpoint: chat completions, streamed. Needs httpx (`pip install 'podium[serve]'`).

An endpoint that cannot be reached, refuses, stalls, drops or answers nonsense is a `Fault` that says which, and whether trying
again may help. Trying again is the harness's business, so that every failure is in the trace.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from podium.harness.lines import Lines
from podium.harness.types import Fault
from podium.trace.depth import TOO_DEEP, is_deep

if TYPE_CHECKING:
    import httpx

__all__ = ["Chat", "Endpoint", "Reply", "ToolCall"]

LARGEST = 16 << 20  # bytes of an answer
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)  # an answer that may be another the next time
LONGEST_REST = 60.0  # seconds that an endpoint may ask to be left alone


class ToolCall(msgspec.Struct):
    """A tool that a model asks for."""

    name: str
    args: dict[str, Any]


class Reply(msgspec.Struct, kw_only=True):
    """What a model answered, and what that took."""

    text: str
    calls: list[ToolCall] = []
    finish: str | None = None  # why it ended: stop, length, tool_calls
    tokens_in: float | None = None
    tokens_out: float | None = None
    cost: float | None = None
    model: str | None = None


class Chat(Protocol):
    """Anything that answers a conversation: an endpoint, or a model in this process."""

    async def chat(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = (), seed: int | None = None
    ) -> Reply: ...


class Endpoint:
    """A model behind an OpenAI-compatible endpoint, `url` being what ends in /v1.

    The key is read from the environment variable `key_from` when it is needed and kept nowhere. `idle` are the seconds
    without a word after which the endpoint has stalled, `seconds` those that an answer may take in all, `price` what a token
    in and a token out cost. In an `async with` its connections are kept open between calls.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_from: str | None = None,
        idle: float = 30.0,
        seconds: float = 300.0,
        stream: bool = True,
        price: tuple[float, float] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"expected the address of an endpoint such as http://localhost:8000/v1, got {url!r}")
        self.url, self.model, self.key_from = url.rstrip("/"), model, key_from
        self.idle, self.seconds, self.stream, self.price = idle, seconds, stream, price
        self.settings = settings or {}  # such as temperature, max_tokens
        self._client: httpx.AsyncClient | None = None
        self._rest_until = 0.0

    async def __aenter__(self) -> Endpoint:
        self._client = _new_client(self.url)
        return self

    async def __aexit__(self, *unused: object) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        seed: int | None = None,
        hear: Callable[[str], None] | None = None,
    ) -> Reply:
        """The model's answer to a conversation. `hear` is told the text as it comes."""
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), **self.settings}
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = list(tools)
        if seed is not None:
            body["seed"] = seed & 0x7FFFFFFF
        heard = _Heard(hear)
        try:
            async with asyncio.timeout(self.seconds):
                await self._rested()
                await self._asked(msgspec.json.encode(body), heard)
        except TimeoutError:
            raise self._fault("stalled", f"no whole answer within {self.seconds:g} s", retry=True) from None
        return self._reply(heard)

    async def _rested(self) -> None:
        """Leaves the endpoint alone for as long as it asked for."""
        if (left := self._rest_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)

    async def _asked(self, body: bytes, heard: _Heard) -> None:
        import httpx

        try:
            async with self._connected() as client:
                request = client.build_request(
                    "POST", f"{self.url}/chat/completions", content=body, headers=self._headers()
                )
                async with self._within_idle() as alive:
                    answer = await client.send(request, stream=True)
                    try:
                        await self._listen(answer, heard, alive)
                    finally:
                        await answer.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL) as error:
            raise self._fault("unreachable", str(error) or type(error).__name__, retry=True) from None
        except httpx.HTTPError as error:
            said = str(error) or type(error).__name__
            raise self._fault("dropped", f"the connection broke: {said}", retry=True) from None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[httpx.AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with _new_client(self.url) as client:
            yield client

    @asynccontextmanager
    async def _within_idle(self) -> AsyncIterator[Callable[[], None]]:
        """Ends what is inside when nothing was heard for too long; what it yields is called on every word."""
        now = asyncio.get_running_loop().time
        limit = asyncio.timeout(self.idle)
        try:
            async with limit:
                yield lambda: limit.reschedule(now() + self.idle)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._fault("stalled", f"not a word for {self.idle:g} s", retry=True) from None

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        if self.key_from is not None:
            if not (key := os.environ.get(self.key_from)):
                raise self._fault("refused", f"its key was to be in the variable {self.key_from}, which is not set")
            headers["authorization"] = f"Bearer {key}"
        return headers

    async def _listen(self, answer: httpx.Response, heard: _Heard, alive: Callable[[], None]) -> None:
        if answer.status_code != 200:
            await self._turned_down(answer)
        streamed = "text/event-stream" in answer.headers.get("content-type", "")
        lines, whole = Lines(), []
        async for piece in answer.aiter_bytes():
            if lines.size + len(piece) > LARGEST:
                raise self._fault("nonsense", f"an answer of more than {LARGEST} bytes")
            complete = lines.take(piece)
            if not streamed:
                whole += complete
                alive()
                continue
            for line in complete:
                if line.startswith(b"data:"):  # anything else is there to keep the connection open
                    alive()
                    self._take(line[5:].strip(), heard)
        if not streamed:
            self._take(b"\n".join([*whole, lines.rest()]).strip(), heard)
            heard.done = True
        elif lines.rest().startswith(b"data:"):
            self._take(lines.rest()[5:].strip(), heard)

    async def _turned_down(self, answer: httpx.Response) -> None:
        said = b""
        async for piece in answer.aiter_bytes():
            said += piece
            if len(said) > 2000:
                break
        if rest := _rest_asked(answer.headers.get("retry-after")):
            self._rest_until = asyncio.get_running_loop().time() + rest
        why = f"status {answer.status_code}: {said.decode(errors='replace').strip()[:300]}"
        what = "busy" if answer.status_code == 429 else "failed" if answer.status_code >= 500 else "refused"
        raise self._fault(what, why, retry=answer.status_code in AGAIN)

    def _take(self, data: bytes, heard: _Heard) -> None:
        if data == b"[DONE]":
            heard.done = True
            return
        if is_deep(data):
            raise self._fault("nonsense", f"expected a chat completion, got JSON that is {TOO_DEEP}", retry=True)
        try:
            heard.take(msgspec.json.decode(data, type=_Chunk))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            shown = data[:80].decode(errors="replace")
            raise self._fault(
                "nonsense", f"expected a chat completion, got {shown!r}: {error}", retry=True
            ) from None
        if heard.error is not None:
            raise self._fault("failed", f"it said: {str(heard.error)[:300]}", retry=True)

    def _reply(self, heard: _Heard) -> Reply:
        if not heard.done and heard.finish is None:
            words = len("".join(heard.text))
            raise self._fault("dropped", f"the answer broke off after {words} characters", retry=True)
        if not heard.any:
            raise self._fault("nonsense", "an answer without any choice", retry=True)
        tokens_in, tokens_out = heard.usage.prompt_tokens, heard.usage.completion_tokens
        cost = None
        if self.price is not None and tokens_in is not None and tokens_out is not None:
            cost = tokens_in * self.price[0] + tokens_out * self.price[1]
        return Reply(
            text="".join(heard.text),
            calls=[self._call(c) for _, c in sorted(heard.calls.items())],
            finish=heard.finish,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost=cost,
            model=heard.model or self.model,
        )

    def _call(self, call: _Function) -> ToolCall:
        if is_deep((call.arguments or "").encode()):
            raise self._fault("nonsense", f"it calls {call.name!r} with arguments that are {TOO_DEEP}", retry=True)
        try:
            args = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
        except msgspec.MsgspecError as error:
            shown = (call.arguments or "")[:80]
            why = f"it calls {call.name!r} with arguments that are no JSON object ({error}): {shown!r}"
            raise self._fault("nonsense", why, retry=True) from None
        return ToolCall(call.name or "", args)

    def _fault(self, what: str, why: str, retry: bool = False) -> Fault:
        return Fault(f"endpoint {what}", f"{self.model} at {self.url}: {why}", retry)


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function = msgspec.field(default_factory=_Function)
    index: int | None = None


class _Said(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: float | None = None
    completion_tokens: float | None = None


class _Chunk(msgspec.Struct):
    """A piece of a streamed completion, or a whole one."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None


class _Heard:
    """What an endpoint has said so far."""

    def __init__(self, hear: Callable[[str], None] | None) -> None:
        self.hear = hear
        self.text: list[str] = []
        self.calls: dict[int, _Function] = {}
        self.usage = _Usage()
        self.finish: str | None = None
        self.model: str | None = None
        self.error: Any = None
        self.done = self.any = False

    def take(self, chunk: _Chunk) -> None:
        self.error, self.model, self.usage = chunk.error, chunk.model or self.model, chunk.usage or self.usage
        for choice in chunk.choices[:1]:
            self.any = True
            self.finish = choice.finish_reason or self.finish
            said = choice.delta or choice.message or _Said()
            if said.content:
                self.text.append(said.content)
                if self.hear is not None:
                    self.hear(said.content)
            for at, call in enumerate(said.tool_calls or ()):
                at = at if call.index is None else call.index
                known = self.calls.setdefault(at, _Function("", ""))
                known.name = (known.name or "") + (call.function.name or "")
                known.arguments = (known.arguments or "") + (call.function.arguments or "")


def _new_client(url: str) -> httpx.AsyncClient:
    """A client that goes by the proxies and certificates of the environment, except to a plain address nearby."""
    try:
        import httpx
    except ImportError:
        raise Fault("endpoint missing", "an endpoint needs httpx: pip install 'podium[serve]'") from None
    return httpx.AsyncClient(timeout=None, trust_env=url.startswith("https:"), follow_redirects=False)


def _rest_asked(header: str | None) -> float:
    try:
        return min(max(0.0, float(header or 0)), LONGEST_REST)
    except ValueError:
        return 0.0
