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


def relay_trainer(
    method: Any, seed: int, steps: int, *, tree: bool, own: bool = False, source: bool = False, lr: float = LR
) -> Any:
    """GRPOTrainer on the relay, with our credit, or as it is (`own`). What the last rollouts were is `trainer.rows`.
    With `source` the runs come as a trace, which `rollout_func_of` makes rows of."""
    import tempfile

    import torch
    from datasets import Dataset
    from relay_task import DIGITS, network, play, tokenizer
    from trl import GRPOConfig, GRPOTrainer

    from podium.exchange.trainers.trl import PodiumGRPOTrainer, rollout_func_of, rollout_reward

    dice = torch.Generator().manual_seed(seed)

    def roll_out(prompts: list[Any], trainer: Any) -> Any:
        digits = [int(p) for p in prompts[::GROUP]]
        trainer.rows = play(trainer.model, digits, GROUP, dice, tree)
        return dict(trainer.rows)

    def as_trace(prompts: list[Any], trainer: Any) -> Any:
        return trace_of_relay(roll_out(prompts, trainer))

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
        "rollout_func": rollout_func_of(as_trace, method) if source else roll_out,
        "train_dataset": rows,
    }
    return GRPOTrainer(**about) if own else PodiumGRPOTrainer(**about, method=method)


def trl_methods() -> dict[str, Any]:
    """C3, Dr. MAS, and credit against the mean of what shares a prefix."""
    from dataclasses import replace

    from podium.methods import METHODS

    c3 = METHODS["c3_reward_only"]
    same = replace(c3, name="same_prefix", credit='same_prefix("mean", alone="zero")')
    dr_mas = METHODS["dr_mas"]
    arms = {"c3_reward_only": (c3, True), "dr_mas": (dr_mas, False), "same_prefix": (same, True)}
    return arms | {"dr_mas from a source": (dr_mas, False)}


def trl_gradient() -> Figures:
    """Six optimizer steps with each method; at each, how far the gradient is from ΣA·logp, row by row."""
    import os

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch
    from transformers import TrainerCallback

    import podium

    torch.set_num_threads(1)
    figures: Figures = {}
    for name, (method, tree) in trl_methods().items():
        trainer = relay_trainer(method, 0, 6, tree=tree, source="source" in name)
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
        figures[name] = {"apart": max(apart), "size": max(sizes), "steps": len(apart), "moved": max(moved)}
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
            trace = trace_of_relay(rows)
            return [Rollouts(trace, None, trace.reward_n["team"], len(rows["task"]), Tally({}))]

    dice, policy, credit_method = torch.Generator().manual_seed(seed), Policy(), METHODS[method]
    for _ in learn(Source(), policy, credit_method, None, steps):  # type: ignore[arg-type]
        pass
    return policy.curve


def relay_trace(seed: int, tree: bool = False) -> Any:
    """Rollouts of the relay by an untrained network, as a trace with tokens."""
    return trace_of_relay(relay_rows(seed, tree))


def trace_of_relay(rows: Any) -> Any:
    """Rows of the relay as a trace with tokens."""
    from podium.exchange.trainers.rows import trace_of_rows

    own = ("prompt_ids", "completion_ids", "logprobs")
    tokens = [p + c for p, c in zip(rows["prompt_ids"], rows["completion_ids"], strict=True)]
    more = {
        "tokens": tokens,
        "logp": [[0.0, 0.0, *one] for one in rows["logprobs"]],
        "mask": [[0, 0, 1]] * len(tokens),
    }
    return trace_of_rows({k: v for k, v in rows.items() if k not in own} | more).trace


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
        again = trace_of_episodes(back)[0]
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


def comlrl_steps() -> Figures:
    """CoMLRL's MAGRPO trainer over two agents, offline: its own advantages and ours; what an update used."""

    import torch
    from comlrl.trainers.reinforce.magrpo import MAGRPOConfig, MAGRPOTrainer
    from datasets import Dataset
    from relay_task import DIGITS, network, tokenizer

    import podium
    from podium.exchange.trainers.comlrl import CreditMixin

    torch.set_num_threads(1)
    words = tokenizer()
    seen: list[Any] = []

    class Trainer(CreditMixin, MAGRPOTrainer):  # type: ignore[misc]
        method = "hera"

        def _compute_advantages(self, returns_tensor: Any) -> Any:
            paid = super()._compute_advantages(returns_tensor)
            seen.append((returns_tensor.tolist(), paid.tolist()))
            return paid

    figures: Figures = {}
    for method, own in (("hera", "mean"), ("marloo", "rloo"), ("maremax", "max"), ("rema", None)):
        torch.manual_seed(0)
        trainer = Trainer(
            agents=[network(0), network(1)],
            num_agents=2,
            tokenizer=words,
            train_dataset=Dataset.from_list([{"prompt": f"P {d}"} for d in range(DIGITS)]),
            reward_func=lambda a, b: [float(len(x) % 2 + len(y) % 3) for x, y in zip(a, b, strict=True)],
            formatters=[lambda row: row["prompt"], lambda row: row["prompt"]],
            args=MAGRPOConfig(
                num_turns=1,
                num_train_epochs=1,
                num_generations=4,
                max_new_tokens=2,
                num_agents=2,
                agent_learning_rate=1e-2,
                rollout_buffer_size=1,
            ),
        )
        trainer.method = method
        before = [{k: v.clone() for k, v in agent.state_dict().items()} for agent in trainer.agents]
        seen.clear()
        trainer.train()
        moved = [
            max(float((v - old[k]).abs().max()) for k, v in agent.state_dict().items())
            for agent, old in zip(trainer.agents, before, strict=True)
        ]
        apart = 0.0
        for returns, paid in seen:
            rows = {"task": [0] * len(returns), "reward": returns}
            want = podium.advantages(rows, method, unpaid=0.0)
            if own is not None:
                trainer.advantage_mode = own
                theirs = MAGRPOTrainer._compute_advantages(trainer, torch.tensor(returns))
                apart = max(apart, float(np.abs(theirs.numpy() - np.array(paid)).max()))
            apart = max(apart, float(np.abs(want - np.array(paid)).max()))
        figures[method] = {"apart": apart, "updates": len(seen), "moved": min(moved)}
    return figures


def skyrl_advantages() -> Figures:
    """SkyRL's own dispatch to five of our estimators, beside podium.advantages."""
    import typing

    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # SkyRL 0.3.0 asks pydantic for what Python has from 3.12 on
    import torch
    from skyrl.backends.skyrl_train.utils.ppo_utils import compute_advantages_and_returns

    import podium
    from podium.exchange.trainers.skyrl import register_all
    from podium.exchange.trainers.verl import row_ids

    register_all()
    figures: Figures = {}
    for name in VERL_METHODS:
        rows = relay_rows(1, tree=name == "c3_reward_only")
        uid = [str(task) for task in rows["task"]] if name == "grpo" else row_ids(rows)
        n, width = len(uid), 3
        mask = (torch.arange(width) < torch.tensor([1 + i % width for i in range(n)])[:, None]).float()
        rewards = torch.zeros(n, width)
        rewards[:, 0] = torch.tensor(rows["reward"])
        got, _ = compute_advantages_and_returns(rewards, mask, np.array(uid, dtype=object), f"podium_{name}", None)
        names = (
            ("task", "reward")
            if name == "grpo"
            else ("task", "rollout", "agent", "role", "turn", "parent", "reward")
        )
        want = podium.advantages({k: rows[k] for k in names} | {"mask": mask}, name, unpaid=0.0)
        figures[name] = {"apart": float((got - want).abs().max()), "size": float(want.abs().max()), "rows": n}
    return figures


def slime_rewards() -> Figures:
    """slime's call with samples that have its fields; it cannot be installed here (Megatron, SGLang)."""
    from types import SimpleNamespace

    import podium
    from podium.exchange.trainers.slime import reward_post_process

    rows = relay_rows(1, tree=False)
    names = ("agent", "role", "turn")
    samples = [
        SimpleNamespace(
            group_index=rows["task"][i],
            rollout_id=rows["rollout"][i],
            response_length=1,
            loss_mask=None,
            metadata={k: rows[k][i] for k in names},
            get_reward_value=lambda args, i=i: rows["reward"][i],
        )
        for i in range(len(rows["task"]))
    ]
    raw, paid = reward_post_process(None, samples, "dr_mas")
    want = podium.advantages({k: rows[k] for k in ("task", "rollout", "reward", *names)}, "dr_mas")
    return {
        "apart": float(np.abs(np.array(paid) - want).max()),
        "raw": float(np.abs(np.array(raw) - rows["reward"]).max()),
    }


def worlds_elsewhere() -> Figures:
    """PettingZoo's own checks of our wrappers, and stable-baselines3's PPO on a world as it is."""
    from pettingzoo.test import api_test, parallel_api_test
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env

    import podium
    from podium.exchange.trainers.pettingzoo import aec, flat, parallel

    figures: Figures = {}
    for name in ("relay", "scouts"):
        world = podium.make(name)
        api_test(aec(world), num_cycles=200)
        parallel_api_test(parallel(world), num_cycles=200)
        figures[name] = {"agents": len(parallel(world).possible_agents)}
    env = flat(podium.make("costly_search"))
    check_env(env)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu", seed=0).learn(256)
    return figures | {"ppo": {"steps": model.num_timesteps}}


def record(folder: str, name: str) -> Figures:
    """What a trainer said and wrote in this environment, for the contract tests: files in a folder."""
    from pathlib import Path

    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    made = {"trl": record_trl, "verl": record_verl, "verifiers": record_verifiers}[name](path)
    return {"files": [one.name for one in made]}


def record_trl(path: Any) -> list[Any]:
    """One step of GRPOTrainer: rows, rewards and mask that came to our mixin, the advantages that it gave back; its log."""
    import os

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import shutil
    from pathlib import Path

    import torch
    import trl
    from relay_task import DIGITS

    trainer = relay_trainer(trl_methods()["c3_reward_only"][0], 0, 1, tree=True)
    trainer.log_completions = True
    (Path(trainer.args.output_dir) / "completions").mkdir()
    kept: Figures = {}
    inner = type(trainer)._advantages

    def keep(self: Any, rows: Any, rewards: Any, mask: Any) -> Any:
        paid = inner(self, rows, rewards, mask)
        kept.update(
            rows=[dict(row) for row in rows], rewards=rewards.tolist(), mask=mask.tolist(), advantages=paid.tolist()
        )
        return paid

    type(trainer)._advantages = keep
    first = {}
    outer = trainer._generate_and_score_completions

    def look(inputs: Any) -> Any:
        output = outer(inputs)
        first.update({k: list(v.shape) if torch.is_tensor(v) else None for k, v in output.items()})
        return output

    trainer._generate_and_score_completions = look
    trainer.train()
    names = ("prompt", "task", "rollout", "agent", "role", "turn", "parent", "reward")
    rows = [{k: row[k] for k in names if k in row} for row in kept.pop("rows")]
    whole = {"trl": trl.__version__, "digits": DIGITS, "output": first, "rows": rows, **kept}
    made = [path / "trl_step.json"]
    made[0].write_text(json.dumps(whole))
    for one in sorted(Path(trainer.args.output_dir).rglob("*.parquet")):
        shutil.copy(one, path / f"trl_{one.name}")
        made.append(path / f"trl_{one.name}")
    return made


def record_verl(path: Any) -> list[Any]:
    """The arguments that verl gives an estimator, and what a loop's output becomes; a file of dumped rollouts."""
    import inspect

    import verl
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage

    rows = relay_rows(1, tree=False)
    asked: Figures = {}

    @core_algos.register_adv_est("podium_recorder")
    def recorder(**given: Any) -> Any:
        asked.update({k: type(v).__name__ for k, v in given.items()})
        return given["token_level_rewards"], given["token_level_rewards"]

    from verl.trainer.config.algorithm import AlgoConfig

    from podium.exchange.trainers.verl import row_ids

    compute_advantage(proto_of(rows, row_ids(rows)), "podium_recorder", config=AlgoConfig())
    whole = {
        "verl": verl.__version__,
        "estimator": asked,
        "register_adv_est": list(inspect.signature(core_algos.register_adv_est).parameters),
        "AgentLoopOutput": list(AgentLoopOutput.model_fields),
        "as_dict": sorted(k for k in ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores")),
    }
    (path / "verl.json").write_text(json.dumps(whole))
    prompts = [f"P {task}" for task in rows["task"][:8]]
    answers = [str(ids[0]) for ids in rows["completion_ids"][:8]]
    scores = rows["reward"][:8]
    RayPPOTrainer._write_generations(prompts, answers, rows["task"][:8], scores, {"acc": scores}, str(path), 3)
    (path / "3.jsonl").rename(path / "verl_3.jsonl")
    return [path / "verl.json", path / "verl_3.jsonl"]


def record_verifiers(path: Any) -> list[Any]:
    """Episodes of two agents with one of several turns, as verifiers writes them."""
    from verifiers.v1.utils.trace_store import write_episode

    from podium.exchange.trainers.verifiers import episodes_of

    for episode in episodes_of(relay_trace(1)[list(range(16, 22))], "rema"):
        write_episode(path, episode)
    (path / "traces.jsonl").rename(path / "verifiers_traces.jsonl")
    return [path / "verifiers_traces.jsonl"]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
