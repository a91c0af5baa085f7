"""What units are inside of, played as and done by, and who spawned whom, as plain loops over events."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from made import kind, parents, thrown

from podium.graph import lives, peak, units
from podium.graph.ancestry import ancestors, descendants
from podium.graph.grouping import first_by, last_by, mean_by, sum_by
from podium.graph.labels import label, number, stated
from podium.graph.spans import wall_clock
from podium.graph.steps import spawned, spawns
from podium.trace.columns import Text, Trace, concat

SEEDS = range(12)
COARSE = ("team", "orchestrator", "role", "agent", "turn", "message", "tool_call")


def several(seed: int) -> Trace:
    dice = np.random.default_rng(seed)
    return concat([thrown(dice) for _ in range(6)])


def actor(trace: Trace, row: int) -> int:
    """Whose work it is: of a tool result the latest caller's."""
    calls = [s for s, _ in parents(trace, row) if kind(trace, s) == "tool_call"]
    return int(trace.agent_e[max(calls) if calls and kind(trace, row) == "tool_result" else row])


def agent_of(trace: Trace, unit: str, row: int) -> int:
    return -1 if row < 0 else actor(trace, row) if unit == "turn" else int(trace.agent_e[row])


def code_of(trace: Trace, unit: str, nth: int, rows: list[int], codes: list[int]) -> int:
    """The first code that a unit states; of an agent or a turn the first in an event that its own agent recorded."""
    if unit not in ("agent", "turn"):
        return codes[rows[nth]] if rows[nth] >= 0 else -1
    who = nth if unit == "agent" else agent_of(trace, unit, rows[nth])
    place = units.place(trace, unit).tolist()
    mine = [e for e in range(trace.n_events) if place[e] == nth and trace.agent_e[e] == who and codes[e] >= 0]
    return codes[mine[0]] if mine else -1


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_rollouts_agents_and_roles_of_units(seed: int) -> None:
    trace = several(seed)
    codes, first = trace.role_e.codes.tolist(), trace.first_of("e").tolist()
    for unit in COARSE:
        place, rows = units.place(trace, unit).tolist(), units.rows(trace, unit).tolist()
        n = {"team": len(trace), "agent": trace.n_agents}.get(unit, len(rows))
        held = [[e for e, p in enumerate(place) if p == u] for u in range(n)]
        if unit == "team":
            want = [a if a < b else -1 for a, b in pairwise(first)]
        elif unit in ("orchestrator", "message", "tool_call"):
            names = {"orchestrator": "orchestrator_decision"}
            want = [e for e in range(trace.n_events) if kind(trace, e) == names.get(unit, unit)]
        else:
            want = [min(h, default=-1) for h in held]
        assert rows == want
        runs = {"team": list(range(len(trace))), "agent": trace.rollout_a.tolist()}
        assert units.rollouts(trace, unit).tolist() == runs.get(unit, [int(trace.rollout_e[r]) for r in rows])
        agents = [u if unit == "agent" else agent_of(trace, unit, r) for u, r in enumerate(rows)]
        assert units.agents(trace, unit).tolist() == agents
        said = [code_of(trace, unit, u, rows, codes) for u in range(n)]
        by_agent = [
            code_of(trace, "agent", a, units.rows(trace, "agent").tolist(), codes) for a in range(trace.n_agents)
        ]
        roles = [
            s if s >= 0 or unit == "agent" or a < 0 else by_agent[a] for s, a in zip(said, agents, strict=True)
        ]
        assert units.roles(trace, unit).tolist() == roles


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_finer_unit_is_inside_of(seed: int) -> None:
    trace = several(seed)
    assert [units.finer(b, a) for a, b in combinations(units.UNITS, 2)] == [True] * 28
    assert [units.finer(a, b) for a, b in combinations(units.UNITS, 2)] == [False] * 28
    for coarser, unit in combinations(units.UNITS, 2):
        rows = units.rows(trace, unit).tolist()
        inside = units.within(trace, unit, coarser).tolist()
        if coarser == "team":
            assert inside == units.rollouts(trace, unit).tolist()
        elif coarser == "agent":
            assert inside == [agent_of(trace, unit, r) for r in rows]
        else:
            place = units.place(trace, coarser).tolist()
            if (coarser, unit) == ("role", "turn"):
                assert inside == [code_of(trace, unit, u, rows, place) for u in range(len(rows))]
            else:
                assert inside == [place[r] if r >= 0 else -1 for r in rows]
    assert units.within(trace, "turn", "turn").tolist() == list(range(len(units.rows(trace, "turn"))))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_invocation_begins_with_a_task_from_somebody_else(seed: int) -> None:
    trace = several(seed)
    got, open_, number = units.invocation(trace).tolist(), {}, 0
    for e in range(trace.n_events):
        who = actor(trace, e)
        given = any(
            k not in ("temporal", "return") and kind(trace, s) != "return" and actor(trace, s) not in (-1, who)
            for s, k in parents(trace, e)
        )
        if who < 0:
            assert got[e] == -1
            continue
        if given or who not in open_:
            open_[who], number = number, number + 1
        assert got[e] == open_[who]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_led_to_rows_and_what_they_led_to(seed: int) -> None:
    trace, dice = several(seed), np.random.default_rng(seed)
    rows = [int(r) for r in dice.integers(trace.n_events, size=2)]
    for types in (None, ("causal", "message", "spawn")):
        after: set[int] = set()
        before: set[int] = set()
        for e in range(trace.n_events):
            if any((s in rows or s in after) and (types is None or k in types) for s, k in parents(trace, e)):
                after.add(e)
        for e in reversed(range(trace.n_events)):
            if e in rows or e in before:
                before |= {s for s, k in parents(trace, e) if types is None or k in types}
        assert set(np.flatnonzero(descendants(trace, rows, types)).tolist()) == after
        assert set(np.flatnonzero(ancestors(trace, rows, types)).tolist()) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_lives_spawns_and_times(seed: int) -> None:
    trace = several(seed)
    start, end = lives(trace)
    births = [e for e in range(trace.n_events) if kind(trace, e) == "spawn"]
    deaths = [e for e in range(trace.n_events) if kind(trace, e) == "despawn"]
    assert set(np.flatnonzero(spawned(trace)).tolist()) == {int(trace.to_e[e]) for e in births} - {-1}
    for a in range(trace.n_agents):
        born = [e for e in births if trace.to_e[e] == a]
        gone = [e for e in deaths if (trace.to_e[e] if trace.to_e[e] >= 0 else trace.agent_e[e]) == a]
        acts = [e for e in range(trace.n_events) if trace.agent_e[e] == a]
        done = [trace.t_e[e] if np.isnan(trace.end_e[e]) else trace.end_e[e] for e in acts]
        first = trace.t_e[born[0]] if born else min((trace.t_e[e] for e in acts), default=np.nan)
        last = trace.t_e[gone[-1]] if gone and gone[-1] > max(born, default=-1) else max(done, default=np.nan)
        np.testing.assert_equal((start[a], end[a]), (first, last))
        by = [e for e in born if trace.agent_e[e] >= 0]
        assert spawns(trace)[a] == (by[0] if by else -1)
    for n, (most, took) in enumerate(zip(peak(trace), wall_clock(trace), strict=True)):
        rows = np.flatnonzero(trace.rollout_e == n).tolist()
        last = max([*trace.t_e[rows], *(x for x in trace.end_e[rows] if x == x)])
        assert took == last - min(trace.t_e[rows])
        busy = [len({int(trace.agent_e[e]) for e in rows if trace.agent_e[e] >= 0 and trace.t_e[e] <= t < trace.end_e[e]})
                for t in trace.t_e[rows]]  # fmt: skip
        np.testing.assert_equal(most, max(busy) if max(busy) else np.nan)


def test_groups_one_by_one() -> None:
    dice = np.random.default_rng(3)
    for _ in range(40):
        n, rows = int(dice.integers(1, 5)), int(dice.integers(0, 9))
        group, such = dice.integers(-1, n, rows), dice.random(rows) < 0.6
        values = np.where(dice.random(rows) < 0.3, np.nan, dice.normal(size=rows))
        held = [[i for i in range(rows) if group[i] == g and such[i]] for g in range(n)]
        assert first_by(group, such, n).tolist() == [min(h, default=-1) for h in held]
        assert last_by(group, such, n).tolist() == [max(h, default=-1) for h in held]
        known = [[values[i] for i in range(rows) if group[i] == g and values[i] == values[i]] for g in range(n)]
        np.testing.assert_allclose(mean_by(group, values, n), [sum(k) / len(k) if k else np.nan for k in known])
        np.testing.assert_allclose(sum_by(group, values, n)[0], [sum(k) if k else np.nan for k in known])


def test_labels_word_by_word() -> None:
    words = [None, "true", "false", "null", "3", "-0.5", '"x"', "true"]
    trace = Trace.of(
        trace_id_n=Text.of(["run"]),
        rollout_e=np.zeros(8, int),
        t_e=np.arange(8.0),
        extra_e={"mark": Text.of(words)},
    )
    assert label(trace, "mark").tolist() == [-1, 1, 0, -1, -1, -1, -1, 1]
    np.testing.assert_equal(number(trace, "mark"), [np.nan] * 4 + [3.0, -0.5] + [np.nan] * 2)
    assert stated(trace, "mark").tolist() == [False, True, True, False, True, True, True, True]
    for nothing in (label(trace, "other"), ~stated(trace, "other"), np.isnan(number(trace, "other"))):
        assert nothing.tolist() in ([-1] * 8, [True] * 8)
