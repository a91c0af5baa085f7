from __future__ import annotations

import networkx as nx
import numpy as np
from made import made, thrown

from podium.graph import ancestors, descendants
from podium.trace import sweep
from podium.trace.vocabulary import edge

RUN = made(["d a"] * 5, [(0, 1), (0, 2, "message"), (1, 3), (2, 3, "message"), (3, 4)])


def test_worked_by_hand():
    assert np.flatnonzero(descendants(RUN, 1)).tolist() == [3, 4]
    assert np.flatnonzero(ancestors(RUN, 3)).tolist() == [0, 1, 2]
    assert np.flatnonzero(ancestors(RUN, 3, ["message"])).tolist() == [0, 2]
    assert np.flatnonzero(descendants(RUN, [1, 3])).tolist() == [3, 4]  # 3 is among them because 1 led to it
    assert not ancestors(RUN, 0).any()


def test_nothing_leads_nowhere():
    assert not descendants(RUN, []).any()
    assert not descendants(made(["d a"]), 0).any()


def test_the_same_as_networkx():
    rng = np.random.default_rng(2)
    for _ in range(150):
        run = thrown(rng)
        graph = nx.DiGraph()
        graph.add_nodes_from(range(run.n_events))
        graph.add_edges_from(zip(run.src_x.tolist(), run.dst_x.tolist(), strict=True))
        row = int(rng.integers(run.n_events))
        assert set(np.flatnonzero(descendants(run, row))) == nx.descendants(graph, row)
        assert set(np.flatnonzero(ancestors(run, row))) == nx.ancestors(graph, row)
        keep = run.type_x == edge("message")
        few = nx.DiGraph()
        few.add_nodes_from(range(run.n_events))
        few.add_edges_from(zip(run.src_x[keep].tolist(), run.dst_x[keep].tolist(), strict=True))
        assert set(np.flatnonzero(ancestors(run, row, ["message"]))) == nx.ancestors(few, row)


def test_one_is_the_mirror_of_the_other():
    rng = np.random.default_rng(3)
    for _ in range(50):
        run = thrown(rng)
        a, b = rng.integers(run.n_events, size=2)
        assert descendants(run, int(a))[b] == ancestors(run, int(b))[a]


def test_sweeps_follow_their_recursions():
    rng = np.random.default_rng(4)
    for _ in range(200):
        run = thrown(rng, int(rng.integers(1, 40)))
        n, edges = run.n_events, list(zip(run.src_x.tolist(), run.dst_x.tolist(), strict=True))
        mark, work = rng.random(n) < 0.2, rng.integers(0, 5, n).astype(float)
        hit, found, done = mark.tolist(), np.where(mark, np.arange(n), -1).tolist(), work.tolist()
        for j in range(n):
            causes = [s for s, d in edges if d == j]
            hit[j] = hit[j] or any(hit[s] for s in causes)
            found[j] = j if mark[j] else max((found[s] for s in causes), default=-1)
            done[j] = work[j] + max((done[s] for s in causes), default=0.0)
        assert sweep.reach(mark, run.src_x, run.dst_x).tolist() == hit
        assert sweep.latest(mark, run.src_x, run.dst_x).tolist() == found
        assert sweep.done_times(work, run.src_x, run.dst_x).tolist() == done


def test_a_long_chain_is_no_trouble():
    n = 100_000
    row = np.arange(n - 1)
    assert sweep.done_times(np.ones(n), row, row + 1)[-1] == n
    assert sweep.reach(np.arange(n) == 0, row, row + 1).all()
    assert (sweep.latest(np.arange(n) == 7, row, row + 1)[7:] == 7).all()
