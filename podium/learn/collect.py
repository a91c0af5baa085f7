"""Episodes under a policy as training rows: some of their decisions branched, so that each option's score is known."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.world import Policy, View, World, play
from podium.learn import tape
from podium.learn.memory import Memory
from podium.learn.mix import Tally, named
from podium.learn.policy import Net, Parameters, Seen, entries_of, joined, seen_by, taken
from podium.learn.tape import Array
from podium.trace.columns import B, F

__all__ = ["Ahead", "Batch", "Rows", "acting", "capped", "collect", "drawn", "greedy", "played"]

N64 = NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
DICE, MARK, TRY, WANDER, STRAY, WHOLE = 0xD1CE, 0x3A2C, 0x7217, 0x3A4D, 0x57A1, 0x3401  # addresses of draws


class Ahead(NamedTuple):
    """Where the stretch of a task ended in which an option was tried, one row an entry (`World.stretch`)."""

    context: Array  # what the network makes of the start of the next stretch; 0 if there is none
    going: B  # whether there is one
    later: F  # what came after the stretch; NaN where nobody looked

    def take(self, entry: N64) -> Ahead:
        """Some entries."""
        return Ahead(self.context[entry], self.going[entry], self.later[entry])


class Rows(NamedTuple):
    """Decisions of one kind and role with what was tried there: one entry an option that was."""

    seen: Seen
    logp: Array  # of each entry under the policy that acted, among the entries
    earned: F  # of each entry: the score of the episode that took it there and went on under the policy, or what it was when the stretch ended
    episode: N64  # of each row
    number: N64  # of each row: how many decisions its episode had made
    option: N64  # of each entry: its number in the world
    chance: F  # of each row: how likely it was to be branched
    chosen: N64  # of each row: the option that its episode took
    ahead: Ahead | None = None  # where tasks are paid stretch by stretch

    def dealt(self, order: N64) -> Rows:
        """The same decisions, what was earned dealt out to their entries in another order."""
        return self._replace(earned=self.earned[order], ahead=self.ahead and self.ahead.take(order))


class Batch(NamedTuple):
    rows: list[Rows]
    score: F  # of the episodes as they were played
    decisions: int  # all that the policy made
    doubt: float  # times stake, of all decisions of an episode that may be branched, on average
    mix: Tally  # what was chosen in episodes that did not wander


def drawn(logp: Array, start: N64, u: F) -> N64:
    """The entry drawn by u in every row."""
    total = np.cumsum(np.exp(logp.astype(np.float64)))
    before = np.concatenate([[0.0], total])[start[:-1]]
    entry = np.searchsorted(total, before + u * (total[start[1:] - 1] - before), side="right")
    held: N64 = np.clip(entry, start[:-1], start[1:] - 1)
    return held


def _likeliest(logp: Array, start: N64) -> N64:
    """The likeliest entry of every row; the first of those that are equal."""
    count = tape.lengths(start)
    at = np.flatnonzero(logp == np.repeat(np.maximum.reduceat(logp, start[:-1]), count))
    row = np.repeat(np.arange(len(count)), count)[at]
    entry: N64 = at[np.searchsorted(row, np.arange(len(count)))]
    return entry


def greedy(net: Net, w: Parameters, world: World) -> Policy:
    """The likeliest option, always, with its log-probability."""
    codes = net.words.codes(world.options)

    def policy(view: View) -> tuple[N64, F]:
        seen, number = seen_by(view, codes)
        logp = net.log_odds(w, seen)
        entry = _likeliest(logp, seen.start)
        return number[entry], logp[entry].astype(np.float64)

    return policy


def capped(world: World, policy: Policy, n: int, most: int) -> Policy:
    """The policy in n episodes, but after `most` decisions an episode stops where it may."""
    if "stop" not in world.options:
        return policy
    home, made = world.options.index("stop"), np.zeros(n, np.int64)

    def stops(view: View) -> Any:
        late = (made[view.row] >= most) & view.allowed[:, home]
        made[view.row] += 1
        answer = policy(view)
        if not isinstance(answer, tuple):
            return np.where(late, home, answer)
        return np.where(late, home, answer[0]), np.where(late, 0.0, answer[1])

    return stops


class _Actor:
    """The policy in episodes under way: remembers what it made of their records."""

    def __init__(self, world: World, net: Net, w: Parameters, n: int, most: int, sharp: float) -> None:
        self.net, self.w, self.most, self.sharp = net, w, most, sharp
        self.codes = net.words.codes(world.options)
        self.home = world.options.index("stop") if "stop" in world.options else -1
        self.memory = Memory(net, w, n)
        self.made = np.zeros(n, np.int64)  # decisions so far
        self.decisions = 0

    def choose(self, view: View, seed: U) -> tuple[Seen, N64, Array, N64, Array]:
        """What is seen, the option of each entry, its log-probability, the option chosen in each row, and what was made of it."""
        seen, option = seen_by(view, self.codes)
        if view.about is None and not self.net.shape.per_role:  # what is remembered is what one role made of it
            context, items = self.net.read(self.w, seen, *self.memory.pools(seen, view.row)), None
        else:
            context, items = self.net.context(self.w, seen)
        logp = tape.log_softmax(self.net.scores(self.w, seen, context, items), seen.start)
        at = self.made[view.row]
        if np.isinf(self.sharp):
            entry = _likeliest(logp, seen.start)
        else:
            entry = drawn(logp * self.sharp, seen.start, uniform(seed, DICE, at))
        chosen = option[entry]
        if self.home >= 0 and (late := at >= self.most).any():
            chosen = np.where(late & view.allowed[:, self.home], self.home, chosen)
        self.made[view.row] += 1
        self.decisions += len(view)
        return seen, option, logp, chosen, context

    def copy(self, source: N64, target: N64) -> None:
        self.memory.copy(source, target)
        self.made[target] = self.made[source]


def acting(world: World, net: Net, w: Parameters, seed: U, *, most: int = 400, sharp: float = 1.0) -> Policy:
    """The policy in episodes of these seeds, once: options drawn by π^sharp (the likeliest where that is infinite).

    After `most` decisions an episode stops where it can.
    """
    actor = _Actor(world, net, w, len(seed), most, sharp)
    return lambda view: actor.choose(view, seed[view.row])[3]


def played(world: World, net: Net, w: Parameters, seed: U, *, most: int = 400, sharp: float = 1.0) -> Batch:
    """Episodes played to their end by the policy (`acting`)."""
    found = play(world, acting(world, net, w, seed, most=most, sharp=sharp), seed.copy())
    return Batch([], found.score, found.decisions, np.nan, {})


def collect(
    world: World,
    net: Net,
    w: Parameters,
    seed: U,
    share: float = 2.0,
    tries: int = 8,
    most: int = 400,
    room: int = 0,
    sharp: float = 1.0,
    wander: float = 0.0,
    roles: tuple[str, ...] | None = None,
    whole: float = 1.0,
) -> Batch:
    """Episodes, and some of their decisions branched: each other option (up to `tries` in all) is forced there, and the
    episode goes on under the policy (π^sharp) with the same dice. A decision is branched with the chance min(1, share x doubt x stake).

    A share `wander` of episodes takes, at some of its decisions, any option but to stop: at few in one episode and at nearly all in
    another. So it is known what to do well where the policy would not go, and going there is judged by that. Their branches do not wander.

    A branch is a copy of its episode's row in the same state, so that all go on side by side. `room` is how many branches there may
    be at once; decisions that find none are not branched. With `roles`, only their decisions are.

    Where a task is paid stretch by stretch, branches of a share `whole` of decisions go on to the end of the task, and the others end with
    the stretch: what its start is like is kept (`Ahead`), by which `ahead.foreseen` tells what came after.
    """
    n = len(seed)
    room = room or 12 * n * min(tries, len(world.options))
    wanders = np.append(uniform(seed, WANDER) < wander, np.zeros(room, np.bool_))
    every = np.concatenate([seed, np.broadcast_to(seed[:1], room)])
    state = world.start(every.copy())
    state.open[n:] = False
    actor = _Actor(world, net, w, n + room, most, sharp)
    free = np.arange(n, n + room)[::-1]  # a stack: the last is taken next
    found: list[_Marked] = []
    running = np.full(n + room, -1)  # the number, over all found, of the entry that a branch answers
    earned, entries, doubts = np.zeros(1 << 12), 0, 0.0
    stretches = _Stretches(n + room, net.shape.context) if world.stretches else None
    tally: dict[str, N64] = {}
    while (view := world.view(state)) is not None:
        seen, option, logp, chosen, context = actor.choose(view, every[view.row])
        on = stretches.ended(world, state, view.row, running, context) if stretches else None
        may = (view.row < n) & (roles is None or seen.role in roles)
        doubt = _doubt(logp, seen.start) * net.stake(w, seen, context) * may
        meant = chosen[(view.row < n) & ~wanders[view.row]]
        tally[view.kind] = tally.get(view.kind, 0) + np.bincount(meant, minlength=len(world.options))
        doubts += float(doubt.sum())
        at = actor.made[view.row] - 1
        _stray(seen, option, chosen, np.flatnonzero(wanders[view.row]), every[view.row], at, actor.home)
        chance = np.where(at < most, np.minimum(1.0, share * doubt), 0.0)
        mark = np.flatnonzero(uniform(every[view.row], MARK, at) < chance)
        if len(mark):
            row = view.row[mark]
            alone = wanders[row] | (stretches is not None)  # whose episode does not tell what its option earned
            here = _tried(seen, option, logp, chosen, mark, row, at[mark], chance[mark], alone, every, tries)
            here = here.first(len(free))
            other = np.flatnonzero(~here.own())
            while entries + len(here.option) > len(earned):
                earned = np.concatenate([earned, np.zeros_like(earned)])
            of = np.repeat(np.arange(len(here.seen)), tape.lengths(here.seen.start))[other]
            target, free = free[len(free) - len(other) :], free[: len(free) - len(other)]
            source = here.row[of]
            _copy(state, source, target, len(every))
            every[target] = every[source]
            actor.copy(source, target)
            running[target] = entries + other
            if stretches:
                stretches.began(world, state, target, (uniform(every[row], WHOLE, at[mark]) < whole)[of])
            branch = replace(view.take(here.mark[of]), row=target)
            if len(here.seen):
                found.append(here)
            entries += len(here.option)
        world.act(state, *((view, chosen) if on is None else (view.take(on), chosen[on])))
        if len(mark) and len(other):
            world.act(state, branch, here.option[other])
        done = np.flatnonzero((running >= 0) & ~state.open)
        earned[running[done]] = state.score[done]
        running[done] = -1
        free = np.concatenate([free, done])
    rows = _rows(found, earned, state.score, stretches)
    mix = {kind: named(net.words.words, actor.codes, count) for kind, count in tally.items()}
    return Batch(rows, state.score[:n][~wanders[:n]], actor.decisions, doubts / n, mix)


@dataclass(frozen=True)
class _Marked:
    """Decisions of one view that are branched."""

    seen: Seen
    logp: Array
    option: N64  # of each entry
    chosen: N64  # of each row: the option that its episode took
    row: N64  # of each row: its episode
    number: N64
    chance: F
    wanders: B  # of each row: whether its episode does not go on under the policy
    mark: N64  # of each row: its place in the view

    def own(self) -> B:
        """Of each entry whether its episode itself tells what it earns."""
        count = tape.lengths(self.seen.start)
        told: B = (self.option == np.repeat(self.chosen, count)) & ~np.repeat(self.wanders, count)
        return told

    def first(self, room: int) -> _Marked:
        """The first decisions, as many as have room for their branches."""
        needed = np.cumsum(tape.lengths(self.seen.start) - ~self.wanders)
        if not len(needed) or needed[-1] <= room:
            return self
        many = int(np.searchsorted(needed, room, side="right"))
        index = np.arange(many)
        at = entries_of(self.seen, index)
        return _Marked(
            taken(self.seen, index),
            self.logp[at],
            self.option[at],
            self.chosen[:many],
            self.row[:many],
            self.number[:many],
            self.chance[:many],
            self.wanders[:many],
            self.mark[:many],
        )


def _stray(seen: Seen, option: N64, chosen: N64, some: N64, seed: U, at: N64, home: int) -> None:
    """Any option instead of the one chosen, but not to stop, at some decisions of some rows: how many is drawn by episode."""
    if len(some):
        some = some[uniform(seed[some], STRAY, at[some]) < uniform(seed[some], WANDER, 1)]
        start, count = seen.start[some], tape.lengths(seen.start)[some]
        other = option[start + (uniform(seed[some], STRAY, at[some], 1) * count).astype(np.int64)]
        chosen[some] = np.where(other == home, chosen[some], other)


def _doubt(logp: Array, start: N64) -> F:
    """How undecided the policy is in each row: 1 - Σ_k π_k² + 0.2, 0 where there is no choice.

    The gradient of a softmax vanishes with it, so that branching in proportion wastes little on what is settled; the 0.2 keeps weights
    (the inverse) from being large where the policy is wrongly sure.
    """
    square = np.add.reduceat(np.exp(2.0 * logp.astype(np.float64)), start[:-1])
    return np.where(tape.lengths(start) > 1, 1.2 - square, 0.0)


def _tried(
    seen: Seen,
    option: N64,
    logp: Array,
    chosen: N64,
    mark: N64,
    row: N64,
    number: N64,
    chance: F,
    wanders: B,
    seed: U,
    tries: int,
) -> _Marked:
    """At most so many options of each: the one taken, and others by lot. Log-probabilities are among those."""
    entries, some, taken_ = entries_of(seen, mark), taken(seen, mark), chosen[mark]
    option, logp = option[entries], logp[entries]
    count = tape.lengths(some.start)
    if count.max(initial=0) > tries:
        of = np.repeat(np.arange(len(some)), count)
        lot = uniform(seed[row[of]], TRY, number[of], option)
        lot[option == taken_[of]] = -1.0
        order = np.lexsort((lot, of))
        kept = np.sort(order[np.arange(len(order)) - some.start[of] < tries])
        start = np.searchsorted(of[kept], np.arange(len(some) + 1))
        some = replace(some, start=start, option=some.option[kept], item=some.item[kept])
        option, logp = option[kept], logp[kept]
        logp = logp - np.repeat(np.log(np.add.reduceat(np.exp(logp), start[:-1])), tape.lengths(start))
    return _Marked(some, logp, option, taken_, row, number, chance, wanders, mark)


def _copy(state: Any, source: N64, target: N64, n: int) -> None:
    """Rows of a state over other rows of it."""
    for f in fields(state):
        column = getattr(state, f.name)
        if isinstance(column, np.ndarray) and len(column) == n:
            column[target] = column[source]


def _rows(found: list[_Marked], earned: F, score: F, stretches: _Stretches | None) -> list[Rows]:
    """By kind and role; an option that the episode itself took earned what the episode did."""
    kinds: dict[tuple[str, str], list[tuple[_Marked, N64]]] = {}
    at = 0
    for one in found:
        entry = np.arange(at, at + len(one.option))
        at += len(one.option)
        of = np.repeat(np.arange(len(one.seen)), tape.lengths(one.seen.start))
        own = one.own()
        earned[entry[own]] = score[one.row[of[own]]]
        kinds.setdefault((one.seen.kind, one.seen.role), []).append((one, entry))
    earned, ahead = stretches.told(earned[:at]) if stretches else (earned, None)

    def rows(some: list[_Marked], entry: N64) -> Rows:
        logp, row, number, option, chance, chosen = (
            np.concatenate([getattr(m, name) for m in some])
            for name in ("logp", "row", "number", "option", "chance", "chosen")
        )
        seen = joined([m.seen for m in some])
        return Rows(seen, logp, earned[entry], row, number, option, chance, chosen, ahead and ahead.take(entry))

    return [rows([m for m, _ in some], np.concatenate([e for _, e in some])) for some in kinds.values()]


class _Stretches:
    """Branches in tasks that are paid stretch by stretch: which stretch each is in, and what was noted where it ended."""

    def __init__(self, n: int, width: int) -> None:
        self.at = np.full(n, NEVER)  # of each row of the state, until the stretch ends
        self.whole = np.zeros(n, np.bool_)  # whether it goes on to the end of the task
        self.width = width
        # entries, contexts, what they had earned, and whether they go on
        self.noted: list[tuple[N64, Array, F, B]] = []

    def began(self, world: World, state: Any, row: N64, whole: B) -> None:
        """Branches that begin."""
        self.at[row], self.whole[row] = world.stretch(state)[0][row], whole

    def ended(self, world: World, state: Any, row: N64, running: N64, context: Array) -> N64 | None:
        """Notes those whose stretch is over, and ends them with it unless they are to go on; the places in `row` that decide now, None for all."""
        stretch, earned = world.stretch(state)
        over = np.flatnonzero(stretch[row] > self.at[row])
        if not len(over):
            return None
        whose = row[over]
        self.noted.append((running[whose], context[over], earned[whose], self.whole[whose]))
        self.at[whose] = NEVER
        shut = whose[~self.whole[whose]]
        state.open[shut], state.score[shut] = False, earned[shut]
        return np.flatnonzero(state.open[row])

    def told(self, score: F) -> tuple[F, Ahead]:
        """Of each entry what was earned by the end of its stretch, and what was ahead then; `score` is what its branch ended with."""
        earned, going = score.copy(), np.zeros(len(score), np.bool_)
        context, looked = np.zeros((len(score), self.width), np.float32), np.ones(len(score), np.bool_)
        for entry, seen, had, whole in self.noted:
            earned[entry], going[entry], context[entry], looked[entry] = had, True, seen, whole
        return earned, Ahead(context, going, np.where(looked, score - earned, np.nan))
