"""What all verbs share: the application, its common options, and how an answer is printed."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from podium.view.plain import plain

__all__ = ["Json", "Paths", "app", "out", "print_rows", "say"]

app = typer.Typer(
    help="Podium: what a team of agents did, checked, measured and shown, from the record of how it worked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Paths = Annotated[
    list[str], typer.Argument(help="Files, folders or stores; - is standard input.", metavar="PATH...")
]
Json = Annotated[bool, typer.Option("--json", help="Print strict JSON.")]
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
