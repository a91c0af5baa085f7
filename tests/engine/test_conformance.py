"""Every engine obeys the laws: our own model, a server, a table; and engines that do not are found out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from podium.engine.conformance import LAWS, faults
from podium.engine.fake import FakeEngine
from podium.engine.options import log_softmax
from podium.engine.protocol import BadEngine, Completion, Context, Request

IDS = (1, 2, 3, 4, 5)


class Letters:
    """A vocabulary of seven letters and an end."""

    name, size, end = "letters", 8, 7

    def text(self, ids: Sequence[int]) -> str:
        return "".join("abcdefg"[token] for token in ids)


class Server:
    """The table behind /v1/completions."""

    def __init__(self) -> None:
        table = FakeEngine(seed=3)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                choice = said(table, body)
                answer = json.dumps({"choices": [choice]}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


def said(table: FakeEngine, body: dict[str, Any]) -> dict[str, Any]:
    ids, logp, dice = list[int](), list[float](), np.random.default_rng(body["seed"])
    while len(ids) < body["max_tokens"] and table.end not in ids:
        odds = log_softmax(table.logits[[*body["prompt"], *ids][-1]])
        ids.append(int(odds.argmax() if not body["temperature"] else dice.choice(8, p=np.exp(odds))))
        logp.append(float(odds[ids[-1]]))
    text = Letters().text([token for token in ids if token != table.end])
    return {
        "text": text,
        "token_ids": ids,
        "prompt_token_ids": body["prompt"],
        "logprobs": {"token_logprobs": logp},
    }


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_a_table() -> None:
    assert faults(FakeEngine(), IDS, 7) == []


def test_a_server(server: Server) -> None:
    pytest.importorskip("httpx", reason="an endpoint needs httpx: pip install 'podium[serve]'")
    from podium.engine.endpoint import BadEndpoint, EndpointEngine

    engine = EndpointEngine(server.url, Letters())
    assert faults(engine, IDS, 7) == []
    with pytest.raises(BadEndpoint, match="free text"):
        engine.complete([Request(Context(IDS), (0,), ((1,), (2,)))])


@pytest.mark.parametrize("adapters", [False, True])
def test_our_own_model(adapters: bool) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from podium.engine.local import engines_of
    from podium.engine.models import policy_team

    team = policy_team("tiny", ["lead", "mate"], share="role", lora=2 * adapters)
    engines = engines_of(team, "3", rows=8, width=8, remote=False)
    ids = team.model.ids("abcde")
    for name, engine in engines.items():
        assert engine.version == f"{name}@3"
        assert faults(engine, ids, team.model.end) == []
    assert len({id(engine.reader) for engine in engines.values()}) == (1 if adapters else 2)  # type: ignore[attr-defined]


def test_ids_that_are_none_are_refused() -> None:
    with pytest.raises(BadEngine, match="expected ids from 0 to 7"):
        FakeEngine().complete([Request(Context((9,)), (0,))])


class Beside(FakeEngine):
    """What it says depends on how many ask."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        moved = [one._replace(address=(one.address[0] + len(requests), *one.address[1:])) for one in requests]
        return super().complete(moved)


class Forgetful(FakeEngine):
    """It reads only the last piece of a context."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return super().complete([one._replace(context=Context(one.context.ids[:1])) for one in requests])


class Lying(FakeEngine):
    """It says log-probabilities that are not those of what it says."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return [one._replace(logp=tuple(p - 0.1 for p in one.logp)) for one in super().complete(requests)]


class Nameless(FakeEngine):
    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return [one._replace(version="") for one in super().complete(requests)]


class Deaf(FakeEngine):
    """It draws where the likeliest is asked for."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return super().complete([one._replace(greedy=False) for one in requests])


class Greedy(FakeEngine):
    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return super().complete([one._replace(greedy=True) for one in requests])


@pytest.mark.parametrize(
    ("engine", "law"),
    [
        (Beside(), "an answer does not depend on what is asked beside it"),
        (Forgetful(), "a context is its ids, however it is put together"),
        (Lying(), "one of the options is said, by its probability"),
        (Nameless(), "every answer says the version of the policy"),
        (Deaf(), "the likeliest is said where that is asked for"),
        (Greedy(), "other dice give other answers"),
    ],
)
def test_an_engine_that_breaks_a_law_is_found_out(engine: FakeEngine, law: str) -> None:
    assert law in faults(engine, IDS, 7)
    assert law in LAWS
