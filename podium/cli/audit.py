"""The verb that audits traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.text import Text as Line

from podium.audit import BadAudit, Second
from podium.audit.report import described, report
from podium.cli.app import Json, app
from podium.cli.output import out, say
from podium.graph.trust import WRITERS
from podium.outside import use
from podium.plain import plain
from podium.trace import files
from podium.trace.columns import Trace
from podium.trace.findings import Unreadable

__all__ = ["show_audit"]

IN_FULL = 8  # detectors that are shown with their suspects; of the others only the count
Told = TypeVar("Told")
STYLES = {3: "bold red", 2: "yellow", 1: "default"}


@app.command(
    epilog="Example: podium audit runs/ --allow tools.json --privileged send_mail\n\n"
    "Exit status: 0; 1 with --strict if there is a finding, or if a trace breaks a rule; 2 for wrong use."
)
def audit(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files, folders or stores; - is standard input.", metavar="PATH...")
    ] = None,
    trained: Annotated[
        str | None, typer.Option(help="Runs the team was trained on, to compare topologies with.", metavar="PATH")
    ] = None,
    truth: Annotated[
        str | None, typer.Option(help="The reward of a verifier out of the team's reach ...", metavar="CHANNEL")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="... and of the judge that paid it.", metavar="CHANNEL")] = None,
    allow: Annotated[
        Path | None, typer.Option(help='JSON: {"agent or role": ["tool", ...]}; "*" is any.', metavar="FILE.json")
    ] = None,
    privileged: Annotated[
        list[str] | None, typer.Option(help="A tool that acts on the world outside.", metavar="TOOL")
    ] = None,
    writers: Annotated[
        Path | None,
        typer.Option(help='JSON: {"tool or pattern": who writes what it returns}.', metavar="FILE.json"),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this detector, or FILE.py:NAME.", metavar="NAME")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if there is a finding; observations are none.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write it, with the runs, as a page.", metavar="FILE")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say what the detectors are and how good.")] = False,
    json: Json = False,
) -> None:
    """What went wrong in a team's runs: reward hacking, failures, waste, safety, gaps in the record. Worst
    first."""
    if list_:
        _list(json)
        return
    if not paths:
        raise BadAudit("nothing to audit; give files, folders or stores, or --list for what is looked for")
    trace, named = files.load_with_files(*paths)
    _check_channels(trace, truth, judge)
    second = Second(
        None if trained is None else files.load(trained),
        truth,
        judge,
        {} if allow is None else _allowed(allow),
        frozenset(privileged or ()),
        {} if writers is None else _writers(writers),
    )
    only = None if only is None else [use("detector", name) for name in only]
    audited = report(trace, second, only, None if json else 3, named)
    if html is not None:
        _write_page(html, trace, audited)
    if json:
        say(audited)
    else:
        show_audit(audited)
    raise typer.Exit(1 if strict and audited["found"] else 0)


def _write_page(html: Path, trace: Trace, audited: dict[str, Any]) -> None:
    """The audit as the table that a page opens with; its runs show where each suspect is."""
    from podium.view.page import file_page  # with it come all methods and metrics

    table = [
        {key: one[key] for key in ("detector", "level", "severity", "count", "runs", "finds", "todo")}
        for one in (*audited["found"], *audited["observed"])
    ]
    runs, faults = audited["runs"], len(audited["found"])
    notes = [
        f"{audited['detectors']} detectors looked at {runs:,} run{'s' * (runs != 1)} "
        f"of {audited['events']:,} events: " + (f"{faults} found a fault." if faults else "none found a fault."),
        "Each run shows its findings pinned to the events that they are about (Safety).",
    ]
    facts = {one["detector"].replace("_", " "): f"needs {one['needs']}" for one in audited["cannot_tell"]}
    report = {
        "title": "Audit",
        "notes": notes,
        "facts": facts,
        "table": table,
        "lessons": [],
        "table_title": "Findings and observations",
        "facts_title": "Detectors that cannot tell, and what they need",
    }
    files.write_whole(html, file_page([("", r) for r in trace], "Audit", report, methods=()).encode())


def _check_channels(trace: Trace, truth: str | None, judge: str | None) -> None:
    if (truth is None) != (judge is None):
        raise BadAudit("--truth and --judge go together: one is compared with the other")
    for option, name in (("--truth", truth), ("--judge", judge)):
        if name is not None and name not in trace.reward_n:
            known = ", ".join(trace.reward_n) or "none"
            raise BadAudit(f"{option} {name}: these runs have no reward of that name; there are {known}")


def _allowed(path: Path) -> dict[str, frozenset[str]]:
    wanted = 'expected a JSON object from an agent or role to its tools, such as {"critic": ["search"]}'
    return _decoded(path, dict[str, frozenset[str]], wanted)


def _writers(path: Path) -> dict[str, str]:
    wanted = f'expected a JSON object from a tool to one of {", ".join(WRITERS)}, such as {{"search": "anyone"}}'
    rules = _decoded(path, dict[str, str], wanted)
    if wrong := [f"{tool!r}: {who!r}" for tool, who in rules.items() if who not in WRITERS]:
        raise Unreadable(str(path), f"{wanted}: got {', '.join(wrong)}")
    return rules


def _decoded(path: Path, type_: type[Told], wanted: str) -> Told:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except OSError as error:
        raise Unreadable(str(path), error.strerror or str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreadable(str(path), f"{wanted}: {error}") from None


def _list(json: bool) -> None:
    detectors = described()
    if json:
        say(detectors)
        return
    for one in detectors:
        where = " ".join([one["group"], *(one[k] for k in ("vector", "layer") if k in one)])
        out.print(Line.assemble((one["detector"], "bold"), f" ({where}): {one['finds']}"))
        sentence, _, rest = one["says"].partition("\n\n")
        out.print(Line(f"    {_joined(sentence)}"))
        for line in rest.partition("\n\n")[0].splitlines():
            out.print(Line(f"        {line.strip()}", style="cyan"))
        out.print(
            Line(f"    {one['level']}, {one['confidence']}; threshold {one['threshold']:g}; needs {one['needs']}")
        )
        out.print(Line(f"    {_quality(one['figures'])}"))


def _joined(text: str) -> str:
    return " ".join(text.split())


def _quality(figures: dict[str, float] | None) -> str:
    if figures is None:
        return "not measured"
    return (
        f"precision {figures['precision']:.3f}, recall {figures['recall']:.3f} "
        f"({figures['recall_edge']:.3f} just above the threshold), "
        f"false alarms {100 * figures['false_alarms']:.2g} %, on {figures['cases']:,.0f} cases"
    )


def show_audit(told: dict[str, Any]) -> None:
    """One screen, however much was found."""
    found, observed, runs = told["found"], told["observed"], told["runs"]
    size = f"{_many(runs, 'run')}, {_many(told['events'], 'event')}"
    verdict = (
        f"{len(found)} of {_many(told['detectors'], 'detector')} found a fault, {len(observed)} observed something"
    )
    out.print(Line(f"{size}: {verdict}", style="bold"))
    many = len(found) + len(observed)
    each = 3 if many <= 3 else 2 if many <= 5 else 1
    for one in (found + observed)[:IN_FULL]:
        _show_suspected(one, each, runs)
    if rest := (found + observed)[IN_FULL:]:
        out.print(Line("also " + ", ".join(f"{one['detector']} ({_number_of(one)})" for one in rest)))
    if told["interventions"]:
        _show_interventions(told["interventions"], runs)
    never = [one for one in told["cannot_tell"] if one["runs"] == runs]
    partly = [one for one in told["cannot_tell"] if one["runs"] < runs]
    if never:
        out.print(Line("cannot tell:", style="dim"))
        for line in _needs(never):
            out.print(Line(f"    {line}", style="dim"))
    if partly:
        some = ", ".join(f"{one['detector']} ({one['runs']:,})" for one in partly)
        out.print(Line(f"cannot tell in some of the {runs:,} runs: {some}", style="dim"))
    if told["not_found"]:
        out.print(Line("looked for and not found: " + ", ".join(told["not_found"]), style="green"))


def _many(n: int, word: str) -> str:
    return f"{n:,} {word}{'s' * (n != 1)}"


def _number_of(one: dict[str, Any]) -> str:
    return _many(one["count"], one["level"])


def _show_suspected(one: dict[str, Any], each: int, runs: int) -> None:
    where = f" ({one['vector']}, {one['layer']})" if "vector" in one else ""
    count = _number_of(one) + (f" in {_many(one['runs'], 'run')}" if runs > 1 else "")
    shown = one["suspects"][:each]
    count += f", worst {len(shown)} shown" if len(shown) < one["count"] else ""
    style = STYLES[one["severity"] if one["level"] == "finding" else 1]
    out.print(Line.assemble((one["detector"], style), f"{where}: {one['finds']} ", (f"[{count}]", "dim")))
    for suspect in shown:
        place = [_short(Path(suspect["file"]).name, 48)] if "file" in suspect else []
        place += [f"run {suspect['run']}"] if runs > 1 else []
        place += [f"agent {_short(suspect['agent'])}"] if suspect["agent"] is not None else []
        place += [_numbers(suspect["rows"])] if suspect["rows"] else []
        figure = f"({suspect['figure']:.4g}, threshold {one['threshold']:g}, {suspect['confidence']})"
        out.print(Line(f"    {', '.join(place)}: {suspect['saw']} {figure}"))
    if needs := sorted({suspect["needs"] for suspect in shown if "needs" in suspect}):
        out.print(Line(f"    cannot tell if it is a fault: needs {'; '.join(needs)}", style="dim"))
    out.print(Line(f"    → {one['todo']}", style="cyan"))


def _run(told: dict[str, Any]) -> str:
    return f"run {told['run']} {_short(told['trace_id'])}" if told["trace_id"] else f"run {told['run']}"


def _short(name: str, most: int = 32) -> str:
    label = plain(name)
    return label if len(label) <= most else label[: most - 1] + "…"


def _numbers(rows: list[int], most: int = 6) -> str:
    more = len(rows) - most
    shown = " ".join(map(str, rows[:most])) + (f" and {more:,} more" if more > 0 else "")
    return f"row{'s' * (len(rows) != 1)} {shown}"


def _show_interventions(told: dict[str, Any], runs: int) -> None:
    if not told["count"]:
        return
    out.print(Line.assemble(("interventions", "bold"), f": {_many(told['count'], 'time')} a person stepped in"))
    for one in told["worst"][:3]:
        where = f"{_run(one)}, row {one['row']}" if runs > 1 else f"row {one['row']}"
        if one["decision"] is None:
            out.print(Line(f"    {where}: no earlier decision is known that led to it"))
            continue
        blamed = f"decision at row {one['decision']} by {_short(one['decided_by'] or '?')} (rule: {one['rule']})"
        invalid = one["invalid"]
        tail = "" if invalid is None else f"; invalidates {_invalid(invalid, one['invalid_after'])}"
        out.print(Line(f"    {where}: {blamed}{tail}"))


def _invalid(rows: list[int], after: int) -> str:
    if not rows:
        return "nothing"
    return f"{_many(len(rows), 'event')}, {after:,} of them later: {_numbers(rows)}"


def _needs(told: list[dict[str, Any]]) -> list[str]:
    """What is needed, and by whom."""
    by_need: dict[str, list[str]] = {}
    for one in told:
        by_need.setdefault(one["needs"], []).append(one["detector"])
    return [f"{', '.join(names)} needs {need}" for need, names in by_need.items()]
