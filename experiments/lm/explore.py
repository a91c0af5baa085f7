"""Episodes of a text world by the state: as a policy plays them, or with options tried beside each other on the
same dice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.lm.states import Book, Play, side_by_side
from podium.engine.models import PolicyTeam
from podium.engine.options import draw, likeliest
from podium.envs.draws import U, uniform
from podium.envs.world import View, World
from podium.learn.collect import DICE, MARK, STRAY, TRY, WANDER, _copy
from podium.learn.lm.settings import Settings
from podium.trace.columns import F

__all__ = ["Practice", "Taken", "Tried", "above_others", "explored", "greedy_scores", "sampled"]

N64 = NDArray[np.int64]
B = NDArray[np.bool_]


@dataclass(frozen=True)
class Practice:
    """How much is played in an iteration, and how; the rest is in `Settings`."""

    tries: int = 5  # options tried at a decision, by lot
    # play goes by π e^(lean A), A what the critic has it that an option earns above others, in units of what was
    # seen to differ
    lean: float = 20.0
    wander: float = 0.7  # of episodes, which take any option but to stop here and there: that is learned too
    # tokens of an iteration, about, those that are learned counting three times: as many episodes are played as ...
    budget: int = 400_000
    at_least: int = 6  # ... that takes in each world, but not fewer
    at_most: int = 2_048  # ... nor more
    learned: int = 100_000  # tokens that are learned at most, of states drawn by how often they were met
    step: int = 8_000  # tokens of a gradient step, about
    clip: float = 0.3  # of what log-probabilities change in an iteration
    # with a critic, which a small imitation of the model plays for (`rehearse`); without one, episodes are paid by
    # their score
    rehearsed: int = 45_000  # decisions of a rehearsal, about; 0: no critic
    stages: int = 4  # worlds that it plays in
    part: float = 0.35  # of its decisions that are branched
    fits: int = 80  # gradient steps of the imitation and of the critic in a rehearsal ...
    rows: int = 256  # ... of so many decisions ...
    small: float = 2e-3  # ... at this rate
    heat: float = 0.2  # what is learned is e^(A / heat), A in units of what options differ by


# ---- episodes


class _Player:
    """Chooses by the odds in a book. After `most` decisions an episode stops where it can."""

    def __init__(self, book: Book, seed: U, pick: Callable[[F, F], N64] = draw, lean: float = 0.0) -> None:
        options, most = book.world.options, book.settings.most
        self.book, self.seed, self.pick, self.lean, self.most = book, seed, pick, lean, most or 30
        self.home = options.index("stop") if "stop" in options else -1
        self.made = np.zeros(len(seed), np.int64)  # decisions so far
        self.decisions = 0

    def __call__(self, view: View, state: N64) -> tuple[N64, N64]:
        """The option chosen, and how many decisions were made before, of each row."""
        number = self.made[view.row]
        logp = self.book.logp[state] + self.lean * self.book.hint[state]
        chosen = self.pick(logp - logp.max(axis=1, keepdims=True), uniform(self.seed[view.row], DICE, number))
        if self.home >= 0:
            chosen = np.where((number >= self.most) & view.allowed[:, self.home], self.home, chosen)
        self.made[view.row] += 1
        self.decisions += len(view)
        return chosen, number


class Tried(NamedTuple):
    """Decisions at which options were tried beside each other."""

    state: N64
    earned: F  # [decisions, options] by the episode that took it there and went on; NaN where it was not tried
    score: F  # of episodes that did not wander
    decisions: int


def above_others(earned: F) -> tuple[F, B]:
    """What options earned less the mean of those tried beside them, 0 where one was not tried; and which were."""
    there = ~np.isnan(earned)
    value = np.where(there, earned, 0.0)
    return np.where(there, value - value.sum(1, keepdims=True) / there.sum(1, keepdims=True), 0.0), there


def explored(book: Book, seed: U, how: Practice, share: float) -> Play[Tried]:
    """Episodes, and at a share of their decisions options forced; each goes on with the same dice, side by side.

    Some episodes wander: at few or many of their decisions they take any option but to stop, and their branches do
    not.
    """
    world, n = book.world, len(seed)
    width = len(world.options)
    room = n * min(width, how.tries) * 8 if share else 0
    every = np.concatenate([seed, np.broadcast_to(seed[:1], room)])
    state = world.start(every.copy())
    state.open[n:] = False
    player = _Player(book, every, lean=how.lean)
    wanders = np.append(uniform(seed, WANDER) < how.wander, np.zeros(room, np.bool_))
    free, running = np.arange(n, n + room)[::-1], np.full(n + room, -1)
    parts: list[N64] = []
    earned, rows = np.full((1 << 10) * width, np.nan), 0
    while (view := world.view(state)) is not None:
        at = yield view
        chosen, number = player(view, at)
        strays = wanders[view.row] & (number < player.most)
        strays &= uniform(every[view.row], STRAY, number) < uniform(every[view.row], WANDER, 1)
        if strays.any():
            chosen = _strayed(view, chosen, strays, uniform(every[view.row], STRAY, number, 1), player.home)
        own = (view.row < n) & (number < player.most) & (view.allowed.sum(1) > 1)
        own &= book.tokens < how.budget  # episodes that turn out long are played to their end
        mark = np.flatnonzero(own & (uniform(every[view.row], MARK, number) < share))
        tried = _some(view.allowed[mark], book.logp[at[mark]], every[view.row[mark]], number[mark], how.tries)
        fits = np.cumsum(tried.sum(1)) <= len(free)
        mark, tried = mark[fits], tried[fits]
        branch = None
        if len(mark):
            of, option = np.nonzero(tried)
            while (rows + len(mark)) * width > len(earned):
                earned = np.concatenate([earned, np.full_like(earned, np.nan)])
            target, free = free[len(free) - len(of) :], free[: len(free) - len(of)]
            source = view.row[mark[of]]
            _copy(state, source, target, len(every))
            every[target], player.made[target] = every[source], player.made[source]
            running[target] = (rows + of) * width + option
            branch = view.take(mark[of]), target, option
            parts.append(at[mark])
            rows += len(mark)
        world.act(state, view, chosen)
        if branch is not None:
            world.act(state, replace(branch[0], row=branch[1]), branch[2])
        done = np.flatnonzero((running >= 0) & ~state.open)
        earned[running[done]] = state.score[done]
        running[done] = -1
        free = np.concatenate([free, done])
    straight = state.score[:n][~wanders[:n]]
    where = np.concatenate([np.zeros(0, np.int64), *parts])
    return Tried(where, earned[: rows * width].reshape(rows, width), straight, player.decisions)


def _some(allowed: B, logp: F, seed: U, number: N64, many: int) -> B:
    """At most so many of the options that are allowed, by lot, the likelier rather: one after the other by (π + 1 /
    K) / 2, none twice."""
    if allowed.sum(1).max(initial=0) <= many:
        return allowed
    chance = (np.exp(logp) + 1.0 / allowed.sum(1, keepdims=True)) / 2
    lot = -np.log(np.maximum(uniform(seed[:, None], TRY, number[:, None], np.arange(allowed.shape[1])), 1e-300))
    when = np.where(allowed, lot / chance, np.inf)  # the first of clocks that ring at these rates
    return allowed & (np.argsort(np.argsort(when, axis=1), axis=1) < many)


def _strayed(view: View, chosen: N64, strays: B, u: F, home: int) -> N64:
    """Any option that is allowed instead, but not to stop."""
    may = view.allowed.copy()
    if home >= 0:
        may[:, home] = False
    nth = (u * may.sum(1)).astype(np.int64)
    other = (np.cumsum(may, axis=1) == (nth + 1)[:, None]).argmax(1)
    return np.where(strays & may.any(1), other, chosen)


class Taken(NamedTuple):
    """Decisions of whole episodes."""

    state: N64
    option: N64
    episode: N64
    score: F  # of each episode
    decisions: int


def sampled(book: Book, seed: U) -> Play[Taken]:
    """Episodes as the policy plays them."""
    player, log = _Player(book, seed), list[tuple[N64, N64, N64]]()
    score = yield from _played(book, seed, player, log)
    state, option, row = (np.concatenate(some) for some in zip(*log, strict=True))
    return Taken(state, option, row, score, player.decisions)


def greedy_scores(world: World, team: PolicyTeam, settings: Settings, seed: U) -> F:
    """What episodes earn when the likeliest is always said."""
    book = Book(world, team, settings)
    player = _Player(book, seed, lambda logp, u: likeliest(logp))
    return side_by_side([book], [_played(book, seed, player, [])])[0]


def _played(book: Book, seed: U, player: _Player, made: list[tuple[N64, N64, N64]]) -> Play[F]:
    state = book.world.start(seed.copy())
    while (view := book.world.view(state)) is not None:
        at = yield view
        chosen, _ = player(view, at)
        made.append((at, chosen, view.row.copy()))
        book.world.act(state, view, chosen)
    score: F = state.score
    return score
