"""Ballots that echo one another: who votes is easy to count, who thought is not.

Voters lean on sources, and voters of one source mostly repeat it. The lead sees of every ballot its type, its
source and its vote, and answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, groupby, product
from math import comb, factorial, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.world import LEAD, BadParameter, Params, Policy, State, View, World, param, register
from podium.trace.columns import B, F, Text

__all__ = ["Jury"]

COIN, TYPE, SAID, JOIN, BALLOT = (i << 8 for i in range(5))  # what a draw is about; a number is added

N64 = NDArray[np.int64]


@dataclass(frozen=True)
class JuryParams(Params):
    m: int = param(9, "a whole number from 1 to 20: the ballots", lambda n: isinstance(n, int) and 1 <= n <= 20)
    s: int = param(4, "a whole number from 1 to 5: the sources", lambda n: isinstance(n, int) and 1 <= n <= 5)
    copy: float = param(
        0.9, "a probability from 0 to 1: how often a ballot repeats its source", lambda c: 0 <= c <= 1
    )
    reliability: tuple[float, ...] = param(
        (0.75, 0.70, 0.55),
        "one to four probabilities, how often each type is right",
        lambda r: 1 <= len(r) <= 4 and all(0 <= p <= 1 for p in r),
    )

    def __post_init__(self) -> None:
        if isinstance(self.reliability, list):  # as JSON has it
            object.__setattr__(self, "reliability", tuple(self.reliability))
        super().__post_init__()
        if self.s > self.m:
            raise BadParameter(f"s must be at most m={self.m}: every source has a ballot; got {self.s!r}")


@dataclass
class Sitting(State):
    coin: N64  # hidden
    type: N64  # [episode, source]
    source: N64  # [episode, ballot]
    vote: N64  # [episode, ballot]
    returned: N64  # handles [episode, ballot]


@register
class Jury(World):
    """Score = 1 if the answer is the coin's, else 0.

    Each source is of a type, each type as likely. The first s ballots come from sources 1 to s; each further one
    joins the source of an earlier ballot, any of them as likely, so that every split of the ballots over the
    sources is equally likely. A source of a type is right with that type's reliability; a ballot repeats its source
    with probability `copy`, else it is right afresh with the same reliability.
    """

    name = "jury"
    Params = JuryParams
    decides = ("aggregate",)
    facts = ("ballots", "sources")
    items = ("type", "source", "vote")
    options = ("0", "1")

    def __init__(self, params: JuryParams) -> None:
        super().__init__(params)
        self.voters = tuple(f"voter {b}" for b in range(1, params.m + 1))

    def start(self, seed: U, log: Log | None = None) -> Sitting:
        p, n = self.params, len(seed)
        coin = (uniform(seed, COIN) < 0.5).astype(np.int64)
        type_, said, right = (
            np.empty((p.s, n), np.int64),
            np.empty((p.s, n), np.bool_),
            np.empty((p.m, n), np.bool_),
        )
        reliability, every = np.array(p.reliability), np.arange(n)
        for j in range(p.s):
            type_[j] = uniform(seed, TYPE + j) * len(reliability)
            said[j] = uniform(seed, SAID + j) < reliability[type_[j]]
        source = np.empty((p.m, n), np.int64)
        for b in range(p.m):
            joins = (uniform(seed, JOIN + b) * b).astype(np.int64) if b >= p.s else None
            source[b] = b if joins is None else source[joins, every]
            u = uniform(seed, BALLOT + b)  # its part above `copy` is a draw of its own
            afresh = u - p.copy < (1 - p.copy) * reliability[type_[source[b], every]]
            right[b] = np.where(u < p.copy, said[source[b], every], afresh)
        vote = np.where(right, coin, 1 - coin)
        fresh = (seed, np.ones(n, np.bool_), np.zeros(n), log, np.full(n, np.nan))
        state = Sitting(*fresh, coin, type_.T, source.T, vote.T, np.full((n, p.m), -1))
        self._log_ballots(state)
        return state

    def view(self, state: Sitting) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        p = self.params
        facts = np.broadcast_to(np.array([p.m, p.s], np.float64), (len(row), 2))
        allowed: B = np.broadcast_to(np.bool_(True), (len(row), 2))

        def items() -> tuple[F, N64]:
            source, ballots = state.source[row], np.empty((len(row), p.m, 3))
            ballots[:, :, 0] = state.type[row[:, None], source] + 1
            ballots[:, :, 1] = source + 1
            ballots[:, :, 2] = state.vote[row]
            return ballots.reshape(-1, 3), np.repeat(np.arange(len(row)), p.m)

        return View(row, "aggregate", LEAD, facts, allowed, items)

    def act(self, state: Sitting, view: View, choice: N64) -> None:
        row = view.row
        state.open[row] = False
        state.score[row] = choice == state.coin[row]
        if state.log is None:
            return
        returns: list[tuple[Any, N64]] = [("return", state.returned[row, b]) for b in range(self.params.m)]
        answer = Text(choice, self.options)
        decision = state.log.decide(
            row, "aggregate", LEAD, 2.0, self.options, answer, state.logp[row], returns, role="lead"
        )
        state.log.add(row, "aggregate", LEAD, 3.0, [("aggregate", decision)], role="lead", content_ref=answer)

    def _log_ballots(self, state: Sitting) -> None:
        log, row = state.log, np.arange(len(state.seed))
        if log is None:
            return
        types = range(1, len(self.params.reliability) + 1)
        words = [f"type {t}, source {s + 1}: {v}" for t in types for s in range(self.params.s) for v in (0, 1)]
        for b, voter in enumerate(self.voters):
            spawned = log.add(row, "spawn", LEAD, 0.0, to=voter, role="lead")
            source = state.source[:, b]
            kinds = (state.type[row, source] * self.params.s + source) * 2 + state.vote[:, b]
            state.returned[:, b] = log.add(
                row,
                "return",
                voter,
                1.0,
                [("spawn", spawned)],
                to=LEAD,
                role="voter",
                content_ref=Text(kinds, words),
            )

    def optimum(self) -> float:
        """V = sum over ballots of max_y P(y, ballots), with for each source of type t and k ballots, j of them for
        y,

        P(its votes given y) = r a^j (1 - a)^(k - j) + (1 - r) b^j (1 - b)^(k - j),
        b = (1 - copy) r,  a = copy + b
        """
        return _expected(self.params, _best)

    def majority(self) -> float:
        """The expected score of the majority of ballots, half where they tie."""
        return _expected(self.params, _majority)

    def optimal(self) -> Policy:
        p = self.params
        ratio = np.full((len(p.reliability), p.m + 1, p.m + 1), 0.0)  # [type, ballots, of them 1]
        for t, k in product(range(len(p.reliability)), range(1, p.m + 1)):
            like = _votes(p.reliability[t], k, p.copy)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio[t, k, : k + 1] = np.nan_to_num(np.log(like) - np.log(like[::-1]), posinf=1e6, neginf=-1e6)

        def policy(view: View) -> N64:
            ballots, owner = view.items()
            type_, source, vote = ballots.astype(np.int64).T
            cell, cells = owner * p.s + source - 1, len(view) * p.s
            type_s = np.zeros(cells, np.int64)
            type_s[cell] = type_ - 1
            ones, count = np.bincount(cell, vote, cells).astype(np.int64), np.bincount(cell, minlength=cells)
            for_one: F = ratio[type_s, count, ones].reshape(-1, p.s).sum(1)
            return (for_one > 0).astype(np.int64)

        return policy

    def trivial(self) -> dict[str, Policy]:
        """Always 1, at random, the first ballot, one ballot of the best type there is, the majority of ballots."""
        rank, dice = np.argsort(np.argsort(self.params.reliability)), np.random.default_rng(0)
        m = self.params.m

        def ballots(view: View) -> F:
            return view.items()[0].reshape(len(view), m, 3)

        def single(view: View) -> N64:
            votes = ballots(view)
            best = np.argmax(rank[votes[:, :, 0].astype(np.int64) - 1], axis=1)
            chosen: N64 = votes[np.arange(len(view)), best, 2].astype(np.int64)
            return chosen

        return {
            "always 1": lambda view: np.ones(len(view), np.int64),
            "random": lambda view: dice.integers(2, size=len(view)),
            "first ballot": lambda view: ballots(view)[:, 0, 2].astype(np.int64),
            "best single": single,
            "majority": lambda view: (ballots(view)[:, :, 2].mean(1) > 0.5).astype(np.int64),
        }

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        return {"m": int(dice.choice([7, 11, 13])), "s": int(dice.integers(4, 6))}

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        return {"m": int(dice.choice([6, 8, 9, 10, 12, 14])), "s": int(dice.integers(3, 6))}


def _votes(r: float, k: int, copy: float) -> F:
    """P(one pattern of k ballots of a source, j of them for y, given y) for j = 0 .. k."""
    b = (1 - copy) * r
    a, j = copy + b, np.arange(k + 1)
    like: F = r * a**j * (1 - a) ** (k - j) + (1 - r) * b**j * (1 - b) ** (k - j)
    return like


def _rosters(p: JuryParams) -> Iterator[tuple[float, tuple[tuple[int, int], ...]]]:
    """What sources there may be, as (ballots, type) of each in no order, with the probability of it."""
    whole = comb(p.m - 1, p.s - 1) * len(p.reliability) ** p.s
    for sizes in _splits(p.m, p.s, 1):
        alike = [(k, len(list(some))) for k, some in groupby(sizes)]
        picks = [list(combinations_with_replacement(range(len(p.reliability)), n)) for _, n in alike]
        for types in product(*picks):
            roster = tuple((k, t) for (k, _), some in zip(alike, types, strict=True) for t in some)
            orders = factorial(p.s) // prod(factorial(n) for n in Counter(roster).values())
            yield orders / whole, roster


def _splits(total: int, parts: int, least: int) -> Iterator[tuple[int, ...]]:
    """The ways to write a total as so many parts in ascending order.

    >>> list(_splits(5, 2, 1))
    [(1, 4), (2, 3)]
    """
    if parts == 1:
        yield (total,)
        return
    for first in range(least, total // parts + 1):
        for rest in _splits(total - first, parts - 1, first):
            yield first, *rest


Counted = Callable[[F, F, N64, int], float]


@lru_cache(maxsize=64)
def _expected(p: JuryParams, counted: Counted) -> float:
    """The mean over rosters of what is counted over the numbers of ballots for y that each source may have."""
    total = 0.0
    for weight, roster in _rosters(p):
        given, other, right = np.ones(1), np.ones(1), np.zeros(1, np.int64)
        for k, t in roster:
            like, ways = _votes(p.reliability[t], k, p.copy), np.array([comb(k, j) for j in range(k + 1)], float)
            given = np.multiply.outer(given, ways * like).ravel()
            other = np.multiply.outer(other, ways * like[::-1]).ravel()
            right = np.add.outer(right, np.arange(k + 1)).ravel()
        total += weight * counted(given, other, right, p.m)
    return total


def _best(given: F, other: F, right: N64, m: int) -> float:
    return float(np.maximum(given, other).sum() / 2)


def _majority(given: F, other: F, right: N64, m: int) -> float:
    return float((given * (np.sign(2 * right - m) + 1) / 2).sum())
