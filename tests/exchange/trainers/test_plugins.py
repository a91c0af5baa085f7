"""The plug-ins against what their trainers said and wrote, recorded by `bench/trainer_side.py record` in environments of
their own. `python -m bench.trainer_rows --full` asks the trainers themselves."""

from __future__ import annotations

import json
import sys
from collections import defaultdict, deque
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from handmade import near

import podium
from podium.exchange.trainers import comlrl, skyrl, slime, trl, verifiers, verl
from podium.exchange.trainers.generations import generations, token_credit
from podium.exchange.trainers.rows import BadBatch, trace_of_rows
from podium.methods import METHODS

torch = pytest.importorskip("torch")
RECORDED = Path(__file__).parent / "recorded"
ROWS: dict[str, list[Any]] = {
    "task": ["q"] * 8,
    "rollout": [0, 0, 1, 1, 2, 2, 3, 3],
    "agent": ["ann", "bob"] * 4,
    "turn": [0, 1] * 4,
    "reward": [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.5],
}


def played() -> Any:
    """A trace with the token ids of four runs of two agents."""
    tokens = [[7, 8 + i, 3] for i in range(8)]
    return trace_of_rows(ROWS | {"tokens": tokens, "mask": [[0, 1, 1]] * 8, "logp": [[0.0, -1.0, -2.0]] * 8}).trace


# TRL


class FakeTrainer:
    """As GRPOTrainer calls its own methods, by the recorded step."""

    def __init__(self, step: dict[str, Any]) -> None:
        self.step, self.model = step, SimpleNamespace(training=True)
        self.accelerator = SimpleNamespace(process_index=0, num_processes=1)
        self.reward_weights = torch.ones(1)
        self.state = SimpleNamespace(global_step=0, max_steps=1)
        self._metrics: Any = {"train": defaultdict(list)}
        self._logs = {"advantages": deque([0.0] * len(step["rows"]))}

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
        return torch.tensor(self.step["rewards"])

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        self._calculate_rewards(inputs, [], [], [])
        return {"completion_mask": torch.tensor(self.step["mask"]), "advantages": torch.zeros(len(inputs))}


def test_trl_gets_the_advantages_that_it_had() -> None:
    step = json.loads((RECORDED / "trl_step.json").read_text())
    assert step["trl"] == "1.16.0"
    assert {"completion_mask", "advantages", "num_items_in_batch"} <= set(step["output"])
    pytest.importorskip("accelerate")
    kind = type("Trainer", (trl.CreditMixin, FakeTrainer), {})
    trainer: Any = kind(step, method="c3_reward_only")
    output = trainer._generate_and_score_completions(step["rows"])
    near(output["advantages"].numpy(), np.array(step["advantages"]), 1e-6)
    assert trainer._metrics["train"]["podium/paid"] == [1.0]
    near(list(trainer._logs["advantages"]), np.array(step["advantages"])[:, 0], 1e-6)
    batch = {
        name: [row[name] for row in step["rows"]]
        for name in ("task", "rollout", "agent", "turn", "parent", "reward")
    }
    batch["role"] = batch["agent"]
    near(np.array(step["advantages"])[:, 0], podium.advantages(batch, "c3_reward_only"), 1e-6)


def test_trl_keeps_the_mask_of_tools() -> None:
    step = {"rows": [{"prompt": "p"}, {"prompt": "p"}], "rewards": [[1.0], [0.0]], "mask": [[1, 1, 1], [1, 1, 0]]}
    pytest.importorskip("accelerate")

    class WithTools(FakeTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            return super()._generate_and_score_completions(inputs) | {
                "tool_mask": torch.tensor([[1, 0, 1], [1, 1, 1]])
            }

    trainer: Any = type("Trainer", (trl.CreditMixin, WithTools), {})(step, method="hera")
    paid = trainer._generate_and_score_completions(step["rows"])["advantages"]
    assert paid.tolist() == [[0.5, 0.0, 0.5], [-0.5, -0.5, 0.0]]


def test_a_source_is_played_for_trl_and_pays_its_own_tokens() -> None:
    trainer = SimpleNamespace(
        state=SimpleNamespace(global_step=0, max_steps=1), _tokenizer=SimpleNamespace(eos_token_id=9)
    )
    output = trl.rollout_func_of(lambda prompts, trainer: played(), "dr_mas")(["p"] * 10, trainer)
    assert {"prompt_ids", "completion_ids", "logprobs"} <= set(output)
    assert {len(column) for column in output.values()} == {10}
    assert output["prompt_ids"][0] == [7]
    assert output["completion_ids"][:2] == [[8, 3], [9, 3]]
    assert output["env_mask"][-1] == [0]
    want = podium.advantages(ROWS, "dr_mas")
    near([one[0] for one in output[trl.PAID][:8]], want)
    with pytest.raises(BadBatch, match="the source made 8 generations for 4 prompts"):
        trl.rollout_func_of(lambda prompts, trainer: played())(["p"] * 4, trainer)
    assert trl.rollout_reward([], [], reward=[1.0, 0.5], other=1) == [1.0, 0.5]


# verl and SkyRL


def test_verl_has_every_method_and_calls_it_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = json.loads((RECORDED / "verl.json").read_text())
    assert recorded["verl"] == "0.9.1"
    registry: dict[str, Any] = {}
    algos = ModuleType("verl.trainer.ppo.core_algos")
    algos.ADV_ESTIMATOR_REGISTRY = registry  # type: ignore[attr-defined]
    algos.register_adv_est = lambda name: lambda f: registry.setdefault(name, f)  # type: ignore[attr-defined]
    for name in ("verl", "verl.trainer", "verl.trainer.ppo"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, algos.__name__, algos)
    assert len(verl.registered) == len([m for m in METHODS.values() if m.credit]) + 1
    assert set(registry) == set(verl.register_all())
    mask = torch.tensor([[1, 1], [1, 0]] * 4)
    rewards = torch.zeros(8, 2)
    rewards[:, 0] = torch.tensor(ROWS["reward"])
    given = {"token_level_rewards": rewards, "response_mask": mask, "config": None}
    given["index"] = np.array(verl.row_ids(ROWS), object)
    assert set(given) == set(recorded["estimator"])
    paid, returns = registry["podium_dr_mas"](**given)
    want = podium.advantages(ROWS | {"mask": mask}, "dr_mas", unpaid=0.0)
    assert torch.equal(paid, want)
    assert torch.equal(returns, want)
    carried, _ = registry["podium_carried"](**given)
    assert torch.equal(carried, rewards * mask)
    alone, _ = verl.estimator("hera")(rewards, mask, index=np.array(["q"] * 8, object))
    near(alone[:, 0].numpy(), np.array(ROWS["reward"]) - np.mean(ROWS["reward"]), 1e-6)
    with pytest.raises(BadBatch, match="row 1, uid: has task, where row 0 has task, agent"):
        verl.estimator("hera")(rewards[:2], mask[:2], index=['{"task":1,"agent":2}', '{"task":1}'])


def test_a_loop_of_verl_carries_the_credit_of_tokens() -> None:
    recorded = json.loads((RECORDED / "verl.json").read_text())

    class Output:
        """As AgentLoopOutput: these fields, and rewards on the last token."""

        def __init__(self, **fields: Any) -> None:
            assert set(fields) <= set(recorded["AgentLoopOutput"])
            self.__dict__ |= fields

        def as_dict(self) -> dict[str, Any]:
            mask = torch.tensor(self.response_mask)  # type: ignore[attr-defined]
            scores = torch.zeros(len(mask))
            scores[-1] = self.reward_score  # type: ignore[attr-defined]
            return {"response_mask": mask, "rm_scores": scores, "extra_fields": dict(self.extra_fields)}  # type: ignore[attr-defined]

    trace = played()
    outputs = verl.outputs_of(trace, "dr_mas", Output, None)
    made = generations(trace, token_credit(trace, "dr_mas"))
    assert [one.response_ids for one in outputs] == [one.completion_ids for one in made]
    for output, one in zip(outputs, made, strict=True):
        fields = output.as_dict()
        near(fields["rm_scores"].numpy(), one.credit, 1e-6)
        assert "credit" not in fields["extra_fields"]


def test_skyrl_has_the_same_estimators() -> None:
    functions = skyrl.estimators()
    mask, rewards = torch.ones(8, 1), torch.tensor(ROWS["reward"])[:, None]
    more = {"values": None, "grpo_norm_by_std": True, "gamma": 1.0, "lambd": 1.0, "config": None}
    paid, _ = functions["podium_dr_mas"](rewards, mask, index=np.array(verl.row_ids(ROWS), object), **more)
    near(paid[:, 0].numpy(), podium.advantages(ROWS, "dr_mas"), 1e-6)


# verifiers


@pytest.mark.parametrize("method", ["dr_mas", "hera", "grpo"])
def test_nodes_of_verifiers_get_what_the_method_pays(method: str) -> None:
    lines = (RECORDED / "verifiers_traces.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    stated = [node["advantages"] for e in episodes for t in e["traces"] for node in t["nodes"] if node["sampled"]]
    paid = verifiers.assign_advantages(episodes, method)
    assert paid == 1.0
    trace, event_of = verifiers.trace_of_episodes(episodes)
    credit = token_credit(trace, method)
    for (e, t, node), row in event_of.items():
        want = credit[(trace.owner_k == row) & (trace.mask_k == 1)]
        near(episodes[e]["traces"][t]["nodes"][node]["advantages"], want)
    assert len(stated) == len(event_of) == 12
    rows = {"task": [], "rollout": [], "agent": [], "turn": [], "reward": [], "length": []}
    for episode in episodes:
        for turn, one in enumerate(episode["traces"]):
            reward = one["rewards"]["team"]["score"]
            for name, value in zip(
                rows, (episode["group"]["id"], episode["id"], one["agent"]["name"], turn, reward, 1), strict=True
            ):
                rows[name].append(value)
    got = [node["advantages"][0] for e in episodes for t in e["traces"] for node in t["nodes"] if node["sampled"]]
    near(got, podium.advantages(rows, method, per="row"), 1e-6)


def test_runs_of_ours_are_episodes_of_verifiers_and_back() -> None:
    trace = played()
    episodes = verifiers.plain_episodes(trace, "dr_mas")
    again = verifiers.trace_of_episodes(episodes)[0]
    assert sorted(again.token_k.tolist()) == sorted(trace.token_k.tolist())
    assert again.reward_n["team"].tolist() == trace.reward_n["team"].tolist()
    near(token_credit(again, "dr_mas")[again.mask_k == 1], token_credit(trace, "dr_mas")[trace.mask_k == 1])
    with pytest.raises(BadBatch, match="episode 0: it has no message"):
        verifiers.trace_of_episodes([{"id": "x", "traces": []}])


# CoMLRL and slime


def test_comlrl_is_paid_by_a_method() -> None:
    mixin = comlrl.CreditMixin()
    returns = torch.tensor([1.0, 0.0, 0.5, 0.5])
    assert torch.allclose(mixin._compute_advantages(returns), torch.tensor([2 / 3, -2 / 3, 0.0, 0.0]))
    mixin.method = "hera"
    assert torch.equal(mixin._compute_advantages(returns), returns - 0.5)


def test_slime_gets_what_each_sample_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(i: int) -> Any:
        about = {name: ROWS[name][i] for name in ("agent", "turn")}
        return SimpleNamespace(
            group_index=0,
            rollout_id=ROWS["rollout"][i],
            response_length=2,
            loss_mask=None if i else [1, 1],
            metadata=about,
            get_reward_value=lambda args: ROWS["reward"][i],
        )

    samples = [sample(i) for i in range(8)]
    raw, paid = slime.reward_post_process(None, samples)
    assert raw == ROWS["reward"]
    near(paid, podium.advantages(ROWS, "dr_mas"))
    monkeypatch.setenv("PODIUM_METHOD", "hera")
    assert slime.reward_post_process(None, [samples[:4], samples[4:]])[1] == (np.array(raw) - np.mean(raw)).tolist()


# rollout files


def test_recorded_rollouts_are_traces() -> None:
    dumped = podium.load(RECORDED / "verl_3.jsonl")
    lines = [json.loads(line) for line in (RECORDED / "verl_3.jsonl").read_text().splitlines()]
    assert len(dumped) == len(lines) == 8
    assert dumped.reward_n["team"].tolist() == [line["score"] for line in lines]
    assert len(set(dumped.task_id_n.codes.tolist())) == 1
    completions = podium.load(RECORDED / "trl_completions_00001.parquet")
    step = json.loads((RECORDED / "trl_step.json").read_text())
    assert completions.reward_n["team"].tolist() == [row["reward"] for row in step["rows"]]
    near(completions.reward_n["advantage"], np.array(step["advantages"])[:, 0], 1e-6)
    episodes = podium.load(RECORDED / "verifiers_traces.jsonl")
    assert set(episodes.name_a.words) == {"person", "planner", "solver"}
    assert int((episodes.mask_k == 1).sum()) == 12
    assert not np.isnan(podium.credit_of(episodes, "dr_mas").value).all()


def test_a_rollout_file_of_slime_is_a_trace(tmp_path: Path) -> None:
    def sample(i: int) -> dict[str, Any]:
        return {
            "group_index": i // 2,
            "index": i,
            "prompt": [{"role": "user", "content": "q"}],
            "tokens": [1, 2, 3, 4],
            "response": "r",
            "response_length": 2,
            "reward": {"score": float(i), "style": 0.5} if i else 0.0,
            "loss_mask": [1, 0],
            "rollout_log_probs": [-0.5, 0.0],
            "status": "truncated" if i == 3 else "completed",
            "tensor": torch.ones(2),
        }

    torch.save({"rollout_id": 5, "samples": [sample(i) for i in range(4)]}, tmp_path / "rollout_5.pt")
    trace = podium.load(tmp_path / "rollout_5.pt")
    assert trace.trace_id_n.strings() == ["5/0", "5/1", "5/2", "5/3"]
    assert trace.task_id_n.strings() == ["5/0", "5/0", "5/1", "5/1"]
    assert trace.reward_n["team"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert trace.mask_k.tolist() == [0, 0, 1, 0] * 4
    near(trace.logp_k, [np.nan, np.nan, -0.5, 0.0] * 4)
    assert int((trace.truncated_e == 1).sum()) == 1
    near(podium.credit_of(trace, "hera").value, [-0.5, 0.5, -0.5, 0.5])


def test_a_damaged_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = (RECORDED / "verl_3.jsonl").read_text().splitlines()
    (tmp_path / "3.jsonl").write_text(
        "\n".join([lines[0], "{oh", '{"input": "q", "score": 1, "step": 3}', *lines[1:]])
    )
    assert len(podium.load(tmp_path / "3.jsonl")) == 8


def test_nothing_but_plain_data_is_unpickled(tmp_path: Path) -> None:
    touched = tmp_path / "touched"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (touched,)

    torch.save(
        {"rollout_id": 1, "samples": [{"index": 0, "prompt": "q", "response": "r", "evil": Evil()}]},
        tmp_path / "e.pt",
    )
    assert len(podium.load(tmp_path / "e.pt")) == 1
    assert not touched.exists()


def test_logs_without_times_can_be_audited() -> None:
    report = podium.audit_of(podium.load(RECORDED / "trl_completions_00001.parquet"))
    assert report is not None
