"""What runs in the peer's interpreter: stable-baselines3's PPO, or sb3-contrib's MaskablePPO, over Podium's batch simulator.

    .peers-sb3/bin/python -m bench.sb3_side JSON OUT.npz

JSON says world, seconds, seed and settings (`bench/sb3.py`). The clock starts here, after the imports, and runs until the peer is asked for
its next step. OUT holds the weights, the running mean and variance of observations, steps and seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from bench.sb3 import MOST_DECISIONS, MOST_OPTIONS, Settings, items_seen, legal, observed
from podium.envs.draws import seeds
from podium.envs.gym import _all_views
from podium.envs.world import View, World
from podium.learn.params import training

EPISODES = 64  # of one world with the same parameters, then there is another


@dataclass
class Batch:
    """Episodes of one world under way; those that wait for a place are closed until they have it."""

    world: World
    state: Any
    place: np.ndarray  # of each episode: which of the environments plays it, -1 if none does
    made: np.ndarray  # its decisions
    begun: int = 0
    views: list[View] | None = None


class Worlds(VecEnv):
    """Environments over the batch simulator. An episode that ends makes place for the next, every 64 in a world with new parameters."""

    def __init__(self, name: str, n_envs: int, most_items: int, seed: int) -> None:
        self.name, self.seed_, self.most_items, self.number = name, seed, most_items, 0
        self.live: list[Batch] = []
        self.newest = self._world()
        facts, items = len(self.newest.world.facts), len(self.newest.world.items)
        shape = (facts + most_items * items + 1 + MOST_OPTIONS[name],)
        super().__init__(
            n_envs, spaces.Box(-np.inf, np.inf, shape, np.float32), spaces.Discrete(MOST_OPTIONS[name])
        )
        self.infos: list[dict[str, Any]] = [{} for _ in range(n_envs)]

    def _world(self) -> Batch:
        world = training(self.name, self.seed_, 0, self.number)
        state = world.start(seeds(self.seed_, EPISODES, self.number * EPISODES))
        self.number += 1
        state.open[:] = False
        return Batch(world, state, np.full(EPISODES, -1), np.zeros(EPISODES, np.int64))

    def _begin(self, place: int) -> None:
        """The next episode takes a place."""
        if self.newest.begun == EPISODES:
            self.newest = self._world()
        batch, row = self.newest, self.newest.begun
        if not row:
            self.live.append(batch)
        batch.begun += 1
        batch.place[row], batch.state.open[row] = place, True

    def _look(self) -> np.ndarray:
        seen = np.zeros((self.num_envs, *self.observation_space.shape), np.float32)
        self.allowed = np.zeros((self.num_envs, MOST_OPTIONS[self.name]), np.bool_)
        for batch in self.live:
            batch.views = _all_views(batch.world, batch.state)
            for view in batch.views:
                place = batch.place[view.row]
                seen[place] = observed(batch.world, view, self.most_items, MOST_OPTIONS[self.name])
                self.allowed[place, : view.allowed.shape[1]] = view.allowed
        return seen

    def reset(self) -> np.ndarray:
        self.live, self.newest = [], self._world()
        for place in range(self.num_envs):
            self._begin(place)
        return self._look()

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        reward, done = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, np.bool_)
        for batch in self.live:
            for view in batch.views or ():
                batch.made[view.row] += 1
                chosen = legal(self.actions[batch.place[view.row]], view.allowed)
                batch.world.act(batch.state, view, _home(batch, view, chosen))
            ended = np.flatnonzero((batch.place >= 0) & ~batch.state.open)
            place = batch.place[ended]
            reward[place], done[place] = batch.state.score[ended], True
            batch.place[ended] = -1
        self.live = [batch for batch in self.live if (batch.place >= 0).any() or batch is self.newest]
        for place in np.flatnonzero(done).tolist():
            self._begin(place)
        return self._look(), reward, done, self.infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **more: Any) -> list[Any]:
        assert method_name == "action_masks", method_name
        return list(self.allowed)

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(attr_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def close(self) -> None:
        pass


def _home(batch: Batch, view: View, chosen: np.ndarray) -> np.ndarray:
    """After so many decisions an episode stops where it may."""
    late = batch.made[view.row] > MOST_DECISIONS
    if not late.any() or "stop" not in batch.world.options:
        return chosen
    home = batch.world.options.index("stop")
    return np.where(late & view.allowed[:, home], home, chosen)


class Until(BaseCallback):
    """Ends learning when time is up."""

    def __init__(self, over: Callable[[], bool]) -> None:
        super().__init__()
        self.over = over

    def _on_step(self) -> bool:
        return not self.over()


def learned(name: str, seconds: float, seed: int, settings: Settings) -> dict[str, np.ndarray]:
    """Lets the peer learn for some seconds; its weights, and what its own network makes of some observations."""
    torch.set_num_threads(settings.threads)
    PPO("MlpPolicy", Worlds(name, 2, 1, 0), n_steps=2, batch_size=4, n_epochs=1, device="cpu").learn(
        4
    )  # torch imports more at first use
    clock = process_time if settings.cpu else perf_counter
    start = clock()
    env: Any = Worlds(name, settings.n_envs, items_seen(name, settings), seed)
    if settings.normalise or settings.rewards:
        env = VecNormalize(env, norm_obs=settings.normalise, norm_reward=settings.rewards, gamma=settings.gamma)

    def left() -> float:
        return max(0.0, 1.0 - (clock() - start) / seconds)

    rate = settings.learning_rate
    model = (MaskablePPO if settings.masked else PPO)(
        "MlpPolicy",
        env,
        n_steps=settings.n_steps,
        batch_size=settings.batch_size,
        n_epochs=settings.n_epochs,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        learning_rate=(lambda _: rate * left()) if settings.linear else rate,
        ent_coef=settings.ent_coef,
        policy_kwargs={"net_arch": [settings.width, settings.width]},
        seed=seed,
        device="cpu",
    )
    model.learn(10**12, callback=Until(lambda: left() == 0.0))
    took = clock() - start
    return {"steps": np.array(model.num_timesteps), "seconds": np.array(took)} | weights(model, env)


def weights(model: Any, env: Any) -> dict[str, np.ndarray]:
    """Layers of the policy, how it normalises, and a probe: raw observations with the scores that the peer's own network gives."""
    policy = model.policy
    layers = [m for m in policy.mlp_extractor.policy_net if isinstance(m, torch.nn.Linear)] + [policy.action_net]
    found = {
        f"{kind}{i}": getattr(m, long).detach().numpy()
        for i, m in enumerate(layers)
        for kind, long in (("w", "weight"), ("b", "bias"))
    }
    probe = env.unwrapped._look() if isinstance(env, VecNormalize) else env._look()
    seen = probe
    if isinstance(env, VecNormalize) and env.norm_obs:
        found |= {"mean": env.obs_rms.mean, "var": env.obs_rms.var}
        seen = env.normalize_obs(probe)
    with torch.no_grad():
        scores = policy.action_net(
            policy.mlp_extractor.forward_actor(policy.extract_features(torch.as_tensor(seen)))
        )
    return found | {"probe": probe, "probe_scores": scores.numpy()}


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    settings = Settings(**told.pop("settings"))
    np.savez(sys.argv[2], **learned(**told, settings=settings))
