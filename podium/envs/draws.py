"""Randomness by address: the same seed and place give the same number, whatever else was drawn.

An episode that is replayed with one decision changed meets the same world, because nothing it draws depends on how
much was drawn before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import F

__all__ = ["U", "choice", "seeds", "uniform"]

U = NDArray[np.uint64]
_STEP, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
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
    number: F = (_mixed(seed, 0) >> np.uint64(11)).astype(np.float64) * 2.0**-53
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
    step: Any
    if isinstance(at, int):
        step = np.uint64((at + 1) * int(_STEP) & _MASK)
    else:
        step = np.atleast_1d(np.asarray(at, np.int64)).astype(np.uint64)
        step += np.uint64(1)
        step *= _STEP
    # arrays, since only single numbers warn when they wrap
    z: U = np.atleast_1d(np.asarray(seed, np.uint64)) + step
    turned = z >> np.uint64(30)
    z ^= turned
    z *= _A
    np.right_shift(z, np.uint64(27), out=turned)
    z ^= turned
    z *= _B
    np.right_shift(z, np.uint64(31), out=turned)
    z ^= turned
    return z if np.ndim(seed) or np.ndim(at) else z.reshape(())
