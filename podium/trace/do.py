"""An intervention, as data: at this row, something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Do"]


@dataclass(frozen=True, slots=True)
class Do:
    """At this row of a trace: `choose` another option of a decision, `replace` content, `remove` an event, `delay`
    it by seconds, or `mask` agents from here on: what they would do is not done. `value` is the option's label, the
    content, the seconds, the name of the agent or the names of several; None where there is nothing to say: to
    mask, whoever acts at this row. Who carries an intervention out says which of these it can.
    """

    row: int
    what: Literal["choose", "replace", "remove", "delay", "mask"] = "choose"
    value: str | float | tuple[str, ...] | None = None
