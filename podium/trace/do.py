"""An intervention, as data: at this row, something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Do"]


@dataclass(frozen=True, slots=True)
class Do:
    """At this row of a trace: `choose` another option of a decision, `replace` content, `remove` an event, `delay` it by
    seconds, or `mask` an agent from here on. `value` is the option's label, the content, the seconds; None where there
    is nothing to say. Who carries an intervention out says which of these it can.
    """

    row: int
    what: Literal["choose", "replace", "remove", "delay", "mask"] = "choose"
    value: str | float | None = None
