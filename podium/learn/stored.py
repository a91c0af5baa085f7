"""Runs that were kept, and learning from them again.

With `--keep` a training run writes down, before each update, the learner (`kept/N/learner.npz`) and the runs of the
iteration with all that was fitted (`kept/N/W.jsonl`, one file a world). What the network saw is not among it: it is
replayed from the world's parameters, the seed and the choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podium.credit import Credit
from podium.envs.branch import choices, world_of
from podium.envs.world import BadParameter, World
from podium.errors import WrongUse
from podium.learn import checkpoint
from podium.learn.collect import Decisions, Observed
from podium.learn.loop import Keep, Rollouts
from podium.learn.mix import tally_of
from podium.learn.policy import Net, Seen, joined, seen_by, taken
from podium.learn.train import Learner, NetPolicy
from podium.trace import files
from podium.trace.columns import Trace
from podium.trace.forest import Forest, roots

__all__ = ["BadRuns", "StoredRuns", "keep_runs", "observed_again", "sample_runs"]


class BadRuns(WrongUse, ValueError):
    """Kept runs that cannot be learned from again; says why."""


def keep_runs(folder: Path, policy: NetPolicy) -> Keep:
    """Writes the runs of an iteration, and the learner before it, into the folder of a training run."""

    def keep(number: int, rollouts: Sequence[Rollouts], credit: Sequence[Credit]) -> None:
        place = folder / "kept" / str(number)
        place.mkdir(parents=True, exist_ok=True)
        for k, one in enumerate(rollouts):
            files.save(one.trace.whole() if isinstance(one.trace, Forest) else one.trace, place / f"{k}.jsonl")
        checkpoint.save_learner(policy.learner, place / "learner.npz")

    return keep


def sample_runs(folder: Path) -> Keep:
    """Writes the first three runs of each iteration into `sampled/N.jsonl`, to look at."""
    (folder / "sampled").mkdir(exist_ok=True)
    return lambda number, rollouts, _: files.save(roots(rollouts[0].trace, 3), folder / f"sampled/{number}.jsonl")


@dataclass(frozen=True)
class StoredRuns:
    """The kept runs of another training run, iteration by iteration, as a source."""

    folder: Path

    @property
    def iterations(self) -> int:
        """How many iterations were kept, from the first."""
        number = 0
        while (self.folder / "kept" / str(number) / "learner.npz").exists():
            number += 1
        return number

    def learner(self) -> Learner:
        """The learner before the first kept update."""
        if not self.iterations:
            raise BadRuns(f"{self.folder} holds no kept runs: expected the folder of `podium train --keep`")
        return checkpoint.load_learner(self.folder / "kept" / "0" / "learner.npz")

    def rollouts(self, policy: NetPolicy) -> list[Rollouts]:
        """The runs of the policy's next iteration, seen again."""
        place = self.folder / "kept" / str(policy.iteration)
        paths = sorted(place.glob("*.jsonl"), key=lambda path: int(path.stem))
        if not paths:
            raise BadRuns(f"{place} holds no runs; {self.iterations} iterations were kept")
        return [self._rollouts(policy, path) for path in paths]

    def _rollouts(self, policy: NetPolicy, path: Path) -> Rollouts:
        trace = files.load(path)
        try:
            decisions = observed_again(policy.net, trace)
        except (BadParameter, ValueError) as error:
            raise BadRuns(f"{path}: what the policy saw cannot be replayed: {error}") from None
        free = (trace.parent_n.codes < 0) & (trace.tells_n != 0)
        rows = np.concatenate([np.zeros(0, np.int64), *(d.row for d in decisions)])
        return Rollouts(
            trace,
            Observed(decisions, fitted=True),
            trace.reward_n["team"][free],
            int((trace.call_e >= 0).sum()),
            tally_of(trace, np.flatnonzero((trace.call_e >= 0) & free[trace.rollout_e]), policy.net.words.word),
            rows,
        )


def observed_again(net: Net, trace: Trace) -> list[Decisions]:
    """What the policy saw in runs that are no branches, by replay: where options were tried or, if none, at all.

    In the order in which the policy was asked (`call_e`). Raises ValueError where the world does not allow what the
    trace says.
    """
    world = world_of(trace)
    if (len(world.facts), len(world.items)) != net.figures:
        raise ValueError(f"{world.name} shows other figures than the network reads")
    codes = net.words.codes(world.options)
    rows, chosen = choices(world, trace)
    roots = np.flatnonzero(trace.parent_n.codes < 0)
    if (trace.call_e[rows] < 0).any():
        raise ValueError("the runs do not say in which order the policy was asked")
    parts: dict[tuple[str, str], list[tuple[Seen, Any]]] = {}
    for seen, row in _replayed(world, trace, roots, rows, chosen, lambda view: seen_by(view, codes)[0]):
        parts.setdefault((seen.kind, seen.role), []).append((seen, row))
    tried = np.zeros(trace.n_events, np.bool_)
    tried[trace.event_o[~np.isnan(trace.behaviour_o)]] = True
    decisions = []
    for some in parts.values():
        seen, row = joined([s for s, _ in some]), np.concatenate([r for _, r in some])
        wanted = np.flatnonzero(tried[row]) if tried.any() else np.arange(len(row))
        order = wanted[np.lexsort((row[wanted], trace.call_e[row[wanted]]))]
        if len(order):
            decisions.append(Decisions(taken(seen, order), row[order]))
    return sorted(decisions, key=lambda d: (int(trace.call_e[d.row[0]]), int(d.row[0])))


def _replayed(
    world: World, trace: Trace, roots: Any, rows: Any, chosen: Any, see: Callable[[Any], Seen]
) -> list[tuple[Seen, Any]]:
    """Of each view what was seen, and the rows of its decisions."""
    seed = np.array([int(str(trace.seed_n[int(n)])) for n in roots], np.uint64)
    state, made = world.start(seed), np.zeros(len(roots), np.int64)
    first, found = np.searchsorted(trace.rollout_e[rows], np.arange(len(trace) + 1)), []
    while (view := world.view(state)) is not None:
        at = first[roots[view.row]] + made[view.row]
        if (at >= first[roots[view.row] + 1]).any() or (chosen[at] < 0).any():
            raise ValueError("the world asks for decisions that the runs do not have")
        if not view.allowed[np.arange(len(view)), chosen[at]].all():
            raise ValueError("the world does not allow what the runs say was chosen")
        found.append((see(view), rows[at]))
        made[view.row] += 1
        world.act(state, view, chosen[at])
    return found
