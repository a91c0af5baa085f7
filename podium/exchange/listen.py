"""Takes spans over OTLP/HTTP and keeps them in files that importers read. Needs starlette.

What is acknowledged was written: a request is appended whole, as it came, before it is answered. A server that is
killed leaves at most a torn end, which the next one cuts off. A request that is sent again, because its answer was
lost, is known by its hash and kept once.
"""

from __future__ import annotations

import hmac
import os
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from podium.trace.findings import Unreadable

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

__all__ = ["BadRequest", "SpanStore", "application"]

JSON, PROTOBUF = "application/json", "application/x-protobuf"
MOST_BYTES = 64 << 20  # of a body, after decompression
MOST_WAITING = 256 << 20  # bytes of bodies that are being read; beyond, senders are told to wait
RETRY_S = 1
FILES = {JSON: "spans.jsonl", PROTOBUF: "spans.pb"}
ENCODINGS = {"": None, "identity": None, "gzip": 31, "deflate": 15}  # to the window bits of zlib


class BadRequest(Exception):
    """A request that is refused, with a status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class SpanStore:
    """Requests in a folder: those in JSON one a line, those in protobuf each behind its length in four bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, int] = {}
        self._known: set[bytes] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            there = [kind for kind, name in FILES.items() if (folder / name).exists()]
            for kind in there:
                whole = 0
                for body, end in _whole(kind, self._file(kind)):
                    self._known.add(_hash(body))
                    whole = end
                os.ftruncate(self._file(kind), whole)  # what was not written to its end was not acknowledged
        except OSError as error:
            raise Unreadable(str(folder), error.strerror or str(error)) from None

    def _file(self, kind: str) -> int:
        if kind not in self._files:
            self._files[kind] = _opened(self._folder / FILES[kind])
        return self._files[kind]

    def add(self, kind: str, body: bytes) -> bool:
        """Keeps a request; False if it is known. Raises BadRequest if it is none."""
        body = _checked(kind, body)
        if (name := _hash(body)) in self._known:
            return False
        data = memoryview(body + b"\n" if kind == JSON else len(body).to_bytes(4, "big") + body)
        while data:
            data = data[os.write(self._file(kind), data) :]
        self._known.add(name)
        return True

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)


def _hash(body: bytes) -> bytes:
    return sha256(body).digest()[:16]


def _whole(kind: str, file: int) -> Iterator[tuple[bytes, int]]:
    """The requests that a file holds whole, and where each ends."""
    with open(os.dup(file), "rb") as stream:
        stream.seek(0)
        end = 0
        if kind == JSON:
            for line in stream:
                if line.endswith(b"\n"):
                    end += len(line)
                    yield line[:-1], end
            return
        while len(length := stream.read(4)) == 4:
            size = int.from_bytes(length, "big")
            body = stream.read(size)
            if len(body) < size:
                return
            end += 4 + size
            yield body, end


def _checked(kind: str, body: bytes) -> bytes:
    """A body as it is kept, on one line if it is JSON. Raises BadRequest."""
    if kind == JSON:
        try:
            value = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(400, f"not JSON: {error}") from None
        if "resourceSpans" not in value and "resource_spans" not in value:
            raise BadRequest(400, "expected an object with resourceSpans")
        return body if b"\n" not in body else msgspec.json.encode(msgspec.json.decode(body))
    at = 0
    while at < len(body):  # the outermost fields: messages one after the other
        if body[at] != 0x0A:
            raise BadRequest(400, f"not a request of OTLP: field {body[at] >> 3} at byte {at}")
        size = shift = 0
        at += 1
        while at < len(body) and shift < 35:
            byte = body[at]
            size |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
        at += size
    if at != len(body) or not body:
        raise BadRequest(400, f"not a request of OTLP: {len(body)} bytes, but its fields end at byte {at}")
    return body


class _Listener:
    def __init__(self, store: SpanStore, token: str) -> None:
        self.store, self.token, self.waiting = store, token, 0

    async def traces(self, request: Request) -> Any:
        """One export of spans."""
        from starlette.responses import JSONResponse, Response

        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            self._admit(request, kind)
            body = await self._body(request)
            self.store.add(kind, body)
        except BadRequest as bad:
            headers = {"Retry-After": str(RETRY_S)} if bad.status in (429, 503) else None
            return JSONResponse({"code": bad.status, "message": bad.why}, bad.status, headers)
        except OSError as error:
            why = f"cannot write: {error.strerror or error}"
            return JSONResponse({"code": 503, "message": why}, 503, {"Retry-After": str(RETRY_S)})
        return Response(b"{}" if kind == JSON else b"", media_type=kind)

    def _admit(self, request: Request, kind: str) -> None:
        given = request.headers.get("authorization", "")
        if self.token and not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise BadRequest(401, "expected the header Authorization: Bearer TOKEN")
        if kind not in FILES:
            raise BadRequest(415, f"expected {' or '.join(FILES)}, not {kind or 'a body without a type'}")
        if request.headers.get("content-encoding", "").strip().lower() not in ENCODINGS:
            raise BadRequest(415, "expected gzip, deflate or no encoding")
        if self.waiting > MOST_WAITING:
            raise BadRequest(503, "too much is being received")

    async def _body(self, request: Request) -> bytes:
        """The body, uncompressed. No more of it is unpacked than is allowed."""
        bits = ENCODINGS[request.headers.get("content-encoding", "").strip().lower()]
        unpack = None if bits is None else zlib.decompressobj(bits)
        parts: list[bytes] = []
        size = 0
        try:
            async for chunk in request.stream():
                part = chunk if unpack is None else unpack.decompress(chunk, MOST_BYTES - size + 1)
                size, self.waiting = size + len(part), self.waiting + len(part)
                parts.append(part)
                if size > MOST_BYTES:
                    raise BadRequest(413, f"more than {MOST_BYTES >> 20} MiB, uncompressed")
        except zlib.error as error:
            raise BadRequest(400, f"damaged: {error}") from None
        finally:
            self.waiting -= size
        if unpack is not None and not unpack.eof:
            raise BadRequest(400, "damaged: it breaks off")
        return b"".join(parts)


def application(store: SpanStore, token: str = "") -> Starlette:
    """The server's paths."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    return Starlette(routes=[Route("/v1/traces", _Listener(store, token).traces, methods=["POST"])])
