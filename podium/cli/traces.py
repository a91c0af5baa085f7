"""The verbs that read, check, show and convert traces."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import msgspec
import typer
from rich.text import Text as Line

from podium.audit.exactness import Exactness, exactness
from podium.cli.app import Json, Paths, app
from podium.cli.output import UNREADABLE, out, print_table, read_all, reading, say
from podium.cli.tokens import Allowed, show_tokens, told_tokens
from podium.trace import files, wire
from podium.trace.findings import Finding
from podium.trace.log import CHECKED
from podium.trace.rules import RULES
from podium.trace.scan import LOG_EVENTS

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
    with reading() as progress:
        read = partial(files.read, shape=LOG_EVENTS if tokens else CHECKED, progress=progress)
        for one in read_all(paths, read, findings, json):
            if tokens and one.trace is not None:
                exact.append((one.file, exactness(one.trace)))
    unreadable = sum(f.rule == UNREADABLE for f in findings)
    errors = sum(f.level == "error" for f in findings) - unreadable
    token_report = told_tokens(exact, allow or ())
    failed = bool(errors or unreadable or (tokens and not token_report["ok"]))
    if tokens and not json:
        show_tokens(token_report)
    if json:
        say({"ok": not failed, "findings": findings} | ({"tokens": token_report} if tokens else {}))
    elif not unreadable or len(paths) > 1:
        warnings = len(findings) - errors - unreadable
        count = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
        count += f", {unreadable} cannot be read" if unreadable else ""
        verdict = "clean" if not findings else count
        out.print(
            Line(f"rules: {verdict}" if tokens else verdict, style="red" if errors or unreadable else "green")
        )
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
    output = {"runs": len(trace), "events": trace.n_events, "edges": trace.n_edges, "out": target}
    if json:
        say(output)
    else:
        out.print(f"{target}: {output['runs']} runs, {output['events']} events, {output['edges']} edges")


@app.command(epilog="Example: podium schema > podium.schema.json")
def schema(json: Json = False) -> None:
    """Print the JSON Schema of all that Podium writes, so that other tools can write it too."""
    text = msgspec.json.encode(wire.schema())
    sys.stdout.buffer.write((text if json else msgspec.json.format(text, indent=2)) + b"\n")
