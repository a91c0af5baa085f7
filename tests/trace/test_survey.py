"""Survey documents: what is read is written back, whatever the form in between, and the schema agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import SURVEY, documents, findings, log_text, made, normal, read_text, restored, same, trace_of, written

from podium.trace import files, log, scan, store, survey, wire
from podium.trace.columns import concat, differences

published = pytest.mark.skipif(
    not SURVEY.is_dir(), reason="the survey's files (../shared/data/survey) are not here"
)


@pytest.fixture(params=["fast", "plain"], autouse=True)
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test reads both ways: with the C module, and with msgspec alone."""
    if request.param == "fast" and not scan.FAST:
        pytest.skip("the C module is not built")
    if request.param == "plain":
        monkeypatch.setattr(scan, "FAST", False)
        monkeypatch.setattr(survey, "_plain", lambda data: None)
    return str(request.param)


def complaints(document: Any, schema: Any) -> list[str]:
    return [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(document)]


# nothing is lost


@given(documents(), st.integers(0, 15))
def test_a_document_comes_back_as_it_was(document: dict[str, Any], style: int) -> None:
    trace = trace_of(written(document, style))
    assert normal(json.loads(survey.write(trace))) == normal(document)


@given(documents())
def test_rows_have_causes_first_and_edges_by_effect(document: dict[str, Any]) -> None:
    trace = trace_of(document)
    assert (trace.src_x < trace.dst_x).all()
    assert (np.diff(trace.dst_x) >= 0).all()
    ids = trace.id_e.strings()
    assert [document["events"][p]["id"] for p in trace.position_e.tolist()] == ids or (
        (trace.position_e == -1).all() and ids == [e["id"] for e in document["events"]]
    )


@given(documents(), st.permutations(["log", "survey", "log", "survey"]))
def test_any_way_through_the_text_forms_is_lossless(document: dict[str, Any], way: list[str]) -> None:
    trace = trace_of(document)
    for form in way:
        again = restored(log.write(trace)) if form == "log" else trace_of(survey.write(trace))
        assert differences(trace, again) == []
        trace = again
    assert normal(json.loads(survey.write(trace))) == normal(document)


@settings(max_examples=8)
@given(st.lists(documents(6), min_size=1, max_size=2), st.permutations(["log", "store", "folder"]))
def test_any_way_through_all_forms_is_lossless(tmp_path_factory: Any, many: list[Any], way: list[str]) -> None:
    pytest.importorskip("pyarrow")
    batch = concat([trace_of(d) for d in many])
    folder = tmp_path_factory.mktemp("forms")
    trace = batch
    for form in way:
        path = folder / {"log": "a.jsonl.gz", "store": "a.store", "folder": "a"}[form]
        files.save(trace, f"{path}/" if form == "folder" else path)
        trace = concat([r.trace for r in files.read(path) if r.trace is not None])
        assert differences(batch, trace) == [], form
    assert [same(json.loads(survey.write(t)), d) for t, d in zip(trace, many, strict=True)] == [True] * len(many)


def test_order_in_the_file_means_nothing() -> None:
    document = made(5, 30, plain=True)
    turned = document | {"events": document["events"][::-1], "edges": document["edges"][::-1]}
    a, b = trace_of(document), trace_of(turned)
    assert a.id_e.strings() == b.id_e.strings()
    assert b.position_e.tolist() == [len(a.t_e) - 1 - i for i in range(a.n_events)]


def test_what_is_missing_stays_missing() -> None:
    document = made(3, 1, plain=True)
    for field in ("metrics", "system", "topology"):
        assert field not in json.loads(survey.write(trace_of(document)))
    assert json.loads(survey.write(trace_of(document | {"metrics": {}})))["metrics"] == {}


def test_a_figure_that_was_not_recorded_is_not_zero() -> None:
    document = made(3, 2, plain=True)
    document["events"][0]["podium"] = {"absent": ["costs.tokens", "t", "trace_id"]}
    document["events"][0]["t"] = document["costs"]["tokens"] = 0
    document["trace_id"] = "unnamed"
    trace = trace_of(document)
    assert np.isnan(trace.t_e[0])
    assert np.isnan(trace.cost_n["tokens"][0])
    assert trace.trace_id_n[0] is None
    assert normal(json.loads(survey.write(trace))) == normal(document)
    assert differences(restored(log.write(trace)), trace) == []


@pytest.mark.parametrize("name", ["n", "after", "id2", "writer", "podium_log", "podium_end", "N", ""])
@pytest.mark.parametrize("value", [1, {"a": [1]}, "x", None])
def test_an_unknown_field_survives_whatever_it_is_called(name: str, value: Any) -> None:
    document = made(1, 3, plain=True)
    document["events"][1][name] = value
    trace = trace_of(document)
    assert differences(restored(log.write(trace)), trace) == []
    assert normal(json.loads(survey.write(restored(log.write(trace))))) == normal(document)


# the schemas


@published
@settings(max_examples=30)
@given(documents())
def test_what_is_written_is_of_the_surveys_schema(document: dict[str, Any]) -> None:
    schema = json.loads((SURVEY / "trace_schema.json").read_text())
    assert complaints(json.loads(survey.write(trace_of(document))), schema) == []


@settings(max_examples=20)
@given(documents(8))
def test_what_is_written_is_of_our_schema(document: dict[str, Any]) -> None:
    schema = wire.schema()
    assert complaints(json.loads(survey.write(trace_of(document))), schema) == []
    for line in log.write(trace_of(document)).splitlines():
        assert complaints(json.loads(line), schema) == []


def test_our_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(wire.schema())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("events", 0, "podium"), {"surprise": 1}),
        (("events", 0, "podium"), {"tokens": []}),
        (("events", 0, "podium"), {"tokens": [1.5]}),
        (("events", 0, "podium"), {"stage": -1}),
        (("events", 0, "podium"), {"decision": "dance"}),
        (("events", 0, "podium"), {"votes": [{"weight": 1}]}),
        (("events", 0, "podium"), {"options": [1]}),
        (("events", 0, "podium"), {"absent": ["this"]}),
        (("events", 0, "podium"), {"run": {"clock_skew_s": -1}}),
        (("events", 0, "podium"), {"end": -1}),
        (("events", 0, "podium"), []),
        (("events", 0, "podium"), None),
        (("events", 0, "t"), -1),
        (("events", 0, "t"), "0"),
        (("events", 0, "t"), None),
        (("events", 0, "type"), "dance"),
        (("events", 0, "agent"), ""),
        (("events", 0, "id"), ""),
        (("events", 0, "trusted"), 1),
        (("events", 0, "role"), None),
        (("events", 0), 7),
        (("events",), []),
        (("events",), {}),
        (("edges",), [{"src": "a", "dst": "b"}]),
        (("edges",), [{"src": "a", "dst": "b", "type": "dance"}]),
        (("edges",), [{"src": "a", "dst": "b", "type": "spawn", "more": 1}]),
        (("edges",), None),
        (("rewards",), {"team": "much"}),
        (("rewards",), {"team": None}),
        (("costs",), {"tokens": 1}),
        (("costs",), {"tokens": -1, "wall_clock_s": 0}),
        (("costs",), {"tokens": 1, "wall_clock_s": 0, "messages": -1}),
        (("costs",), {"tokens": 1, "wall_clock_s": 0, "more": "x"}),
        (("metrics",), {"x": True}),
        (("metrics",), None),
        (("topology",), "ring"),
        (("topology",), None),
        (("system",), 1),
        (("trace_id",), ""),
        (("task_id",), 1),
        (("surprise",), 1),
    ],
)
def test_the_readers_and_the_schema_refuse_the_same(where: tuple[Any, ...], value: Any) -> None:
    document = made(2, 2, plain=True)
    at: Any = document
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    found = findings(document)
    assert {f.rule for f in found} == {"schema"}
    assert all(f.level == "error" for f in found)
    assert complaints(document, wire.schema()) != []


@pytest.mark.parametrize("field", ["trace_id", "task_id", "events", "edges", "rewards", "costs"])
def test_a_required_field_is_missed_by_name(field: str) -> None:
    document = made(2, 2, plain=True)
    del document[field]
    assert any(f.rule == "schema" and field in f.message for f in findings(document))


@pytest.mark.parametrize("field", ["id", "t", "type", "agent"])
def test_a_required_field_of_an_event_is_missed_with_its_row(field: str) -> None:
    document = made(2, 4, plain=True)
    del document["events"][2][field]
    assert [(f.rule, f.row) for f in findings(document) if field in f.message] == [("schema", 2)]


# the published example


@published
def test_the_published_example_has_one_finding() -> None:
    one = read_text((SURVEY / "example_trace.json").read_bytes())
    assert [(f.rule, f.level, f.row) for f in one.findings] == [("trust-laundering", "warning", 6)]
    assert one.trace is not None
    assert one.trace.id_e[6] == "e7"
    assert same(json.loads(survey.write(one.trace)), json.loads((SURVEY / "example_trace.json").read_bytes()))


# a batch is a longer trace


@given(documents(8), documents(8), documents(8))
def test_slicing_undoes_concatenation(a: Any, b: Any, c: Any) -> None:
    parts = [trace_of(d) for d in (a, b, c)]
    batch = concat(parts)
    assert [differences(batch[i], parts[i]) for i in range(3)] == [[], [], []]
    assert differences(batch[1:], concat(parts[1:])) == []
    assert differences(batch[[2, 0]], concat([parts[2], parts[0]])) == []
    assert differences(concat([batch[:1], batch[1:]]), batch) == []


@given(st.lists(documents(8), min_size=1, max_size=4))
def test_the_findings_of_a_batch_are_those_of_its_runs(many: list[Any]) -> None:
    from podium.trace.rules import check

    parts = [trace_of(d) for d in many]
    first = np.cumsum([0, *(p.n_events for p in parts)])
    each = {
        (f.rule, f.row + int(at), f.message)
        for p, at in zip(parts, first, strict=False)
        for f in check(p)
        if f.row is not None
    }
    assert {(f.rule, f.row, f.message) for f in check(concat(parts))} == each


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b" \n\t\n"])
def test_json_lines_are_a_batch(tmp_path: Path, end: bytes) -> None:
    many = [made(s, 4) for s in range(5)]
    (tmp_path / "many.jsonl").write_bytes(b"".join(written(d, 4 * (i % 2)) + end for i, d in enumerate(many)))
    reads = list(files.read(tmp_path / "many.jsonl"))
    assert [same(json.loads(survey.write(r.trace)), d) for r, d in zip(reads, many, strict=True) if r.trace] == [
        True
    ] * 5
    assert reads[0].file.endswith("many.jsonl:1")


def test_a_folder_is_a_batch(tmp_path: Path) -> None:
    many = [made(s, 4) for s in range(3)]
    (tmp_path / "deep").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a.json").write_bytes(written(many[0], 0))
    (tmp_path / "deep" / "b.json").write_bytes(written(many[1], 2))
    (tmp_path / "c.jsonl").write_bytes(log.write(trace_of(many[2])))
    (tmp_path / ".hidden" / "d.json").write_bytes(b"not a trace")
    (tmp_path / "notes.txt").write_bytes(b"not a trace")
    traces = [r.trace for r in files.read(tmp_path)]
    assert [
        same(json.loads(survey.write(t)), d) for t, d in zip(traces, [many[0], many[2], many[1]], strict=True) if t
    ] == [True] * 3


def test_a_log_may_hold_a_run_of_any_length() -> None:
    trace = trace_of(made(4, 300))
    assert differences(restored(log.write(trace)), trace) == []
    assert restored(log_text({})).n_events == 1


def test_only_one_run_fits_in_a_document() -> None:
    batch = concat([trace_of(made(s, 2)) for s in range(2)])
    with pytest.raises(ValueError, match="one run, not 2"):
        survey.write(batch)
    with pytest.raises(ValueError, match="at least one event"):
        survey.write(files.Trace.of(trace_id_n=trace_of(made(0, 1)).trace_id_n))


def test_the_store_agrees(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    trace = concat([trace_of(made(s, 20)) for s in range(3)])
    store.create(tmp_path / "s.store")
    store.add(tmp_path / "s.store", trace)
    assert differences(store.read(tmp_path / "s.store"), trace) == []
