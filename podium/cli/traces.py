"""The verbs that read, check, show and convert traces."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text as Line

from podium.cli.app import Json, Paths, app
from podium.cli.limits import number
from podium.cli.output import out, print_table, say
from podium.cli.tokens import Allowed, show_tokens, told_tokens
from podium.registry import find
from podium.trace import files, wire
from podium.trace.findings import Finding, Unreadable
from podium.trace.log import CHECKED
from podium.trace.rules import RULES
from podium.trace.scan import LOG_EVENTS
from podium.trace.tokens import Exactness, exactness
from podium.view import lanes as swim
from podium.view.page import page
from podium.view.plain import plain
from podium.view.summary import summary

__all__ = ["show_summary"]


@app.command(epilog="Example: podium check run.json runs/ --tokens --allow fork --json")
def check(
    paths: Paths,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Also prove that contexts are, id by id, what the model saw.")
    ] = False,
    allow: Annotated[
        list[Allowed] | None,
        typer.Option(help="With --tokens: a class beside clean that is no failure; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Check traces against every rule. Exit 0: clean or warnings only; 1: errors; 2: something cannot be read."""
    findings: list[Finding] = []
    exact: list[tuple[str, Exactness]] = []
    unreadable = 0
    with _reading() as progress:
        for path in paths:
            try:
                for one in files.read(path, shape=LOG_EVENTS if tokens else CHECKED, progress=progress):
                    findings += one.findings
                    if tokens and one.trace is not None:
                        exact.append((one.file, exactness(one.trace)))
                    for finding in () if json else one.findings:
                        out.print(Line(plain(finding), style="red" if finding.level == "error" else "yellow"))
            except Unreadable as error:
                unreadable += 1
                findings.append(Finding(error.file, None, "unreadable", "error", error.why))
                if not json:
                    print(f"podium: {plain(error)}", file=sys.stderr)
    errors = sum(f.level == "error" for f in findings) - unreadable
    told = told_tokens(exact, allow or ())
    failed = bool(errors or unreadable or (tokens and not told["ok"]))
    if tokens and not json:
        show_tokens(told)
    if json:
        say({"ok": not failed, "findings": findings} | ({"tokens": told} if tokens else {}))
    elif not unreadable or len(paths) > 1:
        warnings = len(findings) - errors - unreadable
        count = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
        count += f", {unreadable} cannot be read" if unreadable else ""
        said = "clean" if not findings else count
        out.print(Line(f"rules: {said}" if tokens else said, style="red" if errors or unreadable else "green"))
    raise typer.Exit(2 if unreadable else 1 if failed else 0)


@contextmanager
def _reading() -> Iterator[Callable[[int], None]]:
    """Says on a terminal how much of a log has been read."""
    screen = Console(stderr=True)
    read = 0
    with screen.status("reading") if screen.is_terminal else nullcontext() as status:

        def told(n: int) -> None:
            nonlocal read
            read += n
            if status is not None:
                status.update(f"read {read / 1e6:,.0f} MB")

        yield told


@app.command(epilog="Example: podium rules")
def rules(json: Json = False) -> None:
    """List the rules that a trace obeys."""
    if json:
        say([{"id": r.id, "level": r.level, "sentence": r.sentence} for r in RULES])
        return
    print_table(["rule", "level", "what it says"], [(rule.id, rule.level, rule.sentence) for rule in RULES])


@app.command(epilog="Example: podium show run.json")
def show(
    path: Annotated[
        str | None,
        typer.Argument(
            help="A file, folder or store; - is standard input. Without: the newest session of this folder or "
            "machine."
        ),
    ] = None,
    run: Annotated[int, number("row", "Which run, where there are several.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page to open in a browser.")] = None,
    json: Json = False,
) -> None:
    """Show one run: who did what when, how long it took and could have taken, what is tainted."""
    if path is None:
        newest = find("reader", "newest_session")(Path.cwd(), Path.home())
        if newest is None:
            raise Unreadable(
                "", "show what? There is no session of Claude Code or Codex on this machine; name a file or folder"
            )
        path = str(newest)
    trace = files.load(path)
    if not 0 <= run < len(trace):
        raise Unreadable(
            path,
            f"there is no run {run}; there {'is 1' if len(trace) == 1 else f'are {len(trace)}'}, numbered from 0",
        )
    one = trace[run]
    told = summary(one)
    if html is not None:
        files.write_whole(html, page(one, told).encode())
    if json:
        say(told)
        return
    show_summary(told, swim.lanes(one, max(20, min(out.width, 120) - 24)), swim.legend(one))
    if len(trace) > 1:
        out.print(f"run {run} of {len(trace)}; --run K shows another")
    if html is not None:
        out.print(f"page: {html}")


def show_summary(told: dict[str, Any], lines: list[Line], legend: str) -> None:
    title = f"{told['trace_id']}: {told['task_id']}" + (f" ({told['topology']})" if told["topology"] else "")
    out.print(Line(plain(title), style="bold"))
    for line in lines:
        out.print(line)
    if lines:
        out.print(Line(legend + ("" if told["serial_s"] is None else "   bold: the critical path"), style="dim"))
    rows = [(Line(plain(name), style="cyan"), Line(plain(value))) for name, value in _facts(told)]
    print_table(["", ""], rows, head=False)


def _facts(told: dict[str, Any]) -> list[tuple[str, str]]:
    def seconds(value: float | None) -> str:
        return "not recorded" if value is None else f"{value:,.0f} s" if value >= 1e4 else f"{value:.6g} s"

    events = ", ".join(f"{n} {word}" for word, n in told["events"].items())
    facts = [
        ("agents", f"{told['agents']}, led by {told['lead']}"),
        ("events", f"{sum(told['events'].values())}: {events}"),
        (
            "edges",
            f"{told['edges']}" + (f", {told['inferred_edges']} of them inferred" if told["inferred_edges"] else ""),
        ),
        ("units", ", ".join(f"{n} {unit}" for unit, n in told["units"].items())),
        ("wall clock", seconds(told["wall_clock_s"])),
    ]
    if told["serial_s"] is None:
        facts.append(("work", "not recorded: no event says when it ended, so no critical path or schedule"))
    else:
        schedule = ", ".join(f"{k}: {seconds(t)}" for k, t in told["with_workers_s"].items())
        facts += [
            (
                "work",
                f"{seconds(told['serial_s'])} in all, over the {told['timed_events']} events that say how long "
                "they took",
            ),
            (
                "critical path",
                f"{seconds(told['critical_path_s'])}, {told['critical_path_events']} events: with these causes no "
                "team can be faster",
            ),
            ("with k workers", schedule),
            ("busy agents", f"{told['peak_busy_agents']:g} at most, {told['mean_busy_agents']:.3g} on average"),
        ]
    facts.append(("critical steps", str(told["critical_steps"])))
    facts.append(
        (
            "taint",
            f"{told['untrusted_events']} marked untrusted, {told['tainted_events']} with what derives from them",
        )
    )
    for name in ("rewards", "costs"):
        if told[name]:
            facts.append(
                (name, ", ".join(f"{k} {'not recorded' if v is None else f'{v:g}'}" for k, v in told[name].items()))
            )
    return facts


@app.command(epilog="Example: podium convert run.json run.jsonl")
def convert(
    source: Annotated[str, typer.Argument(help="A file, folder or store; - is standard input.", metavar="IN")],
    target: Annotated[
        str, typer.Argument(help="*.json, *.jsonl (also .gz, .xz, .zst), *.store or folder/", metavar="OUT")
    ],
    json: Json = False,
) -> None:
    """Write traces in another form. Nothing is lost on the way, and OUT is written whole or not at all."""
    trace = files.load(source)
    files.save(trace, target)
    told = {"runs": len(trace), "events": trace.n_events, "edges": trace.n_edges, "out": target}
    if json:
        say(told)
    else:
        out.print(f"{target}: {told['runs']} runs, {told['events']} events, {told['edges']} edges")


@app.command(epilog="Example: podium schema > podium.schema.json")
def schema(json: Json = False) -> None:
    """Print the JSON Schema of all that Podium writes, so that other tools can write it too."""
    text = msgspec.json.encode(wire.schema())
    sys.stdout.buffer.write((text if json else msgspec.json.format(text, indent=2)) + b"\n")
