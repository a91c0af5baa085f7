"""TRL: GRPOTrainer with the advantages of any of our methods, per token.

    from podium.exchange.trainers.trl import PodiumGRPOTrainer
    trainer = PodiumGRPOTrainer(..., reward_funcs=..., method="dr_mas")

Rows are TRL's completions. Columns of the data set and extra fields of a `rollout_func` say what they are: task
(the prompt unless given), rollout, agent, role, turn, parent, branch, valid. The reward of a rollout is TRL's: the
weighted sum of its reward functions. `rollout_func_of` makes a `rollout_func` that plays a source of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from podium.exchange.trainers.batch import advantages
from podium.exchange.trainers.generations import generations, token_credit
from podium.exchange.trainers.rows import BadBatch
from podium.methods.method import Method, named
from podium.rewards.ledger import Now
from podium.trace.columns import Trace

__all__ = ["ROW_FIELDS", "CreditMixin", "rollout_func_of", "rollout_reward"]

ROW_FIELDS = "task rollout agent role turn parent branch valid".split()
PAID = "podium_advantages"  # the extra field with what a source's own trace paid each token


class CreditMixin:
    """For a class that also inherits GRPOTrainer: its advantages become a method's, (rows, tokens).

    `method` is a name or a `Method`; `fields` are further columns that it reads (a critic's `value`). A token that
    is paid nothing has advantage 0; `podium/paid` logs the share of sampled tokens that were paid."""

    def __init__(
        self, *args: Any, method: Method | str = "dr_mas", fields: Sequence[str] = (), **options: Any
    ) -> None:
        self.method = named(method) if isinstance(method, str) else method
        self.fields = (*ROW_FIELDS, *fields)
        super().__init__(*args, **options)

    def _calculate_rewards(self, inputs: Any, *rest: Any) -> Any:
        """TRL's own, remembered with the rows they are of."""
        rewards = super()._calculate_rewards(inputs, *rest)  # type: ignore[misc]
        self._scored = inputs, rewards
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        rows, rewards = self._scored
        mask = output["completion_mask"]
        if "tool_mask" in output:
            mask = mask * output["tool_mask"]
        output["advantages"] = self._advantages(rows, rewards, mask)
        return output

    def _advantages(self, rows: Sequence[dict[str, Any]], rewards: Any, mask: Any) -> Any:
        """One for each token of this process' rows; groups are of all processes."""
        import torch
        from accelerate.utils import gather_object

        trainer: Any = self
        if all(PAID in row for row in rows):
            values = np.full(tuple(mask.shape), np.nan)
            for i, row in enumerate(rows):
                values[i, : len(row[PAID])] = row[PAID]
        else:
            weights = trainer.reward_weights.to(rewards.device)
            reward = (rewards * weights).nansum(1)
            reward[torch.isnan(rewards).all(1)] = torch.nan
            table = self._table(rows, mask, gather_object, trainer.accelerator.process_index)
            table["reward"] = reward.tolist()
            progress = trainer.state.global_step / max(trainer.state.max_steps, 1)
            whole = advantages(table, self.method, per="token", now=Now(min(progress, 1.0), ()))
            start = trainer.accelerator.process_index * len(rows)
            values = np.full(tuple(mask.shape), np.nan)
            width = min(whole.shape[1], mask.shape[1])
            values[:, :width] = whole[start : start + len(rows), :width]
        sampled = mask.bool().cpu().numpy()
        paid = ~np.isnan(values) & sampled
        if trainer.accelerator.num_processes == 1:  # TRL's log of completions shows what was paid, a mean a row
            log, means = (
                trainer._logs["advantages"],
                np.where(paid, values, 0.0).sum(1) / np.maximum(paid.sum(1), 1),
            )
            for _ in rows:
                log.pop()
            log.extend(means.tolist())
        trainer._metrics["train" if trainer.model.training else "eval"]["podium/paid"].append(
            float(paid.sum() / max(sampled.sum(), 1))
        )
        return torch.as_tensor(np.where(paid, values, 0.0), dtype=torch.float32, device=mask.device)

    def _table(
        self, rows: Sequence[dict[str, Any]], mask: Any, gather: Callable[[Any], Any], process: int
    ) -> dict[str, Any]:
        """The rows of all processes as columns."""
        own = [
            {name: row[name] for name in self.fields if name in row}
            | {"mask": some, "prompt_text": json.dumps(row.get("prompt"), default=str), "place": (process, i)}
            for i, (row, some) in enumerate(zip(rows, mask.int().tolist(), strict=True))
        ]
        every = gather(own)
        names = [name for name in (*self.fields, "mask") if name in every[0]]
        table = {name: [row[name] for row in every] for name in names}
        table.setdefault("task", [row["prompt_text"] for row in every])
        table.setdefault("rollout", [row["place"] for row in every])
        return table


def rollout_reward(prompts: Any, completions: Any, reward: Sequence[float], **_: Any) -> list[float]:
    """The reward function for rows that bring the reward of their rollout in the field `reward`."""
    return list(reward)


Play = Callable[[list[Any], Any], Trace]


def rollout_func_of(play: Play, method: Method | str = "dr_mas") -> Callable[[list[Any], Any], dict[str, Any]]:
    """A `rollout_func` that plays a source of ours: `play(prompts, trainer)` returns a trace with token ids.

    Each generation of the trace is a row. TRL wants as many rows as prompts: what is missing is filled with rows
    that train nothing; more are refused. The credit is that of the trace itself, so every method can be paid. Use
    it with `reward_funcs=rollout_reward`."""
    row = named(method) if isinstance(method, str) else method

    def roll_out(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        progress = trainer.state.global_step / max(trainer.state.max_steps, 1)
        trace = play(prompts, trainer)
        rows = generations(trace, token_credit(trace, row, Now(min(progress, 1.0), ())))
        if len(rows) > len(prompts):
            raise BadBatch(f"the source made {len(rows)} generations for {len(prompts)} prompts; play fewer runs")
        end = trainer._tokenizer.eos_token_id
        empty = len(prompts) - len(rows)
        return {
            "prompt_ids": [g.prompt_ids or [end] for g in rows] + [[end]] * empty,
            "completion_ids": [g.completion_ids for g in rows] + [[end]] * empty,
            "logprobs": [g.logprobs for g in rows] + [[0.0]] * empty,
            "env_mask": [g.mask for g in rows] + [[0]] * empty,
            "reward": [g.reward for g in rows] + [float("nan")] * empty,
            "agent": [g.agent for g in rows] + [""] * empty,
            PAID: [g.credit for g in rows] + [[float("nan")]] * empty,
        }

    return roll_out


def __getattr__(name: str) -> Any:
    """PodiumGRPOTrainer, made when it is first asked for, as it needs TRL."""
    if name != "PodiumGRPOTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trl import GRPOTrainer

    trainer = globals()[name] = type(name, (CreditMixin, GRPOTrainer), {"__doc__": CreditMixin.__doc__})
    return trainer
