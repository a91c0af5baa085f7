"""What runs in the environment of a trainer: `python bench/trainer_side.py FUNCTION`, which prints one line of JSON.

Each function calls the trainer's own code and Podium's plug-in for it, side by side; `bench/trainer_rows.py` judges.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

ROWS, TOKENS = 4096, 4096
Figures = dict[str, Any]


def verl_cost() -> Figures:
    """Seconds of verl's vectorised GRPO and of ours for the same tensors, the best of several, one thread."""
    import torch
    from verl.trainer.ppo import core_algos

    import podium

    torch.set_num_threads(1)
    dice = np.random.default_rng(0)
    mask = torch.from_numpy(np.arange(TOKENS) < dice.integers(1, TOKENS, ROWS)[:, None]).float()
    reward, index = dice.random(ROWS), np.arange(ROWS) // 8
    rewards = torch.zeros_like(mask)
    rewards[:, 0] = torch.from_numpy(reward)
    batch = {"task": index, "reward": reward, "mask": mask}
    value = torch.from_numpy(reward).float()
    calls = {
        "ours": lambda: podium.advantages(batch, "grpo", unpaid=0.0),
        "product": lambda: value[:, None] * mask,
        "verl": lambda: core_algos.compute_grpo_vectorized_outcome_advantage(rewards, mask, index)[0],
    }
    apart = float((calls["ours"]() - calls["verl"]()).abs().max())
    return {**best_of(calls), "apart": apart}


def best_of(calls: dict[str, Callable[[], Any]], times: int = 7) -> Figures:
    """The least seconds of each, in turns."""
    seconds: Figures = dict.fromkeys(calls, np.inf)
    for _ in range(times):
        for name, call in calls.items():
            start = perf_counter()
            call()
            seconds[name] = min(seconds[name], perf_counter() - start)
    return seconds


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
