"""What every benchmark returns and prints: rows of id, what, figure, target, kind and verdict.

The kind says where a target can be judged. `exact` holds at every size on every machine: a count, an error with its tolerance, a law, a refusal.
`make test` judges these, at a small size. The others are judged by `make proofs` alone, at full size: `time` (seconds, rates and ratios of them,
their growth), `size` (memory and bytes on disk) and `sampled` (what dice and learning give: success, correlation, regret).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from rich.console import Console
from rich.table import Table

__all__ = [
    "KINDS",
    "Kind",
    "Row",
    "adding",
    "at_least",
    "at_most",
    "best",
    "calibration",
    "command",
    "exponent",
    "fact",
    "figure",
    "missed",
    "show",
]

Kind = Literal["exact", "time", "size", "sampled"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Row(TypedDict):
    id: str
    what: str
    figure: float
    target: str  # "" for a figure that is only reported
    kind: Kind | None  # None for such a figure
    ok: bool | None


def at_least(id: str, what: str, figure: float, target: float, kind: Kind) -> Row:
    return Row(id=id, what=what, figure=figure, target=f">= {target:g}", kind=kind, ok=bool(figure >= target))


def at_most(id: str, what: str, figure: float, target: float, kind: Kind) -> Row:
    return Row(id=id, what=what, figure=figure, target=f"<= {target:g}", kind=kind, ok=bool(figure <= target))


def fact(id: str, what: str, figure: float) -> Row:
    return Row(id=id, what=what, figure=figure, target="", kind=None, ok=None)


def missed(rows: Iterable[Row], *kinds: Kind) -> list[Row]:
    """The rows of some kinds, or of all, whose target is missed.

    >>> rows = [at_most("a", "wrong answers", 1, 0, "exact"), at_most("b", "seconds", 9.0, 2.0, "time")]
    >>> [row["id"] for row in missed(rows)], [row["id"] for row in missed(rows, "exact")]
    (['a', 'b'], ['a'])
    """
    return [row for row in rows if row["ok"] is False and (not kinds or row["kind"] in kinds)]


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


def calibration(id: str, full: bool) -> Row:
    """How fast the machine was in the same run."""
    return fact(
        f"{id}.calibration.s",
        "seconds to add 10 million numbers in Python, this run",
        best(3 if full else 1, adding)[0],
    )


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
