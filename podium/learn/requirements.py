"""What methods of the table need of a trace beyond what a world records, and which cannot be learned by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from podium.credit.credit import read_credit
from podium.expression import calls
from podium.graph import units
from podium.learn.critics import reads
from podium.learn.loop import Rollouts
from podium.learn.unpaid import compared
from podium.methods import Method
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import event

__all__ = ["branching", "cannot", "with_anchors", "with_decision_tokens", "with_step_rewards"]

CALL = event("tool_call")


CANNOT = {
    "judge": "a judge",
    "masks": "runs with agents masked",
    "greedy": "the outcome of a greedy run",
    "history": "running statistics",
}


def cannot(method: Method) -> str:
    """Why a method cannot be learned by, whatever the world; empty if it can be tried."""
    if not method.credit:
        return f"{method.name} is a card: {method.unknown}"
    lacks = [said for need, said in CANNOT.items() if need in method.needs]
    if "critic" in method.needs and not reads(method):
        lacks.append("a critic that reads language")
    return f"{method.name} needs {' and '.join(lacks)}" if lacks else ""


def branching(method: Method, share: float = 1.0) -> float:
    """The share of decisions that a method wants branched: `share` if it needs branches; all if it compares a turn
    with its siblings, of which an agent's later turns have none without."""
    if any("parent" in compared(call) for call in calls(read_credit(method.credit))):
        return 1.0
    return share if "branches" in method.needs else 0.0


def with_anchors(one: Rollouts) -> Trace:
    """Decisions labelled `anchor` by what was observed: equal figures, equal labels (GiGPO)."""
    trace: Trace = one.trace
    number: dict[tuple[str, str, bytes, bytes], int] = {}
    label: list[str | None] = [None] * trace.n_events
    for seen, rows in one.observations.decisions:
        for i, row in enumerate(rows.tolist()):
            items = seen.items[seen.first[i] : seen.first[i + 1]]
            state = seen.kind, seen.role, seen.facts[i].tobytes(), items.tobytes()
            label[row] = str(number.setdefault(state, len(number)))
    return replace(trace, extra_e={**trace.extra_e, "anchor": Text.of(label)})


def with_step_rewards(trace: Trace) -> Trace:
    """A trace whose outcome also pays steps, in the last turn of a run, and agents, in the last turn of each."""
    outcome, stand = trace.reward_n["team"], units.rows(trace, "turn")
    step, agent = (np.full(trace.n_events, np.nan) for _ in range(2))
    step[stand], agent[stand] = 0.0, 0.0
    for column, who, many in (
        (step, trace.rollout_e[stand], len(trace)),
        (agent, trace.agent_e[stand], trace.n_agents),
    ):
        last = np.full(many, -1)
        last[who[who >= 0]] = stand[who >= 0]
        last = last[last >= 0]
        column[last] = outcome[trace.rollout_e[last]]
    return replace(trace, reward_e={**trace.reward_e, "step": step, "agent": agent})


def with_decision_tokens(trace: Trace) -> Trace:
    """A trace with a token for each decision, and what a world knows without saying it: that a token is one long,
    and that a call which it allowed was valid."""
    rows = np.flatnonzero(trace.decision_e >= 0)
    length, valid = np.array(trace.tokens_out_e), np.array(trace.valid_e)
    length[rows[np.isnan(length[rows])]] = 1.0
    valid[(valid < 0) & (trace.type_e == CALL)] = 1
    return replace(
        with_step_rewards(trace),
        tokens_out_e=length,
        valid_e=valid,
        owner_k=rows.astype(np.int32),
        token_k=np.zeros(len(rows), np.int32),
        logp_k=trace.logp_e[rows],
        mask_k=np.ones(len(rows), np.int8),
    )
