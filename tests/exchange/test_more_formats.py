"""Inspect, ATIF, Google ADK, AutoGen, CrewAI, Copilot CLI, OpenCode, and the labelled sets: every real log against
a plain count, and small ones of ours, event by event.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign import LOGS, agent, count, edges, errors, faults, here, imported, obeys_the_laws, real, rows, total

from bench.exchange_logs import SMALL
from podium.exchange.reading import importer_of, known_formats
from podium.trace import files
from podium.trace.columns import Trace
from podium.trace.vocabulary import EVENT_TYPES
from tests.verbs import verb


def all_runs(path: Path) -> list[Trace]:
    reads = list(files.read(path))
    assert not [f for read in reads for f in errors(read.findings) + faults(read.findings)]
    traces = [read.trace for read in reads if read.trace is not None]
    for trace in traces[:: max(1, len(traces) // 40)]:  # the schema of hundreds would take long
        obeys_the_laws(trace)
    return traces


def sums(traces: list[Trace]) -> Counter[str]:
    """Events by type, agents, and tokens."""
    many: Counter[str] = Counter()
    for trace in traces:
        many.update(EVENT_TYPES[code] for code in trace.type_e.tolist())
        many["agents"] += trace.n_agents
        for name in ("tokens_in", "tokens_out", "cache_read"):
            many[name] += int(total(getattr(trace, f"{name}_e")))
    return many


def text(path: Path) -> str:
    return (lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes()).decode()


# real logs


def samples(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            return [
                json.loads(archive.read(name)) for name in sorted(archive.namelist()) if name.startswith("samples/")
            ]
    log = json.loads(path.read_text())
    return log["samples"] or [] if "eval" in log else [log]


@pytest.mark.parametrize(
    "path", [*real("inspect/**/*.json"), *real("inspect/*.eval"), *real("frameworks/inspect*.json")]
)
def test_inspect(path: Path) -> None:
    plain: Counter[str] = Counter()
    rewards = []
    for sample in samples(path):
        spans = {e["id"]: e for e in sample["events"] if e["event"] == "span_begin"}

        def scored(id: str | None, spans: dict[str, Any] = spans) -> bool:
            while id in spans:
                if spans[id]["type"] in ("scorers", "scorer"):
                    return True
                id = spans[id].get("parent_id")
            return False

        for event in sample["events"]:
            if event["event"] == "model" and not scored(event.get("span_id")):
                plain["turns"] += 1
                usage = event["output"].get("usage") or {}
                plain["tokens"] += usage.get("total_tokens", 0)
            plain["calls"] += event["event"] == "tool" and not scored(event.get("span_id"))
        scores = [s["value"] for s in (sample.get("scores") or {}).values()]
        rewards += [{"C": 1.0, "I": 0.0}.get(v, v) for v in scores if isinstance(v, str | float | int)]
    if not samples(path):
        assert [read.trace for read in files.read(path)] == [None]
        return
    traces = all_runs(path)
    many = sums(traces)
    assert len(traces) == len(samples(path))
    assert many["tool_call"] == many["tool_result"] == plain["calls"]
    turns = sum(int((~np.isnan(t.tokens_out_e)).sum()) for t in traces)
    assert turns == plain["turns"]
    assert many["tokens_in"] + many["tokens_out"] + many["cache_read"] == plain["tokens"]
    assert [v for t in traces for v in (float(r[0]) for r in t.reward_n.values())] == rewards


@here
def test_an_archive_of_inspect_that_is_packed_with_zstd() -> None:
    pytest.importorskip("pyarrow")
    [trace] = all_runs(LOGS / "frameworks" / "inspect_ai_0.3.285_parallel_agents.eval")
    assert sorted(w for w in trace.name_a.strings() if w) == [
        "orchestrator",
        "person",
        "researcher_a",
        "researcher_b",
    ]
    assert count(trace, "spawn") == count(trace, "return") == 2


@here
def test_google_adk_events_are_the_run_that_its_spans_are() -> None:
    path = LOGS / "frameworks" / "google_adk_2.13.0_events.jsonl"
    [trace] = all_runs(path)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    many = sums([trace])
    assert many["tokens_in"] == sum(e.get("usageMetadata", {}).get("promptTokenCount", 0) for e in events)
    assert many["tokens_out"] == sum(e.get("usageMetadata", {}).get("candidatesTokenCount", 0) for e in events)
    parts = [part for e in events for part in e["content"]["parts"]]
    assert many["tool_call"] == sum("functionCall" in p for p in parts)
    assert many["tool_result"] == sum("functionResponse" in p for p in parts)
    branches = {e["branch"] for e in events if "branch" in e}
    assert many["spawn"] == many["return"] == len(branches) == 2
    spans = imported(LOGS / "frameworks" / "google_adk_2.13.0_otlp.json")[0]
    assert sums([spans])["tokens_in"] == many["tokens_in"]
    assert set(trace.name_a.strings()) == set(spans.name_a.strings()) - {"pipeline"}  # which has no events


@here
def test_autogen_messages_and_events_are_the_same_run() -> None:
    names = ("autogen_agentchat_0.7.5_swarm_messages.jsonl", "autogen_core_0.7.5_event_log.jsonl")
    [one], [other] = (all_runs(LOGS / "frameworks" / name) for name in names)
    assert one == other
    messages = [json.loads(line) for line in (LOGS / "frameworks" / names[0]).read_text().splitlines()]
    calls = [c for m in messages if m["type"] == "ToolCallRequestEvent" for c in m["content"]]
    results = [c for m in messages if m["type"] == "ToolCallExecutionEvent" for c in m["content"]]
    many = sums([one])
    assert (many["tool_call"], many["tool_result"]) == (len(calls), len(results))
    assert many["message"] == len(messages) - sum(m["type"] == "ToolCallExecutionEvent" for m in messages)
    used = [m["models_usage"] for m in messages if m["models_usage"]]
    assert many["tokens_in"] == sum(u["prompt_tokens"] for u in used)
    assert many["tokens_out"] == sum(u["completion_tokens"] for u in used)
    assert many["agents"] == len({m["source"] for m in messages})


@here
def test_crewai() -> None:
    path = LOGS / "frameworks" / "crewai_events.jsonl"
    [trace] = all_runs(path)
    kinds = Counter(json.loads(line)["type"] for line in path.read_text().splitlines())
    assert count(trace, "spawn") == kinds["task_started"] == 3
    assert count(trace, "return") == kinds["task_completed"] == 3
    assert set(trace.name_a.strings()) == {"person", "crew", "researcher", "researcher2", "writer"}
    started = {agent(trace, row): trace.t_e[row] for row in rows(trace, "return")}
    born = {trace.name_a[int(trace.to_e[row])]: trace.t_e[row] for row in rows(trace, "spawn")}
    assert max(born["researcher"], born["researcher2"]) < min(started["researcher"], started["researcher2"]) + 0.1


@pytest.mark.parametrize("path", real("copilot_cli/*/*.xz"))
def test_copilot_cli(path: Path) -> None:
    events = [json.loads(line) for line in text(path).splitlines()]
    kinds = Counter(e["type"] for e in events)
    [trace] = all_runs(path)
    many = sums([trace])
    assert many["tool_call"] == kinds["tool.execution_start"]
    assert many["tool_result"] == kinds["tool.execution_complete"]
    assert many["message"] == kinds["assistant.message"] + kinds["user.message"]
    assert many["tokens_out"] == sum(e["data"].get("outputTokens", 0) for e in events)
    failed = sum(e["type"] == "tool.execution_complete" and not e["data"]["success"] for e in events)
    stated = [row for row in rows(trace, "tool_result") if trace.valid_e[row] == 0]
    assert failed == sum(
        "inferred" not in trace.extra_e or trace.extra_e["inferred"][row] is None for row in stated
    )
    assert int(trace.task_e.max()) == max(0, kinds["user.message"] - 1) or kinds["user.message"] == 1


@pytest.mark.parametrize("path", real("whowhen/*/*.json"))
def test_whowhen(path: Path) -> None:
    log = json.loads(path.read_text())
    [trace] = all_runs(path)
    assert [agent(trace, row) for row in range(trace.n_events)] == [m["name"] for m in log["history"]]
    assert json.loads(trace.params_n[0] or "")["label"] == {
        "agent": log["mistake_agent"],
        "step": int(log["mistake_step"]),
    }
    labelled = [row for row, label in enumerate(trace.extra_e["label"].strings()) if label is not None]
    assert labelled == [int(log["mistake_step"])]
    assert float(trace.reward_n["team"][0]) == float(log["is_correct"])


@here
def test_trail_with_the_errors_that_people_marked() -> None:
    labels = {
        p.stem: json.loads(p.read_text())["errors"] for p in (LOGS / "trail" / "annotations_swe_bench").iterdir()
    }
    traces = all_runs_of_a_folder(LOGS / "trail")
    assert len(traces) == 26
    for trace in traces:
        errors = labels[trace.trace_id_n[0] or ""]
        marked = trace.extra_e["label"].strings() if "label" in trace.extra_e else []
        params = json.loads(trace.params_n[0] or "")
        on_events = Counter(x["category"] for words in marked if words for x in json.loads(words))
        on_run = Counter(x["category"] for x in params.get("labels", ()))
        assert on_events + on_run == Counter(x["category"] for x in errors)
        assert params.get("labelled", 0) == len(errors)


def all_runs_of_a_folder(folder: Path) -> list[Trace]:
    reads = list(files.read(folder))
    assert not [f for read in reads for f in errors(read.findings)]
    return [read.trace for read in reads if read.trace is not None]


@here
def test_agentdojo() -> None:
    path = LOGS / "agentdojo" / "claude-3-5-sonnet-20241022.jsonl.gz"
    runs = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    traces = all_runs(path)
    many = sums(traces)
    assert len(traces) == len(runs) == 753
    assert many["tool_call"] == sum(len(m.get("tool_calls") or ()) for r in runs for m in r["messages"])
    assert many["tool_result"] == sum(m["role"] == "tool" for r in runs for m in r["messages"])
    assert many["message"] == sum(m["role"] in ("user", "assistant") for r in runs for m in r["messages"])
    assert [float(t.reward_n["team"][0]) for t in traces] == [float(r["utility"]) for r in runs]
    attacks = [r for r in runs if r["injection_task_id"] is not None]
    stated = [json.loads(t.params_n[0] or "")["label"].get("attack_succeeded") for t in traces]
    assert [s for s in stated if s is not None] == [r["security"] for r in attacks]
    untrusted = sum(int((t.trusted_e == 0).sum()) for t in traces)
    assert untrusted == sum(
        any("".join(text.split())[:80] in "".join(m["content"].split()) for text in r["injections"].values())
        for r in runs
        for m in r["messages"]
        if m["role"] == "tool"
    )
    assert untrusted > 300


@here
def test_tau_bench() -> None:
    path = LOGS / "tau_bench" / "gpt-4o-airline.json.xz"
    runs = json.loads(text(path))
    traces = all_runs(path)
    many = sums(traces)
    roles = Counter(m["role"] for r in runs for m in r["traj"])
    assert len(traces) == len(runs) == 200
    assert many["tool_call"] == sum(len(m.get("tool_calls") or ()) for r in runs for m in r["traj"])
    assert many["tool_result"] == roles["tool"]
    assert many["message"] == roles["user"] + roles["assistant"]
    assert [float(t.reward_n["team"][0]) for t in traces] == [r["reward"] for r in runs]
    assert len({t.task_id_n[0] for t in traces}) == 50


# small logs of ours


def small(name: str, tmp_path: Path) -> list[Trace]:
    path = tmp_path / "log.json"
    path.write_bytes(SMALL[name])
    traces = all_runs(path)
    for trace in traces:
        obeys_the_laws(trace)
    return traces


@pytest.mark.parametrize("name", SMALL)
def test_a_format_is_recognised_by_what_it_says(name: str) -> None:
    assert importer_of(SMALL[name], "log") == name


def addressee(trace: Trace, row: int) -> str | None:
    to = int(trace.to_e[row])
    return trace.name_a[to] if to >= 0 else None


def story(trace: Trace) -> list[str]:
    """Each event in a few words."""
    return [
        " ".join(
            word
            for word in (
                EVENT_TYPES[int(trace.type_e[row])],
                agent(trace, row),
                trace.tool_e[row] or addressee(trace, row),
            )
            if word
        )
        for row in range(trace.n_events)
    ]


STORIES = {
    "inspect_ai": """message person lead; orchestrator_decision lead; spawn lead ann; message ann ann;
        spawn lead bob; return bob lead; tool_call ann search; tool_result ann search; return ann lead; aggregate lead""",
    "google_adk": """message person fan; spawn fan ann; spawn fan bob; message ann ann; return bob fan;
        tool_call ann search; tool_result ann search; return ann fan; message writer person""",
    "crewai": """message person crew; spawn crew researcher; message researcher researcher;
        tool_call researcher search; tool_result researcher search; return researcher crew""",
    "autogen": """message person planner; message planner planner; tool_call planner search;
        tool_result planner search; message planner ann; message ann person; message person planner""",
    "copilot_cli": """message person main; orchestrator_decision main; tool_call main task; spawn main explore;
        return explore main; tool_result main task; human_intervention person main; safety_event main permission;
        orchestrator_decision main; message person main; human_intervention person main""",
    "opencode": """message person build; orchestrator_decision build; tool_call build task; spawn build build#2;
        return build#2 build; tool_result build task; aggregate build""",
    "atif": """message person lead; message lead lead; tool_call lead delegate; spawn lead ann; message ann lead;
        return ann lead; tool_result lead delegate; aggregate lead person""",
    "whowhen": "message ann; message terminal; message ann; message bob",
    "trail": "message person agent; message agent agent; tool_call agent tool; tool_result agent tool",
    "agentdojo": """message person agent; message agent agent; tool_call agent read; tool_result agent read;
        message agent person""",
    "tau_bench": """message person agent; message agent agent; tool_call agent look; tool_result agent look;
        message agent person; message person agent""",
}


@pytest.mark.parametrize("name", SMALL)
def test_the_events_of_a_small_log(name: str, tmp_path: Path) -> None:
    trace = small(name, tmp_path)[0]
    assert story(trace) == [" ".join(part.split()) for part in STORIES[name].split(";")]


def test_tokens_of_a_cache_are_apart(tmp_path: Path) -> None:
    [trace] = small("inspect_ai", tmp_path)
    assert sums([trace])["tokens_in"] == 20 + 30 + 40 + 50 + 60 - 5 * 4  # what a scorer used is not the team's
    [trace] = small("atif", tmp_path)
    assert (sums([trace])["tokens_in"], sums([trace])["cache_read"], total(trace.cost_e)) == (
        30,
        60,
        pytest.approx(0.3),
    )
    [trace] = small("opencode", tmp_path)
    assert [sums([trace])[k] for k in ("tokens_in", "tokens_out", "cache_read")] == [30, 12, 21]


def test_edges_that_a_log_states_are_not_inferred(tmp_path: Path) -> None:
    for name in ("atif", "tau_bench", "agentdojo"):
        for trace in small(name, tmp_path):
            assert (trace.inferred_x != 1).all()
    [trace] = small("whowhen", tmp_path)
    assert edges(trace, "message") == {(0, 1), (1, 2), (2, 3)}
    assert [trace.rule_x[x] for x in range(trace.n_edges) if trace.inferred_x[x] == 1] == [
        "the next to speak answers what was said last"
    ] * 3


def test_what_is_missing_or_unlike_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(SMALL["whowhen"].replace(b'"2"', b'"20"'))
    [read] = files.read(path)
    assert faults(read.findings) == [f"{path}: mistake_step is '20'; expected a place among 4 messages"]
    path.write_bytes(SMALL["agentdojo"].replace(b'"tool_call_id": "c1"', b'"tool_call_id": "c9"'))
    assert [faults(read.findings) for read in files.read(path)] == [
        [f"{path}:1: a result of the call 'c9', which is not there"],
        [],
    ]
    path.write_bytes(SMALL["atif"].replace(b'"session_id": "s2", "agent"', b'"session_id": "s3", "agent"'))
    [read] = files.read(path)
    assert faults(read.findings) == [f"{path}: the trajectory 's2' of a sub-agent is not there"]


def test_the_help_names_every_format() -> None:
    page = " ".join(verb("import", "--help").stdout.split())
    assert f"keep the result. Systems: {known_formats()}. Exit 0" in page
