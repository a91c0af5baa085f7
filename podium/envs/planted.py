"""A team drawn from a structural model, so that the exact credit of every event is known.

The model is in `planted_team`, exact expectations are in `planted_credit`. Here decisions are the policy's, all
other events follow the tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.calibration import FIGURES, durations, stagger, tokens
from podium.envs.draws import U, choice, uniform
from podium.envs.labels import truth
from podium.envs.log import Log
from podium.envs.planted_credit import Worth, fixed_plan, greedy, with_noise, worth
from podium.envs.planted_team import RULES, VALUE, Size, Team, attacked, build, draw
from podium.envs.world import LEAD, BadParameter, Mask, Params, Policy, State, View, World, param, register
from podium.trace.columns import F, Text, Trace
from podium.trace.vocabulary import DECISIONS, EdgeType, decision, event

__all__ = ["Planted", "PlantedParams"]

COIN, RANDOM, TIME = 3, 4, 5  # what is drawn, beside those of the model
NEVER = np.iinfo(np.int64).max


def _whole(low: int, high: int) -> Any:
    return lambda n: isinstance(n, int | np.integer) and low <= n <= high


@dataclass(frozen=True)
class PlantedParams(Params):
    team: int = param(468, "a whole number from 0: the seed of the team", _whole(0, 2**63 - 1))
    agents: int = param(3, "a whole number of sub-agents from 0 to 12", _whole(0, 12))
    depth: int = param(2, "a whole number from 1 to 6: how deep spawns nest", _whole(1, 6))
    parallel: int = param(2, "a whole number from 1 to 4: children of the lead at work at once", _whole(1, 4))
    tools: int = param(1, "a whole number from 0 to 4: tool calls an agent", _whole(0, 4))
    messages: int = param(1, "a whole number from 0 to 4: messages an agent", _whole(0, 4))
    aggregates: int = param(2, "a whole number from 1 to 5: aggregates of the lead", _whole(1, 5))
    fan: int = param(3, "a whole number from 2 to 4: most parents of an event", _whole(2, 4))
    values: int = param(4, "a whole number from 2 to 4: most values of an event", _whole(2, 4))
    certain: float = param(0.3, "a share from 0 to 1 of nature's events without chance", lambda p: 0 <= p <= 1)
    who: int = param(1, "0 (the policy decides for the lead only) or 1 (for every agent)", lambda w: w in (0, 1))
    rule: int = param(2, "a whole number: 0 any, 1 all, 2 majority, 3 weighted, 4 threshold", _whole(0, 4))
    noise: float = param(0.0, "0 (no coin) or a share of the outcome's variance below 1", lambda p: 0 <= p < 1)
    inject: int = param(-1, "-1 (no attack) or the value 0 to 3 forced on a tool result", _whole(-1, 3))
    liar: float = param(0.0, "the rate from 0 to 1 at which the last agent lies", lambda p: 0 <= p <= 1)
    poison: int = param(-1, "-1 (no attack) or the row from which the shared note is poisoned", _whole(-1, 10**6))


@dataclass
class Planting(State):
    values: NDArray[np.int64]  # one line an episode, one column a row of the model
    at: int  # the row that comes next: a decision, unless all is over
    handle: NDArray[np.int64]  # events in the log, -1 where there is none
    clock: F  # when each agent was last at work, in seconds
    now: F  # of the latest event
    silent: NDArray[np.bool_]  # rows of the model that are not done because their agent is masked
    happened: NDArray[np.int64]  # events so far
    spared: NDArray[np.int64]  # as `values`, had there been no attack and the same decisions
    masked: Masked | None = None


@dataclass
class Masked:
    """Agents that are masked, by episode."""

    since: NDArray[np.int64]  # one column an agent: the event of the episode from which it does nothing
    turns: NDArray[np.int64]  # the event from which other random numbers are drawn ...
    fresh: U  # ... and their seeds


@register
class Planted(World):
    """Score = Y, the outcome: m = any / all / majority / weighted sum / threshold of the aggregates, or a coin with
    mean a + (1 - 2a) m.

    Optimum = W_0 of the recursion of `planted_credit` with the largest instead of the mean over x at decisions.
    """

    name = "planted"
    topology = "hierarchical"
    Params = PlantedParams
    decides = DECISIONS  # type: ignore[assignment]
    lockstep = True
    facts = ("row", "decisions_left")
    items = ("row", "type", "decision", "agent", "to", "value")
    options = ("0", "1", "2", "3")

    def __init__(self, params: PlantedParams) -> None:
        super().__init__(params)
        size = Size(**{f.name: getattr(params, f.name) for f in dataclasses.fields(Size)})
        try:
            team = build(size, RULES[params.rule], np.random.default_rng([params.team, 11]))
        except ValueError as error:
            raise BadParameter(str(error)) from None
        self.model = attacked(with_noise(team, params.noise), params.inject, params.liar, params.poison)

    @cached_property
    def decided(self) -> tuple[int, ...]:
        """The rows that the policy decides."""
        return self.model.decisions(lead_only=not self.params.who)

    @cached_property
    def attacked(self) -> bool:
        return any(row.attack is not None for row in self.model.rows)

    @cached_property
    def _unharmed(self) -> Team:
        return self.clean().model

    def clean(self) -> Planted:
        """The twin without attacks: the same seeds meet the same random numbers."""
        return Planted(dataclasses.replace(self.params, inject=-1, liar=0.0, poison=-1))

    def start(self, seed: U, log: Log | None = None) -> Planting:
        state = self._begun(seed, log)
        self._advance(state)
        return state

    def start_masked(self, masks: Sequence[Mask], log: Log) -> Planting:
        """Masked events have the value 0, as in `planted_credit.worth` those of agents that are absent."""
        state = self._begun(np.array([m.seed for m in masks], np.uint64), log)
        number = {_name(a): a for a in range(len(self.model.spawner))}
        since = np.full((len(masks), len(number)), NEVER)
        for i, mask in enumerate(masks):
            if unknown := [a for a in mask.agents if a not in number]:
                raise BadParameter(f"no agent called {unknown[0]!r} can be masked; there are {', '.join(number)}")
            since[i, [number[a] for a in mask.agents]] = mask.row
        turns = np.array([NEVER if m.fresh is None else m.row for m in masks])
        state.masked = Masked(since, turns, np.array([m.fresh or 0 for m in masks], np.uint64))
        self._advance(state)
        return state

    def _begun(self, seed: U, log: Log | None) -> Planting:
        n, rows = len(seed), len(self.model)
        blank, clock = np.full(n, np.nan), np.zeros((n, len(self.model.spawner)))
        values, handle = np.zeros((n, rows), np.int64), np.full((n, rows), -1)
        return Planting(
            seed,
            np.ones(n, np.bool_),
            np.zeros(n),
            log,
            blank,
            values,
            0,
            handle,
            clock,
            np.zeros(n),
            np.zeros((n, rows), np.bool_),
            np.zeros(n, np.int64),
            np.zeros((n, rows if self.attacked and log is not None else 0), np.int64),
        )

    def view(self, state: Planting) -> View | None:
        i = state.at
        if i == len(self.model):
            return None
        team = self.model
        row = np.flatnonzero(self._there(state, i))
        left = len(self.decided) - self.decided.index(i) - 1
        facts = np.tile([float(i), float(left)], (len(row), 1))
        allowed = np.tile(np.arange(4) < team.rows[i].arity, (len(row), 1))
        kind = team.rows[i].decision
        assert kind is not None

        def items() -> tuple[F, NDArray[np.int64]]:
            values = state.values[row].copy()
            owner, at = np.nonzero((team.present(values) & ~state.silent[row])[:, :i])
            return np.column_stack([self._cast[at], values[owner, at]]).astype(float), owner

        return View(row, kind, _name(team.rows[i].agent), facts, allowed, items)

    @cached_property
    def _cast(self) -> NDArray[np.int64]:
        """What the record says of each row: row, type, decision (-1 if none), agent, to (-1 if none)."""
        return np.array(
            [
                (i, event(r.type), decision(r.decision) if r.decision else -1, r.agent, r.to)
                for i, r in enumerate(self.model.rows)
            ]
        )

    def act(self, state: Planting, view: View, choice: NDArray[np.int64]) -> None:
        state.values[view.row, state.at] = choice
        if state.spared.size:
            state.spared[:, state.at] = state.values[:, state.at]
        self._log(state, state.at, view.row)
        state.at += 1
        self._advance(state)

    def _mask(self, state: Planting, i: int) -> None:
        """Whether row i is done is settled when its turn comes, and so is what is drawn for it."""
        if state.masked is None:
            return
        state.silent[:, i] = state.masked.since[:, self.model.rows[i].agent] <= state.happened
        state.seed = np.where(state.masked.turns <= state.happened, state.masked.fresh, state.seed)

    def _spare(self, state: Planting, i: int) -> None:
        if state.spared.size:
            state.spared[:, i] = draw(self._unharmed, i, state.spared, state.seed)
            state.spared[state.silent[:, i], i] = 0

    def _there(self, state: Planting, i: int) -> NDArray[np.bool_]:
        open_ = ~state.silent[:, i]
        for gate in self.model.rows[i].gates:
            open_ &= state.values[:, gate] > 0
        return open_

    def _advance(self, state: Planting) -> None:
        """Draws what nature and the others do, until somebody must decide or all is over."""
        team = self.model
        while state.at < len(team):
            i = state.at
            self._mask(state, i)
            if i in self.decided and self._there(state, i).any():
                return
            if i not in self.decided:
                state.values[:, i] = draw(team, i, state.values, state.seed)
                state.values[state.silent[:, i], i] = 0
                self._spare(state, i)
                there = self._there(state, i)
                if team.rows[i].type == "spawn":
                    there &= state.values[:, i] > 0
                self._log(state, i, np.flatnonzero(there))
            state.at += 1
        mean = team.expected(state.values[:, list(team.aggregates)])
        state.score[:] = mean if team.coin is None else uniform(state.seed, COIN) < mean
        state.open[:] = False

    def _log(self, state: Planting, i: int, rows: NDArray[np.int64]) -> None:
        state.happened[rows] += 2 if self.model.rows[i].type == "return" else 1  # with the despawn
        if state.log is None or not len(rows):
            return
        team, row, value = self.model, self.model.rows[i], state.values[rows, i]
        more: dict[str, Any] = {"role": "lead" if row.agent == 0 else "worker"}
        if row.attack is not None:
            more["trusted"] = 0
        if row.to >= 0:
            more["to"] = _name(row.to)
        if row.tool:
            more["tool"] = row.tool
        if row.type in ("message", "return", "tool_result"):
            more["valid"] = (value > 0).astype(np.int8)
        logp: Any = np.nan
        if row.chosen and i not in self.decided:
            logp = np.log(team.law[i][(*(state.values[rows, j] for j in team.causes(i)), value)])
        elif row.chosen:
            logp = state.logp[rows]
        after = [(word, state.handle[rows, j]) for j, word in self._edges[i]]
        t, agent = self._time(state, i, rows), (row.tool if row.type == "tool_result" else None) or _name(row.agent)
        more |= self._tokens(state, i, rows)
        if row.decision:
            options, words = self.options[: row.arity], np.array(self.options)[value]
            state.handle[rows, i] = state.log.decide(
                rows, row.decision, agent, t, options, words, logp, after, **more
            )
            return
        if row.chosen:
            more["logp"] = logp
        state.handle[rows, i] = state.log.add(rows, row.type, agent, t, after, **more)
        if row.type == "return":
            gone: list[tuple[EdgeType, NDArray[np.int64]]] = [("return", state.handle[rows, i])]
            state.log.add(rows, "despawn", _name(row.to), t, gone, to=_name(row.agent))

    def _time(self, state: Planting, i: int, rows: NDArray[np.int64]) -> F:
        """When row i happens: its agent goes on from where it was, but never before the row before it.

        A sub-agent's events share its duration; the lead takes a turn for each of its own.
        """
        row, seed = self.model.rows[i], state.seed[rows]
        if row.type == "tool_result":
            took = (FIGURES.tool if row.agent else FIGURES.lead_tool).at(uniform(seed, TIME, i))
        elif row.type == "spawn":
            took = stagger(seed, TIME, i)
        elif row.agent:
            took = durations(seed, TIME, -row.agent) / sum(r.agent == row.agent for r in self.model.rows)
        else:
            took = FIGURES.turns.at(uniform(seed, TIME, i))
        t: F = np.maximum(state.now[rows], state.clock[rows, row.agent] + took)
        state.now[rows] = state.clock[rows, row.agent] = t
        if row.type == "spawn":
            state.clock[rows, row.to] = t
        return t

    def _tokens(self, state: Planting, i: int, rows: NDArray[np.int64]) -> dict[str, Any]:
        """What the lead reads and writes in a decision, and a sub-agent over its life, told with its return."""
        row, seed = self.model.rows[i], state.seed[rows]
        if row.type != "return" and (row.agent or not row.decision):
            return {}
        read, wrote = (FIGURES.read, FIGURES.answer) if row.agent else (FIGURES.lead_read, FIGURES.lead_wrote)
        return {"tokens_in": tokens(seed, TIME, i, 0, of=read), "tokens_out": tokens(seed, TIME, i, 1, of=wrote)}

    @cached_property
    def _edges(self) -> list[list[tuple[int, EdgeType]]]:
        """For each row its causes and the kind of edge from each; the agent's own row before, if no cause, in
        time."""
        edges: list[list[tuple[int, EdgeType]]] = []
        last: dict[int, int] = {}
        for i, row in enumerate(self.model.rows):
            causes = [(j, _edge(self.model, j, i)) for j in self.model.causes(i)]
            causes += [(j, "safety_flow") for j in row.parents if self.model.rows[j].attack is not None]
            if row.agent in last and last[row.agent] not in self.model.causes(i):
                causes.append((last[row.agent], "temporal"))
            edges.append(causes)
            last[row.agent] = i
        return edges

    def trace(self, state: State) -> Trace:
        """The episodes as traces; each event has the fields `row` (of the model) and `value`.

        Labels: `task_relevant`, whether anything that the outcome depends on depends on it; `corrupted`, under
        attack, whether it has another value than without the attack, all decisions and draws as they are.
        """
        assert isinstance(state, Planting)
        row, value = self.along(state, np.arange(len(self.model))), self.along(state, state.values)
        extra = {
            "row": Text(_code(row), [str(i) for i in range(len(self.model))]),
            "value": Text(_code(value), self.options),
            "task_relevant": truth(_code(self.along(state, self._relevant))),
        }
        if self.attacked:
            extra["corrupted"] = truth(_code(self.along(state, state.values != state.spared)))
        return dataclasses.replace(super().trace(state), extra_e=extra)

    @cached_property
    def _relevant(self) -> NDArray[np.bool_]:
        """Rows from which a chain of causes leads to an aggregate."""
        relevant = np.zeros(len(self.model), np.bool_)
        relevant[list(self.model.aggregates)] = True
        for i in reversed(range(len(self.model))):
            relevant[list(self.model.causes(i))] |= relevant[i]
        return relevant

    def along(self, state: Planting, column: NDArray[Any]) -> F:
        """A figure of each episode and row of the model as a column of their trace; NaN for a despawn."""
        there = self.model.present(state.values) & ~state.silent
        gone = there & np.array([r.type == "return" for r in self.model.rows])
        figures = np.stack([np.broadcast_to(column, there.shape), np.full(there.shape, np.nan)], axis=2)
        along: F = figures[np.stack([there, gone], axis=2)]
        return along

    def behaviour(self, seed: U) -> Policy:
        """The behaviour policy in episodes of these seeds: what `planted_team.simulate` does."""

        def policy(view: View) -> tuple[NDArray[np.int64], F]:
            i, values = self._record(view)
            p = self.model.law[i][tuple(values[:, j] for j in self.model.causes(i))]
            chosen = choice(seed[view.row], np.broadcast_to(p, (len(view), p.shape[-1])), VALUE, i)
            logp: F = np.log(np.broadcast_to(p, (len(view), p.shape[-1]))[np.arange(len(view)), chosen])
            return chosen, logp

        return policy

    def _record(self, view: View) -> tuple[int, NDArray[np.int64]]:
        """The row to decide and the values of those before, from a view; 0 where there was no event."""
        items, owner = view.items()
        values = np.zeros((len(view), len(self.model)), np.int64)
        values[owner, items[:, 0].astype(np.int64)] = items[:, 5].astype(np.int64)
        return int(view.facts[0, 0]), values

    @cached_property
    def best(self) -> Worth:
        """What every row is worth when all decisions are the best."""
        return worth(self.model, best=self.decided)

    def optimum(self) -> float:
        return self.best.start

    def optimal(self) -> Policy:
        def policy(view: View) -> NDArray[np.int64]:
            i, values = self._record(view)
            best: NDArray[np.int64] = self.best.doing(i, values).argmax(axis=1)
            return best

        return policy

    def attack_effects(self) -> dict[str, float]:
        """Exact effects of the attack: on the optimum, on the best policy of the clean twin, which is unaware of
        it, and on the behaviour policy."""
        clean = self.clean()
        naive = worth(self.model, given=greedy(clean.best, self.decided)).start
        return {
            "optimum": self.optimum(),
            "clean_optimum": clean.optimum(),
            "unaware": naive,
            "loss": clean.optimum() - self.optimum(),
            "unaware_loss": clean.optimum() - naive,
            "behaviour": worth(self.model).start,
            "clean_behaviour": worth(clean.model).start,
        }

    @cached_property
    def plan(self) -> tuple[tuple[int, ...], float]:
        """Good choices that are fixed beforehand, and their exact score."""
        return fixed_plan(self.model, self.decided)

    def planned(self, plan: Mapping[int, int]) -> float:
        """The exact score of choices that are fixed beforehand."""
        return worth(self.model, given={i: np.eye(self.model.rows[i].arity)[x] for i, x in plan.items()}).start

    def trivial(self) -> dict[str, Policy]:
        def fixed(plan: Mapping[int, int]) -> Policy:
            return lambda view: np.full(len(view), plan[int(view.facts[0, 0])])

        def random(view: View) -> NDArray[np.int64]:
            i = int(view.facts[0, 0])
            u = uniform(view.row.astype(np.uint64), RANDOM, i)
            picked: NDArray[np.int64] = (u * self.model.rows[i].arity).astype(np.int64)
            return picked

        rows = self.decided
        always = {f"always {k}": fixed({i: min(k, self.model.rows[i].arity - 1) for i in rows}) for k in (1, 2, 3)}
        plan = dict(zip(rows, self.plan[0], strict=True))
        return {"never": fixed(dict.fromkeys(rows, 0)), **always, "fixed plan": fixed(plan), "random": random}

    def uniform_play(self) -> float:
        """The exact score of choosing uniformly."""
        rows = self.decided
        return worth(
            self.model, given={i: np.full(a, 1 / a) for i in rows if (a := self.model.rows[i].arity)}
        ).start

    def fit(self) -> bool:
        """Whether a promise may rest on this team: the best fixed plan loses 5 % and random play beats stopping."""
        never = self.planned(dict.fromkeys(self.decided, 0))
        return self.plan[1] <= 0.95 * self.optimum() and self.uniform_play() > never

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        while True:
            params: dict[str, Any] = {
                "team": int(dice.integers(1000, 10**6)),
                "rule": int(dice.integers(len(RULES))),
            }
            if cls(PlantedParams(**params)).fit():
                return params


def _name(agent: int) -> str:
    return LEAD if agent == 0 else f"agent{agent}"


def _code(figures: F) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = np.where(np.isnan(figures), -1, figures).astype(np.int64)
    return codes


def _edge(team: Team, j: int, i: int) -> EdgeType:
    """The kind of edge from row j to row i."""
    cause, effect = team.rows[j], team.rows[i]
    if effect.type == "aggregate":
        return "aggregate"
    if effect.type == "spawn" or (cause.type == "spawn" and cause.to == effect.agent):
        return "spawn"
    if cause.type == "tool_call" and effect.type == "tool_result":
        return "return"
    if cause.type == "message" and cause.to == effect.agent:
        return "message"
    if cause.type == "return":
        return "return"
    return "tool_dependency" if cause.type == "tool_result" else "causal"
