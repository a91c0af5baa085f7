"""Updates and schedules are expressions: read, printed, checked, and refused by name."""

import pytest

from podium.expression import parse, spell
from podium.methods import METHODS
from podium.methods.update import BadUpdate, read_schedule, read_update, refusal


def test_every_row_of_the_table_has_an_update_and_a_schedule_that_are_read_and_printed() -> None:
    for method in METHODS.values():
        for text, read in ((method.update, read_update), (method.schedule, read_schedule)):
            once = read(text)
            assert read(once.text).terms == once.terms, method.name
            assert spell(parse(text)) == once.text


# What is published of each method's loss and of who learns when; a method that is in neither learns jointly, by clipped ratios of tokens.
ANY = "branching spawn_branching stop_branching branching_policy branching_turns stopping stopping_best revote closed_difference shapley spawn_shapley prefix_value"
UPDATES = {
    "reinforce": "coma difference collm_cc collm_dc rloo remax opo puppeteer magrpo mareinforce marloo maremax magrpo_cross",
    "q_learning": "qmix agent_q_mix",
    "q_learning(double=True)": "vdn",
    "deterministic": "maddpg",
    "deterministic(through=agent)": "shapley_q",
    "stop_beyond(kl=0.001) >> clip(turn)": "marft_action",
    "stop_beyond(kl=0.001) >> clip(token)": "marft_token",
    "clip(token) + entropy(by=role)": "mae",
    "match_ranks": "mpdf",
    "clip(turn)": "magic",
    "skip_zeros >> clip(token)": "spiral",
    "dual_clip(token) + kl(0.2)": "marshal",
    "truncated(2) >> clip(sequence)": "mars2 mars2_shaped",
    "mean_over(none) >> clip(token)": "debate_as_reward",
    "mean_over(run) >> clip(token)": "agent_lightning",
    "mean_over(planner) >> clip(token)": "matpo",
    "clip(token, 0.2, 0.28)": "dapo fold_grpo",
    "clip(sequence, 0.2, 0.28)": "m_grpo",
    "clip(sequence)": "gspo",
    "cap_log_ratio(3) >> dual_clip(turn, most=3)": "rema",
    "clip(token) + kl(0.001)": "wideseek_r1",
    "sft(on=examples)": "multiagent_finetuning",
    "sft(on=turns)": "sirius",
    "dpo(pairs=siblings)": "malt",
    "dpo(pairs=planner)": "owl",
    "dpo(pairs=adversarial)": "collabuiagents",
    "mirror": "parl",
    "edit_prompts": "hera langmarl",
    "none": "halo agentspawn mas_zero latentmas",
    "any": ANY,
}
SCHEDULES = {
    "replay": "vdn qmix shapley_q agent_q_mix",
    "replay(target=True)": "maddpg",
    "warm_up(critic) >> round_robin": "marft_action marft_token",
    "decentralised": "comas",
    "decoupled": "m_grpo",
    "offline": "mpdf malt",
    "offline(rounds=3)": "multiagent_finetuning sirius",
    "offline(learns=planner)": "owl",
    "offline(graph=random)": "collabuiagents",
    "joint(roles=one_after_the_other)": "mae",
    "joint(self_play=True)": "spiral marshal",
    "joint(redraw=all_or_none)": "dapo",
    "joint(optimizer=agent)": "dr_mas",
    "joint(order=last_turn_first)": "magrpo mareinforce marloo maremax",
    "alternate(lead, others, every=15)": "magic",
    "alternate(lead, others, every=10)": "rema",
    "alternate(planner, executor)": "depart",
    "asynchronous(buffer=agent)": "marti_margin marti_quality",
    "asynchronous(tree=thompson)": "mars2 mars2_shaped",
    "pipeline(prefer=wrong_solutions)": "marsrl",
    "supervised(on=examples) >> joint": "lamo",
    "supervised(on=recoveries) >> joint": "paramanager",
    "frozen(others)": "parl",
    "search(by=mcts)": "halo",
    "none": "agentspawn mas_zero latentmas",
    "any": ANY,
}


@pytest.mark.parametrize(
    ("field", "published", "usual"), [("update", UPDATES, "clip(token)"), ("schedule", SCHEDULES, "joint")]
)
def test_a_row_learns_as_its_paper_says(field: str, published: dict[str, str], usual: str) -> None:
    own = {name: text for text, names in published.items() for name in names.split()}
    assert {name: getattr(row, field) for name, row in METHODS.items()} == {n: own.get(n, usual) for n in METHODS}


def test_worked_examples() -> None:
    update = read_update("clip(token, .2, .28) + kl(.2) + 0.5 * entropy(0.1, by=role)")
    assert (update.loss.name, update.loss["low"], update.loss["high"]) == ("clip", 0.2, 0.28)
    assert update.penalty("kl") == 0.2
    assert update.penalty("entropy") == 0.05
    assert [t.name for t in read_update("truncated(2) >> skip_zeros >> clip(sequence)").filters] == [
        "truncated",
        "skip_zeros",
    ]
    schedule = read_schedule("warm_up(critic) >> round_robin(every=3)")
    assert schedule.stages[1]["every"] == 3
    assert [t.name for t in schedule.terms] == ["warm_up", "round_robin"]
    assert METHODS["dapo"].update == "clip(token, 0.2, 0.28)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("clip(token) + clip(turn)", "expected one loss"),
        ("kl(0.2)", "expected one loss"),
        ("clipp(token)", "no update called 'clipp'"),
        ("clip(word)", "over must be token, turn, sequence"),
        ("clip(token, -1)", "low must be a number"),
        ("clip(token, up=1)", "unexpected keyword argument 'up'"),
        ("clip(token) >> kl(0.1)", "expected a filter before >>"),
        ("clip(token) + truncated(2)", "truncated is a filter"),
        ("2 * clip(token)", "a loss of weight 1"),
        ("clip(token, 0.1, -1)", "high must be a number from 0 on, got -1"),
        ("clip(token, True)", "low must be a number from 0 on, got True"),
        ("dual_clip(word)", "over must be"),
        ("dual_clip(token, -1)", "low must be"),
        ("dual_clip(token, most=0.5)", "most must be a number from 1 on, got 0.5"),
        ("mirror(-1)", "low must be"),
        ("mirror(tau=-1)", "tau must be a number from 0 on"),
        ("dpo(beta=-1)", "beta must be a number from 0 on"),
        ("clip(token) + kl(-1)", "weight must be a number from 0 on"),
        ("clip(token) + entropy(-1)", "weight must be a number from 0 on"),
        ("clip(token) + entropy(0.1, by=agent)", "by must be batch or role, got 'agent'"),
        ("truncated(0.5) >> clip(token)", "most must be a number from 1 on"),
        ("cap_log_ratio(-1) >> clip(token)", "most must be a number from 0 on"),
        ("stop_beyond(-1) >> clip(token)", "kl must be a number from 0 on"),
        ("mean_over(agent) >> clip(token)", "what must be run, planner or none"),
        ("no step where the divergence exceeds 1e-3", "expected an expression like 'clip(token) + kl(0.2)'"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, why: str) -> None:
    with pytest.raises(BadUpdate) as error:
        read_update(text)
    assert why in str(error.value)


def test_a_schedule_says_what_is_wrong() -> None:
    for text, why in (
        ("alternate(lead)", "two roles or more"),
        ("alternate(lead, others, every=0)", "every must be a whole number from 1 on, got 0"),
        ("round_robin(0)", "every must be a whole number"),
        ("round_robin(1.5)", "every must be a whole number"),
        ("until_flat(0)", "every must be a whole number"),
        ("sometimes", "no schedule called 'sometimes'"),
    ):
        with pytest.raises(BadUpdate, match=why):
            read_schedule(text)


def test_what_is_not_said_is_as_published() -> None:
    defaults = {
        "clip(token, 0, 0)": {"over": "token", "low": 0, "high": 0},
        "clip()": {"over": "token", "low": None, "high": None},
        "dual_clip(most=1)": {"over": "token", "low": None, "high": None, "most": 1},
        "dual_clip()": {"over": "token", "low": None, "high": None, "most": 3.0},
        "mirror()": {"low": 0.5, "high": 2.0, "tau": 0.1},
        "sft()": {"on": "successes"},
        "dpo()": {"pairs": "siblings", "beta": 0.1},
        "q_learning()": {"double": False},
        "deterministic()": {"through": "team"},
    }
    for text, arguments in defaults.items():
        assert read_update(text).loss.arguments == arguments
    assert read_update("clip() + entropy()").penalties[0].arguments == {"weight": 0.01, "by": "batch"}
    assert read_update("clip() + entropy() + 2 * entropy(0.5)").penalty("entropy") == 1.01
    assert read_update("clip()").penalty("kl") == 0.0
    assert read_update("truncated() >> clip()").filters[0]["most"] == 2.0
    for text, arguments in (
        ("joint", {"optimizer": "one", "self_play": False, "order": "", "redraw": "", "roles": "together"}),
        ("alternate(a, b)", {"turns": ("a", "b"), "every": 1}),
        ("round_robin", {"every": 1}),
        ("until_flat", {"every": 5, "least": 0.0}),
        ("replay", {"target": False}),
        ("offline", {"rounds": 1, "learns": "all", "graph": ""}),
    ):
        assert read_schedule(text).stages[0].arguments == arguments


def test_a_learner_refuses_what_it_cannot_do_by_name() -> None:
    update = read_update("cap_log_ratio(3) >> dual_clip(turn) + kl(0.1)")
    assert refusal(update, ("cap_log_ratio", "dual_clip", "kl"), "it") == ""
    assert refusal(update, ("dual_clip",), "it").startswith("it cannot do cap_log_ratio and kl (in the update")
