"""Methods that compare a run with other runs of the same task: numbers worked by hand, and what each reduces to."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from handmade import NAN, credit, near, on, run, runs, weight

from podium.credit import BadCredit
from podium.trace.columns import Trace

EPS = 1e-6
SPREAD = sqrt(1 / 3)  # of 1, 0, 0: ((2/3)² + (1/3)² + (1/3)²) / 2 = 1/3


def answers(*told: tuple[float, int], task: str = "q", **more: float) -> list[Trace]:
    """Runs of one agent that writes one answer: what it earned and how many tokens it took."""
    return [run(on("say ann", tokens=n), task=task, team=r, **more) for r, n in told]


def three() -> Trace:
    """Rewards 1, 0, 0 with 2, 1 and 3 tokens."""
    return runs(*answers((1.0, 2), (0.0, 1), (0.0, 3)))


# GRPO


def test_grpo_is_the_z_score_of_a_run() -> None:
    up, down = (2 / 3) / (SPREAD + EPS), (-1 / 3) / (SPREAD + EPS)
    near(credit(three(), "grpo"), [up, up, down, down, down, down])
    near(weight(three(), "grpo"), [1 / 6, 1 / 6, 1 / 3, 1 / 9, 1 / 9, 1 / 9])  # every run a third


def test_grpo_compares_inside_a_task_and_gives_a_run_alone_its_reward() -> None:
    trace = runs(*answers((1.0, 1), (0.0, 1)), *answers((5.0, 1), task="p"))
    half = 0.5 / (sqrt(0.5) + EPS)
    near(credit(trace, "grpo"), [half, -half, 5.0])


def test_grpo_of_two_runs_is_the_sign_of_their_difference() -> None:
    for scale in (1.0, 10.0):
        trace = runs(*answers((scale, 1), (0.0, 1)))
        near(credit(trace, "grpo"), [sqrt(0.5), -sqrt(0.5)], 1e-5)


# Dr. GRPO, RLOO


def test_dr_grpo_is_the_distance_to_the_mean_over_a_constant_length() -> None:
    near(credit(three(), "dr_grpo"), [2 / 3, 2 / 3, -1 / 3, -1 / 3, -1 / 3, -1 / 3])
    near(weight(three(), "dr_grpo"), [1 / 3000] * 6)


def test_dr_grpo_is_grpo_without_the_deviation() -> None:
    near(credit(three(), "dr_grpo"), np.array(credit(three(), "grpo")) * (SPREAD + EPS))


def test_rloo_is_the_distance_to_the_mean_of_the_others() -> None:
    # (K R - Σ R) / (K - 1) = (3 - 1) / 2 and (0 - 1) / 2
    near(credit(three(), "rloo"), [1.0, 1.0, -0.5, -0.5, -0.5, -0.5])
    near(weight(three(), "rloo"), [1 / 3] * 6)  # tokens of a run sum, runs average
    near(credit(runs(*answers((0.3, 1))), "rloo"), [0.3])


def test_rloo_is_dr_grpo_times_k_over_k_minus_1() -> None:
    near(credit(three(), "rloo"), np.array(credit(three(), "dr_grpo")) * 3 / 2)


# REINFORCE++


def test_reinforce_pp_whitens_over_all_tokens() -> None:
    # tokens 1, 1, 0, 0, 0, 0: mean 1/3, variance (2 (2/3)² + 4 (1/3)²) / 5 = 4/15
    spread = sqrt(4 / 15 + 1e-8)
    near(credit(three(), "reinforce_pp"), [2 / 3 / spread] * 2 + [-1 / 3 / spread] * 4)
    near(weight(three(), "reinforce_pp"), [1 / 6] * 6)


def test_reinforce_pp_baseline_takes_the_mean_of_the_task_first() -> None:
    # 1/2, 1/2, -1/2, 1, -1: mean 0.1, variance (0.16 + 0.16 + 0.36 + 0.81 + 1.21) / 4 = 0.675
    trace = runs(*answers((1.0, 2), (0.0, 1)), *answers((3.0, 1), (1.0, 1), task="p"))
    near(credit(trace, "reinforce_pp_baseline"), np.array([0.4, 0.4, -0.6, 0.9, -1.1]) / sqrt(0.675 + 1e-8))


def test_with_one_task_the_baseline_changes_nothing() -> None:
    near(credit(three(), "reinforce_pp_baseline"), credit(three(), "reinforce_pp"))


# ReMax


def test_remax_beats_the_greedy_run() -> None:
    trace = runs(*answers((1.0, 2), (0.0, 1), greedy=0.25))
    near(credit(trace, "remax"), [0.75, 0.75, -0.25])


def test_remax_says_what_it_needs() -> None:
    with pytest.raises(BadCredit, match="greedy"):
        credit(three(), "remax")


def test_remax_is_dr_grpo_where_the_greedy_run_earns_the_mean() -> None:
    trace = runs(*answers((1.0, 2), (0.0, 1), (0.0, 3), greedy=1 / 3))
    near(credit(trace, "remax"), credit(trace, "dr_grpo"))


# DAPO


def lengthy(*told: tuple[float, float], task: str) -> list[Trace]:
    return [run(on("say ann", tokens=1, tokens_out=n), task=task, team=r) for r, n in told]


def test_dapo_fines_length_and_drops_what_all_solve() -> None:
    # 18,432 tokens are half way from 16,384 to 20,480: q earns 1, 1 - 0.5, 0; mean 0.5, deviation 0.5; all of p solve it
    trace = runs(
        *lengthy((1.0, 100), (1.0, 18432), (0.0, 100), task="q"), *lengthy((1.0, 100), (1.0, 18432), task="p")
    )
    z = 0.5 / (0.5 + EPS)
    near(credit(trace, "dapo"), [z, 0.0, -z, NAN, NAN])
    near(weight(trace, "dapo"), [1 / 3, 1 / 3, 1 / 3, NAN, NAN])


def test_dapo_of_short_runs_that_differ_is_grpo() -> None:
    near(credit(three(), "dapo"), credit(three(), "grpo"))


# GSPO, Pass@k, OPO


def test_gspo_gives_the_credit_of_grpo() -> None:
    up, down = (2 / 3) / (SPREAD + EPS), (-1 / 3) / (SPREAD + EPS)
    near(credit(three(), "gspo"), [up, up, down, down, down, down])
    near(credit(three(), "gspo"), credit(three(), "grpo"))


def test_pass_at_k_pays_only_the_best_by_what_it_beat_the_second() -> None:
    near(credit(runs(*answers((0.25, 1), (1.0, 2), (0.0, 1))), "pass_at_k"), [0.0, 0.75, 0.75, 0.0])
    near(credit(runs(*answers((1.0, 1), (1.0, 1), (0.0, 1))), "pass_at_k"), [0.0, 0.0, 0.0])
    near(credit(runs(*answers((1.0, 1))), "pass_at_k"), [NAN])


def test_pass_at_k_of_two_is_leave_one_out_without_its_loss() -> None:
    trace = runs(*answers((0.25, 1), (1.0, 1)))
    near(credit(trace, "pass_at_k"), np.maximum(credit(trace, "rloo"), 0.0))


def test_opo_weighs_its_baseline_by_length() -> None:
    # (2·1 + 1·0.5 + 3·0) / 6 = 5/12
    trace = runs(*answers((1.0, 2), (0.5, 1), (0.0, 3)))
    near(credit(trace, "opo"), [7 / 12, 7 / 12, 1 / 12, -5 / 12, -5 / 12, -5 / 12])


def test_opo_of_equal_lengths_is_dr_grpo() -> None:
    trace = runs(*answers((1.0, 2), (0.5, 2), (0.0, 2)))
    near(credit(trace, "opo"), credit(trace, "dr_grpo"))


# GiGPO


def walk(second: str, last: float) -> Trace:
    """Two turns: from state s to another, with a reward at the end."""
    return run(on("say ann", anchor="s", step=0.0), on("result ann", anchor=second), on("say ann", step=last))


def test_gigpo_adds_the_run_and_the_state() -> None:
    # runs: 1, 0 -> ±1/2.   from s: returns 0.95, 0 -> ±0.475.   states m and x were seen once: 0
    trace = runs(walk("m", 1.0), walk("x", 0.0))
    near(credit(trace, "gigpo"), [0.975, 0.5, -0.975, -0.5])
    run_, state = 0.5 / (sqrt(0.5) + EPS), 0.475 / (0.95 * sqrt(0.5) + EPS)
    near(credit(trace, "gigpo_std"), [run_ + state, run_, -run_ - state, -run_])


def test_gigpo_compares_states_inside_a_task_only() -> None:
    # both meet m, with 1 and 0 to come: ±1/2 more
    near(credit(runs(walk("m", 1.0), walk("m", 0.0)), "gigpo"), [0.975, 1.0, -0.975, -1.0])


def test_gigpo_where_no_state_is_met_twice_is_the_distance_to_the_mean() -> None:
    trace = runs(*(run(on("say ann", anchor=a, step=r), team=r) for a, r in (("x", 1.0), ("y", 0.0), ("z", 0.0))))
    near(credit(trace, "gigpo"), [2 / 3, -1 / 3, -1 / 3])


# Dr. MAS


def test_dr_mas_normalises_each_agent_by_its_own_invocations() -> None:
    # ann: 1, 1 - 0.1 (an invalid turn), 0 -> mean 19/30, deviations 11/30, 8/30, -19/30, variance (121 + 64 + 361) / 900 / 2
    # bob: 1, 0.   eve acts once in all: her reward as it is
    trace = runs(
        run("say ann", "say bob", on("say ann", valid=0), "say eve", team=1.0), run("say ann", "say bob", team=0.0)
    )
    ann, bob = sqrt(546 / 1800) + EPS, sqrt(0.5) + EPS
    want = [11 / 30 / ann, 0.5 / bob, 8 / 30 / ann, 1.0, -19 / 30 / ann, -0.5 / bob]
    near(credit(trace, "dr_mas"), want)


def test_dr_mas_with_one_agent_is_grpo() -> None:
    near(credit(three(), "dr_mas"), [credit(three(), "grpo")[k] for k in (0, 2, 3)])


# all of them


def test_tokens_that_were_given_to_the_policy_get_nothing_and_count_for_nothing() -> None:
    trace = runs(run(on("say ann", tokens=3, mask=[1, 0, 1]), team=1.0), *answers((0.0, 1), (0.0, 3)))
    for name in ("grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "dapo", "pass_at_k"):
        value, counts = credit(three(), name), weight(three(), name)
        near(credit(trace, name), [value[0], NAN, *value[1:]])
        near(weight(trace, name), [counts[0], NAN, *counts[1:]])


GROUPED = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "gspo", "opo", "pass_at_k", "dr_mas")


@pytest.mark.parametrize("name", GROUPED)
def test_a_run_that_was_not_scored_gets_nothing_and_changes_nothing(name: str) -> None:
    alone, more = credit(three(), name), credit(runs(*three(), *answers((NAN, 2))), name)
    near(more, alone + [NAN] * (len(more) - len(alone)))
    assert len(more) > len(alone)
