"""What votes did, how panels decide, what answers changed and what decisions cost, vote by vote and event by event."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import isnan, log, nan

import numpy as np
import pytest
from unsaid import SEEDS, kind, mean, rows_of, same, team, total

from podium.credit import Credit, apply
from podium.graph import units
from podium.rewards import score
from podium.rewards.outcome import pass_at
from podium.trace.columns import Text, Trace

UNITS = ("agent", "role", "message", "turn")


def ballots(seed: int) -> Trace:
    """Runs with many votes, of which some have no weight, no source or come from nobody, and agents that play roles."""
    trace, dice = team(seed, 14, 24), np.random.default_rng(seed)
    first = trace.first_of("e")[trace.rollout_e]
    votes = [
        (e, int(dice.integers(first[e], e)) if dice.random() < 0.95 else -1)
        for e in range(trace.n_events)
        if kind(trace, e) == "aggregate" and e > first[e]
        for _ in range(int(dice.integers(0, 8)))
    ]
    n, event, source = len(votes), np.array([e for e, _ in votes]), np.array([s for _, s in votes])
    codes = dice.integers(-1, 2, trace.n_events)
    correct = np.where(dice.random(trace.n_events) < 0.1, nan, dice.integers(0, 5, trace.n_events) / 4)
    return replace(
        trace,
        event_v=event,
        source_v=source,
        value_v=Text(dice.integers(-1, 5, n), ["yes", "no", "0.5", "0.2", "Paris"]),
        weight_v=np.where(dice.random(n) < 0.03, nan, dice.integers(1, 4, n) / 10),
        role_e=Text(codes, ["x", "y"]),
        reward_e={**trace.reward_e, "correct": correct},
    )


def consensus(trace: Trace, votes: list[int], every: list[int], weighted: bool) -> float:
    """How right the value with most votes is; a value is as right as all who vote for it."""
    right, heavy = trace.reward_e["correct"], defaultdict(float)
    for v in votes:
        heavy[trace.value_v[v]] += float(trace.weight_v[v]) if weighted else 1.0
    top = max(heavy.values(), default=0.0)
    best = [word for word, w in heavy.items() if abs(w - top) < 1e-9]
    worth = [mean([right[trace.source_v[v]] for v in every if trace.value_v[v] == word]) for word in best]
    return sum(worth) / len(worth) if worth else 0.0


def by_aggregate(trace: Trace) -> dict[int, list[int]]:
    cast = defaultdict(list)
    for v, e in enumerate(trace.event_v.tolist()):
        if trace.source_v[v] >= 0 and trace.value_v[v] is not None:
            cast[e].append(v)
    return cast


@pytest.mark.parametrize("by", ["majority", "weighted"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_voters_and_single_votes_did(seed: int, by: str) -> None:
    trace, weighted = ballots(seed), by == "weighted"
    cast, right = by_aggregate(trace), trace.reward_e["correct"]
    checked = {
        int(trace.rollout_e[e]) for e, vs in cast.items() if any(not isnan(right[trace.source_v[v]]) for v in vs)
    }
    unsure = {e for e, vs in cast.items() if weighted and any(isnan(trace.weight_v[v]) for v in vs)}
    alone = [0.0] * trace.n_agents
    for e, vs in cast.items():
        for v in vs:
            who = int(trace.agent_e[trace.source_v[v]])
            if who >= 0:
                rest = [w for w in vs if w != v]
                gain = consensus(trace, vs, vs, weighted) - consensus(trace, rest, vs, weighted)
                alone[who] += nan if e in unsure else gain
    runs = trace.rollout_a.tolist()
    want = [x if n in checked else nan for x, n in zip(alone, runs, strict=True)]
    assert sum(abs(x) > 0 for x in want) > 5
    same(score(trace, f"pivotal(by='{by}')", "agent"), want)
    for unit in UNITS:
        place, n = units.place(trace, unit).tolist(), len(units.rows(trace, unit))
        credit = Credit(trace, unit, np.where(np.arange(n) % 7 == 3, nan, 1.0))
        paid = [0.0] * n
        for e, vs in cast.items():
            for u in {place[trace.source_v[v]] for v in vs} - {-1}:
                rest = [v for v in vs if place[trace.source_v[v]] != u]
                gain = consensus(trace, vs, vs, weighted) - consensus(trace, rest, vs, weighted)
                paid[u] += nan if e in unsure else gain
        told = [
            n in checked and x == x for n, x in zip(credit.rollout.tolist(), credit.value.tolist(), strict=True)
        ]
        same(apply(credit, f"revote(by='{by}')").value, [p if t else nan for p, t in zip(paid, told, strict=True)])


@pytest.mark.parametrize("by", ["majority", "weighted", "unanimous"])
@pytest.mark.parametrize("seed", SEEDS)
def test_panels_whose_weights_are_not_all_known(seed: int, by: str) -> None:
    trace = ballots(seed)
    verdict, want = {"yes": 1.0, "no": 0.0, "0.5": 1.0, "0.2": 0.0}, []
    for n in range(len(trace)):
        says = []
        for e in sorted({e for e in trace.event_v.tolist() if e in rows_of(trace, n)}):
            cast = [
                (verdict[str(trace.value_v[v])], float(trace.weight_v[v]) if by == "weighted" else 1.0)
                for v in np.flatnonzero(trace.event_v == e).tolist()
                if trace.value_v[v] in verdict
            ]
            if cast:
                for_it, all_ = sum(p * w for p, w in cast), sum(w for _, w in cast)
                passes = for_it == all_ if by == "unanimous" else for_it - all_ / 2 > 1e-9
                says.append(nan if isnan(all_) else float(passes))
        want.append(nan if not says or any(map(isnan, says)) else float(all(says)))
    same(score(trace, f"panel(by='{by}')", "team"), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_answers_changed_from_what_they_were_before_the_run(seed: int) -> None:
    trace = team(seed, 10, 20)
    right, stated = trace.reward_e["correct"], trace.extra_e["value"].strings()
    place, n = units.place(trace, "turn").tolist(), len(units.rows(trace, "turn"))
    want, last, told = [0.0] * n, {}, set()
    for e, a in enumerate(trace.agent_e.tolist()):
        k = kind(trace, e)
        if a < 0 or k == "tool_result":
            continue
        says = not isnan(right[e]) or (stated[e] not in (None, "null") and k in ("message", "return", "aggregate"))
        if says:
            want[place[e]] += float(right[e]) - last.get(a, 0.25)
            last[a] = float(right[e])
            told |= {int(trace.rollout_e[e])} if not isnan(right[e]) else set()
    runs = units.rollouts(trace, "turn").tolist()
    got = score(trace, "correctness_delta(before=0.25)", "turn")
    same(got, [w if r in told else nan for w, r in zip(want, runs, strict=True)])


@pytest.mark.parametrize("by", ["tokens", "cost"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_decision_costs_by_what_it_led_to(seed: int, by: str) -> None:
    trace, nth, want = team(seed), defaultdict(int), []
    place = units.place(trace, "orchestrator").tolist()
    for d, row in enumerate(units.rows(trace, "orchestrator").tolist()):
        nth[int(trace.agent_e[row])] += 1
        spent = []
        for e in (e for e, p in enumerate(place) if p == d):
            both = (trace.tokens_in_e[e], trace.tokens_out_e[e]) if by == "tokens" else (trace.cost_e[e],)
            if not all(map(isnan, both)):
                spent.append(float(sum(both)))
        worth = sum(spent) if spent else nan
        t = nth[int(trace.agent_e[row])]
        want.append(0.5 * log(1 + t / 10) * worth if trace.agent_e[row] >= 0 else nan)
    same(score(trace, f"step_cost(factor=0.5, by='{by}')", "orchestrator"), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_runs_spent(seed: int) -> None:
    trace = team(seed)
    read, wrote, cost = trace.tokens_in_e.tolist(), trace.tokens_out_e.tolist(), trace.cost_e.tolist()
    columns = {"tokens": (read, wrote), "tokens_in": (read,), "tokens_out": (wrote,), "cost": (cost,)}
    for what, of in columns.items():
        want = []
        for n in range(len(trace)):
            said = [sum(c[e] for c in of) for e in rows_of(trace, n) if not all(isnan(c[e]) for c in of)]
            want.append(sum(said) if said else nan)
        same(score(trace, f"spent('{what}')", "team"), want)
        stated = np.where(np.arange(len(trace)) % 2, 7.0, nan)
        mixed = [7.0 if n % 2 else w for n, w in enumerate(want)]
        same(score(replace(trace, cost_n={what: stated}), f"spent('{what}')", "team"), mixed)
    for what, name in (("tool_calls", "tool_call"), ("messages", "message")):
        rows = [rows_of(trace, n) for n in range(len(trace))]
        same(
            score(trace, f"spent('{what}')", "team"),
            [float(sum(kind(trace, e) == name for e in r)) if len(r) else nan for r in rows],
        )
    took = []
    for n in range(len(trace)):
        ends = [x for x in trace.end_e[list(rows_of(trace, n))].tolist() if not isnan(x)]
        times = [x for x in trace.t_e[list(rows_of(trace, n))].tolist() if not isnan(x)]
        took.append(max(ends + times) - min(times) if ends and times else nan)
    same(score(trace, "spent('wall_clock_s')", "team"), took)
    value = trace.reward_n["team"].tolist()
    same(score(trace, "solved(least=0.25)", "team"), [nan if isnan(v) else float(v >= 0.25) for v in value])


@pytest.mark.parametrize("seed", SEEDS)
def test_roles_are_paid_as_their_agents_are(seed: int) -> None:
    trace = ballots(seed)
    roles, agent = trace.role_e.strings(), trace.reward_e["agent"].tolist()
    earned = [total([agent[e] for e in np.flatnonzero(trace.agent_e == a)]) for a in range(trace.n_agents)]
    plays: list[str | None] = [None] * trace.n_agents
    acts = ("orchestrator_decision", "message", "tool_call", "return", "aggregate")
    works = set()
    for e in reversed(range(trace.n_events)):
        a = int(trace.agent_e[e])
        if a >= 0:
            plays[a] = roles[e] or plays[a]
            works |= {a} if kind(trace, e) in acts else set()
    want, mine = [], []
    for n in range(len(trace)):
        own = [earned[a] for a in range(trace.n_agents) if trace.rollout_a[a] == n and plays[a] == "x"]
        known = any(roles[e] for e in rows_of(trace, n))
        want.append(sum(own) / len(own) if own else 0.75 if known else nan)
    for a in range(trace.n_agents):
        mine.append(nan if a in works and plays[a] is None else earned[a] if plays[a] == "x" else 0.0)
    same(score(trace, "of_role('x', 'agent', 0.75)", "team"), want)
    same(score(trace, "for_role(individual('agent'), 'x')", "agent"), mine)
    place, r = units.place(trace, "role").tolist(), trace.reward_e["step"].tolist()
    n = len(units.rows(trace, "role"))
    same(
        score(trace, "role_score('step')", "role"),
        [total([r[e] for e, p in enumerate(place) if p == u]) for u in range(n)],
    )


def test_the_chance_that_one_of_k_runs_solves_the_task() -> None:
    from itertools import combinations

    dice = np.random.default_rng(5)
    for _ in range(20):
        solved = np.where(dice.random(9) < 0.2, nan, (dice.random(9) < 0.4).astype(float))
        group, k = dice.integers(0, 3, 9), int(dice.integers(1, 4))
        want = []
        for g in range(int(group.max()) + 1):
            own = [s for s, h in zip(solved.tolist(), group.tolist(), strict=True) if h == g and not isnan(s)]
            want.append(mean([float(any(some)) for some in combinations(own, k)]))
        same(pass_at(solved, group, k), want)
