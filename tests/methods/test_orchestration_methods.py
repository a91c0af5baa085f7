"""Methods that learn to orchestrate, worked out by hand."""

from __future__ import annotations

from math import log

import pytest
from handmade import NAN, Event, credit, near, on, run, runs

from podium.credit import BadCredit
from podium.methods import METHODS, credit_of
from podium.rewards import BadReward, Now


def spawning(workers: int, returned: int, decisions: int = 1, **rewards: float) -> object:
    """A lead that decides, spawns, and gets some returns."""
    events: list[str | Event] = ["decide lead"] * decisions
    events += [on(f"spawn lead>w{i}", after=[0]) for i in range(workers)]
    events += [on(f"return w{i}>lead", after=[decisions + i]) for i in range(returned)]
    return run(*events, **rewards)


def test_parl_compares_its_three_rewards_with_the_group() -> None:
    trace = runs(spawning(4, 2, 2, team=1.0), spawning(0, 0, team=0.0))
    made = credit_of(trace, "parl", Now(progress=0.5))
    # λ = .3 x (1 - .5) = .15; r = 1 + .15 x 4/8 + .15 x 2/4 = 1.15 and 0 + 0 + 0; mean .575
    near(made.value, [0.575, 0.575, -0.575])
    near(made.weight, [1 / 3] * 3)
    assert made.unit == METHODS["parl"].pays


def test_parl_at_the_end_of_training_is_dr_grpo_of_the_outcome() -> None:
    trace = runs(spawning(4, 2, 2, team=1.0), spawning(0, 0, team=0.0), spawning(8, 8, team=0.5))
    near(credit_of(trace, "parl", Now(progress=1.0)).value, [0.5, 0.5, -0.5, 0.0])


def test_parl_pays_the_lead_alone_and_asks_how_far_training_is() -> None:
    one = run("decide lead", on("spawn lead>w", after=[0]), on("decide w", after=[1]), team=1.0)
    trace = runs(one, spawning(0, 0, team=0.0))
    near(credit_of(trace, "parl", Now(progress=1.0)).value, [0.5, NAN, -0.5])
    with pytest.raises(BadReward, match="progress"):
        credit(trace, "parl")


def test_puppeteer_brings_outcome_less_costs_back_to_each_decision() -> None:
    trace = runs(run("decide lead", "decide lead", "decide lead", team=1.0), run("decide lead", team=0.0))
    c1, c2, c3 = log(1 + 1 / 4), log(1 + 2 / 4), log(1 + 3 / 4)
    last = 1.0 - 0.1 * c3
    middle = 0.99 * last - 0.1 * c2
    near(credit(trace, "puppeteer"), [0.99 * middle - 0.1 * c1, middle, last, 0.0 - 0.1 * c1])


def test_puppeteer_pays_the_decision_to_stop_what_it_saves() -> None:
    short, long = run("decide lead", team=1.0), run(*["decide lead"] * 4, team=1.0)
    first = credit(runs(short, long), "puppeteer")
    assert first[0] > first[1]  # the same answer, sooner
    near(first[0], 1.0 - 0.1 * log(1.25))


def test_puppeteer_pays_nobody_but_the_lead() -> None:
    trace = runs(run("decide lead", on("spawn lead>w", after=[0]), on("decide w", after=[1]), team=1.0))
    near(credit(trace, "puppeteer"), [1.0 - 0.1 * log(1.25), NAN])


def test_paramanager_compares_success_in_the_group() -> None:
    trace = runs(run("decide lead", "decide lead", team=1.0), run("decide lead", team=0.0))
    # mean .5, std .5 √2 with ddof 1: ± .5 / (.70711 + 1e-6)
    a = 0.5 / (0.5**0.5 + 1e-6)
    near(credit(trace, "paramanager"), [a, a, -a])
    near(credit(runs(run("decide lead", team=1.0)), "paramanager"), [NAN])
    assert "protocol" in METHODS["paramanager"].unknown


def test_agent_q_mix_reads_the_mixers_part_of_each_action() -> None:
    size = {"tokens_in": 30.0, "tokens_out": 10.0}
    trace = runs(run(on("say ann", q=0.5, mixer=-2.0, **size), on("say bob", q=0.1, mixer=3.0, **size), team=1.0))
    near(credit(trace, "agent_q_mix"), [1.0, 0.3])  # |-2| x .5, 3 x .1
    near(credit(trace, "agent_q_mix"), credit(trace, "qmix"))


def tree() -> object:
    return runs(
        run("say ann", "say bob", team=0.0, judge=1.0),
        run("say ann", "say bob", parent="run0", branch=1, team=0.0, judge=0.0),
        run("say ann", "say bob", parent="run0", branch=0, team=0.0, judge=0.5),
    )


def test_halo_backs_scores_up_the_tree() -> None:
    # ann's first move is in runs 0 and 1: (1 + 0) / 2; all others are in one run
    near(credit(tree(), "halo"), [0.5, 1.0, 0.5, 0.0, 0.5, 0.5])


def test_halo_without_branches_is_the_score_itself() -> None:
    near(credit(runs(run("say ann", "say bob", judge=0.7)), "halo"), [0.7, 0.7])


def test_hera_compares_topologies_of_a_query() -> None:
    trace = runs(run("say a", team=1.0), run("say b", "say c", team=0.25), run("say d", task="other", team=1.0))
    near(credit(trace, "hera"), [0.375, -0.375, NAN])  # mean .625; the other query has one run alone


def test_hera_is_dr_grpo_at_the_run() -> None:
    trace = runs(*(run(on("say a", tokens=1), team=float(r)) for r in (1, 0, 0)))
    near(credit(trace, "hera"), credit(trace, "dr_grpo"))


def test_langmarl_is_what_a_language_critic_said() -> None:
    trace = runs(run(on("say ann", language=0.75), on("say bob", language=-0.5), "say ann", team=1.0))
    near(credit(trace, "langmarl"), [0.75, -0.5])
    with pytest.raises(BadCredit, match="column 'language'"):
        credit(runs(run("say ann", team=1.0)), "langmarl")


@pytest.mark.parametrize("card", ["agentspawn", "mas_zero", "latentmas"])
def test_cards_refuse_by_name_and_say_why(card: str) -> None:
    with pytest.raises(BadCredit, match=f"{card} is a card: .* no credit to compute"):
        credit(tree(), card)
