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
GROUP = 16  # rows of a task
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


def relay_trainer(method: Any, seed: int, steps: int, *, tree: bool, own: bool = False, lr: float = 0.01) -> Any:
    """GRPOTrainer on the relay, with our credit, or as it is (`own`). What the last rollouts were is `trainer.rows`."""
    import tempfile

    import torch
    from datasets import Dataset
    from relay_task import DIGITS, network, play, tokenizer
    from trl import GRPOConfig, GRPOTrainer

    from podium.exchange.trainers.trl import PodiumGRPOTrainer, rollout_reward

    dice = torch.Generator().manual_seed(seed)

    def roll_out(prompts: list[Any], trainer: Any) -> Any:
        digits = [int(p) for p in prompts[::GROUP]]
        trainer.rows = play(trainer.model, digits, GROUP, dice, tree)
        return dict(trainer.rows)

    options = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        per_device_train_batch_size=GROUP * DIGITS,
        num_generations=GROUP,
        max_completion_length=1,
        max_steps=steps,
        learning_rate=lr,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        beta=0.0,
        report_to=[],
        logging_steps=10**6,
        save_strategy="no",
        disable_tqdm=True,
        seed=seed,
        bf16=False,
    )
    rows = Dataset.from_list([{"prompt": str(i % DIGITS)} for i in range(DIGITS)])
    about = {
        "model": network(seed),
        "args": options,
        "processing_class": tokenizer(),
        "reward_funcs": rollout_reward,
        "rollout_func": roll_out,
        "train_dataset": rows,
    }
    return GRPOTrainer(**about) if own else PodiumGRPOTrainer(**about, method=method)


def trl_methods() -> dict[str, Any]:
    """C3, Dr. MAS, and credit against the mean of what shares a prefix."""
    from dataclasses import replace

    from podium.methods import METHODS

    c3 = METHODS["c3_reward_only"]
    same = replace(c3, name="same_prefix", credit='same_prefix("mean", alone="zero")')
    return {"c3_reward_only": (c3, True), "dr_mas": (METHODS["dr_mas"], False), "same_prefix": (same, True)}


def trl_gradient() -> Figures:
    """Three optimizer steps with each method; at each, how far the gradient is from ΣA·logp, row by row."""
    import os

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch
    from transformers import TrainerCallback

    import podium

    torch.set_num_threads(1)
    figures: Figures = {}
    for name, (method, tree) in trl_methods().items():
        trainer = relay_trainer(method, 0, 3, tree=tree)
        apart, moved, sizes = [], [], []

        class Compare(TrainerCallback):  # type: ignore[misc]
            def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                rows = trainer.rows  # noqa: B023
                batch = {k: v for k, v in rows.items() if k not in ("prompt_ids", "completion_ids", "logprobs")}
                paid = podium.advantages(batch, method, per="row")  # noqa: B023
                model = trainer.model  # noqa: B023
                total: Any = 0.0
                for prompt, ids, a in zip(rows["prompt_ids"], rows["completion_ids"], paid, strict=True):
                    logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
                    logp = torch.log_softmax(logits, -1)[torch.arange(len(ids)), torch.tensor(ids)]
                    total = total - float(np.nan_to_num(a)) * logp.sum()
                want = torch.autograd.grad(total / sum(map(len, rows["completion_ids"])), list(model.parameters()))
                pairs = list(zip(model.parameters(), want, strict=True))
                apart.append(max(float((p.grad - g).abs().max()) for p, g in pairs))  # noqa: B023
                sizes.append(max(float(g.abs().max()) for g in want))  # noqa: B023

        before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
        trainer.add_callback(Compare())
        trainer.train()
        moved = [float((v - before[k]).abs().max()) for k, v in trainer.model.state_dict().items()]
        figures[name] = {"apart": max(apart), "size": min(sizes), "steps": len(apart), "moved": max(moved)}
    return figures


VERL_METHODS = ("dr_mas", "c3_reward_only", "rema", "magrpo", "grpo")


def relay_rows(seed: int, tree: bool) -> Any:
    """Rows of the relay by an untrained network."""
    import torch
    from relay_task import DIGITS, network, play

    return play(network(seed), list(range(DIGITS)), GROUP, torch.Generator().manual_seed(seed), tree)


def proto_of(rows: Any, uid: list[str], width: int = 3) -> Any:
    """The rows as verl's DataProto: answers padded, each reward on the last token."""
    import torch
    from verl import DataProto

    n = len(uid)
    lengths = torch.tensor([1 + i % width for i in range(n)])
    mask = (torch.arange(width) < lengths[:, None]).long()
    rewards = torch.zeros(n, width)
    rewards[torch.arange(n), lengths - 1] = torch.tensor(rows["reward"])
    tensors = {"response_mask": mask, "token_level_rewards": rewards, "responses": torch.ones(n, width).long()}
    return DataProto.from_dict(tensors, non_tensors={"uid": np.array(uid, dtype=object)})


def verl_advantages() -> Figures:
    """verl's own way from batch to advantages, with five of our methods, beside podium.advantages."""
    from verl.trainer.config.algorithm import AlgoConfig
    from verl.trainer.ppo.ray_trainer import compute_advantage
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    import podium
    from podium.exchange.trainers.verl import row_ids

    figures: Figures = {}
    for name in VERL_METHODS:
        rows = relay_rows(1, tree=name == "c3_reward_only")
        data = proto_of(rows, row_ids(rows))
        about = {name: rows[name] for name in ("task", "rollout", "agent", "role", "turn", "parent", "reward")}
        if name == "grpo":  # of rows alone: a rollout each
            data = proto_of(rows, [str(task) for task in rows["task"]])
            about = {"task": rows["task"], "reward": rows["reward"]}
        want = podium.advantages(about | {"mask": data.batch["response_mask"]}, name, unpaid=0.0)
        kind = f"podium_{name}"
        legacy = compute_advantage(data, kind, config=AlgoConfig()).batch["advantages"].clone()
        keys = [f"u_{i}_0" for i in range(len(data))]
        latest = compute_advantage_for_multi_trajectories(data, keys, kind, config=AlgoConfig())
        apart = max(float((a - want).abs().max()) for a in (legacy, latest.batch["advantages"]))
        figures[name] = {"apart": apart, "size": float(want.abs().max()), "rows": len(data)}
    return figures | {"loop": verl_loop()}


def verl_loop() -> Figures:
    """An agent loop that plays the relay by a server of one network: its outputs, through verl, are the trace's credit."""
    import asyncio
    from types import SimpleNamespace

    import torch
    from relay_task import WORDS, network, speak
    from verl import DataProto
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    from podium.exchange.trainers.generations import generations, token_credit
    from podium.exchange.trainers.rows import trace_of_rows
    from podium.exchange.trainers.verl import team_loop

    model, dice, traces = network(0), torch.Generator().manual_seed(3), []

    class Server:
        async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: Any) -> Any:
            said = speak(model, [prompt_ids], dice)
            return SimpleNamespace(token_ids=said.ids, log_probs=said.logp)

    async def play(prompt: Any, generate: Any) -> Any:
        rows: Any = {name: [] for name in "task rollout agent role turn reward tokens mask logp".split()}
        for run in range(6):
            plan = await generate([WORDS.index("P"), int(prompt)])
            answer = await generate([WORDS.index("S"), *plan.token_ids])
            reward = float(answer.token_ids[0] % 2)
            for turn, (who, said, before) in enumerate(
                (("planner", plan, [WORDS.index("P"), int(prompt)]), ("solver", answer, [WORDS.index("S"), *plan.token_ids]))
            ):
                one = ("q", run, who, who, turn, reward, before + said.token_ids, [0, 0, 1], [0.0, 0.0, *said.log_probs])
                for values, value in zip(rows.values(), one, strict=True):
                    values.append(value)
        traces.append(trace_of_rows(rows).trace)
        return traces[-1]

    loop = object.__new__(team_loop(play, "dr_mas"))
    loop.server_manager = Server()
    outputs = [one.as_dict() for one in asyncio.run(loop.run({}, raw_prompt="2", uid="u"))]
    tensors = {
        "response_mask": torch.stack([one["response_mask"] for one in outputs]),
        "token_level_rewards": torch.stack([one["rm_scores"] for one in outputs]),
    }
    data = DataProto.from_dict(tensors, non_tensors={"uid": np.array(["u"] * len(outputs), dtype=object)})
    keys = [f"u_0_{i}" for i in range(len(outputs))]
    got = compute_advantage_for_multi_trajectories(data, keys, "podium_carried").batch["advantages"][:, 0]
    want = [one.credit[0] for one in generations(traces[0], token_credit(traces[0], "dr_mas"))]
    return {"apart": float((got - torch.tensor(want)).abs().max()), "size": max(map(abs, want)), "rows": len(want)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
