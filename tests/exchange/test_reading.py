from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import pytest
from verbs import verb

from podium.exchange.reading import Source, looks_like
from podium.registry import facts, names
from podium.trace import files
from podium.trace.findings import Unreadable
from tests.exchange import sessions


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (path := tmp_path / "5e55.jsonl").write_bytes(sessions.simple().data())
    return path


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b'{"name": "x", "items": [{"a": 1}]}', "JSON with the fields name, items;"),
        (b'[{"name": "x"}, {"b": 1}]', "an array of JSON with the fields name;"),
        (b'{"a": 1}\n{"a": 2}\n', "JSON lines with the fields a;"),
        (b"MIT License\n\nCopyright", "text, 'MIT License';"),
        (b"\x89PNG\x00\x01", "binary data;"),
        (b"", "an empty file;"),
    ],
)
def test_what_nobody_knows_looks_like(start: bytes, what: str) -> None:
    said = looks_like(start)
    assert f"it looks like {what}" in said
    assert "Claude Code" in said  # what is read
    assert "\n" not in said


@pytest.mark.parametrize("name", ["notes.json", "LICENSE", "picture.png"])
def test_a_file_that_nobody_knows_gets_one_line(tmp_path: Path, name: str) -> None:
    content = {
        "notes.json": b'{"repo": "x", "runs": 3}',
        "LICENSE": b"MIT License\n",
        "picture.png": b"\x89PNG\x00" * 9,
    }[name]
    (tmp_path / name).write_bytes(content)
    for words in (["show"], ["check"], ["audit"], ["import", "-o", str(tmp_path / "out")]):
        answer = verb(*words, str(tmp_path / name))
        assert answer.returncode == 2, words
        assert answer.stderr.count("\n") == 1, words
        assert "not a log that Podium knows: it looks like" in answer.stderr
        assert "Traceback" not in answer.stderr


def test_verbs_read_logs_on_the_fly(log: Path, tmp_path: Path) -> None:
    for words in (["show"], ["check"], ["metrics"], ["audit"], ["store", "add", str(tmp_path / "a.store")]):
        answer = verb(*words, str(log))
        assert answer.returncode == 0, (words, answer.stderr)
    assert json.loads(verb("show", "--json", str(log)).stdout)["lead"] == "main"


def test_a_log_through_a_pipe(log: Path) -> None:
    answer = verb("check", "-", stdin=log.read_bytes())
    assert (answer.returncode, answer.stdout) == (0, "clean\n")


def test_import_keeps_the_result(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = json.loads(verb("import", str(log), "-o", str(out), "--json").stdout)
    assert (told["ok"], told["runs"], told["findings"]) == (True, 1, [])
    assert [p.name for p in out.iterdir()] == ["5e55.jsonl"]
    before = (out / "5e55.jsonl").read_bytes()
    assert b"fix the bug" not in before
    assert verb("import", str(log), "-o", str(out)).returncode == 0
    assert (out / "5e55.jsonl").read_bytes() == before
    assert files.load(out) == files.load(log)
    assert verb("import", "--content", str(log), "-o", str(out)).returncode == 0
    assert b"fix the bug" in (out / "5e55.jsonl").read_bytes()


def test_paths_that_hold_one_session_twice_are_one_run(log: Path, tmp_path: Path) -> None:
    (prefix := tmp_path / "copy" / "prefix.jsonl").parent.mkdir()
    prefix.write_bytes(b"".join(log.read_bytes().splitlines(True)[:4]))
    with zipfile.ZipFile(archive := tmp_path / "copy.zip", "w") as packed:
        packed.write(log, "session.jsonl")
    out = tmp_path / "out"
    for paths in ([log, log], [log, prefix], [prefix, archive], [tmp_path, log, prefix.parent]):
        answer = json.loads(verb("import", *paths, "-o", out, "--json").stdout)
        assert (answer["runs"], answer["events"]) == (1, 9)
        for path in out.iterdir():
            path.unlink()
    out.rmdir()
    (notes := tmp_path / "notes.txt").write_text("nothing")
    assert verb("import", log, notes, "-o", out).returncode == 1  # what was named and is no log


def test_an_archive_that_cannot_be_unpacked_here_gets_one_line(log: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(path := tmp_path / "two.zip", "w") as archive:
        archive.write(log, "a.jsonl")
        archive.write(log, "b.jsonl")
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):  # the method of both members: none that is known
        at = -1
        for _ in range(2):
            at = data.index(mark, at + 1)
            data[at + place : at + place + 2] = (94).to_bytes(2, "little")
    path.write_bytes(bytes(data))
    answer = verb("show", path)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "cannot be unpacked here" in answer.stderr


def test_the_exit_status_of_an_import_says_that_something_was_not_read(log: Path, tmp_path: Path) -> None:
    with log.open("ab") as file:
        file.write(b'{"type": "user", "uu')
    answer = verb("import", str(log), "-o", str(tmp_path / "out"))
    assert answer.returncode == 1
    assert "5e55.jsonl:10: warning: a torn line" in answer.stdout
    assert "1 run, 9 events, 1 fault" in answer.stdout
    assert verb("check", str(log)).returncode == 0  # not an error of the trace


def test_a_folder_of_logs_our_own_traces_and_other_things(log: Path, tmp_path: Path) -> None:
    files.save(files.load(log), tmp_path / "own.json")
    (tmp_path / "more.jsonl.gz").write_bytes(
        gzip.compress(sessions.notified().data().replace(b"5e55", b"other").replace(b'"u-', b'"v-'))
    )
    (tmp_path / "LICENSE").write_bytes(b"MIT License\n")
    (tmp_path / "INDEX.json").write_bytes(b'[{"repo": "x"}]')
    reads = list(files.read(tmp_path))
    assert sorted(Path(r.file).name for r in reads if r.trace is not None) == [
        "5e55.jsonl",
        "more.jsonl.gz",
        "own.json",
    ]
    assert sorted(Path(r.file).name for r in reads if r.trace is None) == ["INDEX.json", "LICENSE"]
    assert len(files.load(tmp_path)) == 3


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_bytes(b"MIT License\n")
    with pytest.raises(Unreadable, match="a folder without traces"):
        files.load(tmp_path)


def test_a_damaged_archive_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + os.urandom(50))
    with pytest.raises(Unreadable, match="damaged archive"):
        files.load(tmp_path / "a.zip")


@pytest.mark.parametrize("name", names("importer"))
def test_every_importer_says_what_it_reads(name: str) -> None:
    about = facts("importer", name)
    assert about["title"]
    for start in (
        b"",
        b"{}",
        b"[]",
        b"\x00\xff",
        b'{"trace_id": "a", "events": []}',
        b"MIT License",
        b'{"a": ' * 5000,
    ):
        assert about["detect"](start, "file") == 0
        assert all(isinstance(key, str) for key in about["group"](start, "file")) if "group" in about else True


def test_a_member_packed_in_an_unknown_way_is_named_and_the_others_are_read(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(log, "good.jsonl")
        archive.write(log, "odd.jsonl")
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):  # the second member's method: unknown
        at = data.index(mark, data.index(mark) + 1) + place
        data[at : at + 2] = (94).to_bytes(2, "little")
    path.write_bytes(bytes(data))
    answer = verb("import", path, "-o", tmp_path / "out")
    assert answer.returncode == 1
    assert "1 run" in answer.stdout
    assert "odd.jsonl" in answer.stderr + answer.stdout
    assert "cannot be unpacked here" in answer.stderr + answer.stdout


def test_a_source_is_read_as_often_as_asked() -> None:
    source = Source("a", b"x", lambda: iter([b"x\n", b"y"]))
    assert (source.data(), source.data()) == (b"x\ny", b"x\ny")


def test_a_file_that_breaks_off_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    long = sessions.Log("long", prefix="l")
    for number in range(400):
        long.person(f"prompt {number} " + os.urandom(9000).hex())
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(long.data(), 1)[:-3000])
    (tmp_path / "5e55.jsonl").write_bytes(sessions.simple().data())
    reads = list(files.read(tmp_path))
    assert [r.trace.trace_id_n[0] for r in reads if r.trace is not None] == ["5e55", "long"]
    (said,) = [f for r in reads for f in r.findings if f.rule == "log-fault" and f.file.endswith("cut.jsonl.gz")]
    assert "a damaged or truncated archive" in said.message
    whole = next(r.trace for r in reads if r.trace is not None and r.trace.trace_id_n[0] == "long")
    assert 100 < whole.n_events < 400
