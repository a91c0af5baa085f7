"""Non-identifiability of spawn credit as learning: how far a policy gets from a start that nearly always does the
same.

The decision is one spawn of a `planted` team; all else stays as it is. The policy is a table by what the decision
reacts to. A decision is paid

    outcome    the outcome of its run less the mean of all (GRPO)
    decision   the mean outcome of runs that decided the same, less the mean of all: E[R | d], which mixes prefixes
    state
    the mean outcome of runs that decided the same in the same state, less that of the state, where both were seen
    branches   both options forced at the same prefix, under the same luck, in half as many runs: Y_1 - Y_0
    shuffled   branches, their outcomes dealt out anew among options and prefixes: the control
    single     nothing is learned: it never spawns, which is the agent that there is without the team

and the odds of a state, θ = log(p / (1 - p)), move along the natural gradient, so that a sure policy is not slow
only because a softmax is flat there:

    θ_s += clip(rate · mean over runs of Â 1[s] (d - p) / (p (1 - p)), -1, 1)        of branches: Â 1[s]

Â in units of its root mean square. Values are exact: V(π) = E Σ_k π_k E[Y | prefix, do k].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.identify import biased, spawns_that_react
from experiments.recorded import continued, outcomes
from podium.envs.draws import seeds
from podium.envs.planted import Planted, PlantedParams
from podium.envs.planted_credit import noise_share, worth
from podium.envs.planted_team import Team, simulate
from podium.envs.world import BadParameter
from podium.registry import register
from podium.study.figure import Panel, lines_of, picture
from podium.study.question import Experiment, Measurements, Report, column, in_time, summarise, table
from podium.trace.columns import F

__all__ = ["Case", "How", "arms", "cases", "measure", "report"]

N64 = NDArray[np.int64]
MOST = 8.0  # the longest odds, log
SINGLE = "single"
SAID = {
    "outcome": "outcome of the run",
    "decision": "mean outcome of the decision",
    "state": "the same inside states",
    "branches": "same-prefix branches",
    "shuffled": "branches, shuffled",
}


@dataclass(frozen=True)
class How:
    coverage: tuple[float, ...]
    credits: tuple[str, ...]
    updates: int
    batch: int
    rates: tuple[float, ...]
    looks: int
    prefixes: int
    least: float


class Case(NamedTuple):
    """A team, the row of its decision to spawn, and on some prefixes the state and what both options are worth."""

    team: Team
    row: int
    state: N64
    worth: F  # [prefix, option]

    def value(self, p: F) -> float:
        """Of a policy [state, option]."""
        return float((p[self.state] * self.worth).sum(axis=1).mean())

    def best(self, states: int) -> float:
        """Of the best policy that sees the state."""
        total = np.stack([np.bincount(self.state, self.worth[:, k], states) for k in (0, 1)])
        return float(total.max(axis=0).sum() / len(self.state))


def arms(how: How) -> list[str]:
    return [*(f"{credit}/{share:g}" for credit in how.credits for share in how.coverage), SINGLE]


@cache
def cases(how: How, n: int) -> list[Case]:
    """The first teams, as they are drawn, that the promising start is wrong about by more than a little."""
    dice, found = np.random.default_rng(2718), list[Case]()
    while len(found) < n:
        params: dict[str, Any] = {"team": int(dice.integers(1000, 10**6)), "rule": int(dice.choice([0, 1, 2, 4]))}
        try:
            world = Planted(PlantedParams(**params, noise=0.5))
        except BadParameter:
            continue
        if abs(noise_share(world.model) - 0.5) > 0.005:
            continue
        for _, row in spawns_that_react([world]):
            values = simulate(world.model, seeds(77, how.prefixes))
            one = Case(
                world.model, row, _state(world.model, row, values), worth(world.model).doing(row, values)[:, :2]
            )
            bad = one.value(_policy(biased(world.model, row, 0.0), row))
            if one.best(_states(world.model, row)) - bad >= how.least:
                found.append(one)
    return found


def _states(team: Team, row: int) -> int:
    return int(np.prod(team.rows[row].table.shape[:-1], dtype=int))


def _state(team: Team, row: int, values: N64) -> N64:
    shape = team.rows[row].table.shape[:-1]
    state: Any = np.ravel_multi_index(tuple(values[:, j] for j in team.rows[row].parents), shape)
    return np.asarray(state, np.int64)


def _policy(team: Team, row: int) -> F:
    return team.rows[row].table.reshape(-1, team.rows[row].table.shape[-1])[:, :2].copy()


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """What is left of the gap between even odds and the best policy, as it learns."""
    if arm == SINGLE:
        return {"left": [_never(cases(how, seed + 2)[seed + 1])]}
    credit, share = arm.split("/")
    rate = _best_rate(how, credit, float(share))
    return {
        "left": _learned(how, cases(how, seed + 2)[seed + 1], credit, float(share), rate, seed),
        "rate": rate,
        "episodes": how.updates * how.batch,
    }


def _never(case: Case) -> float:
    """What is left of the gap where the decision is always not to spawn."""
    many = _states(case.team, case.row)
    best, even = case.best(many), case.value(np.full((many, 2), 0.5))
    return (best - case.value(np.tile([1.0, 0.0], (many, 1)))) / max(best - even, 1e-9)


@cache
def _best_rate(how: How, credit: str, share: float) -> float:
    """The rate that does best on a team that nothing is told of."""
    return min(how.rates, key=lambda r: float(_learned(how, cases(how, 1)[0], credit, share, r, 10_007).mean()))


def _learned(how: How, case: Case, credit: str, share: float, rate: float, seed: int) -> F:
    team = biased(case.team, case.row, share)
    p = _policy(team, case.row)
    theta = np.log(p[:, 1] / p[:, 0])
    dice = np.random.default_rng([seed, len(credit)])
    best, even = case.best(len(p)), case.value(np.full(p.shape, 0.5))
    report, left = set(np.linspace(0, how.updates, how.looks + 1).round().astype(int).tolist()), []
    for u in range(how.updates + 1):
        one = 1.0 / (1.0 + np.exp(-theta))
        p = np.stack([1.0 - one, one], 1)
        if u in report:
            left.append((best - case.value(p)) / max(best - even, 1e-9))
        luck = seeds(1_000 * seed + 17, how.batch, u * how.batch)
        theta += np.clip(rate * _up(_with(team, case.row, p), case.row, one, credit, luck, dice), -1.0, 1.0)
        theta = np.clip(theta, -MOST, MOST)
    return np.array(left)


def _with(team: Team, row: int, p: F) -> Team:
    """The team with this policy for the decision."""
    table_ = np.zeros(team.rows[row].table.shape)
    table_[..., :2] = p.reshape(*table_.shape[:-1], 2)
    rows = list(team.rows)
    rows[row] = replace(rows[row], table=table_)
    return replace(team, rows=tuple(rows))


def _up(team: Team, row: int, p: F, credit: str, seed: Any, dice: np.random.Generator) -> F:
    """The natural gradient by the odds of each state."""
    if credit in ("branches", "shuffled"):
        seed = seed[: len(seed) // 2]
    values = simulate(team, seed)
    state, did = _state(team, row, values), np.minimum(values[:, row], 1)
    if credit in ("branches", "shuffled"):
        earned = continued(team, values, row, seed[:, None])[:, :2, 0]
        if credit == "shuffled":
            earned = dice.permutation(earned.ravel()).reshape(earned.shape)
        given = earned[:, 1] - earned[:, 0]
        score = np.ones(len(state))
    else:
        given = _given(credit, outcomes(team, values, seed), did, state)
        score = (did - p[state]) / (p * (1.0 - p))[state]
    given = given / (np.sqrt((given**2).mean()) + 1e-12)
    return np.asarray(np.bincount(state, given * score, len(p)) / len(state))


def _given(credit: str, earned: F, did: N64, state: N64) -> F:
    """Credit of each decision from runs of the policy alone; 0 where there is nothing to compare with."""
    if credit == "outcome":
        return np.asarray(earned - earned.mean())
    key = did if credit == "decision" else 2 * state + did
    cell = np.bincount(key, earned)[key] / np.bincount(key)[key]
    if credit == "decision":
        return np.asarray(cell - earned.mean())
    mean = np.bincount(state, earned)[state] / np.bincount(state)[state]
    return np.where(_seen(did, state), cell - mean, 0.0)


def _seen(did: N64, state: N64) -> Any:
    """Whether both options occur in the state of each decision."""
    many = int(state.max()) + 1
    count = np.stack([np.bincount(state[did == k], minlength=many) for k in (0, 1)])
    return (count.min(axis=0) > 0)[state]


def report(how: How, found: Measurements) -> Report:
    ends = {arm: column(found, arm, "left")[:, -1] for arm in arms(how)}
    alone = ends[SINGLE]
    low = how.coverage[-1]
    headline = [
        *(
            summarise(
                f"{c}",
                f"left of the gap after training from a coverage of {low:g}, credit: {SAID[c]}",
                ends[f"{c}/{low:g}"],
                most=0.1 if c == "branches" else None,
            )
            for c in how.credits
        ),
        summarise(
            "outcome.even",
            f"the same from even odds, credit: {SAID['outcome']}",
            ends[f"outcome/{how.coverage[0]:g}"],
        ),
        summarise(
            "decision.even",
            f"the same from even odds, credit: {SAID['decision']}",
            ends[f"decision/{how.coverage[0]:g}"],
        ),
        summarise("single", "left of the gap by a single agent, which never spawns", alone),
    ]
    rows = [[SAID[c], *(f"{ends[f'{c}/{s:g}'].mean():.2f}" for s in how.coverage)] for c in how.credits]
    rows.append(["none: a single agent, which never spawns", *([f"{alone.mean():.2f}"] * len(how.coverage))])
    at = np.linspace(0, how.updates, how.looks + 1).round() * how.batch
    panels = [
        Panel(
            f"left of the gap, coverage {s:g} at the start",
            "runs, branches counted",
            [lines_of(SAID[c], at.tolist(), column(found, f"{c}/{s:g}", "left")) for c in how.credits],
            {"even odds": 1.0, "single agent": float(alone.mean())},
            high=3.0,
        )
        for s in (how.coverage[0], low)
    ]
    lines = [
        lines_of(SAID[c], how.coverage, np.array([ends[f"{c}/{s:g}"] for s in how.coverage]).T) for c in how.credits
    ]
    panels.append(
        Panel("left at the end", "coverage at the start", lines, {"even odds": 1.0}, log_x=True, high=3.0)
    )
    every = [f"{c}/{low:g}" for c in how.credits]
    timed = [
        [
            SAID[c],
            f"{np.median(found.seconds[arm]):.1f}",
            f"{in_time(found, arm, 'left', every).mean():.2f}",
            f"{ends[arm].mean():.2f}",
        ]
        for c, arm in zip(how.credits, every, strict=True)
    ]
    clock = table(["credit", "seconds", "left after as many seconds", "left after as many runs"], timed)
    tables = {"clock": clock, "ends": table(["credit", *(f"coverage {s:g}" for s in how.coverage)], rows)}
    return Report(headline, tables, picture("What spawning does, learned from runs that hardly differ", panels))


register("study", "identify")(Experiment(How, arms, measure, report))
