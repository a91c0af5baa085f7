"""Work that nobody used, and work that was done twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from staged import staged

from bench import teams
from podium.audit import Second, Suspects, detectors
from podium.audit.score_laws import reordered
from podium.audit.waste import dead_spawn, repeated_work
from podium.registry import facts, find
from podium.trace.columns import Trace, concat


def found(suspects: Suspects) -> list[tuple[int, float]]:
    return [(int(r), round(float(f), 6)) for r, f in zip(suspects.rollout, suspects.figure, strict=True)]


def dead(trace: Trace, second: Second = Second()) -> list[str | None]:  # noqa: B008 (immutable)
    return [trace.name_a[int(a)] for a in dead_spawn(trace, second, 1.0).agent]


@pytest.mark.parametrize("detector", [dead_spawn, repeated_work])
def test_nothing_recorded_is_nothing_found(detector: Any) -> None:
    assert not len(detector(Trace.of(), Second(), 0.1).figure)
    one = detector(staged("decide lead"), Second(), 0.1)
    assert not len(one.figure)
    assert one.tells_n.tolist() == [True]


TEAM = (
    "spawn lead>ann",
    "spawn lead>bob",
    "spawn lead>cat",
    "return ann>lead < 0:spawn",
    "call bob tool=web < 1:spawn",
    "result web tool=web < 4:return",
    "return bob>lead < 5",
    "aggregate lead < 3:aggregate",
)


def test_idle_and_unheard() -> None:
    suspects = dead_spawn(staged(*TEAM), Second(), 1.0)
    assert suspects.figure.tolist() == [1.0, 1.0]
    assert dead(staged(*TEAM)) == ["bob", "cat"]
    assert suspects.row[suspects.of == 0].tolist() == [1, 4, 6]  # its spawn, and what it did
    assert suspects.row[suspects.of == 1].tolist() == [2]


def test_a_despawn_and_ones_own_children_are_no_effect() -> None:
    trace = staged(
        *TEAM[:4],
        "spawn bob>dan < 1:spawn",
        "return dan>bob < 4:spawn",
        "call bob < 5:return",
        "despawn lead>bob < 6",
        "aggregate lead < 3:aggregate",
    )
    assert dead(trace) == ["bob", "cat"]  # dan reached bob; bob reached nobody but dan and its end
    reached = staged(*TEAM[:4], "spawn bob>dan < 1:spawn", "return dan>lead < 4:spawn", "aggregate lead < 3 5")
    assert dead(reached) == ["cat"]  # through dan, bob reached the lead


def test_who_acts_on_the_world_is_not_dead() -> None:
    trace = staged(*TEAM)
    assert dead(trace, Second(privileged=frozenset(["web"]))) == ["cat"]
    labelled = staged(*TEAM[:4], "call bob privileged=true < 1:spawn", "aggregate lead < 3:aggregate")
    assert dead(labelled) == ["cat"]


WORKFLOW = (
    "spawn graph>ann",
    "return ann>graph < 0:spawn",
    "spawn graph>bob < 1",
    "spawn graph>cat < 1",
    "return bob>graph < 2:spawn",
    "spawn graph>dan < 4",
    "return dan>graph < 5:spawn",
)


def test_the_last_return_to_a_workflow_is_the_answer_of_the_run() -> None:
    assert dead(staged(*WORKFLOW)) == ["cat"]  # dan's return leads to nothing: it is what the workflow gives back
    assert dead(staged(*WORKFLOW, "aggregate graph < 4:aggregate")) == ["cat", "dan"]  # who aggregates left it out


def test_another_agent_may_read_what_a_tool_kept() -> None:
    trace = staged(
        "spawn lead>ann",
        "spawn lead>bob",
        "call ann tool=note < 0:spawn",
        "result note tool=note < 2:return",
        "call bob < 1:spawn 3",
        "return bob>lead < 4",
        "aggregate lead < 5:aggregate",
    )
    assert dead(trace) == []


def test_without_edges_only_the_idle_are_told() -> None:
    busy = dead_spawn(staged("spawn lead>ann", "return ann>lead"), Second(), 1.0)
    assert found(busy) == []
    assert busy.tells_n.tolist() == [False]
    assert dead(staged("spawn lead>ann", "spawn lead>bob", "return ann>lead")) == ["bob"]


def test_calls_that_another_agent_made_before() -> None:
    lines = [f"call ann tool=web content_ref={c}" for c in "abcd"]
    lines += [f"call bob tool=web content_ref={c}" for c in "abxy"] + [
        "call ann tool=web content_ref=a",
        "call bob tool=sql content_ref=c",
    ]
    # bob repeats a and b, ann repeats a after bob has; c went to another tool: 3 of 10
    suspects = repeated_work(staged(*lines), Second(), 0.3)
    assert found(suspects) == [(0, 0.3)]
    assert suspects.row.tolist() == [0, 1, 4, 5, 8]


def test_order_in_the_log_does_not_matter() -> None:
    lines = [*(f"call ann content_ref={c}" for c in "abc"), *(f"call bob content_ref={c}" for c in "abx")]
    mixed = [lines[i] for i in (3, 0, 4, 1, 2, 5)]
    assert (
        found(repeated_work(staged(*lines), Second(), 0.1))
        == found(repeated_work(staged(*mixed), Second(), 0.1))
        == [(0, 0.333333)]
    )


def test_a_critic_checks_and_few_calls_say_nothing() -> None:
    work = [f"call ann role=worker content_ref={c}" for c in "abc"] + [
        f"call bob role=worker content_ref={c}" for c in "xyz"
    ]
    check = [f"call cat role=critic content_ref={c}" for c in "abcxyz"]
    spawns = [f"spawn lead>{n}" for n in ("ann", "bob", "cat")]
    assert found(repeated_work(staged(*spawns, *work, *check), Second(), 0.1)) == []
    assert found(repeated_work(staged("call ann content_ref=a", "call bob content_ref=a"), Second(), 0.1)) == []
    silent = repeated_work(staged(*["call ann", "call bob"] * 4), Second(), 0.1)
    assert found(silent) == []
    assert silent.tells_n.tolist() == [False]


# laws of the detectors of these three groups


MINE = [n for n in detectors() if facts("detector", n)["group"] in ("hacking", "failure", "waste")]
ALONE = [n for n in MINE if n != "verifier_collusion"]  # which is about a population of runs


def seen(name: str, trace: Trace, row: list[int] | None = None, strength: float = 0.3) -> list[Any]:
    """What a detector finds at a low threshold, rows named by `row`: (run, agent, figure, evidence), then tells."""
    second = Second(trained=teams.trace([teams.play(1, "debate")]), privileged=teams.PRIVILEGED)
    said = find("detector", name)(trace, second, strength * facts("detector", name)["threshold"])
    rows = range(trace.n_events) if row is None else row
    evidence: list[list[int]] = [[] for _ in said.figure]
    for r, of in zip(said.row.tolist(), said.of.tolist(), strict=True):
        evidence[of].append(rows[r])
    columns = said.rollout.tolist(), said.agent.tolist(), said.figure.round(9).tolist(), map(sorted, evidence)
    return [*sorted(zip(*columns, strict=True)), said.tells_n.tolist()]


def runs() -> list[Trace]:
    return [teams.trace([teams.play(40 + i, shape)]) for i, shape in enumerate(teams.SHAPES)]


@pytest.mark.parametrize("name", ALONE)
def test_a_batch_is_a_longer_trace(name: str) -> None:
    both, e, a = [], 0, 0
    tells: list[bool] = []
    for n, run in enumerate(runs()):
        *one, told = seen(name, run)
        both += [(n, who + a if who >= 0 else -1, figure, [r + e for r in rows]) for _, who, figure, rows in one]
        tells, e, a = [*tells, *told], e + run.n_events, a + run.n_agents
    assert seen(name, concat(runs())) == [*sorted(both), tells]


@pytest.mark.parametrize("name", MINE)
def test_it_does_not_matter_how_the_log_interleaves_agents(name: str) -> None:
    for trace in runs():
        other, old = reordered(trace, np.random.default_rng(0))
        assert seen(name, other, old.tolist()) == seen(name, trace)
