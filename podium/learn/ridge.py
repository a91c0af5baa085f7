"""Ridge regression, and fits that tell each half of some runs by the other, so that no run's luck is told of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F

__all__ = ["by_halves", "ridge"]


def ridge(x: F, y: F, strength: float) -> F:
    """θ = (XᵀX + r I)⁻¹ Xᵀ y,   r = strength x the features' mean square

    >>> ridge(np.array([[1.0], [2.0]]), np.array([2.0, 4.0]), 0.0).round(6)
    array([2.])
    """
    square = x.T @ x
    more = strength * float(np.trace(square)) / len(square) + 1e-9
    return np.asarray(np.linalg.solve(square + more * np.eye(len(square)), x.T @ y), np.float64)


def by_halves(
    run: NDArray[np.int64], fit: Callable[[B], Callable[..., F]], *at: F, owner: NDArray[np.int64] | None = None
) -> F:
    """Rows of even runs as told by a fit to odd ones, and the other way round."""
    odd = run % 2 == 1
    low, high = fit(odd)(*at), fit(~odd)(*at)
    return np.where(odd if owner is None else odd[owner], high, low)
