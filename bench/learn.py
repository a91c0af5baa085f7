"""Training throughput: decisions a second with rollout, credit and update, and where the time goes."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from podium.learn import params
from podium.learn.policy import Net
from podium.learn.train import Recipe, begin, train

__all__ = ["main", "measured"]


def measured(name: str, iterations: int, cores: int, rows: int) -> dict[str, object]:
    """Trains for some iterations, the first not counted."""
    net = Net(params.training(name, 0, 0, 0))
    recipe = replace(Recipe(), rows=rows)
    told = []
    with ProcessPoolExecutor(cores) as pool:
        mapped = pool.map if cores > 1 else map
        steps = train(net, recipe, lambda i, k: params.training(name, 0, i + 1, k), begin(net, 0), mapped)
        next(steps)
        clock = time.perf_counter()
        for _ in range(iterations):
            told.append(next(steps)[1])
        seconds = time.perf_counter() - clock
    split = {k: sum(t.seconds[k] for t in told) / seconds for k in told[0].seconds}
    decisions = sum(t.decisions for t in told)
    return {
        "env": name,
        "decisions_per_second": round(decisions / seconds),
        "branched": sum(t.rows for t in told),
    } | {k: round(v, 3) for k, v in split.items()}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", default="costly_search,crew,relay,jury,scouts")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rows", type=int, default=Recipe.rows)
    given = parser.parse_args(argv)
    rows = [measured(name, given.iterations, given.cores, given.rows) for name in given.envs.split(",")]
    for row in rows:
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
