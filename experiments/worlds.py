"""Methods in worlds of one or two of the five decisions, whose values under best play are closed forms.

The policy takes the best option or, as often, any option; a branch goes on by best play. The exact credit of a
decision is what its option is worth beyond the mean of all options, both followed by best play.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.fidelity import Found, mark
from experiments.table import summed_at
from podium.credit import BadCredit
from podium.envs.branch import branch, luck
from podium.envs.costly_search import CostlySearch
from podium.envs.draws import U, seeds, uniform
from podium.envs.scouts import Scouts
from podium.envs.world import Policy, View, World, make, play
from podium.graph import units
from podium.learn.requirements import with_step_rewards
from podium.methods import METHODS, Method, credit_of
from podium.rewards.ledger import BadReward, Now
from podium.trace.columns import F, Trace, concat
from podium.trace.do import Do

__all__ = ["WORLDS", "scout_values", "search_values", "world_table"]

DICE = 91  # where the policy's own coin is drawn
Values = Callable[[Any, View], F]


def search_values(world: CostlySearch, view: View) -> F:
    """What stopping and going on are worth.

    stop: x - c n,     go on: E[max(x, X, z)] - c (n + 1) = (1 + y²)/2 - c (n + 1),   y = max(x, z)
    """
    best, seen, c = _best(view), view.facts[:, 1], world.params.c
    y = np.maximum(best, world.reservation())
    return np.column_stack([best - c * seen, (1 + y**2) / 2 - c * (seen + 1)])


def scout_values(world: Scouts, view: View) -> F:
    """What stopping and rounds of 1, 2, ... scouts are worth.

    stop: x - spent,     k scouts: E[max(x, M_k, z*)] - spent - c k - latency = 1 - (1 - y^(k+1))/(k+1) - ...,
    y = max(x, z*)
    """
    rounds, workers, best = view.facts[:, 2], view.facts[:, 3], view.facts[:, 4]
    spent = world.params.c * workers + world.params.latency * rounds
    y, k = np.maximum(best, world.optimum())[:, None], np.arange(1, world.widest + 1)
    more = 1 - (1 - y ** (k + 1)) / (k + 1) - world.params.c * k - world.params.latency
    return np.column_stack([best - spent, more - spent[:, None]])


def _best(view: View) -> F:
    values, owner = view.items()
    best = np.zeros(len(view))
    np.maximum.at(best, owner, values[:, 0])
    return best


WORLDS: dict[str, tuple[dict[str, Any], Values]] = {
    "costly_search": ({"c": 0.04}, search_values),
    "scouts": ({"c": 0.03, "latency": 0.05, "widest": 3}, scout_values),
}


def world_table(runs: int, repeats: int, tries: int = 4, seed: int = 0) -> list[Found]:
    """Marks of every method that runs in these worlds; a repeat takes the place of a team."""
    by_method: dict[tuple[str, str], Found] = {}
    for name, (params, values) in WORLDS.items():
        for repeat in range(repeats):
            _measure(by_method, make(name, **params), values, seeds(seed + repeat, runs), tries)
    return [f for f in by_method.values() if not np.isnan(f.mean().mean)]


def _measure(found: dict[tuple[str, str], Found], world: World, values: Values, start: U, tries: int) -> None:
    record: list[tuple[NDArray[np.int64], NDArray[np.int64], F]] = []
    trace = world.trace(play(world, _mixed(world, values, start, record), start, log=True).state)
    exact = _exact(record)
    wide = _branched(world, trace, exact, tries)
    plain = trace, _along(trace, units.rows(trace, "orchestrator"), exact[:, -1]), 0.0
    for name, method in METHODS.items():
        if not method.credit or {"masks", "critic", "tokens", "judge"} & set(method.needs):
            continue
        of, exact_e, cost = wide if "branches" in method.needs else plain
        try:
            given = _paid(of, method)
        except (BadCredit, BadReward):
            continue
        marks = mark(given.value, summed_at(of, exact_e, given.unit), cost)
        found.setdefault((name, world.name), Found(name, given.unit, world.name)).marks.append(marks)


def _along(trace: Trace, rows: Any, worth: F) -> F:
    exact_e = np.full(trace.n_events, np.nan)
    exact_e[rows] = worth
    return exact_e


def _paid(trace: Trace, method: Method) -> Any:
    return credit_of(with_step_rewards(trace), method, Now(1.0, ()))


def _mixed(
    world: World, values: Values, start: U, record: list[tuple[NDArray[np.int64], NDArray[np.int64], F]]
) -> Policy:
    """Best play or any option, as often; keeps what each option was worth."""
    count = np.zeros(len(start), np.int64)

    def policy(view: View) -> NDArray[np.int64]:
        q = np.where(view.allowed, values(world, view), np.nan)
        coin, pick = (uniform(start[view.row], DICE, count[view.row], k) for k in (0, 1))
        any_: NDArray[np.int64] = (pick * view.allowed.sum(axis=1)).astype(np.int64)
        chosen: NDArray[np.int64] = np.where(coin < 0.5, np.nanargmax(q, axis=1), any_)
        record.append((view.row.copy(), chosen, q - np.nanmean(q, axis=1, keepdims=True)))
        count[view.row] += 1
        return chosen

    return policy


def _exact(record: list[tuple[NDArray[np.int64], NDArray[np.int64], F]]) -> F:
    """The exact credit of each option of each decision, and last of the one taken; decisions as a trace has
    them."""
    run, taken, worth = (np.concatenate(part) for part in zip(*record, strict=True))
    order = np.argsort(run, kind="stable")
    ordered: F = np.column_stack([worth, worth[np.arange(len(run)), taken]])[order]
    return ordered


def _branched(world: World, trace: Trace, exact: F, tries: int) -> tuple[Trace, F, float]:
    """Branches for every option of every decision, so many of each, followed by best play; their exact credit; and
    their price.

    What is paid are the branches: the runs themselves did not go on by best play, so their outcomes are left out.
    """
    rows = units.rows(trace, "orchestrator")
    place = {option: k for k, option in enumerate(world.options)}
    dos, turn, worth = [], [], []
    for at, row in enumerate(rows.tolist()):
        for option in trace.options(row):
            dos += [Do(row, "choose", option)] * tries
            turn += list(range(1, tries + 1))
            worth += [exact[at, place[option]]] * tries
    fresh = luck(trace, dos, np.array(turn))
    more = branch(world, trace, dos, world.optimal(), fresh)
    whole = concat([trace, more])
    outcome = whole.reward_n["team"].copy()
    outcome[: len(trace)] = np.nan
    whole = replace(whole, reward_n={**whole.reward_n, "team": outcome})
    at_branch = whole.first_of("e")[:-1][len(trace) :] + more.branch_n
    return whole, _along(whole, at_branch, np.array(worth)), len(dos) / len(rows)
