"""The real logs of ../shared/data/logs, counted against what its README and EXPECTED.json say, per file."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from podium.graph.path import critical_path, serial_time
from podium.trace import files, survey
from podium.trace.columns import Trace
from podium.trace.vocabulary import EVENT_TYPES

SHARED = Path(__file__).parents[3] / "shared/data"
LOGS = SHARED / "logs"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the real logs (../shared/data/logs) are not here")
EXPECTED = json.loads((LOGS / "claude_code/EXPECTED.json").read_text()) if LOGS.is_dir() else {}
OLD = (
    sorted(p for p in (LOGS / "claude_code_old").rglob("*.json*") if "codex" not in p.parts)
    if LOGS.is_dir()
    else []
)
FOLDERS = sorted((LOGS / "claude_code_subagents").glob("*.jsonl.xz")) if LOGS.is_dir() else []


@cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SHARED / "survey/trace_schema.json").read_text()))


def imported(*paths: Path) -> Trace:
    """The one run in these files, of which everything must hold that holds of any."""
    (read,) = files._read_foreign([str(p) for p in paths], True, False, None)
    trace = read.trace
    assert trace is not None
    assert not [f for f in read.findings if f.level == "error"]
    validator().validate(json.loads(survey.write(trace)))
    longest, work, wall = (
        critical_path(trace).time_n[0],
        serial_time(trace).time_n[0],
        trace.cost_n["wall_clock_s"][0],
    )
    assert np.isnan(longest) or longest <= busy(trace) + 1e-6
    assert np.isnan(work) or busy(trace) <= min(work, wall) + 1e-6
    assert not (np.fmax(trace.end_e, trace.t_e)[trace.src_x] > trace.t_e[trace.dst_x]).any()
    return trace


def busy(trace: Trace) -> float:
    """How long somebody worked."""
    total, until = 0.0, -np.inf
    spans = [(t, end) for t, end in zip(trace.t_e.tolist(), trace.end_e.tolist(), strict=True) if end > t]
    for t, end in sorted(spans):
        total += max(0.0, end - max(t, until))
        until = max(until, end)
    return total


def counts(trace: Trace) -> dict[str, float]:
    """The figures of EXPECTED.json, from the trace."""
    got = Counter(EVENT_TYPES[c] for c in trace.type_e.tolist())
    by = np.array(trace.name_a.strings())[trace.agent_e]
    call_e = trace.type_e == EVENT_TYPES.index("tool_call")
    return {
        "tool_use": got["tool_call"],
        "tool_use main": int((call_e & (by == "main")).sum()),
        "tool_use inner": int((call_e & (by != "main")).sum()),
        "tool_use with result": got["tool_result"],
        "open": got["tool_call"] - got["tool_result"],
        "spawn": got["spawn"],
        "ended": got["return"],
        "messages": int((trace.model_e.codes >= 0).sum()),
        "messages with stop_reason": int((~np.isnan(trace.tokens_out_e)).sum()),
        "input_tokens": float(np.nansum(trace.tokens_in_e)),
        "cache_creation_input_tokens": float(np.nansum(trace.cache_write_e)),
        "cache_read_input_tokens": float(np.nansum(trace.cache_read_e)),
        "output_tokens where stop_reason": float(np.nansum(trace.tokens_out_e)),
        "compact_boundary": sum(w is not None for w in trace.extra_e["compacted"].strings())
        if "compacted" in trace.extra_e
        else 0,
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_a_session_has_the_counts_that_are_expected(name: str) -> None:
    trace = imported(LOGS / "claude_code" / name)
    told = EXPECTED[name] | {"ended": EXPECTED[name]["spawn completed"] + EXPECTED[name]["async notified"]}
    got = counts(trace)
    assert got == {k: told[k] for k in got}
    stated_counts(trace)


def stated_counts(trace: Trace) -> None:
    """Calls inside a sub-agent are as many as its return says, where they are in the log."""
    call_a = np.bincount(trace.agent_e[trace.type_e == EVENT_TYPES.index("tool_call")], minlength=trace.n_agents)
    launched_a = np.bincount(trace.to_e[trace.type_e == EVENT_TYPES.index("spawn")], minlength=trace.n_agents)
    for row in np.flatnonzero(trace.type_e == EVENT_TYPES.index("return")).tolist():
        agent = int(trace.agent_e[row])
        if call_a[agent] and launched_a[agent] == 1 and (stated := trace.extra_e["tool_uses"][row]) is not None:
            assert call_a[agent] == float(stated), trace.name_a[agent]


def test_all_sessions_together() -> None:
    reads = list(files.read(LOGS / "claude_code"))
    sums = Counter[str]()
    for read in reads:
        if read.trace is not None:
            sums.update(counts(read.trace))
    assert {
        k: sums[k]
        for k in ("tool_use", "tool_use main", "tool_use inner", "tool_use with result", "spawn", "messages")
    } == {
        "tool_use": 2985,
        "tool_use main": 2159,
        "tool_use inner": 826,
        "tool_use with result": 2981,
        "spawn": 97,
        "messages": 2542,
    }
    assert (sums["input_tokens"], sums["cache_creation_input_tokens"], sums["cache_read_input_tokens"]) == (
        90416,
        8615957,
        264119610,
    )
    assert (sums["messages with stop_reason"], sums["output_tokens where stop_reason"]) == (638, 465804)
    untold = [f for r in reads if r.trace is None for f in r.findings]
    assert [(Path(f.file).name, f.rule, f.level) for f in untold] == [
        ("EXPECTED.json", "log-unknown", "warning"),
        ("INDEX.json", "log-unknown", "warning"),
    ]


@pytest.mark.parametrize("main", FOLDERS, ids=lambda p: p.name[:8])
def test_files_of_sub_agents_count_once(main: Path) -> None:
    own = sorted((main.parent / main.name.partition(".")[0]).rglob("*.jsonl.xz"))
    alone, whole = imported(main), imported(main, *own)
    names = (
        "tool_use",
        "tool_use main",
        "tool_use inner",
        "tool_use with result",
        "spawn",
        "ended",
        "compact_boundary",
    )
    assert {k: counts(alone)[k] for k in names} == {k: counts(whole)[k] for k in names}
    assert alone.name_a.strings() == whole.name_a.strings()
    stated_counts(whole)


@pytest.mark.parametrize("path", OLD, ids=lambda p: p.name[:30])
def test_older_generations(path: Path) -> None:
    imported(path)


def test_the_oldest_side_chains() -> None:
    path = next(p for p in OLD if p.name.startswith("fe5e1c67"))
    got = counts(imported(path))
    assert (got["spawn"], got["ended"]) == (5, 5)
