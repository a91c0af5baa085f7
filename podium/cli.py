"""The verbs. Each prints what one function returned; `--json` prints the same as strict JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from podium.envs import draws
from podium.envs import world as worlds
from podium.envs.report import report
from podium.trace import files, store, survey, wire
from podium.trace.findings import BadTrace, Finding, Unreadable
from podium.trace.rules import RULES
from podium.view import lanes as swim
from podium.view.page import page
from podium.view.plain import plain
from podium.view.summary import summary

__all__ = ["app", "main"]

app = typer.Typer(
    help="Podium: what a team of agents did, checked, measured and shown, from the record of how it worked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
store_app = typer.Typer(
    help="Many traces in a folder, and SQL over them.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(store_app, name="store")

Paths = Annotated[
    list[str], typer.Argument(help="Files, folders or stores; - is standard input.", metavar="PATH...")
]
Json = Annotated[bool, typer.Option("--json", help="Print strict JSON.")]
out = Console(highlight=False, soft_wrap=True)


def say(value: Any) -> None:
    """Strict JSON on one line; NaN is null."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.flush()


@app.command(epilog="Example: podium check run.json runs/ --json")
def check(paths: Paths, json: Json = False) -> None:
    """Check traces against every rule. Exit 0: clean or warnings only; 1: errors; 2: something cannot be read."""
    findings: list[Finding] = []
    unreadable = 0
    with _reading() as progress:
        for path in paths:
            try:
                for finding in files.check_paths(path, progress=progress):
                    findings.append(finding)
                    if not json:
                        out.print(Line(plain(finding), style="red" if finding.level == "error" else "yellow"))
            except Unreadable as error:
                unreadable += 1
                findings.append(Finding(error.file, None, "unreadable", "error", error.why))
                if not json:
                    print(f"podium: {plain(error)}", file=sys.stderr)
    errors = sum(f.level == "error" for f in findings) - unreadable
    if json:
        say({"ok": not errors and not unreadable, "findings": findings})
    elif not unreadable or len(paths) > 1:
        warnings = len(findings) - errors - unreadable
        count = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
        count += f", {unreadable} cannot be read" if unreadable else ""
        out.print(Line("clean" if not findings else count, style="red" if errors or unreadable else "green"))
    raise typer.Exit(2 if unreadable else 1 if errors else 0)


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
    table = Table("rule", "level", "what it says", box=None)
    for rule in RULES:
        table.add_row(rule.id, rule.level, rule.sentence)
    out.print(table)


@app.command(epilog="Example: podium show run.json")
def show(
    path: Annotated[str, typer.Argument(help="A file, folder or store; - is standard input.")],
    run: Annotated[int, typer.Option(help="Which run, where there are several.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page to open in a browser.")] = None,
    json: Json = False,
) -> None:
    """Show one run: who did what when, how long it took and could have taken, what is tainted."""
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
    _show(told, swim.lanes(one, max(20, min(out.width, 120) - 24)), swim.legend(one))
    if len(trace) > 1:
        out.print(f"run {run} of {len(trace)}; --run K shows another")
    if html is not None:
        out.print(f"page: {html}")


def _show(told: dict[str, Any], lines: list[Line], legend: str) -> None:
    title = f"{told['trace_id']}: {told['task_id']}" + (f" ({told['topology']})" if told["topology"] else "")
    out.print(Line(plain(title), style="bold"))
    for line in lines:
        out.print(line)
    if lines:
        out.print(Line(legend + ("" if told["serial_s"] is None else "   bold: the critical path"), style="dim"))
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _facts(told):
        table.add_row(Line(plain(name), style="cyan"), Line(plain(value)))
    out.print(table)


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
                f"{seconds(told['serial_s'])} in all, over the {told['timed_events']} events that say how long they took",
            ),
            (
                "critical path",
                f"{seconds(told['critical_path_s'])}, {told['critical_path_events']} events: with these causes no team can be faster",
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


@app.command(epilog="Example: podium envs costly_search --set c=0.05 --json")
def envs(
    name: Annotated[str | None, typer.Argument(help="A world; all of them unless told.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter, k=v.", metavar="K=V")] = None,
    episodes: Annotated[int, typer.Option(min=2, help="Episodes to play a policy for its score.")] = 20_000,
    episode: Annotated[bool, typer.Option("--episode", help="Show an episode of optimal play.")] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    json: Json = False,
) -> None:
    """The worlds: their parameters, the exact optimum, and what trivial policies score."""
    if name is None:
        told = [
            {"name": n, "decides": list(w.decides), "about": _first_line(w)} for n, w in worlds.worlds().items()
        ]
        _print_rows(told, json, ["name", "decides", "about"])
        return
    world = worlds.make(name, **dict(map(_setting, set_ or [])))
    if episode:
        _episode(world, seed, json)
        return
    said = report(world, episodes, seed)
    if json:
        say(said)
        return
    out.print(Line(f"{name}: {_first_line(type(world))}", style="bold"))
    for what in ("params", "scores"):
        table = Table("", "", box=None, show_header=False, pad_edge=False)
        for key, value in said[what].items():
            shown = f"{value['mean']:.5f} ± {value['error']:.5f}" if what == "scores" else str(value)
            table.add_row(Line(key, style="cyan"), Line(shown))
        out.print(table)
    out.print(f"optimum {said['optimum']:.6f}")


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
        _show(summary(one), swim.lanes(one, max(20, min(out.width, 120) - 24)), swim.legend(one))


Store = Annotated[Path, typer.Argument(help="The store's folder.", metavar="STORE")]


@store_app.command(epilog="Example: podium store add runs.store run.json more/")
def add(folder: Store, paths: Paths, json: Json = False) -> None:
    """Add traces to a store, which is made if it is not there. All of them are added, or none."""
    numbers = store.add(folder, files.load(*paths))
    told = {"store": str(folder), "added": len(numbers), "first": numbers.start, "runs": store.size(folder)}
    if json:
        say(told)
    else:
        out.print(f"{folder}: {told['added']} runs added, {told['runs']} in all")


@store_app.command(epilog="Example: podium store ls runs.store")
def ls(folder: Store, json: Json = False) -> None:
    """List the runs in a store."""
    _print_rows(rows := store.listing(folder), json, list(rows[0]) if rows else ["rollout"])


@store_app.command(
    epilog="Example: podium store sql runs.store 'select type, count(*) n from events group by type'"
)
def sql(
    folder: Store, query: Annotated[str, typer.Argument(help="A SELECT over the views below.")], json: Json = False
) -> None:
    """Answer SQL over rollouts, agents, events, edges, tokens and votes. Join on (rollout, row)."""
    names, rows = store.sql(folder, query)
    _print_rows([dict(zip(names, row, strict=True)) for row in rows], json, names)


def _print_rows(rows: list[dict[str, Any]], json: bool, names: list[str]) -> None:
    if json:
        say(rows)
        return
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(*(Line("" if v is None else plain(v)) for v in row.values()))
    out.print(table)


def main() -> None:
    """Run a verb; whatever goes wrong is said in one line."""
    try:
        app()
    except (Unreadable, store.StoreError, worlds.BadParameter) as error:
        _fail(str(error), 2)
    except BadTrace as error:
        _fail(str(error), 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error} (this is a fault of Podium's; please report it)", 70)


def _fail(message: str, code: int) -> None:
    print("\n".join(map(plain, f"podium: {message}".split("\n"))), file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
