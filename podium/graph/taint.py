"""Which events derive from content that nobody vouches for, and through whom it came."""

from __future__ import annotations

import numpy as np

from podium.graph.grouping import count_by
from podium.graph.people import persons
from podium.trace import sweep
from podium.trace.columns import B, I, Trace
from podium.trace.rules import trust_edges
from podium.trace.vocabulary import event

__all__ = ["carriers", "flow_edges", "taint", "through"]

MESSAGE = event("message")


def flow_edges(trace: Trace) -> tuple[I, I]:
    """The edges along which untrusted content travels: `trust_edges`, but for those into what a person writes who
    has read it."""
    src_x, dst_x = trust_edges(trace)
    wrote_e = (trace.type_e == MESSAGE) & np.append(persons(trace), False)[trace.agent_e] & (trace.trusted_e != 0)
    carries_x = ~wrote_e[dst_x]
    return src_x[carries_x], dst_x[carries_x]


def taint(trace: Trace) -> B:
    """Events that are marked untrusted, or derive from one that is along edges other than temporal.

        taint_j = untrusted_j or (any(taint_i : i → j) and not released_j)

    A human intervention, a safety event or a person's message that is not itself marked untrusted releases what
    passes through it.
    """
    return sweep.reach(trace.trusted_e == 0, *flow_edges(trace))


def through(trace: Trace) -> I:
    """For each tainted event the row of the latest untrusted mark it derives from; -1 where it is clean."""
    return sweep.latest(trace.trusted_e == 0, *flow_edges(trace))


def carriers(trace: Trace) -> I:
    """How many tainted events each agent emitted."""
    return count_by(trace.agent_e, taint(trace), trace.n_agents)
