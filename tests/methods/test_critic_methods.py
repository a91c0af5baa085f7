"""Methods that compare with what a critic expected: numbers worked by hand, and what each reduces to."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from handmade import credit, near, on, run, runs

from podium.credit import BadCredit
from podium.trace.columns import Trace


def scaled(values: list[float], eps: float) -> Any:
    """Less the mean, over the deviation of all of them."""
    v = np.array(values)
    return (v - v.mean()) / (sqrt(((v - v.mean()) ** 2).mean()) + eps)


def pair(joint: tuple[float, float], ann: tuple[float, float], bob: tuple[float, float]) -> Trace:
    """ann and bob act at once, twice, and earn 0 and then 1 together."""
    fields = [
        {"step": r, "value_joint": joint[i], "value_local": own[i]}
        for i, r in enumerate((0.0, 1.0))
        for own in (ann, bob)
    ]
    return runs(
        run(
            on("say ann", t=0, **fields[0]),
            on("say bob", t=0, after=[], **fields[1]),
            on("say ann", t=1, after=[1], **fields[2]),
            on("say bob", t=1, after=[0], **fields[3]),
        )
    )


TEAM = pair((0.5, 0.6), (0.5, 0.6), (0.2, 0.3))
ALIKE = pair((0.5, 0.6), (0.5, 0.6), (0.5, 0.6))


def test_collm_cc_is_one_step_ahead_of_the_joint_value() -> None:
    # 0 + 0.9 · 0.6 - 0.5 and 1 + 0 - 0.6, for both
    near(credit(TEAM, "collm_cc"), [0.04, 0.04, 0.4, 0.4])


def test_collm_dc_is_one_step_ahead_of_each_own_value() -> None:
    # ann as above; bob 0.9 · 0.3 - 0.2 and 1 - 0.3
    near(credit(TEAM, "collm_dc"), [0.04, 0.07, 0.4, 0.7])


@pytest.mark.parametrize(("local", "joint"), [("collm_dc", "collm_cc"), ("ippo", "mappo")])
def test_where_everyone_knows_everything_both_critics_give_the_same(local: str, joint: str) -> None:
    near(credit(ALIKE, local), credit(ALIKE, joint))


def test_ippo_goes_along_each_agent_and_is_scaled_over_the_batch() -> None:
    # last: 1 - 0.6 = 0.4 and 1 - 0.3 = 0.7.   first: 0.99 · 0.6 - 0.5 + 0.9405 · 0.4 = 0.4702 and 0.297 - 0.2 + 0.9405 · 0.7 = 0.75535
    near(credit(TEAM, "ippo"), scaled([0.4702, 0.75535, 0.4, 0.7], 1e-5))
    # mean 0.5813875; -0.1111875, 0.1739625, -0.1813875, 0.1186125 from it; variance 0.0895963 / 4
    near(credit(TEAM, "ippo"), np.array([-0.1111875, 0.1739625, -0.1813875, 0.1186125]) / sqrt(0.02239898), 1e-4)


def test_mappo_takes_the_value_of_the_joint_state() -> None:
    # 0.4702 and 0.4 for both: mean 0.4351, deviation 0.0351
    near(credit(TEAM, "mappo"), np.array([1.0, 1.0, -1.0, -1.0]) * 0.0351 / (0.0351 + 1e-5))


def test_critics_that_are_not_there_are_asked_for_by_name() -> None:
    with pytest.raises(BadCredit, match="value_joint"):
        credit(runs(run(on("say ann", step=1.0))), "mappo")


# MARFT: on from ann to bob to ann
# 1 - 0.7 = 0.3;   0.99 · 0.7 - 0.4 + 0.9405 · 0.3 = 0.57515;   0.99 · 0.4 - 0.5 + 0.9405 · 0.57515 = 0.436928575
CHAIN = [0.436928575, 0.57515, 0.3]


def test_marft_goes_through_the_chain_of_agents() -> None:
    steps = zip(("ann", "bob", "ann"), (0.0, 0.0, 1.0), (0.5, 0.4, 0.7), strict=True)
    trace = runs(run(*(on(f"say {who}", step=r, value=v) for who, r, v in steps)))
    near(credit(trace, "marft_action"), scaled(CHAIN, 1e-8))


def test_marft_goes_from_token_to_token_and_on_to_the_next_agent() -> None:
    trace = runs(
        run(on("say ann", step=0.0, tokens=2, values=[0.5, 0.4]), on("say bob", step=1.0, tokens=1, values=[0.7]))
    )
    near(credit(trace, "marft_token"), scaled(CHAIN, 1e-8))


def test_marft_with_one_token_a_turn_is_the_same_at_both_levels() -> None:
    steps = [("ann", 0.5, 0.9), ("bob", -0.25, 0.4), ("ann", 1.0, 0.7), ("eve", 0.0, 0.2)]
    trace = runs(run(*(on(f"say {who}", step=r, value=v, values=[v], tokens=1) for who, r, v in steps)))
    near(credit(trace, "marft_token"), credit(trace, "marft_action"))


def test_marft_with_one_agent_is_ippo() -> None:
    turns = [on("say ann", step=r, value=v, value_local=v) for r, v in ((0.0, 0.5), (0.25, 0.2), (1.0, 0.6))]
    trace = runs(run(turns[0], on("result ann", step=0.0, value=0.3, value_local=0.3), turns[1]), run(turns[2]))
    near(credit(trace, "marft_action"), credit(trace, "ippo"), 1e-4)  # they differ in eps


# MAPoRL


def debate(*rounds: tuple[tuple[float, float], tuple[float, float]]) -> Trace:
    """In each round ann and bob answer; what a verifier said of each, and what a critic expected."""
    events = []
    for stage, ((ann, v_ann), (bob, v_bob)) in enumerate(rounds):
        before = 2 * stage - 1
        events += [
            on("say ann", t=stage, stage=stage, verifier=ann, value=v_ann, after=[before] if stage else []),
            on("say bob", t=stage, stage=stage, verifier=bob, value=v_bob, after=[before - 1] if stage else []),
        ]
    return runs(run(*events))


def test_maporl_counts_what_everyone_says_later() -> None:
    # round 1: (0.2 + 0.3 · 0.7) / 1.3 - 0.3 = 0.2 / 13 and (0.4 + 0.21) / 1.3 - 0.3 = 2.2 / 13;   round 2: 0.8 - 0.5 and 0.6 - 0.5
    trace = debate(((0.2, 0.3), (0.4, 0.3)), ((0.8, 0.5), (0.6, 0.5)))
    v = np.array(
        [0.2 / 13, 2.2 / 13, 3.9 / 13, 1.3 / 13]
    )  # mean 1.9 / 13, variance (1.7² + 0.3² + 2² + 0.6²) / 13² / 3 = 7.34 / 507
    near(credit(trace, "maporl"), (v - 1.9 / 13) / sqrt(7.34 / 507 + 1e-8))


def test_maporl_of_one_round_is_the_score_less_what_was_expected() -> None:
    # 0.6 and 0.2: mean 0.4, deviation 0.2 · sqrt 2
    near(credit(debate(((0.9, 0.3), (0.4, 0.2))), "maporl"), [sqrt(0.5), -sqrt(0.5)], 1e-6)


# terminal rewards: 3 runs of 4 turns, paid at the end


VALUES = dict.fromkeys(("value", "value_joint", "value_local", "q"), 0.25)
OVER_STEPS = [
    "mappo", "ippo", "collm_cc", "collm_dc", "marft_action", "marshal", "gigpo", "gigpo_std", "mareinforce", "magrpo_cross", "maddpg"
]  # fmt: skip


def ends(where: str) -> Trace:
    """The reward of the last turn is stated by it alone, by every turn, or by the run."""
    parts = []
    for k, r in enumerate((1.0, 0.0, 0.5)):
        rewards = {"alone": {3: r}, "all": {0: 0.0, 1: 0.0, 2: 0.0, 3: r}, "run": {}}[where]
        events = [
            on(
                f"say {'ab'[i % 2]}",
                **VALUES,
                anchor=f"s{i}",
                content_ref=f"c{k}",
                **({"step": rewards[i], "agent": rewards[i]} if i in rewards else {}),
            )
            for i in range(4)
        ]
        parts.append(run(*events, **({"team": r} if where == "run" else {})))
    return runs(*parts)


@pytest.mark.parametrize("name", OVER_STEPS)
def test_a_step_that_a_world_does_not_pay_is_worth_0(name: str) -> None:
    paid = credit(ends("alone"), name)
    assert not np.isnan(paid).any()
    near(paid, credit(ends("all"), name))


@pytest.mark.parametrize("name", ["magrpo", "marloo", "maremax"])
def test_siblings_are_compared_on_terminal_rewards_too(name: str) -> None:
    paid = np.reshape(credit(ends("alone"), name), (3, 4))
    assert not np.isnan(paid[:, :2]).any()  # the first turns of a and b; the others had no alternative
    assert np.isnan(paid[:, 2:]).all()
    near(paid.ravel(), credit(ends("all"), name))


@pytest.mark.parametrize("name", ["marft_action", "marshal", "gigpo", "gigpo_std"])
def test_where_only_the_run_says_its_outcome_is_the_last_steps(name: str) -> None:
    near(credit(ends("run"), name), credit(ends("alone"), name))


def test_agents_that_share_a_reward_get_it_each_at_their_own_end() -> None:
    # a: 0.9 · 0.25 - 0.25, then r - 0.25; b the same
    near(np.reshape(credit(ends("run"), "collm_dc"), (3, 4))[0], [-0.025, -0.025, 0.75, 0.75])
    near(np.reshape(credit(ends("run"), "mareinforce"), (3, 4))[0], [0.9, 0.9, 1.0, 1.0])


@pytest.mark.parametrize("name", OVER_STEPS)
def test_a_run_without_any_reward_is_not_worth_0(name: str) -> None:
    silent = runs(*ends("alone"), run(*(on(f"say {w}", **VALUES, anchor="s0", content_ref="c9") for w in "abab")))
    assert np.isnan(credit(silent, name)[12:]).all()


def test_a_scorer_that_was_silent_did_not_say_0() -> None:
    for name in ("marti_margin", "marti_quality"):
        assert np.isnan(credit(ends("alone"), name)).sum() == 9
