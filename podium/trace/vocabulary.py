"""The closed word lists of a trace. A column stores a word as its place in the list; -1 means not recorded."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = [
    "DECISIONS",
    "EDGE_TYPES",
    "EVENT_TYPES",
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
Topology = Literal[
    "centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness", "mixed", "unknown"
]
Decision = Literal["spawn", "delegate", "communicate", "aggregate", "stop"]

EVENT_TYPES: tuple[str, ...] = get_args(EventType)
EDGE_TYPES: tuple[str, ...] = get_args(EdgeType)
TOPOLOGIES: tuple[str, ...] = get_args(Topology)
DECISIONS: tuple[str, ...] = get_args(Decision)


def event(word: EventType) -> int:
    """The code of an event type.

    >>> event("spawn")
    1
    """
    return EVENT_TYPES.index(word)


def edge(word: EdgeType) -> int:
    """The code of an edge type.

    >>> edge("temporal")
    0
    """
    return EDGE_TYPES.index(word)


def decision(word: Decision) -> int:
    """The code of a decision kind.

    >>> decision("stop")
    4
    """
    return DECISIONS.index(word)
