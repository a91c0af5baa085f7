"""Every function of the tape against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from podium.learn import tape

DICE = np.random.default_rng(1)
X, Y, ROW = DICE.normal(size=(7, 3)), DICE.normal(size=(3, 4)), DICE.normal(size=3)
FIRST = np.array([0, 2, 2, 6, 7])  # the second segment is empty
INDEX = np.array([3, -1, 0, 3, 6, 1])

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: tape.plus(x, ROW),
    "mul": lambda x: tape.mul(x, tape.plus(x, ROW)),
    "matmul": lambda x: tape.matmul(x, Y),
    "relu": tape.relu,
    "tanh": tape.tanh,
    "relu of a sum": lambda x: tape.relu(x, tape.mul(x, x), ROW),
    "tanh of a sum": lambda x: tape.tanh(x, ROW, x),
    "asinh": tape.asinh,
    "exp": tape.exp,
    "elu": tape.elu,
    "absolute": tape.absolute,
    "minimum": lambda x: tape.minimum(x, tape.mul(x, x)),
    "concat": lambda x: tape.concat([x, tape.tanh(x)]),
    "column": lambda x: tape.squeeze(tape.matmul(x, Y[:, :1])),
    "gather": lambda x: tape.gather(x, INDEX),
    "segment_sum": lambda x: tape.segment_sum(x, FIRST),
    "segment_max": lambda x: tape.segment_max(x, FIRST),
    "segment_sum of equals": lambda x: tape.segment_sum(x, np.array([0, 0, 7])),
    "segment_max of ones": lambda x: tape.segment_max(x, np.arange(8)),
    "log_softmax": lambda x: tape.log_softmax(tape.squeeze(tape.matmul(x, Y[:, :1])), np.array([0, 3, 7])),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient(name: str) -> None:
    f = FUNCTIONS[name]
    weight = DICE.normal(size=tape.value_of(f(X)).shape)

    def loss(x: Any) -> Any:
        return tape.sum_all(tape.mul(f(x), weight))

    x = tape.Var(X.copy())
    tape.backward(loss(x))
    expected = np.zeros_like(X)
    for i in np.ndindex(X.shape):
        up, down = X.copy(), X.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        expected[i] = (loss(up) - loss(down)) / 2e-6
    np.testing.assert_allclose(x.grad, expected, atol=1e-6)


def test_a_sum_inside_is_the_sum_outside_to_the_bit() -> None:
    made = []
    for f in (lambda x, row: tape.relu(x, x, row), lambda x, row: tape.relu(tape.plus(tape.plus(x, x), row))):
        x, row = tape.Var(X.copy()), tape.Var(ROW.copy())
        tape.backward(tape.sum_all(tape.mul(f(x, row), X)))
        made.append((f(X, ROW).tobytes(), x.grad.tobytes(), row.grad.tobytes(), x.value.tobytes()))
    assert made[0] == made[1]


def test_a_broadcast_row_gets_the_sum() -> None:
    row = tape.Var(ROW.copy())
    tape.backward(tape.sum_all(tape.mul(X, row)))
    np.testing.assert_allclose(row.grad, X.sum(0))


def test_a_large_gather_adds_up() -> None:
    table = tape.Var(DICE.normal(size=(100, 2)))
    index = DICE.integers(-1, 100, 500)
    weight = DICE.normal(size=(500, 2))
    tape.backward(tape.sum_all(tape.mul(tape.gather(table, index), weight)))
    expected = np.zeros((100, 2))
    np.add.at(expected, index[index >= 0], weight[index >= 0])
    np.testing.assert_allclose(table.grad, expected)


def test_what_is_used_twice_is_counted_twice() -> None:
    x = tape.Var(np.array([2.0]))
    tape.backward(tape.sum_all(tape.plus(x, tape.mul(x, x))))
    assert x.grad is not None
    assert x.grad.tolist() == [5.0]


def test_without_a_var_nothing_is_remembered() -> None:
    assert isinstance(tape.relu(X), np.ndarray)
