"""The laws of columns: a batch is a longer trace, nothing can be changed, what is absent costs nothing."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import documents, made, trace_of
from test_store import random_trace

from podium.trace import columns
from podium.trace.columns import AXES, COLUMNS, Names, Text, Trace, concat, differences, ranges

strings = st.lists(st.none() | st.text(max_size=3) | st.sampled_from(["a", "b"]), max_size=12)
traces = st.builds(random_trace, st.integers(0, 2**32), st.integers(0, 4))


# text


@given(strings)
def test_text_is_the_strings_it_was_made_of(some: list[str | None]) -> None:
    text = Text.of(some)
    assert text.strings() == some
    assert [text[i] for i in range(len(text))] == some
    assert len(set(text.words)) == len(text.words)


@given(strings, strings, strings)
def test_text_concatenates_like_lists(a: list[Any], b: list[Any], c: list[Any]) -> None:
    parts = [Text.of(a), Text.of(b), Text.of(c)]
    assert Text.concat(parts).strings() == a + b + c
    assert Text.concat([Text.concat(parts[:2]), parts[2]]) == Text.concat([parts[0], Text.concat(parts[1:])])


@given(strings, st.randoms(use_true_random=False))
def test_text_is_taken_in_any_order(some: list[Any], dice: Any) -> None:
    rows = [dice.randrange(len(some)) for _ in range(5)] if some else []
    taken = Text.of(some).take(np.array(rows, int))
    assert taken.strings() == [some[r] for r in rows]


@given(strings, strings)
def test_text_is_equal_if_its_strings_are(a: list[Any], b: list[Any]) -> None:
    assert (Text.of(a) == Text.of(b)) == (a == b)
    assert Text.of(a) == Text.of([*b, *a]).take(np.arange(len(b), len(a) + len(b)))
    assert Text.of(a) != a


def test_text_finds_codes() -> None:
    text = Text.of(["x", None, "y"])
    assert [text.code("y"), text.code("z")] == [1, -2]
    assert text.recoded(("y", "x")).tolist() == [1, -1, 0]
    assert text.recoded(("y",)).tolist() == [-2, -1, 0]


def test_a_string_that_is_not_there_equals_none_that_is() -> None:
    assert Text.of(["x"]) != Text.of(["y"])
    assert Text.of(["x"]) != Text.of([None])
    assert Text(np.array([0]), ("x", "unused")) == Text.of(["x"])


# names


@given(st.lists(st.tuples(st.sampled_from(["", "w0.", "e"]), st.integers(-1, 20)), max_size=10))
def test_names_are_equal_if_they_are_spelled_alike(pairs: list[tuple[str, int]]) -> None:
    names = Names(Text.of([p for p, _ in pairs]), np.array([n for _, n in pairs], int))
    spelled = [f"{p}{n if n >= 0 else ''}" for p, n in pairs]
    assert names.strings() == spelled
    assert [names[i] for i in range(len(names))] == spelled
    assert names == Names(Text.of(spelled))
    half = len(pairs) // 2
    first, second = names.take(np.arange(half)), names.take(np.arange(half, len(pairs)))
    assert Names.concat([first, second]) == names


# the trace


def test_every_column_has_an_axis_and_an_absent_form() -> None:
    assert {c.axis for c in COLUMNS} == set(AXES)
    assert all(c.name.endswith(f"_{c.axis}") for c in COLUMNS)
    empty = Trace.of()
    assert (len(empty), empty.n_events, empty.n_edges, empty.n_agents) == (0, 0, 0, 0)
    assert list(empty) == []


@given(st.lists(traces, max_size=4))
def test_slicing_undoes_concatenation(parts: list[Trace]) -> None:
    whole = concat(parts)
    assert len(whole) == sum(map(len, parts))
    at = 0
    for part in parts:
        assert differences(whole[at : at + len(part)], part) == []
        at += len(part)
    assert differences(concat(list(whole)), whole) == []


@given(traces, traces, traces)
def test_concatenation_is_associative(a: Trace, b: Trace, c: Trace) -> None:
    assert differences(concat([concat([a, b]), c]), concat([a, concat([b, c])])) == []
    assert differences(concat([a, Trace.of(), b]), concat([a, b])) == []


@given(traces, st.randoms(use_true_random=False))
def test_rollouts_are_taken_in_any_order(trace: Trace, dice: Any) -> None:
    order = dice.sample(range(len(trace)), len(trace))
    taken = trace[order]
    assert differences(taken, concat([trace[i] for i in order])) == []
    back = np.argsort(order) if order else []
    assert differences(taken[back], trace) == []
    assert differences(trace[np.array(order, int)], taken) == []
    assert differences(trace[::-1][::-1], trace) == []


@given(documents(8), st.sampled_from([c.name for c in COLUMNS]))
def test_traces_differ_where_a_column_does(document: dict[str, Any], name: str) -> None:
    trace = trace_of(document)
    values = getattr(trace, name)
    given_columns = {c.name: getattr(trace, c.name) for c in COLUMNS}
    assert Trace.of(**given_columns) == trace
    if isinstance(values, Mapping):
        given_columns[name] = {
            **values,
            "new": Text.of(["1"] * trace.n_events)
            if name == "extra_e"
            else np.ones(len(trace) if name[-1] == "n" else trace.n_events),
        }
    elif isinstance(values, Text):
        given_columns[name] = Text.of([f"{s}!" for s in values.strings()])
    elif isinstance(values, Names):
        given_columns[name] = Names(Text.of([f"{s}!" for s in values.strings()]))
    else:
        given_columns[name] = (
            np.where(np.isnan(values), 1.0, values + 1) if values.dtype.kind == "f" else np.where(values < 0, 0, -1)
        )
    other = Trace.of(**given_columns)
    if len(values) or isinstance(values, Mapping):
        assert differences(trace, other) == [name]
        assert trace != other


def test_a_column_of_nothing_equals_no_column() -> None:
    bare = trace_of(made(0, 2, plain=True))
    empty = {c.name: getattr(bare, c.name) for c in COLUMNS} | {
        "reward_e": {"judge": np.full(2, np.nan)},
        "extra_e": {"x": Text.of([None, None])},
    }
    assert Trace.of(**empty) == bare


def test_lengths_that_differ_are_told_first() -> None:
    assert differences(trace_of(made(0, 2)), concat([trace_of(made(0, 2)), trace_of(made(1, 3))]))[0] == "rollouts"
    assert trace_of(made(0, 2)) != "a trace"


def test_nothing_can_be_changed() -> None:
    trace = concat([trace_of(made(s, 20)) for s in range(4)])
    for name, _, kind in COLUMNS:
        values = getattr(trace, name)
        arrays: list[Any] = [values]
        if isinstance(values, Text):
            arrays = [values.codes]
        elif isinstance(values, Names):
            arrays = [values.number, values.prefix.codes]
        elif kind in ("floats", "texts"):
            arrays = [v.codes if isinstance(v, Text) else v for v in values.values()]
            with pytest.raises(TypeError):
                values["new"] = 1
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        with pytest.raises(AttributeError):
            setattr(trace, name, None)


def test_it_travels_between_processes() -> None:
    trace = trace_of(made(7, 40))
    assert pickle.loads(pickle.dumps(trace)) == trace
    assert pickle.loads(pickle.dumps(trace)).id_e.strings() == trace.id_e.strings()
    batch = concat([trace, trace_of(made(8, 40))])
    assert pickle.loads(pickle.dumps(batch)) == batch


def test_what_is_given_is_not_changed_behind_ones_back() -> None:
    t = np.array([0.0, 1.0])
    trace = Trace.of(t_e=t)
    assert t.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        trace.t_e[0] = 1


def test_what_is_absent_takes_no_memory() -> None:
    n = 1_000_000
    tracemalloc.start()
    trace = Trace.of(trace_id_n=Text.of(["r"]), t_e=np.broadcast_to(0.0, n))
    both = concat([trace, trace])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    absent = [c for c in COLUMNS if c.axis == "e" and c.kind not in ("row", "agent", "rollout", "name")]
    arrays = [getattr(both, c.name) for c in absent]
    strides = [a.codes.strides if isinstance(a, Text) else a.strides for a in arrays if not isinstance(a, Mapping)]
    assert set(strides) == {(0,)}
    assert peak < 24 * 8 * n, "of the columns that point to rows, only those that must be moved"


def test_it_can_be_looked_at() -> None:
    trace = concat([trace_of(made(s, 8)) for s in range(3)])
    assert repr(trace).startswith("Trace(3 rollouts, 24 events, ")
    assert repr(Trace.of(trace_id_n=Text.of(["r"]), t_e=[0.0])) == "Trace(1 rollout, 1 event, 0 edges, 0 agents)"
    html = trace._repr_html_()
    assert html.count("<tr>") == 11
    assert "14 more" in html
    assert "<table>" in Trace.of()._repr_html_()


def test_what_is_shown_is_escaped() -> None:
    document = made(0, 3, plain=True)
    for event in document["events"]:
        event["agent"] = "<script>&"
    html = concat([trace_of(document), trace_of(document)])._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;&amp;" in html


def test_a_trace_of_events_without_agents_or_types_is_shown_too() -> None:
    assert "<table>" in Trace.of(t_e=[0.0, np.nan])._repr_html_()
    assert "<table>" in Trace.of(t_e=[0.0], rollout_a=[0], name_a=Text.of(["a"]))._repr_html_()


def test_mistakes_are_told() -> None:
    with pytest.raises(TypeError, match="no column surprise_e"):
        Trace.of(surprise_e=[1])
    with pytest.raises(ValueError, match="rows"):
        Trace.of(t_e=[0.0, 1.0], type_e=[0])
    with pytest.raises(ValueError, match="rows"):
        Trace.of(t_e=[0.0, 1.0], reward_e={"a": np.zeros(2), "b": np.zeros(3)})
    trace = concat([trace_of(made(s, 2)) for s in range(2)])
    with pytest.raises(IndexError, match="there are 2 rollouts"):
        trace[2]
    with pytest.raises(IndexError):
        trace[[0, 5]]
    with pytest.raises(ValueError, match="taken once"):
        trace[[0, 0]]
    with pytest.raises(ValueError, match="no axis"):
        trace.rollout_of("z")
    with pytest.raises(TypeError):
        hash(trace)


def test_rollouts_may_be_counted_from_the_end() -> None:
    trace = concat([trace_of(made(s, 2)) for s in range(3)])
    assert trace[-1] == trace[2]
    assert trace[np.int64(1)] == trace[1]
    assert len(trace[:0]) == 0
    assert trace[np.array([True, False, True])] == trace[[0, 2]]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=6))
def test_ranges(pairs: list[tuple[int, int]]) -> None:
    first, count = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    assert ranges(first, count).tolist() == [x for f, c in pairs for x in range(f, f + c)]


def test_the_axis_of_every_row_is_known() -> None:
    trace = concat([trace_of(made(s, 10)) for s in range(3)])
    for axis in AXES:
        of = trace.rollout_of(axis)
        assert (np.diff(of) >= 0).all()
        first = trace.first_of(axis)
        assert len(first) == 4
        assert first[-1] == len(columns._axis(trace, axis))
        assert np.bincount(of, minlength=3).tolist() == np.diff(first).tolist()
