"""What every decision of language models was worth, exactly: all that can be decided is played, and the policy's
own probabilities weigh it.

In a planted team whose nature has no chance but the last coin, choices lead to one outcome m, and what is earned on
average is known. So with π the policy's probabilities at every place that choices lead to:

    V(choices) = Σ_x π(x | choices) V(choices, x),    V(all choices) = E[Y],
    A(x | choices) = V(choices, x) - V(choices)

V() is what the policy is worth. Nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.engine.local import engines_of
from podium.engine.models import PolicyTeam
from podium.engine.protocol import Completion, Engine, Request
from podium.envs.draws import U, seeds
from podium.envs.planted import Planted, PlantedParams
from podium.envs.planted_credit import noise_share
from podium.envs.world import BadParameter, play
from podium.learn.lm.text_world import PlaySettings, TextActor

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


class _ByTable:
    """An engine that says what a table has, and how likely the model was to say it."""

    constrained = True

    def __init__(self, engine: Engine, end: int, table: N64, seed: U) -> None:
        self.engine, self.end, self.model, self.version = engine, end, engine.model, engine.version
        self.table = dict(
            zip(seed.tolist(), table.tolist(), strict=True)
        )  # of each episode and decision the option, by place

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """What the table has, of those that are allowed."""
        answers = []
        for request, answer in zip(requests, self.engine.complete(requests), strict=True):
            seed, number = request.address
            k = self.table[seed][number] % len(request.options)
            ids, logp = (*request.options[k], self.end), answer.option_logp[k]
            answers.append(answer._replace(ids=ids, logp=logp, option=k))
        return answers


def exact(world: Planted, team: PolicyTeam, settings: PlaySettings) -> Exact:
    """The tables of a team of language models in a planted team without chance. Raises BadParameter where there is
    some, or too much to decide."""
    if not sure(world):
        raise BadParameter(
            "expected a planted team whose nature has no chance: certain=1.0, values=2 and no messages"
        )
    arity = [world.model.rows[i].arity for i in world.decided]
    if np.prod(arity) > MOST:
        raise BadParameter(f"{int(np.prod(arity))} sequences of choices; {MOST} at most are played")
    table = np.array(list(product(*map(range, arity))), np.int64)
    dice = seeds(0, len(table))
    every = engines_of(team, "0", settings.rows, settings.width, False)
    engines: dict[str, Engine] = {name: _ByTable(one, team.model.end, table, dice) for name, one in every.items()}
    actor = TextActor(world, team, dice, settings, engines=engines)
    state: Any = play(world, actor, dice.copy()).state
    mean = world.model.expected(state.values[:, list(world.model.aggregates)])
    value: dict[Path, float] = {}
    pi: dict[Path, tuple[float, ...]] = {}
    for row, some in enumerate(actor.turns):
        turns = [turn for turn in some if turn is not None]
        path = tuple(int(table[row, k]) % len(turn.answer.option_logp) for k, turn in enumerate(turns))
        value[path] = float(mean[row])
        for k, turn in enumerate(turns):
            pi[path[:k]] = tuple(float(np.exp(sum(odds))) for odds in turn.answer.option_logp)
    for path in sorted(pi, key=len, reverse=True):
        odds = pi[path]
        value[path] = sum(p * value[*path, k] for k, p in enumerate(odds)) / sum(odds)
    return Exact(value, pi)


def sure(world: Planted) -> bool:
    """Whether nothing but decisions and the last coin is left to chance."""
    team = world.model
    return all(i in world.decided or bool((team.law[i].max(axis=-1) > 1 - 1e-9).all()) for i in range(len(team)))


def sure_teams(n: int, agents: int = 2, least: int = 5, noise: float = 0.5) -> list[Planted]:
    """The first planted teams without chance but a coin of this share of the variance, in which there is much to
    decide and something to win."""
    return [world for world, _ in zip(_teams(agents, least, noise), range(n), strict=False)]


def _teams(agents: int, least: int, noise: float) -> Iterator[Planted]:
    for number in count():
        params = {"agents": agents, "depth": 1, "tools": 0, "messages": 0, "aggregates": 1, "values": 2}
        world = Planted(PlantedParams(team=number, certain=1.0, noise=noise, **params))
        fits = sure(world) and len(world.decided) >= least and abs(noise_share(world.model) - noise) < 0.01
        if fits and world.optimum() - world.planned(dict.fromkeys(world.decided, 0)) > 0.2:
            yield world
