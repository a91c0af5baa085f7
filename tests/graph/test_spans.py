from __future__ import annotations

import numpy as np
from made import kind, made, thrown

from podium.graph import concurrency, lives, mean_busy, peak, serial_time
from podium.trace.columns import concat

NAN = np.nan


def test_lives_worked_by_hand():
    run = made(
        ["spawn lead>w", "m w>lead", "despawn lead>w", "d lead", "m w>ghost"],
        end_e=np.array([NAN, 1.5, NAN, 7.0, NAN]),
    )
    lead, w, ghost = 0, 1, 2
    start_a, end_a = lives(run)
    assert (start_a[lead], end_a[lead]) == (0.0, 7.0)
    assert (start_a[w], end_a[w]) == (0.0, 2.0)  # a despawn ends it, whatever the log says later
    assert np.isnan([start_a[ghost], end_a[ghost]]).all()


def test_a_second_spawn_takes_the_despawn_back():
    run = made(["spawn a>w", "despawn a>w", "spawn a>w", "m w"], end_e=np.array([NAN, NAN, NAN, 9.0]))
    assert [c.tolist() for c in lives(run)] == [[0.0, 0.0], [2.0, 9.0]]
    assert lives(made(["spawn a>w", "m w", "despawn w"])).end_a[1] == 2.0  # it despawned itself


def test_spawned_but_silent_is_a_life_without_an_end():
    start_a, end_a = lives(made(["spawn a>w"]))
    assert start_a[1] == 0.0
    assert np.isnan(end_a[1])


WORK = made(
    ["d a", "c a", "m b", "m b", "d c"],
    t_e=np.array([0.0, 1.0, 2.0, 5.0, 6.0]),
    end_e=np.array([4.0, 3.0, 5.0, 6.0, NAN]),
)


def test_concurrency_worked_by_hand():
    # a works 0-4 (its second piece inside the first), b works 2-5 and on to 6, c does not say
    rollout, t, busy = concurrency(WORK)
    assert rollout.tolist() == [0, 0, 0, 0]
    assert list(zip(t.tolist(), busy.tolist(), strict=True)) == [(0.0, 1), (2.0, 2), (4.0, 1), (6.0, 0)]
    assert peak(WORK).tolist() == [2.0]
    assert mean_busy(WORK).tolist() == [(4 + 4) / 6]


def test_one_worker_alone_is_busy_once():
    run = made(["d a", "d a"], end_e=np.array([1.0, 2.0]))
    assert peak(run).tolist() == mean_busy(run).tolist() == [1.0]


def test_nothing_recorded_is_not_zero():
    both = concat([made(["d a"]), WORK])
    assert np.isnan(peak(both)[0])
    assert np.isnan(mean_busy(both)[0])
    assert peak(both)[1] == 2.0
    assert concurrency(made([])).t.tolist() == []


def test_the_same_as_looking_at_every_moment():
    rng = np.random.default_rng(5)
    for _ in range(150):
        run = thrown(rng)
        _, t, busy = concurrency(run)
        for now in np.arange(0, 20, 0.5):
            at_work = {
                a
                for a, s, e in zip(run.agent_e.tolist(), run.t_e, run.end_e, strict=True)
                if a >= 0 and s <= now < e
            }
            step = np.searchsorted(t, now, side="right") - 1
            assert (busy[step] if step >= 0 else 0) == len(at_work)


def test_lives_the_same_as_one_by_one():
    rng = np.random.default_rng(6)
    for _ in range(150):
        run = thrown(rng)
        for a in range(run.n_agents):
            own = [r for r in range(run.n_events) if run.agent_e[r] == a]
            born = [r for r in range(run.n_events) if kind(run, r) == "spawn" and run.to_e[r] == a]
            died = [
                r
                for r in range(run.n_events)
                if kind(run, r) == "despawn" and (run.to_e[r] == a or (run.to_e[r] < 0 and run.agent_e[r] == a))
            ]
            start = run.t_e[born[0]] if born else min((run.t_e[r] for r in own), default=NAN)
            end = max((run.t_e[r] if np.isnan(run.end_e[r]) else run.end_e[r] for r in own), default=NAN)
            if died and (not born or died[-1] > born[-1]):
                end = run.t_e[died[-1]]
            np.testing.assert_array_equal([c[a] for c in lives(run)], [start, end])


def test_work_that_never_overlaps_in_an_agent_adds_up():
    run = made(["d a", "d b", "d a"], end_e=np.array([1.0, 3.0, 4.0]))
    _, t, busy = concurrency(run)
    assert (np.diff(t) * busy[:-1]).sum() == serial_time(run).time_n[0]
