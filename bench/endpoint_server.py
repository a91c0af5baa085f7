"""An OpenAI-compatible endpoint that misbehaves on demand, in a process of its own: `python -m bench.endpoint_server` prints its
port. How it behaves is the name of the model that is asked for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["BAD", "GOOD", "patience", "serving"]

Write = Callable[[bytes], Awaitable[None]]
TEXT = "The answer is 42, said the endpoint."
USAGE = {"prompt_tokens": 11, "completion_tokens": 9}
BUSY: dict[str, int] = {}


def _chunk(content: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    delta = {} if content is None else {"content": content}
    chunk = {"choices": [{"index": 0, "delta": delta | more, "finish_reason": finish}], "model": "m-1"}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _words(text: str = TEXT) -> Iterator[bytes]:
    for word in text.split(" "):
        yield _chunk(word if word == text.split(" ")[0] else " " + word)


async def _good(say: Write) -> None:
    for piece in _words():
        await say(piece)
    await say(_chunk(finish="stop"))
    await say(b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n")
    await say(b"data: [DONE]\n\n")


async def _torn(say: Write) -> None:
    """Good, but cut anywhere."""
    whole = b"".join([*_words("čtyřicet dva"), _chunk(finish="stop"), b"data: [DONE]\n\n"])
    for i in range(0, len(whole), 7):
        await say(whole[i : i + 7])


async def _slow(say: Write) -> None:
    for piece in _words():
        await say(piece)
        await asyncio.sleep(0.05)
    await say(_chunk(finish="stop"))


async def _tools(say: Write) -> None:
    for i, part in enumerate(['{"a": 4', "0, ", '"b": 2}']):
        named = {"name": "add"} if not i else {}
        await say(_chunk(tool_calls=[{"index": 0, "id": "c", "function": {"arguments": part, **named}}]))
    await say(_chunk(finish="tool_calls"))
    await say(b"data: [DONE]\n\n")


async def _bad_args(say: Write) -> None:
    await say(_chunk(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": '{"a": 4'}}]))
    await say(_chunk(finish="tool_calls") + b"data: [DONE]\n\n")


async def _stalls(say: Write) -> None:
    await asyncio.sleep(600)


async def _stalls_within(say: Write) -> None:
    await say(_chunk("The answer"))
    await asyncio.sleep(600)


async def _only_keeps_open(say: Write) -> None:
    while True:
        await say(b": still here\n\n")
        await asyncio.sleep(0.05)


async def _drops_within(say: Write) -> None:
    await say(_chunk("The answer"))
    raise ConnectionError


async def _ends_within(say: Write) -> None:
    await say(_chunk("The answer"))


async def _nonsense(say: Write) -> None:
    await say(b"data: {this is not JSON\n\n")


async def _wrong_shape(say: Write) -> None:
    await say(b'data: {"choices": "forty-two"}\n\ndata: [DONE]\n\n')


async def _no_choice(say: Write) -> None:
    await say(b"data: [DONE]\n\n")


async def _fails_within(say: Write) -> None:
    await say(_chunk("The") + b'data: {"error": {"message": "the model fell over"}}\n\n')


async def _endless(say: Write) -> None:
    while True:
        await say(b"x" * (1 << 20))


STREAMS: dict[str, Callable[[Write], Awaitable[None]]] = {
    "good": _good,
    "torn": _torn,
    "slow": _slow,
    "tools": _tools,
    "stalls within": _stalls_within,
    "only keeps open": _only_keeps_open,
    "drops within": _drops_within,
    "ends within": _ends_within,
    "nonsense": _nonsense,
    "wrong shape": _wrong_shape,
    "no choice": _no_choice,
    "fails within": _fails_within,
    "bad arguments": _bad_args,
    "endless": _endless,
    "stalls": _stalls,
}
PLAIN = {
    "choices": [{"index": 0, "message": {"content": TEXT}, "finish_reason": "stop"}],
    "usage": USAGE,
    "model": "m-1",
}
WHOLE: dict[str, tuple[int, str, bytes]] = {  # answers that are not streamed: status, more headers, body
    "plain": (200, "", json.dumps(PLAIN).encode()),
    "not JSON": (200, "", b"<html>hello</html>"),
    "busy": (429, "retry-after: 0.2\r\n", b'{"error": {"message": "slow down"}}'),
    "broken": (500, "", b"oops"),
    "no key": (401, "", b'{"error": {"message": "who are you?"}}'),
    "elsewhere": (302, "location: http://127.0.0.1:1/\r\n", b""),
    "not HTTP": (0, "", b"hello, is it me you are looking for\r\n\r\n"),
    "drops": (-1, "", b""),
}
GOOD = ("good", "torn", "slow", "plain")
BAD = {  # how it behaves, and the fault that is
    "stalls": "endpoint stalled",
    "stalls within": "endpoint stalled",
    "only keeps open": "endpoint stalled",
    "drops": "endpoint dropped",
    "drops within": "endpoint dropped",
    "ends within": "endpoint dropped",
    "not HTTP": "endpoint dropped",
    "nonsense": "endpoint nonsense",
    "wrong shape": "endpoint nonsense",
    "no choice": "endpoint nonsense",
    "not JSON": "endpoint nonsense",
    "bad arguments": "endpoint nonsense",
    "endless": "endpoint nonsense",
    "fails within": "endpoint failed",
    "broken": "endpoint failed",
    "busy": "endpoint busy",
    "no key": "endpoint refused",
    "elsewhere": "endpoint refused",
}


def patience(how: str) -> dict[str, float]:
    """The limits of time to ask it with: short only if it stalls, and else such that a busy machine does not reach them."""
    return (
        {"idle": 0.5, "seconds": 60.0} if BAD.get(how) == "endpoint stalled" else {"idle": 60.0, "seconds": 120.0}
    )


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(h.split(b":")[1]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length"))
        asked = json.loads(await reader.readexactly(length))
        await _answer(str(asked["model"]), writer)
    except (ConnectionError, asyncio.IncompleteReadError, StopIteration):
        writer.transport.abort()
    finally:
        writer.close()


async def _answer(model: str, writer: asyncio.StreamWriter) -> None:
    if model == "busy once":
        BUSY[model] = BUSY.get(model, 0) + 1
        model = "busy" if BUSY[model] % 2 else "good"
    if model in WHOLE:
        status, more, body = WHOLE[model]
        if status < 0:
            raise ConnectionError
        headers = (
            f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n"
        )
        writer.write(headers.encode() * bool(status) + body)
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    async def say(piece: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()

    await STREAMS[model](say)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)  # until whoever started it is gone


@contextmanager
def serving() -> Iterator[str]:
    """The address of an endpoint in a process of its own."""
    command = [sys.executable, "-m", "bench.endpoint_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(main())
