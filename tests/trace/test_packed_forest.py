"""Runs that branched, packed: each stands for a whole run, and steps that compare branches read them alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import podium.envs  # noqa: F401  (fills the registry)
from podium.credit import Credit
from podium.credit.branches import same_prefix
from podium.credit.options import at_options
from podium.envs.branch import branch, choices
from podium.envs.conformance import random_policy
from podium.envs.draws import seeds, uniform
from podium.envs.log import Log
from podium.envs.world import World, make, play, worlds
from podium.methods import credit_of
from podium.trace.columns import Trace, concat, differences
from podium.trace.do import Do
from podium.trace.forest import Forest, roots

SMALL: dict[str, Any] = {"expedition": {"legs": 3, "pool": 6, "widest": 3}, "crew": {"N": 4}, "secretary": {"n": 7}}
NAMES = sorted(set(worlds()) - {"planted"})


def fixed(world: World, seed: Any, made: Any) -> Any:
    """Any option, by the address of the decision; where it ends somewhere."""
    made = made.copy()

    def policy(view: Any) -> Any:
        lot = uniform(seed[view.row], 77, made[view.row])
        made[view.row] += 1
        count = view.allowed.sum(axis=1)
        nth = np.where(made[view.row] > 6, 0, (lot * count).astype(int))
        chosen: Any = (np.cumsum(view.allowed, axis=1) > nth[:, None]).argmax(axis=1)
        return chosen

    return policy


def copied(state: Any, source: Any, target: Any) -> None:
    for column in vars(state).values():
        if isinstance(column, np.ndarray) and len(column) == len(state.open):
            column[target] = column[source]


def grown(world: World, seed: Any, lot: int, room: int = 400) -> Forest:
    """Episodes of which some decisions are branched as they are played: every other option, then the policy."""
    n = len(seed)
    every = np.concatenate([seed, np.broadcast_to(seed[:1], room)])
    state = world.start(every.copy(), log := Log(n, room))
    state.open[n:] = False
    made, free, run_of, score = np.zeros(n + room, np.int64), n, dict[int, int](), dict[int, float]()
    branched: list[tuple[int, int]] = []
    while (view := world.view(state)) is not None:
        policy = fixed(world, every, made)
        chosen = policy(view)
        made[view.row] += 1
        mark = np.flatnonzero((view.row < n) & (uniform(every[view.row], lot, made[view.row]) < 0.3))
        target, source, forced = [], [], []
        for i in mark.tolist():
            for option in np.flatnonzero(view.allowed[i]).tolist():
                if option != chosen[i] and free < n + room:
                    target.append(free)
                    source.append(i)
                    forced.append(option)
                    free += 1
        rows, from_ = np.array(target, int), view.row[np.array(source, int)]
        copied(state, from_, rows)
        every[rows], made[rows] = every[from_], made[from_]
        if target:
            runs = log.fork(from_, rows)
            run_of |= dict(zip(target, runs.tolist(), strict=True))
            branched += zip(from_.tolist(), forced, strict=True)
        part = replace(view.take(np.array(source, int)), row=rows)
        world.act(state, view, chosen)
        if target:
            world.act(state, part, np.array(forced))
        score |= {run: float(state.score[row]) for row, run in run_of.items() if not state.open[row]}
    parent = log.parents()
    scores = np.append(state.score[:n], [score[run] for run in range(n, log.n)])
    root = np.where(parent >= 0, parent, np.arange(log.n))
    columns = world.columns_of_runs(seed[root], scores)
    columns["parent_n"] = columns["trace_id_n"].take(np.where(parent >= 0, root, 0))
    columns["parent_n"] = type(columns["parent_n"])(
        np.where(parent >= 0, columns["parent_n"].codes, -1), columns["parent_n"].words
    )
    return log.forest(**columns)


def replayed(world: World, seed: Any, forest: Forest) -> Trace:
    """The same runs, each played by itself from the start."""
    n = len(seed)
    trace = world.trace(play(world, fixed(world, seed, np.zeros(n, np.int64)), seed.copy(), log=True).state)
    whole = forest.whole()
    rows, _ = choices(world, trace)
    dos, source, number = [], [], []
    for run in range(n, len(whole)):
        up, at = int(forest.parent_n[run]), int(whole.branch_n[run])
        row = int(trace.first_of("e")[up]) + at
        dos.append(Do(row, "choose", whole.chosen_e[int(whole.first_of("e")[run]) + at]))
        source.append(up)
        number.append(int(np.searchsorted(rows, row) - np.searchsorted(rows, trace.first_of("e")[up])) + 1)
    if not dos:
        return trace
    return concat([trace, branch(world, trace, dos, fixed(world, seed[source], np.array(number)))])


def others(a: Trace, b: Trace) -> set[str]:
    """The columns that differ, but for the names of runs, the order in which agents were first named in the log, and the labels that a
    world adds in the end."""
    found = set(differences(a, b)) - {"trace_id_n", "parent_n", "do_n", "extra_e", "name_a"}
    for name in ("agent_e", "from_e", "to_e"):
        who = [[t.name_a[i] if i >= 0 else None for i in getattr(t, name).tolist()] for t in (a, b)]
        found = found - {name} if who[0] == who[1] else found | {name}
    return found if a.extra_e.get("value") == b.extra_e.get("value") else found | {"value"}


@pytest.mark.parametrize("name", NAMES)
def test_a_forest_is_the_runs_played_by_themselves(name: str) -> None:
    """To the bit: every column but the names of runs and what a replay says of itself."""
    world, seed = make(name, **SMALL.get(name, {})), seeds(3, 6)
    forest = grown(world, seed, lot=5)
    whole, alone = forest.whole(), replayed(world, seed, forest)
    assert len(whole) > 6
    assert forest.rows.n_events < whole.n_events
    assert others(whole, alone) == set()
    assert np.array_equal(whole.branch_n, alone.branch_n)
    assert others(roots(forest, 3), roots(whole, 3)) == set()
    assert len(roots(forest, 9)) == len(roots(whole, 9)) == 6  # as many as were played


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 10_000), st.integers(1, 8))
def test_any_forest_is_what_it_stands_for(name: str, seed: int, n: int) -> None:
    world, dice = make(name, **SMALL.get(name, {})), seeds(seed, n)
    forest = grown(world, dice, lot=seed)
    assert others(forest.whole(), replayed(world, dice, forest)) == set()


@pytest.mark.parametrize("name", ["crew", "relay", "scouts", "expedition"])
def test_steps_that_compare_branches_read_both_alike(name: str) -> None:
    """A law: credit on own rows is, to the bit, that of the same rows of whole runs."""
    world, seed = make(name, **SMALL.get(name, {})), seeds(4, 12)
    forest = grown(world, seed, lot=9)
    whole = forest.whole()
    packed, full = (
        Credit(trace, "orchestrator", trace.reward_n["team"][trace.rollout_e[rows]], packed=of)
        for trace, of in ((forest.rows, forest), (whole, None))
        for rows in [np.flatnonzero(trace.decision_e >= 0)]
    )
    place = whole.first_of("e")[forest.rows.rollout_e[packed.rows]] + forest.local_rows(packed.rows)
    for baseline in ("loo", "mean"):
        own, every = (same_prefix(c, baseline, same="option") for c in (packed, full))
        at = np.searchsorted(full.rows, place)
        assert np.array_equal(own.value, every.value[at], equal_nan=True)
        assert np.isfinite(own.value).any()
        roots = np.flatnonzero((forest.rows.decision_e >= 0) & (forest.rows.rollout_e < 12))
        both = [at_options(c, roots) for c in (own, every)]
        assert np.array_equal(*(np.sort(x[~np.isnan(x)]) for x in both))


def test_the_method_reads_a_forest_as_it_reads_the_trace() -> None:
    world = make("costly_search")
    forest = grown(world, seeds(0, 20), lot=1)
    own, every = credit_of(forest, "branching"), credit_of(forest.whole(), "branching")
    assert own.packed is forest
    assert every.packed is None
    assert np.isfinite(own.value).sum() > 0
    assert np.nansum(own.value**2) <= np.nansum(every.value**2)  # whole runs pay what they repeat once more


def test_episodes_that_do_not_branch_are_a_trace() -> None:
    world = make("jury")
    state = play(world, random_policy(), seeds(0, 4), log=True).state
    assert state.log is not None
    columns = world.columns_of_runs(state.seed, state.score)
    assert state.log.forest(**columns).whole() == world.trace(state)
