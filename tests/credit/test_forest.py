"""Which rows of runs are the same event, and which are what others did instead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from grown import choose, decides, run, runs

from podium.credit.forest import contexts, copies, nodes, parents, roots
from podium.trace.columns import Trace, concat


def family() -> Trace:
    """A run of three decisions; run1 left it at the second, run2 left run1 at the third, run3 left the first at the third."""
    return runs(
        run(decides("x"), decides("x"), decides("x"), team=1.0),
        choose("x", "y", "x", at=1, reward=0.0),
        choose("x", "y", "z", at=2, reward=0.5, parent="run1"),
        choose("x", "x", "y", at=2, reward=0.5),
    )


def alike(numbers: np.ndarray) -> list[list[int]]:
    """The rows of each number, those that are alone left out."""
    groups = [np.flatnonzero(numbers == n).tolist() for n in np.unique(numbers)]
    return sorted(g for g in groups if len(g) > 1)


def test_a_row_is_the_same_event_in_every_run_that_repeats_it() -> None:
    trace = family()
    rows = np.arange(12)
    # rows 0-2 run0, 3-5 run1, 6-8 run2, 9-11 run3. All repeat the first; run2 repeats run1's second, run3 run0's
    assert alike(nodes(trace, rows)) == [[0, 3, 6, 9], [1, 10], [4, 7]]


def test_a_branch_and_what_it_left_are_choices_in_one_context() -> None:
    # run1 chose otherwise than run0 at the second; run2 than run1 at the third; run3 than run0 at the third
    assert alike(contexts(family(), np.arange(12))) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 11], [5, 8]]


def test_copies_are_the_rows_before_the_branch() -> None:
    assert np.flatnonzero(copies(family(), np.arange(12))).tolist() == [3, 6, 7, 9, 10]


def test_parents_and_roots() -> None:
    assert parents(family()).tolist() == [-1, 0, 1, 0]
    assert roots(family()).tolist() == [0, 0, 0, 0]


def test_branches_of_a_run_that_is_not_there_still_share_its_rows() -> None:
    trace = family()[[1, 3]]
    assert len(set(parents(trace).tolist())) == 1
    assert parents(trace)[0] >= len(trace)
    assert alike(nodes(trace, np.arange(6))) == [[0, 3]]
    assert alike(contexts(trace, np.arange(6))) == [[0, 3], [1, 4]]


def test_runs_of_one_name_in_other_batches_are_other_runs() -> None:
    one, two = (replace(family(), batch_n=np.full(4, b)) for b in (0, 1))
    both = concat([one, two])
    assert parents(both).tolist() == [-1, 0, 1, 0, -1, 4, 5, 4]
    once = [[0, 3, 6, 9], [1, 10], [4, 7]]
    assert alike(nodes(both, np.arange(24))) == sorted([r + shift for r in g] for shift in (0, 12) for g in once)


def test_a_run_that_names_itself_does_not_hang() -> None:
    trace = runs(run(decides("x"), team=1.0, name="me", parent="me", branch=1))
    assert nodes(trace, np.array([0])).tolist() == [0]
    assert roots(trace).tolist() == [0]


def test_without_branches_every_row_is_its_own() -> None:
    trace = runs(run(decides("x"), team=1.0), run(decides("x"), team=1.0))
    assert alike(contexts(trace, np.arange(2))) == []
    assert nodes(trace, np.array([-1])).tolist() == [-1]
