"""The closed word lists of a trace. A column stores a word as its place in the list; -1 means not recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

__all__ = [
    "DECISIONS",
    "EDGE_TYPES",
    "EVENT_TYPES",
    "STEPS",
    "TOPOLOGIES",
    "Decision",
    "EdgeType",
    "EventType",
    "Topology",
    "decision",
    "edge",
    "event",
]

EventType = Literal[
    "orchestrator_decision",
    "spawn",
    "despawn",
    "message",
    "tool_call",
    "tool_result",
    "return",
    "aggregate",
    "human_intervention",
    "safety_event",
]
EdgeType = Literal[
    "temporal", "causal", "spawn", "message", "tool_dependency", "return", "aggregate", "safety_flow"
]
STEPS: tuple[EventType, ...] = ("orchestrator_decision", "message", "tool_call", "return", "aggregate")
Topology = Literal[
    "centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness", "mixed", "unknown"
]
Decision = Literal["spawn", "delegate", "communicate", "aggregate", "stop"]

EVENT_TYPES: tuple[str, ...] = get_args(EventType)
EDGE_TYPES: tuple[str, ...] = get_args(EdgeType)
TOPOLOGIES: tuple[str, ...] = get_args(Topology)
DECISIONS: tuple[str, ...] = get_args(Decision)

# the code of a word: event("spawn") is 1, edge("temporal") 0, decision("stop") 4
event: Callable[[EventType], int] = EVENT_TYPES.index
edge: Callable[[EdgeType], int] = EDGE_TYPES.index
decision: Callable[[Decision], int] = DECISIONS.index
