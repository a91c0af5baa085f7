"""The gateway over HTTP: its three APIs, its records, and clients that do not behave."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.audit.exactness import exactness  # noqa: E402
from podium.engine.chat import ChatEndpoint  # noqa: E402
from podium.engine.local import LocalEngine, engines_of  # noqa: E402
from podium.engine.models import policy_team  # noqa: E402
from podium.engine.protocol import Context, Request  # noqa: E402
from podium.gateway.dialects import Ask, BadRequest  # noqa: E402
from podium.gateway.runs import Caller  # noqa: E402
from podium.gateway.serve import BadGateway, is_loopback, serve, serving  # noqa: E402
from podium.gateway.service import EngineThread, Gateway, Limits  # noqa: E402
from podium.trace.columns import Trace  # noqa: E402
from podium.trace.files import load  # noqa: E402
from podium.trace.rules import check  # noqa: E402
from tests.engine.test_writing import plain_logp  # noqa: E402
from tests.verbs import verb  # noqa: E402

TEAM = policy_team("tiny", ["lead"])
PARAMETERS = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
CHAT_TOOL = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def opened(folder: Path, **more: Any) -> Gateway:
    torch.set_num_threads(1)
    return Gateway(folder, TEAM, lambda: engines_of(TEAM, "0", 8, 32, False), longest=60, **more)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    service = opened(tmp_path / "out", limits=Limits(body=1 << 16))
    yield service
    service.close()


@pytest.fixture
def url(gateway: Gateway) -> Iterator[str]:
    with serving(gateway) as address:
        yield address


def post(url: str, path: str, body: Any, status: int = 200, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(
        url + path, content=content, headers={"content-type": "application/json", **headers}, timeout=60
    )
    assert answer.status_code == status, answer.text
    return answer.json()


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def closed(gateway: Gateway, run: str) -> Trace:
    trace = load(gateway.end(run))
    assert check(trace) == [] or all(problem.level == "warning" for problem in check(trace))
    return trace


def answers(trace: Trace) -> list[int]:
    rows: list[int] = np.unique(trace.owner_k).tolist()
    return rows


# ---- the APIs


def test_a_conversation_of_chats_is_exact_in_the_record(gateway: Gateway, url: str) -> None:
    talk, usage = [user("hello")], []
    for words in ("and?", "more"):
        reply = post(url, "/run/r/agent/ann" + CHAT, {"model": "m", "messages": talk, "max_tokens": 7})
        usage.append(reply["usage"])
        talk += [reply["choices"][0]["message"], user(words)]
    called = post(
        url, "/run/r/agent/ann" + CHAT, {"messages": talk, "tools": [CHAT_TOOL], "tool_choice": "required"}
    )
    message = called["choices"][0]["message"]
    assert called["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["a"] in (1, 2)
    talk += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "3"}]
    post(url, "/run/r/agent/ann" + CHAT, {"messages": talk, "tools": [CHAT_TOOL], "max_tokens": 5})
    trace = closed(gateway, "r")
    judged = exactness(trace)
    rows = answers(trace)
    links = [json.loads(str(trace.extra_e["link"][row])) for row in rows]
    assert links == ["start", "clean", "fork", "clean"]  # with tools the template writes another beginning
    assert judged.count("clean") == 3
    assert [int(trace.tokens_in_e[row]) for row in rows[:2]] == [u["prompt_tokens"] for u in usage]
    assert [int(trace.tokens_out_e[row]) for row in rows[:2]] == [u["completion_tokens"] for u in usage]
    for row in rows[:2]:
        ids = []
        at = row
        while at >= 0:
            ids.insert(0, trace.token_k[trace.owner_k == at].tolist())
            at = int(trace.context_e[at])
        own = (trace.owner_k == row) & (trace.mask_k == 1)
        flat = tuple(token for part in ids for token in part)
        np.testing.assert_allclose(trace.logp_k[own], plain_logp(TEAM.model, flat, int(own.sum())), atol=1e-5)
    kinds = [trace.type_e[x] for x in range(trace.n_events)]
    assert {*map(str, trace.name_a.strings())} == {"user", "ann", "add"}
    assert len(kinds) == 4 + 3 + 1 + 1  # answers, what users said, the call and its result


def events(url: str, path: str, body: Any) -> list[tuple[str, Any]]:
    with httpx.stream("POST", url + path, json=body | {"stream": True}, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = "".join(answer.iter_text()).strip().split("\n\n")
    listed = []
    for block in blocks:
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"]
        listed.append((lines.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return listed


def test_streams_say_what_whole_answers_say(url: str) -> None:
    tool = {"tools": [CHAT_TOOL], "tool_choice": "required"}
    chunks = [
        data
        for _, data in events(
            url, CHAT, {"messages": [user("x")], "stream_options": {"include_usage": True}, **tool}
        )
    ]
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["usage"]["completion_tokens"] > 0
    pieces = [
        c["choices"][0]["delta"]["tool_calls"][0] for c in chunks[:-2] if c["choices"][0]["delta"].get("tool_calls")
    ]
    assert json.loads("".join(p["function"]["arguments"] for p in pieces))["a"] in (1, 2)
    assert chunks[-3]["choices"][0]["finish_reason"] == "tool_calls"

    listed = events(url, RESPONSES, {"input": "x", "max_output_tokens": 40})
    names = [name for name, _ in listed]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert [data["sequence_number"] for _, data in listed] == list(range(len(listed)))
    text = "".join(data["delta"] for name, data in listed if name == "response.output_text.delta")
    assert listed[-1][1]["response"]["output"][0]["content"][0]["text"] == text
    assert names[-1] in ("response.completed", "response.incomplete")

    listed = events(
        url,
        MESSAGES,
        {
            "messages": [user("x")],
            "max_tokens": 60,
            "tools": [{"name": "add", "input_schema": PARAMETERS}],
            "tool_choice": {"type": "any"},
        },
    )
    assert [name for name, _ in listed] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert json.loads(listed[2][1]["delta"]["partial_json"])["a"] in (1, 2)
    assert listed[4][1]["delta"]["stop_reason"] == "tool_use"


def test_responses_and_messages_read_calls_and_results(gateway: Gateway, url: str) -> None:
    tool = {"type": "function", "name": "add", "parameters": PARAMETERS}
    first = post(
        url,
        "/run/a" + RESPONSES,
        {
            "input": [user("x")],
            "instructions": "be short",
            "tools": [tool, {"type": "web_search"}],
            "tool_choice": "required",
        },
    )
    call = first["output"][0]
    assert call["type"] == "function_call"
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
    again = post(
        url,
        "/run/a" + RESPONSES,
        {"input": [user("x"), call, result], "instructions": "be short", "tools": [tool], "max_output_tokens": 4},
    )
    assert again["status"] == "incomplete"
    trace = closed(gateway, "a")
    assert [json.loads(str(trace.extra_e["link"][row])) for row in answers(trace)] == ["start", "clean"]
    assert "web_search" in str(trace.extra_e["not_followed"][answers(trace)[0]])

    tools = [{"name": "add", "input_schema": PARAMETERS}]
    body = {
        "max_tokens": 60,
        "system": [{"type": "text", "text": "be short", "cache_control": {"type": "ephemeral"}}],
        "tools": tools,
    }
    first = post(
        url, "/run/b" + MESSAGES, {**body, "messages": [user("x")], "tool_choice": {"type": "tool", "name": "add"}}
    )
    result = {
        "type": "tool_result",
        "tool_use_id": first["content"][0]["id"],
        "content": [{"type": "text", "text": "3"}],
    }
    talk = [user("x"), {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    count = post(url, "/run/b" + MESSAGES + "/count_tokens", {**body, "system": "be short", "messages": talk})
    second = post(url, "/run/b" + MESSAGES, {**body, "system": "be short", "messages": talk, "max_tokens": 3})
    assert count["input_tokens"] == second["usage"]["input_tokens"]
    trace = closed(gateway, "b")
    assert [json.loads(str(trace.extra_e["link"][row])) for row in answers(trace)] == ["start", "clean"]


def test_a_schema_binds_and_several_answers_differ(url: str) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes", "no"]}}}
    reply = post(url, CHAT, {"messages": [user("x")], "response_format": schema, "n": 8})
    words = {json.loads(choice["message"]["content"]) for choice in reply["choices"]}
    assert words == {"yes", "no"}
    assert (
        post(
            url,
            RESPONSES,
            {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"enum": [7]}}}},
        )["output"][0]["content"][0]["text"]
        == "7"
    )


# ---- who asks


def test_agents_are_told_apart_and_what_is_inferred_says_so(gateway: Gateway, url: str) -> None:
    plan = post(
        url, "/run/r" + CHAT, {"messages": [{"role": "system", "content": "plan"}, user("go")], "max_tokens": 30}
    )
    words = plan["choices"][0]["message"]["content"]
    post(url, "/run/r" + CHAT, {"messages": [{"role": "system", "content": "work"}, user(words)], "max_tokens": 3})
    post(url, CHAT, {"messages": [user("other")], "max_tokens": 3}, authorization="Bearer run/r/agent/ann")
    post(
        url,
        CHAT,
        {"messages": [user("other")], "max_tokens": 3},
        **{"x-podium-run": "r", "x-podium-agent": "bob", "x-podium-parent": "ann"},
    )
    trace = closed(gateway, "r")
    rows = answers(trace)
    assert [str(trace.name_a[trace.agent_e[row]]) for row in rows] == ["agent 1", "agent 2", "ann", "bob"]
    by_row = {row: trace.inferred_x[trace.dst_x == row] == 1 for row in rows}
    assert by_row[rows[1]].any()  # the plan's words stand in the work's prompt
    assert by_row[rows[2]].any()
    assert not by_row[rows[3]].any()  # its parent is stated


def test_a_run_ends_with_its_reward(gateway: Gateway, url: str) -> None:
    post(url, "/run/r" + CHAT, {"messages": [user("x")], "max_tokens": 3})
    told = post(url, "/run/r/end", {"rewards": {"team": 0.5}})
    assert load(Path(told["trace"])).reward_n["team"].tolist() == [0.5]
    post(url, "/run/r/end", {}, 404)
    post(url, "/run/q/end", {"rewards": {"team": "much"}}, 400)


# ---- clients that do not behave


def test_bad_requests_have_the_right_status_and_hurt_nobody(url: str) -> None:
    for body, status in (
        (b"nonsense", 400), (b"[1]", 400), (b"[" * 9999, 400), (b'{"messages": []}', 400), (b'{"messages": 7}', 400),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "xml"}}', 400),
        (json.dumps({"messages": [user("x" * 5000)]}).encode(), 400),
        (b" " * (1 << 17), 413),
    ):  # fmt: skip
        told = post(url, CHAT, body, status)
        assert told["error"]["message"]
    assert post(url, MESSAGES, b"nonsense", 400)["type"] == "error"
    assert httpx.get(url + CHAT).status_code == 405
    assert httpx.get(url + "/v2/x").status_code == 404
    assert httpx.post(url + CHAT, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    post(url, "/run/%2e%2e" + CHAT, {"messages": [user("x")]}, 400)
    post(url, CHAT, {"messages": [user("x")]}, 400, **{"x-podium-run": "../../x"})
    assert post(url, CHAT, {"messages": [user("x")], "max_tokens": 3})["usage"]["completion_tokens"] <= 3


def test_who_hangs_up_leaves_the_others_alone(gateway: Gateway, url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"messages": [user("x")], "max_tokens": 50}).encode()
    for sent in (body, body[:20], b""):
        with socket.create_connection((host, int(port))) as talk:
            talk.sendall(
                f"POST /run/r{CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
                + sent
            )
    for _ in range(3):
        assert post(url, "/run/r" + CHAT, {"messages": [user("y")], "max_tokens": 3})["choices"]
    closed(gateway, "r")


def test_a_flood_is_told_to_wait(tmp_path: Path) -> None:
    service = opened(tmp_path / "out", limits=Limits(waiting=2))

    async def all_at_once() -> list[Any]:
        ask = Ask("m", [user("x")], [], 40)
        return await asyncio.gather(
            *(service.answer(ask, Caller("r", f"a{i}")) for i in range(6)), return_exceptions=True
        )

    outcomes = asyncio.run(all_at_once())
    refused = [one for one in outcomes if isinstance(one, BadRequest)]
    assert [one.status for one in refused] == [429] * 4
    service.close()


def test_a_retry_is_not_done_twice(gateway: Gateway, url: str) -> None:
    body = {"messages": [user("x")], "max_tokens": 9}
    first = post(url, "/run/r" + CHAT, body, **{"x-stainless-retry-count": "0"})
    again = post(url, "/run/r" + CHAT, body, **{"x-stainless-retry-count": "1"})
    other = post(url, "/run/r" + CHAT, body, **{"x-stainless-retry-count": "0"})
    keyed = [post(url, "/run/r" + CHAT, body, **{"idempotency-key": "k"}) for _ in range(2)]
    assert first == again
    assert other["id"] != first["id"]
    assert keyed[0] == keyed[1]
    assert len(answers(closed(gateway, "r"))) == 3


def test_beyond_loopback_a_token_is_required(tmp_path: Path) -> None:
    assert is_loopback("::1")
    service = opened(tmp_path / "out")
    with pytest.raises(BadGateway, match="expected a token"):
        serve(service, "0.0.0.0", 0, "", print)
    service.close()


def test_the_token_is_asked_for_and_upstream_keys_are_in_no_error_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route
    from starlette.testclient import TestClient

    from podium.gateway.http import application

    heard: list[str] = []

    async def upstream(request: Any) -> Any:
        heard.append(request.headers["authorization"])
        body = await request.json()
        if body["messages"][-1]["content"] == "fail":
            return JSONResponse({"error": f"bad key {request.headers['authorization']}"}, 400)
        return JSONResponse(
            {
                "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2},
            }
        )

    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=[Route("/v1/chat/completions", upstream, methods=["POST"])]),
            port=0,
            log_level="error",
            lifespan="off",
        )
    )
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    monkeypatch.setenv("UPSTREAM_KEY", "sk-very-secret")
    endpoint = ChatEndpoint(
        f"http://127.0.0.1:{listener.getsockname()[1]}/v1", "big", key_from="UPSTREAM_KEY", stream=False
    )
    service = Gateway(tmp_path / "out", upstream=endpoint, secrets=("sk-very-secret", "tok"))
    client = TestClient(application(service, "tok"))
    assert client.post(CHAT, json={"messages": [user("x")]}).status_code == 401
    assert client.get("/v1/models").status_code == 401
    good = {"authorization": "Bearer tok/run/r/agent/ann"}
    told = client.post(CHAT, json={"messages": [user("x")]}, headers=good).json()
    assert (told["choices"][0]["message"]["content"], told["usage"]["total_tokens"]) == ("hi", 7)
    failed = client.post(CHAT, json={"messages": [user("fail")]}, headers=good)
    assert failed.status_code == 502
    assert heard == ["Bearer sk-very-secret"] * 2
    folder = service.end("r")
    recorded = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"very-secret" not in recorded + failed.content
    trace = load(folder)
    assert "false" in {str(words) for words in trace.extra_e["exact"].strings()}
    server.should_exit = True
    thread.join()
    listener.close()


# ---- the engine


def test_answers_that_join_and_leave_are_those_of_one_batch() -> None:
    policy = TEAM.policies["all"]
    base = Context(
        TEAM.model.ids("a long beginning that all of these have, longer than what a trunk takes at least")
    )
    parts = [Context(TEAM.model.ids(f" {k % 5}"), base if k % 2 else None) for k in range(12)]
    requests = [
        Request(part, (k,), longest=3 + 5 * (k % 4), stop=("e",) if k % 3 == 0 else ())
        for k, part in enumerate(parts)
    ]
    plain = [LocalEngine(policy).complete([one])[0] for one in requests]
    engine, numbers, done = LocalEngine(policy), dict[int, int](), dict[int, Any]()
    waiting = list(enumerate(requests))
    while waiting or len(done) < len(requests):
        some, waiting = waiting[:3], waiting[3:]
        if some:
            numbers |= zip(engine.submit([one for _, one in some]), (i for i, _ in some), strict=True)
        done |= {numbers[n]: answer for n, answer in engine.step().items()}
    for i, answer in enumerate(plain):
        assert done[i].ids == answer.ids
        assert done[i].read == answer.read
        np.testing.assert_allclose(done[i].logp, answer.logp, atol=1e-6)


def test_an_engine_that_remembers_too_much_begins_anew() -> None:
    made = []

    def make() -> Any:
        made.append(1)
        return engines_of(TEAM, "0", 8, 32, False)

    engines = EngineThread(make, tokens=60)

    async def ask() -> list[Any]:
        request = Request(Context(TEAM.model.ids("hello")), (1,), longest=9)
        return [await engines.complete("all", request) for _ in range(12)]

    assert len({answer.ids for answer in asyncio.run(ask())}) == 1
    assert len(made) > 1
    engines.close()


@pytest.mark.parametrize("arguments", [[], ["--model", "tiny", "--upstream", "http://x"], ["--model", "nowhere"], ["--model", "tiny", "--host", "0.0.0.0"], ["--model", "tiny", "--token-from", "NOT_SET"]])  # fmt: skip
def test_the_verb_refuses_what_makes_no_sense(arguments: list[str], tmp_path: Path) -> None:
    done = verb("gateway", "--out", tmp_path / "out", *arguments)
    assert done.returncode != 0
    assert done.stderr.count("\n") <= 8
    assert "Traceback" not in done.stderr
