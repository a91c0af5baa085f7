"""Every method of the table against exact credit, in planted teams: its own unit, on traces as they are recorded.

Runs are played and branched with logs. What a method needs beyond them is given to it: branches at every decision,
runs with agents masked, tokens (one for each choice), and where it needs a critic the exact expectation, so that
its row is a ceiling for a fitted one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.fidelity import Found, Marks, mark
from podium.credit import BadCredit, Credit
from podium.credit.shapley import ask_coalitions
from podium.envs.branch import branch, luck
from podium.envs.draws import seeds, uniform
from podium.envs.planted import Planted
from podium.envs.planted_credit import Worth, credit, shapley, worth
from podium.envs.world import View, play
from podium.graph import units
from podium.learn.requirements import with_step_rewards
from podium.methods import METHODS, Method, credit_of
from podium.rewards.ledger import BadReward, Now
from podium.trace.columns import F, Text, Trace, concat
from podium.trace.do import Do

__all__ = ["Table", "dressed", "exact_at", "measured", "recorded_trace", "summed_at", "table"]

EVENTS = ("value", "value_local", "value_joint", "value_graph")
PRESENCE = (
    "difference",
    "closed_difference",
    "shapley",
    "spawn_shapley",
    "sharp",
)  # what an agent is worth by being there


@dataclass(frozen=True)
class Table:
    """Marks of methods that could be measured, and why the others could not."""

    found: list[Found]
    refused: dict[str, str]


def table(teams: list[Planted], runs: int, seed: int, tries: int = 4, env: str = "planted") -> Table:
    """Every method that runs, in every team."""
    by_method: dict[str, Found] = {}
    refused: dict[str, str] = {}
    for world in teams:
        sets = _Sets(world, runs, seed, tries)
        for name, method in METHODS.items():
            if not method.credit:
                refused[name] = f"a card: {method.unknown}"
                continue
            try:
                unit, marks = measured(sets, method)
            except (BadCredit, BadReward) as error:
                refused[name] = str(error).partition("; there are")[0]
                continue
            by_method.setdefault(name, Found(name, unit, env)).marks.append(marks)
    ranked = [f for f in by_method.values() if not np.isnan(f.mean().mean)]
    lost = {f.method: "pays no unit here, or all alike" for f in by_method.values() if f not in ranked}
    return Table(ranked, refused | lost)


def recorded_trace(world: Planted, runs: int, seed: int) -> Trace:
    """Runs of the behaviour policy, as they are recorded."""
    start = seeds(seed, runs)
    return world.trace(play(world, world.behaviour(start), start, log=True).state)


def measured(sets: _Sets, method: Method) -> tuple[str, Marks]:
    """The unit that a method pays, and how true that is."""
    trace, cost = sets.of(method)
    given = credit_of(trace, method, Now(1.0, ()))
    own = (trace.parent_n.codes < 0)[given.rollout]
    exact = sets.presence(given) if method.name in PRESENCE else exact_at(sets.world, trace, given.unit)
    return given.unit, mark(given.value[own], exact[own], cost)


def exact_at(world: Planted, trace: Trace, unit: str) -> F:
    """Exact credit of each unit: the sum over the choices made in it; NaN where none was made."""
    row, values = _model(world, trace)
    worths = credit(world.model, values)
    return summed_at(trace, np.where(row >= 0, worths[trace.rollout_e, np.maximum(row, 0)], np.nan), unit)


def summed_at(trace: Trace, credit_e: F, unit: str) -> F:
    """The sum of the credit of events over each unit; NaN where none has any. Of a decision or a message it is its
    own, not that of what followed from it."""
    if unit in ("orchestrator", "message", "tool_call"):
        own: F = credit_e[units.rows(trace, unit)]
        return own
    if unit == "token":
        credit_k: F = credit_e[trace.owner_k]
        return credit_k
    place = units.place(trace, unit)
    paid = ~np.isnan(credit_e) & (place >= 0)
    n = len(units.rollouts(trace, unit))
    total = np.bincount(place[paid], credit_e[paid], minlength=n)
    return np.where(np.bincount(place[paid], minlength=n) > 0, total, np.nan)


def _model(world: Planted, trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The row of the model that each event is (-1 if none), and the values of the runs."""
    row = _numbers(trace.extra_e["row"])
    values = np.zeros((len(trace), len(world.model)), np.int64)
    known = np.flatnonzero(row >= 0)
    values[trace.rollout_e[known], row[known]] = np.maximum(_numbers(trace.extra_e["value"])[known], 0)
    return row, values


def _numbers(label: Text) -> NDArray[np.int64]:
    words: NDArray[np.int64] = np.array([*(int(w) for w in label.words), -1], np.int64)[label.codes]
    return words


def dressed(world: Planted, trace: Trace) -> Trace:
    """A planted trace with what methods may ask for: exact values as critics, probabilities, states and a token for
    each choice."""
    row, values = _model(world, trace)
    tables, team = worth(world.model), world.model
    before = np.full((len(trace), len(team)), np.nan)
    after = before.copy()
    for i in range(len(team)):
        before[:, i] = tables.before(i, values)
        after[:, i] = np.take_along_axis(tables.doing(i, values), values[:, i, None], axis=1)[:, 0]
    run, at = trace.rollout_e, np.maximum(row, 0)
    value_e = np.where(row >= 0, before[run, at], np.nan)
    worth_u = np.where(row >= 0, after[run, at], np.nan)
    last = units.place(trace, "turn")
    q_e = np.full(trace.n_events, np.nan)
    if len(stand := units.rows(trace, "turn")):
        final = np.full(len(stand), np.nan)
        last_rows = np.flatnonzero((last >= 0) & ~np.isnan(worth_u))
        final[last[last_rows]] = worth_u[last_rows]  # the last of the turn is written last
        q_e[stand] = final
    chosen = np.flatnonzero((row >= 0) & ~np.isnan(credit(team, values)[run, at]))
    extra = _labels(world, tables, row, values, run)
    trace = with_step_rewards(trace)
    return replace(
        trace,
        reward_e={**trace.reward_e, **dict.fromkeys(EVENTS, value_e), "q": q_e, "mixer": np.ones(trace.n_events)},
        extra_e={**trace.extra_e, **extra},
        owner_k=chosen.astype(np.int32),
        token_k=np.zeros(len(chosen), np.int32),
        logp_k=trace.logp_e[chosen],
        mask_k=np.ones(len(chosen), np.int8),
    )


def _labels(world: Planted, tables: Worth, row: Any, values: Any, run: Any) -> dict[str, Text]:
    """`pi` and `q` of the options of decisions, and `anchor`, the state that anything later depends on."""
    team = world.model
    pi: list[str | None] = [None] * len(row)
    q: list[str | None] = [None] * len(row)
    anchor: list[str | None] = [None] * len(row)
    for i in range(len(team)):
        at = np.flatnonzero(row == i)
        lines = values[run[at]]
        state = lines[:, list(team.live[i])]
        for e, key in zip(at.tolist(), state.tolist(), strict=True):
            anchor[e] = f"{i}:{key}"
        if i in world.decided:
            odds = np.broadcast_to(
                team.law[i][tuple(lines[:, j] for j in team.causes(i))], (len(at), team.rows[i].arity)
            )
            for e, p, worths in zip(at.tolist(), odds.tolist(), tables.doing(i, lines).tolist(), strict=True):
                pi[e], q[e] = msgspec.json.encode(p).decode(), msgspec.json.encode(worths).decode()
    return {"pi": Text.of(pi), "q": Text.of(q), "anchor": Text.of(anchor)}


class _Sets:
    """The runs of a team, and those with what a kind of method asks for; each made once."""

    def __init__(self, world: Planted, runs: int, seed: int, tries: int) -> None:
        self.world, self.tries = world, tries
        trace, greedy = recorded_trace(world, runs, seed), play(world, _greedy(world), seeds(seed, runs))
        trace = replace(
            trace, reward_n={**trace.reward_n, "greedy": greedy.score, "ema": np.full(runs, _mean(trace))}
        )
        self.runs = trace
        self._made: dict[str, tuple[Trace, float]] = {}

    def of(self, method: Method) -> tuple[Trace, float]:
        """The runs for a method, and how many runs more than the recorded ones they are, for each decision or agent
        of those."""
        if "greedy" in method.needs:
            return self.of(replace(method, needs=()))[0], 1.0
        kind = "plain"
        if "masks" in method.needs:
            kind = "masks"
        elif "branches" in method.needs:
            kind = (
                "options" if method.name.endswith("branching") or method.name == "branching_policy" else "samples"
            )
        if kind not in self._made:
            more = {"plain": self._none, "masks": self._masks, "options": self._options, "samples": self._samples}[
                kind
            ]()
            whole = self.runs if more is None else concat([self.runs, more])
            paid = {"masks": "agent", "plain": "team"}.get(kind, "orchestrator")
            many = 0 if more is None else len(more)
            self._made[kind] = dressed(self.world, whole), many / len(units.rollouts(self.runs, paid))
        return self._made[kind]

    def _none(self) -> Trace | None:
        return None

    def _decisions(self) -> list[tuple[int, list[str]]]:
        rows = units.rows(self.runs, "orchestrator")
        return [(row, self.runs.options(row)) for row in rows.tolist()]

    def _options(self) -> Trace:
        """Every option of every decision, so many times; the run itself is one of them."""
        dos, turn = [], []
        for row, options in self._decisions():
            own = self.runs.chosen_e[row]
            for option in options:
                for k in range(int(option == own), self.tries):
                    dos.append(Do(row, "choose", option))
                    turn.append(k)
        fresh = luck(self.runs, dos, np.array(turn))
        return branch(self.world, self.runs, dos, self.world.behaviour(fresh), fresh)

    def _samples(self) -> Trace:
        """As many alternatives at every decision, drawn from the policy, each with luck of its own."""
        row_e, values = _model(self.world, self.runs)
        dos, turn = [], []
        for row, options in self._decisions():
            i, run = int(row_e[row]), int(self.runs.rollout_e[row])
            p = self.world.model.law[i][tuple(values[run, j] for j in self.world.model.causes(i))]
            u = uniform(seeds(run, 1)[0], i, np.arange(2 * self.tries))
            for k, option in enumerate((u[:, None] >= np.cumsum(p)[:-1]).sum(axis=1).tolist()):
                dos.append(Do(row, "choose", options[option]))
                turn.append(k + 1)
        fresh = luck(self.runs, dos, np.array(turn))
        return branch(self.world, self.runs, dos, self.world.behaviour(fresh), fresh)

    def _masks(self) -> Trace:
        """Every coalition of agents of every run, with the run's own luck."""
        players = tuple(dict.fromkeys(["lead", *(f"agent{a}" for a in range(1, len(self.world.model.spawner)))]))
        dos = ask_coalitions(self.runs, players)
        started = np.array([int(str(self.runs.seed_n[self.runs.rollout_e[do.row]])) for do in dos], np.uint64)
        return branch(self.world, self.runs, dos, self.world.behaviour(started))

    def presence(self, given: Credit) -> F:
        """What each agent adds to the team by being there, over the orders in which nobody comes before who spawned
        it."""
        if given.unit != "agent":
            raise BadCredit(f"presence is worth something of agents, not of {given.unit}")
        number = {"lead": 0} | {f"agent{a}": a for a in range(1, len(self.world.model.spawner))}
        phi = shapley(self.world.model)
        names = given.trace.name_a.strings()
        return np.array([phi[number[str(n)]] if n in number else np.nan for n in names])


def _mean(trace: Trace) -> float:
    return float(np.mean(trace.reward_n["team"]))


def _greedy(world: Planted) -> Any:
    """The likeliest option in every decision."""

    def policy(view: View) -> NDArray[np.int64]:
        i, values = world._record(view)
        p = world.model.law[i][tuple(values[:, j] for j in world.model.causes(i))]
        best: NDArray[np.int64] = np.broadcast_to(p, (len(view), p.shape[-1])).argmax(axis=1)
        return best

    return policy
