"""The laws hold for every registered score, and each law catches the function that breaks it, and only it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
import pytest
from acting import thrown

import podium.metrics
import podium.rewards
from bench.generate import trace as generated
from podium.audit.score_laws import LAWS, Scored, registered_score, renamed, reordered, score_faults
from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import make, play, worlds
from podium.graph import units
from podium.graph.labels import label, number
from podium.registry import names
from podium.trace.columns import F, Text, Trace, concat, differences
from podium.trace.rules import check
from podium.trace.vocabulary import event

DECISION = event("orchestrator_decision")
PACKAGES = podium.rewards, podium.metrics  # which register their scores when they are imported


def played(name: str, n: int = 4, **params: object) -> Trace:
    world = make(name, **params)
    return world.trace(play(world, random_policy(), seeds(3, n), log=True).state)


def labelled(trace: Trace, seed: int) -> Trace:
    """The trace with everything a log may carry, here and there, by dice."""
    rng, n = np.random.default_rng(seed), trace.n_events
    before = np.maximum(0, np.arange(n) - rng.integers(1, 9, n))
    before = np.where(trace.rollout_e[before] == trace.rollout_e, before, -1)
    ids = trace.id_e.strings()
    copies = [json.dumps(ids[b]) if b >= 0 and rng.random() < 0.15 else None for b in before.tolist()]

    def some(values: object, share: float = 0.7) -> np.ndarray:
        return np.where(rng.random(n) < share, values, np.nan)

    def marks(share: float = 0.6) -> np.ndarray:
        return np.where(rng.random(n) < share, rng.random(n) < 0.7, -1).astype(np.int8)

    def said() -> Text:
        return Text(marks(), ("false", "true"))

    return replace(
        trace,
        end_e=some(trace.t_e + rng.exponential(2.0, n)),
        tokens_in_e=some(rng.integers(1, 900, n)),
        tokens_out_e=some(rng.integers(1, 90, n)),
        cost_e=some(rng.random(n)),
        valid_e=marks(),
        reward_e={
            "verdict": some(rng.random(n)),
            "step": some(rng.normal(size=n)),
            "judge": some(rng.random(n), 0.5),
        },
        reward_n={"team": rng.random(len(trace)), "judge": np.where(rng.random(len(trace)) < 0.5, np.nan, 0.25)},
        content_ref_e=Text(rng.integers(-1, 12, n), [f"sha:{i}" for i in range(12)]),
        extra_e={
            "task_relevant": said(),
            "corrupted": said(),
            "duplicate_of": Text.of(copies),
            "value": Text(rng.integers(-1, 6, n), ("0", "1", "0.25", "2", "1", "-0.5")),
        },
    )


@cache
def traces() -> tuple[Trace, ...]:
    plain = [played(name) for name in worlds()]
    attacked = played("expedition", inject=0.2, lie=0.2, poison=2, calls=2)
    made = [generated(300, seed=s, tokens=s == 1, extras=True) for s in range(2)]
    large = concat([generated(250, seed=s) for s in (5, 6)])
    staged = replace(large, stage_e=np.floor(large.t_e).astype(int))
    return (
        *plain,
        attacked,
        *made,
        staged,
        *(labelled(t, i) for i, t in enumerate([*plain, attacked, *made, large])),
    )


def test_the_traces_are_varied_and_valid() -> None:
    assert len(traces()) > 2 * len(worlds())
    for trace in traces()[: len(worlds()) + 4]:
        assert not check(trace)
    held = {int(t) for trace in traces() for t in np.unique(trace.type_e)}
    assert held == set(range(10))


@pytest.mark.parametrize("name", names("score"))
def test_every_score_obeys_the_laws(name: str) -> None:
    assert score_faults(registered_score(name), traces()) == []


def test_all_scores_state_what_they_are() -> None:
    from podium.graph import UNITS
    from podium.registry import facts, find

    assert {"outcome", "instantiate"} <= set(names("score"))
    for name in names("score"):
        told = facts("score", name)
        assert told["unit"] in UNITS
        assert told["better"] in ("higher", "lower", "neither")
        assert told["families"]
        assert set(told["families"]) <= {f"R{i}" for i in range(1, 9)} | {f"E{i}" for i in range(1, 5)}
        assert told["needs"]
        assert "pays:" in (find("score", name).__doc__ or "")


# liars: each breaks one law


def team(trace: Trace) -> F:
    return trace.reward_n.get("team", np.full(len(trace), np.nan))


def per_rollout(trace: Trace, values: F) -> F:
    """Mean over the events of a rollout; NaN where there are none."""
    n = np.bincount(trace.rollout_e, minlength=len(trace))
    return np.where(n > 0, np.bincount(trace.rollout_e, values, minlength=len(trace)) / np.maximum(n, 1), np.nan)


def too_short(trace: Trace) -> F:
    return team(trace)[:-1] if len(trace) > 1 else team(trace)


def centred(trace: Trace) -> F:
    there = team(trace)[~np.isnan(team(trace))]
    return team(trace) - (there.mean() if len(there) else 0.0)


def by_place(trace: Trace) -> F:
    """How far down its rollout decisions stand."""
    place = np.arange(trace.n_events) - trace.first_of("e")[trace.rollout_e]
    return per_rollout(trace, np.where(trace.type_e == DECISION, place, 0).astype(float))


def filled(trace: Trace) -> F:
    return np.nan_to_num(team(trace))


def free(trace: Trace) -> F:
    """What was not priced is taken to be free, but a run without events is not scored."""
    return per_rollout(trace, np.nan_to_num(trace.cost_e))


def by_name(trace: Trace) -> F:
    length = np.array([*(len(w) for w in trace.name_a.words), 0])
    return per_rollout(trace, length[trace.name_a.codes[trace.agent_e]].astype(float))


def by_number(trace: Trace) -> F:
    """Agents numbered first count more."""
    first = np.searchsorted(trace.rollout_a, np.arange(len(trace)))
    return per_rollout(trace, (trace.agent_e - first[trace.rollout_e]).astype(float))


def by_reading(trace: Trace) -> F:
    length = np.array([*(len(w) for w in trace.content_ref_e.words), 0])
    return per_rollout(trace, length[trace.content_ref_e.codes].astype(float))


def by_note(trace: Trace) -> F:
    return per_rollout(trace, np.full(trace.n_events, 1.0 if "note" in trace.extra_e else 0.0))


def of_halves(trace: Trace) -> F:
    return team(trace).astype(np.float32)  # type: ignore[return-value]


def in_a_column(trace: Trace) -> F:
    return team(trace)[:, None]


def without_end(trace: Trace) -> F:
    """Pays a run with an odd number of events infinitely much."""
    odd = np.bincount(trace.rollout_e, minlength=len(trace)) % 2 == 1
    return np.where(odd, -np.inf, team(trace))


def of_nothing_something(trace: Trace) -> F:
    return team(trace) if len(trace) else np.zeros(1)


def of_silence_too_much(trace: Trace) -> F:
    return team(trace) if trace.n_events or not len(trace) else np.zeros(2)


def restless(trace: Trace) -> F:
    return team(trace) + next(TICKS)


def hardly_by_place(trace: Trace) -> F:
    """By one part in a hundred million."""
    return 1.0 + 1e-8 * by_place(trace)


def minutely_by_place(trace: Trace) -> F:
    return 1e-10 * by_place(trace)


def by_an_order(trace: Trace) -> F:
    """Obeys what contents ask for."""
    obeyed = any("score this 1" in word for word in trace.content_ref_e.words)
    return np.ones(len(trace)) * np.where(obeyed, 1.0, team(trace))


def by_a_claim(trace: Trace) -> F:
    """Believes contents that claim a reward."""
    claimed = any('"reward"' in word for word in trace.content_ref_e.words)
    return np.where(claimed, 1.0, team(trace))


def by_words(trace: Trace) -> F:
    return per_rollout(trace, np.full(trace.n_events, float("content" in trace.extra_e)))


TICKS = count()
LIARS: dict[Callable[[Trace], F], str] = {
    too_short: "one number a unit",
    of_halves: "one number a unit",
    in_a_column: "one number a unit",
    without_end: "one number a unit",
    of_nothing_something: "one number a unit",
    of_silence_too_much: "one number a unit",
    restless: "one number a unit",
    hardly_by_place: "interleaving",
    minutely_by_place: "interleaving",
    by_an_order: "contents",
    by_a_claim: "contents",
    by_words: "contents",
    centred: "batch",
    by_place: "interleaving",
    filled: "absent is not zero",
    free: "absent is not zero",
    by_name: "names and ids",
    by_number: "names and ids",
    by_reading: "contents",
    by_note: "contents",
}


@pytest.mark.parametrize("liar", LIARS, ids=lambda f: f.__name__)
def test_each_law_bites_and_no_other(liar: Callable[[Trace], F]) -> None:
    assert [f.split(":")[0] for f in score_faults(Scored(liar.__name__, "team", liar), traces())] == [LIARS[liar]]


READ_AS_ZERO: dict[str, Callable[[Trace], F]] = {  # for everything that may be absent, who reads it as 0
    "an end": lambda t: np.nan_to_num(t.end_e - t.t_e),
    "tokens_in": lambda t: np.nan_to_num(t.tokens_in_e),
    "tokens_out": lambda t: np.nan_to_num(t.tokens_out_e),
    "cost": lambda t: np.nan_to_num(t.cost_e),
    "valid": lambda t: (t.valid_e == 1).astype(float),
    "trusted": lambda t: (t.trusted_e == 1).astype(float),
    "the reward step": lambda t: np.nan_to_num(t.reward_e.get("step", np.zeros(t.n_events))),
    "value": lambda t: np.nan_to_num(number(t, "value")),
    "task_relevant": lambda t: (label(t, "task_relevant") == 1).astype(float),
    "corrupted": lambda t: (label(t, "corrupted") == 1).astype(float),
}


@pytest.mark.parametrize("what", READ_AS_ZERO)
def test_whatever_is_read_as_zero_is_named(what: str) -> None:
    liar = Scored("liar", "team", lambda trace: per_rollout(trace, READ_AS_ZERO[what](trace)))
    assert score_faults(liar, traces()) == [f"absent is not zero: liar reads {what} that was not recorded as 0"]


def test_the_number_of_an_agent_is_none_of_its_score() -> None:
    def by_number(trace: Trace) -> F:
        return (np.arange(trace.n_agents) - trace.first_of("a")[trace.rollout_a]).astype(float)

    assert score_faults(Scored("by_number", "agent", by_number), traces()) == [
        "names and ids: by_number depends on names or ids"
    ]


def test_every_law_has_its_liar() -> None:
    assert set(LIARS.values()) == set(LAWS)


def test_the_truth_passes() -> None:
    assert score_faults(Scored("team", "team", team), traces()) == []
    cost = Scored("cost", "agent", lambda t: np.bincount(t.agent_e, minlength=t.n_agents).astype(float))
    assert score_faults(cost, traces()) == []


# the other forms of a trace are what they say


def test_another_order_is_a_valid_trace_of_the_same_events() -> None:
    trace = played("expedition")
    other, old = reordered(trace, np.random.default_rng(0))
    assert not check(other)
    assert not np.array_equal(old, np.arange(trace.n_events))
    assert sorted(old.tolist()) == list(range(trace.n_events))
    back = other[np.arange(len(other))]
    assert differences(back, other) == []
    ids = other.id_e.strings()
    pairs = {(ids[s], ids[d]) for s, d in zip(other.src_x.tolist(), other.dst_x.tolist(), strict=True)}
    ids = trace.id_e.strings()
    assert pairs == {(ids[s], ids[d]) for s, d in zip(trace.src_x.tolist(), trace.dst_x.tolist(), strict=True)}


@pytest.mark.parametrize("seed", range(3))
def test_another_order_keeps_that_of_each_agent_and_how_runs_begin(seed: int) -> None:
    """Also where the last run is empty."""
    silent = Trace.of(trace_id_n=Text.of(["silent"]), reward_n={"team": np.full(1, np.nan)})
    trace = concat([generated(200, seed=seed, extras=True), silent])
    other, old = reordered(trace, np.random.default_rng(seed))
    assert not np.array_equal(old, np.arange(trace.n_events))
    np.testing.assert_array_equal(other.rollout_e, trace.rollout_e)
    who = units.actor(trace)[old]
    for agent in range(trace.n_agents):
        rows = old[who == agent].tolist()
        assert rows == sorted(rows)
    starts = np.unique(trace.rollout_e, return_index=True)[1]
    np.testing.assert_array_equal(old[starts], starts)


@pytest.mark.parametrize("seed", range(3))
def test_under_other_names_everybody_does_what_he_did_and_nobody_stays_nobody(seed: int) -> None:
    trace = concat([thrown(np.random.default_rng(seed)) for _ in range(3)])
    trace = replace(trace, agent_e=np.where(np.arange(trace.n_events) % 5 == 3, -1, trace.agent_e))
    other, old = renamed(trace, np.random.default_rng(seed))
    for was, now in ((trace.agent_e, other.agent_e), (trace.to_e, other.to_e)):
        assert now.tolist() == [-1 if a < 0 else old.tolist().index(a) for a in was.tolist()]
    assert other.rollout_a.tolist() == trace.rollout_a.tolist()
    assert not set(other.trace_id_n.strings()) & set(trace.trace_id_n.strings())


def test_other_names_are_a_valid_trace_and_labels_still_point_to_their_event() -> None:
    trace = labelled(played("jury"), 3)
    other, agent = renamed(trace, np.random.default_rng(0))
    assert not set(other.name_a.strings()) & set(trace.name_a.strings())
    assert not set(other.id_e.strings()) & set(trace.id_e.strings())
    new, old = other.id_e.strings(), trace.id_e.strings()
    for row in np.flatnonzero(trace.extra_e["duplicate_of"].codes >= 0).tolist():
        was, now = (json.loads(str(t.extra_e["duplicate_of"][row])) for t in (trace, other))
        assert new.index(now) == old.index(was)
    np.testing.assert_array_equal(other.rollout_a, trace.rollout_a[agent])
    np.testing.assert_array_equal(agent[other.agent_e], trace.agent_e)
