"""Every world as a Gymnasium environment, so that other people's learners run on it unchanged. Extra: `gym`.

What the one who decides sees becomes a dictionary: `facts`, `items` (the latest `most_items` of the record, zeros
where there are fewer), `count` (how many there are) and `allowed`. The reward is the score, at the end.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from podium.envs.draws import seeds as episode_seeds
from podium.envs.world import View, World, checked

__all__ = ["GymVectorWorld", "GymWorld", "observation_space_of", "observations_of"]


def observation_space_of(world: World, most_items: int) -> spaces.Dict:
    """The space of what is seen of a view."""
    return spaces.Dict(
        {
            "facts": spaces.Box(-np.inf, np.inf, (len(world.facts),), np.float64),
            "items": spaces.Box(-np.inf, np.inf, (most_items, len(world.items)), np.float64),
            "count": spaces.Box(0, np.inf, (1,), np.float64),
            "allowed": spaces.MultiBinary(len(world.options)),
        }
    )


def observations_of(world: World, view: View, most_items: int) -> dict[str, Any]:
    """What is seen of a view, one row an episode."""
    values, owner = view.items()
    first = np.searchsorted(owner, np.arange(len(view) + 1))
    count = np.diff(first)
    items = np.zeros((len(view), most_items, len(world.items)))
    back = first[1:][owner] - 1 - np.arange(len(owner))  # 0 is the latest
    latest = back < most_items
    items[owner[latest], np.minimum(count[owner[latest]], most_items) - 1 - back[latest]] = np.nan_to_num(
        values[latest]
    )
    return {
        "facts": np.nan_to_num(view.facts),
        "items": items,
        "count": count[:, None].astype(np.float64),
        "allowed": view.allowed.astype(np.int8),
    }


class GymWorld(gymnasium.Env[dict[str, Any], int]):
    """One episode at a time. An option that is not allowed raises, as a mistake of the caller."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, world: World, most_items: int = 64) -> None:
        self.world, self.most_items = world, most_items
        self.observation_space = observation_space_of(world, most_items)
        self.action_space = spaces.Discrete(len(world.options))  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self.world.start(episode_seeds(int(self.np_random.integers(2**62)), 1))
        self._view = self.world.view(self._state)
        assert self._view is not None
        return self._look(self._view), {}

    def _look(self, view: View) -> dict[str, Any]:
        return {k: v[0] for k, v in observations_of(self.world, view, self.most_items).items()}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        assert self._view is not None, "reset first"
        last = self._view
        self.world.act(self._state, last, checked(self.world, last, np.array([int(action)])))
        self._view = self.world.view(self._state)
        if self._view is None:
            return self._look(last), float(self._state.score[0]), True, False, {}
        return self._look(self._view), 0.0, False, False, {}


class GymVectorWorld(gymnasium.vector.VectorEnv[dict[str, Any], Any, Any]):
    """Many episodes at once over the batch simulator; one that ends begins anew at the next step."""

    metadata: dict[str, Any] = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, world: World, num_envs: int, most_items: int = 64) -> None:
        self.world, self.num_envs, self.most_items = world, num_envs, most_items
        self.single_observation_space = observation_space_of(world, most_items)
        self.single_action_space = spaces.Discrete(len(world.options))
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._seed, self._started = 0, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self._seed, self._started = int(seed or 0), 0
        size = 1 if self.world.lockstep else self.num_envs
        self._batches = [self._begin(size) for _ in range(self.num_envs // size)]
        return self._look(), {}

    def _begin(self, n: int) -> Any:
        state = self.world.start(episode_seeds(self._seed, n, self._started))
        self._started += n
        return state

    def _look(self) -> dict[str, Any]:
        """What all see; those who decide different kinds of things have different views."""
        self._views = [_all_views(self.world, state) for state in self._batches]
        shapes = []
        for views in self._views:
            rows = np.argsort(np.concatenate([v.row for v in views]))
            parts = [observations_of(self.world, v, self.most_items) for v in views]
            shapes.append({k: np.concatenate([p[k] for p in parts])[rows] for k in parts[0]})
        return {k: np.concatenate([s[k] for s in shapes]) for k in shapes[0]}

    def step(self, actions: Any) -> Any:
        rewards, ends = [], []
        for i, (state, views) in enumerate(zip(self._batches, self._views, strict=True)):
            mine = np.asarray(actions)[i * len(state.seed) :]
            for view in views:
                self.world.act(state, view, checked(self.world, view, mine[view.row]))
            ended = np.array([self.world.view(state) is None]) if self.world.lockstep else ~state.open
            rewards.append(np.where(ended, state.score, 0.0))
            ends.append(ended)
            if self.world.lockstep and ended.all():
                self._batches[i] = self._begin(1)
            elif ended.any():
                _graft(state, np.flatnonzero(ended), self._begin(int(ended.sum())))
        return self._look(), np.concatenate(rewards), np.concatenate(ends), np.zeros(self.num_envs, np.bool_), {}


def _all_views(world: World, state: Any) -> list[View]:
    """The views of all open episodes, whatever each has to decide."""
    if world.lockstep:
        view = world.view(state)
        return [] if view is None else [view]
    views, was_open = [], state.open
    state.open = was_open.copy()
    while (view := world.view(state)) is not None:
        views.append(view)
        state.open[view.row] = False
    state.open = was_open
    return views


def _graft(state: Any, rows: Any, fresh: Any) -> None:
    """Puts fresh episodes into some rows of a state."""
    n, m = len(state.seed), len(rows)
    for name in (f.name for f in dataclasses.fields(state)):
        old, new = getattr(state, name), getattr(fresh, name)
        if not isinstance(old, np.ndarray) or len(old) != n or len(new) != m:
            continue
        if old.ndim > 1 and old.shape[1:] != new.shape[1:]:  # records that grow with the episode
            shape = tuple(map(max, old.shape[1:], new.shape[1:]))
            old, new = _widened(old, shape), _widened(new, shape)
        old = np.array(old)
        old[rows] = new
        setattr(state, name, old)


def _widened(values: Any, shape: tuple[int, ...]) -> Any:
    wide = np.full(
        (len(values), *shape),
        np.nan if values.dtype.kind == "f" else -1 if values.dtype.kind == "i" else 0,
        values.dtype,
    )
    wide[(slice(None), *(slice(0, k) for k in values.shape[1:]))] = values
    return wide
