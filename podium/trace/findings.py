"""What is wrong with a trace, as data: the CLI, the viewer and the tests print the same words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from podium.errors import WrongUse

__all__ = ["BadTrace", "Finding", "Unreadable"]

Level = Literal["error", "warning"]


class Finding(Struct, frozen=True):
    """One rule broken at one place: a row of the trace, or none where the whole file is meant."""

    file: str
    row: int | None
    rule: str
    level: Level
    message: str

    def __str__(self) -> str:
        where = self.file if self.row is None else f"{self.file}: row {self.row}"
        return f"{where}: {self.level}: {self.message} [{self.rule}]"


class Unreadable(WrongUse):
    """Input that cannot be read at all: what was expected, what came, where."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file}: {why}" if file else why)
        self.file, self.why = file, why


class BadTrace(WrongUse):
    """A trace that was read but breaks rules of level error."""

    exit_code = 1

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = [f for f in findings if f.level == "error"]
        shown = "\n".join(map(str, self.findings[:5]))
        more = len(self.findings) - 5
        super().__init__(shown + (f"\n... and {more} more" if more > 0 else ""))
