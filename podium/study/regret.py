"""What the one method leaves of the optimum in every world, on parameters that nothing was chosen on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

import podium
from podium.learn.evaluate import Judged, judged, over_seeds
from podium.learn.params import TESTS, held_out, training
from podium.learn.policy import Net
from podium.learn.source import iterations
from podium.learn.train import NetPolicy, Recipe, begin, one_thread
from podium.study.question import imports, meaning
from podium.trace.files import write_whole

__all__ = ["PROMISES", "Promise", "rows"]

UNTOUCHED = range(TESTS - 5, TESTS)  # held-out worlds that no setting was chosen on
LARGE, SIZES = "expedition/large", 2  # there are two sizes to test on, and an episode of 1,000 agents takes long:
FEWER = 10  # times fewer episodes of them, in all and at once


class Promise(NamedTuple):
    """The decision that a world is about, and the most that may be left: of the gap, and of the optimum."""

    decision: str
    share: float
    regret: float


PROMISES = {
    "scouts": Promise("spawn", 0.2, 0.02),
    "crew": Promise("delegate", 0.15, 0.01),
    "relay": Promise("communicate", 0.15, 0.01),
    "jury": Promise("aggregate", 0.15, 0.01),
    "costly_search": Promise("stop", 0.15, 0.01),
    "sprt": Promise("stop", 0.15, 0.01),
    "secretary": Promise("stop", 0.15, 0.01),
    "cayley_moser": Promise("stop", 0.15, 0.01),
    "pandora": Promise("delegate, stop", 0.2, 0.02),
    "expedition": Promise("all five", 0.2, 0.05),
    "expedition/large": Promise("all five", 0.3, 0.1),
}


def rows(
    envs: Sequence[str],
    seeds: Sequence[int],
    recipe: Recipe,
    episodes: int,
    folder: Path,
    cores: int = 2,
    say: Callable[[str], Any] = lambda text: None,
) -> list[dict[str, Any]]:
    """A row for each world: means over seeds of means over held-out worlds, so many episodes of each, and the
    interval of the share of the gap over seeds. What was learned is kept in the folder as it comes, and not learned
    again by the same code."""
    jobs = [(env, seed, recipe, episodes, folder) for env, seed in product(envs, seeds)]
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        by_world: dict[str, list[list[Judged]]] = {env: [] for env in envs}
        for (env, seed, *_), one in zip(jobs, pool.map(_kept, *zip(*jobs, strict=True)), strict=True):
            by_world[env].append(one)
            say(f"{env}, seed {seed}: {np.mean([j.share for j in one]):.3f} of the gap")
    return [_row(env, by_world[env]) for env in envs]


def _kept(env: str, seed: int, recipe: Recipe, episodes: int, folder: Path) -> list[Judged]:
    """As `_learned`, or what it made before."""
    met = [training(env, seed, i, k).params for i, k in product(range(8), range(recipe.worlds))]
    settings = msgspec.json.encode([env, seed, recipe, episodes, list(UNTOUCHED), met]) + _code()
    path = folder / f"{env.replace('/', '-')}-{seed}-{hashlib.sha256(settings).hexdigest()[:12]}.json"
    if path.exists():
        return [Judged(*one) for one in msgspec.json.decode(path.read_bytes())]
    evaluations = _learned(env, seed, recipe, episodes)
    write_whole(path, msgspec.json.encode(evaluations))
    return evaluations


@cache
def _code() -> bytes:
    """A fingerprint of all that decides what is learned: the loop, what it imports of `learn`, and all worlds. The
    parameters of training are not in it; they are drawn for each world by itself."""
    root, found, todo = Path(podium.__path__[0]), set[str](), ["learn.source", "learn.evaluate"]
    while todo:
        found.add(module := todo.pop())
        source = (root / module.replace(".", "/")).with_suffix(".py").read_text()
        names = {m.removeprefix("podium.") for m in imports(source) if m.startswith("podium.learn.")}
        todo += sorted(m for m in names - found if (root / m.replace(".", "/")).with_suffix(".py").is_file())
    files = [(root / m.replace(".", "/")).with_suffix(".py") for m in sorted(found)]
    files += sorted((root / "envs").glob("*.py"))
    return hashlib.sha256(b"".join(meaning(f.read_text()) for f in files if f.name != "params.py")).digest()


def _learned(env: str, seed: int, recipe: Recipe, episodes: int) -> list[Judged]:
    numbers = range(SIZES) if env == LARGE else UNTOUCHED
    fewer = FEWER if env == LARGE else 1
    most = min(episodes, 20_000) // fewer  # at once
    with one_thread():
        net = Net(training(env, seed, 0, 0))
        policy = NetPolicy(net, recipe, begin(net, seed))
        for _ in iterations(policy, lambda i, k: training(env, seed, i + 1, k)):
            pass
        return [
            judged(held_out(env, i), net, policy.learner.w, episodes // fewer, most=recipe.most, batch=most)
            for i in numbers
        ]


def _row(env: str, found: list[list[Judged]]) -> dict[str, Any]:
    share, regret = over_seeds(found)
    promise = PROMISES[env]
    return {
        "env": env,
        "decision": promise.decision,
        "regret": regret.mean,
        "share_of_gap": share.mean,
        "interval": [share.low, share.high],
        "error": float(np.mean([_error(one) for one in found])),
        "seeds": len(found),
        "promise": {"share_of_gap": promise.share, "regret": promise.regret},
    }


def _error(found: list[Judged]) -> float:
    """The standard error of the mean regret over worlds, by its dice; these are the same for all seeds, so that
    seeds do not make it less."""
    each = np.array([one.error / abs(one.optimum) for one in found])
    return float(np.sqrt((each**2).sum()) / len(each))
