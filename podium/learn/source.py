"""Worlds as a source of rollouts for the small network: episodes, and branches of their decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.envs.draws import U, seeds
from podium.envs.world import World
from podium.learn.collect import Branching, Collected, Observed, collect, collect_decisions
from podium.learn.loop import Iteration, Keep, Rollouts, learn
from podium.learn.policy import Net, Parameters
from podium.learn.regimes import acting, learners
from podium.learn.requirements import branching
from podium.learn.train import NetPolicy, Recipe
from podium.methods import Method, named

__all__ = ["OURS", "Mapped", "WorldSource", "Worlds", "iterations"]

APART = 1 << 32  # of the first episodes of worlds whose number of episodes is not known
OURS = "branching_policy"  # the method whose decisions are branched by doubt unless told otherwise

Worlds = Callable[[int, int], World]  # by iteration and number
Mapped = Callable[..., Iterable[Any]]  # map, or a pool's


@dataclass(frozen=True)
class _Order:
    """Episodes to play: what one call of `collect` is given."""

    world: World
    net: Net
    w: Parameters
    seed: int
    first: int  # the number of the first episode
    n: int
    branching: Branching
    task: str
    decisions: float | None  # to make in place of n episodes; None: those

    def carry_out(self) -> Collected:
        if self.decisions is not None:
            return collect_decisions(
                self.world, self.net, self.w, self.dice, self.branching, self.task, self.decisions
            )
        return collect(self.world, self.net, self.w, self.dice(self.n), self.branching, self.task)

    def dice(self, n: int, after: int = 0) -> U:
        return seeds(self.seed, n, self.first + after)


@dataclass(frozen=True)
class WorldSource:
    """Episodes of a method in worlds drawn by iteration and number.

    `by_doubt`: as many decisions are branched as the recipe has `rows`, by how undecided the policy is, and all
    that was tried there is learned from. Else `episodes` episodes are played, branches counted, and for methods
    that need branches the share `branched` of all decisions is branched. With `decisions` in the recipe either
    plays on until so many were made: an even part of those that are left, among the iterations that are left.
    `mapped` may be a pool's, to play on several cores: the result is the same.
    """

    worlds: Worlds
    method: Method
    by_doubt: bool
    mapped: Mapped = map

    def rollouts(self, policy: NetPolicy) -> list[Rollouts]:
        """The episodes of the next iteration. Those of one world are runs of one task."""
        orders = self._by_doubt(policy) if self.by_doubt else self._alike(policy)
        done = list(self.mapped(_Order.carry_out, orders))
        return [_rollouts(one, self.by_doubt) for one in done]

    def _by_doubt(self, policy: NetPolicy) -> list[_Order]:
        """As many episodes as should give the decisions wanted."""
        recipe, old, net = policy.recipe, policy.learner, policy.net
        rows = round(recipe.rows * np.sqrt(len(net.kinds)) * (recipe.shorter if net.stretches else 1.0))
        each = int(np.clip(rows / recipe.worlds / old.branched, 64, rows))
        orders = []
        for number in range(recipe.worlds):
            world = self.worlds(old.iteration, number)
            how = Branching(
                share=recipe.spread / old.doubt,
                tries=recipe.tries,
                most=recipe.most,
                room=0
                if recipe.decisions
                else int(1.3 * rows / recipe.worlds) * min(recipe.tries, len(world.options)),
                sharp=recipe.sharp,
                wander=recipe.wander,
                roles=learners(recipe, net.roles, old.iteration, old.memory),
                whole=recipe.whole,
            )
            orders.append(_order(policy, world, number, each, each, how))
        return orders

    def _alike(self, policy: NetPolicy) -> list[_Order]:
        """As many episodes and branches in all as the recipe allows."""
        recipe, old = policy.recipe, policy.learner
        each, orders = recipe.episodes // recipe.worlds, []
        for number in range(recipe.worlds):
            world, plain = self.worlds(old.iteration, number), _plain(recipe)
            n, share = each, branching(self.method, recipe.branched)
            if share and recipe.decisions:
                plain = _plain(recipe, share=share, room=0, tries=len(world.options))
            elif share:
                pilot = _order(policy, world, number, max(2, each // 20), each, plain).carry_out()
                others = sum(int(d.seen.start[-1]) - len(d.row) for d in pilot.decisions) / len(pilot.score)
                n = max(2, int(each / (1 + share * others)))
                room = int(4 * n * share * others) + 256
                plain = _plain(recipe, share=share, room=room, tries=len(world.options))
            orders.append(_order(policy, world, number, n, each, plain))
        return orders


def iterations(
    policy: NetPolicy,
    worlds: Worlds,
    method: Method | str = OURS,
    by_doubt: bool | None = None,
    mapped: Mapped = map,
    last: int | None = None,
    keep: Keep | None = None,
) -> Iterator[Iteration]:
    """Learns by a method in worlds, from where the policy is to the end of its recipe or the last iteration."""
    row = named(method) if isinstance(method, str) else method
    policy.recipe = policy.recipe.scheduled(row)
    source = WorldSource(worlds, row, row.name == OURS if by_doubt is None else by_doubt, mapped)
    return learn(source, policy, row, policy.recipe.rule(row), policy.recipe.iterations, keep, last)


def _plain(recipe: Recipe, share: float = 0.0, room: int = 1, tries: int = 2) -> Branching:
    return Branching(share=share, alike=True, tries=tries, most=recipe.most, room=room)


def _order(policy: NetPolicy, world: World, number: int, n: int, each: int, how: Branching) -> _Order:
    recipe, old = policy.recipe, policy.learner
    w = acting(recipe, old.w, old.memory)
    seed, task = old.seed * 1_000_003 + old.iteration, f"{world.name} {old.iteration}.{number}"
    left = max(0, recipe.decisions * recipe.iterations - old.spent) / (recipe.iterations - old.iteration)
    first = number * (APART if recipe.decisions else each)
    return _Order(
        world, policy.net, w, seed, first, n, how, task, left / recipe.worlds if recipe.decisions else None
    )


def _rollouts(one: Collected, by_doubt: bool) -> Rollouts:
    assert one.forest is not None
    observed = Observed(one.decisions, one.episodes, one.doubt if by_doubt else None, one.ends)
    rows = np.concatenate([np.zeros(0, np.int64), *(d.row for d in one.decisions)])
    return Rollouts(one.forest, observed, one.score, one.made, one.mix, rows)
