"""Every file of ../shared/data/logs: what an importer reads obeys the laws, counted again from its survey JSON by
nothing but json; what nobody reads gets one line. And real sessions read twice, or beside a prefix of themselves,
are the same sessions."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from foreign import LOGS, here
from making import SURVEY

from podium.trace import files, survey
from podium.trace.findings import Unreadable

NO_RUNS = ("EXPECTED.json", "INDEX.json", "LICENSE", "annotations", "README")


def plain_laws(document: dict[str, Any]) -> list[str]:
    """What is broken of: an effect begins when its cause has ended, T∞ ≤ busy time ≤ wall clock."""
    begun = {e["id"]: e["t"] for e in document["events"] if "t" not in e.get("podium", {}).get("absent", ())}
    ended = {
        e["id"]: max(e["t"], e.get("podium", {}).get("end", e["t"])) for e in document["events"] if e["id"] in begun
    }
    edges = [(x["src"], x["dst"]) for x in document["edges"] if x["type"] != "temporal"]
    timed = [(a, b) for a, b in edges if a in begun and b in begun]
    broken = [f"{b} begins before its cause {a} ends" for a, b in timed if ended[a] > begun[b] + 1e-6]
    done: dict[str, float] = {}
    causes: dict[str, list[str]] = {}
    for a, b in timed:
        causes.setdefault(b, []).append(a)
    for event in document["events"]:  # causes come first
        if (id := event["id"]) in begun:
            done[id] = ended[id] - begun[id] + max((done.get(a, 0.0) for a in causes.get(id, ())), default=0.0)
    busy, until = 0.0, float("-inf")
    for start, stop in sorted((begun[id], ended[id]) for id in begun):
        busy += max(0.0, stop - max(start, until))
        until = max(until, stop)
    wall = max(ended.values(), default=0.0) - min(begun.values(), default=0.0)
    if max(done.values(), default=0.0) > busy + 1e-6 or busy > wall + 1e-6:
        broken.append(f"T∞ {max(done.values()):g}, busy {busy:g}, wall clock {wall:g}")
    return broken


def paths(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (LOGS / folder).rglob("*") if p.is_file())


@here
@pytest.mark.parametrize(
    "folder",
    [
        "claude_code",
        "claude_code_old",
        "codex",
        "frameworks",
        "otel",
        "deerflow",
        "trail",
        "whowhen",
        "inspect",
        "copilot_cli",
        "tau_bench",
    ],
)
def test_every_log_obeys_the_laws_or_gets_one_line(folder: str) -> None:
    schema = jsonschema.Draft202012Validator(json.loads((SURVEY / "trace_schema.json").read_text()))
    runs = 0
    for path in paths(folder):
        reads = attempt(path)
        assert not [f for read in reads for f in read.findings if f.level == "error"], path
        for trace in (read.trace for read in reads if read.trace is not None):
            runs += 1
            assert not any(name in str(path) for name in NO_RUNS)
            document = json.loads(survey.write(trace))
            schema.validate(document)
            assert plain_laws(document) == [], path
    assert runs or folder == "otel"


def attempt(path: Path) -> list[files.Read]:
    """What is read of a file; nothing, where that is told in one line."""
    try:
        return list(files.read(path))
    except Unreadable as error:
        line = str(error)
    assert "\n" not in line
    assert "looks like" in line
    return []


@here
@pytest.mark.parametrize("name", ["15f99783", "3ae3ab59", "70fc6d83"])
def test_a_session_twice_or_beside_a_prefix_of_itself_is_the_same(name: str, tmp_path: Path) -> None:
    [path] = (LOGS / "claude_code").glob(f"{name}*")
    lines = lzma.decompress(path.read_bytes()).splitlines(True)
    stem = path.name.removesuffix(".xz")
    [alone] = files.read(path)
    assert alone.trace is not None
    for i, part in enumerate((lines, lines[: len(lines) // 2])):
        folder = tmp_path / str(i)
        (folder / "copy").mkdir(parents=True)
        (folder / stem).write_bytes(b"".join(lines))
        (folder / "copy" / stem).write_bytes(b"".join(part))
        [read] = [one for one in files.read(folder) if one.trace is not None]
        assert read.trace is not None
        assert survey.write(read.trace) == survey.write(alone.trace)
