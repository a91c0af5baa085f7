"""Credit diffusion as learning: how many episodes a policy needs as runs grow, by how its credit is spread.

A run is n decisions, each good (1) or bad (0). It earns the mean of those that matter, and noise. The policy is p_j
= σ(θ_j), and learns by

    θ_j += rate · mean over episodes of Â (a_j - p_j),     Â = credit in units of its root mean square

    broadcast   Â is the outcome less the mean of the batch, the same for every decision of a run
    branches
    one run a batch; the others are branches of it, one at a decision by lot: the other option, and the same luck
    but for the
                tenth of later decisions that react. A decision is paid what its option earned beyond the other
    local
    a decision is paid for its own result, which the graph says is its own (no noise is spared: its result has its
    share) shuffled    local, given to other decisions and runs, by lot: the control
    alone
    the single agent: every ten decisions are a run of their own with an outcome of its own, broadcast inside it; as
    many decisions
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.registry import register
from podium.study.figure import Panel, lines_of, picture
from podium.study.question import Experiment, Measurements, Report, column, summarise, table
from podium.trace.columns import F

__all__ = ["How", "arms", "credit_of_case", "learned", "measure", "report"]

N64 = NDArray[np.int64]
FEW = 10  # decisions that matter, or parameters that are shared
HALF = 0.75  # the value at which half of the gap is closed: any option earns 0.5, the optimum 1
DONE = 0.99
WORDS = {"own": "a parameter each", "shared": "ten shared parameters", "few": "ten decisions matter"}
SAID = {
    "broadcast": "broadcast",
    "branches": "same-prefix branches",
    "local": "by its own result",
    "shuffled": "shuffled",
    "alone": "broadcast, ten decisions a run",
}


@dataclass(frozen=True)
class How:
    lengths: tuple[int, ...]
    cases: tuple[str, ...]
    credits: tuple[str, ...]
    batch: int
    episodes: int
    rates: tuple[float, ...]
    reacts: float
    noise: float
    looks: int


def arms(how: How) -> list[str]:
    return [f"{case}/{paid}/{n}" for case in how.cases for paid in how.credits for n in how.lengths]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """The value of the policy as it learns, and the episodes after which half of the gap was closed (all, if it
    never was)."""
    case, paid, length = arm.split("/")
    rate = _best_rate(how, case, paid, int(length))
    curve = learned(how, case, paid, int(length), rate, seed)
    return {"value": curve, "half": _half(how, curve), "rate": rate, "episodes": how.episodes}


def _moments(how: How) -> list[int]:
    """The updates after which the policy is looked at: 0, and some that grow evenly on a logarithmic scale."""
    last = how.episodes // how.batch
    return [0, *np.unique(np.geomspace(1, last, how.looks).round().astype(int)).tolist()]


def _half(how: How, curve: F) -> float:
    above = np.flatnonzero(curve >= HALF)
    if not len(above):
        return float(how.episodes)
    i, at = int(above[0]), np.array(_moments(how)) * how.batch
    return float(np.interp(HALF, curve[i - 1 : i + 1], at[i - 1 : i + 1]))


@cache
def _best_rate(how: How, case: str, paid: str, length: int) -> float:
    """The rate that does best on a seed that nothing is told of."""
    return max(how.rates, key=lambda rate: float(learned(how, case, paid, length, rate, 10_007).mean()))


def learned(how: How, case: str, paid: str, length: int, rate: float, seed: int) -> F:
    """The exact value of the policy at some moments."""
    dice = np.random.default_rng([seed, length, len(case), len(paid)])
    at = np.arange(length) % FEW if case == "shared" else np.arange(length)
    matter = np.arange(length) < (FEW if case == "few" else length)
    theta = np.zeros(at.max() + 1)
    report, curve = _moments(how), []
    for u in range(report[-1] + 1):
        p = 1.0 / (1.0 + np.exp(-theta))
        if u in report:
            curve.append(float(p[at][matter].mean()))
        if curve[-1] > DONE:  # learned: what is left is the same
            return np.array(curve + [curve[-1]] * (len(report) - len(curve)))
        up = credit_of_case(how, paid, p[at], matter, dice)
        theta += rate * np.bincount(at, up, minlength=len(theta))
    return np.array(curve)


def credit_of_case(how: How, paid: str, p: F, matter: NDArray[np.bool_], dice: np.random.Generator) -> F:
    """mean over episodes of Â (a - p), of every decision."""
    n, many = len(p), int(matter.sum())
    spread = np.sqrt(how.noise / (1 - how.noise) / 4 / many)  # of the outcome's noise
    if paid == "branches":
        return _branches(how, p, matter, spread, dice)
    did = (dice.random((how.batch, n), np.float32) < p).astype(np.float32)
    if paid == "broadcast":
        earned = did[:, matter].mean(axis=1) + spread * dice.standard_normal(how.batch)
        given: Any = (earned - earned.mean()) / (earned.std() + 1e-12)
        return np.asarray(given @ did / how.batch)  # what is less than a mean adds up to nothing: p drops out
    if paid == "alone":
        parts = did.reshape(how.batch, -1, FEW)
        earned = (parts * matter.reshape(-1, FEW)).mean(axis=2)
        earned = earned + np.sqrt(how.noise / (1 - how.noise) / 4 / FEW) * dice.standard_normal(earned.shape)
        given = (earned - earned.mean(axis=0)) / (earned.std(axis=0) + 1e-12)
        return np.asarray((given[:, :, None] * parts).mean(axis=0).ravel())
    given = did * np.float32(1 / many) * matter
    given += np.float32(spread * np.sqrt(12 / n)) * (dice.random((how.batch, n), np.float32) - np.float32(0.5))
    given -= given.mean(axis=0)
    if paid == "shuffled":
        given = np.roll(given.ravel(), int(dice.integers(given.size))).reshape(given.shape)
    return np.asarray((given * (did - p)).mean(axis=0) / (np.sqrt((given**2).mean()) + 1e-12))


def _branches(how: How, p: F, matter: NDArray[np.bool_], spread: float, dice: np.random.Generator) -> F:
    """One run and a branch at each of some decisions: Σ p (1 - p) D, D = what good earned less what bad earned
    there."""
    n, many = len(p), int(matter.sum())
    at = dice.integers(0, n, how.batch - 1)
    later = np.maximum(many - np.cumsum(matter)[at], 0)
    moved = dice.binomial(later, how.reacts)
    mean = float(p[matter].mean())
    luck = (dice.binomial(moved, mean) - dice.binomial(moved, mean)) / many
    gap = matter[at] / many + luck + how.reacts * spread * dice.standard_normal(len(at))
    gap = gap / (np.sqrt((gap**2).mean()) + 1e-12)
    return np.bincount(at, gap * p[at] * (1 - p[at]), minlength=n).astype(float)


def report(how: How, found: Measurements) -> Report:
    """Episodes to half of the gap by length, and their slope over length, both log."""
    halves = {arm: column(found, arm, "half") for arm in arms(how)}
    rows, headline = [], []
    for case in how.cases:
        for paid in how.credits:
            cells = []
            for n in how.lengths:
                got = halves[f"{case}/{paid}/{n}"]
                end = column(found, f"{case}/{paid}/{n}", "value")[:, -1]
                cells.append(f"{got.mean():,.0f}" if got.max() < how.episodes else f"never ({end.mean():.2f})")
            rows.append([WORDS[case], SAID[paid], *cells])
    for case in how.cases:
        slope = [
            _slope(how, np.array([halves[f"{case}/broadcast/{n}"][s] for n in how.lengths]))
            for s in range(len(halves[f"{case}/broadcast/{how.lengths[0]}"]))
        ]
        headline.append(
            summarise(
                f"{case}.slope",
                f"{WORDS[case]}: episodes that broadcast credit needs, over length, slope of logs",
                slope,
            )
        )
    long = how.lengths[-1]
    for paid in how.credits:
        end = column(found, f"own/{paid}/{long}", "value")[:, -1]
        headline.append(
            summarise(
                f"own.{paid}",
                f"a parameter each, {long:,} decisions: value learned, credit {SAID[paid]} (.5 at random, 1 the "
                "optimum)",
                end,
            )
        )
    headline.append(
        summarise(
            "own.local.half",
            f"episodes to half of the gap at {long:,}, credit by its own result",
            halves[f"own/local/{long}"],
            most=float(how.episodes) - 1,
        )
    )
    return Report(
        headline,
        {"halves": table(["case", "credit", *(f"{n:,} decisions" for n in how.lengths)], rows)},
        _figure(how, found, halves),
    )


def _slope(how: How, half: F) -> float:
    """Of log episodes over log length, where half of the gap was closed."""
    there = half < how.episodes
    if there.sum() < 2:
        return float("nan")
    return float(np.polyfit(np.log(np.array(how.lengths)[there]), np.log(half[there]), 1)[0])


def _figure(how: How, found: Measurements, halves: dict[str, F]) -> str:
    xs = [how.batch * u for u in _moments(how)][1:]
    panels = [
        Panel(
            f"{n:,} decisions, a parameter each: value",
            "episodes",
            [lines_of(SAID[paid], xs, column(found, f"own/{paid}/{n}", "value")[:, 1:]) for paid in how.credits],
            {"optimum": 1.0},
            log_x=True,
            low=0.45,
        )
        for n in (how.lengths[-2], how.lengths[-1])
    ]
    lines = [
        lines_of(
            f"{SAID[paid]}, {WORDS[case]}",
            how.lengths,
            np.array([halves[f"{case}/{paid}/{n}"] for n in how.lengths]).T,
        )
        for case in how.cases
        for paid in ("broadcast", "local")
    ]
    panels.append(
        Panel(
            "episodes to half of the gap",
            "decisions a run",
            lines,
            {"all that were played": float(how.episodes)},
            log_x=True,
            log_y=True,
        )
    )
    return picture("Credit diffusion as learning", panels)


register("study", "diffusion")(Experiment(How, arms, measure, report))
