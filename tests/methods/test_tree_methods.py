"""Methods that compare what was done at one node of a tree: numbers worked by hand, and what each reduces to."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import NAN, credit, near, on, run, runs

from podium.trace.columns import Trace

# MAGRPO and its kin: ann and bob act at once, twice; each is paid the joint reward


def pair(first: float, second: float, **more: object) -> Trace:
    """Rows 0 and 1 are the first joint turn, rows 2 and 3 the second, in which each has heard the other."""
    return run(
        on("say ann", t=0, step=first),
        on("say bob", t=0, step=first, after=[]),
        on("say ann", t=1, step=second, after=[1]),
        on("say bob", t=1, step=second, after=[0]),
        **more,  # type: ignore[arg-type]
    )


def tree() -> Trace:
    """Two first joint turns; after one of them two second ones, after the other one."""
    return runs(
        pair(1.0, 2.0, name="a"), pair(1.0, 4.0, name="a/0", parent="a", branch=2), pair(0.0, 1.0, name="b")
    )


# R of the second turns: 2, 4, 1.   R of the first: 1 + 0.9 · mean(2, 4) = 3.7 and 0 + 0.9 · 1 = 0.9
TREE = {
    "mareinforce": ([3.7, 2.0], [3.7, 4.0], [0.9, 1.0]),
    "magrpo": ([1.4, -1.0], [1.4, 1.0], [-1.4, NAN]),  # means 2.3 and 3; the last had no alternative
    "marloo": ([2.8, -2.0], [2.8, 2.0], [-2.8, NAN]),
    "maremax": ([0.0, -2.0], [0.0, 0.0], [-2.8, NAN]),
}


@pytest.mark.parametrize("name", TREE)
def test_returns_go_up_the_tree_and_siblings_are_compared(name: str) -> None:
    both = [[first, first, second, second] for first, second in TREE[name]]  # ann and bob get the same
    near(credit(tree(), name), np.concatenate(both))


@pytest.mark.parametrize("name", TREE)
def test_a_node_counts_once_however_many_runs_repeat_it(name: str) -> None:
    more = runs(*tree(), pair(1.0, 3.0, name="a/1", parent="a", branch=2))  # the mean of 2, 4 and 3 is 3 as before
    near(credit(more, name)[:2], credit(tree(), name)[:2])
    near(credit(more, name)[8:10], credit(tree(), name)[8:10])


def flat(*rewards: float) -> Trace:
    return runs(*(run(on("say ann", step=r, tokens=1), team=r) for r in rewards))


def test_with_one_agent_and_one_turn_they_are_what_their_names_say() -> None:
    trace = flat(1.0, 0.25, 0.0)
    near(credit(trace, "magrpo"), credit(trace, "dr_grpo"))
    near(credit(trace, "marloo"), credit(trace, "rloo"))
    near(credit(trace, "mareinforce"), [1.0, 0.25, 0.0])
    near(credit(trace, "maremax"), [0.0, -0.75, -1.0])


def crossed(*told: tuple[str, str, float]) -> Trace:
    return runs(
        *(run(on("say ann", content_ref=a, step=r), on("say bob", content_ref=b, step=r)) for a, b, r in told)
    )


def test_crossed_samples_are_worth_the_sum_over_their_teammates() -> None:
    # ann's x earned 1 + 0.5, her y 0 + 0.25: mean 0.875.   bob's u earned 1 + 0, his v 0.5 + 0.25: mean 0.875
    trace = crossed(("x", "u", 1.0), ("x", "v", 0.5), ("y", "u", 0.0), ("y", "v", 0.25))
    near(credit(trace, "magrpo_cross"), [0.625, 0.125, 0.625, -0.125, -0.625, 0.125, -0.625, -0.125])


def test_crossed_with_one_agent_is_magrpo() -> None:
    trace = runs(*(run(on("say ann", content_ref=c, step=r)) for c, r in (("x", 1.0), ("y", 0.25), ("z", 0.0))))
    near(credit(trace, "magrpo_cross"), credit(trace, "magrpo"))


# C3: a planner, then a solver; two plans, two solutions of each


def plan_and_solve(team: float, q: tuple[float, float], **more: object) -> Trace:
    return run(on("say ann planner", q=q[0]), on("say bob solver", q=q[1]), team=team, **more)  # type: ignore[arg-type]


def replayed() -> Trace:
    return runs(
        plan_and_solve(1.0, (0.6, 0.9), name="a"),
        plan_and_solve(0.0, (0.6, 0.3), name="a/0", parent="a", branch=1),
        plan_and_solve(0.0, (0.2, 0.4), name="a/1", parent="a", branch=0),
        plan_and_solve(0.0, (0.2, 0.1), name="a/1/0", parent="a/1", branch=1),
    )


def test_c3_reward_only() -> None:
    # plans are worth (1 + 0) / 2 and 0; solutions 1 and 0 under the first plan, 0 and 0 under the second
    near(credit(replayed(), "c3_reward_only"), [0.5, 1.0, 0.5, -1.0, -0.5, 0.0, -0.5, 0.0])


def test_c3_value_only() -> None:
    near(credit(replayed(), "c3_value_only"), [0.4, 0.6, 0.4, -0.6, -0.4, 0.3, -0.4, -0.3])


def test_c3_value_assisted() -> None:
    # R - LOO(Q): plans 0.5 - 0.2 and 0 - 0.6; solutions 1 - 0.3, 0 - 0.9, 0 - 0.1, 0 - 0.4
    near(credit(replayed(), "c3_value_assisted"), [0.3, 0.7, 0.3, -0.9, -0.6, -0.1, -0.6, -0.4])


def test_c3_of_one_level_is_leave_one_out() -> None:
    first = run(on("say ann planner", tokens=1), name="a", team=1.0)
    others = [
        run(on("say ann planner", tokens=1), name=f"a/{i}", parent="a", branch=0, team=r)
        for i, r in enumerate((0.25, 0.0))
    ]
    trace = runs(first, *others)
    near(credit(trace, "c3_reward_only"), credit(trace, "rloo"))


def test_c3_weighs_the_others_by_how_often_they_were_replayed() -> None:
    # a third plan, once, with 0.5: plans of 2, 2 and 1 runs are worth 0.5, 0 and 0.5
    more = runs(*replayed(), plan_and_solve(0.5, (0.5, 0.5), name="a/2", parent="a", branch=0))
    first, second, third = (
        0.5 - (2 * 0.0 + 1 * 0.5) / 3,
        0.0 - (2 * 0.5 + 1 * 0.5) / 3,
        0.5 - (2 * 0.5 + 2 * 0.0) / 4,
    )
    near(credit(more, "c3_reward_only")[::2], [first, first, second, second, third])


def test_c3_with_a_critic_that_says_the_reward_needs_no_reward() -> None:
    exact = runs(
        plan_and_solve(1.0, (0.5, 1.0), name="a"),
        plan_and_solve(0.0, (0.5, 0.0), name="a/0", parent="a", branch=1),
        plan_and_solve(0.0, (0.0, 0.0), name="a/1", parent="a", branch=0),
    )
    for name in ("c3_value_only", "c3_value_assisted"):
        near(credit(exact, name), credit(exact, "c3_reward_only"))


def test_c3_gives_nothing_to_what_had_no_alternative() -> None:
    first = (
        plan_and_solve(1.0, (0.5, 0.5), name="a"),
        plan_and_solve(0.0, (0.5, 0.5), name="a/0", parent="a", branch=0),
    )
    for name in ("c3_reward_only", "c3_value_only", "c3_value_assisted"):
        near(credit(runs(*first), name)[1::2], [0.0, 0.0])  # as its code has it: one alternative alone is worth 0


def test_c3_without_branches_pays_nobody() -> None:
    runs_ = runs(*(plan_and_solve(r, (0.5, 0.5)) for r in (1.0, 0.0)))
    for name in ("c3_reward_only", "c3_value_only", "c3_value_assisted"):
        near(credit(runs_, name), [NAN] * 4)
