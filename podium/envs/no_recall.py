"""Stopping without recall: candidates come one after the other, and who is passed by is gone.

`secretary` shows ranks and pays for the very best; `cayley_moser` shows values and pays the value taken.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.looks import GO_ON, STOP, log_looks
from podium.envs.world import LEAD, Params, Policy, State, View, World, param, register
from podium.trace.columns import F

__all__ = ["CayleyMoser", "Secretary"]

SEEN, LEFT, SHOWN = 0, 1, 2  # the columns of facts
BLOCK = 16  # candidates that are drawn at once to see whether one of them is better


@dataclass(frozen=True)
class Candidates(Params):
    n: int = param(
        20, "a whole number from 1 to 10000: candidates", lambda n: isinstance(n, int) and 1 <= n <= 10**4
    )


@dataclass
class Looking(State):
    shown: F  # one row an episode, one column a candidate; 0 where it was not looked at
    count: NDArray[np.int64]  # candidates seen
    last: NDArray[np.int64]  # handle of the latest event


class _NoRecall(World):
    """Stop takes the candidate seen last (nobody and a score of 0 if none was), go on passes it by."""

    Params = Candidates
    decides = ("stop",)
    options = ("stop", "go on")

    @abstractmethod
    def _next(self, seed: U, at: NDArray[np.int64]) -> F:
        """What is shown of candidate number `at`, from 0."""

    @abstractmethod
    def _taken(self, state: Looking, row: NDArray[np.int64]) -> F:
        """The scores of episodes that take the candidate they saw last."""

    def start(self, seed: U, log: Log | None = None) -> Looking:
        n = len(seed)
        none = np.full(n, -1)
        nan = np.full(n, np.nan)
        return Looking(
            seed, np.ones(n, np.bool_), np.zeros(n), log, nan, np.zeros((n, 4)), np.zeros(n, np.int64), none
        )

    def view(self, state: Looking) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        count = state.count[row]
        facts = np.empty((len(row), 3))
        facts[:, SEEN], facts[:, LEFT] = count, self.params.n - count
        facts[:, SHOWN] = np.where(count, state.shown[row, count - 1], 0.0)
        allowed = np.ones((len(row), 2), np.bool_)
        allowed[:, GO_ON] = count < self.params.n

        def items() -> tuple[F, NDArray[np.int64]]:
            there = np.arange(state.shown.shape[1]) < count[:, None]
            return state.shown[row][there][:, None], np.nonzero(there)[0]

        return View(row, "stop", LEAD, facts, allowed, items)

    def act(self, state: Looking, view: View, choice: NDArray[np.int64]) -> None:
        if state.log is not None:
            log_looks(state, state.log, view, choice, self.options, self._next)
        going, done = view.row[choice == GO_ON], view.row[choice == STOP]
        if len(going):
            at = state.count[going]
            if at.max() >= state.shown.shape[1]:
                state.shown = np.concatenate([state.shown, np.zeros_like(state.shown)], 1)
            state.shown[going, at] = self._next(state.seed[going], at)
            state.count[going] += 1
        state.open[done] = False
        done = done[state.count[done] > 0]
        state.score[done] = self._taken(state, done)

    def trivial(self) -> dict[str, Policy]:
        """Candidates come in random order: to take the k-th is worth the same for every k."""

        def cap(k: int) -> Policy:
            return lambda view: np.where(view.facts[:, SEEN] < k, GO_ON, STOP)

        n = self.params.n
        return {"never": cap(0), "take the first": cap(1), f"take number {(n + 1) // 2}": cap((n + 1) // 2)} | {
            "take the last": cap(n)
        }

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        n = int(dice.integers(6, 60))
        return {"n": n if n != cls.Params().n else 60}

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        return {"n": int(dice.integers(5, 66))}


@register
class Secretary(_NoRecall):
    """Score = 1 if the candidate taken is the best of all n, else 0. A candidate shows its rank among those so far.

    The rank of candidate k among the first k is uniform on 1..k, whatever the ranks before. With W_k the value of
    going on after k candidates and W_n = 0,

        W_k = max((k+1)/n, W_{k+1}) / (k+1) + W_{k+1} k/(k+1),        optimum = W_0
            = r/n Σ_{k=r}^{n-1} 1/k,   r = the candidates to let pass, for n ≥ 2.
    """

    name = "secretary"
    facts = ("seen", "left", "rank")
    items = ("rank",)

    def _next(self, seed: U, at: NDArray[np.int64]) -> F:
        return np.floor(uniform(seed, at) * (at + 1)) + 1.0

    def _taken(self, state: Looking, row: NDArray[np.int64]) -> F:
        """The best so far is the best of all if nobody who is still to come would be first on arrival."""
        won = state.shown[row, state.count[row] - 1] == 1.0
        pending = np.flatnonzero(won)
        at = state.count[row]
        while len(pending):
            later = at[pending][:, None] + np.arange(BLOCK)
            first = self._next(state.seed[row[pending]][:, None], later) == 1.0
            won[pending] = ~(first & (later < self.params.n)).any(axis=1)
            at[pending] += BLOCK
            pending = pending[won[pending] & (at[pending] < self.params.n)]
        score: F = won.astype(np.float64)
        return score

    def _going_on(self) -> F:
        n = self.params.n
        w = np.zeros(n + 1)
        for k in range(n - 1, -1, -1):
            w[k] = (max((k + 1) / n, w[k + 1]) + k * w[k + 1]) / (k + 1)
        return w

    def optimum(self) -> float:
        return float(self._going_on()[0])

    def optimal(self) -> Policy:
        """Take a candidate that is the best so far once k/n ≥ W_k."""
        w = self._going_on()
        n = self.params.n

        def policy(view: View) -> NDArray[np.int64]:
            candidates = view.facts[:, SEEN].astype(np.int64)
            take = (view.facts[:, SHOWN] == 1.0) & (candidates / n >= w[candidates])
            return np.where(take | (candidates == n), STOP, GO_ON)

        return policy


@register
class CayleyMoser(_NoRecall):
    """Score = the value of the candidate taken; values are uniform on [0, 1].

    With W_m the value of the game with m candidates to come and W_0 = 0,

        W_m = E[max(X, W_{m-1})] = (1 + W_{m-1}²) / 2,        optimum = W_n.   Moser (1956).
    """

    name = "cayley_moser"
    facts = ("seen", "left", "value")
    items = ("value",)

    def _next(self, seed: U, at: NDArray[np.int64]) -> F:
        return uniform(seed, at)

    def _taken(self, state: Looking, row: NDArray[np.int64]) -> F:
        taken: F = state.shown[row, state.count[row] - 1]
        return taken

    def _to_come(self) -> F:
        w = np.zeros(self.params.n + 1)
        for m in range(1, len(w)):
            w[m] = (1.0 + w[m - 1] ** 2) / 2.0
        return w

    def optimum(self) -> float:
        return float(self._to_come()[-1])

    def optimal(self) -> Policy:
        """Take a value that is at least what the candidates to come are worth."""
        w = self._to_come()

        def policy(view: View) -> NDArray[np.int64]:
            enough = (view.facts[:, SEEN] > 0) & (view.facts[:, SHOWN] >= w[view.facts[:, LEFT].astype(np.int64)])
            return np.where(enough, STOP, GO_ON)

        return policy
