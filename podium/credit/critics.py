"""What fitted things say: steps that read the columns of critics, mixers and judges."""

from __future__ import annotations

import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.options import option_label, option_probability
from podium.credit.returns import column
from podium.graph.grouping import take
from podium.registry import register
from podium.trace.columns import ranges
from podium.trace.options import chosen_options

__all__: list[str] = []


@register("step")
def plugged(credit: Credit, column_: str) -> Credit:
    """A column that something else computed, as it is: a language critic, a process reward, a learned credit."""
    return credit.where_known(column(credit, column_))


@register("step")
def own_action(credit: Credit, q: str = "q", pi: str = "pi") -> Credit:
    """What the option taken was worth beyond what the agent's own policy would have got on average.

        A = Q(taken) - Σ_k π(k) Q(k)

    needs: on each decision the labels q and pi, JSON lists over its options.   from: COMA.
    """
    if credit.unit != "orchestrator":
        raise BadCredit(f"own_action pays decisions (unit orchestrator), not {credit.unit}")
    trace, rows = credit.trace, credit.rows
    if q not in trace.extra_e:
        raise BadCredit(f"own_action needs the label {q!r} on decisions: a JSON list, one number an option")
    q_o, pi_o = option_label(trace, q), option_probability(trace, pi)
    first, many = trace.options_of(rows)
    place, of = ranges(first, many), np.repeat(np.arange(len(rows)), many)
    mean = np.bincount(of, (q_o * pi_o)[place], minlength=len(rows))
    taken = chosen_options(trace, rows)
    if len(odd := np.flatnonzero((taken < 0) & (many > 0) & (trace.chosen_e.codes[rows] >= 0))):
        row = int(rows[odd[0]])
        raise BadCredit(
            f"row {row}: {trace.chosen_e[row]!r} is none of its options {', '.join(trace.options(row))}"
        )
    return credit.where_known(take(q_o, taken) - mean)


@register("step")
def vdn(credit: Credit, q: str) -> Credit:
    """An agent's own term of a sum that makes the team's value.

        Q_tot = Σ_i Q_i,   A_i = Q_i

    from: value decomposition networks.
    """
    return credit.where_known(column(credit, q))


@register("step")
def qmix(credit: Credit, q: str, weight: str) -> Credit:
    """An agent's term of a monotone mixer, to first order.

        A_i = |w_i| Q_i,    w_i = ∂Q_tot / ∂Q_i >= 0

    needs: the columns of Q_i and of the mixer's slope at this state.   from: QMIX.
    """
    return credit.where_known(np.abs(column(credit, weight)) * column(credit, q))
