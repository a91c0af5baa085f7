"""Spans over OTLP/HTTP, and recording from inside a program: what was acknowledged is there, once, whatever killed
the server."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from foreign import count, total

from bench.exchange_logs import SMALL
from bench.exchange_otlp import request, team
from podium.exchange import listen
from podium.exchange.listen import BadRequest, SpanStore
from podium.registry import find
from podium.trace import files
from podium.trace.columns import Trace

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@contextmanager
def listening(folder: Path, *words: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "podium.cli", "listen", "-o", str(folder), "--port", "0", "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], process
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


def post(url: str, body: bytes, kind: str = "application/json", **headers: str) -> int:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(f"{url}/v1/traces", body, {"Content-Type": kind} | names)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def runs(folder: Path) -> list[Trace]:
    return [read.trace for read in files.read(folder) if read.trace is not None]


def body(trace: int) -> bytes:
    return json.dumps(json.loads(request(team(trace, 0)))).encode()


def test_what_is_sent_is_there_as_the_file_would_be(tmp_path: Path) -> None:
    with listening(tmp_path / "spans") as (url, _):
        assert post(url, body(1)) == 200
        assert post(url, body(1)) == 200  # sent again, since its answer was lost
        assert post(url, gzip.compress(body(2)), Content_Encoding="gzip") == 200
        wrong = [
            post(url, b"{", "application/json"),
            post(url, b'{"a": 1}', "application/json"),
            post(url, b"\x12\x01a", "application/x-protobuf"),
            post(url, b"hello", "text/plain"),
            post(url, b"hello", Content_Encoding="gzip"),
            post(url, body(1), Content_Encoding="br"),
        ]
        assert wrong == [400, 400, 400, 415, 400, 415]
        with pytest.raises(urllib.error.HTTPError, match="405") as refused:
            urllib.request.urlopen(f"{url}/v1/traces", timeout=20)
        refused.value.close()
    (tmp_path / "file.jsonl").write_bytes(body(1) + b"\n" + body(2) + b"\n")
    assert runs(tmp_path / "spans") == [read.trace for read in files.read(tmp_path / "file.jsonl")]


def test_nothing_that_was_acknowledged_is_lost_or_there_twice(tmp_path: Path) -> None:
    """Killed three times in the middle of sending."""
    sent = 0
    for _ in range(3):
        with listening(tmp_path / "spans") as (url, process):
            for _ in range(12):
                assert post(url, body(sent)) == 200
                sent += 1
            os.kill(process.pid, signal.SIGKILL)
            process.wait(20)
        with (tmp_path / "spans" / "spans.jsonl").open("ab") as file:
            file.write(body(sent)[:90])  # what a killed server leaves of a request that it did not answer
    with listening(tmp_path / "spans") as (url, _):
        assert post(url, body(sent - 1)) == 200  # which it has
    lines = (tmp_path / "spans" / "spans.jsonl").read_bytes().splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(body(i)) for i in range(sent)]
    assert len(runs(tmp_path / "spans")) == sent


def test_protobuf_is_kept_behind_its_length(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_bytes(SMALL["inspect_ai"])
    traces = [read.trace for read in files.read(tmp_path / "log.json") if read.trace is not None]
    data = find("exporter", "otlp")(traces, ".pb")
    store = SpanStore(tmp_path / "spans")
    assert [store.add("application/x-protobuf", data) for _ in range(2)] == [True, False]
    store.close()
    (path := tmp_path / "spans" / "spans.pb").write_bytes(path.read_bytes() + b"\0\0\1\0half")
    SpanStore(tmp_path / "spans").close()
    assert path.read_bytes() == len(data).to_bytes(4, "big") + data
    assert runs(tmp_path / "spans") == traces
    store = SpanStore(tmp_path / "other")
    for broken in (data[:-1], b"", b"\x0a\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(BadRequest, match="not a request of OTLP"):
            store.add("application/x-protobuf", broken)
    store.close()


def test_beyond_loopback_a_token_is_needed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "podium.cli", "listen", "-o", str(tmp_path), "--host", "0.0.0.0"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "expected a token" in answer.stderr
    with listening(tmp_path, "--token-from", "SECRET", SECRET="s3") as (url, _):
        assert post(url, body(1)) == 401
        assert post(url, body(1), Authorization="Bearer s4") == 401
        assert post(url, body(1), Authorization="Bearer s3") == 200


def test_bodies_are_limited_after_they_are_unpacked(tmp_path: Path) -> None:
    with listening(tmp_path) as (url, process):
        assert post(url, gzip.compress(b" " * (listen.MOST_BYTES + 1)), Content_Encoding="gzip") == 413
        assert process.poll() is None


# from inside a program


def test_the_span_processor_writes_what_an_exporter_would(tmp_path: Path) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from podium.exchange.live import SpanFile

    provider = sdk.TracerProvider()
    provider.add_span_processor(SpanFile(tmp_path / "run.jsonl"))
    tracer = provider.get_tracer("test")
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "lead"}
    turn = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 2}
    with tracer.start_as_current_span("a", attributes=agent), tracer.start_as_current_span("b", attributes=turn):
        time.sleep(0.001)
    [trace] = runs_of(tmp_path / "run.jsonl")
    assert (count(trace, "message"), total(trace.tokens_in_e), total(trace.tokens_out_e)) == (2, 9, 2)
    provider.shutdown()


def runs_of(path: Path) -> list[Trace]:
    return [read.trace for read in files.read(path) if read.trace is not None]


def test_the_adapter_of_the_agents_sdk(tmp_path: Path) -> None:
    tracing = pytest.importorskip("agents.tracing")
    from podium.exchange.live import AgentsFile

    file = AgentsFile(tmp_path / "run.jsonl")
    tracing.set_trace_processors([file])
    try:
        with tracing.trace("work"), tracing.agent_span("lead"):
            with tracing.function_span("search", input="q", output="r"):
                pass
            with tracing.generation_span(model="m", usage={"input_tokens": 7, "output_tokens": 3}):
                pass
    finally:
        tracing.set_trace_processors([])
    [trace] = runs_of(tmp_path / "run.jsonl")
    assert (count(trace, "tool_call"), count(trace, "tool_result"), total(trace.tokens_in_e)) == (1, 1, 7)
    assert "lead" in trace.name_a.strings()


def test_the_adapter_of_langgraph(tmp_path: Path) -> None:
    graphs = pytest.importorskip("langgraph.graph")
    from typing_extensions import TypedDict

    from podium.exchange.live import langchain_file

    class State(TypedDict):
        text: str

    def worker(name: str) -> Any:
        return lambda state: {"text": state["text"] + name}

    graph: Any = graphs.StateGraph(State)
    for name in ("plan", "write"):
        graph.add_node(name, worker(name))
    graph.add_edge(graphs.START, "plan")
    graph.add_edge("plan", "write")
    answer = graph.compile().invoke({"text": ""}, {"callbacks": [langchain_file(tmp_path / "run.jsonl")]})
    assert answer == {"text": "planwrite"}
    [trace] = runs_of(tmp_path / "run.jsonl")
    assert {"plan", "write"} <= set(trace.name_a.strings())
    assert count(trace, "spawn") == count(trace, "return") == 2
