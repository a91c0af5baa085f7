"""The verbs of credit: the table of methods, which of them suit given runs, and what a method pays."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
from rich.text import Text as Line

from podium.cli.app import Json, Paths, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, say
from podium.cli.rewards import paid_units
from podium.credit import BadCredit, Credit
from podium.credit.at_unit import at_unit
from podium.credit.credit import read_credit
from podium.graph import units
from podium.methods import Method, credit_of, use_method
from podium.methods.choose import ASKS, Choice, choose, lacking
from podium.methods.table import counted, described, extent
from podium.plain import plain
from podium.rewards.ledger import Channel, Ledger, Now, read_reward, use_reward
from podium.trace import files

__all__ = ["ad_hoc", "credit_rows", "refuse_unpaid"]

MANY = 40  # rows on a screen
RUNS = {"all": "runs", "part": "runs in part", "card": "is a card: nothing of it runs"}


@app.command(epilog="Example: podium methods --for runs/")
def methods(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help="A method to say all about; FILE.py:NAME is yours.", metavar="[NAME]", show_default=False
        ),
    ] = None,
    for_: Annotated[
        list[str] | None,
        typer.Option("--for", help="Runs to choose a method for; more paths may follow.", metavar="PATH..."),
    ] = None,
    json: Json = False,
) -> None:
    """The table of methods; one method in full; or which methods suit runs, by what the runs say of the team."""
    if for_:
        _show_choice(choose(files.load(*for_, *(name or ()))), json)
    elif name:
        for one in [use_method(word).name for word in name]:
            _show_card(next(row for row in described() if row["method"] == one), json)
    else:
        _show_table(described(), json)


def _show_table(rows: list[dict[str, Any]], json: bool) -> None:
    if json:
        say({"methods": rows, "runs": counted()})
        return
    short = [
        {
            "method": row["method"],
            "pays": row["pays"],
            "needs": ", ".join(row["needs"]),
            "credit": f"{row['reward']}: {row['credit']}" if row["credit"] else f"card: {row['unknown']}",
            "fidelity": _faithful(row["fidelity"]),
        }
        for row in rows
    ]
    print_rows(short, False, ["method", "pays", "needs", "reward: credit", "fidelity"])
    many = counted()
    out.print(
        f"{len(rows)} methods: {many['all']} run, {many['part']} are partly known and run that part, "
        f"{many['card']} are cards"
    )


def _faithful(found: list[dict[str, Any]] | None) -> str:
    """The best that was measured, and at what price."""
    there = [row for row in found or () if row["spearman"] is not None]
    if not there:
        return "not measured"
    best = max(there, key=lambda row: row["spearman"])
    return f"{best['spearman']:.2f} ({best['env']}, {best['unit']}, {best['rollouts']:g} rollouts)"


def _show_card(row: dict[str, Any], json: bool) -> None:
    if json:
        say(row)
        return
    out.print(Line.assemble((row["method"], "bold"), f" {RUNS[row['runs']]}; its description is {row['known']}"))
    fields = {
        "reward": row["reward"],
        "credit": row["credit"],
        "pays": f"{row['pays']} (from the reward at {row['unit']})",
        "update": row["update"],
        "schedule": row["schedule"],
        "needs": ", ".join(row["needs"]) or "a scored trace",
        "source": row["source"],
        "refused": row["unknown"],
        "conflicts": row["conflicts"],
        "counts": f"{row['counts']} alike; {'scales' if row['scales'] else 'does not scale'} with the reward",
        "fidelity": "; ".join(_measured(one) for one in row["fidelity"] or ()) or "not measured",
    }
    for key, value in fields.items():
        if value:
            out.print(Line.assemble((f"  {key:10}", "dim"), plain(value)))


def _measured(row: dict[str, Any]) -> str:
    if row["spearman"] is None:
        return f"none in {row['env']} at {row['unit']}"
    spread = "" if row["interval"] is None else " [{:.2f}, {:.2f}]".format(*row["interval"])
    return f"{row['spearman']:.2f}{spread} in {row['env']} at {row['unit']}, {row['rollouts']:g} rollouts"


def _show_choice(choice: Choice, json: bool) -> None:
    if json:
        answers = [one._asdict() for one in choice.answers]
        fits = [fit._asdict() for fit in choice.fits]
        say({"answers": answers, "methods": fits, "lacks": choice.lacks, "runs_tried": choice.tried})
        return
    for one in choice.answers:
        out.print(Line.assemble((f"{one.question} {one.says}", "bold"), f": {plain(one.because)}"))
        for trait in one.traits:
            out.print(Line(f"    {trait} asks for {ASKS[trait]}", style="cyan"))
    rows = [
        {
            "method": fit.method,
            "suits": ", ".join(fit.suits),
            "pays": fit.pays,
            "paid": f"{fit.paid:,} of {fit.units:,}",
            "inside a run": "differs" if fit.differs else "the same",
            "fidelity": _faithful(fit.fidelity),
        }
        for fit in choice.fits
    ]
    out.print(f"{len(rows)} methods can be paid from these runs (tried on {choice.tried:,})")
    print_rows(rows, False, ["method", "suits", "pays", "paid", "inside a run", "fidelity"])
    short: dict[str, list[str]] = {}
    for method, why in choice.lacks.items():
        short.setdefault(why, []).append(method)
    for why, those in short.items():
        out.print(Line(f"{plain(why)}: {', '.join(those)}", style="dim"))


@app.command(epilog="Example: podium credit runs/ --method dr_mas --unit agent")
def credit(
    paths: Paths,
    method: Annotated[
        str | None,
        typer.Option(help="A method of the table (podium methods), or FILE.py:NAME.", metavar="NAME"),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(help="A sum of scores, instead of the method's, or with --credit alone.", metavar="EXPR"),
    ] = None,
    expression: Annotated[
        str | None,
        typer.Option("--credit", help="Steps, instead of the method's, or with --reward alone.", metavar="EXPR"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="The unit that the reward is read at; team unless told.", metavar="UNIT"),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="The credit at another unit, broadcast to finer ones, summed into coarser: "
            f"{', '.join(units.UNITS)}."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Share it among finer units instead, in proportion: equal, tokens or time.", metavar="COLUMN"
        ),
    ] = None,
    progress: Annotated[float | None, number("progress", "How far training is, for schedules.")] = None,
    to_file: Annotated[
        Path | None, typer.Option("--out", help="Write the column: .csv, .jsonl or .npy.", metavar="FILE")
    ] = None,
    json: Json = False,
) -> None:
    """What a method pays every unit of runs."""
    row = ad_hoc(method, reward, expression, at)
    if to_file is not None and to_file.suffix not in (".csv", ".jsonl", ".npy"):
        raise BadCredit(f"--out writes .csv, .jsonl or .npy, not {to_file.name}")
    paid = credit_of(files.load(*paths), row, Now(progress))
    if by is not None and unit is None:
        raise BadCredit("--by says how credit is shared among finer units; say which with --unit")
    refuse_unpaid(paid, row)
    paid = paid if unit is None else at_unit(paid, unit, by)
    rows = [] if to_file is not None and to_file.suffix == ".npy" else credit_rows(paid)
    output = _output(row, paid, progress)
    if to_file is not None:
        files.write_whole(to_file, _written(paid, rows, to_file.suffix))
    if json:
        say(output | ({"out": str(to_file)} if to_file is not None else {"column": rows}))
        return
    _show_credit(paid, row, rows, to_file)


def _output(row: Method, paid: Credit, progress: float | None) -> dict[str, Any]:
    there = paid.value[~np.isnan(paid.value)]
    output = {"method": row.name, "reward": row.reward, "credit": row.credit, "unit": paid.unit}
    counts = {"paid": len(there), "units": len(paid.value), "runs": extent(row), "missing": row.unknown or None}
    return {**output, "progress": progress, **counts}


def _show_credit(paid: Credit, row: Method, rows: list[dict[str, Any]], to_file: Path | None) -> None:
    there = paid.value[~np.isnan(paid.value)]
    out.print(Line(f"{row.reward}: {row.credit}", style="bold"))
    if extent(row) == "part":
        out.print(Line(f"{row.name} runs in part; missing: {plain(row.unknown)}", style="yellow"), soft_wrap=True)
    if to_file is None:
        shown = [{**one, "credit": _shown(one["credit"])} for one in rows[:MANY]]
        print_rows(shown, False, list(rows[0]) if rows else ["run", paid.unit, "row", "credit"])
        if len(rows) > MANY:
            out.print(f"… {len(rows) - MANY:,} more; --json prints all, --out writes them")
    line = f"{len(there):,} of {len(paid.value):,} units ({paid.unit}) get credit"
    if len(there):
        line += f", from {there.min():.6g} to {there.max():.6g}, mean {there.mean():.6g}"
    out.print(Line(line, style="dim"))
    if to_file is not None:
        out.print(plain(f"written: {to_file}"))


def ad_hoc(method: str | None, reward: str | None, credit: str | None, at: str | None = None) -> Method:
    """The method that a command names: one of the table, one with another reward or credit, or these alone."""
    base = None if method is None else use_method(method)  # first: its file may bring the scores and steps
    if reward is not None:
        read_reward(reward := use_reward(reward))
    if credit is not None:
        read_credit(credit)
    if at is not None and at not in units.UNITS:
        raise BadCredit(f"--at: no unit called {at!r}; there are {', '.join(units.UNITS)}")
    if base is None:
        if reward is None or credit is None:
            raise BadCredit("say which method with --method, or what to pay with --reward and --credit")
        return Method("ad hoc", reward, credit, at or "team", "", "", "", (), "the command line")
    given = {"reward": reward, "credit": credit, "unit": at}
    changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    return replace(base, name=f"{base.name}, changed", **changes) if changes else base


def refuse_unpaid(paid: Credit, method: Method) -> None:
    """Refuses where nobody is paid and the runs lack what the method needs, and says what."""
    if len(paid.value) and np.isnan(paid.value).all():
        lacks = lacking(paid.trace)
        if why := [f"{need} ({lacks[need]})" for need in method.needs if need in lacks]:
            raise BadCredit(f"{method.name} pays nobody here: it needs {' and '.join(why)}")


def credit_rows(paid: Credit) -> list[dict[str, Any]]:
    """Each unit: its run, its name where it has one, the row that stands for it, its credit and its weight in a
    loss if it has one."""
    rows = paid_units(Ledger(paid.trace, (Channel("credit", paid.unit, paid.value),)), paid.unit)
    rows = [{("credit" if k == "paid" else k): v for k, v in row.items()} for row in rows]
    if paid.weight is not None:
        for row, weight in zip(rows, paid.weight.tolist(), strict=True):
            row["weight"] = None if weight != weight else weight
    return rows


def _written(paid: Credit, rows: list[dict[str, Any]], suffix: str) -> bytes:
    if suffix == ".npy":
        column = io.BytesIO()
        np.save(column, paid.value)
        return column.getvalue()
    if suffix == ".jsonl":
        return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    text = io.StringIO()
    table = csv.DictWriter(
        text, ["run", paid.unit, "row", "credit", *(["weight"] if paid.weight is not None else [])]
    )
    table.writeheader()
    table.writerows(rows)
    return text.getvalue().encode()


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
