"""E2, with numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import run

from podium import graph
from podium.metrics.efficiency import (
    busy_agents,
    headroom,
    headroom_from_starts,
    speedup_from_starts,
    utilisation,
    utilisation_by_effect,
)
from podium.registry import find
from podium.rewards.orchestration import speedup
from podium.trace.columns import Text, Trace, concat

SCORES = utilisation, utilisation_by_effect, headroom, busy_agents
EMPTY = Trace.of(trace_id_n=Text.of([]))
SILENT = Trace.of(trace_id_n=Text.of(["silent"]))


def parallel() -> Trace:
    """Two workers from 1 to 4 and from 1 to 3, a lead from 0 to 1 and from 4 to 5; ann's note reaches nobody."""
    return run(
        ("decide lead", (), {"t": 0.0, "end": 1.0}),
        ("spawn lead>ann", [(0, "spawn")], {"t": 1.0}),
        ("spawn lead>bob", [(0, "spawn")], {"t": 1.0}),
        ("call ann", [(1, "spawn")], {"t": 1.0, "end": 4.0, "task_relevant": True}),
        ("call bob", [(2, "spawn")], {"t": 1.0, "end": 3.0, "task_relevant": False}),
        ("message ann>bob", [(3, "causal")], {"t": 4.0, "task_relevant": False}),
        ("return bob>lead", [(4, "causal")], {"t": 4.0, "task_relevant": True}),
        ("aggregate lead", [(6, "aggregate"), (5, "temporal")], {"t": 4.0, "end": 5.0, "task_relevant": True}),
    )


@pytest.mark.parametrize("score", SCORES, ids=lambda f: f.__name__)
def test_of_nothing_nothing_is_known(score) -> None:
    assert score(EMPTY).shape == (0,)
    assert np.isnan(score(SILENT)).all()
    assert np.isnan(score(run("message ann"))).all()


def test_utilisation_is_the_share_of_relevant_steps_of_sub_agents() -> None:
    # steps of ann and bob: two calls, a message, a return; the call of ann and the return of bob are relevant: 2 / 4.
    # The lead's aggregate is relevant and counts for nothing.
    assert utilisation(parallel()).tolist() == [0.5]


def test_utilisation_leaves_out_what_is_not_labelled_and_the_lead() -> None:
    one = run("spawn lead>ann", ("call ann", [0], {"task_relevant": True}), ("call ann", [0]), ("return ann", [0]))
    assert utilisation(one).tolist() == [1.0]  # 1 of the 1 that say
    assert np.isnan(utilisation(run("decide lead", ("call lead", [0], {"task_relevant": True})))).all()


def test_who_was_not_spawned_is_no_sub_agent() -> None:
    assert np.isnan(utilisation(run("decide lead", ("call bob", [0], {"task_relevant": True})))).all()


def test_utilisation_by_effect_is_what_reached_another() -> None:
    # The message of ann reaches nobody, the return of bob and his call the lead, the call of ann her own message: 2 / 4.
    assert utilisation_by_effect(parallel()).tolist() == [0.5]
    heard = run("spawn lead>ann", ("call ann", [0]), ("message ann>lead", [1]), ("decide lead", [(2, "message")]))
    assert utilisation_by_effect(heard).tolist() == [1.0]
    late = run("spawn lead>ann", ("call ann", [0]), ("decide lead", [(1, "temporal")]))
    assert utilisation_by_effect(late).tolist() == [0.0]  # after it, not because of it


def test_headroom_is_how_much_faster_it_could_have_been() -> None:
    # Wall clock 0 to 5. Chains of work without what is merely in time: lead 1, ann 3; lead 1, bob 2, aggregate 1: 4. 5 / 4.
    assert headroom(parallel()).tolist() == [1.25]
    # One after the other, though nothing asked for it: wall clock 4, each chain 2.
    serial = run(("call ann", (), {"t": 0.0, "end": 2.0}), ("call bob", (), {"t": 2.0, "end": 4.0}))
    assert headroom(serial).tolist() == [2.0]
    assert speedup(serial).tolist() == [1.0]


def test_from_starts_an_event_took_the_time_since_its_latest_cause() -> None:
    # ann 0 to 2 and bob 0 to 4, then both to 5: work 2 + 4 + 1 in 5 seconds; the longest chain 4 + 1.
    one = run(
        ("decide lead", (), {"t": 0.0}),
        ("return ann", [0], {"t": 2.0}),
        ("return bob", [0], {"t": 4.0}),
        ("aggregate lead", [1, 2], {"t": 5.0}),
    )
    assert speedup_from_starts(one).tolist() == [7 / 5]
    assert headroom_from_starts(one).tolist() == [1.0]
    assert np.isnan(headroom(one)).all()


def test_busy_agents() -> None:
    # 0-1 lead, 1-3 ann and bob, 3-4 ann, 4-5 lead: (1 + 2 x 2 + 1 + 1) / 5
    assert busy_agents(parallel()) == pytest.approx([7 / 5])


def test_busy_agents_is_the_speedup_where_work_is_never_idle_and_never_doubled() -> None:
    np.testing.assert_allclose(busy_agents(parallel()), speedup(parallel()))


def with_a_person(thinks: float = 95.0, **side: float) -> Trace:
    """The lead works from 0 to 5, the person writes for long, the lead works 5 more; `side` is a worker's time meanwhile."""
    after = 5.0 + thinks
    worker = [("call ann", [(1, "spawn")], {"t": 5.0, "end": 5.0 + side["ann"]})] if side else []
    return run(
        ("message lead>user", (), {"t": 0.0, "end": 5.0}),
        ("spawn lead>ann", [0], {"t": 5.0}),
        ("message user>lead", [(0, "message")], {"t": 5.0, "end": after, "role": "user"}),
        ("message lead>lead", [(2, "message")], {"t": after, "end": after + 5.0}),
        *worker,
    )


def test_the_time_of_a_person_is_not_the_teams() -> None:
    for score in (speedup, busy_agents, headroom):
        assert score(with_a_person()).tolist() == score(with_a_person(thinks=9e4)).tolist()
    assert (
        speedup(with_a_person()).tolist() == busy_agents(with_a_person()).tolist() == [1.0]
    )  # 10 s of work in 10 s
    assert headroom(with_a_person()).tolist() == [1.0]


def test_what_agents_do_while_a_person_thinks_is_the_teams_time() -> None:
    one = with_a_person(ann=40.0)  # 50 s of work in 50 s; the person alone for 55
    assert graph.waiting(one, one.t_e, graph.work(one)).tolist() == [55.0]
    assert speedup(one).tolist() == busy_agents(one).tolist() == [1.0]


def test_no_end_recorded_is_not_an_end_at_once() -> None:
    plain = run("decide lead", ("call ann", [0]), ("aggregate lead", [1]))
    assert np.isnan(headroom(plain)).all()
    assert np.isnan(busy_agents(plain)).all()


def test_a_batch_is_a_longer_trace() -> None:
    both = concat([parallel(), SILENT, parallel()])
    for score in SCORES:
        np.testing.assert_array_equal(score(both)[[0, 2]], np.tile(score(parallel()), 2))


def test_speedup_and_critical_steps_are_the_rewards_functions() -> None:
    assert find("score", "speedup") is speedup
    assert find("score", "critical_steps")(parallel()).tolist() == graph.critical_steps(parallel()).tolist()
