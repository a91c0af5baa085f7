"""What each trainer calls our fields: `podium.advantages(batch, fields="trl")`.

docs/trainers.md has the table in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["FIELDS", "Names"]


class Names(NamedTuple):
    """Our fields by the trainer's names; of several the first that the batch has. Fields it lacks are left out."""

    names: Mapping[str, tuple[str, ...]]

    def of(self, batch: Any) -> dict[str, str]:
        """What this batch calls ours."""
        there = _names(batch)
        first = {ours: next((t for t in theirs if t in there), None) for ours, theirs in self.names.items()}
        return {ours: theirs for ours, theirs in first.items() if theirs is not None and theirs != ours}


def _names(batch: Any) -> set[str]:
    if hasattr(batch, "non_tensor_batch"):
        return {*(() if batch.batch is None else batch.batch.keys()), *batch.non_tensor_batch}
    if isinstance(batch, Mapping):
        return set(batch)
    columns = getattr(batch, "column_names", getattr(batch, "columns", None))
    return set(columns) if columns is not None else {name for row in batch for name in row}


FIELDS: dict[str, Names] = {
    "trl": Names(
        {
            "task": ("task", "prompt_id", "prompt"),
            "tokens": ("completion_ids",),
            "mask": ("tool_mask", "completion_mask"),
            "logp": ("sampling_per_token_logps", "logprobs"),
        }
    ),
    "verl": Names(
        {
            "task": ("task", "uid"),
            "reward": ("reward", "scores"),
            "rollout": ("rollout", "traj_uid"),
            "tokens": ("responses",),
            "mask": ("response_mask",),
            "logp": ("rollout_log_probs", "old_log_probs"),
            "agent": ("agent", "agent_name"),
            "turn": ("turn", "turn_idx"),
        }
    ),
    "skyrl": Names(
        {
            "task": ("task", "uids"),
            "rollout": ("rollout", "trajectory_ids"),
            "tokens": ("response_ids",),
            "mask": ("loss_masks",),
            "reward": ("reward", "rewards"),
            "logp": ("rollout_logprobs",),
        }
    ),
    "slime": Names(
        {
            "task": ("task", "group_index"),
            "rollout": ("rollout", "index"),
            "mask": ("loss_mask", "loss_masks"),
            "length": ("response_length", "response_lengths"),
            "logp": ("rollout_log_probs",),
        }
    ),
}
