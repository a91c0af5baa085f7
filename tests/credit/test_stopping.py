"""Credit for stopping and for going on, from graded answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, Event, near, on, paid, run, runs

from podium.credit import BadCredit
from podium.trace.columns import Text, Trace, concat
from podium.trace.vocabulary import decision, event


def looks(*grades: float, stops: bool = True, reward: float | None = None, batch: int = -1) -> Trace:
    """Before each decision an answer is graded; the last decision stops, or the run ends on its own."""
    events: list[Event] = []
    for i, grade in enumerate(grades):
        last = stops and i == len(grades) - 1
        chosen = "stop" if last else "go on"
        events += [
            on("say w", graded=grade),
            on("decide lead", decision="stop", options=["stop", "go on"], chosen=chosen),
        ]
    return run(*events, team=grades[-1] if reward is None else reward, batch=batch)


def test_one_run_tells_of_all_its_earlier_stops() -> None:
    # it earned .5. Going on at .25 was worth .5 - .25, at 1 it lost .5. What going on at the end would have earned it does not say
    near(paid(runs(looks(0.25, 1.0, 0.5)), "stopping()", "orchestrator"), [0.25, -0.5, NAN])


def test_a_grade_is_that_of_the_latest_answer_that_led_to_the_decision() -> None:
    decide = {"decision": "stop", "options": ["stop", "go on"]}
    trace = runs(
        run(
            on("say w", graded=0.25),
            on("say v", graded=0.75, after=[]),  # which the lead has not heard of
            on("decide lead", chosen="go on", after=[0], **decide),
            on("decide lead", chosen="stop", after=[1, 2], **decide),
            team=1.0,
        )
    )
    near(paid(trace, "stopping()", "orchestrator"), [0.75, NAN])


def test_other_runs_tell_what_stopping_forwent() -> None:
    trace = runs(looks(0.5), looks(0.5, 0.25), looks(0.25, 1.0))
    # at the first stage two went on and earned .25 and 1: .625. Who stopped at .5 lost .125; who went on at .5 won it
    got = paid(trace, 'stopping(by="task")', "orchestrator")
    near(got, [-0.125, 0.125, NAN, 0.375, NAN])


def test_a_learned_value_may_tell() -> None:
    trace = runs(looks(0.25, 0.5))
    held = np.full(trace.n_events, NAN)
    held[[1, 3]] = [0.125, 0.75]
    told = replace(trace, reward_e={**trace.reward_e, "v": held})
    near(paid(told, 'stopping(value="v")', "orchestrator"), [0.25, -0.25])


def test_the_best_rule_by_hand() -> None:
    trace = runs(looks(0.0, 1.0, stops=False, reward=0.0), looks(0.0, 0.5, stops=False, reward=1.0))
    # second stage: each sees what the other got by going on: run 0 expects 1, run 1 expects 0.
    # W: run 0 1 >= 1 stops: 1; run 1 .5 >= 0 stops: .5. First stage: run 0 expects .5, run 1 expects 1
    near(paid(trace, 'stopping(rule="best", by="task")', "orchestrator"), [0.5, 0.0, 1.0, -0.5])
    near(paid(trace, 'stopping(rule="best")', "orchestrator"), [NAN] * 4)  # alone it would have to peek


def offers(n: int, k: int, seed: int) -> Trace:
    """Runs in which k offers are graded one after the other, drawn evenly from 0 to 1; none is taken before the last."""
    grade = np.random.default_rng(seed).random((n, k))
    stop = decision("stop")
    return Trace.of(
        trace_id_n=Text.of(str(i) for i in range(n)),
        task_id_n=Text.constant("t", n),
        rollout_a=np.arange(n),
        name_a=Text.constant("lead", n),
        rollout_e=np.repeat(np.arange(n), k),
        t_e=np.tile(np.arange(k, dtype=float), n),
        agent_e=np.repeat(np.arange(n), k),
        type_e=np.full(n * k, event("orchestrator_decision")),
        decision_e=np.full(n * k, stop),
        chosen_e=Text(np.tile([*[0] * (k - 1), 1], n), ("go on", "stop")),
        reward_e={"graded": grade.ravel()},
        reward_n={"team": grade[:, -1]},
    )


def test_the_best_rule_finds_the_value_of_optimal_stopping_and_not_the_peek() -> None:
    # offers even on [0, 1], no way back: to have one left is worth 1/2, two 5/8, three 89/128 (Cayley, Moser); the best of three .75
    trace = offers(20_000, 4, 0)
    got = paid(trace, 'stopping(rule="best", by="task")', "orchestrator").reshape(-1, 4)
    beyond = got[:, :3] + trace.reward_e["graded"].reshape(-1, 4)[:, :3]
    near(beyond.mean(axis=0), [89 / 128, 5 / 8, 1 / 2], 0.01)


def test_under_the_policy_it_is_unbiased() -> None:
    trace = offers(20_000, 3, 1)
    got = paid(trace, "stopping()", "orchestrator").reshape(-1, 3)
    # who goes on to the end gets 1/2 on average, whatever is at hand
    near(got[:, :2].mean(axis=0), [0.0, 0.0], 0.01)
    low = trace.reward_e["graded"].reshape(-1, 3)[:, 0] < 0.2
    near(got[low, 0].mean(), 0.4, 0.02)


def test_batches_runs_and_what_was_not_scored() -> None:
    one, two = (
        runs(looks(0.5, batch=0), looks(0.5, 0.25, batch=0)),
        runs(looks(0.5, batch=1), looks(0.5, 1.0, batch=1)),
    )
    for step in ('stopping(by="task")', 'stopping(rule="best", by="task")', "stopping()"):
        apart = np.concatenate([paid(t, step, "orchestrator") for t in (one, two)])
        near(paid(concat([one, two]), step, "orchestrator"), apart)
    lost = replace(one, reward_n={"team": np.array([NAN, NAN])})
    assert np.isnan(paid(lost, 'stopping(by="task")', "orchestrator")).all()


def test_only_decisions_to_stop_are_paid() -> None:
    trace = runs(run(on("decide lead", decision="spawn", options=["x", "y"], chosen="x"), team=1.0))
    near(paid(trace, "stopping()", "orchestrator"), [NAN])
    with pytest.raises(BadCredit, match="not team"):
        paid(trace, "stopping()")
    with pytest.raises(BadCredit, match="policy or best"):
        paid(trace, 'stopping(rule="peek")', "orchestrator")
    silent = runs(run(on("decide lead", decision="stop"), team=1.0))
    near(paid(silent, "stopping()", "orchestrator"), [NAN])  # which does not say what was chosen


# against the formulas as plain loops


def chances(seed: int) -> Trace:
    """Runs by dice: two who decide in turn, answers that are not always graded, runs without a task or a reward."""
    dice = np.random.default_rng(seed)
    parts = []
    for i in range(24):
        events: list[Event] = []
        for _ in range(int(dice.integers(1, 7))):
            who, grade = ("lead", "aide")[int(dice.integers(2))], float(dice.integers(0, 5)) / 4
            events.append(on("say w", graded=grade) if dice.random() < 0.7 else on("say w", other=grade))
            chosen = ("stop", "go on", "think")[int(dice.integers(3))]
            choice = {"options": ["stop", "go on", "think"], "chosen": chosen} if dice.random() < 0.9 else {}
            events.append(on(f"decide {who}", decision="stop", **choice))
        reward = NAN if dice.random() < 0.15 else float(dice.integers(0, 9)) / 8
        parts.append(run(*events, task=("q", "r", None)[i % 3], batch=i % 2, team=reward))  # type: ignore[arg-type]
    return runs(*parts)


def decided(trace: Trace) -> list[list[int]]:
    """The decisions of each agent of each run that say what was chosen, as rows in time."""
    rows = [
        [
            r
            for r in range(trace.n_events)
            if trace.agent_e[r] == a and trace.decision_e[r] >= 0 and trace.chosen_e[r] is not None
        ]
        for a in range(trace.n_agents)
    ]
    return [r for r in rows if r]


def beyond_by_rule(trace: Trace, rule: str, alone: bool) -> dict[int, float]:
    """What going on is worth at each decision, by backward induction from the last stage."""
    chains, final = decided(trace), trace.reward_n["team"]
    at = {r: (chain, k) for chain in chains for k, r in enumerate(chain)}
    went = {r: trace.chosen_e[r] != "stop" for r in at}
    grade = {r: _grade(trace, r) for r in at}
    worth: dict[int, float] = {}
    beyond: dict[int, float] = {}

    def place(r: int) -> object:
        n = trace.rollout_e[r]
        return r if alone else (trace.batch_n[n], trace.task_id_n[n], at[r][1])

    for stage in range(max(map(len, chains)) - 1, -1, -1):
        here = [chain[stage] for chain in chains if len(chain) > stage]
        after = {
            r: worth[c[k + 1]] if len(c := at[r][0]) > (k := stage) + 1 else final[trace.rollout_e[r]] for r in here
        }
        if rule == "policy":
            after = {r: final[trace.rollout_e[r]] for r in here}
        for r in here:
            grouped = alone or trace.task_id_n[trace.rollout_e[r]] is not None
            others = [i for i in here if grouped and place(i) == place(r) and went[i] and after[i] == after[i]]
            if rule == "best":
                others = [i for i in others if i != r]
            beyond[r] = sum(after[i] for i in others) / len(others) if others else NAN
            if others and not grade[r] >= beyond[r]:
                worth[r] = after[r] if went[r] else beyond[r]
            else:
                worth[r] = after[r] if not others and went[r] else grade[r]
    return beyond


def _grade(trace: Trace, row: int) -> float:
    """Every event follows the one before it, so the latest that states a grade led to the decision."""
    first = int(trace.first_of("e")[trace.rollout_e[row]])
    told = [g for g in trace.reward_e["graded"][first:row] if g == g]
    return float(told[-1]) if told else NAN


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rule", ["policy", "best"])
@pytest.mark.parametrize("alone", [True, False])
def test_it_is_the_induction_over_runs(seed: int, rule: str, alone: bool) -> None:
    trace = chances(seed)
    beyond = beyond_by_rule(trace, rule, alone)
    want = []
    for r in np.flatnonzero(trace.decision_e >= 0).tolist():
        worth = NAN
        if r in beyond and trace.reward_n["team"][trace.rollout_e[r]] == trace.reward_n["team"][trace.rollout_e[r]]:
            worth = (beyond[r] - _grade(trace, r)) * (-1.0 if trace.chosen_e[r] == "stop" else 1.0)
        want.append(worth)
    by = "" if alone else ", by='task'"
    near(paid(trace, f"stopping(rule='{rule}'{by})", "orchestrator"), want)
