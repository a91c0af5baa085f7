"""Credit on tokens: a turn's reward comes with its last token; values are a label of the generation."""

from __future__ import annotations

import msgspec
import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.orders import timeline
from podium.credit.returns import advantages
from podium.graph import units
from podium.graph.grouping import last_by, take
from podium.registry import register
from podium.trace.columns import F, Trace

__all__ = ["token_column"]


@register("step", "sampled")
def only_sampled(credit: Credit) -> Credit:
    """Credit for tokens that the policy sampled, none (NaN) for tokens that were given to it (`mask` 0)."""
    if credit.unit != "token":
        raise BadCredit(f"sampled is about tokens, not {credit.unit}; bring credit there with `to`")
    return credit.of(np.where(credit.trace.mask_k == 0, np.nan, credit.value))


@register("step")
def last_token(credit: Credit) -> Credit:
    """All of a unit's credit on the last token that it sampled, 0 on those before; NaN for all other tokens.

    Refuses where a unit with credit has no token, because it would be lost.
    """
    trace, n = credit.trace, len(credit.value)
    inside = np.where(trace.mask_k == 0, -1, units.within(trace, "token", credit.unit))
    last = last_by(inside, inside >= 0, n)
    if lost := int(((last < 0) & (np.nan_to_num(credit.value) != 0.0)).sum()):
        raise BadCredit(f"{lost} of the {credit.unit} units with credit have no token, so it would be lost")
    value = np.where(np.isnan(take(credit.value, inside)), np.nan, 0.0)
    value[last[last >= 0]] = credit.value[last >= 0]
    return Credit(trace, "token", value)


@register("step")
def token_gae(credit: Credit, value: str, gamma: float = 1.0, lam: float = 1.0) -> Credit:
    """Generalised advantage from token to token, on through the agents of a run in the order in which they wrote.

        δ_u = r_u + γ V_{u+1} - V_u,    A_u = δ_u + γ λ A_{u+1},    0 after the last token of the run

    Given tokens are passed over; of generations that began at once the mean comes next.   needs: the label `value`
    (`token_column`).   from: MARFT, token level.
    """
    if credit.unit != "token":
        raise BadCredit(f"token_gae pays tokens, not {credit.unit}; bring credit there with last_token")
    line = timeline(credit, "rollout", credit.trace.mask_k != 0)
    return credit.of(advantages(line, credit.value, token_column(credit.trace, value), gamma, lam))


def token_column(trace: Trace, name: str) -> F:
    """A number for each token, from a JSON list on the generation that owns it; NaN where there is none."""
    values = np.full(len(trace.owner_k), np.nan)
    if name not in trace.extra_e:
        raise BadCredit(f"needs the label {name!r} on generations: a JSON list, one number a token")
    order = np.argsort(trace.owner_k, kind="stable")
    owners, many = np.unique(trace.owner_k, return_counts=True)
    ends = np.cumsum(many)
    for row, text, end, n in zip(
        owners.tolist(), trace.extra_e[name].take(owners).strings(), ends.tolist(), many.tolist(), strict=True
    ):
        if text is not None:
            values[order[end - n : end]] = _listed(text, n, row)
    return values


def _listed(text: str, n: int, row: int) -> list[float]:
    try:
        listed = msgspec.json.decode(text, type=list[float])
    except msgspec.DecodeError as error:
        raise BadCredit(f"row {row}: expected a list of numbers, got {text} ({error})") from None
    if len(listed) != n:
        raise BadCredit(f"row {row}: {n} tokens, {len(listed)} values")
    return listed
