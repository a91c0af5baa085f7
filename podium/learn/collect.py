"""Episodes under a policy, written down as they are played, and branches of some of their decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.world import Policy, View, World, play
from podium.learn import tape
from podium.learn.memory import Memory
from podium.learn.mix import Tally, added, counts_by_word
from podium.learn.policy import Net, Parameters, Seen, entries_of, joined, seen_by, taken
from podium.learn.tape import Array
from podium.trace.columns import B, F, Text, concat
from podium.trace.forest import Forest

__all__ = [
    "Branching",
    "Collected",
    "Decisions",
    "Observed",
    "StretchEnds",
    "acting",
    "capped",
    "collect",
    "collect_decisions",
    "copy_state",
    "drawn",
    "greedy",
    "played",
]

N64 = NDArray[np.int64]
FEW = 2  # episodes that tell what the next cost
NEVER = np.iinfo(np.int64).max
DICE, MARK, TRY, WANDER, STRAY, WHOLE = 0xD1CE, 0x3A2C, 0x7217, 0x3A4D, 0x57A1, 0x3401  # addresses of draws


class Decisions(NamedTuple):
    """Decisions of one kind and role: what was seen, all allowed options, and each one's event in the trace."""

    seen: Seen
    row: N64


class StretchEnds(NamedTuple):
    """Where the stretch of a task ended in which a branch began, one row a run (`World.stretch`)."""

    context: Array  # what the network makes of the start of the next stretch; 0 if there is none
    going: B  # whether there is one
    later: F  # what came after the stretch; NaN where nobody looked


class Observed(NamedTuple):
    """What the network saw at its decisions, and what it learns of how to play the next episodes."""

    decisions: list[Decisions]
    episodes: int = 0
    doubt: float | None = None  # of an episode (`Collected`), where branches are made by it
    ends: StretchEnds | None = None
    fitted: bool = False  # whether the trace holds already what is fitted


class Collected(NamedTuple):
    """Episodes of one world, and branches of them."""

    forest: Forest | None  # None where nothing was written down
    decisions: list[Decisions]  # of the episodes: those that were branched, or all
    score: F  # of the episodes, less those that wandered
    made: int  # decisions of the policy
    doubt: float  # times stake, of all decisions of an episode that may be branched, on average
    mix: Tally  # what was chosen in episodes that did not wander
    ends: StretchEnds | None = None  # where tasks are paid stretch by stretch
    episodes: int = 0


@dataclass(frozen=True)
class Branching:
    """Which decisions are branched, and how.

    A decision is branched with the chance min(1, share x doubt x stake), or `share` where all count alike. Each
    other option (up to `tries` in all) is forced there, and the episode goes on under the policy (π^sharp) with the
    same dice.

    A share `wander` of episodes takes, at some of its decisions, any option but to stop: at few in one episode and
    at nearly all in another. So it is known what to do well where the policy would not go, and going there is
    judged by that. Their branches do not wander.

    Where a task is paid stretch by stretch, branches of a share `whole` of decisions go on to the end of the task,
    and the others end with the stretch: what its start is like is kept (`StretchEnds`), by which what came after is
    estimated (`bootstrap_returns`).
    """

    share: float = 2.0
    alike: bool = False  # whether all decisions are branched with the same chance
    tries: int = 8
    most: int = 400  # decisions of an episode, after which it stops where it can
    room: int = 0  # for branches at once; decisions that find none are not branched. 0: as many as are likely
    sharp: float = 1.0
    wander: float = 0.0
    roles: tuple[str, ...] | None = None  # whose decisions are branched; None: everyone's
    whole: float = 1.0


def drawn(logp: Array, start: N64, u: F) -> N64:
    """The entry drawn by u in every row."""
    total = np.cumsum(np.exp(logp.astype(np.float64)))
    before = np.concatenate([[0.0], total])[start[:-1]]
    entry = np.searchsorted(total, before + u * (total[start[1:] - 1] - before), side="right")
    clipped: N64 = np.clip(entry, start[:-1], start[1:] - 1)
    return clipped


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

    def __init__(
        self, world: World, net: Net, w: Parameters, n: int, most: int, sharp: float, remember: bool = True
    ) -> None:
        self.net, self.w, self.most, self.sharp = net, w, most, sharp
        self.remember = remember and not net.shape.per_role  # what is remembered is what one role made of it
        self.codes = net.words.codes(world.options)
        self.home = world.options.index("stop") if "stop" in world.options else -1
        self.memory = Memory(net, w, n)
        self.made = np.zeros(n, np.int64)  # decisions so far
        self.decisions = 0

    def choose(self, view: View, seed: U) -> tuple[Seen, N64, Array, N64, Array]:
        """What is seen; each entry's option and log-probability; the option chosen in each row; what was made of
        it."""
        seen, option = seen_by(view, self.codes)
        if self.remember and view.about is None:
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


def played(world: World, net: Net, w: Parameters, seed: U, *, most: int = 400, sharp: float = 1.0) -> Collected:
    """Episodes played to their end by the policy (`acting`)."""
    done = play(world, acting(world, net, w, seed, most=most, sharp=sharp), seed.copy())
    return Collected(None, [], done.score, done.decisions, np.nan, {})


def collect(
    world: World,
    net: Net,
    w: Parameters,
    seed: U,
    branching: Branching,
    task: str = "",
    write: bool = True,
) -> Collected:
    """Episodes of these seeds, and branches of some of their decisions.

    A branch is a copy of its episode's row in the same state, so that all go on side by side. Without `write`
    nothing is written down, and nothing can be learned.
    """
    return _Collecting(world, net, w, seed, branching, write).all(task or world.name)


def collect_decisions(
    world: World,
    net: Net,
    w: Parameters,
    dice: Callable[[int, int], U],
    branching: Branching,
    task: str,
    decisions: float,
) -> Collected:
    """Episodes until so many decisions were made, branches counted by what they add: a few, and then, by what those
    cost, at most twice as many more. `dice` gives seeds by their number and the first of them.
    """
    parts, made, episodes, n = list[Collected](), 0, 0, FEW
    while n > 0:
        parts.append(collect(world, net, w, dice(n, episodes), branching, task))
        made, episodes = made + parts[-1].made, episodes + n
        n = min(2 * episodes, round((decisions - made) * episodes / made))
    return _merged(parts)


def _merged(parts: Sequence[Collected]) -> Collected:
    """Episodes that were played one after the other, as if at once."""
    forests = [part.forest for part in parts if part.forest is not None]
    runs, events = (
        np.cumsum([0, *some]) for some in ([len(f) for f in forests], [f.rows.n_events for f in forests])
    )
    calls = np.cumsum([0, *(int(f.rows.call_e.max(initial=-1)) + 1 for f in forests)])
    rows = [
        replace(f.rows, call_e=np.where(f.rows.call_e >= 0, f.rows.call_e + k, -1))
        for f, k in zip(forests, calls, strict=False)
    ]
    forest = Forest(
        concat(rows),
        np.concatenate(
            [np.where(f.parent_n >= 0, f.parent_n + k, -1) for f, k in zip(forests, runs, strict=False)]
        ),
        np.concatenate([f.shared_n for f in forests]),
    )
    decisions: dict[tuple[str, str], list[Decisions]] = {}
    for part, first in zip(parts, events, strict=False):
        for d in part.decisions:
            decisions.setdefault((d.seen.kind, d.seen.role), []).append(d._replace(row=d.row + first))
    ends = [part.ends for part in parts if part.ends is not None]
    episodes = [part.episodes for part in parts]
    return Collected(
        forest,
        [
            Decisions(joined([d.seen for d in some]), np.concatenate([d.row for d in some]))
            for some in decisions.values()
        ],
        np.concatenate([part.score for part in parts]),
        sum(part.made for part in parts),
        float(np.average([part.doubt for part in parts], weights=episodes)),
        added(item for part in parts for item in part.mix.items()),
        StretchEnds(*map(np.concatenate, zip(*ends, strict=True))) if ends else None,
        sum(episodes),
    )


class _Collecting:
    """Episodes under way, and their branches."""

    def __init__(self, world: World, net: Net, w: Parameters, seed: U, how: Branching, write: bool) -> None:
        self.world, self.net, self.w, self.seed, self.how = world, net, w, seed, how
        n, room = len(seed), how.room or 12 * len(seed) * min(how.tries, len(world.options))
        self.n, self.room = n, room
        self.wanders = np.append(uniform(seed, WANDER) < how.wander, np.zeros(room, np.bool_))
        self.every = np.concatenate([seed, np.broadcast_to(seed[:1], room)])
        self.log = Log(n, room) if write else None
        self.state = world.start(self.every.copy(), self.log)
        self.state.open[n:] = False
        self.actor = _Actor(world, net, w, n + room, how.most, how.sharp, remember=not how.alike)
        self.free = np.arange(n, n + room)[::-1]  # a stack: the last is taken next
        self.running = np.full(n + room, -1)  # the run of each row that is a branch
        self.runs, self.calls = n, 0
        self.score = np.zeros(max(1 << 12, n))  # of each run
        self.forced: list[N64] = []  # the option that each branch began with
        self.stretches = _Stretches(n + room, net.shape.context) if world.stretches else None
        self.made: dict[tuple[str, str], list[tuple[Seen, N64]]] = {}  # decisions to learn from, by kind and role
        self.tally: dict[str, N64] = {}
        self.doubts = 0.0

    def all(self, task: str) -> Collected:
        """To the end."""
        while (view := self.world.view(self.state)) is not None:
            self._step(view)
            self.calls += 1
        score = self.state.score[: self.n]
        self.score[: self.n] = score
        mix = {
            kind: counts_by_word(self.net.words.words, self.actor.codes, count)
            for kind, count in self.tally.items()
        }
        free = score[~self.wanders[: self.n]]
        forest, decisions, ends = None, list[Decisions](), None
        if self.log is not None:
            ends = self.stretches.ends(self.score[: self.runs]) if self.stretches else None
            forest = self._forest(self.log, task)
            for parts in self.made.values():
                rows = self.log.rows(np.concatenate([handles for _, handles in parts]))
                decisions.append(Decisions(joined([seen for seen, _ in parts]), rows))
        return Collected(forest, decisions, free, self.actor.decisions, self.doubts / self.n, mix, ends, self.n)

    def _step(self, view: View) -> None:
        """All who decide now, and the branches that begin here."""
        world, state, every, how = self.world, self.state, self.every, self.how
        seen, option, logp, chosen, context = self.actor.choose(view, every[view.row])
        on = None
        if self.stretches:
            on = self.stretches.ended(world, state, view.row, self.running, context, self.log)
        own = view.row < self.n
        may = own & (how.roles is None or seen.role in how.roles)
        doubt = _doubt(logp, seen.start) * (1.0 if how.alike else self.net.stake(self.w, seen, context)) * may
        meant = chosen[own & ~self.wanders[view.row]]
        self.tally[view.kind] = self.tally.get(view.kind, 0) + np.bincount(meant, minlength=len(world.options))
        self.doubts += float(doubt.sum())
        at = self.actor.made[view.row] - 1
        _stray(seen, option, chosen, np.flatnonzero(self.wanders[view.row]), every[view.row], at, self.actor.home)
        if how.alike:
            chance = np.where(may, how.share, 0.0)
        else:
            chance = np.where(at < how.most, np.minimum(1.0, how.share * doubt), 0.0)
        mark = np.flatnonzero(uniform(every[view.row], MARK, at) < chance)
        tried = self._tried(view, seen, option, logp, chosen, mark, at) if len(mark) else None
        branch = tried and self._begin(view, tried)
        if self.log is not None:
            self._act(self.log, view, seen, option, logp, chosen, on, chance, tried)
            if tried and branch:
                self._act_branches(self.log, branch, tried)
        else:
            world.act(state, *((view, chosen) if on is None else (view.take(on), chosen[on])))
            if tried and branch:
                world.act(state, branch, tried.option[tried.other])
        done = np.flatnonzero((self.running >= 0) & ~state.open)
        self.score[self.running[done]] = state.score[done]
        self.running[done] = -1
        self.free = np.concatenate([self.free, done])

    def _tried(self, view: View, seen: Seen, option: N64, logp: Array, chosen: N64, mark: N64, at: N64) -> _Tried:
        """At most so many options of each decision, the one taken and others by lot, of as many as have room."""
        alone = self.wanders[view.row] | (
            self.stretches is not None
        )  # whose episode does not tell what its option earned
        tried = _tried(seen, option, logp, chosen, mark, view.row, at, alone, self.every, self.how.tries)
        return tried.first(len(self.free))

    def _begin(self, view: View, tried: _Tried) -> View | None:
        """Copies of the rows whose other options are forced."""
        if not len(tried.other):
            return None
        target, self.free = np.split(self.free, [len(self.free) - len(tried.other)])[::-1]
        source = view.row[tried.mark[tried.of]]
        copy_state(self.state, source, target, len(self.every))
        self.every[target] = self.every[source]
        self.actor.copy(source, target)
        self.running[target] = np.arange(self.runs, self.runs + len(target))
        self.runs += len(target)
        while self.runs > len(self.score):
            self.score = np.concatenate([self.score, np.zeros_like(self.score)])
        self.forced.append(tried.option[tried.other])
        if self.log is not None:
            self.log.fork(source, target)
        if self.stretches:
            lot = uniform(self.every[source], WHOLE, self.actor.made[source] - 1)
            self.stretches.began(self.world, self.state, target, lot < self.how.whole)
        return replace(view.take(tried.mark[tried.of]), row=target)

    def _act(
        self,
        log: Log,
        view: View,
        seen: Seen,
        option: N64,
        logp: Array,
        chosen: N64,
        on: N64 | None,
        chance: F,
        tried: _Tried | None,
    ) -> None:
        """Carries choices out, and writes down what the policy made of them."""
        count = tape.lengths(seen.start)
        entry = np.flatnonzero(option == np.repeat(chosen, count))
        known = logp.astype(np.float64)
        self.state.logp[view.row] = known[entry]
        item = None if view.about is None else view.about[np.repeat(np.arange(len(view)), count), option]
        behaviour = None
        if tried is not None and len(tried.seen) and not self.how.alike:
            behaviour = np.full(len(option), np.nan)
            behaviour[tried.entries] = tried.logp
        if on is not None:
            entries = entries_of(seen, on)
            view, chosen, count, chance = view.take(on), chosen[on], count[on], chance[on]
            item, behaviour = (None if x is None else x[entries] for x in (item, behaviour))
            option, known = option[entries], known[entries]
        self.world.act(self.state, view, chosen)
        log.offer(view.row, count, option, known, item, behaviour)
        log.note("call", view.row, self.calls)
        log.note("chance", view.row, np.where(view.row < self.n, chance, np.nan))
        if self.how.alike:  # all decisions are learned from
            mine = np.flatnonzero(view.row < self.n)
            if len(mine):
                self._made(taken(seen, mine if on is None else on[mine]), log.decided[view.row[mine]])
        elif tried is not None and len(tried.seen):
            self._made(tried.seen, log.decided[tried.row])

    def _made(self, seen: Seen, handles: N64) -> None:
        self.made.setdefault((seen.kind, seen.role), []).append((seen, handles))

    def _act_branches(self, log: Log, branch: View, tried: _Tried) -> None:
        """The same for branches that begin."""
        first, many = tried.seen.start[tried.of], tape.lengths(tried.seen.start)[tried.of]
        place = np.repeat(first, many) + _places(many)
        known = tried.every[place].astype(np.float64)
        self.state.logp[branch.row] = tried.every[tried.other]
        forced = tried.option[tried.other]
        item = None
        if branch.about is not None:
            item = branch.about[np.repeat(np.arange(len(branch)), many), tried.option[place]]
        self.world.act(self.state, branch, forced)
        log.offer(branch.row, many, tried.option[place], known, item)
        log.note("call", branch.row, self.calls)

    def _forest(self, log: Log, task: str) -> Forest:
        """The record, packed."""
        n, runs = self.n, self.runs
        parent = log.parents()
        root = np.where(parent >= 0, parent, np.arange(runs))
        columns = self.world.columns_of_runs(self.seed[root], self.score[:runs])
        names = _Names(columns["trace_id_n"], root, n)
        tells = np.full(runs, -1)
        tells[:n][self.wanders[:n] | (self.stretches is not None)] = 0
        label = [msgspec.json.encode({"what": "choose", "value": o}).decode() for o in self.world.options]
        columns |= {
            "trace_id_n": Text(np.arange(runs), names),
            "task_id_n": Text.constant(task, runs),
            "parent_n": Text(parent, names),
            "do_n": Text(np.concatenate([np.full(n, -1), *self.forced]), label),
            "tells_n": tells,
        }
        if self.stretches:
            columns |= self.stretches.columns(self.score[:runs], parent)
        return log.forest(**columns)


class _Names(Sequence[str]):
    """Ids of runs, spelled when somebody asks: a branch is named for its episode."""

    def __init__(self, of: Text, root: N64, n: int) -> None:
        self._of, self._root, self._n = of, root, n

    def __len__(self) -> int:
        return len(self._root)

    def __getitem__(self, run: Any) -> Any:
        name = self._of[int(self._root[run])]
        return name if run < self._n else f"{name}/{run - self._n}"


def _places(many: N64) -> N64:
    """The place of each entry in its row."""
    ends = np.cumsum(many)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - many, many)


@dataclass(frozen=True)
class _Tried:
    """Decisions of one view that are branched, all their options, and which of these are tried."""

    seen: Seen
    option: N64  # of each entry
    every: Array  # of each entry: its log-probability
    kept: N64  # the entries that are tried
    logp: Array  # of each of them: its log-probability among them
    mark: N64  # of each row: its place in the view
    row: N64  # of each row: its episode
    entries: N64  # of each of the entries that are tried: its place in the view
    own: B  # of each of them: whether its episode itself tells what it earns

    @property
    def other(self) -> N64:
        """The entries that a branch is made for."""
        rows: N64 = self.kept[~self.own]
        return rows

    @property
    def of(self) -> N64:
        """Of each of them: its row."""
        rows: N64 = np.searchsorted(self.seen.start, self.other, side="right") - 1
        return rows

    def first(self, room: int) -> _Tried:
        """The first decisions, as many as have room for their branches."""
        needed = np.cumsum(np.bincount(self.of, minlength=len(self.seen)))
        if not len(needed) or needed[-1] <= room:
            return self
        many = int(np.searchsorted(needed, room, side="right"))
        at = entries_of(self.seen, np.arange(many))
        inside = self.kept < len(at)
        return _Tried(
            taken(self.seen, np.arange(many)),
            self.option[at],
            self.every[at],
            self.kept[inside],
            self.logp[inside],
            self.mark[:many],
            self.row[:many],
            self.entries[inside],
            self.own[inside],
        )


def _stray(seen: Seen, option: N64, chosen: N64, some: N64, seed: U, at: N64, home: int) -> None:
    """Any option but to stop, instead of the chosen one, at some decisions of some rows; each episode draws how
    many."""
    if len(some):
        some = some[uniform(seed[some], STRAY, at[some]) < uniform(seed[some], WANDER, 1)]
        start, count = seen.start[some], tape.lengths(seen.start)[some]
        other = option[start + (uniform(seed[some], STRAY, at[some], 1) * count).astype(np.int64)]
        chosen[some] = np.where(other == home, chosen[some], other)


def _doubt(logp: Array, start: N64) -> F:
    """How undecided the policy is in each row: 1 - Σ_k π_k² + 0.2, 0 where there is no choice.

    The gradient of a softmax vanishes with it, so that branching in proportion wastes little on what is settled;
    the 0.2 keeps weights (the inverse) from being large where the policy is wrongly sure.
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
    alone: B,
    seed: U,
    tries: int,
) -> _Tried:
    """At most so many options of each: the one taken, and others by lot. Log-probabilities are among those."""
    entries, some = entries_of(seen, mark), taken(seen, mark)
    option, logp, every = option[entries], logp[entries], logp[entries]
    count = tape.lengths(some.start)
    of = np.repeat(np.arange(len(some)), count)
    own = option == chosen[mark][of]
    tried = np.arange(len(option))
    if count.max(initial=0) > tries:
        lot = uniform(seed[row[mark][of]], TRY, number[mark][of], option)
        lot[own] = -1.0
        order = np.lexsort((lot, of))
        tried = np.sort(order[np.arange(len(order)) - some.start[of] < tries])
        start = np.searchsorted(of[tried], np.arange(len(some) + 1))
        logp = logp[tried]
        logp = logp - np.repeat(np.log(np.add.reduceat(np.exp(logp), start[:-1])), tape.lengths(start))
    own = (own & ~alone[mark][of])[tried]
    return _Tried(some, option, every, tried, logp, mark, row[mark], entries[tried], own)


def copy_state(state: Any, source: N64, target: N64, n: int) -> None:
    """Rows of a state over other rows of it."""
    for f in fields(state):
        column = getattr(state, f.name)
        if isinstance(column, np.ndarray) and len(column) == n:
            column[target] = column[source]


class _Stretches:
    """Branches in tasks that are paid by stretches: which stretch each is in, and what was noted where it ended."""

    def __init__(self, n: int, width: int) -> None:
        self.at = np.full(n, NEVER)  # of each row of the state, until the stretch ends
        self.whole = np.zeros(n, np.bool_)  # whether it goes on to the end of the task
        self.width = width
        # runs, contexts, what they had earned, whether they go on, and their events so far
        self.noted: list[tuple[N64, Array, F, B, N64]] = []

    def began(self, world: World, state: Any, row: N64, whole: B) -> None:
        """Branches that begin."""
        self.at[row], self.whole[row] = world.stretch(state)[0][row], whole

    def ended(
        self, world: World, state: Any, row: N64, running: N64, context: Array, log: Log | None
    ) -> N64 | None:
        """Notes whose stretch is over, and ends these unless they go on; the places in `row` that decide, None:
        all."""
        stretch, earned = world.stretch(state)
        over = np.flatnonzero(stretch[row] > self.at[row])
        if not len(over):
            return None
        whose = row[over]
        length = whose if log is None else log.length[whose]
        self.noted.append((running[whose], context[over], earned[whose], self.whole[whose], length))
        self.at[whose] = NEVER
        shut = whose[~self.whole[whose]]
        state.open[shut], state.score[shut] = False, earned[shut]
        return np.flatnonzero(state.open[row])

    def ends(self, score: F) -> StretchEnds:
        """Of each run where its stretch ended; `score` is what it ended with."""
        earned, going = score.copy(), np.zeros(len(score), np.bool_)
        context, looked = np.zeros((len(score), self.width), np.float32), np.ones(len(score), np.bool_)
        for run, made, had, whole, _ in self.noted:
            earned[run], going[run], context[run], looked[run] = had, True, made, whole
        return StretchEnds(context, going, np.where(looked, score - earned, np.nan))

    def columns(self, score: F, parent: N64) -> dict[str, Any]:
        """What each branch had earned where its stretch ended, and the row at which it did."""
        earned, cut = np.where(parent >= 0, score, np.nan), np.full(len(score), -1)
        for run, _, had, _, length in self.noted:
            earned[run], cut[run] = had, length
        return {"earned_n": earned, "cut_n": cut}
