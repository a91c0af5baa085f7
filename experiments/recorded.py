"""Recorded runs of a planted team, what each of their decisions was worth exactly, and how they would have gone on.

A continuation is what `envs.branch` plays: all that was recorded before a decision, there an option, then the
behaviour policy. Thousands of them are played on the model's columns, without a log; the same seeds give the same
outcomes (a test holds them together).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, seeds, uniform
from podium.envs.planted import Planted, PlantedParams
from podium.envs.planted_credit import credit, noise_share
from podium.envs.planted_team import VALUE, Team, simulate
from podium.trace.columns import F

__all__ = [
    "COIN",
    "Decided",
    "Recorded",
    "continued",
    "decided",
    "held_out_teams",
    "luck",
    "outcomes",
    "record_runs",
    "tried",
]

V = NDArray[np.int64]
COIN = 3  # where `envs.planted` draws the outcome
OPTIONS = 4  # most options of a decision
LINES = 1 << 18  # played at once


@dataclass(frozen=True)
class Recorded:
    """Runs of one team: the value of every row of its model, and what each run earned."""

    world: Planted
    seed: U
    values: V  # (runs, rows)
    outcome: F

    @property
    def team(self) -> Team:
        return self.world.model


@dataclass(frozen=True)
class Decided:
    """Decisions of recorded runs, one entry each."""

    run: V
    row: V  # of the model
    taken: V
    pi: F  # (decisions, 4): how likely the policy was to choose each option, 0 where there is none
    exact: F  # credit by enumeration
    state: V  # equal where all that anything later depends on is equal

    def __len__(self) -> int:
        return len(self.run)

    def take(self, index: V) -> Decided:
        return Decided(*(getattr(self, f.name)[index] for f in fields(self)))

    @property
    def options(self) -> V:
        many: V = (self.pi > 0).sum(axis=1)
        return many


def held_out_teams(n: int, seed: int, noise: float = 0.5, **params: Any) -> list[Planted]:
    """Teams that nobody was trained on, with an outcome of 0 or 1 of which this share of the variance is noise.

    Drawn as `Planted.held_out` draws them; a team whose plainest coin is noisier than asked for is passed over.
    """
    return [world for world, _ in zip(_teams(seed, noise, params), range(n), strict=False)]


def _teams(seed: int, noise: float, params: Mapping[str, Any]) -> Iterator[Planted]:
    dice = np.random.default_rng(seed)
    while True:
        world = Planted(PlantedParams(**Planted.held_out(dice), **params, noise=noise))
        if abs(noise_share(world.model) - noise) < 0.005:
            yield world


def record_runs(world: Planted, runs: int, seed: int) -> Recorded:
    """Runs of the behaviour policy."""
    start = seeds(seed, runs)
    values = simulate(world.model, start)
    return Recorded(world, start, values, outcomes(world.model, values, start))


def outcomes(team: Team, values: V, seed: U) -> F:
    mean = team.expected(values[:, list(team.aggregates)])
    return mean if team.coin is None else (uniform(seed, COIN) < mean).astype(np.float64)


def decided(runs: Recorded) -> Decided:
    """Every decision of the runs, with its exact credit."""
    team, worths = runs.team, credit(runs.team, runs.values)
    parts = []
    for i in runs.world.decided:
        run = np.flatnonzero(~np.isnan(worths[:, i]))
        values = runs.values[run]
        pi = np.zeros((len(run), OPTIONS))
        pi[:, : team.rows[i].arity] = team.law[i][tuple(values[:, j] for j in team.causes(i))]
        _, state = np.unique(values[:, list(team.live[i])], axis=0, return_inverse=True)
        parts.append((run, np.full(len(run), i), values[:, i], pi, worths[run, i], state.ravel() + i * (1 << 32)))
    run, row, taken, pi, exact, state = (np.concatenate(p) for p in zip(*parts, strict=True))
    return Decided(run, row, taken, pi, exact, np.unique(state, return_inverse=True)[1].ravel())


def luck(runs: Recorded, decisions: Decided, tries: int) -> U:
    """A seed for each decision and try: try 0 has the luck of the run itself, the others are fresh. (decisions,
    tries)"""
    own = runs.seed[decisions.run][:, None]
    fresh = (uniform(own ^ seeds(0, 1)[0], decisions.row[:, None], np.arange(tries)[None]) * 2.0**53).astype(
        np.uint64
    )
    dice: U = np.where(np.arange(tries)[None] == 0, own, fresh)
    return dice


def continued(team: Team, values: V, row: int, seed: U) -> F:
    """What runs earn that were so up to a row, have each of its options there, and go on by the behaviour policy.

    `seed` is (runs, tries), the result (runs, options, tries). What does not depend on the option is drawn once for
    all.
    """
    columns: list[V] = [column[:, None, None] for column in values[:, :row].T]
    columns.append(np.arange(team.rows[row].arity)[None, :, None])
    needed = _needed(team)
    for i in range(row + 1, len(team)):
        if i not in needed:
            columns.append(np.zeros((1, 1, 1), np.int64))
            continue
        at = np.zeros((1, 1, 1), np.int64)
        for j in team.causes(i):
            at = at * team.rows[j].arity + columns[j]
        edge = np.cumsum(team.clean[i], axis=-1).reshape(-1, team.rows[i].arity)[:, :-1]
        u = uniform(seed, VALUE, i)[:, None, :]
        columns.append((u[..., None] >= edge[at]).sum(axis=-1))
    last = np.stack(np.broadcast_arrays(*(columns[j] for j in team.aggregates)), axis=-1)
    mean = np.broadcast_to(team.expected(last), (len(values), team.rows[row].arity, seed.shape[1]))
    return mean.copy() if team.coin is None else (uniform(seed, COIN)[:, None, :] < mean).astype(np.float64)


def _needed(team: Team) -> frozenset[int]:
    """Rows that some aggregate depends on, directly or not."""
    needed = set(team.aggregates)
    for i in reversed(range(len(team))):
        if i in needed:
            needed.update(team.causes(i))
    return frozenset(needed)


def tried(runs: Recorded, decisions: Decided, tries: int) -> F:
    """What tries of every option earned: (decisions, options, tries), NaN where there is no such option.

    Tries of one number share their luck over the options of a decision. Try 0 of the option taken is the run
    itself.
    """
    if any(row.attack is not None for row in runs.team.rows):
        raise ValueError("continuations of a team under attack are played by envs.branch")
    earned, seed = np.full((len(decisions), OPTIONS, tries), np.nan), luck(runs, decisions, tries)
    for i in np.unique(decisions.row).tolist():
        here, many = np.flatnonzero(decisions.row == i), runs.team.rows[i].arity
        step = max(1, LINES // (tries * many))
        for start in range(0, len(here), step):
            at = here[start : start + step]
            earned[at, :many] = continued(runs.team, runs.values[decisions.run[at]], i, seed[at])
    return earned
