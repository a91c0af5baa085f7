"""Communication under a price: what is said and what is earned as words get dearer, in `relay`, whose best rules
are found by enumeration.

Words are counted as the world prices them: a brief message is one, a full one two. Beside what is learned: the best
team, every fixed length with a lead who knows it, and a lead alone, who hears nothing and guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.envs.draws import seeds
from podium.envs.relay import Relay
from podium.envs.world import Policy, World, make, play
from podium.learn.collect import greedy
from podium.learn.evaluate import DICE
from podium.registry import register
from podium.study.figure import Line, Panel, lines_of, picture
from podium.study.loop import FEW, OURS, SAID, SHUFFLED, budget, train_lesson
from podium.study.question import Experiment, Headline, Measurements, Report, column, summarise, table

__all__ = ["How", "arms", "measure", "report"]

CREDITS = (OURS, FEW, "grpo", SHUFFLED)


@dataclass(frozen=True)
class How:
    prices: tuple[float, ...]
    trained: tuple[float, float]
    mates: int
    judged: int
    ours: dict[str, int | float]
    few: dict[str, int | float]
    traced: dict[str, int | float]


def arms(how: How) -> list[str]:
    return [*CREDITS, "rules"]


def _relay(how: How, price: float) -> Relay:
    world = make("relay", n=how.mates, c=price)
    assert isinstance(world, Relay)
    return world


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """Score and words an episode at every price."""
    dice = seeds(DICE + seed, how.judged)

    def of(world: Relay, policy: Policy) -> tuple[float, float]:
        done = play(world, policy, dice.copy())
        return float(done.score.mean()), float(done.state.words.sum(1).mean())  # type: ignore[attr-defined]

    tests = [_relay(how, price) for price in how.prices]
    if arm == "rules":
        best = [of(w, w.optimal()) for w in tests]
        fixed = {
            name: [of(w, w.trivial()[f"all {name}"])[0] for w in tests] for name in ("silent", "brief", "full")
        }
        return {"optimum": [w.optimum() for w in tests], "words": [b[1] for b in best], **fixed}

    def world(iteration: int, number: int) -> World:
        draw = np.random.default_rng([seed, iteration, number])
        return _relay(how, float(draw.uniform(*how.trained)))

    lesson = train_lesson(arm, budget(how, arm), world, seed)
    got = [of(w, greedy(lesson.net, lesson.learner.w, w)) for w in tests]
    return {"score": [g[0] for g in got], "words": [g[1] for g in got], "decisions": lesson.decisions}


def _headline(how: How, found: Measurements, inside: list[int], lost: dict[str, Any]) -> list[Headline]:
    best = column(found, "rules", "optimum")
    off = np.abs(column(found, OURS, "words") - column(found, "rules", "words"))
    return [
        summarise(
            "lost",
            "score lost against the best team, mean over trained prices, same-prefix credit",
            lost[OURS][:, inside].mean(axis=1),
            most=0.01,
        ),
        summarise(
            "words", "words that it says too many or too few, mean over trained prices", off[:, inside].mean(axis=1)
        ),
        summarise(
            "beyond",
            "score lost at prices outside those of training",
            np.delete(lost[OURS], inside, axis=1).mean(axis=1) if len(inside) < len(how.prices) else np.nan,
        ),
        *(
            summarise(c, f"score lost, {SAID[c]}, mean over trained prices", lost[c][:, inside].mean(axis=1))
            for c in CREDITS
            if c != OURS
        ),
        summarise(
            "alone",
            "score lost by a lead alone, who hears nothing, mean over trained prices",
            (best - column(found, "rules", "silent"))[:, inside].mean(axis=1),
        ),
    ]


def report(how: How, found: Measurements) -> Report:
    best = column(found, "rules", "optimum")
    inside = [i for i, p in enumerate(how.prices) if how.trained[0] <= p <= how.trained[1]]
    lost = {c: best - column(found, c, "score") for c in CREDITS}
    words = {c: column(found, c, "words") for c in CREDITS}
    headline = _headline(how, found, inside, lost)
    scores = [lines_of("best team (optimum)", how.prices, best)]
    scores += [lines_of(f"learned, {SAID[c]}", how.prices, column(found, c, "score")) for c in CREDITS]
    for name in ("silent", "brief", "full"):
        mean = column(found, "rules", name).mean(axis=0)
        scores.append(Line(f"all {name}", list(zip(how.prices, mean.tolist(), strict=True))))
    lines = [lines_of("best team (optimum)", how.prices, column(found, "rules", "words"))]
    lines += [lines_of(f"learned, {SAID[c]}", how.prices, words[c]) for c in CREDITS]
    panels = [
        Panel("score", "price of a word", scores, low=0.4),
        Panel("words an episode", "price of a word", lines),
    ]
    rows = [["best team", *(f"{x:.3f}" for x in best.mean(axis=0)), ""]]
    rows += [
        [
            f"learned, {SAID[c]}",
            *(f"{x:.3f}" for x in column(found, c, "score").mean(axis=0)),
            f"{np.mean(column(found, c, 'decisions')):,.0f}",
        ]
        for c in CREDITS
    ]
    rows += [
        [f"all {n}", *(f"{x:.3f}" for x in column(found, "rules", n).mean(axis=0)), ""]
        for n in ("silent", "brief", "full")
    ]
    count = [["best team", *(f"{x:.2f}" for x in column(found, "rules", "words").mean(axis=0))]]
    count += [[f"learned, {SAID[c]}", *(f"{x:.2f}" for x in words[c].mean(axis=0))] for c in CREDITS]
    prices = [f"{p:g}" for p in how.prices]
    tables = {
        "score": table(["score at a price of", *prices, "decisions played"], rows),
        "words": table(["words at a price of", *prices], count),
    }
    return Report(headline, tables, picture("Communication under a price", panels))


register("study", "communication")(Experiment(How, arms, measure, report))
