"""One road: what is learned is learned from a trace, by one loop, and can be learned again from files."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import podium
from podium.learn.folder import BadRecipe
from podium.learn.loop import learn
from podium.learn.params import training
from podium.learn.recipe import open_run
from podium.learn.regimes import network
from podium.learn.rows import training_rows
from podium.learn.source import OURS, WorldSource
from podium.learn.stored import BadRuns, StoredRuns, keep_runs
from podium.learn.train import NetPolicy, Recipe, begin
from podium.methods import METHODS, credit_of
from podium.rewards.ledger import Now
from podium.trace import files
from podium.trace.forest import Forest

ROOT = Path(podium.__file__).parent
SMALL = Recipe(iterations=2, rows=60, worlds=2, epochs=1, parts=2, episodes=60)
PAIRS: list[tuple[str, str, dict[str, Any]]] = [  # every kind of branching, of fit, of regime and of budget
    (OURS, "costly_search", {}),
    (OURS, "relay", {}),
    (OURS, "expedition", {}),
    (OURS, "crew", {"regime": "decoupled"}),
    (OURS, "crew", {"regime": "joint", "schedule": "alternate", "staleness": 1}),
    (OURS, "costly_search", {"decisions": 200}),
    (OURS, "expedition", {"decisions": 200}),
    ("grpo", "crew", {}),
    ("grpo", "crew", {"regime": "frozen"}),
    ("gigpo", "relay", {}),
    ("parl", "scouts", {}),
    ("magrpo", "costly_search", {}),
    ("magrpo", "scouts", {"decisions": 200}),
    ("c3_value_only", "costly_search", {}),
    ("mappo", "jury", {}),
    ("coma", "jury", {}),
    ("qmix", "relay", {}),
    ("grpo", "relay", {"schedule": "round_robin"}),
]
LM = {"episodes": 4, "branched": 0.5, "epochs": 1, "parts": 2, "watched": 2, "judged": 4}
MODELS: list[dict[str, Any]] = [  # text worlds, by options and free, and a live team; every kind of branching
    {"world": "costly_search", "method": OURS, "lm": {"worlds": 2, "digits": 1, "params": {"c": 0.05, "most": 3}}},
    {"world": "relay", "method": "dr_mas", "lm": {"share": "role", "schedule": "alternate(lead, others)"}},
    {
        "world": "costly_search",
        "method": "grpo",
        "lm": {"free": True, "longest": 4, "params": {"c": 0.05, "most": 3}},
    },
    {"team": "office", "lm": {"worlds": 2, "regime": "C", "share": "role", "lora": 2}},
    {"team": "office", "method": "grpo", "lm": {"worlds": 2}},
]


def policy_of(world: str, recipe: Recipe = SMALL) -> NetPolicy:
    net = network(training(world, 0, 0, 0), recipe)
    return NetPolicy(net, recipe, begin(net, 0))


def weights(policy: NetPolicy) -> dict[str, bytes]:
    learner = policy.learner
    return {f"{t}{k}": x.tobytes() for t in ("w", "m", "v") for k, x in getattr(learner, t).items()}


@pytest.mark.parametrize(("name", "world", "settings"), PAIRS)
def test_credit_from_files_is_what_the_update_used(
    name: str, world: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """To the bit; and so is the update, made again from the files alone."""
    recipe = replace(SMALL, **settings)
    method, policy = METHODS[name], policy_of(world, recipe)
    used: list[Any] = []

    def keep(number: int, rollouts: Any, credit: Any) -> None:
        keep_runs(tmp_path, policy)(number, rollouts, credit)
        used.append(training_rows([one.observations.decisions for one in rollouts], credit))

    def worlds(i: int, k: int) -> Any:
        return training(world, 0, i + 1, k)

    source, rule = WorldSource(worlds, method, by_doubt=name == OURS), recipe.rule(method)
    done = next(learn(source, policy, method, rule, recipe.iterations, keep))
    again = policy_of(world, recipe)
    again.learner = StoredRuns(tmp_path).learner()
    stored = StoredRuns(tmp_path).rollouts(again)
    assert not any(isinstance(one.trace, Forest) for one in stored)
    credit = [credit_of(one.trace, method, Now(0.0, ())) for one in stored]
    learned = training_rows([one.observations.decisions for one in stored], credit)
    assert len(learned.rows) == len(used[0].rows) > 0
    for mine, theirs in zip(learned.rows, used[0].rows, strict=True):
        for column in ("logp", "credit", "weight"):
            assert getattr(mine, column).tobytes() == getattr(theirs, column).tobytes()
        assert mine.seen.items.tobytes() == theirs.seen.items.tobytes()
    assert learned.paid == used[0].paid == done.change.paid
    once = next(learn(StoredRuns(tmp_path), again, method, rule, recipe.iterations))
    assert once.change == done.change
    assert weights(again) == weights(policy)


@pytest.mark.parametrize("settings", MODELS, ids=lambda one: f"{one.get('world', 'office')}-{one.get('method')}")
def test_language_models_too(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credit from the files is what the update used, and the update made again from them is the same, to the bit."""
    pytest.importorskip("transformers")
    from podium.learn.lm.policy import LmPolicy, own_weights

    used: list[Any] = []
    real = LmPolicy.update
    monkeypatch.setattr(LmPolicy, "update", lambda *given: used.append(given[2]) or real(*given))
    recipe = settings | {"iterations": 2, "lm": LM | settings["lm"]}
    first = open_run(recipe, tmp_path / "first", policy="lm", keep=True)
    lines = list(first.iterations())
    live, method = used.copy(), first.method
    for i, credit in enumerate(live):
        paths = sorted((tmp_path / "first" / "traces").glob(f"{i}.*.jsonl"))
        again = [credit_of(files.load(path), method, Now(i / 2, ())) for path in paths]
        assert [one.value.tobytes() for one in again] == [one.value.tobytes() for one in credit]
    second = open_run(recipe, tmp_path / "second", policy="lm", source=tmp_path / "first")
    apart = ("regret", "seconds")
    for line, other in zip(lines, second.iterations(), strict=True):
        assert {k: v for k, v in line.items() if k not in apart} == {
            k: v for k, v in other.items() if k not in apart
        }
    assert sum(line["rows"] for line in lines)
    again, learned = own_weights(second.learner.team), own_weights(first.learner.team)
    assert all(learned[name].equal(w) for name, w in again.items())


def test_a_run_that_was_kept_is_learned_from_again(tmp_path: Path) -> None:
    settings = {"world": "jury", "iterations": 2, "rows": 60, "worlds": 1, "epochs": 1, "parts": 2}
    first = open_run(settings, tmp_path / "first", keep=True)
    lines = list(first.iterations())
    second = open_run(settings, tmp_path / "second", source=tmp_path / "first")
    again = list(second.iterations())
    assert [line["gradient"] for line in lines] == [line["gradient"] for line in again]
    assert [line["mix"] for line in lines] == [line["mix"] for line in again]
    assert all(np.array_equal(first.learner.w[k], second.learner.w[k]) for k in first.learner.w)
    sample = files.load(tmp_path / "second/sampled/1.jsonl")
    assert sample == files.load(tmp_path / "first/kept/1/0.jsonl")[:3]
    with pytest.raises(BadRecipe, match="runs of another network"):
        open_run({**settings, "world": "crew"}, tmp_path / "third", source=tmp_path / "first")
    with pytest.raises(BadRuns, match="holds no kept runs"):
        open_run(settings, tmp_path / "fourth", source=tmp_path / "second")


def test_runs_that_cannot_be_seen_again_are_refused(tmp_path: Path) -> None:
    settings = {"world": "jury", "iterations": 1, "rows": 60, "worlds": 1, "epochs": 1, "parts": 2}
    for _ in open_run(settings, tmp_path / "first", keep=True).iterations():
        pass
    path = tmp_path / "first" / "kept" / "0" / "0.jsonl"
    trace = files.load(path)
    files.save(replace(trace, call_e=np.full(trace.n_events, -1)), path)
    second = open_run(settings, tmp_path / "second", source=tmp_path / "first")
    with pytest.raises(BadRuns, match="cannot be replayed: the runs do not say in which order"):
        list(second.iterations())


# ---- every optimizer step on a policy's parameters is reached through the loop alone

OPTIMIZERS = {"adam", "adamw"}  # functions that make a step
CRITICS = {"_mixer"}  # what is fitted before credit is given, and is no policy


def functions(path: Path) -> dict[str, tuple[str, set[str]]]:
    """Of each function or method of a file the class that it is in, and the names of what it calls."""
    functions_of = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, child.name)
            elif isinstance(child, ast.FunctionDef):
                calls = [c.func for c in ast.walk(child) if isinstance(c, ast.Call)]
                names = {
                    f.id if isinstance(f, ast.Name) else f.attr
                    for f in calls
                    if isinstance(f, ast.Name | ast.Attribute)
                }
                functions_of[child.name] = (inside, names)
            else:
                visit(child, inside)

    visit(ast.parse(path.read_text()), "")
    return functions_of


def test_parameters_of_a_policy_change_in_the_loop_alone() -> None:
    """Whoever calls an optimizer, in `learn` and `learn/lm`, is called in the end by `Policy.update`; and that by `learn`."""
    every = [
        (name, inside, calls)
        for path in sorted((ROOT / "learn").rglob("*.py"))
        for name, (inside, calls) in functions(path).items()
    ]
    steps, entries = set(OPTIMIZERS), set[str]()
    while True:
        callers = {
            (inside, name) for name, inside, calls in every if calls & steps and name not in CRITICS | OPTIMIZERS
        }
        entries = {inside for inside, name in callers if name == "update"}
        new = {name for _, name in callers if name != "update"} - steps
        if not new:
            break
        steps |= new
    assert entries == {"NetPolicy", "LmPolicy"}
    assert {"updated", "updated_by_regime", "gradient_steps", "apply_gradient"} == steps - OPTIMIZERS
    called = set[str]().union(*(calls for _, _, calls in every))
    assert steps <= called  # nobody makes a step but whom `update` calls
    assert not [path.name for path in (ROOT / "learn").rglob("*.py") if "torch.optim" in path.read_text()]
    callers_of_update = [
        path.name
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "update"
        and ast.unparse(node.func.value) == "policy"
    ]
    assert callers_of_update == ["loop.py"]


# ---- updates are expressions


def test_the_small_network_does_what_an_update_says() -> None:
    """Bounds and bonus are those of the expression; another bound is another policy, the recipe's own the same."""

    def learned(**settings: Any) -> dict[str, bytes]:
        recipe, net = replace(SMALL, **settings), network(training("jury", 0, 0, 0), SMALL)
        policy = NetPolicy(net, recipe, begin(net, 0))
        row = METHODS[OURS]
        source = WorldSource(lambda i, k: training("jury", 0, i + 1, k), row, by_doubt=True)
        for _ in learn(source, policy, row, recipe.rule(row), 2):
            pass
        return weights(policy)

    own = learned()
    assert own == learned(update="method") == learned(update="clip(token, 0.3, 0.3)")
    assert own == learned(update="skip_zeros >> clip(token)")  # no credit is 0 here
    for other in ("reinforce", "clip(token, 0.001, 0.001)", "clip(token) + entropy(0.01)"):
        assert own != learned(update=other), other


@pytest.mark.parametrize(
    ("update", "says"),
    [
        ("dpo", "the small network cannot do dpo"),
        ("clip(sequence)", "cannot clip by sequence"),
        ("clip(token) + kl(0.1)", "cannot do kl"),
        ("clip(", "expected"),
    ],
)
def test_an_update_that_it_cannot_do_is_refused_by_name(update: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadRecipe, match=says.replace("(", r"\(")):
        open_run({"world": "jury", "update": update}, tmp_path / "run")
    assert not (tmp_path / "run").exists()
