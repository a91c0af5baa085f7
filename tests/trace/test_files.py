"""Files: any input gives an answer or a clear error, never a traceback or a hang; what is written is whole."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import random
import re
import socket
import stat
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import log_text, made, same, trace_of, written

from podium.trace import files, log, scan, survey
from podium.trace.columns import Text, Trace, concat, differences
from podium.trace.findings import BadTrace, Finding, Unreadable


@pytest.fixture(params=["fast", "plain"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "fast" and not scan.FAST:
        pytest.skip("the C module is not built")
    if request.param == "plain":
        monkeypatch.setattr(scan, "FAST", False)
        monkeypatch.setattr(survey, "_plain", lambda data: None)


def answer(path: Path | str) -> str | list[Finding]:
    """What is wrong with a file: why it cannot be read, or the findings. Anything else is a failure."""
    why = ""
    try:
        found = [f for one in files.read(path) for f in one.findings]
    except Unreadable as error:
        why = error.why
        found = None
    if found is None:
        assert why
        assert not re.search(r"[a-z]Error|Traceback", why), "a sentence, not the name of an exception"
        return why
    for f in found:
        assert f.message
        assert isinstance(f.file, str)
        json.dumps([f.row, f.rule, f.level, f.message])
    return found


def given_bytes(folder: Path, data: bytes, name: str = "a.json") -> str | list[Finding]:
    (folder / name).write_bytes(data)
    return answer(folder / name)


GOOD = written(made(1, 6, plain=True), 0)
EVENT = b'{"id":"e","t":0,"type":"message","agent":"a"}'


def with_event(more: bytes, count: int = 1) -> bytes:
    events = b",".join(EVENT.replace(b'"e"', b'"e%d"' % i)[:-1] + more + b"}" for i in range(count))
    return (
        b'{"trace_id":"r","task_id":"t","events":['
        + events
        + b'],"edges":[],"rewards":{},"costs":{"tokens":0,"wall_clock_s":0}}'
    )


# what is not a trace at all

NOT_TRACES: dict[str, bytes] = {
    "empty": b"",
    "spaces": b" \n\t \r\n",
    "many spaces": b" " * (1 << 17),
    "more spaces": b"\n" * (3 << 20),
    "NUL": b"\x00",
    "NULs": b"\x00" * 5000,
    "a word": b"hello",
    "half a document": GOOD[: len(GOOD) // 2],
    "all but its end": GOOD[:-1],
    "something after it": GOOD + b"x",
    "a vertical tab after it": GOOD + b"\x0b",
    "two on one line": GOOD + GOOD,
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-32": GOOD.decode().encode("utf-32"),
    "Latin-1": with_event(b',"role":"\xe9"'),
    "bad UTF-8 in a key": with_event(b',"\xff":1'),
    "bad UTF-8 in a value": with_event(b',"x":"\xc3"'),
    "bad UTF-8 deep in a value": with_event(b',"x":[{"y":"\xff"}]'),
    "bad UTF-8 in the head": GOOD.replace(b'"run 1"', b'"\xff"'),
    "bad UTF-8 in a key of the head": GOOD.replace(b'"task_id"', b'"task\xff"'),
    "bad UTF-8 in a reward": GOOD.replace(b'"rewards":{}', b'"rewards":{"\xff":1}'),
    "surrogate in UTF-8": with_event(b',"role":"\xed\xa0\x80"'),
    "lone surrogate": with_event(b',"role":"\\ud800"'),
    "lone surrogate, unknown": with_event(b',"x":"\\ud800"'),
    "lone surrogate in the head": GOOD.replace(b'"run 1"', b'"\\udfff"'),
    "NaN": with_event(b',"podium":{"end":NaN}'),
    "NaN, unknown": with_event(b',"x":NaN'),
    "Infinity": with_event(b',"podium":{"cost":-Infinity}'),
    "NaN in a reward": GOOD.replace(b'"rewards":{}', b'"rewards":{"a":NaN}'),
    "NUL in a string": with_event(b',"role":"a\x00b"'),
    "deep in an unknown field": with_event(b',"x":' + b"[" * 100_000 + b"]" * 100_000),
    "deep in the head": GOOD.replace(b'"rewards":{}', b'"rewards":' + b"[" * 100_000 + b"]" * 100_000),
    "deep in options": with_event(b',"podium":{"options":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep in random": with_event(b',"podium":{"random":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep in votes": with_event(b',"podium":{"votes":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "single quotes": GOOD.replace(b'"', b"'"),
    "a comma too many": GOOD[:-1] + b",}",
    "a comment": b"// a trace\n" + GOOD,
    "fields that nobody knows": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a picture": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)) * 40,
    "a zip": b"PK\x03\x04" + bytes(range(256)) * 40,
    "a program": b"\x7fELF" + bytes(range(256)) * 40,
    "YAML": b"trace_id: r\nevents:\n  - id: e1\n",
    "CSV": b"id,t,type\ne1,0,spawn\n",
    "half a gzip header": b"\x1f\x8b",
    "a gzip of nothing": gzip.compress(b""),
    "half a gzip": gzip.compress(GOOD)[:-20],
    "gzip with a broken middle": gzip.compress(GOOD)[:40] + b"\xff" * 40 + gzip.compress(GOOD)[80:],
    "gzip and rubbish": gzip.compress(GOOD) + b"rubbish",
    "half an xz": lzma.compress(GOOD)[:-20],
    "half an xz header": b"\xfd7zXZ\x00",
    "an xz with a broken middle": lzma.compress(GOOD)[:60] + b"\x00" * 30 + lzma.compress(GOOD)[90:],
    "half a zst header": b"\x28\xb5\x2f\xfd",
    "a zst of rubbish": b"\x28\xb5\x2f\xfd" + bytes(range(100)),
    "JSON lines, the second bad": GOOD + b"\n{bad}\n",
    "JSON lines, the second torn": GOOD + b"\n" + GOOD[:-5],
}


@pytest.mark.parametrize("what", NOT_TRACES)
def test_what_is_not_a_trace_is_unreadable(what: str, tmp_path: Path, way: None) -> None:
    why = given_bytes(tmp_path, NOT_TRACES[what])
    assert isinstance(why, str), why
    assert len(why) < 300
    with pytest.raises(Unreadable):
        files.load(tmp_path / "a.json")


# JSON that is no document of the schema

WRONG: dict[str, bytes] = {
    "null": b"null",
    "true": b"true",
    "a number": b"17",
    "a string": b'"trace"',
    "a list": b"[]",
    "a list of documents": b"[" + GOOD + b"]",
    "an empty object": b"{}",
    "deep": b"[" * 100_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "1e400": with_event(b',"podium":{"cost":1e400}'),
    "1e400 as time": with_event(b"").replace(b'"t":0', b'"t":1e400'),
    "a huge whole number as time": with_event(b"").replace(b'"t":0', b'"t":-' + b"9" * 5000),
    "a huge number of digits": with_event(b"").replace(b'"t":0', b'"t":' + b"9" * 400),
    "a huge count": with_event(b',"podium":{"stage":' + b"9" * 5000 + b"}"),
    "a huge token": with_event(b',"podium":{"tokens":[18446744073709551616]}'),
    "null for a string": with_event(b',"role":null'),
    "null for an extension": with_event(b',"podium":null'),
    "a list for an event": GOOD.replace(b'"events":[', b'"events":[[],'),
    "events as an object": GOOD.replace(b'"events":[', b'"events":{},"events_":['),
    "an unknown field at the top": GOOD[:-1] + b',"more":1}',
    "no costs": GOOD.replace(b'"costs"', b'"cost"'),
    "1.5 tokens": with_event(b',"podium":{"tokens":[1.5]}'),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_of_the_schema_has_findings(what: str, tmp_path: Path, way: None) -> None:
    found = given_bytes(tmp_path, WRONG[what])
    assert isinstance(found, list), found
    assert {f.rule for f in found} == {"schema"}
    with pytest.raises(BadTrace, match="schema"):
        files.load(tmp_path / "a.json")


# what is odd but a trace

ODD: dict[str, bytes] = {
    "carriage returns": written(made(1, 6, plain=True), 10),
    "spaces around it": b"\n\n  " + GOOD + b"\r\n\t",
    "many spaces before it": b" " * (1 << 17) + GOOD,
    "keys twice": GOOD[:-1] + b',"trace_id":"again"}',
    "events twice": GOOD[:-1] + b',"events":[' + EVENT + b'],"edges":[]}',
    "an unknown field twice": with_event(b',"x":1,"x":2'),
    "a huge number, unknown": with_event(b',"x":' + b"9" * 5000),
    "1e400, unknown": with_event(b',"x":1e400'),
    "an escaped NUL": with_event(b',"x":"\\u0000","role":"\\u0000"'),
    "an emoji in halves": with_event(b',"x":"\\ud83d\\ude00","role":"\\ud83d\\ude00"'),
    "a long string": with_event(b',"role":"' + b"x" * (1 << 20) + b'"'),
    "nested a little": with_event(b',"x":' + b"[" * 300 + b"]" * 300),
    "gzip, twice": gzip.compress(GOOD[:50]) + gzip.compress(GOOD[50:]),
    "an odd name": with_event(b',"\\u0000":1,"\\n":2,"' + b"k" * 1000 + b'":3'),
    "time zero, negative": with_event(b"").replace(b'"t":0', b'"t":-0.0'),
    "a large time": with_event(b"").replace(b'"t":0', b'"t":1e300'),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_odd_is_read_and_written_back(what: str, tmp_path: Path, way: None) -> None:
    found = given_bytes(tmp_path, ODD[what])
    assert isinstance(found, list), found
    assert [f for f in found if f.level == "error"] == []
    trace = files.load(tmp_path / "a.json")
    text = gzip.decompress(ODD[what]) if what.startswith("gzip") else ODD[what]
    if "huge" not in what:
        assert same(json.loads(survey.write(trace)), json.loads(text))
    files.save(trace, tmp_path / "b.json")
    files.save(trace, tmp_path / "b.jsonl")
    assert differences(files.load(tmp_path / "b.json"), trace) == []
    assert differences(files.load(tmp_path / "b.jsonl"), trace) == []


# compressed files

PACKED = {".gz": gzip.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_compressed_files_are_read_as_they_are(suffix: str, name: str, tmp_path: Path) -> None:
    if suffix == ".zst":
        pytest.importorskip("pyarrow")
    trace = trace_of(made(3, 40))
    files.save(trace, tmp_path / (name + suffix))
    assert differences(files.load(tmp_path / (name + suffix)), trace) == []
    os.rename(tmp_path / (name + suffix), tmp_path / name)  # by what is in it, not by its name
    assert differences(files.load(tmp_path / name), trace) == []


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_an_archive_cut_anywhere_is_told(suffix: str, name: str, tmp_path: Path) -> None:
    if suffix == ".zst":
        pytest.importorskip("pyarrow")
    files.save(trace_of(made(3, 60)), path := tmp_path / (name + suffix))
    data = path.read_bytes()
    for cut in [*range(0, 40), *range(40, len(data), 97), *range(len(data) - 12, len(data))]:
        found = given_bytes(tmp_path, data[:cut], path.name)
        assert isinstance(found, str) or any(f.level == "error" for f in found), cut


LINE = b'{"type":"user","uuid":"a","sessionId":"s","timestamp":"2026-01-01T00:00:00Z","message":{"content":"hi"}}\n'


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".zip"])
@pytest.mark.parametrize(
    "data",
    [b'{"trace_id": "a", "topology": "swarm", "events": [], "x": "' + b"x" * (4 << 20), LINE * (1 << 16)],
    ids=["ours", "foreign"],
)
def test_a_little_that_would_unpack_to_a_lot(
    data: bytes, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_UNPACKED", 1 << 20)
    path = tmp_path / f"run.jsonl{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("run.jsonl", data)
    else:
        path.write_bytes(files._packed(path.name, data))
    try:
        answers = [finding.message for one in files.read(path) for finding in one.findings]
    except Unreadable as error:
        answers = [str(error)]
    refused = re.compile(r"unpacks to more than 100 times its size, \d MiB.*; unpack it yourself")
    assert any(map(refused.search, answers)), answers


def test_a_bomb_is_not_unpacked_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    assert isinstance(given_bytes(tmp_path, gzip.compress(b'{"x":"' + b" " * (4 << 20))), str)
    assert isinstance(given_bytes(tmp_path, gzip.compress(b" " * (8 << 20))), str)


# places


def test_a_path_that_does_not_exist() -> None:
    assert answer("/no/such/file.json") == "No such file or directory"


@pytest.mark.parametrize("path", ["", "a\x00b", "x" * 5000, "\udcff", "/dev/null", "/proc/self/mem"])
def test_odd_paths(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(answer(path), str)


def test_an_empty_folder(tmp_path: Path) -> None:
    why = answer(tmp_path)
    assert isinstance(why, str)
    assert "a folder without traces" in why


def test_a_folder_where_a_file_should_be(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    assert isinstance(answer(tmp_path / "a.json"), str)
    with pytest.raises(Unreadable):
        files.save(trace_of(made(0, 2)), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(GOOD)
    (tmp_path / "a.json").chmod(0)
    assert answer(tmp_path / "a.json") == "Permission denied"


def test_what_the_system_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_bytes(GOOD)

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "_patient", refuse)
    assert answer(tmp_path / "a.json") == "Permission denied"


def test_a_socket_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("sock.json")
        assert answer("sock.json") == "not a file, a pipe or a folder"


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to(tmp_path / "a.json")
    assert isinstance(answer(tmp_path / "a.json"), str)
    assert isinstance(answer(tmp_path), str)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "b.json").write_bytes(GOOD)
    assert answer(tmp_path) == []


# pipes


def test_a_pipe_that_nobody_writes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIPE_PATIENCE_S", 0.1)
    os.mkfifo(tmp_path / "pipe.json")
    why = answer(tmp_path / "pipe.json")
    assert isinstance(why, str)
    assert "pipe" in why


def test_a_pipe_that_is_opened_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIPE_PATIENCE_S", 0.2)
    os.mkfifo(path := tmp_path / "pipe.json")
    held = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert isinstance(answer(path), str)
        os.write(held, GOOD[:40])  # begins, and never goes on
        assert isinstance(answer(path), str)
    finally:
        os.close(held)


@pytest.mark.parametrize(
    "data",
    [GOOD, log_text({}, {}), gzip.compress(GOOD), b"", b"  \n" + GOOD],
    ids=["doc", "log", "gz", "empty", "late"],
)
def test_a_pipe_with_a_writer(tmp_path: Path, data: bytes) -> None:
    os.mkfifo(path := tmp_path / "pipe.json")

    def feed() -> None:
        with open(path, "wb", buffering=0) as f:
            for i in range(0, len(data), 100):
                f.write(data[i : i + 100])
                if i < 500:
                    time.sleep(0.01)

    writer = threading.Thread(target=feed)
    writer.start()
    found = answer(path)
    writer.join()
    assert found == [] if data else isinstance(found, str)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, GOOD)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        assert answer("-") == []


# large things


@pytest.mark.parametrize("fill", [b" ", b"x", b"[", b'{"a":', b"9", b"\x00", b"\xff", b"\n", b'"', b"\\"])
def test_a_line_of_20_megabytes(fill: bytes, tmp_path: Path) -> None:
    line = fill * (20_000_000 // len(fill))
    for text in (line, b'{"podium_log":' + line, log_text({}, closed=False) + line):
        found = given_bytes(tmp_path, text)
        assert isinstance(found, str) or found or fill in b" \n"


def test_a_long_value_is_read(tmp_path: Path) -> None:
    assert given_bytes(tmp_path, with_event(b',"x":"' + b"x" * 20_000_000 + b'"')) == []
    assert given_bytes(tmp_path, log_text({"x": "x" * 20_000_000}), "a.jsonl") == []


def test_an_event_with_very_many_unknown_fields(tmp_path: Path, way: None) -> None:
    many = b"".join(b',"k%d":%d' % (i, i) for i in range(200_000))
    found = given_bytes(tmp_path, with_event(many))
    assert isinstance(found, list)
    assert [f.rule for f in found] == ["schema"]
    many = b"".join(b',"k%d":%d' % (i, i) for i in range(5000))
    assert given_bytes(tmp_path, with_event(many)) == []


def test_very_many_events_each_with_another_unknown_field(tmp_path: Path, way: None) -> None:
    events = b",".join(b'{"id":"e%d","t":0,"type":"message","agent":"a","k%d":1}' % (i, i) for i in range(30_000))
    text = (
        b'{"trace_id":"r","task_id":"t","events":['
        + events
        + b'],"edges":[],"rewards":{},"costs":{"tokens":0,"wall_clock_s":0}}'
    )
    found = given_bytes(tmp_path, text)
    assert isinstance(found, str) or (found and found[0].rule == "schema"), (
        "columns for all of these would fill the memory"
    )
    assert "unknown fields" in (found if isinstance(found, str) else found[0].message)
    log_ = log_text(*({f"k{i}": 1} for i in range(30_000)))
    found = given_bytes(tmp_path, log_, "a.jsonl")
    assert isinstance(found, str) or (found and found[0].rule == "schema")


def test_very_many_channels(tmp_path: Path) -> None:
    events = b",".join(
        b'{"id":"e%d","t":0,"type":"message","agent":"a","podium":{"rewards":{"k%d":1}}}' % (i, i)
        for i in range(20_000)
    )
    text = (
        b'{"trace_id":"r","task_id":"t","events":['
        + events
        + b'],"edges":[],"rewards":{},"costs":{"tokens":0,"wall_clock_s":0}}'
    )
    found = given_bytes(tmp_path, text)
    assert isinstance(found, str) or (found and found[0].rule == "schema"), (
        "columns for all of these would fill the memory"
    )


def test_a_long_cycle_and_a_long_chain(tmp_path: Path) -> None:
    n = 20_000
    document = json.loads(with_event(b"", n))
    document["edges"] = [{"src": f"e{i}", "dst": f"e{(i + 1) % n}", "type": "causal"} for i in range(n)]
    found = given_bytes(tmp_path, written(document, 0))
    assert isinstance(found, list)
    assert {f.rule for f in found} == {"cycle"}
    document["edges"].pop()
    document["events"].reverse()
    assert given_bytes(tmp_path, written(document, 0)) == []


# anything at all


@settings(max_examples=150)
@given(st.binary(max_size=300))
@example(b'{"podium_log":')
@example(b'{"podium_log":{}}')
@example(b'{"podium_log":{"version":1,"trace_id":"r","writer":"w"}}\n\x00')
@example(b'{"podium_log":{"version":-1,"trace_id":"r","writer":"w"}}\n{}')
@example(b'{"podium_log":1}\n{"podium_end":1}')
@example(b'{"podium_end":{"events":0}}')
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    for name in ("a.json", "a.jsonl"):
        found = given_bytes(tmp_path, data, name)
        assert found


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.booleans())
def test_a_file_with_a_few_bytes_changed(tmp_path: Path, seed: int, as_log: bool) -> None:
    dice = random.Random(seed)
    trace = trace_of(made(seed, 5))
    data = bytearray(log.write(trace) if as_log else survey.write(trace))
    for _ in range(dice.randint(1, 4)):
        data[dice.randrange(len(data))] = dice.choice([dice.randrange(256), *b'"{}[],:\\\n0'])
    given_bytes(tmp_path, bytes(data))


@settings(max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=8,
    )
)
def test_any_json(tmp_path: Path, value: Any) -> None:
    document = made(0, 2)
    document["events"][0]["podium"] = value
    for text in (value, document, document | {"costs": value}, document | {"edges": value}):
        given_bytes(tmp_path, json.dumps(text).encode())


def test_the_check_and_the_reader_find_the_same(tmp_path: Path) -> None:
    for i, data in enumerate([GOOD, *WRONG.values(), *ODD.values()]):
        (path := tmp_path / f"{i}.json").write_bytes(data)
        assert list(files.check_paths(path)) == answer(path)


# saving


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(made(2, 5))
    files.save(trace, tmp_path / "a.json")
    before = (tmp_path / "a.json").read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(Unreadable, match="No space left"):
        files.save(trace_of(made(3, 5)), tmp_path / "a.json")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_bytes() == before


def test_what_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    trace = Trace.of(
        trace_id_n=Text.of(["r"]),
        task_id_n=Text.of(["t"]),
        rollout_a=[0],
        name_a=Text.of(["a"]),
        t_e=[np.inf],
        type_e=[3],
        agent_e=[0],
    )
    for name in ("a.json", "a.jsonl", "a.json.gz"):
        with pytest.raises(ValueError, match="infinite"):
            files.save(trace, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "a.txt", "a.csv", "a.gz", "a.json.bz2", ".json.txt"])
def test_a_name_that_says_no_form(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"\.json, \.jsonl, \.store or /"):
        files.save(trace_of(made(0, 1)), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_many_runs_do_not_fit_in_one_document(tmp_path: Path) -> None:
    batch = concat([trace_of(made(s, 2)) for s in range(3)])
    with pytest.raises(Unreadable, match="holds one run"):
        files.save(batch, tmp_path / "a.json")
    files.save(batch, tmp_path / "a.jsonl")
    files.save(batch, f"{tmp_path}/folder/")
    assert differences(files.load(tmp_path / "folder"), batch) == []
    with pytest.raises(Unreadable, match="not empty"):
        files.save(batch, f"{tmp_path}/folder/")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="No such file"):
        files.save(trace_of(made(0, 1)), tmp_path / "no" / "a.json")


def test_saved_files_may_be_read_by_others(tmp_path: Path) -> None:
    files.save(trace_of(made(0, 1)), tmp_path / "a.json")
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) & 0o044 == 0o044


def test_load_raises_what_is_wrong_and_returns_what_is_right(tmp_path: Path) -> None:
    document = made(4, 8, plain=True)
    (tmp_path / "a.json").write_bytes(written(document, 0))
    assert differences(files.load(tmp_path / "a.json"), trace_of(document)) == []
    document["edges"].append({"src": "nobody", "dst": document["events"][0]["id"], "type": "causal"})
    (tmp_path / "a.json").write_bytes(written(document, 0))
    with pytest.raises(BadTrace, match="nobody"):
        files.load(tmp_path / "a.json")
    assert files.load() == Trace.of()
