"""What every detector finds and what it cries wolf at, on planted cases, their clean twins and clean runs of every topology.

    python -m bench.detectors [--full] [--json] [--write]

Seeds below 10,000 are for development; these figures come from seeds from 3,000,000 on, which nobody looked at
(a first measurement, from 1,000,000 on, showed that honest runs marked too little: the simulator was changed after it). A case is found if
the detector names the guilty run, and where it names agents or rows, all guilty agents or one of the guilty rows. Precision counts
alarms on planted cases (blatant and typical) and on their twins. `--write` keeps the figures in `podium/audit/figures.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

import podium.audit
from bench.planted import PLANTERS, STRENGTHS, Case, Strength, plant, second
from bench.table import Row, at_least, at_most, show
from bench.teams import SHAPES, Run, play, trace
from podium.audit import Suspects, detectors
from podium.registry import facts, find
from podium.trace.columns import Trace

__all__ = ["Figures", "all_figures", "figures", "measure"]

FIRST, CLEAN = 3_000_000, 4_000_000
CASES, SMALL_CASES = 200, 2
PRECISION, RECALL, EDGE, FALSE_ALARMS = 0.95, 0.95, 0.7, 0.02
PATH = Path(podium.audit.__file__).parent / "figures.json"


class Figures(NamedTuple):
    """How good a detector is, and on how many cases of each strength and clean runs of each topology."""

    precision: float
    recall: float
    recall_edge: float
    false_alarms: float  # of all clean runs of the worst topology
    told: float  # the share of clean runs in which it could tell: a detector that never can raises no alarm either ...
    false_alarms_told: float  # ... and of those the share with an alarm, all topologies together
    cases: int
    clean: int


def measure(full: bool) -> list[Row]:
    """Four rows a detector."""
    return [
        row
        for name, got in all_figures(detectors(), CASES if full else SMALL_CASES).items()
        for row in _rows(name, got)
    ]


def all_figures(names: Sequence[str], cases: int, first: int = FIRST, clean: int = CLEAN) -> dict[str, Figures]:
    """The figures of these detectors, measured side by side where there is more than a little to do."""
    ask = partial(figures, cases=cases, first=first, clean=clean)
    if cases * len(names) <= SMALL_CASES:
        return {name: ask(name) for name in names}
    workers = min(os.cpu_count() or 1, 8)
    with ProcessPoolExecutor(workers, get_context("fork"), gc.disable) as pool:  # events make no cycles
        return dict(zip(names, pool.map(ask, names), strict=True))


def _rows(name: str, got: Figures) -> list[Row]:
    said = name.replace("_", " ")
    return [
        at_least(
            f"4.3.{name}.precision",
            f"{said}: precision, {2 * got.cases} cases and twins",
            got.precision,
            PRECISION,
            "sampled",
        ),
        at_least(f"4.3.{name}.recall", f"{said}: recall, {2 * got.cases} cases", got.recall, RECALL, "sampled"),
        at_least(
            f"4.3.{name}.edge",
            f"{said}: recall just above the threshold, {got.cases} cases",
            got.recall_edge,
            EDGE,
            "sampled",
        ),
        at_most(
            f"4.3.{name}.false_alarms",
            f"{said}: false alarms, worst topology of {got.clean} clean runs each",
            got.false_alarms,
            FALSE_ALARMS,
            "sampled",
        ),
    ]


def figures(name: str, cases: int, first: int = FIRST, clean: int = CLEAN) -> Figures:
    """One detector on planted cases from seed `first` on and clean runs from seed `clean` on."""
    if name not in PLANTERS:
        return Figures(0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0, 0)  # nobody has planted a case of it: it must not ship
    met = [_judged(name, strength, cases, first) for strength in STRENGTHS]
    (right, wrong), (found, many) = (np.sum([m[i] for m in met[:2]], axis=0) for i in (0, 1))
    alarms = [_alarms(name, _clean(shape, cases, clean)) for shape in SHAPES]
    told = float(np.mean([share for _, share in alarms]))
    edge_found, edge_many = met[2][1]
    return Figures(
        float(right / (right + wrong)) if right + wrong else 0.0,
        float(found / many) if many else 0.0,
        float(edge_found / edge_many) if edge_many else 0.0,
        max(cried for cried, _ in alarms),
        told,
        sum(cried for cried, _ in alarms) / len(alarms) / told if told else 0.0,
        min(m[1][1] for m in met),
        cases,
    )


def _judged(name: str, strength: Strength, cases: int, first: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(alarms that are right, alarms that are wrong), (cases found, cases)."""
    planted: list[Case] = []
    twins: list[list[Run]] = []
    for seed in range(first + STRENGTHS.index(strength), first + 200 * cases, 3):
        if (made := plant(name, strength, seed)) is not None:
            planted.append(made[0])
            twins.append(made[1])
        if len(planted) == cases:
            break
    right, wrong, found = _compared(name, planted)
    _, cries, _ = _compared(name, [Case(runs, []) for runs in twins])
    return (right, wrong + cries), (found, len(planted))


def _compared(name: str, cases: list[Case]) -> tuple[int, int, int]:
    """Alarms that name who is guilty, alarms that do not, and cases whose guilty are all named."""
    runs = [run for case in cases for run in case.runs]
    if not runs:
        return 0, 0, 0
    record = trace(runs)
    said = _asked(name, record)
    evidence: list[set[int]] = [set() for _ in said.figure]
    for row, of in zip(said.row.tolist(), said.of.tolist(), strict=True):
        evidence[of].add(row)
    first_e, first_a = record.first_of("e"), record.first_of("a")
    by_run: dict[int, list[int]] = {}
    for i, n in enumerate(said.rollout.tolist()):
        by_run.setdefault(n, []).append(i)
    right = wrong = found = n = 0
    for case in cases:
        named: set[int] = set()
        for place, run in enumerate(case.runs):
            where = {
                id(e): k for k, e in enumerate(sorted(run.events, key=lambda e: (e.t, e.order)), int(first_e[n]))
            }
            rows = {where[id(e)] for e in case.rows}
            for i in by_run.get(n, ()):
                agent = int(said.agent[i]) - int(first_a[n])
                fits = place in case.guilty and (not rows or bool(rows & evidence[i]))
                fits = fits and (not case.agents or agent in case.agents)
                right, wrong = right + fits, wrong + (not fits)
                if fits:
                    named.add(agent if case.agents else place)
            n += 1
        wanted = case.agents or set(case.guilty)
        found += bool(wanted) and wanted <= named
    return right, wrong, found


def _asked(name: str, record: Trace) -> Suspects:
    said: Suspects = find("detector", name)(record, second(name), facts("detector", name)["threshold"])
    return said


@cache
def _clean(shape: str, many: int, first: int) -> Trace:
    place = SHAPES.index(shape) * 1_500 + first
    return trace([play(seed, shape) for seed in range(place, place + many)])


def _alarms(name: str, record: Trace) -> tuple[float, float]:
    """The share of clean runs with an alarm, and of those in which it could tell."""
    said: Suspects = find("detector", name)(record, second(""), facts("detector", name)["threshold"])
    return len(np.unique(said.rollout)) / len(record), float(said.tells_n.mean())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", help="which detectors; all unless told")
    options.add_argument("--full", action="store_true", help="the sizes that are promised; minutes")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    options.add_argument("--develop", action="store_true", help="on seeds for development")
    options.add_argument(
        "--write", action="store_true", help=f"measure in full and keep the figures in {PATH.name}"
    )
    args = options.parse_args()
    cases = CASES if args.full or args.write else SMALL_CASES
    seeds = (0, 0) if args.develop else (FIRST, CLEAN)
    got = all_figures(args.names or detectors(), cases, *seeds)
    rows = [row for name, f in got.items() for row in _rows(name, f)]
    if args.write:
        PATH.write_text(json.dumps({name: f._asdict() for name, f in got.items()}, indent=1) + "\n")
    print(json.dumps({"rows": rows})) if args.json else show(rows)
    sys.exit(1 if any(row["ok"] is False for row in rows) else 0)


if __name__ == "__main__":
    main()
