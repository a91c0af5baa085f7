"""Exact credit by walking through every history: a second, naive account of `planted`, to hold the fast one against.

Histories are plain lists; nothing of the library is used but the rows of a team and who spawned whom.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from podium.envs.planted_credit import with_noise
from podium.envs.planted_team import RULES, Row, Size, Team, attacked, build

__all__ = ["Naive", "naive_effects", "naive_shapley", "small_teams"]

LEAVES = 400  # histories of a team that the naive account walks through


class Naive:
    """Histories as plain lists; nothing of the library but the rows and who spawned whom."""

    def __init__(self, team: Team, absent: frozenset[int] = frozenset()) -> None:
        self.team, self.absent = team, absent

    def chances(self, past: list[int]) -> list[tuple[int, float]]:
        row: Row = self.team.rows[len(past)]
        if row.agent in self.absent or any(past[g] == 0 for g in row.gates):
            return [(0, 1.0)]
        p = row.table[tuple(past[j] for j in row.parents)].tolist()
        if row.attack is not None:
            p = [sum(p[z] * float(row.attack[z][x]) for z in range(len(p))) for x in range(len(p))]
        return [(x, q) for x, q in enumerate(p) if q > 0]

    def outcome(self, past: list[int]) -> float:
        team, votes, top, total = self.team, [], 0.0, 0.0
        places = [i for i, row in enumerate(team.rows) if row.type == "aggregate"]
        for i, w in zip(places, team.weights, strict=True):
            most = team.rows[i].table.shape[-1] - 1
            votes.append(past[i] > most / 2)
            top, total = top + w * most, total + w * past[i]
        m = float(
            {
                "any": any(votes),
                "all": all(votes),
                "majority": sum(votes) > len(votes) / 2,
                "weighted": total / top,
                "threshold": total / top >= 0.5 - 1e-12,
            }[team.rule]
        )
        return m if team.coin is None else team.coin * (1 - m) + (1 - team.coin) * m

    def mean(self, past: list[int]) -> float:
        """E[Y] of all that can follow this past."""
        if len(past) == len(self.team.rows):
            return self.outcome(past)
        return sum(p * self.mean([*past, x]) for x, p in self.chances(past))

    def best(self, past: list[int], decided: frozenset[int]) -> float:
        if len(past) == len(self.team.rows):
            return self.outcome(past)
        row, told = self.team.rows[len(past)], self.chances(past)
        if len(past) in decided and not any(past[g] == 0 for g in row.gates):
            return max(self.best([*past, x], decided) for x in range(row.table.shape[-1]))
        return sum(p * self.best([*past, x], decided) for x, p in told)

    def leaves(self, past: list[int], most: int) -> int:
        if len(past) == len(self.team.rows) or most <= 0:
            return 1
        count = 0
        for x, _ in self.chances(past):
            count += self.leaves([*past, x], most - count)
            if count >= most:
                break
        return count


def small_teams(n: int) -> Iterator[Team]:
    """Random teams with few enough histories; every other one nested, some with a coin, some under attack."""
    dice, found = np.random.default_rng(2024), 0
    while found < n:
        size = Size(
            agents=int(dice.integers(1 + found % 2, 4)),
            depth=2 + found % 3 if found % 2 else 1,
            parallel=int(dice.integers(1, 3)),
            tools=int(dice.integers(0, 2)),
            messages=int(dice.integers(0, 2)),
            aggregates=int(dice.integers(1, 3)),
            fan=int(dice.integers(2, 4)),
            values=int(dice.choice([2, 2, 3, 4])),
            certain=0.7,
        )
        team = build(size, RULES[found % 5], dice)
        if found % 4 == 1:
            team = with_noise(team, 0.5)
        if found % 4 == 2:
            team = attacked(team, inject=1, liar=0.3, poison=4)
        if (max(team.spawner) > 0 or found % 2 == 0) and Naive(team).leaves([], LEAVES) < LEAVES:
            found += 1
            yield team


def naive_effects(team: Team, values: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Do-effects, credit and removal effects of one episode, straight from their definitions."""
    naive, n = Naive(team), len(team.rows)
    effects, paid, removed = np.full((n, 4), np.nan), np.full(n, np.nan), np.full(n, np.nan)
    for i, row in enumerate(team.rows):
        past, x = values[:i], values[i]
        if any(values[g] == 0 for g in row.gates) or (row.type == "spawn" and x == 0):
            continue
        for y in range(row.table.shape[-1]):
            effects[i, y] = naive.mean([*past, y])
        if row.type in ("orchestrator_decision", "message"):
            paid[i] = effects[i, x] - sum(p * effects[i, y] for y, p in naive.chances(past))
        removed[i] = effects[i, x] - effects[i, 0]
    return effects, paid, removed


def naive_shapley(team: Team) -> np.ndarray:
    """The mean of what each adds, over all orders in which no agent comes before its spawner."""
    agents, worths = range(len(team.spawner)), {}

    def v(inside: frozenset[int]) -> float:
        if inside not in worths:
            worths[inside] = Naive(team, frozenset(agents) - inside).mean([])
        return worths[inside]

    orders = [
        o for o in permutations(agents) if all(o.index(b) < o.index(a) for a, b in enumerate(team.spawner) if a)
    ]
    phi = np.zeros(len(agents))
    for order in orders:
        for k, agent in enumerate(order):
            phi[agent] += (v(frozenset(order[: k + 1])) - v(frozenset(order[:k]))) / len(orders)
    return phi
