"""Scores against their formulas, written once more as plain loops over events, on runs by dice that leave much unsaid."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import isnan, log, nan

import numpy as np
import pytest
from unsaid import SEEDS, edges, kind, led_to, mean, rows_of, same, team, total

from podium import graph
from podium.graph import units
from podium.graph.labels import number
from podium.rewards import score
from podium.rewards.balance import shares
from podium.rewards.orchestration import combined, spawned, used, wall_clock
from podium.rewards.shapes import converged
from podium.rewards.tools import answers_of_the_lead
from podium.trace.columns import Trace


@pytest.mark.parametrize("seed", SEEDS)
def test_pay_of_agents_messages_calls_and_decisions(seed: int) -> None:
    trace = team(seed)
    for unit, name, channel in (
        ("agent", "individual", "agent"),
        ("message", "said", "message"),
        ("tool_call", "called('use')", "use"),
    ):
        place, r = units.place(trace, unit).tolist(), trace.reward_e[channel]
        n = len(units.rows(trace, unit))
        same(score(trace, name, unit), [total([r[e] for e, p in enumerate(place) if p == u]) for u in range(n)])
    decisions = [e for e in range(trace.n_events) if kind(trace, e) == "orchestrator_decision"]
    same(score(trace, "decided('own')", "orchestrator"), [trace.reward_e["own"][e] for e in decisions])
    last = [nan] * trace.n_agents
    for e, a in enumerate(trace.agent_e.tolist()):
        if a >= 0 and kind(trace, e) != "tool_result" and not isnan(trace.reward_e["agent"][e]):
            last[a] = trace.reward_e["agent"][e]
    same(score(trace, "agent_outcome", "agent"), last)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_rivals_and_solutions_with_their_critiques(seed: int) -> None:
    trace = team(seed)
    x = score(trace, "individual", "agent").tolist()
    want = []
    for a, n in enumerate(trace.rollout_a.tolist()):
        party = [b for b, m in enumerate(trace.rollout_a.tolist()) if m == n and not isnan(x[b])]
        other = [b for b in party if b != a]
        want.append(nan if len(party) != 2 else x[a] - x[other[0]] if a in party else 0.0)
    same(score(trace, "zero_sum", "agent"), want)
    v, pay = trace.reward_e["verdict"], defaultdict(float)
    says = {e for e in range(trace.n_events) if kind(trace, e) == "message" and not isnan(v[e])}
    for s, c in set(edges(trace)):
        if c in says and kind(trace, s) == "message" and trace.agent_e[s] != trace.agent_e[c]:
            pay[s] += v[c] - 0.5
            pay[c] -= v[c] - 0.5
    tells = {int(trace.rollout_e[e]) for e in says}
    messages = [e for e in range(trace.n_events) if kind(trace, e) == "message"]
    same(score(trace, "critique", "message"), [pay[e] if trace.rollout_e[e] in tells else nan for e in messages])


def answers(trace: Trace) -> dict[int, list[int]]:
    """The rows at which each agent states an answer."""
    value, held = number(trace, "value"), defaultdict(list)
    for e, a in enumerate(trace.agent_e.tolist()):
        said = kind(trace, e) in ("message", "return", "aggregate") and not isnan(value[e])
        if a >= 0 and kind(trace, e) != "tool_result" and (said or not isnan(trace.reward_e["correct"][e])):
            held[a].append(e)
    return held


@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_was_heard_before_an_answer_shares_in_its_gain(seed: int) -> None:
    trace, right = team(seed), team(seed).reward_e["correct"]
    pay: dict[int, float] = defaultdict(float)
    delta = [0.0] * trace.n_events
    for a, stated in answers(trace).items():
        before = -1
        for k, row in enumerate(stated):
            gain = 0.0 if k == 0 else float(right[row] - right[stated[k - 1]])
            delta[row] = gain
            heard = {
                s
                for s, d in edges(trace)
                if before < d <= row and trace.agent_e[d] == a and kind(trace, d) != "tool_result"
                if kind(trace, s) == "message" and trace.agent_e[s] != a
            }
            speakers = {int(trace.agent_e[s]) for s in heard}
            for s in heard:
                own = sum(trace.agent_e[i] == trace.agent_e[s] for i in heard)
                pay[s] += gain / (len(speakers) * own)
            before = row
    tells = {int(trace.rollout_e[e]) for e in range(trace.n_events) if not isnan(right[e])}
    messages = [e for e in range(trace.n_events) if kind(trace, e) == "message"]
    same(score(trace, "resolution", "message"), [pay[e] if trace.rollout_e[e] in tells else nan for e in messages])
    place, n = units.place(trace, "turn"), len(units.rows(trace, "turn"))
    checked = {int(trace.rollout_e[e]) for rows in answers(trace).values() for e in rows if not isnan(right[e])}
    want = [0.0] * n
    for e, gain in enumerate(delta):
        if place[e] >= 0:
            want[place[e]] += gain
    runs_ = units.rollouts(trace, "turn").tolist()
    same(
        score(trace, "correctness_delta", "turn"),
        [w if m in checked else nan for w, m in zip(want, runs_, strict=True)],
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_verifiers_and_panels(seed: int) -> None:
    trace = team(seed)
    v, c, place = trace.reward_e["verdict"], trace.reward_e["correct"], units.place(trace, "turn").tolist()
    agrees = defaultdict(list)
    for s, d in set(edges(trace)):
        if not isnan(c[s]) and not isnan(v[d]) and trace.agent_e[s] != trace.agent_e[d] and place[d] >= 0:
            agrees[place[d]].append(float((v[d] >= 0.5) == (c[s] >= 0.5)))
    same(
        score(trace, "verdict_agreement", "turn"), [mean(agrees[t]) for t in range(len(units.rows(trace, "turn")))]
    )
    verdict = {"yes": 1.0, "no": 0.0, "0.5": 1.0, "0.2": 0.0}
    for by in ("majority", "weighted", "unanimous"):
        want = []
        for n in range(len(trace)):
            votes = defaultdict(list)
            for e, word, w in zip(
                trace.event_v.tolist(), trace.value_v.strings(), trace.weight_v.tolist(), strict=True
            ):
                if e in rows_of(trace, n) and word in verdict:
                    votes[e].append((verdict[word], w if by == "weighted" else 1.0))
            passed = []
            for cast in votes.values():
                for_it, all_ = sum(p * w for p, w in cast), sum(w for _, w in cast)
                passed.append(for_it == all_ if by == "unanimous" else for_it > all_ / 2)
            want.append(float(all(passed)) if passed else nan)
        same(score(trace, f"panel(by='{by}')", "team"), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_was_spawned_used_and_finished(seed: int) -> None:
    trace = team(seed)
    spawns = [e for e in range(trace.n_events) if kind(trace, e) == "spawn"]
    born = {int(trace.to_e[e]) for e in spawns} - {-1}
    assert set(np.flatnonzero(spawned(trace)).tolist()) == born
    call = graph.call_of(trace).tolist()
    who = [int(trace.agent_e[call[e]] if call[e] >= 0 else trace.agent_e[e]) for e in range(trace.n_events)]
    reached = {
        who[s] for s, d in edges(trace) if who[s] != who[d] and kind(trace, d) not in ("despawn", "safety_event")
    }
    assert set(np.flatnonzero(used(trace)).tolist()) == reached - {-1}
    returned = {
        int(trace.agent_e[e]) for e in range(trace.n_events) if kind(trace, e) == "return" and trace.valid_e[e] != 0
    }
    count, finish, wasted = [], [], []
    for n in range(len(trace)):
        mine = [a for a in born if trace.rollout_a[a] == n]
        nameless = sum(trace.to_e[e] < 0 for e in spawns if e in rows_of(trace, n))
        there = len(rows_of(trace, n)) > 0
        count.append(min(len(mine) + nameless, 3) / 3 if there else nan)
        unknown = nameless or not there
        finish.append(nan if unknown else sum(a in returned for a in mine) / len(mine) if mine else 0.25)
        wasted.append(nan if unknown else sum(a not in reached for a in mine) / len(mine) if mine else 0.25)
    same(score(trace, "instantiate(most=3)", "team"), count)
    same(score(trace, "finish(none=0.25)", "team"), finish)
    same(score(trace, "wasted_spawns(none=0.25)", "team"), wasted)


def lead_answers(trace: Trace) -> set[int]:
    """The lead's aggregates, returns and stops, or the last thing it did."""
    found: set[int] = set()
    for n in range(len(trace)):
        lead = graph.lead(trace)[n]
        own = [e for e in rows_of(trace, n) if trace.agent_e[e] == lead >= 0 and kind(trace, e) != "tool_result"]
        ends = [e for e in own if kind(trace, e) in ("aggregate", "return") or trace.decision_e[e] == 4]
        found.update(ends or own[-1:])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_work_that_an_answer_rests_on(seed: int) -> None:
    trace = team(seed)
    ends = lead_answers(trace)
    assert set(np.flatnonzero(answers_of_the_lead(trace)).tolist()) == ends
    behind, born = led_to(trace, ends), set(np.flatnonzero(spawned(trace)).tolist())
    out, shows = trace.tokens_out_e, set()
    for e in range(trace.n_events):
        k = kind(trace, e)
        acts = k in ("tool_call", "message", "spawn", "aggregate") or out[e] > 0
        acts = acts or (k == "return" and (trace.content_ref_e[e] is not None or trace.valid_e[e] == 1))
        if acts and trace.valid_e[e] != 0:
            shows.add(int(trace.agent_e[e]))
    contributed, completed = [], []
    for n in range(len(trace)):
        mine = [a for a in born if trace.rollout_a[a] == n]
        nameless = any(kind(trace, e) == "spawn" and trace.to_e[e] < 0 for e in rows_of(trace, n))
        for only, result in ((False, contributed), (True, completed)):
            heard = [
                e
                for e in rows_of(trace, n)
                if e in behind and trace.valid_e[e] != 0 and (not only or kind(trace, e) == "return")
            ]
            by = {int(trace.agent_e[e]) for e in heard} & set(mine)
            worked = by & shows
            open_ = {int(trace.agent_e[e]) for e in heard if isnan(out[e])} & (by - shows)
            silent = not len(rows_of(trace, n)) or nameless
            if only:
                result.append(nan if silent or open_ else len(worked) / len(mine) if mine else 0.25)
            else:
                result.append(nan if silent or (open_ and len(worked) < 2) else min(len(worked), 2) / 2)
    same(score(trace, "contributed(most=2)", "team"), contributed)
    same(score(trace, "completed(none=0.25)", "team"), completed)


@pytest.mark.parametrize("seed", SEEDS)
def test_time_and_steps(seed: int) -> None:
    trace = team(seed)
    work, ends = graph.work(trace), lead_answers(trace)
    useful = ends | led_to(trace, ends)
    wall, ahead = [], []
    for n in range(len(trace)):
        rows = rows_of(trace, n)
        starts = [trace.t_e[e] for e in rows if not isnan(trace.t_e[e])]
        stops = starts + [trace.end_e[e] for e in rows if not isnan(trace.end_e[e])]
        took = max(stops) - (min(starts) if starts else nan) if stops else nan
        wall.append(took)
        rested = total([work[e] if e in useful or isnan(work[e]) else 0.0 for e in rows])
        ahead.append(rested / took if took > 0 else nan)
    same(wall_clock(trace), wall)
    same(score(trace, "useful_speedup", "team"), ahead)


@pytest.mark.parametrize("seed", SEEDS)
def test_splits_and_aggregates(seed: int) -> None:
    trace = team(seed)
    born = set(np.flatnonzero(spawned(trace)).tolist())
    words = {name: trace.extra_e[name].strings() for name in ("task_relevant", "duplicate_of")}
    split = []
    for n in range(len(trace)):
        returns = [e for e in rows_of(trace, n) if kind(trace, e) == "return"]
        parts = [e for e in returns if trace.agent_e[e] in born]
        back = {int(trace.agent_e[e]) for e in returns}
        acted = {int(trace.agent_e[e]) for e in rows_of(trace, n) if kind(trace, e) != "tool_result"}
        lost = [a for a in born if trace.rollout_a[a] == n and a in acted and a not in back]
        twice, relevant = words["duplicate_of"], words["task_relevant"]
        right = [e for e in parts if trace.valid_e[e] != 0 and relevant[e] != "false" and twice[e] is None]
        judged = [e for e in parts if trace.valid_e[e] >= 0 or relevant[e] is not None or twice[e] is not None]
        split.append(len(right) / (len(parts) + len(lost)) if judged else nan)
    same(score(trace, "split_correctness", "team"), split)
    inputs: dict[int, set[int]] = defaultdict(set)
    is_input = {e for e in range(trace.n_events) if kind(trace, e) in ("return", "message")}
    for s, d in edges(trace):
        if kind(trace, d) == "aggregate":
            if s in is_input:
                inputs[d].add(s)
            if kind(trace, s) == "orchestrator_decision":
                inputs[d] |= {i for i, via in edges(trace) if via == s and i in is_input}
    for e, s in zip(trace.event_v.tolist(), trace.source_v.tolist(), strict=True):
        inputs[e].add(s)
    assert list(zip(*(x.tolist() for x in combined(trace)), strict=True)) == [
        (i, g) for g in sorted(inputs) for i in sorted(inputs[g])
    ]
    verdict = trace.reward_e["verdict"]
    worth = [
        float(trace.valid_e[e]) if isnan(verdict[e]) and trace.valid_e[e] >= 0 else float(verdict[e])
        for e in range(trace.n_events)
    ]
    quality = []
    for n in range(len(trace)):
        groups = [e for e in rows_of(trace, n) if kind(trace, e) == "aggregate"]
        by_lead = [e for e in groups if trace.agent_e[e] == graph.lead(trace)[n] >= 0]
        added = []
        for g in groups:
            own = trace.reward_n["team"][n] if isnan(worth[g]) and g in by_lead[-1:] else worth[g]
            added.append(own - mean([worth[i] for i in inputs[g]]))
        quality.append(mean(added))
    same(score(trace, "aggregation_quality", "team"), quality)


@pytest.mark.parametrize("price", [None, 0.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_in_hand_when_the_lead_stopped(seed: int, price: float | None) -> None:
    trace = team(seed)
    if price is not None:  # some runs state no cost
        trace = replace(trace, cost_e=np.where(trace.rollout_e % 2 == 0, nan, trace.cost_e))
    value, want = number(trace, "value"), []
    for n in range(len(trace)):
        rows = rows_of(trace, n)
        looks = [e for e in rows if kind(trace, e) in ("tool_result", "return", "message")]
        lead = graph.lead(trace)[n]
        stops = {
            e
            for e in rows
            if trace.agent_e[e] == lead >= 0 and (kind(trace, e) == "aggregate" or trace.decision_e[e] == 4)
        }
        before = np.flatnonzero(graph.ancestors(trace, sorted(stops)))
        held = [value[e] for e in before if e in looks and not isnan(value[e])]
        known = any(not isnan(value[e]) for e in looks)
        best = max(held) if held else 0.0 if known or not looks else nan
        paid = total([trace.cost_e[e] for e in rows])
        if isnan(paid):
            paid = 0.0 if not looks else price * len(looks) if price is not None else nan
        want.append(best - paid if stops else nan)
    same(score(trace, "stop_timeliness" if price is None else "stop_timeliness(price=0.5)", "team"), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_calls(seed: int) -> None:
    trace = team(seed)
    calls = [e for e in range(trace.n_events) if kind(trace, e) == "tool_call"]
    place = units.place(trace, "tool_call").tolist()
    bad, known = {}, {}
    for c, e in enumerate(calls):
        said = [int(trace.valid_e[i]) for i, p in enumerate(place) if p == c and trace.valid_e[i] >= 0]
        bad[e], known[e] = 0 in said, bool(said)
    same(score(trace, "invalid_calls", "tool_call"), [float(bad[e]) if known[e] else nan for e in calls])
    shares = [
        mean([float(not bad[e]) for e in calls if trace.agent_e[e] == a and known[e]])
        for a in range(trace.n_agents)
    ]
    same(score(trace, "tool_validity", "agent"), shares)
    used_search = []
    for n in range(len(trace)):
        mine = [e for e in calls if e in rows_of(trace, n)]
        sure = any(trace.tool_e[e] == "search" and not bad[e] for e in mine)
        unsure = any(trace.tool_e[e] is None for e in mine) or not len(rows_of(trace, n))
        used_search.append(1.0 if sure else nan if unsure else 0.0)
    same(score(trace, "used_tool(tool='search')", "team"), used_search)
    behind, useful, seen = led_to(trace, lead_answers(trace)), [], set()
    for e in calls:
        made = (int(trace.agent_e[e]), trace.tool_e[e], trace.content_ref_e[e])
        again = made in seen and made[2] is not None
        seen.add(made)
        if e in behind and trace.agent_e[e] >= 0 and not again and not bad[e]:
            useful.append(e)
    want = []
    for e in calls:
        purse = trace.reward_n["team"][trace.rollout_e[e]]
        agents = {int(trace.agent_e[i]) for i in useful if trace.rollout_e[i] == trace.rollout_e[e]}
        own = sum(trace.agent_e[i] == trace.agent_e[e] for i in useful)
        paid = max(purse, 0.0) / (len(agents) * own) if e in useful else 0.0
        want.append(nan if isnan(purse) else paid)
    same(score(trace, "useful_calls", "tool_call"), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_later_decisions_cost_more(seed: int) -> None:
    trace, want = team(seed), []
    count: dict[int, int] = defaultdict(int)
    for e in range(trace.n_events):
        if kind(trace, e) == "orchestrator_decision":
            a = int(trace.agent_e[e])
            count[a] += 1
            want.append(2 * log(1 + count[a] / 5) if a >= 0 else nan)
    same(score(trace, "step_cost(factor=2.0, budget=5.0)", "orchestrator"), want)


def caller(trace: Trace, row: int) -> int:
    """Whose work an event is: the result of a call is its caller's."""
    call = int(graph.call_of(trace)[row])
    return int(trace.agent_e[call if call >= 0 else row])


@pytest.mark.parametrize("each", ["run", "agent"])
@pytest.mark.parametrize("seed", SEEDS)
def test_steps_with_what_comes_at_the_end(seed: int, each: str) -> None:
    trace = team(seed)
    silent = np.isin(trace.rollout_e, [0, 3, 5])  # runs that state no steps
    trace = replace(trace, reward_e={**trace.reward_e, "step": np.where(silent, nan, trace.reward_e["step"])})
    place, stands = units.place(trace, "turn").tolist(), units.rows(trace, "turn").tolist()
    paid = [total([trace.reward_e["step"][e] for e, p in enumerate(place) if p == t]) for t in range(len(stands))]
    acts = ("orchestrator_decision", "message", "tool_call", "return", "aggregate")
    want = list(paid)
    for n in range(len(trace)):
        turns = [t for t, row in enumerate(stands) if trace.rollout_e[row] == n]
        if any(not isnan(paid[t]) for t in turns):
            for t in turns:
                want[t] = 0.25 if isnan(paid[t]) else paid[t]
            continue
        working = [t for t in turns if any(kind(trace, e) in acts for e, p in enumerate(place) if p == t)] or turns
        for own in {caller(trace, stands[t]) if each == "agent" else n for t in turns}:
            mine = [t for t in turns if each == "run" or caller(trace, stands[t]) == own]
            timed = not any(isnan(trace.t_e[stands[t]]) for t in mine)
            begins = {t: float(trace.t_e[stands[t]]) if timed else float(stands[t]) for t in mine}
            last = max((begins[t] for t in mine if t in working), default=nan)
            ends = [t for t in mine if t in working and begins[t] == last]
            for t in mine:
                want[t] = trace.reward_n["team"][n] * (1 / len(ends) if t in ends else 0.0)
    same(score(trace, f"step(unstated=0.25, end='team', each='{each}')", "turn"), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_rubrics_full_contexts_and_long_answers(seed: int) -> None:
    trace = team(seed)
    place, stands = units.place(trace, "turn").tolist(), units.rows(trace, "turn").tolist()
    relevant = trace.extra_e["task_relevant"].strings()
    points, full = [], []
    for t, row in enumerate(stands):
        mine = [e for e, p in enumerate(place) if p == t]
        valid = [trace.valid_e[e] == 1 for e in mine if trace.valid_e[e] >= 0]
        beside = [relevant[e] == "false" for e in mine if relevant[e] is not None]
        points.append(2.0 * all(valid) - 0.5 * all(beside) if valid and beside else nan)
        read = [trace.tokens_in_e[e] for e in mine if not isnan(trace.tokens_in_e[e])]
        leads = caller(trace, row) == graph.lead(trace)[trace.rollout_e[row]]
        spawns = any(kind(trace, e) == "spawn" for e in mine)
        full.append((float(max(read) > 5) if read else nan) if leads and not spawns else 0.0)
    same(score(trace, "rubric((('valid', 2.0), ('not task_relevant', -0.5)))", "turn"), points)
    same(score(trace, "context_overflow(10.0, 0.5)", "turn"), full)
    longest = []
    for n in range(len(trace)):
        wrote = [trace.tokens_out_e[e] for e in rows_of(trace, n) if not isnan(trace.tokens_out_e[e])]
        longest.append(min(max((max(wrote) - 0.5) / 2, 0.0), 1.0) if wrote else nan)
    same(score(trace, "overlong(0.5, 2.0)", "team"), longest)


@pytest.mark.parametrize("seed", SEEDS)
def test_turns_in_which_something_failed(seed: int) -> None:
    trace = team(seed)
    place, calls = units.place(trace, "turn").tolist(), units.rows(trace, "tool_call").tolist()
    failed = score(trace, "invalid_calls", "tool_call").tolist()
    want = []
    for t in range(len(units.rows(trace, "turn"))):
        bad = any(trace.valid_e[e] == 0 for e, p in enumerate(place) if p == t)
        mine = [f for f, row in zip(failed, calls, strict=True) if place[row] == t]
        want.append(1.0 if bad or 1.0 in mine else 0.25 if any(map(isnan, mine)) else 0.0)
    same(score(trace, "invalid_turns(unstated=0.25)", "turn"), want)


@pytest.mark.parametrize("seed", range(12))
def test_a_signal_has_converged_when_it_gains_little_of_what_it_gained(seed: int) -> None:
    dice = np.random.default_rng(seed)
    rise = np.concatenate([np.zeros(6), np.linspace(0, 3, int(dice.integers(4, 20))), np.full(20, 3.0)])
    history = rise + 0.2 * dice.normal(size=len(rise))
    history[dice.integers(len(history), size=3)] = nan
    values, w, want, peak = [v for v in history.tolist() if not isnan(v)], 4, None, 0.0
    for t in range(2 * w, len(values) + 1):
        new, old = values[t - w : t], values[t - 2 * w : t - w]
        gain = mean(new) - mean(old)
        error = sum(sum((v - mean(part)) ** 2 for v in part) / w / (w - 1) for part in (new, old)) ** 0.5
        peak = max(peak, gain if gain > 2 * error else 0.0)
        if peak > 0 and gain <= 0.2 * peak:
            want = t
            break
    assert converged(history.tolist(), window=w, below=0.2, sure=2.0) == want


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_of_a_rewards_variance(seed: int) -> None:
    trace = team(seed)
    parts = ["outcome", "0.5 * instantiate(4)", "0.25 * finish(none=0.0)"]
    paid = np.array([score(trace, part, "team") for part in parts])
    there = [n for n in range(len(trace)) if not np.isnan(paid[:, n]).any()]
    whole = [float(paid[:, n].sum()) for n in there]
    middle = sum(whole) / len(whole)
    got = shares(" + ".join(parts), trace)
    for row, told in zip(paid, got, strict=True):
        own = [float(row[n]) for n in there]
        together = sum((x - sum(own) / len(own)) * (y - middle) for x, y in zip(own, whole, strict=True))
        assert told.share == pytest.approx(together / sum((y - middle) ** 2 for y in whole))
        assert told.spread == pytest.approx((sum((x - sum(own) / len(own)) ** 2 for x in own) / len(own)) ** 0.5)
        assert told.n == len(there)
