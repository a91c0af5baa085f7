"""Every update rule: its gradient against finite differences, worked numbers, and what it reduces to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from podium.learn import tape
from podium.learn.update import adam
from tests.learn import rules as update

FIRST = np.array([0, 2, 5, 6])
DICE = np.random.default_rng(0)
OLD = np.log(DICE.uniform(0.1, 0.9, 6))
LOGP = OLD + DICE.normal(0, 0.4, 6)
CREDIT, WEIGHT = DICE.normal(size=6), DICE.uniform(0.5, 1.5, 6)
C3, W3 = CREDIT[:3], WEIGHT[:3]

RULES: dict[str, Callable[[Any], Any]] = {
    "reinforce": lambda x: update.reinforce(x, CREDIT, WEIGHT),
    "token": lambda x: update.clipped(update.ratio(x, OLD), CREDIT, WEIGHT),
    "turn": lambda x: update.clipped(update.ratio(x, OLD, FIRST), C3, W3),
    "sequence": lambda x: update.clipped(update.ratio(x, OLD, FIRST, mean=True), C3, W3, 0.1, 0.3),
    "dual": lambda x: update.dual_clipped(update.ratio(x, OLD), CREDIT, WEIGHT, most=1.2),
    "mirror": lambda x: update.masked_mirror(x, OLD, CREDIT, WEIGHT, 0.8, 1.3),
    "critic": lambda x: update.critic(x, CREDIT, WEIGHT),
    "entropy": lambda x: update.entropy(x, WEIGHT),
    "every option": lambda x: update.every_option(tape.log_softmax(x, FIRST), OLD, CREDIT, WEIGHT, 0.1, 0.05),
}


def slope(f: Callable[[Any], Any], x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        g[i] = (float(f(up)) - float(f(down))) / (2 * h)
    return g


@pytest.mark.parametrize("name", RULES)
def test_gradient(name: str) -> None:
    x = tape.Var(LOGP.copy())
    tape.backward(RULES[name](x))
    np.testing.assert_allclose(x.grad, slope(RULES[name], LOGP), atol=1e-6)


def test_gradient_of_a_truncated_weight_is_that_of_reinforce_with_it() -> None:
    x, y = tape.Var(LOGP.copy()), tape.Var(LOGP.copy())
    tape.backward(update.truncated(x, OLD, CREDIT, WEIGHT, 1.1))
    tape.backward(update.reinforce(y, np.minimum(np.exp(LOGP - OLD), 1.1) * CREDIT, WEIGHT))
    np.testing.assert_allclose(x.grad, y.grad)


def test_gradient_of_a_mixer() -> None:
    shapes = {"q": (4, 3), "w1": (3, 5), "b1": (5,), "w2": (5, 1), "b2": (1,)}
    at = {k: DICE.normal(size=s) for k, s in shapes.items()}
    target = DICE.normal(size=4)

    def loss(w: dict[str, Any]) -> Any:
        return update.critic(update.qmix(*(w[k] for k in shapes)), target, np.ones(4))

    w = {k: tape.Var(v) for k, v in at.items()}
    tape.backward(loss(w))
    for name in shapes:
        np.testing.assert_allclose(w[name].grad, slope(lambda x, k=name: loss({**at, k: x}), at[name]), atol=1e-5)


def test_a_mixer_is_monotone() -> None:
    w = [DICE.normal(size=s) for s in ((3, 5), (5,), (5, 1), (1,))]
    q = DICE.normal(size=(50, 3))
    assert (update.qmix(q + np.array([0.1, 0, 0]), *w) >= update.qmix(q, *w)).all()


def test_worked_numbers() -> None:
    old = np.log(np.array([0.5, 0.5]))
    logp, a, one = np.log(np.array([0.9, 0.1])), np.array([1.0, -1.0]), np.ones(2)
    assert np.isclose(update.clipped(update.ratio(logp, old), a, one), -(1.2 - 0.8))  # ρ = 1.8 and .2, both clipped
    assert np.isclose(update.dual_clipped(update.ratio(np.log([0.5, 0.9]) + 3, old), -one, one), 3.0 * 2)
    assert np.isclose(update.masked_mirror(logp, old, a, one, 0.5, 1.5, 0.0), -(1.5 - 0.5))
    assert np.isclose(update.every_option(logp, old, a, one, 0.2, 0.0), -0.5 * (1.2 - 0.8))


def test_on_the_policy_that_acted_all_ratios_give_the_gradient_of_reinforce() -> None:
    def grad(f: Callable[[Any], Any]) -> Any:
        x = tape.Var(OLD.copy())
        tape.backward(f(x))
        return x.grad

    plain = grad(lambda x: update.reinforce(x, CREDIT, WEIGHT))
    np.testing.assert_allclose(grad(lambda x: update.clipped(update.ratio(x, OLD), CREDIT, WEIGHT)), plain)
    np.testing.assert_allclose(grad(lambda x: update.masked_mirror(x, OLD, CREDIT, WEIGHT)), plain)
    np.testing.assert_allclose(grad(lambda x: update.truncated(x, OLD, CREDIT, WEIGHT)), plain)


def test_adam_finds_the_bottom() -> None:
    w, m, v = {"x": np.array([3.0])}, {"x": np.zeros(1)}, {"x": np.zeros(1)}
    for step in range(1, 400):
        adam(w, {"x": 2 * (w["x"] - 1)}, m, v, step, 0.05)
    assert abs(w["x"][0] - 1) < 1e-2
