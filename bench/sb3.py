"""Side by side with stable-baselines3: the same worlds, the same seconds, the same cores.

    python -m bench.sb3 --full [--json]                   the rows of 6.3; about 50 minutes; what was measured is kept in out/sb3, as it comes
    python -m bench.sb3 --try WORLD SECONDS [SETTING=VALUE ...] [recommended | ours] [--tests] [--cpu] [--seed N]

The peer is stable-baselines3's PPO, or sb3-contrib's MaskablePPO, from their packages, in an environment of their own (.peers-sb3, which
git ignores). It learns in `bench/sb3_side.py` over the same batch simulator, from the same training parameters; the clock starts after
its imports. What comes back are its weights; the policy they make is played here, as ours is, in held-out worlds.

What it sees is the gym face, flat: facts, the latest items of the record (zeros where there are fewer), their count, what is allowed.
The peer is run as it recommends itself (RECOMMENDED), which the promise is about, and with settings that we chose on training parameters, world
by world, to make it as strong as we can (SETTINGS). PPO has no masks: an action a that is not allowed means the
(a mod k)-th of the k that are, in training and after. MaskablePPO is told what is allowed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench import peers
from bench.table import Row, at_least, at_most, command, fact
from podium.envs.draws import seeds
from podium.envs.gym import observations_of
from podium.envs.world import Policy, View, World, play
from podium.learn.collect import capped, greedy
from podium.learn.params import held_out, training
from podium.learn.policy import Net
from podium.learn.source import iterations
from podium.learn.train import NetPolicy, Recipe, begin, one_thread, players
from podium.study.question import meaning
from podium.study.regret import _code
from podium.trace.files import write_whole

__all__ = ["DECISIONS", "SETTINGS", "Settings", "measure", "observed", "ours", "peer", "regret"]

Learned = Callable[[World], Policy]  # what was learned, in a world with parameters of its own
Numbers = NDArray[np.int64]

ROOT = Path(__file__).parents[1]
FOLDER, KEPT = ROOT / ".peers-sb3", ROOT / "out" / "sb3"
NEEDED = (
    "torch==2.13.0",  # the CPU build where the index has one
    "numpy>=2,<3",
    "stable-baselines3==2.9.2",
    "sb3-contrib==2.9.2",
    "msgspec>=0.18.6,<0.23",  # Podium's own, for the simulator
    "rich>=13,<16",
    "threadpoolctl>=3.1,<4",
)
DECISIONS = {
    "stop": "costly_search",
    "spawn": "scouts",
    "delegate": "crew",
    "communicate": "relay",
    "aggregate": "jury",
}
MOST_OPTIONS = {"costly_search": 2, "sprt": 2, "scouts": 8, "crew": 4, "relay": 5, "jury": 2}
MOST_ITEMS = {"crew": 4, "relay": 3, "jury": 14}  # all there ever are; elsewhere a setting
MOST_DECISIONS = 400  # then an episode stops where it may: for both sides, in training and after
SECONDS, WORLDS, EPISODES = 60.0, 20, 50_000
SEEDS = {"peer": 3, "tuned": 1, "ours": 3}  # the promise is about the peer as it recommends itself, and ours
CORES, HALF, WON = 2, 0.5, 4
TRIED = 0x7121  # the seed of the training parameters that settings are chosen on


@dataclass(frozen=True)
class Settings:
    """Of the peer. Defaults are stable-baselines3's own, but for gamma: a score at the end of an episode is not discounted."""

    masked: bool = False  # MaskablePPO
    n_envs: int = 8
    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    gamma: float = 1.0
    gae_lambda: float = 0.95
    learning_rate: float = 3e-4
    linear: bool = False  # learning rate falls to 0 over the seconds, as the Zoo's "lin_"
    ent_coef: float = 0.0
    normalise: bool = True  # VecNormalize on observations ...
    rewards: bool = True  # ... and on rewards
    width: int = 64  # of the two hidden layers
    items: int = 64  # of the record that are seen
    threads: int = 1  # of torch; with two, a busy machine makes it 20 times slower (barriers spin)
    cpu: bool = False  # seconds of the processor instead of the clock's: to try settings on a busy machine


RECOMMENDED = Settings()  # stable-baselines3's defaults with VecNormalize, as its guide advises; eight environments
FAST = Settings(
    n_envs=64, n_steps=256, batch_size=1024, learning_rate=3e-3, linear=True, items=16
)  # chosen by us on training parameters, world by world: what of `Settings` made the peer strongest
SETTINGS: dict[str, Settings] = {
    "costly_search": replace(FAST, n_steps=128, batch_size=256),
    "sprt": replace(FAST, n_steps=128, batch_size=256, learning_rate=1e-3),
    "scouts": replace(FAST, masked=True, normalise=False, rewards=False),
    "crew": replace(FAST, masked=True, normalise=False, rewards=False),
    "relay": replace(FAST, masked=True),
    "jury": FAST,
}


def observed(world: World, view: View, most_items: int, most_options: int) -> NDArray[np.float32]:
    """The gym face as one row a decision; options that this world has not are not allowed."""
    seen = observations_of(world, view, most_items)
    n, k = seen["allowed"].shape
    allowed = np.zeros((n, most_options))
    allowed[:, :k] = seen["allowed"]
    return np.concatenate([seen["facts"], seen["items"].reshape(n, -1), seen["count"], allowed], 1).astype(
        np.float32
    )


def legal(action: Numbers, allowed: NDArray[np.bool_]) -> Numbers:
    """An action a that is not allowed means the (a mod k)-th of the k that are.

    >>> legal(np.array([0, 3, 4]), np.array([[True, True, False, False, False]] * 3)).tolist()
    [0, 1, 0]
    """
    inside = np.minimum(action, allowed.shape[1] - 1)
    fine = (action < allowed.shape[1]) & allowed[np.arange(len(action)), inside]
    order = np.argsort(~allowed, axis=1, kind="stable")
    other = order[np.arange(len(action)), action % allowed.sum(1)]
    return np.where(fine, action, other).astype(np.int64)


def items_seen(name: str, settings: Settings) -> int:
    return MOST_ITEMS.get(name, settings.items)


def network(weights: Mapping[str, Any], seen: NDArray[np.float32]) -> NDArray[np.float32]:
    """The scores that a peer's policy gives the options: observations normalised as VecNormalize does, then layers with tanh between."""
    if "mean" in weights:
        seen = np.clip((seen - weights["mean"]) / np.sqrt(weights["var"] + 1e-8), -10, 10).astype(np.float32)
    layers = sum(name.startswith("w") for name in weights)
    for i in range(layers):
        seen = seen @ weights[f"w{i}"].T + weights[f"b{i}"]
        if i < layers - 1:
            seen = np.tanh(seen)
    return seen


def peer_policy(name: str, settings: Settings, weights: Mapping[str, Any]) -> Learned:
    """The deterministic policy of a peer's weights."""

    def learned(world: World) -> Policy:
        def policy(view: View) -> Numbers:
            seen = observed(world, view, items_seen(name, settings), MOST_OPTIONS[name])
            scores = network(weights, seen)
            if settings.masked:
                scores[:, : view.allowed.shape[1]][~view.allowed] = -np.inf
                scores[:, view.allowed.shape[1] :] = -np.inf
            return legal(scores.argmax(1), view.allowed)

        return policy

    return learned


class Run(NamedTuple):
    """What somebody learned, in how many decisions and seconds."""

    policy: Learned
    decisions: float
    seconds: float


def peer(name: str, seconds: float, seed: int, settings: Settings) -> Run:
    """What the peer learned in some seconds. Raises where the weights that came back score options otherwise than its own network does."""
    with tempfile.TemporaryDirectory() as folder:
        back = Path(folder) / "back.npz"
        told = json.dumps({"name": name, "seconds": seconds, "seed": seed, "settings": asdict(settings)})
        threads = {v: str(settings.threads) for v in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        done = subprocess.run(
            [FOLDER / "bin" / "python", "-W", "ignore", "-m", "bench.sb3_side", told, back],
            cwd=ROOT,
            env=os.environ | threads | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
        with np.load(back) as found:
            weights = dict(found)
    steps, took, probe, scores = (weights.pop(key) for key in ("steps", "seconds", "probe", "probe_scores"))
    wrong = np.abs(network(weights, probe) - scores).max()
    if wrong > 1e-3:
        raise RuntimeError(f"{name}: the weights that came back say otherwise than the peer does, by {wrong}")
    return Run(peer_policy(name, settings, weights), float(steps), float(took))


def ours(world: str, seconds: float, seed: int, clock: Callable[[], float] = perf_counter) -> Run:
    """What Podium's own trainer learned in as many seconds: its one recipe, whose rates fall to 0 over the seconds instead of a number of
    iterations, episodes played on both cores as by `podium train --cores 2`."""
    net, decisions = Net(training(world, seed, 0, 0)), 0
    policy = NetPolicy(net, Recipe(), begin(net, seed))
    with one_thread(), players(CORES) as mapped:
        start = clock()
        while (spent := (clock() - start) / seconds) < 1.0:
            ends = max(policy.iteration + 1, round(policy.iteration / max(spent, 1e-9)))
            policy.recipe = replace(Recipe(), iterations=ends)
            worlds, last = partial(training, world, seed), policy.iteration + 1
            decisions += sum(one.decisions for one in iterations(policy, worlds, mapped=mapped, last=last))
        took = clock() - start
    return Run(partial(greedy, net, policy.learner.w), decisions, took)


class Judged(NamedTuple):
    """A world to be judged in: its optimum, what optimal play and the best trivial policy scored on the same dice."""

    world: World
    optimum: float
    optimal: NDArray[np.float64]
    trivial: float


class Regret(NamedTuple):
    regret: float  # mean over worlds of (V* - V) / |V*|
    error: float  # its standard error from episodes
    share: float  # mean over worlds of (V* - V) / (V* - the best trivial policy's)


@cache
def judged(name: str, tests: bool, number: int, episodes: int) -> Judged:
    """Test world number so and so, or one with training parameters; V is V* + mean(score - score of optimal play, same dice)."""
    world = held_out(name, number) if tests else training(name, TRIED, 0, number)
    dice, best = seeds(number, episodes), world.optimum()
    optimal = play(world, world.optimal(), dice).score
    trivial = max(float((play(world, p, dice).score - optimal).mean()) for p in world.trivial().values())
    return Judged(world, best, optimal, best + trivial)


def relay_value(world: World, state: Any) -> float:
    """V of a deterministic team, exactly, from episodes that met every level.

    V = Σ over levels of P(coin = answer, levels) - P(levels) price
    """
    levels, first = np.unique(state.level, axis=0, return_index=True)
    joint = world.params.levels()[:, levels].prod(2) / 2  # [coin, levels]
    price = world.params.c * state.words[first].sum(1)
    right = state.score[first] + price > 0.5
    answer = np.where(right, state.coin[first], 1 - state.coin[first])
    value = joint[answer, np.arange(len(first))].sum() - joint.sum(0) @ price
    return float(value / joint.sum())  # what was never met has next to no weight


EXACT: dict[str, Callable[[World, Any], float]] = {"relay": relay_value}  # elsewhere V is from episodes


def regret(
    name: str, learned: Learned, *, tests: bool = True, worlds: int = WORLDS, episodes: int = EPISODES
) -> Regret:
    """How far a policy is from the optimum, over worlds: held-out ones, or with `tests` false such as one trains on."""
    lost, error, share = [], [], []
    for number in range(worlds):
        world, best, optimal, trivial = judged(name, tests, number, episodes)
        played = play(world, capped(world, learned(world), episodes, MOST_DECISIONS), seeds(number, episodes))
        less = best - EXACT[name](world, played.state) if name in EXACT else (optimal - played.score).mean()
        lost.append(less / abs(best))
        error.append(0.0 if name in EXACT else (optimal - played.score).std() / abs(best) / np.sqrt(episodes))
        share.append(less / (best - trivial))
    return Regret(float(np.mean(lost)), float(np.sqrt(np.square(error).sum()) / worlds), float(np.mean(share)))


def kept(name: str, side: str, seed: int) -> dict[str, float]:
    """As `attempt` in held-out worlds; or what it found before with the same code and settings, if out/sb3 has it."""
    settings = {"peer": RECOMMENDED, "tuned": SETTINGS[name], "ours": None}[side]
    said = [name, side, seed, SECONDS, WORLDS, EPISODES, settings and asdict(settings), NEEDED]
    own = [ROOT / "bench" / "sb3.py", ROOT / "bench" / "sb3_side.py", ROOT / "podium" / "learn" / "params.py"]
    asked = json.dumps(said).encode() + _code() + b"".join(meaning(p.read_text(), "measure") for p in own)
    path = KEPT / f"{name}-{side}-{seed}-{hashlib.sha256(asked).hexdigest()[:12]}.json"
    if not path.exists():
        print(f"{name}, {side}, seed {seed} ...", file=sys.stderr, flush=True)
        KEPT.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(attempt(name, SECONDS, settings, seed, tests=True)).encode())
    found: dict[str, float] = json.loads(path.read_bytes())
    return found


def measure(full: bool) -> list[Row]:
    """Regret of all after as many seconds, decision by decision, one after the other so that each has both cores: the peer as it recommends
    itself, the peer as strong as we could make it, and ours. The quick size needs no peer and has no rows."""
    if not full:
        return []
    rows, won, beside = [], 0, 0
    for decision, name in DECISIONS.items():
        (theirs, told), (best, also), (mine, said) = (_side(decision, name, side) for side in SEEDS)
        what = f"our regret over the peer's in {name} after {SECONDS:g} s"
        rows += [*told, *also, *said]
        rows.append(at_most(f"6.3.{decision}.ratio", f"{what}{_over('peer')}", mine / theirs, HALF, "sampled"))
        chosen = f"{what}, the peer's settings chosen by us{_over('tuned')}"
        rows.append(fact(f"6.3.{decision}.tuned.ratio", chosen, mine / best))
        won, beside = won + (mine <= HALF * theirs), beside + (mine <= HALF * best)
    what = f"of {len(DECISIONS)} decisions: our regret is at most half the peer's"
    return [
        *rows,
        at_least("6.3.won", f"{what}{_over('peer')}", won, WON, "sampled"),
        fact("6.3.tuned.won", f"{what}, the peer's settings chosen by us{_over('tuned')}", beside),
    ]


def _over(side: str) -> str:
    return f" (means: {SEEDS['ours']} seeds of ours, {SEEDS[side]} of the peer's)"


def _side(decision: str, name: str, side: str) -> tuple[float, list[Row]]:
    """The mean regret of one side over seeds, and its rows. All seeds are judged on the same dice, so their standard errors do not average out."""
    found = [kept(name, side, seed) for seed in range(SEEDS[side])]
    lost, error, share, made, took = (
        np.array([one[what] for one in found]) for what in ("regret", "error", "share", "decisions", "seconds")
    )
    ends = f"seeds, from {lost.min():.3g} to {lost.max():.3g}" if len(found) > 1 else "seed"
    about = f"{len(found)} {ends}; standard error of judging {error.mean():.1g}"
    id, who = f"6.3.{decision}.{side}", f"{name}, {side}"
    return float(lost.mean()), [
        fact(id, f"{who}: regret in held-out worlds after {SECONDS:g} s ({about})", float(lost.mean())),
        fact(f"{id}.share", f"{who}: share of the gap", float(share.mean())),
        fact(f"{id}.speed", f"{who}: decisions a second in training", float(made.sum() / took.sum())),
    ]


def settled(name: str, said: list[str]) -> Settings | None:
    """The settings for a world, some of them given as SETTING=VALUE, after the word "recommended" from those on; None for "ours"."""
    if said == ["ours"]:
        return None
    first = RECOMMENDED if said[:1] == ["recommended"] else SETTINGS[name]
    pairs = [one.partition("=") for one in said if one != "recommended"]
    return replace(first, **{key: json.loads(value) for key, _, value in pairs})


def attempt(
    name: str, seconds: float, settings: Settings | None, seed: int = 0, *, cpu: bool = False, tests: bool = False
) -> dict[str, float]:
    """One run of the peer, or of ours where there are no settings, judged on training parameters unless told."""
    if settings is None:
        run = ours(name, seconds, seed, process_time if cpu else perf_counter)
    else:
        peers.prepare(FOLDER, NEEDED, ())
        run = peer(name, seconds, seed, replace(settings, cpu=cpu))
    found = regret(name, run.policy) if tests else regret(name, run.policy, tests=False, worlds=10, episodes=10_000)
    return {**found._asdict(), "decisions": run.decisions, "seconds": run.seconds}


def main() -> None:
    if "--try" not in sys.argv:
        command(measure, __doc__)
        return
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--try", dest="name", choices=sorted(MOST_OPTIONS), required=True)
    options.add_argument("seconds", type=float)
    options.add_argument(
        "settings", nargs="*", metavar="SETTING=VALUE", help="of the peer; or one of the words: recommended, ours"
    )
    options.add_argument("--tests", action="store_true", help="judge in held-out worlds")
    options.add_argument("--cpu", action="store_true", help="seconds of the processor, on a busy machine")
    options.add_argument("--seed", type=int, default=0)
    args = options.parse_args()
    settings = settled(args.name, args.settings)
    print(json.dumps(attempt(args.name, args.seconds, settings, args.seed, cpu=args.cpu, tests=args.tests)))


if __name__ == "__main__":
    main()
