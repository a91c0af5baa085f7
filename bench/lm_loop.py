"""An iteration of `scouts` by a language model through the one loop: seconds of rollout, credit and update, and decisions.

    python -m bench.lm_loop [--full] [--json]     what was recorded on a GPU; the host alone, with forwards that cost nothing
    python -m bench.lm_loop --gpu [--model FOLDER] [--iterations 4]     SmolLM2-135M on a GPU; a line of JSON for each iteration

Traces are kept in memory as the loop keeps them. The first iteration of each size, in which kernels are made, is left out. `host` is processor time
of the rollouts: what is left of their seconds the host waited for the GPU. Lines of the GPU are kept in docs/results/lm_loop.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
import torch

from bench.lm_jobs import SMOL, TINY, play_settings, trained_on
from bench.lm_packed import commits_of, machine, recorded
from bench.table import Row, at_most, fact, show
from podium.engine.models import policy_team
from podium.engine.runner import ModelRunner
from podium.engine.runner import Row as Reading
from podium.learn.lm.losses import update_of
from podium.learn.lm.policy import LmPolicy
from podium.learn.lm.settings import Settings, prepared
from podium.learn.lm.text_world import TextWorlds
from podium.learn.loop import Rollouts, learn
from podium.learn.regimes import agents_of
from podium.methods import METHODS

__all__ = ["lines_of", "measure", "rows_of"]

Line = dict[str, Any]
ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "results" / "lm_loop.jsonl"
WORLD, METHOD, SEED = "scouts", "branching_policy", 0
SIZES = {"256": (256, 1), "1024": (1_024, 4)}  # episodes of an iteration, and of how many sets of prices
TWICE = 2.0
HOST = 64  # episodes with forwards that cost nothing


class TimedSource:
    """A source, and the processor seconds that its host took for the latest rollouts."""

    def __init__(self, source: TextWorlds) -> None:
        self.source, self.seconds = source, 0.0

    def rollouts(self, policy: Any) -> list[Rollouts]:
        start = process_time()
        rollouts = self.source.rollouts(policy)
        self.seconds = process_time() - start
        return rollouts


def lines_of(settings: Settings, name: str, iterations: int) -> Iterator[Line]:
    """What each iteration took, and what it was of."""
    first, method = trained_on(WORLD, SEED, 0, 0), METHODS[METHOD]
    team = policy_team(settings.model, agents_of(first), seed=SEED, device=settings.device)
    team, update = prepared(team, settings), update_of(method.update)
    policy = LmPolicy(team, SEED, settings, float(iterations), update)
    drawn = lambda iteration, number: trained_on(WORLD, SEED, iteration + 1, number)  # noqa: E731
    source = TimedSource(TextWorlds(settings, play_settings(settings), drawn, method, SEED))
    runner, read = team.model.runner(settings.rows, settings.width), 0
    for one in learn(source, policy, method, update, iterations):
        line = one.line()
        figures = {key: line[key] for key in ("decisions", "rows", "tokens", "rho", "score", "off", "gradient")}
        yield {
            "id": f"{name} {one.iteration}",
            "size": name,
            **one.seconds,
            **figures,
            "host": source.seconds,
            "read": runner.tokens - read,
        }
        read = runner.tokens


def on_gpu(model: str, iterations: int, device: str = "cuda") -> None:
    """A line for each iteration as soon as there is one; a size that fails says why and the other goes on."""
    out = Path(os.environ.get("OUT", ROOT / "out"))
    out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    with (out / "lm_loop.jsonl").open("a") as file:

        def add(line: Line) -> None:
            print(json.dumps(line, default=float), flush=True)
            file.write(json.dumps(line, default=float) + "\n")
            file.flush()

        add(machine())
        for name, (episodes, worlds) in SIZES.items():
            how = {"episodes": episodes, "worlds": worlds, "most": 8, "most_tokens": 16_384}
            try:
                for line in lines_of(replace(SMOL, model=model, device=device, **how), name, iterations):
                    add(line)
            except Exception:
                add({"id": name, "error": traceback.format_exc()[-3000:]})
            torch.cuda.empty_cache()


# ---- what is promised


def rows_of(lines: Mapping[str, Line], where: str) -> list[Row]:
    """Rollouts beside the update, medians over the iterations of each size but the first."""
    rows = []
    for name in SIZES:
        every = [line for line in lines.values() if line.get("size") == name][1:]
        if not every:
            continue
        rollout, credit, update, host, many = (
            median(line[key] for line in every) for key in ("rollout", "credit", "update", "host", "decisions")
        )
        what = f"{WORLD}, SmolLM2, {name} episodes and their branches, {many:,.0f} decisions"
        told = f"{what}: seconds of rollouts / of the update ({rollout:.2f} / {update:.2f}), {where}"
        rows.append(at_most(f"24.3.lm.{name}", told, rollout / update, TWICE, "time"))
        rows.append(fact(f"24.3.lm.{name}.credit", f"{what}: seconds of credit, {where}", credit))
        per = 1000.0 * host / many
        rows.append(fact(f"24.3.lm.{name}.host", f"{what}: processor seconds of rollouts for 1,000, {where}", per))
    return rows


def free_read(runner: ModelRunner, rows: Sequence[Reading], columns: Sequence[int] | None = None) -> Any:
    """Logits that cost nothing: figures of the last token and of how many came before it."""
    runner.tokens += sum(len(row.tokens) for row in rows)
    every = np.arange(runner.module.config.vocab_size) if columns is None else np.array(columns)
    last = np.array([(row.tokens[-1], row.length + len(row.tokens)) for row in rows], np.int64)
    mixed = last[:, :1] * 7_919 + last[:, 1:] * 104_729 + every * 15_485_863
    return torch.from_numpy(mixed % 10_007 / 3_000.0)


def host_rows(full: bool) -> list[Row]:
    """The rollouts of one process without any forward, by the model of bytes."""
    settings = replace(TINY, episodes=HOST if full else 8, digits=3)
    with mock.patch.object(ModelRunner, "read", free_read):
        line = [*lines_of(settings, "host", 2)][-1]
    what = (
        "the same with forwards that cost nothing, tokens of bytes, here: processor seconds of rollouts for 1,000"
    )
    return [fact("24.3.lm.host", f"{what} decisions", 1000.0 * line["host"] / line["decisions"])]


def measure(full: bool) -> list[Row]:
    """As recorded on a GPU; and the host alone, here."""
    text = RECORD.read_text().splitlines() if RECORD.exists() else []
    rows = rows_of(recorded(text), f"as recorded on an H200 at {commits_of(text)}")
    return [*rows, *host_rows(full)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gpu", action="store_true", help="on the GPU, as promised")
    options.add_argument("--model", default="smollm2", help="smollm2, or a folder")
    options.add_argument("--iterations", type=int, default=4, help="of each size, the first to get ready")
    options.add_argument("--full", action="store_true", help="the host too")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    args = options.parse_args()
    if args.gpu:
        on_gpu(args.model, args.iterations)
    elif args.json:
        print(json.dumps({"rows": measure(args.full)}))
    else:
        show(measure(args.full))


if __name__ == "__main__":
    main()
