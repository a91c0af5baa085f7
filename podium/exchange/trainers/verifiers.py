"""verifiers, and prime-rl through it: what a method pays, written into `MessageNode.advantages`; and the other way.

    def score_group(self, episodes):                    # an Algorithm of prime-rl
        assign_advantages(episodes, "dr_mas")

Episodes of one group (or of one task) are compared. A node keeps None where the method pays nothing.
`trace_of_episodes` makes any environment of verifiers a source of ours; `episodes_of` gives the runs of a team of
ours as episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from podium.exchange.trainers.generations import token_credit
from podium.exchange.trainers.rollout_files import episode_run
from podium.exchange.trainers.rows import BadBatch
from podium.methods.method import Method
from podium.rewards.ledger import Now
from podium.trace.columns import Trace, concat

__all__ = ["assign_advantages", "episodes_of", "trace_of_episodes"]

Place = tuple[int, int, int]  # of a node: its episode, trace and number


def _plain(episode: Any) -> Mapping[str, Any]:
    """An episode as plain data; the floats whole."""
    if isinstance(episode, Mapping):
        return episode
    fields = {"id", "task", "group", "traces"}
    plain: dict[str, Any] = episode.model_dump(mode="python", include=fields)
    return plain


def trace_of_episodes(episodes: Sequence[Any]) -> tuple[Trace, dict[Place, int]]:
    """Episodes, as objects or as plain data, as one trace; and the event of each sampled node."""
    parts: list[Trace] = []
    event_of: dict[Place, int] = {}
    start = 0
    for number, episode in enumerate(episodes):
        run, events = episode_run(_plain(episode))
        trace, findings = run.built(f"episode {number}")
        if trace is None:
            raise BadBatch(f"episode {number}: it has no message; {findings[-1].message}")
        row_of = {str(trace.id_e[row]): row for row in range(trace.n_events)}
        event_of |= {(number, *node): start + row_of[f"e{event}"] for node, event in events.items()}
        parts.append(trace)
        start += trace.n_events
    return concat(parts), event_of


def assign_advantages(
    episodes: Sequence[Any],
    method: Method | str = "dr_mas",
    now: Now = Now(),  # noqa: B008 (immutable)
) -> float:
    """Writes what a method pays the sampled tokens of every node; returns the share of them that is paid."""
    trace, event_of = trace_of_episodes(episodes)
    credit_k = token_credit(trace, method, now)
    paid = total = 0
    for (number, one, node), row in event_of.items():
        first, end = (int(np.searchsorted(trace.owner_k, row, side)) for side in ("left", "right"))
        values = credit_k[first:end][trace.mask_k[first:end] == 1]
        known = ~np.isnan(values)
        paid, total = paid + int(known.sum()), total + len(values)
        written = np.where(known, values, 0.0).tolist() if known.any() else None
        _set(episodes[number], one, node, written)
    return paid / max(total, 1)


def _set(episode: Any, one: int, node: int, values: list[float] | None) -> None:
    if isinstance(episode, Mapping):
        episode["traces"][one]["nodes"][node]["advantages"] = values
    else:
        episode.traces[one].nodes[node].advantages = values


def episodes_of(trace: Trace, method: Method | str | None = None) -> list[Any]:
    """The runs of a team of ours as verifiers' WireEpisodes: a trace an agent, a node for what it read and one for
    what it wrote, each time; with a method, also what it pays."""
    from verifiers.v1.episode import WireEpisode

    return [WireEpisode.model_validate(one) for one in plain_episodes(trace, method)]


def plain_episodes(trace: Trace, method: Method | str | None = None) -> list[dict[str, Any]]:
    """The same as plain data."""
    credit_k = np.full(len(trace.token_k), np.nan) if method is None else token_credit(trace, method)
    first = np.searchsorted(trace.owner_k, np.arange(trace.n_events))
    end = np.searchsorted(trace.owner_k, np.arange(trace.n_events), "right")
    episodes: list[dict[str, Any]] = []
    for n in range(len(trace)):
        task = {"type": "Task", "data": {"name": trace.task_id_n[n]}, "key": trace.task_id_n[n]}
        reward = float(trace.reward_n["team"][n]) if "team" in trace.reward_n else np.nan
        rewards = {} if reward != reward else {"team": {"score": reward, "weight": 1.0}}
        traces: dict[int, dict[str, Any]] = {}
        for row in np.flatnonzero((trace.rollout_e == n) & (end > first)).tolist():
            who = int(trace.agent_e[row])
            name = str(trace.name_a[who]) if who >= 0 else "agent"
            about = {"agent": {"config": {}, "name": name}, "task": task, "nodes": [], "rewards": rewards}
            nodes = traces.setdefault(who, about)["nodes"]
            nodes += _nodes(trace, row, slice(int(first[row]), int(end[row])), credit_k, len(nodes))
        group = {"id": trace.task_id_n[n]}
        episodes.append({"id": trace.trace_id_n[n], "task": task, "group": group, "traces": list(traces.values())})
    return episodes


def _nodes(trace: Trace, row: int, own: slice, credit_k: Any, at: int) -> list[dict[str, Any]]:
    """What an agent read and wrote in one generation, as two nodes. Contexts that go on repeat nothing."""
    mask = trace.mask_k[own] == 1
    split = int(np.argmax(mask)) if mask.any() else len(mask)
    ids, t = trace.token_k[own].tolist(), float(np.nan_to_num(trace.t_e[row]))
    above = int(trace.context_e[row])
    goes_on = above >= 0 and trace.agent_e[above] == trace.agent_e[row] and at > 0
    known = ~np.isnan(credit_k[own][mask])
    read = {"parent": at - 1 if goes_on else None, "message": {"role": "user", "content": ""}, "timestamp": t}
    wrote = {"parent": at, "message": {"role": "assistant", "content": ""}, "timestamp": t, "sampled": True}
    wrote |= {"token_ids": ids[split:], "mask": mask[split:].tolist()}
    wrote["logprobs"] = np.nan_to_num(trace.logp_k[own][mask]).tolist()
    if known.any():
        wrote["advantages"] = np.where(known, credit_k[own][mask], 0.0).tolist()
    return [read | {"token_ids": ids[:split], "mask": [False] * split}, wrote]
