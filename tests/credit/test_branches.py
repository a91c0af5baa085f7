"""Choices in the same context against each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb, factorial, prod

import numpy as np
import pytest
from grown import NAN, choose, decides, near, on, paid, run, runs, seeded
from numpy.typing import NDArray

from experiments.effects import forest
from podium.credit import BadCredit, Credit
from podium.credit.branches import alternatives
from podium.credit.options import at_options
from podium.interval import student
from podium.metrics.effects import Effects, effects
from podium.trace.columns import Text, Trace, concat

# C3: alternatives are nodes


def tree(batch: int = -1) -> Trace:
    """Two decisions. run1 and run2 left the first run at the second; run3 left it at the first, run4 left run3 at the second."""
    return runs(
        run(decides("x"), decides("x"), team=1.0, batch=batch),
        choose("x", "y", at=1, reward=0.0, batch=batch),
        choose("x", "z", at=1, reward=0.5, batch=batch),
        choose("y", "x", at=0, reward=0.25, batch=batch),
        choose("y", "y", at=1, reward=0.75, parent="run3", batch=batch),
    )


def test_c3_by_hand() -> None:
    # first decision: x has leaves 1, 0, .5: Q = .5 (w 3); y has .25, .75: .5 (w 2). loo of each is the other: 0
    # second after x: 1 against (0 + .5) / 2; 0 against .75; .5 against .5. After y: .25 against .75 and the other way round
    near(paid(tree(), "same_prefix()", "orchestrator"), [0, 0.75, 0, -0.75, 0, 0.0, 0, -0.5, 0, 0.5])


def test_nodes_that_were_replayed_more_often_weigh_more() -> None:
    trace = runs(
        run(decides("x"), decides("x"), team=1.0),
        choose("x", "y", at=1, reward=1.0),
        choose("y", "x", at=0, reward=0.0),
        choose("z", "x", at=0, reward=0.5),
    )
    # x: 1 (w 2), y: 0 (w 1), z: .5 (w 1). loo of y: (2 + .5) / 3, of z: 2 / 3, of x: .5 / 2
    near(paid(trace, "same_prefix()", "orchestrator")[[0, 4, 6]], [0.75, -2.5 / 3, 0.5 - 2 / 3])
    near(paid(trace, 'same_prefix("mean")', "orchestrator")[[0, 4, 6]], [1 - 2.5 / 4, -2.5 / 4, 0.5 - 2.5 / 4])


def test_one_level_of_branches_is_leave_one_out() -> None:
    taken, reward = "xyzx", np.array([1.0, 0.0, 0.5, 0.25])
    first, *others = (
        (run(decides(o), team=r) if i == 0 else choose(o, at=0, reward=r))
        for i, (o, r) in enumerate(zip(taken, reward, strict=True))
    )
    flat = runs(*(run(decides(o), team=r) for o, r in zip(taken, reward, strict=True)))
    near(paid(runs(first, *others), "same_prefix()", "orchestrator"), paid(flat, "leave_one_out()", "orchestrator"))


def test_a_learned_value_as_the_baseline() -> None:
    trace = runs(
        run(decides("x", q=0.8), team=1.0),
        run(decides("y", q=0.2), parent="run0", branch=0, do={"what": "choose"}, team=0.0),
    )
    near(paid(trace, 'same_prefix("value", "q")', "orchestrator"), [1 - 0.2, 0 - 0.8])
    # half and half: 1 - (.5 x 0 + .5 x .2), 0 - (.5 x 1 + .5 x .8)
    near(paid(trace, 'same_prefix("value", "q", mix=0.5)', "orchestrator"), [0.9, -0.9])
    near(
        paid(trace, 'same_prefix("value", "q", mix=0.0)', "orchestrator"),
        paid(trace, "same_prefix()", "orchestrator"),
    )
    near(paid(trace, 'plugged("q") >> same_prefix()', "orchestrator"), [0.6, -0.6])
    with pytest.raises(BadCredit, match="needs the name of a column"):
        paid(trace, 'same_prefix("value")', "orchestrator")


def test_one_alternative_alone_is_never_silent() -> None:
    trace = runs(run(decides("x"), decides("x"), team=1.0), choose("y", at=0, reward=0.0))
    near(paid(trace, "same_prefix()", "orchestrator"), [1.0, NAN, -1.0])
    near(paid(trace, 'same_prefix(alone="zero")', "orchestrator"), [1.0, 0.0, -1.0])
    near(paid(trace, 'same_prefix(alone="raw")', "orchestrator"), [1.0, 1.0, -1.0])


@pytest.mark.parametrize("rule", ["nan", "zero", "raw"])
def test_without_branches_nothing_was_compared_and_nobody_is_paid(rule: str) -> None:
    alone = runs(run(decides("x"), team=1.0), run(decides("y"), team=0.0))
    near(paid(alone, f'same_prefix(alone="{rule}")', "orchestrator"), [NAN, NAN])
    beside = runs(*alone, run(decides("x"), name="p", team=1.0), choose("y", at=0, reward=0.0, parent="p"))
    near(paid(beside, f'same_prefix(alone="{rule}")', "orchestrator"), [NAN, NAN, 1.0, -1.0])
    orphan = runs(choose("y", "y", at=0, reward=0.5, parent="gone"))  # its parent is not among the runs
    near(paid(orphan, 'same_prefix(alone="zero")', "orchestrator"), [0.0, 0.0])


# ours: alternatives are options


def test_runs_that_were_forced_later_tell_nothing_of_a_choice() -> None:
    trace = tree()
    # first decision: x was left free in run0 only (1), y in run3 only (.25)
    got = paid(trace, 'same_prefix(same="option")', "orchestrator")
    near(got[[0, 2, 4, 6, 8]], [0.75, 0.75, 0.75, -0.75, -0.75])
    near(got[[1, 3, 5]], [1 - 0.25, 0 - 0.75, 0.5 - 0.5])


def test_how_often_an_option_was_tried_says_nothing_about_it() -> None:
    trace = runs(
        run(decides("x"), team=1.0),
        *(choose("y", at=0, reward=r) for r in (0.0, 0.0, 0.75)),
        choose("z", at=0, reward=0.5),
    )
    # x 1, y .25, z .5: x - (.25 + .5) / 2
    near(paid(trace, 'same_prefix(same="option")', "orchestrator"), [0.625, -0.5, -0.5, -0.5, -0.125])
    near(paid(trace, 'same_prefix("mean", same="option")', "orchestrator")[0], 1 - 1.75 / 3)


def test_an_option_without_a_list_is_its_label_whatever_others_list() -> None:
    labelled = runs(
        run("decide lead", on("decide lead", chosen="y"), team=1.0),
        run("decide lead", on("decide lead", chosen="x"), parent="run0", branch=1, do={"what": "choose"}, team=0.0),
    )
    listed = runs(run(decides("z"), team=1.0, name="p"), choose("y", at=0, reward=0.5, parent="p", name="b"))
    got = paid(runs(listed, labelled), 'same_prefix(same="option")', "orchestrator")
    near(got, [0.5, -0.5, NAN, 1.0, NAN, -1.0])


def test_against_the_policy() -> None:
    trace = runs(run(decides("x", pi=[0.5, 0.25, 0.25]), team=1.0), choose("y", at=0, reward=0.0))
    # z was never tried: its share falls to the others: (.5 x 1 + .25 x 0) / .75
    near(paid(trace, 'same_prefix("policy", same="option")', "orchestrator"), [1 - 2 / 3, -2 / 3])
    bad = runs(run(decides("x", pi=[0.5, 0.5]), team=1.0), choose("y", at=0, reward=0.0))
    with pytest.raises(BadCredit, match="3 options"):
        paid(bad, 'same_prefix("policy", same="option")', "orchestrator")
    with pytest.raises(BadCredit, match="label 'pi'"):
        paid(tree(), 'same_prefix("policy", same="option")', "orchestrator")


@pytest.mark.parametrize(
    ("pi", "why"),
    [
        ('"half"', "a list of numbers"),
        ('["half", "half"]', "a list of numbers"),
        ("[0.5, 0.25, 0.25]", "2 options .x, y. but 3 numbers in 'pi'"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused(pi: str, why: str) -> None:
    trace = runs(run(decides("x", "xy"), team=1.0), choose("y", at=0, reward=0.0))
    trace = replace(trace, extra_e={"pi": Text.constant(pi, 2)})
    with pytest.raises(BadCredit, match=why):
        paid(trace, 'same_prefix("policy")', "orchestrator")


def test_batches_do_not_meet() -> None:
    one, two = tree(0), replace(tree(1), reward_n={"team": np.array([0.0, 1.0, 0.25, 0.5, 0.0])})
    for step in ("same_prefix()", 'same_prefix("mean", same="option")'):
        apart = [paid(t, step, "orchestrator") for t in (one, two)]
        near(paid(concat([one, two]), step, "orchestrator"), np.concatenate(apart))


def test_what_was_not_scored_gets_nothing_and_gives_nothing() -> None:
    trace = tree()
    told = trace.reward_n["team"].copy()
    told[1] = NAN
    got = paid(replace(trace, reward_n={"team": told}), "same_prefix()", "orchestrator")
    near(got[[1, 3, 5]], [0.5, NAN, -0.5])


def test_only_decisions_and_events_have_alternatives() -> None:
    with pytest.raises(BadCredit, match="not team"):
        paid(tree(), "same_prefix()")
    with pytest.raises(BadCredit, match="node or option"):
        paid(tree(), 'same_prefix(same="word")', "orchestrator")
    with pytest.raises(BadCredit, match="loo, mean, value or policy"):
        paid(tree(), 'same_prefix("median")', "orchestrator")


def test_alternatives_count_their_runs() -> None:
    trace = tree()
    alts = alternatives(Credit(trace, "orchestrator", np.repeat(trace.reward_n["team"], 2)), "node")
    assert alts.n.tolist() == [3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0] or sorted(alts.n.tolist()) == [1.0] * 5 + [
        2.0,
        3.0,
    ]


# effects with intervals


def told(trace: Trace) -> Effects:
    return effects(Credit(trace, "orchestrator", trace.reward_n["team"]))


def two_options(x: list[float], y: list[float]) -> Trace:
    rest = [choose("x", at=0, reward=r) for r in x[1:]] + [choose("y", at=0, reward=r) for r in y]
    return runs(run(decides("x", "xy"), team=x[0]), *rest)


def test_an_effect_with_welchs_interval() -> None:
    made = told(two_options([1.0, 2.0, 3.0], [0.5, 1.5]))
    # 2 - 1; variances 1 / 3 and .5 / 2; freedom (1/3 + 1/4)² / ((1/9) / 2 + (1/16) / 1) = .3403 / .1181 = 2.88, counted as 2
    half = student(2) * (1 / 3 + 1 / 4) ** 0.5
    near([made.mean[0], made.low[0], made.high[0], made.n[0]], [1.0, 1.0 - half, 1.0 + half, 5])
    near(made.mean, [1, 1, 1, -1, -1])


def test_outcomes_of_0_and_1_are_counted_with_some_of_both() -> None:
    made = told(two_options([1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]))
    # shares (4 + 1) / 6 and 1 / 6: 4/6 ± z sqrt(2 (5/6)(1/6) / 6). All that was seen is the mean
    half = 1.96 * (2 * 5 / 36 / 6) ** 0.5
    near(made.mean[0], 1.0)
    near([made.low[0], made.high[0]], [4 / 6 - half, 4 / 6 + half], 1e-4)


def test_runs_of_one_seed_are_compared_with_each_other() -> None:
    trace = two_options([0.5, 1.25, 2.25, 3.25], [1.0, 2.0, 3.5])
    paired = told(seeded(trace, "0", "a", "b", "c", "a", "b", "c"))
    # differences .25, .25, -.25: mean 1/12, s² = 1/12; the first run shares its seed with nobody
    half = student(2) * (1 / 12 / 3) ** 0.5
    near([paired.mean[0], paired.low[0], paired.high[0], paired.n[0]], [1 / 12, 1 / 12 - half, 1 / 12 + half, 6])
    assert paired.high[0] - paired.low[0] < told(trace).high[0] - told(trace).low[0]


def test_an_option_twice_and_the_other_never_is_no_set() -> None:
    trace = two_options([0.5, 1.25, 2.25, 3.25, 0.25], [1.0, 2.0])
    mixed = told(seeded(trace, "0", "a", "a", "b", "c", "b", "c"))  # with seed a x was tried twice
    for got, want in zip(mixed, told(trace), strict=True):
        near(got, want)


def test_what_each_option_of_a_decision_was_paid() -> None:
    trace = tree()  # decisions are rows 0 and 1 of the run, 2 and 3 of run1, ..., with three options each
    credit = Credit(trace, "orchestrator", np.repeat(trace.reward_n["team"], 2))
    want = np.full((10, 3), NAN)
    want[0] = [1.0, 0.25, NAN]  # x by the run itself, y by run3, which left there; z by nobody
    want[1] = [1.0, 0.0, 0.5]  # x by itself, y by run1, z by run2
    want[7] = [0.25, 0.75, NAN]  # of run3, which run4 left
    near(at_options(credit, np.array([0, 1, 2, 7])), want.ravel())  # row 2 repeats row 0, and tells nothing of it
    silent = replace(trace, tells_n=np.array([0, 1, 1, 1, 1]))  # the run itself does not tell
    want[:2, 0] = NAN
    near(at_options(Credit(silent, "orchestrator", credit.value), np.array([0, 1, 2, 7])), want.ravel())


def test_a_set_may_hold_the_run_itself() -> None:
    trace = two_options([1.0, 3.0], [0.5, 2.5])
    made = told(seeded(trace, "0", "a", "0", "a"))
    # both sets differ by .5; with sets at 2.5 and -2.5, what the context earned apart: .25 ± z sqrt((2 x .5² + 2 x 2.5²) / 4 - .25²) / 2
    half = student(100_000) * ((2 * 0.5**2 + 2 * 2.5**2) / 4 - 0.25**2) ** 0.5 / 2
    near([made.mean[0], made.low[0], made.high[0], made.n[0]], [0.5, 0.25 - half, 0.25 + half, 4])


def test_an_inert_choice_of_0_and_1_keeps_an_interval() -> None:
    made = told(seeded(two_options([1.0, 0.0, 1.0], [1.0, 0.0, 1.0]), "0", "a", "b", "0", "a", "b"))
    # no difference in 3 sets; with one for and one against: ± z sqrt((2 / 5) / 5)
    near(made.mean[0], 0.0)
    near([made.low[0], made.high[0]], [-1.96 * 0.4 * 0.5**0.5, 1.96 * 0.4 * 0.5**0.5], 1e-4)


def test_too_few_runs_have_no_interval() -> None:
    made = told(two_options([0.5], [0.25]))
    near(made.mean, [0.25, -0.25])
    assert np.isnan(made.low).all()
    alone = told(two_options([0.5, 0.5], []))
    assert np.isnan(alone.mean).all()
    assert np.isnan(alone.high).all()


def test_welchs_interval_of_three_options() -> None:
    first, *rest = (
        [("x", r) for r in (1.0, 2.0, 3.0)] + [("y", r) for r in (0.5, 1.5)] + [("z", r) for r in (4.0, 8.0)]
    )
    trace = runs(run(decides(first[0]), team=first[1]), *(choose(o, at=0, reward=r) for o, r in rest))
    made = told(trace)
    # x against y and z: 2 - (1 + 6) / 2; variances 1/3, 1/4 and 4, those of the others by (1/2)²
    noise = np.array([1 / 3, 1 / 4, 4.0])
    variance = noise[0] + (noise[1] + noise[2]) / 4
    # freedom: 1.3958² / ((1/9) / 2 + (1/16 + 16) / 16) = 1.84, counted as 1
    assert int(variance**2 / (noise[0] ** 2 / 2 + (noise[1] ** 2 + noise[2] ** 2) / 16)) == 1
    near(
        [made.mean[0], made.low[0], made.high[0]], [-1.5, *(-1.5 + s * student(1) * variance**0.5 for s in (-1, 1))]
    )
    # y against x and z: 1 - 4; 1/4 + (1/3 + 4) / 4 = 1.3333; freedom 1.7778 / (1/16 + (1/9 / 2 + 16) / 16) = 1.67
    half = student(1) * (noise[1] + (noise[0] + noise[2]) / 4) ** 0.5
    near([made.mean[3], made.low[3], made.high[3]], [-3.0, -3.0 - half, -3.0 + half])


def test_welchs_degrees_of_freedom_of_three_options() -> None:
    """Ten runs an option, of which the first is by far the steadiest: others' spread counts by (1/2)⁴, not by (1/2)²."""
    steady, loud = np.tile([-0.1, 0.1], 5), np.tile([-1.0, 1.0], 5) + np.linspace(0, 0.1, 10)
    column = [("x", r) for r in steady + 1] + [("y", r) for r in loud] + [("z", r) for r in loud]
    trace = runs(run(decides("x"), team=column[0][1]), *(choose(o, at=0, reward=r) for o, r in column[1:]))
    made = told(trace)
    noise = np.array([np.var(steady, ddof=1), np.var(loud, ddof=1), np.var(loud, ddof=1)]) / 10
    variance = noise[0] + (noise[1] + noise[2]) / 4
    freedom = int(variance**2 / ((noise[0] ** 2 + (noise[1] ** 2 + noise[2] ** 2) / 16) / 9))
    assert freedom == 18
    near(made.high[0] - made.low[0], 2 * student(freedom) * variance**0.5)


@pytest.mark.parametrize(
    ("shift", "scale"), [(0.0, 1.0), (-0.05, 1.0), (10.0, 4.0), (1.0, -1.0), (0.1, 0.3), (1e6, 1.0)]
)
def test_intervals_move_and_stretch_with_outcomes(shift: float, scale: float) -> None:
    """Whatever two values outcomes take, and where an option of a graded context earns one value only."""
    x, y = np.ones(4), np.zeros(3)
    for a, b in (
        (x, y),
        (np.array([1.0, 0.0, 1.0, 1.0]), y),
        (np.array([0.5, 0.5, 0.5]), np.array([0.0, 1.0, 0.25])),
    ):
        plain, moved = (
            told(two_options(v.tolist(), w.tolist())) for v, w in ((a, b), (shift + scale * a, shift + scale * b))
        )
        near(moved.mean, scale * plain.mean)
        ends = np.sort(np.stack([scale * plain.low, scale * plain.high]), axis=0)
        near([moved.low, moved.high], ends, 1e-8)
        assert (moved.high - moved.low > 0.1 * abs(scale)).all()
    near(
        [told(two_options([1.0] * 4, [0.0] * 3)).low[0], told(two_options([0.95] * 4, [-0.05] * 3)).low[0]],
        [0.1730] * 2,
        1e-4,
    )


def test_an_option_that_always_earns_the_same_is_counted_with_runs_at_both_ends() -> None:
    made = told(two_options([0.5, 0.5, 0.5], [0.0, 1.0, 0.25]))
    # x: .5, with a run at 0 and one at 1: variance of the mean 2 x .25 / 5². y as ever: mean 5/12, freedom of y alone scaled up
    y = np.var([0.0, 1.0, 0.25], ddof=1) / 3
    freedom = int((0.02 + y) ** 2 / (y**2 / 2))
    half = student(freedom) * (0.02 + y) ** 0.5
    near([made.mean[0], made.low[0], made.high[0]], [0.5 - 5 / 12, 0.5 - 5 / 12 - half, 0.5 - 5 / 12 + half])


def test_a_context_that_earns_one_value_takes_its_ends_from_the_task() -> None:
    flat, wide = two_options([0.95, 0.95], [0.95, 0.95]), two_options([0.95, -0.05], [0.95, 0.95])
    assert np.isnan(told(flat).low).all()  # nothing says how far outcomes may be apart
    near(told(flat).mean, [0.0] * 4)
    ones = told(two_options([1.0, 1.0], [1.0, 1.0]))
    task = type(flat.task_id_n).constant("task", 4)
    apart = replace(flat, trace_id_n=renamed(flat.trace_id_n), parent_n=renamed(flat.parent_n), task_id_n=task)
    both = told(concat([apart, replace(wide, task_id_n=task)]))
    near([both.low[0], both.high[0]], [ones.low[0], ones.high[0]])
    assert both.high[0] > 0.1
    other = told(
        concat([replace(apart, batch_n=np.full(4, 1)), replace(wide, task_id_n=task, batch_n=np.zeros(4, int))])
    )
    assert np.isnan(other.low[:4]).all()  # batches do not meet


def renamed(names: Text) -> Text:
    return Text(names.codes, [f"other {word}" for word in names.words])


def test_two_runs_do_not_show_that_outcomes_have_two_values() -> None:
    assert np.isnan(told(two_options([0.95], [-0.05])).low).all()
    near(told(two_options([0.95, 0.95], [-0.05])).low, told(two_options([1.0, 1.0], [0.0])).low)


def intervals(earned: NDArray[np.float64], paired: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of option 0 against option 1, by (repeats, options, runs): runs of the same place share a seed, or none does."""
    repeats, options, n = earned.shape
    trace = forest("spawn", earned, np.arange(repeats * n, dtype=np.uint64).reshape(repeats, n))
    if not paired:
        trace = replace(trace, seed_n=Text.constant(None, len(trace)))
    made = effects(Credit(trace, "orchestrator", earned.ravel()))
    first = np.arange(repeats) * options * n
    return made.low[first], made.high[first]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.05, 0.95), (10.0, 14.0)])
@pytest.mark.parametrize(("n", "least"), [(3, 0.905), (5, 0.925), (8, 0.94)])
def test_exact_coverage_of_outcomes_with_two_values(low: float, high: float, n: int, least: float) -> None:
    """Summed over everything that n runs of each option can earn, for all chances in steps of .05: at worst .906, .930 and .941."""
    counts = list(product(range(n + 1), repeat=2))
    earned = np.array([[[high] * a + [low] * (n - a) for a in pair] for pair in counts])
    under, over = intervals(earned, paired=False)
    assert not np.isnan(under).any()
    chances = np.linspace(0.05, 0.95, 19)
    of_count = np.array([[comb(n, a) * p**a * (1 - p) ** (n - a) for p in chances] for a in range(n + 1)])
    covered = []
    for p, q in product(range(19), repeat=2):
        truth = (chances[p] - chances[q]) * (high - low)
        holds = (under <= truth + 1e-9) & (truth - 1e-9 <= over)
        covered.append(
            sum(of_count[a, p] * of_count[b, q] for (a, b), inside in zip(counts, holds, strict=True) if inside)
        )
    assert least <= min(covered)
    assert 0.95 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.05, 0.95)])
def test_exact_coverage_of_pairs_with_two_values(low: float, high: float) -> None:
    """Four sets can come out in 35 ways: how many earned high and high, high and low, low and high, low and low."""
    n = 4
    counts = [c for c in product(range(n + 1), repeat=4) if sum(c) == n]
    one, two = (high, high, low, low), (high, low, high, low)
    earned = np.array([[np.repeat(one, c), np.repeat(two, c)] for c in counts])
    under, over = intervals(earned, paired=True)
    covered = []
    for odds in product((0.05, 0.2, 0.4, 0.6), repeat=3):
        if (rest := 1 - sum(odds)) < 0:
            continue
        truth = (odds[1] - odds[2]) * (high - low)
        ways = [
            factorial(n) / prod(map(factorial, c)) * prod(p**k for p, k in zip((*odds, rest), c, strict=True))
            for c in counts
        ]
        covered.append(np.dot(ways, (under <= truth + 1e-9) & (truth - 1e-9 <= over)))
    assert min(covered) >= 0.94


@pytest.mark.parametrize("certain", [-1.0, 0.5, 3.0])
def test_intervals_cover_where_one_option_is_certain(certain: float) -> None:
    dice, n, repeats = np.random.default_rng(0), 8, 1000
    graded = dice.normal(size=(repeats, n))
    low, high = intervals(np.stack([np.full((repeats, n), certain), graded], 1), paired=False)
    assert 0.94 <= ((low <= certain) & (certain <= high)).mean() <= 0.99


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("paired", [True, False])
def test_intervals_cover(binary: bool, paired: bool) -> None:
    dice, n, repeats = np.random.default_rng(5), 24, 500
    noise, other = (dice.random(size) if binary else dice.normal(size=size) for size in ((repeats, n + 1),) * 2)
    other = (noise if paired else other)[:, :n]
    x = (noise < 0.6).astype(float) if binary else noise + 0.3
    y = (other < 0.4).astype(float) if binary else other + dice.normal(size=other.shape)
    truth = 0.2 if binary else 0.3
    batches = []
    base = seeded(
        two_options(x[0].tolist(), y[0].tolist()), "0", *map(str, range(1, n + 1)), *map(str, range(1, n + 1))
    )
    for r in range(repeats):
        reward = np.concatenate([x[r, n:], x[r, :n], y[r]])
        batches.append(replace(base, reward_n={"team": reward}, batch_n=np.full(2 * n + 1, r)))
    whole = concat(batches)
    if not paired:
        whole = replace(whole, seed_n=type(whole.seed_n).constant(None, len(whole)))
    made = told(whole)
    first = np.arange(repeats) * (2 * n + 1)
    covered = ((made.low <= truth) & (truth <= made.high))[first].mean()
    assert 0.92 <= covered <= 0.985


# what agents wrote, put together in all ways


def crossed(batch: int = -1) -> Trace:
    """Two agents with two answers each, all four pairs."""
    reward = {("p", "q"): 1.0, ("p", "r"): 0.0, ("s", "q"): 0.5, ("s", "r"): 0.25}
    return runs(
        *(
            run(on("say ann", content_ref=a), on("say bob", content_ref=b), team=r, batch=batch)
            for (a, b), r in reward.items()
        )
    )


def test_cross_products_average_teammates_out() -> None:
    # p: 1 + 0, s: .5 + .25; q: 1 + .5, r: 0 + .25
    near(paid(crossed(), "cross_marginal()", "message"), [1.0, 1.5, 1.0, 0.25, 0.75, 1.5, 0.75, 0.25])
    near(paid(crossed(), 'cross_marginal("mean")', "message"), [0.5, 0.75, 0.5, 0.125, 0.375, 0.75, 0.375, 0.125])


def test_with_one_answer_a_teammate_the_mean_is_the_reward() -> None:
    aligned = crossed()[[0, 3]]
    near(paid(aligned, 'cross_marginal("mean")', "message"), paid(aligned, "cross_marginal()", "message"))
    near(paid(aligned, "cross_marginal()", "message"), [1.0, 1.0, 0.25, 0.25])


def test_what_was_chosen_stands_in_for_what_was_written() -> None:
    def pair(first: str, second: str, team: float) -> Trace:
        return run(on("say ann", chosen=first), on("say bob", chosen=second, content_ref="c"), team=team)

    trace = runs(pair("x", "x", 1.0), pair("x", "y", 0.5), pair("y", "x", 0.25))
    near(paid(trace, "cross_marginal()", "message"), [1.5, 1.75, 1.5, 1.75, 0.25, 1.75])  # bob wrote c each time


def test_crosses_of_batches_do_not_meet_and_what_does_not_say_what_it_wrote_gets_nothing() -> None:
    both = concat([crossed(0), crossed(1)])
    near(paid(both, "cross_marginal()", "message"), np.tile(paid(crossed(), "cross_marginal()", "message"), 2))
    near(paid(runs(run("say ann", team=1.0)), "cross_marginal()", "message"), [NAN])
    with pytest.raises(BadCredit, match="sum or mean"):
        paid(crossed(), 'cross_marginal("max")', "message")
    with pytest.raises(BadCredit, match="not agent"):
        paid(crossed(), "cross_marginal()", "agent")
