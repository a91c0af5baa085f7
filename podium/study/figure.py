"""Figures of the studies as SVG: panels side by side, lines with bands, points with intervals, levels as dashed
lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import floor, isfinite, log10
from typing import NamedTuple

import numpy as np

from podium.interval import student
from podium.trace.columns import F

__all__ = ["INK", "PALE", "Line", "Panel", "band", "dots", "lines_of", "picture"]

COLOURS = (
    "#6d4aff",
    "#0a7d4f",
    "#d62728",
    "#b8860b",
    "#1f77b4",
    "#7a8a99",
    "#c2478f",
    "#333333",
    "#5aa9a3",
    "#8c564b",
    "#f08c3a",
    "#9ab800",
)
INK, PALE, GREY = "#1c2530", "#eef1f4", "#5b6b7b"
WIDE, HIGH, LEFT, TOP, UNDER = 400, 250, 58, 58, 42
Place = Callable[[float], float]


class Line(NamedTuple):
    """A name and its points: x, y and, where there is an interval, low and high."""

    name: str
    points: Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class Panel:
    """A title, what the axes are, lines (points are x, y and, with an interval, low and high), and levels to
    compare with."""

    title: str
    x: str
    lines: Sequence[Line]
    levels: Mapping[str, float] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    low: float | None = None
    high: float | None = None


def band(x: float, values: F) -> tuple[float, float, float, float]:
    """A point with the 95 % interval of its mean over seeds: m ± t(n - 1) s / √n."""
    there = values[~np.isnan(values)]
    n = len(there)
    mean = float(there.mean()) if n else float("nan")
    half = student(n - 1) * float(there.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
    return x, mean, mean - half, mean + half


def lines_of(name: str, xs: Sequence[float], curves: F) -> Line:
    """A line from curves, one a seed [seed, x]."""
    return Line(name, [band(float(x), curves[:, i]) for i, x in enumerate(xs)])


def picture(title: str, panels: Sequence[Panel]) -> str:
    """The panels in a row, a legend below. A name has one colour in all of them."""
    names = list(dict.fromkeys(line.name for p in panels for line in p.lines))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    width = 24 + (WIDE + LEFT) * len(panels)
    wide = max(230, 44 + 7 * max(map(len, names)))  # a name of the legend
    columns = max(1, (width - 48) // wide)
    height = TOP + HIGH + UNDER + 18 * -(-len(names) // columns) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(16, 22, title, 14, INK, weight=600),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, LEFT + number * (WIDE + LEFT), colour)
    for i, name in enumerate(names):
        x, y = 24 + wide * (i % columns), TOP + HIGH + UNDER + 18 * (i // columns) + 8
        parts.append(
            f'<line x1="{x}" x2="{x + 18}" y1="{y - 4}" y2="{y - 4}" stroke="{colour[name]}" stroke-width="3"/>'
        )
        parts.append(_text(x + 24, y, name, 12, INK))
    return "".join([*parts, "</svg>\n"])


def _text(x: float, y: float, words: str, size: int, fill: str, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{fill}">'
        f"{escape(words)}</text>"
    )


def _panel(panel: Panel, left: float, colour: Mapping[str, str]) -> list[str]:
    every = [p for line in panel.lines for p in line.points if isfinite(p[1])]
    ys = [v for p in every for v in p[1:] if isfinite(v)] + list(panel.levels.values())
    xs = [p[0] for p in every]
    x_low, x_high = (log10(f(xs)) if panel.log_x else f(xs) for f in (min, max))
    low, high = _limits(panel, ys)
    right = WIDE - 10.0

    def at_x(v: float) -> float:
        u = log10(v) if panel.log_x else v
        return left + (u - x_low) / max(x_high - x_low, 1e-12) * right

    def at_y(v: float) -> float:
        u = log10(max(v, 1e-12)) if panel.log_y else v
        return TOP + HIGH - (min(max(u, low), high) - low) / max(high - low, 1e-12) * HIGH

    parts = [_text(left, TOP - 14, panel.title, 12, INK)]
    for tick in _ticks(low, high, panel.log_y):
        parts.append(
            f'<line x1="{left}" x2="{left + right}" y1="{at_y(tick):.1f}" y2="{at_y(tick):.1f}" stroke="{PALE}"/>'
        )
        parts.append(_text(left - 6, at_y(tick) + 4, f"{tick:g}", 11, GREY, "end"))
    for tick in _shown(sorted(set(xs)), at_x):
        parts.append(_text(at_x(tick), TOP + HIGH + 16, f"{tick:g}", 11, GREY, "middle"))
    parts.append(_text(left + right / 2, TOP + HIGH + 32, panel.x, 11, INK, "middle"))
    for name, level in panel.levels.items():
        parts.append(
            f'<line x1="{left}" x2="{left + right}" y1="{at_y(level):.1f}" y2="{at_y(level):.1f}" stroke="{GREY}" '
            'stroke-dasharray="5 4"/>'
        )
        parts.append(_text(left + right, at_y(level) - 4, name, 10, GREY, "end"))
    for line in panel.lines:
        parts += _drawn(line, colour[line.name], at_x, at_y)
    return parts


def _limits(panel: Panel, ys: Sequence[float]) -> tuple[float, float]:
    if panel.log_y:
        there = [v for v in ys if v > 0]
        low, high = panel.low or min(there), panel.high or max(there)
        return log10(low) - 0.05, log10(high) + 0.05
    low = min(0.0, *ys) if panel.low is None else panel.low
    high = max(ys) if panel.high is None else panel.high
    return low, high + 0.04 * (high - low)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        powers = [10.0**k * m for k in range(floor(low), floor(high) + 1) for m in (1, 3)]
        return [p for p in powers if low <= log10(p) <= high]
    step = 10.0 ** floor(log10(max(high - low, 1e-9)))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if (high - low) / s <= 6)
    return [float(round(k * step, 10)) for k in range(int(np.ceil(low / step)), int(high / step + 1e-9) + 1)]


def _shown(xs: Sequence[float], at_x: Place) -> list[float]:
    """Those that have room for their number."""
    shown: list[float] = []
    for x in xs:
        if not shown or at_x(x) - at_x(shown[-1]) > 34:
            shown.append(x)
    return shown


def _drawn(line: Line, colour: str, at_x: Place, at_y: Place) -> list[str]:
    points = sorted(p for p in line.points if isfinite(p[1]))
    parts = []
    spread = [p for p in points if len(p) > 3 and isfinite(p[2])]
    if len(spread) > 1:
        edge = [f"{at_x(p[0]):.1f},{at_y(p[3]):.1f}" for p in spread]
        edge += [f"{at_x(p[0]):.1f},{at_y(p[2]):.1f}" for p in reversed(spread)]
        parts.append(f'<polygon points="{" ".join(edge)}" fill="{colour}" opacity="0.13"/>')
    if len(spread) == 1:
        [(x, _, low, high)] = spread
        parts.append(
            f'<line x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{at_y(low):.1f}" y2="{at_y(high):.1f}" '
            f'stroke="{colour}" stroke-width="5" opacity="0.3"/>'
        )
    path = " ".join(f"{at_x(p[0]):.1f},{at_y(p[1]):.1f}" for p in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    if len(points) <= 16:
        parts += [
            f'<circle cx="{at_x(p[0]):.1f}" cy="{at_y(p[1]):.1f}" r="2.6" fill="{colour}">'
            f"<title>{escape(line.name)}: {p[1]:.3g} at {p[0]:g}</title></circle>"
            for p in points
        ]
    return parts


def dots(title: str, x: str, rows: Sequence[tuple[str, float, float, float]], levels: Mapping[str, float]) -> str:
    """A row for each name: its mean as a point and its interval as a bar, over levels to compare with."""
    left, width, height = 250, 860, 60 + 20 * len(rows) + 40
    values = [v for _, *row in rows for v in row if isfinite(v)] + list(levels.values())
    low, high = min(0.0, *values), max(values)

    def at(v: float) -> float:
        return left + (v - low) / max(high - low, 1e-12) * (width - left - 24)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(16, 22, title, 14, INK, weight=600),
    ]
    for tick in _ticks(low, high, False):
        parts.append(f'<line x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="42" y2="{height - 34}" stroke="{PALE}"/>')
        parts.append(_text(at(tick), height - 20, f"{tick:g}", 11, GREY, "middle"))
    for name, level in levels.items():
        parts.append(
            f'<line x1="{at(level):.1f}" x2="{at(level):.1f}" y1="42" y2="{height - 34}" stroke="{INK}" '
            'stroke-dasharray="5 4"/>'
        )
        parts.append(_text(at(level), 38, name, 10, GREY, "middle"))
    for i, (name, mean, lower, upper) in enumerate(rows):
        y = 58 + 20 * i
        parts.append(_text(left - 10, y + 4, name, 11, INK, "end"))
        if isfinite(lower):
            parts.append(
                f'<line x1="{at(lower):.1f}" x2="{at(upper):.1f}" y1="{y}" y2="{y}" stroke="{COLOURS[0]}" '
                'stroke-width="3" opacity="0.35"/>'
            )
        parts.append(f'<circle cx="{at(mean):.1f}" cy="{y}" r="4" fill="{COLOURS[0]}"/>')
    parts.append(_text((left + width) / 2, height - 4, x, 11, INK, "middle"))
    return "".join([*parts, "</svg>\n"])
