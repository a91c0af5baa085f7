"""Runs to look at."""

from __future__ import annotations

import numpy as np
import pytest

from podium.trace import Recorder
from podium.trace.columns import Names, Text, Trace, concat
from podium.trace.vocabulary import event

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A lead who spawns a worker, a tool that answers from outside, votes, options, content, and names that want to be markup."""
    clock = iter(float(i) for i in range(100))
    folder = tmp_path_factory.mktemp("run") / "one"
    with Recorder(folder, task_id=HOSTILE, clock=lambda: next(clock)) as record:
        plan = record.decide("lead", "spawn", "1", options=["0", "1"], logp=-0.7)
        hired = record.add("spawn", "lead", to=HOSTILE, after=[("spawn", plan)])
        call = record.add(
            "tool_call", HOSTILE, tool="web", end=5.5, tokens_in=120, tokens_out=7, after=[("causal", hired)]
        )
        result = record.add(
            "tool_result", HOSTILE, tool="web", trusted=False, after=[("return", call)], extra={"content": HOSTILE}
        )
        back = record.add("return", HOSTILE, to="lead", end=7.25, after=[("causal", result)], role="worker")
        record.add("aggregate", "lead", after=[("aggregate", back)], end=9.0, votes=[{"value": "yes"}])
        record.outcome(rewards={"team": 1.0})
    return record.trace()


def plain_run(n: int, agents: int = 1, times: bool = True) -> Trace:
    """n events of some agents, one after the other, or without any time."""
    t = np.arange(n, dtype=float) if times else np.full(n, np.nan)
    return Trace.of(
        trace_id_n=Text.of(["plain"]),
        rollout_a=np.zeros(agents, np.int32),
        name_a=Text.of(f"a{i}" for i in range(agents)),
        rollout_e=np.zeros(n, np.int32),
        id_e=Names(Text.constant("e", n), np.arange(n)),
        t_e=t,
        end_e=t + 0.5,
        type_e=np.full(n, event("message"), np.int8),
        agent_e=(np.arange(n) % agents).astype(np.int32),
    )


@pytest.fixture(scope="session")
def several(run: Trace) -> Trace:
    return concat([run, plain_run(3)])
