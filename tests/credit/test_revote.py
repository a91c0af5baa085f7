"""Counting votes again without somebody, against counting them one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, near, on, paid, run, runs

from podium.credit import BadCredit
from podium.rewards import score
from podium.trace.columns import Text, Trace, concat


def vote(answers: str, right: str = "x", batch: int = -1, **weights: float) -> Trace:
    """Agents a, b, c, ... answer a letter each, and the lead counts."""
    said = [on(f"say {chr(97 + i)}", correct=float(answer == right)) for i, answer in enumerate(answers)]
    cast = [(i, answer, weights.get(chr(97 + i), 1.0)) for i, answer in enumerate(answers)]
    return run(*said, on("aggregate lead", votes=cast), team=1.0, batch=batch)


def test_by_hand() -> None:
    # x wins 2 to 1: without a it is a tie, .5 right; without c nothing changes. The lead does not vote
    near(paid(runs(vote("xxy")), "revote()", "agent"), [0.5, 0.5, 0.0, 0.0])
    # y wins 2 to 1, wrong: without a still; without b a tie: 0 - .5
    near(paid(runs(vote("xyy")), "revote()", "agent"), [0.0, -0.5, -0.5, 0.0])
    # a tie of three, one right: 1/3; without a 0, without b (1 + 0) / 2
    near(paid(runs(vote("xyz")), "revote()", "agent"), [1 / 3, 1 / 3 - 1 / 2, 1 / 3 - 1 / 2, 0.0])
    near(paid(runs(vote("x")), "revote()", "agent"), [1.0, 0.0])  # without a nobody votes, which counts as 0


def test_messages_are_paid_as_those_who_wrote_them() -> None:
    near(paid(runs(vote("xxy")), "revote()", "message"), [0.5, 0.5, 0.0])


def test_weights_count_where_told() -> None:
    trace = runs(vote("xyy", a=3.0))
    near(paid(trace, "revote()", "agent")[:3], [0.0, -0.5, -0.5])
    near(paid(trace, 'revote(by="weighted")', "agent")[:3], [1.0, 0.0, 0.0])


def test_who_votes_twice_is_taken_out_whole() -> None:
    said = [on("say a", correct=1.0), on("say b", correct=0.0), on("say a", correct=1.0), on("say c", correct=0.0)]
    votes = [(0, "x"), (1, "y"), (2, "x"), (3, "y")]
    # a tie of x and y: .5; without both votes of a: 0; without b x wins
    near(
        paid(runs(run(*said, on("aggregate lead", votes=votes), team=1.0)), "revote()", "agent")[:3],
        [0.5, -0.5, -0.5],
    )


def test_where_everybody_votes_once_it_is_the_reward_pivotal() -> None:
    dice = np.random.default_rng(0)
    trace = runs(*(vote("".join(dice.choice(list("xyzuv"), dice.integers(1, 9)))) for _ in range(60)))
    near(paid(trace, "revote()", "agent"), score(trace, "pivotal", "agent"))


def random_votes(n: int, seed: int) -> Trace:
    """Several aggregates a run, agents that vote often and for different answers, weights, unchecked answers."""
    dice = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        crew = int(dice.integers(1, 5))
        events: list[object] = []
        for _ in range(int(dice.integers(1, 3))):
            start = len(events)
            many = int(dice.integers(1, 9))
            events += [on(f"say w{dice.integers(crew)}", correct=float(dice.integers(2))) for _ in range(many)]
            cast = [(start + i, str(dice.integers(4)), float(dice.integers(1, 4))) for i in range(many)]
            events.append(on("aggregate lead", votes=cast))
        made.append(run(*events, team=1.0))  # type: ignore[arg-type]
    return runs(*made)


def naive(trace: Trace, weighted: bool) -> np.ndarray:
    """Vote by vote, from the definition."""
    right = trace.reward_e["correct"]
    of = defaultdict(list)
    for v in range(len(trace.event_v)):
        of[int(trace.event_v[v])].append(v)
    total = np.zeros(trace.n_agents)

    def consensus(votes: list[int], every: list[int]) -> float:
        weight: dict[str, float] = defaultdict(float)
        for v in votes:
            weight[str(trace.value_v[v])] += trace.weight_v[v] if weighted else 1.0
        if not weight:
            return 0.0
        top = max(weight.values())
        worth = {
            a: np.mean([right[trace.source_v[v]] for v in every if trace.value_v[v] == a])
            for a, w in weight.items()
            if w == top
        }
        return float(np.mean(list(worth.values())))

    for votes in of.values():
        for a in {int(trace.agent_e[trace.source_v[v]]) for v in votes}:
            left = [v for v in votes if trace.agent_e[trace.source_v[v]] != a]
            total[a] += consensus(votes, votes) - consensus(left, votes)
    return total


@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_what_counting_again_gives(weighted: bool) -> None:
    trace = random_votes(150, 1)
    step = 'revote(by="weighted")' if weighted else "revote()"
    near(paid(trace, step, "agent"), naive(trace, weighted))


def test_an_answer_that_nobody_checked_counts_only_where_it_wins() -> None:
    trace = runs(vote("xxy"))
    correct = trace.reward_e["correct"].copy()
    correct[2] = NAN
    # without c x stays; without a or b the unchecked y ties
    near(paid(replace(trace, reward_e={"correct": correct}), "revote()", "agent"), [NAN, NAN, 0.0, 0.0])


def test_runs_without_votes_and_batches() -> None:
    silent = runs(vote("xxy"), run("say a", team=1.0))
    near(paid(silent, "revote()", "agent"), [0.5, 0.5, 0.0, 0.0, NAN])
    one, two = runs(vote("xxy", batch=0)), runs(vote("xyyz", batch=1))
    apart = np.concatenate([paid(t, "revote()", "agent") for t in (one, two)])
    near(paid(concat([one, two]), "revote()", "agent"), apart)


def test_what_it_needs() -> None:
    trace = runs(vote("xxy"))
    with pytest.raises(BadCredit, match="not team"):
        paid(trace, "revote()")
    with pytest.raises(BadCredit, match="the channel 'verdict'"):
        paid(trace, 'revote("verdict")', "agent")
    with pytest.raises(BadCredit, match="majority or weighted"):
        paid(trace, 'revote(by="lot")', "agent")
    none = replace(trace, source_v=np.full(3, -1), value_v=Text.constant("x", 3))
    assert np.isnan(paid(none, "revote()", "agent")).all()


def test_answers_that_tie_count_by_their_mean_before_and_after_a_vote_is_taken_out() -> None:
    votes = [(0, "x"), (1, "y"), (2, "y"), (3, "x")]
    says = [on(f"say {w}", correct=c, after=[]) for w, c in zip("abcd", (1.0, 0.0, 0.0, 1.0), strict=True)]
    trace = runs(run(*says, on("aggregate lead", votes=votes, after=[0, 1, 2, 3]), team=1.0))
    # x (right) and y (wrong) tie, two each: C = 1/2.   Without a voter of x, y wins: 0.   Without one of y, x wins: 1
    near(paid(trace, "revote()", "agent", "at(outcome, 'agent')"), [0.5, -0.5, -0.5, 0.5, 0.0])
    # without e, who made three of x, the tie is back: 1 - 1/2
    more = runs(
        run(
            *says,
            on("say e", correct=1.0, after=[]),
            on("aggregate lead", votes=[*votes, (4, "x")], after=[0]),
            team=1.0,
        )
    )
    near(paid(more, "revote()", "agent", "at(outcome, 'agent')"), [0.5, 0.0, 0.0, 0.5, 0.5, 0.0])


def test_weights_that_add_up_to_the_same_tie_whatever_their_last_bit() -> None:
    """0.1 + 0.2 of x against 0.3 of y: a tie, though they are not the same float; and once a vote is out, 0.4 - 0.1 against 0.3."""
    says = [on(f"say {w}", correct=c, after=[]) for w, c in zip("abc", (1.0, 1.0, 0.0), strict=True)]
    tied = [(0, "x", 0.1), (1, "x", 0.2), (2, "y", 0.3)]
    trace = runs(run(*says, on("aggregate lead", votes=tied, after=[0, 1, 2]), team=1.0))
    near(paid(trace, 'revote(by="weighted")', "agent", "at(outcome, 'agent')"), [0.5, 0.5, -0.5, 0.0])
    more = [(0, "x", 0.1), (1, "x", 0.1), (1, "x", 0.1), (2, "y", 0.1), (2, "y", 0.1)]
    trace = runs(run(*says, on("aggregate lead", votes=more, after=[0, 1, 2]), team=1.0))
    assert 0.1 + 0.1 + 0.1 - 0.1 != 0.1 + 0.1
    near(paid(trace, 'revote(by="weighted")', "agent", "at(outcome, 'agent')")[0], 0.5)
