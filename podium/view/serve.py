"""The page, served on this machine alone.

Whoever asks must know the token of this server, name this machine as host, and come from the page itself:
another page in the same browser cannot read a trace. Nothing that is asked names a file.
"""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from podium.view.answers import Library, NoAnswer, json_of
from podium.view.page import served_page

__all__ = ["Server"]

LONGEST = 4_096  # bytes of a request's address


class Server(ThreadingHTTPServer):
    """A library behind a page. `port` 0 takes any that is free."""

    daemon_threads = True

    def __init__(self, library: Library, port: int = 0, title: str = "runs") -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.library = library
        self.title = title
        self.token = secrets.token_urlsafe(24)
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no fault; anything else is said in one line."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"podium: view: {type(error).__name__}: {error}", file=sys.stderr)

    def answer(self, name: str, words: dict[str, str]) -> bytes:
        """One answer at a time: they share what they compute. `changed` reads anew what has changed on disk."""
        with self.lock:
            if name == "changed":
                stamp = self.library.changed()
                if stamp != self.library.stamp:
                    self.library.read()
                return json_of({"stamp": stamp})
            return self.library.answer(name, words)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "podium"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        if len(self.path) > LONGEST:
            return self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
        parts = urlsplit(self.path)
        words = dict(parse_qsl(parts.query, keep_blank_values=True))
        if why := self._foreign(words.pop("token", "")):
            return self._refuse(HTTPStatus.FORBIDDEN, why)
        if parts.path == "/":
            page, policy = served_page(self.server.title)
            return self._send(page.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy})
        if not parts.path.startswith("/ask/"):
            return self._refuse(HTTPStatus.NOT_FOUND, "there is only the page")
        try:
            answer = self.server.answer(parts.path.removeprefix("/ask/"), words)
        except NoAnswer as error:
            return self._refuse(HTTPStatus.NOT_FOUND, str(error))
        kind = "application/octet-stream" if answer.startswith(b"PODIUM1") else "application/json"
        return self._send(answer, kind)

    def _foreign(self, token: str) -> str:
        """Why the one who asks is not our page; empty if it is."""
        if self.headers.get("Host") not in self.server.hosts:
            return "this server answers only as 127.0.0.1"
        origin = self.headers.get("Origin")
        if origin is not None and origin not in [f"http://{host}" for host in self.server.hosts]:
            return "another page may not ask"
        if self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            return "another page may not ask"
        given = self.headers.get("X-Podium-Token") or token
        return "" if hmac.compare_digest(given.encode(), self.server.token.encode()) else "wrong or missing token"

    def _send(self, body: bytes, kind: str, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        common = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Frame-Options": "DENY",
        }
        for name, value in (common | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(json_of({"error": why}), "application/json", status=status)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses hold the token."""


def serve(server: Server, ready: Callable[[str], None]) -> None:
    """Serves until interrupted."""
    ready(server.address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
