"""The verbs that read, check, show and convert traces."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer
from rich.text import Text as Line

from podium.cli.app import Json, Paths, app
from podium.cli.output import out, print_table, reading, say
from podium.cli.tokens import Allowed, show_tokens, told_tokens
from podium.trace import files, wire
from podium.trace.findings import Finding, Unreadable
from podium.trace.log import CHECKED
from podium.trace.rules import RULES
from podium.trace.scan import LOG_EVENTS
from podium.trace.tokens import Exactness, exactness
from podium.view.plain import plain

__all__: list[str] = []


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
    with reading() as progress:
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


@app.command(epilog="Example: podium rules")
def rules(json: Json = False) -> None:
    """List the rules that a trace obeys."""
    if json:
        say([{"id": r.id, "level": r.level, "sentence": r.sentence} for r in RULES])
        return
    print_table(["rule", "level", "what it says"], [(rule.id, rule.level, rule.sentence) for rule in RULES])


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
