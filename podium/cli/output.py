"""How an answer is printed: as strict JSON, or as a table that fits the screen; and how work is followed until
there is one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any, Protocol

import msgspec
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text as Line

from podium.plain import plain
from podium.trace.files import Read
from podium.trace.findings import Finding, Unreadable

__all__ = ["UNREADABLE", "out", "print_rows", "print_table", "progress", "read_all", "reading", "say", "wrap"]

out = Console(highlight=False, soft_wrap=True)

GAP = 2  # blanks between columns
NARROW = 16  # a column of text is folded to no less
UNREADABLE = "unreadable"  # the rule of a finding that says why a path cannot be read
LOG_FAULTS = ("log-fault", "log-unknown")  # rules of what is wrong with a log of another system
SECONDS = 2.0  # between lines that say how far work is, off a terminal
BLANKS = re.compile(r"(?<=\s)")  # where a line is broken ...
MARKS = re.compile(r"(?<=[\s,(\[/|])")  # ... and where one without a blank is: never inside a name


def say(value: Any) -> None:
    """Strict JSON on one line; NaN is null."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.flush()


# ---- tables


def print_rows(rows: list[dict[str, Any]], json: bool, names: list[str]) -> None:
    if json:
        say(rows)
        return
    print_table(names, [[Line("" if v is None else plain(v)) for v in row.values()] for row in rows])


def print_table(names: Sequence[str], rows: Iterable[Sequence[str | Line]], *, head: bool = True) -> None:
    """A table as wide as the screen allows: long text is folded between words; where even that has no room, each
    row is a list of `name: value`."""
    cells = [[cell if isinstance(cell, Line) else Line(cell) for cell in row] for row in rows]
    widths = column_widths([list(names) if head else [""] * len(names), *([c.plain for c in row] for row in cells)])
    if widths is None:
        _print_stacked(names, cells)
        return
    table = Table(box=None, show_header=head, pad_edge=False, padding=(0, GAP, 0, 0))
    for name, width in zip(names, widths, strict=True):
        table.add_column("\n".join(wrap(name, width)), width=width, no_wrap=True, overflow="ignore")
    for row in cells:
        table.add_row(*(Line("\n".join(wrap(c.plain, w)), style=c.style) for c, w in zip(row, widths, strict=True)))
    out.print(table)


def column_widths(rows: Sequence[Sequence[str]], room: int | None = None) -> list[int] | None:
    """Of each column its width in so much room, so that no word is cut; None if there is none such.

    >>> rows = [["name", "about"], ["ann", "a line of text that goes on for long"]]
    >>> column_widths(rows, 80), column_widths(rows, 30), column_widths(rows, 15)
    ([4, 36], [4, 22], None)
    """
    columns = list(zip(*rows, strict=True))
    free = (out.width if room is None else room) - GAP * len(columns)
    want = [max(map(cell_len, column)) for column in columns]
    if sum(want) <= free:
        return want
    word = [max(cell_len(p.strip()) for cell in column for p in MARKS.split(cell)) for column in columns]
    width = [min(most, max(least, NARROW)) for most, least in zip(want, word, strict=True)]
    if sum(width) > free:
        return None
    for _ in range(free - sum(width)):
        widest = max(range(len(width)), key=lambda i: want[i] / max(width[i], 1))
        width[widest] += 1
    return width


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of text, broken between words; those after the first are indented. Only a word longer than a line is
    cut.

    >>> wrap("outcome: zscore(by='task') >> to('turn')", 18, "  ")
    ['outcome: zscore(', "  by='task') >>", "  to('turn')"]
    """
    room, lines = max(width - len(indent), 1), [""]
    for piece in (p for word in BLANKS.split(text) for p in _pieces(word, room)):
        if cell_len(lines[-1] + piece.rstrip()) > width and lines[-1].strip():
            lines.append(indent)
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(word: str, room: int) -> list[str]:
    """A word; where it has no room, its parts between marks, and what of them has none is cut."""
    if cell_len(word.rstrip()) <= room:
        return [word]
    return [
        cut for part in MARKS.split(word) for cut in (chop_cells(part, room) if cell_len(part) > room else [part])
    ]


def _print_stacked(names: Sequence[str], rows: Sequence[Sequence[Line]]) -> None:
    """Each row as lines `name: value`, the first at the margin; what is empty has no line."""
    for row in rows:
        for i, (name, cell) in enumerate(zip(names, row, strict=True)):
            if cell.plain:
                text = f"{'  ' * (i > 0)}{name}{': ' * bool(name)}{cell.plain}"
                for line in wrap(text, out.width, "    "):
                    out.print(Line(line, style=cell.style))


# ---- work that takes a while


class Tell(Protocol):
    """Says how far work is: in a line, which on a terminal may be shown as something else."""

    def __call__(self, text: str, shown: Any = None) -> None: ...


@contextmanager
def progress(json: bool, every: float = SECONDS) -> Iterator[Tell]:
    """How far work is: on a terminal in a place that is renewed; else, and with --json, as lines of standard error,
    not more often than so many seconds."""
    if out.is_terminal and not json:
        with Live(console=out, auto_refresh=False, transient=True, redirect_stdout=False) as live:

            def show(text: str, shown: Any = None) -> None:
                live.update(Line(text) if shown is None else shown, refresh=True)

            yield show
        return
    last = float("-inf")

    def tell(text: str, shown: Any = None) -> None:
        nonlocal last
        if (now := monotonic()) - last >= every:
            last = now
            print(plain(text), file=sys.stderr, flush=True)

    yield tell


@contextmanager
def reading() -> Iterator[Callable[[int], None]]:
    """Says on a terminal how much of a log has been read."""
    screen = Console(stderr=True)
    read = 0
    with screen.status("reading") if screen.is_terminal else nullcontext() as status:

        def told(n: int) -> None:
            nonlocal read
            read += n
            if status is not None:
                status.update(f"read {read / 1e6:,.0f} MB")

        yield told


def read_all(
    paths: Iterable[Any],
    read: Callable[[Any], Iterable[Read]],
    findings: list[Finding],
    json: bool,
    *,
    faults: bool = False,
) -> Iterator[Read]:
    """The runs at these paths. What is wrong with them is added to the findings and, unless the answer is JSON,
    printed as it comes; so is a path that cannot be read, as a finding of the rule `unreadable`. `faults`: only
    errors and what is wrong with a log."""
    for path in paths:
        try:
            for one in read(path):
                yield one
                wrong = [f for f in one.findings if not faults or f.level == "error" or f.rule in LOG_FAULTS]
                findings += wrong
                for finding in () if json else wrong:
                    out.print(Line(plain(finding), style="red" if finding.level == "error" else "yellow"))
        except Unreadable as error:
            findings.append(Finding(error.file, None, UNREADABLE, "error", error.why))
            if not json:
                print(f"podium: {plain(error)}", file=sys.stderr)
