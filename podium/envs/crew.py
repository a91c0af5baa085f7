"""A crew of workers with cards that may lie: tasks come one by one, and each goes to one of them.

The lead learns who is good at what from what comes back. The optimum is dynamic programming over what is known of
each worker: its card and its counts of successes and failures by kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb, factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.world import LEAD, BadParameter, Params, Policy, State, View, World, param, register
from podium.trace.columns import B, F

__all__ = ["Crew"]

TYPE, CARD, KIND, LUCK = range(4)  # what a draw is about
MOST_STATES = 2_000_000

N64 = NDArray[np.int64]


def _whole(low: int, high: int) -> Any:
    return lambda n: isinstance(n, int) and low <= n <= high


@dataclass(frozen=True)
class CrewParams(Params):
    W: int = param(3, "a whole number from 1 to 8: the workers", _whole(1, 8))
    K: int = param(2, "a whole number from 1 to 6: the kinds of task", _whole(1, 6))
    H: int = param(2, "a whole number from 1 to 6: the hidden types of worker", _whole(1, 6))
    N: int = param(8, "a whole number from 1 to 40: the tasks", _whole(1, 40))
    e: float = param(0.35, "a probability from 0 to 1: how often a card is wrong", lambda e: 0 <= e <= 1)
    lam: float = param(0.15, "a price of 0 or more per task on the busiest worker", lambda c: 0 <= c < np.inf)
    q: tuple[tuple[float, ...], ...] = param(
        (),
        "a row of probabilities for each type, one a kind; or () for .9 on a type's own kind and .4 elsewhere",
        lambda q: all(0 <= p <= 1 for row in q for p in row) and len({len(row) for row in q}) <= 1,
    )

    def __post_init__(self) -> None:
        if isinstance(self.q, list):  # as JSON has it
            object.__setattr__(self, "q", tuple(tuple(row) for row in self.q))
        super().__post_init__()
        if self.q and (len(self.q) != self.H or len(self.q[0]) != self.K):
            raise BadParameter(f"q must be H={self.H} rows of K={self.K} probabilities, got {self.q!r}")
        if self.H == 1 and self.e > 0:
            raise BadParameter(f"e must be 0 where H=1: a card has no other type to show; got {self.e!r}")
        cells = 2 * self.K * self.W
        states = comb(self.N + cells, cells) * self.H**self.W // factorial(self.W)
        if states > MOST_STATES or (comb(self.N + 2 * self.K, self.N) * self.H) ** self.W >= 2**63:
            raise BadParameter(
                f"N must be smaller for W={self.W}, K={self.K}, H={self.H}: the optimum would need up to {states} "
                f"states, {MOST_STATES} at most are computed; got {self.N!r}"
            )

    def success(self) -> F:
        """q[type, kind] as an array."""
        kinds, types = np.arange(self.K)[None, :], np.arange(self.H)[:, None]
        return np.array(self.q) if self.q else np.where(kinds % self.H == types % self.K, 0.9, 0.4)


@dataclass
class Working(State):
    type: N64  # [episode, worker], hidden
    card: N64  # [episode, worker]
    count: N64  # [episode, worker, kind, failed or succeeded]
    done: N64  # tasks given out
    kind: N64  # of the task that waits
    spawned: N64  # handles of spawns [episode, worker]
    returned: N64  # handles of returns [episode, task]


@register
class Crew(World):
    """Score = successes - lam x the largest number of tasks on one worker."""

    name = "crew"
    Params = CrewParams
    decides = ("delegate",)
    facts = ("kind", "tasks done", "tasks left", "price of load")

    def __init__(self, params: CrewParams) -> None:
        super().__init__(params)
        kinds = range(1, params.K + 1)
        self.items = ("card", "load", *(f"{word} {k}" for k in kinds for word in ("failed", "succeeded")))
        self.options = tuple(f"worker {w}" for w in range(1, params.W + 1))
        self._q = params.success()

    def start(self, seed: U, log: Log | None = None) -> Working:
        p, n = self.params, len(seed)
        worker = np.arange(p.W)
        type_ = (uniform(seed[:, None], TYPE, worker) * p.H).astype(np.int64)
        u = uniform(seed[:, None], CARD, worker)
        shift = 1 + (u / p.e * (p.H - 1)).astype(np.int64) if p.e > 0 else 0
        card = np.where(u < p.e, (type_ + shift) % p.H, type_)
        state = Working(
            seed,
            np.ones(n, np.bool_),
            np.zeros(n),
            log,
            np.full(n, np.nan),
            type_,
            card,
            np.zeros((n, p.W, p.K, 2), np.int64),
            np.zeros(n, np.int64),
            self._arrives(seed, np.zeros(n, np.int64)),
            np.full((n, p.W), -1),
            np.full((n, p.N), -1),
        )
        if log is not None:
            cards = np.array([f"card {c + 1}" for c in range(p.H)], object)
            for w, name in enumerate(self.options):
                state.spawned[:, w] = log.add(
                    np.arange(n), "spawn", LEAD, 0.0, to=name, role="lead", content_ref=cards[card[:, w]]
                )
        return state

    def _arrives(self, seed: U, number: N64) -> N64:
        """The kind of each episode's task of this number."""
        kind: N64 = (uniform(seed, KIND, number) * self.params.K).astype(np.int64)
        return kind

    def view(self, state: Working) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        p, done = self.params, state.done[row]
        facts = np.stack([state.kind[row] + 1, done, p.N - done, np.full(len(row), p.lam)], 1).astype(float)

        def items() -> tuple[F, N64]:
            count = state.count[row].reshape(len(row), p.W, -1)
            shown = np.concatenate([state.card[row][:, :, None] + 1, count.sum(2, keepdims=True), count], 2)
            return shown.reshape(-1, shown.shape[2]).astype(float), np.repeat(np.arange(len(row)), p.W)

        allowed: B = np.ones((len(row), p.W), np.bool_)
        about = np.broadcast_to(np.arange(p.W), (len(row), p.W))
        return View(row, "delegate", LEAD, facts, allowed, items, about)

    def act(self, state: Working, view: View, choice: N64) -> None:
        row, p = view.row, self.params
        at, kind = state.done[row], state.kind[row]
        right = uniform(state.seed[row], LUCK, at) < self._q[state.type[row, choice], kind]
        state.count[row, choice, kind, right.astype(np.int64)] += 1
        self._log(state, row, choice, right)
        state.done[row] += 1
        last = state.done[row] == p.N
        if (on := row[~last]).size:
            state.kind[on] = self._arrives(state.seed[on], state.done[on])
        if (off := row[last]).size:
            state.open[off] = False
            load = state.count[off].sum((2, 3)).max(1)
            state.score[off] = state.count[off, :, :, 1].sum((1, 2)) - p.lam * load
            self._log_end(state, off)

    def _log(self, state: Working, row: N64, choice: N64, right: B) -> None:
        log = state.log
        if log is None:
            return
        at = state.done[row]
        t = 1.0 + 2.0 * at
        before = np.where(at > 0, state.returned[row, at - 1], -1)
        words = np.array(self.options, object)[choice]
        spawns: list[tuple[Any, N64]] = [
            ("temporal", np.where(at == 0, state.spawned[row, w], -1)) for w in range(self.params.W)
        ]
        decision = log.decide(
            row,
            "delegate",
            LEAD,
            t,
            self.options,
            words,
            state.logp[row],
            [("return", before), *spawns],
            role="lead",
        )
        outcome = np.array(["failed", "succeeded"], object)
        for w, name in enumerate(self.options):
            chosen = np.flatnonzero(choice == w)
            if chosen.size:
                state.returned[row[chosen], at[chosen]] = log.add(
                    row[chosen],
                    "return",
                    name,
                    t[chosen] + 1,
                    [("causal", decision[chosen]), ("spawn", state.spawned[row[chosen], w])],
                    to=LEAD,
                    role="worker",
                    content_ref=outcome[right[chosen].astype(np.int64)],
                )

    def _log_end(self, state: Working, row: N64) -> None:
        if state.log is not None:
            causes: list[tuple[Any, N64]] = [("aggregate", state.returned[row, i]) for i in range(self.params.N)]
            state.log.add(row, "aggregate", LEAD, 1.0 + 2.0 * self.params.N, causes, role="lead")

    def optimum(self) -> float:
        """V(what is known of the workers, t) = mean over kinds of the best worker's

            p (1 + V(it succeeded, t + 1)) + (1 - p) V(it failed, t + 1),    V(., N) = -lam x the largest load

        where p is the chance of success given its card and its counts. Workers of whom the same is known are alike.
        """
        return _solved(self.params).value

    def optimal(self) -> Policy:
        plan, p = _solved(self.params), self.params

        def policy(view: View) -> N64:
            values, _ = view.items()
            known = values.reshape(len(view), p.W, -1).astype(np.int64)
            ids = plan.number(known[:, :, 0] - 1, known[:, :, 2:])
            kind, done = view.facts[:, 0].astype(np.int64) - 1, view.facts[:, 1].astype(np.int64)
            chosen: N64 = np.zeros(len(view), np.int64)
            for t in np.unique(done).tolist():
                now = np.flatnonzero(done == t)
                at = np.searchsorted(plan.keys[t], _key(ids[now], plan.size))
                chosen[now] = np.argmax(ids[now] == plan.best[t][at, kind[now]][:, None], axis=1)
            return chosen

        return policy

    def trivial(self) -> dict[str, Policy]:
        """One worker, all in turn, at random, and by card: whose card is best for the kind, the least loaded of
        them; nobody looks at what came back."""
        p = self.params
        dice = np.random.default_rng(0)
        fit = _prior(p) @ self._q  # [card, kind]: the chance of success that a card promises

        def by_card(view: View) -> N64:
            values, _ = view.items()
            card, load = values[:, :2].reshape(len(view), p.W, 2).transpose(2, 0, 1)
            promise = fit[card.astype(np.int64) - 1, view.facts[:, :1].astype(np.int64) - 1]
            chosen: N64 = np.argmax(np.round(promise, 9) * 1e3 - load, axis=1)
            return chosen

        return {
            "one worker": lambda view: np.zeros(len(view), np.int64),
            "in turn": lambda view: view.facts[:, 1].astype(np.int64) % p.W,
            "random": lambda view: dice.integers(p.W, size=len(view)),
            "by card": by_card,
        }

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        workers, tasks = ((2, 6), (2, 10), (3, 7), (3, 9), (4, 7))[int(dice.integers(5))]
        return {"W": workers, "N": tasks, "lam": float(np.round(dice.uniform(0.05, 0.3), 3))}

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        workers, tasks = ((2, 5), (2, 7), (2, 8), (2, 9), (3, 6), (3, 8), (4, 5), (4, 6))[int(dice.integers(8))]
        return {"W": workers, "N": tasks, "lam": float(dice.uniform(0.04, 0.32))}


def _prior(p: CrewParams) -> F:
    """P(type given card): types are uniform, so it is P(card given type)."""
    other = p.e / max(p.H - 1, 1)
    return np.where(np.eye(p.H, dtype=np.bool_), 1.0 - p.e, other)


def _key(ids: N64, size: int) -> N64:
    """Workers of whom the same is known are alike: one number for what is known of all of them, in any order."""
    number: N64 = np.sort(ids, axis=-1) @ size ** np.arange(ids.shape[-1])
    return number


class Plan(NamedTuple):
    """Optimal play: for each t what may be known (`keys`, ascending) and whom to take, as what is known of it."""

    value: float
    size: int
    code_c: N64  # counts as one number, ascending
    id_ch: N64  # [counts, card]: the number of what is known of such a worker
    base: int
    keys: list[N64]
    best: list[N64]  # [joint state, kind]

    def number(self, card: N64, count: N64) -> N64:
        code = count @ self.base ** np.arange(count.shape[-1])
        ids: N64 = self.id_ch[np.searchsorted(self.code_c, code), card]
        return ids


class _Known(NamedTuple):
    """What may be known of one worker, numbered; two histories with one load and one posterior are the same."""

    code_c: N64
    id_ch: N64
    load: N64
    p: F  # [id, kind]: chance of success
    next: N64  # [id, kind, failed or succeeded]


def _known(p: CrewParams) -> _Known:
    q, base, cells = p.success(), p.N + 1, 2 * p.K
    count_c = np.zeros((1, 0), np.int64)
    for _ in range(cells):
        wide = np.concatenate([np.c_[count_c, np.full(len(count_c), x)] for x in range(base)])
        count_c = wide[wide.sum(1) <= p.N]
    count_c = count_c[np.argsort(count_c @ base ** np.arange(cells))]
    code_c, load_c = count_c @ base ** np.arange(cells), count_c.sum(1)
    chance = np.stack([1 - q, q], 2).reshape(p.H, cells)  # [type, (kind, outcome)]
    likely = np.prod(chance[None] ** count_c[:, None], axis=2)  # [counts, type]
    post = likely[:, None, :] * _prior(p)[None]  # [counts, card, type]
    total = post.sum(2, keepdims=True)
    post = np.where(total > 0, post / np.where(total > 0, total, 1), -1.0)  # -1: cannot happen
    rows = np.concatenate([np.broadcast_to(load_c[:, None, None], (len(code_c), p.H, 1)), np.round(post, 11)], 2)
    _, first, ids = np.unique(rows.reshape(-1, 1 + p.H), axis=0, return_index=True, return_inverse=True)
    id_ch = ids.reshape(len(code_c), p.H)
    at, card = first // p.H, first % p.H
    nxt = np.full((len(first), cells), -1)
    for x in range(cells):
        grown = np.searchsorted(code_c, code_c[at] + base**x)
        ok = load_c[at] < p.N
        nxt[ok, x] = id_ch[grown[ok], card[ok]]
    return _Known(code_c, id_ch, load_c[at], post[at, card] @ q, nxt.reshape(-1, p.K, 2))


@lru_cache(maxsize=8)
def _solved(params: CrewParams) -> Plan:
    p, one = params, _known(params)
    size = len(one.load)
    cards = np.stack(np.meshgrid(*[one.id_ch[0]] * p.W, indexing="ij"), -1).reshape(-1, p.W)

    def after(state: N64, k: int, w: int, outcome: int) -> N64:
        grown = state.copy()
        grown[:, w] = one.next[state[:, w], k, outcome]
        return _key(grown, size)

    turns = [(k, w) for k in range(p.K) for w in range(p.W)]
    keys = [np.unique(_key(cards, size))]
    for _ in range(p.N):
        state = _split(keys[-1], size, p.W)
        keys.append(np.unique(np.concatenate([np.unique(after(state, k, w, o)) for k, w in turns for o in (0, 1)])))
    value = -p.lam * one.load[_split(keys[-1], size, p.W)].max(1).astype(float)
    best: list[N64] = []
    for t in reversed(range(p.N)):
        state = _split(keys[t], size, p.W)
        worth = np.empty((len(state), p.K, p.W))
        for k, w in turns:
            fails, wins = (value[np.searchsorted(keys[t + 1], after(state, k, w, o))] for o in (0, 1))
            chance = one.p[state[:, w], k]
            worth[:, k, w] = chance * (1 + wins) + (1 - chance) * fails
        best.insert(0, np.take_along_axis(state, np.argmax(worth, axis=2), axis=1))
        value = worth.max(2).mean(1)
    start = value[np.searchsorted(keys[0], _key(cards, size))].mean()
    return Plan(float(start), size, one.code_c, one.id_ch, p.N + 1, keys, best)


def _split(key: N64, size: int, width: int) -> N64:
    parts: N64 = key[:, None] // size ** np.arange(width) % size
    return parts
