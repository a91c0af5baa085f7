"""What the page is told equals what the verbs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from podium.audit.report import report
from podium.envs.branch import branch
from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.methods import credit_of
from podium.metrics import measure
from podium.trace import Unreadable, save
from podium.trace.columns import Trace, concat
from podium.trace.do import Do
from podium.view.answers import Library, NoAnswer, json_of, key_of
from podium.view.bundle import unpack
from podium.view.summary import summary


@pytest.fixture(scope="module")
def world_runs() -> Trace:
    """Six runs of one task, and a branch of the first at its first decision."""
    world = make("costly_search")
    trace = world.trace(play(world, random_policy(0), seeds(0, 6), log=True).state)
    row = int(np.flatnonzero(trace.decision_e >= 0)[0])
    return concat([trace, branch(world, trace, [Do(row, "choose", "stop")], random_policy(1))])


@pytest.fixture
def library(world_runs: Trace) -> Library:
    return Library((), [("world", run) for run in world_runs])


def asked(library: Library, question: str, **words: Any) -> Any:
    return msgspec.json.decode(library.answer(question, {k: str(v) for k, v in words.items()}))


def test_summary_audit_and_metrics_are_those_of_the_verbs(library: Library, run: Trace) -> None:
    library.runs.append(("one", run))
    number = len(library.runs) - 1
    plain = lambda value: msgspec.json.decode(json_of(value))  # noqa: E731
    assert asked(library, "summary", run=number)["facts"] == plain(summary(run))
    assert asked(library, "audit", run=number) == plain(report(run, most=200))
    assert asked(library, "metrics", run=number) == plain([m.plain() for m in measure(run)])


def test_credit_compares_the_runs_of_a_task(library: Library, world_runs: Trace) -> None:
    paid = credit_of(world_runs, "dr_mas")
    for number in range(3):
        header, columns = unpack(library.answer("credit", {"run": str(number), "method": "dr_mas", "unit": "own"}))
        own = paid.rollout == number
        np.testing.assert_array_equal(columns["value"], paid.value[own])
        assert header["compared_with"] == len(world_runs) - 1
        assert header["sum"] == np.nansum(paid.value[own])
        assert header["team_reward"] == world_runs.reward_n["team"][number]


def test_what_is_paid_of_a_run_is_listed_beside_why_not(library: Library) -> None:
    told = asked(library, "payable", run=0)
    assert "dr_mas" in [one["method"] for one in told["paid"]]
    assert "coma" in told["refused"]


def test_a_branch_is_aligned_with_its_parent(library: Library, world_runs: Trace) -> None:
    told = asked(library, "compare", a=0, b=6)
    assert told["branch"]["swapped"] is False
    assert told["branch"]["do"]["value"] == "stop"
    assert told == asked(library, "compare", a=6, b=0) | {
        "figures": told["figures"],
        "branch": told["branch"],
    }
    assert asked(library, "compare", a=1, b=2)["branch"] is None


def test_the_index_has_a_line_for_each_run(library: Library, world_runs: Trace) -> None:
    index = library.index()
    assert [line["name"] for line in index["runs"]] == world_runs.trace_id_n.strings()
    assert sum(index["runs"][0]["activity"]) == world_runs[0].n_events


@pytest.mark.parametrize(
    ("question", "words", "why"),
    [
        ("rum", {}, "no question 'rum'"),
        ("run", {}, "run needs 'run'"),
        ("run", {"run": "99"}, "there is no run 99; there are 7, numbered from 0"),
        ("run", {"run": "../etc"}, r"there is no run \.\./etc"),
        ("events", {"run": "0", "chunk": "-1"}, "expected the number of a chunk"),
        ("events", {"run": "0", "chunk": "9"}, "there is no chunk 9"),
        ("credit", {"run": "0", "method": "grpp", "unit": "team"}, "no method called 'grpp'"),
        ("credit", {"run": "0", "method": "grpo", "unit": "squad"}, "no unit called 'squad'"),
        ("credit", {"run": "0", "method": "coma", "unit": "own"}, "own_action needs"),
        ("training", {"training": "0"}, "there is no training 0"),
    ],
)
def test_what_cannot_be_answered_says_why(library: Library, question: str, words: dict[str, str], why: str) -> None:
    with pytest.raises(NoAnswer, match=why):
        library.answer(question, words)


def test_files_that_cannot_be_read_are_named(tmp_path: Path, run: Trace) -> None:
    save(run, tmp_path / "good.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"podium": 1}\nnonsense\n')
    library = Library([tmp_path])
    assert len(library.runs) == 1
    assert any("bad.jsonl" in line for line in library.unreadable)
    with pytest.raises(Unreadable):
        Library([tmp_path / "missing.jsonl"])


def test_what_changes_on_disk_is_seen(tmp_path: Path, run: Trace) -> None:
    save(run, tmp_path / "a.jsonl")
    library = Library([tmp_path])
    assert library.changed() == library.stamp
    save(run, tmp_path / "b.jsonl")
    assert library.changed() != library.stamp
    library.read()
    assert len(library.runs) == 2


def test_a_question_has_one_spelling() -> None:
    assert key_of("index", {}) == "index"
    assert key_of("credit", {"unit": "own", "run": 3}) == "credit?run=3&unit=own"
