"""The value of the rest of a task that is paid stretch by stretch, estimated by where a stretch ends: branches need
not go on to the end, and later luck is not paid.

A scout more in one leg of `expedition` changes who is left for the legs after it. By playing them that is one draw
of a dozen outcomes, each as large as the stakes; a fit to thousands of such draws has far less of their noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.credit import Credit
from podium.credit.options import at_options
from podium.learn.collect import StretchEnds
from podium.learn.loop import Rollouts
from podium.learn.ridge import by_halves, ridge
from podium.trace.columns import F, ranges
from podium.trace.forest import Forest

__all__ = ["bootstrap_returns"]

N64 = NDArray[np.int64]
RIDGE = 0.03  # of the features' mean square


@dataclass(frozen=True)
class _Options:
    """Options that were tried at decisions of one kind in one world, one entry an option."""

    world: int
    run: N64  # the branch that took it
    start: N64  # where the options of each decision begin
    episode: N64  # of each entry
    ends: StretchEnds

    def about_means(self, x: F) -> F:
        """Less the mean over the options of each decision."""
        many = np.diff(self.start)
        mean = np.add.reduceat(x, self.start[:-1], axis=0) / (many if x.ndim == 1 else many[:, None])
        centred: F = x - np.repeat(mean, many, axis=0)
        return centred

    def features(self) -> F:
        """What the network makes of the start of the next stretch, and whether there is one."""
        of = np.column_stack([self.ends.context[self.run], self.ends.going[self.run]])
        return self.about_means(of.astype(np.float64))


def bootstrap_returns(rollouts: Sequence[Rollouts]) -> list[Rollouts]:
    """Rollouts whose branches are paid for the stretch where they began, and by the value of the rest (`value_n`):

    Q_k = R_k + θ · x_k,   x_k = [what the network makes of the start of the next stretch, 1], 0 if there is none

    θ by ridge regression of L_k - mean_j L_j on x_k - mean_j x_j, options j tried at the same decision on the same
    dice, where L, what came after the stretch, was played. Each half of the episodes is told by a fit to the other.
    Rollouts without stretches are as they were.
    """
    parts = [part for number, one in enumerate(rollouts) for part in _tried(number, one)]
    if not parts:
        return list(rollouts)
    values = [np.full(len(one.trace), np.nan) for one in rollouts]
    x = np.concatenate([part.features() for part in parts])
    later = np.concatenate([part.about_means(part.ends.later[part.run]) for part in parts])
    known = ~np.isnan(later)
    value = by_halves(
        np.concatenate([part.episode for part in parts]),
        lambda half: lambda at: at @ ridge(x[half & known], later[half & known], RIDGE),
        x,
    )
    for part, some in zip(parts, np.split(value, np.cumsum([len(p.run) for p in parts])[:-1]), strict=True):
        values[part.world][part.run] = some
    return [
        one._replace(trace=one.trace.stamped(value_n=value_n))
        for one, value_n in zip(rollouts, values, strict=True)
    ]


def _tried(number: int, one: Rollouts) -> list[_Options]:
    """The options that were tried in the rollouts of a world, by kind of decision."""
    ends, forest = one.observations.ends, one.trace
    if ends is None or not isinstance(forest, Forest) or not one.observations.decisions:
        return []
    trace = forest.rows
    every = np.concatenate([d.row for d in one.observations.decisions])
    unscored = Credit(trace, "orchestrator", np.zeros(0), packed=forest)
    taker_o = at_options(unscored.of(unscored.rollout.astype(np.float64)), every)
    parts = []
    for decisions in one.observations.decisions:
        first, many = trace.options_of(decisions.row)
        place = ranges(first, many)
        tried = ~np.isnan(trace.behaviour_o[place])
        of = np.repeat(np.arange(len(many)), many)[tried]
        start = np.searchsorted(of, np.arange(len(many) + 1))
        run = taker_o[place[tried]].astype(np.int64)
        parts.append(_Options(number, run, start, trace.rollout_e[decisions.row][of], ends))
    return parts
