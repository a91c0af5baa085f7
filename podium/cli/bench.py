"""The verb that measures what is promised of credit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium.cli.app import Json, app, out, print_rows, say
from podium.study.report import pictures, study, told

__all__: list[str] = []

bench = typer.Typer(help="Measurements against exact answers.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.callback()
def _measurements() -> None:
    """Measurements against exact answers."""


@bench.command(epilog="Example: podium bench fidelity --json")
def fidelity(
    full: Annotated[bool, typer.Option("--full", help="The sizes that are promised; minutes.")] = False,
    out_: Annotated[Path | None, typer.Option("--out", help="A folder for the pictures.", file_okay=False)] = None,
    json: Json = False,
) -> None:
    """How true the credit of every method is: its rank correlation with exact credit, and its price in rollouts."""
    found = study(full)
    if out_ is not None:
        out_.mkdir(parents=True, exist_ok=True)
        for name, drawn in pictures(found).items():
            (out_ / f"{name}.svg").write_text(drawn)
    rows = told(found)["rows"]
    if json:
        say({"rows": rows})
        return
    short = [
        {
            "method": r["method"],
            "env": r["env"],
            "unit": r["unit"],
            "spearman": f"{r['spearman']:.2f}",
            "interval": f"{r['interval'][0]:.2f} to {r['interval'][1]:.2f}",
            "rollouts": f"{r['rollouts']:.3g}",
            "paid": f"{r['paid']:.0%}",
        }
        for r in rows
    ]
    print_rows(short, False, list(short[0]))
    out.print(
        f"not measured: {len(found.refused)} methods, because these worlds lack what they need, or they are cards"
    )
