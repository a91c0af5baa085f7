"""What writing everything down costs: rollouts, trace and credit beside the same rollouts that write nothing.

python -m bench.one_loop [--full] [--json]
"""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np

from bench.table import Row, at_least, command, fact
from podium.envs.draws import seeds
from podium.learn.collect import Branching, collect
from podium.learn.params import trainable, training
from podium.learn.policy import Net
from podium.learn.rows import training_rows
from podium.learn.train import one_thread
from podium.methods import credit_of

__all__ = ["measure"]

PROMISED = 0.7
LARGE = "expedition/large"


def measure(full: bool) -> list[Row]:
    """Each world by turns, with and without; processor time, the least of some repeats."""
    repeats, episodes = (5, 1_000) if full else (1, 30)
    rows = []
    for name in (world for world in trainable() if world != LARGE):
        with one_thread():
            with_it, without, decisions = _timed(name, repeats, episodes)
        rows.append(
            at_least(
                f"24.3.{name}",
                f"{name}: the rate of rollout, trace and credit over that of the same rollouts without a trace",
                without / with_it,
                PROMISED,
                "time",
            )
        )
        rows.append(fact(f"24.3.{name}.us", f"{name}: microseconds a decision, without", 1e6 * without / decisions))
    return rows


def _timed(name: str, repeats: int, episodes: int) -> tuple[float, float, int]:
    """Seconds with and without a trace, and how many decisions were made."""
    world = training(name, 0, 1, 0)
    net = Net(world)
    how = Branching(share=1.0, most=100, room=8 * episodes, sharp=10.0, wander=0.9, whole=0.2)
    args: Any = (world, net, net.initial(0), seeds(0, episodes), how)

    def learned() -> int:
        one = collect(*args)
        assert one.forest is not None
        training_rows([one.decisions], [credit_of(one.forest, "branching_policy")])
        return one.made

    def plain() -> int:
        return collect(*args, write=False).made

    spent = np.full((2, repeats), np.inf)
    made = 0
    for i in range(repeats):
        for k, run in enumerate((learned, plain)):
            start = process_time()
            made = run()
            spent[k, i] = process_time() - start
    return float(spent[0].min()), float(spent[1].min()), made


if __name__ == "__main__":
    command(measure, __doc__)
