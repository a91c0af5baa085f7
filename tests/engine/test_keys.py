"""Keys and passwords of servers: what a server echoes of them is in no fault, no reply and no result."""

from __future__ import annotations

import asyncio
import gzip
import json
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("httpx", reason="an endpoint needs httpx: pip install 'podium[serve]'")

from podium.engine.chat import ChatEndpoint
from podium.engine.client import EndpointFault
from podium.harness.mcp_http import Http
from podium.harness.types import Fault

KEY, PASSWORD = "sk-abcdefgh12345678", "open/sesame"
ASK = [{"role": "user", "content": "who am I?"}]


class Echo(BaseHTTPRequestHandler):
    """Says back what was sent as the key, in the way that the path names."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        echo = self.headers.get("authorization", "nobody")
        status, packed, answer = 200, False, b""
        if "refuse" in self.path:
            status, answer = 401, f"no such key: {echo}".encode()
        elif "mcp" in self.path:
            said = {"jsonrpc": "2.0", "id": 1, "result": {"content": [echo], echo: 1}}
            answer = json.dumps(said).encode()
        else:
            call = {"index": 0, "function": {"name": "tell", "arguments": json.dumps({"key": [echo]})}}
            message = {"content": f"you are {echo}", "tool_calls": [call]}
            answer = json.dumps({"choices": [{"message": message}], "model": echo}).encode()
        if packed := "packed" in self.path:
            answer = gzip.compress(answer)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        if packed:
            self.send_header("content-encoding", "gzip")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def endpoints(place: str, path: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[ChatEndpoint, str]]:
    """One with a key of the environment, one with a key given, one with a password in its address; what each sends."""
    monkeypatch.setenv("ECHO_KEY", KEY)
    basic = b64encode(f"ann:{PASSWORD}".encode()).decode()
    return [
        (ChatEndpoint(f"http://{place}/{path}", "m", key_from="ECHO_KEY", stream=False), KEY),
        (ChatEndpoint(f"http://{place}/{path}", "m", key=KEY, stream=False), KEY),
        (ChatEndpoint(f"http://ann:open%2Fsesame@{place}/{path}", "m", stream=False), basic),
    ]


def test_an_echoed_key_is_in_no_reply(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint, secret in endpoints(place, "v1", monkeypatch):
        reply = asyncio.run(endpoint.chat(ASK))
        assert "[key]" in reply.text
        assert "[key]" in str(reply.calls[0].args)
        assert secret not in repr(reply)


def test_an_echoed_key_is_in_no_fault(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint, secret in endpoints(place, "refuse", monkeypatch):
        with pytest.raises(EndpointFault, match=r"\[key\]") as caught:
            asyncio.run(endpoint.chat(ASK))
        assert secret not in str(caught.value)
        assert "sesame" not in f"{caught.value} {endpoint.url} {endpoint.client!r}"


def test_a_packed_answer_is_not_unpacked(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, _ = endpoints(place, "packed", monkeypatch)[0]
    with pytest.raises(EndpointFault, match="expected an answer as it is, which was asked for, got 'gzip'"):
        asyncio.run(endpoint.chat(ASK))


@pytest.mark.parametrize("path", ["mcp", "mcp/refuse", "mcp/packed"])
def test_an_mcp_server_echoes_its_key(place: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHO_KEY", KEY)

    async def asked(server: Http) -> Any:
        try:
            return await server.ask({"id": 1, "method": "tools/list"}, 5.0)
        except Fault as fault:
            return str(fault)
        finally:
            await server.close()

    for server in (Http(f"http://{place}/{path}", "ECHO_KEY"), Http(f"http://ann:open%2Fsesame@{place}/{path}")):
        said = str(asyncio.run(asked(server)))
        assert ("packed by" if "packed" in path else "[key]") in said
        assert KEY not in said
        assert "sesame" not in said
