"""What runs beside the peers, in their own interpreter: their estimators, as their packages have them, on arrays from a file.

    .peers/bin/python bench/peer_side.py FUNCTION IN.npz OUT.npz

It imports nothing of Podium. Where an estimator is a function or a method, that is called; where it is a stretch of a long method (TRL, and
CoMLRL's critics), that stretch of the installed source is run as it stands, on the names it reads.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def verl(given: Arrays) -> Arrays:
    """Every estimator of verl's core_algos that we have a row for. Rewards lie on the last token of each answer."""
    import torch
    from verl.trainer.ppo import core_algos as algos

    mask = torch.from_numpy(given["mask"]).double()
    rewards = torch.zeros_like(mask)
    last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    rewards[torch.arange(len(mask)), last] = torch.from_numpy(given["reward"])
    both, index = (rewards.clone, mask.clone), given["index"]
    some = given["several"]  # rows of groups of two and more: Pass@k refuses others
    plain, scaled = _config(False), _config(True)
    found = {
        "grpo": algos.compute_grpo_outcome_advantage(both[0](), both[1](), index),
        "dr_grpo": algos.compute_grpo_outcome_advantage(both[0](), both[1](), index, norm_adv_by_std_in_grpo=False),
        "rloo": algos.compute_rloo_outcome_advantage(both[0](), both[1](), index),
        "opo": algos.compute_opo_outcome_advantage(both[0](), both[1](), index),
        "reinforce_pp": algos.compute_reinforce_plus_plus_outcome_advantage(both[0](), both[1](), config=plain),
        "reinforce_pp_baseline": algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
            both[0](), both[1](), index
        ),
        "remax": algos.compute_remax_outcome_advantage(both[0](), torch.from_numpy(given["greedy"]), both[1]()),
        "pass_at_k": algos.compute_grpo_passk_outcome_advantage(
            rewards[some], mask[some], index[some], config=plain
        ),
        "pass_at_k_std": algos.compute_grpo_passk_outcome_advantage(
            rewards[some], mask[some], index[some], config=scaled
        ),
        "gae": algos.compute_gae_advantage_return(both[0](), torch.from_numpy(given["value"]), both[1](), 0.9, 0.8),
    }
    return {name: advantage.numpy() for name, (advantage, _) in found.items()}


def _config(std: bool) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create({"gamma": 1.0, "norm_adv_by_std_in_grpo": std})


def verl_seconds(given: Arrays) -> Arrays:
    """Seconds for each of verl's grouped estimators, the best of a few, answers of one token."""
    import torch
    from verl.trainer.ppo import core_algos as algos

    torch.set_num_threads(1)
    rewards, index = torch.from_numpy(given["reward"])[:, None], given["index"]
    mask = torch.ones_like(rewards)
    calls: dict[str, Callable[[], Any]] = {
        "grpo": lambda: algos.compute_grpo_outcome_advantage(rewards.clone(), mask, index),
        "dr_grpo": lambda: algos.compute_grpo_outcome_advantage(
            rewards.clone(), mask, index, norm_adv_by_std_in_grpo=False
        ),
        "rloo": lambda: algos.compute_rloo_outcome_advantage(rewards.clone(), mask, index),
        "opo": lambda: algos.compute_opo_outcome_advantage(rewards.clone(), mask, index),
        "pass_at_k": lambda: algos.compute_grpo_passk_outcome_advantage(
            rewards.clone(), mask, index, config=_config(False)
        ),
        "grpo_vectorized": lambda: algos.compute_grpo_vectorized_outcome_advantage(rewards.clone(), mask, index),
        "rloo_vectorized": lambda: algos.compute_rloo_vectorized_outcome_advantage(rewards.clone(), mask, index),
    }
    return {name: np.array(min(_seconds(call) for _ in range(3))) for name, call in calls.items()}


def _seconds(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def trl(given: Arrays) -> Arrays:
    """The advantages of TRL's trainers, groups of equal size one after the other."""
    import torch
    from trl.trainer import grpo_trainer, rloo_trainer

    rewards, n = torch.from_numpy(given["reward"])[:, None], int(given["n"])

    def run(module: Any, trainer: str, **about: Any) -> np.ndarray:
        method = getattr(module, trainer)._generate_and_score_completions
        names = {"rewards_per_func": rewards.clone(), "num_generations": n, "device": "cpu", "mode": "train"}
        about |= {"reward_weights": torch.ones(1, dtype=rewards.dtype), "reward_clip_range": None, "beta": 0.0}
        names["self"] = SimpleNamespace(**about)
        stretch(method, "unscorable_mask =", "advantages = torch.nan_to_num", vars(module) | names, names)
        advantages: np.ndarray = names["advantages"].numpy()
        return advantages

    found = {
        f"grpo_{how}": run(
            grpo_trainer,
            "GRPOTrainer",
            scale_rewards=how,
            multi_objective_aggregation="sum_then_normalize",
        )
        for how in ("group", "batch", "none")
    }
    return found | {"rloo": run(rloo_trainer, "RLOOTrainer", normalize_advantages=False)}


def stretch(method: Any, first: str, last: str, readable: Arrays, names: Arrays) -> None:
    """Runs the lines of a method from the one that begins with some words to the next that begins with others, before it."""
    lines = inspect.getsource(method).splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(first))
    end = next(i for i, line in enumerate(lines) if i > start and line.strip().startswith(last))
    code = textwrap.dedent("\n".join(lines[start:end]))
    space = {**readable}
    exec(compile(code, inspect.getfile(method), "exec"), space)
    names |= {name: value for name, value in space.items() if name not in readable or name in names}


def comlrl(given: Arrays) -> Arrays:
    """CoMLRL's trees: returns by its own step, from rewards of two turns (aligned) or of one (crossed), then its advantages."""
    import torch
    from comlrl.trainers.reinforce.magrpo import MAGRPOTrainer

    first, second, crossed = given["first"], given["second"], given["crossed"]
    found: Arrays = {}
    for name, rewards, turns, mode in (
        ("aligned", {"": first, **{str(j): row for j, row in enumerate(second)}}, 2, "aligned"),
        ("crossed", crossed, 1, "cross"),
    ):
        trainer = _trainer(MAGRPOTrainer, rewards, turns, len(first), mode)
        trainer._train_step_returns({"prompt": ""})
        for how in ("mean", "raw", "max", "rloo"):
            trainer.advantage_mode = how
            for agent, buffer in enumerate(trainer.rollout_buffers):
                nodes = sorted(buffer, key=lambda sample: (sample.turn_idx, sample.node_env_step))
                made = [trainer._compute_advantages(torch.tensor(s.returns, dtype=torch.float64)) for s in nodes]
                found[f"{name}_{how}_{agent}"] = torch.stack(made).numpy()
    return found


def _trainer(kind: Any, rewards: Any, turns: int, many: int, mode: str) -> Any:
    """A trainer whose agents write where in the tree they are, and are paid by a table of that."""
    trainer = object.__new__(kind)
    table = rewards if isinstance(rewards, dict) else None

    def write(*_: Any, external_prompts: str | None = None, agent_idx: int = 0, **__: Any) -> Arrays:
        path = external_prompts or ""
        return {"completions": [[f"{path}/{g}" for g in range(many)]], "prompts": [path]}

    def paid(*written: list[str], **_: Any) -> list[float]:
        spots = [[text.rpartition("/") for text in texts] for texts in written]
        if table is None:
            return [float(rewards[int(a[2]), int(b[2])]) for a, b in zip(*spots, strict=True)]
        return [float(table[path][int(g)]) for path, _, g in spots[0]]

    trainer.args = SimpleNamespace(
        num_turns=turns, num_generations=many, max_new_tokens=1, joint_mode=mode, rollout_buffer_size=10**9
    )
    trainer.num_agents, trainer.agents, trainer.env_step = 2, [None, None], 0
    trainer.rollout_buffers = [[], []]
    trainer.reward_func, trainer.reward_processor = paid, float
    trainer.external_transition = lambda agent_completions, **_: [agent_completions[0].rpartition("/")[2]] * 2
    trainer._run_agent_tasks = lambda task: [task(0), task(1)]
    trainer._generate_completions_with_external_prompts = write
    trainer._pack_completions_for_buffer = lambda completions: completions
    trainer._compute_rewards = lambda prompts, texts, batch_items: paid(*texts)
    trainer._drain_ready_buffers = lambda agents: None
    return trainer


def comlrl_critic(given: Arrays) -> Arrays:
    """The advantages of CoMLRL's actor-critics along the turns of two agents, one step ahead of their values."""
    import torch
    from comlrl.trainers.actor_critic.iac import IACTrainer
    from comlrl.trainers.actor_critic.maac import MAACTrainer

    found: Arrays = {}
    for name, kind in (("maac", MAACTrainer), ("iac", IACTrainer)):
        trainer = object.__new__(kind)
        trainer.args = SimpleNamespace(num_agents=2, advantage_normalization=False)
        pairs = np.stack([given["reward"], given["value"]], -1).tolist()
        samples = [
            [
                SimpleNamespace(returns=torch.tensor([r]), old_value=torch.tensor([v]), metadata={})
                for r, v in of_agent
            ]
            for of_agent in pairs
        ]
        for agent in range(2):
            names = {"per_agent_samples": samples, "value_discount": float(given["gamma"]), "agent_idx": agent}
            stretch(kind._collect_rollouts_multi_turn, "traj =", "for agent_idx", {"torch": torch, **names}, names)
        trainer._prepare_advantages([sample for of_agent in samples for sample in of_agent])
        found[name] = np.array([[float(sample.advantage) for sample in of_agent] for of_agent in samples])
    return found


if __name__ == "__main__":
    what, there, back = sys.argv[1:]
    with np.load(there) as arrays:
        np.savez(back, **globals()[what](dict(arrays)))
