"""Columns over the options of decisions: how likely the policy was to take each, and what labels say of each."""

from __future__ import annotations

import msgspec
import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.forest import copies, leaves
from podium.trace.columns import F, I, Trace
from podium.trace.options import chosen_options

__all__ = ["at_options", "option_label", "option_probability"]


def option_label(trace: Trace, name: str) -> F:
    """A label that is a JSON list, one number an option, on the axis of options; NaN for decisions without it."""
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
    """π of every option: e^logp of those tried among, else what the label says; NaN where nothing does."""
    known_o: F = np.exp(np.where(np.isnan(trace.behaviour_o), trace.logp_o, trace.behaviour_o))
    if label not in trace.extra_e:
        if len(known_o) and np.isnan(known_o).all():
            raise BadCredit(
                f"needs the policy's log-probabilities of options, or the label {label!r}: a JSON list over them"
            )
        return known_o
    return np.where(np.isnan(known_o), option_label(trace, label), known_o)


def at_options(credit: Credit, rows: I) -> F:
    """On the axis of options, what each option of these decisions is paid: as the run that took it is, at the
    decision or in a branch that begins there; NaN for an option that no such run took.
    """
    trace, value = credit.trace, credit.value
    wanted = np.zeros(trace.n_events + 1, np.bool_)
    wanted[rows] = True
    at = leaves(credit.runs, credit.rows)  # of a branch, the decision of its parent that it decides otherwise
    begins = at >= 0
    at = np.where(begins, at, credit.rows)
    own = ~copies(credit.runs, credit.rows) & (trace.tells_n != 0)[credit.rollout]
    payers = np.flatnonzero(wanted[at] & (begins | own) & ~np.isnan(value))
    place = chosen_options(trace, at[payers], trace.chosen_e.codes[credit.rows[payers]])
    paid_o: F = np.full(len(trace.event_o) + 1, np.nan)
    paid_o[place] = value[payers]
    return paid_o[:-1]
