"""Laws of every view: a batch is a longer trace, and how concurrent agents interleave changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from made import thrown

import podium.graph as graph
from podium.graph.grouping import numbered, rows_by, rows_by_time
from podium.trace.columns import Names, Text, Trace, concat

# a view, and the axes that its columns' values point to: "" for plain values, "#" for numbers counted from 0
VIEWS: dict[str, tuple[Callable[[Trace], Any], str]] = {
    "team": (graph.UNITS["team"], "n"),
    "orchestrator": (graph.UNITS["orchestrator"], "e"),
    "role": (graph.UNITS["role"], "#"),
    "agent": (graph.UNITS["agent"], "a"),
    "turn": (graph.UNITS["turn"], "#"),
    "message": (graph.UNITS["message"], "e"),
    "tool_call": (graph.UNITS["tool_call"], "e"),
    "token": (graph.UNITS["token"], "#"),
    "call_of": (graph.call_of, "e"),
    "work": (graph.work, ""),
    "inferred_work": (graph.inferred_work, ""),
    "serial_time": (graph.serial_time, "  "),
    "critical_path": (graph.critical_path, "  "),
    "critical_steps": (graph.critical_steps, ""),
    "lead": (graph.lead, "a"),
    "lives": (graph.lives, "  "),
    "concurrency": (graph.concurrency, "n  "),
    "peak": (graph.peak, ""),
    "mean_busy": (graph.mean_busy, ""),
    "with_workers": (lambda t: graph.with_workers(t, 2), "   "),
    "taint": (graph.taint, ""),
    "through": (graph.through, "e"),
    "carriers": (graph.carriers, ""),
    "persons": (lambda t: graph.persons(t).astype(int), ""),
    "team_work": (graph.team_work, ""),
    "waiting": (lambda t: graph.waiting(t, t.t_e, graph.work(t)), ""),
}


def columns(answer: Any) -> list[np.ndarray]:
    return list(answer) if isinstance(answer, tuple) else [answer]


def joined(parts: list[np.ndarray], points: str, traces: list[Trace]) -> np.ndarray:
    """One column after the other, shifted by what came before."""
    size = {"n": len, "a": lambda t: t.n_agents, "e": lambda t: t.n_events}
    out, by = [], 0
    for part, trace in zip(parts, traces, strict=True):
        out.append(np.where(part >= 0, part + by, part) if points.strip() else part)
        by += (int(part.max(initial=-1)) + 1) if points == "#" else size[points](trace) if points.strip() else 0
    return np.concatenate(out)


@pytest.mark.parametrize("name", VIEWS)
def test_a_batch_is_a_longer_trace(name):
    view, points = VIEWS[name]
    rng = np.random.default_rng(14)
    for _ in range(25):
        runs = [thrown(rng) for _ in range(3)]
        whole = columns(view(concat(runs)))
        apart = [columns(view(run)) for run in runs]
        for i, column in enumerate(whole):
            np.testing.assert_array_equal(column, joined([a[i] for a in apart], points[i : i + 1], runs))


def test_the_law_is_about_every_view():
    public = {n for n in graph.__all__ if n[0].islower()} - {"ancestors", "descendants"}
    assert public <= set(VIEWS)
    assert set(graph.UNITS) <= set(VIEWS)


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_has_views_too(name):
    empty = columns(VIEWS[name][0](Trace.of()))
    silent = columns(VIEWS[name][0](Trace.of(trace_id_n=Text.of(["run"]))))
    assert all(len(c) == 0 for c in empty)
    assert all(len(c) <= 1 for c in silent)


def test_ancestry_stays_inside_its_rollout():
    rng = np.random.default_rng(15)
    for view in (graph.ancestors, graph.descendants):
        for _ in range(25):
            a, b = thrown(rng), thrown(rng)
            row = int(rng.integers(b.n_events))
            both = view(concat([a, b]), a.n_events + row)
            np.testing.assert_array_equal(both, np.append(np.zeros(a.n_events, bool), view(b, row)))


def reordered(trace: Trace, rng: np.random.Generator) -> tuple[Trace, np.ndarray]:
    """The same run in another order of rows: causes still come first, and each agent keeps its own order."""
    order_graph = nx.DiGraph()
    order_graph.add_nodes_from(range(trace.n_events))
    order_graph.add_edges_from(zip(trace.src_x.tolist(), trace.dst_x.tolist(), strict=True))
    for a in np.unique(trace.agent_e):
        order_graph.add_edges_from(nx.utils.pairwise(np.flatnonzero(trace.agent_e == a).tolist()))
    luck = rng.random(trace.n_events)
    old = np.array(list(nx.lexicographical_topological_sort(order_graph, key=lambda r: luck[r])), int)
    new = np.argsort(old)
    x = np.argsort(new[trace.dst_x], kind="stable")
    same: dict[str, Any] = {}
    for name in Trace.__slots__:
        value = getattr(trace, name)
        if name.endswith("_e") and isinstance(value, np.ndarray):
            same[name] = value[old]
        elif name.endswith("_e") and isinstance(value, (Text, Names)):
            same[name] = value.take(old)
        elif name in ("src_x", "dst_x"):
            same[name] = new[value][x]
        elif name == "type_x":
            same[name] = value[x]
        elif name == "owner_k":
            same[name] = new[value]
        elif name in ("trace_id_n", "rollout_a", "name_a", "token_k"):
            same[name] = value
    return Trace.of(**same), old


@pytest.mark.parametrize("view", [graph.taint, graph.work, graph.inferred_work], ids=lambda f: f.__name__)
def test_interleaving_moves_rows_and_nothing_else(view):
    rng = np.random.default_rng(16)
    for _ in range(40):
        run = thrown(rng)
        other, old = reordered(run, rng)
        np.testing.assert_array_equal(view(other), view(run)[old])


@pytest.mark.parametrize(
    "view", [graph.concurrency, graph.peak, graph.mean_busy, graph.serial_time, graph.carriers]
)
def test_interleaving_leaves_totals_alone(view):
    rng = np.random.default_rng(17)
    for _ in range(40):
        run = thrown(rng)
        other, _ = reordered(run, rng)
        for a, b in zip(columns(view(run)), columns(view(other)), strict=True):
            np.testing.assert_allclose(a, b)


def test_interleaving_leaves_the_length_of_the_path_alone():
    rng = np.random.default_rng(18)
    for _ in range(40):
        run = thrown(rng)
        np.testing.assert_allclose(
            graph.critical_path(reordered(run, rng)[0]).time_n, graph.critical_path(run).time_n
        )


def test_rows_by_sorts_like_a_stable_sort():
    rng = np.random.default_rng(19)
    for top in (3, 70_000, 2**33):
        key = rng.integers(-1, top, 500)
        np.testing.assert_array_equal(rows_by(key), np.argsort(key, kind="stable"))
    for t in (rng.random(500), rng.integers(0, 5, 500).astype(float), np.ones(5), np.array([1.0, np.inf, 0.0])):
        np.testing.assert_array_equal(rows_by_time(t), np.argsort(t, kind="stable"))
    assert rows_by(np.array([], int)).tolist() == rows_by_time(np.array([])).tolist() == []
    assert numbered(np.array([], int), np.array([], bool), 2).tolist() == [-1, -1]
