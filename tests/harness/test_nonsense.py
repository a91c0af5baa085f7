"""Whatever agents answer and however tools fail: a recorded fault, in time, and never more than that."""

from __future__ import annotations

import pytest

from bench.nonsense import AGENTS, TOOLS, with_agent, with_tool
from podium.trace.rules import check


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_answers_nonsense(name: str) -> None:
    ran = with_agent(AGENTS[name])
    ((fault, why),) = ran.answer
    assert fault
    assert why
    assert "Traceback" not in why
    assert ran.metrics["faults"] >= 1
    assert check(ran.trace) == []


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_that_fails(name: str) -> None:
    ran = with_tool(TOOLS[name])
    ((fault, why),) = ran.answer
    assert fault
    assert why
    assert ran.metrics["faults"] >= 1
    assert check(ran.trace) == []
