"""What an expression pays: by channel, by unit, and that it adds up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scripted import run

from podium import registry
from podium.expression import parse, spell
from podium.graph import units
from podium.registry import register
from podium.rewards import BadReward, Now, ledger, score
from podium.rewards.ledger import Channel, copied, read_reward, summed
from podium.trace.columns import F, Text, Trace, concat


@pytest.fixture(autouse=True)
def scores() -> Iterator[None]:
    """Scores of this file alone: a number for each call and each agent, as events state it; and rewards by name."""
    before = dict(registry._TABLE), dict(registry._FACTS)

    @register("score", unit="tool_call")
    def of_calls(trace: Trace, channel: str = "call") -> F:
        return np.asarray(trace.reward_e[channel][units.rows(trace, "tool_call")])

    @register("score", unit="agent")
    def of_agents(trace: Trace) -> F:
        return np.arange(trace.n_agents) - trace.first_of("a")[trace.rollout_a].astype(float)

    @register("score", unit="team")
    def broken(trace: Trace) -> F:
        raise TypeError("a fault of ours")

    @register("reward")
    def both(weight: float = 0.5) -> str:
        return f"outcome + {weight} * of_calls"

    yield
    for table, kept in zip((registry._TABLE, registry._FACTS), before, strict=True):
        table.clear()  # type: ignore[attr-defined]
        table.update(kept)  # type: ignore[attr-defined]


def two_calls(*pay: float, team: float = 1.0) -> Trace:
    return run(
        ("decide lead", (), {"role": "lead"}),
        ("spawn lead>ann", [0]),
        *((f"call {'lead' if i else 'ann'}", [1], {"reward": {"call": p}}) for i, p in enumerate(pay)),
        reward={"team": team},
    )


def test_channels_keep_their_unit_and_add_up() -> None:
    book = ledger(two_calls(0.25, 0.5), "outcome - 2 * of_calls")
    assert [(c.name, c.unit, c.paid.tolist()) for c in book.channels] == [
        ("outcome", "team", [1.0]),
        ("of_calls", "tool_call", [-0.5, -1.0]),
    ]
    assert book.total().tolist() == [1.0 - 0.5 - 1.0]
    assert book.unit == "tool_call"
    # what each call gets: the outcome, copied, and its own
    assert book.at("tool_call").tolist() == [0.5, 0.0]
    # agents: the lead made the second call, ann the first
    assert book.at("agent").tolist() == [1.0 - 1.0, 1.0 - 0.5]


def test_score_is_at_the_finest_unit_unless_told() -> None:
    trace = two_calls(0.25, 0.5)
    assert score(trace, "outcome + of_calls").tolist() == [1.25, 1.5]
    assert score(trace, "outcome + of_calls", "team").tolist() == [1.75]
    assert score(trace, "outcome").tolist() == [1.0]
    assert score(trace, parse("outcome")).tolist() == [1.0]


def test_what_was_not_scored_is_not_paid_for() -> None:
    trace = two_calls(0.25, np.nan)
    assert np.isnan(score(trace, "outcome + of_calls", "team"))
    assert np.isnan(score(trace, "of_calls")).tolist() == [False, True]
    # at weight 0 a channel pays nothing, whether it was scored or not
    assert score(trace, "outcome + 0 * of_calls", "team").tolist() == [1.0]
    assert score(trace, "outcome + anneal(of_calls)", "team", Now(1.0)).tolist() == [1.0]
    assert np.isnan(score(trace, "outcome + anneal(of_calls)", "team", Now(0.5)))


def test_a_batch_is_a_longer_trace() -> None:
    a, b = two_calls(0.25, 0.5), two_calls(2.0, team=0.0)
    for unit in ("team", "orchestrator", "agent", "turn", "tool_call"):
        apart = np.concatenate([score(t, "outcome + of_calls", unit) for t in (a, b)])
        np.testing.assert_array_equal(score(concat([a, b]), "outcome + of_calls", unit), apart)


def test_pay_that_would_be_lost_is_refused() -> None:
    trace = two_calls(0.25, 0.5)  # calls have no role
    with pytest.raises(BadReward, match=r"pays 2 of its units .* that belong to no role"):
        score(trace, "of_calls", "role")
    silent = Channel("x", "tool_call", np.array([np.nan, 0.0]))
    assert summed(trace, silent, "role").paid.tolist() == [0.0]  # nothing to lose


def test_a_named_reward_is_written_out() -> None:
    assert spell(read_reward("both")) == "outcome + 0.5 * of_calls"
    assert spell(read_reward("2 * both(0.25) - outcome")) == "2.0 * outcome + 0.5 * of_calls - outcome"
    assert spell(read_reward("anneal(both)")) == "anneal(outcome + 0.5 * of_calls)"
    assert score(two_calls(0.25, 0.5), "both", "team").tolist() == [1.0 + 0.125 + 0.25]


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (
            "outcom",
            "no score, shape or reward called 'outcom'; there are .*, the nearest outcome.*; podium reward lists them",
        ),
        ("outcome >> outcome", "no place for >>"),
        ("outcome +", "expected an expression"),
        ("outcome(1, 2, 3, 4)", "too many positional"),
        ("outcome(colour=1)", "colour"),
        ("outcome(of_calls)", "takes numbers and words"),
        ("anneal(outcome)", "give progress"),
        ("anneal()", "missing a required argument"),
        ("both(colour=1)", "colour"),
        ("anneal(2)", "anneal"),
    ],
)
def test_what_cannot_be_paid_says_why(reward: str, said: str) -> None:
    with pytest.raises(BadReward, match=said):
        ledger(two_calls(0.25), reward, Now(0.5) if reward == "anneal(2)" else Now())


def test_a_fault_of_a_score_is_not_blamed_on_the_expression() -> None:
    with pytest.raises(TypeError, match="a fault of ours"):
        ledger(two_calls(0.25), "broken")


def test_an_unknown_unit_lists_those_there_are() -> None:
    with pytest.raises(BadReward, match="no unit called 'bee'; there are team"):
        score(two_calls(0.25), "outcome", "bee")


def test_nothing_is_paid_for_nothing() -> None:
    assert score(Trace.of(), "outcome").tolist() == []
    assert score(Trace.of(), "outcome", "agent").tolist() == []
    silent = Trace.of(trace_id_n=Text.of(["run"]))
    assert np.isnan(score(silent, "outcome"))
    one = run("decide lead", reward={"team": 2.0})
    assert score(one, "outcome", "agent").tolist() == [2.0]


def test_it_adds_up_whatever_is_paid_to_whom() -> None:
    rng = np.random.default_rng(0)
    runs = [two_calls(*rng.normal(size=rng.integers(1, 5)), team=rng.normal()) for _ in range(20)]
    book = ledger(concat(runs), "outcome + 0.5 * of_calls - of_agents")
    by_hand = [t.reward_n["team"][0] + 0.5 * np.nansum(t.reward_e["call"]) - sum(range(t.n_agents)) for t in runs]
    np.testing.assert_allclose(book.total(), by_hand)
    total = sum(np.bincount(units.rollouts(book.trace, c.unit), c.paid, minlength=20) for c in book.channels)
    np.testing.assert_allclose(book.total(), total)


def test_what_is_inside_no_unit_is_copied_nothing() -> None:
    """Calls without a caller are of no agent; an agent that was not scored leaves its calls unscored."""
    trace = two_calls(1.0, 1.0)
    nobody = replace(trace, agent_e=np.where(np.arange(4) == 3, -1, trace.agent_e).astype(trace.agent_e.dtype))
    for pay in ([0.5, 0.25], [np.nan, 0.25]):
        got = copied(nobody, Channel("of_agents", "agent", np.array(pay)), "tool_call").paid
        want = [pay[trace.agent_e[2]], 0.0]
        np.testing.assert_array_equal(got, want)
