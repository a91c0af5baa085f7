"""The generator of the benches makes what it says: valid, seeded, deep, and about 1.3 edges an event."""

from __future__ import annotations

import numpy as np
import pytest

from bench.generate import trace
from podium.graph import taint
from podium.trace.rules import check
from podium.trace.vocabulary import EVENT_TYPES, event


@pytest.mark.parametrize("n", [1, 2, 3, 7, 60, 500, 3000])
def test_no_rule_is_broken(n):
    for seed in range(4):
        run = trace(
            n, seed=seed, tokens=seed % 2 == 1, extras=seed % 2 == 0, ids="podium" if seed > 1 else "random"
        )
        assert run.n_events == n
        assert [f for f in check(run) if f.level == "error"] == []


def test_its_shape():
    run = trace(20_000)
    assert 1.2 < run.n_edges / run.n_events < 1.4
    assert (np.diff(run.dst_x) >= 0).all()
    assert (run.src_x < run.dst_x).all()
    assert (run.t_e[run.src_x] <= run.t_e[run.dst_x]).all()
    assert (np.bincount(run.type_e, minlength=len(EVENT_TYPES)) > 0).all()
    assert check(run) == []
    assert 0 < taint(run).mean() < 0.5
    causes = np.bincount(run.dst_x, minlength=run.n_events)
    roots = np.flatnonzero(causes == 0)
    assert roots[0] == 0
    assert (run.type_e[roots[1:]] == event("human_intervention")).all()
    depth = np.zeros(run.n_agents, int)
    for row in np.flatnonzero(run.type_e == event("spawn")):
        depth[run.to_e[row]] = depth[run.agent_e[row]] + 1
    assert depth.max() > 2


def test_it_repeats():
    assert trace(300, seed=3) == trace(300, seed=3)
    assert trace(300, seed=3) != trace(300, seed=4)
