"""The verb that pays: what a reward expression gives to every unit of runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text as Line

import podium.metrics  # noqa: F401 (its scores can be paid too)
from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, say
from podium.expression import spell
from podium.graph import units
from podium.interval import estimate
from podium.plain import plain
from podium.registry import facts, find, names
from podium.rewards import BadReward, Ledger, Now, ledger
from podium.rewards.ledger import read_reward, use_reward
from podium.trace import files
from podium.trace.columns import Trace

__all__ = ["listing", "paid_runs", "paid_units"]

MANY = 40  # rows on a screen


@app.command(epilog="Example: podium reward run.jsonl --reward 'outcome - 0.1 * wasted_spawns' --ledger")
def reward(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files, folders or stores; - is standard input.", metavar="[PATH...]")
    ] = None,
    expression: Annotated[
        str | None,
        typer.Option(
            "--reward",
            help="A sum of scores, or FILE.py:NAME; needed with PATH. podium reward alone lists the scores.",
            metavar="EXPR",
        ),
    ] = None,
    unit: Annotated[str | None, typer.Option(help=f"Who is paid: {', '.join(units.UNITS)}.")] = None,
    progress: Annotated[float | None, number("progress", "How far training is, for schedules.")] = None,
    book: Annotated[bool, typer.Option("--ledger", help="Show what every channel paid.")] = False,
    json: Json = False,
) -> None:
    """What a reward pays for runs, by run, unit or channel. PATH needs --reward; with neither, the scores are
    listed."""
    if expression is None:
        if paths:
            raise BadReward("say what to pay with --reward; podium reward lists the scores")
        _list(json)
        return
    if not paths:
        raise BadReward("say which runs to pay for: podium reward PATH... --reward EXPR")
    if unit is not None and unit not in units.UNITS:
        raise BadReward(f"no unit called {unit!r}; there are {', '.join(units.UNITS)}")
    tree = read_reward(use_reward(expression))
    with _busy() as doing:
        doing("reading")
        trace = files.load(*paths)
        doing(f"paying for {len(trace):,} runs, {trace.n_events:,} events")
        paid = ledger(trace, tree, Now(progress))
        runs = paid_runs(paid, channels=book or json)
        by_unit = [] if unit is None else paid_units(paid, unit)
    if json:
        output = {"reward": spell(tree), "progress": progress, "unit": unit, "runs": runs}
        say(output if unit is None else output | {"units": by_unit})
        return
    out.print(Line(plain(spell(tree)), style="bold"))
    if book:
        _table(_booked(runs), ["run", "channel", "unit", "units", "not scored", "paid"])
    elif unit is not None:
        _table(by_unit, ["run", unit, "row", "paid"])
    else:
        _table([{"run": r["run"], "paid": r["paid"]} for r in runs], ["run", "paid"])
    _total(paid)


def listing() -> dict[str, list[dict[str, Any]]]:
    """Every score (its name, unit, families, what it needs, its first sentence), shape and named reward."""
    scores = []
    for name in names("score"):
        about = facts("score", name)
        families = " ".join(about.get("families", ()))
        row = {"score": name, "unit": about["unit"], "families": families, "needs": about.get("needs", "")}
        scores.append(row | {"about": _first_sentence("score", name)})
    others = {
        kind: [{kind: name, "about": _first_sentence(kind, name)} for name in names(kind)]
        for kind in ("shape", "reward")
    }
    return {"scores": scores, "shapes": others["shape"], "rewards": others["reward"]}


def _first_sentence(kind: str, name: str) -> str:
    return " ".join((find(kind, name).__doc__ or "").split("\n\n")[0].split())


def _list(json: bool) -> None:
    lists = listing()
    if json:
        say(lists)
        return
    for rows in lists.values():
        if rows:
            print_rows(rows, False, list(rows[0]))
            out.print()


def paid_runs(paid: Ledger, channels: bool = False) -> list[dict[str, Any]]:
    """What each run got, and by which channel."""
    trace, each = paid.trace, zip(_runs(paid.trace), paid.total(), strict=True)
    runs: list[dict[str, Any]] = [{"run": run, "paid": _figure(total)} for run, total in each]
    if not channels:
        return runs
    columns = []
    for channel in paid.channels:
        at = units.rollouts(trace, channel.unit)
        count = np.bincount(at, minlength=len(trace))
        unscored = np.bincount(at[np.isnan(channel.paid)], minlength=len(trace))
        total = np.bincount(at, channel.paid, minlength=len(trace))
        columns.append((channel, count.tolist(), unscored.tolist(), total.tolist()))
    for n, one in enumerate(runs):
        one["channels"] = [
            {"channel": c.name, "unit": c.unit, "units": k[n], "unscored": u[n], "paid": _figure(p[n])}
            for c, k, u, p in columns
        ]
    return runs


def paid_units(paid: Ledger, unit: str) -> list[dict[str, Any]]:
    """What each unit got: its run, its name where it has one, the row that stands for it."""
    trace, rows = paid.trace, units.rows(paid.trace, unit)
    run, row = _runs(trace), np.where(rows >= 0, rows - trace.first_of("e")[units.rollouts(trace, unit)], -1)
    pay = paid.at(unit)
    return [
        {
            "run": run[n],
            unit: _called(trace, unit, i, int(rows[i])),
            "row": int(row[i]) if row[i] >= 0 else None,
            "paid": _figure(pay[i]),
        }
        for i, n in enumerate(units.rollouts(trace, unit).tolist())
    ]


def _called(trace: Trace, unit: str, i: int, row: int) -> str | None:
    """What to call a unit: the agent, the role, the tool, else who acts."""
    if unit == "agent":
        return trace.name_a[i]
    if unit == "team" or row < 0:
        return None
    if unit in ("role", "tool_call"):
        return (trace.role_e if unit == "role" else trace.tool_e)[row]
    return trace.name_a[int(trace.agent_e[row])] if trace.agent_e[row] >= 0 else None


def _runs(trace: Trace) -> list[str]:
    return [r or f"run {n}" for n, r in enumerate(trace.trace_id_n.strings())]


def _figure(value: float) -> float | None:
    return None if value != value else float(value)


def _booked(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for one in runs:
        rows += [{"run": one["run"], **c} for c in one["channels"]]
        rows.append(
            {"run": one["run"], "channel": "total", "unit": "", "units": "", "unscored": "", "paid": one["paid"]}
        )
    return rows


def _table(rows: list[dict[str, Any]], head: list[str]) -> None:
    shown = [{k: _shown(v) if k == "paid" else v for k, v in row.items()} for row in rows[:MANY]]
    print_rows(shown, False, head)
    if len(rows) > MANY:
        out.print(f"… {len(rows) - MANY:,} more; --json prints all")


def _shown(value: float | None) -> str:
    return "not scored" if value is None else f"{value:.6g}"


def _total(paid: Ledger) -> None:
    mean, low, high, n = estimate(paid.total())
    line = f"{n} of {len(paid.trace)} runs scored"
    if n:
        line += f", mean {mean:.6g}" + ("" if low != low else f" [{low:.6g}, {high:.6g}]")
    out.print(Line(line, style="dim"))


@contextmanager
def _busy() -> Iterator[Any]:
    """Says on a terminal what is being done."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status("") as status:
        yield status.update
