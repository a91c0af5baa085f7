"""Options of decisions are an axis of the trace: written, read, sliced, stored and found again to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from podium import Recorder, load, save
from podium.envs.draws import seeds
from podium.envs.world import View, make, play
from podium.trace import store
from podium.trace.columns import Text, Trace, concat, differences
from podium.trace.options import chosen_options, option_axis


def weighed(dice: np.random.Generator) -> object:
    """A policy that says how likely every allowed option was."""

    def policy(view: View) -> tuple[object, object, object]:
        row, _ = np.nonzero(view.allowed)
        score = dice.normal(size=len(row))
        logp = score - np.log(np.bincount(row, np.exp(score)))[row]
        first = np.searchsorted(row, np.arange(len(view)))
        taken = first + (dice.random(len(view)) * np.bincount(row)).astype(int)
        return np.nonzero(view.allowed)[1][taken], logp[taken], logp

    return policy


@pytest.fixture(
    scope="module", params=["scouts", "costly_search", "jury", "relay", "crew", "pandora", "expedition"]
)
def played(request: pytest.FixtureRequest) -> Trace:
    world = make(request.param)
    return world.trace(play(world, weighed(np.random.default_rng(0)), seeds(0, 4), log=True).state)  # type: ignore[arg-type]


def test_every_decision_has_its_options_and_their_probabilities(played: Trace) -> None:
    rows = np.flatnonzero(played.decision_e >= 0)
    first, many = played.options_of(rows)
    assert (many > 0).all()
    total = np.add.reduceat(np.exp(played.logp_o), first)
    np.testing.assert_allclose(total, 1.0)
    place = chosen_options(played, rows)
    assert np.array_equal(played.logp_o[place], played.logp_e[rows])
    assert [played.label_o[p] for p in place.tolist()] == played.chosen_e.take(rows).strings()


@pytest.mark.parametrize("form", ["run.jsonl", "run.json"])
def test_files_keep_every_bit(played: Trace, tmp_path: Path, form: str) -> None:
    save(played[0], tmp_path / form)
    changed = differences(load(tmp_path / form), played[0])
    assert [name for name in changed if name.endswith("_o") or name == "options"] == []


def test_a_store_keeps_every_bit(played: Trace, tmp_path: Path) -> None:
    store.add(tmp_path / "runs", played)
    assert store.read(tmp_path / "runs") == played
    _, rows = store.sql(tmp_path / "runs", "select count(*) from options")
    assert rows == [(len(played.event_o),)]


def test_slices_and_batches_take_their_options_along(played: Trace) -> None:
    assert concat([played[:1], played[1:]]) == played
    assert len(played[2].event_o) == int((played.rollout_of("o") == 2).sum())


def test_a_recorder_writes_them(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", task_id="t") as record:
        record.decide("lead", "stop", "go on", options=["stop", "go on"], option_logps=[-0.7, -0.68])
    trace = load(tmp_path / "run")
    assert trace.options(0) == ["stop", "go on"]
    assert trace.logp_o.tolist() == [-0.7, -0.68]


def test_a_choice_that_is_no_option_and_a_label_that_stands_twice() -> None:
    lists = Text.of(['["a","b","a"]', None, "[]", '["c"]'])
    trace = Trace.of(
        trace_id_n=Text.of(["run"]),
        rollout_e=np.zeros(4, int),
        t_e=np.arange(4.0),
        chosen_e=Text.of(["a", "a", "a", "z"]),
        **option_axis(lists),
    )
    assert chosen_options(trace, np.arange(4)).tolist() == [0, -1, -1, -1]
    assert trace.options(3) == ["c"]
    assert trace.options(1) == []
