"""What comes after what: units in chains of moments, and recursions that run back along them.

Units of a chain that begin at the same time share a moment. Where a chain does not say when its units began, their
rows tell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.keys import numbered_together
from podium.graph.grouping import (
    any_by,
    changes,
    count_of,
    ends,
    first_by,
    rows_by,
    rows_by_time,
    take,
    total_by,
    unset,
)
from podium.registry import find
from podium.trace.columns import B, F, I

__all__ = ["ALONG", "Timeline", "backward", "before", "mean_at", "previous", "sum_at", "timeline"]

ALONG = ("rollout", "agent", "player", "round")


class Timeline(NamedTuple):
    """The moment of each unit (-1: in no chain); of each moment whether it is the chain's last, and its chain."""

    at: NDArray[np.int64]
    last: B
    chain: I


def timeline(credit: Credit, along: str, there: B | None = None) -> Timeline:
    """Chains of moments: a run's, an agent's in it, a player's, or a run's rounds (`stage`); of units `there`."""
    if along not in ALONG:
        raise BadCredit(f"along must be one of {', '.join(ALONG)} or edges, got {along!r}")
    chain = credit.rollout
    if along in ("agent", "player"):
        chain = numbered_together(chain, find("key", along)(credit.trace, credit.unit))
    when = _rounds(credit) if along == "round" else _times(credit, chain)
    chain = np.where(np.isnan(when) if there is None else np.isnan(when) | ~there, -1, chain)
    order = _by_chain(chain, when)
    opens = changes(chain[order]) | changes(when[order])
    at = unset(len(chain))
    at[order] = np.cumsum(opens) - 1
    of = chain[order[opens]]
    return Timeline(at, ends(of), of)


def _by_chain(chain: I, when: F) -> NDArray[np.int64]:
    """The units that are in a chain, chain by chain, each in time."""
    order = np.flatnonzero(chain >= 0)
    later = (chain[order[1:]] > chain[order[:-1]]) | (
        (chain[order[1:]] == chain[order[:-1]]) & (when[order[1:]] >= when[order[:-1]])
    )
    if later.all():
        return order
    order = order[rows_by_time(when[order])]
    return order[rows_by(chain[order])]


def _rounds(credit: Credit) -> F:
    stage = take(credit.trace.stage_e, credit.rows)
    return np.where(stage >= 0, stage, np.nan).astype(np.float64)


def _times(credit: Credit, chain: I) -> F:
    """When each unit began; its row in chains of which a unit does not say. Tokens come one by one after that."""
    trace, rows = credit.trace, credit.rows
    t = np.where(rows >= 0, take(trace.t_e, rows), np.nan)
    silent = any_by(chain, np.isnan(t), count_of(chain))
    when = np.where(take(silent, chain), rows.astype(np.float64), t)
    return _token_places(credit.trace.owner_k, when) if credit.unit == "token" else when


def _token_places(owner: I, when: F) -> F:
    """The order of tokens: when their generations began, then their places in them.

    >>> _token_places(np.array([0, 0, 1, 1, 1]), np.array([5.0, 5.0, 5.0, 5.0, 5.0])).tolist()
    [0.0, 1.0, 0.0, 1.0, 2.0]
    """
    order = rows_by(owner)
    at = np.flatnonzero(changes(owner[order]))
    place = np.empty(len(owner))
    place[order] = np.arange(len(owner)) - np.repeat(at, np.diff(at, append=len(owner)))
    times = np.unique(when, return_inverse=True)[1]
    moment: F = times * (place.max(initial=0.0) + 1.0) + place
    return moment


def sum_at(line: Timeline, value: F) -> F:
    """The sum of the values at each moment; NaN where one has none."""
    return total_by(line.at, value, len(line.last))


def mean_at(line: Timeline, value: F) -> F:
    """The mean of the values at each moment; NaN where one has none."""
    return sum_at(line, value) / np.bincount(line.at[line.at >= 0])


def backward(value: F, factor: F) -> F:
    """y_i = value_i + factor_i · y_{i+1}, all i at once, by doubling. The last factor counts as 0.

    >>> backward(np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.5, 9.0])).tolist()
    [3.0, 4.0, 4.0]
    """
    y, a = value.astype(np.float64), factor.astype(np.float64)
    if not len(y):
        return y
    a[-1] = 0.0
    step = 1
    while step < len(y) and a.any():
        y[:-step] += np.where(a[:-step] != 0.0, a[:-step] * y[step:], 0.0)
        a[:-step] *= a[step:]
        a[-step:] = 0.0
        step *= 2
    return y


def before(line: Timeline, value: F) -> F:
    """For each unit the mean of the values at the moment before its own in its chain; NaN for the first."""
    opens = changes(line.chain)
    mean = mean_at(line, value)
    past = np.where(opens, np.nan, np.append(np.nan, mean[:-1])[: len(mean)])
    value_u: F = take(past, line.at)
    return value_u


def previous(line: Timeline) -> I:
    """For each unit a unit of the moment before its own in its chain (the lowest); -1 for the first."""
    first = first_by(line.at, line.at >= 0, len(line.last))
    before = np.where(changes(line.chain), -1, np.arange(len(line.last)) - 1)
    unit: I = take(first, take(before, line.at))
    return unit
