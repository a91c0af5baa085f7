"""The loop that asks for branches where they change the answer (`asks`), against as many branches spent
evenly.

Runs the loop of the design: an estimator that wants more branches returns interventions, they are played, and it is
asked again.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.asks import asks, turn_of
from experiments.fidelity import Found, mark
from experiments.table import dressed, exact_at, recorded_trace
from podium.credit.options import option_probability
from podium.envs.branch import branch, luck
from podium.envs.planted import Planted
from podium.graph import units
from podium.methods import credit_of
from podium.trace.columns import F, Trace, concat

__all__ = ["asked", "asking"]


def asking(world: Planted, trace: Trace, budget: int, rounds: int) -> Trace:
    """The runs with so many branches, asked for in rounds."""
    start, pi = trace, _odds(world, trace)
    for left in range(rounds, 0, -1):
        dos = asks(trace, (budget - (len(trace) - len(start))) // left, pi=pi)
        fresh = luck(trace, dos, turn_of(trace, dos))
        more = branch(world, trace, dos, world.behaviour(fresh), fresh)
        names = [f"{name}/{len(trace)}" for name in more.trace_id_n.strings()]
        trace = concat([trace, replace(more, trace_id_n=type(more.trace_id_n).of(names))])
    return trace


def _odds(world: Planted, trace: Trace) -> dict[int, F]:
    rows = units.rows(trace, "orchestrator")
    first, many = trace.options_of(rows)
    pi_o = option_probability(dressed(world, trace))
    return {int(r): pi_o[a : a + n] for r, a, n in zip(rows, first, many, strict=True)}


def asked(teams: list[Planted], runs: int, seed: int, each: int = 8, rounds: int = 4) -> list[Found]:
    """Marks of `branching_policy` with so many branches a decision: asked for in one round, which spends them
    evenly but for the options' weights, and in several."""
    by_rounds = [Found(f"branching, asked in {n} rounds") for n in (1, rounds)]
    for world in teams:
        trace = recorded_trace(world, runs, seed)
        many = len(units.rows(trace, "orchestrator"))
        for one, n in zip(by_rounds, (1, rounds), strict=True):
            whole = dressed(world, asking(world, trace, each * many, n))
            given = credit_of(whole, "branching_policy")
            own = (whole.parent_n.codes < 0)[given.rollout]
            exact = exact_at(world, whole, given.unit)
            one.marks.append(mark(given.value[own], exact[own], float(each)))
    return by_rounds
