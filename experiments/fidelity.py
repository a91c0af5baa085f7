"""How true credit is: its rank correlation with exact credit, against what it cost in continuations.

In planted teams with an outcome of 0 or 1, half of its variance noise. The rank correlation is over decisions whose
exact credit is at least 0.01 in size, inside a team, and then the mean over teams, with an interval. The others are
inert: how many of them are credited all the same is reported apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments.estimators import (
    Estimates,
    branching,
    every_option,
    leave_one_out,
    pooled,
    pooled_branching,
    price,
    sampled,
    within_budget,
)
from experiments.recorded import Decided, Recorded, decided, record_runs, tried
from podium.envs.planted import Planted
from podium.interval import Estimate, estimate
from podium.trace.columns import B, F

__all__ = ["INERT", "Found", "Marks", "curve", "designs", "mark", "row", "spearman", "summed"]

BY: tuple[Literal["step", "state"], ...] = ("step", "state")
ALTERNATIVES = 8
INERT = 0.01  # a decision with less exact credit than this did nothing


def spearman(a: F, b: F) -> float:
    """Rank correlation of the pairs that are both there; ties get their mean rank. NaN if one side does not vary.

    >>> spearman(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3]))
    1.0
    """
    there = ~np.isnan(a) & ~np.isnan(b)
    if there.sum() < 3:
        return float("nan")
    x, y = _ranks(a[there]), _ranks(b[there])
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 0 else float("nan")


def _ranks(values: F) -> F:
    _, place, many = np.unique(values, return_inverse=True, return_counts=True)
    rank: F = (np.cumsum(many) - (many - 1) / 2.0)[place]
    return rank


class Marks(NamedTuple):
    """What one method was found to be in one team."""

    spearman: float
    error: float  # root mean square
    false: float  # share of inert decisions that get credit of 0.01 or more
    price: float  # continuations a decision
    paid: float  # share of the units that are not inert which get any credit; the correlation is over those


@dataclass
class Found:
    """Marks of a method, one a team."""

    method: str
    unit: str = "orchestrator"
    env: str = "planted"
    marks: list[Marks] = field(default_factory=list)

    def mean(self, what: str = "spearman") -> Estimate:
        """The mean over teams; the interval of a correlation ends at 1."""
        mean = estimate(np.array([getattr(m, what) for m in self.marks]))
        return mean if what != "spearman" else mean._replace(low=max(mean.low, -1.0), high=min(mean.high, 1.0))


def mark(given: F, exact: F, cost: F | float = 0.0) -> Marks:
    """What credit is worth against exact credit."""
    live = np.abs(exact) >= INERT
    paid = ~np.isnan(given)
    inert = given[~live & paid & ~np.isnan(exact)]
    off = (given - exact)[paid & ~np.isnan(exact)]
    return Marks(
        spearman(given[live], exact[live]),
        float(np.sqrt((off**2).mean())) if len(off) else float("nan"),
        float((np.abs(inert) >= INERT).mean()) if len(inert) else float("nan"),
        float(np.mean(cost)),
        float(paid[live].mean()) if live.any() else float("nan"),
    )


def summed(found: dict[str, Found], method: str, marks: Marks) -> None:
    """Adds the marks of one more team."""
    found.setdefault(method, Found(method)).marks.append(marks)


def row(found: Found) -> dict[str, Any]:
    """As `podium bench fidelity` tells it."""
    rho = found.mean()
    return {
        "method": found.method,
        "env": found.env,
        "unit": found.unit,
        "spearman": rho.mean,
        "interval": [rho.low, rho.high],
        "rollouts": found.mean("price").mean,
        "error": found.mean("error").mean,
        "false_credit": found.mean("false").mean,
        "paid": found.mean("paid").mean,
        "teams": rho.n,
    }


# designs: what is tried, and what is made of it


def _alike(decisions: Decided) -> tuple[Any, Any]:
    """Keys for `pooled`: the same step of the same work with the same choice; and in the same state."""
    step = np.unique(decisions.row * 4 + decisions.taken, return_inverse=True)[1].ravel()
    state = np.unique(decisions.state * 4 + decisions.taken, return_inverse=True)[1].ravel()
    return step, state


def _both(found: dict[str, Found], name: str, decisions: Decided, earned: F, wanted: B) -> None:
    tries = np.where(wanted, earned[:, :, : wanted.shape[2]], np.nan)
    exact, cost = decisions.exact, price(decisions, wanted)
    summed(found, f"branching{name}", mark(branching(decisions, tries).credit, exact, cost))
    for by in BY:
        credit = pooled_branching(decisions, tries, by)
        summed(found, f"branching, pooled by {by}{name}", mark(credit, exact, cost))


def _c3(
    found: dict[str, Found], name: str, runs: Recorded, decisions: Decided, earned: F, dice: Any, budget: int
) -> None:
    """So many alternatives drawn from the policy, each with luck of its own, against the run itself; from 16 on the
    continuations go to eight alternatives, the choice of the run among them."""
    d = np.arange(len(decisions))
    each = budget // ALTERNATIVES
    if each < 2:
        own, others = (
            runs.outcome[decisions.run],
            earned[d[:, None], _drawn(decisions, budget, dice), np.arange(1, budget + 1)],
        )
    else:
        at = 1 + np.arange(each) + each * np.arange(1, ALTERNATIVES)[:, None]
        options = _drawn(decisions, ALTERNATIVES - 1, dice)[:, :, None]
        own = earned[d, decisions.taken, :each].mean(axis=1)
        others = earned[d[:, None, None], options, at].mean(axis=2)
    credit = leave_one_out(own, others)
    step, state = _alike(decisions)
    one = Estimates(credit, np.full(len(credit), np.nan), np.ones(len(credit)))
    summed(found, f"c3{name}", mark(credit, decisions.exact, budget))
    summed(found, f"c3, pooled by state{name}", mark(pooled(one, step, state), decisions.exact, budget))


def _drawn(decisions: Decided, many: int, dice: np.random.Generator) -> Any:
    edge = np.cumsum(decisions.pi, axis=1)[:, None, :]
    u = dice.random((len(decisions), many))[:, :, None]
    return np.minimum((u >= edge).sum(axis=2), decisions.options[:, None] - 1)


def designs(
    teams: list[Planted], runs: int, seed: int, each: int = 16, alternatives: int = ALTERNATIVES
) -> dict[str, Found]:
    """The three designs that are promised: every option, sampled alternatives, and few continuations in all."""
    by_name: dict[str, Found] = {}
    for number, world in enumerate(teams):
        dice = np.random.default_rng([seed, number])
        log = record_runs(world, runs, seed)
        decisions = decided(log)
        earned = tried(log, decisions, each * alternatives + 1)
        _both(by_name, " (every option)", decisions, earned, every_option(decisions, each))
        _both(by_name, " (sampled)", decisions, earned, sampled(decisions, alternatives, each, dice))
        _both(by_name, " (8 in all)", decisions, earned, within_budget(decisions, 8, dice))
        _c3(by_name, " (8 in all)", log, decisions, earned, dice, 8)
        _c3(by_name, " (sampled)", log, decisions, earned, dice, each * alternatives)
        broadcast = (log.outcome - log.outcome.mean())[decisions.run]
        summed(by_name, "broadcast", mark(broadcast, decisions.exact))
    return by_name


def curve(teams: list[Planted], runs: int, seed: int, budgets: tuple[int, ...]) -> dict[int, dict[str, Found]]:
    """The rank correlation for each number of continuations a decision."""
    by_budget: dict[int, dict[str, Found]] = {b: {} for b in budgets}
    for number, world in enumerate(teams):
        dice = np.random.default_rng([seed, number])
        log = record_runs(world, runs, seed)
        decisions = decided(log)
        earned = tried(log, decisions, max(budgets) + 1)
        for budget in budgets:
            _both(by_budget[budget], "", decisions, earned, within_budget(decisions, budget, dice))
            _c3(by_budget[budget], "", log, decisions, earned, dice, budget)
    return by_budget
