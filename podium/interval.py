"""A mean with its 95 % interval, and how many values it rests on."""

from __future__ import annotations

from math import nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "estimate", "student"]


class Estimate(NamedTuple):
    """A mean, the interval that covers it in 95 of 100 repetitions, and the number of values; NaN where there are
    too few."""

    mean: float
    low: float
    high: float
    n: int


def estimate(values: NDArray[np.floating], level: float = 0.95) -> Estimate:
    """The mean of the values that are there, with an interval.

        m ± t(n-1) s / √n,     and for values that are all 0 or 1 Wilson's interval

    NaN for the interval of fewer than two values.

    >>> estimate(np.array([1.0, 2.0, 3.0, np.nan]))
    Estimate(mean=2.0, low=-0.484..., high=4.484..., n=3)
    """
    there = np.asarray(values, float)
    there = there[~np.isnan(there)]
    n = len(there)
    if not n:
        return Estimate(nan, nan, nan, 0)
    mean = float(there.mean())
    if n < 2:
        return Estimate(mean, nan, nan, n)
    if np.isin(there, (0.0, 1.0)).all():
        return Estimate(mean, *_wilson(mean, n, level), n)
    half = student(n - 1, level) * float(there.std(ddof=1)) / sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def _wilson(share: float, n: int, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle, spread = share + z * z / (2 * n), z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def student(freedom: int, level: float = 0.95) -> float:
    """The half-width, in standard errors, of a two-sided interval with this many degrees of freedom.

    Closed forms for one and two, Hill's expansion (1970) beyond, which is right to four digits.

    >>> [round(student(n), 3) for n in (1, 2, 4, 10, 1000)]
    [12.706, 4.303, 2.776, 2.228, 1.962]
    """
    p = 1 - level
    if freedom == 1:
        return float(1 / np.tan(p * np.pi / 2))
    if freedom == 2:
        return sqrt(2 / (p * (2 - p)) - 2)
    n = float(freedom)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * np.pi / 2) * n
    y = (d * p) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(p / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = float(np.expm1(a * y * y))
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) / (
            n + 2
        ) + 1 / y
    return sqrt(n * y)
