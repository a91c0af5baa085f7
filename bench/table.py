"""What every benchmark returns and prints: rows of id, what, figure, target and verdict."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypedDict

import numpy as np
from rich.console import Console
from rich.table import Table

__all__ = ["Row", "adding", "at_least", "at_most", "best", "command", "exponent", "fact", "figure", "show"]


class Row(TypedDict):
    id: str
    what: str
    figure: float
    target: str  # "" for a figure that is only reported
    ok: bool | None


def at_least(id: str, what: str, figure: float, target: float) -> Row:
    return Row(id=id, what=what, figure=figure, target=f">= {target:g}", ok=bool(figure >= target))


def at_most(id: str, what: str, figure: float, target: float) -> Row:
    return Row(id=id, what=what, figure=figure, target=f"<= {target:g}", ok=bool(figure <= target))


def fact(id: str, what: str, figure: float) -> Row:
    return Row(id=id, what=what, figure=figure, target="", ok=None)


def best(repeats: int, *calls: Callable[[], Any]) -> list[float]:
    """The least seconds each call took, the calls taking turns."""
    seconds = [float("inf")] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = perf_counter()
            call()
            seconds[i] = min(seconds[i], perf_counter() - start)
    return seconds


def adding() -> int:
    """The loop that every absolute time is printed beside."""
    return sum(range(10**7))


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log seconds over log size: 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def figure(row: Row) -> str:
    return f"{row['figure']:,.0f}" if abs(row["figure"]) >= 1000 else f"{row['figure']:.3g}"


def show(rows: list[Row]) -> None:
    table = Table("id", "what", "figure", "target", "verdict")
    for row in rows:
        verdict = {True: "[green]holds[/]", False: "[red]misses[/]", None: ""}[row["ok"]]
        table.add_row(row["id"], row["what"], figure(row), row["target"], verdict)
    Console().print(table)


def command(measure: Callable[[bool], list[Row]], about: str | None) -> None:
    """A benchmark as a command: a table, or with --json one line."""
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--full", action="store_true", help="the sizes that are promised; minutes")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    args = options.parse_args()
    rows = measure(args.full)
    print(json.dumps({"rows": rows})) if args.json else show(rows)
