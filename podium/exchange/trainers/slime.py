"""slime: what a method pays, in place of its normalised rewards.

    --custom-reward-post-process-path podium.exchange.trainers.slime.reward_post_process
    --advantage-estimator grpo              # hands a sample's reward to its tokens, as it is
    PODIUM_METHOD=dr_mas

slime calls it with all samples of a rollout, before they go to ranks, so that no group is torn apart. A sample's
group is its task and its `rollout_id`, if it has one, its rollout. Its `metadata` may say agent, role, turn, parent
and branch. Methods that pay tokens of one sample differently are refused: slime has one reward a sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from podium.exchange.trainers.batch import advantages
from podium.methods.method import Method

__all__ = ["reward_post_process", "rows_of_samples"]

ROW = "task rollout agent role turn parent branch valid".split()


def rows_of_samples(args: Any, samples: Sequence[Any]) -> dict[str, list[Any]]:
    """slime's samples by our names."""
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    lengths = [sample.response_length for sample in samples]
    rows: dict[str, list[Any]] = {
        "task": [sample.group_index for sample in samples],
        "reward": raw,
        "mask": [
            list(sample.loss_mask) if sample.loss_mask is not None else [1] * many
            for sample, many in zip(samples, lengths, strict=True)
        ],
    }
    ids = [getattr(sample, "rollout_id", None) for sample in samples]
    if all(one is not None for one in ids):
        rows["rollout"] = ids
    metadata = [sample.metadata or {} for sample in samples]
    names = [name for name in ROW if all(name in one for one in metadata)]
    return rows | {name: [one[name] for one in metadata] for name in names}


def reward_post_process(
    args: Any, samples: Sequence[Any], method: Method | str | None = None
) -> tuple[list[float], list[float]]:
    """The rewards as they are, and what each sample is paid: 0 where it is nothing."""
    flat = [one for some in samples for one in some] if samples and isinstance(samples[0], list) else list(samples)
    rows = rows_of_samples(args, flat)
    paid = advantages(rows, method or os.environ.get("PODIUM_METHOD", "dr_mas"), per="row", unpaid=0.0)
    return rows["reward"], paid.tolist()
