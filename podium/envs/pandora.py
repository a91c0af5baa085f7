"""Pandora's boxes: specialists with a price each; open one more, or keep the best answer seen.

Weitzman (1979). What a specialist's answer is worth depends on its kind; the distributions of the kinds are hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.world import LEAD, BadParameter, Params, Policy, State, View, World, param, register
from podium.trace.columns import F

__all__ = ["Box", "Pandora", "by_programming", "closed_form", "index", "kept_best"]

STOP = 0  # option i + 1 opens box i
ENUMERATED = 12  # boxes up to which all sets of them are gone through


class Box(NamedTuple):
    """A box: its price, and its finitely many prizes with their probabilities."""

    price: float
    prizes: Sequence[float]
    p: Sequence[float]


KINDS: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = (  # prizes and probabilities; nobody sees them
    ((0.40, 0.50, 0.60), (0.25, 0.50, 0.25)),  # steady
    ((0.00, 0.45, 0.90), (0.35, 0.40, 0.25)),  # mixed
    ((0.00, 1.00), (0.80, 0.20)),  # a long shot
    ((0.20, 0.60, 0.80), (0.30, 0.40, 0.30)),  # able
)


def index(box: Box) -> float:
    """The best answer in hand at which a box just pays, σ with E[(X - σ)+] = price.

    E[(X - σ)+] is the largest, over the m highest prizes, of Σ p (x - σ); so σ = max_m (Σ p x - price) / Σ p.

    >>> index(Box(0.1, (0.0, 1.0), (0.5, 0.5)))
    0.8
    """
    order = np.argsort(box.prizes)[::-1]
    x, p = np.asarray(box.prizes, float)[order], np.asarray(box.p, float)[order]
    x, p = x[p > 0], p[p > 0]
    return float(np.max((np.cumsum(p * x) - box.price) / np.cumsum(p)))


def kept_best(boxes: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """E[max(0, max_i X_i)] of independent discrete X_i, each given as (values, probabilities).

    >>> kept_best([((0, 1), (0.5, 0.5)), ((0, 1), (0.5, 0.5))])
    0.75
    """
    at = np.unique(np.concatenate([[0.0], *(np.maximum(x, 0.0) for x, _ in boxes)]))
    below = np.ones(len(at))
    for x, p in boxes:
        below *= (np.asarray(p)[:, None] * (np.maximum(x, 0.0)[:, None] <= at)).sum(axis=0)
    return float(at @ np.diff(below, prepend=0.0))


def closed_form(boxes: Sequence[Box]) -> float:
    """The value of optimal play: V = E[max(0, max_i min(X_i, σ_i))]. Weitzman (1979), Kleinberg et al. (2016)."""
    return kept_best([(np.minimum(box.prizes, index(box)).tolist(), box.p) for box in boxes])


def by_programming(boxes: Sequence[Box]) -> float:
    """The same by dynamic programming over which boxes are open and the best prize seen:

    V(S, x) = max(x, max_{i not in S} E[V(S + i, max(x, X_i))] - price_i)
    """
    best = np.unique(np.concatenate([[0.0], *(np.maximum(b.prizes, 0.0) for b in boxes)]))
    to = [np.searchsorted(best, np.maximum(best[:, None], np.asarray(b.prizes, float))) for b in boxes]
    everything = (1 << len(boxes)) - 1
    value = {everything: best}
    for opened in range(everything - 1, -1, -1):
        tried = [
            value[opened | 1 << i][to[i]] @ np.asarray(b.p, float) - b.price
            for i, b in enumerate(boxes)
            if not opened >> i & 1
        ]
        value[opened] = np.max([best, *tried], axis=0)
    return float(value[0][0])


def _roster(values: Any, check: Any) -> bool:
    return 1 <= len(values) <= 64 and all(check(v) for v in values)


@dataclass(frozen=True)
class PandoraParams(Params):
    kinds: tuple[int, ...] = param(
        (0, 0, 1, 1, 2, 2, 3, 3),
        f"1 to 64 whole numbers from 0 to {len(KINDS) - 1}: the kind of each specialist",
        lambda ks: _roster(ks, lambda k: isinstance(k, int) and 0 <= k < len(KINDS)),
    )
    prices: tuple[float, ...] = param(
        (0.04, 0.09, 0.05, 0.12, 0.03, 0.06, 0.08, 0.14),
        "as many numbers from 0 on as there are kinds: the price of each specialist",
        lambda ps: _roster(ps, lambda p: 0 <= p < np.inf),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.prices) != len(self.kinds):
            raise BadParameter(
                f"prices must be as many numbers as kinds, which are {len(self.kinds)}, got {len(self.prices)}"
            )


@dataclass
class Opening(State):
    prize: F  # one row an episode, one column a box; 0 where it is shut
    order: NDArray[np.int64]  # 1 for the box opened first, ...; 0 where it is shut
    count: NDArray[np.int64]
    best: F
    spent: F
    last: NDArray[np.int64]  # handle of the latest event


@register
class Pandora(World):
    """Score = the best prize seen (0 if none) - the prices of the boxes opened.

    Weitzman's rule: a box has the index σ with E[(X - σ)+] = price. Open the shut box of the highest index while
    that is above the best prize seen. It is worth E[max(0, max_i min(X_i, σ_i))].
    """

    name = "pandora"
    Params = PandoraParams
    decides = ("delegate", "stop")
    facts = ("specialists", "opened", "best", "spent")
    items = ("price", "kind", "opened", "prize")

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.options = ("stop", *(f"open {i}" for i in range(len(params.kinds))))
        self.boxes = [Box(price, *KINDS[kind]) for price, kind in zip(params.prices, params.kinds, strict=True)]
        most = max(len(b.prizes) for b in self.boxes)
        self._prizes = np.array([np.pad(b.prizes, (0, most - len(b.prizes))) for b in self.boxes])
        self._below = np.array(
            [np.pad(np.cumsum(b.p)[:-1], (0, most - len(b.p)), constant_values=1) for b in self.boxes]
        )
        self._price = np.array([b.price for b in self.boxes], float)

    def start(self, seed: U, log: Log | None = None) -> Opening:
        n, boxes = len(seed), len(self.boxes)
        zero, nan, count = np.zeros(n), np.full(n, np.nan), np.zeros(n, np.int64)
        shut = np.zeros((n, boxes))
        return Opening(
            seed,
            np.ones(n, np.bool_),
            zero,
            log,
            nan,
            shut,
            shut.astype(np.int64),
            count,
            zero.copy(),
            zero.copy(),
            np.full(n, -1),
        )

    def view(self, state: Opening) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        n, boxes = len(row), len(self.boxes)
        facts = np.stack([np.full(n, float(boxes)), state.count[row], state.best[row], state.spent[row]], 1)
        allowed = np.ones((n, boxes + 1), np.bool_)
        allowed[:, 1:] = state.order[row] == 0
        about = np.broadcast_to(np.arange(-1, boxes), (n, boxes + 1))

        def items() -> tuple[F, NDArray[np.int64]]:
            values = np.empty((n, boxes, 4))
            values[..., 0], values[..., 1] = self._price, self.params.kinds
            values[..., 2], values[..., 3] = state.order[row], state.prize[row]
            return values.reshape(-1, 4), np.repeat(np.arange(n), boxes)

        return View(row, "delegate", LEAD, facts, allowed, items, about)

    def act(self, state: Opening, view: View, choice: NDArray[np.int64]) -> None:
        if state.log is not None:
            self._log(state, state.log, view, choice)
        row, box = view.row[choice > 0], choice[choice > 0] - 1
        prize = self._found(state, row, box)
        state.count[row] += 1
        state.prize[row, box], state.order[row, box] = prize, state.count[row]
        state.best[row] = np.maximum(state.best[row], prize)
        state.spent[row] += self._price[box]
        done = view.row[choice == STOP]
        state.open[done] = False
        state.score[done] = state.best[done] - state.spent[done]

    def _found(self, state: Opening, row: NDArray[np.int64], box: Any) -> F:
        """The prizes in these boxes."""
        u = uniform(state.seed[row], box)
        prize: F = self._prizes[box, (u[:, None] >= self._below[box]).sum(axis=1)]
        return prize

    def _log(self, state: Opening, log: Log, view: View, choice: NDArray[np.int64]) -> None:
        """A choice to stop is a decision of the kind stop, another of the kind delegate: to spawn that
        specialist."""
        labels = {mask: self._labels(mask) for mask in {m.tobytes() for m in view.allowed}}
        for pick in np.unique(choice).tolist():
            picked = choice == pick
            row = view.row[picked]
            t = 4.0 * state.count[row]
            decision = log.decide(
                row,
                "delegate" if pick else "stop",
                LEAD,
                t,
                [labels[m.tobytes()] for m in view.allowed[picked]],
                self.options[pick],
                state.logp[row],
                [("return", state.last[row])],
                role="lead",
            )
            if pick == STOP:
                log.add(row, "aggregate", LEAD, t + 1, [("aggregate", decision)])
                continue
            who = f"specialist {pick - 1}"
            born = log.add(row, "spawn", LEAD, t + 1, [("spawn", decision)], to=who, cost=self._price[pick - 1])
            back = {"to": LEAD, "role": "specialist", "value": self._found(state, row, pick - 1)}
            state.last[row] = log.add(row, "return", who, t + 2, [("spawn", born)], **back)
            log.add(row, "despawn", LEAD, t + 3, [("temporal", state.last[row])], to=who)

    def _labels(self, mask: bytes) -> list[str]:
        return [o for o, ok in zip(self.options, np.frombuffer(mask, np.bool_), strict=True) if ok]

    def optimum(self) -> float:
        return closed_form(self.boxes)

    def optimal(self) -> Policy:
        sigma = np.array([index(b) for b in self.boxes])

        def policy(view: View) -> NDArray[np.int64]:
            worth = np.where(view.allowed[:, 1:], sigma, -np.inf)
            return np.where(worth.max(axis=1) > view.facts[:, 2], np.argmax(worth, axis=1) + 1, STOP)

        return policy

    def _worth(self, chosen: Sequence[int]) -> float:
        """What it is worth to open these boxes, come what may."""
        return kept_best([(self.boxes[i].prizes, self.boxes[i].p) for i in chosen]) - float(
            self._price[list(chosen)].sum()
        )

    def _best_set(self) -> tuple[int, ...]:
        """The boxes best opened come what may: the best of all sets, or for large rosters grown one by one."""
        n = len(self.boxes)
        if n <= ENUMERATED:
            return max((s for k in range(1, n + 1) for s in combinations(range(n), k)), key=self._worth)
        best: tuple[int, ...] = max(((i,) for i in range(n)), key=self._worth)
        while len(best) < n:
            more = max(((*best, i) for i in range(n) if i not in best), key=self._worth)
            if self._worth(more) <= self._worth(best):
                break
            best = more
        return tuple(sorted(best))

    def trivial(self) -> dict[str, Policy]:
        n = len(self.boxes)
        single = max(range(n), key=lambda i: self._worth((i,)))
        several = self._best_set()

        def fixed(chosen: Sequence[int]) -> Policy:
            wanted = np.isin(np.arange(n), chosen)

            def policy(view: View) -> NDArray[np.int64]:
                shut = view.allowed[:, 1:] & wanted
                return np.where(shut.any(axis=1), np.argmax(shut, axis=1) + 1, STOP)

            return policy

        return {
            "never": fixed(()),
            f"open {single}": fixed((single,)),
            f"open {', '.join(map(str, several))}": fixed(several),
            "open all": fixed(range(n)),
        }

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        """Another roster of eight, at other prices, where no fixed set of them comes within 6 % of the optimum."""
        while True:
            kinds, prices = dice.integers(0, len(KINDS), 8), np.round(dice.uniform(0.02, 0.14, 8), 3)
            given = {"kinds": tuple(kinds.tolist()), "prices": tuple(prices.tolist())}
            world = cls(cls.Params(**given))
            if world._worth(world._best_set()) < 0.94 * world.optimum():
                return given

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        n = int(dice.integers(6, 10))
        kinds, prices = dice.integers(0, len(KINDS), n), dice.uniform(0.02, 0.14, n)
        return {"kinds": tuple(kinds.tolist()), "prices": tuple(prices.tolist())}
