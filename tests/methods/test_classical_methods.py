"""Classical credit, worked out by hand."""

from __future__ import annotations

import pytest
from handmade import NAN, credit, near, on, run, runs

from podium.credit import BadCredit
from podium.methods import METHODS


def test_coma_is_q_of_the_choice_less_the_policys_mean() -> None:
    decision = {"decision": "delegate", "options": ["ann", "bob"], "q": [0.9, 0.4], "pi": [0.25, 0.75]}
    trace = runs(
        run(on("decide lead", chosen="ann", **decision), on("decide lead", chosen="bob", **decision), team=1.0),
        run(on("decide lead", chosen="bob", **decision), team=NAN),
    )
    # Σ π Q = .25 x .9 + .75 x .4 = .525: ann .9 - .525, bob .4 - .525; a run that was not scored pays nothing
    near(credit(trace, "coma"), [0.375, -0.125, NAN])


def test_coma_pays_nothing_on_average_and_nothing_to_who_has_no_choice() -> None:
    def chose(option: str, pi: list[float]) -> float:
        event = on("decide lead", decision="stop", options=["go", "stop"], chosen=option, q=[0.2, 0.7], pi=pi)
        return credit(runs(run(event, team=0.0)), "coma")[0]

    near(0.6 * chose("go", [0.6, 0.4]) + 0.4 * chose("stop", [0.6, 0.4]), 0.0)
    near(chose("stop", [0.0, 1.0]), 0.0)


def test_coma_says_what_it_needs() -> None:
    with pytest.raises(BadCredit, match="label 'q' on decisions"):
        credit(runs(run("decide lead", team=1.0)), "coma")


def acts(*q: float, mixer: tuple[float, ...] | None = None) -> tuple[tuple[str, dict[str, float]], ...]:
    slopes = mixer or (1.0,) * len(q)
    return tuple(
        on(f"say agent{i}", q=value, phi=value, mixer=slope, after=[])
        for i, (value, slope) in enumerate(zip(q, slopes, strict=True))
    )


def test_vdn_and_shapley_q_give_each_its_term_of_the_sum() -> None:
    trace = runs(run(*acts(0.5, -0.2, 0.1), team=1.0))
    # Q_tot = .5 - .2 + .1 = .4
    for method in ("vdn", "shapley_q"):
        near(credit(trace, method), [0.5, -0.2, 0.1])
        near(sum(credit(trace, method)), 0.4)


def test_qmix_weighs_each_term_by_the_mixers_slope() -> None:
    trace = runs(run(*acts(0.5, -0.2, 0.1, mixer=(2.0, -1.5, 0.0)), team=1.0))
    # a monotone mixer takes |w|: 2 x .5, 1.5 x -.2, 0 x .1
    near(credit(trace, "qmix"), [1.0, -0.3, 0.0])
    near(credit(trace, "agent_q_mix"), [NAN] * 3)  # its reward counts tokens, which this run does not state


def test_qmix_with_slopes_of_one_is_vdn() -> None:
    trace = runs(run(*acts(0.5, -0.2, 0.1), team=1.0), run(*acts(0.3, 0.3), team=0.0))
    near(credit(trace, "qmix"), credit(trace, "vdn"))


def test_maddpg_is_the_error_of_an_agents_own_critic() -> None:
    trace = runs(
        run(
            on("say ann", agent=1.0, q=2.0),
            on("say bob", agent=0.5, q=1.0, after=[0]),
            on("say ann", agent=4.0, q=3.0, after=[(1, "message")]),
        )
    )
    # ann: 1 + .95 x 3 - 2 = 1.85, then 4 + 0 - 3 = 1; bob acts once: .5 + 0 - 1 = -.5
    near(credit(trace, "maddpg"), [1.85, -0.5, 1.0])


def test_maddpg_with_a_true_critic_pays_nothing() -> None:
    # Q_2 = r_2 = 4, Q_1 = r_1 + .95 Q_2 = 1 + 3.8
    trace = runs(run(on("say ann", agent=1.0, q=4.8), on("result ann", agent=4.0, q=4.0, after=[0])))
    near(credit(trace, "maddpg"), [0.0, 0.0])


def masked(agent: str, reward: float) -> dict[str, object]:
    return {"parent": "run0", "branch": 0, "do": {"what": "mask", "value": agent}, "team": reward}


def test_difference_is_what_the_team_loses_without_the_agent() -> None:
    trace = runs(
        run("say ann", "say bob", "say cal", team=1.0),
        run("say bob", "say cal", **masked("ann", 0.25)),
        run("say bob", "say cal", **masked("ann", 0.75)),
        run("say ann", "say cal", **masked("bob", 1.0)),
    )
    # ann: 1 - (.25 + .75) / 2; bob: 1 - 1; nobody masked cal, and nobody was masked further in the branches
    near(credit(trace, "difference"), [0.5, 0.0, NAN, *[NAN] * 6])


def test_difference_rewards_of_a_sum_are_its_terms() -> None:
    terms = {"ann": 0.5, "bob": 0.25, "cal": -0.5}
    trace = runs(
        run(*(f"say {a}" for a in terms), team=0.25),
        *(run(*(f"say {b}" for b in terms if b != a), **masked(a, 0.25 - x)) for a, x in terms.items()),
    )
    near(credit(trace, "difference")[:3], list(terms.values()))


def test_what_words_cannot_do_is_refused() -> None:
    assert "gradient of Q through an action" in METHODS["maddpg"].unknown
