"""Figures in words: times, tokens, prices, shares; and columns of text that fit a width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text as Line

from podium.plain import plain

__all__ = ["UNKNOWN", "amount", "columns", "cut", "dollars", "percent", "span", "tokens", "wrapped"]

UNKNOWN = "not recorded"


def span(seconds: float) -> str:
    """A time.

    >>> span(4.26), span(75), span(5029), span(260_000), span(float("nan"))
    ('4.3 s', '1 min 15 s', '1 h 24 min', '3 d 0 h', 'not recorded')
    """
    if seconds != seconds:
        return UNKNOWN
    if seconds < 59.5:
        return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 3570:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min" + (f" {rest} s" if rest and minutes < 10 else "")
    if seconds < 86_370:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h"


def tokens(count: float) -> str:
    """A number of tokens.

    >>> tokens(950), tokens(12_345), tokens(9_200_710), tokens(float("nan"))
    ('950', '12.3k', '9.20M', '?')
    """
    if count != count:
        return "?"
    if count < 1000:
        return f"{count:.0f}"
    if count < 999_500:
        return f"{count / 1e3:.1f}k" if count < 99_950 else f"{count / 1e3:.0f}k"
    return f"{count / 1e6:.2f}M" if count < 99_950_000 else f"{count / 1e6:.0f}M"


def dollars(usd: float, at_least: bool = False) -> str:
    """A price. What is not known in full is at least so much.

    >>> dollars(8.349), dollars(0.0042), dollars(0), dollars(8.349, True), dollars(float("nan"))
    ('$8.35', '$0.0042', '$0', '≥ $8.35', 'no price')
    """
    if usd != usd:
        return "no price"
    figure = "$0" if usd == 0 else f"${usd:,.2f}" if usd >= 0.01 else f"${usd:.2g}"
    return f"≥ {figure}" if at_least else figure


def percent(part: float, whole: float) -> str:
    """A share.

    >>> percent(1, 3), percent(1, 1000), percent(1, 0), percent(float("nan"), 1)
    ('33 %', '<1 %', '', '')
    """
    if not whole > 0 or part != part:
        return ""
    share = 100 * part / whole
    return "<1 %" if 0 < share < 0.5 else f"{share:.0f} %"


def amount(count: float, one: str, many: str = "") -> str:
    """So many of something.

    >>> amount(1, "call"), amount(2_000, "call"), amount(2, "try", "tries")
    ('1 call', '2,000 calls', '2 tries')
    """
    return f"{count:,.0f} {one if round(count) == 1 else many or one + 's'}"


def cut(text: str, width: int) -> str:
    """A text in so much room, with an ellipsis where it has none.

    >>> cut("a line of text", 9), cut("short", 9)
    ('a line o…', 'short')
    """
    safe = plain(text)
    return safe if cell_len(safe) <= width else set_cell_size(safe, max(width - 1, 0)).rstrip() + "…"


def columns(
    rows: Sequence[Sequence[str]], width: int, right: str, wide: int = 0, head: bool = True, indent: int = 0
) -> list[Line]:
    """Rows as lines of text: `right` has an r for each column that is set right, the column `wide` gets what room
    is left.

    >>> for line in columns([["name", "s"], ["a long name", "12"], ["b", "3"]], 11, "lr"):
    ...     print(line.plain)
    name      s
    a long…  12
    b         3
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    sizes = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    gap = 2
    room = width - indent - sum(size + gap for size in sizes) + sizes[wide] + gap
    sizes[wide] = max(4, min(sizes[wide], room))
    lines = []
    for number, row in enumerate(cells):
        parts = []
        for i, (cell, size) in enumerate(zip(row, sizes, strict=True)):
            shown = cut(cell, size)
            pad = " " * (size - cell_len(shown))
            parts.append(pad + shown if right[i] == "r" else shown + pad)
        text = cut(" " * indent + (" " * gap).join(parts).rstrip(), width)
        lines.append(Line(text, style="dim" if head and not number else ""))
    return lines


def wrapped(text: str, width: int, indent: int = 2, style: str = "") -> Iterator[Line]:
    """A sentence in as many lines as it needs."""
    lines, room = [""], width - indent
    for word in plain(text).split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    yield from (Line(" " * indent + cut(line, room), style=style) for line in lines)
