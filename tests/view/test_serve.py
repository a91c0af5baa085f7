"""The server answers the page and nobody else."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import pytest

from podium.trace.columns import Trace
from podium.view.answers import Library
from podium.view.serve import Server


@pytest.fixture
def server(run: Trace) -> Iterator[Server]:
    server = Server(Library((), [("one", run)]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def get(server: Server, path: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        line.putrequest("GET", path, skip_host="Host" in headers)
        for name, value in headers.items():
            line.putheader(name.replace("_", "-"), value)
        line.endheaders()
        reply = line.getresponse()
        return reply.status, reply.read(), reply.headers
    finally:
        line.close()


def test_the_address_opens_the_page(server: Server) -> None:
    parts = urlsplit(server.address)
    assert parts.hostname == "127.0.0.1"
    status, body, headers = get(server, f"/?{parts.query}")
    assert status == 200
    assert b"<title>" in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"


def test_answers_are_for_who_knows_the_token(server: Server) -> None:
    status, body, _ = get(server, "/ask/index", X_Podium_Token=server.token)
    assert status == 200
    assert msgspec.json.decode(body)["runs"][0]["run"] == 0
    for wrong in ({}, {"X_Podium_Token": "wrong"}, {"X_Podium_Token": ""}):
        status, body, _ = get(server, "/ask/index", **wrong)
        assert (status, msgspec.json.decode(body)) == (403, {"error": "wrong or missing token"})
    assert get(server, "/")[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "null"},
    ],
)
def test_another_page_is_refused_even_with_the_token(server: Server, headers: dict[str, str]) -> None:
    status, body, _ = get(server, "/ask/index", X_Podium_Token=server.token, **headers)
    assert status == 403
    assert b"runs" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/ask/../../etc/passwd",
        "/ask/%2e%2e/x",
        "/etc/passwd",
        "/ask/run?run=../x",
        "/ask/nothing",
    ],
)
def test_nothing_that_is_asked_names_a_file(server: Server, path: str) -> None:
    status, body, _ = get(server, path, X_Podium_Token=server.token)
    assert status == 404
    assert "error" in msgspec.json.decode(body)
    assert b"root:" not in body


def test_an_endless_address_is_refused(server: Server) -> None:
    assert get(server, "/ask/run?run=" + "1" * 5000, X_Podium_Token=server.token)[0] == 414


def test_the_page_asks_whether_something_changed(server: Server) -> None:
    status, body, _ = get(server, "/ask/changed", X_Podium_Token=server.token)
    assert status == 200
    assert "stamp" in msgspec.json.decode(body)
