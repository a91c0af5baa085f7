"""Uniform against structured credit as runs grow: legs of `expedition`, a table for a policy, and four ways to pay
a decision.

A run is L legs; nothing of one leg reaches the next, which the graph of the run shows: there is no path from a
leg's decisions to a later leg's answer. With the score s_l of each leg, a decision in leg l is paid, less the mean
of the decisions in the same place of the table,

    outcome    Σ_k s_k          the same for the whole run (GRPO)
    togo       Σ_{k ≥ l} s_k    what came after it in time
    graph      s_l              what followed from it
    shuffled   s of any leg     the control

and the table moves by  rate · Σ Â ∂ log π / legs,  Â in units of its root mean square. As many legs an update is
equal time, as many runs are equal rollouts. The single agent is the best play with one scout a leg, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from experiments.legs import WORLD, expedition, play_legs, sizes
from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.registry import register
from podium.study.figure import Panel, lines_of, picture
from podium.study.question import Experiment, Measurements, Report, column, summarise, table
from podium.trace.columns import F

__all__ = ["How", "arms", "events_of", "learned", "measure", "paid", "report"]

TEST, SINGLE = 2_000_000, "one scout"
SAID = {
    "outcome": "outcome of the run",
    "togo": "from the decision on",
    "graph": "by the graph: its leg",
    "shuffled": "shuffled",
}


@dataclass(frozen=True)
class How:
    legs: tuple[int, ...]
    credits: tuple[str, ...]
    budgets: tuple[str, ...]
    each_legs: int
    each_runs: int
    updates: int
    rates: tuple[float, ...]
    judged: int
    looks: int


def arms(how: How) -> list[str]:
    return [*(f"{b}/{credit}/{legs}" for b in how.budgets for credit in how.credits for legs in how.legs), SINGLE]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """What the policy lacks of the optimum as it learns, and the legs that it played."""
    if arm == SINGLE:
        alone = make("expedition", **{**WORLD, "legs": 1, "pool": 10, "widest": 1})
        return {"short": [1.0 - alone.optimum() / expedition(1).optimum()]}
    budget, credit, legs = arm.split("/")
    rate = _best_rate(how, budget, credit, int(legs))
    short = learned(how, budget, credit, int(legs), rate, seed)
    return {"short": short, "rate": rate, "episodes": how.updates * _batch(how, budget, int(legs))}


def _batch(how: How, budget: str, legs: int) -> int:
    """Runs of an update."""
    return max(2, how.each_legs // legs) if budget == "legs" else how.each_runs


@cache
def _best_rate(how: How, budget: str, credit: str, legs: int) -> float:
    """The rate that ends best on a seed that nothing is told of."""
    return min(how.rates, key=lambda rate: float(learned(how, budget, credit, legs, rate, 10_007)[-1]))


def learned(how: How, budget: str, credit: str, legs: int, rate: float, seed: int) -> F:
    """(V* - V) / V* at some moments, of a policy that starts with any option as likely."""
    world, batch = expedition(1), _batch(how, budget, legs)
    n, dice = batch * legs, np.random.default_rng([seed, legs])
    tables = {
        k: np.zeros((1, many, len(menu))) for (k, many), menu in zip(sizes(world).items(), world.menu, strict=True)
    }
    tables["stop"][:, :, 1] = 20.0  # every leg is gone
    looks = set(np.linspace(0, how.updates, how.looks + 1).round().astype(int).tolist())
    short = []
    for u in range(how.updates + 1):
        if u in looks:
            score = play_legs(world, tables, seeds(TEST + seed, how.judged), np.zeros(how.judged, np.int64))[
                0
            ].score
            short.append(1.0 - score.mean() / world.optimum())
        state, steps = play_legs(world, tables, seeds(seed, n, u * n), np.zeros(n, np.int64))
        given = paid(credit, state.score.reshape(batch, legs), dice).ravel()
        for s in steps:
            if s.kind == "stop":
                continue
            many, options = tables[s.kind].shape[1:]
            g = given[s.row]
            count = np.bincount(s.place, minlength=many)
            ahead = g - (np.bincount(s.place, g, minlength=many) / np.maximum(count, 1))[s.place]
            ahead /= np.sqrt((ahead**2).mean()) + 1e-12
            up = np.bincount(s.place * options + s.choice, ahead, minlength=many * options).reshape(many, options)
            tables[s.kind][0] += rate * up / len(g)
    return np.array(short)


def paid(credit: str, score: F, dice: np.random.Generator) -> F:
    """What the decisions of each leg are paid [run, leg].

    >>> paid("togo", np.array([[1.0, 2.0, 4.0]]), np.random.default_rng(0)).tolist()
    [[7.0, 6.0, 4.0]]
    """
    match credit:
        case "outcome":
            return np.repeat(score.sum(axis=1, keepdims=True), score.shape[1], 1)
        case "togo":
            return np.cumsum(score[:, ::-1], axis=1)[:, ::-1]
        case "graph":
            return score
    return dice.permutation(score.ravel()).reshape(score.shape)


@cache
def events_of(legs: int) -> float:
    """Events of a run of so many legs, by optimal play, from the traces of its legs."""
    world = make("expedition", **{**WORLD, "legs": 1, "pool": 10})
    trace = world.trace(play(world, world.optimal(), seeds(0, 200), log=True).state)
    return legs * trace.n_events / len(trace)


def report(how: How, found: Measurements) -> Report:
    ends = {arm: column(found, arm, "short")[:, -1] for arm in arms(how)}
    xs = [round(events_of(legs)) for legs in how.legs]
    rows = [
        [f"as many {b}", SAID[c], *(f"{ends[f'{b}/{c}/{n}'].mean():.1%}" for n in how.legs)]
        for b in how.budgets
        for c in how.credits
    ]
    alone = ends[SINGLE].mean()
    rows.append(["", "none: the best play with one scout a leg", *([f"{alone:.1%}"] * len(how.legs))])
    long = how.legs[-1]
    headline = [
        summarise(
            f"{b}.{c}",
            f"as many {b} an update, {xs[-1]:,} events a run, credit {SAID[c]}: lacks of the optimum",
            ends[f"{b}/{c}/{long}"],
            most=0.15 if (b, c) == ("legs", "graph") else None,
        )
        for b in how.budgets
        for c in how.credits
    ]
    headline.insert(
        0,
        summarise(
            "gain",
            f"what credit by the graph gains over the outcome at {xs[-1]:,} events, as many legs an update, in "
            "optima",
            ends[f"legs/outcome/{long}"] - ends[f"legs/graph/{long}"],
            least=0.0,
        ),
    )
    headline.append(summarise("single", "best play with one scout a leg: lacks of the optimum", ends[SINGLE]))
    panels = [
        Panel(
            f"lacks of the optimum, as many {b} an update",
            "events a run",
            [lines_of(SAID[c], xs, np.array([ends[f"{b}/{c}/{n}"] for n in how.legs]).T) for c in how.credits],
            {"one scout a leg": float(alone)},
            log_x=True,
            high=1.2,
        )
        for b in how.budgets
    ]
    at = np.linspace(0, how.updates, how.looks + 1).round().tolist()
    curves = [lines_of(SAID[c], at, column(found, f"legs/{c}/{long}", "short")) for c in how.credits]
    panels.append(Panel(f"learning at {xs[-1]:,} events a run", "updates", curves, high=1.8))
    head = ["an update has", "credit", *(f"{x:,} events" for x in xs)]
    return Report(
        headline, {"ends": table(head, rows)}, picture("Uniform and structured credit as runs grow", panels)
    )


register("study", "length")(Experiment(How, arms, measure, report))
