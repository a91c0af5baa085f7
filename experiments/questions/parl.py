"""An open reproduction of PARL: serial collapse without the instantiation reward, learned width, and time against a
single agent as the task grows.

The arms in `expedition` are those of `experiments.legs`. In `scouts` a lead that starts by spawning one worker a
round learns width and stop by the outcome to go (a table by the best answer so far); `time` is then the critical
steps, S_main + max S_sub = 2 a round, until an answer is worth the target, of the width that was learned for a
first round, and of one agent, who needs 1 / (1 - target) rounds. `shuffled` is annealed PARL there, what runs are
paid dealt out anew among their decisions. The single agent in `expedition` is the best play with one scout a leg,
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.legs import ARMS, WORLD, Study, expedition, learn, optimal_play, softmax
from podium.envs.draws import seeds, uniform
from podium.envs.scouts import Scouts
from podium.envs.world import make
from podium.registry import register
from podium.study.figure import Panel, lines_of, picture
from podium.study.question import Experiment, Headline, Measurements, Report, column, in_time, summarise, table
from podium.trace.columns import F

__all__ = ["How", "arms", "measure", "report", "rounds_to"]

N64 = NDArray[np.int64]
SPAWNS, SINGLE = ("plain", "parl", "entropy", "shuffled"), "one scout"
WORDS = {
    "plain": "the outcome alone",
    "constant": "+ instantiation, constant",
    "parl": "+ PARL, annealed",
    "entropy": "+ entropy, annealed",
    "both": "+ both, annealed",
    "shuffled": "+ PARL, annealed, shuffled",
}
BINS, DICE, ONE, BLOCKS, END = 20, 0x9A21, 4.0, 40, 1 / 3


@dataclass(frozen=True)
class How:
    updates: int
    batch: int
    judged: int
    targets: tuple[float, ...]
    price: float
    latency: float
    widest: int
    spawn_updates: int
    spawn_batch: int
    rate: float
    weight: float
    entropy: float


def arms(how: How) -> list[str]:
    return [*ARMS, SINGLE, *(f"time/{arm}" for arm in SPAWNS)]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    if arm.startswith("time/"):
        return _spawned(how, arm.removeprefix("time/"), seed)
    if arm == SINGLE:
        alone = make("expedition", **{**WORLD, "widest": 1})
        return {"short": 1.0 - alone.optimum() / expedition().optimum()}
    [run] = learn(Study(updates=how.updates, batch=how.batch, judged=how.judged), {arm: ARMS[arm]}, [seed])
    curves = {"short_u": run.short_u, "width_u": run.width_u}
    blocks = {k: [float(part.mean()) for part in np.array_split(c, min(BLOCKS, len(c)))] for k, c in curves.items()}
    return {
        "short": run.short,
        "width": run.width,
        "checks": run.checks,
        **blocks,
        "episodes": how.updates * how.batch,
    }


def _bin(best: F) -> N64:
    return np.minimum((best * BINS).astype(np.int64), BINS - 1) + (best > 0)


def _spawned(how: How, arm: str, seed: int) -> dict[str, Any]:
    """Learns width and stop, and is timed."""
    world = make("scouts", c=how.price, latency=how.latency, widest=how.widest)
    assert isinstance(world, Scouts)
    logits = np.zeros((BINS + 1, how.widest + 1))
    logits[:, 1] = ONE
    for u in range(how.spawn_updates):
        left = max(0.0, 1.0 - u / how.spawn_updates / END)
        dice = seeds(seed, how.spawn_batch, u * how.spawn_batch)
        place, choice, run, score = _played(world, logits, dice)
        paid = score[run]
        if arm in ("parl", "shuffled"):
            total = np.bincount(run, choice, len(dice))
            paid = paid + left * how.weight * np.minimum(total, 2 * how.widest)[run] / (2 * how.widest)
        if arm == "shuffled":
            paid = np.random.default_rng([seed, u]).permutation(paid)
        p = softmax(logits)
        count = np.bincount(place, minlength=len(p))
        ahead = paid - (np.bincount(place, paid, len(p)) / np.maximum(count, 1))[place]
        ahead /= ahead.std() + 1e-12
        up = np.zeros(p.shape)
        np.add.at(up, (place, choice), ahead)
        if arm == "entropy":
            log_p = np.log(np.maximum(p, 1e-300))
            up -= left * how.entropy * count[:, None] * p * (log_p - (p * log_p).sum(axis=1, keepdims=True))
        logits += how.rate * up / how.spawn_batch
    place, choice, run, score = _played(world, logits, seeds(10**6 + seed, 4 * how.spawn_batch))
    wide = choice > 0
    return {
        "regret": 1.0 - float(score.mean()) / world.optimum(),
        "width": float(choice[wide].mean()) if wide.any() else 0.0,
        "best_width": _best_width(world),
        "faster": [1.0 / (1.0 - t) / rounds_to(logits, t, seed) for t in how.targets],
        "workers": [_workers(logits, t, seed) * (1.0 - t) for t in how.targets],
        "episodes": how.spawn_updates * how.spawn_batch,
    }


def _best_width(world: Scouts) -> float:
    view = world.view(world.start(seeds(0, 1)))
    assert view is not None
    return float(world.optimal()(view)[0])


def _played(world: Scouts, logits: F, dice: Any) -> tuple[N64, N64, N64, F]:
    """Place, choice and run of every decision, and the score of every run."""
    state, below, steps, number = world.start(dice.copy()), np.cumsum(softmax(logits), axis=1)[:, :-1], [], 0
    while (view := world.view(state)) is not None:
        place = _bin(view.facts[:, 4])
        choice = (uniform(dice[view.row], DICE, number)[:, None] >= below[place]).sum(axis=1)
        if number >= 60:
            choice[:] = 0
        steps.append((place, choice, view.row.copy()))
        world.act(state, view, choice)
        number += 1
    columns = [np.concatenate(column_) for column_ in zip(*steps, strict=True)]
    return columns[0], columns[1], columns[2], state.score


def _search(logits: F, target: float, seed: int, n: int = 1_000) -> tuple[F, F]:
    """Rounds and workers until an answer is worth the target, every round as wide as the first that was learned:
    the learned stop knows a price that the target does not."""
    dice = seeds(2 * 10**6 + seed, n)
    below = np.cumsum(softmax(logits[0, 1:]))[:-1]
    best, rounds, workers = np.zeros(n), np.zeros(n), np.zeros(n)
    for r in range(400):
        row = np.flatnonzero(best < target)
        if not len(row):
            break
        width = 1 + (uniform(dice[row], DICE, r)[:, None] >= below).sum(axis=1)
        draws = uniform(dice[row], DICE, r, 1) ** (1.0 / width)  # the best of so many uniform answers
        best[row] = np.maximum(best[row], draws)
        rounds[row] += 1
        workers[row] += width
    return rounds, workers


def rounds_to(logits: F, target: float, seed: int) -> float:
    return float(_search(logits, target, seed)[0].mean())


def _workers(logits: F, target: float, seed: int) -> float:
    return float(_search(logits, target, seed)[1].mean())


def _headline(how: How, found: Measurements, short: dict[str, Any], faster: dict[str, Any]) -> list[Headline]:
    return [
        summarise(
            "plain.width", "the outcome alone: mean width at the end", column(found, "plain", "width"), most=1.2
        ),
        summarise("parl.short", "annealed PARL: lacks of the optimum", short["parl"], most=0.1),
        summarise(
            "adds", "what annealed PARL gains over entropy alone, in optima", short["entropy"] - short["parl"]
        ),
        summarise("constant.short", "constant instantiation reward: lacks of the optimum", short["constant"]),
        summarise("plain.short", "the outcome alone: lacks of the optimum", short["plain"]),
        summarise("entropy.short", "annealed entropy alone: lacks of the optimum", short["entropy"]),
        summarise(
            "single.short", "best play with one scout a leg: lacks of the optimum", column(found, SINGLE, "short")
        ),
        *(
            summarise(
                f"time.{arm}",
                f"{WORDS[arm]}: times faster than one agent to an answer of {how.targets[-1]:g}",
                faster[arm][:, -1],
                least=3.0 if arm == "parl" else None,
            )
            for arm in SPAWNS
        ),
        summarise(
            "time.parl.easy",
            f"annealed PARL: times faster to an answer of {how.targets[0]:g}",
            faster["parl"][:, 0],
        ),
        summarise(
            "time.parl.workers",
            f"annealed PARL: workers to an answer of {how.targets[-1]:g}, times those of one agent",
            column(found, "time/parl", "workers")[:, -1],
        ),
    ]


def _time_table(how: How, found: Measurements, faster: dict[str, Any]) -> str:
    best = found.arms["time/plain"][0]["best_width"]
    timed = []
    for arm in SPAWNS:
        name = f"time/{arm}"
        timed.append(
            [
                WORDS[arm],
                f"{column(found, name, 'regret').mean():.1%}",
                f"{column(found, name, 'width').mean():.1f}",
                *(f"{x:.1f}" for x in faster[arm].mean(axis=0)),
                f"{column(found, name, 'workers')[:, -1].mean():.2f}",
            ]
        )
    timed.append(["optimal play", "0", f"{best:.0f}", *([""] * len(how.targets)), ""])
    head = [
        "reward",
        "regret",
        "mean width",
        *(f"times faster to {t:g}" for t in how.targets),
        f"workers to {how.targets[-1]:g}, times one agent's",
    ]
    return table(head, timed)


def report(how: How, found: Measurements) -> Report:
    width, checks, _ = optimal_play(2_000)
    short = {arm: column(found, arm, "short") for arm in ARMS}
    faster = {arm: column(found, f"time/{arm}", "faster") for arm in SPAWNS}
    headline = _headline(how, found, short, faster)
    rows = []
    for arm in ARMS:
        s = summarise("", "", short[arm])
        rows.append(
            [
                WORDS[arm],
                f"`{ARMS[arm].reward}`",
                f"{s.mean:.1%} ({s.low:.1%} to {s.high:.1%})",
                f"{column(found, arm, 'width').mean():.2f}",
                f"{column(found, arm, 'checks').mean():.0%}",
                f"{in_time(found, arm, 'short_u', list(ARMS)).mean():.1%}",
                f"{np.median(found.seconds[arm]):.0f}",
            ]
        )
    rows.append(
        ["best play with one scout a leg", "", f"{column(found, SINGLE, 'short').mean():.1%}", "1", "", "", ""]
    )
    rows.append(["optimal play", "", "0", f"{width:.2f}", f"{checks:.0%}", "", ""])
    tables = {
        "arms": table(
            [
                "arm",
                "reward",
                "lacks of the optimum",
                "mean width",
                "legs with a check",
                "lacks, in as many seconds",
                "seconds",
            ],
            rows,
        ),
        "time": _time_table(how, found, faster),
    }
    at = np.linspace(0, 1, len(found.arms["plain"][0]["short_u"])).round(3).tolist()
    panels = [
        Panel(
            "lacks of the optimum",
            "share of training",
            [lines_of(WORDS[a], at, column(found, a, "short_u")) for a in ARMS],
            high=0.7,
        ),
        Panel(
            "mean width",
            "share of training",
            [lines_of(WORDS[a], at, column(found, a, "width_u")) for a in ARMS],
            {"optimal play": width},
        ),
        Panel(
            "times faster than one agent",
            "the answer must be worth",
            [lines_of(WORDS[a], how.targets, faster[a]) for a in SPAWNS],
            {"K2.5: 3": 3.0, "K2.5: 4.5": 4.5},
        ),
    ]
    return Report(headline, tables, picture("PARL: serial collapse, width and time", panels))


register("study", "parl")(Experiment(How, arms, measure, report))
