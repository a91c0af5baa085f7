"""A gateway behind a port: in this process for a while, or until it is ended. Needs uvicorn and starlette
(`pip install 'podium[serve]'`)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Iterator
from typing import Any

from podium.errors import WrongUse
from podium.gateway.service import Gateway

__all__ = ["BadGateway", "bound", "is_loopback", "serve", "serving"]


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


def _server(gateway: Gateway, token: str) -> Any:
    try:
        import uvicorn

        from podium.gateway.http import application
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("podium"):
            raise
        raise BadGateway(
            f"the gateway needs the package {error.name}, which is not installed: pip install 'podium[serve]'"
        ) from None
    config = uvicorn.Config(
        application(gateway, token), log_level="warning", access_log=False, backlog=4096, lifespan="off"
    )
    return uvicorn.Server(config)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
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


def serve(gateway: Gateway, host: str, port: int, token: str, ready: Any) -> None:
    """Serves until it is ended by a signal; `ready` is given the address. Raises BadGateway."""
    if not token and not is_loopback(host):
        raise BadGateway(f"whoever reaches {host} could use this gateway: expected a token, --token-from VARIABLE")
    server = _server(gateway, token)
    with contextlib.closing(bound(host, port)) as listener:
        ready(f"http://{host}:{listener.getsockname()[1]}")
        try:
            server.run(sockets=[listener])
        finally:
            gateway.close()


@contextlib.contextmanager
def serving(gateway: Gateway) -> Iterator[str]:
    """Serves in a thread, on loopback, meanwhile; gives the address."""
    server = _server(gateway, "")
    with contextlib.closing(bound("127.0.0.1", 0)) as listener:
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True, name="podium-gateway"
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
