"""Where the next branches go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from grown import choose, decides, paid, run, runs, seeded

from experiments.asks import asks, turn_of
from podium.credit import BadCredit
from podium.envs.branch import branch, luck
from podium.envs.draws import seeds
from podium.envs.planted_credit import credit
from podium.envs.world import make, play
from podium.trace.columns import Text, Trace, concat
from podium.trace.do import Do


def test_options_without_a_run_come_first() -> None:
    trace = runs(run(decides("x"), decides("y"), team=1.0))
    assert Counter((d.row, d.value) for d in asks(trace, 4)) == Counter([(0, "y"), (0, "z"), (1, "x"), (1, "z")])


def test_then_where_the_outcome_varies() -> None:
    steady = [choose(o, at=0, reward=0.5) for o in "xyz" for _ in range(4)]
    shaky = [choose("x", o, at=1, reward=r) for o in "xyz" for r in (0.0, 1.0, 1.0, 0.0)]
    trace = runs(run(decides("x"), decides("x"), team=0.5), *steady, *shaky)
    assert Counter(d.row for d in asks(trace, 12))[1] >= 9


def test_options_are_tried_in_sets() -> None:
    trace = runs(run(decides("x"), team=1.0))
    # the run itself is the first of x; then all three
    assert [d.value for d in asks(trace, 2)] == ["y", "z"]
    assert sorted(d.value for d in asks(trace, 5)[2:]) == ["x", "y", "z"]  # type: ignore[type-var]
    assert len(asks(trace, 4)) == 4


def test_a_choice_that_changes_nothing_under_the_same_luck_is_asked_about_less() -> None:
    # both vary as much; at the first the options of one seed earn the same, at the second they do not
    inert = [choose(o, at=0, reward=float(s % 2)) for s in range(4) for o in "xyz"]
    real = [choose("x", o, at=1, reward=float((s + k) % 2)) for s in range(4) for k, o in enumerate("xyz")]
    names = ["own", *(str(s) for s in range(4) for _ in "xyz"), *(f"{s}'" for s in range(4) for _ in "xyz")]
    trace = seeded(runs(run(decides("x"), decides("x"), team=1.0), *inert, *real), *names)
    asked = Counter(d.row for d in asks(trace, 12))
    assert asked[1] >= 9


def test_more_where_the_policy_rarely_takes_what_was_taken() -> None:
    branches = [choose("x", o, at=a, reward=r) for a, o in ((1, "y"),) for r in (0.0, 1.0)]
    branches += [choose("y", at=0, reward=r) for r in (0.0, 1.0)]
    trace = runs(run(decides("x", "xy"), decides("x", "xy"), team=1.0), *branches)
    asked = Counter(d.row for d in asks(trace, 20, pi={0: np.array([0.1, 0.9]), 1: np.array([0.9, 0.1])}))
    # credit is (1 - π) times the difference to the other option: what is surely taken needs no proof
    assert asked[0] > 2 * asked[1]
    with pytest.raises(BadCredit, match="expected 2 probabilities"):
        asks(trace, 1, pi={0: np.array([1.0])})


def test_of_a_set_that_is_cut_the_options_that_weigh_most_come_first() -> None:
    trace = runs(run(decides("x"), team=1.0))
    odds = {0: np.array([0.5, 0.1, 0.4])}
    # another option weighs π², the one taken (1 - π)²: z .16 before y .01; then of a whole set x .25, z, y
    assert [d.value for d in asks(trace, 1, pi=odds)] == ["z"]
    assert [d.value for d in asks(trace, 5, pi=odds)] == ["z", "y", "x", "z", "y"]


def test_only_where_told_and_only_decisions_of_runs_that_branched_from_none() -> None:
    trace = runs(run(decides("x"), decides("y"), team=1.0), choose("y", "x", at=0, reward=0.0))
    assert {d.row for d in asks(trace, 9, rows=np.array([1]))} == {1}
    assert {d.row for d in asks(trace, 9)} == {0, 1}
    with pytest.raises(BadCredit, match="row 2 is not"):
        asks(trace, 1, rows=np.array([2]))
    assert asks(trace, 0) == []
    bare = runs(run("decide lead", decides("x"), team=1.0))
    assert {d.row for d in asks(bare, 9)} == {1}
    with pytest.raises(BadCredit, match="row 0 is not a decision with options"):
        asks(bare, 1, rows=np.array([0]))
    assert asks(runs(run("say a", team=1.0)), 3) == []


def test_the_only_option_may_be_tried_again() -> None:
    assert [(d.row, d.value) for d in asks(runs(run(decides("x", "x"), team=1.0)), 2)] == [(0, "x"), (0, "x")]


def test_how_many_th_try() -> None:
    trace = runs(run(decides("x"), team=1.0), choose("y", at=0, reward=0.0))
    dos = [Do(0, "choose", o) for o in "xyzxz"]
    # the run itself is try 0 of x, the branch try 0 of y
    assert turn_of(trace, dos).tolist() == [1, 1, 0, 2, 1]


def test_the_list_does_not_depend_on_how_often_it_is_asked() -> None:
    trace = runs(run(decides("x"), decides("y"), team=1.0))
    assert asks(trace, 7) == asks(trace, 7)


def planted(n: int, seed: int) -> tuple[Any, Trace, dict[int, np.ndarray], np.ndarray]:
    """A world, runs in it, the policy's odds at each decision, and the exact credit of each."""
    world, drawn = make("planted", noise=0.5), seeds(seed, n)
    state = play(world, world.behaviour(drawn), drawn, log=True).state
    root = world.trace(state)
    rows, model = np.flatnonzero(root.type_e == 0), world.model
    at = [(int(r), int(str(root.extra_e["row"][r])), int(root.rollout_e[r])) for r in rows]
    pi = {r: model.law[i][tuple(state.values[n, j] for j in model.causes(i))] for r, i, n in at}
    said: list[str | None] = [None] * root.n_events
    for r, odds in pi.items():
        said[r] = msgspec.json.encode(odds.tolist()).decode()
    extra = {**root.extra_e, "anchor": root.extra_e["row"], "pi": Text.of(said)}
    exact = credit(model, state.values)
    return world, replace(root, extra_e=extra), pi, np.array([exact[n, i] for _, i, n in at])


@pytest.mark.parametrize("seed", [2, 3])
def test_in_a_planted_team_it_beats_asking_everywhere_alike(seed: int) -> None:
    world, root, pi, exact = planted(12, seed)

    def grown(forest: Trace, dos: list[Do]) -> Trace:
        fresh = luck(forest, dos, turn_of(forest, dos))
        return concat([forest, branch(world, root, dos, world.behaviour(fresh), fresh)])

    def error(forest: Trace, step: str) -> float:
        return float(np.sqrt(np.mean((paid(forest, step, "orchestrator")[: len(exact)] - exact) ** 2)))

    forest = blind = root
    for _ in range(4):
        forest = grown(forest, asks(forest, 600, pi=pi))
        blind = grown(blind, asks(replace(blind, reward_n={"team": np.zeros(len(blind))}), 600))
    assert len(forest) == len(blind) == 12 + 2400
    raw, pooled = 'same_prefix("policy", same="option")', 'pooled_prefix(by=("task", "anchor"))'
    assert error(forest, raw) < 0.95 * error(blind, raw)
    assert error(forest, pooled) < error(forest, raw)
    assert error(forest, pooled) < 0.04


@pytest.mark.parametrize("seed", range(4))
def test_the_next_set_goes_where_it_lowers_the_variance_of_credit_by_most(seed: int) -> None:
    """Asked one set after the other, each where s² Σ c² (1/n - 1/(n + 1)) / K is largest, s² read off the runs of one option."""
    dice = np.random.default_rng(seed)
    options = ["xy", "xyz", "xyzw"]
    taken = "".join(o[int(dice.integers(len(o)))] for o in options)
    own = [decides(t, o) for t, o in zip(taken, options, strict=True)]
    spread = dice.random(3) * 3 + 0.1
    tries = [
        run(
            *own[:at],
            decides(o, options[at]),
            parent="run0",
            branch=at,
            do={"what": "choose", "value": o},
            team=float(spread[at] * dice.normal()),
        )
        for at in range(3)
        for o in options[at]
        for _ in range(2)
    ]
    trace = runs(run(*own, team=0.0), *tries)
    pi = {at: dice.dirichlet(np.ones(len(o))) for at, o in enumerate(options)}
    # the variance at each decision: its own runs, and 16 of what all vary by
    outcomes = [
        {
            o: [float(t.reward_n["team"][0]) for t in tries if t.branch_n[0] == at and t.chosen_e[at] == o]
            for o in options[at]
        }
        for at in range(3)
    ]
    for at in range(3):
        outcomes[at][taken[at]].append(0.0)
    square = [sum(sum((v - sum(r) / len(r)) ** 2 for v in r) for r in of.values()) for of in outcomes]
    freedom = [sum(len(r) - 1 for r in of.values()) for of in outcomes]
    noise = [(s + 16 * sum(square) / sum(freedom)) / (f + 16) for s, f in zip(square, freedom, strict=True)]
    have = [{o: len(r) for o, r in of.items()} for of in outcomes]
    weight = [
        {o: (1 - p if o == taken[at] else p) ** 2 for o, p in zip(options[at], pi[at], strict=True)}
        for at in range(3)
    ]
    want: list[tuple[int, str]] = []
    while len(want) < 20:

        def gain(at: int) -> float:
            n = min(have[at].values())
            cost = sum(k == n for k in have[at].values())
            return noise[at] * sum(weight[at].values()) * (1 / n - 1 / (n + 1)) / cost

        at = max(range(3), key=gain)
        least = min(have[at].values())
        for o in sorted((o for o in options[at] if have[at][o] == least), key=lambda o: -weight[at][o]):
            want.append((at, o))
            have[at][o] += 1
    assert [(d.row, d.value) for d in asks(trace, 20, pi=pi)] == want[:20]
