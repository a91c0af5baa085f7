"""Credit as columns: of branched decisions straight from what they earned, as `podium.credit` gives it on the
traces of the same episodes; and of units, at events."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.credit import Credit
from podium.graph import units
from podium.learn.tape import Array
from podium.trace.columns import F

__all__ = ["at_events", "same_prefix"]


def same_prefix(earned: F, logp: Array, start: NDArray[np.int64]) -> F:
    """The method `branching_policy`, same_prefix("policy", same="option"), for entries that are options tried:

    A_k = Q_k - Σ_j π_j Q_j / Σ_j π_j   over the options j tried at the same decision
    """
    p = np.exp(logp.astype(np.float64))
    first = start[:-1]
    base = np.add.reduceat(p * earned, first) / np.add.reduceat(p, first)
    credit: F = earned - np.repeat(base, np.diff(start))
    return credit


def at_events(given: Credit, value: F) -> F:
    """Of each event the value of the unit that it belongs to; NaN where there is none or it cannot be told."""
    if given.unit == "token":
        column: F = np.full(given.trace.n_events, np.nan)
        column[given.trace.owner_k] = value
        return column
    place = units.place(given.trace, given.unit)
    values: F = np.append(value, np.nan)[np.where(place >= 0, place, -1)]
    return values
