"""Who learns when: regimes, schedules and staleness, as functions of the iteration and what the learner holds.

A regime says which parameters there are and how their gradients meet; a schedule, an expression
(`podium.methods.update`), says whose decisions are learned from in an iteration; with a staleness of s the episodes
of iteration i are played by the weights of iteration i - s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import LEAD, View, World, play
from podium.learn.policy import Net, Parameters, Shape, role_of
from podium.learn.tape import Array
from podium.methods import Method
from podium.methods.update import BadUpdate, Term, read_schedule, refusal
from podium.trace.columns import F

__all__ = [
    "CORRECTIONS",
    "REGIMES",
    "Plan",
    "acting",
    "agents_of",
    "learners",
    "network",
    "remembered",
    "roles_of",
    "single_stage",
    "started",
    "truncated_credit",
    "turns_of",
    "wrong",
]

REGIMES = {
    "shared": "B: all roles share parameters, one loss",
    "joint": "B: every role has parameters of its own, one loss: one credit scale, one clip of the gradient",
    "frozen": "A: every role has parameters of its own, and only the lead's are learned",
    "decoupled": "C: every role learns as if alone: its own parameters, credit scale, clip and Adam",
}
CAN = ("any", "joint", "alternate", "round_robin", "until_flat", "frozen")  # stages that the small network follows
CORRECTIONS = ("clip", "truncated")  # of the ratio to the weights that acted; see `Plan.correction`


@dataclass(frozen=True)
class Plan:
    """The part of a recipe that says who learns when."""

    regime: str = "shared"
    schedule: str = "any"  # an expression; "any": everyone learns in every iteration; "method": that of the method
    staleness: int = 0  # iterations between the weights that act and those that learn
    correction: str = (
        "clip"  # it; or "truncated": clipped to the weights before the update, times theirs, truncated
    )
    truncate: float = 2.0  # with "truncated": the largest weight

    @property
    def stage(self) -> Term:
        """Who learns when. Raises BadUpdate where the small network cannot follow it."""
        return single_stage(self.schedule, CAN, "the small network")

    def scheduled(self, method: Method) -> Self:
        """The plan with the method's schedule, where it says so."""
        return replace(self, schedule=method.schedule) if self.schedule == "method" else self


def single_stage(schedule: str, can: Collection[str], who: str) -> Term:
    """The stage of a schedule that has one, if a learner can follow it. Raises BadUpdate.

    >>> single_stage("alternate(every=2)", CAN, "the small network").name
    'alternate'
    """
    whole = read_schedule(schedule)
    if why := refusal(whole, can, who):
        raise BadUpdate(why)
    if len(whole.stages) > 1:
        raise BadUpdate(f"{who} cannot do stages that follow each other, got {whole.text!r}")
    stage = whole.stages[0]
    given = stage.arguments
    other = [name for name in ("self_play", "order", "redraw") if given.get(name)]
    other += ["roles"] * (given.get("roles", "together") != "together")
    if other:
        raise BadUpdate(f"{who} cannot do joint({other[0]}={given[other[0]]})")
    return stage


def turns_of(stage: Term, roles: Sequence[str]) -> list[tuple[str, ...]]:
    """The turns of a stage, each by who learns in it; the first of the roles leads. Raises BadUpdate.

    >>> stage = single_stage("alternate(lead, others, every=2)", CAN, "the small network")
    >>> turns_of(stage, ["lead", "scout", "judge"])
    [('lead',), ('scout', 'judge')]
    """
    lead = roles[0]
    if stage.name in ("any", "joint"):
        return [tuple(roles)]
    if stage.name == "frozen":
        return [(lead,)]
    if stage.name != "alternate":
        return [(role,) for role in roles]
    names = [lead if name == LEAD else name for name in stage["turns"] or (LEAD, "others")]
    if lost := [name for name in names if name != "others" and name not in roles]:
        raise BadUpdate(f"the schedule gives a turn to {lost[0]}, and here is only {', '.join(roles)}")
    others = tuple(role for role in roles if role not in names)
    return [others if name == "others" else (name,) for name in names]


def wrong(plan: Plan, roles: Sequence[str]) -> str:
    """Why a plan cannot be followed by these roles, empty if it can.

    >>> wrong(Plan(regime="frozen"), ["lead"])
    "regime 'frozen' needs several roles, and here is only lead"
    """
    for name, known in (("regime", REGIMES), ("correction", CORRECTIONS)):
        if getattr(plan, name) not in known:
            return f"no {name} {getattr(plan, name)!r}; there are {', '.join(known)}"
    for name, least in (("staleness", 0), ("truncate", 1.0)):
        if not getattr(plan, name) >= least:
            return f"{name} must be {least} or more, got {getattr(plan, name)}"
    try:
        stage = plan.stage
        turns_of(stage, roles)
    except BadUpdate as error:
        return str(error)
    several = {"regime": plan.regime != "shared", "schedule": stage.name not in ("any", "joint")}
    if len(roles) < 2 and any(several.values()):
        name = next(name for name, needed in several.items() if needed)
        return f"{name} {getattr(plan, name)!r} needs several roles, and here is only {', '.join(roles)}"
    if plan.regime == "frozen" and stage.name not in ("any", "joint"):
        return f"with regime 'frozen' only the lead learns, so schedule must be 'any', got {plan.schedule!r}"
    if plan.regime == "shared" and stage.name == "frozen":
        return f"with regime 'shared' nobody has parameters of its own to freeze, got schedule {plan.schedule!r}"
    if plan.regime != "decoupled" and stage.arguments.get("optimizer", "one") != "one":
        return f"with regime {plan.regime!r} there is one optimizer, got schedule {plan.schedule!r}"
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

    >>> [learners(Plan(schedule="round_robin(every=2)"), ["lead", "mate"], i, {}) for i in range(4)]
    [('lead',), ('lead',), ('mate',), ('mate',)]
    """
    if plan.regime == "frozen":
        return (LEAD,)
    stage = plan.stage
    if stage.name in ("any", "joint"):
        return None
    turns = turns_of(stage, roles)
    turn = int(held.get("turn", 0)) if stage.name == "until_flat" else iteration // stage.arguments.get("every", 1)
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

    A turn of the schedule `until_flat` ends when  mean(last k returns) - mean(k returns before) <= least,
    k = every.
    """
    memory = {name: x for name, x in held.items() if "@" not in name}
    if plan.staleness:
        memory |= {f"1@{name}": x for name, x in w.items()}
        for age in range(1, plan.staleness):
            memory |= {f"{age + 1}@{name}": held[f"{age}@{name}"] for name in w if f"{age}@{name}" in held}
    if (stage := plan.stage).name == "until_flat":
        returns, k = np.append(held.get("returns", np.zeros(0)), score), stage["every"]
        over = len(returns) >= 2 * k and returns[-k:].mean() - returns[-2 * k : -k].mean() <= stage["least"]
        memory["turn"] = np.array(int(held.get("turn", 0)) + int(over))
        memory["returns"] = returns[:0] if over else returns[-2 * k :]
    return memory


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
    first: Parameters = {}
    for name, x in w.items():
        first[name] = source.get(name, source.get(name.split("/")[-1]))
        if first[name] is None or first[name].shape != x.shape:
            raise ValueError(f"expected parameters {name!r} of shape {x.shape}, got those of another network")
    return first
