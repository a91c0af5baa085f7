"""The metrics: rows that name a dimension and the scores that measure it. A metric is a score with an interval."""

from __future__ import annotations

from typing import NamedTuple

from podium.errors import WrongUse

__all__ = ["DIMENSIONS", "METRICS", "BadMetrics", "Metric"]

DIMENSIONS = {
    "E1": "task success",
    "E2": "parallelism efficiency",
    "E3": "collaboration quality",
    "E4": "protocol overhead",
}


class BadMetrics(WrongUse, ValueError):
    """A question about metrics that cannot be answered; says what was expected and what came."""


class Metric(NamedTuple):
    """Scores are tried in order: the first that says anything of a set of runs measures them."""

    dimension: str
    name: str
    scores: tuple[str, ...]
    better: str
    operational: bool = False  # among the five of the survey's table 13


METRICS: tuple[Metric, ...] = (
    Metric("E1", "outcome", ("outcome",), "higher"),
    Metric("E1", "solved", ("solved",), "higher"),
    Metric("E2", "speed-up over serial", ("speedup", "speedup_from_starts"), "higher", True),
    Metric("E2", "useful-agent utilisation", ("utilisation", "utilisation_by_effect"), "higher", True),
    Metric("E2", "busy agents", ("busy_agents",), "higher"),
    Metric("E2", "critical steps", ("critical_steps",), "lower"),
    Metric("E2", "what-if headroom", ("headroom", "headroom_from_starts"), "lower"),
    Metric("E3", "message redundancy", ("redundancy", "redundancy_by_content"), "lower", True),
    Metric("E3", "consensus", ("consensus", "consensus_by_value"), "higher"),
    Metric("E3", "diversity", ("diversity", "diversity_by_value"), "higher"),
    Metric("E3", "resolution", ("resolved", "resolved_by_value"), "higher"),
    Metric("E4", "protocol overhead", ("protocol_overhead",), "lower", True),
    Metric("E4", "tokens per delegation", ("tokens_per_delegation",), "lower"),
    Metric("E4", "error amplification", ("error_amplification",), "lower", True),
    Metric("E4", "injection flow", ("injection_flow", "injection_flow_unmarked"), "lower"),
)
