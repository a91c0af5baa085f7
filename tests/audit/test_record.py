"""What a record lacks."""

from __future__ import annotations

from staged import staged

from podium.audit import Second
from podium.audit.record import missing_result, sequence_gap
from podium.trace.columns import Text


def test_a_call_without_a_result() -> None:
    trace = staged(
        "call ann tool=web",
        "result web tool=web < 0:return",
        "call ann tool=web",
        "call bob tool=sql",
        "result sql tool=sql",
    )
    suspects = missing_result(trace, Second(), 1.0)
    assert suspects.row.tolist() == [2]  # the first is joined by an edge, the last by its tool
    assert (suspects.figure.tolist(), suspects.agent.tolist()) == ([1.0], [0])


def test_a_call_that_failed_is_not_missed() -> None:
    assert not len(missing_result(staged("call ann tool=web valid=0"), Second(), 1.0))
    assert len(missing_result(staged("call ann tool=web valid=1"), Second(), 1.0)) == 1


def levels(*lines: str) -> list[bool]:
    suspects = missing_result(staged(*lines), Second(), 1.0)
    assert suspects.open is not None
    return [not one for one in suspects.open.tolist()]


TURN = (
    "message lead>lead",
    "call lead tool=Task < 0",
    "spawn lead>ann < 1:spawn",
    "call lead tool=Task < 0",
    "spawn lead>bob < 3:spawn",
    "call lead tool=Read < 0",
    "result lead tool=Read < 5:return",
)


def test_calls_side_by_side_where_the_record_ends_may_still_run() -> None:
    assert levels(*TURN) == [False, False]  # agents at work, and a call of the same turn that was answered
    assert levels(*TURN, "message lead>lead < 6") == [True, True]  # the lead went on without their results


def test_in_a_log_with_faults_the_result_may_be_what_could_not_be_read() -> None:
    lines = (
        "call ann tool=web",
        "message ann>bob",
        "call ann tool=web",
        "result web < 2:return",
        "message ann>bob",
    )
    assert levels(*lines) == [True]
    for params, level in (('{"faults":2}', False), ('{"faults":0}', True), ('{"cwd":"/"}', True), ("[]", True)):
        suspects = missing_result(staged(*lines, params_n=Text.of([params])), Second(), 1.0)
        assert suspects.open is not None
        assert (not suspects.open[0]) == level


def test_an_agent_without_turns_goes_on_with_its_next_call() -> None:
    assert levels("call ann tool=web", "call ann tool=sql") == [True, False]


def test_a_run_without_events_tells_nothing() -> None:
    assert missing_result(staged(), Second(), 1.0).tells_n.tolist() == [False]
    assert missing_result(staged("decide lead"), Second(), 1.0).tells_n.tolist() == [True]


def test_numbers_that_are_skipped() -> None:
    trace = staged(
        "decide lead seq=1",
        "decide ann seq=1",
        "decide lead seq=2",
        "decide lead seq=6",
        "decide ann seq=2",
        "decide lead seq=8",
        "decide bob",
    )
    suspects = sequence_gap(trace, Second(), 1.0)
    # the lead's 3, 4, 5 and 7: 8 - 1 + 1 - |{1, 2, 6, 8}| = 4
    assert (suspects.figure.tolist(), suspects.agent.tolist()) == ([4.0], [0])
    assert suspects.row.tolist() == [2, 3, 5]


def test_a_number_twice_or_out_of_order_is_no_gap() -> None:
    trace = staged("decide lead seq=2", "decide lead seq=1", "decide lead seq=2", "decide lead seq=3")
    assert not len(sequence_gap(trace, Second(), 1.0))


def test_without_numbers_it_cannot_tell() -> None:
    for run in (staged("decide lead"), staged('decide lead seq="one"'), staged("decide lead seq=1.5")):
        suspects = sequence_gap(run, Second(), 1.0)
        assert (len(suspects), suspects.tells_n.tolist()) == (0, [False])
    assert sequence_gap(staged("decide lead seq=7"), Second(), 1.0).tells_n.tolist() == [True]
