"""The options of decisions: as an axis of the trace, and which of them was chosen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import I, Text, Trace, ranges

__all__ = ["chosen_options", "option_axis"]


def option_axis(listed: Text) -> dict[str, Any]:
    """The axis of options from one JSON list of labels an event: where each belongs, and its label.

    >>> option_axis(Text.of([None, '["yes","no"]']))["event_o"].tolist()
    [1, 1]
    """
    place: dict[str, int] = {}
    lists = [[place.setdefault(label, len(place)) for label in json.loads(word)] for word in listed.words]
    flat = np.array([code for codes in lists for code in codes], np.int32)
    many = np.array([len(codes) for codes in lists], np.int64)
    rows = np.flatnonzero(listed.codes >= 0)
    at = listed.codes[rows]
    counts = many[at]
    labels = flat[ranges((np.cumsum(many) - many)[at], counts)]
    return {"event_o": np.repeat(rows, counts), "label_o": Text(labels, tuple(place))}


def chosen_options(trace: Trace, rows: I, chosen: I | None = None) -> NDArray[np.int64]:
    """The place on the axis of options of what was chosen at each of these events, -1 if it is none of them.

    `chosen` are codes of `chosen_e`; those of the events themselves unless told.
    """
    taken = trace.chosen_e.codes[rows] if chosen is None else chosen
    first, many = trace.options_of(rows)
    place = ranges(first, many)
    of = np.repeat(np.arange(len(rows)), many)
    label = np.append(trace.label_o.recoded(trace.chosen_e.words), -2)[place] if len(place) else place
    hit = np.flatnonzero((label == taken[of]) & (label >= 0))[::-1]
    option = np.full(len(rows), -1)
    option[of[hit]] = place[hit]  # the first of a label is written last, so it stays
    return option
