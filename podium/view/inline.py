"""Runs inside a notebook: one as the page, in a frame that can reach nothing; several as their first events."""

from __future__ import annotations

from html import escape

from podium.registry import register
from podium.trace.columns import Trace
from podium.trace.vocabulary import EVENT_TYPES
from podium.view.page import file_page

__all__ = ["inline"]

MOST_EVENTS = 100_000  # of a run that is shown as the page
FIRST = 10  # events of several runs


@register("viewer")
def inline(trace: Trace) -> str:
    """One run as the page, which may run its script and nothing else; several as a table of their first events."""
    if len(trace) != 1 or trace.n_events > MOST_EVENTS:
        return _table(trace)
    page = escape(file_page([("", trace)], methods=()), quote=True)
    title = escape(str(trace.trace_id_n[0]), quote=True)
    style = "width:100%;height:620px;border:1px solid #d5dbe1;border-radius:6px"
    return f'<iframe sandbox="allow-scripts" title="run {title}" style="{style}" srcdoc="{page}"></iframe>'


def _table(trace: Trace) -> str:
    names = trace.name_a.strings()
    rows = "".join(
        f"<tr><td>{row}</td><td>{trace.t_e[row]:g}</td><td>{EVENT_TYPES[trace.type_e[row]]}</td>"
        f"<td>{escape(names[trace.agent_e[row]] or '')}</td>"
        f"<td>{escape(names[trace.to_e[row]] or '') if trace.to_e[row] >= 0 else ''}</td></tr>"
        for row in range(min(FIRST, trace.n_events if trace.n_agents else 0))
    )
    more = f"<p>… {trace.n_events - FIRST} more</p>" if trace.n_events > FIRST else ""
    head = "<tr><th>row</th><th>t</th><th>type</th><th>agent</th><th>to</th></tr>"
    return f"<b>{escape(repr(trace))}</b><table>{head}{rows}</table>{more}"
