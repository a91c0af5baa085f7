"""What a unit had to beat: numbers by hand, what each baseline is in a simpler case, and those who are alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, near, on, paid, run, runs

from podium.credit import BadCredit, Credit, apply
from podium.graph import units
from podium.trace.columns import Trace

STEPS = ("center()", "zscore()", "leave_one_out()", "below_best()", "best_only()")


def scored(*rewards: float, task: str = "q", **more: float) -> Trace:
    return runs(*(run(on("say a", tokens=i + 1), task=task, team=r, **more) for i, r in enumerate(rewards)))


def two_tasks() -> Trace:
    """1, 0, 0.5 for one, 4 and 2 for another, and one run alone with its task."""
    return runs(
        *(
            run("say a", task=q, team=r)
            for q, r in (("q", 1.0), ("p", 4.0), ("q", 0.0), ("q", 0.5), ("p", 2.0), ("x", 7.0))
        )
    )


def test_the_mean_of_its_group() -> None:
    near(paid(two_tasks(), "center()"), [0.5, 1, -0.5, 0, -1, NAN])


def test_in_deviations_of_its_group() -> None:
    # q: mean 0.5, deviation sqrt((0.25 + 0.25 + 0) / 2) = 0.5;  p: mean 3, sqrt((1 + 1) / 1) = sqrt 2
    near(paid(two_tasks(), "zscore(eps=0.0)"), [1, 0.5**0.5, -1, 0, -(0.5**0.5), NAN])
    near(paid(two_tasks(), "zscore(eps=0.5)")[0], 0.5 / (0.5 + 0.5))
    # over n: sqrt(0.5 / 3)
    near(paid(two_tasks(), "zscore(ddof=0, eps=0.0)")[0], 0.5 / (0.5 / 3) ** 0.5)


def test_the_others_of_its_group() -> None:
    # 1 - (0 + 0.5) / 2,  0 - (1 + 0.5) / 2,  0.5 - 1 / 2
    near(paid(two_tasks(), "leave_one_out()"), [0.75, 2, -0.75, 0, -2, NAN])


def test_leaving_one_out_is_the_mean_times_n_over_n_less_1() -> None:
    trace = scored(*np.random.default_rng(0).random(7))
    near(paid(trace, "leave_one_out()"), 7 / 6 * paid(trace, "center()"))


def test_others_count_by_their_weight() -> None:
    trace = runs(*(run(on("say a", step=v, w=w)) for v, w in ((1.0, 1.0), (0.0, 3.0), (0.5, 2.0), (9.0, 0.0))))
    # S = 1 + 0 + 1 = 2, W = 6: 1 - 1 / 5, 0 - 2 / 3, 0.5 - 1 / 4; who weighs nothing is not compared
    near(paid(trace, "leave_one_out(weight='w')", "turn", "step"), [0.8, -2 / 3, 0.25, NAN])


def test_the_best_and_what_it_beat() -> None:
    near(paid(two_tasks(), "below_best()"), [0, 0, -1, -0.5, -2, NAN])
    near(paid(two_tasks(), "best_only()"), [0.5, 2, 0, 0, 0, NAN])
    near(paid(two_tasks(), "best_only(std=True)")[:2], [0.5 / (0.5 + 1e-6), 2 / (2**0.5 + 1e-6)])


def test_two_that_are_best_beat_nobody() -> None:
    near(paid(scored(1, 1, 0), "best_only()"), [0, 0, 0])
    near(paid(scored(1, 1, 0), "below_best()"), [0, 0, -1])


def test_long_answers_weigh_more() -> None:
    # tokens 1, 2, 3: (1 + 0 + 3 * 0.5) / 6
    near(paid(scored(1, 0, 0.5), "length_weighted()"), np.array([1, 0, 0.5]) - 2.5 / 6)
    alike = runs(*(run(on("say a", tokens=4), team=r) for r in (1.0, 0.25)))
    near(paid(alike, "length_weighted()"), paid(alike, "center()"))
    said = runs(*(run("say a", team=r, size=s) for r, s in ((1.0, 3.0), (0.0, 1.0))))
    near(paid(said, "length_weighted(size='size')"), [0.25, -0.75])


def test_another_reward_makes_the_baseline() -> None:
    trace = runs(*(run("say a", team=r, other=x) for r, x in ((1.0, 3.0), (0.0, 1.0))))
    # mean 2, deviation sqrt 2 of the other
    near(paid(trace, "zscore_against('outcome(\"other\")', eps=0.0)"), [-(0.5**0.5), -2 / 2**0.5])
    near(paid(trace, "zscore_against('outcome')"), paid(trace, "zscore()"))


def test_a_column_as_the_baseline() -> None:
    near(
        paid(runs(run("say a", team=1.0, greedy=0.25), run("say a", team=0.0, greedy=NAN)), "minus('greedy')"),
        [0.75, NAN],
    )
    with pytest.raises(BadCredit, match="needs the column 'nowhere'"):
        paid(two_tasks(), "minus('nowhere')")


def talk(*rewards: float, times: tuple[float, ...] | None = None) -> Trace:
    """ann and bob in turn."""
    when = times or tuple(map(float, range(len(rewards))))
    return runs(run(*(on(f"say {'ab'[i % 2]}", step=r, t=when[i]) for i, r in enumerate(rewards))))


def test_the_parent_is_what_came_before() -> None:
    near(paid(talk(1, 4, 2), "minus_parent()", "turn", "step"), [1, 3, -2])
    near(paid(talk(1, 4, 2), "minus_parent(0.5)", "turn", "step"), [1, 3.5, 0])
    # two at once are both the parent: their mean, 2.5
    near(paid(talk(1, 4, 2, times=(0.0, 0.0, 1.0)), "minus_parent()", "turn", "step"), [1, 4, -0.5])


def test_history_is_the_mean_of_what_the_agent_did_before() -> None:
    # a: 1, 2, 6 and b: 4: 1 (none), 4 (none), 2 - 1, and 6 - 1.5
    trace = runs(
        run(*(on(f"say {w}", step=r) for w, r in (("a", 1.0), ("b", 4.0), ("a", 2.0), ("b", 0.0), ("a", 6.0))))
    )
    near(paid(trace, "minus_history()", "turn", "step"), [1, 4, 1, -4, 4.5])
    near(paid(trace, "minus_history(first='nan')", "turn", "step"), [NAN, NAN, 1, -4, 4.5])
    near(paid(trace, "minus_history(by='rollout', first='zero')", "turn", "step"), [0, 3, -0.5, -7 / 3, 4.25])


def test_history_skips_what_is_not_known_and_stays_in_its_chain() -> None:
    trace = runs(*(run(*(on("say a", step=r) for r in rewards)) for rewards in ((NAN, 2.0), (1.0, 3.0))))
    assert len(paid(trace, "minus_history()", "turn", "step")) == 2  # one turn each: nobody else spoke
    one = runs(
        *(
            run(*(on(f"say {w}", step=r) for w, r in rows))
            for rows in (
                [("a", NAN), ("b", 0.0), ("a", 2.0), ("b", 0.0), ("a", 5.0)],
                [("a", 1.0), ("b", 0.0), ("a", 4.0)],
            )
        )
    )
    near(paid(one, "minus_history()", "turn", "step"), [NAN, 0, 2, 0, 3, 1, 0, 3])


@pytest.mark.parametrize("step", STEPS)
def test_who_is_alone_is_told(step: str) -> None:
    alone = scored(0.7)
    near(paid(alone, step), [NAN])
    near(paid(alone, step.replace(")", "alone='zero')")), [0])
    near(paid(alone, step.replace(")", "alone='raw')")), [0.7])
    with pytest.raises(BadCredit, match="nan, zero or raw"):
        paid(alone, step.replace(")", "alone='one')"))


@pytest.mark.parametrize("step", [*STEPS, "length_weighted()", "minus_parent()", "minus_history()"])
def test_nothing_in_nothing_out(step: str) -> None:
    trace = scored(1, NAN, 0)
    made = paid(trace, step)
    assert np.isnan(made[1])
    np.testing.assert_allclose(made[[0, 2]], paid(trace[[0, 2]], step))
    assert len(paid(trace[:0], step)) == 0
    assert np.isnan(paid(scored(NAN, NAN), step)).all()


def test_runs_of_other_batches_are_not_compared() -> None:
    trace = replace(scored(1, 0, 5, 3), batch_n=np.array([0, 0, 1, 1]))
    near(paid(trace, "center()"), [0.5, -0.5, 1, -1])


def test_the_input_stays_as_it_is() -> None:
    value = np.array([1.0, 0.0, NAN])
    credit = Credit(scored(1, 0, NAN), "team", value)
    for step in STEPS:
        apply(credit, step)
    near(value, [1, 0, NAN])


def test_a_run_that_was_not_scored_or_does_not_say_its_length_weighs_nothing() -> None:
    # 3 tokens of 1.0 and 1 of 0.0: mean 0.75; the others, of 100 tokens and of none that is known, are no part of it
    lengths = ((3, 1.0), (1, 0.0), (100, NAN), (NAN, 5.0))
    trace = runs(*(run(on("say a", tokens_out=n), team=r) for n, r in lengths))
    near(paid(trace, "length_weighted()"), [0.25, -0.75, NAN, NAN])
    near(paid(trace[1:3], "length_weighted()"), [NAN, NAN])  # the only one that was scored is alone
    near(paid(trace[1:4], "length_weighted(alone='zero')"), [0, NAN, 0])


def test_what_happens_at_the_same_moment_is_no_history() -> None:
    # a at 0; b and a at 1, whose history is the 1 alone; b at 2, whose history is the mean of all three
    trace = talk(1, 4, 2, 9, times=(0.0, 1.0, 1.0, 2.0))
    assert len(units.rows(trace, "turn")) == 4
    near(paid(trace, "minus_history(by='rollout')", "turn", "step"), [1, 3, 1, 9 - 7 / 3])
