"""The application: a table of its verbs, each imported when it is used, and the options that they share."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from podium import __version__

__all__ = ["VERBS", "Json", "Paths", "app"]

# Each verb: the module that adds it to the application, and the first sentence of its help. `podium --help` prints
# this table and imports no verb; a test says that it is what the verbs themselves say.
VERBS: dict[str, tuple[str, str]] = {
    "check": ("traces", "Check traces against every rule."),
    "show": (
        "show",
        "Show one run: who worked, where the time and the money went, what went wrong.",
    ),
    "view": (
        "view",
        "See runs, trainings and folders of both in a browser: who did what when, credit, safety, what to compare.",
    ),
    "convert": ("traces", "Write traces in another form."),
    "import": ("exchange", "Import logs of other systems and keep the result."),
    "export": ("exchange", "Write runs in a form that other tools read."),
    "listen": ("exchange", "Take spans over OTLP/HTTP and keep them, until it is ended."),
    "rules": ("traces", "List the rules that a trace obeys."),
    "schema": ("traces", "Print the JSON Schema of all that Podium writes, so that other tools can write it too."),
    "store": ("stores", "Many traces in a folder, and SQL over them."),
    "run": ("harness", "Run a team on a task and record it."),
    "replay": ("harness", "Replay a recorded run, with something else at a row and live from there."),
    "jail": ("harness", "What the commands of agents are held to on this machine, and by what, tried out now."),
    "reward": (
        "rewards",
        "What a reward pays for runs, by run, unit or channel.",
    ),
    "credit": ("credit", "What a method pays every unit of runs."),
    "methods": (
        "credit",
        "The table of methods; one method in full; or which methods suit runs, by what the runs say of the team.",
    ),
    "metrics": (
        "metrics",
        "Measure runs: success, parallelism, collaboration and overhead, each with its 95 % interval over runs.",
    ),
    "audit": (
        "audit",
        "What went wrong in a team's runs: reward hacking, failures, waste, safety, gaps in the record.",
    ),
    "envs": ("worlds", "The worlds: their parameters, the exact optimum, and what trivial policies score."),
    "train": ("train", "Train an orchestrator in a world, or a live team on its tasks, by a method's credit."),
    "compare": (
        "train",
        "The leader-board: methods side by side in the same worlds, at equal budgets, beside the trivial policies "
        "and the optimum.",
    ),
    "gateway": ("gateway", "Serve a model to agent programs and record what they do, token by token."),
    "bench": ("bench", "Measurements against exact answers."),
    "study": (
        "study",
        "Answer a question of the survey by an experiment: numbers with intervals over seeds, and a figure.",
    ),
}


class Verbs(TyperGroup):
    """The verbs of the table. A verb's module is imported when the verb is used, or asked for its own help."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        import_module(f"podium.cli.{VERBS[cmd_name][0]}")
        return typer.main.get_group(app).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in VERBS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = ", ".join(map(repr, get_close_matches(name, VERBS)))
            ctx.fail(
                f"No such command {name!r}." + (f" Did you mean {near}?" if near else " podium -h lists them.")
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Paths = Annotated[
    list[str], typer.Argument(help="Files, folders or stores; - is standard input.", metavar="PATH...")
]
Json = Annotated[bool, typer.Option("--json", help="Print strict JSON.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"podium {__version__}")
        raise typer.Exit


def _load_files(paths: list[str] | None) -> None:
    """Files whose methods, scores, worlds and detectors the verb may then name."""
    if paths:
        from podium.outside import load_file

        for path in paths:
            load_file(path)


@app.callback(epilog="Example: podium check run.json; podium COMMAND --help has one for each.")
def _podium(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    load: Annotated[
        list[str] | None,
        typer.Option(
            help="Your methods, scores, worlds and detectors: a file to load; repeatable.", metavar="FILE.py"
        ),
    ] = None,
) -> None:
    """Podium: what a team of agents did, checked, measured and shown, from the record of how it worked."""
    _load_files(load)
