"""A gateway behind a port: in this process for a while, or until it is ended. Needs uvicorn and starlette
(`pip install 'podium[serve]'`)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

from podium.errors import WrongUse
from podium.exchange.listen import SpanStore
from podium.gateway.service import Gateway

__all__ = ["BadGateway", "is_loopback", "secret", "serve", "serving"]


class BadGateway(WrongUse, ValueError):
    """A gateway that cannot be opened as it was asked for."""


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secret(variable: str | None) -> str:
    """What a variable of the environment holds. Raises BadGateway where it is not set."""
    if variable is None:
        return ""
    if not (value := os.environ.get(variable, "")):
        raise BadGateway(f"expected a secret in the variable {variable}, which is not set")
    return value


def _server(about: Any, token: str) -> Any:
    """The server of a gateway, or of a store of spans."""
    try:
        import uvicorn

        from podium.exchange import listen
        from podium.gateway import http
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("podium"):
            raise
        raise BadGateway(
            f"a server needs the package {error.name}, which is not installed: pip install 'podium[serve]'"
        ) from None
    application: Any = http.application if isinstance(about, Gateway) else listen.application
    config = uvicorn.Config(
        application(about, token), log_level="warning", access_log=False, backlog=4096, lifespan="off"
    )
    return uvicorn.Server(config)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(4096)  # who comes before the server is up waits
    except OSError as error:
        listener.close()
        raise BadGateway(f"cannot listen at {host}:{port}: {error.strerror or error}") from None
    return listener


def serve(about: Gateway | SpanStore, host: str, port: int, token: str, ready: Any) -> None:
    """Serves a gateway, or takes spans, until it is ended by a signal; `ready` is given the address. Raises
    BadGateway."""
    if not token and not is_loopback(host):
        raise BadGateway(f"whoever reaches {host} could use this server: expected a token, --token-from VARIABLE")
    server = _server(about, token)
    with contextlib.closing(_bound(host, port)) as listener:
        ready(f"http://{host}:{listener.getsockname()[1]}")
        try:
            server.run(sockets=[listener])
        finally:
            about.close()


@contextlib.contextmanager
def serving(gateway: Gateway) -> Iterator[str]:
    """Serves in a thread, on loopback, meanwhile; gives the address."""
    server = _server(gateway, "")
    with contextlib.closing(_bound("127.0.0.1", 0)) as listener:
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True, name="podium-gateway"
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
