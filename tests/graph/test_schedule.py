from __future__ import annotations

import numpy as np
import pytest
from made import made, thrown

from podium.graph import critical_path, serial_time, with_workers

FORK = made(["d a", "c b", "c c", "c d", "m a"], [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])
W = np.array([1.0, 2.0, 3.0, 4.0, 1.0])


def test_worked_by_hand():
    # two workers: 1 and 2 at time 1; 3 when 1 is done, at 3, until 7; then the last
    assert with_workers(FORK, 2, W).time_n.tolist() == [8.0]
    assert with_workers(FORK, 2, W).lower_n.tolist() == [6.0]
    assert with_workers(FORK, 2, W).upper_n.tolist() == [8.5]


def test_one_worker_is_serial_and_enough_workers_follow_the_path():
    rng = np.random.default_rng(9)
    for _ in range(50):
        run = thrown(rng, 20)
        w = rng.random(20)
        np.testing.assert_allclose(with_workers(run, 1, w).time_n, serial_time(run, w).time_n)
        np.testing.assert_allclose(with_workers(run, 20, w).time_n, critical_path(run, w).time_n)


def test_grahams_bounds():
    rng = np.random.default_rng(10)
    for _ in range(200):
        run = thrown(rng, int(rng.integers(1, 40)))
        w = rng.exponential(1.0, run.n_events) * (rng.random(run.n_events) < 0.8)
        for k in (1, 2, 3, 7):
            time_n, lower_n, upper_n = with_workers(run, k, w)
            assert lower_n[0] <= time_n[0] * (1 + 1e-12)
            assert time_n[0] <= upper_n[0] * (1 + 1e-12)


def slow_makespan(run, k, w):
    """Second by second: whole units of work, a free worker takes the lowest ready row."""
    causes = [set(run.src_x[run.dst_x == r].tolist()) for r in range(run.n_events)]
    left, done, running, now = dict(enumerate(w)), set(), set(), 0
    while True:
        while True:
            idle = [r for r in sorted(left) if r not in done | running and causes[r] <= done]
            free = [r for r in idle if left[r] == 0]
            done |= set(free)
            if not free:
                break
        running |= set(idle[: k - len(running)])
        if not running:
            return now
        now += 1
        for r in list(running):
            left[r] -= 1
            if left[r] == 0:
                running.remove(r)
                done.add(r)


def test_the_same_as_second_by_second():
    rng = np.random.default_rng(11)
    for _ in range(100):
        run = thrown(rng)
        w = rng.integers(0, 4, run.n_events).astype(float)
        for k in (1, 2, 3):
            assert with_workers(run, k, w).time_n[0] == slow_makespan(run, k, w)


def test_nothing_recorded_is_not_zero():
    assert np.isnan(with_workers(made(["d a"]), 2)).all()
    with pytest.raises(ValueError, match="at least one worker"):
        with_workers(FORK, 0)


def test_an_event_without_an_end_takes_no_time_beside_those_that_have_one():
    run = made(["d a", "m b", "m c"])
    given = np.arange(run.n_events, dtype=float) + 1.0
    given[-1] = np.nan
    bare = np.where(np.isnan(given), 0.0, given)
    for k in (1, 2):
        assert with_workers(run, k, given).time_n[0] == with_workers(run, k, bare).time_n[0]
