"""What several metrics ask of a trace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium import graph
from podium.graph.grouping import ratio
from podium.rewards.orchestration import spawned
from podium.trace.columns import B, F, I, Trace
from podium.trace.vocabulary import EDGE_TYPES, EdgeType, edge, event

__all__ = ["LINKS", "count", "crossing", "doers", "share", "spoken", "sub_agents"]

LINKS: tuple[EdgeType, ...] = tuple(t for t in EDGE_TYPES if t != "temporal")  # type: ignore[misc]
TEMPORAL = edge("temporal")
MESSAGE, RETURN, DESPAWN, SAFETY = event("message"), event("return"), event("despawn"), event("safety_event")


def count(trace: Trace, which_e: B) -> NDArray[np.int64]:
    """How many of these events each rollout has."""
    return np.bincount(trace.rollout_e[which_e], minlength=len(trace))


def share(trace: Trace, such_e: B, of_e: B) -> F:
    """The share of some events of each rollout that are such; NaN where there are none."""
    all_n = count(trace, of_e)
    return ratio(count(trace, such_e), all_n)


def sub_agents(trace: Trace) -> B:
    """The agents that a spawn names; one entry more, for nobody."""
    return np.append(spawned(trace), False)


def doers(trace: Trace) -> I:
    """Whose doing each event is: a tool result is the caller's."""
    call_e = graph.call_of(trace)
    return np.where(call_e >= 0, trace.agent_e[call_e], trace.agent_e)


def crossing(trace: Trace) -> B:
    """The edges by which one agent's doing reached another's."""
    who_e = doers(trace)
    crosses_x: B = (who_e[trace.src_x] != who_e[trace.dst_x]) & (trace.type_x != TEMPORAL)
    crosses_x &= ~np.isin(trace.type_e, (DESPAWN, SAFETY))[trace.dst_x]
    return crosses_x


def spoken(trace: Trace) -> B:
    """What agents said to each other: messages and returns, but those to oneself."""
    said_e: B = ((trace.type_e == MESSAGE) | (trace.type_e == RETURN)) & (trace.to_e != trace.agent_e)
    return said_e
