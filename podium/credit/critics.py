"""What fitted things say: steps that read the columns of critics, mixers and judges. Fitting them is `learn`'s work."""

from __future__ import annotations

import msgspec
import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.returns import column
from podium.registry import register
from podium.trace.columns import F

__all__ = ["own_action", "plugged", "qmix", "vdn"]


@register("step")
def plugged(credit: Credit, column_: str) -> Credit:
    """A column that something else computed, as it is: a language critic, an implicit process reward, a learned credit."""
    return credit.of(_kept(credit, column(credit, column_)))


@register("step")
def own_action(credit: Credit, q: str = "q", pi: str = "pi") -> Credit:
    """What the option taken was worth beyond what the agent's own policy would have got on average, others' choices kept.

        A = Q(taken) - Σ_k π(k) Q(k)

    needs: on each decision the labels q and pi, JSON lists over its options.   from: COMA.
    """
    if credit.unit != "orchestrator":
        raise BadCredit(f"own_action pays decisions (unit orchestrator), not {credit.unit}")
    trace, rows = credit.trace, credit.rows
    for name in (q, pi):
        if name not in trace.extra_e:
            raise BadCredit(f"own_action needs the label {name!r} on decisions: a JSON list, one number an option")
    worth = np.full(len(rows), np.nan)
    said = {name: trace.extra_e[name].take(rows).strings() for name in (q, pi)}
    offered, chosen = trace.options_e.take(rows).strings(), trace.chosen_e.take(rows).strings()
    for i, (values, odds, options, option) in enumerate(zip(said[q], said[pi], offered, chosen, strict=True)):
        if None not in (values, odds, options, option):
            worth[i] = _advantage(str(values), str(odds), str(options), str(option), int(rows[i]))
    return credit.of(np.where(np.isnan(credit.value), np.nan, worth))


def _advantage(values: str, odds: str, options: str, option: str, row: int) -> float:
    try:
        q, pi = (msgspec.json.decode(text, type=list[float]) for text in (values, odds))
        names = msgspec.json.decode(options, type=list[str])
    except msgspec.DecodeError as error:
        raise BadCredit(
            f"row {row}: expected a list of numbers for each option, got {values} and {odds} ({error})"
        ) from None
    if not len(q) == len(pi) == len(names) or option not in names:
        raise BadCredit(f"row {row}: {len(names)} options, {len(q)} values and {len(pi)} probabilities must agree")
    return q[names.index(option)] - float(np.dot(q, pi))


@register("step")
def vdn(credit: Credit, q: str) -> Credit:
    """An agent's own term of a sum that makes the team's value.

        Q_tot = Σ_i Q_i,   A_i = Q_i

    from: value decomposition networks.
    """
    return credit.of(_kept(credit, column(credit, q)))


@register("step")
def qmix(credit: Credit, q: str, weight: str) -> Credit:
    """An agent's term of a monotone mixer, to first order.

        A_i = |w_i| Q_i,    w_i = ∂Q_tot / ∂Q_i >= 0

    needs: the columns of Q_i and of the mixer's slope at this state.   from: QMIX.
    """
    return credit.of(_kept(credit, np.abs(column(credit, weight)) * column(credit, q)))


def _kept(credit: Credit, value: F) -> F:
    """NaN in, NaN out."""
    return np.where(np.isnan(credit.value), np.nan, value)
