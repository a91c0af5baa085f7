"""What a trainer needs of each generation of a trace: the ids it read and wrote, and what each token is paid."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit.forest import copies
from podium.exchange.trainers.rows import BadBatch
from podium.graph import units
from podium.methods.method import Method, credit_of
from podium.rewards.ledger import Now
from podium.trace.columns import F, Trace

__all__ = ["Generation", "generations", "token_credit"]


class Generation(NamedTuple):
    """One event that wrote tokens. Mask, log-probabilities and credit have one entry for each completion id."""

    event: int
    agent: str
    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]  # 1: sampled by the policy, 0: given to it
    logprobs: list[float]
    credit: list[float]  # NaN where nothing is paid
    reward: float  # of its rollout


def token_credit(trace: Trace, method: Method | str, now: Now = Now()) -> F:  # noqa: B008 (immutable)
    """What a method pays each token that a policy sampled: its own credit, or that of its unit."""
    credit = credit_of(trace, method, now)
    if credit.unit == "token":
        return credit.value
    values = np.append(credit.value, np.nan)[units.place(trace, credit.unit)[trace.owner_k]]
    return np.where(trace.mask_k == 1, values, np.nan)


def generations(trace: Trace, credit_k: F) -> list[Generation]:
    """The generations of a trace, each once: not those that a branch repeats from the run it left.

    >>> from podium.exchange.trainers.rows import trace_of_rows
    >>> rows = {"task": ["q"], "reward": [1.0], "tokens": [[5, 6, 7]], "mask": [[0, 1, 1]], "logp": [[0.0, -1, -2]]}
    >>> generations(trace_of_rows(rows).trace, np.array([np.nan, 0.5, 0.5]))[0][2:]
    ([5], [6, 7], [1, 1], [-1.0, -2.0], [0.5, 0.5], 1.0)
    """
    every = np.arange(trace.n_events)
    first, end = (np.searchsorted(trace.owner_k, every, side) for side in ("left", "right"))
    total = np.concatenate([[0], np.cumsum(trace.mask_k == 1)])
    wrote = (total[end] - total[first] > 0) & ~copies(trace, every)
    reward_n = trace.reward_n.get("team", np.full(len(trace), np.nan))
    whole: dict[int, NDArray[np.int64]] = {}
    rows: list[Generation] = []
    for event in np.flatnonzero(wrote).tolist():
        mask = trace.mask_k[first[event] : end[event]] == 1
        skip = int(np.argmax(mask))
        own = slice(int(first[event]) + skip, int(end[event]))
        ids = _ids(trace, event, first, end, whole)
        if (ids < 0).any():
            raise BadBatch(f"event {event}: its token ids are not recorded")
        split = len(ids) - (own.stop - own.start)
        agent = int(trace.agent_e[event])
        rows.append(
            Generation(
                event,
                str(trace.name_a[agent]) if agent >= 0 else "agent",
                ids[:split].tolist(),
                ids[split:].tolist(),
                mask[skip:].astype(int).tolist(),
                trace.logp_k[own].tolist(),
                credit_k[own].tolist(),
                float(reward_n[trace.rollout_e[event]]),
            )
        )
    return rows


def _ids(trace: Trace, event: int, first: Any, end: Any, whole: dict[int, NDArray[np.int64]]) -> NDArray[np.int64]:
    """All ids from the beginning of a generation's context to its last token."""
    if event not in whole:
        own = trace.token_k[int(first[event]) : int(end[event])]
        above, start = int(trace.context_e[event]), int(trace.start_e[event])
        if above >= 0:
            before = _ids(trace, above, first, end, whole)
            own = np.concatenate([before[: start if start >= 0 else len(before)], own])
        whole[event] = own
    return whole[event]
