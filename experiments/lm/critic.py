"""Two small networks on the figures behind prompts: one imitates the model's policy, the other learns what options
earn above each other.

A branch is one draw of what its option is worth, and most states are met once or twice; like states are learned
together here. The model goes by its text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.world import World
from podium.learn import tape
from podium.learn.policy import Net, Parameters, Seen, Shape, entries_of, joined, prepared, taken
from podium.learn.tape import Node, Var, backward, value_of
from podium.learn.update import adam
from podium.trace.columns import F

__all__ = ["Critic", "Found", "Imitation"]

N64 = NDArray[np.int64]
WIDE = 96
LATE = 0.97  # of what is said, weights before a step count so much: they are averaged over the last 30 steps or so


class Found(NamedTuple):
    """What is known about decisions of one kind: one entry an option of a row, as in `Seen`."""

    seen: Seen
    value: F  # of each entry: its probability; or what it earned, less the mean of those tried beside it
    tried: F  # of each entry: 1, or 0 where nothing is known of it
    stands: F  # of each row: how many decisions it stands for


class _Small:
    """A network that is fitted to what was found in the last `keep` rounds, some steps of Adam a round."""

    def __init__(self, world: World, seed: int, keep: int) -> None:
        self.net = Net(world, Shape(item=32, context=WIDE, head=WIDE))
        self.w: Parameters = self.net.initial(seed)
        self.late: Parameters = {k: x.copy() for k, x in self.w.items()}
        self.m, self.v = ({k: np.zeros_like(x) for k, x in self.w.items()} for _ in range(2))
        self.steps, self.keep = 0, keep
        self.dice = np.random.default_rng([seed, 0xC217])
        self.kept: list[list[Found]] = []

    def add(self, found: Sequence[Found]) -> None:
        """What a round found."""
        some = [f._replace(seen=prepared(f.seen)) for f in found if len(f.seen)]
        self.kept = [*self.kept, some][-self.keep :]

    def fit(self, steps: int, rows: int, rate: float) -> float:
        """So many gradient steps, of so many rows each, drawn by how much they stand for; the mean loss."""
        every = [f for some in self.kept for f in some]
        kinds = dict.fromkeys(f.seen.kind for f in every)
        pools = [_one([f for f in every if f.seen.kind == kind]) for kind in kinds]
        chances = [pool.stands / pool.stands.sum() for pool in pools]
        total, losses = sum(float(pool.stands.sum()) for pool in pools), []
        for _ in range(steps if pools else 0):
            w = {k: Var(x) for k, x in self.w.items()}
            whole: Node = np.float32(0.0)
            for pool, chance in zip(pools, chances, strict=True):
                many = max(1, round(rows * float(pool.stands.sum()) / total))
                at = self.dice.choice(len(chance), many, p=chance)
                states, entries = taken(pool.seen, at), entries_of(pool.seen, at)
                scores = self.net.scores(w, states, *self.net.context(w, states))
                part = self.loss(scores, states.start, _rows(states), pool.value[entries], pool.tried[entries])
                whole = tape.plus(whole, tape.mul(part, np.float32(1.0 / rows)))
            backward(whole)
            self.steps += 1
            grad = {k: x.grad for k, x in w.items() if x.grad is not None}
            adam(self.w, grad, self.m, self.v, self.steps, rate)
            for k, x in self.late.items():
                x += np.float32(max(1.0 - LATE, 1.0 / self.steps)) * (self.w[k] - x)
            losses.append(float(value_of(whole)))
        return float(np.mean(losses)) if losses else float("nan")

    def loss(self, scores: Node, start: N64, row: N64, value: F, tried: F) -> Node:
        raise NotImplementedError

    def scores(self, seen: Seen) -> F:
        """A number for each entry."""
        scores: F = self.net.scores(self.late, seen, *self.net.context(self.late, seen)).astype(np.float64)
        return scores


class Imitation(_Small):
    """The policy of a model as a function of figures.   L = -Σ_i n_i Σ_k π_k log S_k"""

    def loss(self, scores: Node, start: N64, row: N64, value: F, tried: F) -> Node:
        return tape.mul(
            tape.sum_all(tape.mul(tape.log_softmax(scores, start), value.astype(np.float32))), np.float32(-1.0)
        )

    def says(self, seen: Seen) -> F:
        """log S of each entry."""
        logp: F = tape.log_softmax(self.scores(seen), seen.start)
        return logp


class Critic(_Small):
    """What options earn, up to a number for each state.
    L = Σ_i n_i Σ_k tried (A_k - mean of those tried - above_k)², in units of what was seen to differ"""

    unit = 1.0  # root mean square of what options tried beside each other earned above their mean

    def add(self, found: Sequence[Found]) -> None:
        super().add(found)
        every = [f for some in self.kept for f in some]
        weight = [np.repeat(f.stands, np.diff(f.seen.start)) * f.tried for f in every]
        squares = sum(float((n * f.value**2).sum()) for n, f in zip(weight, every, strict=True))
        self.unit = float(np.sqrt(squares / max(sum(float(n.sum()) for n in weight), 1e-12))) + 1e-12

    def loss(self, scores: Node, start: N64, row: N64, value: F, tried: F) -> Node:
        known = tried.astype(np.float32)
        few = (1.0 / np.maximum(np.bincount(row, tried), 1.0)).astype(np.float32)
        mean = tape.mul(tape.segment_sum(tape.mul(scores, known), start), -few)
        wanted = (value / self.unit).astype(np.float32)
        off = tape.mul(tape.plus(tape.plus(scores, tape.gather(mean, row)), -wanted), known)
        return tape.sum_all(tape.mul(off, off))

    def says(self, seen: Seen) -> F:
        """A of each entry less the mean of its row, in units of what was seen to differ."""
        score, row = self.scores(seen), _rows(seen)
        mean = np.bincount(row, score, len(seen)) / np.diff(seen.start)
        return score - mean[row]


def _rows(seen: Seen) -> N64:
    """The row of each entry."""
    return np.repeat(np.arange(len(seen)), np.diff(seen.start))


def _one(found: Sequence[Found]) -> Found:
    memory = tuple(np.concatenate([f.seen.encodings[i] for f in found if f.seen.encodings]) for i in range(2))
    states = replace(joined([f.seen for f in found]), encodings=(memory[0], memory[1]))
    return Found(states, *(np.concatenate([f[i] for f in found]) for i in range(1, 4)))
