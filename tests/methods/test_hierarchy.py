"""Methods for a lead and workers: numbers by hand, and what each is in a simpler case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from handmade import NAN, credit, near, on, run, runs, weight

from podium.credit import BadCredit, Credit, apply
from podium.graph import units
from podium.methods import METHODS, credit_of
from podium.rewards import score
from podium.trace.columns import Text, Trace

HALF = 0.5 / (0.5**0.5 + 1e-6)  # the z-score of 1 among 1 and 0: (1 - 0.5) / (sqrt(0.5) + eps)


def plainly(trace: Trace, expression: str, unit: str, reward: str = "outcome") -> list[float]:
    """What steps make of a reward, without a method."""
    values: list[float] = apply(Credit(trace, unit, score(trace, reward, unit)), expression).value.tolist()
    return values


# ReMA


def thinkers(*outcomes: float) -> Trace:
    return runs(*(run("say m high", on("say l low", tokens=2), team=r) for r in outcomes))


def test_rema_pays_both_roles_the_same_outcome() -> None:
    # outcomes 3, 0, 0: mean 1, std sqrt((4 + 1 + 1) / 2) = sqrt 3
    near(credit(thinkers(3, 0, 0), "rema"), [2 / 3**0.5] * 2 + [-1 / 3**0.5] * 4, 1e-5)


def test_rema_at_the_team_is_grpo() -> None:
    trace = thinkers(1, 0, 0.5)
    near(np.repeat(credit(trace, "grpo")[::2], 2), credit(trace, "rema"))


# Agent Lightning


def test_agent_lightning_weighs_runs_alike_whatever_they_wrote() -> None:
    trace = runs(run(on("say a", tokens=3), on("say b", tokens=1), team=1.0), run(on("say a", tokens=5), team=0.0))
    near(credit(trace, "agent_lightning"), [HALF, HALF, -HALF])
    near(
        weight(trace, "agent_lightning"), [3 / 4 / 2, 1 / 4 / 2, 1 / 2]
    )  # the share of the run's tokens, over 2 runs


def test_agent_lightning_with_one_call_a_run_is_grpo() -> None:
    trace = runs(*(run(on("say a", tokens=1), team=r) for r in (1.0, 0.25, 0.5)))
    near(credit(trace, "agent_lightning"), credit(trace, "grpo"))
    near(weight(trace, "agent_lightning"), [1 / 3] * 3)


def test_a_turn_that_does_not_say_its_length_has_no_weight() -> None:
    trace = runs(run("say a", on("say b", tokens=1), team=1.0), run(on("say a", tokens=5), team=0.0))
    near(weight(trace, "agent_lightning"), [NAN, 1 / 2, 1 / 2])


def test_weights_of_another_batch_change_nothing() -> None:
    one = [run(on("say a", tokens=3), on("say b", tokens=1), team=r, batch=0) for r in (1.0, 0.0)]
    other = [run(on("say a", tokens=2), team=r, batch=1) for r in (1.0, 0.0, 0.0)]
    apart = weight(runs(*one), "agent_lightning") + weight(runs(*other), "agent_lightning")
    near(weight(runs(*one, *other), "agent_lightning"), apart)


# MATPO


def test_matpo_hands_the_planners_credit_to_its_workers() -> None:
    trace = runs(
        run(
            on("spawn p>w planner", format=1.0),
            on("call w worker", format=0.0),
            on("result ls", after=[1]),
            team=1.0,
        ),
        run(on("say p planner", format=1.0), team=0.0),
    )
    # R = 0.9 * 1 + 0.05 * 1 + 0.05 * 0 = 0.95 and 0.05; mean 0.5, std 0.9 / sqrt 2; A = +-0.45 / (0.9 / sqrt 2)
    a = 0.45 / (0.9 / 2**0.5 + 1e-6)
    near(credit(trace, "matpo"), [a, a, NAN, -a])  # planner, worker, tool; planner
    near(weight(trace, "matpo"), [1 / 2, 1 / 2, NAN, 1 / 2])  # workers add: over 2 planner runs, not 3 agents


def test_matpo_without_workers_is_grpo_on_its_reward() -> None:
    trace = runs(*(run(on("say p planner", format=1.0), team=r) for r in (1.0, 0.5, 0.0)))
    near(credit(trace, "matpo"), plainly(trace, "zscore()", "team", "matpo"))
    near(weight(trace, "matpo"), [1 / 3] * 3)


# WideSeek-R1


def seek(*more: object, form: float = 1.0) -> Trace:
    """A run of a lead and a sub-agent, and one that formats badly after the lead failed."""
    good = run(
        on("say lead", tokens=2),
        "spawn lead>sub",
        on("call sub", tool="access", tokens=6),
        on("result web", valid=1),
        on("say sub", tokens=2),
        on("say lead", tokens=2, after=[4]),
        team=0.4,
        format=1.0,
    )
    return runs(good, run(*more, team=0.4, format=form))  # type: ignore[arg-type]


def test_wideseek_r1_weighs_agents_alike_and_learns_from_what_failed() -> None:
    trace = seek(on("say lead", tokens=4, valid=0), on("say sub", tokens=3), form=0.0)
    # R = 0.4 + 0.1 + 0.05 = 0.55, and 0 for bad form: A = +-0.275 / (0.55 / sqrt 2)
    a = 0.275 / (0.55 / 2**0.5 + 1e-6)
    near(credit(trace, "wideseek_r1"), [a, a, a, a, -a, NAN])  # lead, sub, sub, lead; failed lead, sub
    # run over 2, agents over 2: the lead wrote 2 + 2, the sub 6 + 2; in the second run one agent has a turn to learn from
    near(weight(trace, "wideseek_r1"), [2 / 4 / 4, 6 / 8 / 4, 2 / 8 / 4, 2 / 4 / 4, 1 / 2, NAN])


def test_which_turns_wideseek_r1_learns_from() -> None:
    def kept(trace: Trace) -> list[bool]:
        return [not np.isnan(a) for a in credit(trace, "wideseek_r1")][4:]

    talk = (on("say lead", tokens=1), on("say sub", tokens=1), on("say lead", tokens=1))
    failing = (talk[0], on("say sub", tokens=1, valid=0), talk[2])
    limited = (talk[0], on("say sub", tokens=1, limit=True), talk[2])
    assert kept(seek(*talk)) == [True, True, True]
    assert kept(seek(*failing)) == [True, False, True]  # good form: what failed is left out
    assert kept(seek(*talk, form=0.0)) == [False, False, True]  # nothing failed, no limit hit: the lead's last turn
    assert kept(seek(*limited, form=0.0)) == [False, True, False]
    assert kept(seek(*failing, form=0.0)) == [False, False, True]  # it is the lead's failures that count


def test_wideseek_r1_with_one_agent_a_run_is_grpo_by_run() -> None:
    trace = runs(*(run(on("say lead", tokens=n), team=r, format=1.0) for n, r in ((1, 0.0), (5, 1.0), (2, 0.5))))
    near(credit(trace, "wideseek_r1"), plainly(trace, "zscore()", "team", "wideseek"))
    near(weight(trace, "wideseek_r1"), [1 / 3] * 3)


# M-GRPO


def test_m_grpo_counts_runs_alike_however_many_subs_they_call() -> None:
    trace = runs(
        run(on("say m main", format=1.0), on("say s sub", format=1.0, expert=1.0), team=1.0),
        run(
            on("say m main", format=1.0),
            on("say s sub", format=1.0, expert=0.6),
            on("say t sub", format=0.0, expert=1.0),
            team=0.0,
        ),
    )
    # main: 1 and 0.1; mean 0.55, population std 0.45.
    # sub: 0.1 + 0.4 + 0.5 = 1 eight times; 0.1 + 0.5 * 0.6 = 0.4 and 0 (bad form) four times each: mean 9.6 / 16 = 0.6,
    # variance (8 * 0.16 + 4 * 0.04 + 4 * 0.36) / 16 = 0.18
    main, std = 0.45 / (0.45 + 1e-6), 0.18**0.5 + 1e-6
    near(credit(trace, "m_grpo"), [main, 0.4 / std, -main, -0.2 / std, -0.6 / std])
    near(weight(trace, "m_grpo"), [1, 8, 1, 4, 4])


def test_m_grpo_with_as_many_subs_in_every_run_is_a_z_score_by_role() -> None:
    trace = runs(
        *(
            run(on("say m main", format=1.0), on("say s sub", format=1.0, expert=e), team=r)
            for r, e in ((1.0, 0.2), (0.0, 0.9), (1.0, 0.5))
        )
    )
    near(credit(trace, "m_grpo"), plainly(trace, 'zscore(by=("task", "role"), ddof=0)', "turn", "m_grpo"))


def test_m_grpo_drops_at_random_and_says_so() -> None:
    subs = [on(f"say s{i} sub", format=1.0, expert=i / 9) for i in range(9)]
    trace = runs(*(run(on("say m main", format=1.0), *subs, team=r) for r in (1.0, 0.0)))
    filled = weight(trace, "m_grpo")
    assert sorted(filled[1:10]) == [0] + [1] * 8
    assert not np.isnan(credit(trace, "m_grpo")).any()


def test_a_sub_alone_with_its_repeats_is_alone() -> None:
    trace = runs(
        run(on("say m main", format=1.0), on("say s sub", format=1.0, expert=1.0), team=1.0),
        run(on("say m main", format=1.0), team=0.0),
    )
    assert np.isnan(credit(trace, "m_grpo")[1])


# MarsRL


def test_marsrl_compares_those_who_were_given_the_same() -> None:
    def solve(correct: float, verdict: float, name: str, parent: str | None = None) -> Trace:
        said = on("say s solver", correct=correct), on("say v verifier", verdict=verdict)
        return run(*said, name=name, parent=parent, branch=-1 if parent is None else 1)

    trace = runs(
        solve(1, 1, "right"), solve(1, 0, "right2", "right"), solve(0, 1, "wrong"), solve(0, 0, "wrong2", "wrong")
    )
    # two solutions, 1 and 0, each counted once; of each two verdicts, one of which agrees with it
    near(credit(trace, "marsrl"), [HALF, HALF, HALF, -HALF, -HALF, -HALF, -HALF, HALF])


def test_marsrl_with_solvers_only_is_grpo() -> None:
    trace = runs(*(run(on("say s solver", correct=r, tokens=1), team=r) for r in (1.0, 0.0, 0.0)))
    near(credit(trace, "marsrl"), credit(trace, "grpo"))


# Context-Folding


def test_fold_grpo_fines_turns_of_runs_that_succeed() -> None:
    def fold(team: float) -> Trace:
        return run(
            on("say m main", tokens_in=10),
            on("say b branch", out_of_scope=1.0, tokens_in=10),
            on("say m main", tokens_in=20_000),
            on("call c branch", out_of_scope=0.0, valid=0),
            on("say m main", tokens_in=10),
            team=team,
        )

    # outcomes 1 and 0: mean 0.5, std sqrt 0.5. The numerators of the first run: 1, 1 - 0.2, 1 - 1 (overfull), 1 - 1 (failed), 1
    std = 0.5**0.5 + 1e-6
    failed = [-0.5 / std] * 5  # clipped at 0: fines do not bite where nothing was earned
    near(credit(runs(fold(1.0), fold(0.0)), "fold_grpo"), [0.5 / std, 0.3 / std, -HALF, -HALF, 0.5 / std, *failed])


def test_fold_grpo_without_process_terms_is_grpo_however_many_turns_runs_have() -> None:
    long = [on("say m main", tokens_in=1), on("say b branch", out_of_scope=0.0), on("say m main", tokens_in=1)]
    trace = runs(run(*long, team=1.0), run(long[0], team=0.0), run(long[0], team=0.0))
    near(credit(trace, "fold_grpo"), plainly(trace, 'zscore() >> to("turn")', "team"))


# roles: DEPART, LAMO


def test_depart_normalises_each_role() -> None:
    def act(team: float, planner: float, executor: float) -> Trace:
        return run(on("say p planner", role=planner), on("say e executor", role=executor), team=team)

    trace = runs(act(1, 0.5, 1), act(0, 0.5, 1), act(0, 0.5, 0))
    # planner 1.5, 0.5, 0.5: mean 5/6, std 1/sqrt 3, A = (2/3) sqrt 3, -(1/3) sqrt 3; executor 2, 1, 0: mean 1, std 1
    near(credit(trace, "depart"), [2 / 3**0.5, 1, -1 / 3**0.5, 0, -1 / 3**0.5, -1], 1e-5)


def test_depart_with_one_role_is_grpo_on_its_sum() -> None:
    trace = runs(*(run(on("say p planner", role=0.0, tokens=1), team=r) for r in (1.0, 0.0, 0.5)))
    near(credit(trace, "depart"), credit(trace, "grpo"))


def test_lamo_charges_for_length() -> None:
    skills = ((0.9, 512), (0.5, 1024), (0.65, 256))
    trace = runs(*(run(on("say g grounding", role=r, tokens_out=n)) for r, n in skills))
    # 0.9 - 0.05 = 0.85, 0.5 - 0.1 = 0.4, 0.65 - 0.025 = 0.625: mean 0.625, std 0.225
    near(credit(trace, "lamo"), [1, -1, 0], 1e-5)


def test_lamo_at_equal_lengths_is_grpo() -> None:
    trace = runs(*(run(on("say g grounding", role=r, tokens=7), team=r) for r in (1.0, 0.0, 0.5)))
    near(credit(trace, "lamo"), credit(trace, "grpo")[::7])


# SHARP


def shapley_runs(*told: tuple[float, float, float, int]) -> Trace:
    """Runs of a and b: what they earn, what they earn without a and without b, and whether b's call is valid."""
    parts = []
    for i, (earned, without_a, without_b, valid) in enumerate(told):
        name, call = f"k{i}", on("call b", valid=valid)
        parts.append(run("say a", call, name=name, team=earned))
        for masked, rest, left in (("a", call, without_a), ("b", "say a", without_b)):
            do = {"what": "mask", "value": masked}
            parts.append(run(rest, name=f"{name}-{masked}", parent=name, branch=0, do=do, team=left))
    return runs(*parts)


def test_sharp_adds_what_would_be_lost_without_an_agent() -> None:
    trace = shapley_runs((1, 0, 1, 1), (0, 0, 1, 0), (1, 1, 0.5, 1))
    # a: 1 + 1, 0 + 0, 1 + 0: mean 1, std 1. b: 1 + 0 + 1, 0 - 1 + 0, 1 + 0.5 + 1: mean 7/6, and off it by 5/6, -13/6, 8/6:
    # variance (25 + 169 + 64) / 36 / 2 = 3.58333, std 1.892969
    b = np.array([5 / 6, -13 / 6, 8 / 6]) / (258 / 72) ** 0.5
    got = credit(trace, "sharp")
    near(got[:2] + got[4:6] + got[8:10], [1, b[0], -1, b[1], 0, b[2]], 1e-5)
    assert np.isnan(got[2:4] + got[6:8] + got[10:]).all()  # runs that were made to compare with are not trained on


def test_sharp_is_a_z_score_by_agent_where_nobody_matters() -> None:
    trace = shapley_runs(*((r, r, r, 1) for r in (1.0, 0.0, 0.5)))
    kept = np.array([0, 1, 4, 5, 8, 9])
    alone = runs(*(run("say a", "say b", team=r) for r in (1.0, 0.0, 0.5)))
    near(np.array(credit(trace, "sharp"))[kept], plainly(alone, 'zscore(by=("task", "agent"))', "agent"))


def test_a_call_of_unknown_validity_leaves_no_credit() -> None:
    trace = shapley_runs((1, 0, 1, 1), (0, 0, 1, -1), (1, 1, 0.5, 1))
    assert np.isnan(credit(trace, "sharp")[5])


# MALT


def tree(*leaves: tuple[str, str | None, int, float]) -> Trace:
    parts = "say g generator", "say v verifier", "say r refiner"
    return runs(*(run(*parts, name=n, parent=p, branch=b, team=r) for n, p, b, r in leaves))


def test_malt_labels_nodes_by_the_mean_of_their_children() -> None:
    trace = tree(("a", None, -1, 1), ("b", "a", 2, 1), ("c", "a", 1, 0), ("d", "c", 2, 0))
    # verifiers: mean(1, 1) = 1, mean(0, 0) = 0; the generator mean(1, 0) = 0.5, which is not above one half
    near(credit(trace, "malt"), [0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0])
    backed = plainly(trace, "at_end() >> tree_backup()", "turn")
    near(backed, [0.5, 1, 1, 0.5, 1, 1, 0.5, 0, 0, 0.5, 0, 0])
    near(plainly(trace, "subtree_mean()", "turn"), backed)  # the same wherever every node has as many children


def test_malt_counts_children_not_leaves() -> None:
    trace = tree(("a", None, -1, 1), ("b", "a", 2, 1), ("c", "a", 2, 1), ("d", "a", 1, 0))
    assert credit(trace, "malt")[0] == 0  # mean(1, 0); over leaves it would be 3/4


def test_malt_without_branches_is_the_outcome() -> None:
    trace = tree(("a", None, -1, 1), ("b", None, -1, 0))
    near(credit(trace, "malt"), credit(trace, "sirius"))


# filters and masks


def test_sirius_keeps_the_turns_of_runs_that_succeed() -> None:
    trace = runs(run("say a", "say b", team=0.75), run("say a", team=0.5), run("say a"))
    near(credit(trace, "sirius"), [1, 1, 0, NAN])


def test_sirius_of_a_yes_or_no_is_the_outcome() -> None:
    trace = runs(*(run("say a", "say b", team=r) for r in (1.0, 0.0)))
    near(credit(trace, "sirius"), plainly(trace, 'to("turn")', "team"))


def test_owl_trains_the_planner_alone() -> None:
    trace = runs(*(run("say p planner", "say c coordinator", "say w worker", team=r) for r in (1.0, 0.0)))
    near(credit(trace, "owl"), [1, NAN, NAN, 0, NAN, NAN])


def test_owl_of_a_planner_alone_is_sirius() -> None:
    trace = runs(*(run("say p planner", team=r) for r in (1.0, 0.0)))
    near(credit(trace, "owl"), credit(trace, "sirius"))


def test_collabuiagents_takes_the_critics_word_for_every_turn() -> None:
    trace = runs(run(on("say a", critic=1.0), on("say b", critic=0.0), "say a", team=1.0))
    near(credit(trace, "collabuiagents"), [1, 0, NAN])


def test_a_critic_who_judges_by_outcome_makes_it_sirius() -> None:
    trace = runs(*(run(on("say a", critic=r), on("say b", critic=r), team=r) for r in (1.0, 0.0)))
    near(credit(trace, "collabuiagents"), credit(trace, "sirius"))


# refusals


@pytest.mark.parametrize("step", ["trainable()", "plus_tools()"])
def test_steps_that_pay_one_unit_refuse_others(step: str) -> None:
    trace = runs(run("say a", team=1.0))
    with pytest.raises(BadCredit, match="not message"):
        apply(Credit(trace, "message", np.ones(1)), step)


def test_what_is_not_public_is_named() -> None:
    for name in ("sharp", "depart", "lamo", "sirius", "owl"):
        assert METHODS[name].known == "partial"
        assert METHODS[name].unknown


def test_weights_go_by_agent_or_run() -> None:
    with pytest.raises(BadCredit, match="agent or rollout"):
        apply(Credit(runs(run("say a")), "turn", np.ones(1)), 'weigh_tokens("team")')


def test_no_run_and_a_silent_run_are_fine() -> None:
    for name in (
        "rema",
        "agent_lightning",
        "matpo",
        "wideseek_r1",
        "m_grpo",
        "marsrl",
        "fold_grpo",
        "sharp",
        "malt",
    ):
        for trace in (Trace.of(), runs(run(team=1.0), run(team=0.0))):
            made = credit_of(trace, name)
            assert len(made.value) == len(units.rows(trace, made.unit))


# what is not there is not worth 0


@pytest.mark.parametrize("result", ["result ls", "result s solver"])
def test_marsrl_pays_a_solver_that_uses_a_tool(result: str) -> None:
    def solve(correct: float) -> Trace:
        return run("call s solver", result, on("say s solver", correct=correct), team=correct)

    near(credit(runs(solve(1.0), solve(0.0)), "marsrl"), [NAN, HALF, NAN, -HALF])


@pytest.mark.parametrize("name", ["mae", "sage", "magic", "marsrl", "m_grpo"])
def test_a_role_that_the_table_does_not_name_is_paid_nothing(name: str) -> None:
    channels = dict.fromkeys(("score", "format", "correct", "verdict", "expert", "verified"), 1.0)
    trace = runs(*(run(on("say a clerk", **channels), on("say b scribe", **channels), team=r) for r in (1.0, 0.0)))
    assert np.isnan(credit(trace, name)).all()


# M-GRPO: invocations, and their alignment


def invoked(team: float, *experts: float) -> Trace:
    """A main agent that gives one sub-agent a task after the other, of which each takes two turns."""
    events = [on("say m main", format=1.0)]
    for expert in experts:
        row = len(events)
        events += [
            on("call s sub", after=[(row - 1, "message")]),
            on("result ls", after=[(row, "return")]),
            on("return s sub", after=[row + 1], format=1.0, expert=expert),
            on("say m main", after=[(row + 2, "return")]),
        ]
    return run(*events, team=team)


def test_m_grpo_pays_invocations_not_agents() -> None:
    trace = runs(invoked(1.0, 1.0), invoked(0.0, 0.6, 0.2))
    # main 1 and 0.1: mean 0.55, deviation 0.45. sub: 0.1 + 0.4 + 0.5 = 1 eight times; 0.1 + 0.3 = 0.4 and 0.1 + 0.1 = 0.2 four times each:
    # mean 10.4 / 16 = 0.65, variance (8 * 0.35² + 4 * 0.25² + 4 * 0.45²) / 16 = 0.1275
    main, std = 0.45 / (0.45 + 1e-6), 0.1275**0.5 + 1e-6
    a, b, c = 0.35 / std, -0.25 / std, -0.45 / std
    near(credit(trace, "m_grpo"), [main, a, a, main, -main, b, b, -main, c, c, -main])
    near(weight(trace, "m_grpo"), [1 / 2, 4, 4, 1 / 2, 1 / 3, 2, 2, 1 / 3, 2, 2, 1 / 3])  # shared inside a sample


def dropped(trace: Trace) -> list[int]:
    """Of each run with nine invocations which one is dropped for eight places."""
    filled = np.array(weight(trace, "m_grpo")).reshape(len(trace), -1)
    subs = filled[:, 1::3]  # main, and then two turns of sub and one of main each time
    np.testing.assert_allclose(subs.sum(axis=1), 4.0)  # eight places, half a place a turn
    return subs.argmin(axis=1).tolist()


def nine(*names: str) -> Trace:
    return runs(*(run_named(name) for name in names))


def run_named(task: str, batch: int = -1) -> Trace:
    made = invoked(1.0, *(i / 10 for i in range(9)))
    return replace(made, task_id_n=Text.of([task]), batch_n=np.array([batch]))


def test_m_grpo_drops_another_one_in_every_run() -> None:
    trace = nine(*("q",) * 40)
    places = dropped(trace)
    assert set(places) == set(range(9))  # all are dropped somewhere; a fixed permutation drops one place only
    assert max(map(places.count, range(9))) <= 12
    assert dropped(trace) == places


def test_m_grpo_draws_by_address_whatever_else_is_in_the_batch() -> None:
    alone = dropped(nine("q", "q", "q"))
    beside = dropped(nine("p", "q", "p", "q", "q"))
    assert [beside[i] for i in (1, 3, 4)] == alone
    assert dropped(nine("p", "p", "p", "p")) != dropped(nine("q", "q", "q", "q"))
