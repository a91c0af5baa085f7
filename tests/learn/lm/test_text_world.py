"""Episodes of text worlds: every token is recorded as the model saw it, and the trace is one like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.audit.exactness import CLASSES, PROOFS, exactness  # noqa: E402
from podium.engine.models import OutOfMemory, PolicyTeam, policy_team  # noqa: E402
from podium.engine.options import Options  # noqa: E402
from podium.engine.runner import ModelRunner  # noqa: E402
from podium.envs import text  # noqa: E402
from podium.envs.conformance import random_policy  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.envs.world import World, make, play  # noqa: E402
from podium.learn.lm.text_world import PlaySettings, record, record_in_parts, scores, with_branches  # noqa: E402
from podium.learn.params import trainable, training  # noqa: E402
from podium.learn.regimes import agents_of  # noqa: E402
from podium.methods import credit_of  # noqa: E402
from podium.trace.columns import Trace, differences  # noqa: E402
from podium.trace.files import load, save  # noqa: E402
from podium.trace.rules import check  # noqa: E402

SHORT = PlaySettings(digits=1, most=4)


@pytest.fixture(scope="module")
def one() -> PolicyTeam:
    return policy_team("tiny", ["lead"])


@pytest.fixture(scope="module")
def search() -> World:
    return make("costly_search", c=0.05, most=4)


@pytest.fixture(scope="module")
def forest(one: PolicyTeam, search: World) -> tuple[Trace, Trace]:
    trace, actor = record(search, one, seeds(0, 12), SHORT, version="7", task="search")
    return trace, with_branches(trace, actor, 0.6)


@pytest.mark.parametrize("name", [n for n in trainable() if "/" not in n])
def test_a_prompt_can_be_told_by_what_changed(name: str) -> None:
    world = training(name, 0, 0, 0)
    last: dict[tuple[int, str], str] = {}
    policy, told = random_policy(0), []

    def watched(view: Any) -> Any:
        for row, shown in zip(view.row.tolist(), text.prompts(world, view), strict=True):
            if (row, view.agent) in last:
                before = last[row, view.agent]
                change = text.change(world, before, shown)
                assert text.changed(world, before, change) == shown
                told.append(len(change) / len(shown))
            last[row, view.agent] = shown
        return policy(view)

    play(world, watched, seeds(0, 4))
    assert max(told, default=0.0) < 1.0


def path(trace: Trace, row: int) -> list[int]:
    """The tokens that the model had seen when it had said what this event says."""
    found: list[int] = []
    while row >= 0:
        found = [*trace.token_k[trace.owner_k == row].tolist(), *found]
        row = int(trace.context_e[row])
    return found


def test_every_token_is_what_the_model_saw_and_said(one: PolicyTeam, forest: tuple[Trace, Trace]) -> None:
    """From ids alone, one plain forward for each generation: the log-probabilities recorded, forced ones too."""
    _, trace = forest
    policy = one.policies["all"]
    for row in np.flatnonzero(trace.model_e.codes >= 0).tolist():
        said = np.flatnonzero((trace.owner_k == row) & ~np.isnan(trace.logp_k))
        options = Options(policy.model.ids_of(trace.options(row)), policy.model.end)
        k = options.paths.index(tuple(trace.token_k[said].tolist()))
        ids = path(trace, row)
        with torch.no_grad():
            logits = policy.activate()(input_ids=torch.tensor([ids])).logits[0].double().numpy()
        for i, (place, among) in enumerate(zip(said.tolist(), options.among(k), strict=True)):
            z = logits[len(ids) - len(said) + i - 1]
            own = z[trace.token_k[place]] - np.log(np.exp(z[list(among)]).sum())
            assert np.isclose(own, trace.logp_k[place], atol=1e-5)
        assert policy.model.text(trace.token_k[said]) == trace.chosen_e[row]


def test_the_trace_is_one_like_any_other(forest: tuple[Trace, Trace], tmp_path: Path) -> None:
    alone, trace = forest
    assert check(trace) == []
    save(trace, tmp_path / "trace.jsonl")
    back = load(tmp_path / "trace.jsonl")
    assert set(differences(trace, back)) <= {"measured_n"}
    for method in ("branching_policy", "branching"):
        given = credit_of(back, method)
        np.testing.assert_array_equal(given.value, credit_of(trace, method).value)
        assert np.isfinite(given.value).any()
    given = credit_of(alone, "grpo")
    assert given.unit == "token"
    assert np.array_equal(np.isnan(given.value), alone.mask_k == 0)
    decided = np.flatnonzero(alone.model_e.codes >= 0)
    assert set(alone.version_e.take(decided).strings()) == {"all@7"}
    assert set(alone.extra_e["sampling"].take(decided).strings()) == {'"constrained"'}
    sampled = np.bincount(alone.owner_k, np.nan_to_num(alone.logp_k), minlength=alone.n_events)
    np.testing.assert_allclose(sampled[decided], alone.logp_e[decided], atol=1e-12)


def test_branches_share_their_prefix_and_force_the_rest(forest: tuple[Trace, Trace]) -> None:
    alone, trace = forest
    assert len(trace) > len(alone)
    names = trace.trace_id_n.strings()
    for run in range(len(alone), len(trace)):
        parent, local = names.index(trace.parent_n[run]), int(trace.branch_n[run])
        ours, theirs = int(trace.first_of("e")[run]), int(trace.first_of("e")[parent])
        for k in range(local):
            assert path(trace, ours + k) == path(trace, theirs + k)
        forced = trace.owner_k == ours + local
        assert (trace.mask_k[forced] == 0).all()
        assert trace.chosen_e[ours + local] != trace.chosen_e[theirs + local]
        (first,), (many,) = trace.options_of(np.array([ours + local]))
        pi = np.exp(trace.logp_o[first : first + many])
        assert np.isclose(sum(pi), 1.0)
        at = trace.options(ours + local).index(trace.chosen_e[ours + local])
        assert np.isclose(np.log(pi[at]), np.nansum(trace.logp_k[forced]))


def test_the_same_bytes_whatever_is_played_beside(
    one: PolicyTeam, search: World, forest: tuple[Trace, Trace]
) -> None:
    few, actor = record(search, one, seeds(0, 12)[:3], SHORT, version="7", task="search")
    assert differences(few, forest[0][:3]) == []
    other, _ = record(search, one, seeds(1, 3), SHORT, version="7", task="search")
    assert differences(few, other) != []
    assert differences(
        with_branches(few, actor, 0.6)[3:], forest[1][12 : 12 + len(with_branches(few, actor, 0.6)) - 3]
    ) in (
        [],
        ["trace_id_n"],
    )


def test_garbage_is_a_recorded_fault_and_the_episode_goes_on(one: PolicyTeam) -> None:
    for name, taken in (("scouts", "stop"), ("jury", None)):
        world = training(name, 0, 0, 0)
        manner = PlaySettings(free=True, longest=3, digits=1, most=4)
        trace, _ = record(world, one, seeds(0, 4), manner, version="0", task=name)
        said = np.flatnonzero(trace.model_e.codes >= 0)
        assert (trace.valid_e[said] == 0).all()
        assert set(trace.chosen_e.take(said).strings()) == {taken or world.options[0]}
        assert "is not an option here; expected one of" in str(trace.extra_e["fault"][int(said[0])])
        assert np.isnan(trace.logp_e[said]).all()
        assert (np.bincount(trace.owner_k, trace.mask_k == 1)[said] == 3).all()
        assert np.isfinite(trace.logp_k[trace.mask_k == 1]).all()
        assert check(trace) == []


def test_policies_by_role_speak_for_their_agents() -> None:
    world = make("relay", n=2)
    made = policy_team("tiny", agents_of(world), share="role", lora=2)
    trace, actor = record(world, made, seeds(0, 4), SHORT, version="1", task="relay")
    assert set(actor.engines) == {"mate", "lead"}
    said = np.flatnonzero(trace.model_e.codes >= 0)
    for row in said.tolist():
        role = str(trace.name_a[trace.agent_e[row]]).split(" ")[0]
        assert trace.version_e[row] == f"{role}@1"
        assert trace.context_e[row] == -1  # each decides once
    assert check(trace) == []
    assert check(with_branches(trace, actor, 1.0)) == []


def test_after_most_decisions_it_stops_and_says_nothing(one: PolicyTeam) -> None:
    world = make("costly_search", c=0.05)
    trace, _ = record(world, one, seeds(0, 20), PlaySettings(digits=1, most=1), version="0", task="t")
    silent = np.flatnonzero((trace.decision_e >= 0) & (trace.model_e.codes < 0))
    assert len(silent)
    assert set(trace.chosen_e.take(silent).strings()) == {"stop"}
    assert not np.isin(silent, trace.owner_k).any()


def test_a_context_that_is_full_begins_anew(search: World) -> None:
    made = policy_team("tiny", ["lead"])
    made.model.module.config.max_position_embeddings = 230
    trace, _ = record(search, made, seeds(0, 12), SHORT, version="0", task="t")
    said = np.flatnonzero(trace.model_e.codes >= 0)
    later = said[trace.t_e[said] > 0]
    assert (trace.context_e[later] == -1).any()
    assert all(len(path(trace, row)) <= 230 for row in said.tolist())
    assert check(trace) == []


def test_greedy_scores_are_those_of_the_likeliest(one: PolicyTeam, search: World) -> None:
    assert np.array_equal(scores(search, one, seeds(3, 5), SHORT), scores(search, one, seeds(3, 9), SHORT)[:5])


def crowded(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Engines whose memory holds only so many runs at once; how many each refusal would have held."""
    real, refused = ModelRunner.take, list[int]()

    def take(self: ModelRunner, length: int) -> tuple[int, int]:
        if self._held >= most:
            refused.append(self._held + 1)
            raise torch.OutOfMemoryError("no room")
        return real(self, length)

    monkeypatch.setattr(ModelRunner, "take", take)
    return refused


def test_a_judgement_that_does_not_fit_goes_on_by_halves(search: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made, dice = policy_team("tiny", ["lead"]), seeds(3, 23)
    expected = scores(search, made, dice, SHORT)
    whole = record(search, made, dice, SHORT, version="1", task="t")[0]
    refused = crowded(monkeypatch, 14)
    np.testing.assert_array_equal(scores(search, made, dice, SHORT), expected)
    assert refused
    parts = record_in_parts(search, made, dice, SHORT, version="1", task="t")
    assert differences(parts, whole) == []
    (engine,) = made.model._runners.values()
    assert (engine.rows, engine._held) == (SHORT.rows, 0)  # the next judgement is as fast as the first
    crowded(monkeypatch, 0)
    with pytest.raises(OutOfMemory, match="out of memory in generation with 1 contexts"):
        scores(search, made, dice, SHORT)


def test_what_went_through_the_model_is_what_a_trace_holds(search: World, one: PolicyTeam) -> None:
    trace, actor = record(search, one, seeds(0, 6), SHORT, version="0", task="t")
    forest = with_branches(trace, actor, 1.0)
    found = exactness(forest)
    assert found.row_g.tolist() == np.unique(forest.owner_k).tolist()
    assert set(found.class_g.tolist()) == {CLASSES.index("clean")}
    assert set(found.proof_g.tolist()) == {PROOFS.index("digest")}
    token = forest.token_k.copy()
    token[7] += 1
    assert CLASSES.index("unknown") in exactness(replace(forest, token_k=token)).class_g
