"""Rehearsals: a small imitation of a model's policy plays many episodes with branches, and a critic learns what
options are worth from them.

What a branch earns is mostly luck, and a model that weighs every state of many branches has no time left to learn.
It is asked where it goes itself; rehearsals go by S e^(lean A), S its imitation and A the critic.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.lm.critic import Critic, Found, Imitation
from experiments.lm.explore import Practice, above_others, explored
from experiments.lm.states import Book, side_by_side
from podium.envs.draws import seeds
from podium.envs.world import View, World
from podium.learn.lm.settings import Settings
from podium.learn.policy import Seen

__all__ = ["Aside", "Rehearsal", "RehearsalResult", "imitable", "lessons_of"]

N64 = NDArray[np.int64]


class Sketch(Book):
    """A book in which an imitation weighs every state at once."""

    def __init__(self, world: World, settings: Settings, imitation: Imitation, critic: Critic) -> None:
        nobody: Any = None
        super().__init__(world, nobody, settings, critic=critic)
        self.imitation = imitation

    def _add(self, view: View) -> None:
        pass

    def _describe(self, first: int, seen: Seen, option: N64) -> None:
        super()._describe(first, seen, option)
        row = np.repeat(np.arange(len(seen)), np.diff(seen.start))
        self.logp[first + row, option] = self.imitation.says(seen)


class RehearsalResult(NamedTuple):
    """What a rehearsal came to."""

    late: dict[str, Any]  # the critic's weights
    unit: float
    doubt: float  # loss of the imitation ...
    off: float  # ... and of the critic
    decisions: int


def imitable(book: Book) -> list[Found]:
    """What a model does in the states of a book, as often as they were met."""
    every = np.arange(len(book))
    parts = []
    for at, states, option in book.seen(every):
        row = np.repeat(at, np.diff(states.start))
        pi = np.exp(book.logp[row, option])
        parts.append(Found(states, pi, np.ones_like(pi), book.visits[at]))
    return parts


def lessons_of(book: Book, state: N64, earned: Any) -> list[Found]:
    """What options earned above those tried beside them: decisions in one state at which the same were tried are
    one row."""
    above, there = above_others(earned)
    rows, of = np.unique(np.column_stack([state, there]), axis=0, return_inverse=True)
    of, count = of.ravel(), np.bincount(of.ravel()).astype(np.float64)
    total = np.zeros((len(rows), above.shape[1]))
    np.add.at(total, of, above)
    mean, parts = total / np.maximum(count, 1.0)[:, None], []
    for at, states, option in book.seen(rows[:, 0].astype(np.int64)):
        row = np.repeat(at, np.diff(states.start))
        parts.append(Found(states, mean[row, option], rows[row, 1 + option].astype(np.float64), count[at]))
    return parts


@dataclass
class Rehearsal:
    """Imitation and critic of one team, and how they are kept up."""

    imitation: Imitation
    critic: Critic
    settings: Settings
    how: Practice
    seed: int
    each: int = 64  # episodes of each world
    round: int = 0

    def once(self, worlds: Sequence[World], models: Sequence[Found]) -> RehearsalResult:
        """One round: the imitation learns what the model did, plays with branches, and the critic learns from
        them."""
        with threadpool_limits(1):
            return self._once(worlds, models)

    def _once(self, worlds: Sequence[World], models: Sequence[Found]) -> RehearsalResult:
        how = self.how
        self.imitation.add(models)
        doubt = self.imitation.fit(how.fits, how.rows, how.small)
        books = [Sketch(world, self.settings, self.imitation, self.critic) for world in worlds]
        dice = [
            seeds(self.seed * 1_000_003 + self.round + 0x5EED, self.each, k * self.each) for k in range(len(worlds))
        ]
        free = replace(how, budget=1 << 60)
        tried = side_by_side(books, [explored(b, d, free, how.part) for b, d in zip(books, dice, strict=True)])
        decisions = sum(t.decisions for t in tried)
        self.critic.add([f for b, t in zip(books, tried, strict=True) for f in lessons_of(b, t.state, t.earned)])
        off = self.critic.fit(how.fits, how.rows, how.small)
        self.each = int(np.clip(self.each * how.rehearsed / max(decisions, 1), self.each / 3 + 1, self.each * 3))
        self.round += 1
        return RehearsalResult(self.critic.late, self.critic.unit, doubt, off, decisions)


_HELD: list[Rehearsal] = []


def _hold(rehearsal: Rehearsal) -> None:
    _HELD[:] = [rehearsal]


def _ready() -> None:
    pass


def _next(worlds: Sequence[World], models: Sequence[Found]) -> RehearsalResult:
    return _HELD[0].once(worlds, models)


class Aside:
    """Rehearsals in a process of their own, while the model learns; in this one where that is not wanted. What
    comes of them is the same."""

    def __init__(self, rehearsal: Rehearsal, apart: bool) -> None:
        self._here = rehearsal
        self._pool = (
            ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_hold, initargs=(rehearsal,))
            if apart
            else None
        )
        if self._pool is not None:
            self._pool.submit(_ready)  # it takes a while to start

    def begin(self, worlds: Sequence[World], models: Sequence[Found]) -> Future[RehearsalResult]:
        """A round, which may take its time."""
        if self._pool is not None:
            return self._pool.submit(_next, worlds, models)
        done: Future[RehearsalResult] = Future()
        result = self._here.once(worlds, models)
        done.set_result(result._replace(late={k: x.copy() for k, x in result.late.items()}))
        return done

    def end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
