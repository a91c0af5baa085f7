"""What every decision of language models was worth, exactly: all that can be decided is played, and the policy's own probabilities weigh it.

In a planted team whose nature has no chance but the last coin, choices lead to one outcome m, and what is earned on average is known. So with π the policy's
probabilities at every place that choices lead to:

    V(choices) = Σ_x π(x | choices) V(choices, x),    V(all choices) = E[Y],    A(x | choices) = V(choices, x) - V(choices)

V() is what the policy is worth. Nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import seeds
from podium.envs.planted import Planted, PlantedParams
from podium.envs.planted_credit import noise_share
from podium.envs.world import BadParameter, View, play
from podium.engine.models import PolicyModel, PolicyTeam
from podium.learn.lm.play import Manner, Talk, Turn, _forced
from podium.engine.reader import Reader
from podium.trace.columns import F

__all__ = ["Exact", "exact", "sure_teams"]

N64 = NDArray[np.int64]
Path = tuple[int, ...]
MOST = 4096  # sequences of choices that are played


class Exact(NamedTuple):
    """The tables, by the choices made so far."""

    value: dict[Path, float]
    pi: dict[Path, tuple[float, ...]]

    @property
    def start(self) -> float:
        """What the policy is worth."""
        return self.value[()]

    def credit(self, before: Path, choice: int) -> float:
        return self.value[*before, choice] - self.value[before]


class _Told(Talk):
    """A talk in which everybody says what a table has, and what each option was worth saying is on record."""

    table: N64  # [episode, decision]: the place of an option among those allowed

    def _constrained(
        self, view: View, policy: PolicyModel, reader: Reader, first: Any, number: N64, turns: list[Turn]
    ) -> tuple[N64, F]:
        chosen, logp = super()._constrained(view, policy, reader, first, number, turns)
        for i, row in enumerate(view.row.tolist()):
            turn = self.turns[row][-1]
            assert turn is not None
            allowed = np.flatnonzero(view.allowed[i])
            k = int(self.table[row, number[i]]) % len(allowed)
            chosen[i], logp[i] = allowed[k], sum(turn.ways[k])
            self.turns[row][-1] = _forced(turn, policy, self.world.options[int(allowed[k])])
        return chosen, logp


def exact(world: Planted, policy_team: PolicyTeam, manner: Manner) -> Exact:
    """The tables of a team of language models in a planted team without chance. Raises BadParameter where there is some, or too much to decide."""
    if not sure(world):
        raise BadParameter(
            "expected a planted team whose nature has no chance: certain=1.0, values=2 and no messages"
        )
    arity = [world.model.rows[i].arity for i in world.decided]
    if np.prod(arity) > MOST:
        raise BadParameter(f"{int(np.prod(arity))} sequences of choices; {MOST} at most are played")
    table = np.array(list(product(*map(range, arity))), np.int64)
    dice = seeds(0, len(table))
    talk = _Told(world, policy_team, dice, manner)
    talk.table = table
    state: Any = play(world, talk, dice.copy()).state
    mean = world.model.expected(state.values[:, list(world.model.aggregates)])
    value: dict[Path, float] = {}
    pi: dict[Path, tuple[float, ...]] = {}
    for row, made in enumerate(talk.turns):
        turns = [turn for turn in made if turn is not None]
        said = tuple(int(table[row, k]) % len(turn.ways) for k, turn in enumerate(turns))
        value[said] = float(mean[row])
        for k, turn in enumerate(turns):
            pi[said[:k]] = tuple(float(np.exp(sum(some))) for some in turn.ways)
    for path in sorted(pi, key=len, reverse=True):
        odds = pi[path]
        value[path] = sum(p * value[*path, k] for k, p in enumerate(odds)) / sum(odds)
    return Exact(value, pi)


def sure(world: Planted) -> bool:
    """Whether nothing but decisions and the last coin is left to chance."""
    policy_team = world.model
    return all(i in world.decided or bool((policy_team.law[i].max(axis=-1) > 1 - 1e-9).all()) for i in range(len(policy_team)))


def sure_teams(n: int, agents: int = 2, least: int = 5, noise: float = 0.5) -> list[Planted]:
    """The first planted teams without chance but a coin of this share of the variance, in which there is much to decide and something to win."""
    return [world for world, _ in zip(_teams(agents, least, noise), range(n), strict=False)]


def _teams(agents: int, least: int, noise: float) -> Iterator[Planted]:
    for number in count():
        params = {"agents": agents, "depth": 1, "tools": 0, "messages": 0, "aggregates": 1, "values": 2}
        world = Planted(PlantedParams(policy_team=number, certain=1.0, noise=noise, **params))
        fits = sure(world) and len(world.decided) >= least and abs(noise_share(world.model) - noise) < 0.01
        if fits and world.optimum() - world.planned(dict.fromkeys(world.decided, 0)) > 0.2:
            yield world
