"""How long sub-agents take, how far apart they start and what they read: figures of real runs, and draws from them.

Fitted on 13 published Claude Code sessions in which sub-agents worked in parallel; printed by
`python -m bench.calibrate`. The sessions themselves are not here.

Each kind of draw is independent of the others, also at the same address. In the runs a sub-agent that calls more
tools also takes longer (rank correlation .66) and ends with more context (.77): a world that needs this must bring
it itself. Sub-agents of one run are alike, so n counts for less than so many independent ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from podium.envs.draws import U, uniform
from podium.trace.columns import F, I

__all__ = [
    "FIGURES",
    "Counts",
    "Figures",
    "Lognormal",
    "below",
    "durations",
    "normal_quantile",
    "stagger",
    "tokens",
    "tool_calls",
]


class Lognormal(NamedTuple):
    """log X is normal: mu and sigma are the mean and the standard deviation of the logarithms.

    >>> Lognormal(0.0, 1.0, 0, 0, 0.0).at(np.array([0.5])).tolist()
    [1.0]
    """

    mu: float
    sigma: float
    n: int  # so many were measured ...
    runs: int  # ... in so many sessions
    ks: float  # the largest distance between the two distribution functions, fitted and measured

    @property
    def mean(self) -> float:
        """exp(μ + σ²/2)"""
        return float(np.exp(self.mu + self.sigma**2 / 2.0))

    @property
    def median(self) -> float:
        return float(np.exp(self.mu))

    def at(self, u: F) -> F:
        """The value that a share u lies below: exp(μ + σ Φ⁻¹(u))."""
        value: F = np.exp(self.mu + self.sigma * normal_quantile(u))
        return value


class Counts(NamedTuple):
    """X - least is negative binomial: P(k) = Γ(k+r) / (k! Γ(r)) p^r (1-p)^k, matched to mean and variance.

    >>> Counts(1.0, 0.5, 0, 0, 0, 0.0).at(np.array([0.0, 0.49, 0.51, 0.76])).tolist()
    [0, 0, 1, 2]
    """

    r: float
    p: float
    least: int
    n: int
    runs: int
    ks: float

    @property
    def mean(self) -> float:
        """least + r (1-p) / p"""
        return self.least + self.r * (1.0 - self.p) / self.p

    @property
    def median(self) -> float:
        return float(self.at(np.array([0.5]))[0])

    def at(self, u: F) -> I:
        """The least value that more than a share u does not exceed."""
        value: I = self.least + np.searchsorted(below(self.r, self.p), u, side="right")
        return value


class Figures(NamedTuple):
    """Each fit and, in brackets, the unit. Every line is about parallel runs only."""

    durations: Lognormal  # a sub-agent from launch to return [s]
    stagger: Lognormal  # between two launches in one message of the lead [s]
    turns: Lognormal  # between two launches in a message each, with nothing else in between [s]
    calls: Counts  # tool calls of one sub-agent
    width: Counts  # launches in one fan-out; a lone launch is a fan-out of 1
    read: Lognormal  # input of all model calls of one sub-agent, cached input too [tokens]
    context: Lognormal  # context of a sub-agent at its end [tokens]
    answer: Lognormal  # what a sub-agent returns [tokens]
    tool: Lognormal  # a tool call of a sub-agent [s]
    lead_tool: Lognormal  # a tool call of the lead; the wait for a permission is in it [s]
    lead_read: Lognormal  # input of one model call of the lead [tokens]
    lead_wrote: Lognormal  # output of one model call of the lead [tokens]


FIGURES = Figures(
    durations=Lognormal(mu=5.0058, sigma=1.0868, n=80, runs=13, ks=0.094),
    stagger=Lognormal(mu=1.6539, sigma=0.5181, n=41, runs=11, ks=0.172),
    turns=Lognormal(mu=2.948, sigma=0.1664, n=10, runs=2, ks=0.2201),
    calls=Counts(r=2.5178, p=0.0885, least=0, n=76, runs=13, ks=0.064),
    width=Counts(r=0.3047, p=0.1605, least=1, n=32, runs=13, ks=0.0727),
    read=Lognormal(mu=13.3423, sigma=0.8489, n=21, runs=7, ks=0.1735),
    context=Lognormal(mu=11.2991, sigma=0.4182, n=75, runs=13, ks=0.0956),
    answer=Lognormal(mu=7.5302, sigma=0.8527, n=17, runs=7, ks=0.2021),
    tool=Lognormal(mu=-2.5173, sigma=2.5046, n=634, runs=7, ks=0.1655),
    lead_tool=Lognormal(mu=-1.2854, sigma=2.6896, n=975, runs=13, ks=0.0617),
    lead_read=Lognormal(mu=11.6545, sigma=0.4663, n=1080, runs=13, ks=0.079),
    lead_wrote=Lognormal(mu=5.7326, sigma=1.3209, n=442, runs=5, ks=0.0618),
)

# Numerator and denominator for the middle, the tail and the far tail, highest power first.
_NEAR = np.array(
    """
    2509.0809287301226727 33430.575583588128105 67265.770927008700853 45921.953931549871457
    13731.693765509461125 1971.5909503065514427 133.14166789178437745 3.3871328727963666080
    5226.4952788528545610 28729.085735721942674 39307.895800092710610 21213.794301586595867
    5394.1960214247511077 687.18700749205790830 42.313330701600911252 1.0
    """.split(),
    float,
).reshape(2, 8)
_TAIL = np.array(
    """
    7.7454501427834140764e-4 0.0227238449892691845833 0.241780725177450611770 1.27045825245236838258
    3.64784832476320460504 5.76949722146069140550 4.63033784615654529590 1.42343711074968357734
    1.05075007164441684324e-9 5.4759380849953449460e-4 0.0151986665636164571966 0.148103976427480074590
    0.689767334985100004550 1.67638483018380384940 2.05319162663775882187 1.0
    """.split(),
    float,
).reshape(2, 8)
_FAR = np.array(
    """
    2.01033439929228813265e-7 2.71155556874348757815e-5 0.00124266094738807843860 0.0265321895265761230930
    0.296560571828504891230 1.78482653991729133580 5.46378491116411436990 6.65790464350110377720
    2.04426310338993978564e-15 1.4215117583164458887e-7 1.8463183175100546818e-5 7.8686913114561325910e-4
    0.0148753612908506148525 0.136929880922735805310 0.599832206555887937690 1.0
    """.split(),
    float,
).reshape(2, 8)


def normal_quantile(u: F) -> F:
    """Φ⁻¹(u) by rational approximation, to about 16 digits; 0 counts as 2^-54, half the least number drawn above
    it.

    from: Wichura 1988, algorithm AS 241.

    >>> normal_quantile(np.array([0.025, 0.5, 0.975])).round(6).tolist()
    [-1.959964, 0.0, 1.959964]
    """
    u = np.maximum(u, 2.0**-54)
    q = u - 0.5
    near = np.abs(q) <= 0.425
    r = np.sqrt(-np.log(np.minimum(u, 1.0 - u)))
    tail = np.where(r <= 5.0, _ratio(_TAIL, r - 1.6), _ratio(_FAR, r - 5.0))
    z: F = np.where(near, q * _ratio(_NEAR, 0.180625 - q * q), np.copysign(tail, q))
    return z


def _ratio(of: F, r: F) -> F:
    ratio: F = np.polyval(of[0], r) / np.polyval(of[1], r)
    return ratio


@cache
def below(r: float, p: float) -> F:
    """P(X ≤ k) of the negative binomial for k = 0, 1, ... until all but 1e-15 is counted."""
    sums: list[float] = []
    term, total = p**r, 0.0
    while total < 1.0 - 1e-15 and (term > 1e-18 or len(sums) < r / p):
        total += term
        sums.append(total)
        term *= (len(sums) - 1 + r) / len(sums) * (1.0 - p)
    shares: F = np.array(sums)
    shares.setflags(write=False)  # the cache hands the same array to everyone
    return shares


def durations(seed: U, *place: Any) -> F:
    """Seconds that a sub-agent takes, one for every address."""
    return FIGURES.durations.at(uniform(seed, *place, 1))


def stagger(seed: U, *place: Any) -> F:
    """Seconds between a launch and the one before it in the same fan-out."""
    return FIGURES.stagger.at(uniform(seed, *place, 2))


def tokens(seed: U, *place: Any, of: Lognormal = FIGURES.read) -> I:
    """Tokens that a sub-agent reads over its life, or with `of` another of the figures in tokens; at least 1."""
    count: I = np.maximum(np.rint(of.at(uniform(seed, *place, 3))), 1.0).astype(np.int64)
    return count


def tool_calls(seed: U, *place: Any) -> I:
    """Tool calls that a sub-agent makes."""
    return FIGURES.calls.at(uniform(seed, *place, 4))
