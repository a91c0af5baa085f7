"""Steps that came with methods: threads through a tree, credit on tokens, groups that teach nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from handmade import NAN, near, on, run, runs

from podium.credit import BadCredit, Credit, apply
from podium.credit.threads import backed_up
from podium.graph import units
from podium.rewards import score
from podium.trace.columns import Text, Trace, concat


def paid(trace: Trace, expression: str, unit: str = "turn", reward: str = "step") -> list[float]:
    values: list[float] = apply(Credit(trace, unit, score(trace, reward, unit)), expression).value.tolist()
    return values


def chain(*rewards: float, **more: object) -> Trace:
    """ann and bob in turn."""
    return run(*(on(f"say {'ab'[i % 2]}", step=r) for i, r in enumerate(rewards)), **more)  # type: ignore[arg-type]


# threads


def test_an_agents_own_return_passes_over_what_others_do() -> None:
    # a: 1, 4, 16 and b: 2, 8, each discounted along its own turns
    near(paid(runs(chain(1, 2, 4, 8, 16)), "own_backup(0.5)"), [1 + 2 + 4, 2 + 4, 4 + 8, 8, 16])


def test_on_a_chain_it_is_the_reward_to_go_along_an_agent() -> None:
    dice = np.random.default_rng(3)
    trace = runs(*(chain(*dice.normal(size=dice.integers(1, 30))) for _ in range(20)))
    near(paid(trace, "own_backup(0.9)"), paid(trace, "togo('agent', 0.9)"))


def test_backing_up_is_the_recursion() -> None:
    dice = np.random.default_rng(4)
    above = np.array(
        [-1 if i == 0 or dice.random() < 0.2 else int(dice.integers(max(i - 3, 0), i)) for i in range(60)]
    )
    reward = dice.normal(size=60)
    want = reward.copy()
    for i in range(59, -1, -1):  # those below come later
        below = np.flatnonzero(above == i)
        want[i] += 0.9 * want[below].mean() if len(below) else 0.0
    near(backed_up(reward, above, 0.9), want)
    near(backed_up(np.array([1.0, NAN]), np.array([-1, 0]), 0.0), [1.0, NAN])


def test_once_counts_a_node_once() -> None:
    # the first turn of a is that of a/0 too: 1 and 0, not 1, 1 and 0
    trace = runs(chain(1, 5, name="a"), chain(1, 3, name="a/0", parent="a", branch=1), chain(0, 3, name="b"))
    near(paid(trace, "once(center(by=('task', 'agent')))")[::2], [0.5, 0.5, -0.5])
    near(paid(trace, "center(by=('task', 'agent'))")[::2], [1 / 3, 1 / 3, -2 / 3])


def test_once_changes_nothing_without_branches() -> None:
    trace = runs(chain(1, 2, 3), chain(4, 5), chain(0))
    near(paid(trace, "once(center(by=('task', 'agent')))"), paid(trace, "center(by=('task', 'agent'))"))


def test_once_stays_at_its_unit_and_takes_a_step() -> None:
    with pytest.raises(BadCredit, match="stay at unit turn"):
        paid(runs(chain(1, 2)), "once(to('team', 'sum'))")
    with pytest.raises(BadCredit, match="takes a step"):
        paid(runs(chain(1, 2)), "once(3)")


def test_the_first_turns_of_runs_of_a_task_share_a_parent() -> None:
    trace = runs(chain(1, 0, task="q"), chain(0, 0, task="q"), chain(7, 0, task="p"))
    near(paid(trace, "center(by=('parent', 'agent'))"), [0.5, 0, -0.5, 0, NAN, NAN])


def test_later_turns_share_a_parent_only_where_a_run_branched() -> None:
    trace = runs(
        chain(0, 0, 1, name="a"), chain(0, 0, 3, name="a/0", parent="a", branch=2), chain(0, 0, 9, name="b")
    )
    near(paid(trace, "once(center(by=('parent', 'agent')))")[2::3], [-1, 1, NAN])


# tokens


def written() -> Trace:
    return runs(
        run(
            on("say a", step=1.0, tokens=2, v=[0.5, 0.25]),
            on("say b", step=2.0, tokens=3, mask=[1, 1, 0], v=[1.0, 0.5, 9.0]),
        )
    )


def test_credit_comes_with_the_last_token_that_was_sampled() -> None:
    near(paid(written(), "last_token"), [0.0, 1.0, 0.0, 2.0, NAN])
    near(paid(written(), "to('token') >> sampled"), [1.0, 1.0, 2.0, 2.0, NAN])


def test_credit_is_never_lost_for_want_of_a_token() -> None:
    with pytest.raises(BadCredit, match="1 of the turn units"):
        paid(runs(run(on("say a", step=1.0), on("say b", step=0.0))), "last_token")
    with pytest.raises(BadCredit, match="about tokens"):
        paid(written(), "sampled")


def test_token_gae_goes_on_from_agent_to_agent() -> None:
    # with γ = λ = 1/2, backwards: 2 - 0.5 = 1.5;  0.25 - 1 + 1.5/4 = -0.375;  1 + 0.5 - 0.25 - 0.375/4 = 1.15625;  0.125 - 0.5 + 1.15625/4
    near(paid(written(), "last_token >> token_gae('v', 0.5, 0.5)"), [-0.0859375, 1.15625, -0.375, 1.5, NAN])


def test_token_gae_to_the_end_is_the_return_less_the_value() -> None:
    near(paid(written(), "last_token >> token_gae('v')"), [3 - 0.5, 3 - 0.25, 2 - 1.0, 2 - 0.5, NAN])


def test_token_gae_ends_with_the_run() -> None:
    twice = runs(*written(), *written())
    near(
        paid(twice, "last_token >> token_gae('v', 0.9, 0.8)"),
        2 * paid(written(), "last_token >> token_gae('v', 0.9, 0.8)"),
    )


def test_values_of_tokens_are_checked() -> None:
    with pytest.raises(BadCredit, match="needs the label 'w'"):
        paid(written(), "last_token >> token_gae('w')")
    with pytest.raises(BadCredit, match="2 tokens, 1 values"):
        paid(runs(run(on("say a", step=1.0, tokens=2, v=[0.5]))), "last_token >> token_gae('v')")
    with pytest.raises(BadCredit, match="list of numbers"):
        paid(runs(run(on("say a", step=1.0, tokens=1, v="much"))), "last_token >> token_gae('v')")
    with pytest.raises(BadCredit, match="pays tokens"):
        paid(written(), "token_gae('v')")
    silent = runs(run(on("say a", step=1.0, tokens=1, v=[0.5])), run(on("say a", step=1.0, tokens=1)))
    near(paid(silent, "last_token >> token_gae('v')"), [0.5, NAN])


# filters


def test_groups_that_all_solve_or_all_miss_are_dropped() -> None:
    told = [("q", 1.0), ("q", 0.0), ("p", 0.1), ("p", 0.1), ("p", 0.1), ("r", 1.0), ("s", NAN), ("s", 1.0)]
    trace = runs(*(run("say a", task=task, team=r) for task, r in told))
    near(paid(trace, "drop_even('outcome')", "team", "outcome"), [1.0, 0.0, *[NAN] * 6])


def test_what_is_dropped_goes_by_another_reward_than_what_is_paid() -> None:
    trace = runs(*(run("say a", team=1.0, style=r) for r in (0.2, 0.4)))
    near(paid(trace, "drop_even('outcome')", "team", "outcome('style')"), [NAN, NAN])
    near(paid(trace, "drop_even(\"outcome('style')\")", "team", "outcome('style')"), [0.2, 0.4])


# laws


EXPRESSIONS = (
    "own_backup(0.9)",
    "once(center(by=('parent', 'agent')))",
    "last_token >> token_gae('v', 0.9, 0.8)",
    "to('token') >> sampled",
    "drop_even('outcome')",
)


def forest(dice: np.random.Generator, batch: int) -> Trace:
    def events(n: int) -> list[tuple[str, dict[str, object]]]:
        return [
            on(f"say {'abc'[i % 3]}", step=float(dice.normal()), tokens=2, v=dice.random(2).tolist())
            for i in range(n)
        ]

    stem = events(6)
    more = {"batch": batch, "task": f"q{dice.integers(2)}"}
    return runs(
        run(*stem, name="a", team=float(dice.integers(2)), **more),  # type: ignore[arg-type]
        run(*stem[:3], *events(3), name="a/0", parent="a", branch=3, team=float(dice.integers(2)), **more),  # type: ignore[arg-type]
        run(*events(4), name="b", team=float(dice.integers(2)), **more),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_batch_is_a_longer_trace(expression: str) -> None:
    a, b = (forest(np.random.default_rng(seed), seed) for seed in (0, 1))
    near(paid(concat([a, b]), expression), paid(a, expression) + paid(b, expression))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_names_do_not_matter(expression: str) -> None:
    trace = forest(np.random.default_rng(2), 0)
    other = replace(trace, name_a=Text.of({"a": "z", "b": "y", "c": "x"}[n or ""] for n in trace.name_a.strings()))
    near(paid(other, expression), paid(trace, expression))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_no_score_no_credit(expression: str) -> None:
    trace = forest(np.random.default_rng(5), 0)
    value = score(trace, "step", "turn")
    value[2] = NAN
    made = apply(Credit(trace, "turn", value), expression)
    inside = units.within(trace, made.unit, "turn") == 2
    last = np.flatnonzero(inside)[-1]  # the token that would bring the reward
    assert np.isnan(made.value[last])
