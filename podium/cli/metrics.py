"""The verb that measures runs: E1-E4 with intervals, costs at the user's prices, and the report card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text as Line

from podium.cli.app import Json, Paths, app
from podium.cli.output import out, print_table, say
from podium.interval import Estimate, estimate
from podium.metrics import BadMetrics, Measured, bill, card, forecast, margins, measure, strata
from podium.metrics.cost import price_list
from podium.metrics.report import STRATA
from podium.metrics.table import DIMENSIONS
from podium.plain import plain
from podium.rewards.ledger import use_reward
from podium.trace import files
from podium.trace.columns import F, I, Trace

__all__: list[str] = []


@app.command(epilog="Example: podium metrics runs/ --by band --card")
def metrics(
    paths: Paths,
    by: Annotated[str | None, typer.Option(help=f"Also by {' or '.join(STRATA)}.", metavar="WHAT")] = None,
    clean: Annotated[
        list[str] | None,
        typer.Option(help="The clean twins of these runs: what the attack changed.", metavar="PATH"),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(
            help="What things cost: token_in, token_out, tool_call, decision, spawn, message.", metavar="K=V,..."
        ),
    ] = None,
    checklist: Annotated[bool, typer.Option("--card", help="The survey's reporting checklist, filled in.")] = False,
    reward: Annotated[
        str | None, typer.Option(help="What the runs were trained with, for the card.", metavar="EXPR")
    ] = None,
    credit: Annotated[
        str | None, typer.Option(help="The finest unit that was paid, for the card.", metavar="UNIT")
    ] = None,
    json: Json = False,
) -> None:
    """Measure runs: success, parallelism, collaboration and overhead, each with its 95 % interval over runs."""
    try:
        output = _measured(files.load(*paths), by, clean, prices, checklist, reward, credit)
    except BadMetrics as error:
        raise typer.BadParameter(str(error)) from None
    if json:
        say(output)
    else:
        _print(output)


def _measured(
    trace: Trace,
    by: str | None,
    clean: list[str] | None,
    prices: str | None,
    checklist: bool,
    reward: str | None,
    credit: str | None,
) -> dict[str, Any]:
    values = measure(trace)
    output: dict[str, Any] = {"runs": len(trace), "events": trace.n_events, "metrics": _plain(values)}
    if by is not None:
        output["by"] = {name: _plain(part) for name, part in strata(trace, values, by).items()}
    if clean:
        output["margins"] = _plain(margins(trace, files.load(*clean)))
    if prices is not None:
        output["costs"] = _costs(trace, prices)
    if checklist:
        output["card"] = card(trace, values, None if reward is None else use_reward(reward), credit)
    return output


def _plain(found: Sequence[Measured]) -> list[dict[str, Any]]:
    return [m.plain() for m in found]


def _costs(trace: Trace, prices: str) -> dict[str, Any]:
    at = price_list(prices)
    costs, ahead = bill(trace, at), forecast(trace, at)
    return {
        "sub-agents": _bounded(costs.agents_n, costs.agents_least_n, costs.agents_lacking_n),
        "orchestration": _bounded(
            costs.orchestration_n, costs.orchestration_least_n, costs.orchestration_lacking_n
        ),
        "total": _bounded(costs.total_n, costs.total_least_n, costs.lacking_n),
        "stated by the runs": _figures(estimate(costs.stated_n)),
        "predicted from the size of the team": _figures(ahead.predicted),
        "relative error of a prediction": _figures(ahead.error),
    }


def _bounded(exact_n: F, least_n: F, lacking_n: I) -> dict[str, Any]:
    """The mean of prices. If one of them is only a lower bound so is the mean, which then has no interval."""
    partial_n = np.isnan(exact_n) & ~np.isnan(least_n)
    figures = _figures(estimate(least_n))
    if not partial_n.any():
        return figures | {"at_least": False}
    why = {"partial": int(partial_n.sum()), "events_lacking_counts": int(lacking_n[partial_n].sum())}
    return figures | {"low": None, "high": None, "at_least": True} | why


def _figures(value: Estimate) -> dict[str, Any]:
    return {k: None if v != v else v for k, v in value._asdict().items()}


def _print(told: dict[str, Any]) -> None:
    out.print(Line(f"{told['runs']:,} run{'s' * (told['runs'] != 1)}, {told['events']:,} events", style="bold"))
    notes: dict[str, int] = {}
    _table(told["metrics"], notes)
    for name, rows in told.get("by", {}).items():
        out.print(Line(f"\n{name}", style="bold"))
        _table([row for row in rows if row["n"]], notes)
    if "margins" in told:
        out.print(Line("\nunder attack, less the clean twins", style="bold"))
        _table(told["margins"], notes)
    for note, number in notes.items():
        out.print(Line(f"{number}) assumes that {note}", style="dim"))
    lacking: dict[str, list[str]] = {}
    for row in told["metrics"]:
        if row["mean"] is None:
            lacking.setdefault(row["needs"], []).append(row["metric"])
    for needs, names in lacking.items():
        out.print(Line(f"cannot tell {', '.join(names)}: needs {needs}", style="dim"))
    if "costs" in told:
        out.print(Line("\ncost of a run", style="bold"))
        _rows([(name, _interval(value)) for name, value in told["costs"].items()])
    if "card" in told:
        _card(told["card"])


def _table(rows: list[dict[str, Any]], notes: dict[str, int]) -> None:
    shown = []
    for row in rows:
        mark = f" {notes.setdefault(row['assumes'], len(notes) + 1)})" if row["assumes"] else ""
        low_high = "" if row["low"] is None else f"{row['low']:.4g} to {row['high']:.4g}"
        mean = "" if row["mean"] is None else f"{row['mean']:.4g}"
        cells = (row["dimension"], row["metric"] + mark, mean or "cannot tell", low_high)
        shown.append((*cells, str(row["n"]), str(row["absent"]), row["better"]))
    print_table(["", "metric", "mean", "95 % interval", "runs", "absent", "better"], shown)


def _interval(value: dict[str, Any]) -> str:
    if value["mean"] is None:
        return "not recorded"
    between = "" if value["low"] is None else f"   {value['low']:.4g} to {value['high']:.4g}"
    runs = f"{value['n']} run{'s' * (value['n'] != 1)}"
    if not value.get("at_least"):
        return f"{value['mean']:.6g}{between}   {runs}"
    lacking = value["events_lacking_counts"]
    why = f"{lacking} event{'s lack' if lacking != 1 else ' lacks'} a token count"
    if not lacking:
        why = f"{value['partial']} of them stating tokens in all, not those read and written"
    return f"at least {value['mean']:.6g}   {runs}, {why}"


def _card(told: dict[str, Any]) -> None:
    for point, said in told.items():
        if point not in ("dimensions", "native"):
            out.print(Line(f"\n{point}", style="bold"))
            _rows([(name, _said(value)) for name, value in said.items()])
    out.print(Line("\ndimensions reported", style="bold"))
    for dimension, said in told["dimensions"].items():
        verdict = ", ".join(said["by"]) if said["reported"] else "not reported"
        out.print(Line(plain(f"{dimension} {DIMENSIONS[dimension]}: {verdict}")))
    reported = sum(d["reported"] for d in told["dimensions"].values())
    native = "native" if told["native"] else "not native"
    out.print(Line(f"{reported} of 4: {native} to multi-agent systems (3 or more)"))


def _said(value: Any) -> str:
    match value:
        case None:
            return "not recorded"
        case dict():
            return ", ".join(f"{k} {v:,}" for k, v in value.items())
        case list():
            return ", ".join(map(str, value)) or "none"
        case bool():
            return "yes" if value else "no"
        case float() | int():
            return f"{value:,.6g}"
    return str(value)


def _rows(pairs: list[tuple[str, str]]) -> None:
    rows = [(Line(plain(name), style="cyan"), Line(plain(value))) for name, value in pairs]
    print_table(["", ""], rows, head=False)
