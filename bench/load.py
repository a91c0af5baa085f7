"""How fast a survey document becomes a checked trace, and in how much memory: `python -m bench.load [--full] [--json]`.

The comparison is what one would write without Podium: `json.loads` and a loop over the checks of the survey's own
published validator, which are fewer than ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import jsonschema

from bench.generate import trace
from bench.table import Row, at_least, at_most, best, calibration, command, exponent, fact
from podium.trace import scan, survey, wire
from podium.trace.files import read
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

__all__ = ["measure"]

PEAK = """
import os, sys
from podium.trace.files import read
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
reads = list(read(sys.argv[1]))
print((peak() - before) / os.path.getsize(sys.argv[1]))
"""


def by_hand(path: Path) -> None:
    """The checks of the published validator, in the plainest way: required fields, known types, unique ids, edge
    references, nothing negative."""
    document = json.loads(path.read_bytes())
    for name in ("trace_id", "task_id", "events", "edges", "rewards", "costs"):
        if name not in document:
            raise ValueError(f"missing {name}")
    ids: set[str] = set()
    types, edge_types = set(EVENT_TYPES), set(EDGE_TYPES)
    for event in document["events"]:
        for name in ("id", "t", "type", "agent"):
            if name not in event:
                raise ValueError(f"event without {name}")
        if event["id"] in ids:
            raise ValueError(f"duplicate id {event['id']}")
        ids.add(event["id"])
        if event["type"] not in types:
            raise ValueError(f"unknown type {event['type']}")
        if event["t"] < 0:
            raise ValueError(f"negative t {event['t']}")
    for edge in document["edges"]:
        for name in ("src", "dst", "type"):
            if name not in edge:
                raise ValueError(f"edge without {name}")
        if edge["src"] not in ids or edge["dst"] not in ids:
            raise ValueError(f"edge {edge['src']} -> {edge['dst']} names no event")
        if edge["type"] not in edge_types:
            raise ValueError(f"unknown edge type {edge['type']}")
    for name, cost in document["costs"].items():
        if cost < 0:
            raise ValueError(f"negative {name}")


def ours(path: Path) -> None:
    for one in read(path):
        if errors := [f for f in one.findings if f.level == "error"]:
            raise AssertionError(f"the generator made an invalid trace: {errors[0]}")


def measure(full: bool) -> list[Row]:
    sizes = [10_000, 20_000, 100_000, 1_000_000] if full else [500, 1_000, 2_000]
    judged = [20_000, 1_000_000] if full else [1_000]
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        seconds: dict[int, float] = {}
        for extras, name, target in ((False, "load", 3.0), (True, "extras", 2.0)):
            for n in sizes if not extras else judged:
                path = Path(folder) / f"{name}{n}.json"
                path.write_bytes(survey.write(trace(n, extras=extras)))
                mine, plain = best(3 if n >= 10**6 else 9, lambda p=path: ours(p), lambda p=path: by_hand(p))
                if not extras:
                    seconds[n] = mine
                if n in judged:
                    what = "json.loads and a loop over load and all rules"
                    kind = ", unknown fields on every event" if extras else ""
                    rows.append(
                        at_least(
                            f"2.1.{name}.{n}",
                            f"{what}, {n:,} events{kind} (times faster)",
                            plain / mine,
                            target,
                            "time",
                        )
                    )
                    rows.append(fact(f"2.1.{name}.{n}.s", f"seconds to load and check {n:,} events{kind}", mine))
                if n == judged[-1]:
                    what = f"peak memory over file size, {n:,} events{kind}"
                    rows.append(at_most(f"2.1.memory.{name}", what, _peak(path), 4.0, "size"))
        rows.append(
            at_most(
                "2.1.exponent",
                "growth of load and check, 10 thousand events up",
                exponent(sizes, list(seconds.values())),
                1.1,
                "time",
            )
        )
        rows.append(_against_jsonschema(Path(folder) / f"load{judged[0]}.json", judged[0]))
        rows.append(_without_c(Path(folder) / f"load{judged[0]}.json", judged[0]))
    rows.append(fact("2.1.fast", "whether the C scanner was built (1) or not (0)", float(scan.FAST)))
    rows.append(calibration("2.1", full))
    return rows


def _peak(path: Path) -> float:
    answer = subprocess.run([sys.executable, "-c", PEAK, str(path)], check=True, capture_output=True, text=True)
    return float(answer.stdout)


def _against_jsonschema(path: Path, n: int) -> Row:
    document = json.loads(path.read_bytes())
    validator = jsonschema.Draft202012Validator(_survey_schema())
    start = perf_counter()
    validator.validate(document)
    theirs = perf_counter() - start
    mine = best(9, lambda: ours(path))[0]
    what = f"jsonschema's Draft 2020-12 validator over load and all rules, {n:,} events (times faster)"
    return at_least(f"2.1.jsonschema.{n}", what, theirs / mine, 50.0, "time")


def _without_c(path: Path, n: int) -> Row:
    """The way that is left where no compiler was at hand."""
    had, scan.FAST = scan.FAST, False
    try:
        mine, plain = best(5, lambda: ours(path), lambda: by_hand(path))
    finally:
        scan.FAST = had
    return fact(f"2.1.python.{n}", f"as 2.1.load.{n}, without the scanner in C (times faster)", plain / mine)


def _survey_schema() -> dict[str, Any]:
    """The survey's own schema where it is at hand, else Podium's for the same document."""
    shared = Path(__file__).parents[2] / "shared/data/survey/trace_schema.json"
    if shared.exists():
        schema: dict[str, Any] = json.loads(shared.read_bytes())
        return schema
    mine = wire.schema()
    return {"$ref": "#/$defs/Document", "$defs": mine["$defs"]}


if __name__ == "__main__":
    command(measure, __doc__)
