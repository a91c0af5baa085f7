"""Who is responsible for what a person corrects, and what it makes invalid."""

from __future__ import annotations

from staged import staged

from podium.audit.interventions import RULES, interventions, invalidated
from podium.trace import concat
from podium.trace.columns import Trace


def blamed(trace: Trace) -> list[tuple[int, int, str | None]]:
    found = interventions(trace)
    rules = [RULES[r] if r >= 0 else None for r in found.rule.tolist()]
    return list(zip(found.row.tolist(), found.decision.tolist(), rules, strict=True))


def invalid(trace: Trace) -> list[list[int]]:
    found = interventions(trace)
    row, of, looked = invalidated(trace, found)
    assert looked.all()
    return [sorted(row[of == i].tolist()) for i in range(len(found))]


TEAM = (
    "decide lead",  # 0
    "spawn lead>ann < 0:spawn",
    "decide lead < 0",  # 2
    "spawn lead>bob < 2:spawn",
    "call ann tool=web < 1",
    "call bob tool=web < 3",
)


def test_what_led_to_it_is_responsible() -> None:
    trace = staged(
        *TEAM, "human boss < 5", "return bob>lead < 5", "return ann>lead < 4", "decide lead < 6 7:temporal"
    )
    assert blamed(trace) == [(6, 2, "cause")]
    # of what the second decision led to: bob's spawn, call and return; not ann, not what follows the intervention
    assert invalid(trace) == [[3, 5, 7]]


def test_else_the_latest_decision_of_whom_it_addresses() -> None:
    trace = staged(*TEAM, "human boss>lead", "decide lead < 6:safety_flow")
    assert blamed(trace) == [(6, 2, "addressee")]
    assert invalid(trace) == [[3, 5]]


def test_else_whoever_sent_the_addressee() -> None:
    trace = staged(*TEAM, "human boss>ann")
    assert blamed(trace) == [(6, 0, "above")]
    assert invalid(trace) == [[1, 2, 3, 4, 5]]  # the second decision followed from the first


def test_else_what_came_before() -> None:
    assert blamed(staged(*TEAM, "human boss < 4:temporal")) == [(6, 0, "order")]
    assert blamed(staged("human boss", "decide lead")) == [(0, -1, None)]
    assert blamed(staged("decide lead")) == []


def test_the_addressees_later_decisions_are_not_to_blame() -> None:
    trace = staged("human boss>lead", "decide lead")
    assert blamed(trace) == [(0, -1, None)]
    assert invalid(trace) == [[]]


def test_several_in_a_run_and_several_runs() -> None:
    one = staged(*TEAM, "human boss < 5", "human boss < 4")
    assert blamed(one) == [(6, 2, "cause"), (7, 0, "cause")]
    assert invalid(one) == [[3, 5], [1, 2, 3, 4, 5, 6]]
    two = staged(*TEAM, "human boss>lead")
    both = concat([one, two])
    assert blamed(both) == [(6, 2, "cause"), (7, 0, "cause"), (14, 10, "addressee")]
    assert invalid(both) == [[3, 5], [1, 2, 3, 4, 5, 6], [11, 13]]


def test_of_each_run_only_so_many_are_looked_at() -> None:
    trace = staged("decide lead", "call lead tool=t < 0", *(["human boss>lead"] * 5))
    row, of, looked = invalidated(trace, interventions(trace), most=2)
    assert looked.tolist() == [True, True, False, False, False]
    assert (row.tolist(), of.tolist()) == ([1, 1], [0, 1])
