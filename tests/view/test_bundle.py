"""The columns that the page reads are those of the trace, and every event is described once."""

from __future__ import annotations

import numpy as np
import pytest

from podium import graph
from podium.trace.columns import Trace
from podium.trace.vocabulary import EVENT_TYPES
from podium.trace.write import event_objects
from podium.view.bundle import CHUNK, FLAGS, event_chunk, pack, run_bundle, unpack
from tests.view.conftest import plain_run


def test_columns_are_those_of_the_trace(run: Trace) -> None:
    header, columns = unpack(run_bundle(run))
    start = float(np.nanmin(run.t_e))
    np.testing.assert_array_equal(columns["t"] + start, run.t_e)
    np.testing.assert_array_equal(columns["end"] + start, run.end_e)
    for name, mine in {"type": run.type_e, "agent": run.agent_e, "src": run.src_x, "dst": run.dst_x}.items():
        np.testing.assert_array_equal(columns[name], mine)
    assert header["event_types"] == list(EVENT_TYPES)
    assert header["agents"] == run.name_a.strings()
    assert [header["tool_words"][c] if c >= 0 else None for c in columns["tool"]] == run.tool_e.strings()
    np.testing.assert_array_equal(columns["tokens_in"], run.tokens_in_e.astype(np.float32))
    assert "cost" not in columns  # nothing was recorded


def test_each_flag_is_what_the_graph_says(run: Trace) -> None:
    _, columns = unpack(run_bundle(run))
    expected = {
        "critical": graph.critical_path(run).on_e,
        "untrusted": run.trusted_e == 0,
        "tainted": graph.taint(run),
        "invalid": run.valid_e == 0,
    }
    assert list(expected) == list(FLAGS)
    for bit, mark_e in enumerate(expected.values()):
        np.testing.assert_array_equal((columns["flags"] >> bit) & 1, mark_e)


def test_an_agent_stands_below_who_spawned_it(run: Trace) -> None:
    header, _ = unpack(run_bundle(run))
    names = header["agents"]
    worker = next(i for i, name in enumerate(names) if name not in ("lead",) and header["parents"][i] >= 0)
    assert names[header["parents"][worker]] == "lead"
    assert header["parents"][names.index("lead")] == -1


@pytest.mark.parametrize("n", [0, 1, CHUNK, CHUNK + 1])
def test_chunks_describe_every_event_once(n: int) -> None:
    trace = plain_run(n)
    described = [event for k in range(-(-n // CHUNK)) for event in event_chunk(trace, k)]
    assert described == event_objects(trace)
    with pytest.raises(ValueError, match=f"there is no chunk {-(-n // CHUNK) + 1}: {n} events"):
        event_chunk(trace, -(-n // CHUNK) + 1)


def test_a_described_event_has_its_options_and_votes(run: Trace) -> None:
    plan, *_, joined = event_chunk(run, 0)
    assert plan["podium"]["options"] == ["0", "1"]
    assert joined["podium"]["votes"] == [{"value": "yes"}]


@pytest.mark.parametrize("trace", [plain_run(0), plain_run(4, times=False), plain_run(1)])
def test_a_run_of_which_little_is_known_has_a_bundle(trace: Trace) -> None:
    header, columns = unpack(run_bundle(trace))
    assert (header["events"], header["timed"]) == (trace.n_events, int((~np.isnan(trace.t_e)).sum()))
    assert len(columns["t"]) == trace.n_events


def test_only_a_block_is_read_as_one(several: Trace) -> None:
    with pytest.raises(ValueError, match="expected a block"):
        unpack(b"<html>")
    with pytest.raises(ValueError, match="expected one run, got 2"):
        run_bundle(several)
    with pytest.raises(KeyError):
        pack({}, {"t": np.zeros(1, np.complex128)})
