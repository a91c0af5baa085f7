"""When an effect cannot be known: what spawning does, from runs of a policy alone and from branches that force both
options.

The policy spawns where what it saw was promising, but for a share of its decisions that is at random: its coverage.
Runs in which it spawned then differ from the others in more than the spawn. Compared inside states the difference
is right, as long as both options occur in a state; without coverage they never do, and no number of runs helps. A
branch takes the option not taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.recorded import continued, outcomes
from podium.envs.draws import seeds
from podium.envs.planted import Planted
from podium.envs.planted_credit import worth
from podium.envs.planted_team import Team, simulate
from podium.trace.columns import F

__all__ = ["COVERAGE", "Identified", "biased", "identification", "spawns_that_react"]

V = NDArray[np.int64]
COVERAGE = (0.5, 0.2, 0.1, 0.05, 0.02, 0.0)


class Identified(NamedTuple):
    """Root mean square error of a spawn's mean effect at a coverage, over teams."""

    coverage: float
    policy: float  # runs that spawned against runs that did not
    states: float  # the same inside each state; NaN where no state has both
    told: float  # the share of runs in states that have both
    branches: float  # both options forced at the same prefix, for as many runs in all


def spawns_that_react(teams: list[Planted], least: float = 0.02) -> list[tuple[Planted, int]]:
    """Of each team the first decision to spawn that is always there, reacts to something, and has an effect."""
    spawns = []
    for world in teams:
        team = world.model
        for i in world.decided:
            row = team.rows[i]
            if row.decision != "spawn" or row.gates or not row.parents:
                continue
            doing = worth(team).doing(i, simulate(team, seeds(1, 256)))
            if abs(float((doing[:, 1] - doing[:, 0]).mean())) >= least:
                spawns.append((world, i))
                break
    return spawns


def biased(team: Team, i: int, coverage: float) -> Team:
    """The team with a policy that spawns (1) where its parents are in the upper half together, does not (0)
    elsewhere, and in a share of `coverage` does the other."""
    row = team.rows[i]
    shape = row.table.shape[:-1]
    level = sum((np.indices(shape)[a] / max(k - 1, 1) for a, k in enumerate(shape)), np.zeros(shape))
    spawns = level > np.median(level)
    if not spawns.any():
        spawns = level >= level.max()
    table = np.zeros(row.table.shape)
    table[..., 1] = np.where(spawns, 1.0 - coverage, coverage)
    table[..., 0] = 1.0 - table[..., 1]
    rows = list(team.rows)
    rows[i] = replace(row, table=table)
    return replace(team, rows=tuple(rows))


def identification(
    cases: list[tuple[Planted, int]], runs: int = 2000, repeats: int = 8, coverage: tuple[float, ...] = COVERAGE
) -> list[Identified]:
    """Errors of the three estimates at each coverage."""
    rows = []
    for share in coverage:
        off: list[tuple[float, float, float, float]] = []
        for number, (world, i) in enumerate(cases):
            team = biased(world.model, i, share)
            tables = worth(team)
            for repeat in range(repeats):
                seed = seeds(1000 * number + repeat, runs)
                values = simulate(team, seed)
                doing = tables.doing(i, simulate(team, seeds(77, 4000)))
                exact = float((doing[:, 1] - doing[:, 0]).mean())
                off.append(
                    (
                        *_on_policy(team, i, values, outcomes(team, values, seed), exact),
                        _forced(team, i, values, seed, exact),
                    )
                )
        policy, states, told, branches = np.array(off).T
        rows.append(Identified(share, _rms(policy), _rms(states), float(told.mean()), _rms(branches)))
    return rows


def _rms(off: F) -> float:
    there = off[~np.isnan(off)]
    return float(np.sqrt((there**2).mean())) if len(there) else float("nan")


def _on_policy(team: Team, i: int, values: V, earned: F, exact: float) -> tuple[float, float, float]:
    """How far runs that spawned less runs that did not are off; the same inside states; and the share of runs in
    states with both."""
    did = values[:, i] > 0
    if did.all() or not did.any():
        return float("nan"), float("nan"), 0.0
    naive = float(earned[did].mean() - earned[~did].mean())
    _, state = np.unique(values[:, list(team.live[i])], axis=0, return_inverse=True)
    state = state.ravel()
    n1, n0 = np.bincount(state, did), np.bincount(state, ~did)
    both = (n1 > 0) & (n0 > 0)
    if not both.any():
        return naive - exact, float("nan"), 0.0
    with np.errstate(invalid="ignore"):
        gap = np.bincount(state, earned * did) / n1 - np.bincount(state, earned * ~did) / n0
    inside = float(np.average(gap[both], weights=(n1 + n0)[both]))
    return naive - exact, inside - exact, float((n1 + n0)[both].sum() / len(did))


def _forced(
    team: Team, i: int, values: V, seed: np.ndarray[tuple[int], np.dtype[np.uint64]], exact: float
) -> float:
    """The option not taken in half of the runs, which is as many runs in all; under the same luck."""
    half = len(values) // 2
    earned = continued(team, values[:half], i, seed[:half, None])
    return float((earned[:, 1] - earned[:, 0]).mean()) - exact
