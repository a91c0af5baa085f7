"""The verbs that learn: one method in one world, or all of them side by side."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text as Line

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, print_rows, progress, say
from podium.envs.world import use_world
from podium.learn.recipe import open_run
from podium.methods import use_method
from podium.metrics import measure
from podium.study.compare import BUDGET, Board, chosen, compare
from podium.trace.files import write_whole
from podium.view.training import board_page, markdown, run_page

__all__: list[str] = []


@app.command(epilog="Example: podium train stop --out out/stop")
def train(
    recipe: Annotated[
        str,
        typer.Argument(help="A recipe: a TOML file, or the name of one that comes with Podium.", metavar="RECIPE"),
    ] = "stop",
    folder: Annotated[Path | None, typer.Option("--out", help="The run's folder; out/RECIPE unless told.")] = None,
    seed: Annotated[int | None, number("seed", "Instead of the recipe's.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Instead of the recipe's: a method, or FILE.py:NAME.", metavar="NAME"),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(help="net: a small network over what the world shows; lm: language models.", metavar="KIND"),
    ] = "net",
    model: Annotated[
        str | None,
        typer.Option(
            help="Of --policy lm: tiny, smollm2, or a folder with a model of transformers.", metavar="MODEL"
        ),
    ] = None,
    cores: Annotated[
        int, number("cores", "Processes that play episodes, of --policy net; the result is the same.")
    ] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the runs of every iteration, and the learner before it.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Learn again from the runs that a run with --keep kept.", metavar="FOLDER"),
    ] = None,
    json: Json = False,
) -> None:
    """Train an orchestrator in a world, or a live team on its tasks, by a method's credit. A run that was ended
    goes on where it was.
    """
    run = open_run(
        recipe, folder, seed=seed, method=method, policy=policy, model=model, cores=cores, keep=keep, source=source
    )
    with _until_interrupted(run):
        _followed(run, json)
        before, after = run.played()
        result = run.told()
    page = run_page(_flat(result), run.lines, before[0], after[0])
    write_whole(run.folder / "report.html", page.encode())
    if json:
        say(result | {"metrics": [m.plain() for m in measure(after)]})
        return
    _print_metrics(before, after)
    (_print_live if "team" in result else _print_worlds)(result)
    out.print(f"report: {run.folder / 'report.html'}")


@contextmanager
def _until_interrupted(run: Any) -> Iterator[None]:
    """Says where a run goes on that was interrupted."""
    try:
        yield
    except KeyboardInterrupt as ended:  # the harness says by which signal
        at = min(run.learner.iteration + 1, run.last)
        print(f"podium: ended in iteration {at}; the same command goes on from {run.folder}", file=sys.stderr)
        raise typer.Exit(128 + getattr(ended, "number", signal.SIGINT)) from None


def _followed(run: Any, json: bool) -> None:
    """Trains, and says of each iteration how it went."""
    with progress(json, every=0.0) as tell:
        tell(f"training in {run.folder}, {run.last} iterations")
        for line in run.iterations():
            tell(_sentence(run, line), _line(run, line))


def _sentence(run: Any, line: dict[str, Any]) -> str:
    """An iteration in a line of text."""
    regret = _percent(line["regret"])
    speed = f"{line['decisions'] / sum(line['seconds'].values()):,.0f} decisions/s"
    figures = [f"return {line['score']:.4f}", *([f"regret {regret}"] if regret else []), speed]
    return f"iteration {line['iteration'] + 1} of {run.last}: {', '.join(figures)}"


def _line(run: Any, line: dict[str, Any]) -> Table:
    seconds = sum(line["seconds"].values())
    share = line.get("paid")
    paid = {} if share is None else {"paid": _percent(share)}
    table = Table("iteration", "return", "regret", "entropy", "gradient", *paid, "decisions/s", "decides", box=None)
    table.add_row(
        f"{line['iteration'] + 1} of {run.last}",
        f"{line['score']:.4f}",
        _percent(line["regret"]),
        "" if line["entropy"] is None else f"{line['entropy']:.3f}",
        _gradients(line),
        *paid.values(),
        f"{line['decisions'] / seconds:,.0f}",
        Line(_mix(line["mix"])),
    )
    return table


def _gradients(line: dict[str, Any]) -> str:
    """The length of the gradient and, where several roles learn, of each one's part; of a live team, that of each
    role on its own.
    """
    roles = {role: told["gradient"] for role, told in line.get("roles", {}).items()} or line["gradients"]
    each = ", ".join(f"{role} {length:.3f}" for role, length in roles.items())
    return f"{line['gradient']:.3f}" + (f" ({each})" if len(roles) > 1 else "")


def _percent(share: float | None) -> str:
    """A share that may not be known.

    >>> _percent(0.5), _percent(None), _percent(float("nan"))
    ('50.0%', '', '')
    """
    return "" if share is None or share != share else f"{share:.1%}"


def _mix(mix: dict[str, Any]) -> str:
    """The share of each kind of decision, and of its options, commonest first.

    >>> _mix({"stop": {"share": 1.0, "options": {"go on": 0.25, "stop": 0.75}}})
    'stop 100%: stop 75, go on 25'
    """
    lines = []
    for kind, told in mix.items():
        words = sorted(told["options"].items(), key=lambda item: -item[1])[:4]
        lines.append(f"{kind} {told['share']:.0%}: {', '.join(f'{word} {x:.0%}'[:-1] for word, x in words)}")
    return "\n".join(lines)


def _flat(told: dict[str, Any]) -> dict[str, Any]:
    """What is told, tables inside it as rows of their own; roles have their charts.

    >>> _flat({"seed": 0, "after": {"reward": 0.5}})
    {'seed': 0, 'after reward': 0.5}
    """
    flat: dict[str, Any] = {}
    for name, value in told.items():
        if name != "roles":
            flat |= {f"{name} {k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _print_metrics(before: Any, after: Any) -> None:
    table = Table("metric", "before", "after", box=None)
    for old, new in zip(measure(before), measure(after), strict=True):
        if new.score is not None:
            table.add_row(
                Line(f"{new.metric.dimension} {new.metric.name}"),
                f"{old.estimate.mean:.4g}",
                f"{new.estimate.mean:.4g}",
            )
    out.print(table)


def _print_worlds(told: dict[str, Any]) -> None:
    before_it = f"before {told['before']:.4f}, " if "before" in told else ""
    out.print(
        f"{told['world']}, {told['judged_in']}: {before_it}learned {told['value']:.4f}, "
        f"optimum {told['optimum']:.4f}, best trivial {told['trivial']:.4f}: regret {told['regret']:.2%}, "
        f"{told['share_of_gap']:.0%} of the gap left"
    )


def _print_live(told: dict[str, Any]) -> None:
    roles = told["roles"]
    table = Table("role", "credit, first", "last", "gradient, first", "last", box=None)
    for role in sorted({role for some in roles.values() for role in some}):
        figures = [roles[when].get(role, {}).get(what) for what in ("credit", "gradient") for when in roles]
        table.add_row(Line(role), *map(_figure, figures))
    out.print(table)
    table = Table(told["judged_in"], "before", "after", "optimum", box=None)
    for what, best in (("success", None), ("reward", told["optimum"])):
        table.add_row(what, _figure(told["before"][what]), _figure(told["after"][what]), _figure(best))
    out.print(table)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@app.command(
    "compare",
    epilog="Example: podium compare --methods parl,dr_mas,branching --envs costly_search --seeds 3 --out out/board",
)
def compare_(
    methods: Annotated[
        str,
        typer.Option(help="Names or FILE.py:NAME, with commas; all that can act unless told.", metavar="NAME,..."),
    ] = "",
    envs: Annotated[
        str, typer.Option(help="Worlds, or FILE.py:NAME, with commas.", metavar="NAME,...")
    ] = "costly_search,scouts,crew,relay,jury",
    seeds: Annotated[int, number("seeds", "How many seeds.")] = 3,
    iterations: Annotated[int, number("iterations", "Of training.")] = BUDGET.iterations,
    episodes: Annotated[int, number("trained episodes", "Of an iteration, branches counted.")] = BUDGET.episodes,
    folder: Annotated[Path | None, typer.Option("--out", help="Where the page and the table go.")] = None,
    json: Json = False,
) -> None:
    """The leader-board: methods side by side in the same worlds, at equal budgets, beside the trivial policies and
    the optimum.
    """
    recipe = replace(BUDGET, iterations=iterations, episodes=episodes)
    with progress(json) as tell:
        board = compare(
            chosen([use_method(name).name for name in _names(methods)]),
            [use_world(env) for env in _names(envs)],
            range(seeds),
            recipe,
            say=tell,
        )
    rows = _rows(board)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "board.md", markdown(rows).encode())
        write_whole(folder / "board.html", board_page(rows).encode())
    if json:
        say({"rows": rows, "refused": [{"method": m, "env": e, "why": w} for (m, e), w in board.refused.items()]})
        return
    print_rows([{k: _short(v) for k, v in row.items()} for row in rows], False, list(rows[0]) if rows else [])
    for why, pairs in groupby(sorted(board.refused, key=board.refused.__getitem__), board.refused.__getitem__):
        out.print(f"not trained in {', '.join(env for _, env in pairs)}: {why}", soft_wrap=True, markup=False)
    if not rows:
        raise typer.Exit(2)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _rows(board: Board) -> list[dict[str, Any]]:
    return [
        {
            "env": s.env,
            "method": s.method,
            "share_of_gap": s.share.mean,
            "interval": [s.share.low, s.share.high],
            "regret": s.regret.mean,
            "paid": s.paid,
            "seeds": s.share.n,
        }
        for s in board.standings
    ]


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return f"{value[0]:.2f} to {value[1]:.2f}"
    return f"{value:.3f}" if isinstance(value, float) else value
