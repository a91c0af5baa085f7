"""The columnar store: nothing is lost, whatever happens, and SQL sees the store and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium.trace import store
from podium.trace.columns import AXES, COLUMNS, Names, Text, Trace, concat, differences
from podium.trace.store import QueryError, StoreError
from podium.trace.vocabulary import decision, edge, event

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

WORDS = ("", "a", "é\0ü", 'it\'s "so"', "None", "-1", "x" * 300)
KEYS = ("team", "a.b", "A", "a", 'q"', "", "number")
LEADS = {"dst_x", "owner_k", "event_v", "event_o"}  # they say which rollout their row belongs to


def random_trace(seed: int, rollouts: int, absent: float = 0.4) -> Trace:
    """A trace with something of every kind in every column that is there."""
    rng = np.random.default_rng(seed)
    count = {a: rng.integers(0, 6, rollouts) for a in AXES} | {"n": np.ones(rollouts, int)}
    for a in "xkvo":
        count[a][count["e"] == 0] = 0
    first = {a: np.cumsum(c) - c for a, c in count.items()}
    columns: dict[str, Any] = {}
    for name, axis, kind in COLUMNS:
        of = np.repeat(np.arange(rollouts), count[axis])
        if kind == "rollout":
            columns[name] = of
        elif kind in ("row", "agent"):
            to = {"row": "e", "agent": "a"}[kind]
            lowest = 0 if name in LEADS else -1
            values = rng.integers(lowest, np.maximum(count[to][of], lowest + 1))
            rows = np.where(values < 0, -1, values + first[to][of])
            columns[name] = np.sort(rows) if name in LEADS else rows
        elif name in ("trace_id_n", "t_e", "src_x", "token_k") or rng.random() > absent:
            columns[name] = random_column(rng, kind, len(of))
    return Trace.of(**columns)


def random_column(rng: np.random.Generator, kind: str, n: int) -> Any:
    match kind:
        case "float":
            return rng.choice([np.nan, np.inf, -np.inf, 0.0, 5e-324, 0.1, rng.normal()], n)
        case "int":
            return rng.choice([-1, 0, 7, 2**62, int(rng.integers(1000))], n)
        case "tri":
            return rng.integers(-1, 2, n)
        case "code":
            return rng.integers(-1, 5, n)
        case "text":
            return Text(rng.integers(-1, len(WORDS), n), WORDS)
        case "name" if rng.random() < 0.5:
            return Names(Text.of([f"{rng.integers(2**60):x}" for _ in range(n)]))
        case "name":
            return Names(Text(rng.integers(0, len(WORDS), n), WORDS), rng.integers(-1, 3, n))
        case "floats" | "texts":
            return {k: random_column(rng, kind[:-1], n) for k in KEYS if rng.random() < 0.5}
    raise AssertionError(kind)


def tiny() -> Trace:
    """A lead spawns a worker, who calls a tool and returns; then a second run in which only one event is known."""
    first = Trace.of(
        trace_id_n=Text.of(["run"]),
        task_id_n=Text.of(["sum"]),
        topology_n=[0],
        reward_n={"team": [1.0]},
        rollout_a=[0, 0],
        name_a=Text.of(["lead", "worker"]),
        id_e=Names(Text.constant("w0.", 4), np.arange(4)),
        t_e=[0.0, 1.0, 2.0, 4.0],
        end_e=[0.5, np.nan, 3.0, np.nan],
        type_e=[event("orchestrator_decision"), event("spawn"), event("tool_call"), event("return")],
        agent_e=[0, 0, 1, 1],
        from_e=[-1, 0, -1, 1],
        to_e=[-1, 1, -1, 0],
        tool_e=Text.of([None, None, "search", None]),
        trusted_e=[-1, 1, 0, -1],
        decision_e=[decision("spawn"), -1, -1, -1],
        reward_e={"judge": [np.nan, 0.25, 0.5, np.nan]},
        extra_e={"span": Text.of(['{"n":1}', None, None, None])},
        src_x=[0, 1, 2],
        dst_x=[1, 2, 3],
        type_x=[edge("causal"), edge("spawn"), edge("temporal")],
        owner_k=[0, 0],
        token_k=[11, 12],
        event_v=[3],
        source_v=[2],
        value_v=Text.of(["42"]),
    )
    second = Trace.of(
        trace_id_n=Text.of(["bare"]),
        rollout_a=[0],
        name_a=Text.of(["solo"]),
        id_e=Names(Text.of(["first", "second"])),
        t_e=[5.0, 6.0],
        type_e=[3, 3],
        agent_e=[0, -1],
        src_x=[0],
        dst_x=[1],
        type_x=[0],
    )
    return concat([first, second])


def named(number: int, events: int = 3) -> Trace:
    """The run of that number."""
    t_e = np.random.default_rng(number).random(events)
    return Trace.of(
        trace_id_n=Text.of([f"run-{number}"]), t_e=t_e, id_e=Names(Text.constant("w", events), np.arange(events))
    )


# nothing is lost


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 4)), max_size=3), st.randoms(use_true_random=False))
def test_what_was_added_comes_back(tmp_path: Path, made: list[tuple[int, int]], dice: Any) -> None:
    shutil.rmtree(path := tmp_path / "runs", ignore_errors=True)
    store.create(path)
    traces = [random_trace(*m) for m in made]
    numbers = [n for trace in traces for n in store.add(path, trace)]
    whole = concat(traces)
    assert numbers == [*range(len(whole))]
    assert differences(store.read(path), whole) == []
    chosen = dice.sample(numbers, len(numbers) // 2)
    assert differences(store.read(path, chosen), whole[chosen]) == []
    assert differences(store.read(path, slice(1, None, 2)), whole[1::2]) == []
    tables = " UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in AXES.values())
    assert store.sql(path, tables)[1] == [(len(whole.rollout_of(axis)),) for axis in AXES]
    assert len(store.sql(path, "SELECT * FROM events")[1]) == whole.n_events


def test_every_column_is_tried() -> None:
    whole = concat([random_trace(seed, 4, absent=0.0) for seed in range(8)])
    for name, _, kind in COLUMNS:
        values = getattr(whole, name)
        match kind:
            case "floats" | "texts":
                assert set(values) == set(KEYS)
            case "text" | "name":
                assert len(set(values.strings())) > 2
            case _:
                assert len(np.unique(values)) > 2


def test_a_long_trace_in_more_than_one_row_group(tmp_path: Path) -> None:
    n = 1_200_000
    long = Trace.of(
        trace_id_n=Text.of(["long"]),
        t_e=np.arange(n) / 7,
        id_e=Names(Text.constant("w", n), np.arange(n)),
        type_e=np.arange(n) // 200_000,
        role_e=Text(np.arange(n) // 400_000 - 1, ("lead", "worker")),
        stage_e=np.where(np.arange(n) % 3, np.arange(n), -1),
    )
    store.add(tmp_path / "runs", long)
    assert differences(store.read(tmp_path / "runs"), long) == []


def test_negative_zero_keeps_its_sign(tmp_path: Path) -> None:
    t_e = np.array([0.0, -0.0] * 50)
    store.add(tmp_path / "runs", Trace.of(trace_id_n=Text.of(["z"]), t_e=t_e))
    assert store.read(tmp_path / "runs").t_e.tobytes() == t_e.tobytes()


def test_an_absent_column_takes_no_room(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    store.add(tmp_path / "runs", tiny())
    part = tmp_path / "runs" / "part-000000"
    assert {"model", "position", "cost"}.isdisjoint(pq.read_schema(part / "events.parquet").names)
    store.add(tmp_path / "runs", named(0))
    assert sorted(f.name for f in (tmp_path / "runs" / "part-000002").iterdir()) == [
        "events.parquet",
        "rollouts.parquet",
    ]


def test_only_the_parts_that_hold_the_rollouts_are_read(tmp_path: Path) -> None:
    for number in range(3):
        store.add(tmp_path / "runs", named(number))
    shutil.rmtree(tmp_path / "runs" / "part-000001")
    assert store.read(tmp_path / "runs", [2]) == named(2)
    with pytest.raises(StoreError, match=r"part-000000.rollouts.parquet has 1 rows and not 2"):
        store.read(tmp_path / "runs")


def test_no_rollouts_is_no_part(tmp_path: Path) -> None:
    assert store.add(tmp_path / "runs", Trace.of()) == range(0)
    assert store.read(tmp_path / "runs") == Trace.of()
    assert store.listing(tmp_path / "runs") == []
    assert [p.name for p in (tmp_path / "runs").glob("part-*")] == []


def test_listing(tmp_path: Path) -> None:
    store.add(tmp_path / "runs", named(7))
    store.add(tmp_path / "runs", tiny())
    keys = ("rollout", "trace_id", "task_id", "topology", "events", "agents", "edges")
    assert [tuple(row[k] for k in keys) for row in store.listing(tmp_path / "runs")] == [
        (0, "run-7", None, None, 3, 0, 0),
        (1, "run", "sum", "centralized", 4, 2, 3),
        (2, "bare", None, None, 2, 1, 1),
    ]


# whatever happens

HEAD = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{str(Path(__file__).parents[2])!r}, {str(Path(__file__).parent)!r}]
from test_store import named, store
path = Path(sys.argv[1])
"""


def start(path: Path, script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HEAD + script, str(path), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_writer_killed_anywhere_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    script = "store.create(path)\nwhile True: print(store.add(path, named(store.size(path), 2000)), flush=True)"
    done = 0
    for delay in (0.0, 0.013, 0.05, 0.081):
        with start(path, script) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay)
            writer.send_signal(signal.SIGKILL)
            told = 1 + len(writer.stdout.read().splitlines())
        held = store.size(path)
        assert held >= done + told
        assert store.read(path) == concat([named(i, 2000) for i in range(held)])
        done = held


@pytest.mark.parametrize("step", ["_write_parquet", "sync", "_publish"])
def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path, step: str) -> None:
    path = tmp_path / "runs"
    store.add(path, named(0))
    with start(
        path, f"store.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\nstore.add(path, named(1))"
    ) as writer:
        assert writer.wait() == -signal.SIGKILL
    assert (path / ".adding" / "part").is_dir()
    assert store.read(path) == named(0)
    assert store.add(path, named(1)) == range(1, 2)
    assert not (path / ".adding").exists()
    assert store.read(path) == concat([named(0), named(1)])


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    script = "for i in range(8): print(*store.add(path, named(8 * int(sys.argv[2]) + i)), flush=True)"
    writers = [start(path, script, w) for w in range(4)]
    got = [int(line) for w in writers for line in w.communicate()[0].splitlines()]
    assert sorted(got) == [*range(32)]
    back = store.read(path)
    assert [back.trace_id_n[n] for n in got] == [f"run-{i}" for i in range(32)]
    assert back[got] == concat([named(i) for i in range(32)])


# SQL

QUESTIONS = [
    ("SELECT rollout, trace_id, topology, reward_team, events FROM rollouts ORDER BY 1",
     [(0, "run", "centralized", 1.0, 4), (1, "bare", None, None, 2)]),
    ("SELECT rollout, row, name FROM agents ORDER BY ALL", [(0, 0, "lead"), (0, 1, "worker"), (1, 0, "solo")]),
    ('SELECT row, id, type, agent, "from", events.to, tool FROM events WHERE rollout = 0 ORDER BY row',
     [(0, "w0.0", "orchestrator_decision", "lead", None, None, None),
      (1, "w0.1", "spawn", "lead", "lead", "worker", None),
      (2, "w0.2", "tool_call", "worker", None, None, "search"),
      (3, "w0.3", "return", "worker", "worker", "lead", None)]),
    ("SELECT id, agent FROM events WHERE rollout = 1 ORDER BY row", [("first", "solo"), ("second", None)]),
    ("SELECT events.end, trusted, decision, reward_judge, extra_span, model FROM events ORDER BY t LIMIT 3",
     [(0.5, None, "spawn", None, '{"n":1}', None),
      (None, True, None, 0.25, None, None),
      (3.0, False, None, 0.5, None, None)]),
    ("SELECT rollout, src, dst, type, inferred FROM edges ORDER BY ALL",
     [(0, 0, 1, "causal", None),
      (0, 1, 2, "spawn", None),
      (0, 2, 3, "temporal", None),
      (1, 0, 1, "temporal", None)]),
    ("SELECT a.type, b.type FROM edges x JOIN events a ON (a.rollout, a.row) = (x.rollout, x.src) "
     "JOIN events b ON (b.rollout, b.row) = (x.rollout, x.dst) WHERE x.type = 'spawn'", [("spawn", "tool_call")]),
    ("SELECT owner, token, mask FROM tokens ORDER BY row", [(0, 11, None), (0, 12, None)]),
    ("SELECT event, source, value, weight FROM votes", [(3, 2, "42", None)]),
    ("SELECT extra_span->>'n' FROM events WHERE extra_span IS NOT NULL", [("1",)]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "answer"), QUESTIONS)
@pytest.mark.parametrize("parts", [1, 2])
def test_questions(tmp_path: Path, query: str, answer: list[Any], parts: int) -> None:
    for trace in (tiny(),) if parts == 1 else tiny():
        store.add(tmp_path / "it's", trace)
    assert store.sql(tmp_path / "it's", query)[1] == answer


def test_an_empty_store_has_every_column(tmp_path: Path) -> None:
    store.create(tmp_path / "empty")
    store.add(tmp_path / "full", tiny())
    for axis, table in AXES.items():
        names, rows = store.sql(tmp_path / "empty", f"SELECT * FROM {table}")
        plain = [c.name[:-2] for c in COLUMNS if c.axis == axis and c.kind not in ("rollout", "floats", "texts")]
        assert rows == []
        assert names[:1] + names[-len(plain) :] == ["rollout", *plain]
        assert set(names) <= set(store.sql(tmp_path / "full", f"SELECT * FROM {table}")[0])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM read_csv('{folder}/runs/part-000000/../../secret.csv')",
        "SELECT * FROM read_json('{folder}/runs/podium-store.json')",
        "SELECT * FROM glob('{folder}/*')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "COPY (SELECT 1) TO '{folder}/runs/part-000000/events.parquet'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/runs/part-000000/events.parquet'",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{folder}/out.csv''')",
        "ATTACH '{folder}/out.db'",
        "EXPORT DATABASE '{folder}/out'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "INSTALL httpfs",
        "SELECT 1; SELECT 2",
        "CREATE TABLE mine AS SELECT 1",
        "SELECT * FROM sys",
        "SELECT nothing FROM events",
        "SELEKT",
        "",
    ],
)
def test_a_query_sees_nothing_else_and_writes_nothing(tmp_path: Path, query: str) -> None:
    store.add(tmp_path / "runs", tiny())
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(QueryError):
        store.sql(tmp_path / "runs", query.format(folder=tmp_path))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


# what is wrong is said


def test_what_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="not empty and not a Podium store"):
        store.add(tmp_path, named(0))
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(StoreError, match="is a file, not a folder"):
        store.add(tmp_path / "notes.txt", named(0))
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "notes.txt"):
        with pytest.raises(StoreError, match="is not a Podium store"):
            store.read(path)
    (tmp_path / "empty").mkdir()
    assert store.add(tmp_path / "empty", named(0)) == range(1)


@pytest.mark.parametrize(
    ("marker", "words"), [('{"podium_store": 2}', "version 2"), ("[]", "damaged"), ("{", "damaged")]
)
def test_a_marker_of_another_kind(tmp_path: Path, marker: str, words: str) -> None:
    (tmp_path / "podium-store.json").write_text(marker)
    for use in (
        store.read,
        store.listing,
        store.size,
        lambda p: store.sql(p, "SELECT 1"),
        lambda p: store.add(p, named(0)),
    ):
        with pytest.raises(StoreError, match=words):
            use(tmp_path)


def test_a_marker_is_json(tmp_path: Path) -> None:
    store.create(tmp_path)
    assert json.loads((tmp_path / "podium-store.json").read_text()) == {"podium_store": 1}


def damage(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    if how == "cut":
        del content[len(content) // 2 :]
    elif how == "empty":
        content.clear()
    else:
        content[len(content) // 2] ^= 255
    file.write_bytes(content)


@pytest.mark.parametrize("how", ["cut", "empty", "flip"])
def test_a_damaged_file_is_named(tmp_path: Path, how: str) -> None:
    store.add(tmp_path, named(0, 20_000))
    damage(tmp_path / "part-000000" / "events.parquet", how)
    with pytest.raises(StoreError, match=r"part-000000.events.parquet is damaged"):
        store.read(tmp_path)
    if how != "flip":
        with pytest.raises(StoreError, match=r"part-000000.events.parquet"):
            store.sql(tmp_path, "SELECT count(*) FROM events")
    (tmp_path / "part-000000" / "events.parquet").unlink()
    with pytest.raises(StoreError, match=r"part-000000.events.parquet is missing"):
        store.read(tmp_path)


def test_numbers_that_are_not_there(tmp_path: Path) -> None:
    store.add(tmp_path, tiny())
    with pytest.raises(StoreError, match="holds 2 rollouts, none is numbered 2"):
        store.read(tmp_path, [0, 2])
    assert store.read(tmp_path, [-1]) == tiny()[1]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"rollout_e": [1, 0]}, "events are not sorted"),
        ({"rollout_e": [0, 2]}, "fewer rollouts"),
        ({"rollout_e": [0, 1], "src_x": [0], "dst_x": [1]}, "src_x points into another rollout"),
        ({"rollout_e": [0, 1], "type_e": [0, 99]}, "99 is the code of no word"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    store.create(tmp_path)
    with pytest.raises(StoreError, match=words):
        store.add(tmp_path, Trace.of(trace_id_n=Text.of(["a", "b"]), **columns))
    assert store.size(tmp_path) == 0


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    store.add(tmp_path, named(0))
    with pytest.raises(StoreError, match="surrogates not allowed"):
        store.add(tmp_path, Trace.of(trace_id_n=Text.of(["\ud800"])))
    assert store.read(tmp_path) == named(0)


@pytest.mark.parametrize("package", ["pyarrow", "duckdb"])
def test_a_missing_package_is_named(tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(tmp_path, tiny())
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.parquet", None)
    with pytest.raises(StoreError, match=rf"needs {package}: pip install 'podium\[store\]'"):
        store.sql(tmp_path, "SELECT 1")


def test_a_query_ends(tmp_path: Path) -> None:
    store.add(tmp_path, tiny())
    endless = "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE hash(a.range) = hash(b.range) + 1"
    with pytest.raises(QueryError, match=r"no answer within 0.2 s"):
        store.sql(tmp_path, endless, seconds=0.2)
    with pytest.raises(QueryError, match="more than 10 rows; narrow it down, or end it with LIMIT 10"):
        store.sql(tmp_path, "SELECT * FROM range(11)", rows=10)
    with pytest.raises(QueryError, match="the query needs more than 16 MB"):
        store.sql(tmp_path, "SELECT list(range) FROM range(100000000)", memory_mb=16)


def test_a_pipe_in_the_place_of_a_lock_stops_nobody(tmp_path: Path) -> None:
    store.create(tmp_path)
    os.mkfifo(tmp_path / ".lock")
    assert store.add(tmp_path, named(0)) == range(1)
