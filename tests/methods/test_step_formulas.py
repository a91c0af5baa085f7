"""The steps that methods bring along against their formulas, written once more as plain loops, on runs by dice that leave much unsaid."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import replace
from math import isnan, nan, sqrt
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "credit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "rewards"))

from teams import forest
from unsaid import SEEDS, edges, kind, mean, rows_of, same, team, total

from podium import graph
from podium.credit import Credit, apply
from podium.credit.forest import contexts, nodes
from podium.credit.keys import groups
from podium.graph import units
from podium.registry import find
from podium.rewards.tools import tool_validity
from podium.trace.columns import Trace


def start(seed: int, unit: str, trace: Trace | None = None) -> Credit:
    """Values by dice, some absent."""
    trace = batched(team(seed)) if trace is None else trace
    dice = np.random.default_rng(seed)
    n = len(units.rows(trace, unit))
    return Credit(trace, unit, np.where(dice.random(n) < 0.2, nan, dice.normal(size=n)))


def batched(trace: Trace) -> Trace:
    return replace(trace, batch_n=np.arange(len(trace)) % 2)


def wrote(credit: Credit) -> list[float]:
    """How many tokens each unit wrote, as its events say."""
    place, out = units.place(credit.trace, credit.unit).tolist(), credit.trace.tokens_out_e
    return [total([float(out[e]) for e, p in enumerate(place) if p == u]) for u in range(len(credit.value))]


def owner(trace: Trace, row: int) -> int:
    call = int(graph.call_of(trace)[row])
    return int(trace.agent_e[call if call >= 0 else row])


@pytest.mark.parametrize("by", ["rollout", "agent"])
@pytest.mark.parametrize("seed", SEEDS)
def test_weights_in_a_mean_over_tokens(seed: int, by: str) -> None:
    credit = start(seed, "turn")
    length, run = wrote(credit), credit.rollout.tolist()
    line = [owner(credit.trace, row) for row in credit.rows.tolist()] if by == "agent" else run
    there = [u for u, v in enumerate(credit.value) if not isnan(v) and length[u] > 0 and line[u] >= 0]
    got = apply(credit, f'weigh_tokens("{by}")').weight
    assert got is not None
    for u in there:
        mine = sum(length[i] for i in there if line[i] == line[u])
        lines = len({line[i] for i in there if run[i] == run[u]}) if by == "agent" else 1
        runs = len(
            {
                run[i]
                for i in range(len(run))
                if not isnan(credit.value[i]) and length[i] > 0 and run[i] % 2 == run[u] % 2
            }
        )
        assert got[u] == pytest.approx(length[u] / mine / lines / runs)
    rest = [u for u in range(len(run)) if u not in there]
    same(got[rest], [nan if isnan(credit.value[u]) or length[u] != 0 else 0.0 for u in rest])
    same(apply(credit, "minus_length(0.5, 4.0)").value, (credit.value - 0.5 * np.array(length) / 4).tolist())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_turns_that_a_run_is_to_learn_from(seed: int) -> None:
    trace = batched(team(seed))
    dice = np.random.default_rng(seed)
    form = np.where(dice.random(len(trace)) < 0.2, nan, dice.integers(0, 3, len(trace)) / 2)
    limit = trace.extra_e["corrupted"]
    trace = replace(trace, reward_n={**trace.reward_n, "format": form}, extra_e={**trace.extra_e, "limit": limit})
    credit = start(seed, "turn", trace)
    place = units.place(trace, "turn").tolist()
    failed = {p for e, p in enumerate(place) if trace.valid_e[e] == 0}
    limited = {p for e, p in enumerate(place) if limit[e] == "true"}
    want = [nan] * len(credit.value)
    for n in range(len(trace)):
        turns = [u for u, m in enumerate(credit.rollout.tolist()) if m == n]
        leads = [u for u in turns if owner(trace, int(credit.rows[u])) == graph.lead(trace)[n]]
        if form[n] >= 0.5:
            chosen = [u for u in turns if u not in failed]
        else:
            chosen = [u for u in leads if u in failed] or [u for u in turns if u in limited] or leads[-1:]
        for u in chosen if not isnan(form[n]) else ():
            want[u] = credit.value[u]
    same(apply(credit, "trainable()").value, want)


@pytest.mark.parametrize("alone", ["nan", "zero"])
@pytest.mark.parametrize("seed", SEEDS)
def test_scores_in_which_every_run_counts_as_often(seed: int, alone: str) -> None:
    """A sample is an invocation of a sub-agent, or all that an agent does in another role."""
    trace = batched(team(seed))
    role = type(trace.role_e).of(
        "sub" if trace.name_a[a] in ("ann", "bob") else "main" for a in trace.agent_e.tolist()
    )
    trace = replace(trace, role_e=role, task_id_n=type(role).of("qr"[n % 2] for n in range(len(trace))))
    n = len(units.rows(trace, "turn"))
    roles, agents = find("key", "role")(trace, "turn").tolist(), units.agents(trace, "turn").tolist()
    calls = find("key", "invocation")(trace, "turn").tolist()
    sub = role.code("sub")
    sample = [
        None if agents[u] < 0 or roles[u] < 0 else (agents[u], calls[u] if roles[u] == sub else "all")
        for u in range(n)
    ]
    luck = {
        s: float(v) for s, v in zip(dict.fromkeys(sample), np.random.default_rng(seed).normal(size=n), strict=False)
    }
    value = np.array([nan if s is None or u % 7 == 0 else luck[s] for u, s in enumerate(sample)])
    credit = Credit(trace, "turn", value)
    first: dict[object, int] = {}
    for u, s in enumerate(sample):
        if s is not None and not isnan(value[u]):
            first.setdefault(s, u)
    single = np.full(n, nan)
    single[list(first.values())] = value[list(first.values())]
    places = apply(credit.of(single), 'resample(by=("rollout", "role"), d=4)').weight
    assert places is not None
    count = {s: float(places[u]) if roles[u] == sub else 1.0 for s, u in first.items()}
    group = groups(credit, ("task", "role")).tolist()
    want, weight = [nan] * n, [nan] * n
    for u, s in enumerate(sample):
        if s is None or isnan(value[u]):
            continue
        peers = [p for p, i in first.items() if group[i] == group[first[s]]]
        every = sum(count[p] for p in peers)
        middle = sum(count[p] * luck[p] for p in peers) / every
        spread = sqrt(sum(count[p] * (luck[p] - middle) ** 2 for p in peers) / every)
        several = sum(count[p] > 0 for p in peers) > 1
        want[u] = (value[u] - middle) / (spread + 1e-6) if several else 0.0 if alone == "zero" else nan
        weight[u] = count[s] / sum(i == s and not isnan(v) for i, v in zip(sample, value, strict=True))
    made = apply(credit, f'aligned_zscore(by=("task", "role"), role="sub", d=4, alone="{alone}")')
    same(made.value, want)
    assert made.weight is not None
    same(made.weight, weight)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bonus_for_valid_calls_and_what_is_left_at_the_end(seed: int) -> None:
    credit = start(seed, "agent")
    trace = credit.trace
    calls = Counter(int(trace.agent_e[e]) for e in range(trace.n_events) if kind(trace, e) == "tool_call")
    share = tool_validity(trace)
    want = [v + (2 * share[a] if calls[a] else 0.0) for a, v in enumerate(credit.value)]
    same(apply(credit, "plus_tools(2.0)").value, want)
    turns = start(seed, "turn", replace(trace, t_e=np.arange(trace.n_events) // 2 * 1.0))
    begins = turns.trace.t_e[turns.rows]
    last = [max(begins[turns.rollout == n], default=nan) for n in range(len(trace))]
    want = [v if begins[u] == last[turns.rollout[u]] or isnan(v) else 0.0 for u, v in enumerate(turns.value)]
    same(apply(turns, "at_end()").value, want)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_message_gets_out_of_one_verdict(seed: int) -> None:
    credit = start(seed, "message")
    trace, rows = credit.trace, credit.rows.tolist()
    verdict = trace.reward_e["verdict"]
    pairs: dict[int, int] = defaultdict(int)
    for s, d in set(edges(trace)):
        if (
            kind(trace, s) == kind(trace, d) == "message"
            and not isnan(verdict[d])
            and trace.agent_e[s] != trace.agent_e[d]
        ):
            pairs[s] += 1
            pairs[d] += 1
    want = []
    for v, row in zip(credit.value.tolist(), rows, strict=True):
        none = nan if isnan(v) else -1.0 if trace.valid_e[row] == 0 else 0.0
        want.append(v / pairs[row] + 0.5 if pairs[row] else none)
    same(apply(credit, "per_critique()").value, want)


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_that_are_given_again_and_what_came_before(seed: int) -> None:
    credit = start(seed, "turn", replace(team(seed), t_e=np.arange(team(seed).n_events) * 1.0))
    trace, place = credit.trace, units.place(credit.trace, "turn").tolist()
    again, answered = set(), set()
    value = trace.extra_e["value"].strings()
    for e, a in enumerate(trace.agent_e.tolist()):
        said = kind(trace, e) in ("message", "return", "aggregate") and value[e] is not None
        if a >= 0 and kind(trace, e) != "tool_result" and (said or not isnan(trace.reward_e["correct"][e])):
            if a in answered:
                again.add(place[e])
            answered.add(a)
    same(apply(credit, "meta_actions()").value, [v if u in again else nan for u, v in enumerate(credit.value)])
    names = find("key", "agent")(trace, "turn").tolist()
    for how in ("margin", "quality"):
        want = []
        for u, r in enumerate(credit.value.tolist()):
            if names[u] < 0:
                want.append(r)
                continue
            past = [i for i in range(u) if credit.rollout[i] == credit.rollout[u] and names[i] == names[u]]
            q = mean([float(credit.value[i]) for i in past])
            more = r - q if how == "margin" else q * r - (1 - q) * (1 - r)
            want.append(r if isnan(q) else r + 0.25 * more)
        same(apply(credit, f'shaped_by_history("{how}", 0.25)').value, want)


@pytest.mark.parametrize("seed", range(3))
def test_parents_and_siblings_in_a_tree(seed: int) -> None:
    trace = forest(seed)
    node, place = (
        nodes(trace, units.rows(trace, "turn")).tolist(),
        contexts(trace, units.rows(trace, "turn")).tolist(),
    )
    worth = {
        k: float(v)
        for k, v in zip(dict.fromkeys(node), np.random.default_rng(seed).normal(size=len(node)), strict=False)
    }
    silent = {k for i, k in enumerate(worth) if i % 6 == 5}
    credit = Credit(trace, "turn", np.array([nan if k in silent else worth[k] for k in node]))
    begins = trace.t_e[credit.rows]
    siblings: dict[int, set[int]] = defaultdict(set)
    for k, at in zip(node, place, strict=True):
        if k not in silent:
            siblings[at].add(k)
    want = []
    for u, r in enumerate(credit.value.tolist()):
        others = [worth[k] for k in siblings[place[u]] if k != node[u]]
        earlier = [float(t) for t in begins[credit.rollout == credit.rollout[u]] if t < begins[u]]
        last = [
            i
            for i in range(len(node))
            if earlier and credit.rollout[i] == credit.rollout[u] and begins[i] == max(earlier)
        ]
        above = sum(credit.value[i] for i in last) / len(last) if last else nan
        both = [x for x in (above, sum(others) / len(others) if others else nan) if not isnan(x)]
        usual = 0.75 * both[0] + 0.25 * both[1] if len(both) == 2 else both[0] if both else nan
        want.append(r if isnan(usual) else r + 0.5 * (r - usual))
    same(apply(credit, "shaped_by_tree(0.5, 0.25)").value, want)


@pytest.mark.parametrize("seed", SEEDS)
def test_how_much_answers_count_by_the_majority(seed: int) -> None:
    trace = replace(team(seed), t_e=np.arange(team(seed).n_events) * 1.0)
    dice = np.random.default_rng(seed)
    words = [
        f'"{("yes", "no", "Paris", "Rome")[int(i)]}"' if i < 4 else None
        for i in dice.integers(5, size=trace.n_events)
    ]
    trace = replace(trace, extra_e={**trace.extra_e, "value": type(trace.role_e).of(words)})
    credit = start(seed, "message", trace)
    want = [nan] * len(credit.value)
    for n in range(len(trace)):
        votes = [
            (e, w)
            for e, w in zip(trace.event_v.tolist(), trace.value_v.strings(), strict=True)
            if e in rows_of(trace, n)
        ]
        last = max((e for e, _ in votes), default=-1)
        count = Counter(w for e, w in votes if e == last).most_common(2)
        if not count or (len(count) > 1 and count[0][1] == count[1][1]):
            continue
        for a in {int(trace.agent_e[e]) for e in rows_of(trace, n)} - {-1}:
            own = [
                u
                for u, row in enumerate(credit.rows.tolist())
                if trace.agent_e[row] == a and words[row] is not None
            ]
            right = [str(words[credit.rows[u]]).strip('"') == count[0][0] for u in own]
            if own:
                want[own[0]] = float(right[0])
            if len(own) > 1:
                want[own[-1]] = (0.25 if right[0] else 0.75) if right[-1] else 0.0
    same(apply(credit, "majority_mixture(0.75)").value, (credit.value * np.array(want)).tolist())
