from __future__ import annotations

import numpy as np
from made import kind, made, parents, thrown

from podium.graph import carriers, descendants, persons, taint, through

RUN = made(
    # 0      1      2      3      4                       5      6
    ["c a", "r web", "m a>b", "m b", "human_intervention h", "m b", "r web"],
    [(0, 1), (1, 2), (2, 3, "temporal"), (2, 4), (4, 5), (2, 6)],
    trusted_e=np.array([-1, 0, -1, -1, -1, -1, 0]),
)


def test_worked_by_hand():
    assert taint(RUN).tolist() == [False, True, True, False, False, False, True]
    assert through(RUN).tolist() == [-1, 1, 1, -1, -1, -1, 6]
    assert carriers(RUN).tolist() == [1, 2, 0, 0]  # a, web, b, h


def test_a_release_that_is_itself_untrusted_releases_nothing():
    run = made(["r w", "safety_event g", "m a"], [(0, 1), (1, 2)], trusted_e=np.array([0, 0, -1]))
    assert taint(run).tolist() == [True, True, True]
    assert through(run).tolist() == [0, 1, 1]


def test_unmarked_is_clean():
    assert not taint(made(["m a", "m b"], [(0, 1)])).any()


def test_without_releases_it_is_descent():
    rng = np.random.default_rng(12)
    other = ("causal", "spawn", "message", "tool_dependency", "return", "aggregate", "safety_flow")
    for _ in range(50):
        run = thrown(rng)
        if not persons(run).any() and not {"human_intervention", "safety_event"} & {
            kind(run, r) for r in range(run.n_events)
        }:
            marked = run.trusted_e == 0
            np.testing.assert_array_equal(taint(run), marked | descendants(run, marked, other))


def test_the_same_as_one_by_one():
    rng = np.random.default_rng(13)
    for _ in range(200):
        run = thrown(rng)
        found: list[int] = []
        person = persons(run)
        for r in range(run.n_events):
            behind = max((found[s] for s, k in parents(run, r) if k != "temporal"), default=-1)
            wrote = kind(run, r) == "message" and run.agent_e[r] >= 0 and person[run.agent_e[r]]
            looked = wrote or kind(run, r) in ("human_intervention", "safety_event")
            found.append(r if run.trusted_e[r] == 0 else -1 if looked else behind)
        assert through(run).tolist() == found
        assert taint(run).tolist() == [f >= 0 for f in found]
