"""Which lines each test runs, and how long it takes: what tells a mutant's tests from the rest.

Every test file is run once in a process of its own under a trace function, and what it ran is kept under `out/mutation/` for as long as
neither the file nor what it tests changes. What runs before a test (while its file is collected, in a fixture) counts for all tests of
the file, and caches are emptied before each test, so that each shows all it needs.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

import _hypothesis_pytestplugin  # noqa: F401  (imported once, before the forks)
import pytest

__all__ = ["CoveringTest", "Project", "covered", "forked", "pytest_in"]

MEMORY = 12 << 30  # bytes of address space that one process may have: a mutant that wants all of it is stopped
IGNORED = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins that were imported before the fork
Lines = dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Project:
    """What is mutated and what tests it, as paths below a root."""

    root: Path
    packages: tuple[str, ...]  # folders or modules that are mutated; their examples are tests too
    tests: tuple[str, ...]  # folders and files of tests
    shared: tuple[str, ...] = ()  # folders whose change makes what is known of the tests stale

    def sources(self) -> list[Path]:
        return [p for name in self.packages for p in _python(self.root / name)]

    def test_files(self) -> list[Path]:
        """Files of tests, and folders with examples."""
        files = [p for name in self.tests for p in _python(self.root / name) if p.name.startswith("test_")]
        return files + [self.root / name for name in self.packages]

    def module(self, path: Path) -> str:
        return ".".join(path.relative_to(self.root).with_suffix("").parts).removesuffix(".__init__")


@dataclass(slots=True)
class CoveringTest:
    name: str  # as pytest names it
    seconds: float
    lines: Lines = field(default_factory=dict)


def _python(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def forked(tasks: Iterable[tuple[Callable[[], Any], float]], jobs: int) -> Iterator[tuple[int, Any, str]]:
    """Runs each task in a process of its own, `jobs` at a time, and yields its number, what it returned and how it ended.

    A task is a function without arguments and the seconds it may take. How it ended is "" or why it did not return: "time" or a signal.
    """
    running: dict[int, tuple[int, float, Path]] = {}
    waiting = enumerate(tasks)
    folder = Path(tempfile.mkdtemp(prefix="podium-forked-"))
    try:
        while True:
            while len(running) < jobs and (task := next(waiting, None)):
                number, (work, limit) = task
                path = folder / f"{number}.json"
                running[_fork(work, path)] = (number, time.monotonic() + limit, path)
            if not running:
                return
            for pid in list(running):
                number, until, path = running[pid]
                done, status = os.waitpid(pid, os.WNOHANG)
                late = not done and time.monotonic() > until
                if late:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                if not done and not late:
                    continue
                del running[pid]
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what a test of this task left running
                if path.exists():
                    yield number, json.loads(path.read_text()), ""
                elif late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM):
                    yield number, None, "time"
                elif os.WIFSIGNALED(status):
                    yield number, None, f"signal {os.WTERMSIG(status)}"
                else:
                    raise RuntimeError(f"a task failed: {path.with_suffix('.log').read_text()[-2000:]}")
            time.sleep(0.005)
    finally:
        for pid in running:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _fork(work: Callable[[], Any], path: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.stderr = os.fdopen(log, "w")
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        result = json.dumps(work())
        path.with_suffix(".part").write_text(result)
        path.with_suffix(".part").rename(path)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _Hypothesis:
    """Examples that repeat, and are not made smaller: that a test fails is enough. After conftest.py, which has settings of its own."""

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        quick = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", settings.default, database=None, deadline=None, phases=quick)
        settings.load_profile("mutation")


def pytest_in(root: Path, args: Iterable[str], plugin: object) -> int:
    """Runs tests in this process; the exit status of pytest."""
    os.chdir(root)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what others put into pytest takes seconds to import
    base = tempfile.mkdtemp(prefix="podium-mutation-")
    always = [
        "-x",
        "-p",
        "_hypothesis_pytestplugin",
        "-p",
        "no:cacheprovider",
        "-W",
        IGNORED,
        "--tb=short",
        "--no-header",
        f"--basetemp={base}/t",
        f"--rootdir={root}",
    ]
    try:
        return int(pytest.main([*always, *args], plugins=[_Hypothesis(), plugin]))
    finally:
        shutil.rmtree(base, ignore_errors=True)


class _Tracer:
    """A pytest plugin that notes the lines of some files that each test runs."""

    def __init__(self, root: Path, files: Iterable[Path]):
        self.local = {str(f): self._of(str(f.relative_to(root))) for f in files}
        self.tests: dict[str, CoveringTest] = {}
        self.failed: list[str] = []
        self.before: Lines = {}
        self.lines: Lines = self.before
        self.caches: list[Any] = []

    def _of(self, name: str) -> Callable[[FrameType, str, Any], Any]:
        def local(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                self.lines.setdefault(name, set()).add(frame.f_lineno)
            return local

        return local

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.local.get(frame.f_code.co_filename)

    def pytest_collection_finish(self) -> None:
        sys.settrace(None)
        wrapped = [x for x in gc.get_objects() if isinstance(x, functools._lru_cache_wrapper)]
        ours = ("podium", "tests", "bench")
        self.caches = [w for w in wrapped if str(getattr(w, "__module__", "")).split(".")[0] in ours]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        for cache in self.caches:
            cache.cache_clear()
        return (yield from self._tracing(self.before))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        test = self.tests[item.nodeid] = CoveringTest(item.nodeid, 0.0)
        start = time.perf_counter()
        try:
            return (yield from self._tracing(test.lines))
        finally:
            test.seconds = time.perf_counter() - start

    def _tracing(self, lines: Lines) -> Iterator[None]:
        self.lines = lines
        sys.settrace(self.trace)
        threading.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.failed.append(report.nodeid)


def _traced(project: Project, path: Path) -> dict[str, Any]:
    sys.path.insert(0, str(project.root))
    for source in project.sources():
        importlib.import_module(project.module(source))  # so that no test is said to run what an import runs
    tracer = _Tracer(project.root, project.sources())
    sys.settrace(tracer.trace)
    status = pytest_in(project.root, ["--maxfail=1000000", str(path.relative_to(project.root))], tracer)
    sys.settrace(None)
    tests = {}
    for name in set(tracer.tests) - set(tracer.failed):
        test = tracer.tests[name]
        files = {*test.lines, *tracer.before}
        lines = {f: sorted(test.lines.get(f, set()) | tracer.before.get(f, set())) for f in sorted(files)}
        tests[name] = {"seconds": test.seconds, "lines": lines}
    return {"status": status, "tests": tests, "failed": sorted(set(tracer.failed))}


def _digest(paths: Iterable[Path]) -> str:
    digest = sha256()
    for path in paths:
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def covered(
    project: Project, out: Path, jobs: int, say: Callable[[str], None] = lambda line: None
) -> list[CoveringTest]:
    """Every test that passes, with the lines it runs; traced again only where something changed."""
    folder = out / "lines-2"  # the number counts up when what is kept, or how it is found, changes
    folder.mkdir(parents=True, exist_ok=True)
    tested = [p for name in (*project.packages, *project.shared) for p in _python(project.root / name)]
    helpers = [p for name in project.tests for p in _python(project.root / name) if not p.name.startswith("test_")]
    common = _digest([*tested, *helpers])
    kept = {
        p: folder / (sha256((common + _digest(_python(p))).encode()).hexdigest()[:24] + ".json")
        for p in project.test_files()
    }
    missing = [p for p in kept if not kept[p].exists()]
    tasks = [(functools.partial(_traced, project, p), 1800.0) for p in missing]
    for number, result, why in forked(tasks, jobs):
        if why or result["status"] not in (0, 5):
            say(f"{missing[number]}: {why or result['failed'] or result['status']}")
        if not why:
            kept[missing[number]].write_text(json.dumps(result))
    tests = []
    for path in kept.values():
        if path.exists():
            for name, test in json.loads(path.read_text())["tests"].items():
                tests.append(
                    CoveringTest(name, test["seconds"], {f: set(lines) for f, lines in test["lines"].items()})
                )
    return tests
