"""Stored runs as a source: what language models did and said in a run that kept its traces is learned from
again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from podium.credit.forest import roots
from podium.learn.folder import BadRecipe
from podium.learn.lm.text_world import own_decisions, tally
from podium.learn.loop import Rollouts
from podium.trace.columns import F
from podium.trace.files import load

__all__ = ["StoredRuns"]


class StoredRuns:
    """A source: the traces that a run's folder keeps, those of iteration i in `traces/i.*.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "traces"

    def rollouts(self, policy: Any) -> list[Rollouts]:
        """The runs of the policy's next iteration, as they were. Raises BadRecipe where there are none."""
        paths = sorted(
            self.folder.glob(f"{policy.iteration}.*.jsonl"), key=lambda path: int(path.stem.split(".")[1])
        )
        if not paths:
            raise BadRecipe(
                f"{self.folder} holds no traces of iteration {policy.iteration}; expected a run that kept them "
                "all, "
                "by keep = 1 in [lm]"
            )
        return [self._load(path) for path in paths]

    def _load(self, path: Path) -> Rollouts:
        trace = load(path)
        if not len(trace.token_k):
            raise BadRecipe(f"{path} has no tokens: expected a trace of language models")
        earned: F = trace.reward_n["team"][roots(trace) == np.arange(len(trace))]
        rows = own_decisions(trace)
        return Rollouts(trace, None, earned[~np.isnan(earned)], len(rows), tally(trace), rows)
