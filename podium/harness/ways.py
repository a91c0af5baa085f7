"""Ways to combine what children returned. A team may have ways of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

import msgspec

__all__ = ["WAYS", "Way"]

Way = Callable[[list[Any]], Any]


def vote(values: list[Any]) -> Any:
    """The value most children returned; of equally many, the one returned first.

    >>> vote(["a", "b", "b", "a"])
    'a'
    """
    spelt = [msgspec.json.encode(v) for v in values]
    most = Counter(spelt).most_common(1)[0][0]  # of equals, the first
    return values[spelt.index(most)]


def first(values: list[Any]) -> Any:
    return values[0]


def last(values: list[Any]) -> Any:
    return values[-1]


def mean(values: list[Any]) -> float:
    return fmean(values)


def middle(values: list[Any]) -> Any:
    return median(values)


def total(values: list[Any]) -> Any:
    return sum(values)


def longest(values: list[Any]) -> Any:
    return max(values, key=len)


def join(values: list[Any]) -> str:
    return "\n".join(v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in values)


def every(values: list[Any]) -> list[Any]:
    return values


WAYS: dict[str, Way] = {way.__name__: way for way in (vote, first, last, mean, middle, total, longest, join, every)}
