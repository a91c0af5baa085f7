"""Which events derive from content that nobody vouches for, and through whom it came."""

from __future__ import annotations

from podium.graph.grouping import count_by
from podium.trace import sweep
from podium.trace.columns import B, I, Trace
from podium.trace.rules import trust_edges

__all__ = ["carriers", "taint", "through"]


def taint(trace: Trace) -> B:
    """Events that are marked untrusted, or derive from one that is along edges other than temporal.

        taint_j = untrusted_j or (any(taint_i : i → j) and not released_j)

    A human intervention or a safety event that is not itself marked untrusted releases what passes through it.
    """
    return sweep.reach(trace.trusted_e == 0, *trust_edges(trace))


def through(trace: Trace) -> I:
    """For each tainted event the row of the latest untrusted mark it derives from; -1 where it is clean."""
    return sweep.latest(trace.trusted_e == 0, *trust_edges(trace))


def carriers(trace: Trace) -> I:
    """How many tainted events each agent emitted."""
    return count_by(trace.agent_e, taint(trace), trace.n_agents)
