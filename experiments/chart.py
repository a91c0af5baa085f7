"""Lines over a logarithmic axis as an SVG picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import isfinite, log10

from podium.study.figure import INK, PALE, Line

__all__ = ["chart"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 380, 64, 290, 40, 46
COLOURS = ("#6d4aff", "#0a7d4f", "#1f77b4", "#b8860b", "#d62728", "#7a8a99")


def chart(title: str, x: str, y: str, lines: Sequence[Line], log_y: bool = False, least_x: float = 0.0) -> str:
    """The picture. x is logarithmic, with what is below `least_x` drawn there (an axis has no place for 0)."""
    shown = [(line, sorted(p for p in line.points if isfinite(p[1]))) for line in lines]
    every = [p for _, points in shown for p in points]
    xs = [log10(max(p[0], least_x)) for p in every]
    low_x, high_x = min(xs), max(xs)
    low_y, high_y = _range([v for p in every for v in p[1:] if isfinite(v)], log_y)

    def at_x(v: float) -> float:
        return LEFT + (log10(max(v, least_x)) - low_x) / max(high_x - low_x, 1e-9) * (WIDTH - LEFT - RIGHT)

    def at_y(v: float) -> float:
        v = log10(max(v, 10**low_y)) if log_y else min(max(v, low_y), high_y)
        return HEIGHT - BOTTOM - (v - low_y) / max(high_y - low_y, 1e-9) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14" font-weight="600" fill="{INK}">{escape(title)}</text>',
        *_axes(sorted({p[0] for p in every}), low_y, high_y, log_y, at_x, at_y),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" font-size="12" text-anchor="middle" '
        f'fill="{INK}">{escape(x)}</text>',
        f'<text x="14" y="{(TOP + HEIGHT - BOTTOM) / 2}" font-size="12" text-anchor="middle" fill="{INK}" '
        f'transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2})">{escape(y)}</text>',
    ]
    for number, (line, points) in enumerate(shown):
        parts += _line(line.name, points, number, at_x, at_y)
    return "".join([*parts, "</svg>\n"])


def _range(values: list[float], log_y: bool) -> tuple[float, float]:
    if not log_y:
        return min(0.0, min(values)), max(1.0 if max(values) <= 1 else max(values), 1e-9)
    there = [v for v in values if v > 0]
    return log10(min(there)) - 0.1, log10(max(there)) + 0.1


Place = Callable[[float], float]


def _axes(xs: list[float], low_y: float, high_y: float, log_y: bool, at_x: Place, at_y: Place) -> list[str]:
    if log_y:
        ticks = [10.0**k for k in range(-9, 9) if low_y <= k <= high_y]
    else:
        ticks = [k / 5 for k in range(-5, 6) if low_y <= k / 5 <= high_y]
    grid = [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(t):.1f}" y2="{at_y(t):.1f}" stroke="{PALE}"/>'
        f'<text x="{LEFT - 8}" y="{at_y(t) + 4:.1f}" font-size="11" text-anchor="end" fill="{INK}">{t:g}</text>'
        for t in ticks
    ]
    return grid + [
        f'<text x="{at_x(v):.1f}" y="{HEIGHT - BOTTOM + 18}" font-size="11" text-anchor="middle" '
        f'fill="{INK}">{_short(v)}</text>'
        for v in xs
    ]


def _short(value: float) -> str:
    return f"{value:g}" if value == int(value) else f"{value:.2g}"


def _line(name: str, points: list[tuple[float, ...]], number: int, at_x: Place, at_y: Place) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    parts = []
    band = [p for p in points if len(p) > 3 and isfinite(p[2]) and isfinite(p[3])]
    if band:
        up = [f"{at_x(p[0]):.1f},{at_y(p[3]):.1f}" for p in band]
        down = [f"{at_x(p[0]):.1f},{at_y(p[2]):.1f}" for p in reversed(band)]
        parts.append(f'<polygon points="{" ".join(up + down)}" fill="{colour}" opacity="0.12"/>')
    path = " ".join(f"{at_x(p[0]):.1f},{at_y(p[1]):.1f}" for p in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts += [
        f'<circle cx="{at_x(p[0]):.1f}" cy="{at_y(p[1]):.1f}" r="3" fill="{colour}"><title>{escape(name)}: '
        f"{p[1]:.3g} at {p[0]:g}</title></circle>"
        for p in points
    ]
    y, x = TOP + 16 + 20 * number, WIDTH - RIGHT + 20
    parts.append(f'<line x1="{x}" x2="{x + 18}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
    parts.append(f'<text x="{x + 26}" y="{y}" font-size="12" fill="{INK}">{escape(name)}</text>')
    return parts
