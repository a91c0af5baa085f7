"""Serial collapse, pseudo-parallelism and the annealed PARL reward in `expedition`: `python -m bench.parl [--full] [--json]`.

A lead learns by the plainest policy gradient from a start that spawns one scout. Arms differ in what is added to the outcome and in
nothing else: the start, the rate, the updates, the episodes and the seeds are the same. `--figure PATH` also draws the training.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from bench.table import Row, adding, at_least, at_most, best, fact, show
from podium.envs.draws import seeds as seeds_of
from podium.envs.draws import uniform
from podium.envs.expedition import Expedition
from podium.envs.expedition_journal import PHASES, Travelling
from podium.envs.world import View, make, play
from podium.interval import estimate
from podium.trace.columns import F, I

__all__ = [
    "ARMS",
    "SETTINGS",
    "WORLD",
    "Arm",
    "Run",
    "Study",
    "expedition",
    "figure",
    "learn",
    "margin",
    "measure",
    "optimal_play",
    "rows",
    "run",
]

WORLD: Mapping[
    str, Any
] = {  # one scout is worth a check in every leg, so that to check always and scout alone is a trap
    "legs": 4,
    "pool": 40,  # as many as the widest play needs: no leg takes scouts from a later one
    "widest": 10,
    "sources": 32,
    "stakes": (1.0, 2.0),
    "w": 3.0,
    "leg_price": 0.2,
    "check_price": 0.42,
    "prices": (0.035, 0.045),
    "messages": (0.0, 0.03, 0.06),
    "specialist": (0.83, 0.80),
    "off_kind": (0.60, 0.58),
    "generalist": (0.70, 0.66),
}
MOST = 40  # the bound of `instantiate`: every scout that there is pays
DICE, TEST = 100, 1_000_000  # an address that no world draws from; the seeds that runs are judged on begin here
MARGINS = 3  # 0, 1, 2 and more


@dataclass(frozen=True)
class Arm:
    """What is added to the outcome; with `end` every weight goes to 0 on a straight line, until that share of training."""

    parallel: float = 0.0  # for instantiating scouts
    finished: float = 0.0  # for their finishing
    entropy: float = 0.0  # for an open mind, in every decision
    end: float | None = None

    @property
    def reward(self) -> str:
        """The same in Podium's language of rewards. The entropy bonus is no reward: it is the policy's, not the run's."""
        if not self.parallel and not self.finished:
            return "outcome"
        if self.end is not None:
            return f"parl({self.parallel!r}, {self.finished!r}, most={MOST}, end={self.end!r})"
        return f"outcome + {self.parallel!r} * instantiate({MOST}) + {self.finished!r} * finish(none=0.0)"

    def weight(self, progress: float) -> float:
        return 1.0 if self.end is None else max(0.0, 1.0 - progress / self.end)

    def auxiliary(self, spawned: I) -> F:
        """What it pays beside the outcome at full weight, after so many scouts; each of them finishes in this world."""
        paid: F = self.parallel * np.minimum(spawned, MOST) / MOST + self.finished * (spawned > 0)
        return paid


ARMS: Mapping[str, Arm] = {
    "plain": Arm(),
    "constant": Arm(parallel=10.0, finished=1.0),
    "parl": Arm(parallel=10.0, finished=1.0, end=0.1),
    "entropy": Arm(entropy=0.5, end=0.1),
    "both": Arm(parallel=10.0, finished=1.0, entropy=0.5, end=0.1),
}
SETTINGS: Mapping[str, Arm] = {  # how much hangs on the weight and on the schedule
    **{
        f"parl {w:g} to {e:g}": Arm(parallel=w, finished=1.0, end=e)
        for e in (0.1, 0.2, 0.5)
        for w in (5.0, 10.0, 15.0)
    },
    **{f"entropy {w:g} to {e:g}": Arm(entropy=w, end=e) for e in (0.1, 0.2, 0.5) for w in (0.1, 0.25, 0.5)},
}


@dataclass(frozen=True)
class Study:
    """How all arms learn."""

    updates: int = 1000
    batch: int = 384  # episodes an update
    rate: float = 2.0
    one: float = 6.0  # the logit of "spawn 1" at the start, of other widths 0: mean width 1.1
    going: float = 3.0  # the logit of "go on" at the start
    judged: int = 100_000  # episodes, by the policy as it is at the end, on seeds that it was not trained on


class Run(NamedTuple):
    """How one run ended, and how it went: what it lacks of the optimum and its mean width, by update."""

    arm: str
    seed: int
    short: float  # (V* - V) / V*
    width: float
    checks: float  # the share of legs that end in a check
    legs: float
    short_u: F
    width_u: F


@cache
def expedition() -> Expedition:
    world = make("expedition", **WORLD)
    assert isinstance(world, Expedition)
    return world


# the policy: a table for each kind of decision, by a few of the facts in view


def _sizes(world: Expedition) -> dict[str, int]:
    p = world.params
    leg = len(p.stakes) * len(p.specialist)
    return {
        "stop": leg,
        "spawn": leg,
        "delegate": p.kinds,
        "communicate": 2 * len(p.stakes),
        "aggregate": leg * MARGINS,
    }


def _place(world: Expedition, state: Travelling, view: View) -> I:
    """The row of the table that applies: stake and difficulty; the kind, for whom to ask; context and stake, for how to brief; and
    the margin among distinct sources, for how to aggregate."""
    p, facts = world.params, view.facts
    kind, context, hard = (facts[:, i].astype(np.int64) for i in (1, 2, 4))
    stake = np.searchsorted(p.stakes, facts[:, 3])
    leg: I = stake * len(p.specialist) + hard
    match view.kind:
        case "delegate":
            return kind
        case "communicate":
            return np.asarray(context * len(p.stakes) + stake)
        case "aggregate":
            return np.asarray(leg * MARGINS + np.minimum(margin(world, state, view), MARGINS - 1))
    return leg


def margin(world: Expedition, state: Travelling, view: View) -> I:
    """By how many distinct sources the one side leads, of this leg: what the view's items show, from the columns behind them."""
    row = view.row
    width = state.width[row, state.leg[row]]
    scout = np.arange(int(width.max()))
    i, j = np.nonzero(scout < width[:, None])
    at = (state.used[row] - width)[i] + j
    says = np.zeros((len(row), world.params.sources), np.int8)
    says[i, state.source[row[i], at]] = 2 * state.vote[row[i], at] - 1
    return np.abs(says.sum(axis=1, dtype=np.int64))


def _softmax(logits: F) -> F:
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p: F = e / e.sum(axis=-1, keepdims=True)
    return p


class _Step(NamedTuple):
    """What was decided in one view, and what had been paid before."""

    kind: str
    row: I
    place: I
    choice: I
    earned: F
    spawned: I


def _played(world: Expedition, tables: Mapping[str, F], seed_n: Any, run_n: I) -> tuple[Travelling, list[_Step]]:
    """Episodes by the policies of their runs. Dice are drawn by address, so that a run does not depend on who else runs."""
    state = world.start(seed_n)
    below = {kind: np.cumsum(_softmax(table), axis=-1)[..., :-1] for kind, table in tables.items()}
    steps = []
    while (view := world.view(state)) is not None:
        phase, row = PHASES.index(view.kind), view.row
        place = _place(world, state, view)
        dice = uniform(state.seed[row], DICE, state.leg[row], phase)
        choice = (dice[:, None] >= below[view.kind][run_n[row], place]).sum(axis=1)
        steps.append(_Step(view.kind, row, place, choice, state.earned[row], state.used[row]))
        world.act(state, view, choice + world.first[phase])
    return state, steps


def learn(study: Study, arms: Mapping[str, Arm], seeds: Sequence[int]) -> list[Run]:
    """Every arm on every seed, all at once: policy gradient with the reward to go and the mean of its place as the baseline.

    θ[place, option] += rate / batch · Σ over decisions of (G - mean G of that place) · ∂ log π + weight · ∂ entropy
    """
    world, runs = expedition(), [(arm, seed) for arm in arms for seed in seeds]
    tables = {
        kind: np.zeros((len(runs), n, len(menu)))
        for (kind, n), menu in zip(_sizes(world).items(), world.menu, strict=True)
    }
    tables["stop"][:, :, 1], tables["spawn"][:, :, 0] = study.going, study.one
    best_score = world.optimum()
    short_u, width_u = np.zeros((2, len(runs), study.updates))
    run_n = np.repeat(np.arange(len(runs)), study.batch)
    for u in range(study.updates):
        seed_n = np.concatenate([seeds_of(seed, study.batch, u * study.batch) for _, seed in runs])
        state, steps = _played(world, tables, seed_n, run_n)
        _improve(study, [arms[arm] for arm, _ in runs], u / study.updates, tables, state, steps, run_n)
        short_u[:, u] = 1.0 - state.score.reshape(len(runs), -1).mean(axis=1) / best_score
        width_u[:, u] = _widths(state, len(runs))
    judged = _judged(study, tables, runs)
    return [Run(arm, seed, *judged[i].tolist(), short_u[i], width_u[i]) for i, (arm, seed) in enumerate(runs)]


def _improve(
    study: Study,
    arms: Sequence[Arm],
    progress: float,
    tables: dict[str, F],
    state: Travelling,
    steps: Sequence[_Step],
    run_n: I,
) -> None:
    weight_r = np.array([arm.weight(progress) for arm in arms])
    open_r = weight_r * [arm.entropy for arm in arms]

    def paid(spawned: I, row: I) -> F:
        """The auxiliary reward so far; a block of rows a run."""
        run = run_n[row]
        parallel, finished = (np.array([getattr(arm, name) for arm in arms]) for name in ("parallel", "finished"))
        both: F = Arm(parallel[run], finished[run]).auxiliary(spawned)
        return weight_r[run] * both

    total = state.score + paid(state.used, np.arange(len(run_n)))
    for kind, table in tables.items():
        mine = [s for s in steps if s.kind == kind]
        if not mine:
            continue
        row, place, choice, earned, spawned = (np.concatenate(c) for c in list(zip(*mine, strict=True))[1:])
        togo = total[row] - earned - paid(spawned, row)
        many, options = table.shape[0] * table.shape[1], table.shape[2]
        at = run_n[row] * table.shape[1] + place
        count = np.bincount(at, minlength=many)
        ahead = togo - (np.bincount(at, togo, minlength=many) / np.maximum(count, 1))[at]
        # the other half of ∂ log π, -π Σ ahead, is 0: what is ahead of a mean adds up to nothing
        up = np.bincount(at * options + choice, ahead, minlength=many * options).reshape(table.shape)
        p = _softmax(table)
        log_p = np.log(np.maximum(p, 1e-300))
        closed = log_p - (p * log_p).sum(axis=-1, keepdims=True)
        up -= open_r[:, None, None] * count.reshape(table.shape[:2])[..., None] * p * closed
        table += study.rate / study.batch * up


def _widths(state: Travelling, runs: int) -> F:
    """The mean width of a leg, by run."""
    width = state.width.reshape(runs, -1)
    went = width > 0
    mean: F = np.where(went, width, 0).sum(axis=1) / np.maximum(went.sum(axis=1), 1)
    return mean


def _judged(study: Study, tables: Mapping[str, F], runs: Sequence[tuple[str, int]]) -> F:
    """[run, (short, width, checks, legs)] of the policies as they are, on fresh episodes."""
    world, piece = expedition(), 1_000
    sums = np.zeros((len(runs), 4))
    for first in range(0, study.judged, piece):
        n = min(piece, study.judged - first)
        seed_n = np.concatenate([seeds_of(TEST + seed, n, first) for _, seed in runs])
        state, _ = _played(world, tables, seed_n, np.repeat(np.arange(len(runs)), n))
        went, how = (c.reshape(len(runs), -1) for c in (np.maximum(state.width, 0), state.how))
        sums += np.stack(
            [state.score.reshape(len(runs), -1).sum(1), went.sum(1), (how == 2).sum(1), (how >= 0).sum(1)], 1
        )
    score, width, checks, legs = sums.T
    ended = np.maximum(legs, 1)
    return np.stack(
        [1.0 - score / study.judged / world.optimum(), width / ended, checks / ended, legs / study.judged], 1
    )


# what is promised


def run(study: Study, arms: Mapping[str, Arm], seeds: Sequence[int]) -> list[Run]:
    """The same as `learn`, the seeds in two processes."""
    halves = [seeds[::2], seeds[1::2]] if len(seeds) > 1 else [seeds]
    with ProcessPoolExecutor(len(halves), get_context("spawn")) as pool:
        parts = list(pool.map(learn, [study] * len(halves), [arms] * len(halves), halves))
    done = [r for part in parts for r in part]
    return [r for arm in arms for r in sorted((r for r in done if r.arm == arm), key=lambda r: r.seed)]


def optimal_play(n: int = 20_000) -> tuple[float, float, float]:
    """Mean width, share of legs with a check and legs of optimal play."""
    state = play(expedition(), expedition().optimal(), seeds_of(TEST, n)).state
    assert isinstance(state, Travelling)
    how = state.how[state.how >= 0]
    return float(_widths(state, 1)[0]), float((how == 2).mean()), len(how) / n


def _of(runs: Sequence[Run], arm: str, what: str) -> F:
    return np.array([getattr(r, what) for r in runs if r.arm == arm])


def measure(full: bool) -> list[Row]:
    """All five arms on five seeds; the small one has two seeds and leaves out the arm that adds both."""
    names = list(ARMS) if full else ["plain", "constant", "parl", "entropy"]
    study = Study() if full else Study(judged=20_000)
    return rows(run(study, {name: ARMS[name] for name in names}, range(5) if full else range(2)))


def rows(runs: Sequence[Run]) -> list[Row]:
    many, (width, checks, _) = len({r.seed for r in runs}), optimal_play()
    worst, on = f"the worst of {many} seeds", f"mean of {many} seeds"
    plain, constant, parl, entropy = (_of(runs, arm, "short") for arm in ("plain", "constant", "parl", "entropy"))
    adds = estimate(entropy - parl)
    told = [
        at_most("4.2.plain.width", f"plain: mean width, {worst}", _of(runs, "plain", "width").max(), 1.2),
        at_least(
            "4.2.plain.checks",
            f"plain: share of legs with a check, {worst}",
            _of(runs, "plain", "checks").min(),
            0.99,
        ),
        at_least(
            "4.2.constant.width",
            f"constant: mean width, {worst}; the target is the optimum's",
            _of(runs, "constant", "width").min(),
            width,
        ),
        at_least(
            "4.2.constant.below",
            f"constant: how far below the collapsed, in optima, {worst}",
            (constant - plain).min(),
            0.0,
        ),
        at_most("4.2.parl.short", f"annealed PARL: lacks of the optimum, {on}", parl.mean(), 0.1),
        fact("4.2.parl.short.high", "the same, upper end of its 95 % interval", estimate(parl).high),
        fact("4.2.parl.short.worst", f"the same, {worst}", parl.max()),
        *(
            fact(f"4.2.{arm}.short.mean", f"{arm}: lacks of the optimum, {on}", _of(runs, arm, "short").mean())
            for arm in dict.fromkeys(r.arm for r in runs)
            if arm != "parl"
        ),
        fact("4.2.parl.width", f"annealed PARL: mean width, {on}", _of(runs, "parl", "width").mean()),
        fact("4.2.entropy.width", f"entropy alone: mean width, {on}", _of(runs, "entropy", "width").mean()),
        fact("4.2.adds", f"what annealed PARL gains over entropy alone, in optima, {on}", adds.mean),
        fact("4.2.adds.low", "the same, lower end of its 95 % interval", adds.low),
        fact("4.2.adds.high", "the same, upper end", adds.high),
        fact("4.2.optimum", "the exact optimum", expedition().optimum()),
        fact("4.2.optimum.checks", "share of legs with a check in optimal play", checks),
    ]
    return [
        *told,
        fact("4.2.calibration.s", "seconds to add 10 million numbers in Python, this run", best(3, adding)[0]),
    ]


# the figure

INK, PALE, RULE = "#1c2530", "#5b6b7b", "#eef1f4"
COLOURS = {"plain": "#333333", "constant": "#d62728", "parl": "#6d4aff", "entropy": "#0a7d4f", "both": "#b8860b"}
WORDS = {
    "plain": "the outcome alone",
    "constant": "+ instantiation, constant",
    "parl": "+ PARL, annealed",
    "entropy": "+ entropy, annealed",
    "both": "+ both, annealed",
}
WIDTH, HEIGHT, TOP, LOW = 960, 400, 46, 320


def figure(runs: Sequence[Run]) -> str:
    """Training as SVG: on the left what is lacking of the optimum, on the right the mean width; a thin line a seed, a thick one the mean."""
    optimum = optimal_play()[0]
    shares = [0.0, 0.2, 0.4, 0.6]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="system-ui, sans-serif">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_panel(
            64,
            "score, below the optimum",
            [(s, f"{-100 * s:.0f} %" if s else "optimum") for s in shares],
            (0.7, -0.02),
        ),
        *_panel(544, "mean width", [(w, f"{w:g}") for w in (1, 4, 7, 10)], (0.0, 10.5)),
        *_curves(runs, 64, "short_u", (0.7, -0.02)),
        *_curves(runs, 544, "width_u", (0.0, 10.5)),
    ]
    y = _scale(0.0, 10.5)(optimum)
    parts.append(f'<line x1="544" x2="924" y1="{y:.1f}" y2="{y:.1f}" stroke="{INK}" stroke-dasharray="4 4"/>')
    parts.append(_text(924, y - 5, "optimal play", 11, PALE, "end"))
    at = 64.0
    for arm in dict.fromkeys(r.arm for r in runs):
        parts.append(f'<circle cx="{at:.1f}" cy="{HEIGHT - 20}" r="5" fill="{COLOURS[arm]}"/>')
        parts.append(_text(at + 9, HEIGHT - 16, WORDS[arm], 12, INK))
        at += 36 + 6.4 * len(WORDS[arm])
    return "".join([*parts, "</svg>\n"])


def _scale(low: float, high: float) -> Any:
    return lambda value: LOW - (value - low) / (high - low) * (LOW - TOP)


def _text(x: float, y: float, words: str, size: int, fill: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def _panel(left: float, title: str, ticks: Sequence[tuple[float, str]], limits: tuple[float, float]) -> list[str]:
    parts, y = [_text(left, TOP - 18, title, 13, INK)], _scale(*limits)
    for value, words in ticks:
        at = y(value)
        parts.append(f'<line x1="{left}" x2="{left + 380}" y1="{at:.1f}" y2="{at:.1f}" stroke="{RULE}"/>')
        parts.append(_text(left - 8, at + 4, words, 11, PALE, "end"))
    parts.append(_text(left, LOW + 20, "start", 11, PALE))
    return [*parts, _text(left + 380, LOW + 20, "end of training", 11, PALE, "end")]


def _curves(runs: Sequence[Run], left: float, what: str, limits: tuple[float, float]) -> list[str]:
    y, parts = _scale(*limits), []
    for arm in dict.fromkeys(r.arm for r in runs):
        curves = np.stack([_blocks(getattr(r, what)) for r in runs if r.arm == arm])
        x = left + 380 * (np.arange(curves.shape[1]) + 0.5) / curves.shape[1]
        for curve, width, opacity in [*((c, 1, 0.3) for c in curves), (curves.mean(axis=0), 2.5, 1)]:
            points = " ".join(f"{a:.1f},{min(max(y(b), TOP), LOW):.1f}" for a, b in zip(x, curve, strict=True))
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{COLOURS[arm]}" stroke-width="{width}" stroke-opacity="{opacity}">'
                f"<title>{WORDS[arm]}</title></polyline>"
            )
    return parts


def _blocks(curve: F, many: int = 80) -> F:
    """The mean of each block of updates."""
    return np.array([part.mean() for part in np.array_split(curve, min(many, len(curve)))])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="all arms, five seeds; minutes")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    options.add_argument("--develop", action="store_true", help="on seeds for development, from 100 on")
    options.add_argument(
        "--settings", action="store_true", help="weights and schedules, on two seeds for development"
    )
    options.add_argument("--figure", type=Path, help="also write the figure, as SVG")
    args = options.parse_args()
    first = 100 if args.develop or args.settings else 0
    seeds = range(first, first + (5 if args.full else 2))
    names = list(ARMS) if args.full else list(ARMS)[:4]
    arms = SETTINGS if args.settings else {name: ARMS[name] for name in names}
    start = perf_counter()
    done = run(Study(), arms, seeds)
    print(f"{perf_counter() - start:.0f} s of training", file=sys.stderr)
    if args.settings or not args.json:
        for r in done:
            print(
                f"{r.arm:20} seed {r.seed:3}: short {r.short:6.3f}  width {r.width:5.2f}  checks {r.checks:.3f}  legs {r.legs:.2f}"
            )
    if args.settings:
        return
    if args.figure:
        args.figure.write_text(figure(done))
    told = rows(done)
    print(json.dumps({"rows": told})) if args.json else show(told)
    sys.exit(1 if any(row["ok"] is False for row in told) else 0)


if __name__ == "__main__":
    main()
