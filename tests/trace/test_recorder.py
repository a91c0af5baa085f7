"""The recorder: one run from many hands, and nothing acknowledged is ever lost."""

from __future__ import annotations

import os
import pickle
import threading
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.record import crowd, kills
from podium.trace import BadTrace, Recorder, Trace, load, save
from podium.trace.files import read
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES


def ticking() -> Any:
    ticks = count()
    return lambda: float(next(ticks))


def test_what_was_said_is_what_is_loaded(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", clock=ticking(), task_id="t", topology="debate", seed=7, group="g") as record:
        plan = record.decide("lead", "spawn", "1", options=["0", "1"], logp=-0.5, role="lead")
        hire = record.add("spawn", "lead", to="ann", role="worker", after=[("spawn", plan)])
        call = record.add("tool_call", "ann", tool="search", after=hire, tokens_in=3, tokens_out=4.0, cost=0.01)
        found = record.add("tool_result", "search", tool="search", trusted=False, after=[("return", call)])
        record.add(
            "return", "ann", to="lead", after=[("causal", found)], rewards={"tool": 0.5}, extra={"mine": [1, None]}
        )
        record.outcome(rewards={"team": 1.0}, costs={"tokens": 7}, metrics={"success": 1})
    trace = record.trace()
    assert (len(trace), trace.n_events, trace.n_edges) == (1, 5, 4)
    assert trace.trace_id_n[0] == "run"
    assert (trace.task_id_n[0], trace.group_n[0], trace.seed_n[0], trace.topology()) == ("t", "g", "7", "debate")
    assert trace.id_e.strings() == [f"w0.{i}" for i in range(5)]
    assert [EVENT_TYPES[c] for c in trace.type_e] == [
        "orchestrator_decision",
        "spawn",
        "tool_call",
        "tool_result",
        "return",
    ]
    assert [EDGE_TYPES[c] for c in trace.type_x] == ["spawn", "causal", "return", "causal"]
    assert DECISIONS[trace.decision_e[0]] == "spawn"
    assert trace.options(0) == ["0", "1"]
    assert (trace.chosen_e[0], trace.logp_e[0]) == ("1", -0.5)
    assert (trace.tokens_in_e[2], trace.tokens_out_e[2], trace.cost_e[2]) == (3, 4, 0.01)
    assert trace.reward_e["tool"][4] == 0.5
    assert trace.extra_e["mine"][4] == "[1,null]"
    assert (trace.reward_n["team"][0], trace.cost_n["tokens"][0], trace.metric_n["success"][0]) == (1, 7, 1)
    np.testing.assert_array_equal(np.diff(trace.t_e) > 0, True)


def test_a_span_has_its_name_at_once_and_its_end_at_the_end(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", clock=ticking()) as record:
        with record.span("aggregate", "lead") as outer:
            inner = record.add("message", "lead", to="ann", after=outer.name)
            outer.set(tokens_out=5)
        with pytest.raises(RuntimeError), record.span("tool_call", "lead", tool="x", after=inner):
            raise RuntimeError("the tool broke")
    trace = record.trace()
    assert trace.tokens_out_e[0] == 5
    assert trace.end_e[0] > trace.t_e[1] > trace.t_e[0]
    assert trace.valid_e.tolist() == [-1, -1, 0]
    assert trace.src_x.tolist() == [0, 1]


def test_what_was_not_recorded_is_absent(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as record:
        record.add("message", "a", cost=float("nan"), rewards={"x": float("nan")}, logp=None)
    trace = record.trace()
    assert np.isnan(trace.cost_e[0])
    assert np.isnan(trace.logp_e[0])
    assert not trace.reward_e


@pytest.mark.parametrize(
    "mask",
    [
        [1, 0, 1],
        [True, False, True],
        (1, False, 1),
        np.array([1, 0, 1]),
        np.array([1, 0, 1], np.uint8),
        np.array([True, False, True]),
        list(np.array([1, 0, 1])),
    ],
    ids=str,
)
def test_a_mask_is_zeros_and_ones_or_truths_in_a_list_or_an_array(tmp_path: Path, mask: Any) -> None:
    with Recorder(tmp_path / "run") as record:
        record.add("message", "a", tokens=np.array([5, 6, 7]), logps=np.array([-1.0, np.nan, -2.0]), mask=mask)
    trace = record.trace()
    assert (trace.token_k.tolist(), trace.mask_k.tolist()) == ([5, 6, 7], [1, 0, 1])
    np.testing.assert_array_equal(trace.logp_k, [-1.0, np.nan, -2.0])
    for suffix in (".json", ".jsonl", ".store"):
        save(trace, tmp_path / f"again{suffix}")
        assert load(tmp_path / f"again{suffix}").mask_k.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((("mesage", "a"), {}), "no event type 'mesage'; there are orchestrator_decision"),
        ((("message", 3), {}), r"Expected `str`, got `int` - at `\$.agent`"),
        ((("message", ""), {}), "length >= 1"),
        ((("message", "a"), {"tokens_inn": 4}), "unknown field `tokens_inn`.*; there are end, tokens_in"),
        ((("message", "a"), {"tokens_in": "x"}), "Expected `float`, got `str`"),
        ((("message", "a"), {"cost": float("inf")}), "cost is infinite"),
        ((("message", "a"), {"after": [3]}), "expected names of events"),
        ((("message", "a"), {"after": [("because", ("w0", 0))]}), "Invalid enum value 'because'"),
        ((("message", "a"), {"extra": {"id": 1}}), "may not be called id"),
        ((("message", "a"), {"tokens": []}), "length >= 1"),
        ((("message", "a"), {"tokens": [1], "mask": [2]}), "a mask has, for each token, 1 or True"),
        ((("message", "a"), {"tokens": [1], "mask": ["1"]}), "a mask has, for each token, 1 or True"),
    ],
)
def test_a_mistake_is_told_where_it_is_made(tmp_path: Path, arguments: Any, said: str) -> None:
    words, fields = arguments
    with Recorder(tmp_path / "run") as record:
        record.add("message", "a")
        with pytest.raises(ValueError, match=said):
            record.add(*words, **fields)
    assert record.trace().n_events == 1


def test_a_wrong_decision_a_wrong_folder_a_closed_recorder(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as record:
        with pytest.raises(ValueError, match="no decision 'hire'; there are spawn"):
            record.decide("lead", "hire", "x")  # type: ignore[arg-type]
        record.add("message", "a")
    with pytest.raises(ValueError, match="closed"):
        record.add("message", "a")
    with pytest.raises(ValueError, match="holds the run 'run', not 'other'"):
        Recorder(tmp_path / "run", trace_id="other")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty and not a run"):
        Recorder(tmp_path / "full")
    with pytest.raises(ValueError, match="unknown field `topologie`"):
        Recorder(tmp_path / "new", topologie="swarm")
    with pytest.raises(ValueError, match="not the same clock"):
        Recorder(tmp_path / "run", clock=lambda: -1e12)
    assert not (tmp_path / "new").exists()


def test_the_same_calls_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Recorder(tmp_path / name, clock=ticking(), trace_id="run") as record:
            record.add("message", "x", after=[("causal", record.add("message", "y"))])
    assert (tmp_path / "a" / "w0.jsonl").read_bytes() == (tmp_path / "b" / "w0.jsonl").read_bytes()


def test_a_fork_and_a_pickle_are_writers_of_their_own(tmp_path: Path) -> None:
    record = Recorder(tmp_path / "run")
    root = record.add("message", "parent")
    child = os.fork()
    if not child:
        record.add("message", "child", after=root)
        record.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    copy = pickle.loads(pickle.dumps(record))
    copy.add("message", "copy", after=root)
    copy.close()
    record.close()
    trace = record.trace()
    assert sorted(trace.id_e.strings()) == ["w0.0", "w1.0", "w2.0"]
    assert trace.n_edges == 2


def test_threads_share_a_recorder(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as record:

        def work(name: str) -> None:
            for _ in range(500):
                record.add("message", name)
                if name == "0":
                    record.flush()

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = record.trace()
    assert trace.n_events == 4000
    assert sorted(trace.id_e.number.tolist()) == list(range(4000))


def test_a_thousand_agents_sixteen_threads_and_four_processes_write_one_run(tmp_path: Path) -> None:
    expected = crowd(tmp_path / "run", 3)
    trace = load(tmp_path / "run")
    assert (trace.n_events, trace.n_edges) == (expected, expected - 1)


def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    loaded, safe, missing = kills(tmp_path, 50)  # 200 in `make proofs`
    assert loaded == 50
    assert safe > 0
    assert missing == 0


def test_a_run_that_breaks_a_rule_is_told(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as record:
        record.add("tool_result", "search", tool="search")
    with pytest.raises(BadTrace, match="no earlier call asked for it"):
        record.trace()


def test_an_unfinished_run_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    record = Recorder(tmp_path / "run")
    record.add("message", "a")
    record.flush(disk=True)
    record.add("message", "b")
    (one,) = read(tmp_path / "run")
    assert isinstance(one.trace, Trace)
    assert one.trace.n_events == 1
    record.close()
    assert load(tmp_path / "run").n_events == 2


def test_a_line_taken_out_of_a_closed_log_is_missed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as record:
        for _ in range(3):
            record.add("message", "a")
        with pytest.raises(ValueError, match="no event type"):
            record.add("mesage", "a")  # type: ignore[arg-type]
    assert record.trace().n_events == 3
    path = tmp_path / "run" / "w0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(BadTrace, match="says that it has 3 events, there are 2"):
        record.trace()


def test_a_run_killed_before_its_first_event_is_empty_not_broken(tmp_path: Path) -> None:
    record = Recorder(tmp_path / "run")
    (one,) = read(tmp_path / "run")
    assert one.trace is None
    assert [(f.rule, f.level) for f in one.findings] == [("empty-run", "warning")]
    assert len(load(tmp_path / "run")) == 0
    record.close()


def test_runs_of_one_name_in_other_folders_are_other_runs(tmp_path: Path) -> None:
    for day in ("monday", "tuesday"):
        with Recorder(tmp_path / day / "run") as record:
            root = record.add("message", day)
            with Recorder(tmp_path / day / "run") as other:
                other.add("message", "other", after=root)
    trace = load(tmp_path)
    assert (len(trace), trace.n_events, trace.n_edges) == (2, 4, 2)
    first = tmp_path / "monday" / "run" / "w0.jsonl"
    (first.parent / "w0-copy.jsonl").write_bytes(first.read_bytes())
    assert [one.n_events for one in load(first.parent)] == [2, 1]
