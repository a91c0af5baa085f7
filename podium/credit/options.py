"""Columns over the options of decisions: how likely the policy was to take each, and what labels say of each."""

from __future__ import annotations

import msgspec
import numpy as np

from podium.credit.credit import BadCredit
from podium.trace.columns import F, Trace

__all__ = ["option_label", "option_probability"]


def option_label(trace: Trace, name: str) -> F:
    """A label that is a JSON list, one number an option, on the axis of options; NaN where a decision does not have
    it.
    """
    values_o: F = np.full(len(trace.event_o), np.nan)
    column = trace.extra_e.get(name)
    if column is None:
        return values_o
    rows = np.flatnonzero(column.codes >= 0)
    first, many = trace.options_of(rows)
    lists = [_numbers(word, name) for word in column.words]
    for row, at, count, code in zip(
        rows.tolist(), first.tolist(), many.tolist(), column.codes[rows].tolist(), strict=True
    ):
        if count and len(lists[code]) != count:
            names = ", ".join(trace.options(row))
            raise BadCredit(f"row {row}: {count} options ({names}) but {len(lists[code])} numbers in {name!r}")
        if count:
            values_o[at : at + count] = lists[code]
    return values_o


def _numbers(word: str, name: str) -> list[float]:
    try:
        return msgspec.json.decode(word, type=list[float])
    except msgspec.DecodeError as error:
        raise BadCredit(f"{name}: expected a list of numbers, one an option, got {word!r}: {error}") from None


def option_probability(trace: Trace, label: str = "pi") -> F:
    """π of every option: e^logp where the policy's log-probabilities are recorded, else what the label says; NaN
    where nothing does.
    """
    known_o: F = np.exp(trace.logp_o)
    if label not in trace.extra_e:
        if len(known_o) and np.isnan(known_o).all():
            raise BadCredit(
                f"needs the policy's log-probabilities of options, or the label {label!r}: a JSON list over them"
            )
        return known_o
    return np.where(np.isnan(known_o), option_label(trace, label), known_o)
