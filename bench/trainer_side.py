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
LR = 0.003
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


def relay_trainer(method: Any, seed: int, steps: int, *, tree: bool, own: bool = False, lr: float = LR) -> Any:
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
                (
                    ("planner", plan, [WORDS.index("P"), int(prompt)]),
                    ("solver", answer, [WORDS.index("S"), *plan.token_ids]),
                )
            ):
                one = (
                    "q",
                    run,
                    who,
                    who,
                    turn,
                    reward,
                    before + said.token_ids,
                    [0, 0, 1],
                    [0.0, 0.0, *said.log_probs],
                )
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


def relay_curves(arms: str) -> Figures:
    """The chance that the team earns 1, every few updates; arms as bench/trainer_compare.py states them."""
    import os

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch

    torch.set_num_threads(1)
    figures: Figures = {}
    for name, ((who, method, tree), seeds, steps, every) in json.loads(arms).items():
        learn = trl_curve if who == "trl" else own_curve
        figures[name] = [learn(method, seed, steps, every, tree) for seed in seeds]
        print(name, [round(curve[-1], 3) for curve in figures[name]], file=sys.stderr, flush=True)
    return figures


def trl_curve(method: str, seed: int, steps: int, every: int, tree: bool) -> list[float]:
    from relay_task import accuracy
    from transformers import TrainerCallback

    trainer = relay_trainer(method or "dr_mas", seed, steps, tree=tree, own=not method)
    curve = [accuracy(trainer.model)]

    class Look(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                curve.append(accuracy(trainer.model))

    trainer.add_callback(Look())
    trainer.train()
    return curve


def own_curve(method: str, seed: int, steps: int, every: int, tree: bool) -> list[float]:
    """The same by podium's loop: a source of rows, a policy that follows the gradient of the credit of tokens."""
    import torch
    from relay_task import DIGITS, accuracy, network, play

    from podium.exchange.trainers.generations import generations, token_credit
    from podium.exchange.trainers.rows import trace_of_rows
    from podium.learn.loop import Change, Rollouts, learn
    from podium.learn.mix import Tally
    from podium.methods import METHODS

    class Policy:
        """The network, with the optimizer that TRL takes by default."""

        def __init__(self) -> None:
            self.model, self.iteration, self.updates = network(seed), 0, 0
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=0.0)
            self.curve = [accuracy(self.model)]

        def fit(self, rollouts: Any, method: Any) -> Any:
            return rollouts

        def update(self, rollouts: Any, credit: Any, update: Any) -> Change:
            made = generations(rollouts[0].trace, token_credit(rollouts[0].trace, credit_method))
            ids = torch.tensor([one.prompt_ids + one.completion_ids for one in made])
            paid = torch.tensor([one.credit[0] for one in made])
            logp = torch.log_softmax(self.model(input_ids=ids).logits[:, -2], -1)
            loss = -(torch.nan_to_num(paid) * logp[torch.arange(len(ids)), ids[:, -1]]).sum() / len(ids)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.iteration, self.updates = self.iteration + 1, self.updates + 1
            if self.iteration % every == 0:
                self.curve.append(accuracy(self.model))
            return Change(len(made), None, 0.0, {}, float((~torch.isnan(paid)).float().mean()), None)

    class Source:
        def rollouts(self, policy: Policy) -> list[Rollouts]:
            rows = play(policy.model, list(range(DIGITS)), GROUP, dice, tree)
            tokens = [p + c for p, c in zip(rows.pop("prompt_ids"), rows.pop("completion_ids"), strict=True)]
            logp = [[0.0, 0.0, *one] for one in rows.pop("logprobs")]
            batch = rows | {"tokens": tokens, "logp": logp, "mask": [[0, 0, 1]] * len(tokens)}
            trace = trace_of_rows(batch).trace
            return [Rollouts(trace, None, trace.reward_n["team"], len(tokens), Tally({}))]

    dice, policy, credit_method = torch.Generator().manual_seed(seed), Policy(), METHODS[method]
    for _ in learn(Source(), policy, credit_method, None, steps):  # type: ignore[arg-type]
        pass
    return policy.curve


def relay_trace(seed: int, tree: bool = False) -> Any:
    """Rollouts of the relay by an untrained network, as a trace with tokens."""
    from podium.exchange.trainers.rows import trace_of_rows

    rows = relay_rows(seed, tree)
    tokens = [p + c for p, c in zip(rows.pop("prompt_ids"), rows.pop("completion_ids"), strict=True)]
    logp = [[0.0, 0.0, *one] for one in rows.pop("logprobs")]
    return trace_of_rows(rows | {"tokens": tokens, "logp": logp, "mask": [[0, 0, 1]] * len(tokens)}).trace


def verifiers_nodes() -> Figures:
    """Runs of ours as verifiers' episodes and back; what a method writes into nodes, through verifiers' file and back."""
    import tempfile
    from pathlib import Path

    from verifiers.v1.episode import WireEpisode
    from verifiers.v1.utils.trace_store import write_episode

    import podium
    from podium.exchange.trainers.generations import token_credit
    from podium.exchange.trainers.verifiers import assign_advantages, episodes_of, trace_of_episodes

    trace = relay_trace(1)
    figures: Figures = {}
    for name in ("dr_mas", "rema", "grpo"):
        episodes = episodes_of(trace)
        assert all(node.advantages is None for e in episodes for t in e.traces for node in t.nodes)
        paid = assign_advantages(episodes, name)
        folder = Path(tempfile.mkdtemp())
        for episode in episodes:
            write_episode(folder, episode)
        lines = (folder / "traces.jsonl").read_text().splitlines()
        back = [WireEpisode.model_validate_json(line) for line in lines]
        again, event_of = trace_of_episodes(back)
        credit = token_credit(trace, name)
        want = [credit[(trace.owner_k == row) & (trace.mask_k == 1)] for row in range(trace.n_events)]
        want = [one for one in want if len(one)]
        nodes = [node for e in episodes for t in e.traces for node in t.nodes if node.sampled]
        key = lambda e: int(e.id)  # noqa: E731
        order = [node for e in sorted(episodes, key=key) for t in e.traces for node in t.nodes if node.sampled]
        apart = max(float(np.abs(np.array(n.advantages) - w).max()) for n, w in zip(order, want, strict=True))
        loaded = [node for e in back for t in e.traces for node in t.nodes if node.sampled]
        file = max(
            abs(a - b)
            for x, y in zip(nodes, loaded, strict=True)
            for a, b in zip(x.advantages, y.advantages, strict=True)
        )
        ids = [trace.token_k.tolist(), again.token_k.tolist()]
        read = podium.load(str(folder / "traces.jsonl"))
        figures[name] = {
            "apart": apart,
            "file": file,
            "paid": paid,
            "nodes": len(nodes),
            "ids": int(sorted(ids[0]) != sorted(ids[1])),
            "runs": len(read),
        }
    return figures


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
