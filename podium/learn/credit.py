"""Credit of branched decisions straight from columns: what `podium.credit` gives on the traces of the same episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.learn.tape import Array
from podium.trace.columns import F

__all__ = ["same_prefix"]


def same_prefix(earned: F, logp: Array, start: NDArray[np.int64]) -> F:
    """The method `branching_policy`, same_prefix("policy", same="option"), for entries that are options tried:

    A_k = Q_k - Σ_j π_j Q_j / Σ_j π_j   over the options j tried at the same decision
    """
    p = np.exp(logp.astype(np.float64))
    first = start[:-1]
    base = np.add.reduceat(p * earned, first) / np.add.reduceat(p, first)
    credit: F = earned - np.repeat(base, np.diff(start))
    return credit
