"""The verbs of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium.cli.app import Json, Paths, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, say
from podium.trace import files, store

__all__: list[str] = []

store_app = typer.Typer(
    help="Many traces in a folder, and SQL over them.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(store_app, name="store")
Store = Annotated[Path, typer.Argument(help="The store's folder.", metavar="STORE")]


@store_app.command("add", epilog="Example: podium store add runs.store run.json more/")
def add_runs(folder: Store, paths: Paths, json: Json = False) -> None:
    """Add traces to a store, which is made if it is not there. All of them are added, or none."""
    numbers = store.add(folder, files.load(*paths))
    output = {"store": str(folder), "added": len(numbers), "first": numbers.start, "runs": store.size(folder)}
    if json:
        say(output)
    else:
        out.print(f"{folder}: {len(numbers)} run{'s' * (len(numbers) != 1)} added, {output['runs']} in all")


@store_app.command(epilog="Example: podium store ls runs.store")
def ls(folder: Store, json: Json = False) -> None:
    """List the runs in a store."""
    print_rows(rows := store.listing(folder), json, list(rows[0]) if rows else ["rollout"])


@store_app.command(
    epilog="Example: podium store sql runs.store 'select type, count(*) n from events group by type'"
)
def sql(
    folder: Store,
    query: Annotated[str, typer.Argument(help="A SELECT over the views below.")],
    seconds: Annotated[float, number("seconds", "How long the query may take.")] = 60.0,
    memory: Annotated[int, number("memory", "Megabytes that it may take.")] = 2_048,
    json: Json = False,
) -> None:
    """Answer SQL over rollouts, agents, events, edges, tokens and votes. Join on (rollout, row)."""
    names, rows = store.sql(folder, query, seconds, memory_mb=memory)
    print_rows([dict(zip(names, row, strict=True)) for row in rows], json, names)
