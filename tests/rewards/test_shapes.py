"""Schedules, gates, bounds and moves between units, each by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import run

from podium.graph import units
from podium.rewards import BadReward, Now, ledger, score
from podium.rewards.shapes import converged, parl, parl_earned
from podium.trace.columns import Trace, concat


def team(reward: float = 1.0, spawn: int = 2, **channels: float) -> Trace:
    """A lead that spawns some, each of whom makes a call; all but the first return."""
    spawns = [(f"spawn lead>s{i}", [0]) for i in range(spawn)]
    calls = [(f"call s{i}", [1 + i], {"role": "scout"}) for i in range(spawn)]
    returns = [(f"return s{i}>lead", [1 + spawn + i], {"role": "scout"}) for i in range(1, spawn)]
    return run("decide lead", *spawns, *calls, *returns, reward={"team": reward, **channels})


def weight(reward: str, now: Now) -> float:
    return float(score(team(), reward, now=now)[0])


@pytest.mark.parametrize(
    ("options", "at", "want"),
    [
        ("", (0.0, 0.25, 0.5, 1.0), (1.0, 0.75, 0.5, 0.0)),
        (", 0.2, 0.6", (0.1, 0.2, 0.4, 0.6, 0.9), (1.0, 1.0, 0.5, 0.0, 0.0)),
        (", how='cosine'", (0.0, 1 / 3, 0.5, 1.0), (1.0, 0.75, 0.5, 0.0)),  # (1 + cos 60°) / 2 = .75
        (", how='stages'", (0.0, 0.2, 0.25, 0.6, 0.99, 1.0), (1.0, 1.0, 0.75, 0.5, 0.25, 0.0)),
        (", how='stages', stages=1", (0.0, 0.99, 1.0), (1.0, 1.0, 0.0)),
    ],
)
def test_anneal(options: str, at: tuple[float, ...], want: tuple[float, ...]) -> None:
    got = [weight(f"anneal(outcome{options})", Now(p)) for p in at]
    assert got == pytest.approx(want)


@pytest.mark.parametrize("how", ["line", "cosine", "stages"])
def test_an_annealed_reward_never_rises_and_ends_at_nothing(how: str) -> None:
    weights = [weight(f"anneal(outcome, 0.1, 0.8, {how!r}, 7)", Now(p)) for p in np.linspace(0, 1, 101)]
    assert weights[0] == 1.0
    assert weights[-1] == weights[80] == 0.0
    assert (np.diff(weights) <= 1e-12).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "progress"),
        (", 1, 0", "start < end"),
        (", how='jump'", "'line'"),
        (", how='stages', stages=0", "at least 1"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(options: str, said: str) -> None:
    with pytest.raises(BadReward, match=said):
        score(team(), f"anneal(outcome{options})", now=Now(0.5) if options else Now())


def test_convergence_by_hand() -> None:
    # pairs: 0 0 | 0 0 | 1 2 | 3 4 | 4 4 | 4 4. The steepest rise of a pair over the pair before is 2 (2 3 over 0 1).
    signal = [0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4]
    assert (
        converged(signal, window=2, sure=2) == 11
    )  # 4 4 over 4 4; one earlier, 4 4 over 3 4, still rose by .5 > .1 x 2
    assert converged(signal, window=2, below=0.3, sure=2) == 10
    assert converged(signal[:10], window=2, sure=2) is None
    assert converged([0.0] * 100, window=2) is None  # a flat start is not the end
    assert converged([1, np.nan, 2], window=2) is None
    with_gaps = [v for value in signal for v in (value, np.nan)]
    assert converged(with_gaps, window=2, sure=2) == 11


def test_noise_is_not_a_rise_and_a_noisy_rise_is_one() -> None:
    rng = np.random.default_rng(0)
    flat = [converged(rng.normal(size=300).tolist()) is not None for _ in range(300)]
    assert np.mean(flat) < 0.05
    curve = 1 / (1 + np.exp(-(np.arange(300) - 100) / 15)) + 0.1 * rng.normal(size=(100, 300))
    when = [converged(c.tolist()) for c in curve]
    assert None not in when
    low, high = np.percentile(np.array(when, float), [5, 95])
    assert 150 < low < high < 200  # the curve is at .965 by 150, at .999 by 200


def test_until_converged_fades_and_never_comes_back() -> None:
    signal = [0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4, 0, 0, 0, 9, 12, 20, 30, 50, 60, 60, 60, 60]
    reward = "until_converged(outcome, window=2, fade=4, sure=2)"
    weights = [weight(reward, Now(history=tuple(signal[:t]))) for t in range(len(signal) + 1)]
    assert weights[:12] == [1.0] * 12  # it converged after 11 values
    assert weights[12:16] == [0.75, 0.5, 0.25, 0.0]
    assert weights[16:] == [0.0] * 9
    with pytest.raises(BadReward, match="give its history"):
        weight(reward, Now(0.5))
    with pytest.raises(BadReward, match="fade of 1"):
        weight("until_converged(outcome, fade=0)", Now(history=()))


def test_gate_and_budget() -> None:
    trace = concat([team(1.0, judge=0.9), team(1.0, judge=0.2), team(1.0), team(0.0, judge=0.9)])
    assert score(trace, "gate(outcome, outcome('judge'))").tolist()[:2] == [1.0, 0.0]
    assert np.isnan(
        score(trace, "gate(outcome, outcome('judge'))")[2]
    )  # a silent judge opens nothing and shuts nothing
    assert score(trace, "gate(outcome, outcome('judge'), 0.1)").tolist()[1] == 1.0
    # the lead's decision, and the call and return of the longer scout: 3 critical steps
    assert score(team(), "critical_steps").tolist() == [3.0]
    assert score(team(), "budget(outcome, critical_steps, 3)").tolist() == [1.0]
    assert score(team(), "budget(outcome, critical_steps, 2)").tolist() == [0.0]


def test_what_is_earned_follows_the_outcome() -> None:
    trace = concat([team(0.5, judge=0.8), team(-1.0, judge=0.8), team(2.0, judge=0.8), team(1.0)])
    near = np.testing.assert_allclose
    near(score(trace, "earned(outcome('judge'), outcome)"), [0.4, 0.0, 0.8, np.nan])
    near(score(trace, "earned(0.5 * outcome('judge'), outcome, 2)"), [0.1, 0.0, 0.4, np.nan])
    near(
        score(trace, "earned(outcome, outcome('judge'))"), [0.4, -0.8, 1.6, np.nan]
    )  # a silent judge pays nothing and fines nothing
    near(
        score(trace, "earned(outcome('nobody'), outcome)"), [np.nan, 0.0, np.nan, np.nan]
    )  # of nothing earned, nothing
    assert ledger(trace, "earned(at(instantiate, 'agent'), outcome)").channels[0].unit == "agent"
    with pytest.raises(BadReward, match="most above 0, got 0"):
        score(trace, "earned(outcome, outcome, 0)")


def test_what_is_earned_cannot_outbid_an_outcome_that_is_so_much_better() -> None:
    dice = np.random.default_rng(0)
    low, high, extra = dice.random(200), dice.random(200), dice.random(200)
    for a, b, r in zip(low, high, extra, strict=True):
        hack, honest = team(a, judge=r), team(b, judge=0.0)
        if a < b / 1.6:
            reward = "outcome + 0.6 * earned(outcome('judge'), outcome)"
            assert score(hack, reward) < score(honest, reward)


def test_a_gate_reaches_every_unit_inside() -> None:
    book = ledger(team(0.0), "gate(at(instantiate, 'agent'), outcome, 1)")
    assert book.channels[0].unit == "agent"
    assert book.channels[0].paid.tolist() == [0.0, 0.0, 0.0]


def test_clip_is_of_the_sum() -> None:
    trace = team(0.75, a=0.5)
    assert score(trace, "clip(outcome + outcome('a'))").tolist() == [1.0]
    assert score(trace, "clip(outcome - 4 * outcome('a'))").tolist() == [-1.0]
    assert score(trace, "clip(outcome - 4 * outcome('a'), -1, 0)").tolist() == [-1.0]
    assert [c.name for c in ledger(trace, "clip(outcome + outcome('a'), 0, 2)").channels] == [
        "clip(outcome + outcome('a'), 0, 2)"
    ]
    assert np.isnan(score(trace, "clip(outcome('nobody'))"))
    with pytest.raises(BadReward, match="low ≤ high"):
        score(trace, "clip(outcome, 1, 0)")
    with pytest.raises(BadReward, match="at one unit, got agent, team"):
        score(trace, "clip(outcome + at(outcome, 'agent'))")


def test_from_unit_to_unit() -> None:
    trace = team(3.0)  # the lead and two scouts
    assert score(trace, "at(outcome, 'agent')").tolist() == [3.0, 3.0, 3.0]
    assert score(trace, "at(outcome, 'agent', share=True)").tolist() == [1.0, 1.0, 1.0]
    assert score(trace, "at(at(outcome, 'agent', share=True), 'team')").tolist() == [3.0]  # up after down
    assert score(trace, "mean(at(outcome, 'agent'))").tolist() == [3.0]
    assert score(trace, "at(at(outcome, 'agent'), 'team')").tolist() == [9.0]
    with pytest.raises(BadReward, match="no unit called 'bee'"):
        score(trace, "at(outcome, 'bee')")
    with pytest.raises(BadReward, match="goes to a coarser unit"):
        score(trace, "mean(outcome, 'agent')")
    with pytest.raises(BadReward, match="hold no message"):
        score(trace, "at(outcome, 'message', share=True)")


@pytest.mark.parametrize("unit", [u for u in units.UNITS if u not in ("message", "token")])
def test_up_after_down_is_where_it_began(unit: str) -> None:
    trace = concat([team(2.0, 3), team(-1.0, 1)])
    np.testing.assert_allclose(score(trace, f"at(at(outcome, '{unit}', share=True), 'team')"), [2.0, -1.0])


def test_the_gated_reward_of_parl() -> None:
    plain = "outcome + anneal(0.2 * earned(contributed(4), outcome), end=0.5, how='cosine') + anneal(0.1 * earned(completed(none=0.0), outcome), end=0.5, how='cosine')"
    assert parl_earned(0.2, 0.1, most=4, end=0.5, how="cosine") == plain
    trace = concat([team(1.0, 4), team(0.0, 4), team(0.0, 0)])
    assert score(trace, "parl_earned", now=Now(0.0))[1:].tolist() == [0.0, 0.0]
    assert score(trace, "parl_earned", now=Now(1.0)).tolist() == score(trace, "outcome").tolist()


def test_the_reward_of_parl() -> None:
    trace = concat([team(1.0, 4), team(0.0, 0)])
    # 4 of 8 were instantiated, 3 of 4 returned; the run that spawned nobody has its outcome alone
    assert score(trace, "parl", now=Now(0.0)).tolist() == pytest.approx([1.0 + 0.3 * 0.5 + 0.3 * 0.75, 0.0])
    assert score(trace, "parl", now=Now(0.5)).tolist() == pytest.approx([1.0 + 0.15 * 0.5 + 0.15 * 0.75, 0.0])
    assert score(trace, "parl", now=Now(1.0)).tolist() == score(trace, "outcome").tolist()
    plain = "outcome + anneal(0.2 * instantiate(4), end=0.5, how='cosine') + anneal(0.1 * finish(none=0.0), end=0.5, how='cosine')"
    assert parl(0.2, 0.1, most=4, end=0.5, how="cosine") == plain
    assert [c.name for c in ledger(trace, "parl", Now(0.0)).channels] == [
        "outcome",
        "instantiate(8)",
        "finish(none=0.0)",
    ]
