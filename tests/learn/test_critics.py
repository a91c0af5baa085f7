"""Critics that are fitted as a policy learns: what each column holds, worked by hand or by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from podium.credit import apply
from podium.credit.credit import read_credit
from podium.envs.draws import seeds
from podium.graph import units
from podium.learn import critics
from podium.learn.critics import fitted, reads
from podium.learn.params import training
from podium.learn.policy import Net
from podium.learn.requirements import cannot, with_decision_tokens
from podium.learn.train import Recipe, begin
from podium.methods import METHODS, Method, scored
from tests.learn.playing import made, record, step, trace_of

SMALL = Recipe(iterations=2, worlds=2, episodes=200, most=20)
FITTED = [m for m in METHODS.values() if "critic" in m.needs and not cannot(m)]
ACT = [m for m in FITTED if "spent" not in m.reward]  # no world says what was spent


def with_columns(method: Method, env: str, n: int = 200, branched: float = 0.0):  # type: ignore[no-untyped-def]
    world = training(env, 0, 0, 0)
    net = Net(world)
    w = begin(net, 0).w
    one = record(world, net, w, seeds(0, n), branched)
    return one, fitted(method, [with_decision_tokens(trace_of(one))], [made(one)], net, w)[0]


def test_who_can_be_learned_by() -> None:
    assert {m.name for m in FITTED} >= {
        "mappo",
        "ippo",
        "coma",
        "vdn",
        "qmix",
        "shapley_q",
        "maddpg",
        "c3_value_only",
    }
    assert cannot(METHODS["langmarl"]) == "langmarl needs a critic that reads language"
    assert cannot(METHODS["maporl"]) == "maporl needs a judge"


@pytest.mark.parametrize("method", ACT, ids=lambda m: m.name)
@pytest.mark.parametrize("env", ["scouts", "relay", "crew"])
def test_every_decision_is_paid(method: Method, env: str) -> None:
    if env == "crew" and "tokens" in method.needs:
        pytest.skip("the last turn of a crew is a worker's, who says no token")
    _one, trace = with_columns(method, env, 60, 0.5 * ("branches" in method.needs))
    given = apply(scored(trace, method), method.credit)
    assert np.isfinite(given.value).any()
    net = Net(training(env, 0, 0, 0))
    old = begin(net, 0)
    new, done = step(net, SMALL, lambda i, k: training(env, 0, i, k), method, old)
    assert done.change.rows > 0
    assert np.isfinite(done.change.gradient)
    assert done.change.gradient > 0
    again, _ = step(net, SMALL, lambda i, k: training(env, 0, i, k), method, old)
    assert all(np.array_equal(new.w[k], again.w[k]) for k in new.w)


def test_a_value_is_told_by_the_other_half() -> None:
    """With ridge regression by hand on the features of runs of the other parity."""
    method = METHODS["marft_action"]
    one, trace = with_columns(method, "scouts")
    net = Net(training("scouts", 0, 0, 0))
    w = begin(net, 0).w
    first = made(one)[0]
    x = np.asarray(net.context(w, first.seen)[0], np.float64)
    run = trace.rollout_e[first.row]
    known = critics._known(
        [[(0, first)]], [trace], [critics._coming(scored(trace, method), read_credit(method.credit))], net, w
    )[0]
    assert (np.abs(known.coming) <= np.abs(one.score[run]) + 1e-9).all()  # discounted by the turns that are left
    odd = run % 2 == 1
    for half in (odd, ~odd):
        mean, level = x[~half].mean(0), known.coming[~half].mean()
        centred = x[~half] - mean
        square = centred.T @ centred
        theta = np.linalg.solve(
            square + (0.01 * np.trace(square) / len(square) + 1e-9) * np.eye(len(square)),
            centred.T @ (known.coming[~half] - level),
        )
        assert np.allclose(critics._local([known])["value"][0][half], level + (x[half] - mean) @ theta)


def test_values_tell_more_than_their_mean() -> None:
    one, trace = with_columns(METHODS["mappo"], "scouts", 1000)
    rows = np.concatenate([m.row for m in one.observations.decisions])
    told, came = trace.reward_e["value_joint"][rows], one.score[trace.rollout_e[rows]]
    assert reads(METHODS["mappo"]) == ("value_joint",)
    assert np.var(came - told) < 0.9 * np.var(came)


def test_slopes_and_shapley_of_a_mixer() -> None:
    dice = np.random.default_rng(0)
    mixer = critics._Mixer([], dice.normal(size=(2, 4)), dice.normal(size=4), dice.normal(size=(4, 1)))
    q = dice.normal(size=(5, 2))
    for g in range(2):
        step = np.eye(2)[g] * 1e-6
        assert np.allclose(mixer.slope(q)[:, g], (mixer.total(q + step) - mixer.total(q - step)) / 2e-6, atol=1e-6)
    own, base = [np.array([0.5, -1.0]), np.array([2.0])], np.array([[0.3, -0.2]])
    every = []
    for order in itertools.permutations([(0, 0.5), (0, -1.0), (1, 2.0)]):
        at, part = base[0].copy(), {}
        for kind, x in order:
            before = at.copy()
            at[kind] += x
            part[x] = float(mixer.total(at[None])[0] - mixer.total(before[None])[0])
        every.append([part[x] for x in (0.5, -1.0, 2.0)])
    found = np.concatenate(critics._shapley(mixer, base, own, [np.zeros(2, np.int64), np.zeros(1, np.int64)]))
    assert np.isclose(found.sum(), np.sum(np.mean(every, axis=0)))  # efficient, whatever the orders drawn
    assert (np.min(every, axis=0) - 1e-9 <= found).all()
    assert (found <= np.max(every, axis=0) + 1e-9).all()


def test_a_mixer_finds_a_sum() -> None:
    """Where what comes is a sum over decisions, Q_tot is, and so are slopes of one."""
    dice = np.random.default_rng(0)
    x = dice.normal(size=(400, 3))
    mixer = critics._mixer([x[:, :2], x[:, 2:]], x @ np.array([1.0, -2.0, 0.5]))
    q = np.column_stack([x[:, :2] @ mixer.theta[0], x[:, 2:] @ mixer.theta[1]])
    assert np.corrcoef(mixer.total(q), x @ np.array([1.0, -2.0, 0.5]))[0, 1] > 0.99


def test_branches_know_the_q_of_what_they_chose() -> None:
    method = METHODS["c3_value_only"]
    _one, trace = with_columns(method, "costly_search", 30, 1.0)
    first, stand, place = trace.first_of("e"), units.rows(trace, "turn"), units.place(trace, "turn")
    names = trace.trace_id_n.strings()
    for run in range(30, len(trace)):
        up = names.index(trace.parent_n[run])
        at = int(trace.branch_n[run])
        both = [trace.reward_e["q"][stand[place[int(first[r]) + at]]] for r in (run, up)]
        said = np.array(eval(str(trace.extra_e["q"][int(first[up]) + at])))
        assert np.isfinite(both).all()
        assert set(np.round(both, 6)) == set(said)
