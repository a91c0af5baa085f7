"""verl: every method as an advantage estimator, and an agent loop that plays a team.

Installed beside verl, Podium registers by itself (entry point `verl.plugins`): set
`algorithm.adv_estimator=podium_dr_mas`. An estimator of verl's sees of a row its `uid`, rewards and mask. So either

* each row is a rollout of one agent, and its reward is the sum of its `token_level_rewards`; or
* `uid` is one of `row_ids(...)`, which says task, rollout, agent, role, turn, parent and branch; or
* an agent loop (`TeamLoop`) pays the tokens itself and `podium_carried` hands them through: what comes as
  `rm_scores`, a number a token, is the advantage.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from podium.exchange.trainers.batch import advantages
from podium.exchange.trainers.generations import Generation, generations, token_credit
from podium.exchange.trainers.rows import BadBatch
from podium.methods.method import METHODS, Method, named
from podium.trace.columns import Trace

__all__ = ["carried", "estimator", "outputs_of", "register_all", "row_ids", "team_loop"]

PREFIX = "podium_"
ROW = "task rollout agent role turn parent branch valid".split()


def row_ids(batch: Mapping[str, Sequence[Any]]) -> list[str]:
    """Values for `uid` that say what each row is.

    >>> row_ids({"task": ["q"], "rollout": [0], "agent": ["ann"], "reward": [1.0]})
    ['{"task":"q","rollout":0,"agent":"ann"}']
    """
    names = [name for name in ROW if name in batch]
    rows = zip(*(batch[name] for name in names), strict=True)
    return [json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":")) for row in rows]


def estimator(method: Method | str) -> Callable[..., tuple[Any, Any]]:
    """A method as verl calls an estimator: (advantages, returns), 0 where nothing is paid."""
    row = named(method) if isinstance(method, str) else method

    def estimate(
        token_level_rewards: Any, response_mask: Any, config: Any = None, index: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        import torch

        with torch.no_grad():
            table = _table(index, len(response_mask))
            table |= {"reward": token_level_rewards.sum(-1).tolist(), "mask": response_mask}
            paid = advantages(table, row, per="token", unpaid=0.0).to(token_level_rewards.dtype)
        return paid, paid

    return estimate


def _table(index: Any, n: int) -> dict[str, Any]:
    """What the uids say: a task each, or all of `row_ids`."""
    uids: list[Any] = list(range(n)) if index is None else list(index)
    if not all(isinstance(uid, str) and uid.startswith("{") for uid in uids):
        return {"task": [str(uid) for uid in uids]}
    rows = [json.loads(uid) for uid in uids]
    names = list(rows[0]) if rows else ["task"]
    for i, row in enumerate(rows):
        if list(row) != names:
            raise BadBatch(f"row {i}, uid: has {', '.join(row)}, where row 0 has {', '.join(names)}")
    return {name: [row[name] for row in rows] for name in names}


def carried(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """What was paid to each token already, handed through."""
    paid = token_level_rewards * response_mask
    return paid, paid


def register_all() -> list[str]:
    """Registers `podium_NAME` for every method that can be computed, and `podium_carried`; returns the names."""
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

    estimators = {PREFIX + name: estimator(name) for name, row in METHODS.items() if row.credit}
    estimators[PREFIX + "carried"] = carried
    for name, function in estimators.items():
        if name not in ADV_ESTIMATOR_REGISTRY:
            register_adv_est(name)(function)
    return list(estimators)


# agent loops


def outputs_of(trace: Trace, method: Method | str, output: Any, metrics: Any) -> list[Any]:
    """A trace with token ids as outputs of an agent loop: one a generation, with its credit on every token.

    `output` is verl's AgentLoopOutput, `metrics` its AgentLoopMetrics.
    """
    kind = _carrying(output)
    return [_output(one, kind, metrics) for one in generations(trace, token_credit(trace, method))]


def _output(one: Generation, kind: Any, metrics: Any) -> Any:
    return kind(
        prompt_ids=one.prompt_ids,
        response_ids=one.completion_ids,
        response_mask=one.mask,
        response_logprobs=[0.0 if p != p else p for p in one.logprobs],
        reward_score=one.reward,
        metrics=metrics,
        extra_fields={"agent": one.agent, "reward_extra_info": {}, "credit": one.credit},
    )


def _carrying(output: Any) -> Any:
    """AgentLoopOutput whose `rm_scores` are the credit of each token, and not the reward on the last."""

    class CarryingOutput(output):  # type: ignore[misc]
        def as_dict(self) -> dict[str, Any]:
            fields: dict[str, Any] = super().as_dict()
            credit = fields["extra_fields"].pop("credit")
            scores = fields["response_mask"].new_zeros(len(credit), dtype=fields["rm_scores"].dtype)
            for place, value in enumerate(credit):
                scores[place] = value if value == value else 0.0
            return fields | {"rm_scores": scores}

    return CarryingOutput


Play = Callable[..., Awaitable[Trace]]


def team_loop(play: Play, method: Method | str, base: Any = None) -> Any:
    """An agent loop, a class for verl's `@register(NAME)`: `await play(prompt, generate)` returns a trace.

    `prompt` is the row's `raw_prompt`; `await generate(ids)` asks verl's server for a continuation of token ids and
    returns its answer. One call plays all runs that are to be compared, as a loop of verl's sees one prompt. Use it
    with `algorithm.adv_estimator=podium_carried`; several outputs a prompt need verl's trainer v1.
    """
    from verl.experimental.agent_loop import agent_loop

    row = named(method) if isinstance(method, str) else method

    class TeamLoop(base or agent_loop.AgentLoopBase):  # type: ignore[misc]
        async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[Any]:
            number = 0

            async def generate(ids: Iterable[int]) -> Any:
                nonlocal number
                number += 1
                request = f"{fields.get('uid', 'podium')}-{number}"
                return await self.server_manager.generate(
                    request_id=request, prompt_ids=list(ids), sampling_params=sampling_params
                )

            trace = await play(fields["raw_prompt"], generate)
            return outputs_of(trace, row, agent_loop.AgentLoopOutput, agent_loop.AgentLoopMetrics())

    return TeamLoop


def __getattr__(name: str) -> ModuleType | list[str]:
    """`registered`, what the entry point loads: asking for it registers all."""
    if name != "registered":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return register_all()
