"""PettingZoo: worlds in which several agents decide, one after the other (AEC) or a round at a time (parallel).

    from podium.exchange.trainers.pettingzoo import aec, parallel
    env = parallel(podium.make("relay"))

Every agent sees what `podium.envs.gym` shows (facts, items, count, allowed), earns the team's score at the end and
nothing before. For stable-baselines3 take `podium.envs.gym.GymWorld`, or `flat(world)`, which has one vector for
its policies and takes any number as the option of that place among those allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from podium.envs.draws import seeds
from podium.envs.world import View, World, checked
from podium.errors import WrongUse

__all__ = ["BadAgent", "aec", "agents_of", "flat", "parallel"]

TRIED = 20  # episodes by dice in which agents are looked for


class BadAgent(WrongUse, ValueError):
    """An agent that an environment was not told of, or an action of one whose turn it is not."""


def agents_of(world: World) -> list[str]:
    """Who decides in a world: the names seen in some episodes played at random, in the order they come."""
    names: dict[str, None] = {}
    dice = np.random.default_rng(0)
    state = world.start(seeds(0, 1 if world.lockstep else TRIED))
    for _ in range(TRIED if world.lockstep else 1):
        while (view := world.view(state)) is not None:
            names[view.agent] = None
            chosen = np.array([dice.choice(np.flatnonzero(row)) for row in view.allowed])
            world.act(state, view, chosen)
        state = world.start(seeds(int(dice.integers(1 << 40)), 1))
    return list(names)


class _Game:
    """One episode, as both kinds of environment play it."""

    def __init__(self, world: World, agents: Sequence[str] | None, most_items: int) -> None:
        from gymnasium import spaces

        from podium.envs.gym import observation_space_of

        self.world, self.most_items = world, most_items
        self.names = list(agents) if agents else agents_of(world)
        self.space = observation_space_of(world, most_items)
        self.actions = spaces.Discrete(len(world.options))
        self.blank = {name: np.zeros(s.shape or (), s.dtype) for name, s in self.space.spaces.items()}
        self.fresh = np.random.default_rng()

    def begin(self, seed: int | None) -> None:
        if seed is not None:
            self.fresh = np.random.default_rng(seed)
        self.state = self.world.start(seeds(int(self.fresh.integers(2**62)), 1))
        self.look()

    def look(self) -> None:
        self.view: View | None = self.world.view(self.state)
        if self.view is not None and self.view.agent not in self.names:
            raise BadAgent(f"the agent {self.view.agent!r} decides, expected one of {', '.join(self.names)}")

    def act(self, action: Any) -> None:
        assert self.view is not None
        self.world.act(self.state, self.view, checked(self.world, self.view, np.array([int(action)])))
        self.look()

    def observed(self, agent: str) -> dict[str, Any]:
        """What an agent sees: nothing while another decides."""
        from podium.envs.gym import observations_of

        if self.view is None or self.view.agent != agent:
            return {name: value.copy() for name, value in self.blank.items()}
        return {k: v[0] for k, v in observations_of(self.world, self.view, self.most_items).items()}

    @property
    def score(self) -> float:
        return float(self.state.score[0])


def aec(world: World, agents: Sequence[str] | None = None, most_items: int = 64) -> Any:
    """The world as an AECEnv: who decides next is the agent selected."""
    from pettingzoo import AECEnv

    game = _Game(world, agents, most_items)

    class PodiumAEC(AECEnv):  # type: ignore[misc]
        metadata: dict[str, Any] = {  # noqa: RUF012
            "name": world.name,
            "render_modes": [],
            "is_parallelizable": False,
        }

        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = list(game.names)
            self.observation_spaces = dict.fromkeys(game.names, game.space)
            self.action_spaces = dict.fromkeys(game.names, game.actions)
            self.render_mode = None

        def observation_space(self, agent: str) -> Any:
            return self.observation_spaces[agent]

        def action_space(self, agent: str) -> Any:
            return self.action_spaces[agent]

        def observe(self, agent: str) -> dict[str, Any]:
            return game.observed(agent)

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            game.begin(seed)
            self.agents = list(game.names)
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
            self.terminations = dict.fromkeys(self.agents, False)
            self.truncations = dict.fromkeys(self.agents, False)
            self._choose()

        def _choose(self) -> None:
            """Selects who decides, and says by the mask what is allowed."""
            if game.view is not None:
                self.agent_selection = game.view.agent
            masks = {name: game.observed(name)["allowed"].astype(np.int8) for name in self.agents}
            self.infos = {name: {"action_mask": mask} for name, mask in masks.items()}

        def step(self, action: Any) -> None:
            agent = self.agent_selection
            if self.terminations[agent] or self.truncations[agent]:
                self._was_dead_step(action)
                return
            self._cumulative_rewards[agent] = 0.0
            game.act(action)
            self._clear_rewards()
            if game.view is None:
                self.rewards = dict.fromkeys(self.agents, game.score)
                self.terminations = dict.fromkeys(self.agents, True)
            self._choose()
            self._accumulate_rewards()

    return PodiumAEC()


def parallel(world: World, agents: Sequence[str] | None = None, most_items: int = 64) -> Any:
    """The world as a ParallelEnv: of the actions of a step only that of the agent whose turn it is counts.

    An observation has the key `action_mask` beside those of `podium.envs.gym`; while another decides, all is
    allowed."""
    from pettingzoo import ParallelEnv

    game = _Game(world, agents, most_items)

    class PodiumParallel(ParallelEnv):  # type: ignore[misc]
        metadata: dict[str, Any] = {"name": world.name, "render_modes": []}  # noqa: RUF012

        def __init__(self) -> None:
            self.possible_agents = list(game.names)
            self.agents = list(game.names)
            self.space = type(game.space)({**game.space.spaces, "action_mask": game.space.spaces["allowed"]})
            self.render_mode = None

        def observation_space(self, agent: str) -> Any:
            return self.space

        def action_space(self, agent: str) -> Any:
            return game.actions

        def _seen(self) -> tuple[dict[str, Any], dict[str, Any]]:
            views = {name: game.observed(name) for name in self.agents}
            for view in views.values():
                mask = view["allowed"].astype(np.int8)
                view["action_mask"] = mask if mask.any() else np.ones_like(mask)
            return views, {name: {"action_mask": view["action_mask"]} for name, view in views.items()}

        def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
            self.agents = list(game.names)
            game.begin(seed)
            return self._seen()

        def step(self, actions: dict[str, Any]) -> Any:
            assert game.view is not None, "reset first"
            turn = game.view.agent
            if turn not in actions:
                raise BadAgent(
                    f"it is the turn of {turn!r}, who has no action among {', '.join(actions) or 'none'}"
                )
            game.act(actions[turn])
            over = game.view is None
            views, infos = self._seen()
            rewards = dict.fromkeys(self.agents, game.score if over else 0.0)
            ended, cut = dict.fromkeys(self.agents, over), dict.fromkeys(self.agents, False)
            if over:
                self.agents = []
            return views, rewards, ended, cut, infos

    return PodiumParallel()


def flat(world: World, most_items: int = 16) -> Any:
    """A world for stable-baselines3 as it is: one vector seen; action a is the (a mod k)-th of the k options
    allowed."""
    import gymnasium

    from podium.envs.gym import GymWorld

    class ByPlace(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **options: Any) -> Any:
            self.view, info = self.env.reset(**options)
            return self.view, info

        def step(self, action: Any) -> Any:
            allowed = np.flatnonzero(self.view["allowed"])
            self.view, *rest = self.env.step(int(allowed[int(action) % len(allowed)]))
            return self.view, *rest

    return gymnasium.wrappers.FlattenObservation(ByPlace(GymWorld(world, most_items)))
