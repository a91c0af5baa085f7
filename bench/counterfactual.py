"""The learned counterfactual estimator against exact credit: `python -m bench.counterfactual [--full] [--json]`.

Trained on teams of 2 and 4 sub-agents, on tries that were kept back; tested on new teams of 3 and 5. `--full` tests on the teams of seed 31415, which
nothing of the estimator was chosen on (those of 3 sub-agents are the teams of docs/fidelity.md); without it, on development teams. The promise is over
all teams in which learned credit ranks something; what it is compared with, over those in which every estimator does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bench.table import Row, at_least, at_most, command, fact
from experiments.counterfactual import Asked, Fit, Lesson, Work, fit, lesson, unfitted
from experiments.estimators import pooled_branching, price, within_budget
from experiments.fidelity import Found, curve, mark, summed
from experiments.recorded import Decided, Recorded, decided, held_out_teams, record_runs, tried
from podium.envs.planted import Planted, PlantedParams
from podium.envs.planted_credit import noise_share
from podium.interval import Estimate, estimate
from podium.trace.columns import F
from podium.trace.vocabulary import decision, event

__all__ = ["asked", "lessons", "measure", "training_teams"]

TRAINED, TESTED = (2, 4), (3, 5)  # sub-agents
BUDGETS = (8, 13)  # continuations a decision
RUNS = (128, 64, 32, 16)  # recorded runs of a team in training
TRAIN, DEVELOP, TEST = 9000, 71000, 31415  # seeds
Sizes = dict[int, dict[int, dict[str, Found]]]  # by agents, budget and estimator


def asked(log: Recorded, decisions: Decided, earned: F) -> Asked:
    """What the record of runs shows: the kinds and causes of their events, not their tables."""
    rows = log.team.rows
    work = Work(
        np.array([event(r.type) for r in rows]),
        np.array([decision(r.decision) if r.decision else -1 for r in rows]),
        np.array([-1 if r.type == "tool_result" else r.agent for r in rows]),  # a tool answers, not the agent
        tuple(log.team.causes(i) for i in range(len(rows))),
        log.team.aggregates,
    )
    return Asked(work, decisions.row, decisions.taken, decisions.pi, log.values[decisions.run], earned)


# training


def training_teams(agents: int, seed: int) -> Iterator[Planted]:
    """Teams of a size, half noise, in which to do something beats to do nothing."""
    dice = np.random.default_rng([seed, agents])
    while True:
        team, rule = int(dice.integers(1000, 10**6)), int(dice.integers(5))
        world = Planted(PlantedParams(team=team, rule=rule, agents=agents, noise=0.5))
        if abs(noise_share(world.model) - 0.5) < 0.005:
            never = world.planned(dict.fromkeys(world.decided, 0))
            if world.uniform_play() > never:
                yield world


def lessons(each: int, seed: int = TRAIN) -> list[Lesson]:
    """As many teams of each size that is trained. Of twice the tries that fit a budget the estimator sees half, and is judged by the others."""
    made = []
    for agents in TRAINED:
        for number, world in zip(range(each), training_teams(agents, seed), strict=False):
            log = record_runs(world, RUNS[number // 2 % len(RUNS)], seed + number)
            decisions = decided(log)
            wanted = within_budget(decisions, BUDGETS[number % 2], np.random.default_rng([seed, number]))
            n = wanted.shape[2]
            earned = tried(log, decisions, 2 * n)
            seen, kept = (np.where(wanted, part, np.nan) for part in (earned[:, :, :n], earned[:, :, n:]))
            made.append(lesson(asked(log, decisions, seen), kept))
    return made


def _shuffled_targets(made: list[Lesson]) -> list[Lesson]:
    """Lessons whose kept tries are those of other decisions of the team."""
    dice = np.random.default_rng(0)
    return [replace(one, target=dice.permutation(one.target)) for one in made]


# testing


def _shuffled(earned: F, decisions: Decided, dice: np.random.Generator) -> F:
    """Tries of another decision of the team with as many options, its options mixed."""
    mixed = earned.copy()
    for many in np.unique(decisions.options):
        here = np.flatnonzero(decisions.options == many)
        mixed[here, :many] = dice.permuted(earned[dice.permutation(here), :many], axis=1)
    return mixed


def _measured(
    teams: list[Planted], runs: int, seed: int, fits: dict[str, Fit], budgets: tuple[int, ...] = BUDGETS
) -> dict[int, dict[str, Found]]:
    """Marks by budget and estimator; those that are not learned as in docs/fidelity.md."""
    found = curve(teams, runs, seed, budgets)
    for number, world in enumerate(teams):
        log = record_runs(world, runs, seed)
        decisions = decided(log)
        for budget, marks in found.items():
            dice = np.random.default_rng([seed, number])
            wanted = within_budget(decisions, budget, dice)
            earned = np.where(wanted, tried(log, decisions, wanted.shape[2]), np.nan)
            cost, mixed = price(decisions, wanted), _shuffled(earned, decisions, dice)
            for name, one in fits.items():
                summed(marks, name, mark(one.credit(asked(log, decisions, earned)), decisions.exact, cost))
            told = fits["learned"].credit(asked(log, decisions, mixed))
            summed(marks, "learned, shuffled tries", mark(told, decisions.exact, cost))
            told = pooled_branching(decisions, mixed, "state")
            summed(marks, "branching, pooled by state, shuffled tries", mark(told, decisions.exact, cost))
    return found


def _all(by_size: Sizes, budget: int, name: str) -> Found:
    """The teams of every size together."""
    return Found(name, marks=[m for found in by_size.values() for m in found[budget][name].marks])


def measure(full: bool) -> list[Row]:
    made = lessons(120 if full else 5)
    fits = {
        "learned": fit(made),
        "not yet learned": unfitted(),
        "learned from shuffled lessons": fit(_shuffled_targets(made)),
    }
    teams, seed = (16, TEST) if full else (2, DEVELOP)
    worlds = {agents: held_out_teams(teams, seed, agents=agents) for agents in TESTED}
    many = {agents: _measured(worlds[agents], 128, seed, fits) for agents in TESTED}
    few = {agents: _measured(worlds[agents], 16, seed, fits, BUDGETS[-1:]) for agents in TESTED}
    return _rows(many, few, len(made))


def _common(by_size: Sizes, budget: int) -> dict[str, Found]:
    """Every estimator over the teams in which all of them rank something.

    One that pays all decisions of a team alike has no rank correlation there, and the mean leaves the team out: means of different teams.
    """
    whole = {name: _all(by_size, budget, name) for name in by_size[TESTED[0]][budget]}
    rho = np.array([[m.spearman for m in one.marks] for one in whole.values()])
    told = (~np.isnan(rho).any(axis=0)).tolist()
    return {
        name: replace(one, marks=[m for m, keep in zip(one.marks, told, strict=True) if keep])
        for name, one in whole.items()
    }


def _gain(ours: Found, below: Found) -> Estimate:
    """What learned credit is above another's, team by team."""
    pairs = zip(ours.marks, below.marks, strict=True)
    return estimate(np.array([a.spearman - b.spearman for a, b in pairs]))


def _rows(many: Sizes, few: Sizes, trained: int) -> list[Row]:
    best = _all(many, 13, "learned")
    rho = best.mean()
    rows = [
        at_least("6.1.estimator", "rank correlation, learned, at most 13 continuations, teams of 3 and 5 after training with 2 and 4", rho.mean, 0.85, "sampled"),
        fact("6.1.estimator.low", f"lower end of its interval over {rho.n} teams", rho.low),
        fact("6.1.estimator.high", "upper end", rho.high),
        at_most("6.1.estimator.price", "continuations a decision", best.mean("price").mean, 13, "exact"),
        fact("6.1.estimator.trained", "teams it was trained on, with twice the continuations a decision", trained),
    ]  # fmt: skip
    for agents, found in many.items():
        rows.append(
            fact(f"6.1.estimator.agents{agents}", f"teams of {agents} alone", found[13]["learned"].mean().mean)
        )
    for id, by_size, budgets in (("", many, BUDGETS), (".runs16", few, BUDGETS[-1:])):
        for budget in budgets:
            same = _common(by_size, budget)
            for name, one in same.items():
                at = f"6.1.estimator{id}.at{budget}.{_id(name)}"
                rows.append(fact(at, _what(name, one, id), one.mean().mean))
            for below in ("branching, pooled by state", "not yet learned"):
                told = _gain(same["learned"], same[below])
                what = f"learned less {below}, {told.n} teams: {told.low:.3f} to {told.high:.3f}"
                rows.append(fact(f"6.1.estimator{id}.at{budget}.gain.{_id(below)}", what, told.mean))
    same = _common(many, 13)
    for name in ("learned", "not yet learned", "branching, pooled by state"):
        error, false = same[name].mean("error").mean, same[name].mean("false").mean
        rows.append(fact(f"6.1.estimator.error.{_id(name)}", "root mean square error at 13", error))
        rows.append(fact(f"6.1.estimator.false.{_id(name)}", "inert that get credit at 13", false))
    return rows


def _id(name: str) -> str:
    return name.replace(", ", ".").replace(" ", "_")


def _what(name: str, one: Found, runs: str) -> str:
    rho = one.mean()
    recorded_ = "16 recorded runs of a team" if runs else "128 recorded runs"
    cost = one.mean("price").mean
    return f"{name}: {rho.low:.2f} to {rho.high:.2f}, {rho.n} teams, {cost:.3g} continuations, {recorded_}"


if __name__ == "__main__":
    command(measure, __doc__)
