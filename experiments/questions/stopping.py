"""When to stop: learned, by a fixed cap, by an external verifier, and by the classical rules with right and with
wrong assumptions.

The learned policy is told no distribution. The rules are: Wald's test for a vote that is right with probability p
(`sprt`), and Weitzman's index for known prizes (`pandora`). A verifier that is asked after every step

    in `sprt`
    says whether the majority's answer is right, and is right about that with probability q, the same each time it
                         sees the same answer; it costs as much as a vote. Stop when it says yes
    in `costly_search`
    sees the best candidate with noise, drawn once for each, and costs nothing. Stop when it looks worth z or more,
    the
                         best z for its noise (found on other episodes)

A single agent is one vote, the first candidate, or the best single box, and its answer is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.costly_search import CostlySearch
from podium.envs.draws import U, seeds, uniform
from podium.envs.pandora import Pandora, index
from podium.envs.sprt import Sprt
from podium.envs.world import View, World, play
from podium.learn.evaluate import beside
from podium.learn.params import held_out, training
from podium.registry import register
from podium.study.figure import Line, Panel, band, picture
from podium.study.loop import FEW, OURS, SAID, SHUFFLED, budget, marks, train_lesson
from podium.study.question import Experiment, Measurements, Report, column, summarise, table
from podium.trace.columns import F

__all__ = ["How", "arms", "by_verifier", "measure", "report", "sprt_verified"]

N64 = NDArray[np.int64]
JUDGE, MOST = 0x10D6, 60  # where a verifier draws; the most steps under one


@dataclass(frozen=True)
class How:
    worlds: tuple[str, ...]
    contrasted: tuple[str, ...]
    tests: int
    judged: int
    votes: tuple[float, ...]
    noises: tuple[float, ...]
    verifiers: tuple[float, ...]
    prizes: tuple[float, ...]
    ours: dict[str, int | float]
    few: dict[str, int | float]
    traced: dict[str, int | float]


def arms(how: How) -> list[str]:
    return [f"{world}/{arm}" for world in how.worlds for arm in (OURS, *_controls(how, world), "rules")]


def _controls(how: How, world: str) -> tuple[str, ...]:
    return (FEW, "grpo", SHUFFLED) if world in how.contrasted else (SHUFFLED,)


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """Regrets (V* - V) / |V*| on held-out worlds, means over them."""
    env, credit = arm.split("/")
    tests = [held_out(env, i) for i in range(how.tests)]
    if credit == "rules":
        return _rules(how, tests, seed)
    lesson = train_lesson(credit, budget(how, credit), lambda i, k: training(env, seed, i + 1, k), seed)
    evaluations = marks(lesson, tests, how.judged)
    return {
        "regret": np.mean([j.regret for j in evaluations]),
        "share": np.mean([j.share for j in evaluations]),
        "cap": np.mean([(j.optimum - j.trivial) / abs(j.optimum) for j in evaluations]),
        "decisions": lesson.decisions,
    }


def _rules(how: How, tests: list[World], seed: int) -> dict[str, Any]:
    """The regret of every rule, by what it assumes or how good it is."""

    def mean(score: Callable[[Any, U], F]) -> float:
        def one(world: World) -> float:
            return beside(world, lambda dice: score(world, dice), how.judged, 7_000 + seed, how.judged).regret

        return float(np.mean([one(world) for world in tests]))

    first, alone = tests[0], {"single": mean(_single)}
    if isinstance(first, Sprt):
        return alone | {
            "assumed": [mean(partial(_tested, p=p)) for p in how.votes],
            "verified": [mean(partial(sprt_verified, q=q)) for q in how.verifiers],
        }
    if isinstance(first, CostlySearch):
        return alone | {"verified": [mean(partial(by_verifier, noise=s)) for s in how.noises]}
    return alone | {"assumed": [mean(partial(_misjudged, factor=f)) for f in how.prizes]}


def _single(world: World, dice: U) -> F:
    """One vote, the first candidate, or the box that is best alone."""
    if isinstance(world, CostlySearch):
        return play(world, lambda view: np.where(view.facts[:, 1] < 1, 1, 0), dice.copy()).score
    name = "buy 1 vote" if isinstance(world, Sprt) else list(world.trivial())[1]  # never, the best one, ...
    return play(world, world.trivial()[name], dice.copy()).score


def _tested(world: Sprt, dice: U, p: float) -> F:
    """Wald's test that takes a vote to be right with probability p."""
    policy = Sprt(replace(world.params, p=p)).optimal()
    return play(world, policy, dice.copy()).score


def sprt_verified(world: Sprt, dice: U, q: float) -> F:
    """Votes until the verifier says that the majority is right; less what its calls cost."""
    truth = uniform(dice, 0) < 0.5  # as the world draws it
    calls = np.zeros(len(dice))

    def policy(view: View) -> N64:
        ayes, noes = view.facts[:, 2], view.facts[:, 3]
        says_one, row = ayes >= noes, view.row
        verified = ayes + noes > 0
        calls[row[verified]] += 1
        right = says_one == truth[row]
        yes = right == (uniform(dice[row], JUDGE, says_one.astype(np.int64)) < q)
        return np.where((verified & yes) | (ayes + noes >= MOST), 0, 1)

    left: F = play(world, policy, dice.copy()).score - world.params.c * calls
    return left


def by_verifier(world: CostlySearch, dice: U, noise: float) -> F:
    """Candidates until the best looks worth z; the z that does best on other episodes."""
    other = seeds(90_001, 1_000)
    grid = np.linspace(0.4, 1.1, 15)
    best = max(grid, key=lambda z: float(_looked(world, noise, float(z), other).mean()))
    return _looked(world, noise, float(best), dice)


def _looked(world: CostlySearch, noise: float, z: float, dice: U) -> F:
    def policy(view: View) -> N64:
        values, owner = view.items()
        number = np.arange(len(owner)) - np.searchsorted(owner, owner)
        row = view.row[owner]
        u, v = uniform(dice[row], JUDGE, number), uniform(dice[row], JUDGE, number, 1)
        looks = values[:, 0] + noise * np.sqrt(-2 * np.log(np.maximum(u, 1e-300))) * np.cos(2 * np.pi * v)
        top = np.full(len(view), -np.inf)
        np.maximum.at(top, owner, looks)
        return np.where((top >= z) | (view.facts[:, 1] >= MOST), 0, 1)

    return play(world, policy, dice.copy()).score


def _misjudged(world: Pandora, dice: U, factor: float) -> F:
    """Weitzman's rule by one who takes every prize for `factor` times what it is, until it is seen."""
    boxes = [b._replace(prizes=tuple(factor * x for x in b.prizes)) for b in world.boxes]
    sigma = np.array([index(b) for b in boxes])

    def policy(view: View) -> N64:
        worth = np.where(view.allowed[:, 1:], sigma, -np.inf)
        return np.where(worth.max(axis=1) > view.facts[:, 2], np.argmax(worth, axis=1) + 1, 0)

    return play(world, policy, dice.copy()).score


def report(how: How, found: Measurements) -> Report:
    headline, rows = [], []
    for env in how.worlds:
        ours, cap = column(found, f"{env}/{OURS}", "regret"), column(found, f"{env}/{OURS}", "cap")
        headline.append(
            summarise(f"{env}.learned", f"{env}: regret of the learned stop, held-out worlds", ours, most=0.02)
        )
        headline.append(
            summarise(f"{env}.cap", f"{env}: regret of the best fixed cap, tuned on the test world itself", cap)
        )
        rows.append([env, "learned, same-prefix credit", _cell(ours)])
        rows.append([env, "best fixed cap or set", _cell(cap)])
        single = column(found, f"{env}/rules", "single")
        headline.append(
            summarise(f"{env}.single", f"{env}: regret of a single agent, whose answer is taken", single)
        )
        rows.append([env, "a single agent", _cell(single)])
        for credit in _controls(how, env):
            got = column(found, f"{env}/{credit}", "regret")
            headline.append(summarise(f"{env}.{credit}", f"{env}: regret of the learned stop, {SAID[credit]}", got))
            rows.append([env, f"learned, {SAID[credit]}", _cell(got)])
    panels = []
    for env, what, xs, title, x in _swept(how):
        got = column(found, f"{env}/rules", what)
        rows += [[env, f"{title}, {v:g}", _cell(got[:, i])] for i, v in enumerate(xs)]
        lines = [Line(title, [band(v, got[:, i]) for i, v in enumerate(xs)])]
        for name, key in (("learned", "regret"), ("best fixed cap", "cap")):
            level = column(found, f"{env}/{OURS}", key)
            lines.append(Line(name, [band(v, level) for v in xs]))
        panels.append(Panel(f"{env}: regret", x, lines, high=0.35))
    good = column(found, "sprt/rules", "verified")[:, how.verifiers.index(0.9)]
    headline.append(
        summarise("sprt.verifier", "sprt: regret with a verifier that is right about 9 answers of 10", good)
    )
    tables = {"regret": table(["world", "stop", "regret, mean and 95 % interval"], rows)}
    return Report(
        headline, tables, picture("When to stop: learned, capped, verified, or by the classical rule", panels)
    )


def _swept(how: How) -> list[tuple[str, str, tuple[float, ...], str, str]]:
    every = [
        (
            "sprt",
            "assumed",
            how.votes,
            "classical rule, with an assumption",
            "assumed chance that a vote is right (true: .7)",
        ),
        ("sprt", "verified", how.verifiers, "external verifier", "how often the verifier is right"),
        ("costly_search", "verified", how.noises, "external verifier", "noise of what the verifier sees"),
        (
            "pandora",
            "assumed",
            how.prizes,
            "classical rule, with an assumption",
            "assumed prizes, times the true ones",
        ),
    ]
    return [one for one in every if one[0] in how.worlds]


def _cell(values: Any) -> str:
    mean = summarise("", "", values)
    return f"{mean.mean:.1%} ({mean.low:.1%} to {mean.high:.1%})"


register("study", "stopping")(Experiment(How, arms, measure, report))
