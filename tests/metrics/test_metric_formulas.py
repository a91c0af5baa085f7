"""Metrics against their formulas, written once more as plain loops over events, on runs by dice that leave much unsaid."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import isnan, nan

import numpy as np
import pytest
from unsaid import SEEDS, edges, kind, mean, rows_of, same, team, total

from podium import graph
from podium.graph.labels import number
from podium.metrics.cost import Prices, bill, fit_model, forecast
from podium.rewards import score
from podium.rewards.orchestration import combined, spawned
from podium.trace.columns import Trace

STEPS = ("orchestrator_decision", "message", "tool_call", "return", "aggregate")
COORDINATION = ("orchestrator_decision", "spawn", "despawn", "message", "tool_call")
Ballots = dict[int, list[tuple[object, float]]]


def spoken(trace: Trace, n: int) -> list[int]:
    return [
        e
        for e in rows_of(trace, n)
        if kind(trace, e) in ("message", "return") and trace.to_e[e] != trace.agent_e[e]
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_said_again(seed: int) -> None:
    trace = team(seed)
    twice, relevant = (trace.extra_e[name].strings() for name in ("duplicate_of", "task_relevant"))
    marked, contents = [], []
    for n in range(len(trace)):
        said = spoken(trace, n)
        told = any(twice[e] is not None or relevant[e] is not None for e in said)
        marked.append(sum(twice[e] is not None for e in said) / len(said) if told else nan)
        held = [(int(trace.to_e[e]), trace.content_ref_e[e]) for e in said if trace.content_ref_e[e] is not None]
        contents.append(1 - len(set(held)) / len(held) if held else nan)
    same(score(trace, "redundancy", "team"), marked)
    same(score(trace, "redundancy_by_content", "team"), contents)


def agreement(votes: list[tuple[object, float]]) -> float:
    weight: dict[object, float] = defaultdict(float)
    for answer, w in votes:
        weight[answer] += w
    return max(weight.values()) / sum(weight.values())


def difference(votes: list[tuple[object, float]]) -> float:
    many, n = Counter(answer for answer, _ in votes), len(votes)
    return 1 - sum(k * (k - 1) for k in many.values()) / (n * (n - 1))


def resolution(votes: list[tuple[object, float]]) -> float:
    return float(agreement(votes) > 0.5) if len({answer for answer, _ in votes}) > 1 else nan


@pytest.mark.parametrize("seed", SEEDS)
def test_how_far_voices_agree(seed: int) -> None:
    trace = team(seed)
    trace = replace(trace, weight_v=np.where(np.arange(len(trace.weight_v)) % 5 == 0, nan, trace.weight_v))
    by_vote: Ballots = defaultdict(list)
    for e, word, w in zip(trace.event_v.tolist(), trace.value_v.strings(), trace.weight_v.tolist(), strict=True):
        by_vote[e].append((word, 1.0 if isnan(w) else w))
    by_value: Ballots = defaultdict(list)
    value = number(trace, "value")
    for row, of in zip(*(x.tolist() for x in combined(trace)), strict=True):
        if not isnan(value[row]):
            by_value[of].append((float(value[row]), 1.0))
    formulas: dict[str, Callable[[list[tuple[object, float]]], float]]
    formulas = {"consensus": agreement, "diversity": difference, "resolved": resolution}
    for name, formula in formulas.items():
        for suffix, ballots in (("", by_vote), ("_by_value", by_value)):
            want = []
            for n in range(len(trace)):
                here = [votes for e, votes in ballots.items() if e in rows_of(trace, n) and len(votes) > 1]
                want.append(mean([formula(votes) for votes in here]))
            same(score(trace, name + suffix, "team"), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_sub_agents_did(seed: int) -> None:
    trace = team(seed)
    born, relevant = set(np.flatnonzero(spawned(trace)).tolist()), trace.extra_e["task_relevant"].strings()
    call = graph.call_of(trace).tolist()
    who = [int(trace.agent_e[call[e]] if call[e] >= 0 else trace.agent_e[e]) for e in range(trace.n_events)]
    effect = {s for s, d in edges(trace) if who[s] != who[d] and kind(trace, d) not in ("despawn", "safety_event")}
    for s, d in sorted(edges(trace), key=lambda e: -e[1]):
        if d in effect:
            effect.add(s)
    labelled, reached = [], []
    for n in range(len(trace)):
        acts = [e for e in rows_of(trace, n) if kind(trace, e) in STEPS and trace.agent_e[e] in born]
        labelled.append(mean([float(relevant[e] == "true") for e in acts if relevant[e] is not None]))
        reached.append(mean([float(e in effect) for e in acts]))
    same(score(trace, "utilisation", "team"), labelled)
    same(score(trace, "utilisation_by_effect", "team"), reached)


def longest(trace: Trace, work: np.ndarray) -> list[float]:
    """The longest chain of work of each run, along edges but temporal."""
    done = [0.0 if isnan(w) else float(w) for w in work]
    for e in range(trace.n_events):
        done[e] += max((done[s] for s, d in edges(trace) if d == e), default=0.0)
    return [max((done[e] for e in rows_of(trace, n)), default=0.0) for n in range(len(trace))]


@pytest.mark.parametrize("seed", SEEDS)
def test_how_much_faster_it_could_have_been(seed: int) -> None:
    trace = team(seed)
    since = [0.0] * trace.n_events
    for e in range(trace.n_events):
        causes = [trace.t_e[s] for s, d in zip(trace.src_x.tolist(), trace.dst_x.tolist(), strict=True) if d == e]
        since[e] = (
            float(trace.t_e[e] - max(causes)) if causes and not any(map(isnan, causes)) else nan if causes else 0.0
        )
    whole, from_starts = longest(trace, graph.work(trace)), longest(trace, np.maximum(0.0, since))
    ahead, by_starts, faster = [], [], []
    for n in range(len(trace)):
        rows = rows_of(trace, n)
        starts = [trace.t_e[e] for e in rows if not isnan(trace.t_e[e])]
        ends = starts + [trace.end_e[e] for e in rows if not isnan(trace.end_e[e])]
        wall = max(ends) - min(starts) if starts else nan
        short = max(starts) - min(starts) if starts else nan
        ahead.append(wall / whole[n] if whole[n] > 0 else nan)
        by_starts.append(short / from_starts[n] if from_starts[n] > 0 else nan)
        faster.append(
            total([max(0.0, since[e]) if not isnan(since[e]) else nan for e in rows]) / short if short > 0 else nan
        )
    same(score(trace, "headroom", "team"), ahead)
    same(score(trace, "headroom_from_starts", "team"), by_starts)
    same(score(trace, "speedup_from_starts", "team"), faster)


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_of_coordination(seed: int) -> None:
    trace = team(seed)
    both = ~np.isnan(trace.tokens_in_e) & ~np.isnan(trace.tokens_out_e)
    keep = both | (trace.rollout_e % 2 == 0)  # every second run leaves no count half said
    trace = replace(
        trace,
        tokens_in_e=np.where(keep, trace.tokens_in_e, nan),
        tokens_out_e=np.where(keep, trace.tokens_out_e, nan),
    )
    shares, per = [], []
    born, caches = set(np.flatnonzero(spawned(trace)).tolist()), (trace.cache_read_e, trace.cache_write_e)
    for n in range(len(trace)):
        read, wrote = (
            {e: float(t[e]) for e in rows_of(trace, n) if not isnan(t[e])}
            for t in (trace.tokens_in_e, trace.tokens_out_e)
        )
        tokens = {e: read[e] + wrote[e] for e in read if e in wrote}
        tokens = {e: t + sum(float(c[e]) for c in caches if not isnan(c[e])) for e, t in tokens.items()}
        whole = nan if set(read) != set(wrote) or not tokens else sum(tokens.values())
        works = {int(trace.agent_e[e]) for e in rows_of(trace, n) if kind(trace, e) in ("tool_call", "return")}
        if (works & born) - {int(trace.agent_e[e]) for e in tokens}:
            whole = nan
        aloud = {e for e in tokens if kind(trace, e) == "message" and 0 <= trace.to_e[e] == trace.agent_e[e]}
        spent = (
            nan
            if isnan(whole)
            else sum(t for e, t in tokens.items() if kind(trace, e) in COORDINATION and e not in aloud)
        )
        handed = max(
            sum(kind(trace, e) == "spawn" for e in rows_of(trace, n)),
            sum(trace.decision_e[e] == 1 for e in rows_of(trace, n)),
        )
        shares.append(spent / whole if whole > 0 else nan)
        per.append(spent / handed if handed else nan)
    assert sum(not isnan(s) for s in shares) >= 2
    same(score(trace, "protocol_overhead", "team"), shares)
    same(score(trace, "tokens_per_delegation", "team"), per)


@pytest.mark.parametrize("seed", SEEDS)
def test_how_errors_and_untrusted_content_spread(seed: int) -> None:
    trace = team(seed)
    bad = {e for e, word in enumerate(trace.extra_e["corrupted"].strings()) if word == "true"}
    later: set[int] = set()
    for s, d in edges(trace):  # in the order of effects
        if s in bad or s in later:
            later.add(d)
    tainted = graph.taint(trace)
    spread, flow, unmarked = [], [], []
    for n in range(len(trace)):
        here = [e for e in rows_of(trace, n) if e in bad]
        first = sum(e not in later for e in here)
        spread.append(sum(e in later for e in here) / first if first else nan)
        share = mean([float(tainted[e]) for e in rows_of(trace, n) if kind(trace, e) in STEPS])
        unmarked.append(share)
        flow.append(share if any(trace.trusted_e[e] >= 0 for e in rows_of(trace, n)) else nan)
    same(score(trace, "error_amplification", "team"), spread)
    same(score(trace, "injection_flow", "team"), flow)
    same(score(trace, "injection_flow_unmarked", "team"), unmarked)


PRICES = Prices(token_in=3.0, token_out=5.0, tool_call=7.0, decision=0.5, spawn=0.25, message=0.125)


@pytest.mark.parametrize(
    "prices", [PRICES, Prices(token_in=2.0), Prices(token_out=2.0), Prices(spawn=1.0), Prices(2.0, 2.0)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_bills_event_by_event(seed: int, prices: Prices) -> None:
    trace = team(seed)
    dice = np.random.default_rng(seed)
    stated = {
        k: np.where(dice.random(len(trace)) < 0.4, nan, dice.integers(0, 90, len(trace)))
        for k in ("tokens_in", "tokens_out", "tokens")
    }
    trace = replace(trace, cost_n=stated)
    born = set(np.flatnonzero(spawned(trace)).tolist())
    price = {
        "tool_call": prices.tool_call,
        "orchestrator_decision": prices.decision,
        "spawn": prices.spawn,
        "message": prices.message,
    }
    got = bill(trace, prices)
    for n in range(len(trace)):
        parts, lacking = {True: 0.0, False: 0.0}, {True: 0, False: 0}
        says = not prices.token_in and not prices.token_out and len(rows_of(trace, n)) > 0
        for e in rows_of(trace, n):
            own = int(trace.agent_e[e]) in born
            read, wrote = float(trace.tokens_in_e[e]), float(trace.tokens_out_e[e])
            parts[own] += price.get(kind(trace, e), 0.0) + total(
                [read * prices.token_in, wrote * prices.token_out, 0.0]
            )
            lacking[own] += isnan(read) != isnan(wrote) and (
                (isnan(read) and prices.token_in > 0) or (isnan(wrote) and prices.token_out > 0)
            )
            says |= not (isnan(read) and isnan(wrote))
        want = [parts[own] if says else nan for own in (True, False)]
        same(np.array([got.agents_least_n[n], got.orchestration_least_n[n]]), want)
        exact = [nan if lacking[own] else w for own, w in zip((True, False), want, strict=True)]
        same(np.array([got.agents_n[n], got.orchestration_n[n]]), exact)
        assert (got.agents_lacking_n[n], got.orchestration_lacking_n[n]) == (lacking[True], lacking[False])
        if not isnan(sum(exact)):
            same(got.total_n[[n]], [sum(exact)])
            same(got.total_least_n[[n]], [sum(exact)])
        elif isnan(got.total_n[n]) and not isnan(sum(want)):
            assert got.total_least_n[n] >= sum(want) - 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_the_line_of_least_squares_through_what_orchestration_cost(seed: int) -> None:
    trace = replace(
        team(seed),
        tokens_in_e=np.nan_to_num(team(seed).tokens_in_e),
        tokens_out_e=np.nan_to_num(team(seed).tokens_out_e),
    )
    costs = bill(trace, PRICES)
    k = [float(sum(trace.rollout_a[a] == n for a in np.flatnonzero(spawned(trace)))) for n in range(len(trace))]
    there = [n for n in range(len(trace)) if not isnan(costs.agents_n[n])]
    model = fit_model(trace, PRICES)
    assert model.agent == pytest.approx(sum(costs.agents_n[there]) / sum(k[n] for n in there))
    slope, base = np.polyfit([k[n] for n in there], costs.orchestration_n[there], 1)
    assert model.each == pytest.approx(slope)
    assert model.base == pytest.approx(base)
    for n in there:
        assert float(model(np.array(k[n]))) == pytest.approx(k[n] * model.agent + base + slope * k[n])
    halves = [fit_model(trace[np.arange(half, len(trace), 2)], PRICES) for half in (0, 1)]
    predicted = [float(halves[1 - n % 2](np.array(k[n]))) for n in range(len(trace))]
    told = forecast(trace, PRICES)
    assert told.predicted.mean == pytest.approx(mean(predicted))
    assert told.measured.mean == pytest.approx(mean(costs.total_n.tolist()))
    off = [abs(p - c) / c for p, c in zip(predicted, costs.total_n.tolist(), strict=True) if c > 0]
    assert told.error.mean == pytest.approx(mean(off))
