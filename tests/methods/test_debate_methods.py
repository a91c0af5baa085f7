"""Methods for teams that argue, judge or play: numbers by hand, and what each is in a simpler case."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from handmade import NAN, credit, near, on, run, runs

from podium.credit import BadCredit, Credit, apply
from podium.graph import units
from podium.methods import METHODS, credit_of
from podium.rewards import score
from podium.trace.columns import Text, Trace

HALF = 0.5 / 0.5**0.5  # the z-score of 1 among 1 and 0, up to eps


def plainly(trace: Trace, expression: str, unit: str, reward: str = "outcome") -> list[float]:
    """What steps make of a reward, without a method."""
    values: list[float] = apply(Credit(trace, unit, score(trace, reward, unit)), expression).value.tolist()
    return values


def z(*values: float) -> np.ndarray:
    return (np.array(values) - np.mean(values)) / np.std(values, ddof=1)


# CoMAS


def test_comas_pays_solutions_and_critiques_out_of_one_verdict() -> None:
    trace = runs(
        run("say a", on("say b", verdict=1.0), on("say c", verdict=0.5, after=[0]), on("say j", after=[1, 2])),
        run(
            "say b", on("say a", verdict=0.0), on("say c", verdict=0.5, after=[0]), on("say j", after=[1], valid=0)
        ),
    )
    # solutions: mean(1, 0.5) = 0.75 and mean(0, 0.5) = 0.25; critiques: 1 - v; judges: 0, and -1 if nobody can read it
    pay = [0.75, 0, 0.5, 0, 0.25, 1, 0.5, -1]
    near(plainly(trace, "per_critique()", "message", "critique"), pay)
    # agent by agent: a 0.75, 1; b 0, 0.25; c 0.5, 0.5; j 0, -1: two different numbers are always 1 / sqrt 2 off their mean
    near(credit(trace, "comas"), [-HALF, -HALF, 0, HALF, HALF, HALF, 0, -HALF], 1e-5)


def test_comas_of_one_agent_of_each_kind_is_whitening_alone() -> None:
    verdicts = (1.0, 0.5, 0.5, 0.0)
    trace = runs(*(run("say a", on("say b", verdict=v)) for v in verdicts))
    near(credit(trace, "comas"), np.stack([z(*verdicts), -z(*verdicts)], 1).reshape(-1), 1e-5)  # zero-sum


# role tables: MAE, SAGE, MAGIC


def test_mae_whitens_each_role() -> None:
    def evolve(judged: float, form: float, solved: float) -> Trace:
        proposer, solver = (
            on("say p proposer", score=judged, format=form),
            on("say s solver", score=solved, format=1.0),
        )
        return run(proposer, solver, on("say j judge", format=1.0))

    trace = runs(evolve(0.9, 1, 0.5), evolve(0.4, 1, 1.0), evolve(0.7, 0, 0.2))
    proposer = z((0.9 + 0.5 + 1) / 3, (0.4 + 1) / 3, (0.7 + 0.8) / 3)  # 0.8, 0.4667 (too bad to pay for hard), 0.5
    near(proposer, [1.149932, -0.665750, -0.484182], 1e-6)
    solver = z(0.75, 1, 0.6)
    near(solver, [-0.164957, 1.072222, -0.907265], 1e-6)
    near(credit(trace, "mae"), np.stack([proposer, solver, np.zeros(3)], 1).reshape(-1), 1e-5)


def test_mae_of_solvers_only_is_whitening() -> None:
    trace = runs(*(run(on("say s solver", score=s, format=s), team=s) for s in (1.0, 0.0, 0.25)))
    near(credit(trace, "mae"), plainly(trace, "whiten()", "team"))


def sage(quality: float, verified: float, plan: float) -> Trace:
    return run(
        on("say c challenger", score=quality, format=1.0, verified=verified),
        on("say p planner", score=plan, format=1.0),
        on("say s solver", correct=0.25, format=1.0),
        "say k critic",
    )


def test_sage_pays_each_role_by_its_own_gates() -> None:
    trace = runs(sage(0.8, 1, 0.6), sage(0.8, 0, 0.2), sage(0.5, 1, 0.4))
    paid = score(trace, METHODS["sage"].reward, "agent").reshape(3, 4)
    # (0.8 + 0.75 + 1) / 3; not verified: (0.8 + 1) / 2; not good: (0.5 + 1) / 2
    near(paid[:, 0], [0.85, 0.9, 0.75])
    near(paid[:, 1], [0.8, 0.6, 0.7])
    near(
        paid[:, 2], [(0.6 + 0.25 + 1) / 3, (0.25 + 1) / 3, (0.4 + 0.25 + 1) / 3]
    )  # a plan below 0.3 counts nothing
    near(paid[:, 3], [0, 0, 0])
    # challenger: mean 0.83333, std sqrt(0.0116667 / 2) = 0.0763763
    near(np.reshape(credit(trace, "sage"), (3, 4))[:, 0], [0.218218, 0.872872, -1.091089], 1e-5)


def test_sage_of_planners_only_is_mae_of_solvers() -> None:
    told = ((1.0, 1.0), (0.5, 0.0), (0.25, 1.0))
    planners = runs(*(run(on("say p planner", score=s, format=f)) for s, f in told))
    solvers = runs(*(run(on("say p solver", score=s, format=f)) for s, f in told))
    near(credit(planners, "sage"), credit(solvers, "mae"))


def attack(harm: float, refusal: float, form: float) -> Trace:
    return run(on("say a attacker", format=form), "say d defender", harm=harm, refusal=refusal)


def test_magic_sets_attacker_against_defender() -> None:
    trace = runs(attack(1, 0.5, 1), attack(-1, -0.5, -1), attack(1, -0.5, 1))
    # defender: 1.5, -1.5, 0.5: mean 1/6, variance 14/3 / 2, std 1.527525
    # attacker: -1.5 + 1, 1.5 - 1, -0.5 + 1 = -0.5, 0.5, 0.5: mean 1/6, std 1 / sqrt 3
    got = np.reshape(credit(trace, "magic"), (3, 2))
    near(got[:, 1], [0.872872, -1.091089, 0.218218], 1e-5)
    near(got[:, 0], [-2 / 3**0.5, 1 / 3**0.5, 1 / 3**0.5], 1e-5)


def test_magic_at_equal_form_is_zero_sum() -> None:
    got = np.reshape(credit(runs(attack(1, 0.5, 1), attack(-1, -0.5, 1), attack(1, -0.5, 1)), "magic"), (3, 2))
    near(got[:, 0], -got[:, 1])


# Learning to Deliberate


def deliberate(*rounds: tuple[str, str, str], right: str = "7") -> Trace:
    """Three agents answer in rounds; the last answers are the votes."""
    said = []
    for i, answered in enumerate(rounds):
        for j, answer in enumerate(answered):
            heard = [3 * (i - 1) + k for k in range(3) if k != j] if i else []
            said.append(on(f"say {'abc'[j]}", value=answer, correct=float(answer == right), after=heard))
    last = 3 * (len(rounds) - 1)
    return run(*said, on("aggregate j", votes=[(last + j, v) for j, v in enumerate(rounds[-1])]))


def test_mpdf_pays_getting_it_right_and_tipping_the_vote() -> None:
    trace = runs(deliberate(("7", "5", "7"), ("7", "7", "5")))
    # change: a 0, b +1, c -1. The vote is right; without a or b it is a tie, 1/2, so each tipped it by 1/2; without c it is right
    near(
        plainly(trace, 'to("turn") + revote() >> meta_actions()', "turn", "correctness_delta")[3:6], [0.5, 1.5, -1]
    )
    # soft ranks at 0.8: s(-1.25) = 0.222700, s(1.875) = 0.867036, s(3.125) = 0.957912
    rank = np.array([1 + 0.222700 + 0.867036, 1 + 0.777300 + 0.957912, 1 + 0.132964 + 0.042088])
    normal = np.array([NormalDist().inv_cdf(q) for q in (rank - 0.5) / 3])
    near(credit(trace, "mpdf"), [NAN] * 3 + (normal - normal.mean()).tolist() + [NAN], 1e-5)


def test_mpdf_where_no_vote_tips_anything_ranks_the_change_alone() -> None:
    trace = runs(deliberate(("7", "5", "7"), ("7", "7", "7")))
    again = 'meta_actions() >> rank_gaussian(by="task", tau=0.8)'
    near(credit(trace, "mpdf"), plainly(trace, again, "turn", "correctness_delta"))


# games: SPIRAL, MARSHAL


def duel(first: float, ema: tuple[float, float]) -> Trace:
    return run(
        on("say p0", ema=ema[0]), on("say p1", ema=ema[1]), on("say p0", agent=first), on("say p1", agent=-first)
    )


def test_spiral_subtracts_what_a_player_usually_gets() -> None:
    # p0 won and usually gets 0.2: 0.8 for each of its turns; p1 lost and usually gets -0.1: -0.9
    near(credit(runs(duel(1.0, (0.2, -0.1))), "spiral"), [0.8, -0.9, 0.8, -0.9])


def test_spiral_before_any_game_is_the_result() -> None:
    near(credit(runs(duel(1.0, (0.0, 0.0)), duel(-1.0, (0.0, 0.0))), "spiral"), [1, -1, 1, -1, -1, 1, -1, 1])


def test_spiral_needs_the_average_on_record() -> None:
    with pytest.raises(BadCredit, match="ema"):
        credit(runs(run(on("say p0", agent=1.0))), "spiral")


def test_marshal() -> None:
    trace = runs(run(on("say p0", step=1), on("say p1", step=0), on("say p0", step=0), on("say p1", step=2)))
    # less each player's mean: 0.5, -1, -0.5, 1; over sqrt(2.5 / 3): s = 1 / 0.912871 times that
    # to go: p0 0 and -0.5 s, p1 0 and s; less the mean of each player's values: 0.25 s, -0.5 s, -0.25 s, 0.5 s
    # over sqrt(0.625 s^2 / 3) = 0.456435 s
    near(credit(trace, "marshal"), np.array([0.25, -0.5, -0.25, 0.5]) / 0.456435, 1e-5)


def test_marshal_counts_each_value_of_a_player_once() -> None:
    players = [run(on("say p", step=s)) for s in (0.0, 0.0, 0.0, 1.0)]
    # whitened 0 -> -0.5, 1 -> 1.5; less the mean of {-0.5, 1.5} = 0.5: -1, -1, -1, 1, and whitened once more
    near(credit(runs(*players), "marshal"), z(-1, -1, -1, 1), 1e-5)
    near(
        plainly(runs(*players), 'whiten() >> center(by=("game", "player"), count="unique")', "turn", "step")[3],
        1,
        1e-6,
    )


def test_marshal_of_single_turns_of_one_player_is_whitening() -> None:
    trace = runs(*(run(on("say p", step=s), team=s) for s in (1.0, 0.0, 0.25)))
    near(credit(trace, "marshal"), plainly(trace, "whiten()", "team"), 1e-6)


def test_games_are_apart() -> None:
    trace = runs(*(run(on("say p", step=s)) for s in (1.0, 3.0, 10.0, 14.0)))
    fields = {name: getattr(trace, name) for name in trace.__slots__}
    two = Trace.of(**{**fields, "env_n": Text.of(["kuhn", "kuhn", "hanabi", "hanabi"])})
    near(plainly(two, 'center(by=("game", "player"))', "turn", "step"), [-1, 1, -2, 2])
    near(plainly(trace, 'center(by=("game", "player"))', "turn", "step"), [-6, -4, 3, 7])


# MARTI and MARS2


def chain(*steps: float) -> Trace:
    """One agent's turns, each after something that another said."""
    return run(*(e for s in steps for e in ("say other", on("say a", step=s))))


def test_marti_pays_for_doing_better_than_before() -> None:
    trace = runs(chain(1.0, 0.0, 0.5))
    # the mean before: none, 1, 0.5. margin: 1, 0 - 0.5 * 1, 0.5 + 0.5 * 0
    near(plainly(trace, 'shaped_by_history("margin")', "turn", "step")[1::2], [1, -0.5, 0.5])
    near(credit(trace, "marti_margin")[1::2], [0.872872, -1.091089, 0.218218], 1e-5)  # mean 1/3, std 0.763763
    # quality: 1, 0 + 0.5 (1 * 0 - 0 * 1), 0.5 + 0.5 (0.25 - 0.25)
    near(plainly(trace, 'shaped_by_history("quality")', "turn", "step")[1::2], [1, 0, 0.5])
    near(credit(trace, "marti_quality")[1::2], [1, -1, 0], 1e-5)


def test_marti_of_first_turns_is_whitening() -> None:
    trace = runs(*(run(on("say a", step=s), team=s) for s in (1.0, 0.0, 0.25)))
    for name in ("marti_margin", "marti_quality"):
        near(credit(trace, name), plainly(trace, "whiten()", "team"))


def test_in_a_debate_the_history_is_everyones() -> None:
    trace = runs(run(on("say a", step=1.0), on("say b", step=0.0), on("say a", step=0.0)))
    near(plainly(trace, 'shaped_by_history(by="rollout")', "turn", "step"), [1, -0.5, -0.25])
    outcome = runs(run(on("say a", step=1.0), on("say b", step=0.0), team=1.0))
    near(plainly(outcome, 'shaped_by_history() + 0.5 * scored("outcome")', "turn", "step"), [1.5, 0.5])


def test_history_has_two_ways() -> None:
    with pytest.raises(BadCredit, match="margin or quality"):
        plainly(runs(chain(1.0)), 'shaped_by_history("best")', "turn", "step")


def refined(*nodes: tuple[str, str | None, int, float, float]) -> Trace:
    return runs(
        *(
            run(on("say a", tests=x), on("say b", tests=y), name=n, parent=p, branch=b, team=y)
            for n, p, b, x, y in nodes
        )
    )


def test_mars2_normalises_over_the_nodes_of_a_tree() -> None:
    trace = refined(("r", None, -1, 0.2, 0.6), ("s", "r", 1, 0.2, 1.0))
    near(credit(trace, "mars2"), [-1, 0, -1, 1], 1e-5)  # 0.2, 0.6, 1, each once: mean 0.6, std 0.4


def test_mars2_shaped_looks_at_parent_and_siblings() -> None:
    trace = refined(("r", None, -1, 0.2, 0.6), ("s", "r", 1, 0.2, 1.0))
    # 0.6 + 0.5 (0.6 - (0.5 * 0.2 + 0.5 * 1)) = 0.6, 1 + 0.5 (1 - (0.5 * 0.2 + 0.5 * 0.6)) = 1.3; the root has neither
    shaped = plainly(trace, "shaped_by_tree()", "turn", 'step("tests")')
    near(shaped, [0.2, 0.6, 0.2, 1.3])
    near(credit(trace, "mars2_shaped"), z(0.2, 0.6, 1.3)[[0, 1, 0, 2]], 1e-5)


def test_siblings_count_once_however_often_they_are_repeated() -> None:
    trace = refined(("r", None, -1, 0.2, 0.6), ("s", "r", 0, 0.8, 1.0), ("t", "r", 1, 0.2, 0.0))
    # first moves 0.2 (twice in the record) and 0.8: each has one sibling and no parent
    near(plainly(trace, "shaped_by_tree()", "turn", 'step("tests")')[::2], [-0.1, 1.1, -0.1])


def test_mars2_of_one_step_from_one_root_is_grpo() -> None:
    trace = runs(
        *(
            run(on("say a", tests=r, tokens=1), name=n, parent=p, branch=b, team=r)
            for n, p, b, r in (("r", None, -1, 1.0), ("s", "r", 0, 0.0), ("t", "r", 0, 0.25))
        )
    )
    near(credit(trace, "mars2"), credit(trace, "grpo"))


def test_mars2_shaped_without_parents_or_siblings_is_mars2() -> None:
    trace = runs(*(run(on("say a", tests=r), name=f"k{r}") for r in (1.0, 0.0)))
    near(plainly(trace, "shaped_by_tree()", "turn", 'step("tests")'), [1, 0])
    assert np.isnan(credit(trace, "mars2")).all()  # trees of one node compare nothing
    assert np.isnan(credit(trace, "mars2_shaped")).all()


# panels and majorities


def test_debate_as_reward_centres_the_verdict() -> None:
    def judged(*votes: str) -> Trace:
        return run("say a", on("aggregate j", votes=[(0, v) for v in votes]))

    trace = runs(judged("yes", "yes", "no"), judged("no", "yes"), judged("yes"))
    near(credit(trace, "debate_as_reward"), [1 / 3, -2 / 3, 1 / 3])  # 1, 0 (a tie does not pass), 1


def test_debate_as_reward_by_an_oracle_is_centring_the_outcome() -> None:
    trace = runs(*(run("say a", on("aggregate j", votes=[(0, v)]), team=float(v)) for v in ("1", "0", "0")))
    near(credit(trace, "debate_as_reward"), plainly(trace, "center()", "team"))


def debate(*answers: str, voted: tuple[str, str, str]) -> Trace:
    said = [on(f"say {'abc'[i % 3]}", value=answer, after=[]) for i, answer in enumerate(answers)]
    last = len(said) - 3
    return run(*said, on("aggregate j", votes=[(last + i, v) for i, v in enumerate(voted)]))


def test_multiagent_finetuning_keeps_what_agrees_with_the_majority() -> None:
    trace = runs(debate("7", "5", "7", "7", "7", "5", voted=("7", "7", "5")))
    # first answers: a and c are the majority's. Last ones: a stayed right 0.5, b came to it 0.5, c left it 0
    near(credit(trace, "multiagent_finetuning"), [1, 0, 1, 0.5, 0.5, 0])
    # came to it 0.8, stayed 0.2
    near(plainly(trace, "majority_mixture(0.8)", "message", "one"), [1, 0, 1, 0.2, 0.8, 0])


def test_multiagent_finetuning_of_one_round_is_agreement_with_the_vote() -> None:
    trace = runs(debate("7", "5", "7", voted=("7", "5", "7")), debate("1", "2", "3", voted=("1", "2", "3")))
    near(credit(trace, "multiagent_finetuning"), [1, 0, 1, NAN, NAN, NAN])  # no majority, no label


def test_between_the_first_answer_and_the_last_there_is_no_label() -> None:
    rounds = ("7", "5", "7", "7", "7", "7", "7", "7", "7")
    got = credit(runs(debate(*rounds, voted=("7", "7", "7"))), "multiagent_finetuning")
    near(got, [1, 0, 1, NAN, NAN, NAN, 0.5, 0.5, 0.5])


# refusals


@pytest.mark.parametrize("step", ["per_critique()", "majority_mixture()"])
def test_steps_that_pay_messages_refuse_other_units(step: str) -> None:
    with pytest.raises(BadCredit, match="not turn"):
        apply(Credit(runs(run("say a")), "turn", np.ones(1)), step)


def test_meta_actions_are_turns() -> None:
    with pytest.raises(BadCredit, match="not message"):
        apply(Credit(runs(run("say a")), "message", np.ones(1)), "meta_actions()")


def test_what_is_not_public_is_named() -> None:
    for name in ("sage", "debate_as_reward", "multiagent_finetuning"):
        assert METHODS[name].known == "partial"
        assert METHODS[name].unknown


def test_no_run_and_a_silent_run_are_fine() -> None:
    names = (
        "comas",
        "mae",
        "sage",
        "magic",
        "marshal",
        "marti_margin",
        "mars2",
        "mars2_shaped",
        "debate_as_reward",
    )
    for name in (*names, "multiagent_finetuning"):
        for trace in (Trace.of(), runs(run(team=1.0), run(team=0.0))):
            made = credit_of(trace, name)
            assert len(made.value) == len(units.rows(trace, made.unit))
