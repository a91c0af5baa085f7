from __future__ import annotations

import numpy as np
import pytest
from made import kind, made, parents, thrown

from podium.graph import UNITS, call_of
from podium.graph.units import message, orchestrator, role, tool_call, turn
from podium.trace.columns import Text, Trace

RUN = made(
    # 0        1          2      3      4           5      6        7      8
    ["d lead", "spawn lead>w", "d w", "c w", "r search", "m w>lead", "c lead", "r lead", "d lead"],
    [(0, 1), (1, 2, "spawn"), (2, 3), (3, 4, "tool_dependency"), (4, 5, "tool_dependency"), (0, 6, "temporal"),
     (5, 6, "message"), (6, 7, "tool_dependency"), (7, 8, "tool_dependency")],
)  # fmt: skip


def test_worked_by_hand():
    assert list(UNITS) == ["team", "orchestrator", "role", "agent", "turn", "message", "tool_call", "token"]
    assert UNITS["team"](RUN).tolist() == [0] * 9
    assert orchestrator(RUN).tolist() == [0, 0, 2, 2, 2, 2, 2, 2, 8]
    assert role(RUN).tolist() == [-1] * 9
    assert UNITS["agent"](RUN).tolist() == [0, 0, 1, 1, 2, 1, 0, 0, 0]
    assert call_of(RUN).tolist() == [-1, -1, -1, -1, 3, -1, -1, 6, -1]
    assert tool_call(RUN).tolist() == [-1, -1, -1, 3, 3, -1, 6, 6, -1]
    assert message(RUN).tolist() == [-1, -1, -1, -1, -1, 5, -1, -1, -1]
    # lead: 0 1 | 6 hears w | 7 8 the answer.   w: 2 3 | 4 5 the answer
    assert turn(RUN).tolist() == [0, 0, 1, 1, 2, 2, 3, 4, 4]
    assert UNITS["token"](RUN).tolist() == []


def test_answers_that_come_together_are_one_input():
    run = made(
        ["c a", "c a", "r t", "r t", "d a"],
        [(0, 2), (1, 3), (2, 4, "tool_dependency"), (3, 4, "tool_dependency")],
    )
    assert turn(run).tolist() == [0, 0, 1, 1, 1]


def test_time_alone_is_no_input():
    assert turn(made(["d a", "d b", "d a"], [(0, 2, "temporal"), (1, 2, "temporal")])).tolist() == [0, 1, 0]
    assert turn(made(["d a", "d b", "d a"], [(0, 2, "temporal"), (1, 2, "message")])).tolist() == [0, 1, 2]


def test_the_generation_belongs_to_the_first_message_it_wrote():
    model = Text.of(["m", None, None])
    run = made(["d a", "m a>b", "m a>b"], [(0, 1), (0, 2)], model_e=model)
    assert message(run).tolist() == [1, 1, 2]
    other = made(["d b", "m a>b", "m a>b"], [(0, 1), (0, 2)], model_e=model)
    assert message(other).tolist() == [-1, 1, 2]
    itself = made(["d a", "m a>b"], [(0, 1)], model_e=Text.of(["m", "m"]))
    assert message(itself).tolist() == [-1, 1]


def test_a_role_is_numbered_by_its_first_row_and_kept_inside_its_rollout():
    run = made(["d a", "d b", "d a"], role_e=Text(np.array([1, -1, 0]), ["x", "y"]))
    assert role(run).tolist() == [0, -1, 1]


def test_a_result_answers_no_call_that_it_only_came_after():
    edges = [(0, 2, "return"), (1, 2, "temporal"), (1, 3, "return"), (2, 3, "temporal")]
    run = made(["c a", "c a", "r a", "r a"], edges)
    assert call_of(run).tolist() == [-1, -1, 0, 1]


def test_alone_an_agent_has_one_turn():
    run = made(["d a", "d a", "d a"], [(0, 1), (1, 2)])
    assert turn(run).tolist() == [0, 0, 0]
    assert turn(made([])).tolist() == []


def slow_turn(trace: Trace) -> list[int]:
    lane, before, current, out, count = {}, {}, {}, [], 0
    for row in range(trace.n_events):
        who = int(trace.agent_e[row])
        calls = [s for s, k in parents(trace, row) if kind(trace, s) == "tool_call" and k != "temporal"]
        if kind(trace, row) == "tool_result" and calls:
            who = int(trace.agent_e[max(calls)])
        lane[row] = who
        told = kind(trace, row) == "tool_result" or any(
            k != "temporal" and (lane[s] != who or kind(trace, s) == "tool_result") for s, k in parents(trace, row)
        )
        if who >= 0 and (who not in current or (told and before[who] != "tool_result")):
            current[who], count = count, count + 1
        before[who] = kind(trace, row)
        out.append(current[who] if who >= 0 else -1)
    return out


def slow_orchestrator(trace: Trace) -> list[int]:
    out: list[int] = []
    for row in range(trace.n_events):
        found = [out[s] for s, _ in parents(trace, row)]
        out.append(row if kind(trace, row) == "orchestrator_decision" else max(found, default=-1))
    return out


def slow_message(trace: Trace) -> list[int]:
    rows = range(trace.n_events)
    wrote = [trace.model_e[r] is not None or r in trace.owner_k.tolist() for r in rows]
    out = [r if kind(trace, r) == "message" else -1 for r in rows]
    for r in rows:
        if kind(trace, r) == "message" and not wrote[r]:
            same = [s for s, _ in parents(trace, r) if wrote[s] and trace.agent_e[s] == trace.agent_e[r]]
            same = [s for s in same if kind(trace, s) not in ("message", "tool_call")]
            if same and out[max(same)] < 0:
                out[max(same)] = r
    return out


@pytest.mark.parametrize(
    ("fast", "slow"), [(turn, slow_turn), (orchestrator, slow_orchestrator), (message, slow_message)]
)
def test_the_same_as_one_by_one(fast, slow):
    rng = np.random.default_rng(1)
    for _ in range(200):
        run = thrown(rng)
        assert fast(run).tolist() == slow(run)
