"""The verbs that run live teams and replay their records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.live import Live as LiveTable
from rich.table import Table
from rich.text import Text as Line

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, say
from podium.harness.find import find_team, recorded_team
from podium.harness.forest import shared
from podium.harness.human import door_at
from podium.harness.replay import BadReplay, team_of
from podium.harness.replay import replay as replay_run
from podium.harness.run import Interrupted
from podium.harness.run import Live as Running
from podium.harness.run import run as run_team
from podium.harness.sandbox import NoIsolation, promises
from podium.harness.team import BadTeam
from podium.harness.understand import LEVELS
from podium.plain import plain
from podium.trace import files
from podium.trace.depth import is_deep

__all__: list[str] = []


@app.command(epilog='Example: podium run research --task \'{"questions": ["Peru"], "answer": ["Lima"]}\'')
def run(
    team: Annotated[
        str, typer.Argument(help="research, plan, debate, swarm, hierarchy, managed, or FILE.py:NAME.")
    ],
    task: Annotated[str | None, typer.Option(help="JSON, or text; the team's own unless told.")] = None,
    seed: Annotated[int, number("seed", "Of what agents draw.")] = 0,
    out_: Annotated[
        Path | None, typer.Option("--out", help="A new folder for the record.", metavar="FOLDER")
    ] = None,
    folders: Annotated[bool, typer.Option("--folders", help="Agents have folders, beside the record.")] = False,
    door: Annotated[
        Path | None,
        typer.Option(help="Let people in: python -m podium.harness.human SOCKET.", metavar="SOCKET"),
    ] = None,
    json: Json = False,
) -> None:
    """Run a team on a task and record it. Exit 0: the lead came to an end of its own; 1: a fault ended the run;
    130, 143: you did."""
    given = _told_task(task)
    chosen = find_team(team)
    folder = out_ or _free(Path("out") / chosen.name)
    people = None if door is None else door_at(door)
    with _until_interrupted(folder), _watching() as watch:
        ran = run_team(
            chosen, given, seed=seed, folder=folder, spec=team, watch=watch, folders=folders, door=people
        )
    fault = None if ran.fault is None else {"kind": ran.fault.kind, "why": ran.fault.why}
    output = {
        "team": team,
        "answer": ran.answer,
        "reward": ran.reward,
        "fault": fault,
        "trace": str(folder),
        **ran.metrics,
    }
    if json:
        say(output)
    else:
        out.print(Line(f"answer: {plain(ran.answer)}", style="bold"))
        if fault is not None:
            out.print(Line(f"ended by a fault: {plain(fault['why'])}", style="red"))
        reward = "" if ran.reward is None else f", reward {ran.reward:g}"
        counts = ", ".join(f"{output[name]:g} {name}" for name in ("agents", "steps", "faults", "refusals"))
        out.print(f"{counts}{reward}")
        out.print(f"trace: {folder}")
    raise typer.Exit(0 if fault is None else 1)


def _free(path: Path) -> Path:
    """This folder, or the first numbered one beside it that is not there."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _told_task(task: str | None) -> Any:
    if task is None:
        return None
    if is_deep(task.encode(errors="replace"), LEVELS):
        raise BadTeam(f"--task: expected JSON that is nested at most {LEVELS} levels deep, or text that is not")
    try:
        return msgspec.json.decode(task)
    except msgspec.DecodeError as error:
        if task.lstrip()[:1] in ("{", "["):
            raise BadTeam(
                f"--task: expected JSON, or text that does not start like it, got {task!r}: {error}"
            ) from None
        return task


@contextmanager
def _until_interrupted(folder: Path) -> Iterator[None]:
    try:
        yield
    except Interrupted as error:
        print(f"podium: {error}; the record until then: {plain(str(folder))}", file=sys.stderr)
        raise typer.Exit(128 + error.number) from None


@contextmanager
def _watching() -> Iterator[Callable[[Running], None] | None]:
    """On a terminal, a line per agent while a team works; as many as there is room for."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    with LiveTable(console=screen, auto_refresh=False, transient=True) as shown:

        def watch(live: Running) -> None:
            table = Table("agent", "role", "does", "steps", box=None)
            status = live.status()
            room = max(3, screen.height - 3)
            for name, role, doing, steps in status[:room]:
                table.add_row(Line(plain(name), style="cyan"), Line(plain(role)), Line(plain(doing)), str(steps))
            if len(status) > room:
                table.add_row(f"and {len(status) - room} more", "", "", "")
            shown.update(table, refresh=True)

        yield watch


@app.command(epilog="Example: podium jail --json")
def jail(json: Json = False) -> None:
    """What the commands of agents are held to on this machine, and by what, tried out now. Exit 1: they would not
    be run.
    """
    try:
        rows = [msgspec.structs.asdict(promise) for promise in asyncio.run(promises())]
    except NoIsolation as refused:
        out.print(refused.why, markup=False) if not json else say({"refused": refused.why})
        raise typer.Exit(1) from None
    shown = rows if json else [row | {"kept": "yes" if row["kept"] else "no"} for row in rows]
    print_rows(shown, json, ["what", "by", "kept", "lacks"])
    raise typer.Exit(not all(row["kept"] for row in rows))


@app.command(epilog="Example: podium replay out/research --at 2 --do choose=none")
def replay(
    path: Annotated[str, typer.Argument(help="The record of a run.", metavar="TRACE")],
    at: Annotated[int | None, number("row", "The row at which something else happens.")] = None,
    do: Annotated[
        str | None,
        typer.Option(help="choose=VALUE, replace=TEXT, remove, delay=SECONDS, mask or mask=NAME.", metavar="DO"),
    ] = None,
    team: Annotated[
        str | None, typer.Option(help="The team, FILE.py:NAME or MODULE:NAME, where it is none of Podium's own.")
    ] = None,
    seed: Annotated[int | None, number("seed", "What runs live draws anew, from this.")] = None,
    out_: Annotated[
        Path | None, typer.Option("--out", help="A new folder for the record.", metavar="FOLDER")
    ] = None,
    json: Json = False,
) -> None:
    """Replay a recorded run, with something else at a row and live from there. Without --at, all of it from the
    record."""
    trace = files.load(path)
    if at is not None and not 0 <= at < trace.n_events:
        raise BadReplay(f"there is no row {at}; there are {trace.n_events}, numbered from 0")
    chosen = recorded_team(team_of(trace)) if team is None else find_team(team)
    folder = out_ or _free(Path(path.rstrip("/") + ("-again" if at is None else f"-at-{at}")))
    with _until_interrupted(folder):
        grown = replay_run(chosen, trace, at=at, do=do, seed=seed, folder=folder)
    same = int((shared(trace, grown) >= 0).sum())
    rewards = [{k: float(v[0]) for k, v in t.reward_n.items()} for t in (trace, grown)]
    output = {
        "trace": str(folder),
        "events": grown.n_events,
        "shared": same,
        "was": rewards[0],
        "rewards": rewards[1],
    }
    if json:
        say(output)
        return
    out.print(f"{grown.n_events} events, {same} of them as recorded")
    for name, value in rewards[1].items():
        out.print(f"reward {plain(name)}: {value:g}, was {rewards[0].get(name, float('nan')):g}")
    out.print(f"trace: {folder}")
