"""Sequential verification: buy another verifier's vote, or answer with the majority.

Wald's sequential probability ratio test for a fair coin, with a price per vote (Arrow, Blackwell & Girshick 1949).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.world import LEAD, Params, Policy, State, View, World, log_uniform, param, register
from podium.trace.columns import B, F
from podium.trace.vocabulary import EdgeType

__all__ = ["Sprt"]

Causes = list[tuple[EdgeType, NDArray[np.int64]]]
STOP, GO_ON = 0, 1
AYES, NOES, LEFT = 2, 3, 4  # columns of facts
TRUTH, VOTE = 0, 1  # what is drawn


@dataclass(frozen=True)
class SprtParams(Params):
    p: float = param(
        0.7, "a probability from 0.5 to 1: how often a vote is right; nobody sees it", lambda p: 0.5 <= p <= 1
    )
    c: float = param(0.01, "a price above 0 for a vote", lambda c: 0 < c < np.inf)
    most: int = param(
        100_000,
        "a whole number from 1 to 1000000: nobody buys more votes",
        lambda n: isinstance(n, int) and 1 <= n <= 10**6,
    )


@dataclass
class Verifying(State):
    truth: NDArray[np.int64]  # 1 or 0; -1 until somebody needs it
    votes: NDArray[np.int8]  # one row an episode, one column a vote
    count: NDArray[np.int64]  # votes bought
    ayes: NDArray[np.int64]  # votes for 1
    last: NDArray[np.int64]  # handle of the latest event


@register
class Sprt(World):
    """Score = 1 if the answer is right - c x votes. The truth is a fair coin, a vote is right with probability p,
    and the answer is what most votes say (1 if they are even).

    After a lead of d votes the majority is right with probability h_d = 1 / (1 + ((1-p)/p)^d), and the next vote is
    for it with probability g_d = h_d p + (1-h_d)(1-p). With m votes still to be had, the least risk is

        R_m(d) = min(1 - h_d, c + g_d R_{m-1}(d+1) + (1-g_d) R_{m-1}(|d-1|)),   R_0(d) = 1 - h_d

    risk = R_most(0), optimum = 1 - risk. No vote is worth its price once 1 - h_d ≤ c, so that d has an end.
    """

    name = "sprt"
    Params = SprtParams
    decides = ("stop",)
    facts = ("price", "spent", "votes for", "votes against", "left")
    items = ("vote",)
    options = ("stop", "go on")

    def start(self, seed: U, log: Log | None = None) -> Verifying:
        n = len(seed)
        none, zero = np.full(n, -1), np.zeros(n, np.int64)
        votes = np.zeros((n, 16), np.int8)
        nan = np.full(n, np.nan)
        return Verifying(
            seed, np.ones(n, np.bool_), np.zeros(n), log, nan, none, votes, zero, zero.copy(), none.copy()
        )

    def view(self, state: Verifying) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        count, ayes = state.count[row], state.ayes[row]
        facts = np.empty((len(row), 5))
        facts[:, 0], facts[:, 1] = self.params.c, self.params.c * count
        facts[:, AYES], facts[:, NOES], facts[:, LEFT] = ayes, count - ayes, self.params.most - count
        allowed = np.ones((len(row), 2), np.bool_)
        allowed[:, GO_ON] = count < self.params.most

        def items() -> tuple[F, NDArray[np.int64]]:
            there = np.arange(state.votes.shape[1]) < count[:, None]
            return state.votes[row][there][:, None].astype(np.float64), np.nonzero(there)[0]

        return View(row, "stop", LEAD, facts, allowed, items)

    def act(self, state: Verifying, view: View, choice: NDArray[np.int64]) -> None:
        fresh = view.row[state.truth[view.row] < 0]
        if len(fresh):
            state.truth[fresh] = uniform(state.seed[fresh], TRUTH) < 0.5
        if state.log is not None:
            self._log(state, state.log, view, choice)
        going, done = view.row[choice == GO_ON], view.row[choice == STOP]
        if len(going):
            at = state.count[going]
            if at.max() >= state.votes.shape[1]:
                state.votes = np.concatenate([state.votes, np.zeros_like(state.votes)], 1)
            aye = self._votes(state, going)
            state.votes[going, at] = aye
            state.ayes[going] += aye
            state.count[going] += 1
        state.open[done] = False
        count = state.count[done]
        answer = 2 * state.ayes[done] >= count
        state.score[done] = (answer == (state.truth[done] == 1)) - self.params.c * count

    def _votes(self, state: Verifying, row: NDArray[np.int64]) -> B:
        """What the next verifier of each says: yes or no."""
        right = uniform(state.seed[row], VOTE, state.count[row]) < self.params.p
        aye: B = right == (state.truth[row] == 1)
        return aye

    def _log(self, state: Verifying, log: Log, view: View, choice: NDArray[np.int64]) -> None:
        """One who buys spawns a verifier, who returns its vote and is gone."""
        for k in np.unique(state.count[view.row]).tolist():  # a verifier's name is its number
            same = state.count[view.row] == k
            row, chosen, t = view.row[same], choice[same], 4.0 * k
            options = self.options[: 2 if k < self.params.most else 1]
            words = np.array(self.options)[chosen]
            cause: Causes = [("return", state.last[row])]
            decision = log.decide(row, "stop", LEAD, t, options, words, state.logp[row], cause, role="lead")
            go, asked = row[chosen == GO_ON], decision[chosen == GO_ON]
            if len(go):
                who = f"verifier {k}"
                born = log.add(go, "spawn", LEAD, t + 1, [("spawn", asked)], to=who, cost=self.params.c)
                vote = log.add(
                    go,
                    "return",
                    who,
                    t + 2,
                    [("spawn", born)],
                    to=LEAD,
                    role="verifier",
                    value=self._votes(state, go),
                )
                log.add(go, "despawn", LEAD, t + 3, [("temporal", vote)], to=who)
                state.last[go] = vote
            done = chosen == STOP
            log.add(row[done], "aggregate", LEAD, t + 1, [("aggregate", decision[done])])

    def _plan(self) -> tuple[float, B]:
        """The least risk, and whether to stop by votes left (the last row: or more) and lead (the last column: or
        more)."""
        p, c, most = self.params.p, self.params.c, self.params.most
        odds = ((1.0 - p) / p) ** np.arange(most + 2)
        wrong = odds / (1.0 + odds)
        ends = np.flatnonzero(wrong <= c)
        wrong = wrong[: (ends[0] if len(ends) else most + 1) + 1]
        agrees = (1.0 - wrong) * p + wrong * (1.0 - p)
        risk, stops = wrong, [np.ones(len(wrong), np.bool_)]
        for _ in range(most):
            up, down = np.append(risk[1:], risk[-1]), np.concatenate([risk[1:2], risk[:-1]])
            on = c + agrees * up + (1.0 - agrees) * down if len(risk) > 1 else wrong + c
            on[-1] = np.inf
            better = np.minimum(wrong, on)
            stops.append(wrong <= on)
            if np.array_equal(better, risk):
                break
            risk = better
        return float(risk[0]), np.array(stops)

    def risk(self) -> float:
        """The least expected loss: 1 for a wrong answer, c for a vote."""
        return self._plan()[0]

    def optimum(self) -> float:
        return 1.0 - self.risk()

    def optimal(self) -> Policy:
        stops = self._plan()[1]

        def policy(view: View) -> NDArray[np.int64]:
            lead = np.abs(view.facts[:, AYES] - view.facts[:, NOES]).astype(np.int64)
            left = view.facts[:, LEFT].astype(np.int64)
            stop = stops[np.minimum(left, len(stops) - 1), np.minimum(lead, stops.shape[1] - 1)]
            return np.where(stop, STOP, GO_ON)

        return policy

    def _best_number(self) -> int:
        """The odd number of votes worth most when bought come what may: two more votes than 2m+1 make the majority
        right more often by C(2m+1, m) (p(1-p))^(m+1) (2p-1), which falls with m."""
        p, c, m = self.params.p, self.params.c, 0
        gain = p * (1.0 - p) * (2.0 * p - 1.0)
        while gain > 2.0 * c and 2 * m + 3 <= self.params.most:
            m += 1
            gain *= p * (1.0 - p) * 2.0 * (2 * m + 1) / (m + 1)
        return 2 * m + 1

    def trivial(self) -> dict[str, Policy]:
        best = self._best_number()

        def cap(k: int) -> Policy:
            return lambda view: np.where(view.facts[:, AYES] + view.facts[:, NOES] < k, GO_ON, STOP)

        return {"never": cap(0), "buy 1 vote": cap(1), f"buy {best} votes": cap(best)}

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        c = float(np.round(dice.uniform(0.006, 0.02), 4))
        return {"c": c if c != cls.Params().c else 0.011}

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        return {"c": log_uniform(dice, 0.005, 0.025)}
