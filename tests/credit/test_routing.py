"""Where credit goes, and how much each unit counts in a loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grown import NAN, decides, near, on, paid, run, runs

from podium.credit import BadCredit, Credit, apply
from podium.credit.routing import down, up
from podium.graph import units
from podium.rewards import score
from podium.trace.columns import Text, Trace


def team(**more: float) -> Trace:
    """lead says 2 tokens, ann 6 and, after lead, 4; the last turn is lead's, of none."""
    events = (
        on("say lead planner", tokens=2, end=1.0),
        on("say ann solver", tokens=6, end=4.0),
        on("say lead planner", tokens=0, end=2.5),
        on("say ann solver", tokens=4, end=5.0),
    )
    return runs(run(*events, **{"team": 1.2, **more}))


def weighed(trace: Trace, expression: str, unit: str = "turn") -> np.ndarray:
    made = apply(Credit(trace, unit, score(trace, "outcome", unit)), expression).weight
    assert made is not None
    return made


def test_down_by_copies_and_shares() -> None:
    near(paid(team(), "to('turn')"), [1.2] * 4)
    near(paid(team(), "to('turn', 'share')"), [0.3] * 4)
    near(paid(team(), "to('turn', 'share', 'tokens')"), [0.2, 0.6, 0, 0.4])
    near(paid(team(), "to('agent', 'share', 'tokens')"), [0.2, 1.0])
    # seconds: 1, 3, 0.5, 2
    near(paid(team(), "to('turn', 'share', 'time')"), 1.2 * np.array([1, 3, 0.5, 2]) / 6.5)


def test_up_by_sums_and_means() -> None:
    trace = runs(run(*(on(f"say {w}", step=r) for w, r in (("a", 1.0), ("b", 2.0), ("a", 4.0)))))
    near(paid(trace, "to('agent', 'sum')", "turn", "step"), [5, 2])
    near(paid(trace, "to('agent', 'mean')", "turn", "step"), [2.5, 2])
    near(paid(trace, "to('team', 'sum')", "turn", "step"), [7])


@pytest.mark.parametrize("by", ["equal", "tokens", "time"])
def test_up_after_down_is_the_identity(by: str) -> None:
    value = np.array([1.2])
    for unit in ("turn", "agent", "role", "message", "token"):
        near(up(team(), down(team(), value, "team", unit, by), unit, "team"), value)  # type: ignore[arg-type]


def test_where_nobody_has_a_weight_shares_are_equal() -> None:
    trace = runs(run("say a", "say b", team=1.0))
    near(paid(trace, "to('turn', 'share', 'tokens')"), [0.5, 0.5])


def test_credit_that_would_be_lost_is_refused() -> None:
    trace = runs(run("say a", "say b solver", team=1.0))
    with pytest.raises(BadCredit, match="1 of the turn units with credit belong to no role"):
        paid(trace, "to('turn') >> to('role', 'sum')")
    near(paid(trace, "to('turn') >> only('role', 'solver') >> to('role', 'sum')"), [1])
    for wrong in ("to('nowhere')", "to('turn', 'how')", "to('turn', 'share', 'size')"):
        with pytest.raises(BadCredit):
            paid(trace, wrong)


def test_a_run_of_which_nothing_is_known_sums_to_nothing() -> None:
    trace = runs(run("spawn a>idle", "say a", team=NAN), run("spawn a>idle", "say a", team=1.0))
    near(paid(trace, "to('turn') >> to('agent', 'sum')"), [NAN, NAN, 1, 0])


def spawned() -> Trace:
    return runs(
        run("spawn lead>ann", "spawn ann>bob", "say ann", "say bob", "say cy", team=0.5), run("say lead", team=0.25)
    )


def test_along_spawns_everyone_gets_what_the_root_got() -> None:
    # lead, ann, bob, cy; lead
    near(paid(spawned(), "to('agent') >> only('lead') >> along_spawns()"), [0.5, 0.5, 0.5, NAN, 0.25])
    chain = runs(run(*(f"spawn a{i}>a{i + 1}" for i in range(40)), team=1.0))
    near(paid(chain, "to('agent') >> only('lead') >> along_spawns()"), [1.0] * 41)
    with pytest.raises(BadCredit, match="pays agents"):
        paid(spawned(), "along_spawns()")


def test_without_spawns_it_changes_nothing() -> None:
    near(paid(team(), "to('agent') >> along_spawns()"), paid(team(), "to('agent')"))


def test_only_some() -> None:
    trace = runs(
        run(decides("x"), on("say ann solver", valid=0), decides("x", kind="stop"), "say bob critic", team=1.0)
    )
    one, no = 1.0, NAN
    near(paid(trace, "to('turn') >> only('lead')"), [one, no, one, no])
    near(paid(trace, "to('turn') >> only('orchestrator')"), [one, no, one, no])
    near(paid(trace, "to('turn') >> only('role', 'solver')"), [no, one, no, no])
    near(paid(trace, "to('turn') >> only('agent', 'bob')"), [no, no, no, one])
    near(paid(trace, "to('turn') >> only('failed')"), [no, one, no, no])
    near(paid(trace, "to('turn') >> only('last')"), [no, no, no, one])
    near(paid(trace, "to('orchestrator') >> only('decision', 'stop')"), [no, one])
    near(paid(trace, "to('orchestrator') >> only('decision', 'nothing')"), [no, no])
    near(paid(spawned(), "to('agent') >> only('spawned')"), [no, 0.5, 0.5, no, no])
    with pytest.raises(BadCredit, match="only takes"):
        paid(trace, "only('best')")


def test_the_last_is_the_last_in_time() -> None:
    trace = runs(run(on("say a", t=5.0), on("say b", t=1.0, after=[]), on("say c", t=5.0, after=[]), team=1.0))
    near(paid(trace, "to('turn') >> only('last')"), [1, NAN, 1])


def two_runs() -> Trace:
    """ann twice and bob once; cy once."""
    return runs(run("say ann", "say bob", "say ann", team=1.0), run("say cy", team=0.0))


def test_weights_in_a_loss() -> None:
    near(weighed(two_runs(), "weigh('token')"), [1 / 4] * 4)
    near(weighed(two_runs(), "weigh('sequence')"), [1 / 6, 1 / 3, 1 / 6, 1 / 3])  # three agents of all runs alike
    near(weighed(two_runs(), "weigh('agent')"), [1 / 8, 1 / 4, 1 / 8, 1 / 2])
    near(weighed(two_runs(), "weigh('rollout')"), [1 / 6, 1 / 6, 1 / 6, 1 / 2])
    near(weighed(two_runs(), "weigh('root')"), [1 / 2] * 4)
    near(weighed(two_runs(), "weigh('constant', longest=8)"), [1 / 8] * 4)
    for wrong in ("weigh('constant')", "weigh('size')"):
        with pytest.raises(BadCredit, match="weigh takes"):
            weighed(two_runs(), wrong)


def test_who_gets_no_credit_does_not_count() -> None:
    near(weighed(two_runs(), "only('agent', 'ann') >> weigh('rollout')"), [1 / 2, NAN, 1 / 2, NAN])
    near(weighed(two_runs(), "only('agent', 'ann') >> weigh('agent')"), [1 / 2, NAN, 1 / 2, NAN])


@pytest.mark.parametrize("by", ["token", "sequence", "agent", "rollout"])
def test_weights_of_each_batch_sum_to_1(by: str) -> None:
    trace = replace(runs(two_runs(), two_runs(), run("say a", team=1.0)), batch_n=np.array([0, 0, 1, 1, 2]))
    made = weighed(trace, f"weigh('{by}')")
    near(np.bincount(trace.batch_n[units.rollouts(trace, "turn")], made), [1, 1, 1])


def test_groups_are_made_equally_large() -> None:
    trace = runs(*(run(f"say a{i}", task=q, team=float(i)) for i, q in enumerate("qqqppqp")))
    made = weighed(trace, "resample(by='task', d=5)", "team")
    group = np.array([0, 0, 0, 1, 1, 0, 1])
    near(np.bincount(group, made), [5, 5])
    assert set(made[group == 0].tolist()) == {1.0, 2.0}  # of four everyone once, and one twice
    assert set(made[group == 1].tolist()) == {1.0, 2.0}
    assert sorted(weighed(trace, "resample(by='task', d=2)", "team")[group == 0].tolist()) == [0, 0, 1, 1]
    near(weighed(trace, "resample(by='task', d=5)", "team"), made)  # by its seed
    with pytest.raises(BadCredit, match="d of 1 or more"):
        weighed(trace, "resample(by='task', d=0)", "team")


DRAWN = {0: "111121110101001", 5: "011111111001012", -1: "010011110111112"}  # places that each run fills, by seed


def test_what_is_drawn_stays_what_it_was_when_it_was_first_drawn() -> None:
    """Credit of stored runs is worked out again years later: which of them fill the places must not change."""
    tasks = "qpqqpqqpqqqpqqp"
    trace = runs(*(run("say a", task=q, group=q if i % 2 else None, team=float(i)) for i, q in enumerate(tasks)))
    trace = replace(trace, seed_n=Text.of(None if i % 3 else f"s{i}" for i in range(len(tasks))))
    drawn = {seed: weighed(trace, f"resample(by='task', d=3, seed={seed})", "team") for seed in (0, 5, -1)}
    assert {seed: "".join(f"{w:g}" for w in weights) for seed, weights in drawn.items()} == DRAWN


def test_groups_of_that_size_stay() -> None:
    near(weighed(two_runs(), "resample(by='task', d=4)"), [1, 1, 1, 1])


@pytest.mark.parametrize(
    "step", ["to('turn')", "to('agent', 'share')", "weigh('rollout')", "weigh('agent')", "weigh('token')", "resample(by='task', d=2)", "only('lead')", "to('agent') >> along_spawns()"]
)  # fmt: skip
def test_edges(step: str) -> None:
    assert len(paid(team()[:0], step)) == 0
    assert np.isnan(paid(team(team=NAN), step)).all()


def test_what_is_inside_no_unit_gets_none_even_where_there_is_no_such_unit() -> None:
    """Tokens, and not one message."""
    trace = runs(run(on("return a", tokens=2), team=1.0))
    near(down(trace, np.zeros(0), "message", "token"), [NAN, NAN])
