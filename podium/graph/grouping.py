"""Sorting rows into groups, and numbering the groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F, I

__all__ = [
    "any_by",
    "changes",
    "count_by",
    "count_of",
    "ends",
    "first_by",
    "group_totals",
    "last_by",
    "mean_by",
    "numbered",
    "numbered_together",
    "ratio",
    "rows_by",
    "rows_by_time",
    "sum_by",
    "take",
    "total_by",
    "unset",
]


def rows_by(key: I) -> NDArray[np.int64]:
    """The rows in the order of their key, equal keys in row order. Keys are at least -1.

    Sixteen bits at a time, because numpy sorts those by counting, in linear time.

    >>> rows_by(np.array([70_000, -1, 2, -1])).tolist()
    [1, 3, 2, 0]
    """
    place = key.astype(np.int64) + 1
    order = np.argsort(place.astype(np.uint16), kind="stable")
    left = int(place.max(initial=0)) >> 16
    for shift in range(16, 16 + left.bit_length(), 16):
        digit = (place >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def rows_by_time(t: F) -> NDArray[np.int64]:
    """The rows in the order of their times, equal times in row order.

    Put into 65,536 buckets first, so that little is left for a sort that gains from order.

    >>> rows_by_time(np.array([2.5, 0.5, 2.5, 1.0])).tolist()
    [1, 3, 0, 2]
    """
    low, high = t.min(initial=np.inf), t.max(initial=-np.inf)
    with np.errstate(all="ignore"):
        scale = 65535.0 / (high - low)
    if not 0 < scale < np.inf:
        return np.argsort(t, kind="stable")
    order = np.argsort(((t - low) * scale).astype(np.uint16), kind="stable")
    return order[np.argsort(t[order], kind="stable")]


def count_of(number: I) -> int:
    """How many groups a column of their numbers tells of: one more than the greatest. -1 is no group.

    >>> count_of(np.array([2, -1, 0])), count_of(np.array([-1])), count_of(np.array([], int))
    (3, 0, 0)
    """
    return int(number.max(initial=-1)) + 1


def changes(values: NDArray[Any]) -> B:
    """Where a value differs from the one before it. The first one does.

    >>> changes(np.array([4, 4, 7, 4])).tolist()
    [True, False, True, True]
    """
    changed = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def ends(values: NDArray[Any]) -> B:
    """Where a value differs from the one after it. The last one does.

    >>> ends(np.array([4, 4, 7, 4])).tolist()
    [False, True, True, True]
    """
    return changes(values[::-1])[::-1]


def take(values: NDArray[Any], rows: I) -> NDArray[Any]:
    """The value at each row; what says that there is none (NaN, -1 or false) for the row -1.

    >>> rows = np.array([1, -1])
    >>> [take(np.array(values), rows).tolist() for values in ([0.5, 0.25], [3, 4], [True, True])]
    [[0.25, nan], [4, -1], [True, False]]
    """
    none = {"f": np.nan, "b": False}.get(values.dtype.kind, -1)
    return np.append(values, none)[rows]


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> F:
    """The part of each whole; NaN where there is no whole.

    >>> ratio(np.array([1, 0]), np.array([4, 0])).tolist()
    [0.25, nan]
    """
    share: F = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return share


def unset(n: int) -> NDArray[np.int64]:
    """A column of n places of which none is set: -1.

    >>> unset(2).tolist()
    [-1, -1]
    """
    return np.full(n, -1)


def numbered(order: I, opens: B, n: int) -> NDArray[np.int64]:
    """Groups that lie one after the other in `order`, numbered by the first row each holds; -1 for other rows.

    `opens` says where in `order` a group begins, `n` how many rows there are.

    >>> numbered(np.array([1, 3, 0]), np.array([True, False, True]), 4).tolist()
    [0, 1, -1, 1]
    """
    at = np.flatnonzero(opens)
    is_first_e = np.zeros(n, np.bool_)
    is_first_e[order[at]] = True
    number_g = np.cumsum(is_first_e, dtype=np.int32 if n < 2**31 else np.int64)[order[at]] - 1
    group_e = unset(n)
    group_e[order] = np.repeat(number_g, np.diff(at, append=len(order)))
    return group_e


def sum_by(group: I, values: F, n: int) -> tuple[F, NDArray[np.int64]]:
    """The sum of each group's recorded values and how many there were; NaN where there was none. -1 is no group.

    >>> sum_by(np.array([0, 0, 1]), np.array([1.0, 2.0, np.nan]), 2)
    (array([ 3., nan]), array([2, 0]))
    """
    known = ~np.isnan(values) & (group >= 0)
    count = np.bincount(group[known], minlength=n)
    total = np.bincount(group[known], values[known], minlength=n)
    return np.where(count > 0, total, np.nan), count


def total_by(group: I, values: NDArray[Any], n: int) -> F:
    """The sum of each group's values, NaN if one of them is; -1 is no group.

    >>> total_by(np.array([0, -1, 0, 2]), np.array([1.0, 2.0, 4.0, np.nan]), 3).tolist()
    [5.0, 0.0, nan]
    """
    inside = group >= 0
    total: F = np.bincount(group[inside], values[inside], minlength=n).astype(np.float64)
    return total


def group_totals(group: I, values: NDArray[Any]) -> F:
    """For each row the sum over its group; NaN for a row of no group (-1).

    >>> group_totals(np.array([1, 0, 1, -1]), np.array([1.0, 2.0, 4.0, 8.0])).tolist()
    [5.0, 2.0, 5.0, nan]
    """
    return take(total_by(group, values, count_of(group)), group)


def count_by(group: I, which: B, n: int) -> NDArray[np.int64]:
    """How many such rows each group has; -1 is no group.

    >>> count_by(np.array([0, -1, 0, 2]), np.array([True, True, True, False]), 3).tolist()
    [2, 0, 0]
    """
    return np.bincount(group[which & (group >= 0)], minlength=n)


def mean_by(group: I, values: F, n: int) -> F:
    """The mean of each group's recorded values; NaN where there was none. -1 is no group.

    >>> mean_by(np.array([0, 0, 1]), np.array([1.0, 2.0, np.nan]), 2).tolist()
    [1.5, nan]
    """
    return ratio(*sum_by(group, values, n))


def any_by(group: I, which: B, n: int) -> B:
    """Whether any row is such in each of n groups; -1 is no group.

    >>> any_by(np.array([0, -1, 2]), np.array([True, True, False]), 3).tolist()
    [True, False, False]
    """
    there = np.zeros(n + 1, np.bool_)  # the last entry is for rows of no group
    there[group[which]] = True
    return there[:n]


def first_by(group: I, which: B, n: int) -> NDArray[np.int64]:
    """The first such row of each of n groups; -1 where there is none. -1 is no group.

    >>> first_by(np.array([0, 0, -1, 2]), np.array([False, True, True, True]), 3).tolist()
    [1, -1, 3]
    """
    return _written(group, np.flatnonzero(which)[::-1], n)


def last_by(group: I, which: B, n: int) -> NDArray[np.int64]:
    """The last such row of each of n groups; -1 where there is none. -1 is no group.

    >>> last_by(np.array([0, 0, 2]), np.array([True, True, True]), 3).tolist()
    [1, -1, 2]
    """
    return _written(group, np.flatnonzero(which), n)


def _written(group: I, rows: NDArray[np.intp], n: int) -> NDArray[np.int64]:
    """Of the rows of each group the one that comes last here, since what is written last stays."""
    row = unset(n + 1)  # the last entry is for rows of no group
    row[group[rows]] = rows
    return row[:n]


def numbered_together(*columns: I) -> NDArray[np.int64]:
    """One number for each different tuple, in the order of tuples; -1 where any part is -1.

    >>> numbered_together(np.array([5, 5, 7, -1]), np.array([0, 1, 0, 0])).tolist()
    [0, 1, 2, -1]
    """
    there = columns[0] >= 0
    for column in columns[1:]:
        there &= column >= 0
    every = bool(there.all())
    number: NDArray[np.int64] | None = None
    for column in columns:
        code = (column if every else column[there]).astype(np.int64)
        number = _dense(code if number is None else number * count_of(code) + code)
    assert number is not None
    if every:
        return number
    whole = unset(len(there))
    whole[there] = number
    return whole


def _dense(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole numbers of 0 or more as 0, 1, ... in their order."""
    most = count_of(key)
    if most <= 8 * len(key) + 1024:
        there = np.zeros(most, np.bool_)
        there[key] = True
        return key if there.all() else (np.cumsum(there) - 1)[key]
    order = rows_by(key)
    ranked = np.cumsum(np.diff(key[order], prepend=key[order[:1]]) > 0)
    dense = np.empty(len(key), np.int64)
    dense[order] = ranked
    return dense
