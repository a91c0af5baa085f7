"""How many small faults the tests notice: at least 92 of 100, in 300 drawn by the commit's hash.

A mutant is the source of one module with one fault (`bench/mutants.py` says which). It is killed when a test that runs the changed line
fails, or takes five times as long as it should and at least ten seconds. Mutants that do what the original does are not taken out:
they count as survivors. Each survivor is listed with its diff in `out/mutation/survivors.md`; what was found out about it is kept in
`bench/verdicts.json` under the mutant's key, and printed beside it.

    python -m bench.mutation                     300 mutants drawn by HEAD
    python -m bench.mutation --seed 7 --count 50 --of credit --of rewards/tools --jobs 1

A mutant costs a fork of a process that has numpy, pytest and `podium.trace` imported. The fork imports the rest, with the mutated
source in the place of the module's, and runs the covering tests: file by file, those of the module's own folder first, fastest first.
A line that runs on import only (a row of a table, a decorator) is covered by the tests that run its package or whose file names it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.machinery
import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import pytest

from bench.covering import CoveringTest, Project, covered, forked, pytest_in
from bench.mutants import Mutant, compiles, mutants
from bench.table import Row, at_least, at_most, fact

__all__ = ["Outcome", "draw", "measure", "run_mutants", "survivors", "survivors_page"]

ROOT = Path(__file__).resolve().parents[1]
VERDICTS = Path(__file__).with_name("verdicts.json")
PACKAGES = ("graph", "rewards", "credit", "methods", "metrics")
FOLDERS = (*PACKAGES, "audit")
FILES = ("test_add_a_method.py", "test_cli.py", "test_credit_verbs.py", "test_tree.py", "experiments/test_parl.py")
COUNT = 300
UNJUDGED = "none yet"
PRELOADED = ("numpy.random", "hypothesis", "msgspec", "rich.console", "rich.table", "typer", "podium.trace")


def podium() -> Project:
    """The five packages whose faults are counted, and the tests that may notice them: not those of worlds, harness, learning and studies, which are slow,
    nor those of the docs, which notice any change of a text.
    """
    tests = (*(f"tests/{f}" for f in FOLDERS), *(f"tests/{f}" for f in FILES))
    return Project(
        ROOT,
        tuple(f"podium/{p}" for p in PACKAGES),
        tests,
        ("podium", "experiments", "bench/generate.py", "tests/trace/making.py"),
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    mutant: Mutant
    tests: int  # how many cover it
    killer: str  # the test that failed, "" for a survivor
    seconds: float


def draw(project: Project, seed: int, count: int | None, places: Iterable[str] = ()) -> list[Mutant]:
    """`count` mutants drawn without replacement, or all: of the project, or of some of its packages and modules."""
    chosen = set(places)
    sources = {str(p.relative_to(project.root)): p.read_text() for p in project.sources()}
    every = [
        m
        for path in sorted(sources)
        if not chosen or chosen & {Path(path).parent.name, f"{Path(path).parent.name}/{Path(path).stem}"}
        for m in mutants(path, sources[path])
    ]
    order = np.random.default_rng(seed).permutation(len(every))
    drawn: list[Mutant] = []
    for i in order.tolist():
        if len(drawn) == (len(every) if count is None else count):
            break
        if compiles(every[i].source(sources[every[i].path])):
            drawn.append(every[i])
    return drawn


def covering(project: Project, mutant: Mutant, tests: Iterable[CoveringTest]) -> list[CoveringTest]:
    """The tests that can notice a mutant; what runs on import is noticed by tests that run its package, or whose file names it."""
    tests, span = list(tests), range(mutant.first, mutant.last + 1)
    ran = [t for t in tests if not t.lines.get(mutant.path, set()).isdisjoint(span)]
    if ran and not mutant.on_import:
        return ran
    folder = str(Path(mutant.path).parent) + "/"
    named = _naming(
        project, folder.replace("/", ".").strip("."), tuple(sorted({t.name.split("::")[0] for t in tests}))
    )
    return [t for t in tests if t.name.split("::")[0] in named or any(path.startswith(folder) for path in t.lines)]


@functools.cache
def _naming(project: Project, package: str, files: tuple[str, ...]) -> frozenset[str]:
    """The files that name a package."""
    return frozenset(f for f in files if package and package in (project.root / f).read_text())


def stages(mutant: Mutant, tests: Sequence[CoveringTest]) -> list[list[CoveringTest]]:
    """The tests in the order in which they run: few files first, as most mutants are killed there."""
    files: dict[str, list[CoveringTest]] = defaultdict(list)
    for test in tests:
        files[test.name.split("::")[0]].append(test)
    own = f"tests/{Path(mutant.path).parent.name}/"
    order = sorted(files, key=lambda f: (not f.startswith(own), sum(t.seconds for t in files[f]), f))
    result, size = [], 3
    while order:
        result.append(sorted((t for f in order[:size] for t in files[f]), key=lambda t: (t.seconds, t.name)))
        order, size = order[size:], size * 2
    return result


class _Source(importlib.machinery.SourceFileLoader):
    """Loads a module from a mutated source, and finds it before anybody else does."""

    def __init__(self, module: str, path: Path, source: str):
        super().__init__(module, str(path))
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> Any:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None


class _Chosen:
    """A pytest plugin that runs some tests, fastest first, each within its time, and says which failed."""

    def __init__(self, tests: Sequence[CoveringTest]):
        self.seconds = {t.name: t.seconds for t in tests}
        self.failed: list[str] = []

    def pytest_sessionstart(self) -> None:
        """A mutated source goes before pytest's own, which it reads for any file that it is told to test."""
        sys.meta_path.sort(key=lambda finder: not isinstance(finder, _Source))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.seconds), key=lambda i: self.seconds[i.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        signal.setitimer(
            signal.ITIMER_REAL, max(10.0, 5 * self.seconds[item.nodeid])
        )  # whose signal ends the process
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _tried(project: Project, mutant: Mutant | None, staged: Sequence[Sequence[CoveringTest]]) -> str:
    """The first test that fails with a mutant in place (or, with none, as the source is), or ""."""
    sys.path.insert(0, str(project.root))
    if mutant is not None:
        path = project.root / mutant.path
        sys.meta_path.insert(0, _Source(project.module(path), path, mutant.source(path.read_text())))  # type: ignore[arg-type]
    for tests in staged:
        chosen = _Chosen(tests)
        status = pytest_in(project.root, sorted({t.name.split("::")[0] for t in tests}), chosen)
        if status not in (0, 5):
            return chosen.failed[0] if chosen.failed else f"pytest ended with {status}"
    return ""


def run_mutants(
    project: Project, drawn: Sequence[Mutant], tests: Sequence[CoveringTest], jobs: int, log: Path
) -> list[Outcome]:
    """What becomes of each mutant."""
    for name in PRELOADED if project.root == ROOT else ():
        importlib.import_module(name)
    loaded = [m for m in map(project.module, project.sources()) if m in sys.modules]
    assert not loaded, f"imported before they could be mutated: {loaded}"
    covers = [covering(project, m, tests) for m in drawn]
    tasks = [
        (functools.partial(_tried, project, m, stages(m, c)), 60 + 5 * sum(t.seconds for t in c))
        for m, c in zip(drawn, covers, strict=True)
    ]
    outcomes: list[Outcome | None] = [None] * len(drawn)
    began = time.monotonic()
    for number, killer, why in forked(tasks, jobs):
        now = time.monotonic()
        outcomes[number] = Outcome(drawn[number], len(covers[number]), why or killer, now - began)
        _log(project, outcomes[number], log)
        if number % 25 == 0:
            print(f"mutant {number + 1} of {len(drawn)}, {now - began:.0f} s", file=sys.stderr, flush=True)
    return [o for o in outcomes if o is not None]


def _log(project: Project, o: Outcome | None, path: Path) -> None:
    """One line for a mutant, as soon as it is known what became of it."""
    assert o is not None
    m = o.mutant
    key = m.key((project.root / m.path).read_text())
    with path.open("a") as file:
        print(json.dumps([key, m.path, m.line, m.operator, m.text, o.tests, o.killer]), file=file)


def logged_survivors(project: Project, path: Path) -> list[Mutant]:
    """The mutants that survived in a run before, as they are in today's source."""
    rows = [row for row in map(json.loads, path.read_text().splitlines()) if not row[-1]]
    keys, alike = {row[0] for row in rows}, {(row[1], row[3], row[4]) for row in rows}
    sources = {p: (project.root / p).read_text() for p in {row[1] for row in rows}}
    every = (m for p in sorted(sources) for m in mutants(p, sources[p]))
    return [m for m in every if (m.path, m.operator, m.text) in alike and m.key(sources[m.path]) in keys]


def false_kills(
    project: Project, outcomes: Iterable[Outcome], tests: Iterable[CoveringTest], jobs: int
) -> list[str]:
    """Tests that killed a mutant and fail without one too, in the order in which they run together."""
    killers = {o.killer for o in outcomes}
    chosen = [t for t in tests if t.name in killers]
    task = functools.partial(_tried, project, None, [chosen])
    return [
        why or failed
        for _, failed, why in forked([(task, 60 + 5 * sum(t.seconds for t in chosen))], jobs)
        if why or failed
    ]


def _verdicts() -> dict[str, str]:
    """What was found out about survivors, by the key of each."""
    known: dict[str, str] = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}
    return known


def survivors_page(project: Project, outcomes: Sequence[Outcome]) -> str:
    """Every survivor with its diff and the verdict on it."""
    verdicts = _verdicts()
    lines = ["# Mutants that survived", ""]
    lines += [
        f"{sum(not o.killer for o in outcomes)} of {len(outcomes)}. A verdict is kept in `bench/verdicts.json` under the key.",
        "",
    ]
    for o in outcomes:
        if not o.killer:
            source = (project.root / o.mutant.path).read_text()
            key = o.mutant.key(source)
            lines += [f"## {key}: {o.mutant.path}:{o.mutant.line}, {o.mutant.operator}, {o.tests} tests", ""]
            lines += ["```diff", o.mutant.diff(source), "```", "", f"Verdict: {verdicts.get(key, UNJUDGED)}", ""]
    return "\n".join(lines)


def survivors(project: Project, outcomes: Iterable[Outcome]) -> list[tuple[str, str]]:
    """Of every survivor its key with its place, and the verdict on it; those without one come first."""
    verdicts = _verdicts()
    keyed = [(o.mutant, o.mutant.key((project.root / o.mutant.path).read_text())) for o in outcomes if not o.killer]
    rows = [(f"{key} {m.path}:{m.line}, {m.operator}", verdicts.get(key, UNJUDGED)) for m, key in keyed]
    return sorted(rows, key=lambda row: (row[1] != UNJUDGED, row))


def _report(project: Project, outcomes: Sequence[Outcome], false: Sequence[str], seconds: float) -> dict[str, Any]:
    killed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for o in outcomes:
        package = Path(o.mutant.path).parent.name
        total[package] += 1
        killed[package] += bool(o.killer)
    return {
        "mutants": len(outcomes),
        "killed": sum(killed.values()),
        "packages": {p: [killed[p], total[p]] for p in sorted(total)},
        "timeouts": sum(o.killer == "time" for o in outcomes),
        "survivors": survivors(project, outcomes),
        "false_kills": list(false),
        "seconds": seconds,
    }


def head(root: Path) -> int:
    """The commit's hash as a number."""
    return int(subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=root, text=True), 16)


def run(
    project: Project,
    out: Path,
    seed: int,
    count: int | None,
    places: Sequence[str],
    jobs: int,
    again: bool = False,
) -> dict[str, Any]:
    """Draws, runs and reports; writes the page of survivors and the outcome of every mutant."""
    began = time.monotonic()
    tests = covered(project, out, jobs, lambda line: print(line, file=sys.stderr, flush=True))
    print(f"{len(tests)} tests, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    log = out / "outcomes.jsonl"
    drawn = logged_survivors(project, log) if again else draw(project, seed, count, places)
    log = out / "again.jsonl" if again else log
    log.write_text("")
    outcomes = run_mutants(project, drawn, tests, jobs, log)
    false = false_kills(project, outcomes, tests, jobs)
    (out / "survivors.md").write_text(survivors_page(project, outcomes))
    return _report(project, outcomes, false, time.monotonic() - began)


def _fresh(args: Sequence[str]) -> dict[str, Any]:
    """The report of a process of its own, in which nothing that is mutated was imported."""
    command = [sys.executable, "-m", "bench.mutation", "--json", *args]
    report: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=ROOT, text=True).splitlines()[-1])
    return report


TOY = '''
def capped(x):
    """
    >>> capped(3)
    3
    """
    if x > 10:
        return 10
    return x


def unused(x):
    return x + 1
'''
TOY_TEST = """
from toy import capped


def test_capped():
    assert capped(20) == 10
"""
TOY_SETTINGS = '[tool.pytest.ini_options]\naddopts = "--doctest-modules -q"\npythonpath = ["."]\n'
# Every mutant of the toy, as (line, text), and whether it is killed: at 10 itself nothing is tested, and `unused` nowhere.
TOY_KILLED = {
    (7, "(x >= 10)"): False,
    (7, "(x <= 10)"): True,
    (7, "(not (x > 10))"): True,
    (7, "11"): False,
    (8, "11"): True,
    (8, "return None"): True,
    (9, "return None"): True,
    (13, "(x - 1)"): False,
    (13, "2"): False,
    (13, "return None"): False,
}


def toy() -> dict[tuple[int, str], bool]:
    """What becomes of all mutants of a module of two functions."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tests").mkdir()
        (root / "pyproject.toml").write_text(TOY_SETTINGS)
        (root / "toy.py").write_text(TOY)
        (root / "tests" / "test_toy.py").write_text(TOY_TEST)
        _fresh(["--root", folder, "--jobs", "1"])
        lines = (root / "out" / "mutation" / "outcomes.jsonl").read_text().splitlines()
    return {(line, text): bool(killer) for _, _, line, _, text, _, killer in map(json.loads, lines)}


def measure(full: bool) -> list[Row]:
    if not full:
        outcomes = toy()
        same = sum(outcomes.get(key) is killed for key, killed in TOY_KILLED.items())
        return [
            at_most("23.3.toy_mutants", "mutants of a toy module", len(outcomes), len(TOY_KILLED), "exact"),
            at_least(
                "23.3.toy", "of them killed or left alive as worked out by hand", same, len(TOY_KILLED), "exact"
            ),
        ]
    report = _fresh([])
    share = report["killed"] / report["mutants"]
    parts = ", ".join(f"{p} {k} of {n}" for p, (k, n) in report["packages"].items())
    for place, verdict in report["survivors"]:
        print(f"survived: {place}: {verdict}", file=sys.stderr)
    unjudged = sum(verdict == UNJUDGED for _, verdict in report["survivors"])
    return [
        at_least("23.3.mutants", "small faults drawn by the commit's hash", report["mutants"], COUNT, "exact"),
        at_least(
            "23.3.killed",
            f"share that the tests notice, equivalent ones counted as missed: {parts}",
            share,
            0.92,
            "sampled",
        ),
        at_most(
            "23.3.false", "tests that failed on a fault and fail without it", len(report["false_kills"]), 0, "exact"
        ),
        at_most("23.3.minutes", "minutes it took on two cores", report["seconds"] / 60, 60, "time"),
        fact(
            "23.3.unjudged", "survivors without a verdict, named above and in `out/mutation/survivors.md`", unjudged
        ),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, help="draw by this number instead of the commit's hash")
    options.add_argument("--count", type=int, default=COUNT, help="how many mutants")
    options.add_argument(
        "--of", action="append", default=[], help="only of this package or module, such as credit or credit/keys"
    )
    options.add_argument("--jobs", type=int, default=2, help="processes at a time")
    options.add_argument("--root", type=Path, help="all mutants of `toy.py` in this folder instead, by its `tests`")
    options.add_argument(
        "--again", action="store_true", help="only those that survived the last run, in whatever changed since"
    )
    options.add_argument("--json", action="store_true", help="the report as one line of JSON")
    args = options.parse_args()
    if args.root:
        report = run(
            Project(args.root, ("toy.py",), ("tests",)), args.root / "out" / "mutation", 0, None, (), args.jobs
        )
    else:
        seed = head(ROOT) if args.seed is None else args.seed
        report = run(podium(), ROOT / "out" / "mutation", seed, args.count, args.of, args.jobs, args.again)
    print(json.dumps(report) if args.json else json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
