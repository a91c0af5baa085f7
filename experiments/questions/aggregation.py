"""Aggregation with correlated voters: accuracy as ballots copy their sources more and more, in `jury`, whose
optimum is Bayes' rule.

Beside what is learned: Bayes' rule, the majority of ballots, the majority of sources (each its own majority), and a
single agent that is asked as often as there are ballots, which is a jury of one source. Other credit is tried at
one copying: GRPO's, which takes as long as the one method, the one method with as many decisions as GRPO, and
shuffled credit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.envs.draws import seeds
from podium.envs.jury import Jury
from podium.envs.world import View, World, make, play
from podium.registry import register
from podium.study.figure import Line, Panel, band, lines_of, picture
from podium.study.loop import OURS, SAID, budget, marks, train_lesson
from podium.study.question import Experiment, Headline, Measurements, Report, column, summarise, table

__all__ = ["How", "arms", "by_source", "measure", "report"]

DICE = 20_011


@dataclass(frozen=True)
class How:
    copies: tuple[float, ...]
    controls: dict[str, list[float]]
    ballots: tuple[int, ...]
    sources: tuple[int, ...]
    tests: tuple[tuple[int, int], ...]
    judged: int
    ours: dict[str, int | float]
    few: dict[str, int | float]
    traced: dict[str, int | float]


def arms(how: How) -> list[str]:
    more = [f"{credit}/{copy:g}" for credit, copies in how.controls.items() for copy in copies]
    return [*(f"{credit}/{copy:g}" for credit in (OURS, "rules") for copy in how.copies), *more]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """The accuracy on juries that it was not trained with, and how far from Bayes' rule that is; of the rules,
    theirs."""
    credit, copy = arm.split("/")
    tests = [_jury(m, s, float(copy)) for m, s in how.tests]
    if credit == "rules":
        return _rules(how, tests, seed)

    def world(iteration: int, number: int) -> World:
        dice = np.random.default_rng([seed, iteration, number])
        return _jury(int(dice.choice(how.ballots)), int(dice.choice(how.sources)), float(copy))

    lesson = train_lesson(credit, budget(how, credit), world, seed)
    evaluations = marks(lesson, tests, how.judged)
    return {
        "accuracy": np.mean([j.value for j in evaluations]),
        "lost": np.mean([j.optimum - j.value for j in evaluations]),
        "decisions": lesson.decisions,
    }


def _jury(m: int, s: int, copy: float) -> Jury:
    world = make("jury", m=m, s=s, copy=copy)
    assert isinstance(world, Jury)
    return world


def by_source(view: View) -> Any:
    """Each source says what most of its ballots say; the answer is what most sources say, 1 if they are even."""
    ballots, owner = view.items()
    source, vote = ballots[:, 1].astype(np.int64), ballots[:, 2]
    many = int(source.max()) + 1
    cell = owner * many + source
    lead = np.bincount(cell, 2 * vote - 1, len(view) * many).reshape(len(view), many)
    return (np.sign(lead).sum(axis=1) >= 0).astype(np.int64)


def _rules(how: How, tests: list[Jury], seed: int) -> dict[str, Any]:
    alone = [_jury(w.params.m, 1, w.params.copy).optimum() for w in tests]
    dice = seeds(DICE + seed, how.judged)
    return {
        "optimum": np.mean([w.optimum() for w in tests]),
        "majority": np.mean([w.majority() for w in tests]),
        "sources": np.mean([play(w, by_source, dice.copy()).score.mean() for w in tests]),
        "single": np.mean(alone),
    }


def _headline(how: How, found: Measurements, curves: dict[str, Any]) -> list[Headline]:
    at = next(copies[0] for copies in how.controls.values())
    k = how.copies.index(at)
    best, lost = curves["Bayes' rule (optimum)"][:, k], f"{OURS}/{at:g}"
    return [
        summarise(
            "lost",
            f"accuracy that the learned rule loses against Bayes' rule, mean over copying {how.copies}",
            np.mean([column(found, f"{OURS}/{c:g}", "lost") for c in how.copies], axis=0),
            most=0.015,
        ),
        summarise(
            "majority",
            f"accuracy that the majority of ballots loses at copying {at:g}",
            best - curves["majority of ballots"][:, k],
        ),
        summarise(
            "learned", f"accuracy that the learned rule loses at copying {at:g}", column(found, lost, "lost")
        ),
        *(summarise(c, f"the same, {SAID[c]}", column(found, f"{c}/{at:g}", "lost")) for c in how.controls),
        summarise(
            "team",
            f"what a jury with Bayes' rule adds to one agent asked as often, at copying {at:g}",
            best - curves["one agent, asked as often"][:, k],
        ),
        summarise(
            "free",
            "the same without copying",
            curves["Bayes' rule (optimum)"][:, 0] - curves["one agent, asked as often"][:, 0],
        ),
    ]


def report(how: How, found: Measurements) -> Report:
    lines = {
        "Bayes' rule (optimum)": ("rules", "optimum"),
        "learned, same-prefix credit": (OURS, "accuracy"),
        "majority of ballots": ("rules", "majority"),
        "majority of sources": ("rules", "sources"),
        "one agent, asked as often": ("rules", "single"),
    }
    curves = {
        name: np.array([column(found, f"{credit}/{c:g}", what) for c in how.copies]).T
        for name, (credit, what) in lines.items()
    }
    headline = _headline(how, found, curves)
    rows = [[name, *(f"{x:.3f}" for x in curve.mean(axis=0))] for name, curve in curves.items()]
    for credit, copies in how.controls.items():
        cells = [
            f"{column(found, f'{credit}/{c:g}', 'accuracy').mean():.3f}" if c in copies else "" for c in how.copies
        ]
        rows.append([f"learned, {SAID[credit]}", *cells])
    gap = [
        lines_of(
            "learned, same-prefix credit",
            how.copies,
            np.array([column(found, f"{OURS}/{c:g}", "lost") for c in how.copies]).T,
        )
    ]
    gap += [Line(name, _points(how, curves, name)) for name in ("majority of ballots", "majority of sources")]
    for credit, copies in how.controls.items():
        gap.append(
            Line(f"learned, {SAID[credit]}", [band(c, column(found, f"{credit}/{c:g}", "lost")) for c in copies])
        )
    x = "how often a ballot repeats its source"
    panels = [
        Panel("accuracy", x, [lines_of(n, how.copies, c) for n, c in curves.items()], low=0.5),
        Panel("accuracy lost against Bayes' rule", x, gap),
    ]
    tables = {"accuracy": table(["", *(f"copying {c:g}" for c in how.copies)], rows)}
    return Report(headline, tables, picture("Whom to believe when voters copy one another", panels))


def _points(how: How, curves: dict[str, Any], name: str) -> list[tuple[float, ...]]:
    lost = curves["Bayes' rule (optimum)"] - curves[name]
    return [(c, float(lost[:, i].mean())) for i, c in enumerate(how.copies)]


register("study", "aggregation")(Experiment(How, arms, measure, report))
