"""A run as swim lanes in a terminal: a line an agent, time from left to right."""

from __future__ import annotations

import numpy as np
from rich.text import Text as Line

from podium import graph
from podium.plain import plain
from podium.trace.columns import Trace
from podium.trace.vocabulary import EVENT_TYPES
from podium.view.clock import extent

__all__ = ["lanes", "legend"]

MARKS = dict(zip(EVENT_TYPES, "◆+×✉○●◀▣H!", strict=True))
MOST_LANES = 24


def legend(trace: Trace) -> str:
    """What the marks mean, of those that this run has."""
    present = [word for code, word in enumerate(EVENT_TYPES) if (trace.type_e == code).any()]
    return "  ".join(f"{MARKS[word]} {word.replace('orchestrator_', '').replace('_', ' ')}" for word in present)


def lanes(trace: Trace, width: int = 72) -> list[Line]:
    """One line an agent, in the order they appear; what lies on the critical path is bold."""
    times = extent(trace)
    if times is None:
        return []
    start, end = times
    scale = (width - 1) / ((end - start) or 1.0)
    critical_e = graph.critical_path(trace).on_e
    names = [plain(n) for n in trace.name_a.strings()]
    acting, first = np.unique(trace.agent_e, return_index=True)
    order = acting[np.argsort(first)].tolist()
    label = min(20, max(len(names[a]) for a in order))
    lines = []
    for agent in order[:MOST_LANES]:
        cells, bold = [" "] * width, [False] * width
        for row in np.flatnonzero((trace.agent_e == agent) & ~np.isnan(trace.t_e)).tolist():
            at = int((trace.t_e[row] - start) * scale)
            to = int((trace.end_e[row] - start) * scale) if trace.end_e[row] > trace.t_e[row] else at
            for cell in range(at + 1, min(to + 1, width)):
                if cells[cell] == " ":
                    cells[cell] = "─"
                bold[cell] |= bool(critical_e[row])
            cells[at] = MARKS[EVENT_TYPES[trace.type_e[row]]]
            bold[at] |= bool(critical_e[row])
        line = Line(f"{names[agent][:label]:>{label}} │", style="default", no_wrap=True)
        for mark, strong in zip(cells, bold, strict=True):
            line.append(mark, style="bold red" if strong else "cyan")
        lines.append(line)
    if len(order) > MOST_LANES:
        lines.append(Line(f"{'…':>{label}} │ {len(order) - MOST_LANES} more agents"))
    return lines
