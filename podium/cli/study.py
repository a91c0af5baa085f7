"""The verb that answers the survey's open questions by experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text as Line

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, progress, say
from podium.study.checkout import NoCheckout
from podium.study.question import (
    SHIPPED,
    Headline,
    latest_report,
    measure_all,
    read_study,
    study_names,
    write_report,
)

__all__: list[str] = []

KEPT, TOLD = Path("out") / "study", Path("out") / "studies"


@app.command(epilog="Example: podium study diffusion --quick --json")
def study(
    name: Annotated[
        str, typer.Argument(help="A study, FILE.py:NAME, or all: a list with their last results.", metavar="NAME")
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few seeds, to try it out.")] = False,
    cores: Annotated[int, number("cores", "Processes.")] = 2,
    folder: Annotated[
        Path,
        typer.Option("--out", help="Where numbers, figure and tables go; into its folder quick, with --quick."),
    ] = TOLD,
    html: Annotated[Path | None, typer.Option(help="Also write the numbers as a page.", metavar="FILE")] = None,
    json: Json = False,
) -> None:
    """Answer a question of the survey by an experiment: numbers with intervals over seeds, and a figure.

    What was measured is kept in out/study, by code and recipe: a study that was ended goes on where it was."""
    if name == "all":
        _listed(folder, json)
        return
    question, folder = read_study(name, quick), folder / "quick" if quick else folder
    folder.mkdir(parents=True, exist_ok=True)
    with progress(json) as tell:
        measurements = measure_all(question, KEPT, cores, say=tell)
    report = write_report(question, measurements, folder)
    rows = [_short(question.name, s) for s in report.headline]
    if html is not None:
        from podium.trace.files import write_whole
        from podium.view.training import report_page

        write_whole(html, report_page(question.asks, rows, {}, []).encode())
    if json:
        say(
            {
                "study": question.name,
                "question": question.asks,
                "seeds": len(question.seeds),
                "rows": [_row(question.name, s) for s in report.headline],
            }
        )
        return
    out.print(Line(question.asks))
    print_rows(rows, False, list(rows[0]))
    out.print(f"figure: {folder / question.name}.svg")


def _row(name: str, s: Headline) -> dict[str, Any]:
    promise = {"least": s.least, "most": s.most}
    return {
        "id": f"7.{name}.{s.id}",
        "what": s.what,
        "figure": s.mean,
        "interval": [s.low, s.high],
        "promise": {k: v for k, v in promise.items() if v is not None},
    }


def _short(name: str, s: Headline) -> dict[str, str]:
    interval = f"{s.low:.3g} to {s.high:.3g}" if s.low == s.low else ""
    return {"id": f"7.{name}.{s.id}", "what": s.what, "figure": f"{s.mean:.3g}", "interval": interval}


def _listed(folder: Path, json: bool) -> None:
    """Every study: its question, and the first figures of its last result."""
    if not study_names():
        raise NoCheckout
    rows: list[dict[str, Any]] = []
    for name in study_names():
        question = read_study(name)
        there = latest_report(question, [folder, SHIPPED])
        headline = [] if there is None else there[0].headline
        rows.append(
            {
                "study": name,
                "question": question.asks,
                "by": "not run yet" if there is None else "this code" if there[1] else "other code",
                "rows": [_row(name, s) for s in headline],
            }
        )
    if json:
        say({"studies": rows})
        return
    for row in rows:
        out.print(Line(f"{row['study']}: {row['question']} ({row['by']})"))
        for one in row["rows"][:3]:
            low, high = one["interval"]
            interval = f" ({low:.3g} to {high:.3g})" if low == low else ""
            out.print(Line(f"    {one['what']}: {one['figure']:.3g}{interval}"))
