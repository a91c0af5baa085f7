"""Reverse-mode differentiation over a handful of array functions, enough for small networks on ragged batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Var",
    "absolute",
    "asinh",
    "backward",
    "concat",
    "elu",
    "exp",
    "gather",
    "lengths",
    "log_softmax",
    "matmul",
    "minimum",
    "mul",
    "plus",
    "relu",
    "segment_max",
    "segment_sum",
    "squeeze",
    "sum_all",
    "tanh",
    "value_of",
]

Array = NDArray[Any]
Back = Callable[[Array], Array]


class Var:
    """An array that remembers what it was made of. `grad` is filled by `backward`."""

    __slots__ = ("grad", "parents", "value")

    def __init__(self, value: Array, parents: tuple[tuple[Var, Back], ...] = ()) -> None:
        self.value = value
        self.parents = parents
        self.grad: Array | None = None


Node = Any  # a Var, or an array, which is a constant


def value_of(x: Node) -> Array:
    """The numbers of a node."""
    value: Array = x.value if isinstance(x, Var) else x
    return value


def _made(value: Array, *parents: tuple[Node, Back]) -> Node:
    """A Var if something in it is one; else the plain array, and nothing is remembered."""
    variables = [parent for parent in parents if isinstance(parent[0], Var)]
    return Var(value, tuple(variables)) if variables else value


def backward(loss: Var) -> None:
    """Fills `grad` of everything that a number was made of."""
    order: list[Var] = []
    visited: set[int] = set()
    stack: list[tuple[Var, bool]] = [(loss, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in visited:
            visited.add(id(node))
            stack.append((node, True))
            stack.extend((p, False) for p, _ in node.parents)
    loss.grad = np.ones_like(loss.value)
    for node in reversed(order):
        assert node.grad is not None
        for parent, back in node.parents:
            part = back(node.grad)
            parent.grad = part if parent.grad is None else parent.grad + part


def _unbroadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of something that was broadcast: summed over the axes along which it was repeated."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    if extra == 1 and g.shape[1:] == shape:
        summed: Array = np.ones(len(g), g.dtype) @ g  # a product of matrices is four times as fast as a sum
        return summed
    axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1)
    folded: Array = g.sum(axis=axes).reshape(shape)
    return folded


def plus(a: Node, b: Node) -> Node:
    """a + b, broadcast."""
    x, y = value_of(a), value_of(b)
    return _made(x + y, (a, lambda g: _unbroadcast(g, x.shape)), (b, lambda g: _unbroadcast(g, y.shape)))


def mul(a: Node, b: Node) -> Node:
    """a b, broadcast."""
    x, y = value_of(a), value_of(b)
    return _made(x * y, (a, lambda g: _unbroadcast(g * y, x.shape)), (b, lambda g: _unbroadcast(g * x, y.shape)))


def matmul(a: Node, b: Node) -> Node:
    """a @ b of two matrices."""
    x, y = value_of(a), value_of(b)
    return _made(x @ y, (a, lambda g: g @ y.T), (b, lambda g: x.T @ g))


def relu(*terms: Node) -> Node:
    """max(a + b + ..., 0), in one array."""
    x, own = _total(terms)
    y = np.maximum(x, np.zeros(x.shape[-1:], x.dtype), out=own)  # several times as fast as with the number 0
    return _of_sum(y, terms, lambda g: g * (y > 0))


def tanh(*terms: Node) -> Node:
    """tanh(a + b + ...), in one array."""
    x, own = _total(terms)
    y = np.tanh(x, out=own)
    return _of_sum(y, terms, lambda g: g * (1 - y * y))


def _total(terms: tuple[Node, ...]) -> tuple[Array, Array | None]:
    """The sum of nodes, the first two of which have its shape when broadcast; and the same array again if it is
    nobody else's."""
    first, *others = [value_of(term) for term in terms]
    if not others:
        return first, None
    total: Array = first + others[0]
    for other in others[1:]:
        total += other
    return total, total


def _of_sum(value: Array, terms: tuple[Node, ...], back: Back) -> Node:
    """A function of a sum, all of whose terms have one gradient but for what was broadcast: it is computed once."""
    if not any(isinstance(term, Var) for term in terms):
        return value
    if len(terms) == 1:
        return Var(value, ((terms[0], back),))
    inner = Var(value, tuple((t, _folding(t.value.shape)) for t in terms if isinstance(t, Var)))
    return Var(value, ((inner, back),))


def _folding(shape: tuple[int, ...]) -> Back:
    return lambda g: _unbroadcast(g, shape)


def asinh(a: Node) -> Node:
    """A signed logarithm: log(a + √(a² + 1))."""
    x = value_of(a)
    return _made(np.arcsinh(x), (a, lambda g: g / np.sqrt(x * x + 1)))


def exp(a: Node) -> Node:
    y = np.exp(value_of(a))
    return _made(y, (a, lambda g: g * y))


def absolute(a: Node) -> Node:
    """|a|."""
    x = value_of(a)
    return _made(np.abs(x), (a, lambda g: g * np.sign(x)))


def elu(a: Node) -> Node:
    """a where it is above 0, else exp a - 1."""
    x = value_of(a)
    y = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    return _made(y, (a, lambda g: g * np.where(x > 0, 1, y + 1)))


def minimum(a: Node, b: Node) -> Node:
    """The smaller of two, elementwise; a where they are equal."""
    x, y = value_of(a), value_of(b)
    first = x <= y
    return _made(np.where(first, x, y), (a, lambda g: g * first), (b, lambda g: g * ~first))


def sum_all(a: Node) -> Node:
    """The sum of all elements."""
    x = value_of(a)
    return _made(x.sum(), (a, lambda g: np.broadcast_to(g, x.shape)))


def squeeze(a: Node) -> Node:
    """A matrix of one column as a vector."""
    x = value_of(a)
    return _made(x[:, 0], (a, lambda g: g[:, None]))


def concat(parts: list[Node]) -> Node:
    """Columns side by side."""
    values = [value_of(p) for p in parts]
    ends = np.cumsum([v.shape[1] for v in values]).tolist()

    def part(start: int, end: int) -> Back:
        return lambda g: g[:, start:end]

    backs = [part(end - v.shape[1], end) for v, end in zip(values, ends, strict=True)]
    return _made(np.concatenate(values, 1), *zip(parts, backs, strict=True))


def gather(a: Node, index: NDArray[np.int64]) -> Node:
    """Rows of a by their number; -1 is a row of zeros."""
    x = value_of(a)
    none = index < 0
    some = bool(none.any())
    taken = x.take(index, axis=0)
    if some:
        taken[none] = 0
    return _made(taken, (a, lambda g: _scattered(g, index, len(x), none if some else None)))


def _scattered(g: Array, index: NDArray[np.int64], n: int, none: NDArray[np.bool_] | None) -> Array:
    """Sums rows of g into n rows."""
    if none is not None:
        g, index = g[~none], index[~none]
    if not len(index):
        return np.zeros((n, *g.shape[1:]), g.dtype)
    if n <= 64 and g.ndim == 2:
        one_hot = (index[None, :] == np.arange(n)[:, None]).astype(g.dtype)
        summed: Array = one_hot @ g
        return summed
    if (np.diff(index) < 0).any():
        order = np.argsort(index, kind="stable")
        index, g = index[order], g[order]
    first = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
    there, sums = index[first], _reduced(np.add, g, first, np.diff(first, append=len(index)))
    if len(there) == n:
        return sums
    out = np.zeros((n, *g.shape[1:]), g.dtype)
    out[there] = sums
    return out


def lengths(first: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows each segment has: `np.diff`, which takes ten times as long to begin."""
    return first[1:] - first[:-1]


def _reduced(op: np.ufunc, x: Array, first: NDArray[np.int64], count: NDArray[np.int64]) -> Array:
    """op over consecutive rows that begin at `first`, none empty; equally long segments, which are common, go side
    by side."""
    m = int(count[0]) if len(count) else 0
    if 0 < m <= 32 and len(count) * m == len(x) and (count == m).all():
        wide = x.reshape(len(count), m, *x.shape[1:])
        total: Array = wide[:, 0]
        for j in range(1, m):
            total = op(total, wide[:, j])
        return total
    if x.ndim == 1 or m > 32 or (longest := int(count.max(initial=0))) > 12:
        folded: Array = op.reduceat(x, first, axis=0)
        return folded
    total = x.take(first, axis=0)
    for j in range(1, longest):
        some = np.flatnonzero(count > j)
        total[some] = op(total.take(some, axis=0), x.take(first[some] + j, axis=0))
    return total


def _segments(op: np.ufunc, x: Array, first: NDArray[np.int64], count: NDArray[np.int64], there: Any) -> Array:
    """op over consecutive rows; 0 where a segment is empty, all but those in `there`."""
    y: Array = np.zeros((len(first) - 1, *x.shape[1:]), x.dtype)
    if len(there):
        y[there] = _reduced(op, x, first[there], count[there])
    return y


def segment_sum(a: Node, first: NDArray[np.int64]) -> Node:
    """Sums of consecutive rows: segment i is rows first[i] to first[i + 1]; 0 where it is empty."""
    count = lengths(first)
    y = _segments(np.add, value_of(a), first, count, count.nonzero()[0])
    return _made(y, (a, lambda g: np.repeat(g, count, axis=0)))


def segment_max(a: Node, first: NDArray[np.int64]) -> Node:
    """The largest of consecutive rows, column by column; 0 where a segment is empty."""
    x, count = value_of(a), lengths(first)
    there = count.nonzero()[0]
    y = _segments(np.maximum, x, first, count, there)

    def back(g: Array) -> Array:
        at = x == np.repeat(y, count, axis=0)
        if np.count_nonzero(at) > len(there) * x[:1].size:  # somewhere several are largest: each has a share
            ties = np.ones_like(y)
            ties[there] = _reduced(np.add, at.astype(x.dtype), first[there], count[there])
            g = g / ties
        share: Array = at * np.repeat(g, count, axis=0)
        return share

    return _made(y, (a, back))


def log_softmax(a: Node, first: NDArray[np.int64]) -> Node:
    """log π_i = a_i - log Σ_j exp a_j over the segment of i; every segment has an entry."""
    x, count = value_of(a), lengths(first)
    top = _reduced(np.maximum, x, first[:-1], count)
    shifted = x - np.repeat(top, count)
    e = np.exp(shifted)
    total = _reduced(np.add, e, first[:-1], count)
    y = shifted - np.repeat(np.log(total), count)

    def back(g: Array) -> Array:
        change: Array = g - np.exp(y) * np.repeat(_reduced(np.add, g, first[:-1], count), count)
        return change

    return _made(y, (a, back))
