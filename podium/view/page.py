"""The page: one HTML file that needs no network, or the same file served with a library behind it.

There is no build: the scripts and styles of `web/` are joined in the order of their names. A strict content
security policy lets these run, by their hash, and nothing else; a page that is a file may fetch nothing at all.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from podium.graph.units import UNITS
from podium.methods import METHODS
from podium.trace.columns import Trace
from podium.view.answers import OWN, Library, NoAnswer, json_of, key_of
from podium.view.bundle import CHUNK

__all__ = ["SHOWN_METHODS", "file_page", "policy_of", "served_page"]

WEB = Path(__file__).parent / "web"
SHOWN_METHODS = 6  # methods whose credit a file carries; a served page has all
MOST_RUNS = 50  # runs that a file carries; the table has all
MOST_OF_UNITS = 2_000, 20  # events of a run, and runs, up to which it carries credit at all eight units
MOST_DESCRIBED = 200_000  # events whose fields a file carries


def _part(pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(WEB.glob(pattern)))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy_of(script: str, style: str, connect: str) -> str:
    """The content security policy: our script, our style, no other source."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _page(title: str, data: str, connect: str) -> str:
    script, style = _part("*.js"), _part("*.css")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy_of(script, style, connect)}">
<meta name="referrer" content="no-referrer">
<title>{escape(title)} · Podium</title>
<style>{style}</style></head>
<body><noscript>This page needs JavaScript: it is a program in one file and fetches nothing.</noscript>
{data}
<script>{script}</script></body></html>
"""


def served_page(title: str) -> tuple[str, str]:
    """The page that asks its server, and its content security policy as a header."""
    script, style = _part("*.js"), _part("*.css")
    policy = policy_of(script, style, "'self'") + "; frame-ancestors 'none'"
    return _page(title, "", "'self'"), policy


def file_page(
    source: Library | Iterable[tuple[str, Trace]],
    title: str | None = None,
    report: Mapping[str, Any] | None = None,
    methods: Sequence[str] | None = None,
) -> str:
    """The page as one file that carries its answers.

    `methods` are those whose credit it carries; without, the first few that pay something of a run.
    """
    library = source if isinstance(source, Library) else Library((), source)
    index = library.index() | {"static": True, "report": report}
    if title is None:
        title = index["runs"][0]["name"] if len(index["runs"]) == 1 else f"{len(index['runs'])} runs"
    answers: dict[str, bytes] = {}
    for number, (_, trace) in enumerate(library.runs[:MOST_RUNS]):
        _answers_about(library, answers, number, trace, methods)
    if len(library.runs) > 1 and not library.trainings:
        _answer(library, answers, "folder", {})
    for number in range(len(library.trainings)):
        _answer(library, answers, "training", {"training": str(number)})
    answers["index"] = json_of(index)
    return _page(str(title), "\n".join(_embedded(key, data) for key, data in answers.items()), "'none'")


def _answers_about(
    library: Library, answers: dict[str, bytes], number: int, trace: Trace, methods: Sequence[str] | None
) -> None:
    run = {"run": str(number)}
    for name in ("run", "summary", "audit", "metrics"):
        _answer(library, answers, name, run)
    if trace.n_events <= MOST_DESCRIBED:
        _answer(library, answers, "units", run)
        for chunk in range(-(-trace.n_events // CHUNK)):
            _answer(library, answers, "events", {**run, "chunk": str(chunk)})
    carried = 0
    for name in [row.name for row in METHODS.values() if row.credit] if methods is None else methods:
        carried += _answer(library, answers, "credit", {**run, "method": name, "unit": OWN})
        if trace.n_events <= MOST_OF_UNITS[0] and len(library.runs) <= MOST_OF_UNITS[1]:
            for unit in UNITS:
                _answer(library, answers, "credit", {**run, "method": name, "unit": unit})
        if methods is None and carried >= SHOWN_METHODS:
            break
    for other, (_, branch) in enumerate(library.runs[:MOST_RUNS]):
        if branch.parent_n[0] is not None and branch.parent_n[0] == trace.trace_id_n[0]:
            _answer(library, answers, "compare", {"a": str(number), "b": str(other)})


def _answer(library: Library, answers: dict[str, bytes], name: str, words: Mapping[str, str]) -> bool:
    """Whether there is an answer, which is kept."""
    try:
        answers[key_of(name, words)] = library.answer(name, words)
    except NoAnswer:
        return False
    return True


def _embedded(key: str, data: bytes) -> str:
    packed = base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
    return f'<script type="application/gzip" data-key="{escape(key)}">{packed}</script>'
