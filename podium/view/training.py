"""Training runs on disk and reports, as the page shows them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podium.trace import files
from podium.trace.columns import Trace
from podium.trace.findings import BadTrace, Unreadable

__all__ = [
    "Lesson",
    "TrainingFolder",
    "board_page",
    "is_training",
    "lessons_page",
    "markdown",
    "report_page",
    "run_page",
]

KEPT = re.compile(r"(?:kept/(\d+)/0|sampled/(\d+)|traces/(\d+)\.\d+)\.jsonl")  # where runs of an iteration are
KEPT_RUNS, KEPT_BYTES = 3, 1 << 20  # of a file of many runs as many are shown
BOARD_NOTES = (
    "The gap lies between the best trivial policy and the optimum: 0 % is the optimum, 100 % is nothing learned.",
    "A figure is a mean over seeds with its 95 % interval. Paid is the share of decisions that got credit.",
)


class Lesson(NamedTuple):
    """One decision that was learned: its row of the table, its iterations, and a run before and after."""

    title: str
    lines: Sequence[Mapping[str, Any]]
    before: Trace
    after: Trace


def is_training(path: str | Path) -> bool:
    """Whether a folder is that of a training run."""
    folder = Path(path)
    return (folder / "asked.json").is_file() and (folder / "iterations.jsonl").is_file()


class TrainingFolder:
    """The folder of a training run, be it over or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def line(self) -> dict[str, Any]:
        """It in a table of trainings."""
        lines = self.lines
        regrets = [line["regret"] for line in lines if line.get("regret") is not None]
        return {"name": self.folder.name, "iterations": len(lines), "regret": regrets[-1] if regrets else None}

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What every iteration did; a line that is still being written is left out."""
        whole = (self.folder / "iterations.jsonl").read_bytes().split(b"\n")[:-1]
        return [msgspec.json.decode(line) for line in whole]

    def facts(self) -> dict[str, Any]:
        """The recipe, the iterations, and how it was judged, if it was."""
        judged = self.folder / "judged.json"
        return {
            "going": not judged.exists(),
            "table_title": "In worlds that it did not learn from",
            "title": self.folder.name,
            "facts": msgspec.json.decode((self.folder / "asked.json").read_bytes()),
            "table": msgspec.json.decode(judged.read_bytes()) if judged.exists() else [],
            "lessons": [{"title": self.folder.name, "lines": self.lines}],
        }

    def runs(self) -> list[tuple[str, Trace]]:
        """The runs that were kept: those before and after, and the first of each kept iteration."""
        files_of = sorted(self.folder.glob("*.jsonl"), key=lambda file: file.name != "before.jsonl")
        later = [
            file for place in ("kept/*/0", "sampled/*", "traces/*") for file in self.folder.glob(f"{place}.jsonl")
        ]
        return [
            (str(file), run)
            for file in (*files_of, *sorted(later, key=lambda file: (self.iteration(file) or 0, file.name)))
            if file.name not in ("iterations.jsonl", "seconds.jsonl")
            for run in _first_runs(file, file.stat().st_size, file.stat().st_mtime)
        ]

    def iteration(self, file: str | Path) -> int | None:
        """The iteration, from 0, that the runs of a file are of; None for those before and after training."""
        place = KEPT.fullmatch(Path(file).relative_to(self.folder).as_posix())
        return None if place is None else int(place[1] or place[2] or place[3])


@lru_cache(512)
def _first_runs(file: Path, size: int, changed: float) -> list[Trace]:
    """The first few runs of a log. Size and time are asked for so that a file that changed is read again."""
    with file.open("rb") as log, tempfile.TemporaryDirectory() as folder:
        start = log.read(KEPT_BYTES)
        heads = [found.start() for found in re.finditer(rb'^\{"podium_log"', start, re.MULTILINE)]
        if len(heads) > KEPT_RUNS or (size > KEPT_BYTES and len(heads) > 1):
            file = Path(folder) / file.name
            file.write_bytes(start[: heads[min(KEPT_RUNS, len(heads) - 1)]])
        try:
            return list(files.load(file))
        except (Unreadable, BadTrace):
            return []


def report_page(
    title: str,
    table: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    lessons: Sequence[Lesson],
    **words: str | Sequence[str],
) -> str:
    """A report as one self-contained page.

    `words` may have `notes`, sentences above the table, and the headings `table_title` and `facts_title`.
    """
    from podium.view.page import file_page  # the page shows runs, which a report has some of

    runs = [(f"{lesson.title}: {when}", run) for lesson in lessons for when, run in _two(lesson)]
    numbers = iter(range(len(runs)))
    report = {
        **words,
        "title": title,
        "facts": facts,
        "table": list(table),
        "lessons": [
            {"title": lesson.title, "lines": list(lesson.lines), "before": next(numbers), "after": next(numbers)}
            for lesson in lessons
        ],
    }
    return file_page(runs, title=title, report=report)


def _two(lesson: Lesson) -> list[tuple[str, Trace]]:
    return [("before", lesson.before[0]), ("after", lesson.after[0])]


def run_page(facts: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], before: Trace, after: Trace) -> str:
    """The page of a training run, in a world or of a live team."""
    name = facts["world"] if "world" in facts else facts["team"]
    title = f"Training in {name}" if "world" in facts else f"Training the team {name}"
    return report_page(
        title, [], facts, [Lesson(name, lines, before, after)], facts_title="The recipe and how it ended"
    )


def lessons_page(title: str, rows: Sequence[Mapping[str, Any]], lessons: Sequence[Lesson]) -> str:
    """One table, then every decision with its curve and its two runs."""
    return report_page(title, rows, {}, lessons)


def board_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Methods side by side."""
    return report_page("Methods side by side", rows, {}, [], notes=BOARD_NOTES, table_title="By method and world")


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a markdown table."""
    if not rows:
        return "no method could be trained\n"
    head = [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
    return "\n".join([*head, *(f"| {' | '.join(_shown(v) for v in row.values())} |" for row in rows)]) + "\n"


def _shown(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " to ".join(_shown(v) for v in value)
    return str(value)
