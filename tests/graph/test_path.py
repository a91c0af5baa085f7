from __future__ import annotations

import networkx as nx
import numpy as np
from made import made, thrown

from podium.graph import critical_path, inferred_work, serial_time, work

NAN = np.nan
DIAMOND = made(["d a", "c b", "c c", "m a"], [(0, 1), (0, 2), (1, 3), (2, 3)])
W = np.array([1.0, 2.0, 4.0, 1.0])


def test_worked_by_hand():
    time_n, on_e = critical_path(DIAMOND, W)
    assert time_n.tolist() == [6.0]
    assert on_e.tolist() == [True, False, True, True]
    assert serial_time(DIAMOND, W).time_n.tolist() == [8.0]


def test_of_equal_chains_the_lowest_rows():
    assert critical_path(DIAMOND, np.array([1.0, 2.0, 2.0, 1.0])).on_e.tolist() == [True, True, False, True]


def test_work_is_what_the_clock_says():
    run = made(["d a", "d a", "d a"], t_e=np.array([1.0, 2.0, 9.0]), end_e=np.array([1.5, NAN, 8.0]))
    np.testing.assert_array_equal(work(run), [0.5, NAN, 0.0])
    assert [c.tolist() for c in serial_time(run)] == [[0.5], [2]]


def test_inferred_work_is_the_time_since_the_latest_cause():
    run = made(["d a", "d b", "m a", "m c"], [(0, 2), (1, 2)], t_e=np.array([0.0, 3.0, 7.0, 8.0]))
    assert inferred_work(run).tolist() == [0.0, 0.0, 4.0, 0.0]


def test_inferred_work_is_not_negative_where_clocks_disagree():
    run = made(["d a", "m b", "m c"], [(0, 1), (1, 2)], t_e=np.array([5.0, 3.0, 4.0]))
    assert inferred_work(run).tolist() == [0.0, 0.0, 1.0]
    assert serial_time(run, inferred_work(run)).time_n.tolist() == [1.0]


def test_nothing_recorded_is_not_zero():
    run = made(["d a", "d a"], [(0, 1)])
    assert np.isnan(critical_path(run).time_n[0])
    assert not critical_path(run).on_e.any()
    assert np.isnan(serial_time(run).time_n[0])
    assert serial_time(run).count_n.tolist() == [0]


def test_on_a_chain_the_path_is_everything():
    run = made(["d a"] * 3, [(0, 1), (1, 2)])
    w = np.array([0.1, 0.2, 0.3])
    time_n, on_e = critical_path(run, w)
    assert on_e.all()
    np.testing.assert_allclose(time_n, serial_time(run, w).time_n)


def test_the_same_as_networkx_and_its_events_are_a_chain_of_that_length():
    rng = np.random.default_rng(7)
    for _ in range(200):
        run = thrown(rng)
        w = np.where(rng.random(run.n_events) < 0.8, rng.random(run.n_events), NAN)
        time_n, on_e = critical_path(run, w)
        if np.isnan(w).all():
            assert np.isnan(time_n[0])
            continue
        cost = np.nan_to_num(w)
        graph = nx.DiGraph()
        graph.add_weighted_edges_from(("start", r, cost[r]) for r in range(run.n_events))
        graph.add_weighted_edges_from(
            (s, d, cost[d]) for s, d in zip(run.src_x.tolist(), run.dst_x.tolist(), strict=True)
        )
        np.testing.assert_allclose(time_n[0], nx.dag_longest_path_length(graph))
        rows = np.flatnonzero(on_e).tolist()
        np.testing.assert_allclose(cost[rows].sum(), time_n[0])
        assert all(graph.has_edge(a, b) for a, b in nx.utils.pairwise(rows))


def test_inferred_work_makes_the_path_as_long_as_the_clock():
    """Only causes are waited for, so on a connected log the path is the time from the first event to the last."""
    run = made(["d a", "d b", "m a", "m c"], [(0, 1), (0, 2), (1, 3), (2, 3)], t_e=np.array([0.0, 3.0, 7.0, 8.0]))
    assert critical_path(run, inferred_work(run)).time_n.tolist() == [8.0]
