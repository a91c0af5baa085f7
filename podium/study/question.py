"""A question of the survey as an experiment: a recipe, arms, seeds, and what is told of them.

A question is a module that registers an `Experiment`, and beside it a recipe `NAME.toml`: the question in a
sentence, the number of seeds, and all sizes. Those of the survey are in `experiments/questions` of a checkout; a
study of a user's own is given as FILE.py:NAME:

    @dataclass(frozen=True)
    class Settings:
        trials: int

    coin = register("study", "coin")(Experiment(Settings, arms, measure, report))

What was measured is kept, and not measured again by the same code and recipe. Seconds are kept apart: they are all
that two runs of one seed may differ in.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import msgspec
import numpy as np

import podium
from podium.interval import student
from podium.learn.folder import BadRecipe
from podium.learn.train import one_thread
from podium.outside import use
from podium.registry import alternatives, find
from podium.registry import names as registered
from podium.study.checkout import NoCheckout
from podium.trace.files import write_whole

__all__ = [
    "Experiment",
    "Headline",
    "Measurements",
    "Question",
    "Report",
    "column",
    "fill_tables",
    "fingerprint",
    "imports",
    "in_time",
    "latest_report",
    "load_measurements",
    "meaning",
    "measure_all",
    "read_study",
    "report_of",
    "report_or_measure",
    "study_names",
    "summarise",
    "table",
    "write_report",
]

PACKAGE = Path(podium.__path__[0])
SHIPPED = PACKAGE.parent / "docs" / "studies"  # where a clone has what was measured last
FORMS = ("trace", "interval", "registry", "view", "cli")  # how things are written down, which decides no number
TELLS = ("podium.study.question", "podium.study.figure")  # which keep and draw what was measured


class Headline(NamedTuple):
    """One figure of a headline: a mean with its interval over seeds, and what it is promised to be, if anything
    is."""

    id: str
    what: str
    mean: float
    low: float
    high: float
    least: float | None = None
    most: float | None = None


class Report(NamedTuple):
    """What is told of an experiment."""

    headline: list[Headline]
    tables: dict[str, str]  # markdown, by name
    figure: str  # SVG


@dataclass(frozen=True)
class Measurements:
    """The numbers of every arm, one dict a seed, and the processor's seconds."""

    arms: dict[str, list[dict[str, Any]]]
    seconds: dict[str, list[float]]
    took: dict[str, list[dict[str, float]]]  # seconds by stage, of arms that tell them as `took`


@dataclass(frozen=True)
class Experiment:
    """What a study is made of. `measure` is a pure function: numbers out, and the same for the same seed."""

    settings: Any  # a class, which the recipe is read into
    arms: Callable[[Any], list[str]]  # settings: what is compared
    measure: Callable[[Any, str, int], dict[str, Any]]  # settings, arm, seed: one arm on one seed
    report: Callable[[Any, Measurements], Report]  # settings, numbers of all: headline, tables and the figure
    then: Callable[[Any, Measurements], list[str]] | None = None  # arms of a second stage, chosen by the first

    @property
    def path(self) -> Path:
        """The file that defines it; recipes lie beside it."""
        return Path(self.measure.__code__.co_filename)


@dataclass(frozen=True)
class Question:
    name: str
    spec: str  # what it is read by: its name, or FILE.py:NAME
    asks: str
    seeds: tuple[int, ...]
    how: Any  # the experiment's settings
    experiment: Experiment


def study_names() -> list[str]:
    """The questions that there are."""
    return registered("study")


def read_study(spec: str, quick: bool = False) -> Question:
    """A question by its name or as FILE.py:NAME; `quick` takes the sizes under [quick], which are for trying it
    out."""
    known = study_names()  # ours first, so that a clash is the newcomer's
    name = use("study", spec)
    if name == spec and name not in known:
        if not known:
            raise NoCheckout
        raise BadRecipe(f"no study called {name!r}; {alternatives(name, [*known, 'all'], 'study')}")
    experiment: Experiment = find("study", name)
    path = experiment.path.with_name(f"{name}.toml")
    if not path.is_file():
        raise BadRecipe(f"the study {name!r} has no recipe: there is no file {path}")
    recipe = tomllib.loads(path.read_text())
    small = recipe.pop("quick", {})
    if quick:
        recipe |= small
    asks, seeds = recipe.pop("question"), recipe.pop("seeds")
    return Question(name, spec, asks, tuple(range(seeds)), msgspec.convert(recipe, experiment.settings), experiment)


def fingerprint(question: Question) -> str:
    """What the numbers depend on: settings, seeds and code."""
    settings = msgspec.json.encode([question.name, list(question.seeds), question.how])
    return hashlib.sha256(settings + _code(question.experiment.path)).hexdigest()[:12]


@cache
def _code(own: Path) -> bytes:
    """A fingerprint of the code: the question's module up to `report`, what it imports of `podium.study` and from
    its own checkout or folder, and the packages of Podium that those import. What comes from `report` on only
    tells."""
    found, packages, todo = set[Path](), set[Path](), [own]
    while todo:
        found.add(path := todo.pop())
        for module in imports(path.read_text()):
            file = _file_of(module, own)
            if file is None or module in TELLS:
                continue
            if module.startswith("podium.") and not module.startswith("podium.study."):
                if (package := module.split(".")[1]) not in FORMS:
                    packages.add(PACKAGE / package)
            elif file not in found:
                todo.append(file)
    paths = sorted(found) + [path for folder in sorted(packages) for path in sorted(folder.glob("*.py"))]
    meant = (meaning(path.read_text(), "report" if path == own else None) for path in paths)
    return hashlib.sha256(b"".join(meant)).digest()


def _file_of(module: str, own: Path) -> Path | None:
    """Where the source of a module is: ours, of the same checkout, or beside the question's file."""
    for root in (PACKAGE.parent, own.parent):
        path = root / module.replace(".", "/")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


def meaning(source: str, until: str | None = None) -> bytes:
    """A source without its comments, its docstrings and its layout, which decide no number; up to the function of
    some name.

    >>> meaning("def f():\\n    'Says.'\\n    return 1  # one") == meaning("def f(): return 1")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            del body[0]
    ends = [i for i, n in enumerate(tree.body) if isinstance(n, ast.FunctionDef) and n.name == until]
    body = tree.body[: ends[0] if ends else None]
    tree.body = [n for n in body if not isinstance(n, ast.Import | ast.ImportFrom)]
    return ast.dump(tree).encode()


def imports(source: str) -> list[str]:
    """The modules that a source imports from, and what it imports of them, which may be modules too.

    >>> imports("from podium.graph import units")
    ['podium.graph', 'podium.graph.units']
    """
    named = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and n.module]
    return [name for n in named for name in (n.module, *(f"{n.module}.{a.name}" for a in n.names)) if name]


def measure_all(
    question: Question, folder: Path, cores: int = 2, say: Callable[[str], Any] = lambda text: None
) -> Measurements:
    """Every arm on every seed; what the folder has of the same key is taken from there, and what is measured is put
    there at once."""
    folder.mkdir(parents=True, exist_ok=True)
    measurements = Measurements({}, {}, {})
    for stage in (first_stage, second_stage):
        jobs = [(question, arm, seed, folder) for arm in stage(question, measurements) for seed in question.seeds]
        for number, ((_, arm, seed, _), one) in enumerate(zip(jobs, _mapped(jobs, cores), strict=True), 1):
            measurements.arms.setdefault(arm, []).append(one["found"])
            measurements.seconds.setdefault(arm, []).append(one["seconds"])
            if one.get("took"):
                measurements.took.setdefault(arm, []).append(one["took"])
            say(f"{question.name}: {arm}, seed {seed} ({number} of {len(jobs)})")
    return measurements


def first_stage(question: Question, found: Measurements) -> list[str]:
    """The arms that are measured whatever comes."""
    return question.experiment.arms(question.how)


def second_stage(question: Question, found: Measurements) -> list[str]:
    """The arms that follow from what the first were measured to be."""
    return question.experiment.then(question.how, found) if question.experiment.then else []


def _mapped(jobs: Sequence[tuple[Question, str, int, Path]], cores: int) -> Any:
    if cores == 1:
        yield from (_kept(*job) for job in jobs)
        return
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        orders = [(q.spec, msgspec.to_builtins(q.how), *rest) for q, *rest in jobs]
        yield from pool.map(_kept_by, *zip(*orders, strict=True))


def _kept_by(spec: str, settings: dict[str, Any], arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """As `_kept`, in a process of its own, which has to load a user's file first."""
    question = read_study(spec)
    return _kept(replace(question, how=msgspec.convert(settings, question.experiment.settings)), arm, seed, folder)


def _kept(question: Question, arm: str, seed: int, folder: Path) -> dict[str, Any]:
    settings = msgspec.json.encode([question.name, question.how, arm, seed]) + _code(question.experiment.path)
    path = folder / f"{question.name}-{hashlib.sha256(settings).hexdigest()[:16]}.json"
    if not path.exists():
        began = process_time()
        with one_thread():
            values = question.experiment.measure(question.how, arm, seed)
        took = values.pop("took", {})
        report = {"found": _plain(values), "seconds": process_time() - began, "took": took}
        write_whole(path, msgspec.json.encode(report))
    there: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return there


def _plain(value: Any) -> Any:
    """Numbers as JSON has them; NaN is null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if value != value else value


def report_of(question: Question, found: Measurements) -> Report:
    """Headline, tables and figure; the table `headline` and the table `seconds` are there in all of them."""
    report: Report = question.experiment.report(question.how, found)
    rows = [[f"`7.{question.name}.{s.id}`", s.what, *_cells(s)] for s in report.headline]
    head = table(["id", "what", "figure", "95 % interval", "promised"], rows)
    arms = [*first_stage(question, found), *second_stage(question, found)]
    order = [arm for arm in arms if np.sum(found.seconds.get(arm, 0.0))]
    took = [[arm, f"{np.mean(found.seconds[arm]):.1f}", _played(found.arms[arm])] for arm in order]
    spent = table(["arm", "seconds of one core, mean of seeds", "played"], took)
    return report._replace(tables=report.tables | {"headline": head, "seconds": spent})


def _played(some: list[dict[str, Any]]) -> str:
    """What an arm was trained on, branches counted."""
    counts = []
    for what in ("episodes", "decisions"):
        played = [one[what] for one in some if one.get(what)]
        counts += [f"{np.mean(played):,.0f} {what}"] if played else []
    return ", ".join(counts)


def _cells(s: Headline) -> list[str]:
    interval = f"{s.low:.3g} to {s.high:.3g}" if s.low == s.low else ""
    promise = f">= {s.least:g}" if s.least is not None else "" if s.most is None else f"<= {s.most:g}"
    return [f"{s.mean:.3g}", interval, promise]


def summarise(id: str, what: str, values: Any, least: float | None = None, most: float | None = None) -> Headline:
    """A figure from its values, one a seed, or from one number: m ± t(n - 1) s / √n."""
    there = np.atleast_1d(np.asarray(values, float))
    there = there[~np.isnan(there)]
    mean, n = float(there.mean()) if len(there) else float("nan"), len(there)
    half = student(n - 1) * float(there.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
    return Headline(id, what, mean, mean - half, mean + half, least, most)


def column(found: Measurements, arm: str, name: str) -> Any:
    """One number, or one curve, of an arm: a row a seed."""
    return np.array([one[name] for one in found.arms[arm]], float)


def in_time(found: Measurements, arm: str, name: str, arms: Sequence[str]) -> Any:
    """Where a curve of an arm, looked at in even steps, stood after the seconds that the quickest of some arms took
    in all: a number a seed."""
    took = {one: float(np.median(found.seconds[one])) for one in arms}
    curve = column(found, arm, name)
    at = (curve.shape[1] - 1) * min(took.values()) / max(took[arm], 1e-9)
    return np.array([np.interp(at, np.arange(len(c)), c) for c in curve])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill_tables(page: str, tables: dict[str, str]) -> str:
    """A page with its measured tables as they are now."""

    def put(match: re.Match[str]) -> str:
        return f"<!-- measured: {match[1]} -->\n{tables[match[1]]}\n<!-- end measured -->"

    return re.sub(r"<!-- measured: (\w+) -->.*?<!-- end measured -->", put, page, flags=re.DOTALL)


def write_report(question: Question, found: Measurements, folder: Path) -> Report:
    """The numbers, the seconds and the figure into a folder; and the tables into the page, if one is there."""
    report = report_of(question, found)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"key": fingerprint(question), "seeds": len(question.seeds), "arms": found.arms}
    write_whole(folder / f"{question.name}.json", _spelled(contents))
    write_whole(folder / f"{question.name}.seconds.json", _spelled({"seconds": found.seconds, "took": found.took}))
    write_whole(folder / f"{question.name}.svg", report.figure.encode())
    if (page := folder / f"{question.name}.md").exists():
        write_whole(page, fill_tables(page.read_text(), report.tables).encode())
    return report


def _spelled(value: Any) -> bytes:
    """JSON, a line for each number of the first two levels."""
    text = msgspec.json.encode(value, order="deterministic")
    return text.replace(b'}],"', b'}],\n"').replace(b'"arms":{', b'"arms":{\n') + b"\n"


def load_measurements(question: Question, folder: Path = SHIPPED) -> tuple[Measurements, bool] | None:
    """What was written into a folder, and whether by this code and recipe; None if there is nothing."""
    path = folder / f"{question.name}.json"
    if not path.exists():
        return None
    contents = msgspec.json.decode(path.read_bytes())
    seconds = msgspec.json.decode((folder / f"{question.name}.seconds.json").read_bytes())
    same = contents["key"] == fingerprint(question)
    return Measurements(contents["arms"], seconds["seconds"], seconds["took"]), same


def latest_report(question: Question, folders: Sequence[Path]) -> tuple[Report, bool] | None:
    """The last result of the first folder that has one; and whether this code and recipe made it."""
    for folder in folders:
        if (there := load_measurements(question, folder)) is not None:
            with suppress(KeyError):  # a result of other arms
                return report_of(question, there[0]), there[1]
    return None


def report_or_measure(question: Question, folder: Path, cores: int = 2) -> Report:
    """What is told: from what a clone has, if this code and recipe made it, else measured."""
    there = load_measurements(question)
    if there is not None and there[1]:
        return report_of(question, there[0])
    return report_of(question, measure_all(question, folder, cores))
