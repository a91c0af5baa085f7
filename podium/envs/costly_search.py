"""Costly search with recall: look at one more candidate for a price, or keep the best one seen.

Weitzman (1979). Candidates are uniform on [0, 1]; the reservation value z solves E[(X - z)+] = c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.looks import GO_ON, STOP, log_looks
from podium.envs.world import LEAD, Params, Policy, State, View, World, log_uniform, param, register
from podium.trace.columns import F

__all__ = ["CostlySearch"]


@dataclass(frozen=True)
class SearchParams(Params):
    c: float = param(0.02, "a price above 0", lambda c: 0 < c < np.inf)
    most: int = param(
        10_000,
        "a whole number from 1 to 100000: nobody looks at more candidates",
        lambda n: isinstance(n, int) and 1 <= n <= 10**5,
    )


@dataclass
class Searching(State):
    seen: F  # one row an episode, one column a candidate; NaN where it was not looked at
    count: NDArray[np.int64]
    last: NDArray[np.int64]  # handle of the latest event


@register
class CostlySearch(World):
    """Score = the best candidate seen (0 if none) - c x candidates seen."""

    name = "costly_search"
    Params = SearchParams
    decides = ("stop",)
    facts = ("price", "seen", "left")
    items = ("value",)
    options = ("stop", "go on")

    def start(self, seed: U, log: Log | None = None) -> Searching:
        n = len(seed)
        empty = np.full((n, 8), np.nan)
        return Searching(
            seed,
            np.ones(n, np.bool_),
            np.zeros(n),
            log,
            np.full(n, np.nan),
            empty,
            np.zeros(n, np.int64),
            np.full(n, -1),
        )

    def view(self, state: Searching) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        count = state.count[row]
        facts = np.stack([np.full(len(row), self.params.c), count, self.params.most - count], 1).astype(float)
        allowed = np.stack([np.ones(len(row), np.bool_), count < self.params.most], 1)

        def items() -> tuple[F, NDArray[np.int64]]:
            values = state.seen[row]
            there = ~np.isnan(values)
            return values[there][:, None], np.nonzero(there)[0]

        return View(row, "stop", LEAD, facts, allowed, items)

    def act(self, state: Searching, view: View, choice: NDArray[np.int64]) -> None:
        going = view.row[choice == GO_ON]
        self._log(state, view, choice)
        if len(going):
            at = state.count[going]
            if at.max() >= state.seen.shape[1]:
                state.seen = np.concatenate([state.seen, np.full_like(state.seen, np.nan)], 1)
            state.seen[going, at] = uniform(state.seed[going], at)
            state.count[going] += 1
        done = view.row[choice == STOP]
        state.open[done] = False
        best = np.max(state.seen[done], axis=1, initial=0.0, where=~np.isnan(state.seen[done]))
        state.score[done] = best - self.params.c * state.count[done]

    def _log(self, state: Searching, view: View, choice: NDArray[np.int64]) -> None:
        if state.log is not None:
            log_looks(state, state.log, view, choice, self.options, uniform, self.params.c)

    def reservation(self) -> float:
        """z = 1 - √(2c) where c ≤ 1/2: at z one more look is worth its price. Above 1/2 no look is."""
        return max(0.0, 1.0 - float(np.sqrt(2.0 * self.params.c)))

    def optimum(self) -> float:
        """Weitzman's value: each candidate counts for no more than z.

        V = E[max_i min(X_i, z)] = ∫₀^z (1 - s^k) ds = z - z^(k+1) / (k+1),   k = `most`
        """
        z, k = self.reservation(), self.params.most
        return float(z - z ** (k + 1) / (k + 1))

    def optimal(self) -> Policy:
        z = self.reservation()

        def policy(view: View) -> NDArray[np.int64]:
            values, owner = view.items()
            best = np.zeros(len(view))
            np.maximum.at(best, owner, values[:, 0])
            return np.where((best < z) & view.allowed[:, GO_ON], GO_ON, STOP)

        return policy

    def trivial(self) -> dict[str, Policy]:
        looks = max(range(1, min(self.params.most, 1000) + 1), key=lambda k: k / (k + 1) - self.params.c * k)

        def cap(k: int) -> Policy:
            return lambda view: np.where((view.facts[:, 1] < k) & view.allowed[:, GO_ON], GO_ON, STOP)

        return {"never": cap(0), f"look {looks} times": cap(looks)}

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        c = float(np.round(dice.uniform(0.01, 0.06), 4))
        return {"c": c if c != cls.Params().c else 0.021}

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        return {"c": log_uniform(dice, 0.008, 0.07)}
