"""Who learns when: regimes, schedules and staleness, as functions of the iteration and what the learner holds.

A regime says which parameters there are and how their gradients meet; a schedule says whose decisions are learned
from in an iteration; with a staleness of s the episodes of iteration i are played by the weights of iteration i -
s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import LEAD, View, World, play
from podium.learn.policy import Net, Parameters, Shape, role_of
from podium.learn.tape import Array
from podium.trace.columns import F

__all__ = [
    "CORRECTIONS",
    "REGIMES",
    "SCHEDULES",
    "Plan",
    "acting",
    "agents_of",
    "learners",
    "network",
    "remembered",
    "roles_of",
    "started",
    "truncated_credit",
    "wrong",
]

REGIMES = {
    "shared": "B: all roles share parameters, one loss",
    "joint": "B: every role has parameters of its own, one loss: one credit scale, one clip of the gradient",
    "frozen": "A: every role has parameters of its own, and only the lead's are learned",
    "decoupled": "C: every role learns as if alone: its own parameters, credit scale, clip and Adam",
}
SCHEDULES = {
    "all": "everyone learns in every iteration",
    "alternate": "the lead for a period, then all others for one",
    "round_robin": "one role for a period, then the next",
    "metric": "one role until the return is no longer better than a period before, then the next",
}
CORRECTIONS = {
    "clip": "the ratio to the weights that acted, clipped",
    "truncated": "the ratio to the weights before the update, clipped, times that of those to the weights that "
    "acted, truncated",
}


@dataclass(frozen=True)
class Plan:
    """The part of a recipe that says who learns when."""

    regime: str = "shared"
    schedule: str = "all"
    period: int = 5  # iterations of a turn; with "metric" those that a mean is taken over
    least: float = 0.0  # with "metric": by how much the mean return must be better for a turn to go on
    staleness: int = 0  # iterations between the weights that act and those that learn
    correction: str = "clip"
    truncate: float = 2.0  # with "truncated": the largest weight


def wrong(plan: Plan, roles: Sequence[str]) -> str:
    """Why a plan cannot be followed by these roles, empty if it can.

    >>> wrong(Plan(regime="frozen"), ["lead"])
    "regime 'frozen' needs several roles, and here is only lead"
    """
    for name, known in (("regime", REGIMES), ("schedule", SCHEDULES), ("correction", CORRECTIONS)):
        if getattr(plan, name) not in known:
            return f"no {name} {getattr(plan, name)!r}; there are {', '.join(known)}"
    for name, least in (("period", 1), ("staleness", 0), ("truncate", 1.0)):
        if not getattr(plan, name) >= least:
            return f"{name} must be {least} or more, got {getattr(plan, name)}"
    several = {"regime": plan.regime != "shared", "schedule": plan.schedule != "all"}
    if len(roles) < 2 and any(several.values()):
        name = next(name for name, needed in several.items() if needed)
        return f"{name} {getattr(plan, name)!r} needs several roles, and here is only {', '.join(roles)}"
    if plan.regime == "frozen" and plan.schedule != "all":
        return f"with regime 'frozen' only the lead learns, so schedule must be 'all', got {plan.schedule!r}"
    return ""


def agents_of(world: World) -> list[str]:
    """Who decides in a world, as they were met in a few episodes played at random."""
    met: dict[str, None] = {}
    policy = random_policy()

    def watched(view: View) -> Any:
        met[view.agent] = None
        return policy(view)

    play(world, watched, seeds(0, 64))
    return list(met)


def roles_of(world: World) -> tuple[str, ...]:
    """The roles that decide in a world, the lead first."""
    return (LEAD, *sorted({role_of(agent) for agent in agents_of(world)} - {LEAD}))


def network(world: World, plan: Plan) -> Net:
    """The network for a world, with parameters as the regime wants them."""
    return Net(world, Shape(per_role=plan.regime != "shared"), roles_of(world))


def learners(plan: Plan, roles: Sequence[str], iteration: int, held: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Whose decisions are learned from in an iteration; None: everyone's.

    >>> [learners(Plan(schedule="round_robin", period=2), ["lead", "mate"], i, {}) for i in range(4)]
    [('lead',), ('lead',), ('mate',), ('mate',)]
    """
    if plan.regime == "frozen":
        return (LEAD,)
    if plan.schedule == "all":
        return None
    lead, *others = roles
    turns = [(lead,), tuple(others)] if plan.schedule == "alternate" else [(role,) for role in roles]
    turn = int(held.get("turn", 0)) if plan.schedule == "metric" else iteration // plan.period
    return turns[turn % len(turns)]


def acting(plan: Plan, w: Parameters, held: Mapping[str, Any]) -> Parameters:
    """The weights that act: those of `staleness` iterations ago, or the first while there are none so old."""
    for age in range(plan.staleness, 0, -1):
        old: Parameters = {k: held[f"{age}@{k}"] for k in w if f"{age}@{k}" in held}
        if old:
            return old
    return w


def remembered(plan: Plan, held: Mapping[str, Any], w: Parameters, score: float) -> dict[str, Any]:
    """What is held after an iteration that began with weights w and had the mean return `score`.

    A turn of the schedule "metric" ends when  mean(last k returns) - mean(k returns before) <= least,  k the
    period.
    """
    kept = {name: x for name, x in held.items() if "@" not in name}
    if plan.staleness:
        kept |= {f"1@{name}": x for name, x in w.items()}
        for age in range(1, plan.staleness):
            kept |= {f"{age + 1}@{name}": held[f"{age}@{name}"] for name in w if f"{age}@{name}" in held}
    if plan.schedule == "metric":
        returns, k = np.append(held.get("returns", np.zeros(0)), score), plan.period
        over = len(returns) >= 2 * k and returns[-k:].mean() - returns[-2 * k : -k].mean() <= plan.least
        kept["turn"] = np.array(int(held.get("turn", 0)) + int(over))
        kept["returns"] = returns[:0] if over else returns[-2 * k :]
    return kept


def truncated_credit(credit: F, acted: Array, now: Array, most: float) -> F:
    """Credit by which a loss with ratios to `now` counts an entry as often as importance weights, truncated, would:

        π_acted min(π_now / π_acted, c) A = π_now [A min(1, c π_acted / π_now)]

    >>> truncated_credit(np.array([1.0, 1.0]), np.log([0.5, 0.1]), np.log([0.5, 0.4]), 2.0).round(6).tolist()
    [1.0, 0.5]
    """
    scaled: F = credit * np.minimum(1.0, most * np.exp(acted.astype(np.float64) - now))
    return scaled


def started(w: Parameters, source: Parameters) -> Parameters:
    """Parameters to start with, from those of another run: by name, or for every role those that all shared. Raises
    ValueError.

    >>> started({"lead/b": np.zeros(1), "mate/b": np.zeros(1)}, {"b": np.ones(1)})
    {'lead/b': array([1.]), 'mate/b': array([1.])}
    """
    found: Parameters = {}
    for name, x in w.items():
        found[name] = source.get(name, source.get(name.split("/")[-1]))
        if found[name] is None or found[name].shape != x.shape:
            raise ValueError(f"expected parameters {name!r} of shape {x.shape}, got those of another network")
    return found
