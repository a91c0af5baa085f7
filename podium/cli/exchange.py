"""The verbs that import logs of other systems, listen for spans, and export runs for other tools."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, read_all, say
from podium.exchange.listen import SpanStore
from podium.gateway.serve import secret, serve
from podium.registry import alternatives, facts, find, names
from podium.trace import files, log, store
from podium.trace.columns import Trace
from podium.trace.findings import Finding, Unreadable

__all__: list[str] = []


@app.command("import", epilog="Example: podium import ~/.claude/projects -o sessions/")
def import_(
    paths: Annotated[list[str], typer.Argument(help="Files, folders or archives of logs.", metavar="PATH...")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder, for one event log a run; or *.store.", metavar="DIR")
    ],
    content: Annotated[
        bool, typer.Option("--content", help="Keep what was said, redacted, and not only its hash.")
    ] = False,
    json: Json = False,
) -> None:
    """Import logs of other systems and keep the result. Systems: AgentDojo, ATIF, AutoGen, Claude Code, Codex,
    Copilot CLI, CrewAI, Google ADK, Inspect, LangGraph, LangSmith, OpenAI Agents SDK, OpenCode, OpenTelemetry spans,
    OTLP, slime, tau-bench, TRAIL, TRL, verifiers, verl, Who&When. Exit 0: all was read; 1: something was not; 2:
    nothing was."""
    findings: list[Finding] = []
    runs = events = 0
    written: dict[str, int] = {}
    for one in read_all(
        files.groups_of(paths), partial(files.read_together, keep=content), findings, json, faults=True
    ):
        if one.trace is not None:
            _keep(one.trace, output, written)
            runs, events = runs + len(one.trace), events + one.trace.n_events
    faults = [f for f in findings if f.rule != "log-unknown" or f.file in paths]
    if json:
        say({"ok": not faults, "runs": runs, "events": events, "out": str(output), "findings": findings})
    elif runs:
        count = f", {len(faults)} fault{'s' * (len(faults) != 1)}" if faults else ""
        out.print(f"{output}: {runs} run{'s' * (runs != 1)}, {events:,} events{count}")
    raise typer.Exit(2 if not runs else 1 if faults else 0)


def _keep(trace: Trace, output: Path, written: dict[str, int]) -> None:
    """Writes runs into a store, or each into a log of its own that is named by its id."""
    if output.name.endswith(".store"):
        store.add(output, trace)
        return
    with files.complaints(str(output)):
        output.mkdir(parents=True, exist_ok=True)
    for run in trace:
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", run.trace_id_n[0] or "run").lstrip(".")[:100] or "run"
        written[name] = written.get(name, 0) + 1
        count = f"-{written[name]}" if written[name] > 1 else ""
        files.write_whole(output / f"{name}{count}.jsonl", log.write(run))


@app.command(epilog="Example: podium export session.jsonl --to perfetto -o session.pftrace")
def export(
    paths: Annotated[list[str], typer.Argument(help="Traces, logs, folders or stores.", metavar="PATH...")],
    to: Annotated[str, typer.Option("--to", help="otlp, atif, perfetto, csv or parquet.", metavar="FORMAT")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file; a folder for csv and parquet.", metavar="OUT")
    ],
    content: Annotated[bool, typer.Option("--content", help="Take along what was said, redacted.")] = False,
    json: Json = False,
) -> None:
    """Write runs in a form that other tools read. Exit 0: all was read; 1: something was not; 2: nothing was."""
    if to not in names("exporter"):
        raise Unreadable("--to", f"no format called {to!r}; {alternatives(to, names('exporter'), 'exporter')}")
    suffixes = facts("exporter", to)["suffixes"]
    if suffixes and output.suffix not in suffixes:
        raise Unreadable(str(output), f"expected a name that ends in {' or '.join(suffixes)} for --to {to}")
    findings: list[Finding] = []
    read = partial(files.read_together, keep=content)
    runs = [
        one.trace
        for one in read_all(files.groups_of(paths), read, findings, json, faults=True)
        if one.trace is not None
    ]
    traces = [run for trace in runs for run in trace if run.n_events]
    written = _written(to, traces, output, bool(suffixes)) if traces else []
    events = sum(trace.n_events for trace in traces)
    if json:
        say({"ok": not findings, "runs": len(traces), "events": events, "files": written, "findings": findings})
    elif traces:
        out.print(f"{output}: {len(traces)} run{'s' * (len(traces) != 1)}, {events:,} events")
    raise typer.Exit(2 if not traces else 1 if findings else 0)


def _written(to: str, traces: list[Trace], output: Path, one_file: bool) -> list[str]:
    """The files that hold the runs now."""
    if one_file:
        data = {str(output): find("exporter", to)(traces, output.suffix)}
    else:
        data = {str(output / name): content for name, content in find("exporter", to)(traces).items()}
    with files.complaints(str(output)):
        (output.parent if one_file else output).mkdir(parents=True, exist_ok=True)
    for name, content in data.items():
        files.write_whole(Path(name), content)
    return list(data)


@app.command(epilog="Example: podium listen -o out/spans")
def listen(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder that spans go to.", metavar="DIR")],
    host: Annotated[str, typer.Option(help="Where to listen; beyond loopback a token is required.")] = "127.0.0.1",
    port: Annotated[int, number("port", "Where to listen; 0: any that is free.")] = 4318,
    token_from: Annotated[
        str | None,
        typer.Option(help="The environment variable with the token that senders give.", metavar="VARIABLE"),
    ] = None,
    json: Json = False,
) -> None:
    """Take spans over OTLP/HTTP and keep them, until it is ended. Every verb reads the folder as it reads logs.

    A program needs no change: set OTEL_EXPORTER_OTLP_ENDPOINT to the address.
    """

    def ready(url: str) -> None:
        if json:
            say({"url": url, "out": str(output)})
        else:
            out.print(f"listening at {url}, spans in {output}", soft_wrap=True)

    serve(SpanStore(output), host, port, secret(token_from), ready)
