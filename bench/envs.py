"""All that is promised of worlds: exact optima, exact credit, speed, size: `python -m bench.envs [--full] [--json]`."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from bench.naive_credit import naive_effects, naive_shapley, small_teams
from bench.table import Row, at_least, at_most, best, calibration, command, exponent, fact
from podium.envs.conformance import faces_agree, random_policy, score_of
from podium.envs.draws import seeds
from podium.envs.expedition import LARGE
from podium.envs.pandora import Box, by_programming, closed_form
from podium.envs.planted_credit import credit, do_effects, removal, shapley
from podium.envs.planted_team import simulate
from podium.envs.world import Policy, View, World, make, play, worlds
from podium.trace import check
from podium.trace.vocabulary import event

__all__ = ["CHECKS", "SINGLE", "measure"]

CREW = {"W": 3, "K": 2, "H": 2, "N": 8, "e": 0.35, "lam": 0.15}
CHECKS: tuple[
    tuple[str, dict[str, object], float, float], ...
] = (  # world, parameters, optimum, half of its last digit
    ("secretary", {"n": 10}, 0.39869, 5e-6),
    ("secretary", {"n": 100}, 0.37104, 5e-6),
    ("cayley_moser", {"n": 5}, 0.77508, 5e-6),
    ("cayley_moser", {"n": 10}, 0.86110, 5e-6),
    ("costly_search", {"c": 0.02}, 0.80000, 5e-6),
    ("costly_search", {"c": 0.5}, 0.0, 1e-12),
    ("sprt", {"p": 0.7, "c": 0.01}, 1 - 0.12611, 5e-6),
    ("sprt", {"p": 0.6, "c": 0.01}, 1 - 0.29897, 5e-6),
    ("scouts", {"c": 0.01, "latency": 0.05}, 0.7705, 5e-5),
    ("crew", CREW, 5.5032, 5e-5),
    ("crew", {"W": 2, "K": 2, "H": 2, "N": 4, "e": 0.3, "lam": 0.1}, 2.65378, 5e-6),
    ("relay", {"n": 2, "c": 0.02}, 0.7448, 5e-5),
    ("relay", {"n": 2, "c": 0.04}, 0.7256, 5e-5),
    ("jury", {"m": 9, "copy": 0.9}, 0.796, 5e-4),
    ("expedition", {}, 2.96323, 5e-6),
)
SINGLE = ("secretary", "cayley_moser", "costly_search", "sprt", "crew", "relay", "jury")


def measure(full: bool) -> list[Row]:
    rows = [*_optima(200_000 if full else 500), *_boxes(300 if full else 40), *_credit(200 if full else 6)]
    rows += [*_speed(200_000 if full else 400), *_growth(full), *_size(2_000 if full else 50), *_faces()]
    return [
        *rows,
        calibration("3.3", full),
    ]


def _optima(n: int) -> list[Row]:
    rows = []
    for name, params, said, half in CHECKS:
        if name not in worlds():
            continue
        world = make(name, **params)
        told = ",".join(f"{k}={v}" for k, v in params.items())
        exact = world.optimum()
        rows.append(
            at_most(
                f"3.1.{name}({told})",
                f"optimum {exact:.6f}, how far from {said:g}",
                abs(exact - said),
                half * 1.0001,
                "exact",
            )
        )
        mean, error = score_of(world, world.optimal(), n)
        rows.append(
            at_most(
                f"3.1.{name}({told}).played",
                "optimal play off the optimum, in standard errors",
                abs(mean - exact) / max(error, 1e-12) if abs(mean - exact) > 1e-12 else 0.0,
                4.0,
                "sampled",
            )
        )
    return rows


def _boxes(instances: int) -> list[Row]:
    """Pandora's closed form against dynamic programming, on random instances."""
    dice = np.random.default_rng(0)
    worst = 0.0
    for _ in range(instances):
        boxes = []
        for _ in range(int(dice.integers(1, 6))):
            prizes = np.sort(dice.random(int(dice.integers(1, 5))))
            p = dice.dirichlet(np.ones(len(prizes)))
            boxes.append(Box(float(dice.uniform(0.0, 0.3)), tuple(prizes.tolist()), tuple(p.tolist())))
        worst = max(worst, abs(closed_form(boxes) - by_programming(boxes)))
    return [
        at_most(
            "3.1.pandora",
            f"closed form off dynamic programming, at most, on {instances} random instances",
            worst,
            1e-9,
            "exact",
        )
    ]


def _credit(teams: int) -> list[Row]:
    """Exact credit in `planted` against an account that walks through every history."""
    worst = {"effects": 0.0, "credit": 0.0, "removal": 0.0, "shapley": 0.0}
    nested = 0
    for k, team in enumerate(small_teams(teams)):
        values = simulate(team, seeds(k, 1))
        effects, paid, removed = naive_effects(team, values[0].tolist())
        pairs = {
            "effects": (do_effects(team, values)[0], effects),
            "credit": (credit(team, values)[0], paid),
            "removal": (removal(team, values)[0], removed),
            "shapley": (shapley(team), naive_shapley(team)),
        }
        for name, (fast, slow) in pairs.items():
            if not np.array_equal(np.isnan(fast), np.isnan(slow)):
                worst[name] = np.inf
            worst[name] = max(worst[name], float(np.nanmax(np.abs(fast - slow), initial=0.0)))
        nested += max(team.spawner) > 0
    what = f"off brute force, at most, on {teams} random teams, {nested} with agents that agents spawned"
    return [at_most(f"3.2.{name}", f"{name} {what}", figure, 1e-9, "exact") for name, figure in worst.items()]


def _faces() -> list[Row]:
    """How many worlds are the same through text and through arrays."""
    wrong = {name: list(faces_agree(make(name))) for name in worlds()}
    same = sum(not faults for faults in wrong.values())
    return [
        at_least(
            "3.5.faces",
            "worlds rebuilt from text and from arrays alike, scores seed by seed alike",
            same,
            len(wrong),
            "exact",
        )
    ]


def _size(episodes: int) -> list[Row]:
    """The smallest and the largest expedition."""
    tiny = make("expedition", legs=1, pool=1, widest=1, calls=0)
    large = make("expedition", **LARGE)
    rows = []
    for name, world, policy, agents, events in (
        ("small", tiny, _wide(tiny, 1), 1, 10),
        ("large", large, _wide(large, 50, "full brief"), 1000, 20_000),
    ):
        trace = world.trace(play(world, policy, seeds(0, 2), log=True).state)[0]
        found, spawned = len(check(trace)), int((trace.type_e == event("spawn")).sum())
        if name == "large":
            rows.append(at_least("3.4.agents", "sub-agents in the largest episode", spawned, agents, "exact"))
            rows.append(at_least("3.4.events", "events in it", trace.n_events, events, "exact"))
        else:
            rows.append(at_most("3.4.least", "events in the smallest episode", trace.n_events, events, "exact"))
        rows.append(at_most(f"3.4.{name}.findings", "rules that its trace breaks", found, 0, "exact"))
    exact = large.optimum()
    mean, error = score_of(large, large.optimal(), episodes)
    rows.append(
        at_most(
            "3.4.optimum",
            f"optimal play off the optimum {exact:.3f} at 1,000 agents, in standard errors",
            abs(mean - exact) / error,
            4.0,
            "sampled",
        )
    )
    return rows


def _wide(world: World, k: int, brief: str = "no brief") -> Policy:
    """Always go on with k scouts, briefed so; the first allowed option otherwise."""

    def policy(view: View) -> np.ndarray:
        wanted = np.array([o in ("go on", f"spawn {k}", brief) for o in world.options])
        return np.argmax(view.allowed * (1 + wanted), axis=1)

    return policy


def _decisions(world: World, n: int, log: bool) -> float:
    """Decisions a second, by a policy that costs next to nothing; building the traces included."""
    policy = random_policy()
    start = perf_counter()
    played = play(world, policy, seeds(0, n), log=log)
    if log:
        world.trace(played.state)
    return played.decisions / (perf_counter() - start)


def _speed(n: int) -> list[Row]:
    rows = []
    for name in SINGLE:
        if name in worlds():
            world = make(name)
            bare = max(_decisions(world, n, False) for _ in range(3))
            logged = max(_decisions(world, n // 4, True) for _ in range(3))
            rows.append(
                at_least(f"3.3.{name}", "decisions a second, no traces, policy included", bare, 1e6, "time")
            )
            rows.append(at_least(f"3.3.{name}.traces", "decisions a second, traces included", logged, 2e5, "time"))
            rows.append(
                fact(
                    f"3.3.{name}.gym", "decisions a second, one at a time through Gymnasium", _one_at_a_time(world)
                )
            )
    return rows


def _one_at_a_time(world: World, steps: int = 300) -> float:
    from podium.envs.gym import GymWorld

    env, dice = GymWorld(world), np.random.default_rng(0)
    seen, _ = env.reset(seed=0)
    start = perf_counter()
    for _ in range(steps):
        seen, _, done, _, _ = env.step(int(dice.choice(np.flatnonzero(seen["allowed"]))))
        if done:
            seen, _ = env.reset()
    return steps / (perf_counter() - start)


def _growth(full: bool) -> list[Row]:
    sizes = [10_000, 30_000, 100_000, 300_000] if full else [100, 300, 1_000]
    world = make("costly_search")
    seconds = [best(3, lambda n=n: play(world, random_policy(), seeds(0, n)))[0] for n in sizes]
    rows = [
        at_most(
            "3.3.episodes.exponent",
            f"growth in episodes, {sizes[0]:,} to {sizes[-1]:,}",
            exponent(sizes, seconds),
            1.1,
            "time",
        )
    ]
    widths, seconds, many = [5, 10, 20, 40], [], 20 if full else 1
    large = make("expedition", **LARGE)
    for k in widths:
        seconds.append(
            best(3, lambda k=k: large.trace(play(large, _wide(large, k), seeds(0, many), log=True).state))[0]
        )
    rows.append(
        at_most(
            "3.3.agents.exponent",
            "growth in agents, 100 to 800 an episode, traces included",
            exponent(widths, seconds),
            1.1,
            "time",
        )
    )
    return rows


if __name__ == "__main__":
    command(measure, __doc__)
