"""How large the code is and what its shape is, beside what issue 24 promises: `python -m bench.size [--json]`.

`tests/test_size.py` holds every figure that misses its promise at a ceiling, which may only be lowered.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench import table
from bench.table import Row, at_most

__all__ = ["LONGEST", "PARTICIPLES", "PROMISES", "WIDTH", "Source", "all_sources", "figures", "measure"]

ROOT = Path(__file__).parents[1]
CORE = ("trace", "graph", "rewards", "credit", "methods")
C = "_scan"
DOORS = ("exchange", "engine", "gateway", "pool", "view")  # which have budgets of their own
WIDTH, LONGEST = 116, 60
PARTICIPLES = re.compile(
    r"^\s*(told|found|said|made|seen|asked|kept|here|held|drawn)\s*(:[^=\n]+)?=[^=]", re.MULTILINE
)
MODULES_OF_A_NAME = 3  # public functions of one name are counted where so many modules or more have one

FORMATS = (  # of issue 30, which came after the budget of `exchange` was set: each is one file with a limit of its own
    "agentdojo atif autogen copilot_cli crewai google_adk inspect_ai opencode tau_bench trail whowhen "
    "turns restored to_atif to_otlp to_perfetto to_tables to_protobuf listen live"
).split()
LONGEST_FORMAT = 210

PROMISES = {  # the most that there may be
    "core": ("lines of `trace graph rewards credit methods`", 12_000),
    "learn": ("lines of `learn`", 7_500),
    "exchange": ("lines of `exchange` but `trainers` and the formats of issue 30", 4_500),
    "format": ("lines above 210 in a file of a format of issue 30", 0),
    "formats": ("lines of the formats of issue 30, importers, exporters and live, with what they share", 3_200),
    "trainers": ("lines of `exchange/trainers`", 2_500),
    "view": ("lines of `view`, of Python", 3_800),
    "gateway": ("lines of `gateway`", 1_800),
    "podium": ("lines of `podium/` but `exchange engine gateway pool view`", 32_000),
    "long_lines": (f"lines of more than {WIDTH} characters", 0),
    "long_functions": (f"functions of more than {LONGEST} lines", 0),
    "private_imports": ("names with an underscore that another module imports", 0),
    "participles": ("variables named told, found, said, made, seen, asked, kept, here, held, drawn", 0),
    "shared_names": (
        f"public functions whose name {MODULES_OF_A_NAME} modules or more have, but for those of an interface",
        40,
    ),
}


class Source(NamedTuple):
    """A module: where it is, as parts of its path, and its text, parsed."""

    place: tuple[str, ...]
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return "/".join(self.place)


def all_sources(*folders: str) -> list[Source]:
    """The modules of some folders of the project."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = [(path.relative_to(ROOT).parts, path.read_text(encoding="utf-8")) for path in paths]
    return [Source(place, text, ast.parse(text)) for place, text in texts]


def figures(sources: list[Source]) -> dict[str, list[str]]:
    """What counts against each promise, by the promise's name: a line a thing, which says where it is."""
    ours = [one for one in sources if one.place[0] == "podium"]
    return {
        "core": lines_of(one for one in ours if one.place[1] in CORE),
        "learn": lines_of(one for one in ours if one.place[1] == "learn"),
        "exchange": lines_of(
            one
            for one in ours
            if one.place[1] == "exchange" and "trainers" not in one.place and one not in formats_of(ours)
        ),
        "format": [line for one in formats_of(ours) for line in lines_of([one])[LONGEST_FORMAT:]],
        "formats": lines_of(formats_of(ours)),
        "trainers": lines_of(one for one in ours if one.place[1:3] == ("exchange", "trainers")),
        "view": lines_of(one for one in ours if one.place[1] == "view"),
        "gateway": lines_of(one for one in ours if one.place[1] == "gateway"),
        "podium": lines_of(one for one in ours if one.place[1] not in DOORS),
        "long_lines": [line for one in sources for line in long_lines(one)],
        "long_functions": [function for one in sources for function in long_functions(one)],
        "private_imports": [name for one in sources for name in private_imports(one)],
        "participles": [f"{one.name}: {m[1]}" for one in sources for m in PARTICIPLES.finditer(one.text)],
        "shared_names": shared_names(sources),
    }


def formats_of(ours: list[Source]) -> list[Source]:
    """The files of the formats of issue 30."""
    top = [one for one in ours if one.place[1] == "exchange" and len(one.place) == 3]
    return [one for one in top if one.place[-1].removesuffix(".py") in FORMATS]


def lines_of(sources: Iterable[Source]) -> list[str]:
    return [one.name for one in sources for _ in range(one.text.count("\n"))]


def long_lines(source: Source) -> list[str]:
    lines = enumerate(source.text.splitlines(), 1)
    return [f"{source.name}:{number} has {len(line)} characters" for number, line in lines if len(line) > WIDTH]


def long_functions(source: Source) -> list[str]:
    sizes = [(node, (node.end_lineno or 0) - node.lineno + 1) for node in functions(source.tree)]
    return [f"{source.name}:{node.lineno} {node.name} has {size} lines" for node, size in sizes if size > LONGEST]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def private_imports(source: Source) -> list[str]:
    """Names that belong to another module of ours alone; `_scan`, our module in C, is the reader's in Python."""
    imports = [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]
    paths = [f"{node.module}.{alias.name}".split(".") for node in imports for alias in node.names]
    ours = [path for path in paths if path[0] in ("podium", "experiments") and C not in path]
    return [
        f"{source.name}: {'.'.join(path)}" for path in ours if any(re.match("_(?!_)", part) for part in path[1:])
    ]


def shared_names(sources: list[Source]) -> list[str]:
    """Public functions at the top of modules, by name, where many modules have one of that name.

    A name that an interface gives is none of these: a function that its module passes to `register(...)(...)`, as a
    study question does with its arms, measure and report, is called for what it is there.
    """
    modules = defaultdict(set)
    for one in sources:
        passed = interface(one.tree)
        for node in one.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                modules[node.name] |= {one.name} if node.name not in passed else set()
    many = {name: some for name, some in modules.items() if len(some) >= MODULES_OF_A_NAME}
    return [f"{name}: {module}" for name, some in sorted(many.items()) for module in sorted(some)]


def interface(tree: ast.Module) -> set[str]:
    """The names that a module passes on as it registers itself: `register("study", "parl")(Experiment(arms, ...))`.

    >>> sorted(interface(ast.parse('register("study", "x")(Experiment(How, arms, measure))')))
    ['How', 'arms', 'measure']
    """
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    registered = [
        call
        for call in calls
        if isinstance(call.func, ast.Call)
        and isinstance(call.func.func, ast.Name)
        and call.func.func.id == "register"
    ]
    given = [arg for call in registered for arg in call.args if isinstance(arg, ast.Call)]
    return {arg.id for call in given for arg in call.args if isinstance(arg, ast.Name)}


def measure(full: bool = True) -> list[Row]:
    """A row a promise."""
    counts = {name: len(some) for name, some in figures(all_sources("podium", "experiments")).items()}
    return [at_most(f"24.5.{name}", what, counts[name], most, "size") for name, (what, most) in PROMISES.items()]


def packages() -> Counter[str]:
    """Lines of every package, for who wants to know where they are."""
    return Counter(one.place[1] for one in all_sources("podium") for _ in range(one.text.count("\n")))


if __name__ == "__main__":
    table.command(measure, __doc__)
