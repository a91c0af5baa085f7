"""Event logs: what was written before a crash is read, segments make a run, a bad line is told by its number."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import documents, log_reads, log_text, made, restored, trace_of, written

from podium.trace import files, log, scan
from podium.trace.columns import concat, differences
from podium.trace.findings import Unreadable
from podium.trace.log import LOG_EVENTS


@pytest.fixture(params=["fast", "plain"], autouse=True)
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "fast" and not scan.FAST:
        pytest.skip("the C module is not built")
    if request.param == "plain":
        monkeypatch.setattr(scan, "FAST", False)


def rules(one: files.Read) -> list[tuple[str, str]]:
    return [(f.rule, f.level) for f in one.findings]


def after(*causes: tuple[Any, ...], **fields: Any) -> dict[str, Any]:
    return {"after": [list(c) for c in causes]} | fields


# a torn end


@settings(max_examples=5)
@given(documents(4))
def test_a_log_torn_anywhere_in_its_last_event_loses_only_that(document: Any) -> None:
    trace = trace_of(document)
    lines = log.write(trace).splitlines(keepends=True)
    whole, last = b"".join(lines[:-2]), lines[-2]
    kept = trace.n_events - 1
    for cut in range(len(last)):
        reads = log_reads(whole + last[:cut])
        complete = cut == len(last) - 1  # all but the line's end
        (one,) = reads
        if not kept + complete:
            assert one.trace is None
            continue
        assert one.trace is not None
        assert one.trace.n_events == kept + complete
        assert one.trace.id_e.strings() == trace.id_e.strings()[: kept + complete]
        torn = [f for f in one.findings if f.rule == "torn-line"]
        assert len(torn) == int(0 < cut < len(last) - 1)
        assert all(f.level == "warning" and str(f"line {len(lines) - 1} ") in f.message for f in torn)
        assert not any(f.rule == "schema" for f in one.findings)


def test_a_log_torn_in_its_closing_line() -> None:
    text = log_text({}, {})
    start = text.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(start, len(text) + 1):
        (one,) = log_reads(text[:cut])
        assert one.trace is not None
        assert one.trace.n_events == 2
        assert rules(one) == ([("torn-line", "warning")] if start < cut < len(text) - 1 else [])


def test_a_log_torn_in_its_header_is_an_answer_not_a_crash(tmp_path: Path) -> None:
    text = log_text({})
    end = text.find(b"\n")
    for cut in range(1, end):
        (path := tmp_path / "a.jsonl").write_bytes(text[:cut])
        try:
            reads = list(files.read(path))
        except Unreadable:
            continue
        assert all(r.trace is None and r.findings for r in reads)


def test_a_torn_line_of_one_writer_in_many_costs_nothing_else() -> None:
    first, second = log_text({}, {}, writer="a", closed=False)[:-9], log_text({}, writer="b")
    (one,) = log_reads(first, second)
    assert one.trace is not None
    assert sorted(one.trace.id_e.strings()) == ["a.0", "b.0"]
    assert ("torn-line", "warning") in rules(one)


def test_a_last_line_that_is_whole_but_wrong_is_an_error() -> None:
    (one,) = log_reads(log_text({}, closed=False) + b'{"n":1,"t":"late","type":"message","agent":"a"}')
    assert rules(one) == [("schema", "error")]


# many writers


def three_writers() -> list[bytes]:
    return [
        log_text(
            {"t": 0}, after(("return", 0, "b"), ("temporal", 0), t=5), after(("causal", 1, "c"), t=6), writer="a"
        ),
        log_text(after(("spawn", 0, "a"), t=1), after(("temporal", 0), t=4), writer="b"),
        log_text(after(("message", 1, "b"), t=4), after(("temporal", 0), ("causal", 0, "a"), t=4), writer="c"),
    ]


def test_segments_merge_in_any_order_of_files() -> None:
    traces = []
    for order in itertools.permutations(three_writers()):
        (one,) = log_reads(*order)
        assert one.findings == []
        assert one.trace is not None
        traces.append(one.trace)
    assert all(differences(t, traces[0]) == [] for t in traces)
    trace = traces[0]
    ids = trace.id_e.strings()
    assert ids == ["a.0", "b.0", "b.1", "c.0", "c.1", "a.1", "a.2"]
    found = {(ids[s], ids[d]) for s, d in zip(trace.src_x.tolist(), trace.dst_x.tolist(), strict=True)}
    assert found == {
        ("a.0", "b.0"),
        ("b.0", "b.1"),
        ("b.1", "c.0"),
        ("c.0", "c.1"),
        ("a.0", "c.1"),
        ("b.0", "a.1"),
        ("a.0", "a.1"),
        ("c.1", "a.2"),
    }


def test_segments_in_one_file_and_in_a_folder_are_the_same_run(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    for i, text in enumerate(three_writers()):
        (tmp_path / "f" / f"{9 - i}.jsonl").write_bytes(text)
    (tmp_path / "one.jsonl").write_bytes(b"".join(three_writers()))
    assert differences(files.load(tmp_path / "f"), files.load(tmp_path / "one.jsonl")) == []


@settings(max_examples=25)
@given(documents(12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_run_split_among_writers_is_the_same_run(document: Any, writers: int, dice: Any) -> None:
    """Each event goes to some writer's segment, under a new name; its id is kept."""
    trace = trace_of(document)
    head, *lines, end = [json.loads(line) for line in log.write(trace).splitlines()]
    texts: dict[str, list[Any]] = {f"w{i}": [] for i in range(writers)}
    name: dict[int, tuple[str, int]] = {}
    for line in lines:
        writer = dice.choice(list(texts))
        name[line["n"]] = (writer, len(texts[writer]))
        line["id"] = trace.id_e[line["n"]]
        line["n"] = len(texts[writer])
        if "after" in line:
            line["after"] = [[kind, name[n][1], name[n][0]] for kind, n in line["after"]]
        texts[writer].append(line)
    segments = []
    for i, (writer, events) in enumerate(texts.items()):
        header = {
            "podium_log": (
                head["podium_log"] if i == 0 else {"version": 1, "trace_id": head["podium_log"]["trace_id"]}
            )
            | {"writer": writer}
        }
        closing = end if i == 0 else {"podium_end": {"events": len(events)}}
        segments.append(b"".join(written(x, 0) + b"\n" for x in [header, *events, closing]))
    dice.shuffle(segments)
    (one,) = log_reads(*segments)
    assert one.trace is not None
    assert [
        d for d in differences(one.trace, trace) if d not in ("src_x", "dst_x", "type_x", "inferred_x", "rule_x")
    ] == []
    edges = [
        sorted(zip(t.src_x.tolist(), t.dst_x.tolist(), t.type_x.tolist(), strict=True)) for t in (one.trace, trace)
    ]
    assert edges[0] == edges[1]


def test_a_cause_lost_with_its_writer_is_a_warning_and_marks_the_effect() -> None:
    dead, alive = (
        log_text({}, writer="a", closed=False),
        log_text(after(("return", 7, "a"), type="tool_result"), {}, writer="b"),
    )
    (one,) = log_reads(dead, alive)
    assert rules(one) == [("lost-cause", "warning")]
    assert one.trace is not None
    row = one.trace.id_e.strings().index("b.0")
    assert one.findings[0].row == row
    assert one.trace.truncated_e.tolist() == [int(i == row) or -1 for i in range(3)]


def test_a_cause_lost_by_its_own_writer_is_a_warning_too() -> None:
    (one,) = log_reads(log_text({}, after(("causal", 9), n=1), closed=False))
    assert rules(one) == [("lost-cause", "warning")]


@pytest.mark.parametrize("cause", [("causal", 7, "a"), ("causal", 0, "nobody"), ("causal", 7)])
def test_a_cause_that_was_never_there_is_an_error(cause: Any) -> None:
    (one,) = log_reads(log_text({}, writer="a"), log_text(after(cause), writer="b"))
    assert rules(one) == [("reference", "error")]


def test_writers_are_ordered_by_number() -> None:
    texts = [log_text({"t": 1}, writer=f"w{i}") for i in (10, 9, 1)]
    (one,) = log_reads(*texts)
    assert one.trace is not None
    assert one.trace.id_e.strings() == ["w1.0", "w9.0", "w10.0"]


@pytest.mark.parametrize(
    "writers", [("1", "a"), ("a1", "1a"), ("", "a"), ("²", "a"), ("٣", "3"), ("a", "a1b", "a1", "1")]
)
def test_writers_may_be_called_anything(writers: tuple[str, ...]) -> None:
    reads = log_reads(*(log_text({}, writer=w) for w in writers if w))
    assert all(r.trace is not None and r.findings == [] for r in reads)


def test_two_segments_of_one_writer_are_two_runs() -> None:
    reads = log_reads(log_text({}, writer="a"), log_text({}, writer="a"))
    assert [(r.findings, r.trace.n_events if r.trace else 0) for r in reads] == [([], 1), ([], 1)]


def test_two_events_of_one_name_are_an_error() -> None:
    (one,) = log_reads(log_text({"n": 0}, {"n": 0}))
    assert ("duplicate-id", "error") in rules(one)
    (one,) = log_reads(log_text({"id": "x"}, {"id": "x"}))
    assert ("duplicate-id", "error") in rules(one)
    (one,) = log_reads(log_text({}, {"id": "w0.0"}))
    assert ("duplicate-id", "error") in rules(one)


def test_numbers_may_have_gaps_and_come_in_any_order() -> None:
    (one,) = log_reads(log_text({"n": 7, "t": 3}, {"n": 2, "t": 0}, after(("causal", 7), n=5, t=4)))
    assert one.findings == []
    assert one.trace is not None
    assert one.trace.id_e.strings() == ["w0.2", "w0.7", "w0.5"]
    assert one.trace.src_x.tolist() == [1]


def test_a_context_may_be_named_by_writer_and_number_or_by_id() -> None:
    (one,) = log_reads(
        log_text(
            {"id": "mine", "podium": {"tokens": [1], "start": 0}},
            {"podium": {"context": "mine", "start": 1, "tokens": [2]}},
        ),
        log_text(
            {"t": 9, "podium": {"context": "w0.1", "start": 2}},
            {"t": 10, "podium": {"context": "w0.7"}},
            writer="w1",
        ),
    )
    assert rules(one) == [("reference", "error")]
    assert one.trace is not None
    assert one.trace.context_e.tolist() == [-1, 0, 1, -1]


# several runs, other versions, bad lines


def test_logs_may_be_concatenated() -> None:
    traces = [trace_of(made(s, 5)) for s in range(4)]
    assert len({t.trace_id_n[0] for t in traces} - {None}) >= 3
    named = [t for t in traces if t.trace_id_n[0] is not None]
    assert differences(restored(b"".join(map(log.write, named))), concat(named)) == []


def test_a_newer_version_is_refused_by_name() -> None:
    text = log_text({}).replace(b'"version": 1', b'"version": 2')
    (one,) = log_reads(text)
    assert one.trace is None
    assert any("version 2" in f.message for f in one.findings)


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"{",
        b"[]",
        b"7",
        b'{"n":9}',
        b'{"n":-1,"t":0,"type":"message","agent":"a"}',
        b'{"n":1.5,"t":0,"type":"message","agent":"a"}',
        b'{"n":9,"t":0,"type":"dance","agent":"a"}',
        b'{"n":9,"t":0,"type":"message","agent":""}',
        b'{"n":9,"t":0,"type":"message","agent":"a","id":""}',
        b'{"n":9,"t":0,"type":"message","agent":"a","after":[]}',
        b'{"n":9,"t":0,"type":"message","agent":"a","after":[["dance",0]]}',
        b'{"n":9,"t":0,"type":"message","agent":"a","after":[["causal",-1]]}',
        b'{"n":9,"t":0,"type":"message","agent":"a","after":[["causal"]]}',
        b'{"n":9,"t":0,"type":"message","agent":"a","after":{}}',
        b'{"n":9,"t":0,"type":"message","agent":"a","also":{"t":1}}',
        b'{"n":9,"t":0,"type":"message","agent":"a","podium":{"votes":[{"weight":1}]}}',
        b'{"n":9,"t":0,"type":"message","agent":"a","podium":{"tokens":[]}}',
        b'{"n":9,"t":0,"type":"message","agent":"a","podium":{"context":""}}',
        b'{"n":9,"t":0,"type":"message","agent":"a","podium":{"options":[1]}}',
        b'{"n":9,"t":0,"type":"message","agent":"a\xff"}',
        b'{"n":9,"t":0,"type":"message","agent":"a","x":"\xff"}',
        b'{"podium_end":{"events":-1}}',
        b'{"podium_end":{"events":2,"what":1}}',
        b'{"podium_log":{"version":1}}',
        b"\x00",
        b"[" * 100_000,
        b'{"n":9,"t":0,"type":"message","agent":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_bad_line_in_the_middle_is_told_by_its_number(line: bytes) -> None:
    lines = log_text({}, {}, {}).splitlines(keepends=True)
    lines.insert(3, line + b"\n")
    reads = log_reads(b"".join(lines))
    found = [f for r in reads for f in r.findings]
    assert [f for f in found if f.rule == "schema" and f.level == "error" and "line 4" in f.message], found


def test_every_bad_line_is_told() -> None:
    text = log_text({}, {}, {}, {}).splitlines(keepends=True)
    text[2], text[4] = b"bad\n", b"{}\n"
    (one,) = log_reads(b"".join(text))
    assert [f.message.split(":")[0] for f in one.findings] == ["line 3", "line 5"]


def test_a_log_without_events_is_told_so() -> None:
    (one,) = log_reads(log_text())
    assert rules(one) == [("empty-run", "warning")]
    (one,) = log_reads(log_text(closed=False))
    assert rules(one) == [("empty-run", "warning")]


def test_blank_lines_and_carriage_returns_do_no_harm() -> None:
    text = log_text({}, {"x": {"a": 1}}, {})
    want = restored(text)
    for other in (
        text.replace(b"\n", b"\r\n"),
        text.replace(b"\n", b"\n\n"),
        b"\n \n" + text,
        text.replace(b"\n", b" \t\n"),
    ):
        (one,) = log_reads(other)
        assert one.findings == []
        assert one.trace is not None
        assert differences(one.trace, want) == []


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_blocks_of_any_size_give_the_same(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [trace_of(made(s, 12)) for s in (1, 2)]
    (path := tmp_path / "a.jsonl").write_bytes(b"".join(map(log.write, traces)))
    monkeypatch.setattr(log, "BLOCK", block)
    assert differences(concat([r.trace for r in files.read(path) if r.trace is not None]), concat(traces)) == []


def test_what_the_check_leaves_out_changes_no_finding(tmp_path: Path) -> None:
    for seed in range(12):
        (path := tmp_path / "a.jsonl").write_bytes(log.write(trace_of(made(seed, 12))))
        (one,) = files.read(path)
        assert list(files.check_paths(path)) == one.findings


@pytest.mark.parametrize("field", ["content_ref", "role", "model", "version", "random"])
@pytest.mark.parametrize("value", [b"7", b'"\xff"', b'"\\ud800"', b"nul"])
def test_what_the_check_leaves_out_is_still_checked(field: str, value: bytes, tmp_path: Path) -> None:
    inside = field in ("model", "version", "random")
    member = b'"%s":%s' % (field.encode(), value)
    line = b'{"n":1,"t":1,"type":"message","agent":"a",%s}\n' % (b'"podium":{%s}' % member if inside else member)
    (path := tmp_path / "a.jsonl").write_bytes(log_text({}, closed=False) + line)
    (one,) = files.read(path)
    assert [(f.rule, f.level) for f in files.check_paths(path)] == rules(one)
    assert (rules(one) == [("schema", "error")]) == (not (field == "random" and value == b"7"))


def test_a_log_with_nothing_recorded_but_events_has_absent_columns() -> None:
    trace = restored(log_text({}, {}))
    assert np.isnan(trace.end_e).all()
    assert trace.task_id_n[0] is None
    assert trace.cost_n == {}
    assert differences(restored(log.write(trace)), trace) == []


def test_dictionaries_are_shared_among_segments() -> None:
    words = LOG_EVENTS.dictionaries()
    segments = list(log.read_segments(iter(three_writers()), "f", LOG_EVENTS, words))
    assert all(s.words is words for s in segments)
