"""The verb that shows a run, or compares many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text as Line

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, reading, say
from podium.metrics.prices import default_prices, read_prices
from podium.plain import plain
from podium.registry import find
from podium.trace import files
from podium.trace.columns import Trace
from podium.trace.findings import BadTrace, Finding, Unreadable
from podium.view import lanes as swim
from podium.view.folder import Comparison, comparison_screen
from podium.view.screen import screen
from podium.view.summary import RunSummary, summary

__all__ = ["print_lanes", "print_summary"]

MOST_FAULTS = 5


@app.command(epilog="Example: podium show ~/.claude/projects --prices mine.toml")
def show(
    path: Annotated[
        str | None,
        typer.Argument(
            help="A log, folder or store; - is standard input. Without: the newest session here or on this machine."
        ),
    ] = None,
    run: Annotated[int | None, number("row", "Which run, where there are several.")] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="Your prices by model, as podium/metrics/prices.toml has them.", metavar="FILE"),
    ] = None,
    lanes: Annotated[bool, typer.Option("--lanes", help="Also draw who did what when, a line an agent.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page to open in a browser.")] = None,
    json: Json = False,
) -> None:
    """Show one run: who worked, where the time and the money went, what went wrong. Several: compare them."""
    table = default_prices() if prices is None else read_prices(prices)
    if path is None:
        path = _newest()
        if not json:
            out.print(Line(f"the newest session: {plain(path)}", style="dim"))
    many, faults = Comparison(), list[Finding]()
    first: tuple[Trace, RunSummary] | None = None
    with reading() as progress:
        for count, (file, trace) in enumerate(_runs(path, progress, faults)):
            if run is not None and count != run:
                continue
            screen = summary(trace, table)
            first = (trace, screen) if first is None else first
            many.add(screen, file)
            if run is not None:
                break
        else:
            count = len(many.runs)
            if run is not None:
                raise Unreadable(path, _no_run(path, run, progress))
    if first is None:
        if any(f.level == "error" for f in faults):
            raise BadTrace(faults)
        raise Unreadable(path, faults[0].message if faults else "no run in it")
    if len(many.runs) == 1:
        _show_one(*first, lanes, html, json)
    elif html is not None:
        raise Unreadable(
            path, f"--html shows one run; there are {len(many.runs)}: choose one with --run, or podium view --html"
        )
    elif json:
        say(many.data() | {"faults": faults})
    else:
        for line in comparison_screen(many, out.width):
            out.print(line)
    _print_faults(faults, json)


def _newest() -> str:
    newest = find("reader", "newest_session")(Path.cwd(), Path.home())
    if newest is None:
        raise Unreadable(
            "", "show what? There is no session of Claude Code or Codex on this machine; name a file or folder"
        )
    return str(newest)


def _runs(path: str, progress: Callable[[int], None], faults: list[Finding]) -> Iterator[tuple[str, Trace]]:
    """Every run at a path, one in memory at a time; what cannot be read, or breaks a rule, goes to the faults."""
    for one in files.read(path, progress=progress, keep=True):
        wrong = [f for f in one.findings if f.level == "error"]
        faults += wrong + [f for f in one.findings if f.rule in ("log-fault", "log-unknown")]
        if one.trace is not None and not wrong:
            for number in range(len(one.trace)):
                yield one.file, one.trace if len(one.trace) == 1 else one.trace[number]


def _no_run(path: str, run: int, progress: Callable[[int], None]) -> str:
    count = sum(1 for _ in _runs(path, progress, []))
    return f"there is no run {run}; there {'is 1' if count == 1 else f'are {count}'}, numbered from 0"


def _show_one(trace: Trace, told: RunSummary, lanes: bool, html: Path | None, json: bool) -> None:
    if html is not None:
        from podium.view.page import file_page  # with it come all methods, detectors and metrics

        files.write_whole(html, file_page([("", trace)]).encode())
    if json:
        say(told)
        return
    print_summary(told)
    if lanes:
        out.print()
        print_lanes(trace)
    if html is not None:
        out.print(f"page: {html}")


def print_summary(told: RunSummary) -> None:
    """The first screen of a run."""
    for line in screen(told, out.width):
        out.print(line)


def print_lanes(trace: Trace) -> None:
    """Who did what when."""
    lines = swim.lanes(trace, max(20, min(out.width, 120) - 24))
    for line in lines:
        out.print(line)
    if lines:
        out.print(Line(swim.legend(trace) + "   bold: the critical path", style="dim"))


def _print_faults(faults: list[Finding], json: bool) -> None:
    """On a terminal, the first things in the logs that could not be read."""
    known = [f for f in faults if f.rule != "log-unknown"]
    if json or not known:
        return
    out.print()
    out.print(Line(f"{len(known)} faults in the log" if len(known) > 1 else "1 fault in the log", style="yellow"))
    for finding in known[:MOST_FAULTS]:
        out.print(Line(plain(finding), style="yellow"))
    if len(known) > MOST_FAULTS:
        out.print(Line("podium check lists all of them", style="dim"))
