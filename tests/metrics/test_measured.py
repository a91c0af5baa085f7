"""The table of metrics: intervals over runs, strata, what is said where a label is missing, margins under attack."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scripted import run

from podium.envs.draws import seeds
from podium.envs.expedition import Expedition
from podium.envs.planted import Planted
from podium.envs.world import Policy, World, make, play
from podium.metrics import METRICS, BadMetrics, Measured, margins, measure, strata
from podium.metrics.report import BANDS, band
from podium.registry import facts, names
from podium.trace.columns import Text, Trace, concat
from podium.trace.vocabulary import TOPOLOGIES

EMPTY = Trace.of(trace_id_n=Text.of([]))


def scored(reward: float, name: str = "run", **labels: object) -> Trace:
    """A lead that spawns ann, who calls, which the lead answers from."""
    return run(
        "spawn lead>ann",
        ("call ann", [0], labels),
        ("aggregate lead", [1]),
        reward={"team": reward},
        name=name,
    )


def named(found: list[Measured], name: str) -> Measured:
    (one,) = (m for m in found if m.metric.name == name)
    return one


# the table


def test_every_metric_is_a_registered_score_of_its_dimension() -> None:
    for metric in METRICS:
        for i, score in enumerate(metric.scores):
            told = facts("score", score)
            assert metric.dimension in told["families"]
            assert told["unit"] == "team"
            assert told["better"] == metric.better
            assert i == 0 or told["assumes"]  # a fallback says what it assumes


def test_the_surveys_five_operational_metrics_are_there() -> None:
    five = [m.scores[0] for m in METRICS if m.operational]
    assert five == ["speedup", "utilisation", "redundancy", "protocol_overhead", "error_amplification"]
    assert {m.dimension for m in METRICS} == {"E1", "E2", "E3", "E4"}


def test_each_score_that_is_no_reward_is_in_the_table() -> None:
    listed = {s for m in METRICS for s in m.scores}
    only = [n for n in names("score") if all(f.startswith("E") for f in facts("score", n)["families"])]
    assert set(only) <= listed


# intervals


def test_an_interval_over_runs_by_hand() -> None:
    # 1, 2, 4: mean 7/3, s² = ((4/3)² + (1/3)² + (5/3)²) / 2 = 7/3, t(2) = 4.3027
    found = named(measure(concat([scored(1.0), scored(2.0), scored(4.0)])), "outcome")
    half = 4.302653 * sqrt(7 / 3) / sqrt(3)
    assert found.estimate == pytest.approx((7 / 3, 7 / 3 - half, 7 / 3 + half, 3), abs=1e-5)
    assert found.plain() | {"low": 0, "high": 0} == {
        "dimension": "E1",
        "metric": "outcome",
        "better": "higher",
        "mean": pytest.approx(7 / 3),
        "low": 0,
        "high": 0,
        "n": 3,
        "absent": 0,
        "needs": None,
        "score": "outcome",
        "assumes": None,
    }


def test_a_run_that_does_not_say_is_counted_as_absent() -> None:
    told = named(measure(concat([scored(1.0), scored(np.nan), scored(0.0)])), "outcome").plain()
    assert (told["mean"], told["n"], told["absent"]) == (0.5, 2, 1)
    assert told["needs"] == "the reward channel on the trace"


def test_one_run_has_no_interval() -> None:
    told = named(measure(scored(0.25)), "outcome").plain()
    assert (told["mean"], told["low"], told["high"]) == (0.25, None, None)


def test_of_nothing_nothing_is_told() -> None:
    for trace, runs in ((EMPTY, 0), (Trace.of(trace_id_n=Text.of(["silent"])), 1)):
        told = [m.plain() for m in measure(trace)]
        assert len(told) == len(METRICS)
        for one in told:
            assert (one["mean"], one["score"], one["assumes"]) == (None, None, None)
            assert (one["n"], one["absent"]) == (0, runs)


# what is assumed


def test_a_label_is_exact_and_without_it_the_assumption_is_stated() -> None:
    labelled, plain = scored(1.0, task_relevant=False), scored(1.0)
    told = named(measure(labelled), "useful-agent utilisation").plain()
    assert (told["score"], told["mean"], told["assumes"]) == ("utilisation", 0.0, None)
    told = named(measure(plain), "useful-agent utilisation").plain()
    assert (told["score"], told["mean"]) == ("utilisation_by_effect", 1.0)
    assert "led to anything that another agent did" in told["assumes"]


def test_an_exact_score_is_never_mixed_with_a_guess() -> None:
    told = named(
        measure(concat([scored(1.0, task_relevant=False), scored(1.0)])), "useful-agent utilisation"
    ).plain()
    assert (told["score"], told["mean"], told["absent"]) == ("utilisation", 0.0, 1)


# strata


def long(n: int) -> Trace:
    return run(*["message ann"] * n, reward={"team": float(n)})


def outcomes(trace: Trace, by: str) -> list[tuple[str, int, float]]:
    found = strata(trace, measure(trace), by)
    each = [(name, named(part, "outcome")) for name, part in found.items()]
    return [(name, m.estimate.n, m.estimate.mean) for name, m in each]


def test_bands_are_the_nearest_power_of_ten() -> None:
    # borders at √10 x 10, 100, 1000: 31.6, 316.2, 3162.3
    lengths = [1, 31, 32, 316, 317, 3162, 3163, 50_000]
    ids = Text.of([str(n) for n in lengths])
    trace = Trace.of(trace_id_n=ids, rollout_e=np.repeat(np.arange(len(lengths)), lengths))
    assert band(trace).tolist() == [10, 10, 100, 100, 1000, 1000, 10000, 10000]
    assert BANDS == (10, 100, 1000, 10000)


def test_by_band_each_stratum_has_its_runs() -> None:
    assert outcomes(concat([long(100), long(10), long(12)]), "band") == [("10", 2, 11.0), ("100", 1, 100.0)]


def test_by_topology_and_not_recorded() -> None:
    runs = concat([scored(1.0), scored(2.0), scored(3.0)])
    where = TOPOLOGIES.index("hierarchical")
    runs = replace(runs, topology_n=np.array([where, -1, where], np.int8))
    assert outcomes(runs, "topology") == [("hierarchical", 2, 2.0), ("not recorded", 1, 2.0)]


def test_strata_are_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="band or topology, got 'colour'"):
        strata(EMPTY, measure(EMPTY), "colour")
    assert strata(EMPTY, measure(EMPTY), "band") == {}


def test_the_strata_add_up() -> None:
    runs = concat([long(n) for n in (5, 40, 60, 400)])
    whole = measure(runs)
    parts = strata(runs, whole, "band")
    for i, one in enumerate(whole):
        some = [part[i] for part in parts.values()]
        assert sum(len(m.values_n) for m in some) == len(runs)
        assert {m.score for m in some} == {one.score}  # by the same score in each
        if one.estimate.n:
            total = sum(m.estimate.mean * m.estimate.n for m in some if m.estimate.n)
            assert one.estimate.mean == pytest.approx(total / one.estimate.n)


# margins under attack


def twins(world: World, policy: Policy, n: int) -> tuple[Trace, Trace]:
    assert isinstance(world, Expedition | Planted)
    clean, attacked = (w.trace(play(w, policy, seeds(5, n), log=True).state) for w in (world.clean(), world))
    return clean, attacked


EXPEDITION = [{"inject": 0.5}, {"lie": 0.9}, {"poison": 1}]
PLANTED = [{"inject": 0}, {"liar": 1.0}, {"poison": 0}]


@pytest.mark.parametrize("attack", EXPEDITION, ids=str)
def test_margins_in_expedition(attack: dict[str, float]) -> None:
    world = make("expedition", leg_price=0.1, **attack)
    assert isinstance(world, Expedition)
    policy = world.clean()._same(0, 0, 2, 2, 3)  # three scouts a leg, specialist 0, full brief, majority of returns
    clean, attacked = twins(world, policy, 300)
    found = margins(attacked, clean)
    assert all(len(m.values_n) == 300 for m in found)
    loss = named(found, "outcome").estimate
    assert loss.high < 0  # it costs
    assert loss.mean == pytest.approx((attacked.reward_n["team"] - clean.reward_n["team"]).mean())
    assert named(found, "message redundancy").estimate.mean == 0.0  # the sources are the same
    assert named(found, "useful-agent utilisation").estimate.mean == 0.0  # and so is whose vote counts
    assert named(measure(attacked), "error amplification").estimate.mean > 0
    assert named(found, "error amplification").estimate.n == 0  # a clean run has no error to amplify
    assert named(found, "injection flow").estimate.low > 0.05


@pytest.mark.parametrize("attack", PLANTED, ids=str)
def test_margins_in_planted(attack: dict[str, float]) -> None:
    world = make("planted", **attack)
    assert isinstance(world, Planted)
    clean, attacked = twins(world, world.trivial()["always 3"], 400)
    found = margins(attacked, clean)
    difference = attacked.reward_n["team"] - clean.reward_n["team"]
    loss = named(found, "outcome").estimate
    assert loss.mean == pytest.approx(difference.mean())
    plan = {i: min(3, world.model.rows[i].arity - 1) for i in world.decided}
    exact = world.planned(plan) - world.clean().planned(plan)
    assert loss.low - 0.02 <= exact <= loss.high + 0.02  # the world knows the margin
    assert named(measure(attacked), "error amplification").assumes is None


def test_no_attack_no_margin() -> None:
    world = make("expedition")
    clean, same = twins(world, world.optimal(), 50)
    for m in margins(same, clean):
        assert m.estimate.n == 0 or m.estimate.mean == 0.0


def test_margins_are_paired_by_run_and_by_score() -> None:
    clean = concat([scored(1.0, "a", task_relevant=True), scored(5.0, "b"), scored(9.0, "c")])
    attacked = concat([scored(4.0, "b"), scored(3.0, "a")])
    found = margins(attacked, clean)
    assert named(found, "outcome").values_n.tolist() == [-1.0, 2.0]
    # labels in one of a pair only: not compared with a guess, but guess with guess
    use = named(found, "useful-agent utilisation")
    assert (use.score, use.values_n.tolist()) == ("utilisation_by_effect", [0.0, 0.0])


def test_runs_that_are_no_twins() -> None:
    one, other = scored(1.0, "a"), scored(1.0, "b")
    with pytest.raises(BadMetrics, match="no attacked run has the trace id"):
        margins(one, other)
    with pytest.raises(BadMetrics, match="two clean runs are called a"):
        margins(one, concat([one, one]))
    with pytest.raises(BadMetrics, match="two attacked runs"):
        margins(concat([one, one]), one)
