"""Other people's learners see the same world."""

from __future__ import annotations

import numpy as np
import pytest

from podium.envs.world import make, worlds

gymnasium = pytest.importorskip("gymnasium")


@pytest.mark.filterwarnings("ignore:.*Box observation space.*")
@pytest.mark.parametrize("name", worlds())
def test_a_world_passes_gymnasiums_own_checker(name: str) -> None:
    from gymnasium.utils.env_checker import check_env

    from podium.envs.gym import GymWorld

    class Masked(GymWorld):
        """The checker draws any action; take the first allowed one instead of one that is not."""

        def step(self, action):  # type: ignore[no-untyped-def]
            allowed = self._view.allowed[0]  # type: ignore[union-attr]
            return super().step(action if allowed[action] else int(np.argmax(allowed)))

    check_env(Masked(make(name)), skip_render_check=True)


def test_many_at_once_are_the_same_episodes() -> None:
    from podium.envs.gym import GymVectorWorld

    world = make("costly_search")
    many = GymVectorWorld(world, 5)
    seen, _ = many.reset(seed=3)
    assert {k: v.shape[0] for k, v in seen.items()} == dict.fromkeys(seen, 5)
    scores = []
    for _ in range(40):
        best = seen["items"].max(axis=(1, 2))
        seen, reward, ended, cut, _ = many.step(np.where(best < 0.8, 1, 0))
        assert not cut.any()
        scores += reward[ended].tolist()
    assert len(scores) > 20
    assert 0.6 < np.mean(scores) < 1.0


@pytest.mark.parametrize("name", worlds())
def test_the_vector_plays_whole_episodes_of_every_world(name: str) -> None:
    from podium.envs.gym import GymVectorWorld

    world = make(name)
    many = GymVectorWorld(world, 8)
    seen, _ = many.reset(seed=1)
    ended = 0
    for step in range(300):
        seen, _reward, done, _, _ = many.step(
            np.argmax(seen["allowed"] * np.random.default_rng(step).random(seen["allowed"].shape), 1)
        )
        ended += int(done.sum())
    assert ended >= 8
