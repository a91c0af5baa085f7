"""Randomness by address: the same seed and place give the same number, whatever else was drawn.

An episode that is replayed with one decision changed meets the same world, because nothing it draws depends on how
much was drawn before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import F

__all__ = ["U", "choice", "seeds", "uniform"]

U = NDArray[np.uint64]
_STEP, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = tuple(np.uint64(n) for n in (30, 27, 31, 11))
_MASK = (1 << 64) - 1


def seeds(seed: int, n: int, first: int = 0) -> U:
    """The seeds of n episodes of one experiment, from episode number `first` on.

    >>> seeds(7, 3)[1:].tolist() == seeds(7, 2, first=1).tolist()
    True
    """
    return _mixed(np.uint64(seed), np.arange(first, first + n))


def uniform(seed: U, *place: Any) -> F:
    """A number in [0, 1) for every address; seeds and places broadcast.

    >>> s = seeds(0, 2)
    >>> bool((uniform(s, 5) == uniform(s, 5)).all()), bool((uniform(s, 5) == uniform(s, 6)).any())
    (True, False)
    """
    for at in place:
        seed = _mixed(seed, at)
    number: F = (_mixed(seed, 0) >> _SHIFTS[3]).astype(np.float64) * 2.0**-53
    return number


def choice(seed: U, p: F, *place: Any) -> NDArray[np.int64]:
    """One of the options 0, 1, ... by their probabilities (last axis of p, one row a seed or one for all).

    >>> choice(seeds(0, 4), np.array([0.0, 1.0])).tolist()
    [1, 1, 1, 1]
    """
    u = uniform(seed, *place)
    picked: NDArray[np.int64] = (u[..., None] >= np.cumsum(p, axis=-1)[..., :-1]).sum(axis=-1)
    return picked


def _mixed(seed: Any, at: Any) -> U:
    """splitmix64's finaliser over the seed and one part of the address."""
    if isinstance(at, int):
        z = _array(seed) + _step(at)
    else:
        z = _array(at) * _STEP
        z += _STEP
        z = z + _array(seed)
    turned = z >> _SHIFTS[0]
    z ^= turned
    z *= _A
    np.right_shift(z, _SHIFTS[1], out=turned)
    z ^= turned
    z *= _B
    np.right_shift(z, _SHIFTS[2], out=turned)
    z ^= turned
    return z if np.ndim(seed) or np.ndim(at) else z.reshape(())


@lru_cache(1024)
def _step(at: int) -> np.uint64:
    return np.uint64((at + 1) * int(_STEP) & _MASK)


def _array(x: Any) -> U:
    """Whole numbers modulo 2^64. An array, since only single numbers warn when they wrap."""
    whole = x if isinstance(x, np.ndarray) and x.ndim else np.atleast_1d(x)
    return whole.view(np.uint64) if whole.dtype == np.int64 else whole.astype(np.uint64, copy=False)
