"""Credit diffusion: how much one decision shows in the credit it gets, when the same number is paid to a whole run.

A run is n decisions, each good or bad with equal chance; it earns the share of good ones. A decision is worth 1/n
of the range, and what all the others did is noise in the number that is broadcast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from podium.credit import Credit, apply
from podium.envs.log import Log
from podium.trace.columns import Text, Trace

__all__ = ["LENGTHS", "Diffused", "diffusion", "long_runs"]

LENGTHS = (10, 30, 100, 300, 1000, 3000, 10_000)
EVENTS = 400_000  # decisions to measure on at each length
REACTS = 0.1  # the share of later decisions that react to one, and so are drawn anew where luck is shared


class Diffused(NamedTuple):
    """Signal to noise of one decision's credit in runs of a length: half the gap between good and bad, over the
    spread of either."""

    length: int
    broadcast: float
    apart: float  # eight pairs of continuations, each with luck of its own
    shared: float  # eight pairs that share their luck, but for the tenth of later decisions that react


def long_runs(runs: int, length: int, dice: np.random.Generator) -> Trace:
    """Runs of a lead that decides so many times and earns the share of good decisions."""
    good = dice.integers(0, 2, (runs, length))
    log = Log(runs)
    before = np.full(runs, -1)
    names = np.array(["bad", "good"])
    for i in range(length):
        before = log.decide(
            np.arange(runs),
            "delegate",
            "lead",
            float(i),
            names.tolist(),
            names[good[:, i]],
            after=[("causal", before)],
        )
    return log.trace(
        trace_id_n=Text.of(f"long{i}" for i in range(runs)),
        task_id_n=Text.constant("long", runs),
        reward_n={"team": good.mean(axis=1)},
    )


def diffusion(lengths: tuple[int, ...] = LENGTHS, events: int = EVENTS, seed: int = 0) -> list[Diffused]:
    """Signal to noise against length: of GRPO's kind of broadcast credit, and of eight pairs of continuations at a
    decision."""
    rows = []
    for length in lengths:
        dice = np.random.default_rng([seed, length])
        runs = max(16, events // length)
        trace = long_runs(runs, length, dice)
        credit = apply(Credit(trace, "team", trace.reward_n["team"]), 'center(by="task") >> to("orchestrator")')
        good = trace.chosen_e.codes[credit.rows] == trace.chosen_e.code("good")
        broadcast = _ratio(credit.value[good], credit.value[~good])
        rest = dice.binomial(length - 1, 0.5, (2, 20_000, 8)) / length
        apart = 1.0 / length + rest[0].mean(axis=1) - rest[1].mean(axis=1)
        moved = dice.binomial(length - 1, REACTS, (20_000, 8))
        shared = 1.0 / length + (dice.binomial(moved, 0.5) - dice.binomial(moved, 0.5)).mean(axis=1) / length
        rows.append(Diffused(length, broadcast, _ratio(apart, -apart), _ratio(shared, -shared)))
    return rows


def _ratio(
    good: np.ndarray[tuple[int], np.dtype[np.float64]], bad: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> float:
    spread = float(np.sqrt((good.var() + bad.var()) / 2.0))
    gap = abs(float(good.mean() - bad.mean())) / 2.0
    return gap / spread if spread > 1e-12 else float("inf")
