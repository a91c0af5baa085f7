"""Who learns when: what is frozen stays to the bit, decoupled roles learn as if alone, and every schedule resumes to the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import podium.envs  # noqa: F401  (fills the registry)
from podium.envs.draws import seeds
from podium.learn import tape
from podium.learn.folder import BadRecipe, Run, read_recipe
from podium.learn.loop import Iteration
from podium.learn.mix import shares
from podium.learn.params import training
from podium.learn.policy import Net
from podium.learn.regimes import Plan, acting, learners, network, remembered, roles_of
from podium.learn.rows import TrainingRows
from podium.learn.train import Learner, Recipe, begin, current, gradient_of, loss_of, updated_by_regime
from tests.learn.playing import collected, credited, train

TINY = Recipe(iterations=4, rows=300, worlds=2, epochs=2, parts=4)
ROLES = ("lead", "mate")


def relay(recipe: Recipe) -> tuple[Net, Learner]:
    net = network(training("relay", 0, 0, 0), recipe)
    return net, begin(net, 0)


def steps(recipe: Recipe, world: str = "relay") -> Iterator[tuple[Learner, Iteration]]:
    net = network(training(world, 0, 0, 0), recipe)
    return train(net, recipe, lambda i, k: training(world, 0, i + 1, k), begin(net, 0))


def last(recipe: Recipe, world: str = "relay") -> Learner:
    *_, (learner, _) = steps(recipe, world)
    return learner


def same(a: Any, b: Any) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def of(role: str, w: dict[str, Any]) -> dict[str, Any]:
    return {k: x for k, x in w.items() if k.startswith(f"{role}/")}


def rows_of(net: Net, w: Any, world: str = "relay", seed: int = 0, **how: Any) -> list[TrainingRows]:
    return credited(collected(training(world, 0, 1, 0), net, w, seeds(seed, 200), share=1e9, room=9000, **how))


def gradient(net: Net, w: Any, rows: list[TrainingRows]) -> dict[str, Any]:
    """Of the loss of a policy, without clip or entropy."""
    at = {k: tape.Var(x.astype(np.float64)) for k, x in w.items()}
    recipe, total = replace(TINY, clip=1e9), sum(float(r.weight.sum()) for r in rows)
    terms = [
        loss_of(net, recipe, at, replace(r, spread=None), np.arange(len(r.seen)), 0.0, 1.0 / total) for r in rows
    ]
    loss = terms[0] if len(terms) == 1 else tape.plus(*terms)
    return gradient_of(loss, at)


def moved(w: Any, seed: int = 0) -> Any:
    dice = np.random.default_rng(seed)
    return {k: x + 0.3 * dice.standard_normal(x.shape).astype(x.dtype) for k, x in w.items()}


def test_roles_are_found_by_playing() -> None:
    assert roles_of(training("relay", 0, 0, 0)) == ROLES
    assert roles_of(training("expedition", 0, 0, 0)) == ("lead",)


def test_frozen_roles_have_no_gradient_and_keep_their_bytes() -> None:
    recipe = replace(TINY, regime="frozen")
    net, first = relay(recipe)
    taken = list(steps(recipe))
    assert all(set(told.change.gradients) == {"lead"} for _, told in taken)
    learned = taken[-1][0]
    for table in ("w", "m", "v"):
        assert same(of("mate", getattr(learned, table)), of("mate", getattr(first, table)))
        assert not same(of("lead", getattr(learned, table)), of("lead", getattr(first, table)))
    rows = rows_of(net, moved(first.w), roles=("lead",))
    assert {r.seen.role for r in rows} == {"lead"}
    grad = gradient(net, moved(first.w), rows)
    assert of("lead", grad)
    assert not of("mate", grad)  # none at all, not even zeros: the loss does not depend on them


def test_decoupled_roles_learn_as_if_each_were_alone() -> None:
    recipe = replace(TINY, regime="decoupled")
    net, old = relay(recipe)
    rows = rows_of(net, old.w)
    together, _, lengths = updated_by_regime(net, recipe, rows, old)
    for role in ROLES:
        alone, length, _ = updated_by_regime(net, recipe, [r for r in rows if r.seen.role == role], old)
        for table in ("w", "m", "v"):
            assert same(of(role, getattr(together, table)), of(role, getattr(alone, table)))
        assert lengths[role] == length
        assert together.memory[f"updates/{role}"] == recipe.epochs * recipe.parts
    joint, _, _ = updated_by_regime(net, replace(recipe, regime="joint"), rows, old)
    assert not same(joint.w, together.w)


def test_a_role_that_pauses_counts_only_its_own_steps() -> None:
    learner = last(replace(TINY, regime="decoupled", schedule="round_robin(every=3)"))
    steps_each = TINY.epochs * TINY.parts
    assert [int(learner.memory[f"updates/{role}"]) for role in ROLES] == [3 * steps_each, steps_each]
    assert learner.updates == 4 * steps_each


def test_joint_gradients_are_the_sum_of_each_roles() -> None:
    net, old = relay(TINY)
    w = moved(old.w)
    rows = rows_of(net, w)
    total = sum(float(r.weight.sum()) for r in rows)
    whole = gradient(net, w, rows)
    each = [(gradient(net, w, [r]), float(r.weight.sum()) / total) for r in rows]
    for name, g in whole.items():
        np.testing.assert_allclose(g, sum(part[name] * share for part, share in each if name in part), atol=1e-9)


def test_who_learns_when() -> None:
    roles = ("lead", "mate", "scout")

    def order(n: int, **plan: Any) -> list[Any]:
        return [learners(Plan(**plan), roles, i, {}) for i in range(n)]

    assert order(2) == [None, None]
    assert order(2, regime="frozen") == [("lead",)] * 2
    assert order(4, schedule="round_robin") == [("lead",), ("mate",), ("scout",), ("lead",)]
    assert order(5, schedule="alternate(every=2)") == [("lead",)] * 2 + [("mate", "scout")] * 2 + [("lead",)]
    assert learners(Plan(schedule="until_flat"), roles, 99, {"turn": np.array(4)}) == ("mate",)


def test_a_turn_ends_when_the_return_gets_no_better() -> None:
    plan, held = Plan(schedule="until_flat(every=2, least=0.1)"), {}
    turns = []
    for score in (0.0, 0.1, 0.4, 0.5, 0.45, 0.55, 0.0, 0.0, 0.0, 0.0):
        held = remembered(plan, held, {}, score)
        turns.append(int(held["turn"]))
    # .45 - .05 goes on, then .475 - .25 and .5 - .45: over; four returns later again
    assert turns == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("schedule", ["alternate(every=2)", "round_robin(every=2)"])
def test_who_does_not_learn_keeps_its_bytes(schedule: str) -> None:
    recipe = replace(TINY, regime="joint", schedule=schedule)
    seen = [relay(recipe)[1], *(learner for learner, _ in steps(recipe))]
    for i, (before, after) in enumerate(pairwise(seen)):
        learns, waits = ("lead", "mate") if i < 2 else ("mate", "lead")
        assert same(of(waits, before.w), of(waits, after.w))
        assert not same(of(learns, before.w), of(learns, after.w))


def test_no_staleness_is_synchronous_to_the_bit() -> None:
    plain = last(TINY)
    for correction in ("clip", "truncated"):
        other = last(replace(TINY, staleness=0, correction=correction, truncate=1.0))
        assert same(plain.w, other.w)
        assert same(plain.v, other.v)
    assert not plain.memory


def test_the_weights_that_act_are_so_many_iterations_old() -> None:
    recipe = replace(TINY, staleness=2)
    learners_ = [relay(recipe)[1], *(learner for learner, _ in steps(recipe))]
    for i, learner in enumerate(learners_):
        assert same(acting(recipe, learner.w, learner.memory), learners_[max(0, i - 2)].w)
    stale = last(replace(recipe, correction="truncated"))
    assert not same(learners_[-1].w, stale.w)


def test_where_one_decision_is_all_there_is_the_correction_leaves_no_bias() -> None:
    """Options are all tried and nothing comes after: what is seen and earned does not depend on the weights that acted."""
    bias = {}
    for world in ("jury", "relay"):
        net = network(training(world, 0, 0, 0), Plan())
        old, now = moved(net.initial(0)), moved(net.initial(0), seed=1)
        fresh, stale = rows_of(net, now, world), rows_of(net, old, world)
        wanted = gradient(net, now, fresh)
        given = {
            "corrected": gradient(net, now, [current(net, now, r, 1e9) for r in stale]),
            "truncated": gradient(net, now, [current(net, now, r, 1.0) for r in stale]),
        }
        size = np.sqrt(sum((g**2).sum() for g in wanted.values()))
        bias[world] = {
            name: np.sqrt(sum(((g - wanted[k]) ** 2).sum() for k, g in grad.items())) / size
            for name, grad in given.items()
        }
    assert bias["jury"]["corrected"] < 1e-4
    assert bias["jury"]["truncated"] > 0.05  # the price of bounded weights
    assert bias["relay"]["corrected"] > 0.05  # others acted before and after: what they did is not corrected


SMALL = 'world = "relay"\niterations = 8\nrows = 200\nworlds = 2\nepochs = 2\nparts = 4\n'
PLANS = {
    "frozen": 'regime = "frozen"\n',
    "joint": 'regime = "joint"\n',
    "alternate": 'regime = "decoupled"\nschedule = "alternate(every=2)"\n',
    "round robin": 'regime = "decoupled"\nschedule = "round_robin(every=3)"\n',
    "metric": 'schedule = "until_flat(every=1, least=0.02)"\n',
    "stale": 'staleness = 2\ncorrection = "truncated"\n',
    "by a method": 'method = "grpo"\nepisodes = 60\nregime = "decoupled"\nschedule = "until_flat(every=1)"\nstaleness = 1\n',
}


def kept(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("asked.json", "iterations.jsonl", "learner.npz")}


def finished(run: Run) -> Run:
    for _ in run.iterations():
        pass
    return run


@pytest.mark.parametrize("name", PLANS)
def test_a_run_that_was_ended_goes_on_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    asked = read_recipe(SMALL + PLANS[name], "here")
    whole = finished(Run(asked, tmp_path / "whole"))
    for ended in (1, 6):  # at a checkpoint, and after one
        run = Run(asked, tmp_path / "ended")
        going = run.iterations()
        for _ in range(ended - run.learner.iteration):
            next(going)
        going.close()
    assert kept(finished(Run(asked, tmp_path / "ended")).folder) == kept(whole.folder)
    if name == "metric":
        assert int(whole.learner.memory["turn"]) > 0


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    text = SMALL + PLANS["metric"] + 'regime = "decoupled"\n' + PLANS["stale"]
    whole = finished(Run(read_recipe(text, "here"), tmp_path / "whole"))
    code = (
        "import sys; from pathlib import Path; from podium.learn.folder import Run, read_recipe\n"
        "for _ in Run(read_recipe(sys.argv[1], 'here'), Path(sys.argv[2])).iterations(): print(flush=True)\n"
    )
    for lines in (2, 3):
        argv = [sys.executable, "-c", code, text, str(tmp_path / "killed")]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout
            for _ in range(lines):
                process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
    assert kept(finished(Run(read_recipe(text, "here"), tmp_path / "killed")).folder) == kept(whole.folder)


def test_a_run_may_start_with_the_parameters_of_another(tmp_path: Path) -> None:
    shared = finished(Run(read_recipe(SMALL, "here"), tmp_path / "shared"))
    text = SMALL + f'regime = "frozen"\nstart = "{shared.folder}"\n'
    run = Run(read_recipe(text, "here"), tmp_path / "run")
    for role in ROLES:
        assert same({k.split("/")[1]: x for k, x in of(role, run.learner.w).items()}, shared.learner.w)
    assert same(
        of("mate", finished(run).learner.w), of("mate", Run(read_recipe(text, "here"), tmp_path / "new").learner.w)
    )
    other = SMALL.replace("relay", "jury") + f'start = "{shared.folder}"\n'
    with pytest.raises(BadRecipe, match="got those of another network"):
        Run(read_recipe(other, "here"), tmp_path / "other")
    with pytest.raises(BadRecipe, match="cannot be read"):
        Run(read_recipe(SMALL + 'start = "nowhere"\n', "here"), tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('world = "relay"\nregime = "free"', "relay: no regime 'free'; there are shared, joint, frozen, decoupled"),
        (
            'world = "relay"\nschedule = "often"',
            "no schedule called 'often'; there are alternate, any, ",
        ),
        ('world = "relay"\ncorrection = "none"', "no correction 'none'; there are clip, truncated"),
        ('world = "relay"\nschedule = "round_robin(every=0)"', "a whole number from 1 on, got 0"),
        ('world = "relay"\nschedule = "replay"', "the small network cannot do replay (in the schedule 'replay')"),
        ('world = "relay"\nschedule = "alternate(lead, judge)"', "a turn to judge, and here is only lead, mate"),
        ('world = "relay"\nschedule = "frozen"', "nobody has parameters of its own to freeze"),
        ('world = "relay"\nschedule = "joint(optimizer=agent)"', "with regime 'shared' there is one optimizer"),
        ('world = "relay"\nmethod = "grpo"\nschedule = "joint >> round_robin"', "stages that follow each other"),
        ('world = "relay"\nmethod = "qmix"\nschedule = "method"', "the small network cannot do replay"),
        ('world = "relay"\nstaleness = -1', "staleness must be 0 or more, got -1"),
        ('world = "relay"\ntruncate = 0.5', "truncate must be 1.0 or more, got 0.5"),
        ('world = "relay"\nregime = 3', "expected `str`, got `int`"),
        ('world = "jury"\nregime = "frozen"', "regime 'frozen' needs several roles, and here is only lead"),
        (
            'world = "jury"\nschedule = "until_flat"',
            "schedule 'until_flat' needs several roles, and here is only lead",
        ),
        ('world = "relay"\nregime = "frozen"\nschedule = "until_flat"', "schedule must be 'any', got 'until_flat'"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_said_before_anything_runs(text: str, says: str) -> None:
    with pytest.raises(BadRecipe) as caught:
        read_recipe(text, "here")
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["joint", "by a method"])
def test_lines_tell_what_was_decided_and_each_roles_gradient(name: str, tmp_path: Path) -> None:
    run = finished(Run(read_recipe(SMALL + PLANS[name], "here"), tmp_path / "run"))
    for line in (run.folder / "iterations.jsonl").read_bytes().splitlines():
        told = msgspec.json.decode(line)
        assert sum(kind["share"] for kind in told["mix"].values()) == pytest.approx(1)
        assert set(told["mix"]["communicate"]["options"]) <= {"silent", "brief", "full"}
        for kind in told["mix"].values():
            assert sum(kind["options"].values()) == pytest.approx(1)
        assert set(told["gradients"]) <= set(ROLES)
        assert told["gradient"] <= sum(told["gradients"].values()) + 1e-9


def test_rows_hold_what_the_role_that_acted_thought() -> None:
    """Where roles have parameters of their own, nothing that one made of the record is remembered for another."""
    net, old = relay(replace(TINY, regime="joint"))
    w = moved(old.w)
    for row in rows_of(net, w):
        np.testing.assert_allclose(row.logp, net.log_odds(w, row.seen), atol=1e-4)
    assert shares([]) == {}
