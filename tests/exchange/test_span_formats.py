"""OpenTelemetry in all its forms, LangSmith, LangGraph and the OpenAI Agents SDK: real files against plain counts,
and small ones of ours."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign import (
    LOGS,
    agent,
    count,
    edges,
    errors,
    faults,
    here,
    imported,
    obeys_the_laws,
    real,
    rows,
    run_of,
    runs_of,
    text_of,
    total,
)

from podium.exchange.reading import looks_like
from podium.registry import facts, names
from podium.trace.columns import Trace

# real files


def plain_otlp(text: str) -> Iterator[dict[str, Any]]:
    for resource in json.loads(text)["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield span | {"a": {p["key"]: next(iter(p["value"].values()), None) for p in span["attributes"]}}


@here
def test_the_real_otlp_file_has_what_a_plain_count_finds() -> None:
    path = LOGS / "frameworks" / "google_adk_2.13.0_otlp.json"
    spans = list(plain_otlp(text_of(path)))
    kinds = Counter(span["a"]["gen_ai.operation.name"] for span in spans)
    trace, findings = imported(path)
    assert findings == []
    assert count(trace, "spawn") == count(trace, "return") == kinds["invoke_agent"] - 1
    assert count(trace, "tool_call") == count(trace, "tool_result") == kinds["execute_tool"] == 2
    assert int((~np.isnan(trace.tokens_out_e)).sum()) == kinds["generate_content"] == 5
    assert total(trace.tokens_in_e) == sum(int(s["a"].get("gen_ai.usage.input_tokens", 0)) for s in spans)
    assert total(trace.tokens_out_e) == sum(int(s["a"].get("gen_ai.usage.output_tokens", 0)) for s in spans)
    born = {trace.name_a[int(trace.to_e[row])]: trace.t_e[row] for row in rows(trace, "spawn")}
    assert set(born) == {"fanout", "researcher_a", "researcher_b", "writer"}
    obeys_the_laws(trace)


@here
def test_otlp_in_protobuf_is_the_same_run_as_in_json() -> None:
    both = [imported(LOGS / "frameworks" / f"google_adk_2.13.0_otlp.{kind}")[0] for kind in ("json", "pb")]
    assert both[0] == both[1]


@pytest.mark.parametrize("path", real("otel/*.json"))
def test_a_sample_without_a_run_is_none_of_ours(path: Path) -> None:
    start = path.read_bytes()[: 1 << 16]
    assert all(facts("importer", name)["detect"](start, path.name) == 0 for name in names("importer"))
    assert "it looks like JSON with the fields" in looks_like(start)


def nested(span: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield span
    for child in span["child_spans"]:
        yield from nested(child)


@pytest.mark.parametrize("path", real("trail/swe_bench/*.json.xz"))
def test_a_real_trace_of_trail_has_what_a_plain_count_finds(path: Path) -> None:
    every = [span for root in json.loads(text_of(path))["spans"] for span in nested(root)]
    spans = list({span["span_id"]: span for span in every}.values())  # one stands twice
    kinds = Counter(span["span_attributes"].get("openinference.span.kind") for span in spans)
    turns = [s["span_attributes"] for s in spans if s["span_attributes"].get("openinference.span.kind") == "LLM"]
    trace, findings = imported(path)
    assert errors(findings) == []
    assert count(trace, "tool_call") == count(trace, "tool_result") == kinds["TOOL"]
    assert count(trace, "message") == kinds["LLM"] + 1  # and the task
    assert int((~np.isnan(trace.tokens_out_e)).sum()) == sum("llm.token_count.completion" in a for a in turns)
    assert total(trace.tokens_in_e) == sum(int(a.get("llm.token_count.prompt", 0)) for a in turns)
    assert total(trace.tokens_out_e) == sum(int(a.get("llm.token_count.completion", 0)) for a in turns)
    obeys_the_laws(trace)


@here
def test_the_real_trace_of_monocle_has_what_a_plain_count_finds() -> None:
    path = LOGS / "deerflow" / "monocle_otel_web_research.json"
    spans = json.loads(text_of(path))
    kinds = Counter(span["attributes"]["span.type"] for span in spans)
    figures = [e["attributes"] for span in spans for e in span["events"] if e["name"] == "metadata"]
    trace, findings = imported(path)
    assert findings == []
    assert count(trace, "tool_call") == count(trace, "tool_result") == kinds["agentic.tool.invocation"] == 6
    assert int((~np.isnan(trace.tokens_in_e)).sum()) == kinds["inference.framework"] == 4
    assert total(trace.tokens_in_e) == sum(f.get("prompt_tokens", 0) for f in figures)
    assert total(trace.tokens_out_e) == sum(f.get("completion_tokens", 0) for f in figures)
    stated = sum("inference.decision.span.id" in span["attributes"] for span in spans)
    recorded = [x for x in range(trace.n_edges) if trace.inferred_x[x] != 1]
    calls = set(rows(trace, "tool_call"))
    turns = set(rows(trace, "message"))
    assert (
        sum(int(trace.src_x[x]) in turns and int(trace.dst_x[x]) in calls and trace.type_x[x] for x in recorded)
        >= stated
    )
    obeys_the_laws(trace)


@here
def test_the_real_langsmith_runs_have_what_a_plain_count_finds() -> None:
    path = LOGS / "frameworks" / "langgraph_1.2.20_langsmith_runs.jsonl"
    items = [json.loads(line) for line in text_of(path).splitlines()]
    kinds = Counter(item["run_type"] for item in items)
    workers = {i["extra"]["metadata"].get("langgraph_checkpoint_ns") for i in items} - {None}
    trace, findings = imported(path)
    assert findings == []
    assert count(trace, "spawn") == count(trace, "return") == len(workers) == 5
    assert count(trace, "tool_call") == kinds["tool"] == 3
    assert total(trace.tokens_in_e) == 50 * kinds["llm"]
    assert total(trace.tokens_out_e) == 10 * kinds["llm"]
    [decision], [gathers] = rows(trace, "orchestrator_decision"), rows(trace, "aggregate")
    assert (agent(trace, decision), agent(trace, gathers)) == ("supervisor", "writer")
    assert len([1 for _, dst in edges(trace, "aggregate") if dst == gathers]) == 3
    assert trace.task_id_n[0] == "demo"
    obeys_the_laws(trace)


@here
def test_the_real_langgraph_stream_has_what_a_plain_count_finds() -> None:
    path = LOGS / "frameworks" / "langgraph_1.2.20_stream_tasks_updates_debug.json"
    tasks = {c["chunk"]["payload"]["id"] for c in json.loads(text_of(path)) if c["mode"] == "debug"}
    trace, findings = imported(path)
    assert findings == []
    assert count(trace, "spawn") == count(trace, "return") == len(tasks) == 5
    took = [
        trace.end_e[row] - trace.t_e[row]
        for row in rows(trace, "return")
        if "researcher" in (agent(trace, row) or "")
    ]
    assert len(took) == 3
    assert min(took) > 0.1
    obeys_the_laws(trace)


@here
def test_the_real_trace_of_the_agents_sdk_has_what_a_plain_count_finds() -> None:
    path = LOGS / "frameworks" / "openai_agents_sdk_0.24.0.trace.jsonl"
    spans = [json.loads(line) for line in text_of(path).splitlines()][1:]
    kinds = Counter(span["span_data"]["type"] for span in spans)
    used = [s["span_data"]["usage"] for s in spans if s["span_data"]["type"] == "generation"]
    trace, findings = imported(path)
    assert findings == []
    assert count(trace, "tool_call") == count(trace, "tool_result") == kinds["function"] == 4
    assert count(trace, "spawn") == count(trace, "return") == 2
    assert total(trace.tokens_in_e) == sum(u["input_tokens"] for u in used)
    assert total(trace.tokens_out_e) == sum(u["output_tokens"] for u in used)
    [handoff] = [row for row in rows(trace, "message") if trace.name_a[int(trace.to_e[row])] == "writer"]
    [written] = [row for row in range(trace.n_events) if agent(trace, row) == "writer"]
    assert (handoff, written) in edges(trace, "message")
    assert count(trace, "safety_event") == 0  # the guardrail let it pass
    obeys_the_laws(trace)


# small traces of our own


def attribute(key: str, value: Any) -> dict[str, Any]:
    kind = {str: "stringValue", bool: "boolValue", float: "doubleValue", int: "intValue"}[type(value)]
    return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}


def span(
    id: int, parent: int, start: float, end: float | None, name: str = "", trace: int = 1, **more: Any
) -> dict[str, Any]:
    """A span of OTLP; attributes are given with _ for . and a leading gen_ai left out."""
    attributes = [attribute(key, value) for key, value in more.pop("a", {}).items()]
    times = {"startTimeUnixNano": str(int(start * 1e9))} | (
        {"endTimeUnixNano": str(int(end * 1e9))} if end is not None else {}
    )
    ids = {"traceId": f"{trace:032x}", "spanId": f"{id:016x}"} | (
        {"parentSpanId": f"{parent:016x}"} if parent else {}
    )
    return ids | times | {"name": name, "attributes": attributes} | more


def otlp(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def works(agent: str) -> dict[str, str]:
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}


def turn(given: int = 10, out: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": given,
        "gen_ai.usage.output_tokens": out,
    } | more


def calls(tool: str, **more: Any) -> dict[str, Any]:
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool} | more


def team(kept_open: bool = False) -> list[dict[str, Any]]:
    """A lead that asks two agents at once and puts together what they return."""
    return [
        span(1, 0, 1.0, 9.0, a=works("lead")),
        span(2, 1, 1.0, 6.0 if kept_open else 2.0, a=turn()),
        span(3, 1, 2.0, 5.0, a=calls("ask_ann")),
        span(4, 1, 2.1, 6.0, a=calls("ask_ann")),
        span(5, 3, 2.2, 4.9, a=works("ann")),
        span(6, 4, 2.2, 5.9, a=works("ann")),
        span(7, 5, 2.3, 4.0, a=turn(20, 4)),
        span(8, 6, 2.3, 5.0, a=turn(20, 4)),
        span(9, 1, 6.0, 8.0, a=turn(30, 6)),
    ]


@pytest.mark.parametrize("kept_open", [False, True])
def test_agents_that_are_tools_are_calls_and_spawns(kept_open: bool) -> None:
    trace, findings = run_of("otlp", otlp(*team(kept_open)))
    assert findings == []
    assert trace.name_a.strings() == ["person", "lead", "ann", "ann#2"]
    assert [
        count(trace, kind) for kind in ("orchestrator_decision", "tool_call", "spawn", "return", "aggregate")
    ] == [1, 2, 2, 2, 1]
    [decision], [gathers] = rows(trace, "orchestrator_decision"), rows(trace, "aggregate")
    assert {(decision, row) for row in rows(trace, "spawn")} <= edges(trace, "spawn")
    assert {(row, gathers) for row in rows(trace, "return")} == edges(trace, "aggregate")
    assert trace.end_e[decision] - trace.t_e[decision] == pytest.approx(1.0)
    obeys_the_laws(trace)


def test_edges_that_the_log_does_not_state_name_their_rule() -> None:
    trace, _ = run_of("otlp", otlp(*team()))
    decision = rows(trace, "orchestrator_decision")[0]
    for x in range(trace.n_edges):
        if trace.src_x[x] == decision and trace.type_x[x]:
            assert (int(trace.inferred_x[x]), trace.rule_x[x]) == (1, "latest-done")
    first = [x for x in range(trace.n_edges) if trace.src_x[x] in rows(trace, "spawn") and trace.type_x[x]]
    assert first
    assert all(trace.inferred_x[x] != 1 for x in first)


HANDOFFS = [
    {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.interaction.type": "handoff",
        "interaction.to": "writer",
    },
    {"gen_ai.operation.name": "execute_tool", "interaction.type": "handoff", "interaction.target": "writer"},
    calls(
        "transfer_to_writer", **{"gen_ai.transfer.target.name": "writer", "gen_ai.transfer.mode": "pass_control"}
    ),
    calls("transfer_to_writer", **{"gen_ai.agent.handoff.target.name": "writer"}),
    {"gen_ai.operation.name": "handoff"},
]


@pytest.mark.parametrize("attributes", HANDOFFS)
def test_a_handoff_passes_control(attributes: dict[str, Any]) -> None:
    spans = [
        span(1, 0, 1.0, 4.0, a=works("triage")),
        span(2, 1, 1.0, 2.0, a=turn()),
        span(3, 1, 2.0, 2.1, name="handoff from triage to writer", a=attributes),
        span(4, 0, 4.0, 8.0, a=works("writer")),
        span(5, 4, 5.0, 7.0, a=turn()),
    ]
    trace, findings = run_of("otlp", otlp(*spans))
    assert findings == []
    assert count(trace, "tool_call", "spawn", "return") == 0
    [handed] = [row for row in rows(trace, "message") if trace.name_a[int(trace.to_e[row])] == "writer"]
    [wrote] = [row for row in range(trace.n_events) if agent(trace, row) == "writer"]
    assert (agent(trace, handed), (handed, wrote) in edges(trace, "message")) == ("triage", True)
    obeys_the_laws(trace)


def test_tokens_from_a_cache_are_apart_and_sums_of_agents_are_not_added() -> None:
    cached = turn(
        100, 7, **{"gen_ai.usage.cache_read.input_tokens": 80, "gen_ai.usage.cache_creation.input_tokens": 15}
    )
    spans = [
        span(1, 0, 1.0, 4.0, a=works("main") | {"gen_ai.usage.input_tokens": 100}),
        span(2, 1, 1.0, 2.0, a=cached),
    ]
    trace, _ = run_of("otlp", otlp(*spans, span(3, 1, 2.0, 3.0, a={"gen_ai.operation.name": "chat"})))
    columns = trace.tokens_in_e, trace.cache_read_e, trace.cache_write_e, trace.tokens_out_e
    assert [total(column) for column in columns] == [5, 80, 15, 7]
    assert np.isnan(trace.tokens_in_e[trace.n_events - 1])  # absent, not zero


def test_the_conventions_of_openinference() -> None:
    kinds = {
        "AGENT": {"agent.name": "solver"},
        "LLM": {"llm.token_count.prompt": 9, "llm.token_count.completion": 3},
    }
    kinds |= {"TOOL": {"tool.name": "search"}, "GUARDRAIL": {"guardrail.triggered": True}}
    spans = [
        span(i, 0 if i == 1 else 1, i, i + (9 if i == 1 else 1), a={"openinference.span.kind": kind} | more)
        for i, (kind, more) in enumerate(kinds.items(), 1)
    ]
    trace, findings = run_of("otlp", otlp(*spans))
    assert findings == []
    assert [count(trace, kind) for kind in ("message", "tool_call", "tool_result", "safety_event")] == [2, 1, 1, 1]
    assert (total(trace.tokens_in_e), trace.tool_e[rows(trace, "tool_call")[0]]) == (9, "search")


def test_traces_of_one_conversation_are_the_tasks_of_one_run() -> None:
    def one(trace: int, start: float) -> list[dict[str, Any]]:
        talk = {"gen_ai.conversation.id": "c7"}
        return [
            span(1, 0, start, start + 2, trace=trace, a=works("main") | talk),
            span(2, 1, start, start + 1, trace=trace, a=turn()),
        ]

    text = "\n".join(otlp(*one(trace, start)) for trace, start in ((2, 50.0), (1, 10.0))) + "\n"
    trace, _ = run_of("otlp", text)
    assert trace.trace_id_n[0] == "c7"
    assert trace.task_e.tolist() == [0, 0, 1, 1]
    assert [agent(trace, row) for row in range(4)] == ["person", "main"] * 2


def test_failures_links_and_open_spans() -> None:
    spans = [
        span(1, 0, 1.0, None, a=works("main")),
        span(2, 1, 1.0, 2.0, a=turn(), status={"code": 2}),
        span(3, 1, 2.0, 3.0, a=calls("search"), status={"code": "STATUS_CODE_ERROR"}),
        span(4, 1, 4.0, None, a=calls("search"), links=[{"spanId": f"{2:016x}"}]),
    ]
    trace, findings = run_of("otlp", otlp(*spans))
    assert [f.rule for f in findings] == ["open-call"]
    [first, second] = rows(trace, "tool_call")
    assert trace.valid_e[rows(trace, "tool_result")[0]] == 0
    assert trace.valid_e[rows(trace, "message")[1]] == 0
    assert np.isnan(trace.end_e[second])
    assert (rows(trace, "message")[1], second) in edges(trace, "causal")
    assert np.isfinite(trace.end_e[first])


def test_ids_in_base64_and_fields_in_snake_case_are_read() -> None:
    def naive(one: dict[str, Any]) -> dict[str, Any]:
        snake = {"traceId": "trace_id", "spanId": "span_id", "parentSpanId": "parent_span_id"}
        snake |= {"startTimeUnixNano": "start_time_unix_nano", "endTimeUnixNano": "end_time_unix_nano"}
        coded = {
            k: base64.b64encode(bytes.fromhex(v)).decode() if k in list(snake)[:3] else v for k, v in one.items()
        }
        return {snake.get(k, k): v for k, v in coded.items()}

    text = json.dumps({"resource_spans": [{"scope_spans": [{"spans": [naive(one) for one in team()]}]}]})
    trace, _ = run_of("otlp", text)
    expected, _ = run_of("otlp", otlp(*team()))
    assert trace.type_e.tolist() == expected.type_e.tolist()
    assert edges(trace, "aggregate") == edges(expected, "aggregate")


def test_a_span_with_a_field_of_another_type_does_not_lose_the_others() -> None:
    spans = team()
    spans[6]["attributes"].append({"key": "odd", "value": {"stringValue": 3}})
    spans[7]["name"] = 7
    trace, findings = run_of("otlp", otlp(*spans))
    assert errors(findings) == []
    assert [count(trace, "spawn"), count(trace, "tool_call")] == [2, 2]
    assert total(trace.tokens_in_e) == 10 + 20 + 20 + 30


def protobuf(request: dict[str, Any]) -> bytes:
    """A request of OTLP in protobuf, as far as these tests need it."""

    def field(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    def pair(p: dict[str, Any]) -> bytes:
        [(kind, value)] = p["value"].items()
        data = field(1, value.encode()) if kind == "stringValue" else varint(3 << 3) + varint(int(value))
        return field(1, p["key"].encode()) + field(2, data)

    spans = b""
    for one in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        data = field(1, bytes.fromhex(one["traceId"])) + field(2, bytes.fromhex(one["spanId"]))
        data += field(4, bytes.fromhex(one.get("parentSpanId", ""))) + field(5, one["name"].encode())
        data += varint(7 << 3 | 1) + struct.pack("<Q", int(one["startTimeUnixNano"]))
        data += varint(8 << 3 | 1) + struct.pack("<Q", int(one["endTimeUnixNano"]))
        spans += field(2, data + b"".join(field(9, pair(p)) for p in one["attributes"]))
    return field(1, field(2, spans))


def test_protobuf_alone_and_behind_lengths() -> None:
    data, expected = protobuf(json.loads(otlp(*team()))), run_of("otlp", otlp(*team()))[0]
    assert run_of("otlp", data)[0] == expected
    assert run_of("otlp", len(data).to_bytes(4, "big") + data)[0] == expected


def test_damaged_protobuf_is_named_and_does_not_crash() -> None:
    data = protobuf(json.loads(otlp(*team())))
    [(trace, findings)] = runs_of("otlp", data[:-40])
    assert trace is None
    assert "log0: not OTLP in protobuf from here on" in faults(findings)[0]
    whole = len(data).to_bytes(4, "big") + data
    trace, findings = run_of("otlp", whole + whole[:99])
    assert count(trace, "spawn") == 2
    assert "the file has" in faults(findings)[0]


def test_broken_json_is_named_by_its_line() -> None:
    [(trace, findings)] = runs_of("otlp", json.dumps(json.loads(otlp(*team())), indent=1)[:-200])
    assert trace is None
    assert "not JSON" in faults(findings)[0]
    lines = [otlp(*team()[:4]), '{"resourceSpans": [{]}', otlp(*team()[4:])]
    trace, findings = run_of("otlp", "\n".join(lines) + "\n")
    assert [fault.split(": not JSON")[0] for fault in faults(findings)] == ["log0:2"]
    assert count(trace, "spawn") == 2


def test_a_span_that_stands_twice_counts_once() -> None:
    twice = otlp(*team()) + "\n" + otlp(*team()) + "\n"
    assert run_of("otlp", twice)[0] == run_of("otlp", otlp(*team()))[0]
    other = team()
    other[6]["name"] = "another"
    other[6]["endTimeUnixNano"] = str(int(3.5e9))
    _, findings = run_of("otlp", otlp(*team()) + "\n" + otlp(*other) + "\n")
    assert "stands twice, not alike" in faults(findings)[0]


def test_spans_above_themselves_and_times_that_run_backwards() -> None:
    spans = [
        span(1, 2, 5.0, 1.0, a=works("a")),
        span(2, 1, 3.0, 9.0, a=works("b")),
        span(3, 2, 4.0, 2.0, a=calls("x")),
    ]
    trace, findings = run_of("otlp", otlp(*spans, span(4, 4, 4.0, 5.0, a=turn())))
    assert errors(findings) == []
    obeys_the_laws(trace)


def dumped(one: dict[str, Any]) -> dict[str, Any]:
    """A span as the SDK's to_json writes it."""
    a = {p["key"]: next(iter(p["value"].values())) for p in one["attributes"]}
    when = [f"1970-01-01T00:00:{int(one[f'{end}TimeUnixNano']) / 1e9:09.6f}Z" for end in ("start", "end")]
    context = {"trace_id": f"0x{one['traceId']}", "span_id": f"0x{one['spanId']}"}
    parent = f"0x{one['parentSpanId']}" if "parentSpanId" in one else None
    head = {"name": one["name"], "context": context, "parent_id": parent}
    return head | {"start_time": when[0], "end_time": when[1], "attributes": a, "events": [], "links": []}


@pytest.mark.parametrize("form", ["array", "lines", "one behind the other"])
def test_dumped_spans_are_the_same_run_in_whatever_form(form: str) -> None:
    items = [dumped(one) for one in team()]
    text = {
        "array": json.dumps(items),
        "lines": "".join(json.dumps(item) + "\n" for item in items),
        "one behind the other": "".join(json.dumps(item, indent=4) + "\n" for item in items),
    }[form]
    trace, findings = run_of("span_dump", text)
    expected = run_of("otlp", otlp(*team()))[0]
    assert findings == []
    assert (trace.type_e.tolist(), edges(trace, "spawn")) == (expected.type_e.tolist(), edges(expected, "spawn"))


def test_attributes_and_modes_of_another_type_are_not_read_as_what_they_are_not() -> None:
    items = [dumped(one) for one in team()]
    items[7]["attributes"]["gen_ai.operation.name"] = ["chat"]
    items[8]["attributes"] = {"span.type": {"a": 1}}
    trace, findings = run_of("span_dump", json.dumps(items))
    assert errors(findings) == []
    assert (count(trace, "spawn"), total(trace.tokens_in_e)) == (2, 10 + 20)
    _, findings = run_of("langgraph", json.dumps([*stream(True), {"mode": {}, "chunk": {}}]))
    assert "expected a chunk of a stream" in faults(findings)[0]


def test_a_dump_that_breaks_off_is_read_up_to_there() -> None:
    text = json.dumps([dumped(one) for one in team()], indent=1)
    trace, findings = run_of("span_dump", text[: len(text) * 2 // 3])
    assert count(trace, "spawn") >= 1
    assert "not JSON from here on" in faults(findings)[0]


def sdk(id: str, parent: str | None, start: float, end: float, **data: Any) -> dict[str, Any]:
    when = {
        "started_at": f"2026-01-01T00:00:{start:06.3f}+00:00",
        "ended_at": f"2026-01-01T00:00:{end:06.3f}+00:00",
    }
    return {
        "object": "trace.span",
        "id": id,
        "trace_id": "trace_1",
        "parent_id": parent,
        "span_data": data,
        "error": None,
    } | when


def agents_trace() -> list[dict[str, Any]]:
    return [
        {
            "object": "trace",
            "id": "trace_1",
            "workflow_name": "demo",
            "group_id": None,
            "metadata": {"task_id": "sum"},
        },
        sdk("m", "a", 1.0, 2.0, type="response", response_id="r", usage={"input_tokens": 9, "output_tokens": 2}),
        sdk("g", "a", 2.0, 2.1, type="guardrail", name="leak", triggered=True),
        sdk("f", "a", 2.2, 3.0, type="function", name="search", input="{}", output="x"),
        sdk("h", "a", 3.0, 3.1, type="handoff", from_agent="one", to_agent="two"),
        sdk("a", None, 1.0, 3.2, type="agent", name="one"),
        sdk("n", "b", 4.0, 5.0, type="generation", model="m", usage={"input_tokens": 5, "output_tokens": 1}),
        sdk("b", None, 4.0, 5.0, type="agent", name="two"),
    ]


@pytest.mark.parametrize("form", ["lines", "requests"])
def test_a_trace_of_the_agents_sdk(form: str) -> None:
    items = agents_trace()
    text = json.dumps({"data": items}) if form == "requests" else "".join(json.dumps(item) + "\n" for item in items)
    trace, findings = run_of("openai_agents", text)
    assert findings == []
    assert [count(trace, kind) for kind in ("tool_call", "tool_result", "safety_event", "spawn")] == [1, 1, 1, 0]
    assert (trace.trace_id_n[0], trace.task_id_n[0]) == ("trace_1", "sum")
    assert (total(trace.tokens_in_e), total(trace.tokens_out_e)) == (14, 3)
    [taken] = [row for row in range(trace.n_events) if agent(trace, row) == "two"]
    assert any(dst == taken for _, dst in edges(trace, "message"))
    obeys_the_laws(trace)


def test_what_is_no_span_in_a_trace_of_the_agents_sdk_is_named() -> None:
    items = [*agents_trace(), {"object": "trace.span", "id": "x"}, [3]]
    _, findings = run_of("openai_agents", "".join(json.dumps(item) + "\n" for item in items))
    assert [fault.partition(": ")[0] for fault in faults(findings)] == ["log0:9", "log0:10"]


def smith(
    id: str, parent: str | None, kind: str, name: str, start: float, end: float, **more: Any
) -> dict[str, Any]:
    when = {"start_time": f"2026-01-01T00:00:{start:06.3f}", "end_time": f"2026-01-01T00:00:{end:06.3f}"}
    head = {"id": id, "trace_id": "r", "parent_run_id": parent, "run_type": kind, "name": name, "dotted_order": id}
    return head | when | {"inputs": {}, "outputs": {}, "extra": {"metadata": more.pop("metadata", {})}} | more


def test_the_loop_of_one_agent_is_not_a_team() -> None:
    items = [
        smith("r", None, "chain", "LangGraph", 1, 9),
        smith("a", "r", "chain", "agent", 1, 3, metadata={"langgraph_node": "agent"}),
        smith(
            "m",
            "a",
            "llm",
            "ChatModel",
            1,
            3,
            prompt_tokens=9,
            completion_tokens=2,
            metadata={"ls_model_name": "m1"},
        ),
        smith("t", "r", "chain", "tools", 3, 5, metadata={"langgraph_node": "tools"}),
        smith("s", "t", "tool", "search", 3, 5, error="ValueError()"),
    ]
    trace, findings = run_of("langsmith", json.dumps({"runs": items}))
    assert findings == []
    assert (count(trace, "spawn"), count(trace, "tool_call")) == (0, 1)
    assert trace.name_a.strings() == ["person", "LangGraph"]
    assert (total(trace.tokens_in_e), trace.model_e[1]) == (9, "m1")
    assert trace.valid_e[rows(trace, "tool_result")[0]] == 0


def test_a_tool_that_returns_an_error_in_words_has_failed() -> None:
    output = {"gen_ai.tool.call.result": "Error: status 401"}
    spans = [
        span(1, 0, 1.0, 9.0, a=works("main")),
        span(2, 1, 1.0, 2.0, a=calls("search") | output),
        span(3, 1, 3.0, 4.0, a=calls("search") | {"gen_ai.tool.call.result": "Errors of measurement are small."}),
        span(4, 1, 5.0, 6.0, a=calls("search") | {"gen_ai.tool.call.result": "Error: " + "a long page " * 300}),
    ]
    trace, _ = run_of("otlp", otlp(*spans))
    results = rows(trace, "tool_result")
    assert trace.valid_e[results].tolist() == [0, -1, -1]
    assert len(set(trace.content_ref_e.codes[results].tolist()) - {-1}) == 3  # each has the hash of its own text
    assert trace.extra_e["inferred"].strings().count('"a short output that begins with an error"') == 1


def test_runs_nested_in_their_parent_are_read() -> None:
    inner = smith("m", None, "llm", "ChatModel", 1, 3, prompt_tokens=9, completion_tokens=2)
    trace, _ = run_of("langsmith", json.dumps(smith("r", None, "chain", "LangGraph", 1, 9, child_runs=[inner])))
    assert total(trace.tokens_in_e) == 9
    assert agent(trace, 1) == "LangGraph"


def stream(timed: bool) -> Iterator[Any]:
    for i, (id, name) in enumerate((("1", "plan"), ("2", "work"))):
        for j, more in enumerate(
            ({"input": {}, "triggers": ["x"]}, {"result": {}, "error": None, "interrupts": [{}] * i})
        ):
            chunk = {"id": id, "name": name} | more
            if timed:
                kind = ("task", "task_result")[j]
                yield [
                    "debug",
                    {"step": i, "timestamp": f"2026-01-01T00:00:{i * 10 + j:02}Z", "type": kind, "payload": chunk},
                ]
            else:
                yield [[], "tasks", chunk]


@pytest.mark.parametrize("timed", [True, False])
def test_a_stream_of_langgraph(timed: bool) -> None:
    trace, findings = run_of("langgraph", json.dumps(list(stream(timed))))
    assert errors(findings) == []
    assert [count(trace, kind) for kind in ("spawn", "return", "human_intervention")] == [2, 2, 1]
    assert bool(np.isnan(trace.t_e).all()) == (not timed)
    if timed:
        took = [float(trace.end_e[row] - trace.t_e[row]) for row in rows(trace, "return")]
        assert took[0] == 1.0


FORMS = {
    "otlp": lambda: otlp(*team()) + "\n",
    "span_dump": lambda: json.dumps([dumped(one) for one in team()], indent=1),
    "openai_agents": lambda: "".join(json.dumps(item) + "\n" for item in agents_trace()),
    "langgraph": lambda: json.dumps(list(stream(True)), indent=1),
    "langsmith": lambda: json.dumps(
        [smith("r", None, "chain", "G", 1, 9), smith("s", "r", "tool", "t", 2, 3)], indent=1
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_format_is_recognised_by_what_it_says(name: str) -> None:
    start = FORMS[name]().encode()
    sure = {one: facts("importer", one)["detect"](start, "x") for one in names("importer")}
    assert max(sure, key=sure.__getitem__) == name
    assert sum(value > 0 for value in sure.values()) == 1


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("seed", range(25))
def test_a_mutated_log_is_imported_as_far_as_it_goes(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(FORMS[name]().encode())
    for _ in range(int(rng.integers(1, 10))):
        at = int(rng.integers(len(data)))
        match int(rng.integers(3)):
            case 0:
                data[at] = int(rng.integers(256))
            case 1:
                del data[at : at + int(rng.integers(1, 200))]
            case _:
                data[at:at] = data[int(rng.integers(len(data))) :][: int(rng.integers(1, 200))]
    for trace, _ in runs_of(name, bytes(data)):
        if isinstance(trace, Trace):
            obeys_the_laws(trace)


@pytest.mark.parametrize("seed", range(25))
def test_mutated_protobuf_is_imported_as_far_as_it_goes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(protobuf(json.loads(otlp(*team()))))
    for at in rng.integers(len(data), size=4):
        data[at] = int(rng.integers(256))
    for trace, _ in runs_of("otlp", bytes(data)):
        if isinstance(trace, Trace):
            obeys_the_laws(trace)
