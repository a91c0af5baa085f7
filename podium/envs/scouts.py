"""Scouts: spawn some workers at once, wait for them, and spawn more or keep the best answer.

Parallel search with recall, Morgan & Manning (1985). A worker's answer is worth a number uniform on [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.world import LEAD, Params, Policy, State, View, World, param, register
from podium.trace.columns import F, Text
from podium.trace.vocabulary import Decision, EdgeType

__all__ = ["Scouts"]

Causes = list[tuple[EdgeType, NDArray[np.int64]]]
STOP = 0  # option k spawns k
MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class ScoutsParams(Params):
    c: float = param(0.03, "a price from 0.00001 on for a worker", lambda c: 1e-5 <= c < np.inf)
    latency: float = param(0.02, "a price from 0 on for a round", lambda v: 0 <= v < np.inf)
    widest: int = param(
        0,
        "a whole number from 1 to 1000: workers in one round; or 0 for 1/√c rounded up",
        lambda k: isinstance(k, int) and 0 <= k <= 1000,
    )


@dataclass
class Scouting(State):
    best: F
    rounds: NDArray[np.int64]
    count: NDArray[np.int64]  # workers spawned
    value: F  # one row an episode, one column a worker
    at: NDArray[np.int32]  # and its round, from 0
    last: NDArray[np.int64]  # handles of the latest returns, one column a worker of a round


@register
class Scouts(World):
    """Score = the best answer (0 if none) - c x workers - latency x rounds.

    A round of k workers brings the best of them, M_k. Let z_k be the best answer in hand at which one more round of
    k just pays:

        E[(M_k - z_k)+] = 1 - z_k - (1 - z_k^(k+1)) / (k+1) = c k + latency,        z* = max(0, max_k z_k)

    V(x) = max(x, z*) solves V(x) = max(x, max_k E[V(max(x, M_k))] - c k - latency), so that the optimum is z*:
    spawn the k that attains it until an answer is worth z*. Another worker in a round never adds more than
    1/(k(k+1)), so that no width above 1/√c is ever best. Nobody may go on for more than 10,000 rounds, which costs
    less than 1e-12.
    """

    name = "scouts"
    Params = ScoutsParams
    decides = ("spawn", "stop")
    facts = ("price", "latency", "rounds", "workers", "best")
    items = ("round", "answer")

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.widest: int = params.widest or math.ceil(1.0 / math.sqrt(params.c))
        self.options = ("stop", *(f"spawn {k}" for k in range(1, self.widest + 1)))

    def start(self, seed: U, log: Log | None = None) -> Scouting:
        n = len(seed)
        none = np.full((n, self.widest if log is not None else 0), -1)
        zero, nan = np.zeros(n, np.int64), np.full(n, np.nan)
        value, at = np.zeros((n, 8)), np.zeros((n, 8), np.int32)
        return Scouting(
            seed, np.ones(n, np.bool_), np.zeros(n), log, nan, np.zeros(n), zero, zero.copy(), value, at, none
        )

    def view(self, state: Scouting) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        count = state.count[row]
        facts = np.empty((len(row), 5))
        facts[:, 0], facts[:, 1] = self.params.c, self.params.latency
        facts[:, 2], facts[:, 3], facts[:, 4] = state.rounds[row], count, state.best[row]
        allowed = np.ones((len(row), len(self.options)), np.bool_)
        allowed[:, 1:] = (state.rounds[row] < MOST_ROUNDS)[:, None]

        def items() -> tuple[F, NDArray[np.int64]]:
            there = np.arange(state.value.shape[1]) < count[:, None]
            return np.stack([state.at[row][there], state.value[row][there]], 1), np.nonzero(there)[0]

        return View(row, "spawn", LEAD, facts, allowed, items)

    def act(self, state: Scouting, view: View, choice: NDArray[np.int64]) -> None:
        if state.log is not None:
            self._log(state, state.log, view, choice)
        row, width = view.row[choice > 0], choice[choice > 0]
        while len(row) and (state.count[row] + width).max() > state.value.shape[1]:
            state.value = np.concatenate([state.value, np.zeros_like(state.value)], 1)
            state.at = np.concatenate([state.at, np.zeros_like(state.at)], 1)
        for j in range(int(width.max(initial=0))):
            some = row[width > j]
            answer = uniform(state.seed[some], state.rounds[some], j)
            state.value[some, state.count[some] + j] = answer
            state.at[some, state.count[some] + j] = state.rounds[some]
            state.best[some] = np.maximum(state.best[some], answer)
        state.count[row] += width
        state.rounds[row] += 1
        done = view.row[choice == STOP]
        state.open[done] = False
        spent = self.params.c * state.count[done] + self.params.latency * state.rounds[done]
        state.score[done] = state.best[done] - spent

    def _log(self, state: Scouting, log: Log, view: View, choice: NDArray[np.int64]) -> None:
        """A choice to stop is a decision of the kind stop, another of the kind spawn."""
        row, now = view.row, state.rounds[view.row]
        options: Any = self.options
        if not view.allowed.all():
            options = [[self.options[o] for o in np.flatnonzero(allowed)] for allowed in view.allowed]
        for stops in (False, True):
            at = np.flatnonzero((choice == STOP) == stops)
            if not len(at):
                continue
            some, t = row[at], 4.0 * now[at]
            offered = options if options is self.options else [options[i] for i in at.tolist()]
            after: Causes = [("return", state.last[some, j]) for j in range(self.widest if now.max() else 0)]
            kind: Decision = "stop" if stops else "spawn"
            chosen, logp = Text(choice[at], self.options), state.logp[some]
            decided = log.decide(some, kind, LEAD, t, offered, chosen, logp, after, role="lead")
            if stops:
                log.add(some, "aggregate", LEAD, t + 1, [("aggregate", decided)])
            else:
                self._log_round(state, log, some, choice[at], decided)

    def _log_round(
        self,
        state: Scouting,
        log: Log,
        row: NDArray[np.int64],
        width: NDArray[np.int64],
        decided: NDArray[np.int64],
    ) -> None:
        """The workers of a round, all first ones before all second ones; a worker's name is its round and place."""
        place = np.concatenate([np.flatnonzero(width > j) for j in range(int(width.max()))])
        j = np.repeat(np.arange(int(width.max())), [(width > j).sum() for j in range(int(width.max()))])
        some, now = row[place], state.rounds[row[place]]
        number, which = np.unique(now * (self.widest + 1) + j, return_inverse=True)
        who = Text(which, [f"scout {n // (self.widest + 1)}.{n % (self.widest + 1)}" for n in number.tolist()])
        t = 4.0 * now
        born = log.add(some, "spawn", LEAD, t + 1, [("spawn", decided[place])], to=who, cost=self.params.c)
        answer = uniform(state.seed[some], now, j)
        back = log.add(some, "return", who, t + 2, [("spawn", born)], to=LEAD, role="scout", value=answer)
        log.add(some, "despawn", LEAD, t + 3, [("temporal", back)], to=who)
        state.last[row] = -1
        state.last[some, j] = back

    def _reservations(self) -> F:
        """z_k of every width from 1 to the widest, by bisection; -1 where a first round does not pay."""
        k = np.arange(1.0, self.widest + 1)
        price = self.params.c * k + self.params.latency
        low, high = np.zeros(self.widest), np.ones(self.widest)
        for _ in range(60):
            z = (low + high) / 2
            pays = 1.0 - z - (1.0 - z ** (k + 1)) / (k + 1) > price
            low, high = np.where(pays, z, low), np.where(pays, high, z)
        return np.where(k / (k + 1) > price, low, -1.0)

    def best_width(self) -> int:
        """The workers to spawn in each round; 0 if no round pays."""
        z = self._reservations()
        return int(np.argmax(z)) + 1 if z.max() >= 0 else 0

    def optimum(self) -> float:
        return float(max(0.0, self._reservations().max()))

    def optimal(self) -> Policy:
        z, width = self.optimum(), self.best_width()
        return lambda view: np.where((view.facts[:, 4] < z) & view.allowed[:, -1], width, STOP)

    def trivial(self) -> dict[str, Policy]:
        c, latency = self.params.c, self.params.latency
        once = max(range(1, self.widest + 1), key=lambda k: k / (k + 1) - c * k)
        times = max(range(1, 1000), key=lambda r: r / (r + 1) - (c + latency) * r)

        def fixed(width: int, rounds: int) -> Policy:
            return lambda view: np.where(view.facts[:, 2] < rounds, width, STOP)

        return {
            "never": fixed(0, 0),
            f"spawn {once} once": fixed(once, 1),
            f"spawn {self.widest} once": fixed(self.widest, 1),
            f"spawn 1, {times} times": fixed(1, times),
        }

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        """The roster of six stays, the prices are others."""
        c = float(np.round(dice.uniform(0.022, 0.031), 4))
        return {"c": c, "latency": float(np.round(dice.uniform(0.1, 0.5) * c, 4)), "widest": 6}

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        c = dice.uniform(0.02, 0.033)
        return {"c": c, "latency": dice.uniform(0.05, 0.6) * c, "widest": int(dice.integers(5, 8))}
