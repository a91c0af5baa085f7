"""The limits of all numbers that verbs take, in one table: what is outside is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

__all__ = ["LIMITS", "Limits", "number"]


@dataclass(frozen=True)
class Limits:
    """A range of numbers, both ends in it, and what it is the range of."""

    low: float
    high: float
    kind: type[int] | type[float] = int

    @property
    def sentence(self) -> str:
        """The range in words.

        >>> Limits(2, 10_000_000).sentence, Limits(0, 1, float).sentence
        ('a whole number from 2 to 10,000,000', 'a number from 0 to 1')
        """
        return f"a {'whole ' * (self.kind is int)}number from {self.low:,} to {self.high:,}"

    def read(self, value: Any) -> Any:
        """The number that was written. Raises BadParameter, also for what is no number.

        >>> Limits(2, 10).read("7"), Limits(0, 1, float).read("1e-3")
        (7, 0.001)
        """
        try:
            read = self.kind(value)
        except (ValueError, OverflowError):
            read = float("nan")
        if not self.low <= read <= self.high:  # NaN is in no range
            raise typer.BadParameter(f"expected {self.sentence}, got {str(value)[:40]}")
        return read


HUGE = 2**63 - 1
# Seeds are mixed as 64 bits. The sizes are what a large machine does in a day: above them is a slip of the hand.
LIMITS: dict[str, Limits] = {
    "seed": Limits(0, HUGE),
    "seeds": Limits(1, 1_000),
    "iterations": Limits(1, 1_000_000),
    "scored episodes": Limits(2, 10_000_000),
    "trained episodes": Limits(8, 100_000),
    "cores": Limits(1, 256),
    "progress": Limits(0, 1, float),
    "row": Limits(0, HUGE),
    "port": Limits(0, 65_535),
    "seconds": Limits(0.1, 86_400, float),
    "memory": Limits(16, 1_000_000),
    "tokens": Limits(1, 1 << 20),
}


def number(name: str, help: str) -> Any:
    """An option that takes a number within limits of the table."""
    limits = LIMITS[name]
    sentence = f" {limits.sentence.capitalize()}." if limits.high < HUGE else ""
    return typer.Option(parser=_parser(name), metavar="N", help=help + sentence)


def _parser(name: str) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        return LIMITS[name].read(value)

    parse.__name__ = name  # what `typer` shows where there is no metavar
    return parse
