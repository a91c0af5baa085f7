"""What several metrics ask of a trace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.graph.grouping import count_by, ratio
from podium.graph.steps import spawned
from podium.trace.columns import B, F, Trace
from podium.trace.vocabulary import event

__all__ = ["count", "share", "spoken", "sub_agents"]

MESSAGE, RETURN = event("message"), event("return")


def count(trace: Trace, which_e: B) -> NDArray[np.int64]:
    """How many of these events each rollout has."""
    return count_by(trace.rollout_e, which_e, len(trace))


def share(trace: Trace, such_e: B, of_e: B) -> F:
    """The share of some events of each rollout that are such; NaN where there are none."""
    return ratio(count(trace, such_e), count(trace, of_e))


def sub_agents(trace: Trace) -> B:
    """The agents that a spawn names; one entry more, for nobody."""
    return np.append(spawned(trace), False)


def spoken(trace: Trace) -> B:
    """What agents said to each other: messages and returns, but those to oneself."""
    said_e: B = ((trace.type_e == MESSAGE) | (trace.type_e == RETURN)) & (trace.to_e != trace.agent_e)
    return said_e
