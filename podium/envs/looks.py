"""How a look at one more candidate is recorded, by the worlds in which a lead looks at them one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.log import Log
from podium.envs.world import LEAD, View

__all__ = ["GO_ON", "STOP", "log_looks"]

STOP, GO_ON = 0, 1


def log_looks(
    state: Any,
    log: Log,
    view: View,
    choice: NDArray[np.int64],
    options: Sequence[str],
    value: Callable[[Any, Any], Any],
    cost: float = np.nan,
) -> None:
    """A decision to stop or to go on; who goes on calls a tool and gets `value(seed, count)` back, who stops
    aggregates.

    The state has `count`, the candidates seen so far, and `last`, the handle of the latest event.
    """
    for last in (False, True):  # after the last candidate there is only one option
        same = view.allowed[:, GO_ON] != last
        row, chosen = view.row[same], choice[same]
        if not len(row):
            continue
        t, go, stop = 3.0 * state.count[row], chosen == GO_ON, chosen == STOP
        words, before, menu = np.array(options)[chosen], state.last[row], options[: 2 - last]
        decision = log.decide(row, "stop", LEAD, t, menu, words, state.logp[row], [("causal", before)], role="lead")
        on = row[go]
        call = log.add(
            on, "tool_call", LEAD, t[go] + 1, [("tool_dependency", decision[go])], tool="look", cost=cost
        )
        results = value(state.seed[on], state.count[on])
        state.last[on] = log.add(
            on, "tool_result", "look", t[go] + 2, [("return", call)], tool="look", value=results
        )
        log.add(row[stop], "aggregate", LEAD, t[stop] + 1, [("aggregate", decision[stop])])
