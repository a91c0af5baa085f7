"""What the page asks for, and the answers: one table for the server and for the file that needs none.

A question is a name and some words, such as `run` and {"run": "3"}; its answer is JSON or a block of columns
(`bundle`). The page that is written as a file carries answers with it; the page that is served asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium import metrics
from podium.audit.report import report
from podium.credit import BadCredit, Credit
from podium.credit.at_unit import at_unit
from podium.credit.routing import broadcast
from podium.errors import WrongUse
from podium.graph import units
from podium.graph.grouping import take
from podium.methods import METHODS, credit_of
from podium.registry import alternatives
from podium.rewards.ledger import Now
from podium.trace import files
from podium.trace.columns import F, Trace, concat
from podium.trace.findings import Unreadable
from podium.view.bundle import CHUNK, event_chunk, pack, run_bundle, unit_bundle
from podium.view.clock import extent
from podium.view.compare import comparison
from podium.view.folder import Comparison
from podium.view.habits import HABITS
from podium.view.screen import screen
from podium.view.summary import RunSummary, summary
from podium.view.training import TrainingFolder, is_training

__all__ = ["Library", "NoAnswer", "json_of", "key_of"]

MOST_COMPARED = 2_000_000  # events of runs of one task that methods compare with each other
OWN = "own"
START = Now(0.0, ())  # where in training annealed rewards are read
SCREEN = 62  # letters of a line of the first screen


class NoAnswer(WrongUse, LookupError):
    """A question that cannot be answered; says why."""


def json_of(value: Any) -> bytes:
    """Strict JSON: NaN is null."""
    return msgspec.json.encode(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.to_builtins(value))
    return None if isinstance(value, float) and value != value else value


def key_of(name: str, words: Mapping[str, Any]) -> str:
    """A question as one string: the same for the page, the server and the file.

    >>> key_of("credit", {"run": 0, "method": "grpo"})
    'credit?method=grpo&run=0'
    """
    return name + ("?" if words else "") + "&".join(f"{k}={words[k]}" for k in sorted(words))


class Library:
    """The runs and trainings at some paths, and what can be asked about them."""

    def __init__(
        self, paths: Sequence[str | Path], runs: Iterable[tuple[str, Trace]] = (), content: bool = False
    ) -> None:
        """`content` keeps what was said in logs of other systems, redacted."""
        self.content = content
        self.paths = [str(path) for path in paths]
        self.extra = list(runs)
        self.read()

    def read(self) -> None:
        """Reads everything anew."""
        self.stamp = self.changed()
        before = getattr(self, "runs", [])
        self.runs: list[tuple[str, Trace]] = list(self.extra)
        self.trainings: list[TrainingFolder] = []
        self.kept_runs: list[range] = []  # of each training the runs that were kept
        self.unreadable: list[str] = []
        try:
            for path in self.paths:
                self._read_path(path)
        except (
            Unreadable,
            OSError,
        ) as error:  # what was there and is gone, or is being written, stays as it was read
            if not before:
                raise
            self.runs, self.unreadable = before, [f"not read again: {error}"]
        if not self.runs and not self.trainings and self.unreadable:
            raise Unreadable(self.paths[0], self.unreadable[0])
        self._same: list[int] = []
        self._summaries: dict[int, RunSummary] = {}
        self.last_credit: tuple[Trace, str, Credit] | None = None  # of which another unit may be asked next

    def _read_path(self, path: str) -> None:
        if not is_training(path):
            self._read_runs(path)
            return
        training = TrainingFolder(Path(path))
        runs = training.runs()
        self.kept_runs.append(range(len(self.runs), len(self.runs) + len(runs)))
        self.trainings.append(training)
        self.runs += runs

    def _read_runs(self, path: str) -> None:
        for one in files.read(path, keep=self.content):
            if one.trace is None or any(f.level == "error" for f in one.findings):
                why = next((str(f) for f in one.findings if f.level == "error"), "no run in it")
                self.unreadable.append(f"{one.file}: {why}")
                if one.trace is None:
                    continue
            assert one.trace is not None
            self.runs += [(one.file, run) for run in one.trace]

    def changed(self) -> str:
        """What tells whether something under the paths has changed since."""
        newest, size, count = 0.0, 0, 0
        for path in map(Path, self.paths):
            for file in [path, *(path.rglob("*") if path.is_dir() else ())]:
                try:
                    facts = file.stat()
                except OSError:
                    continue
                newest, size, count = max(newest, facts.st_mtime), size + facts.st_size, count + 1
        return f"{newest}/{size}/{count}"

    def answer(self, name: str, words: Mapping[str, str]) -> bytes:
        """The answer to a question. Raises NoAnswer."""
        if name not in QUESTIONS:
            raise NoAnswer(f"no question {name!r}; {alternatives(name, sorted(QUESTIONS))}")
        try:
            return QUESTIONS[name](self, words)
        except KeyError as error:
            raise NoAnswer(f"{name} needs {error}") from None
        except (WrongUse, ValueError) as error:
            raise NoAnswer(str(error)) from None

    def run(self, words: Mapping[str, str], name: str = "run") -> Trace:
        """The run that a question is about."""
        number = words[name]
        if not number.isdecimal() or int(number) >= len(self.runs):
            raise NoAnswer(f"there is no run {number}; there are {len(self.runs)}, numbered from 0")
        return self.runs[int(number)][1]

    def summary(self, words: Mapping[str, str]) -> RunSummary:
        """The first screen of a run, computed once."""
        trace, number = self.run(words), int(words["run"])
        if number not in self._summaries:
            self._summaries[number] = summary(trace)
        return self._summaries[number]

    def siblings(self, words: Mapping[str, str]) -> tuple[Trace, int]:
        """All runs of the same task and group as a run, which methods may compare, and its place among them."""
        own, number = self.run(words), int(words["run"])
        family = own.task_id_n[0], own.group_n[0]
        same = [i for i, (_, run) in enumerate(self.runs) if (run.task_id_n[0], run.group_n[0]) == family]
        if family[0] is None or sum(self.runs[i][1].n_events for i in same) > MOST_COMPARED:
            return own, 0
        if same != self._same:
            self._same, self._siblings = same, concat([self.runs[i][1] for i in same])
        return self._siblings, same.index(number)

    def index(self) -> dict[str, Any]:
        """What there is: a line for each run and each training, and the methods and units to choose from."""
        return {
            "runs": [_line(i, file, trace) for i, (file, trace) in enumerate(self.runs)],
            "trainings": [{"training": i, **t.line()} for i, t in enumerate(self.trainings)],
            "unreadable": self.unreadable,
            "methods": [
                {"name": row.name, "unit": row.unit, "reward": row.reward, "credit": row.credit}
                for row in METHODS.values()
                if row.credit
            ],
            "units": list(units.UNITS),
            "stamp": self.stamp,
        }


def _line(number: int, file: str, trace: Trace) -> dict[str, Any]:
    """One run in the table of runs. None where the record does not say."""
    times = extent(trace)
    tokens = [_total(getattr(trace, f"{name}_e")) for name in ("tokens_in", "tokens_out")]
    return {
        "run": number,
        "name": trace.trace_id_n[0],
        "task": trace.task_id_n[0],
        "file": Path(file).name,
        "folder": str(Path(file).parent),
        "topology": trace.topology(),
        "agents": trace.n_agents,
        "events": trace.n_events,
        "start": None if times is None else times[0],
        "wall_clock_s": None if times is None else times[1] - times[0],
        "tokens_in": tokens[0],
        "tokens_out": tokens[1],
        "cost": _total(trace.cost_e),
        "reward": float(trace.reward_n["team"][0]) if "team" in trace.reward_n else None,
        "group": trace.group_n[0],
        "parent": trace.parent_n[0],
        "branch": int(trace.branch_n[0]) if trace.branch_n[0] >= 0 else None,
        "do": trace.do_n[0],
        "activity": _activity(trace),
    }


def _total(values: F) -> float | None:
    """The sum of what was recorded; None where nothing was."""
    return None if np.isnan(values).all() else float(np.nansum(values))


def _activity(trace: Trace, bins: int = 40) -> list[int]:
    """Events in each of so many equal parts of the run's time: a picture the size of a word."""
    times = extent(trace)
    if times is None:
        return []
    known = trace.t_e[~np.isnan(trace.t_e)]
    return [
        int(n) for n in np.histogram(known, bins, (times[0], times[1] if times[1] > times[0] else times[0] + 1))[0]
    ]


def credit_columns(
    trace: Trace, method: str, unit: str, rollout: int = 0, paid: Credit | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The credit of a method to one of some runs that it may compare, for each of its events and units.

    `unit` is one of the eight, or "own": the one that the method pays. `paid` is its credit, if it is known.
    """
    if method not in METHODS:
        raise NoAnswer(f"no method called {method!r}; {alternatives(method, sorted(METHODS), 'method')}")
    if unit != OWN and unit not in units.UNITS:
        raise NoAnswer(f"no unit called {unit!r}; there are {', '.join(units.UNITS)}")
    row = METHODS[method]
    paid = credit_of(trace, row, START) if paid is None else paid
    own_unit, known = paid.unit, not np.isnan(paid.value[paid.rollout == rollout]).all()
    paid, unplaced = (paid, 0.0) if unit == OWN else _placed(paid, unit, rollout)
    own = paid.rollout == rollout
    value, rows = paid.value[own], paid.rows[own]
    if np.isnan(value).all():
        raise NoAnswer(f"{method} pays no {paid.unit} of this run: {_why(row.needs, known, own_unit)}")
    total = float(trace.reward_n["team"][rollout]) if "team" in trace.reward_n else np.nan
    first, last = trace.first_of("e")[rollout : rollout + 2].tolist()
    header = {
        "method": method,
        "unit": paid.unit,
        "reward": row.reward,
        "credit": row.credit,
        "team_reward": None if total != total else total,
        "paid": int((~np.isnan(value)).sum()),
        "units": len(value),
        "sum": float(np.nansum(value)),
        "own_unit": own_unit,
        "unplaced": unplaced,
        "compared_with": len(trace) - 1,
    }
    return header, {
        "event": _by_event(paid)[first:last].astype(np.float32),
        "row": np.where(rows < 0, -1, rows - first).astype(np.int32),
        "value": value,
    }


def _placed(paid: Credit, unit: str, rollout: int) -> tuple[Credit, float]:
    """Credit at another unit, and how much of one run's has no such unit to be shown at."""
    try:
        return at_unit(paid, unit), 0.0
    except BadCredit:
        if not units.finer(unit, paid.unit):
            raise
    inside = units.within(paid.trace, unit, paid.unit)
    empty = np.bincount(inside[inside >= 0], minlength=len(paid.value)) == 0
    return broadcast(paid, unit), float(np.nansum(paid.value[empty & (paid.rollout == rollout)]))


def _why(needs: Sequence[str], known: bool = False, unit: str = "") -> str:
    if known:
        return f"it pays by {unit}, and where a {unit} is not paid, or holds none, no sum is known"
    return f"it needs {', '.join(needs)}" if needs else "its group has no other run here"


def _by_event(paid: Credit) -> F:
    """For each event the credit of its unit; for tokens the mean of those that the event owns."""
    if paid.unit != "token":
        return take(paid.value, units.place(paid.trace, paid.unit))
    owner, known = paid.trace.owner_k, ~np.isnan(paid.value)
    count = np.bincount(owner[known], minlength=paid.trace.n_events)
    total = np.bincount(owner[known], paid.value[known], minlength=paid.trace.n_events)
    mean: F = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def _credit(library: Library, words: Mapping[str, str]) -> bytes:
    trace, rollout = library.siblings(words)
    method, last = words["method"], library.last_credit
    if method in METHODS and (last is None or last[0] is not trace or last[1] != method):
        library.last_credit = last = (trace, method, credit_of(trace, METHODS[method], START))
    return pack(*credit_columns(trace, method, words["unit"], rollout, None if last is None else last[2]))


def _payable(library: Library, words: Mapping[str, str]) -> bytes:
    """Which methods pay something of a run, and why the others do not."""
    trace, rollout = library.siblings(words)
    paid, refused = [], {}
    for name, row in METHODS.items():
        if not row.credit:
            continue
        try:
            credit = credit_of(trace, row, START)
        except (BadCredit, WrongUse, ValueError) as error:
            refused[name] = str(error)
            continue
        own = credit.value[credit.rollout == rollout]
        if many := int((~np.isnan(own)).sum()):
            paid.append({"method": name, "unit": credit.unit, "paid": many, "units": len(own)})
        else:
            refused[name] = _why(row.needs)
    return json_of({"paid": paid, "refused": refused})


def _summary(library: Library, words: Mapping[str, str]) -> bytes:
    """The first screen: as data, and in the words of the terminal."""
    facts = library.summary(words)
    lines = [line.plain for line in screen(facts, SCREEN)]
    return json_of({"facts": msgspec.to_builtins(facts), "lines": lines, "habits": HABITS})


def _folder(library: Library, words: Mapping[str, str]) -> bytes:
    """What all runs together cost, by day and project, and the habits that cost most."""
    many = Comparison()
    for number, (file, _) in enumerate(library.runs):
        many.add(library.summary({"run": str(number)}), file)
    return json_of(msgspec.to_builtins(many.data()))


def _audit(library: Library, words: Mapping[str, str]) -> bytes:
    trace = library.run(words)
    return json_of(report(trace, most=200))


def _metrics(library: Library, words: Mapping[str, str]) -> bytes:
    return json_of([one.plain() for one in metrics.measure(library.run(words))])


def _training(library: Library, words: Mapping[str, str]) -> bytes:
    number = words["training"]
    if not number.isdecimal() or int(number) >= len(library.trainings):
        raise NoAnswer(f"there is no training {number}; there are {len(library.trainings)}")
    training = library.trainings[int(number)]
    runs = [
        {
            "run": i,
            "file": Path(file).name,
            "name": trace.trace_id_n[0],
            "iteration": training.iteration(file),
            "reward": float(trace.reward_n["team"][0]) if "team" in trace.reward_n else None,
        }
        for i in library.kept_runs[int(number)]
        for file, trace in [library.runs[i]]
    ]
    return json_of(training.facts() | {"runs": runs})


def _events(library: Library, words: Mapping[str, str]) -> bytes:
    chunk = words["chunk"]
    if not chunk.isdecimal():
        raise NoAnswer(f"expected the number of a chunk of {CHUNK} events, got {chunk!r}")
    return json_of(event_chunk(library.run(words), int(chunk)))


QUESTIONS: dict[str, Callable[[Library, Mapping[str, str]], bytes]] = {
    "index": lambda library, words: json_of(library.index()),
    "run": lambda library, words: run_bundle(library.run(words)),
    "events": _events,
    "units": lambda library, words: unit_bundle(library.run(words)),
    "summary": _summary,
    "folder": _folder,
    "credit": _credit,
    "payable": _payable,
    "audit": _audit,
    "metrics": _metrics,
    "compare": lambda library, words: json_of(comparison(library.run(words, "a"), library.run(words, "b"))),
    "training": _training,
}
