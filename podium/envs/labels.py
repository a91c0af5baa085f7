"""What a world knows of its own events and writes beside them: what was to the point, what was corrupted, what was
said before.

Labels are columns of JSON laid along a trace that is already made, so an episode that nobody records pays nothing
for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.log import Spelled
from podium.trace.columns import I, Text, Trace

__all__ = ["duplicates", "numbered_agents", "truth"]


def truth(marks: NDArray[Any]) -> Text:
    """True, false, or neither, where a mark is 1, 0 or -1.

    >>> truth(np.array([1, -1, 0])).strings()
    ['true', None, 'false']
    """
    return Text(marks, ("false", "true"))


def duplicates(trace: Trace, rows: I, key: I) -> tuple[Text, NDArray[np.bool_]]:
    """The column `duplicate_of` and which of the rows are one: those that come after the first row with their key,
    whose id they name. The first says null: it is none. A key holds the rollout."""
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    original = rows[first[which]]
    again = original != rows
    place = (original - trace.first_of("e")[trace.rollout_e[original]])[again]
    different, code = np.unique(place, return_inverse=True)
    codes = np.full(trace.n_events, -1)
    codes[rows], codes[rows[again]] = len(different), code
    return Text(codes, [*Spelled('"e{}"', different), "null"]), again


def numbered_agents(trace: Trace, word: str) -> NDArray[np.int64]:
    """For each event the number of its agent, if that is called so and a number from 1 on, counted from 0; else
    -1."""
    names = (name.removeprefix(word) if name.startswith(word) else "" for name in trace.name_a.words)
    number_w = np.array([int(n) - 1 if n.isdigit() else -1 for n in names] + [-1])
    number_a = np.append(number_w[trace.name_a.codes], -1)
    numbers: NDArray[np.int64] = number_a[trace.agent_e]
    return numbers
