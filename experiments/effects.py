"""Effects of decisions to spawn and to stop: how far they are off, and how often their intervals hold the truth.

Each is forced both ways at the same prefix. The estimator is `metrics.effects`; it gets forests in which
only the decision itself is on record, because all that it reads of a run is where it branched, what was chosen, its
seed and its outcome.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from experiments.recorded import continued
from podium.credit import Credit
from podium.envs.draws import U, seeds, uniform
from podium.envs.log import Log
from podium.envs.planted import Planted
from podium.envs.planted_credit import worth
from podium.envs.planted_team import simulate
from podium.metrics.effects import effects
from podium.trace.columns import F, Text, Trace
from podium.trace.vocabulary import Decision

__all__ = ["Effect", "coverage", "errors", "forest", "points"]

DOES = {"spawn": 1, "stop": 0}  # the option that is the name of the decision


class Effect(NamedTuple):
    """A decision of a recorded run, and what its option does beyond the other one, exactly."""

    world: Planted
    kind: Decision
    values: np.ndarray[tuple[int], np.dtype[np.int64]]
    row: int
    exact: float


def points(teams: list[Planted], kind: Decision, seed: int, least: float = 0.01) -> list[Effect]:
    """One decision of this kind a team: of its first runs, the first whose effect is not 0."""
    at = []
    for world in teams:
        values, tables = simulate(world.model, seeds(seed, 64)), worth(world.model)
        there = world.model.present(values)
        rows = [i for i in world.decided if world.model.rows[i].decision == kind]
        dice = np.random.default_rng([seed, world.params.team])
        for i in dice.permutation(rows).tolist():
            doing = tables.doing(i, values)
            effect = (doing[:, 1] - doing[:, 0]) * (1 if DOES[kind] else -1)
            if len(run := np.flatnonzero(there[:, i] & (np.abs(effect) >= least))):
                at.append(Effect(world, kind, values[run[0]], i, float(effect[run[0]])))
                break
    return at


def _played(point: Effect, repeats: int, sets: int, seed: int) -> tuple[F, U]:
    """(repeats, 2, sets): what going on with option 0 and with option 1 earned under the same luck; and its
    seeds."""
    luck = (
        (uniform(seeds(seed, 1)[0], np.arange(repeats * sets)) * 2.0**53).astype(np.uint64).reshape(repeats, sets)
    )
    values = np.broadcast_to(point.values, (repeats, len(point.values)))
    return continued(point.world.model, values, point.row, luck)[:, :2], luck


def errors(found: list[Effect], sets: int, seed: int) -> F:
    """How far each effect is off with so many pairs of continuations."""
    off = []
    for number, point in enumerate(found):
        earned = _played(point, 1, sets, seed + number)[0][0].mean(axis=1)
        off.append((earned[1] - earned[0]) * (1 if DOES[point.kind] else -1) - point.exact)
    return np.array(off)


def forest(kind: Decision, earned: F, luck: U) -> Trace:
    """Runs that branched at a decision: (repeats, options, sets), each repeat from a parent of its own."""
    repeats, options, _ = earned.shape
    n = earned.size
    at, option, _ = (x.ravel() for x in np.indices(earned.shape))
    names = np.array([str(k) for k in range(options)])
    log = Log(n)
    log.decide(np.arange(n), kind, "lead", np.zeros(n), names.tolist(), names[option])
    words, which = np.unique(np.broadcast_to(luck[:, None, :], earned.shape), return_inverse=True)
    return log.trace(
        trace_id_n=Text(np.arange(n), [f"b{i}" for i in range(n)]),
        task_id_n=Text.constant("planted", n),
        parent_n=Text(at, [f"run{i}" for i in range(repeats)]),
        branch_n=np.zeros(n, np.int64),
        do_n=Text(option, [f'{{"what":"choose","value":"{k}"}}' for k in names]),
        seed_n=Text(which.ravel(), [str(w) for w in words.tolist()]),
        reward_n={"team": earned.ravel()},
    )


def coverage(point: Effect, repeats: int, sets: int, seed: int) -> tuple[float, float]:
    """In what share of the repeats the 95 % interval holds the exact effect, and how wide it is."""
    earned, luck = _played(point, repeats, sets, seed)
    trace = forest(point.kind, earned, luck)
    estimates = effects(Credit(trace, "orchestrator", earned.ravel()))
    first = np.arange(repeats) * 2 * sets + DOES[point.kind] * sets
    low, high = estimates.low[first], estimates.high[first]
    return float(((low <= point.exact) & (point.exact <= high)).mean()), float((high - low).mean())
