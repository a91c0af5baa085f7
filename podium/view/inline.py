"""A run inside a notebook: the page in a frame that can reach nothing."""

from __future__ import annotations

from html import escape

from podium.registry import register
from podium.trace.columns import Trace
from podium.view.page import file_page

__all__ = ["inline"]


@register("viewer")
def inline(trace: Trace) -> str:
    """The page of one run as a frame; the sandbox lets its script run and nothing else."""
    page = escape(file_page([("", trace)], methods=()), quote=True)
    title = escape(str(trace.trace_id_n[0]), quote=True)
    style = "width:100%;height:620px;border:1px solid #d5dbe1;border-radius:6px"
    return f'<iframe sandbox="allow-scripts" title="run {title}" style="{style}" srcdoc="{page}"></iframe>'
