"""Update expressions on tokens: every part of them is done, or refused by name before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.credit.forest import roots  # noqa: E402
from podium.engine.models import policy_team, role_of  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.envs.world import make  # noqa: E402
from podium.learn.folder import BadRecipe  # noqa: E402
from podium.learn.lm import policy as policy_module  # noqa: E402
from podium.learn.lm.losses import loss, schedule_of, update_of  # noqa: E402
from podium.learn.lm.policy import LmPolicy, own_weights  # noqa: E402
from podium.learn.lm.run import read_world_recipe  # noqa: E402
from podium.learn.lm.settings import Settings  # noqa: E402
from podium.learn.lm.text_world import PlaySettings, record, with_branches  # noqa: E402
from podium.learn.lm.token_credit import token_credit  # noqa: E402
from podium.learn.requirements import with_step_rewards  # noqa: E402
from podium.methods import METHODS, credit_of  # noqa: E402
from podium.methods.update import BadUpdate, read_update  # noqa: E402
from tests.learn.lm.steps import in_world  # noqa: E402

SEARCH = make("costly_search", c=0.05, most=3)
SHORT = PlaySettings(digits=1, most=3)
SETTINGS = Settings(episodes=6, branched=1.0, digits=1, epochs=2, parts=2, rate=1e-2)


def test_every_update_of_the_table_is_done_or_refused_by_name() -> None:
    refused = {}
    for method in METHODS.values():
        try:
            update_of(method.update)
        except BadUpdate as error:
            refused[method.update] = str(error)
    for text, why in refused.items():
        terms = [term.name for term in read_update(text).terms]
        assert any(name in why for name in terms), why
    plain = ("clip", "reinforce", "any", "dual_clip", "mirror", "truncated", "skip_zeros", "stop_beyond", "cap_log")
    assert [text for text in refused if text.startswith(plain)] == []
    assert "mean_over(planner) >> clip(token)" in refused


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "dpo(siblings)",
            "the learner of language models cannot do dpo (in the update 'dpo(siblings)'); it can do any, ",
        ),
        ("clip(word)", "over must be token, turn, sequence, got 'word'"),
        ("mean_over(planner) >> clip(token)", "cannot do mean_over(planner); it can do mean_over of run or none"),
        ("stop_beyond(0.1) >> reinforce", "reinforce has no ratio"),
        ("clip(token) + kl", "kl"),
    ],
)
def test_what_cannot_be_done_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadUpdate) as caught:
        update_of(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "replay",
            "cannot do replay (in the schedule 'replay'); it can do alternate, any, frozen, joint, round_robin; say",
        ),
        (
            "joint(order=last_turn_first)",
            "cannot do joint(order=last_turn_first); say which schedule instead, such as ",
        ),
        ("joint(self_play=True)", "cannot do joint(self_play=True)"),
        ("warm_up(critic) >> joint", "cannot do warm_up"),
    ],
)
def test_schedules_that_cannot_be_followed_are_refused(text: str, says: str) -> None:
    with pytest.raises(BadUpdate) as caught:
        schedule_of(text)
    assert says in str(caught.value)


def test_a_recipe_is_refused_before_anything_runs() -> None:
    table = {"world": "costly_search", "method": "magrpo", "lm": {"params": {"c": 0.05, "most": 3}}}
    with pytest.raises(BadUpdate, match=r"cannot do joint\(order=last_turn_first\)"):
        read_world_recipe(table, "here")
    assert read_world_recipe(table | {"lm": table["lm"] | {"schedule": "joint"}}, "here").method == "magrpo"  # type: ignore[operator]
    with pytest.raises(BadRecipe, match=r'the schedule .* takes share = "role" or "agent"'):
        read_world_recipe(table | {"lm": {"schedule": "alternate(lead, others)"}}, "here")
    with pytest.raises(BadRecipe, match="the entropy bonus is of options"):
        read_world_recipe(
            table | {"method": "grpo", "lm": {"update": "clip(token) + entropy(0.1)", "free": True}}, "here"
        )


def gradient(text: str, logp: Any, old: Any, credit: Any) -> Any:
    mine = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    one = torch.ones(len(logp), dtype=torch.float64)
    loss(
        update_of(text),
        mine,
        torch.tensor(old),
        torch.tensor(credit),
        one,
        torch.zeros(len(logp), dtype=torch.int64),
    ).backward()
    return mine.grad.numpy()


def test_a_log_ratio_is_capped() -> None:
    """Above the cap a token has no gradient; below it that of dual_clip without the filter."""
    logp, old, credit = [0.0, 0.0], [-3.0, -0.1], [-1.0, -1.0]
    both = (
        gradient(f"{before}dual_clip(token, 10, 10, most=9)", logp, old, credit)
        for before in ("", "cap_log_ratio(1) >> ")
    )
    plain, capped = both
    assert plain[0] == pytest.approx(0.0)  # beyond most times A
    assert gradient("cap_log_ratio(1) >> clip(token, 10, 99)", logp, old, [1.0, 1.0])[0] == 0.0
    assert gradient("clip(token, 10, 99)", logp, old, [1.0, 1.0])[0] == pytest.approx(-np.exp(3.0))
    assert capped[1] == plain[1] != 0.0


def test_truncated_weights_of_reinforce() -> None:
    found = gradient("truncated(2) >> reinforce", [0.0, 0.0], [-3.0, -0.1], [1.0, 1.0])
    np.testing.assert_allclose(found, [-2.0, -np.exp(0.1)])


@pytest.fixture(scope="module")
def forest() -> tuple[Any, Any, Any]:
    team = policy_team("tiny", ["lead"])
    trace, actor = record(SEARCH, team, seeds(0, 6), SHORT, version="0", task="t")
    trace = with_step_rewards(with_branches(trace, actor, 0.7))
    return team, trace, credit_of(trace, "branching_policy")


def test_rows_of_credit_zero_are_left_out(forest: tuple[Any, Any, Any]) -> None:
    _, trace, credit = forest
    value = credit.value.copy()
    paid = np.flatnonzero(~np.isnan(value))[:3]
    value[paid] = 0.0
    zeros = credit._replace(value=value) if hasattr(credit, "_replace") else replace(credit, value=value)
    counted, left = token_credit(trace, zeros), token_credit(trace, zeros, skip_zeros=True)
    gone = (counted.share_k > 0) & (left.share_k == 0)
    assert gone.any()
    assert (counted.credit_k[gone] == 0).all()
    assert np.array_equal(left.share_k > 0, (counted.share_k > 0) & (counted.credit_k != 0))


def test_by_run_every_run_counts_the_same(forest: tuple[Any, Any, Any]) -> None:
    _, trace, credit = forest
    plain, alike = token_credit(trace, credit), token_credit(trace, credit, by_run=True)
    run = roots(trace)[trace.rollout_e][trace.owner_k]
    total = np.bincount(run, alike.share_k)
    np.testing.assert_allclose(total[total > 0], total.max())
    assert np.bincount(run, plain.share_k)[total > 0].std() > 0.1
    assert alike.share_k.sum() == pytest.approx(plain.share_k.sum())


def test_entropy_is_of_options_over_the_batch_or_of_each_role() -> None:
    world = make("relay", n=2)
    team = policy_team("tiny", ["lead", "mate 1", "mate 2"])
    trace, actor = record(world, team, seeds(0, 6), SHORT, version="0", task="t")
    trace = with_step_rewards(with_branches(trace, actor, 0.7))
    credit = credit_of(trace, "branching_policy")
    none, batch, role = (
        token_credit(trace, credit, entropy=h, by_role=r) for h, r in ((0.0, False), (0.5, False), (0.5, True))
    )
    roles = np.array([role_of(str(n)) for n in trace.name_a.strings()])[trace.agent_e[trace.owner_k]]
    size = {}
    for name, pay in (("batch", batch), ("role", role)):
        bonus = np.abs(pay.credit_k - none.credit_k) * none.share_k
        size[name] = [bonus[roles == r].sum() / none.share_k[roles == r].sum() for r in ("lead", "mate")]
    share = [none.share_k[roles == r].sum() / none.share_k.sum() for r in ("lead", "mate")]
    ratio = np.array(size["role"]) / np.array(size["batch"])
    np.testing.assert_allclose(ratio * share, 0.5, rtol=1e-6)  # two roles, each weighed as if it had half of all
    weights = {}
    for text in ("clip(token)", "clip(token) + entropy(0.5)", "clip(token) + entropy(0.5, by=role)"):
        crew = policy_team("tiny", ["lead", "mate 1", "mate 2"])
        in_world(crew, SETTINGS, SHORT, world, "branching_policy", text).step()
        weights[text] = torch.cat([w.detach().flatten() for w in own_weights(crew).values()])
    a, b, c = weights.values()
    assert not torch.equal(a, b)
    assert not torch.equal(b, c)


def test_without_a_mean_the_loss_is_a_sum_over_tokens_for_each_run() -> None:
    """clip(token) is a mean over tokens; mean_over(none) is so many times as large as a run has tokens."""
    found = {}
    for text in ("clip(token)", "mean_over(none) >> clip(token)"):
        settings = replace(SETTINGS, epochs=1, parts=1)
        trainer = in_world(policy_team("tiny", ["lead"]), settings, SHORT, SEARCH, "grpo", text)
        line = trainer.step()
        pay = token_credit(trainer.rollouts[0].trace, trainer.credit[0])
        runs = len(
            np.unique(trainer.rollouts[0].trace.rollout_e[trainer.rollouts[0].trace.owner_k[pay.share_k > 0]])
        )
        found[text] = line.gradient, pay.share_k.sum() / runs
    (mean, each), (whole, _) = found.values()
    assert whole / mean == pytest.approx(each, rel=1e-4)


def test_epochs_end_where_the_policy_has_gone_too_far() -> None:
    steps = {}
    for text in ("clip(token)", "stop_beyond(0.000001) >> clip(token)", "stop_beyond(100) >> clip(token)"):
        trainer = in_world(policy_team("tiny", ["lead"]), SETTINGS, SHORT, SEARCH, "branching_policy", text)
        trainer.step()
        steps[text] = trainer.policy.updates
        assert all(w.grad is None for w in own_weights(trainer.policy.team).values())
    assert list(steps.values()) == [4, 1, 4]


def test_truncated_weights_before_a_ratio_are_to_the_policy_that_acted(forest: tuple[Any, Any, Any]) -> None:
    """Where what is on record was said by other weights, the ratio is to the policy as it is before its first step, and a token counts
    min(π_0 / π_acted, most) times."""
    team, trace, credit = forest
    other = replace(
        trace, logp_k=np.where((trace.mask_k == 1) & (trace.logp_k != 0), trace.logp_k - np.log(3.0), trace.logp_k)
    )
    update = update_of("truncated(2) >> clip(sequence)")
    policy = LmPolicy(team, 0, SETTINGS, 5, update)
    pay = token_credit(other, credit)
    policies = list(team.policies.values())
    among = {(0, "all"): policy_module.among_of(other, policies[0])}
    ((_, weighed),) = policy._weighed(update, [(other, pay)], policies, among)
    on = pay.share_k > 0
    np.testing.assert_allclose(weighed.old_k[on], trace.logp_k[on], atol=1e-5)
    drawn = on & (trace.mask_k == 1)
    np.testing.assert_allclose(weighed.share_k[drawn], 2.0 * pay.share_k[drawn])
    assert policy._weighed(update_of("clip(token)"), [(other, pay)], policies, among)[0][1] is pay


@pytest.mark.parametrize(
    ("schedule", "learn"),
    [
        ("joint", [["lead", "mate"]] * 4),
        ("frozen", [["lead"]] * 4),
        ("round_robin", [["lead"], ["mate"], ["lead"], ["mate"]]),
        ("alternate(lead, others, every=2)", [["lead"], ["lead"], ["mate"], ["mate"]]),
    ],
)
def test_a_schedule_says_who_learns(schedule: str, learn: list[list[str]]) -> None:
    team = policy_team("tiny", ["mate 1", "lead"], share="role")
    policy = LmPolicy(team, 0, SETTINGS, 5, None, schedule_of(schedule))
    found = []
    for policy.iteration in range(4):
        found.append(sorted(policy.learners()))
    assert found == learn


def test_a_turn_for_nobody_is_refused() -> None:
    team = policy_team("tiny", ["lead", "mate 1"], share="role")
    with pytest.raises(ValueError, match="gives a turn to planner, and here is only lead, mate"):
        LmPolicy(team, 0, SETTINGS, 5, None, schedule_of("alternate(planner, executor)"))


def test_who_does_not_learn_does_not_change() -> None:
    world, team = make("relay", n=2), policy_team("tiny", ["lead", "mate 1", "mate 2"], share="role")
    trainer = in_world(team, replace(SETTINGS, episodes=4), SHORT, world, "branching_policy")
    trainer.policy.schedule = schedule_of("frozen")
    before = {k: w.detach().clone() for k, w in own_weights(team).items()}
    line = trainer.step()
    assert set(line.gradients) == {"lead"}
    moved = {k.partition(":")[0] for k, w in own_weights(team).items() if not torch.equal(w, before[k])}
    assert moved == {"lead"}


def test_each_policy_may_have_its_own_longest_gradient() -> None:
    """joint(optimizer=agent): every policy's gradient is shortened alone."""
    team = policy_team("tiny", ["lead", "mate 1"], share="role")
    settings = replace(SETTINGS, norm=1.0)
    policy = LmPolicy(team, 0, settings, 5, None, schedule_of("joint(optimizer=agent)"))
    weights = own_weights(team)
    grad = {k: torch.full_like(w, 3.0 if k.startswith("lead") else 1e-6) for k, w in weights.items()}
    small = {k: g.clone() for k, g in grad.items() if k.startswith("mate")}
    lengths = policy_module._by_policy(grad)
    assert lengths["mate"] < 1 < lengths["lead"]
    policy_module.apply_gradient(policy, weights, grad, 0.0, lengths)
    assert all(torch.equal(grad[k], small[k]) for k in small)
    assert policy_module._by_policy(grad)["lead"] == pytest.approx(1.0, rel=1e-4)
