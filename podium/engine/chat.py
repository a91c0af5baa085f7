"""Conversations with a model behind an OpenAI-compatible endpoint: messages in, a reply with text and tool calls
out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from podium.engine.client import LARGEST, Client, EndpointFault
from podium.trace.depth import TOO_DEEP, is_deep

__all__ = ["Chat", "ChatEndpoint", "Reply", "ReplyParts", "ToolCall"]


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


class ChatEndpoint:
    """A model behind an OpenAI-compatible endpoint, `url` being what ends in /v1.

    `idle`, `seconds`, `key_from` and `largest` are those of `Client`; `price` is what a token in and a token out
    cost. In an `async with` its connections are kept open between calls. What goes wrong is an EndpointFault.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_from: str | None = None,
        key: str = "",
        idle: float | None = 30.0,
        seconds: float = 300.0,
        stream: bool = True,
        price: tuple[float, float] | None = None,
        settings: dict[str, Any] | None = None,
        largest: int = LARGEST,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"expected the address of an endpoint such as http://localhost:8000/v1, got {url!r}")
        self.client = Client(
            url.rstrip("/"), key_from=key_from, key=key, idle=idle, seconds=seconds, largest=largest
        )
        self.url, self.model, self.stream, self.price = self.client.url, model, stream, price
        self.settings = settings or {}  # such as temperature, max_tokens

    async def __aenter__(self) -> ChatEndpoint:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.__aexit__(*error)

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        seed: int | None = None,
        hear: Callable[[str], None] | None = None,
    ) -> Reply:
        """The model's answer to a conversation. `hear` is given the text as it comes."""
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), **self.settings}
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = list(tools)
        if seed is not None:
            body["seed"] = seed & 0x7FFFFFFF
        parts = ReplyParts(hear)
        whole = await self.client.post("/chat/completions", msgspec.json.encode(body), parts.add)
        if whole is not None:
            parts.add(whole)
            parts.done = True
        reply = parts.reply(self.model, self.price)
        reply.text, reply.model = self.client.hide(reply.text), self.client.hide(reply.model)
        reply.calls = [ToolCall(self.client.hide(call.name), self.client.hide(call.args)) for call in reply.calls]
        return reply


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function = msgspec.field(default_factory=_Function)
    index: int | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
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


class ReplyParts:
    """What came of a reply so far, chunk by chunk."""

    def __init__(self, hear: Callable[[str], None] | None = None) -> None:
        self.hear = hear
        self.text: list[str] = []
        self.calls: dict[int, _Function] = {}
        self.usage = _Usage()
        self.finish: str | None = None
        self.model: str | None = None
        self.done = self.any_choice = False

    def add(self, data: bytes) -> None:
        """One more event of a stream, or a whole completion. Raises EndpointFault."""
        if data == b"[DONE]":
            self.done = True
            return
        if is_deep(data):
            raise EndpointFault("nonsense", f"expected a chat completion, got JSON that is {TOO_DEEP}", True)
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            shown = data[:80].decode(errors="replace")
            raise EndpointFault("nonsense", f"expected a chat completion, got {shown!r}: {error}", True) from None
        self._merge(chunk)
        if chunk.error is not None:
            raise EndpointFault("failed", f"it said: {str(chunk.error)[:300]}", True)

    def _merge(self, chunk: _Chunk) -> None:
        self.model, self.usage = chunk.model or self.model, chunk.usage or self.usage
        for choice in chunk.choices[:1]:
            self.any_choice = True
            self.finish = choice.finish_reason or self.finish
            message = choice.delta or choice.message or _Message()
            if message.content:
                self.text.append(message.content)
                if self.hear is not None:
                    self.hear(message.content)
            for at, call in enumerate(message.tool_calls or ()):
                at = at if call.index is None else call.index
                known = self.calls.setdefault(at, _Function("", ""))
                known.name = (known.name or "") + (call.function.name or "")
                known.arguments = (known.arguments or "") + (call.function.arguments or "")

    def reply(self, model: str, price: tuple[float, float] | None = None) -> Reply:
        """The reply, if it is whole. Raises EndpointFault."""
        if not self.done and self.finish is None:
            letters = len("".join(self.text))
            raise EndpointFault("dropped", f"the answer broke off after {letters} characters", True)
        if not self.any_choice:
            raise EndpointFault("nonsense", "an answer without any choice", True)
        tokens_in, tokens_out, cost = self.usage.prompt_tokens, self.usage.completion_tokens, None
        if price is not None and tokens_in is not None and tokens_out is not None:
            cost = tokens_in * price[0] + tokens_out * price[1]
        return Reply(
            text="".join(self.text),
            calls=[_tool_call(call) for _, call in sorted(self.calls.items())],
            finish=self.finish,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost=cost,
            model=self.model or model,
        )


def _tool_call(call: _Function) -> ToolCall:
    if is_deep((call.arguments or "").encode()):
        raise EndpointFault("nonsense", f"it calls {call.name!r} with arguments that are {TOO_DEEP}", True)
    try:
        args = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        shown = (call.arguments or "")[:80]
        why = f"it calls {call.name!r} with arguments that are no JSON object ({error}): {shown!r}"
        raise EndpointFault("nonsense", why, True) from None
    return ToolCall(call.name or "", args)
