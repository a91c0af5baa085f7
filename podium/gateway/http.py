"""The gateway over HTTP: who asks, limits, statuses, streams. Needs starlette (`pip install 'podium[serve]'`)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from podium.gateway.dialects import DIALECTS, Answer, Ask, BadRequest, Dialect, decode
from podium.gateway.runs import Caller, error_words
from podium.gateway.service import Gateway

__all__ = ["application"]

ALIVE = 5.0  # seconds of silence on a stream, after which it says that it is alive
KEY = re.compile(r"(?:^|/)run/(?P<run>[^/]+)(?:/agent/(?P<agent>[^/]+))?$")
PREFIXES = ("", "/run/{run}", "/run/{run}/agent/{agent}", "/agent/{agent}")


def application(gateway: Gateway, token: str = "") -> Starlette:
    """The application of a gateway. With a `token` whoever asks must know it."""
    door = _Door(gateway, token)
    routes = []
    for prefix in PREFIXES:
        for path, dialect in DIALECTS.items():
            routes.append(Route(f"{prefix}/v1/{path}", door.asks(dialect), methods=["POST"]))
        routes.append(Route(f"{prefix}/v1/messages/count_tokens", door.count, methods=["POST"]))
        routes.append(Route(f"{prefix}/v1/models", door.models, methods=["GET"]))
        routes.append(Route(f"{prefix}/v1/models/{{name:path}}", door.models, methods=["GET"]))
    routes.append(Route("/run/{run}/end", door.end, methods=["POST"]))
    return Starlette(routes=routes)


class _Door:
    """What answers requests."""

    def __init__(self, gateway: Gateway, token: str) -> None:
        self.gateway, self.token = gateway, token

    def _caller(self, request: Request) -> Caller:
        """Who asks, by headers, path or key; the token is checked. Raises BadRequest."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        key = given or request.headers.get("x-api-key", "").strip()
        named = KEY.search(key)
        secret = key[: named.start()] if named else key
        if self.token and not hmac.compare_digest(secret.encode(), self.token.encode()):
            raise BadRequest(401, "expected the gateway's token as the key")
        own = named.groupdict() if named else {}

        def name(what: str) -> str:
            return request.headers.get(f"x-podium-{what}") or request.path_params.get(what) or own.get(what) or ""

        return Caller(name("run") or "main", name("agent"), request.headers.get("x-podium-parent", "")).checked()

    async def _body(self, request: Request) -> bytes:
        """The body of a request. Raises BadRequest."""
        if "json" not in request.headers.get("content-type", "application/json"):
            raise BadRequest(415, "expected content-type: application/json")
        most = self.gateway.limits.body
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            raise BadRequest(413, f"at most {most} bytes are taken, got {length}")
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise BadRequest(413, f"at most {most} bytes are taken")
        return bytes(body)

    def asks(self, dialect: Dialect) -> Any:
        """What answers the requests of a dialect."""

        async def answer(request: Request) -> Response:
            try:
                caller = self._caller(request)
                body = await self._body(request)
                ask = dialect.read(decode(body))
                work = asyncio.ensure_future(self.gateway.answer(ask, caller, *_again(request, body)))
                if ask.stream:
                    return await self._streamed(dialect, ask, work)
                return JSONResponse(dialect.whole(ask, await work))
            except BadRequest as bad:
                return _refused(dialect, bad)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # of ours: the program hears of it, and the others of nothing
                words = error_words(error, (*self.gateway.secrets, self.token))
                return _refused(dialect, BadRequest(500, f"{type(error).__name__}: {words}"))

        return answer

    async def _streamed(self, dialect: Dialect, ask: Ask, work: asyncio.Future[Answer]) -> Response:
        """A stream, once it is known that there is an answer to come, or the status that it is refused with."""
        done, _ = await asyncio.wait([work], timeout=ALIVE)
        if done:
            work.result()  # raises BadRequest before anything is sent

        async def events() -> AsyncIterator[bytes]:
            while not (await asyncio.wait([work], timeout=ALIVE))[0]:
                yield b": alive\n\n"
            try:
                answer = work.result()
            except BadRequest as bad:  # too late for a status
                yield b"event: error\ndata: " + JSONResponse(dialect.refusal(bad.status, bad.why)).body + b"\n\n"
                return
            for piece in dialect.stream(ask, answer):
                yield piece

        return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-cache"})

    async def count(self, request: Request) -> Response:
        dialect = DIALECTS["messages"]
        try:
            caller = self._caller(request)
            ask = dialect.read(decode(await self._body(request)))
            return JSONResponse({"input_tokens": self.gateway.count(ask, caller)})
        except BadRequest as bad:
            return _refused(dialect, bad)

    async def models(self, request: Request) -> Response:
        """All models that there are: whatever a program asks for, it is answered by the policy of its agent."""
        try:
            self._caller(request)
        except BadRequest as bad:
            return _refused(DIALECTS["chat/completions"], bad)
        team, upstream = self.gateway.team, self.gateway.upstream
        names = [p.name for p in team.policies.values()] if team else [upstream.model] if upstream else []
        listed = [{"id": n, "object": "model", "created": 0, "owned_by": "podium", "type": "model"} for n in names]
        if name := request.path_params.get("name"):
            return JSONResponse(listed[0] | {"id": name} if listed else {})
        return JSONResponse({"object": "list", "data": listed, "has_more": False})

    async def end(self, request: Request) -> Response:
        """Ends a run: {"rewards": {"team": 1.0}}."""
        dialect = DIALECTS["chat/completions"]
        try:
            caller = self._caller(request)
            rewards = decode(await self._body(request) or b"{}").get("rewards", {})
            if not isinstance(rewards, dict) or not all(_is_number(v) for v in rewards.values()):
                raise BadRequest(400, f"expected rewards to be numbers by name, got {str(rewards)[:60]}")
            folder = self.gateway.end(caller.run, {str(k): float(v) for k, v in rewards.items()})
            return JSONResponse({"run": caller.run, "trace": str(folder)})
        except BadRequest as bad:
            return _refused(dialect, bad)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _again(request: Request, body: bytes) -> tuple[str, bool]:
    """What a request is known by if it comes again, and whether this is again: its idempotency key, or its body, of
    clients that count their tries."""
    if key := request.headers.get("idempotency-key", ""):
        return key, True
    count = request.headers.get("x-stainless-retry-count", "")
    return (hashlib.blake2b(body).hexdigest() if count else ""), count not in ("", "0")


def _refused(dialect: Dialect, bad: BadRequest) -> Response:
    headers = {} if bad.after is None else {"retry-after": f"{bad.after:g}"}
    return JSONResponse(dialect.refusal(bad.status, bad.why), bad.status, headers)
