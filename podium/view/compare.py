"""Two runs side by side: what they share, where they part, and how their figures differ."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from podium.harness.forest import shared
from podium.trace.columns import Trace
from podium.view.summary import summary

__all__ = ["comparison", "flat"]

MOST_ALIGNED = 100_000  # events of a run that is aligned with its parent


def flat(facts: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The figures of nested facts, by dotted name.

    >>> flat({"agents": 3, "rewards": {"team": 0.5}, "lead": "ann"})
    {'agents': 3.0, 'rewards.team': 0.5}
    """
    figures: dict[str, float] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            figures |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            figures[f"{prefix}{name}"] = float(value)
    return figures


def comparison(a: Trace, b: Trace) -> dict[str, Any]:
    """The figures of two runs; where one branched from the other, which events they share and what was done."""
    first, second = (flat(msgspec.to_builtins(summary(run))) for run in (a, b))
    names = [*first, *(name for name in second if name not in first)]
    return {
        "figures": [{"name": name, "a": first.get(name), "b": second.get(name)} for name in names],
        "branch": _branch(a, b) or _branch(b, a, swapped=True),
    }


def _branch(parent: Trace, child: Trace, swapped: bool = False) -> dict[str, Any] | None:
    """How a run left its parent; None where it is no branch of it."""
    if child.parent_n[0] is None or child.parent_n[0] != parent.trace_id_n[0]:
        return None
    row = int(child.branch_n[0])
    do = child.do_n[0]
    branch: dict[str, Any] = {
        "row": row if row >= 0 else None,
        "do": None if do is None else msgspec.json.decode(do),
        "swapped": swapped,
        "t": None,
        "shared": None,
    }
    if 0 <= row < parent.n_events and parent.t_e[row] == parent.t_e[row]:
        branch["t"] = float(parent.t_e[row] - np.nanmin(parent.t_e))
    if max(parent.n_events, child.n_events) <= MOST_ALIGNED:
        branch["shared"] = shared(
            parent, child
        ).tolist()  # for each event of the branch its row in the parent, or -1
    return branch
