"""Worlds for PettingZoo: the episode that a wrapper plays. PettingZoo's own checks run in `bench.trainer_rows --full`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import podium
from podium.exchange.trainers.pettingzoo import BadAgent, aec, agents_of, flat, parallel


@pytest.fixture(autouse=True)
def _pettingzoo(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the wrappers need of PettingZoo: two base classes."""
    pytest.importorskip("gymnasium")

    class AECEnv:
        def _clear_rewards(self: Any) -> None:
            self.rewards = dict.fromkeys(self.rewards, 0.0)

        def _accumulate_rewards(self: Any) -> None:
            for agent, reward in self.rewards.items():
                self._cumulative_rewards[agent] += reward

    module = ModuleType("pettingzoo")
    module.AECEnv, module.ParallelEnv = AECEnv, type("ParallelEnv", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pettingzoo", module)


def test_who_decides_is_found_by_playing() -> None:
    world = podium.make("relay")
    assert agents_of(world) == [*world.mates, "lead"]  # type: ignore[attr-defined]
    assert agents_of(podium.make("scouts")) == ["lead"]


def test_both_wrappers_play_the_same_episode() -> None:
    world = podium.make("relay")
    one, two = aec(world), parallel(world)
    one.reset(seed=4)
    views, infos = two.reset(seed=4)
    steps, rewards = 0, {}
    while two.agents:
        agent = one.agent_selection
        allowed = np.flatnonzero(one.infos[agent]["action_mask"])
        assert np.flatnonzero(infos[agent]["action_mask"]).tolist() == allowed.tolist()
        for name, value in one.observe(agent).items():
            np.testing.assert_array_equal(views[agent][name], value)
        one.step(allowed[-1])
        views, rewards, ended, _, infos = two.step(dict.fromkeys(two.agents, allowed[-1]))
        steps += 1
    assert steps > 2
    assert all(ended.values())
    assert all(one.terminations.values())
    assert one.rewards == rewards
    assert len(set(rewards.values())) == 1


def test_an_agent_that_nobody_spoke_of_and_a_missing_action_are_refused() -> None:
    world = podium.make("relay")
    with pytest.raises(BadAgent, match="decides, expected one of lead"):
        aec(world, agents=["lead"]).reset(seed=0)
    env = parallel(world)
    env.reset(seed=0)
    with pytest.raises(BadAgent, match="who has no action among none"):
        env.step({})


def test_any_number_is_an_option_by_its_place() -> None:
    env = flat(podium.make("costly_search"))
    view, _ = env.reset(seed=0)
    assert view.shape == env.observation_space.shape
    over, steps = False, 0
    while not over:
        _, _, over, _, _ = env.step(steps % 7)
        steps += 1
    assert steps >= 1
