"""What was learned, as self-contained HTML pages: curves, a table, and one run before and one after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple

from podium.trace.columns import Trace
from podium.view.page import picture

__all__ = ["Lesson", "board_page", "lessons_page", "markdown", "run_page"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 260, 64, 24, 34, 40
INK, PALE, RULE = "#1c2530", "#5b6b7b", "#eef1f4"
COLOURS = ("#6d4aff", "#0b8a5f", "#c2571a", "#1f6fb2", "#a3247a", "#7a6a00")


class Lesson(NamedTuple):
    """One decision that was learned: its row of the table, its iterations, and a run before and after."""

    title: str
    lines: Sequence[Mapping[str, Any]]
    before: Trace
    after: Trace


def run_page(told: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], before: Trace, after: Trace) -> str:
    """The page of a training run, in a world or of a live team."""
    rows = [{"": k.replace("_", " "), " ": v} for k, v in told.items()]
    name = told["world"] if "world" in told else told["team"]
    title = f"Training in {name}" if "world" in told else f"Training the team {name}"
    return _page(title, _table(rows), [Lesson(name, lines, before, after)])


def lessons_page(title: str, rows: Sequence[Mapping[str, Any]], lessons: Sequence[Lesson]) -> str:
    """One table, then every decision with its curve and its two runs."""
    return _page(title, _table(rows), lessons)


def board_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The leader-board."""
    return _page("Methods side by side", _table(rows), [])


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same as a markdown table."""
    if not rows:
        return "no method could be trained\n"
    head = [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
    return "\n".join([*head, *(f"| {' | '.join(_shown(v) for v in row.values())} |" for row in rows)]) + "\n"


def _page(title: str, table: str, lessons: Sequence[Lesson]) -> str:
    parts = [
        f"<h2>{escape(lesson.title)}</h2>{curve(lesson.lines)}{details(lesson.lines)}"
        f"<p>One run before training:</p>{picture(lesson.before)}"
        f"<p>The same luck after training:</p>{picture(lesson.after)}"
        for lesson in lessons
    ]
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · Podium</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; color: {INK}; }}
svg {{ width: 100%; height: auto; border: 1px solid #e1e6eb; border-radius: 6px; }}
table {{ border-collapse: collapse; margin: 1rem 0; }} th, td {{ text-align: left; padding: .25rem 1rem .25rem 0;
vertical-align: top; border-bottom: 1px solid {RULE}; font-weight: normal; }} th {{ color: {PALE}; }}
</style>
<h1>{escape(title)}</h1>
{table}
{"".join(parts)}
</html>
"""


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>Nothing was trained.</p>"
    head = "".join(f"<th>{escape(str(k).replace('_', ' '))}</th>" for k in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(_shown(v))}</td>' for v in row.values())}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _shown(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " to ".join(_shown(v) for v in value)
    return str(value)


def curve(lines: Sequence[Mapping[str, Any]]) -> str:
    """The regret by iteration, wherever it was looked at: (V* - V) / |V*| in a world of training that is not trained on."""
    points = [(line["iteration"] + 1, line["regret"]) for line in lines if line["regret"] is not None]
    if not points:
        return "<p>Nothing was looked at on the way.</p>"
    return chart("regret while it learned", {"": points}, percent=True)


def details(lines: Sequence[Mapping[str, Any]]) -> str:
    """What was decided by iteration, one chart a kind of decision; where several roles learn, the length of each one's gradient; and of a live team
    what its runs earned, and the gradient and the credit of each role on its own."""
    kinds, charts = sorted({name for line in lines for name in line["mix"]}), []
    live = bool(lines) and "roles" in lines[0]
    if live:
        charts.append(chart("reward of its runs", {"": [(line["iteration"] + 1, line["score"]) for line in lines]}))
    for kind in kinds:
        told = [(line["iteration"] + 1, line["mix"][kind]["options"]) for line in lines if kind in line["mix"]]
        words = sorted({word for _, options in told for word in options})
        if 1 < len(words) <= len(COLOURS):
            shares = {word: [(x, options.get(word, 0.0)) for x, options in told] for word in words}
            charts.append(chart(f"{kind}: share of each option", shares, percent=True))
    if not live:
        return "".join(
            [*charts, _by_role("length of the gradient of each role", lines, lambda line: line["gradients"])]
        )
    for what, title in (("gradient", "length of the gradient"), ("credit", "root mean square of the credit")):
        charts.append(_by_role(f"{title} of each role", lines, partial(_of_roles, what)))
    return "".join(charts)


def _of_roles(what: str, line: Mapping[str, Any]) -> dict[str, float]:
    return {role: told[what] for role, told in line["roles"].items()}


def _by_role(
    title: str, lines: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], Mapping[str, float]]
) -> str:
    """A line for each role, where there are several."""
    points: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        for role, figure in sorted(of(line).items()):
            points.setdefault(role, []).append((line["iteration"] + 1, figure))
    return chart(title, dict(sorted(points.items()))) if len(points) > 1 else ""


def chart(title: str, series: Mapping[str, Sequence[tuple[float, float]]], percent: bool = False) -> str:
    """Lines over iterations, each with its name."""
    points = [point for line in series.values() for point in line]
    last, top = max(x for x, _ in points), max(0.01, *(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / last, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(
            y, 0.0
        ) / top

    ruled = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at(0, t)[1]:.1f}" y2="{at(0, t)[1]:.1f}" stroke="{RULE}"/>'
        f'<text x="{LEFT - 8}" y="{at(0, t)[1] + 4:.1f}" font-size="11" text-anchor="end" fill="{PALE}">'
        f"{f'{t:.1%}' if percent else f'{t:.3g}'}</text>"
        for t in (top * k / 4 for k in range(5))
    )
    drawn = ""
    for i, (name, line) in enumerate(series.items()):
        way = " ".join(f"{at(x, y)[0]:.1f},{at(x, y)[1]:.1f}" for x, y in line)
        drawn += f'<polyline points="{way}" fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="2"/>'
        drawn += "".join(
            f'<circle cx="{at(x, y)[0]:.1f}" cy="{at(x, y)[1]:.1f}" r="3" fill="{COLOURS[i % len(COLOURS)]}"/>'
            for x, y in line
        )
        drawn += f'<text x="{LEFT + 110 * i}" y="{HEIGHT - 12}" font-size="11" fill="{COLOURS[i % len(COLOURS)]}">{escape(name)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="system-ui, sans-serif">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        f'<text x="{LEFT}" y="20" font-size="13" font-weight="600" fill="{INK}">{escape(title)}</text>{ruled}{drawn}'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" font-size="11" text-anchor="end" fill="{PALE}">iteration {last}</text></svg>'
    )
