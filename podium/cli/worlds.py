"""The verb that tells of the worlds."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text as Line

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, print_table, progress, say
from podium.cli.show import print_lanes, print_summary
from podium.envs import draws
from podium.envs import world as worlds
from podium.envs.report import report
from podium.trace import survey
from podium.view.summary import summary

__all__: list[str] = []

QUIET = 100_000  # episodes up to which nobody waits for scores


@app.command(epilog="Example: podium envs costly_search --set c=0.05 --json")
def envs(
    name: Annotated[str | None, typer.Argument(help="A world, or FILE.py:NAME; all of them unless told.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter, k=v.", metavar="K=V")] = None,
    episodes: Annotated[int, number("scored episodes", "Episodes to play a policy for its score.")] = 20_000,
    episode: Annotated[bool, typer.Option("--episode", help="Show an episode of optimal play.")] = False,
    seed: Annotated[int, number("seed", "Of what episodes draw.")] = 0,
    json: Json = False,
) -> None:
    """The worlds: their parameters, the exact optimum, and what trivial policies score."""
    if name is None:
        listed: list[dict[str, Any]] = [
            {"name": n, "decides": list(w.decides), "about": _first_line(w)} for n, w in worlds.worlds().items()
        ]
        shown = listed if json else [row | {"decides": ", ".join(row["decides"])} for row in listed]
        print_rows(shown, json, ["name", "decides", "about"])
        return
    name = worlds.use_world(name)
    world = worlds.make(name, **dict(map(_setting, set_ or [])))
    if episode:
        _episode(world, seed, json)
        return
    with progress(json) as tell:
        described = report(world, episodes, seed, tell if episodes > QUIET else None)
    if json:
        say(described)
        return
    out.print(Line(f"{name}: {_first_line(type(world))}", style="bold"))
    for what in ("params", "scores"):
        rows = []
        for key, value in described[what].items():
            figure = f"{value['mean']:.5f} ± {value['error']:.5f}" if what == "scores" else str(value)
            rows.append((Line(key, style="cyan"), Line(figure)))
        print_table(["", ""], rows, head=False)
    out.print(f"optimum {described['optimum']:.6f}")


def _first_line(world: type[Any]) -> str:
    return (world.__doc__ or "").strip().split("\n")[0]


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise worlds.BadParameter(f"--set takes k=v, got {text!r}")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise worlds.BadParameter(f"{name} must be a number or a list of numbers, got {value!r}") from None


def _episode(world: worlds.World, seed: int, json: bool) -> None:
    played = worlds.play(world, world.optimal(), draws.seeds(seed, 1), log=True)
    one = world.trace(played.state)
    if json:
        sys.stdout.buffer.write(survey.write(one) + b"\n")
    else:
        print_summary(summary(one))
        out.print()
        print_lanes(one)
