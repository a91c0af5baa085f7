"""Exact credit in a planted team: expectations over everything below a row, by elimination row by row, never
sampled.

    W_n = E[Y | aggregates],    W_i(live rows before i) = Σ_x P(x | causes of i) W_{i+1}(live rows before i, x)

W_i is E[Y | rows before i]. Rows are drawn in order, so W_{i+1} with x put in at row i is E[Y | earlier rows,
do(x)]. A table holds only the rows that something later depends on, and every row of every episode of a team is a
look-up in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from podium.envs.planted_team import Team
from podium.trace.columns import B, F

__all__ = [
    "Worth",
    "coalitions",
    "credit",
    "do_effects",
    "fixed_plan",
    "greedy",
    "noise_share",
    "removal",
    "shapley",
    "with_noise",
    "worth",
]

V = NDArray[np.int64]
MOST_SETS = 1 << 14  # coalitions that Shapley values may need


@dataclass(frozen=True)
class Worth:
    """The tables W_0 .. W_n of a team."""

    team: Team
    tables: tuple[F, ...]

    @property
    def start(self) -> float:
        """E[Y]."""
        return float(self.tables[0])

    def before(self, i: int, values: V) -> F:
        """E[Y | rows before i] for each line of values."""
        worth_n: F = np.broadcast_to(self.tables[i][tuple(values[:, j] for j in self.team.live[i])], len(values))
        return worth_n

    def doing(self, i: int, values: V) -> F:
        """E[Y | rows before i, do(x)] for each line of values (axis 0) and each x (axis 1)."""
        live, arity = self.team.live[i + 1], self.team.rows[i].arity
        at = tuple(np.arange(arity)[None] if j == i else values[:, j][:, None] for j in live)
        worth_nx: F = np.broadcast_to(self.tables[i + 1][at], (len(values), arity))
        return worth_nx


def worth(
    team: Team, *, absent: tuple[int, ...] = (), best: tuple[int, ...] = (), given: Mapping[int, F] | None = None
) -> Worth:
    """The tables, when the agents `absent` have all their events absent, the rows `best` are chosen as best can be
    (from all that came before), and the rows `given` follow another P(x | live rows) than the recorded one."""
    shape = team.shape(team.aggregates)
    values = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    return _back(team, len(team), team.expected(values), absent, best, given or {})


def _back(
    team: Team,
    end: int,
    last: F,
    absent: tuple[int, ...] = (),
    best: tuple[int, ...] = (),
    given: Mapping[int, F] = MappingProxyType({}),
) -> Worth:
    """The tables before row `end`, given the one there."""
    tables: list[F] = [last]
    for i in reversed(range(end)):
        axes = (*team.live[i], i)
        after = _spread(team, team.live[i + 1], tables[-1], axes)
        if team.rows[i].agent in absent:
            value = after[..., 0]
        elif i in best:
            value = np.where(_shut(team, i), after[..., 0], after.max(axis=-1))
        else:
            value = (_law(team, i, given) * after).sum(axis=-1)
        tables.append(np.broadcast_to(value, team.shape(team.live[i])))
    return Worth(team, tuple(reversed(tables)))


def _law(team: Team, i: int, given: Mapping[int, F]) -> F:
    """P(x | live rows), an axis for each and a last one for x."""
    axes = (*team.live[i], i)
    if i not in given:
        return _spread(team, (*team.causes(i), i), team.law[i], axes)
    law: F = np.where(_shut(team, i)[..., None], np.eye(team.rows[i].arity)[0], given[i])
    return law


def greedy(tables: Worth, rows: tuple[int, ...]) -> dict[int, F]:
    """The best choices in these rows given what follows is worth, as P(x | live rows)."""
    team, best = tables.team, {}
    for i in rows:
        axes = (*team.live[i], i)
        q = np.broadcast_to(_spread(team, team.live[i + 1], tables.tables[i + 1], axes), team.shape(axes))
        best[i] = np.eye(team.rows[i].arity)[q.argmax(axis=-1)]
    return best


def fixed_plan(team: Team, rows: tuple[int, ...], starts: int = 8) -> tuple[tuple[int, ...], float]:
    """Choices for these rows that are fixed beforehand, and their exact worth.

    Sweeps improve one choice after the other until none can be improved alone, from several starts; the best is
    kept.
    """
    dice, best, found = np.random.default_rng(0), -np.inf, ()  # type: np.random.Generator, float, tuple[int, ...]
    for start in range(starts):
        plan = {i: min(start, k - 1) if start < 4 else int(dice.integers(k)) for i, k in _arities(team, rows)}
        value = -np.inf
        while True:
            tables = worth(team, given=_fixed(team, plan))
            if tables.start <= value + 1e-12:
                break
            value = tables.start
            plan = _improved(tables, plan)
        if value > best:
            best, found = value, tuple(plan[i] for i in rows)
    return found, worth(team, given=_fixed(team, dict(zip(rows, found, strict=True)))).start


def _arities(team: Team, rows: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(i, team.rows[i].arity) for i in rows]


def _fixed(team: Team, plan: Mapping[int, int]) -> dict[int, F]:
    return {i: np.eye(team.rows[i].arity)[x] for i, x in plan.items()}


def _improved(tables: Worth, plan: Mapping[int, int]) -> dict[int, int]:
    """One sweep forward: each choice in turn the best one, given those before it and the old ones after it."""
    team, better = tables.team, dict(plan)
    reached: F = np.ones(())  # P(live rows)
    for i in range(len(team)):
        here, after = (*team.live[i], i), team.live[i + 1]
        if i in plan:
            q = np.broadcast_to(_spread(team, after, tables.tables[i + 1], here), team.shape(here))
            gain = (np.where(_shut(team, i), 0.0, reached)[..., None] * q).sum(axis=tuple(range(len(here) - 1)))
            if gain.max() > gain[plan[i]] + 1e-12:
                better[i] = int(gain.argmax())
        both = reached[..., None] * _law(team, i, _fixed(team, {i: better[i]} if i in plan else {}))
        reached = both.sum(axis=tuple(a for a, j in enumerate(here) if j not in after))
    return better


def _spread(team: Team, rows: tuple[int, ...], table: F, over: tuple[int, ...]) -> F:
    """A table of some rows with an axis for each of `over`, of length 1 where it does not depend on that row."""
    return table.reshape([team.rows[j].arity if j in rows else 1 for j in over])


def _shut(team: Team, i: int) -> B:
    """Where a gate of row i is 0, an axis a live row."""
    shut = np.zeros([1] * len(team.live[i]), np.bool_)
    for gate in team.rows[i].gates:
        none = np.arange(team.rows[gate].arity) == 0
        shut = shut | (_spread(team, (gate,), none.astype(np.float64), team.live[i]) > 0)
    return shut


def do_effects(team: Team, values: V) -> F:
    """E[Y | earlier rows, do(x)] of every event of every episode: (episodes, rows, 4).

    NaN where an event is not in the record of the episode, or has no such value.
    """
    tables, there = worth(team), team.present(values)
    effects = np.full((*values.shape, 4), np.nan)
    for i, row in enumerate(team.rows):
        effects[:, i, : row.arity] = np.where(there[:, i, None], tables.doing(i, values), np.nan)
    return effects


def credit(team: Team, values: V) -> F:
    """What each choice and each message was worth, given all that came before it: (episodes, rows).

        A = E[Y | earlier rows, do(x)] - Σ_x' π(x') E[Y | earlier rows, do(x')]

    pays: decisions and messages, NaN elsewhere and where the event is not in the record.
    """
    tables, there = worth(team), team.present(values)
    paid = np.full(values.shape, np.nan)
    for i, row in enumerate(team.rows):
        if row.chosen:
            doing = tables.doing(i, values)
            pi = team.law[i][tuple(values[:, j] for j in team.causes(i))]
            a = np.take_along_axis(doing, values[:, i, None], axis=1)[:, 0] - (pi * doing).sum(axis=1)
            paid[:, i] = np.where(there[:, i], a, np.nan)
    return paid


def removal(team: Team, values: V) -> F:
    """What is lost if an event had been absent (a spawn not done): (episodes, rows).

        R = E[Y | earlier rows, do(x)] - E[Y | earlier rows, do(0)]

    pays: every event of the record, 0 where it was absent already, NaN where it is not in the record.
    """
    effects = do_effects(team, values)
    done: F = np.take_along_axis(effects, values[..., None], axis=2)[..., 0]
    return done - effects[..., 0]


def coalitions(spawner: tuple[int, ...]) -> list[frozenset[int]]:
    """Every set of agents that holds the spawner of each of its members, smaller ones first.

    >>> [sorted(s) for s in coalitions((-1, 0, 1))]
    [[], [0], [0, 1], [0, 1, 2]]
    """
    sets: list[frozenset[int]] = [frozenset()]
    for agent, by in enumerate(spawner):  # a spawner has a lower number than whom it spawns
        sets += [s | {agent} for s in sets if by < 0 or by in s]
        if len(sets) > MOST_SETS:
            raise ValueError(
                f"{len(spawner)} agents have more than {MOST_SETS} coalitions; exact values need fewer"
            )
    return sorted(sets, key=lambda s: (len(s), sorted(s)))


def shapley(team: Team) -> F:
    """Shapley value of each agent over the orders in which no agent comes before its spawner.

        φ_a = Σ_S n(S) n'(S ∪ a) / n(all) · (v(S ∪ a) - v(S)),     v(S) = E[Y | agents outside S absent]

    S over coalitions with which S ∪ a is one too; n(S) counts the orders of S, n'(S) those of the rest after S.
    """
    sets = coalitions(team.spawner)
    agents = range(len(team.spawner))
    v = {s: worth(team, absent=tuple(a for a in agents if a not in s)).start for s in sets}
    joins = [(s, a, s | {a}) for s in sets for a in agents if a not in s and s | {a} in v]
    before, rest = dict.fromkeys(sets, 0), dict.fromkeys(sets, 0)
    before[sets[0]] = rest[sets[-1]] = 1
    for s, _, more in joins:
        before[more] += before[s]
    for s, _, more in reversed(joins):
        rest[s] += rest[more]
    phi = np.zeros(len(team.spawner))
    for s, a, more in joins:
        phi[a] += before[s] * rest[more] / before[sets[-1]] * (v[more] - v[s])
    return phi


def noise_share(team: Team) -> float:
    """The share of Var(Y) that comes from below the last decision or message, under the behaviour policy.

    1 - Var(E[Y | rows up to it]) / Var(Y);   NaN if Y never varies
    """
    mean, known = _moments(team)
    if team.coin is None:
        total = _back(team, len(team), worth(team).tables[-1] ** 2).start - mean**2
    else:
        total = mean * (1.0 - mean)
    return float(1.0 - known / total) if total > 1e-15 else float("nan")


def _moments(team: Team) -> tuple[float, float]:
    """E[Y], and the variance of E[Y | rows up to the last decision or message]."""
    tables, last = worth(team), max(i for i, row in enumerate(team.rows) if row.chosen)
    square = _back(team, last + 1, tables.tables[last + 1] ** 2).start
    return tables.start, max(square - tables.start**2, 0.0)


def with_noise(team: Team, noise: float) -> Team:
    """The team with the coin that makes `noise_share` this; the weakest coin if even that is noisier, none for
    0."""
    if noise <= 0:
        return replace(team, coin=None)
    mean, known = _moments(replace(team, coin=None))

    def share(a: float) -> float:
        q = a + (1 - 2 * a) * mean
        return 1.0 - (1 - 2 * a) ** 2 * known / max(q * (1 - q), 1e-300)

    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) < noise else (low, middle)
    return replace(team, coin=low)
