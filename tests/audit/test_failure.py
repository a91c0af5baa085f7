"""How orchestration fails: numbers worked by hand, and honest teams that must not be blamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from staged import staged

from podium.audit import Second, Suspects
from podium.audit.failure import (
    aggregation_leakage,
    dominant_agent,
    late_stop,
    over_communication,
    premature_stop,
    serial_collapse,
    topology_mismatch,
)
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import TOPOLOGIES

FAILURES = (
    aggregation_leakage,
    dominant_agent,
    late_stop,
    over_communication,
    premature_stop,
    serial_collapse,
    topology_mismatch,
)
NEEDY = (late_stop, premature_stop, serial_collapse, topology_mismatch)  # a lone decision does not tell them enough


def found(suspects: Suspects) -> list[tuple[int, float]]:
    return [(int(r), round(float(f), 6)) for r, f in zip(suspects.rollout, suspects.figure, strict=True)]


@pytest.mark.parametrize("detector", FAILURES)
def test_nothing_recorded_is_nothing_found(detector: Any) -> None:
    assert not len(detector(Trace.of(), Second(), 0.1).figure)
    one = detector(staged("decide lead"), Second(), 0.1)
    assert not len(one.figure)
    assert one.tells_n.tolist() == [detector not in NEEDY]


# serial collapse


def two_workers(second_starts: float, tie: str = "temporal") -> Trace:
    """Two workers of 10 s each, the second launched after the first, as the edge says: in time or as its effect."""
    return staged(
        "call ann",
        f"call bob < 0:{tie}",
        t_e=np.array([0.0, second_starts]),
        end_e=np.array([10.0, second_starts + 10.0]),
    )


def test_what_could_run_at_once_and_did_not() -> None:
    # T1 = 20, T_inf = 10. In turn T_busy = 20: 1 - 0/1. Half over each other 15: 1 - (20/15 - 1)/1 = 2/3
    suspects = serial_collapse(two_workers(10.0), Second(), 0.8)
    assert found(suspects) == [(0, 1.0)]
    assert suspects.row.tolist() == []
    assert found(serial_collapse(two_workers(5.0), Second(), 0.0)) == [(0, 0.666667)]
    assert found(serial_collapse(two_workers(0.0), Second(), 0.0)) == [(0, 0.0)]


def test_who_waited_is_the_evidence() -> None:
    trace = staged(
        "decide lead",
        "call ann < 0",
        "call bob < 0",
        t_e=np.array([0.0, 1.0, 11.0]),
        end_e=np.array([1.0, 11.0, 21.0]),
    )
    # T1 = 21, T_inf = 11, T_busy = 21; bob was ready at 1 and began at 11
    suspects = serial_collapse(trace, Second(), 0.8)
    assert found(suspects) == [(0, 1.0)]
    assert suspects.row.tolist() == [2]


def test_a_chain_of_causes_and_one_agent_alone_are_not_blamed() -> None:
    assert found(serial_collapse(two_workers(10.0, "causal"), Second(), 0.1)) == []
    alone = staged("call ann", "call ann", "call ann", end_e=np.array([1.0, 2.0, 3.0]))
    assert found(serial_collapse(alone, Second(), 0.1)) == []


def test_waiting_that_is_nobodys_work_is_not_serial() -> None:
    # two at once, an hour of nothing, two at once: T1 = 40, T_inf = 20, T_busy = 20
    t = np.array([0.0, 0.0, 3600.0, 3600.0])
    trace = staged("call ann", "call bob", "call ann < 0", "call bob < 1", t_e=t, end_e=t + 10.0)
    assert found(serial_collapse(trace, Second(), 0.0)) == [(0, 0.0)]


def test_few_end_times_do_not_tell() -> None:
    end_e = np.array([1.0, np.nan, np.nan])
    assert serial_collapse(
        staged("call ann", "call bob", "call cat", end_e=end_e), Second(), 0.0
    ).tells_n.tolist() == [False]


# one dominant agent


def shares(*steps: int, roles: tuple[str, ...] = ()) -> Trace:
    lines = [f"spawn lead>w{i}" for i in range(len(steps))]
    for i, many in enumerate(steps):
        lines += [f"call w{i}" + (f" role={roles[i]}" if roles else "")] * many
    return staged(*lines, f"message lead>w{int(np.argmax(steps))}")


def test_one_agent_does_nearly_everything() -> None:
    # 18 of 20 by one of four: (0.9 - 0.25)/0.75
    suspects = dominant_agent(shares(1, 18, 1, 0), Second(), 0.8)
    assert found(suspects) == [(0, 0.866667)]
    assert suspects.row.tolist() == [0, 1, 2, 3, 24]  # the spawns, and what the one was told
    assert found(dominant_agent(shares(10, 10, 10), Second(), 0.0)) == [(0, 0.0)]


def test_small_teams_short_runs_and_specialists_are_not_blamed() -> None:
    assert found(dominant_agent(shares(40, 0), Second(), 0.1)) == []
    assert found(dominant_agent(shares(19, 0, 0), Second(), 0.1)) == []
    assert found(dominant_agent(shares(2, 60, 3, roles=("planner", "executor", "critic")), Second(), 0.1)) == []
    # two executors beside one critic are two, not three
    assert found(dominant_agent(shares(60, 1, 3, roles=("executor", "executor", "critic")), Second(), 0.1)) == []


# over-communication


def chatter(heeded: int, ignored: int, late: int = 0) -> Trace:
    lines = []
    for _ in range(heeded):
        lines += ["message ann>bob", f"call bob < {len(lines)}:message"]
    lines += ["message ann>bob"] * ignored + ["call bob"] + ["message ann>bob"] * late
    return staged(*lines)


def test_messages_that_nobody_acts_upon() -> None:
    suspects = over_communication(chatter(4, 6), Second(), 0.5)
    assert found(suspects) == [(0, 0.6)]
    assert suspects.row.tolist() == [8, 9, 10, 11, 12, 13]
    assert found(over_communication(chatter(6, 4), Second(), 0.5)) == []


def test_few_messages_late_messages_and_missing_edges() -> None:
    assert found(over_communication(chatter(1, 8), Second(), 0.5)) == []
    assert (
        found(over_communication(chatter(9, 1, late=30), Second(), 0.5)) == []
    )  # bob was done: ann could not know
    silent = over_communication(chatter(0, 12), Second(), 0.5)
    assert found(silent) == []
    assert silent.tells_n.tolist() == [False]


# leakage


def merged(*contents: str, made: str = "m", wrote: float = np.nan, each: float = np.nan, **more: Any) -> Trace:
    """The lead aggregates returns with these contents, and decides to first."""
    n = len(contents)
    lines = [f"return w{i}>lead content_ref={c}" for i, c in enumerate(contents)]
    lines += [
        "decide lead < " + " ".join(f"{i}:return" for i in range(n)),
        f"aggregate lead content_ref={made} < {n}:aggregate",
    ]
    return staged(*lines, tokens_out_e=np.array([each] * n + [np.nan, wrote]), **more)


def test_one_input_copied() -> None:
    suspects = aggregation_leakage(merged("a", "b", "c", made="b"), Second(), 0.95)
    assert found(suspects) == [(0, 1.0)]
    assert suspects.row.tolist() == [4, 1]


def test_all_inputs_poured_in() -> None:
    # 3 x 200 tokens read; 576 written is 0.96 of it, 300 is half
    suspects = aggregation_leakage(merged("a", "b", "c", wrote=576.0, each=200.0), Second(), 0.95)
    assert found(suspects) == [(0, 0.96)]
    assert suspects.row.tolist() == [4, 0, 1, 2]
    assert found(aggregation_leakage(merged("a", "b", "c", wrote=300.0, each=200.0), Second(), 0.0)) == [(0, 0.5)]


def test_agreement_votes_and_long_reports_are_no_leak() -> None:
    assert found(aggregation_leakage(merged("a", "a", "c", made="a"), Second(), 0.5)) == []
    vote = {"event_v": np.array([3]), "source_v": np.array([1]), "value_v": Text.of(["b"])}
    assert found(aggregation_leakage(merged("a", "b", made="b", **vote), Second(), 0.5)) == []
    assert found(aggregation_leakage(merged("a", "b", wrote=900.0, each=200.0), Second(), 0.5)) == []
    assert found(aggregation_leakage(merged("a", "b", wrote=6.0, each=3.0), Second(), 0.5)) == []
    assert found(aggregation_leakage(merged("a", made="a"), Second(), 0.5)) == []  # one input is not combined


def test_an_aggregate_without_contents_or_tokens_does_not_tell() -> None:
    trace = staged("return ann>lead", "return bob>lead", "aggregate lead < 0:aggregate 1:aggregate")
    assert aggregation_leakage(trace, Second(), 0.5).tells_n.tolist() == [False]


# topology


def team(size: int, topology: str) -> Trace:
    lines = ["message user>lead", "decide lead", *(f"spawn lead>w{i}" for i in range(size - 1))]
    return staged(*lines, topology_n=np.array([TOPOLOGIES.index(topology)]))


def test_more_agents_than_trained_and_new_shapes() -> None:
    second = Second(trained=team(4, "swarm"))
    suspects = topology_mismatch(team(8, "swarm"), second, 1.0)
    assert found(suspects) == [(0, 1.0)]
    assert suspects.row.tolist() == list(range(2, 9))
    assert found(topology_mismatch(team(7, "swarm"), second, 1.0)) == []
    assert found(topology_mismatch(team(2, "debate"), second, 1.0)) == [(0, 9.0)]
    assert found(topology_mismatch(team(2, "unknown"), second, 1.0)) == []


# stopping


def answers(*values: float, between: int = 4) -> Trace:
    lines = []
    for value in values:
        lines += ["call lead"] * (between - 1) + [f"aggregate lead value={value}"]
    return staged(*lines)


def test_steps_after_the_answer_settled() -> None:
    # 1 2 2 2 2, four steps each: it settled with step 8 of 20, so 12/20
    suspects = late_stop(answers(1, 2, 2, 2, 2), Second(), 0.5)
    assert found(suspects) == [(0, 0.6)]
    assert suspects.row.tolist() == [7, 11, 15, 19]
    assert found(late_stop(answers(1, 2, 3), Second(), 0.0)) == [(0, 0.0)]
    assert found(late_stop(answers(2, 2, 1, 2), Second(), 0.5)) == []  # it changed, and came back


def test_two_answers_or_none_do_not_tell() -> None:
    assert late_stop(answers(1, 1), Second(), 0.5).tells_n.tolist() == [False]
    assert late_stop(staged(*["aggregate lead"] * 4), Second(), 0.5).tells_n.tolist() == [False]


def test_votes_state_an_answer_and_only_the_lead_states_the_teams() -> None:
    votes = {
        "event_v": np.array([0, 0, 0, 1, 2, 2]),
        "source_v": np.full(6, -1),
        "value_v": Text.of(["x", "y", "y", "y", "x", "y"]),
        "weight_v": np.array([1.5, 1.0, 1.0, np.nan, 1.0, 3.0]),
    }
    assert found(late_stop(staged(*["aggregate lead"] * 3, **votes), Second(), 0.5)) == [(0, 0.666667)]  # y y y
    other = staged("spawn lead>ann", *["aggregate ann value=1"] * 5)
    assert late_stop(other, Second(), 0.5).tells_n.tolist() == [False]


def test_stopping_while_work_is_out() -> None:
    trace = staged(
        "spawn lead>ann",
        "spawn lead>bob",
        "spawn lead>cat",
        "call cat < 2:spawn",
        "return ann>lead < 0:spawn",
        "aggregate lead < 4:aggregate",
        "return bob>lead < 1:spawn",
    )
    # of three sent out ann is back; bob returns too late, cat never
    suspects = premature_stop(trace, Second(), 0.3)
    assert found(suspects) == [(0, 0.666667)]
    assert suspects.row.tolist() == [1, 2, 5]


def test_open_calls_of_the_lead() -> None:
    # two of three calls are answered, the second by the rules' pairing
    lines = [
        "call lead tool=a",
        "result a tool=a < 0:return",
        "call lead tool=b",
        "result b tool=b",
        "call lead tool=c",
    ]
    assert found(premature_stop(staged(*lines, "decide lead"), Second(), 0.3)) == []  # no stop, no aggregate
    suspects = premature_stop(staged(*lines, "aggregate lead"), Second(), 0.3)
    assert found(suspects) == [(0, 0.333333)]
    assert suspects.row.tolist() == [4, 5]


def test_despawned_talking_and_merely_enrolled_agents_are_not_outstanding() -> None:
    gone = staged("spawn lead>ann", "spawn lead>bob", "despawn lead>ann", "despawn lead>bob", "aggregate lead")
    assert found(premature_stop(gone, Second(), 0.1)) == []
    talk = staged(
        "spawn lead>ann",
        "spawn lead>bob",
        "message ann>lead < 0:spawn",
        "message bob>lead < 1:spawn",
        "aggregate lead < 2:aggregate 3:aggregate",
    )
    assert found(premature_stop(talk, Second(), 0.1)) == []
    roster = staged(
        "spawn lead>ann",
        "spawn lead>bob",
        "decide lead",
        "return ann>lead < 0:spawn 2:causal",
        "aggregate lead < 3:aggregate",
    )
    assert found(premature_stop(roster, Second(), 0.1)) == []


def test_a_lead_that_goes_on_has_not_stopped() -> None:
    trace = staged("spawn lead>ann", "spawn lead>bob", "aggregate lead", "call lead")
    assert premature_stop(trace, Second(), 0.1).tells_n.tolist() == [False]
