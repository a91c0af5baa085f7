"""Metrics of a set of runs: means with intervals, by length and by topology, and what an attack changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.graph import units
from podium.graph.grouping import mean_by
from podium.interval import Estimate, estimate, student
from podium.metrics.table import METRICS, BadMetrics, Metric
from podium.registry import facts, find
from podium.trace.columns import F, Trace
from podium.trace.vocabulary import TOPOLOGIES

__all__ = ["BANDS", "STRATA", "WORDS", "Measured", "band", "by_rollout", "margins", "measure", "pairs", "strata"]

BANDS, WORDS = (10, 100, 1000, 10000), [*TOPOLOGIES, "not recorded"]


@dataclass(frozen=True)
class Measured:
    """One metric over runs: by which score, and a value for each run, NaN where the record does not say."""

    metric: Metric
    score: str | None  # None if no score says anything
    values_n: F
    paired: bool = False  # whether they are differences between twins

    @property
    def assumes(self) -> str | None:
        stated: str | None = facts("score", self.score).get("assumes") if self.score else None
        return stated

    @property
    def needs(self) -> str | None:
        """What the record of a run would have to hold for a figure; None where every run has one."""
        scores = self.metric.scores if self.score is None else (self.score,)
        return "; or ".join(str(facts("score", score)["needs"]) for score in scores) if self.absent else None

    @property
    def estimate(self) -> Estimate:
        return _of_differences(self.values_n) if self.paired else estimate(self.values_n)

    @property
    def absent(self) -> int:
        """The runs of which the record does not say."""
        return int(np.isnan(self.values_n).sum())

    def among(self, which_n: NDArray[Any]) -> Measured:
        """The same metric, by the same score, of some of the runs."""
        return Measured(self.metric, self.score, self.values_n[which_n], self.paired)

    def plain(self) -> dict[str, Any]:
        """As plain data; None where there is no figure."""
        figures = {k: None if v != v else v for k, v in self.estimate._asdict().items()}
        return {
            "dimension": self.metric.dimension,
            "metric": self.metric.name,
            "better": self.metric.better,
            **figures,
            "absent": self.absent,
            "needs": self.needs,
            "score": self.score,
            "assumes": self.assumes,
        }


def _of_differences(values: F) -> Estimate:
    """The paired interval, m ± t(n-1) s / √n; differences that are all 0 or 1 are no shares."""
    unpaired = estimate(values)
    there = values[~np.isnan(values)]
    if unpaired.n < 2:
        return unpaired
    half = student(unpaired.n - 1) * float(there.std(ddof=1)) / float(np.sqrt(unpaired.n))
    return Estimate(unpaired.mean, unpaired.mean - half, unpaired.mean + half, unpaired.n)


def by_rollout(trace: Trace, score: str) -> F:
    """A score as one number a run: the mean over its units that were scored."""
    unit, values = facts("score", score)["unit"], np.asarray(find("score", score)(trace), np.float64)
    return values if unit == "team" else mean_by(units.rollouts(trace, unit), values, len(trace))


def measure(trace: Trace, metrics: Sequence[Metric] = METRICS) -> list[Measured]:
    """Every metric of these runs, each by the first of its scores that says anything of any of them."""
    return [_first(metric, lambda score: by_rollout(trace, score), len(trace)) for metric in metrics]


def _first(metric: Metric, of: Callable[[str], F], n: int) -> Measured:
    for score in metric.scores:
        values_n = of(score)
        if not np.isnan(values_n).all():
            return Measured(metric, score, values_n)
    return Measured(metric, None, np.full(n, np.nan))


def band(trace: Trace) -> NDArray[np.int64]:
    """The length band of each run: the power of ten, 10 to 10,000, that its events are nearest to, by ratio."""
    events_n = np.bincount(trace.rollout_e, minlength=len(trace))
    nearest = np.rint(np.log10(np.maximum(events_n, 1))).astype(np.int64)
    bands: NDArray[np.int64] = 10 ** np.clip(nearest, 1, 4)
    return bands


STRATA: dict[str, tuple[list[str], Callable[[Trace], list[str]]]] = {
    "band": ([*map(str, BANDS)], lambda trace: [str(b) for b in band(trace).tolist()]),
    "topology": (WORDS, lambda trace: [WORDS[t] for t in trace.topology_n.tolist()]),
}


def strata(trace: Trace, measured: Sequence[Measured], by: str) -> dict[str, list[Measured]]:
    """The metrics of the runs of each length band or topology, by the same scores as over all of them."""
    if by not in STRATA:
        raise BadMetrics(f"runs can be told apart by {' or '.join(STRATA)}, got {by!r}")
    order, names = STRATA[by]
    name_n = np.array(names(trace), object)
    return {name: [m.among(name_n == name) for m in measured] for name in order if (name_n == name).any()}


def pairs(attacked: Trace, clean: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The runs of two sets that are twins: those with the same trace id."""
    place: dict[str | None, int] = {}
    for i, name in enumerate(clean.trace_id_n.strings()):
        if place.setdefault(name, i) != i:
            raise BadMetrics(f"two clean runs are called {name}; twins are found by their trace ids")
    twins = [(i, place[name]) for i, name in enumerate(attacked.trace_id_n.strings()) if name in place]
    if not twins:
        raise BadMetrics("no attacked run has the trace id of a clean one")
    mine, theirs = np.array(twins).T
    if len(np.unique(theirs)) < len(theirs):
        raise BadMetrics("two attacked runs have the same trace id; twins are found by their trace ids")
    return mine, theirs


def margins(attacked: Trace, clean: Trace, metrics: Sequence[Metric] = METRICS) -> list[Measured]:
    """What an attack changes: each metric on attacked runs less that on their clean twins, pair by pair.

        d_i = m(attacked_i) - m(clean_i)

    By the first score that says anything of both runs of a pair.
    """
    mine, theirs = pairs(attacked, clean)

    def difference(score: str) -> F:
        change: F = by_rollout(attacked, score)[mine] - by_rollout(clean, score)[theirs]
        return change

    return [replace(_first(metric, difference, len(mine)), paired=True) for metric in metrics]
