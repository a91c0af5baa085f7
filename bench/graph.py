"""How fast the views of a trace are, how they grow, and how they compare with networkx.

    python -m bench.graph [--full] [--json]

Timings are the best of a few runs on one core. The networkx side answers the same question from a graph that is
already built, with its own algorithms where it has one; both answers are compared before the times are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from bench import generate
from bench.table import Row, at_least, at_most, best, calibration, command, exponent
from podium.graph import UNITS, concurrency, critical_path, lives, through
from podium.trace.columns import Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

__all__ = ["measure"]

SIZES, HELD = (10_000, 100_000, 1_000_000), 100_000
SMALL_SIZES, SMALL_HELD = (500, 2_000), 2_000
SECONDS, TIMES, EXPONENT = 0.5, 20.0, 1.1


class Case(NamedTuple):
    name: str
    ours: Callable[[Trace], Any]
    theirs: Callable[[nx.DiGraph], Any]
    same: Callable[[Any, Any], bool]


def measure(full: bool) -> list[Row]:
    """Per view: seconds at the largest size, growth exponent and ratio to networkx at a size that it holds."""
    sizes, held = (SIZES, HELD) if full else (SMALL_SIZES, SMALL_HELD)
    traces = {n: generate.trace(n, tokens=True) for n in sizes}
    ours = [{n: best(7 if full else 1, partial(case.ours, t))[0] for n, t in traces.items()} for case in CASES]
    graph = as_networkx(traces[held])  # built last: so large a heap of small objects would slow us down too
    rows = [
        row for case, seconds in zip(CASES, ours, strict=True) for row in _rows(case, seconds, traces[held], graph)
    ]
    return [
        *rows,
        calibration("2.4", full),
    ]


def _rows(case: Case, seconds: dict[int, float], trace: Trace, graph: nx.DiGraph) -> list[Row]:
    if not case.same(case.ours(trace), case.theirs(graph)):
        raise AssertionError(f"{case.name}: networkx has another answer")
    held = trace.n_events
    slow = best(3 if held >= HELD else 1, partial(case.theirs, graph))[0]
    largest = max(seconds)
    growth = exponent(list(seconds), list(seconds.values()))
    return [
        at_most(
            f"2.4.{case.name}.s",
            f"seconds for the {case.name.replace('_', ' ')} of {largest:,} events",
            seconds[largest],
            SECONDS,
            "time",
        ),
        at_least(
            f"2.4.{case.name}.x",
            f"networkx over ours, {held:,} events (times faster)",
            slow / seconds[held],
            TIMES,
            "time",
        ),
        at_most(
            f"2.4.{case.name}.exponent", f"growth, {min(seconds):,} to {largest:,} events", growth, EXPONENT, "time"
        ),
    ]


def as_networkx(trace: Trace) -> nx.DiGraph:
    """The trace as a networkx user would hold it: what is known of an event or an edge lies on the node or edge.

    The node "start" leads to every root. An edge weighs what the event it leads to took.
    """
    graph = nx.DiGraph()
    took = np.nan_to_num(trace.end_e - trace.t_e).tolist()
    owns = set(trace.owner_k.tolist())
    columns = (trace.type_e, trace.agent_e, trace.to_e, trace.t_e, trace.end_e, trace.trusted_e, trace.rollout_e)
    for row, (kind, agent, to, t, end, trusted, rollout) in enumerate(
        zip(*(c.tolist() for c in columns), strict=True)
    ):
        wrote = row in owns or trace.model_e.codes[row] >= 0
        about = {
            "agent": agent,
            "to": to,
            "t": t,
            "end": end,
            "trusted": trusted,
            "rollout": rollout,
            "wrote": wrote,
        }
        graph.add_node(row, type=EVENT_TYPES[kind], role=trace.role_e[row], **about)
    for s, d, kind in zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True):
        graph.add_edge(s, d, type=EDGE_TYPES[kind], work=took[d])
    for row in [v for v in graph if not graph.pred[v]]:
        graph.add_edge("start", row, type="temporal", work=took[row])
    graph.nodes["start"]["type"] = "start"
    return graph


def nx_critical_path(graph: nx.DiGraph) -> float:
    path = nx.dag_longest_path(graph, weight="work")
    return float(sum(graph[u][v]["work"] for u, v in nx.utils.pairwise(path)))


def nx_taint(graph: nx.DiGraph) -> dict[int, int]:
    """The latest untrusted mark behind each tainted event, for the tainted ones only.

    A search written by hand over the dictionaries of the graph, from the latest mark to the earliest, touches only
    what is tainted: where that is a seventh of the events, as here, it needs a seventh of the time.
    """
    node = graph.nodes

    def passes(u: Any, v: Any) -> bool:
        kind = node[v]["type"]
        return graph[u][v]["type"] != "temporal" and kind not in ("human_intervention", "safety_event")

    source: dict[int, int] = {}
    for v in nx.topological_sort(graph):
        if node[v].get("trusted") == 0:
            source[v] = v
        else:
            found = [source[u] for u in graph.pred[v] if u in source and passes(u, v)]
            if found:
                source[v] = max(found)
    return source


def nx_spans(graph: nx.DiGraph) -> tuple[dict[int, list[float]], list[tuple[float, int]]]:
    """Lives by agent, then the steps of how many are busy."""
    life: dict[int, list[float]] = {}
    born: dict[int, float] = {}
    died: dict[int, float] = {}
    pieces = defaultdict(list)
    for _, e in graph.nodes(data=True):
        if e["type"] == "start":
            continue
        done = e["t"] if e["end"] != e["end"] else e["end"]
        span = life.setdefault(e["agent"], [e["t"], done])
        span[0], span[1] = min(span[0], e["t"]), max(span[1], done)
        if e["type"] == "spawn":
            born.setdefault(e["to"], e["t"])
            died.pop(e["to"], None)
        elif e["type"] == "despawn":
            died[e["to"] if e["to"] >= 0 else e["agent"]] = e["t"]
        if e["end"] > e["t"]:
            pieces[e["agent"]].append((e["t"], e["end"]))
    for agent, t in born.items():
        life.setdefault(agent, [t, float("nan")])[0] = t
    for agent, t in died.items():
        life.setdefault(agent, [float("nan"), t])[1] = t
    change: dict[float, int] = defaultdict(int)
    for work in pieces.values():
        work.sort()
        start, end = work[0]
        for t, until in work[1:]:
            if t > end:
                change[start] += 1
                change[end] -= 1
                start, end = t, until
            end = max(end, until)
        change[start] += 1
        change[end] -= 1
    profile, busy = [], 0
    for t in sorted(change):
        busy += change[t]
        profile.append((t, busy))
    return life, profile


def nx_units(graph: nx.DiGraph) -> dict[str, dict[int, int]]:
    """All units but the token, which is no node of this graph."""
    node, pred = graph.nodes, graph.pred
    units: dict[str, dict[int, int]] = {name: {} for name in list(UNITS)[:-1]}
    roles: dict[tuple[int, str], int] = {}
    latest: dict[int, int] = {}
    before: dict[int, str] = {}  # the type of an agent's latest event
    lane: dict[int, int] = {}
    turn: dict[int, int] = {}
    turns = 0
    for v in graph:  # rows, causes first
        e = node[v]
        kind = e["type"]
        if kind == "start":
            continue
        units["team"][v], units["agent"][v] = e["rollout"], e["agent"]
        if e["role"] is not None:
            units["role"][v] = roles.setdefault((e["rollout"], e["role"]), len(roles))
        latest[v] = v if kind == "orchestrator_decision" else max((latest.get(u, -1) for u in pred[v]), default=-1)
        units["orchestrator"][v] = latest[v]
        who = e["agent"]
        if kind == "tool_call":
            units["tool_call"][v] = v
        elif kind == "tool_result":
            call = max((u for u in pred[v] if node[u]["type"] == "tool_call"), default=-1)
            if call >= 0:
                units["tool_call"][v], who = call, node[call]["agent"]
        elif kind == "message":
            units["message"][v] = v
            if not e["wrote"]:
                wrote = [
                    u
                    for u in pred[v]
                    if node[u].get("wrote")
                    and node[u]["agent"] == who
                    and node[u]["type"] not in ("message", "tool_call")
                ]
                if wrote:
                    units["message"].setdefault(max(wrote), v)
        lane[v] = who
        told = kind == "tool_result" or any(
            at["type"] != "temporal" and (lane[u] != who or node[u]["type"] == "tool_result")
            for u, at in pred[v].items()
            if u != "start"
        )
        if who not in turn or (told and before[who] != "tool_result"):
            turn[who], turns = turns, turns + 1
        units["turn"][v], before[who] = turn[who], kind
    return units


def _spans(trace: Trace) -> Any:
    return lives(trace), concurrency(trace)


def _same_spans(ours: Any, theirs: Any) -> bool:
    (start_a, end_a), (_, t, count) = ours
    life, profile = theirs
    wanted = np.array([life.get(a, [np.nan, np.nan]) for a in range(len(start_a))])
    steps = [(t, n) for t, n in zip(t.tolist(), count.tolist(), strict=True)]
    return np.array_equal(np.column_stack([start_a, end_a]), wanted, equal_nan=True) and steps == profile


def _same_units(ours: Any, theirs: Any) -> bool:
    return all(
        ours[name].tolist() == [units.get(row, -1) for row in range(len(ours[name]))]
        for name, units in theirs.items()
    )


CASES = (
    Case("critical_path", critical_path, nx_critical_path, lambda a, b: bool(np.isclose(a.time_n[0], b))),
    Case("spans", _spans, nx_spans, _same_spans),
    Case("units", lambda t: {name: unit(t) for name, unit in UNITS.items()}, nx_units, _same_units),
    Case("taint", through, nx_taint, lambda a, b: a.tolist() == [b.get(row, -1) for row in range(len(a))]),
)


if __name__ == "__main__":
    command(measure, __doc__)
