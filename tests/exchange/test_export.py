"""Runs in the forms of other tools: read back they are the same, and those tools' own classes read them."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign import real
from verbs import verb

from bench.exchange_logs import SMALL
from podium.exchange.build import Run
from podium.exchange.to_perfetto import lanes_of, times_of
from podium.registry import find, names
from podium.trace import files
from podium.trace.columns import Trace, concat
from podium.trace.vocabulary import edge
from tests.exchange import sessions

LOGS = {name: SMALL[name] for name in ("inspect_ai", "google_adk", "atif", "whowhen", "trail", "opencode")}
LOGS["claude_code"] = sessions.simple().data()


def runs(data: bytes, folder: Path) -> list[Trace]:
    (path := folder / "log.json").write_bytes(data)
    return [read.trace for read in files.read(path) if read.trace is not None]


def again(traces: list[Trace], to: str, suffix: str, folder: Path) -> list[Trace]:
    (path := folder / f"out{suffix}").write_bytes(find("exporter", to)(traces, suffix))
    reads = list(files.read(path))
    assert not [f for read in reads for f in read.findings if f.rule in ("log-fault", "schema")]
    return [read.trace for read in reads if read.trace is not None]


@pytest.mark.parametrize(("to", "suffix"), [("otlp", ".json"), ("otlp", ".pb"), ("atif", ".json")])
@pytest.mark.parametrize("name", LOGS)
def test_a_run_that_was_exported_comes_back_the_same(name: str, to: str, suffix: str, tmp_path: Path) -> None:
    """Every column: events, edges, agents, times and tokens among them."""
    traces = runs(LOGS[name], tmp_path)
    assert again(traces, to, suffix, tmp_path) == traces


@pytest.mark.parametrize(("to", "suffix"), [("otlp", ".json"), ("otlp", ".pb"), ("atif", ".json")])
def test_several_runs_in_one_file(to: str, suffix: str, tmp_path: Path) -> None:
    traces = runs(SMALL["tau_bench"], tmp_path) + runs(SMALL["google_adk"], tmp_path)
    assert again(traces, to, suffix, tmp_path) == traces


@pytest.mark.parametrize("to", ["otlp", "atif"])
@pytest.mark.parametrize("path", real("claude_code/15f99783*") + real("codex/019f80ed*"))
def test_real_sessions_come_back_the_same(path: Path, to: str, tmp_path: Path) -> None:
    [trace] = [read.trace for read in files.read(path) if read.trace is not None]
    assert again([trace], to, ".json", tmp_path) == [trace]


def test_a_viewer_that_knows_nothing_of_podium_sees_turns_calls_and_tokens(tmp_path: Path) -> None:
    [trace] = runs(SMALL["inspect_ai"], tmp_path)
    request = json.loads(find("exporter", "otlp")([trace]))
    for resource in request["resourceSpans"]:
        resource["resource"]["attributes"] = []
        for span in resource["scopeSpans"][0]["spans"]:
            span["attributes"] = [pair for pair in span["attributes"] if not pair["key"].startswith("podium.")]
    [other] = runs(json.dumps(request).encode(), tmp_path)
    for name in ("tokens_in", "tokens_out", "cache_read"):
        assert np.nansum(getattr(other, f"{name}_e")) == np.nansum(getattr(trace, f"{name}_e"))
    assert {w for w in trace.name_a.strings() if w != "person"} <= set(other.name_a.strings())
    assert sum(w == "search" for w in other.tool_e.strings()) == 2  # a call and its result


def test_the_classes_of_opentelemetry_parse_ours(tmp_path: Path) -> None:
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    [trace] = runs(SMALL["inspect_ai"], tmp_path)
    binary = service.ExportTraceServiceRequest.FromString(find("exporter", "otlp")([trace], ".pb"))
    text = find("exporter", "otlp")([trace], ".json")
    named = json_format.Parse(text, service.ExportTraceServiceRequest())
    assert binary.ByteSize() > 0
    assert binary.SerializeToString() == find("exporter", "otlp")([trace], ".pb")
    spans = binary.resource_spans[0].scope_spans[0].spans
    assert len(spans) == len(named.resource_spans[0].scope_spans[0].spans) == trace.n_events + trace.n_agents
    plain = json.loads(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for one, other in zip(spans, plain, strict=True):
        assert (one.span_id.hex(), one.trace_id.hex(), one.name) == (
            other["spanId"],
            other["traceId"],
            other["name"],
        )
        assert (str(one.start_time_unix_nano), str(one.end_time_unix_nano)) == (
            other["startTimeUnixNano"],
            other["endTimeUnixNano"],
        )
        assert len(one.links) == len(other.get("links", []))
    assert sum(len(one.links) for one in spans) == int((trace.type_x != edge("temporal")).sum())


def test_the_classes_of_perfetto_parse_ours(tmp_path: Path) -> None:
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    traces = runs(SMALL["inspect_ai"], tmp_path) + runs(SMALL["tau_bench"], tmp_path)
    parsed = pb2.Trace.FromString(find("exporter", "perfetto")(traces))
    events = [p for p in parsed.packet if p.HasField("track_event")]
    types = [p.track_event.type for p in events]
    lasting = sum(int((np.fmax(t.end_e, t.t_e) > t.t_e).sum()) for t in traces)
    assert types.count(1) == types.count(2) == lasting  # slices begin and end
    assert types.count(3) == sum(t.n_events for t in traces) - lasting
    flows = sum(int((t.type_x != edge("temporal")).sum()) for t in traces)
    assert sum(len(p.track_event.flow_ids) for p in events) == flows
    assert sum(len(p.track_event.terminating_flow_ids) for p in events) == flows
    tracks = [p.track_descriptor for p in parsed.packet if p.HasField("track_descriptor")]
    assert len(tracks) >= len(traces) + sum(t.n_agents for t in traces)
    assert len({track.uuid for track in tracks}) == len(tracks)
    open_slices: dict[int, int] = {}
    for packet in events:  # slices lie inside each other on every track
        uuid, type = packet.track_event.track_uuid, packet.track_event.type
        open_slices[uuid] = open_slices.get(uuid, 0) + {1: 1, 2: -1}.get(type, 0)
        assert open_slices[uuid] >= 0
    assert set(open_slices.values()) == {0}


def test_what_overlaps_goes_to_further_tracks() -> None:
    run = Run("r", system="x")
    turn = run.add("message", "ann", 0.0, end=1.0)
    for start, end in ((1.0, 5.0), (2.0, 6.0), (2.5, 4.0)):
        call = run.add("tool_call", "ann", start, end=end, tool="t", after=[("causal", turn)])
        run.add("tool_result", "ann", end, tool="t", after=[("return", call)])
    trace, _ = run.built("log")
    assert trace is not None
    begun, ended = times_of(trace)
    lanes = lanes_of(trace, begun, ended)
    assert len(set(lanes.tolist())) == 2
    for lane in set(lanes.tolist()):
        spans = sorted((begun[r], -ended[r]) for r in np.flatnonzero((lanes == lane) & (ended > begun)))
        for (a, neg_b), (c, neg_d) in pairwise(spans):
            assert c >= -neg_b or -neg_d <= -neg_b, (a, c)


def test_tables(tmp_path: Path) -> None:
    traces = runs(SMALL["inspect_ai"], tmp_path) + runs(SMALL["agentdojo"], tmp_path)
    whole = concat(traces)
    made = find("exporter", "csv")(traces)
    rows = {name: list(csv.DictReader(data.decode().splitlines())) for name, data in made.items()}
    assert {name: len(table) for name, table in rows.items()} == {
        "runs.csv": 3, "agents.csv": whole.n_agents, "events.csv": whole.n_events, "edges.csv": whole.n_edges
    }  # fmt: skip
    events = rows["events.csv"]
    assert [row["agent"] for row in events] == [whole.name_a[int(a)] for a in whole.agent_e]
    assert [row["type"] for row in events][:2] == ["message", "orchestrator_decision"]
    assert sum(float(row["tokens_in"]) for row in events if row["tokens_in"]) == np.nansum(whole.tokens_in_e)
    assert [row["reward.team"] for row in rows["runs.csv"]] == ["1.0"] * 3
    pq = pytest.importorskip("pyarrow.parquet")
    for name, data in find("exporter", "parquet")(traces).items():
        (path := tmp_path / name).write_bytes(data)
        assert pq.read_table(path).num_rows == len(rows[name.replace("parquet", "csv")])


def shown(answer: Any) -> tuple[int, str]:
    return answer.returncode, answer.stdout


@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("otlp", "o.json"),
        ("otlp", "o.pb"),
        ("atif", "a.json"),
        ("perfetto", "p.pftrace"),
        ("csv", "c"),
        ("parquet", "q"),
    ],
)
def test_the_verb(to: str, name: str, tmp_path: Path) -> None:
    (log := tmp_path / "log.json").write_bytes(SMALL["inspect_ai"])
    assert shown(verb("export", log, "--to", to, "-o", tmp_path / name)) == (
        0,
        f"{tmp_path / name}: 1 run, 10 events\n",
    )
    answer = json.loads(verb("export", log, "--to", to, "-o", tmp_path / name, "--json").stdout)
    assert (answer["ok"], answer["runs"], answer["events"]) == (True, 1, 10)
    assert all(Path(file).stat().st_size for file in answer["files"])
    if to in ("otlp", "atif"):
        assert verb("check", tmp_path / name).stdout == "clean\n"


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    (log := tmp_path / "log.json").write_bytes(SMALL["atif"])
    for words, line in (
        (("--to", "svg", "-o", "x"), "no format called 'svg'"),
        (("--to", "perfetto", "-o", "x.json"), "expected a name that ends in .pftrace or .perfetto-trace"),
    ):
        answer = verb("export", log, *words)
        assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
        assert line in answer.stderr
    assert verb("export", tmp_path / "none.json", "--to", "atif", "-o", tmp_path / "x.json").returncode == 2
    assert set(names("exporter")) == {"atif", "csv", "otlp", "parquet", "perfetto"}
