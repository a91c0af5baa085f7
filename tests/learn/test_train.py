"""Training repeats, resumes, learns; its rows are what the worlds and the credit steps say."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import podium.envs  # noqa: F401  (fills the registry)
from podium.envs.branch import branch
from podium.envs.draws import seeds, uniform
from podium.envs.world import make, play
from podium.graph import units
from podium.learn import params, tape
from podium.learn.checkpoint import load_learner, save_learner
from podium.learn.collect import DICE, drawn, played
from podium.learn.credit import same_prefix
from podium.learn.memory import Memory
from podium.learn.policy import Net, Shape, joined, seen_by, taken
from podium.learn.train import FlatAdamState, Recipe, begin, in_units
from podium.learn.update import adam
from podium.methods import credit_of
from podium.trace.columns import Text, concat
from podium.trace.do import Do
from tests.learn.playing import collected, credited, train, tried

SMALL = {"expedition": {"legs": 3, "pool": 6, "widest": 3}, "crew": {"N": 4}, "secretary": {"n": 7}}
TINY = Recipe(iterations=3, rows=200, worlds=2)


def random_net(name: str, seed: int = 0, **shape: Any) -> tuple[Any, Net, Any]:
    """A world and a network with some opinion."""
    world = make(name.split("/")[0], **SMALL.get(name, {}))
    net = Net(world, Shape(**shape))
    w = net.initial(seed)
    dice = np.random.default_rng(seed)
    return world, net, {k: x + 0.3 * dice.standard_normal(x.shape).astype(x.dtype) for k, x in w.items()}


@pytest.mark.parametrize("name", params.trainable())
def test_memory_is_the_same_as_reading_anew(name: str) -> None:
    world, net, w = random_net(name)
    state, codes, memory = world.start(seeds(1, 20)), net.words.codes(world.options), Memory(net, w, 20)
    dice = np.random.default_rng(0)
    for _ in range(12):
        view = world.view(state)
        if view is None:
            break
        seen, _ = seen_by(view, codes)
        items = net.embedded(w, seen.things(), seen.role)
        total, top, new_total, new_top = memory.pools(seen, view.row)
        np.testing.assert_allclose(total, tape.segment_sum(items, seen.first), atol=1e-4)
        np.testing.assert_allclose(top, tape.segment_max(items, seen.first), atol=2e-5)
        new = [items[end - n : end] for end, n in zip(seen.first[1:], seen.new, strict=True)]
        np.testing.assert_allclose(new_total, [x.sum(axis=0) for x in new], atol=1e-4)
        np.testing.assert_allclose(
            new_top, [x.max(axis=0) if len(x) else 0 * x.sum(axis=0) for x in new], atol=2e-5
        )
        odds = np.where(view.allowed, dice.random(view.allowed.shape) + 0.01, 0.0)
        world.act(state, view, odds.argmax(axis=1))


def test_rows_that_are_taken_apart_and_joined_are_the_same() -> None:
    world, net, w = random_net("pandora")
    seen, _ = seen_by(world.view(world.start(seeds(0, 5))), net.words.codes(world.options))
    again = joined([taken(seen, np.array([0, 1])), taken(seen, np.array([2, 3, 4]))])
    np.testing.assert_allclose(net.log_odds(w, again), net.log_odds(w, seen), atol=1e-4)
    back = taken(seen, np.array([3, 1]))
    whole = np.split(net.log_odds(w, seen), seen.start[1:-1])
    np.testing.assert_allclose(net.log_odds(w, back), np.concatenate([whole[3], whole[1]]), atol=1e-4)


def test_a_policy_does_not_depend_on_the_order_of_a_roster() -> None:
    _, net, w = random_net("pandora")
    kinds, prices = (0, 1, 2, 3), (0.05, 0.06, 0.07, 0.08)
    odds = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        world = make("pandora", kinds=tuple(kinds[i] for i in order), prices=tuple(prices[i] for i in order))
        seen, _ = seen_by(world.view(world.start(seeds(0, 1))), net.words.codes(world.options))
        odds.append(np.asarray(net.log_odds(w, seen)))
    np.testing.assert_allclose(odds[1][0], odds[0][0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(odds[1][1:], odds[0][1:][[2, 0, 3, 1]], rtol=1e-5, atol=1e-5)


def test_a_new_kind_of_option_is_refused() -> None:
    with pytest.raises(ValueError, match="no option like 'stop'"):
        Net(make("jury")).words.codes(("stop", "go on"))


def test_a_gradient_of_the_whole_network() -> None:
    world, net, w = random_net("crew", per_role=True)
    w = {k: x.astype(np.float64) for k, x in w.items()}
    seen, _ = seen_by(world.view(world.start(seeds(0, 3))), net.words.codes(world.options))
    weight = np.random.default_rng(0).normal(size=len(seen.option))

    def loss(at: Any) -> Any:
        return tape.sum_all(tape.mul(net.log_odds(at, seen), weight))

    at = {k: tape.Var(x) for k, x in w.items()}
    tape.backward(loss(at))
    for name in ("lead/item1", "lead/context2", "lead/delegate.item", "lead/delegate.score"):
        place = np.unravel_index(int(np.abs(at[name].grad).argmax()), w[name].shape)
        up, down = ({**w, name: w[name].copy()} for _ in range(2))
        up[name][place] += 1e-5
        down[name][place] -= 1e-5
        assert np.isclose(at[name].grad[place], (loss(up) - loss(down)) / 2e-5, rtol=1e-3, atol=2e-5)


def sampled(world: Any, net: Net, w: Any, seed: Any, made: Any) -> Any:
    """The policy with the learner's own dice, as worlds and branches ask it."""
    codes, made = net.words.codes(world.options), made.copy()

    def policy(view: Any) -> Any:
        seen, option = seen_by(view, codes)
        logp = net.log_odds(w, seen)
        entry = drawn(logp, seen.start, uniform(seed[view.row], DICE, made[view.row]))
        made[view.row] += 1
        return option[entry], logp[entry].astype(float)

    return policy


@pytest.mark.parametrize("name", ["costly_search", "crew", "relay", "jury", "pandora", "scouts", "expedition"])
def test_credit_is_that_of_the_method_on_the_traces_of_the_same_episodes(name: str) -> None:
    world, net, w = random_net(name)
    seed = seeds(4, 5)
    batch = collected(world, net, w, seed, share=50.0, tries=99, most=10_000)
    trace = world.trace(
        play(world, sampled(world, net, w, seed, np.zeros(5, np.int64)), seed.copy(), log=True).state
    )
    rows = units.rows(trace, "orchestrator")
    np.testing.assert_allclose(trace.reward_n["team"], batch.score)
    begins = np.searchsorted(trace.rollout_e[rows], np.arange(5))
    dos, source, number, told, fast = [], [], [], {}, {}
    for part in tried(batch):
        earned = part.earned if part.ends is None else part.earned + part.ends.later[part.run]
        paid = same_prefix(earned, part.logp, part.seen.start)
        for i, (episode, nth) in enumerate(zip(part.episode, part.number, strict=True)):
            at = slice(*part.seen.start[i : i + 2])
            row = int(rows[begins[episode] + nth])
            options = trace.options(row)
            labels = [world.options[k] for k in part.option[at]]
            assert options == labels
            told[row] = msgspec.json.encode(np.exp(part.logp[at]).astype(float).tolist()).decode()
            fast[row] = paid[at][labels.index(str(trace.chosen_e[row]))]
            for label in set(labels) - {trace.chosen_e[row]}:
                dos.append(Do(row, "choose", label))
                source.append(int(episode))
                number.append(int(nth) + 1)
    assert dos
    branches = branch(world, trace, dos, sampled(world, net, w, seed[source], np.array(number)))
    forest = concat([trace, branches])
    said = [told.get(row) for row in range(trace.n_events)] + [None] * branches.n_events
    forest = replace(forest, extra_e={**forest.extra_e, "pi": Text.of(said)})
    credit = credit_of(forest, "branching_policy")
    slow = dict(zip(credit.rows.tolist(), credit.value.tolist(), strict=True))
    np.testing.assert_allclose([slow[row] for row in fast], list(fast.values()), atol=2e-5)


def test_without_room_decisions_are_not_branched() -> None:
    world, net, w = random_net("relay")
    few = collected(world, net, w, seeds(0, 50), share=9.0, room=7)
    assert 0 < sum(len(r.option) - len(r.seen) for r in tried(few)) <= 14
    np.testing.assert_allclose(few.score, played(world, net, w, seeds(0, 50)).score)


def test_branches_of_episodes_that_wander_are_those_of_the_policy() -> None:
    """At the first decision nothing was done yet: every option earns what it earns where nobody wanders."""
    world, net, w = random_net("crew")
    plain, astray = (
        tried(collected(world, net, w, seeds(0, 30), share=9.0, wander=x, room=5000))[0] for x in (0.0, 1.0)
    )
    first = [np.repeat(r.number == 0, np.diff(r.seen.start)) for r in (plain, astray)]
    np.testing.assert_allclose(plain.earned[first[0]], astray.earned[first[1]])
    assert not np.array_equal(plain.chosen, astray.chosen)


def test_worked_credit() -> None:
    credit = same_prefix(np.array([1.0, 0.0, 4.0, 2.0]), np.log([0.25, 0.75, 0.5, 0.5]), np.array([0, 2, 4]))
    np.testing.assert_allclose(credit, [0.75, -0.25, 1.0, -1.0])


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    net = Net(params.training("costly_search", 0, 0, 0))

    def worlds(step: int, number: int) -> Any:
        return params.training("costly_search", 0, step + 1, number)

    *_, (whole, _) = train(net, TINY, worlds, begin(net, 0))
    stopped, _ = next(train(net, TINY, worlds, begin(net, 0)))
    save_learner(stopped, tmp_path / "at")
    *_, (resumed, _) = train(net, TINY, worlds, load_learner(tmp_path / "at"))
    save_learner(whole, tmp_path / "whole")
    save_learner(resumed, tmp_path / "resumed")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()


def all_but_stopped(name: str) -> tuple[Net, Any]:
    """A learner that all but always stops at once."""
    net = Net(params.training(name, 0, 0, 0))
    learner = begin(net, 0)
    learner.w["stop.word"][net.words.words.index("stop")] += 1.0
    learner.w["stop.score"] += 0.1
    return net, learner


def test_who_wanders_does_not_stop_for_it() -> None:
    """After a stop there is nothing left to be learned."""
    net, learner = all_but_stopped("costly_search")
    learner.w["stop.score"] -= 0.6
    world = make("costly_search")
    rows = tried(collected(world, net, learner.w, seeds(0, 50), share=9.0, most=10, wander=1.0, room=5000))
    assert sum(len(r.chosen) for r in rows) > 300
    assert world.options.index("stop") not in np.concatenate([r.chosen for r in rows])


def score_of(net: Net, w: Any) -> float:
    return float(played(make("costly_search"), net, w, seeds(1, 500), sharp=np.inf, most=100).score.mean())


def test_stopping_at_once_is_not_absorbing() -> None:
    """Because stopping is compared with going on from the same prefix."""
    net, learner = all_but_stopped("costly_search")
    assert score_of(net, learner.w) < 0.01
    recipe = Recipe(iterations=12, rows=1500, worlds=3)
    *_, (learner, _) = train(net, recipe, lambda i, k: params.training("costly_search", 0, i + 1, k), learner)
    assert score_of(net, learner.w) > 0.7


def test_every_hyper_parameter_matters() -> None:
    """None is left lying about: each changes what is learned."""
    net = Net(params.training("crew", 0, 0, 0))

    def learned(recipe: Recipe) -> Any:
        *_, (learner, _) = train(net, recipe, lambda i, k: params.training("crew", 0, i + 1, k), begin(net, 0))
        return learner.w["contextb"]

    small = Recipe(iterations=2, rows=300, worlds=2, most=4, norm=0.01, clip=0.01)
    other = {"iterations": 3, "rows": 200, "spread": 0.5, "worlds": 3, "tries": 2, "rate": 2e-3, "entropy": 0.0}
    other |= {"sharp": 1.0, "wander": 0.5, "clip": 0.5, "epochs": 1, "parts": 4, "norm": 9.0}
    before = learned(small)
    same = [
        name for name, value in other.items() if np.array_equal(learned(replace(small, **{name: value})), before)
    ]
    assert same == []


def test_several_cores_give_the_same(tmp_path: Path) -> None:
    net = Net(params.training("jury", 0, 0, 0))

    def worlds(step: int, number: int) -> Any:
        return params.training("jury", 0, step + 1, number)

    with ProcessPoolExecutor(2) as pool:
        *_, (two, _) = train(net, replace(TINY, iterations=1), worlds, begin(net, 0), pool.map)
    *_, (one, _) = train(net, replace(TINY, iterations=1), worlds, begin(net, 0))
    assert all((one.w[k] == two.w[k]).all() for k in one.w)


@pytest.mark.parametrize("name", params.trainable())
def test_no_training_world_is_a_test_world(name: str) -> None:
    held = {repr(params.held_out(name, i).params) for i in range(20)}
    drawn = {repr(params.training(name, s, i, 0).params) for s in range(3) for i in range(20)}
    assert not held & drawn


def test_units_of_credit_follow_the_stakes() -> None:
    """Where the stakes of one leg are a hundred times those of another, credit in units is alike in both; without, it is not."""
    world = make("expedition", legs=1, stakes=(0.02, 2.0), pool=6, widest=3, lam=0.0, leg_price=0.0)
    net, learner = Net(world), None
    *_, (learner, _) = train(net, Recipe(iterations=25, rows=300, worlds=1), lambda i, k: world, begin(net, 0))
    batch = collected(world, net, learner.w, seeds(7, 400), share=9.0, room=40_000)
    row = next(r for r in credited(batch) if r.seen.kind == "aggregate")
    high = np.repeat(row.seen.facts[:, 3] > 1, np.diff(row.seen.start))

    def ratio(credit: Any) -> float:
        return float(np.sqrt((credit[high] ** 2).mean() / (credit[~high] ** 2).mean()))

    told = in_units(net, learner.w, row, float(np.sqrt((row.credit**2).mean())))
    assert ratio(row.credit) > 4
    assert ratio(told.credit) < ratio(row.credit) / 3
    each = [row.credit[a:b].std() for a, b in zip(row.seen.start[:3], row.seen.start[1:4], strict=True)]
    assert row.spread is not None
    np.testing.assert_allclose(row.spread[:3], each)


def test_adam_on_all_parameters_at_once_is_adam_on_each_to_the_bit() -> None:
    dice = np.random.default_rng(0)
    sizes = {"a": (3, 4), "b": (5,), "c": (2, 2)}
    w, m, v = (
        {k: np.abs(dice.normal(size=size)).astype(np.float32) for k, size in sizes.items()} for _ in range(3)
    )
    each = tuple({k: x.copy() for k, x in some.items()} for some in (w, m, v))
    together = FlatAdamState(w, m, v)
    for step, names in enumerate(("ab", "ab", "abc", "c", "ab"), 1):  # "c" has no gradient at first
        grad = {k: dice.normal(size=sizes[k]).astype(np.float32) for k in names}
        adam(*together(grad), step, 1e-3, 0.7)
        adam(each[0], grad, each[1], each[2], step, 1e-3, 0.7)
    for some, other in zip((w, m, v), each, strict=True):
        assert {k: x.tobytes() for k, x in some.items()} == {k: x.tobytes() for k, x in other.items()}
