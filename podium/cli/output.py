"""How an answer is printed: as strict JSON, or as a table that fits the screen."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from podium.view.plain import plain

__all__ = ["out", "print_rows", "say"]

out = Console(highlight=False, soft_wrap=True)


def say(value: Any) -> None:
    """Strict JSON on one line; NaN is null."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.flush()


def print_rows(rows: list[dict[str, Any]], json: bool, names: list[str]) -> None:
    if json:
        say(rows)
        return
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(*(Line("" if v is None else plain(v)) for v in row.values()))
    out.print(table)
