"""Labels that a log may carry on its events beyond the survey's fields.

`task_relevant` and `corrupted` are true or false, `duplicate_of` names an earlier event, `value` is a number. A
label is a field of its own on the event; no text of a content is ever read for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import B, F, Trace

__all__ = ["label", "number", "stated"]


def label(trace: Trace, name: str) -> NDArray[np.int8]:
    """1 where an event says true, 0 where it says false, -1 where it says neither."""
    return _of_words(trace, name, lambda word: {"true": 1, "false": 0}.get(word, -1), -1, np.int8)


def number(trace: Trace, name: str) -> F:
    """The number an event states; NaN where it states none."""
    return _of_words(trace, name, _number, np.nan, np.float64)


def stated(trace: Trace, name: str) -> B:
    """Whether an event says anything but null under this name."""
    return _of_words(trace, name, lambda word: word != "null", False, np.bool_)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return np.nan


def _of_words(
    trace: Trace, name: str, read: Callable[[str], Any], absent: Any, dtype: type[np.generic]
) -> NDArray[Any]:
    """Reads each different word once."""
    column = trace.extra_e.get(name)
    if column is None:
        return np.full(trace.n_events, absent, dtype)
    values: NDArray[Any] = np.array([*map(read, column.words), absent], dtype)[column.codes]
    return values
