"""The verbs that measure what is promised of credit and of learning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, progress, say
from podium.learn.folder import BadRecipe
from podium.learn.train import Recipe
from podium.registry import alternatives
from podium.study.checkout import import_experiment
from podium.study.regret import PROMISES, rows

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
    report = import_experiment("report")
    results = report.study(full)
    if out_ is not None:
        out_.mkdir(parents=True, exist_ok=True)
        for name, drawn in report.pictures(results).items():
            (out_ / f"{name}.svg").write_text(drawn)
    rows = report.told(results)["rows"]
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
        f"not measured: {len(results.refused)} methods, because these worlds lack what they need, or they are cards"
    )


@bench.command(epilog="Example: podium bench regret --envs costly_search,relay --seeds 2 --json")
def regret(
    full: Annotated[
        bool, typer.Option("--full", help="All worlds, five seeds, a million episodes; an hour.")
    ] = False,
    envs: Annotated[str, typer.Option(help="Worlds, with commas.", metavar="NAME,...")] = "relay,jury",
    seeds: Annotated[int, number("seeds", "How many seeds.")] = 2,
    iterations: Annotated[int, number("iterations", "Of training.")] = Recipe.iterations,
    json: Json = False,
) -> None:
    """What the one method leaves of the optimum, and of the gap to the best trivial policy, in held-out worlds.

    What was learned is kept in out/regret: a run that was ended goes on where it was."""
    names = list(PROMISES) if full else [name.strip() for name in envs.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PROMISES]:
        raise BadRecipe(f"no world {unknown[0]!r} to train in; {alternatives(unknown[0], PROMISES, 'world')}")
    many, episodes = (5, 40_000) if full else (seeds, 4_000)
    with progress(json) as tell:
        table = rows(
            names,
            range(many),
            Recipe(iterations=iterations),
            episodes,
            Path("out") / "regret",
            say=tell,
        )
    if json:
        say({"rows": table})
        return
    short = [
        {
            "env": r["env"],
            "decision": r["decision"],
            "regret": f"{r['regret']:.2%}",
            "at most": f"{r['promise']['regret']:.0%}",
            "share of the gap": f"{r['share_of_gap']:.3f}",
            "interval": f"{r['interval'][0]:.3f} to {r['interval'][1]:.3f}",
            "at most ": f"{r['promise']['share_of_gap']:.2f}",
            "seeds": r["seeds"],
        }
        for r in table
    ]
    print_rows(short, False, list(short[0]))
