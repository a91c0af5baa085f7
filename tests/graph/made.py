"""Small traces for the tests of `podium.graph`: written by hand, or thrown with dice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

LAZY = {"d": "orchestrator_decision", "m": "message", "c": "tool_call", "r": "tool_result", "x": "return"}


def made(events: list[str], edges: list[tuple[Any, ...]] = (), **columns: Any) -> Trace:  # type: ignore[assignment]
    """One run. An event is "type agent" or "type agent>to"; an edge is (src, dst) or (src, dst, type), else causal.

    Event number i happens at time i unless `t_e` is given.
    """
    kinds, agents, to = [], [], []
    for said in events:
        kind, _, who = said.partition(" ")
        who, _, whom = who.partition(">")
        kinds.append(EVENT_TYPES.index(LAZY.get(kind, kind)))
        agents.append(who)
        to.append(whom)
    names = list(dict.fromkeys(n for pair in zip(agents, to, strict=True) for n in pair if n))
    place = {n: i for i, n in enumerate(names)} | {"": -1}
    edges = sorted(edges, key=lambda e: e[1])
    return Trace.of(
        **{
            "trace_id_n": Text.of(["run"]),
            "rollout_a": np.zeros(len(names), int),
            "name_a": Text.of(names),
            "rollout_e": np.zeros(len(events), int),
            "t_e": np.arange(len(events), dtype=float),
            "type_e": np.array(kinds, int),
            "agent_e": np.array([place[a] for a in agents], int),
            "to_e": np.array([place[a] for a in to], int),
            "src_x": np.array([e[0] for e in edges], int),
            "dst_x": np.array([e[1] for e in edges], int),
            "type_x": np.array([EDGE_TYPES.index(e[2] if len(e) > 2 else "causal") for e in edges], int),
            **columns,
        }
    )


def thrown(rng: Generator, n: int | None = None) -> Trace:
    """One run in which everything is random; it need not obey the rules, and no view may mind."""
    n = int(rng.integers(1, 14)) if n is None else n
    agents = int(rng.integers(1, 6))
    pairs = [(s, d) for d in range(n) for s in range(d) if rng.random() < 1.6 / max(d, 1)]
    t_e = np.sort(rng.integers(0, 12, n)).astype(float)
    owners = np.flatnonzero(rng.random(n) < 0.3)
    recorded = rng.random() < 0.4
    return Trace.of(
        trace_id_n=Text.of(["run"]),
        rollout_a=np.zeros(agents, int),
        name_a=Text.of(f"a{i}" for i in range(agents)),
        rollout_e=np.zeros(n, int),
        t_e=t_e,
        end_e=np.where(rng.random(n) < 0.7, t_e + rng.integers(0, 6, n), np.nan),
        type_e=rng.integers(0, len(EVENT_TYPES), n),
        agent_e=rng.integers(-1 if rng.random() < 0.2 else 0, agents, n),
        to_e=rng.integers(-1, agents, n),
        role_e=Text(rng.integers(-1, 3, n), ["x", "y", "z"]),
        model_e=Text(rng.integers(-1, 1, n), ["model"]),
        trusted_e=rng.choice([-1, -1, 0, 1], n),
        stage_e=np.where(rng.random(n) < 0.4, rng.integers(0, 3, n), -1) if recorded else np.full(n, -1),
        src_x=np.array([s for s, _ in pairs], int),
        dst_x=np.array([d for _, d in pairs], int),
        type_x=rng.integers(0, len(EDGE_TYPES), len(pairs)),
        owner_k=np.repeat(owners, 2),
        token_k=np.zeros(2 * len(owners), int),
    )


def parents(trace: Trace, row: int) -> list[tuple[int, str]]:
    """The causes of an event and the types of the edges, read off the columns one by one."""
    return [
        (s, EDGE_TYPES[k])
        for s, d, k in zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True)
        if d == row
    ]


def kind(trace: Trace, row: int) -> str:
    return EVENT_TYPES[trace.type_e[row]]
