from __future__ import annotations

from dataclasses import replace

import numpy as np
from made import kind, made, parents, thrown

from podium.graph import critical_steps, lead
from podium.trace.columns import Text, Trace, concat

TEAM = made(
    # 0        1                2               3      4      5      6      7           8
    ["d lead", "spawn lead>v", "spawn lead>w", "c v", "r v", "x v", "c w", "x lead"],
    [(0, 1), (1, 2), (1, 3), (3, 4), (4, 5), (2, 6), (5, 7), (6, 7)],
)


def test_worked_by_hand():
    # stage 0: the decision, then v takes 2 steps beside w's 1.   stage 7: the return
    assert lead(TEAM).tolist() == [0]
    assert critical_steps(TEAM).tolist() == [1 + 2 + 1]


def test_what_is_launched_after_another_step_of_the_lead_counts_again():
    run = made(
        ["d lead", "spawn lead>v", "c v", "d lead", "spawn lead>w", "c w"],
        [(0, 1), (1, 2), (1, 3), (3, 4), (4, 5)],
    )
    assert critical_steps(run).tolist() == [1 + 1 + 1 + 1]


def test_a_team_below_a_sub_agent_counts_its_depth():
    run = made(
        ["d lead", "spawn lead>v", "spawn v>u", "c u", "c u", "c v", "spawn v>s", "c s"],
        [(0, 1), (1, 2), (2, 3), (3, 4), (2, 5), (5, 6), (6, 7)],
    )
    assert critical_steps(run).tolist() == [1 + (1 + max(2, 1))]


def test_recorded_stages_are_believed():
    run = made(
        ["d lead", "c lead", "c v", "c w", "c w"],
        [(0, 1), (0, 2), (1, 3), (3, 4)],
        stage_e=np.array([0, 0, 1, 0, -1]),
    )
    # stage 0: lead 2, w 2 (its second step inherits the stage).   stage 1: v 1
    assert critical_steps(run).tolist() == [2 + 2 + 1]


def test_alone_every_step_is_critical():
    assert critical_steps(made(["d a", "c a", "r a", "m a"], [(0, 1), (1, 2), (2, 3)])).tolist() == [3]
    assert critical_steps(made([])).tolist() == [0]
    assert critical_steps(made([], rollout_a=np.zeros(2, int), name_a=Text.of(["a", "b"]))).tolist() == [0]


def test_a_long_line_of_spawns_is_no_trouble():
    n = 2000
    run = made(
        [
            f"{'spawn' if i % 2 == 0 else 'c'} a{i // 2}" + (f">a{i // 2 + 1}" if i % 2 == 0 else "")
            for i in range(n)
        ],
        [(i, i + 1) for i in range(n - 1)],
    )
    assert critical_steps(run).tolist() == [n // 2]


def test_who_acts_at_an_unknown_time_leads_only_if_nobody_acts_at_a_known_one():
    nan = np.nan
    run = made(["d a", "d b", "d c"], t_e=np.array([nan, 4.0, 3.0]))
    assert lead(run).tolist() == [2]
    assert lead(made(["d a", "d b"], t_e=np.array([nan, 4.0]))).tolist() == [1]
    assert lead(made(["d a", "d b"], t_e=np.array([nan, nan]))).tolist() == [0]


def test_a_human_who_opens_the_run_does_not_lead_it():
    run = made(["human_intervention user>a", "d a", "spawn a>b", "c b"], [(0, 1), (1, 2), (2, 3)])
    assert run.name_a[int(lead(run)[0])] == "a"
    assert critical_steps(run).tolist() == [2]
    assert made(["m b", "spawn a>b"]).name_a[int(lead(made(["m b", "spawn a>b"]))[0])] == "a"


def slow_steps(run: Trace) -> int:
    """Straight from the definition: stage by stage, down the tree of spawns."""
    step = ("orchestrator_decision", "message", "tool_call", "return", "aggregate")
    first, born = int(lead(run)[0]), {}
    for r in range(run.n_events):
        if kind(run, r) == "spawn" and run.to_e[r] >= 0 and run.agent_e[r] >= 0:
            born.setdefault(int(run.to_e[r]), r)
    born.pop(first, None)
    children: dict[int, list[int]] = {}
    for a in range(run.n_agents):
        if a != first:
            by = int(run.agent_e[born[a]]) if a in born else first
            by = by if a in born and born.get(by, -1) < born[a] else first
            children.setdefault(by, []).append(a)
    recorded = bool((run.stage_e >= 0).any())
    opener: list[int] = []
    for r in range(run.n_events):
        opens = run.stage_e[r] >= 0 if recorded else kind(run, r) in step and run.agent_e[r] == first
        opener.append(r if opens else max((opener[s] for s, _ in parents(run, r)), default=-1))
    stage = [-1 if o < 0 else (int(run.stage_e[o]) if recorded else o) for o in opener]

    def count(a: int, now: int) -> int:
        own = sum(kind(run, r) in step and run.agent_e[r] == a and stage[r] == now for r in range(run.n_events))
        return own + max((count(b, now) for b in children.get(a, [])), default=0)

    return sum(count(first, now) for now in set(stage)) if first >= 0 else 0


def test_the_same_as_the_definition():
    rng = np.random.default_rng(8)
    for _ in range(300):
        run = thrown(rng, int(rng.integers(1, 30)))
        assert critical_steps(run).tolist() == [slow_steps(run)]


def slow_lead(run: Trace) -> int:
    """Of those nobody spawned the first to decide, spawn or aggregate, else the first of them to act, else the first to act at all."""
    spawned = {int(run.to_e[r]) for r in range(run.n_events) if kind(run, r) == "spawn"}
    outside = ("tool_result", "human_intervention", "safety_event")
    everyone = [r for r in range(run.n_events) if run.agent_e[r] >= 0]
    own = [r for r in everyone if kind(run, r) not in outside]
    roots = [r for r in own if int(run.agent_e[r]) not in spawned]
    leading = [r for r in roots if kind(run, r) in ("orchestrator_decision", "spawn", "aggregate")]
    for rows in (leading, roots, own, everyone):
        if rows:
            first = min(
                rows, key=lambda r: (np.isnan(run.t_e[r]), run.t_e[r] if run.t_e[r] == run.t_e[r] else 0.0, r)
            )
            return int(run.agent_e[first])
    return -1


def test_who_leads_is_as_defined_in_every_run_of_a_batch():
    rng = np.random.default_rng(11)
    runs = [thrown(rng) for _ in range(120)]
    runs = [replace(r, t_e=np.where(rng.random(r.n_events) < 0.3, np.nan, rng.permutation(r.t_e))) for r in runs]
    want, before = [], 0
    for r in runs:
        first = slow_lead(r)
        want.append(first + before if first >= 0 else -1)
        before += r.n_agents
    assert lead(concat(runs)).tolist() == want
