"""Who can write what a tool returns: a declared table, and the trust in tool results that follows from it.

A result is untrusted if anyone can write it (`tools.json`, the one place that says so), not because its tool is
somebody else's: a web page is written by anyone, a file or the user's own server by the user. What a shell prints
depends on the command, so of that the table says `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.graph.units import call_of
from podium.trace.columns import Trace
from podium.trace.vocabulary import event

__all__ = ["WRITERS", "declared_writers", "trusting", "writer"]

WRITERS = {"anyone": 0, "user": 1, "team": 1, "unknown": -1}  # who can write it -> the `trusted` of a result
RESULT = event("tool_result")
_PATH = Path(__file__).parent / "tools.json"


@cache
def declared_writers() -> Mapping[str, str]:
    """The declared table: a tool's name, or a pattern of names with *, and who can write what it returns."""
    return msgspec.json.decode(_PATH.read_bytes(), type=dict[str, str])


def writer(tool: str, writers: Mapping[str, str]) -> str | None:
    """Who can write what this tool returns; None where the table does not name it. A name says more than a pattern,
    a longer pattern more than a shorter one.

    >>> tools = ("WebFetch", "mcp__linear__list_issues", "mcp__my_Browser__open", "search")
    >>> [writer(tool, declared_writers()) for tool in tools]
    ['anyone', 'user', 'anyone', None]
    """
    if tool in writers:
        return writers[tool]
    fits = [name for name in writers if "*" in name and fnmatchcase(tool, name)]
    return writers[max(fits, key=len)] if fits else None


def trusting(trace: Trace, own: Mapping[str, str]) -> Trace:
    """The trace with `trusted` on tool results as far as anybody says: the user's own table, else the mark that was
    recorded, else the declared table. Nothing but tool results is changed."""
    result_e = trace.type_e == RESULT
    if not result_e.any():
        return trace
    call_e = call_of(trace)
    tool_e = trace.tool_e.codes
    tool_e = np.where((tool_e < 0) & (call_e >= 0), tool_e[call_e], tool_e)
    own_e, declared_e = _trusted(trace, own)[tool_e], _trusted(trace, declared_writers())[tool_e]
    marked_e = np.where(trace.trusted_e >= 0, trace.trusted_e, declared_e)
    trusted_e = np.where(result_e, np.where(own_e >= 0, own_e, marked_e), trace.trusted_e)
    return replace(trace, trusted_e=trusted_e.astype(trace.trusted_e.dtype))


def _trusted(trace: Trace, writers: Mapping[str, str]) -> NDArray[np.int8]:
    """For each tool word of the trace, and for none, what a table makes of its results: 0, 1, or -1 if it does not
    say.
    """
    words = [WRITERS[writer(tool, writers) or "unknown"] for tool in trace.tool_e.words]
    return np.array([*words, -1], np.int8)
