"""What trainers write of their rollouts, as traces: verifiers' `traces.jsonl`, verl's dumped rollouts, slime's
`.pt` files and TRL's logs of completions.

A row of verl, slime or TRL is a run of one generation, and rows of one prompt are one task. An episode of verifiers
is a run with all its agents. Token ids, masks and log-probabilities come along where the file has them."""

from __future__ import annotations

import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from podium.exchange.build import PERSON, Run
from podium.exchange.jsons import objects
from podium.exchange.reading import Source
from podium.registry import register
from podium.trace.columns import Trace
from podium.trace.findings import Finding, Unreadable

__all__ = ["RolloutRun", "episode_run", "slime_rollouts", "trl_completions", "verifiers_traces", "verl_rollouts"]

EVENT_ID = re.compile(r"e(\d+)$")


class RolloutRun(Run):
    """A run whose events may own tokens."""

    def __init__(self, trace_id: str, **about: Any) -> None:
        super().__init__(trace_id, **about)
        self.owned: dict[
            int, tuple[list[int], list[int], list[float]]
        ] = {}  # by event: ids, mask, log-probabilities

    def own(self, row: int, ids: Sequence[int], mask: Sequence[Any], logp: Sequence[float] | None = None) -> None:
        """The tokens of an event. Log-probabilities are of all tokens, or of the sampled ones."""
        sampled = [int(bool(m)) for m in mask]
        values = [float("nan")] * len(ids)
        if logp is not None and len(logp) in (len(ids), sum(sampled)):
            rest = iter(logp)
            values = [next(rest) if len(logp) == len(ids) or m else np.nan for m in sampled]
        self.owned[row] = [int(i) for i in ids], sampled, values
        self.set(row, tokens_out=float(sum(sampled)))

    def built(self, file: str) -> tuple[Trace | None, list[Finding]]:
        """The trace with its tokens."""
        trace, findings = super().built(file)
        if trace is None or not self.owned:
            return trace, findings
        numbers = [EVENT_ID.match(str(trace.id_e[row])) for row in range(trace.n_events)]
        owned = [(row, self.owned.get(int(m[1])) if m else None) for row, m in enumerate(numbers)]
        some = [(row, one) for row, one in owned if one is not None]
        tokens: dict[str, Any] = {
            "owner_k": np.concatenate([np.full(len(one[0]), row, np.int32) for row, one in some]),
            "token_k": np.concatenate([np.array(one[0], np.int64) for _, one in some]),
            "mask_k": np.concatenate([np.array(one[1], np.int8) for _, one in some]),
            "logp_k": np.concatenate([np.array(one[2], np.float64) for _, one in some]),
        }
        return replace(trace, **tokens), findings


def _text(message: Any) -> str:
    """The words of a message, of chat parts or of a plain text."""
    content = message.get("content") if isinstance(message, Mapping) else message
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


def _task(prompt: Any) -> str:
    return sha256(repr(prompt).encode()).hexdigest()[:12]


# verifiers


def is_verifiers(start: bytes, name: str) -> float:
    return 0.95 if b'"traces":' in start and b'"nodes":' in start and b'"message":' in start else 0.0


@register("importer", title="verifiers", detect=is_verifiers)
def verifiers_traces(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run for each episode; its agents' message graphs side by side."""
    for source in sources:
        faults = _Faults(source.name)
        for line, value in objects(source, faults.add):
            if not isinstance(value, dict) or not isinstance(value.get("traces"), list):
                faults.add(line, "expected an episode with traces")
                continue
            run, _ = episode_run(value, keep)
            yield faults.moved_to(run)


class _Faults:
    """What could not be read, until there is a run to say it of."""

    def __init__(self, file: str) -> None:
        self.file, self.some = file, list[tuple[int | None, str]]()

    def add(self, line: int | None, why: str) -> None:
        self.some.append((line, why))

    def moved_to(self, run: Run) -> Run:
        for line, why in self.some:
            run.fault(self.file, line, why)
        self.some.clear()
        return run


def episode_run(episode: Mapping[str, Any], keep: bool = False) -> tuple[RolloutRun, dict[tuple[int, int], int]]:
    """An episode as a run; and the event of each sampled node, by the number of its trace and of the node."""
    task = episode.get("task") or {}
    group = (episode.get("group") or {}).get("id")
    named = group or task.get("key") or task.get("hash") or _task(task.get("data"))
    run = RolloutRun(str(episode.get("id")), system="verifiers", task_id=str(named), keep=keep)
    event_of: dict[tuple[int, int], int] = {}
    names: dict[str, int] = {}
    rewards = []
    for number, trace in enumerate(episode["traces"]):
        role = str((trace.get("agent") or {}).get("name") or "agent")
        names[role] = names.get(role, 0) + 1
        agent = role if names[role] == 1 else f"{role} {names[role]}"
        of_nodes = _add_nodes(run, trace, agent, role)
        event_of |= {
            (number, node): event for node, event in of_nodes.items() if trace["nodes"][node].get("sampled")
        }
        paid = [r for r in (trace.get("rewards") or {}).values() if r is not None]
        if paid:
            rewards.append(sum(float(r["score"]) * float(r.get("weight", 1.0)) for r in paid))
            run.params.setdefault("reward_of", {})[agent] = rewards[-1]
    if rewards:
        run.rewards["team"] = float(np.mean(rewards))
    return run, event_of


def _add_nodes(run: RolloutRun, trace: Mapping[str, Any], agent: str, role: str) -> dict[int, int]:
    """The events of a message graph, by node; a call for each tool that a message asks for."""
    events: dict[int, int] = {}
    calls: dict[str, int] = {}
    model = next((call.get("model") for call in trace.get("calls") or () if call.get("model")), None)
    for i, node in enumerate(trace["nodes"]):
        message, t = node["message"], node.get("timestamp")
        kind = message.get("role")
        if kind == "tool":
            call = calls.get(str(message.get("tool_call_id")))
            row = run.add("tool_result", agent, t, role=role, content=_text(message))
            if call is not None:
                run.edge(call, row, "tool_dependency")
        elif kind == "assistant":
            writer = model if node.get("sampled") else None
            stated = None if node.get("advantages") is None else {"advantages": list(node["advantages"])}
            row = run.add("message", agent, t, role=role, content=_text(message), extra=stated, model=writer)
            for one in message.get("tool_calls") or ():
                call = run.add("tool_call", agent, t, role=role, tool=str(one.get("name")))
                run.edge(row, call, "causal")
                calls[str(one.get("id"))] = call
        else:
            row = run.add("message", PERSON, t, to=agent, role=str(kind), content=_text(message))
        events[i] = row
        parent = node.get("parent")
        if parent is not None and parent in events:
            run.edge(events[parent], row, "causal")
        for link in node.get("semantic_parents") or ():
            if link.get("node") in events:
                run.edge(events[link["node"]], row, "causal")
        if ids := node.get("token_ids"):
            run.own(row, ids, node.get("mask") or [False] * len(ids), node.get("logprobs"))
    return events


# one generation a row


def _row_run(
    name: str, system: str, task: str, prompt: Any, answer: Any, reward: float | None, keep: bool, **more: float
) -> tuple[RolloutRun, int]:
    """A run of a prompt and its answer; and the event of the answer."""
    run = RolloutRun(name, system=system, task_id=task, keep=keep)
    question = run.add("message", PERSON, None, to="agent", content=_chat(prompt))
    row = run.add("message", "agent", None, role="assistant", content=_chat(answer), after=[("message", question)])
    run.rewards |= {} if reward is None or reward != reward else {"team": float(reward)}
    run.rewards |= {name: value for name, value in more.items() if value == value}
    return run, row


def _chat(value: Any) -> str:
    """A text, or the messages of a conversation one after the other."""
    return "\n".join(map(_text, value)) if isinstance(value, list | tuple | np.ndarray) else _text(value)


def _figure(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def is_verl(start: bytes, name: str) -> float:
    line = start.partition(b"\n")[0]
    return 0.9 if all(f'"{word}":'.encode() in line for word in ("input", "output", "score", "step")) else 0.0


@register("importer", title="verl", detect=is_verl)
def verl_rollouts(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run for each line that verl dumps (`trainer.rollout_data_dir`); other figures are rewards of their
    names."""
    for source in sources:
        faults, places = _Faults(source.name), dict[str, int]()
        for line, row in objects(source, faults.add):
            if not isinstance(row, dict) or "output" not in row:
                faults.add(line, "expected input, output and score")
                continue
            task = _task((row.get("step"), row.get("input"), row.get("gts")))
            places[task] = places.get(task, 0) + 1
            rest = {k: v for k, v in row.items() if k not in ("input", "output", "gts", "score", "step", "reward")}
            more = {k: f for k, v in rest.items() if (f := _figure(v)) is not None}
            name = f"{row.get('step', 0)}/{task}/{places[task]}"
            run, _ = _row_run(
                name, "verl", task, row.get("input"), row["output"], _figure(row.get("score")), keep, **more
            )
            yield faults.moved_to(run)


def is_trl(start: bytes, name: str) -> float:
    return 0.9 if start.startswith(b"PAR1") and "completions" in name else 0.0


@register("importer", title="TRL", detect=is_trl)
def trl_completions(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run for each row of `completions_*.parquet`; the reward is the sum of those of the reward functions."""
    import pyarrow.parquet as parquet

    for source in sources:
        table = parquet.read_table(io.BytesIO(source.data()))
        places: dict[str, int] = {}
        known = {"step", "prompt", "completion", "advantage"}
        for row in table.to_pylist():
            more = {k: f for k, v in row.items() if k not in known and (f := _figure(v)) is not None}
            rewards = [value for value in more.values() if value == value]
            if (advantage := _figure(row.get("advantage"))) is not None:
                more["advantage"] = advantage
            task = _task((row.get("step"), row.get("prompt")))
            places[task] = places.get(task, 0) + 1
            name = f"{row.get('step', 0)}/{task}/{places[task]}"
            total = sum(rewards) if rewards else None
            yield _row_run(name, "trl", task, row.get("prompt"), row.get("completion"), total, keep, **more)[0]


def is_slime(start: bytes, name: str) -> float:
    if ".pt:" not in name:
        return 0.0
    if name.endswith("/data.pkl"):
        return 0.9 if b"rollout_id" in start and b"samples" in start else 0.0
    return 0.5  # what else torch puts into the archive: nothing of it is read


@register("importer", title="slime", detect=is_slime)
def slime_rollouts(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run for each sample of a rollout file. Only plain data is unpickled; tensors are left out."""
    for source in sources:
        if not source.name.endswith("/data.pkl"):
            continue
        try:
            data = _Plain(io.BytesIO(source.data())).load()
            samples = [dict(sample) for sample in data.get("samples") or ()]
        except (pickle.UnpicklingError, *DAMAGED) as error:
            raise Unreadable(source.name, f"not a rollout file of slime: {error}") from None
        for i, sample in enumerate(samples):
            group = sample.get("group_index")
            task = f"{data.get('rollout_id')}/{group if group is not None else _task(sample.get('prompt'))}"
            name = f"{data.get('rollout_id')}/{sample.get('index', i)}"
            reward = sample.get("reward")
            figures = reward if isinstance(reward, dict) else {"reward": reward}
            main = _figure(figures.get("reward", figures.get("score")))
            more = {
                k: f for k, v in figures.items() if k not in ("reward", "score") and (f := _figure(v)) is not None
            }
            run, row = _row_run(
                name, "slime", task, sample.get("prompt"), sample.get("response"), main, keep, **more
            )
            ids, length = sample.get("tokens") or [], int(sample.get("response_length") or 0)
            if ids:
                mask = sample.get("loss_mask") or [1] * length
                logp = sample.get("rollout_log_probs")
                spread = None if logp is None else [np.nan] * (len(ids) - length) + list(logp)
                run.own(row, ids, [0] * (len(ids) - length) + list(mask), spread)
            if sample.get("status") == "truncated":
                run.set(row, truncated=1)
            yield run


DAMAGED = (AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError, ValueError)


class _Nothing:
    """What stands for an object that is not plain data, and for all that is made of it."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, *_: Any, **__: Any) -> _Nothing:
        return self

    def __setstate__(self, state: Any) -> None: ...


class _Plain(pickle.Unpickler):
    """Plain data only: no code of a file is run, and a tensor is nothing."""

    def find_class(self, module: str, name: str) -> Any:
        return OrderedDict if (module, name) == ("collections", "OrderedDict") else _Nothing

    def persistent_load(self, pid: Any) -> _Nothing:
        return _Nothing()
