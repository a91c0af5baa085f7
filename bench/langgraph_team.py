"""The fan-out of bench/harness.py in LangGraph: workers sent out by one node, each a loop of a model and a tool."""

from __future__ import annotations

import asyncio
import operator
from importlib.metadata import version
from time import perf_counter
from typing import Annotated, Any, TypedDict

__all__ = ["fan_out"]


class Team(TypedDict):
    answers: Annotated[list[int], operator.add]


class Worker(TypedDict):
    turn: int
    call: int | None
    last: int
    answers: Annotated[list[int], operator.add]


def fan_out(agents: int, steps: int) -> dict[str, Any]:
    """Seconds, and what it came to."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    async def model(state: Worker) -> dict[str, Any]:
        await asyncio.sleep(0)
        if state["turn"] < steps - 1:
            return {"call": state["turn"], "turn": state["turn"] + 1}
        return {"call": None, "answers": [state["last"]]}

    async def double(state: Worker) -> dict[str, Any]:
        return {"last": 2 * (state["call"] or 0)}

    worker = StateGraph(Worker)
    worker.add_node("model", model)
    worker.add_node("double", double)
    worker.add_edge(START, "model")
    worker.add_conditional_edges("model", lambda s: END if s["call"] is None else "double", ["double", END])
    worker.add_edge("double", "model")

    team = StateGraph(Team)
    team.add_node("worker", worker.compile())
    team.add_conditional_edges(
        START,
        lambda _: [Send("worker", {"turn": 0, "call": None, "last": 0, "answers": []}) for _ in range(agents)],
        ["worker"],
    )
    team.add_edge("worker", END)
    graph = team.compile()
    start = perf_counter()
    out = asyncio.run(graph.ainvoke({"answers": []}, {"recursion_limit": 4 * steps + 10}))
    return {"s": perf_counter() - start, "answer": sum(out["answers"]), "version": version("langgraph")}
