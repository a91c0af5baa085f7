"""Splitting a reward: every part once, and all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, masks, near, on, paid, run, runs

from bench.shapley import partition_error, random_traces
from podium.credit import BadCredit
from podium.credit.partition import Claim, claims_of, partition
from podium.graph import units
from podium.rewards import ledger
from podium.trace.columns import Trace, concat


def team(batch: int = -1) -> Trace:
    """a calls a tool and says something, b says something."""
    return runs(run(on("call a", tool="look"), "say a", "say b", team=1.0, batch=batch))


def test_claims_inside_claims_by_hand() -> None:
    trace = team()
    claims = [
        Claim("agents", "agent", np.array([0.5, 0.25]), inclusive=True),
        Claim("tools", "tool_call", np.array([0.125])),
        Claim("words", "message", np.array([0.5, 0.0625])),
    ]
    split = partition(trace, np.array([1.0]), claims)
    got = {p.channel: p.paid.tolist() for p in split.parts}
    # a claims .5 with all it did: its call has .125 and its message .5 of that, it keeps -.125; b .25 - .0625. The team keeps 1 - .75
    assert got == {"agents": [-0.125, 0.1875], "words": [0.5, 0.0625], "tools": [0.125], "rest": [0.25]}
    near(split.gap(), [0.0])


def test_claims_that_add() -> None:
    split = partition(
        team(),
        np.array([1.0]),
        [Claim("agents", "agent", np.array([0.5, 0.25])), Claim("tools", "tool_call", np.array([0.5]))],
    )
    assert [p.paid.tolist() for p in split.parts] == [[0.5, 0.25], [0.5], [-0.25]]


def test_a_chain_of_inclusive_claims_keeps_each_link_once() -> None:
    claims = [
        Claim("team", "team", np.array([0.75]), inclusive=True),
        Claim("agents", "agent", np.array([0.5, NAN]), inclusive=True),
        Claim("words", "message", np.array([0.25, 0.125]), inclusive=True),
    ]
    split = partition(team(), np.array([1.0]), claims)
    # b claims nothing, so its message comes out of the team: .75 - .5 - .125
    assert [p.paid.tolist() for p in split.parts] == [[0.125], [0.25, 0.0], [0.25, 0.125], [0.25]]


def test_moved_to_one_unit_it_is_still_all_there() -> None:
    claims = [Claim("tools", "tool_call", np.array([0.5])), Claim("words", "message", np.array([0.25, 0.125]))]
    split = partition(team(), np.array([1.0]), claims)
    # a: .5 + .25 and half of the rest .125; b: .125 and the other half
    near(split.at("agent"), [0.8125, 0.1875])
    near(split.at("team"), [1.0])
    with pytest.raises(BadCredit, match="would be lost"):
        split.at("tool_call")


def test_one_part_that_would_be_lost_is_enough_to_refuse() -> None:
    two = runs(run("call a", "say b", team=1.0), run("say b", team=1.0))
    split = partition(two, np.array([1.0, 1.0]), [])
    with pytest.raises(BadCredit, match=r"rest pays 1 of its units .team. that have no tool_call"):
        split.at("tool_call")  # the second run has none


def test_ten_thousand_random_traces_close() -> None:
    assert partition_error(10_000) <= 1e-9


def test_a_broken_split_is_noticed() -> None:
    trace = random_traces(50)
    whole = trace.reward_n["team"]
    split = partition(trace, whole, [Claim("agents", "agent", np.ones(trace.n_agents))])
    broken = replace(split, parts=split.parts[:-1])
    assert np.abs(broken.gap()).max() > 0.1
    assert np.abs(split.gap()).max() < 1e-12


def test_the_ledger_of_a_reward_leaves_no_rest() -> None:
    trace = runs(run(on("say a", step=0.5), on("say b", step=0.25), team=1.0), run(on("say a", step=1.0), team=0.0))
    book = ledger(trace, "outcome + 0.5 * step")
    split = partition(trace, book.total(), claims_of(book))
    near(split.parts[-1].paid, [0.0, 0.0])
    near(split.total(), book.total())


def test_what_has_no_whole_has_no_parts_and_what_claims_nothing_gets_nothing() -> None:
    both = concat([team(0), team(1)])
    split = partition(both, np.array([NAN, 1.0]), [Claim("agents", "agent", np.array([0.5, 0.5, NAN, 0.5]))])
    near(split.parts[0].paid, [NAN, NAN, 0.0, 0.5])
    near(split.parts[1].paid, [NAN, 0.5])


def test_claims_must_fit() -> None:
    with pytest.raises(BadCredit, match="one number for each agent"):
        partition(team(), np.array([1.0]), [Claim("agents", "agent", np.zeros(5))])


# the step


def test_difference_rewards_that_add_up() -> None:
    trace = runs(
        run("say a", "say b", team=1.0), masks("a", there="b", reward=0.25), masks("b", there="a", reward=0.75)
    )
    near(paid(trace, "masked()")[:2], [0.75, 0.25])
    lone = runs(
        run("say a", "say b", team=1.0), masks("a", there="b", reward=0.0), masks("b", there="a", reward=0.5)
    )
    # 1 and .5 are .5 too much: each gives .25
    near(paid(lone, "closed(masked())")[:2], [0.75, 0.25])


def test_who_is_given_nothing_gets_no_share() -> None:
    trace = runs(run("say a", "say b", "say c", team=1.0), masks("a", there="bc", reward=0.5))
    near(paid(trace, "closed(masked())"), [1.0, NAN, NAN, NAN, NAN])


def test_by_tokens() -> None:
    trace = runs(run(on("say a", tokens=3), on("say b", tokens=1), team=1.0))
    near(paid(trace, 'closed(0.0 * to("agent"), by="tokens")'), [0.75, 0.25])
    near(paid(trace, 'closed(0.0 * to("agent"))'), [0.5, 0.5])


def test_where_those_who_are_given_something_wrote_nothing_they_share_evenly() -> None:
    """c wrote all the tokens, and nobody knows what the team is without it."""
    trace = runs(
        run("say a", "say b", on("say c", tokens=3), team=1.0),
        masks("a", there="bc", reward=0.5),
        masks("b", there="ac", reward=0.75),
    )
    # .5 and .25 leave .25 of 1
    near(paid(trace, 'closed(masked(), by="tokens")')[:3], [0.625, 0.375, NAN])


@pytest.mark.parametrize("seed", range(4))
def test_claims_by_dice_against_plain_loops(seed: int) -> None:
    """Every claim is taken out of the nearest inclusive claim that holds it, unit by unit."""
    trace, dice = random_traces(30, seed=seed), np.random.default_rng(seed)

    def claim(channel: str, unit: str, inclusive: bool) -> Claim:
        n = len(units.rows(trace, unit))
        value = np.where(dice.random(n) < 0.3, NAN, dice.integers(-2, 3, n) / 4)
        return Claim(channel, unit, value, inclusive)

    claims = [
        claim("words", "message", True),
        claim("agents", "agent", True),
        claim("steps", "turn", True),
        claim("more steps", "turn", False),
        claim("some", "team", True),
        claim("more agents", "agent", False),
    ]
    whole = np.where(dice.random(len(trace)) < 0.2, NAN, dice.random(len(trace)))
    split = partition(trace, whole, claims, "left")
    ranked = [c for unit in units.UNITS for c in claims if c.unit == unit]
    kept = [np.nan_to_num(c.value).tolist() for c in ranked]
    for i, c in enumerate(ranked):
        for u, worth in enumerate(np.nan_to_num(c.value).tolist()):
            for j in reversed(range(i)):
                if not ranked[j].inclusive or ranked[j].unit == c.unit:
                    continue
                at = units.within(trace, c.unit, ranked[j].unit)[u]
                if at >= 0 and not np.isnan(ranked[j].value[at]):
                    kept[j][at] -= worth
                    break
    rest = whole.copy()
    for c, part, want in zip(ranked, split.parts, kept, strict=False):
        run_of = units.rollouts(trace, c.unit).tolist()
        assert (part.channel, part.unit) == (c.channel, c.unit)
        near(part.paid, [NAN if np.isnan(whole[n]) else k for n, k in zip(run_of, want, strict=True)])
        for n, k in zip(run_of, want, strict=True):
            rest[n] -= k
    assert (split.parts[-1].channel, split.parts[-1].unit) == ("left", "team")
    near(split.parts[-1].paid, rest)
    near(split.total(), whole)


def test_every_run_adds_up_to_its_reward() -> None:
    trace = random_traces(300, seed=4)
    for unit in ("agent", "turn", "message", "orchestrator"):
        made = paid(trace, f'closed(to("{unit}") >> clip(-0.2, 0.3))')
        run_of = units.rollouts(trace, unit)
        there = np.unique(run_of)
        near(np.bincount(run_of, made, minlength=300)[there], trace.reward_n["team"][there])
