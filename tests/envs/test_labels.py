"""What worlds write beside their events: to the point, corrupted, said before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.labels import duplicates, numbered_agents, truth
from podium.envs.world import make, play
from podium.graph import taint
from podium.graph.labels import label, stated
from podium.trace import check, load, save
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import event

ATTACKED = [("expedition", {"inject": 0.3}), ("expedition", {"lie": 0.6}), ("expedition", {"poison": 1})]
ATTACKED += [("planted", {"inject": 0}), ("planted", {"liar": 0.8}), ("planted", {"poison": 0})]
RETURN, RESULT, AGGREGATE = event("return"), event("tool_result"), event("aggregate")


def recorded(name: str, n: int = 40, seed: int = 1, **params: Any) -> Trace:
    world = make(name, **params)
    return world.trace(play(world, random_policy(), seeds(seed, n), log=True).state)


def test_truth_by_hand() -> None:
    assert truth(np.array([0, 1, -1])).strings() == ["false", "true", None]


def test_duplicates_by_hand() -> None:
    """Rows 1, 3, 4 say key 7, 8, 7 in the first run, row 6 says 7 in the second, whose keys are others."""
    trace = Trace.of(trace_id_n=Text.of(["a", "b"]), rollout_e=np.array([0, 0, 0, 0, 0, 1, 1]))
    column, again = duplicates(trace, np.array([1, 3, 4, 6]), np.array([7, 8, 7, 107]))
    assert column.strings() == [None, "null", None, "null", '"e1"', None, "null"]
    assert again.tolist() == [False, False, True, False]
    column, again = duplicates(trace, np.array([], int), np.array([], int))
    assert (column.codes == -1).all()
    assert len(again) == 0


def test_agents_are_told_by_their_number() -> None:
    trace = Trace.of(
        trace_id_n=Text.of(["a"]),
        rollout_a=np.zeros(3, int),
        name_a=Text.of(["lead", "scout 2", "scout x"]),
        agent_e=np.array([0, 1, 2, -1]),
        rollout_e=np.zeros(4, int),
    )
    assert numbered_agents(trace, "scout ").tolist() == [-1, 1, -1, -1]


def test_every_duplicate_names_an_earlier_return_of_the_same_leg_from_the_same_source() -> None:
    trace = recorded("expedition", 60, sources=3, calls=1)
    first, ids = trace.first_of("e"), trace.id_e.strings()
    value = trace.extra_e["value"].strings()
    found = 0
    for row in np.flatnonzero(stated(trace, "duplicate_of")).tolist():
        start = int(first[trace.rollout_e[row]])
        named = ids.index(json.loads(str(trace.extra_e["duplicate_of"][row])), start)
        assert start <= named < row
        assert trace.type_e[named] == trace.type_e[row] == RETURN
        assert value[named] == value[row]  # scouts on one source agree
        found += 1
    assert found > 20


def test_every_return_says_whether_it_is_one() -> None:
    trace = recorded("expedition")
    says = trace.extra_e["duplicate_of"].codes >= 0
    np.testing.assert_array_equal(says, trace.type_e == RETURN)


@pytest.mark.parametrize(("name", "attack"), ATTACKED, ids=str)
def test_the_labels_are_a_valid_record(name: str, attack: dict[str, Any]) -> None:
    assert not check(recorded(name, **attack))


@pytest.mark.parametrize("name", ["expedition", "planted"])
def test_corruption_is_labelled_under_attack_only(name: str) -> None:
    assert "corrupted" not in recorded(name).extra_e
    attack = next(a for n, a in ATTACKED if n == name)
    assert (label(recorded(name, **attack), "corrupted") == 1).any()


@pytest.mark.parametrize(("name", "attack"), [a for a in ATTACKED if a[0] == "expedition"], ids=str)
def test_whatever_is_corrupted_derives_from_what_is_marked_untrusted(name: str, attack: dict[str, Any]) -> None:
    """Labels say what changed, marks what may have: in expedition nothing changes that no mark leads to."""
    trace = recorded(name, 80, **attack)
    bad = label(trace, "corrupted") == 1
    assert taint(trace)[bad].all()


def test_what_an_attack_spares_is_what_the_twin_says() -> None:
    for name, attack in ATTACKED[:3]:
        world = make(name, **attack)
        policy = world._same(0, 0, 1, 2, 4)
        seen, twin = (play(w, policy, seeds(3, 50), log=True).state for w in (world, world.clean()))
        turned = label(world.trace(seen), "corrupted")
        trace = world.trace(seen)
        was, now = (w.trace(s).extra_e["value"].strings() for w, s in ((world.clean(), twin), (world, seen)))
        back = trace.type_e == RETURN
        other = world.clean().trace(twin).type_e == RETURN
        changed = np.array([v for v, b in zip(was, other, strict=True) if b]) != np.array(
            [v for v, b in zip(now, back, strict=True) if b]
        )
        np.testing.assert_array_equal(turned[back] == 1, changed)
        assert changed.any()


def test_nobody_pays_for_labels_that_nobody_records() -> None:
    """Without a log neither world keeps what would have been without the attack."""
    for name, attack in ATTACKED:
        world = make(name, **attack)
        state = play(world, random_policy(), seeds(0, 5)).state
        kept = state.meant if name == "expedition" else state.spared
        assert (kept == -1).all()


def test_the_score_does_not_know_of_the_log() -> None:
    for name, attack in ATTACKED:
        world = make(name, **attack)
        with_log, without = (play(world, random_policy(), seeds(4, 60), log=log).score for log in (True, False))
        np.testing.assert_array_equal(with_log, without)


@pytest.mark.parametrize("ending", ["json", "jsonl", "store"])
@pytest.mark.parametrize(("name", "attack"), [ATTACKED[0], ATTACKED[4]], ids=str)
def test_labels_survive_every_format(name: str, attack: dict[str, Any], ending: str, tmp_path: Path) -> None:
    trace = recorded(name, 12, seed=2, **attack)
    if ending == "json":  # holds one run: the longest
        trace = max(trace, key=lambda one: one.n_events)
    save(trace, tmp_path / f"runs.{ending}")
    back = load(tmp_path / f"runs.{ending}")
    assert set(back.extra_e) == set(trace.extra_e) >= {"corrupted"}
    for column, words in trace.extra_e.items():
        assert back.extra_e[column].strings() == words.strings()
    if name == "expedition":
        assert "null" in trace.extra_e["duplicate_of"].strings()  # "this is none" is not "does not say"


def test_one_run_has_the_labels_that_it_has_among_others() -> None:
    for name, attack in (ATTACKED[0], ATTACKED[4]):
        world = make(name, **attack)
        policy = world._same(0, 0, 1, 2, 4) if name == "expedition" else world.trivial()["always 2"]
        many = world.trace(play(world, policy, seeds(1, 6), log=True).state)
        for i in range(6):
            alone = world.trace(play(world, policy, seeds(1, 6)[i : i + 1], log=True).state)
            for column, words in alone.extra_e.items():
                assert words.strings() == many[i : i + 1].extra_e[column].strings()
