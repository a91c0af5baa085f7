"""Runs written by hand, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES

SHORT = {"decide": "orchestrator_decision", "call": "tool_call", "result": "tool_result"}
FLOATS = ("end", "cost", "tokens_in", "tokens_out", "cache_read")
PLAIN = (*FLOATS, "stage", "trusted", "valid")


def run(*events: Any, reward: dict[str, float] | None = None, name: str = "run") -> Trace:
    """One run. An event is (what, causes, fields): what is "type agent" or "type agent>to", causes are numbers of earlier events, or
    (number, edge type), else causal; fields are columns or labels. Event i happens at i unless it says `t`.
    """
    told = [(e, (), {}) if isinstance(e, str) else (*e, {})[:3] for e in events]
    cast: dict[str, int] = {}
    type_e, agent_e, to_e, edges = [], [], [], []
    for row, (what, causes, _) in enumerate(told):
        kind, _, who = what.partition(" ")
        who, _, whom = who.partition(">")
        type_e.append(EVENT_TYPES.index(SHORT.get(kind, kind)))
        agent_e.append(cast.setdefault(who, len(cast)))
        to_e.append(cast.setdefault(whom, len(cast)) if whom else -1)
        edges += [(c, row, "causal") if isinstance(c, int) else (c[0], row, c[1]) for c in causes]

    def column(field: str, absent: float) -> np.ndarray:
        return np.array([f.get(field, absent) for _, _, f in told], float)

    labels = {k for _, _, f in told for k in f} - {*PLAIN, "t", "role", "tool", "content_ref", "decision", "reward"}
    paid = {k for _, _, f in told for k in f.get("reward", {})}
    return Trace.of(
        trace_id_n=Text.of([name]),
        reward_n={k: np.array([v]) for k, v in (reward or {}).items()},
        rollout_a=np.zeros(len(cast), int),
        name_a=Text.of(cast),
        rollout_e=np.zeros(len(told), int),
        t_e=np.array([f.get("t", float(i)) for i, (_, _, f) in enumerate(told)], float),
        type_e=np.array(type_e, int),
        agent_e=np.array(agent_e, int),
        to_e=np.array(to_e, int),
        decision_e=np.array([DECISIONS.index(f["decision"]) if "decision" in f else -1 for _, _, f in told], int),
        reward_e={k: np.array([f.get("reward", {}).get(k, np.nan) for _, _, f in told], float) for k in paid},
        extra_e={
            k: Text.of(msgspec.json.encode(f[k]).decode() if k in f else None for _, _, f in told) for k in labels
        },
        src_x=np.array([s for s, _, _ in edges], int),
        dst_x=np.array([d for _, d, _ in edges], int),
        type_x=np.array([EDGE_TYPES.index(k) for _, _, k in edges], int),
        **{f"{k}_e": column(k, np.nan) for k in FLOATS},
        **{f"{k}_e": column(k, -1).astype(int) for k in ("stage", "trusted", "valid")},
        **{f"{k}_e": Text.of(f.get(k) for _, _, f in told) for k in ("role", "tool", "content_ref")},
    )
