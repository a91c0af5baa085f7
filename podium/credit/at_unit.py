"""Credit at another unit than the one that was paid."""

from __future__ import annotations

import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.routing import broadcast, to
from podium.graph import units

__all__ = ["at_unit"]


def at_unit(paid: Credit, unit: str, by: str | None = None) -> Credit:
    """The credit at another unit: summed into a coarser one, broadcast to finer ones, or shared among them (`by`).

    Shares are equal or by tokens or time; up after it is the identity. Refuses where credit would be lost.
    """
    if unit not in units.UNITS:
        raise BadCredit(f"no unit called {unit!r}; there are {', '.join(units.UNITS)}")
    if by not in (None, "equal", "tokens", "time"):
        raise BadCredit(f"--by takes equal, tokens or time, got {by!r}")
    if unit == paid.unit:
        return paid
    if not units.finer(unit, paid.unit):
        return to(paid, unit, "sum")
    inside = units.within(paid.trace, unit, paid.unit)
    empty = np.bincount(inside[inside >= 0], minlength=len(paid.value)) == 0
    if lost := int((empty & (np.nan_to_num(paid.value) != 0.0)).sum()):
        raise BadCredit(f"{lost} of the {paid.unit} units with credit hold no {unit}, so that it would be lost")
    return broadcast(paid, unit) if by is None else to(paid, unit, "share", by)  # type: ignore[arg-type]
