"""The whole study of fidelity: what is measured, at two sizes, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.asked import asked
from experiments.chart import chart
from experiments.diffusion import LENGTHS, Diffused, diffusion
from experiments.effects import coverage, errors, points
from experiments.estimators import branching, pooled_branching, price, within_budget
from experiments.fidelity import Found, curve, designs, mark, row
from experiments.identify import Identified, identification, spawns_that_react
from experiments.recorded import decided, held_out_teams, record_runs, tried
from experiments.table import table
from experiments.worlds import world_table
from podium.envs.planted import Planted, PlantedParams
from podium.envs.planted_credit import noise_share
from podium.envs.world import BadParameter
from podium.study.figure import Line

__all__ = ["Study", "pictures", "study", "told"]

SEED = 31415  # held out: estimators were made on the teams of other numbers (docs/fidelity.md says which)
AGENTS = (1, 2, 4, 6, 8)
STEPS = (0, 1, 2, 3, 4)  # tool calls and messages an agent
CURVE = {
    "branching, pooled by state": "branching, pooled by state",
    "branching, pooled by step": "branching, pooled by step",
    "branching": "branching",
    "c3, pooled by state": "C3's leave-one-out, pooled",
    "c3": "C3's leave-one-out",
}


@dataclass(frozen=True)
class Study:
    """All that was measured."""

    designs: dict[str, Found]
    asked: list[Found]  # eight branches a decision, asked for where they change the answer
    curve: dict[int, dict[str, Found]]
    errors: dict[str, float]  # of spawn and stop effects: the 95th percentile of what they are off by
    coverage: dict[str, float]
    methods: list[Found]
    refused: dict[str, str]
    sizes: list[tuple[str, float, Found]]  # what varies, how large, and the marks
    diffused: list[Diffused]
    identified: list[Identified]


def study(full: bool = False) -> Study:
    """Everything, at full size in minutes or at a small one in half a minute."""
    teams = held_out_teams(16 if full else 5, SEED)
    budgets = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if full else (1, 8, 64, 256)
    pairs = 4096 if full else 2048
    off, holds = {}, {}
    for kind in ("spawn", "stop"):
        at = points(teams, kind, SEED)
        off[kind] = float(np.quantile(np.abs(errors(at, pairs, SEED)), 0.95))
        repeats = 1000 // len(at) + 1
        holds[kind] = float(
            np.mean([coverage(p, repeats, 512 if full else 256, SEED + i)[0] for i, p in enumerate(at)])
        )
    methods = table(teams[:8], 16, SEED)
    return Study(
        designs(teams, 128, SEED),
        asked(teams[: 8 if full else 2], 16, SEED),
        curve(teams[:8], 128 if full else 64, SEED, budgets),
        off,
        holds,
        methods.found + world_table(24, 8 if full else 3, seed=SEED),
        methods.refused,
        _sizes(6 if full else 2, 64 if full else 32),
        diffusion(LENGTHS if full else LENGTHS[:5], 400_000 if full else 60_000),
        identification(spawns_that_react(_drawn(150 if full else 40, SEED)), 2000, 2 if full else 1),
    )


def _drawn(n: int, seed: int, **size: Any) -> list[Planted]:
    """Teams of a size whose outcome is half noise, as they come."""
    dice, found = np.random.default_rng([seed, *size.values()]), []
    for _ in range(20 * n):
        params = {"team": int(dice.integers(1000, 10**6)), "rule": int(dice.choice([0, 1, 2, 4]))}
        try:
            world = Planted(PlantedParams(**params, **size, noise=0.5))
        except BadParameter:
            continue
        if abs(noise_share(world.model) - 0.5) < 0.005:
            found.append(world)
            if len(found) == n:
                break
    return found


def _sizes(teams: int, runs: int) -> list[tuple[str, float, Found]]:
    """Eight continuations a decision in teams of other sizes."""
    sizes_ = []
    for what, sizes in (("agents", AGENTS), ("events", STEPS)):
        for size in sizes:
            params = {"agents": size} if what == "agents" else {"tools": size, "messages": size}
            marks: dict[str, Found] = {}
            events = []
            for world in _drawn(teams, SEED, **params):
                dice = np.random.default_rng([SEED, size])
                log = record_runs(world, runs, SEED)
                events.append(float(world.model.present(log.values).sum(axis=1).mean()))
                decisions = decided(log)
                earned = tried(log, decisions, 9)
                wanted = within_budget(decisions, 8, dice)
                tries = np.where(wanted, earned[:, :, : wanted.shape[2]], np.nan)
                one = branching(decisions, tries)
                cost = price(decisions, wanted)
                env = (
                    f"planted, {size} agents"
                    if what == "agents"
                    else f"planted, {size} tool calls and messages an agent"
                )
                credits = {
                    "branching": mark(one.credit, decisions.exact, cost),
                    "branching, pooled by state": mark(
                        pooled_branching(decisions, tries, "state"), decisions.exact, cost
                    ),
                    "broadcast": mark((log.outcome - log.outcome.mean())[decisions.run], decisions.exact),
                }
                for name, marked in credits.items():
                    marks.setdefault(name, Found(name, env=env)).marks.append(marked)
            x = float(size) if what == "agents" else float(np.mean(events))
            sizes_ += [(what, x, one_found) for one_found in marks.values()]
    return sizes_


def told(found: Study) -> dict[str, Any]:
    """All of it as `podium bench fidelity --json` says it."""
    few = [f for _, _, f in found.sizes]
    return {"rows": [row(f) for f in (*found.designs.values(), *found.asked, *found.methods, *few)]}


def pictures(found: Study) -> dict[str, str]:
    """The pictures of the page, by name."""
    lines = [
        Line(shown, [(b, *_band(found.curve[b][name])) for b in sorted(found.curve)])
        for name, shown in CURVE.items()
    ]
    charts = {
        "curve": chart("Rank correlation with exact credit", "continuations a decision", "rank correlation", lines)
    }
    for what in ("agents", "events"):
        names = dict.fromkeys(f.method for w, _, f in found.sizes if w == what)
        lines = [
            Line(name, [(x, *_band(f)) for w, x, f in found.sizes if w == what and f.method == name])
            for name in names
        ]
        charts[what] = chart(
            f"Eight continuations a decision, by {what}", f"{what} a run", "rank correlation", lines
        )
    shown = {"broadcast": "broadcast", "apart": "8 pairs, luck of their own", "shared": "8 pairs, shared luck"}
    lines = [Line(s, [(d.length, getattr(d, n)) for d in found.diffused]) for n, s in shown.items()]
    charts["diffusion"] = chart("Credit diffusion", "decisions a run", "signal to noise", lines, log_y=True)
    shown = {
        "policy": "spawned less not spawned",
        "states": "the same inside states",
        "branches": "same-prefix branches",
    }
    lines = [Line(s, [(i.coverage, getattr(i, n)) for i in found.identified]) for n, s in shown.items()]
    charts["identification"] = chart(
        "Error of a spawn's effect", "coverage: share of decisions at random", "error", lines, True, 0.01
    )
    return charts


def _band(found: Found) -> tuple[float, float, float]:
    rho = found.mean()
    return rho.mean, rho.low, rho.high
