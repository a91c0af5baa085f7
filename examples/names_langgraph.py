"""The same team as a graph of LangGraph: writers fan out, an editor picks.

    podium train examples/names_langgraph.toml --policy lm

trains it. Nothing in this file knows of Podium: the base URL comes from the environment.
"""

import asyncio
import json
import operator
import sys
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

LETTERS = ["a", "b", "c", "d"]
CHOICE = {"type": "json_schema", "json_schema": {"name": "choice", "schema": {"enum": LETTERS}}}


class State(TypedDict):
    topic: str
    names: Annotated[list[str], operator.add]
    best: str


async def write(state: dict) -> dict:
    model = ChatOpenAI(model="any", max_tokens=8)
    reply = await model.ainvoke([("system", f"name {state['number']}"), ("user", state["topic"])])
    return {"names": [reply.text]}


async def pick(state: State) -> dict:
    model = ChatOpenAI(model="any").bind(response_format=CHOICE)
    reply = await model.ainvoke([("system", "pick"), ("user", "\n".join(state["names"]))])
    return {"best": state["names"][LETTERS.index(json.loads(reply.text))]}


def fan_out(state: State) -> list[Send]:
    return [Send("write", {"number": i, "topic": state["topic"]}) for i in range(4)]


graph = StateGraph(State)
graph.add_node("write", write)
graph.add_node("pick", pick)
graph.add_conditional_edges(START, fan_out, ["write"])
graph.add_edge("write", "pick")
graph.add_edge("pick", END)
result = asyncio.run(graph.compile().ainvoke({"topic": sys.argv[1], "names": [], "best": ""}))
sys.stdout.reconfigure(encoding="utf-8", errors="replace")
print(result["best"])
