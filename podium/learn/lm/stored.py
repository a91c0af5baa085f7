"""Stored runs as a source: what language models did and said in a run that kept its traces is learned from
again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from podium.credit.forest import roots
from podium.learn.folder import BadRecipe
from podium.learn.lm.text_world import own_decisions, tally
from podium.learn.loop import Rollouts
from podium.trace.columns import F
from podium.trace.files import load

__all__ = ["TRACES", "StoredRuns"]

TRACES = "traces"  # of iteration i: the traces, `i.*.jsonl`, and the learner before it, `i.safetensors`


class StoredRuns:
    """A source: the traces that a run's folder keeps. Language models see only tokens, contexts and options."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def iterations(self) -> int:
        """How many iterations were kept, from the first."""
        number = 0
        while self._paths(number):
            number += 1
        return number

    def learner(self) -> Path:
        """The checkpoint from before the first update. Raises BadRecipe where there is none."""
        path = self.folder / TRACES / "0.safetensors"
        if not path.exists():
            raise BadRecipe(f"{self.folder} holds no kept runs: expected the folder of `podium train --keep`")
        return path

    def recipe(self) -> dict[str, Any]:
        """What the run was asked. Raises BadRecipe."""
        self.learner()
        try:
            recipe: dict[str, Any] = msgspec.json.decode((self.folder / "asked.json").read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise BadRecipe(
                f"{self.folder / 'asked.json'} cannot be read ({error!r}); expected a run's recipe"
            ) from None
        return recipe

    def _paths(self, iteration: int) -> list[Path]:
        paths = (self.folder / TRACES).glob(f"{iteration}.*.jsonl")
        return sorted(paths, key=lambda path: int(path.stem.split(".")[1]))

    def rollouts(self, policy: Any) -> list[Rollouts]:
        """The runs of the policy's next iteration, as they were. Raises BadRecipe where there are none."""
        paths = self._paths(policy.iteration)
        if not paths:
            raise BadRecipe(
                f"{self.folder / TRACES} holds no traces of iteration {policy.iteration}; expected a run that kept "
                "them all, by `podium train --keep`"
            )
        return [self._load(path) for path in paths]

    def _load(self, path: Path) -> Rollouts:
        trace = load(path)
        if not len(trace.token_k):
            raise BadRecipe(f"{path} has no tokens: expected a trace of language models")
        own = roots(trace) == np.arange(len(trace))
        earned: F = trace.reward_n["team"][own]
        rows = own_decisions(trace)
        return Rollouts(trace, None, earned[~np.isnan(earned)], len(rows), tally(trace), rows)
