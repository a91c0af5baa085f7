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
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bench.table import Row, at_least, at_most, calibration, fact, show
from experiments.legs import ARMS, SETTINGS, Arm, Run, Study, expedition, learn, optimal_play
from podium.interval import estimate
from podium.trace.columns import F

__all__ = ["figure", "measure", "rows", "run"]


# what is promised


def run(study: Study, arms: Mapping[str, Arm], seeds: Sequence[int]) -> list[Run]:
    """The same as `learn`, the seeds in two processes."""
    halves = [seeds[::2], seeds[1::2]] if len(seeds) > 1 else [seeds]
    with ProcessPoolExecutor(len(halves), get_context("spawn")) as pool:
        parts = list(pool.map(learn, [study] * len(halves), [arms] * len(halves), halves))
    done = [r for part in parts for r in part]
    return [r for arm in arms for r in sorted((r for r in done if r.arm == arm), key=lambda r: r.seed)]


def _of(runs: Sequence[Run], arm: str, what: str) -> F:
    return np.array([getattr(r, what) for r in runs if r.arm == arm])


def measure(full: bool) -> list[Row]:
    """All five arms on five seeds; the small one has few updates of two seeds and leaves out the arm that adds both."""
    names = list(ARMS) if full else ["plain", "constant", "parl", "entropy"]
    arms = {name: ARMS[name] for name in names}
    runs = run(Study(), arms, range(5)) if full else learn(Study(updates=20, judged=500), arms, range(2))
    return [*rows(runs), calibration("4.2", full)]


def rows(runs: Sequence[Run]) -> list[Row]:
    many, (width, checks, _) = len({r.seed for r in runs}), optimal_play()
    worst, on = f"the worst of {many} seeds", f"mean of {many} seeds"
    plain, constant, parl, entropy = (_of(runs, arm, "short") for arm in ("plain", "constant", "parl", "entropy"))
    adds = estimate(entropy - parl)
    return [
        at_most(
            "4.2.plain.width", f"plain: mean width, {worst}", _of(runs, "plain", "width").max(), 1.2, "sampled"
        ),
        at_least(
            "4.2.plain.checks",
            f"plain: share of legs with a check, {worst}",
            _of(runs, "plain", "checks").min(),
            0.99,
            "sampled",
        ),
        at_least(
            "4.2.constant.width",
            f"constant: mean width, {worst}; the target is the optimum's",
            _of(runs, "constant", "width").min(),
            width,
            "sampled",
        ),
        at_least(
            "4.2.constant.below",
            f"constant: how far below the collapsed, in optima, {worst}",
            (constant - plain).min(),
            0.0,
            "sampled",
        ),
        at_most("4.2.parl.short", f"annealed PARL: lacks of the optimum, {on}", parl.mean(), 0.1, "sampled"),
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
    told = [*rows(done), calibration("4.2", args.full)]
    print(json.dumps({"rows": told})) if args.json else show(told)
    sys.exit(1 if any(row["ok"] is False for row in told) else 0)


if __name__ == "__main__":
    main()
