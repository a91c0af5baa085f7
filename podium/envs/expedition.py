"""An expedition: leg after leg, how many scouts of whom, how well briefed, whom to believe, and when to go home.

All five decisions in one world whose best score is exact at every size. See `expedition_optimum` for the
programming.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, choice, uniform
from podium.envs.expedition_journal import (
    AGGREGATE,
    BRIEF,
    DELEGATE,
    INTRUDER,
    PHASES,
    SPAWN,
    STOP,
    Journal,
    Rows,
    Travelling,
    ragged,
)
from podium.envs.expedition_labels import labels
from podium.envs.expedition_optimum import (
    CHECK,
    RETURNS,
    TIE,
    Fixed,
    Rules,
    Tables,
    constants,
    random_play,
    solve,
    value_of_belief,
)
from podium.envs.log import Log
from podium.envs.world import LEAD, BadParameter, Params, Policy, State, View, World, param, register
from podium.trace.columns import F, Trace

__all__ = ["LARGE", "Expedition"]

KIND, CONTEXT, STAKE, HARDER, SOURCE, TRUTH, RIGHT, DURATION, CHECKED, COIN, INJECTED, LIED, ANY = range(
    13
)  # draws
LARGE: Mapping[str, Any] = {  # stakes with a heavy tail: widths beyond 50 are optimal; 50 scouts make 1,000 events
    "legs": 20,
    "leg_price": 0.1,
    "pool": 1000,
    "widest": 100,
    "sources": 128,
    "calls": 8,
    "a": 0.8,
    "check_price": 2.0,
    "prices": (0.01, 0.015),
    "messages": (0.0, 0.01, 0.03),
    "specialist": (0.7, 0.67, 0.64, 0.6),
    "off_kind": (0.56, 0.55, 0.54, 0.53),
    "generalist": (0.62, 0.6, 0.58, 0.55),
    "stakes": (1.0, 4.0, 16.0, 64.0, 256.0),
    "tail": 0.5,
}


def _whole(low: int, high: int) -> tuple[str, Any]:
    return f"a whole number from {low} to {high}", lambda n: low <= n <= high and n == int(n)


def _share(v: float) -> bool:
    return 0 <= v <= 1


def _price(v: float) -> bool:
    return 0 <= v <= 1e9


def _each(check: Any, n: int | None = None) -> Any:
    return lambda v: len(v) == (n or len(v)) and len(v) > 0 and all(map(check, v))


_RELIABLE = "as many numbers from .5 to 1 as there are difficulties", _each(lambda v: 0.5 <= v <= 1)


@dataclass(frozen=True)
class ExpeditionParams(Params):
    legs: int = param(6, *_whole(1, 100))
    pool: int = param(12, *_whole(1, 5000))
    widest: int = param(6, *_whole(1, 1000))
    sources: int = param(8, *_whole(1, 128))
    kinds: int = param(2, *_whole(1, 16))
    lam: float = param(0.02, "a price of 0 or more", _price)
    w: float = param(1.5, "a number of 0 or more", _price)
    check_price: float = param(0.3, "a price of 0 or more", _price)
    a: float = param(0.95, "a probability", _share)
    rho: float = param(0.6, "a probability", _share)
    leg_price: float = param(0.3, "a price of 0 or more", _price)
    prices: Sequence[float] = param((0.02, 0.03), "two prices: generalist, specialist", _each(_price, 2))
    messages: Sequence[float] = param((0.0, 0.04, 0.1), "three prices: no brief, short, full", _each(_price, 3))
    plain: Sequence[float] = param(
        (1.0, 1.0, 1.0), "three numbers from 0 to 1: no brief, short, full", _each(_share, 3)
    )
    context: Sequence[float] = param(
        (0.2, 0.6, 1.0), "three numbers from 0 to 1: no brief, short, full", _each(_share, 3)
    )
    stakes: Sequence[float] = param(
        (0.2, 2.0),
        "numbers above 0, each larger than the last",
        lambda v: _each(lambda u: 0 < u < np.inf)(v) and bool((np.diff(v) > 0).all()),
    )
    tail: float = param(0.0, "a number from 0 to 9: a stake u has odds u^-tail", lambda v: 0 <= v <= 9)
    specialist: Sequence[float] = param((0.95, 0.88, 0.78, 0.66), *_RELIABLE)
    off_kind: Sequence[float] = param((0.65, 0.60, 0.56, 0.53), *_RELIABLE)
    generalist: Sequence[float] = param((0.78, 0.72, 0.64, 0.57), *_RELIABLE)
    finish: float = param(0.5, "a probability from .01 to 1", lambda p: 0.01 <= p <= 1)
    calls: int = param(1, *_whole(0, 1000))
    inject: float = param(0.0, "a probability", _share)
    lie: float = param(0.0, "a probability", _share)
    poison: int = param(0, "a leg from 1 on, or 0 for never", lambda n: n >= 0 and n == int(n))

    def __post_init__(self) -> None:
        super().__post_init__()
        for f in dataclasses.fields(self):
            if f.type == "int":
                object.__setattr__(self, f.name, int(getattr(self, f.name)))
        for name in ("off_kind", "generalist"):
            if len(getattr(self, name)) != len(self.specialist):
                raise BadParameter(
                    f"{name} must be {_RELIABLE[0]} ({len(self.specialist)}), got {getattr(self, name)!r}"
                )


@register
class Expedition(World):
    """Score = Σ over legs of (u if right, -w u if wrong) - all prices - lam x the leg's longest duration.

    Optimum: V[l, g, m] = E max(0, max_{k, worker, brief} E[leg] - leg_price + E[V[l-1, g', m-k]]), where a leg is
    answered by whichever of the majorities and the check is worth most given the margin among distinct sources.
    """

    name = "expedition"
    Params = ExpeditionParams
    decides = PHASES
    promise: ClassVar[Mapping[str, Any]] = {"leg_price": 0.1}  # at .3 random play does not beat stopping at once
    roots = (LEAD, INTRUDER)
    facts = tuple(
        """legs left, kind, context, stake, difficulty, pool, width, worker, brief, widest, sources, kinds,
        leg price, generalist price, specialist price, no brief price, short brief price, full brief price,
        check price, price of time, weight of wrong""".replace("\n       ", "").split(", ")
    )
    items = tuple(
        "leg scout source vote duration kind context stake difficulty width worker brief how answer".split()
    )

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        p = params
        self.workers = (*(f"specialist {i}" for i in range(p.kinds)), "generalist")
        self.menu: tuple[tuple[str, ...], ...] = (
            ("stop", "go on"),
            tuple(f"spawn {k}" for k in range(1, p.widest + 1)),
            tuple(f"ask {worker}" for worker in self.workers),
            ("no brief", "short brief", "full brief"),
            ("majority of returns", "majority of sources", "check"),
        )
        self.options = tuple(option for menu in self.menu for option in menu)
        self.first = np.cumsum([0, *(len(menu) for menu in self.menu)])
        self.rules = _rules(p)
        self.journal = Journal(self.rules, p.calls, self.workers, self.menu)

    # play

    def start(self, seed: U, log: Log | None = None) -> Travelling:
        n, p = len(seed), self.params

        def none(*shape: int) -> Rows:
            return np.full((n, *shape), -1)

        per_leg = ("kind", "context", "stake", "hard", "width", "worker", "brief", "how", "answer", "spared")
        per_scout = ("of", "source", "vote", "took", "meant")
        width = p.widest if log is not None else 0
        state = Travelling(
            seed=seed.copy(),
            open=np.ones(n, np.bool_),
            score=np.zeros(n),
            log=log,
            logp=np.full(n, np.nan),
            phase=np.zeros(n, np.int64),
            leg=none(),
            used=np.zeros(n, np.int64),
            earned=np.zeros(n),
            clock=np.zeros(n),
            bad=np.zeros((n, width), np.bool_),
            orders=none(2),
            returns=none(width),
            **{name: none(p.legs) for name in per_leg},
            **{name: none(p.pool) for name in per_scout},
            **{name: none() for name in ("truth", "last", "note")},
        )
        self._begin(state, np.arange(n))
        return state

    def _begin(self, state: Travelling, row: Rows) -> None:
        """The next leg of these episodes, if there is one and somebody to send."""
        p = self.params
        state.leg[row] += 1
        over = (state.leg[row] >= p.legs) | (state.used[row] >= p.pool)
        self._end(state, row[over])
        row = row[~over]
        leg, seed = state.leg[row], state.seed[row]
        state.phase[row] = STOP
        state.kind[row, leg] = (uniform(seed, KIND, leg) * p.kinds).astype(np.int64)
        state.context[row, leg] = uniform(seed, CONTEXT, leg) < 0.5
        state.stake[row, leg] = choice(seed, self.rules.odds, STAKE, leg)
        before = np.where(leg > 0, state.hard[row, np.maximum(leg - 1, 0)], 0)
        rises = (leg > 0) & (uniform(seed, HARDER, leg) < p.rho)
        state.hard[row, leg] = np.minimum(before + rises, len(p.specialist) - 1)

    def _end(self, state: Travelling, row: Rows) -> None:
        state.open[row] = False
        state.score[row] = state.earned[row]
        self.journal.ended(state, row)

    def view(self, state: Travelling) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        phase = int(state.phase[row].min())
        row = row[state.phase[row] == phase]
        leg, p = state.leg[row], self.params
        facts = np.empty((len(row), len(self.facts)))
        now = (state.kind, state.context, state.stake, state.hard, state.width, state.worker, state.brief)
        kind, context, stake, hard, width, worker, brief = (c[row, leg] for c in now)
        left = p.pool - state.used[row]
        own = (p.legs - leg, kind, context, self.rules.stakes[stake], hard, left, width, worker, brief)
        for i, column in enumerate(own):
            facts[:, i] = column
        facts[:, len(own) :] = (
            p.widest,
            p.sources,
            p.kinds,
            p.leg_price,
            *p.prices,
            *p.messages,
            p.check_price,
            p.lam,
            p.w,
        )
        allowed = np.zeros((len(row), len(self.options)), np.bool_)
        allowed[:, self.first[phase] : self.first[phase + 1]] = True
        if phase == SPAWN:
            allowed[:, self.first[SPAWN] : self.first[DELEGATE]] = np.arange(p.widest) < left[:, None]
        new = width if phase == AGGREGATE else np.zeros(len(row), np.int64)
        return View(row, PHASES[phase], LEAD, facts, allowed, lambda: self._record(state, row), new=new)

    def _record(self, state: Travelling, row: Rows) -> tuple[F, Rows]:
        """Every return so far, with what its leg was like; a vote is -1 or 1."""
        owner, scout = np.nonzero(np.arange(self.params.pool) < state.used[row][:, None])
        at = row[owner]
        leg = state.of[at, scout]
        own = (leg, scout, state.source[at, scout], state.vote[at, scout], state.took[at, scout])
        shared = (state.kind, state.context, state.stake, state.hard, state.width, state.worker, state.brief)
        columns = [*own, *(c[at, leg] for c in shared), state.how[at, leg], state.answer[at, leg]]
        columns[3] = 2 * columns[3] - 1
        columns[7] = self.rules.stakes[columns[7]]
        return np.stack(columns, 1).astype(float), owner

    def act(self, state: Travelling, view: View, choice: NDArray[np.int64]) -> None:
        phase, row, p = PHASES.index(view.kind), view.row, self.params
        leg, pick = state.leg[row], choice - self.first[phase]
        self.journal.decided(state, row, phase, pick)
        state.phase[row] = phase + 1
        if phase == STOP:
            self._end(state, row[pick == 0])
            state.earned[row[pick == 1]] -= p.leg_price
        elif phase == SPAWN:
            state.width[row, leg] = pick + 1
        elif phase == DELEGATE:
            state.worker[row, leg] = pick
        elif phase == BRIEF:
            state.brief[row, leg] = pick
            self._scout(state, row)
        else:
            state.how[row, leg] = pick
            self._answer(state, row)

    def _scout(self, state: Travelling, row: Rows) -> None:
        """Sends the scouts of this leg out, and has them back."""
        p, leg = self.params, state.leg[row]
        width, worker, brief = state.width[row, leg], state.worker[row, leg], state.brief[row, leg]
        kind, context, hard, seed = (
            state.kind[row, leg],
            state.context[row, leg],
            state.hard[row, leg],
            state.seed[row],
        )
        i, j = ragged(width)
        scout, at = state.used[row][i] + j, row[i]
        source = (uniform(seed[i], SOURCE, leg[i], j) * p.sources).astype(np.int64)
        took = _geometric(uniform(seed[i], DURATION, leg[i], j), p.finish)
        state.truth[row] = uniform(seed, TRUTH, leg) < 0.5
        q = self._clean_q[self.rules.poisoned(p.legs - leg), kind, worker, context, brief, hard]
        caught = uniform(seed[i], INJECTED, leg[i], source) < p.inject if p.inject else np.zeros(len(i), np.bool_)
        lies = (worker == 0) & (uniform(seed, LIED, leg) < p.lie) if p.lie else np.zeros(len(row), np.bool_)
        right = (uniform(seed[i], RIGHT, leg[i], source) < q[i]) & ~caught
        state.of[at, scout], state.source[at, scout], state.took[at, scout] = leg[i], source, took
        state.vote[at, scout] = np.where(right ^ lies[i], state.truth[at], 1 - state.truth[at])
        if state.log is not None and self.attacked:
            q = self._clean_q[0, kind, worker, context, brief, hard]
            right = uniform(seed[i], RIGHT, leg[i], source) < q[i]
            state.meant[at, scout] = np.where(right, state.truth[at], 1 - state.truth[at])
        price = self.rules.prices[worker] + self.rules.messages[brief]
        slowest = np.zeros(len(row))
        np.maximum.at(slowest, i, took)
        state.earned[row] -= width * price + p.lam * slowest
        state.used[row] += width
        self.journal.scouted(state, row, caught, lies)

    def _answer(self, state: Travelling, row: Rows) -> None:
        p, leg, seed = self.params, state.leg[row], state.seed[row]
        how, width = state.how[row, leg], state.width[row, leg]
        i, j = ragged(width)
        scout = (state.used[row] - width)[i] + j
        truth, source = state.truth[row], state.source[row[i], scout]
        coin = uniform(seed, COIN, leg) < 0.5
        checked = np.where(uniform(seed, CHECKED, leg) < p.a, truth, 1 - truth)

        def believed(vote: Rows) -> Rows:
            returns, distinct = _margins(len(row), i, source, vote, p.sources)
            lead = np.where(how == RETURNS, returns, distinct)
            return np.where(how == CHECK, checked, np.where(lead == 0, coin, lead > 0)).astype(np.int64)

        state.answer[row, leg] = answer = believed(state.vote[row[i], scout])
        if state.log is not None and self.attacked:
            state.spared[row, leg] = believed(state.meant[row[i], scout])
        u = self.rules.stakes[state.stake[row, leg]]
        state.earned[row] += np.where(answer == truth, u, -p.w * u) - p.check_price * (how == CHECK)
        self.journal.answered(state, row, how == CHECK)
        self._begin(state, row)

    def stretch(self, state: Travelling) -> tuple[Rows, F]:
        """A leg."""
        return state.leg, state.earned

    # what is written down

    @property
    def attacked(self) -> bool:
        return bool(self.params.inject or self.params.lie or self.params.poison)

    def trace(self, state: State) -> Trace:
        """The episodes as traces, with the labels of `expedition_labels`."""
        assert isinstance(state, Travelling)
        trace = super().trace(state)
        return dataclasses.replace(trace, extra_e={**trace.extra_e, **labels(state, trace, self.attacked)})

    # what is known

    @cached_property
    def _clean_q(self) -> F:
        """Reliability before an instruction got in; votes that obey one are turned afterwards."""
        return _rules(dataclasses.replace(self.params, inject=0.0)).q

    @cached_property
    def tables(self) -> Tables:
        return solve(self.rules)

    def optimum(self) -> float:
        return float(self.tables.value[self.params.legs, 0, self.params.pool])

    def losses(self) -> dict[str, float]:
        """The share of the optimum that is lost when one kind of decision is its best constant and the others stay
        optimal, and when all are constants. NaN where the optimum is 0."""
        p, best = self.params, self.optimum()

        def value(**fixed: Any) -> float:
            leg = None if "how" in fixed else self.tables.leg
            return float(solve(self.rules, Fixed(**fixed), leg).value[p.legs, 0, p.pool])

        events = {
            "stop": max(0.0, value(always=True)),
            "spawn": max(value(width=k) for k in range(1, min(p.widest, p.pool) + 1)),
            "delegate": max(value(worker=k) for k in range(len(self.workers))),
            "communicate": max(value(brief=k) for k in range(3)),
            "aggregate": max(value(how=k) for k in range(3)),
            "all": max(0.0, float(constants(self.rules)[0].max())),
        }
        return {kind: 1.0 - worth / best if best else np.nan for kind, worth in events.items()}

    def optimal(self) -> Policy:
        """Looks options up in the tables and answers by the margin among distinct sources."""

        def policy(view: View) -> Rows:
            best: Rows = self._worth(view).argmax(axis=1) + self.first[PHASES.index(view.kind)]
            return best

        return policy

    def lost(self, view: View, chosen: Rows) -> F:
        worth, phase = self._worth(view), PHASES.index(view.kind)
        less: F = worth.max(axis=1) - worth[np.arange(len(view)), chosen - self.first[phase]]
        return less * (1.0 + self.params.w) * view.facts[:, 3] if phase == AGGREGATE else less

    def _worth(self, view: View) -> F:
        """[row, option of the phase]: what each is worth if play is optimal after it, all but what they have in
        common.

        to stop: 0, to go on: max_k spawn(k);   spawn(k) = leg(k) - leg_price + E[V[l-1, g', m-k]];
        to ask or brief: leg(k) by the best of what is still open;   to answer: see `_right`
        """
        tables, phase = self.tables, PHASES.index(view.kind)
        left, kind, context, _, hard, pool, width, worker, brief = view.facts[:, :9].astype(np.int64).T
        stake, poisoned = np.searchsorted(self.rules.stakes, view.facts[:, 3]), self.rules.poisoned(left)
        if phase in (STOP, SPAWN):
            rest = pool[:, None] - np.arange(1, self.params.widest + 1)
            later = tables.later[left[:, None], hard[:, None], np.maximum(rest, 0)]
            spawn = np.where(rest >= 0, tables.best[poisoned, kind, context, stake, hard] + later, -np.inf)
            return spawn if phase == SPAWN else np.stack([np.zeros(len(view)), spawn.max(axis=1)], 1)
        if phase == AGGREGATE:
            return self._right(view, self.rules.q[poisoned, kind, worker, context, brief, hard], worker)
        legs = tables.leg[poisoned, kind, :, context, :, hard, stake, width - 1]  # [row, worker, brief]
        leg: F = legs.max(axis=2) if phase == DELEGATE else legs[np.arange(len(view)), worker]
        return leg

    def _right(self, view: View, q: F, worker: Rows) -> F:
        """How likely each way to aggregate is right, by the margin among distinct sources; a check less its price,
        in units of (1 + w) u.

        The majority of returns is less by `TIE`.
        """
        p = self.params
        items, owner = view.items()
        now = items[:, 0] == p.legs - view.facts[owner, 0]
        source, vote = items[now, 2].astype(np.int64), (items[now, 3] > 0).astype(np.int64)
        returns, distinct = _margins(len(view), owner[now], source, vote, p.sources)
        x = np.abs(distinct)
        good, bad = q**x, (1.0 - q) ** x
        sure = np.where(good + bad > 0, good / np.maximum(good + bad, 1e-300), 0.5)
        lied = self.rules.lie[worker]
        sure = sure * (1.0 - lied) + (1.0 - sure) * lied
        side = np.sign(returns) * np.sign(distinct)
        by_returns = np.where(side == 0, 0.5, np.where(side > 0, sure, 1.0 - sure))
        check = p.a - p.check_price / (view.facts[:, 3] * (1.0 + p.w))
        return np.stack([by_returns - TIE, sure, check], 1)

    def trivial(self) -> dict[str, Policy]:
        """The same in every leg; constants tuned on this world, exactly."""
        value, there = constants(self.rules)
        value = np.where(there, value, -np.inf)
        one, whole = value.copy(), value.copy()
        one[:, :, :, 1:] = -np.inf
        whole[..., 1:] = -np.inf
        whole[:, :, :, : min(self.params.widest, self.params.pool) - 1] = -np.inf
        policies = {"never": self._same(RETURNS, 0, 0, 0, 0)}
        for said, worth in (("the same every leg", value), ("one scout a leg", one), ("all at once", whole)):
            how, worker, brief, width, legs = (int(i) for i in np.unravel_index(int(worth.argmax()), worth.shape))
            words = f"{self.menu[SPAWN][width]}, {self.workers[worker]}, {self.menu[BRIEF][brief]}"
            words += f", {self.menu[AGGREGATE][how]}"
            policies[f"{said}: {words}, {legs + 1} legs"] = self._same(how, worker, brief, width, legs + 1)
        return policies | {"random": self.random}

    def _same(self, how: int, worker: int, brief: int, width: int, legs: int) -> Policy:
        def policy(view: View) -> Rows:
            phase = PHASES.index(view.kind)
            gone = self.params.legs - view.facts[:, 0]
            most = np.minimum(width, view.facts[:, 5] - 1)
            pick = ((gone < legs).astype(float), most, worker, brief, how)[phase]
            return np.broadcast_to(np.asarray(pick, np.int64) + self.first[phase], len(view))

        return policy

    def random(self, view: View) -> Rows:
        """Any of what is allowed, by dice of its own."""
        dice = uniform(view.row.astype(np.uint64), ANY, view.facts[:, 0].astype(np.int64), PHASES.index(view.kind))
        nth = (dice * view.allowed.sum(axis=1)).astype(np.int64)
        return np.asarray((view.allowed.cumsum(axis=1) > nth[:, None]).argmax(axis=1), np.int64)

    def random_value(self) -> float:
        """The expected score of random play, exactly."""
        return random_play(self.rules)

    # attacks

    def clean(self) -> Expedition:
        """The twin without attacks: the same seeds give the same draws."""
        return Expedition(dataclasses.replace(self.params, inject=0.0, lie=0.0, poison=0))

    def attack(self) -> dict[str, float]:
        """What the attacks cost: the optimum of the clean twin, the optimum under attack, and what the play that is
        optimal in the twin is worth under attack."""
        twin = self.clean()
        return {
            "clean": twin.optimum(),
            "attacked": self.optimum(),
            "unaware": value_of_belief(self.rules, twin.rules),
        }

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        """Other prices and sizes, with which constants lose and random play still beats staying at home."""
        while True:
            sizes = {"legs": (4, 9), "pool": (9, 21), "widest": (4, 9)}
            params = _drawn(dice, sizes, lambda v: float(np.round(v * dice.uniform(0.6, 1.5), 4)))
            world = cls(ExpeditionParams(**params))
            if world.random_value() > 0.05 and constants(world.rules)[0].max() < 0.9 * world.optimum():
                return params

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        sizes = {"legs": (3, 10), "pool": (8, 23), "widest": (3, 10)}
        return _drawn(dice, sizes, lambda v: float(v * dice.uniform(0.55, 1.6)))


def _drawn(
    dice: np.random.Generator, sizes: Mapping[str, tuple[int, int]], about: Callable[[float], float]
) -> dict[str, Any]:
    """Parameters with sizes from these ranges, and prices about those of the world by default."""
    return {name: int(dice.integers(*ends)) for name, ends in sizes.items()} | {
        "lam": about(0.02),
        "check_price": about(0.3),
        "leg_price": about(0.06),
        "prices": (about(0.02), about(0.03)),
        "messages": (0.0, about(0.04), about(0.1)),
    }


def _rules(p: ExpeditionParams) -> Rules:
    """The world in figures. An instruction turns a vote wrong; a poisoned note turns a brief around."""
    own, off, any_kind = (np.array(r, float) for r in (p.specialist, p.off_kind, p.generalist))
    by_kind = np.stack([[*(own if w == h else off for w in range(p.kinds)), any_kind] for h in range(p.kinds)])
    much = np.array([p.plain, p.context], float)
    turned = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]])  # who is not briefed does not read the note
    much = much[None] * (turned if p.poison else np.ones((2, 3)))[:, None, :]
    q = 0.5 + (by_kind - 0.5)[None, :, :, None, None, :] * much[:, None, None, :, :, None]
    stakes = np.array(p.stakes, float)
    odds = stakes**-p.tail
    lie = np.zeros(p.kinds + 1)
    lie[0] = p.lie
    return Rules(
        legs=p.legs,
        pool=p.pool,
        widest=p.widest,
        sources=p.sources,
        rho=p.rho,
        wrong=p.w,
        time=p.lam,
        leg_price=p.leg_price,
        check_price=p.check_price,
        check=p.a,
        finish=p.finish,
        prices=np.array([*[p.prices[1]] * p.kinds, p.prices[0]], float),
        messages=np.array(p.messages, float),
        stakes=stakes,
        odds=odds / odds.sum(),
        q=q * (1.0 - p.inject),
        lie=lie,
        poison=p.poison,
    )


def _geometric(u: F, finish: float) -> Rows:
    """Steps until done, 1, 2, ..., each step the last with probability `finish`."""
    if finish == 1:
        return np.ones(len(u), np.int64)
    steps: Rows = 1 + np.floor(np.log1p(-u) / np.log1p(-finish)).astype(np.int64)
    return steps


def _margins(n: int, i: Rows, source: Rows, vote: Rows, sources: int) -> tuple[Rows, Rows]:
    """Ones minus zeros in each of n rows: among returns, and among distinct sources (all of whose returns
    agree)."""
    side = 2 * vote - 1
    returns = np.bincount(i, side, minlength=n).astype(np.int64)
    by_source = np.zeros((n, sources), np.int64)
    by_source[i, source] = side
    return returns, by_source.sum(axis=1)
