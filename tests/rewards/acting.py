"""Small runs for the tests of rewards, written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from podium.audit.score_laws import Scored, score_faults
from podium.registry import facts, find
from podium.trace.columns import Text, Trace, concat
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES

__all__ = ["NAN", "act", "lawful", "near", "nothing"]

NAN = np.nan
SHORT = {"decide": "orchestrator_decision", "call": "tool_call", "result": "tool_result"}


def act(*events: dict[str, Any] | str, name: str = "run", **columns: Any) -> Trace:
    """One run. An event is "type agent>to role", or a dict with that text under `is` and more under other names.

    `after` names the rows it follows, each a number (a causal edge) or (number, edge type); `r` are its rewards by channel;
    other names are columns of the trace without their suffix, or labels. Event number i happens at time i.
    """
    rows = [e if isinstance(e, dict) else {"is": e} for e in events]
    said = [[*row["is"].split(" "), "", ""][:3] for row in rows]
    kinds = [EVENT_TYPES.index(SHORT.get(kind, kind)) for kind, _, _ in said]
    pairs = [(who.partition(">")[0], who.partition(">")[2]) for _, who, _ in said]
    agents = list(dict.fromkeys(a for pair in pairs for a in pair if a))
    place = {a: i for i, a in enumerate(agents)} | {"": -1}
    edges = [
        (src, dst) if isinstance(src, tuple) else ((src, "causal"), dst)
        for dst, row in enumerate(rows)
        for src in row.get("after", ())
    ]
    channels = {c for row in rows for c in row.get("r", {})}
    texts = {f"{c}_e": Text.of(row.get(c) for row in rows) for c in ("tool", "content_ref")}
    floats = {f"{c}_e": [row.get(c, NAN) for row in rows] for c in ("tokens_in", "tokens_out", "cost", "end")}
    labels = {c for row in rows for c in row if c in ("value", "task_relevant", "corrupted")}
    given = {
        "trace_id_n": Text.of([name]),
        "rollout_a": np.zeros(len(agents), int),
        "name_a": Text.of(agents),
        "rollout_e": np.zeros(len(rows), int),
        "t_e": np.arange(len(rows), dtype=float),
        "type_e": np.array(kinds, int),
        "agent_e": np.array([place[a] for a, _ in pairs], int),
        "to_e": np.array([place[b] for _, b in pairs], int),
        "role_e": Text.of(role or None for _, _, role in said),
        "valid_e": np.array([row.get("valid", -1) for row in rows], int),
        "trusted_e": np.array([row.get("trusted", -1) for row in rows], int),
        "decision_e": np.array(
            [DECISIONS.index(row["decision"]) if "decision" in row else -1 for row in rows], int
        ),
        "src_x": np.array([src for (src, _), _ in edges], int),
        "dst_x": np.array([dst for _, dst in edges], int),
        "type_x": np.array([EDGE_TYPES.index(kind) for (_, kind), _ in edges], int),
        "reward_e": {c: np.array([row.get("r", {}).get(c, NAN) for row in rows], float) for c in channels},
        "extra_e": {c: Text.of(row.get(c) for row in rows) for c in labels},
        **texts,
        **floats,
        **columns,
    }
    return Trace.of(**given)


def nothing() -> list[Trace]:
    """No run at all, and a run of which nothing is recorded."""
    return [Trace.of(), Trace.of(trace_id_n=Text.of(["silent"]))]


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


CHANNELS = ("agent", "role", "step", "tool", "message", "decision", "correct", "verdict")


def thrown(dice: Generator) -> Trace:
    """One run in which everything that a reward may read is there or not by dice; agent 0 leads it."""
    n, agents = int(dice.integers(2, 16)), int(dice.integers(1, 5))
    pairs = [(s, d) for d in range(n) for s in range(d) if dice.random() < 1.6 / d]
    votes = int(dice.integers(0, 5))
    counted = np.sort(dice.integers(0, n, votes))

    def some(values: Any) -> Any:
        return np.where(dice.random(n) < 0.6, values, NAN)

    in_e, out_e = some(dice.integers(1, 4, n) * 10_000), some(dice.integers(1, 6, n) * 1_000)
    type_e, agent_e = dice.integers(0, len(EVENT_TYPES), n), dice.integers(0, agents, n)
    type_e[0] = agent_e[0] = 0
    return Trace.of(
        trace_id_n=Text.of(["run"]),
        reward_n={"team": dice.integers(-1, 3, 1) / 2},
        rollout_a=np.zeros(agents, int),
        name_a=Text.of(f"a{i}" for i in range(agents)),
        rollout_e=np.zeros(n, int),
        t_e=np.arange(n, dtype=float),
        end_e=some(np.arange(n) + dice.integers(0, 4, n)),
        type_e=type_e,
        agent_e=agent_e,
        to_e=np.where(dice.random(n) < 0.3, -1, dice.integers(0, agents, n))
        if agents == 1
        else dice.integers(1, agents, n),
        role_e=Text(dice.integers(-1, 2, n), ("worker", "critic")),
        tool_e=Text(dice.integers(-1, 2, n), ("ls", "cat")),
        content_ref_e=Text(dice.integers(-1, 3, n), ("p", "q", "r")),
        valid_e=dice.integers(-1, 2, n),
        trusted_e=dice.integers(-1, 2, n),
        tokens_in_e=in_e,
        tokens_out_e=out_e
        if dice.random() < 0.5
        else np.where(np.isnan(in_e), NAN, dice.integers(1, 6, n) * 1_000),
        decision_e=np.where(type_e == 0, dice.integers(-1, len(DECISIONS), n), -1),
        reward_e={c: some(dice.integers(0, 5, n) / 4) for c in CHANNELS},
        extra_e={"value": Text(dice.integers(-1, 2, n), ("1", "2"))},
        src_x=np.array([s for s, _ in pairs], int),
        dst_x=np.array([d for _, d in pairs], int),
        type_x=dice.integers(0, len(EDGE_TYPES), len(pairs)),
        event_v=counted,
        source_v=np.maximum(np.minimum(dice.integers(-1, n, votes), counted - 1), -1),
        value_v=Text(dice.integers(0, 3, votes), ("yes", "no", "0.7")),
        weight_v=np.where(dice.random(votes) < 0.8, dice.integers(1, 4, votes) / 10, NAN),
    )


def lawful(name: str, **options: Any) -> None:
    """The laws of every score, where everything is recorded that it may read, and that it scores something there."""
    dice = np.random.default_rng(5)
    batches = [concat([thrown(dice) for _ in range(3)]) for _ in range(12)]
    function = find("score", name)
    score = Scored(name, facts("score", name)["unit"], lambda trace: function(trace, **options))
    assert score_faults(score, batches) == []
    assert len(np.unique(np.concatenate([score.of(b) for b in batches]))) > 1 or name == "one"
