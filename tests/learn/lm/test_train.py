"""Language models that learn: whose tokens are paid what, the gradient against every path alone, and runs that end the same however often they are ended."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.credit import BadCredit  # noqa: E402
from podium.credit.forest import copies  # noqa: E402
from podium.engine.models import BadModel, policy_team  # noqa: E402
from podium.engine.options import Options  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.envs.world import make  # noqa: E402
from podium.learn.folder import BadRecipe  # noqa: E402
from podium.learn.lm import packed  # noqa: E402
from podium.learn.lm import policy as policy_module  # noqa: E402
from podium.learn.lm.policy import own_weights  # noqa: E402
from podium.learn.lm.run import LmRun, read_world_recipe  # noqa: E402
from podium.learn.lm.settings import Settings  # noqa: E402
from podium.learn.lm.text_world import PlaySettings, record, with_branches  # noqa: E402
from podium.learn.lm.token_credit import token_credit, trees  # noqa: E402
from podium.learn.loop import TRIES  # noqa: E402
from podium.learn.recipe import open_run  # noqa: E402
from podium.learn.requirements import with_step_rewards  # noqa: E402
from podium.methods import METHODS, credit_of  # noqa: E402
from podium.rewards.ledger import Now  # noqa: E402
from podium.trace.columns import Trace  # noqa: E402
from podium.trace.files import load, save  # noqa: E402
from tests.learn.lm import runs  # noqa: E402
from tests.learn.lm.steps import in_world  # noqa: E402
from tests.pages import report_of  # noqa: E402

SMALL = """
world = "costly_search"
iterations = 3
[lm]
params = { c = 0.05, most = 3 }
episodes = 6
branched = 1.0
digits = 1
parts = 2
watched = 4
judged = 40
keep = 2
"""
SHORT = PlaySettings(digits=1, most=3)
SEARCH = make("costly_search", c=0.05, most=3)


def forest(n: int = 6, share: float = 0.7) -> tuple[Any, Trace]:
    made = policy_team("tiny", ["lead"])
    trace, actor = record(SEARCH, made, seeds(0, n), SHORT, version="0", task="t")
    return made, with_branches(trace, actor, share) if share else trace


def alone(made: Any, trace: Trace, weight_k: Any) -> dict[str, Any]:
    """The gradient of -Σ_k w_k log p_k, each generation's own path through the model alone."""
    policy = made.policies["all"]
    policy.model.module.zero_grad()
    for row in np.unique(trace.owner_k[weight_k != 0]).tolist():
        ids, up = [], row
        while up >= 0:
            ids, up = [*trace.token_k[trace.owner_k == up].tolist(), *ids], int(trace.context_e[up])
        logits = policy.activate()(input_ids=torch.tensor([ids])).logits[0]
        said = np.flatnonzero((trace.owner_k == row) & ~np.isnan(trace.logp_k))
        options = Options(policy.model.ids_of(trace.options(row)), policy.model.end)
        among = options.among(options.paths.index(tuple(trace.token_k[said].tolist())))
        for i, k in enumerate(said.tolist()):
            z = logits[len(ids) - len(said) + i - 1]
            logp = z[trace.token_k[k]] - torch.logsumexp(z[list(among[i])], 0)
            (-float(weight_k[k]) * logp).backward(retain_graph=True)
    return {k: w.grad.clone() for k, w in policy.weights().items() if w.grad is not None}


@pytest.mark.parametrize(("method", "share"), [("branching_policy", 0.7), ("rloo", 0.0), ("dr_mas", 0.0)])
def test_the_gradient_is_that_of_every_path_alone(method: str, share: float) -> None:
    made, trace = forest(share=share)
    pay = token_credit(trace, credit_of(with_step_rewards(trace), method))
    assert (pay.share_k > 0).any()
    expected = alone(made, trace, pay.credit_k * pay.share_k)
    policy = made.policies["all"]
    tree, column = trees(trace, pay, policy, made)  # type: ignore[misc]
    assert tree.rho > 1.5
    assert np.isclose(column["share"].sum(), pay.share_k.sum())  # every token once
    policy.model.module.zero_grad()
    weight = torch.from_numpy(column["share"] * column["credit"]).float()
    packed.loss_and_backward(policy.activate(), [tree], lambda logp, of: -(weight[of] * logp).sum(), 400)
    for name, w in policy.weights().items():
        if name in expected:
            scale = float(expected[name].abs().max()) + 1e-12
            assert float((w.grad - expected[name]).abs().max()) / scale < 1e-4, name


def test_options_of_a_branched_decision_count_as_likely_as_they_are() -> None:
    _, trace = forest()
    pay = token_credit(trace, credit_of(with_step_rewards(trace), "branching_policy"))
    rows = np.flatnonzero(np.bincount(trace.owner_k, pay.share_k, minlength=trace.n_events))
    assert not copies(trace, rows).any()
    share = {row: pay.share_k[trace.owner_k == row].max() for row in rows.tolist()}
    for row, found in share.items():
        (at,), (many,) = trace.options_of(np.array([row]))
        pi = np.exp(trace.logp_o[at : at + many])
        label = trace.options(row).index(trace.chosen_e[row])
        assert np.isclose(found, pi[label])
    total = np.bincount(trace.owner_k, pay.share_k * pay.credit_k)  # Σ_k π_k A_k = 0 in every context
    assert np.isclose(total.sum(), 0.0, atol=1e-6)
    assert np.isclose((pay.share_k * pay.credit_k**2).sum() / pay.share_k.sum(), 1.0)


def test_entropy_is_paid_for_doubt() -> None:
    """What h adds to the credit of options adds up to nothing, and is more for what is less likely."""
    _, trace = forest()
    given = credit_of(with_step_rewards(trace), "branching_policy")
    without, with_it = token_credit(trace, given), token_credit(trace, given, entropy=0.5)
    more = with_it.credit_k - without.credit_k
    trained = without.share_k > 0
    np.testing.assert_allclose(more[trained].argmax(), without.share_k[trained].argmin())
    assert np.isclose((without.share_k * more).sum(), 0.0, atol=1e-9)


def test_it_learns_what_pays() -> None:
    """At a price of almost nothing one look is better than none: the untrained model takes it about half of the time."""
    world, made = make("costly_search", c=0.01, most=1), policy_team("tiny", ["lead"])
    settings = Settings(episodes=12, branched=1.0, digits=1, rate=3e-3, epochs=1, parts=1)
    play = PlaySettings(digits=1, most=3)
    trainer = in_world(made, settings, play, world, "branching_policy", last=20)
    lines = [trainer.step() for _ in range(5)]
    trace, _ = record(world, made, seeds(9, 40), play, version="5", task="t")
    first = np.flatnonzero((trace.t_e == 0) & (trace.decision_e >= 0))
    went = np.mean([word == "go on" for word in trace.chosen_e.take(first).strings()])
    assert went > 0.9
    assert lines[-1].entropy < lines[0].entropy


@pytest.mark.parametrize("method", ["grpo", "gspo", "remax", "branching_policy"])
def test_a_step_by_any_method(method: str) -> None:
    settings = Settings(episodes=6, branched=0.5, digits=1, epochs=1, parts=1)
    made = policy_team("tiny", ["lead"])
    before = {k: w.detach().clone() for k, w in own_weights(made).items()}
    trainer = in_world(made, settings, SHORT, SEARCH, method, METHODS[method].update)
    if method == "remax":
        with pytest.raises(ValueError, match="greedy"):
            trainer.step()
        return
    line = trainer.step()
    assert line.rows > 0
    assert line.gradient > 0
    assert any(not torch.equal(before[k], w) for k, w in own_weights(made).items())


def test_agents_that_say_nothing_need_no_policy() -> None:
    made = policy_team("tiny", ["lead"], share="role")
    trace, _ = record(SEARCH, made, seeds(0, 4), SHORT, version="0", task="t")
    assert "look" in trace.name_a.strings()
    assert (
        trees(trace, token_credit(trace, credit_of(with_step_rewards(trace), "rloo")), made.policies["lead"], made)
        is not None
    )


def relay(regime: str, **how: Any) -> tuple[dict[str, bool], Any]:
    """Which policies changed in a step, and its line."""
    world = make("relay", n=2)
    settings = Settings(episodes=6, branched=0.5, digits=1, epochs=1, parts=1, regime=regime, **how)
    made = policy_team(
        "tiny", ["lead", "mate 1", "mate 2"], share="role", lora=settings.lora, frozen=settings.frozen
    )
    if regime == "A":
        made.policies["mate"].frozen = True
    before = {k: w.detach().clone() for k, w in made.model.module.named_parameters()}
    every = {
        n: {k: w.detach().clone() for k, w in replace(m, frozen=False).weights().items()}
        for n, m in made.policies.items()
    }
    line = in_world(made, settings, SHORT, world, "branching_policy").step()
    after = {n: replace(m, frozen=False).weights() for n, m in made.policies.items()}
    if settings.lora:
        base = {k: w for k, w in made.model.module.named_parameters() if "lora" not in k}
        assert all(torch.equal(before[k], w) for k, w in base.items())
    return {n: any(not torch.equal(every[n][k], w) for k, w in after[n].items()) for n in after}, line


@pytest.mark.parametrize("lora", [0, 2])
@pytest.mark.parametrize(("regime", "learns"), [("A", [True, False]), ("B", [True, True]), ("C", [True, True])])
def test_regimes_train_whom_they_should(regime: str, learns: list[bool], lora: int) -> None:
    changed, _ = relay(regime, lora=lora)
    assert [changed["lead"], changed["mate"]] == learns


def test_a_divergence_from_the_start_is_told_and_holds_back() -> None:
    _, line = relay("B", lora=2, kl=0.1)
    assert line.divergence is not None
    assert line.divergence == pytest.approx(0.0, abs=1e-9)  # nothing has changed in the first step
    settings = Settings(episodes=6, branched=1.0, digits=1, parts=1, epochs=4, rate=1e-2, kl=1.0)
    trainer = in_world(policy_team("tiny", ["lead"]), settings, SHORT, SEARCH, "branching_policy")
    first = {k: w.clone() for k, w in trainer.policy.reference.items()}
    far = [trainer.step().divergence for _ in range(2)]
    assert far[1] is not None
    assert far[1] > 0
    assert all(torch.equal(first[k], w) for k, w in trainer.policy.reference.items())


@pytest.mark.parametrize(
    "how", [{"dtype": "bfloat16"}, {"checkpointing": True}, {"update": "clip(turn)"}, {"most_tokens": 260}]
)
def test_other_ways_to_compute_go_the_same_way(how: dict[str, Any]) -> None:
    def after(**more: Any) -> dict[str, Any]:
        settings = Settings(episodes=4, branched=1.0, digits=1, epochs=1, parts=1, **more)
        made = policy_team("tiny", ["lead"])
        before = {k: w.detach().clone() for k, w in own_weights(made).items()}
        update = more.get("update", "clip(token)")
        trainer = in_world(made, settings, SHORT, SEARCH, "branching_policy", update)
        for _ in range(2):  # after the first, it reads and speaks as before
            trainer.step()
        return {k: (w.detach() - before[k]).flatten() for k, w in own_weights(made).items()}

    plain, other = after(), after(**how)
    a, b = (torch.cat(list(x.values())) for x in (plain, other))
    alike = float(torch.nn.functional.cosine_similarity(a, b, 0))
    assert alike > (0.5 if "dtype" in how else 0.99)


def test_out_of_memory_goes_on_with_fewer_tokens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(episodes=4, branched=1.0, digits=1, epochs=1, parts=1, most_tokens=4096)
    real = packed.loss_and_backward

    def small(model: Any, made: Any, loss: Any, most: int, **more: Any) -> Any:
        if most > 1024:
            raise torch.OutOfMemoryError("no room")
        return real(model, made, loss, most, **more)

    monkeypatch.setattr(packed, "loss_and_backward", small)
    trainer = in_world(policy_team("tiny", ["lead"]), settings, SHORT, SEARCH, "branching_policy")
    assert trainer.step().most_tokens == trainer.policy.most_tokens == 1024
    monkeypatch.setattr(packed, "loss_and_backward", lambda *a, **k: small(None, None, None, 9999))
    with pytest.raises(BadModel, match="out of memory in the update with"):
        trainer.step()


def test_out_of_memory_in_generation_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr("podium.engine.runner.ModelRunner._forward", full)
    with pytest.raises(BadModel, match="out of memory in generation with 4 contexts of up to 0 tokens; fewer"):
        record(SEARCH, policy_team("tiny", ["lead"]), seeds(0, 4), SHORT, version="0", task="t")


def finished(folder: Path, recipe: str = SMALL) -> LmRun:
    run: LmRun = runs.finished(LmRun(read_world_recipe(recipe, "here"), folder))
    run.played(4, 2)
    run.judged(1, 20)
    return run


def test_a_run_that_is_killed_at_any_moment_ends_the_same(tmp_path: Path) -> None:
    whole = finished(tmp_path / "whole")
    assert [line["iteration"] for line in whole.lines] == [0, 1, 2]
    runs.killed(LmRun, read_world_recipe, SMALL, tmp_path / "killed")
    killed = finished(tmp_path / "killed")
    assert runs.kept(killed.folder) == runs.kept(whole.folder)
    names = sorted(path.name for path in (whole.folder / "traces").iterdir())
    assert names == ["0.0.jsonl", "2.0.jsonl"]
    stored = load(whole.folder / "traces" / "2.0.jsonl")
    pay = token_credit(stored, credit_of(with_step_rewards(stored), "branching_policy"))
    made = trees(stored, pay, whole.learner.team.policies["all"], whole.learner.team)
    assert made is not None  # what was stored can be trained on

    (killed.folder / "learner.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadRecipe, match=r"learner\.safetensors cannot be read"):
        LmRun(killed.asked, killed.folder)
    with pytest.raises(BadRecipe, match="holds another run"):
        LmRun(replace(whole.asked, seed=3), whole.folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lm = 3", "lm must be a table"),
        ("[lm]\nrats = 1", "no setting 'rats' in [lm]; there are"),
        ('[lm]\nrate = "fast"', "expected `float`, got `str`"),
        ("[lm]\nrehearsed = 9", "is an experiment: python -m bench.lm_results worlds"),
        ("[lm]\nepisodes = 1", "lm.episodes must be 2 or more, got 1"),
        ('[lm]\nshare = "none"', "lm.share must be one of one, role, agent"),
        ('[lm]\nregime = "A"', "in regime A only the lead learns"),
        ('[lm]\nupdate = "magic"', "no update called 'magic'"),
        ("[lm]\nparams = { q = 3 }", "costly_search has no parameter 'q'"),
    ],
)
def test_a_wrong_recipe_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_world_recipe('world = "costly_search"\n' + text, "here")
    assert says in str(caught.value)


def podium(*argv: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before}; sys.argv = ['podium', *{list(argv)!r}]; from podium.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(SMALL.replace("iterations = 3", "iterations = 1"))
    recipe, out = str(tmp_path / "recipe.toml"), str(tmp_path / "run")
    done = podium("train", recipe, "--policy", "lm", "--model", "tiny", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    told = msgspec.json.decode(done.stdout)
    assert {"before", "value", "optimum", "trivial", "regret", "model"} <= set(told)
    report = report_of((tmp_path / "run" / "report.html").read_text())
    assert [len(lesson["lines"]) for lesson in report["lessons"]] == [1]
    for argv, says in (
        (("--policy", "lm", "--model", str(tmp_path)), "holds no model"),
        (("--policy", "llm"), "--policy must be net or lm, got 'llm'"),
        (("--model", "tiny"), "--model goes with --policy lm"),
    ):
        done = podium("train", recipe, "--out", str(tmp_path / "other"), *argv)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr
    done = podium("train", recipe, "--policy", "lm", before="sys.modules['torch'] = None")
    assert done.returncode == 2
    assert "language models need the package torch, which is not installed: pip install 'podium[lm]'" in done.stderr


def test_trees_of_several_traces_go_through_the_model_together() -> None:
    made = policy_team("tiny", ["lead"])
    policy = made.policies["all"]
    found = []
    for task in ("a", "b"):
        trace, actor = record(SEARCH, made, seeds(ord(task), 4), SHORT, version="0", task=task)
        forest = with_branches(trace, actor, 1.0)
        pay = token_credit(forest, credit_of(with_step_rewards(forest), "branching_policy"))
        held = trees(forest, pay, policy, made)
        assert held is not None
        found.append(held)
    tree, columns = policy_module._joined(found)
    assert len(tree) == sum(len(one) for one, _ in found)
    for name in ("turn", "run"):  # told apart
        on = columns["share"] > 0
        first = on[: len(found[0][0])].sum()
        assert not set(columns[name][on][:first]) & set(columns[name][on][first:])
    each = np.concatenate([packed.log_probs(policy.model.module, one).detach().numpy() for one, _ in found])
    np.testing.assert_allclose(packed.log_probs(policy.model.module, tree).detach().numpy(), each, atol=1e-5)


def test_options_beside_each_other_may_count_alike() -> None:
    made = policy_team("tiny", ["lead"])
    trace, actor = record(SEARCH, made, seeds(0, 6), SHORT, version="0", task="t")
    forest = with_branches(trace, actor, 1.0)
    given = credit_of(with_step_rewards(forest), "branching_policy")
    as_said, half, alike = (token_credit(forest, given, even=e).share_k for e in (0.0, 0.5, 1.0))
    on = as_said > 0
    assert on.any()
    np.testing.assert_allclose(alike[on], 0.5)  # of two
    np.testing.assert_allclose(half, (as_said + alike) / 2)


def test_before_its_first_step_the_update_finds_what_is_on_record() -> None:
    settings = Settings(episodes=6, digits=1)
    trainer = in_world(policy_team("tiny", ["lead"]), settings, SHORT, SEARCH, "grpo", METHODS["grpo"].update)
    assert trainer.step().off < 1e-5


def test_a_method_that_pays_nobody_is_refused_with_the_reason() -> None:
    settings = Settings(episodes=4, parts=1, epochs=1)
    trainer = in_world(policy_team("tiny", ["lead"]), settings, SHORT, SEARCH, "owl")
    for _ in range(TRIES - 1):
        line = trainer.step()
        assert (line.paid, line.rows, trainer.policy.updates) == (0.0, 0, 0)
    with pytest.raises(BadCredit, match=r"no decision of the policy is paid: .*by role they are lead"):
        trainer.step()
    line = trainer.step("grpo")
    assert line.paid == line.rows / line.decisions == 7 / 8  # one was ended by the cap, which nobody chose


def test_credit_of_the_kept_traces_is_what_the_update_used(tmp_path: Path) -> None:
    """Must-hold 24.1: one iteration with its traces kept; what is computed from the files is the same to the bit."""
    settings = Settings(episodes=6, worlds=2, branched=0.5, digits=1, epochs=1, parts=1)
    for method in ("branching_policy", "dr_mas"):
        trainer = in_world(policy_team("tiny", ["lead"]), settings, SHORT, SEARCH, method)
        trainer.step()
        assert len(trainer.rollouts) == 2
        for number, (one, used) in enumerate(zip(trainer.rollouts, trainer.credit, strict=True)):
            save(one.trace, tmp_path / f"{method}.{number}.jsonl")
            again = credit_of(load(tmp_path / f"{method}.{number}.jsonl"), method, Now(0.0, ()))
            assert again.unit == used.unit
            np.testing.assert_array_equal(again.value, used.value)
            assert np.isfinite(used.value).any()


def test_stored_runs_are_learned_from_as_the_live_ones_were(tmp_path: Path) -> None:
    """The same update to the bit, from the checkpoint before it and the files."""
    recipe = SMALL.replace("keep = 2", "keep = 0").replace("iterations = 3", "iterations = 2")
    recipe = recipe.replace("parts = 2", "parts = 2\nkl = 0.1\nworlds = 2")
    table = tomllib.loads(recipe)
    whole = open_run(table, tmp_path / "whole", policy="lm", keep=True)
    lines = list(whole.iterations())
    stored = open_run(table | {"seed": 7}, tmp_path / "stored", policy="lm", source=whole.folder)  # other dice
    again = list(stored.iterations())
    assert [line | {"regret": 0, "seconds": 0} for line in lines] == [
        line | {"regret": 0, "seconds": 0} for line in again
    ]
    for name, w in own_weights(whole.learner.team).items():
        assert torch.equal(w, own_weights(stored.learner.team)[name])
    with pytest.raises(BadRecipe, match=r"no traces of iteration 2"):
        stored.stored.rollouts(stored.learner)
    other = table | {"lm": table["lm"] | {"lora": 2}}
    with pytest.raises(BadRecipe, match=r"runs of another team: expected lm\.lora = 0, got 2"):
        open_run(other, tmp_path / "other", policy="lm", source=whole.folder)
    with pytest.raises(BadRecipe, match="holds no kept runs: expected the folder of `podium train --keep`"):
        open_run(table, tmp_path / "third", policy="lm", source=stored.folder)
    assert not (tmp_path / "other").exists()
