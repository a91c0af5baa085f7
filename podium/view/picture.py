"""A small run as a picture (SVG), for pages that hold no program: the docs."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from podium import graph
from podium.trace.columns import Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES, edge

__all__ = ["picture"]

COLOURS = {
    "orchestrator_decision": "#6d4aff",
    "spawn": "#0a7d4f",
    "despawn": "#7a8a99",
    "message": "#1f77b4",
    "tool_call": "#b8860b",
    "tool_result": "#d9a441",
    "return": "#17807e",
    "aggregate": "#a0307a",
    "human_intervention": "#333333",
    "safety_event": "#d62728",
}
WIDTH, LANE, TOP, LEFT = 960, 30, 34, 150
MOST_LANES, MOST_EVENTS = 60, 4000


def picture(trace: Trace) -> str:
    """The swim lanes of one run as SVG."""
    shown_e = np.flatnonzero(~np.isnan(trace.t_e))[:MOST_EVENTS]
    if not len(shown_e):
        return "<p>No event says when it happened, so there is nothing to draw.</p>"
    acting, first = np.unique(trace.agent_e[shown_e], return_index=True)
    order = acting[np.argsort(first)][:MOST_LANES].tolist()
    lane = {agent: i for i, agent in enumerate(order)}
    shown_e = shown_e[np.isin(trace.agent_e[shown_e], order)]
    start = float(trace.t_e[shown_e].min())
    end = float(max(trace.t_e[shown_e].max(), np.nanmax([start, *trace.end_e[shown_e]])))
    scale = (WIDTH - LEFT - 30) / ((end - start) or 1.0)

    def x(t: float) -> float:
        return LEFT + (t - start) * scale

    def y(row: int) -> float:
        return TOP + LANE * lane[int(trace.agent_e[row])] + LANE / 2

    height = TOP + LANE * len(order) + 56
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    parts += _lanes(trace, order)
    parts += _edges(trace, set(shown_e.tolist()), x, y)
    parts += _events(trace, shown_e, x, y)
    parts += _foot(trace, shown_e, len(order), height, start, end)
    return "".join([*parts, "</svg>"])


def _lanes(trace: Trace, order: list[int]) -> list[str]:
    parts = []
    for i, agent in enumerate(order):
        middle = TOP + LANE * i + LANE / 2
        name = escape(str(trace.name_a[agent]))
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{middle}" y2="{middle}" stroke="#eef1f4"/>')
        shown = name if len(name) <= 20 else name[:19] + "…"
        parts.append(
            f'<text x="{LEFT - 12}" y="{middle + 4}" font-size="12" text-anchor="end" fill="#1c2530">{shown}</text>'
        )
    return parts


def _edges(trace: Trace, shown_e: set[int], x: Any, y: Any) -> list[str]:
    parts = []
    for s, d, kind in zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True):
        if s in shown_e and d in shown_e and kind != edge("temporal") and trace.agent_e[s] != trace.agent_e[d]:
            title = f"<title>{EDGE_TYPES[kind]}</title>"
            leaves = trace.end_e[s] if trace.t_e[s] < trace.end_e[s] <= trace.t_e[d] else trace.t_e[s]
            x1, x2 = x(leaves), x(trace.t_e[d])
            middle = (x1 + x2) / 2
            way = f"M{x1:.1f},{y(s):.1f} C{middle:.1f},{y(s):.1f} {middle:.1f},{y(d):.1f} {x2:.1f},{y(d):.1f}"
            parts.append(f'<path d="{way}" fill="none" stroke="#9fb0c0" stroke-width="1">{title}</path>')
    return parts


def _events(trace: Trace, shown_e: Any, x: Any, y: Any) -> list[str]:
    critical_e = graph.critical_path(trace).on_e
    parts = []
    for row in shown_e.tolist():
        word = EVENT_TYPES[trace.type_e[row]]
        outline = ' stroke="#e01e1e" stroke-width="2"' if critical_e[row] else ""
        title = escape(f"{trace.id_e[row]}: {word.replace('_', ' ')}, t={trace.t_e[row]:g}")
        at, width = x(trace.t_e[row]), 0.0
        if trace.end_e[row] > trace.t_e[row]:
            width = x(trace.end_e[row]) - at
        shape = (
            f'<rect x="{at:.1f}" y="{y(row) - 7:.1f}" width="{max(width, 3):.1f}" height="14" rx="3"'
            if width
            else f'<circle cx="{at:.1f}" cy="{y(row):.1f}" r="4.5"'
        )
        tag = "rect" if width else "circle"
        parts.append(f'{shape} fill="{COLOURS[word]}" fill-opacity=".85"{outline}><title>{title}</title></{tag}>')
    return parts


def _foot(trace: Trace, shown_e: Any, lanes: int, height: int, start: float, end: float) -> list[str]:
    base = TOP + LANE * lanes + 14
    parts = [
        f'<text x="{LEFT}" y="{base}" font-size="11" fill="#5b6b7b">{start:g} s</text>',
        f'<text x="{WIDTH - 20}" y="{base}" font-size="11" fill="#5b6b7b" text-anchor="end">{end:g} s</text>',
    ]
    at = 16.0
    for word in dict.fromkeys(EVENT_TYPES[c] for c in trace.type_e[shown_e].tolist()):
        label = word.replace("orchestrator_", "").replace("_", " ")
        parts.append(f'<circle cx="{at}" cy="{height - 16}" r="5" fill="{COLOURS[word]}"/>')
        parts.append(f'<text x="{at + 9}" y="{height - 12}" font-size="11" fill="#1c2530">{label}</text>')
        at += 30 + 6.2 * len(label)
    left_out = trace.n_events - len(shown_e)
    if left_out:
        parts.append(f'<text x="16" y="20" font-size="11" fill="#5b6b7b">{left_out:,} events are not drawn</text>')
    return parts
