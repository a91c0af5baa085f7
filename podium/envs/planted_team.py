"""The structural model behind `planted`: a team whose every event has a value, drawn from a table given its
parents.

Rows are drawn in order. Row i is absent (value 0) if one of its gates is 0: the spawn of the agent it belongs to,
or a decision of that agent to stop. Else its value follows a table given the values of its parents. An attack is a
matrix applied after the table: a forced value, or a lie at a rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, choice
from podium.trace.columns import F
from podium.trace.vocabulary import Decision, EventType

__all__ = ["RULES", "VALUE", "Row", "Size", "Team", "attacked", "build", "draw", "simulate"]

RULES = ("any", "all", "majority", "weighted", "threshold")
CAP = 1 << 20  # most entries of the value tables of a team
VALUE, LIE = 1, 2  # what is drawn


@dataclass(frozen=True)
class Row:
    """An event of the model. `table` has an axis a parent and a last one for the value."""

    type: EventType
    agent: int
    table: F
    parents: tuple[int, ...]
    gates: tuple[int, ...]
    to: int = -1
    decision: Decision | None = None
    tool: str | None = None
    attack: F | None = None  # P(value that arrives, given the value drawn)

    @property
    def arity(self) -> int:
        return int(self.table.shape[-1])

    @property
    def chosen(self) -> bool:
        """Whether it is drawn from a behaviour policy rather than by nature."""
        return self.type in ("orchestrator_decision", "message")


@dataclass(frozen=True)
class Size:
    """How large a random team is; counts are per agent where they say so."""

    agents: int = 3  # sub-agents
    depth: int = 2  # of nested spawns
    parallel: int = 2  # sub-agents at work at once
    tools: int = 1  # calls an agent
    messages: int = 1  # an agent
    aggregates: int = 2  # of the lead; a sub-agent that spawned others adds one
    fan: int = 3  # most parents of a row
    values: int = 4  # most values of a row
    certain: float = 0.3  # share of nature's rows without chance


@dataclass(frozen=True)
class Team:
    """Rows in order, who spawned whom, and how the aggregates make the outcome.

        m = f(values of the aggregates),   Y = m,   or with a coin   Y ~ Bernoulli(a + (1 - 2a) m)

    An aggregate votes yes if its value is in the upper half of its range. `any`, `all` and `majority` (more than
    half) count votes; `weighted` is Σ w v / Σ w (arity - 1); `threshold` asks whether that reaches `bar`.
    """

    rows: tuple[Row, ...]
    spawner: tuple[int, ...]  # of each agent; -1 for the lead, which is agent 0
    born: tuple[int, ...]  # row of the spawn of each agent, -1 for the lead
    rule: str
    weights: tuple[float, ...]  # of each aggregate
    bar: float = 0.5
    coin: float | None = None  # a

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def aggregates(self) -> tuple[int, ...]:
        return tuple(i for i, r in enumerate(self.rows) if r.type == "aggregate")

    def decisions(self, lead_only: bool = False) -> tuple[int, ...]:
        """Rows that are decisions."""
        return tuple(i for i, r in enumerate(self.rows) if r.decision and not (lead_only and r.agent))

    @cached_property
    def live(self) -> tuple[tuple[int, ...], ...]:
        """For each row (and the end): the earlier rows that it or a later one, or the outcome, depends on."""
        needed: set[int] = set(self.aggregates)
        orders = [tuple(sorted(needed))]
        for i in reversed(range(len(self))):
            needed = (needed - {i}) | set(self.causes(i))
            orders.append(tuple(sorted(needed)))
        return tuple(reversed(orders))

    def causes(self, i: int) -> tuple[int, ...]:
        """Parents and gates of a row."""
        return tuple(sorted({*self.rows[i].parents, *self.rows[i].gates}))

    def shape(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.rows[j].arity for j in rows)

    @cached_property
    def clean(self) -> tuple[F, ...]:
        """P(value | causes) of each row before any attack, an axis a cause and a last one for the value."""
        return tuple(self._law(i, attacked=False) for i in range(len(self)))

    @cached_property
    def law(self) -> tuple[F, ...]:
        """P(value | causes) of each row as it arrives."""
        return tuple(self._law(i, attacked=True) for i in range(len(self)))

    def _law(self, i: int, attacked: bool) -> F:
        row, causes = self.rows[i], self.causes(i)
        table = row.table if row.attack is None or not attacked else row.table @ row.attack
        shape = [self.rows[j].arity if j in row.parents else 1 for j in causes]
        law = np.broadcast_to(table.reshape(*shape, row.arity), (*self.shape(causes), row.arity)).copy()
        for gate in row.gates:
            law[(slice(None),) * causes.index(gate) + (0,)] = np.eye(row.arity)[0]
        return law

    def mean(self, values: NDArray[Any]) -> F:
        """m of rows of values, (..., aggregates)."""
        top = np.array([a - 1 for a in self.shape(self.aggregates)])
        yes = (2 * values > top).sum(axis=-1)
        w = np.array(self.weights)
        score = (values * w).sum(axis=-1) / (top * w).sum()
        m = {
            "any": yes > 0,
            "all": yes == len(top),
            "majority": 2 * yes > len(top),
            "weighted": score,
            "threshold": score >= self.bar - 1e-12,
        }[self.rule]
        return np.asarray(m, np.float64)

    def expected(self, values: NDArray[Any]) -> F:
        """E[Y] given the values of the aggregates."""
        m = self.mean(values)
        return m if self.coin is None else self.coin + (1.0 - 2.0 * self.coin) * m

    def present(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows are events of the record: those whose gates are open, and of spawns those that were done."""
        there = np.ones(values.shape, np.bool_)
        for i, row in enumerate(self.rows):
            for gate in row.gates:
                there[:, i] &= values[:, gate] > 0
            if row.type == "spawn":
                there[:, i] &= values[:, i] > 0
        return there


def draw(team: Team, i: int, values: NDArray[np.int64], seed: U) -> NDArray[np.int64]:
    """The value of row i in each episode, given those of earlier rows."""
    causes, row = team.causes(i), team.rows[i]
    p = team.clean[i][tuple(values[:, j] for j in causes)]
    p = np.broadcast_to(p, (len(seed), row.arity))
    natural = choice(seed, p, VALUE, i)
    if row.attack is None:
        return natural
    arrived = choice(seed, row.attack[natural], LIE, i)
    shut = np.any([values[:, g] == 0 for g in row.gates], axis=0) if row.gates else np.zeros(len(seed), np.bool_)
    present: NDArray[np.int64] = np.where(shut, 0, arrived)
    return present


def simulate(team: Team, seed: U) -> NDArray[np.int64]:
    """Values of every row, one line an episode, all drawn from the behaviour policy and nature."""
    values = np.zeros((len(seed), len(team)), np.int64)
    for i in range(len(team)):
        values[:, i] = draw(team, i, values, seed)
    return values


def attacked(team: Team, inject: int = -1, liar: float = 0.0, poison: int = -1) -> Team:
    """The team under attack; tables, and so the random numbers, stay as they are.

    `inject`: the first result of the tool "look" carries an instruction, its value is forced to this (its highest,
    if it has no such value). `liar`: the last agent says one more than it means (cyclically) at this rate, in
    messages and returns. `poison`: from this row on the shared note reads 0, whatever was written.
    """
    rows, injected = list(team.rows), inject < 0
    for i, row in enumerate(rows):
        k = row.arity
        if row.type == "tool_result" and row.tool == "look" and not injected:
            rows[i], injected = replace(row, attack=np.eye(k)[[min(inject, k - 1)] * k]), True
        elif row.type == "tool_result" and row.tool == "note" and 0 <= poison <= i:
            rows[i] = replace(row, attack=np.eye(k)[[0] * k])
        elif liar > 0 and row.agent == len(team.spawner) - 1 and row.type in ("message", "return"):
            rows[i] = replace(row, attack=(1 - liar) * np.eye(k) + liar * np.roll(np.eye(k), 1, axis=1))
    return replace(team, rows=tuple(rows))


def build(size: Size, rule: str, dice: np.random.Generator) -> Team:
    """A random team whose exact tables are small enough to hold."""
    for _ in range(60):
        team = _Builder(size, dice).team(rule)
        if sum(float(np.prod(team.shape(rows))) for rows in team.live) <= CAP:
            return team
    raise ValueError(
        f"no team of this size has exact tables of at most {CAP} entries; lower agents, parallel, fan or values"
    )


class _Builder:
    """Lays the rows out: each agent works through its steps, in an order that a random scheduler picks."""

    def __init__(self, size: Size, dice: np.random.Generator) -> None:
        self.size, self.dice = size, dice
        self.rows: list[Row] = []
        self.spawner = self._tree()
        n = len(self.spawner)
        self.born, self.stop = [-1] * n, [()] * n  # type: list[int], list[tuple[int, ...]]
        self.memory: list[deque[int]] = [deque(maxlen=2) for _ in range(n)]  # what an agent may react to
        self.returned: list[list[int]] = [[] for _ in range(n)]
        self.active: dict[int, Iterator[None]] = {0: self._work(0)}

    def team(self, rule: str) -> Team:
        while self.active:
            agent = int(self.dice.choice(list(self.active)))
            if next(self.active[agent], self) is self:
                del self.active[agent]
        n = sum(row.type == "aggregate" for row in self.rows)
        weights = tuple(float(w) for w in self.dice.integers(1, 4, n))
        return Team(tuple(self.rows), tuple(self.spawner), tuple(self.born), rule, weights)

    def _tree(self) -> list[int]:
        spawner, depth = [-1], [0]
        for _ in range(self.size.agents):
            may = [a for a, d in enumerate(depth) if d < self.size.depth]
            by = may[-1] if self.dice.random() < 0.5 else int(self.dice.choice(may))
            spawner.append(by)
            depth.append(depth[by] + 1)
        return spawner

    def _work(self, a: int) -> Iterator[None]:
        children = [c for c, by in enumerate(self.spawner) if by == a]
        steps: list[Any] = ["tool"] * self.size.tools + ["message"] * self.size.messages + children
        self.dice.shuffle(steps)
        stop = int(self.dice.integers(1, len(steps))) if len(steps) > 1 else -1
        for k, step in enumerate(steps):
            if k == stop:
                self.stop[a] = (self._decide("stop", a),)
                yield
            if step == "tool":
                yield from self._tool(a)
            elif step == "message":
                yield from self._message(a)
            else:
                yield from self._child(a, step)
        while len(self.returned[a]) < len(children):
            yield
        for _ in range(self.size.aggregates if a == 0 else bool(children)):
            how = self._decide("aggregate", a, gates=self._alive(a))
            yield
            heard = [int(r) for r in self.dice.permutation(self.returned[a])[: self.size.fan - 1]]
            self._add("aggregate", a, (how, *heard), self._alive(a))
            yield
        if a > 0:
            answer = self._add("return", a, (), self._alive(a), to=self.spawner[a])
            self.memory[self.spawner[a]].append(answer)
            self.returned[self.spawner[a]].append(answer)

    def _tool(self, a: int) -> Iterator[None]:
        tool = "look" if self.dice.random() < 0.5 else "note"
        call = self._add("tool_call", a, (), self._gates(a), tool=tool)
        self._add("tool_result", a, (call,), self._gates(a), tool=tool)
        yield

    def _message(self, a: int) -> Iterator[None]:
        others = [b for b in self.active if b != a]
        if not others:
            return
        what = (self._decide("communicate", a),) if self.dice.random() < 0.5 else ()
        to = int(self.dice.choice(others))
        self.memory[to].append(self._add("message", a, what, self._gates(a), to=to))
        yield

    def _child(self, a: int, child: int) -> Iterator[None]:
        while len(self.active) > self.size.parallel and self.size.parallel < len(self.spawner) and a == 0:
            yield
        decision = self._decide("spawn", a)
        self.born[child] = self._add("spawn", a, (decision,), (), to=child, exact=True)
        order = self._decide("delegate", a, gates=(self.born[child],))
        self.memory[child].append(order)
        self.active[child] = self._work(child)
        yield

    def _alive(self, a: int) -> tuple[int, ...]:
        return (self.born[a],) if a > 0 else ()

    def _gates(self, a: int) -> tuple[int, ...]:
        return (*self._alive(a), *self.stop[a])

    def _decide(self, kind: Decision, a: int, gates: tuple[int, ...] | None = None) -> int:
        gates = self._gates(a) if gates is None else gates
        return self._add("orchestrator_decision", a, (), gates, decision=kind)

    def _add(
        self,
        kind: EventType,
        a: int,
        must: tuple[int, ...],
        gates: tuple[int, ...],
        exact: bool = False,
        **more: Any,
    ) -> int:
        room = 0 if exact else int(self.dice.integers(1, self.size.fan + 1)) - len(must)
        pool = [r for r in self.memory[a] if r not in must]
        extra = [int(r) for r in self.dice.permutation(pool)[: max(room, 0)]]
        parents = tuple(sorted({*must, *extra}))
        arity = int(self.dice.integers(2, self.size.values + 1))
        free = kind in ("orchestrator_decision", "message")
        table = self._table([self.rows[p].arity for p in parents], arity, free or kind == "spawn")
        if kind == "spawn":
            table[0] = np.eye(arity)[0]
            table[1:, 0] = 0.0
            table[1:] /= table[1:].sum(axis=-1, keepdims=True)
        self.rows.append(Row(kind, a, table, parents, gates, **more))
        self.memory[a].append(len(self.rows) - 1)
        return len(self.rows) - 1

    def _table(self, arities: list[int], arity: int, free: bool) -> F:
        """P(x | parents) ∝ exp(x s + noise), s a random weighted sum of the parents: nothing in, little out."""
        s = np.full((*arities, 1), -1.0 if arities and not free else 0.0)
        for axis, k in enumerate(arities):
            w = self.dice.choice([-1.0, 1.0, 2.0, 3.0])
            level = w * np.arange(k) / (k - 1)
            s = s + level.reshape([-1 if b == axis else 1 for b in range(len(arities))] + [1])
        logits = np.arange(arity) * s * (0.3 if free else 1.0) + self.dice.normal(
            0.0, 1.0 if free else 2.0, (*arities, arity)
        )
        if not free and self.dice.random() < self.size.certain:
            logits = np.where(np.eye(arity)[logits.argmax(axis=-1)] > 0, 0.0, -np.inf)
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        table: F = p / p.sum(axis=-1, keepdims=True)
        return table
