"""The peer of the learner: what it sees, what its actions mean, how both sides are judged. Where it is installed, that it learns."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import peers, sb3
from podium.envs.draws import seeds
from podium.envs.gym import GymVectorWorld
from podium.envs.world import World, make, play
from podium.learn.params import training

installed = pytest.mark.skipif(
    not peers.ready(sb3.FOLDER, sb3.NEEDED, ()),
    reason="stable-baselines3 is not there; prepare it with: python -m bench.sb3 --try jury 1",
)


def test_an_action_that_is_not_allowed_means_one_that_is() -> None:
    allowed = np.array([[True, True, True, False, False], [False, False, False, True, True]])
    told = [sb3.legal(np.full(2, a), allowed).tolist() for a in range(6)]
    assert told == [[0, 3], [1, 4], [2, 3], [0, 3], [1, 4], [2, 4]]


@pytest.mark.parametrize("name", sorted(sb3.MOST_OPTIONS))
def test_it_sees_the_gym_face(name: str) -> None:
    world = training(name, 0, 0, 0)
    face, items = GymVectorWorld(world, 5, 14).reset(seed=3)[0], 14
    view = world.view(world.start(seeds(3, 5)))
    assert view is not None
    seen = sb3.observed(world, view, items, sb3.MOST_OPTIONS[name])
    parts = [face["facts"], face["items"].reshape(5, -1), face["count"], face["allowed"]]
    flat = np.concatenate(parts, 1).astype(np.float32)
    np.testing.assert_array_equal(seen[:, : flat.shape[1]], flat)
    assert not seen[:, flat.shape[1] :].any()
    assert seen.shape[1] == flat.shape[1] - len(world.options) + sb3.MOST_OPTIONS[name]


@pytest.mark.parametrize("name", sorted(sb3.MOST_OPTIONS))
def test_no_world_has_more_than_there_is_place_for(name: str) -> None:
    for world in [training(name, 1, 0, i) for i in range(50)] + [sb3.held_out(name, i) for i in range(50)]:
        assert len(world.options) <= sb3.MOST_OPTIONS[name]
        view = world.view(world.start(seeds(0, 1)))
        assert view is not None
        if name in ("crew", "jury"):
            assert len(view.items()[0]) <= sb3.MOST_ITEMS[name]


def test_its_network_by_hand() -> None:
    weights = {
        "mean": np.array([1.0, 0.0]),
        "var": np.array([4.0, 1.0]),
        "w0": np.eye(2, dtype=np.float32),
        "b0": np.zeros(2, np.float32),
        "w1": np.array([[1.0, 0.0], [0.0, 2.0]], np.float32),
        "b1": np.array([0.5, 0.0], np.float32),
    }
    scores = sb3.network(weights, np.array([[3.0, 99.0]], np.float32))
    np.testing.assert_allclose(scores, [[np.tanh(1.0) + 0.5, 2 * np.tanh(10.0)]], rtol=1e-6)


def test_optimal_play_has_no_regret_and_trivial_play_the_whole_gap() -> None:
    def optimal(world: World) -> sb3.Policy:
        return world.optimal()

    def cap(world: World) -> sb3.Policy:
        return list(world.trivial().values())[-1]

    assert sb3.regret("costly_search", optimal, worlds=2, episodes=500) == (0.0, 0.0, 0.0)
    trivial = sb3.regret("costly_search", cap, worlds=2, episodes=500)
    assert trivial.share == pytest.approx(1.0)
    assert trivial.regret > 0.05


def test_a_team_of_relay_is_judged_exactly() -> None:
    for number in range(2):
        world, best, _, _ = sb3.judged("relay", True, number, 20_000)
        played = play(world, world.optimal(), seeds(0, 20_000))
        assert sb3.relay_value(world, played.state) == pytest.approx(best, abs=1e-4)
        brief = play(world, world.trivial()["all brief"], seeds(0, 20_000))
        error = brief.score.std() / np.sqrt(20_000)
        assert abs(sb3.relay_value(world, brief.state) - brief.score.mean()) < 4 * error


def test_whoever_never_stops_is_stopped() -> None:
    world = make("costly_search", c=0.02)
    for answer in (lambda n: np.ones(n, np.int64), lambda n: (np.ones(n, np.int64), np.zeros(n))):
        endless = sb3.capped(world, lambda view, answer=answer: answer(len(view)), 3, sb3.MOST_DECISIONS)
        played = play(world, endless, seeds(0, 3))
        assert played.decisions == 3 * (sb3.MOST_DECISIONS + 1)


def test_settings_are_read_from_words() -> None:
    assert sb3.settled("jury", ["n_envs=16", "masked=true"]) == replace(
        sb3.SETTINGS["jury"], n_envs=16, masked=True
    )
    assert sb3.settled("jury", ["recommended", "threads=2"]) == replace(sb3.RECOMMENDED, threads=2)
    assert sb3.settled("jury", ["ours"]) is None
    with pytest.raises(TypeError, match="nenvs"):
        sb3.settled("jury", ["nenvs=16"])


def test_the_quick_size_needs_no_peer() -> None:
    assert sb3.measure(False) == []


def test_seeds_are_counted_in_the_rows_and_kept_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, sb3.Settings | None, int]] = []

    def attempt(
        name: str, seconds: float, settings: sb3.Settings | None, seed: int, tests: bool
    ) -> dict[str, float]:
        assert tests
        if len(asked) == 10:
            asked.append((name, settings, seed))
            raise KeyboardInterrupt
        asked.append((name, settings, seed))
        lost = 0.01 * (seed + 1) * (1 if settings is None else 10)
        return {"regret": lost, "error": 1e-4, "share": 0.1, "decisions": 600.0, "seconds": seconds}

    monkeypatch.setattr(sb3, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(sb3, "attempt", attempt)
    with pytest.raises(KeyboardInterrupt):
        sb3.measure(True)
    rows = {row["id"]: row for row in sb3.measure(True)}
    assert len(asked) == 1 + 5 * (3 + 1 + 3)  # the one that was ended is asked again, and no other
    assert [s for _, s, _ in asked[:7]] == [sb3.RECOMMENDED] * 3 + [sb3.SETTINGS["costly_search"]] + [None] * 3
    assert rows["6.3.stop.peer"]["figure"] == pytest.approx(0.2)
    assert "(3 seeds, from 0.1 to 0.3; standard error of judging 0.0001)" in rows["6.3.stop.peer"]["what"]
    assert "(1 seed; standard error" in rows["6.3.stop.tuned"]["what"]
    assert rows["6.3.stop.ours.speed"]["figure"] == pytest.approx(10.0)
    assert rows["6.3.stop.ratio"]["figure"] == pytest.approx(0.1)
    assert rows["6.3.stop.ratio"]["what"].endswith("(means: 3 seeds of ours, 3 of the peer's)")
    assert rows["6.3.stop.tuned.ratio"]["what"].endswith("chosen by us (means: 3 seeds of ours, 1 of the peer's)")
    assert (rows["6.3.won"]["figure"], rows["6.3.won"]["ok"]) == (5, True)


def test_ours_is_judged_as_the_peer_is() -> None:
    run = sb3.ours("jury", 0.5, 0)
    assert run.decisions > 0
    assert run.seconds >= 0.5
    assert 0 < sb3.regret("jury", run.policy, tests=False, worlds=1, episodes=500).regret < 1


@installed
@pytest.mark.parametrize("masked", [False, True])
def test_it_runs_and_its_weights_say_what_it_says(masked: bool) -> None:
    settings = sb3.Settings(masked=masked, n_envs=16, n_steps=16, batch_size=64)
    run = sb3.peer("relay", 1.0, 0, settings)  # raises where the weights say otherwise
    assert run.decisions >= 256
    assert run.seconds >= 1.0
    assert 0 < sb3.regret("relay", run.policy, tests=False, worlds=1, episodes=500).regret < 1


@installed
@pytest.mark.parametrize("name", ["costly_search", "relay"])
def test_its_environments_score_as_the_worlds_do(name: str) -> None:
    """Random play through the adapter, and random play of the same worlds: the mean scores agree."""
    code = f"""
import json, numpy as np
from bench.sb3_side import Worlds
env, dice, scores = Worlds("{name}", 16, 8, 0), np.random.default_rng(0), []
env.reset()
while env.number < 42:
    env.step_async(dice.integers(0, env.action_space.n, 16))
    _, reward, done, _ = env.step_wait()
    scores += reward[done].tolist()
print(json.dumps(scores))
"""
    python = sb3.FOLDER / "bin" / "python"
    told = subprocess.run(
        [python, "-W", "ignore", "-c", code], cwd=sb3.ROOT, check=True, capture_output=True, text=True
    )
    theirs, dice = np.array(json.loads(told.stdout)), np.random.default_rng(1)
    most = sb3.MOST_OPTIONS[name]
    mine = np.concatenate(
        [
            play(
                training(name, 0, 0, i),
                lambda view: sb3.legal(dice.integers(0, most, len(view)), view.allowed),
                seeds(5, 64, 64 * i),
            ).score
            for i in range(1, 41)
        ]
    )
    error = np.sqrt(mine.var() / len(mine) + theirs.var() / len(theirs))
    assert abs(mine.mean() - theirs.mean()) < 4 * error
