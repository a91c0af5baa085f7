"""An orchestrator learns the five decisions, each in a world whose optimum is known. `make demo` runs this.

It starts out taking any option, and learns from the credit of its own runs: at some decisions every other option is tried too, with the
same luck. It is then judged in worlds with other prices, sizes and rosters than those that it learned in.
"""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from podium.envs.conformance import random_policy, score_of
from podium.learn import folder as runs
from podium.learn.params import held_out
from podium.trace.files import load, write_whole
from podium.view.training import Lesson, lessons_page

DECISIONS = ("spawn", "delegate", "communicate", "aggregate", "stop")
RECIPES = Path(runs.__file__).parent / "recipes"
OUT = Path("out/five")
TESTS, EPISODES = 3, 20_000


def asked(decision: str) -> runs.Asked:
    path = RECIPES / f"{decision}.toml"
    return runs.read_recipe(path.read_text(), path.name)


def learn(decision: str) -> dict[str, object]:
    """Trains one decision and judges it: a row of the table."""
    run = runs.Run(asked(decision), OUT / decision)
    for _ in run.iterations():
        pass
    run.played(episodes=3)
    found = run.judged(TESTS, EPISODES)
    any_option = [score_of(held_out(run.asked.world, i), random_policy(i), EPISODES, 0)[0] for i in range(TESTS)]
    return {
        "decision": decision,
        "world": run.asked.world,
        "before": float(np.mean(any_option)),
        "learned": float(np.mean([j.value for j in found])),
        "exact optimum": float(np.mean([j.optimum for j in found])),
        "regret": float(np.mean([j.regret for j in found])),
        "best trivial policy": float(np.mean([j.trivial for j in found])),
        "share of the gap": float(np.mean([j.share for j in found])),
    }


def written(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1%}" if name == "regret" else f"{value:.3f}"


def main() -> None:
    began, console = time.monotonic(), Console(highlight=False)
    shutil.rmtree(OUT, ignore_errors=True)
    console.print("An orchestrator learns five decisions from the credit of its own runs.")
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        futures = {decision: pool.submit(learn, decision) for decision in DECISIONS}
        watched(console, futures)
        rows = [futures[decision].result() for decision in DECISIONS]
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name.replace(" ", "\n"), no_wrap=True)
    for row in rows:
        table.add_row(*(written(name, value) for name, value in row.items()))
    console.print(table)
    console.print(
        f"Scores are means over {TESTS} held-out worlds. Before: any option, as it starts. Share of the gap: what is left of the way "
        "from the best trivial policy to the optimum."
    )
    lessons = [
        Lesson(
            f"{row['decision']}: {row['world']}",
            at.lines,
            load(at.folder / "before.jsonl")[0],
            load(at.folder / "after.jsonl")[0],
        )
        for row in rows
        for at in [runs.Run(asked(str(row["decision"])), OUT / str(row["decision"]))]
    ]
    write_whole(OUT / "report.html", lessons_page("An orchestrator learns five decisions", rows, lessons).encode())
    console.print(
        f"{time.monotonic() - began:.0f} s. Open {OUT / 'report.html'} in a browser for the curves, and runs before and after."
    )
    console.print("To go on: source .venv/bin/activate, then podium train --help.")


def watched(console: Console, futures: dict[str, Future[dict[str, object]]]) -> None:
    """A bar for each decision, as long as any is still learning."""
    shown = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*shown, console=console, transient=True) as bars:
        tasks = {d: bars.add_task(d, total=asked(d).recipe.iterations) for d in futures}
        while not all(f.done() for f in futures.values()):
            for decision, task in tasks.items():
                path = OUT / decision / "iterations.jsonl"
                done = path.read_bytes().count(b"\n") if path.exists() else 0
                bars.update(task, completed=done)
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
