"""E3, with numbers worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripted import run

from podium.metrics import collaboration as c
from podium.trace.columns import Text, Trace, concat

SCORES = tuple(getattr(c, name) for name in c.__all__)
EMPTY = Trace.of(trace_id_n=Text.of([]))
SILENT = Trace.of(trace_id_n=Text.of(["silent"]))


@pytest.mark.parametrize("score", SCORES, ids=lambda f: f.__name__)
def test_of_nothing_nothing_is_known(score) -> None:
    assert score(EMPTY).shape == (0,)
    assert np.isnan(score(SILENT)).all()
    assert np.isnan(score(run("message ann"))).all()
    assert np.isnan(score(run("decide lead", ("aggregate lead", [0])))).all()


# redundancy


def told() -> Trace:
    return run(
        ("message ann>bob", (), {"duplicate_of": None, "content_ref": "x"}),
        ("message bob>ann", [0], {"duplicate_of": "e0", "content_ref": "x"}),
        ("return ann>lead", [1], {"duplicate_of": None, "content_ref": "y"}),
        ("return bob>lead", [1], {"content_ref": "y"}),
        ("message ann>bob", [1]),
        ("call ann", [1], {"duplicate_of": "e0", "content_ref": "x"}),
    )


def test_redundancy_is_the_share_of_duplicates_among_all_that_was_said() -> None:
    # Messages and returns: rows 0 to 4, of which row 1 repeats row 0. The call is neither message nor return.
    assert c.redundancy(told()) == pytest.approx([1 / 5])


def test_a_run_that_labels_nothing_does_not_say() -> None:
    assert np.isnan(c.redundancy(run("message ann>bob", "return bob>ann"))).all()


def test_redundancy_by_content_is_what_a_receiver_was_sent_before() -> None:
    # With a content: x for bob, x for ann, y for the lead, y for the lead. 4 in all, 3 of them different.
    assert c.redundancy_by_content(told()) == pytest.approx([1 / 4])


def test_what_one_says_to_oneself_is_said_to_nobody() -> None:
    own = run(("message ann>ann", (), {"duplicate_of": "e9", "content_ref": "x"}))
    assert np.isnan(c.redundancy(own)).all()
    assert np.isnan(c.redundancy_by_content(own)).all()


def test_the_same_words_in_two_runs_are_no_repetition() -> None:
    one = run(("message ann", (), {"content_ref": "x"}))
    assert c.redundancy_by_content(concat([one, one])).tolist() == [0.0, 0.0]


def test_with_every_repetition_labelled_both_agree() -> None:
    words = list("abcabbd")
    first = {w: f"e{words.index(w)}" for w in words}
    events = [
        ("message ann", (), {"content_ref": w, "duplicate_of": first[w] if i > words.index(w) else None})
        for i, w in enumerate(words)
    ]
    one = run(*events)
    assert c.redundancy(one) == pytest.approx([3 / 7])
    assert c.redundancy_by_content(one) == pytest.approx([3 / 7])


# ballots


def ballots(*votes: tuple[str, ...], weights: list[float] | None = None) -> Trace:
    """A run with an aggregate for each tuple of votes, one after the other."""
    trace = run(*("aggregate lead" for _ in votes))
    flat = [v for one in votes for v in one]
    return replace(
        trace,
        event_v=np.repeat(np.arange(len(votes)), [len(one) for one in votes]).astype(np.int32),
        source_v=np.full(len(flat), -1, np.int32),
        value_v=Text.of(flat),
        weight_v=np.full(len(flat), np.nan) if weights is None else np.array(weights),
    )


def test_a_ballot_by_hand() -> None:
    one = ballots(("a", "a", "b", "c"))
    assert c.consensus(one).tolist() == [0.5]  # two of four
    # of 6 pairs one is alike
    assert c.diversity(one) == pytest.approx([5 / 6])
    assert c.resolved(one).tolist() == [0.0]  # half is not more than half


def test_ballots_are_averaged() -> None:
    two = ballots(("a", "b"), ("a", "a", "b"))
    assert c.consensus(two) == pytest.approx([(1 / 2 + 2 / 3) / 2])
    assert c.diversity(two) == pytest.approx([(1 + 2 / 3) / 2])  # of 3 pairs 2 differ
    assert c.resolved(two).tolist() == [0.5]  # the second has a majority


def test_who_never_disagreed_resolved_nothing() -> None:
    assert np.isnan(c.resolved(ballots(("a", "a")))).all()
    assert c.resolved(ballots(("a", "a"), ("a", "b", "b"))).tolist() == [1.0]


def test_weights_count_and_a_vote_without_one_weighs_one() -> None:
    heavy = ballots(("a", "b", "b"), weights=[3.0, 1.0, np.nan])
    assert c.consensus(heavy) == pytest.approx([3 / 5])
    assert c.resolved(heavy).tolist() == [1.0]


def test_all_alike_and_all_different() -> None:
    alike, different = ballots(("a",) * 5), ballots(tuple("abcde"))
    assert (c.consensus(alike).item(), c.diversity(alike).item()) == (1.0, 0.0)
    assert (c.consensus(different).item(), c.diversity(different).item()) == pytest.approx((0.2, 1.0))


def test_one_vote_is_no_ballot() -> None:
    assert np.isnan(c.consensus(ballots(("a",)))).all()
    assert c.consensus(ballots(("a",), ("a", "a", "b", "b"))).tolist() == [0.5]


def test_by_value_is_by_vote_where_inputs_state_what_they_vote() -> None:
    answers = (1, 1, 2, 1)
    inputs = [(f"return w{i}>lead", (), {"value": v}) for i, v in enumerate(answers)]
    stated = run(*inputs, ("aggregate lead", [(i, "aggregate") for i in range(4)]))
    voted = ballots(tuple(map(str, answers)))
    for name in ("consensus", "diversity", "resolved"):
        assert getattr(c, f"{name}_by_value")(stated).tolist() == getattr(c, name)(voted).tolist()
        assert np.isnan(getattr(c, name)(stated)).all()  # votes were not recorded


def test_what_reached_the_decision_to_aggregate_was_combined_too() -> None:
    one = run(
        ("return a>lead", (), {"value": 1}),
        ("return b>lead", (), {"value": 2}),
        ("decide lead", [(0, "return"), (1, "return")]),
        ("aggregate lead", [(2, "aggregate")]),
    )
    assert c.consensus_by_value(one).tolist() == [0.5]


def test_reports_on_different_tasks_are_no_votes() -> None:
    one = run(
        ("return a>lead", (), {"content_ref": "x"}),
        ("return b>lead", (), {"content_ref": "y"}),
        ("aggregate lead", [(0, "aggregate"), (1, "aggregate")]),
    )
    for score in (c.consensus_by_value, c.diversity_by_value, c.resolved_by_value):
        assert np.isnan(score(one)).all()
