"""What the tests of importers share: the real logs, if they are here, and the laws that every imported run
obeys."""

from __future__ import annotations

import json
import lzma
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from making import SURVEY

from podium.exchange.reading import Source
from podium.registry import find
from podium.trace import files, survey, sweep
from podium.trace.columns import Trace
from podium.trace.findings import Finding
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES, edge

LOGS = SURVEY.parent / "logs"
here = pytest.mark.skipif(not LOGS.is_dir(), reason="the real logs (../shared/data/logs) are not here")


def real(pattern: str) -> list[Any]:
    """The real logs of a pattern, as parameters of a test."""
    paths = sorted(LOGS.glob(pattern)) if LOGS.is_dir() else []
    return [pytest.param(path, id=f"{path.parent.name}/{path.name[:24]}") for path in paths] or [
        pytest.param(None, marks=pytest.mark.skip(reason="the real logs (../shared/data/logs) are not here"))
    ]


def text_of(path: Path) -> str:
    return (lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes()).decode()


def imported(path: Path) -> tuple[Trace, list[Finding]]:
    """The one run of a file."""
    [one] = files.read(path)
    assert one.trace is not None
    return one.trace, one.findings


def runs_of(importer: str, *texts: str | bytes, keep: bool = False) -> list[tuple[Trace | None, list[Finding]]]:
    """The runs that an importer makes of these contents of files, called log0, log1, ..."""
    sources = [
        _source(f"log{i}", text if isinstance(text, bytes) else text.encode()) for i, text in enumerate(texts)
    ]
    return [run.built("log0") for run in find("importer", importer)(sources, keep)]


def _source(name: str, data: bytes) -> Source:
    return Source(name, data[: 1 << 16], partial(BytesIO, data))


def run_of(importer: str, *texts: str | bytes) -> tuple[Trace, list[Finding]]:
    [(trace, findings)] = runs_of(importer, *texts)
    assert trace is not None
    return trace, findings


def count(trace: Trace, *types: str) -> int:
    return int(np.isin(trace.type_e, [EVENT_TYPES.index(word) for word in types]).sum())


def total(column: Any) -> float:
    return float(np.nansum(column))


def agent(trace: Trace, row: int) -> str | None:
    return trace.name_a[int(trace.agent_e[row])]


def rows(trace: Trace, type: str) -> list[int]:
    return np.flatnonzero(trace.type_e == EVENT_TYPES.index(type)).tolist()


def edges(trace: Trace, *types: str) -> set[tuple[int, int]]:
    keep = np.isin(trace.type_x, [EDGE_TYPES.index(word) for word in types])
    return set(zip(trace.src_x[keep].tolist(), trace.dst_x[keep].tolist(), strict=True))


def errors(findings: list[Finding]) -> list[str]:
    return [f.message for f in findings if f.level == "error"]


def faults(findings: list[Finding]) -> list[str]:
    return [f"{f.file}: {f.message}" for f in findings if f.rule == "log-fault"]


def obeys_the_laws(trace: Trace) -> None:
    """An effect begins no earlier than its cause ends, T∞ ≤ busy time ≤ wall clock, and the survey's schema
    holds."""
    end_e = np.where(np.isnan(trace.end_e), trace.t_e, trace.end_e)
    causal = trace.type_x != edge("temporal")
    src, dst = trace.src_x[causal], trace.dst_x[causal]
    if not np.isnan(trace.t_e).all():
        both = ~np.isnan(end_e[src]) & ~np.isnan(trace.t_e[dst])  # some formats have no time for some events
        assert (end_e[src] <= trace.t_e[dst] + 1e-9)[both].all()
        longest = sweep.done_times(np.nan_to_num(np.maximum(0.0, end_e - trace.t_e)), src, dst).max()
        busy, until = 0.0, -np.inf
        timed = ~np.isnan(trace.t_e)
        for start, stop in sorted(zip(trace.t_e[timed].tolist(), end_e[timed].tolist(), strict=True)):
            busy += max(0.0, stop - max(start, until))
            until = max(until, stop)
        assert longest <= busy + 1e-6
        assert busy <= until - np.nanmin(trace.t_e) + 1e-6
    if SURVEY.is_dir():
        schema = json.loads((SURVEY / "trace_schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(json.loads(survey.write(trace)))
