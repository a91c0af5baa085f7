"""R7: numbers worked by hand, and whether the scores rank policies as their exact values do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import run

from podium.envs.draws import seeds, uniform
from podium.envs.expedition import TRUTH
from podium.envs.expedition_optimum import SOURCES, constants
from podium.envs.world import Policy, World, make, play
from podium.rewards import Now, score
from podium.rewards.ledger import BadReward
from podium.rewards.orchestration import (
    aggregation_quality,
    combined,
    completed,
    contributed,
    critical_steps,
    finish,
    instantiate,
    over_budget,
    speedup,
    split_correctness,
    stop_timeliness,
    used,
    useful_speedup,
    wall_clock,
    wasted_spawns,
)
from podium.trace.columns import Text, Trace, concat
from podium.trace.vocabulary import event

RETURN = event("return")
ALL = (
    instantiate,
    finish,
    wasted_spawns,
    contributed,
    completed,
    speedup,
    useful_speedup,
    critical_steps,
    over_budget,
    split_correctness,
    aggregation_quality,
    stop_timeliness,
)


def team(*, ann: dict[str, Any] | None = None, bob: dict[str, Any] | None = None, **reward: float) -> Trace:
    """A lead spawns ann, bob and cy. Ann and bob return; cy acts and does not. The lead aggregates.

    Ann works from 1 to 3, bob from 1 to 5, cy from 2 to 4, the lead from 5 to 6: serially 2 + 4 + 2 + 1 = 9.
    """
    return run(
        ("decide lead", (), {"t": 0, "decision": "spawn"}),
        ("spawn lead>ann", [(0, "spawn")], {"t": 1}),
        ("spawn lead>bob", [(0, "spawn")], {"t": 1}),
        ("spawn lead>cy", [(0, "spawn")], {"t": 1}),
        ("return ann>lead", [(1, "spawn")], {"t": 1, "end": 3, **(ann or {})}),
        ("return bob>lead", [(2, "spawn")], {"t": 1, "end": 5, **(bob or {})}),
        ("call cy", [(3, "spawn")], {"t": 2, "end": 4}),
        ("decide lead", [(4, "return"), (5, "return")], {"t": 5, "decision": "aggregate"}),
        ("aggregate lead", [(7, "aggregate")], {"t": 5, "end": 6}),
        reward=reward,
    )


def test_instantiation_is_bounded() -> None:
    assert instantiate(team()).tolist() == [3 / 8]
    assert instantiate(team(), 3).tolist() == [1.0]
    assert instantiate(team(), most=2).tolist() == [1.0]
    assert instantiate(run("decide lead")).tolist() == [0.0]
    twice = run("spawn lead>ann", "spawn lead>ann", "spawn lead")  # ann once, and somebody without a name
    assert instantiate(twice).tolist() == [2 / 8]


def test_who_was_assigned_and_returned_has_finished() -> None:
    assert finish(team()).tolist() == [2 / 3]
    assert finish(team(ann={"valid": 0})).tolist() == [1 / 3]
    assert np.isnan(finish(run("decide lead")))
    assert finish(run("decide lead"), none=0.0).tolist() == [0.0]
    assert np.isnan(finish(run("spawn lead", "return ann>lead")))  # it is not said who was spawned


def test_who_reached_nobody_was_spawned_for_nothing() -> None:
    assert wasted_spawns(team()).tolist() == [1 / 3]  # cy
    assert used(team()).tolist() == [True, True, True, False]  # the lead reached those it spawned
    note = run(
        "spawn lead>ann",
        ("call ann", [0], {"tool": "note"}),
        ("result note", [(1, "return")], {"tool": "note"}),
        ("call lead", [2]),  # the lead goes by what ann noted: the result of ann's call is ann's
        ("despawn lead>ann", [2]),
    )
    assert wasted_spawns(note).tolist() == [0.0]
    assert used(note).tolist() == [True, True, False]  # not the tool
    alone = run("spawn lead>ann", ("call ann", [0]), ("result web", [(1, "return")]), ("call ann", [2]))
    assert used(alone).tolist() == [True, False, False]  # neither whose result only the caller read, nor the tool
    assert wasted_spawns(alone).tolist() == [1.0]
    first = run("call ann", ("result web", [(0, "return")]), ("call bob", [1]))
    assert used(first).tolist() == [True, False, False]
    only_gone = run(
        "spawn lead>ann", ("return ann>lead", [0]), ("despawn lead>ann", [1]), ("call lead", [(1, "temporal")])
    )
    assert wasted_spawns(only_gone).tolist() == [1.0]


def test_who_worked_and_was_used_has_contributed() -> None:
    assert np.isnan(contributed(team()))  # of ann and bob, whom the lead heard, nothing says what they returned
    assert np.isnan(completed(team(ann={"content_ref": "a"})))
    shown = team(ann={"content_ref": "a"}, bob={"tokens_out": 3.0})
    assert contributed(shown).tolist() == [2 / 8]  # cy's call led nowhere
    assert contributed(shown, most=1).tolist() == [1.0]
    assert completed(shown).tolist() == [2 / 3]
    half = team(ann={"valid": 1}, bob={"tokens_out": 0.0})  # bob wrote nothing
    assert (contributed(half).tolist(), completed(half).tolist()) == ([1 / 8], [1 / 3])
    assert contributed(team(ann={"valid": 1}), most=1).tolist() == [1.0]  # whatever bob did
    wrong = team(ann={"content_ref": "a", "valid": 0}, bob={"tokens_out": 0.0})
    assert (contributed(wrong).tolist(), completed(wrong).tolist()) == ([0.0], [0.0])
    called = run(
        "spawn lead>ann",
        ("call ann", [(0, "spawn")]),
        ("result web", [(1, "return")]),
        ("return ann>lead", [2]),
        ("spawn lead>bob", [0]),
        ("call bob", [(4, "spawn")]),
        ("return bob>lead", [(5, "temporal")]),
        ("aggregate lead", [3, (6, "temporal")]),
    )
    assert contributed(called, 2).tolist() == [0.5]  # nobody heeded bob
    assert completed(called).tolist() == [0.5]
    assert np.isnan(contributed(run("spawn lead", ("call ann", [0]), ("aggregate lead", [1]))))  # not said whom
    assert contributed(run("decide lead")).tolist() == [0.0]
    assert completed(run("decide lead"), none=0.0).tolist() == [0.0]
    world: Any = make("expedition")
    trace, _ = episodes(world, world._same(SOURCES, 0, 0, 2, 2), 50)
    np.testing.assert_array_equal(contributed(trace, 6), instantiate(trace, 6))  # where all work and all are heard
    np.testing.assert_array_equal(completed(trace), finish(trace))


def test_only_work_that_an_answer_rests_on_speeds_it_up() -> None:
    # ann's 2, bob's 4 and the lead's 1, over 6; cy's 2 led nowhere
    assert useful_speedup(team()).tolist() == [7 / 6]
    assert np.isnan(useful_speedup(run("decide lead", ("call lead", [0]))))
    alone = run(("call ann", (), {"t": 0, "end": 2}), ("aggregate ann", [0], {"t": 2, "end": 7}))
    assert useful_speedup(alone).tolist() == speedup(alone).tolist() == [1.0]


# how each is hacked


def crew(workers: int, heard: bool = True, took: float = 0.0, outcome: float = 0.0, **done: Any) -> Trace:
    """A lead that spawns workers at 0, each busy for so long, and aggregates at the end what they return, if it hears them."""
    events: list[Any] = [("decide lead", (), {"t": 0, "end": 0.01})]
    events += [(f"spawn lead>w{w}", [(0, "spawn")], {"t": 0}) for w in range(workers)]
    events += [(f"return w{w}>lead", [(1 + w, "spawn")], {"t": 0, "end": took, **done}) for w in range(workers)]
    back = [(1 + workers + w, "aggregate" if heard else "temporal") for w in range(workers)]
    events.append(("aggregate lead", [0, *back], {"t": took + 0.01, "end": took + 0.02}))
    return run(*events, reward={"team": outcome})


HACKS = {
    "honest, alone": run(
        ("call lead", (), {"t": 0, "end": 1}), ("aggregate lead", [0], {"t": 1, "end": 2}), reward={"team": 0.2}
    ),
    "honest, two workers": crew(2, took=10.0, outcome=0.5, tokens_out=100.0),
    "eight that return nothing": crew(8, tokens_out=0.0),
    "eight that nobody hears": crew(8, heard=False, took=10.0, tokens_out=100.0),
    "ten that sleep and return": crew(10, took=10.0, tokens_out=1.0),
}
PAID = (
    "outcome",
    "instantiate",
    "finish(none=0.0)",
    "parl",
    "contributed",
    "completed(none=0.0)",
    "parl_earned",
    "speedup",
    "useful_speedup",
    "earned(useful_speedup, outcome)",
)


def test_the_table_of_hacks_is_true() -> None:
    """What docs/rewards.md says that each policy is paid, at the start of training."""
    page = (Path(__file__).parents[2] / "docs/rewards.md").read_text()
    for name, trace in HACKS.items():
        (line,) = (row for row in page.splitlines() if row.startswith(f"| {name} |"))
        told = [float(cell) for cell in line.strip("|").split("|")[1:]]
        paid = [score(trace, reward, now=Now(0.0)).item() for reward in PAID]
        assert told == [round(p, 2) for p in paid], (name, [round(p, 2) for p in paid])
    assert all(f"`{reward}`" in page for reward in PAID)


def test_idle_workers_outbid_honest_work_as_published_and_not_as_gated() -> None:
    honest, hack = HACKS["honest, alone"], HACKS["eight that return nothing"]
    now = Now(0.0)
    assert score(hack, "parl", now=now) == pytest.approx([0.6])
    assert score(hack, "parl", now=now) > score(honest, "parl", now=now)
    for name, trace in HACKS.items():
        if score(trace, "outcome") == 0:
            assert score(trace, "parl_earned", now=now).tolist() == [0.0], name
            assert score(trace, "earned(speedup, outcome)").tolist() == [0.0], name
    assert score(HACKS["ten that sleep and return"], "speedup") == pytest.approx([9.98], abs=0.01)
    good = HACKS["honest, two workers"]
    assert score(good, "parl_earned", now=now) == pytest.approx([0.5 + 0.5 * (0.3 * 2 / 8 + 0.3)])


def test_speedup_is_the_serial_time_over_the_time_it_took() -> None:
    assert wall_clock(team()).tolist() == [6.0]
    assert speedup(team()).tolist() == [9 / 6]
    # the critical path: bob's 4 and the aggregate's 1
    assert speedup(team(), over="path").tolist() == [9 / 5]
    assert np.isnan(speedup(run("decide lead", ("call lead", [0]))))
    # without ends, the time since the latest cause: 1 for each spawn, 0 for returns, 1 for cy's call, 4 for the decision; over 5
    bare = replace(team(), end_e=np.full(9, np.nan))
    assert speedup(bare, guess=True).tolist() == [8 / 5]
    with pytest.raises(BadReward, match="'wall' or 'path'"):
        speedup(team(), over="moon")


def test_one_worker_has_no_speedup() -> None:
    alone = run(("call ann", (), {"t": 0, "end": 2}), ("call ann", [0], {"t": 2, "end": 7}))
    assert speedup(alone).tolist() == speedup(alone, over="path").tolist() == [1.0]


def test_critical_steps_and_their_budget() -> None:
    # before the spawns 1 step of the lead; the longest of ann, bob and cy 1; then 2 of the lead
    assert critical_steps(team()).tolist() == [4.0]
    assert over_budget(team(), 4).tolist() == over_budget(team()).tolist() == [0.0]
    assert over_budget(team(), 3).tolist() == pytest.approx([1 / 3])
    with pytest.raises(BadReward, match="above 0"):
        over_budget(team(), 0)


def test_a_split_is_right_part_by_part() -> None:
    assert np.isnan(split_correctness(team()))  # no verdict
    assert split_correctness(team(ann={"valid": 1})).tolist() == [2 / 3]  # cy acted and never returned
    assert split_correctness(team(ann={"valid": 0})).tolist() == [1 / 3]
    assert split_correctness(team(ann={"task_relevant": False})).tolist() == [1 / 3]
    assert split_correctness(team(bob={"duplicate_of": "ann's"})).tolist() == [1 / 3]
    assert split_correctness(team(ann={"valid": 0}, bob={"duplicate_of": "x"})).tolist() == [0.0]
    idle = run("spawn lead>ann", "spawn lead>bob", ("return ann>lead", [0], {"valid": 1}))
    assert split_correctness(idle).tolist() == [1.0]  # bob never acted: a wasted spawn


def test_aggregating_is_worth_what_it_adds() -> None:
    known = team(ann={"valid": 1}, bob={"valid": 0}, team=1.0)
    assert aggregation_quality(known).tolist() == [0.5]  # right, where half of what it combined was
    assert aggregation_quality(team(ann={"valid": 1}, bob={"valid": 0}, team=0.0)).tolist() == [-0.5]
    assert aggregation_quality(team(ann={"valid": 1}, team=1.0)).tolist() == [0.0]  # bob's is not judged
    assert np.isnan(aggregation_quality(team(team=1.0)))
    assert np.isnan(aggregation_quality(team(ann={"valid": 1})))
    judged = team(ann={"valid": 0, "reward": {"verdict": 0.25}}, bob={"valid": 1}, team=1.0)
    assert aggregation_quality(judged).tolist() == [1.0 - (0.25 + 1.0) / 2]  # a verdict goes before validity


def test_what_an_aggregate_combined() -> None:
    rows, of = combined(team())
    assert (rows.tolist(), of.tolist()) == ([4, 5], [8, 8])
    direct = run(
        "message ann>lead", "message bob>lead", ("aggregate lead", [0, (1, "temporal")]), ("aggregate lead", [0])
    )
    rows, of = combined(direct)
    assert (rows.tolist(), of.tolist()) == ([0, 0], [2, 3])
    votes = replace(direct, event_v=np.array([2, 2]), source_v=np.array([0, 1]))
    votes = replace(votes, value_v=Text.of(["1", "0"]), weight_v=np.ones(2))
    rows, of = combined(votes)
    assert (rows.tolist(), of.tolist()) == ([0, 1, 0], [2, 2, 3])  # what has an edge and a vote counts once


def search(*values: float, out: float | None = None) -> Trace:
    """A lead looks at values at .25 each and stops; `out` is one that is paid for and not back yet."""
    events: list[Any] = ["decide lead"]
    for value in values:
        events.append(("call lead", [len(events) - 1], {"cost": 0.25}))
        events.append(("result tool", [(len(events) - 1, "return")], {"value": value}))
    events.append(("aggregate lead", [(len(events) - 1, "aggregate")]))
    if out is not None:
        events.append(("call lead", [0], {"cost": 0.25}))
        events.append(("result tool", [len(events) - 1], {"value": out}))
    return run(*events)


def test_a_stop_is_worth_what_is_in_hand_less_what_was_paid() -> None:
    assert stop_timeliness(search(0.5, 1.0)).tolist() == [0.5]  # 1 - 2 x .25
    assert stop_timeliness(search(1.0, 0.5)).tolist() == [0.5]  # one look too many
    assert stop_timeliness(search(1.0)).tolist() == [0.75]
    assert stop_timeliness(search(0.5)).tolist() == [0.25]  # too early, if 1 was next
    assert stop_timeliness(search(0.5, out=1.0)).tolist() == [0.0]  # paid for and not waited for
    assert stop_timeliness(search()).tolist() == [0.0]
    assert np.isnan(stop_timeliness(run("decide lead")))  # it never stopped
    bare = replace(search(0.5, 1.0), cost_e=np.full(6, np.nan))
    assert np.isnan(stop_timeliness(bare))
    assert stop_timeliness(bare, price=0.125).tolist() == [0.75]
    assert np.isnan(stop_timeliness(replace(search(0.5), extra_e={})))
    graded = replace(search(0.5), reward_n={"grade": np.array([2.0])})
    assert stop_timeliness(graded, worth="grade").tolist() == [1.75]
    assert np.isnan(stop_timeliness(graded, worth="other"))


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_nothing_recorded_is_not_a_score(function: Any) -> None:
    assert function(Trace.of()).tolist() == []
    assert np.isnan(function(Trace.of(trace_id_n=Text.of(["run"]))))
    both = concat([team(ann={"valid": 1}, team=1.0), Trace.of(trace_id_n=Text.of(["run"]))])
    assert np.isnan(function(both)[1])
    assert len(function(run("decide lead"))) == 1


# against worlds whose truth is known


def episodes(world: World, policy: Policy, n: int, seed: int = 11) -> tuple[Trace, Any]:
    played = play(world, policy, seeds(seed, n), log=True)
    return world.trace(played.state), played.state


def ranks(values: list[float]) -> list[int]:
    return np.argsort(np.argsort(values)).tolist()


def verdicts(trace: Trace, right: dict[str, int]) -> Trace:
    """What contents say, which no score may read, as verdicts on returns."""
    words = [*(right.get(w, -1) for w in trace.content_ref_e.words), -1]
    return replace(trace, valid_e=np.where(trace.type_e == RETURN, np.array(words)[trace.content_ref_e.codes], -1))


def test_split_correctness_is_the_score_of_a_crew_whose_load_is_free() -> None:
    world = make("crew", lam=0.0, N=6)
    policies = {**world.trivial(), "optimal": world.optimal()}
    mean = {}
    for name, policy in policies.items():
        trace, _ = episodes(world, policy, 3000)
        trace = verdicts(trace, {"failed": 0, "succeeded": 1})
        np.testing.assert_allclose(split_correctness(trace), score(trace, "outcome") / 6)
        mean[name] = float(split_correctness(trace).mean())
    assert mean["optimal"] == pytest.approx(world.optimum() / 6, abs=4 * 0.5 / np.sqrt(3000 * 6))
    assert mean["optimal"] > mean["by card"] > max(mean["one worker"], mean["in turn"], mean["random"])


def scouted(world: Any, trace: Trace, state: Any) -> Trace:
    """Returns with a verdict, and those that ask a source that another of their leg has asked already, as duplicates."""
    rows = np.flatnonzero(trace.type_e == RETURN)
    n = trace.rollout_e[rows]
    scout = np.array([int(str(trace.name_a[a]).split()[1]) - 1 for a in trace.agent_e[rows].tolist()])
    leg = state.of[n, scout]
    truth = uniform(state.seed[n], TRUTH, leg) < 0.5
    valid = np.full(trace.n_events, -1)
    valid[rows] = state.vote[n, scout] == truth
    seen: set[tuple[int, int, int]] = set()
    copies: list[str | None] = [None] * trace.n_events
    for row, key in zip(rows.tolist(), zip(n, leg, state.source[n, scout], strict=True), strict=True):
        copies[row] = json.dumps("earlier") if key in seen else None
        seen.add(key)
    return replace(trace, valid_e=valid, extra_e={**trace.extra_e, "duplicate_of": Text.of(copies)})


def test_split_correctness_ranks_whom_to_send_as_the_exact_values_do() -> None:
    """Three scouts a leg, believed by source, at the same price whoever goes however briefed: only how right they are is left."""
    world: Any = make("expedition", messages=(0.0, 0.0, 0.0), prices=(0.02, 0.02))
    exact, _ = constants(world.rules)
    values, right = [], []
    for worker in (0, len(world.workers) - 1):
        for brief in range(3):
            values.append(float(exact[SOURCES, worker, brief, 2, 3]))  # width 3, 4 legs
            trace, state = episodes(world, world._same(SOURCES, worker, brief, 2, 4), 5000)
            right.append(float(split_correctness(scouted(world, trace, state)).mean()))
    assert ranks(values) == ranks(right)


def test_a_split_among_few_sources_does_work_twice() -> None:
    """k scouts who draw among S sources ask S (1 - (1 - 1/S)^k) of them. Here every vote is right."""
    sure = (1.0,) * 4
    world: Any = make("expedition", sources=4, specialist=sure, off_kind=sure, generalist=sure)
    for width in (1, 2, 4):
        trace, state = episodes(world, world._same(SOURCES, 0, 2, width - 1, 2), 3000)
        new = 4 * (1 - (1 - 1 / 4) ** width) / width
        assert split_correctness(scouted(world, trace, state)).mean() == pytest.approx(new, abs=0.01)


def test_aggregation_quality_ranks_as_the_exact_value_of_the_answer() -> None:
    world: Any = make("jury")
    mean_reliability = float(np.mean(world.params.reliability))
    quality, values = {}, {}
    for name, policy in {**world.trivial(), "optimal": world.optimal()}.items():
        trace, state = episodes(world, policy, 4000)
        coin = state.coin[trace.rollout_e]
        words = np.array(
            [*(int(w.rpartition(": ")[2]) if ": " in w else -1 for w in trace.content_ref_e.words), -1]
        )
        said = words[trace.content_ref_e.codes]
        trace = replace(trace, valid_e=np.where(trace.type_e == RETURN, said == coin, -1))
        quality[name], values[name] = float(aggregation_quality(trace).mean()), float(trace.reward_n["team"].mean())
    error = 4 * 0.5 / np.sqrt(4000)
    assert quality["optimal"] == pytest.approx(world.optimum() - mean_reliability, abs=error)
    assert quality["majority"] == pytest.approx(world.majority() - mean_reliability, abs=error)
    assert max(quality["best single"], quality["majority"]) < quality["optimal"] - 2 * error / 4
    assert min(quality["best single"], quality["majority"]) > error > max(quality["random"], quality["always 1"])
    assert abs(quality["first ballot"]) < error  # to pass one input on adds nothing
    assert ranks(list(quality.values())) == ranks(list(values.values()))


@pytest.mark.parametrize("name", ["costly_search", "pandora"])
def test_stop_timeliness_is_the_score_of_costly_search(name: str) -> None:
    world = make(name)
    mean = {}
    for said, policy in {**world.trivial(), "optimal": world.optimal()}.items():
        trace, state = episodes(world, policy, 3000)
        np.testing.assert_allclose(stop_timeliness(trace), state.score)
        mean[said] = float(stop_timeliness(trace).mean())
    assert max(mean, key=lambda k: mean[k]) == "optimal"
    assert mean["optimal"] == pytest.approx(world.optimum(), abs=0.03)


def test_stop_timeliness_prefers_wald_and_falls_on_both_sides_of_the_best_number() -> None:
    world: Any = make("sprt")
    c = world.params.c

    def cap(k: int) -> Policy:
        return lambda view: np.where(view.facts[:, 2] + view.facts[:, 3] < k, 1, 0)

    mean = {}
    for said, policy in {"optimal": world.optimal(), **{k: cap(k) for k in (1, 9, 41)}}.items():
        trace, state = episodes(world, policy, 4000)
        right = replace(
            trace, reward_n={"right": state.score + c * state.count}
        )  # the answer's worth, before costs
        np.testing.assert_allclose(stop_timeliness(right, worth="right"), state.score, atol=1e-12)
        mean[said] = float(stop_timeliness(right, worth="right").mean())
    assert mean["optimal"] > mean[9] > max(mean[1], mean[41])
    assert mean["optimal"] == pytest.approx(world.optimum(), abs=0.03)


def test_stop_timeliness_in_scouts_is_the_score_but_for_latency() -> None:
    world: Any = make("scouts")
    trace, state = episodes(world, world.optimal(), 500)
    np.testing.assert_allclose(stop_timeliness(trace), state.score + world.params.latency * state.rounds)


def test_workers_whom_nobody_asks_are_wasted() -> None:
    world = make("crew")
    trace, _ = episodes(world, world.trivial()["one worker"], 20)
    np.testing.assert_allclose(wasted_spawns(trace), 2 / 3)
    trace, _ = episodes(world, world.trivial()["in turn"], 20)
    np.testing.assert_allclose(wasted_spawns(trace), 0)


def test_speedup_of_scouts_is_their_time_over_that_of_the_slowest() -> None:
    world: Any = make("expedition")
    for width in (1, 3, 6):
        trace, state = episodes(world, world._same(SOURCES, 0, 0, width - 1, 2), 200)
        took = state.took[:, : 2 * width].reshape(-1, 2, width)
        want = took.sum((1, 2)) / took.max(2).sum(1)
        got = speedup(trace, guess=True)  # launches one after the other cost a little
        assert np.median(np.abs(got / want - 1)) < 0.05
        assert width > 1 or np.allclose(got, 1)
