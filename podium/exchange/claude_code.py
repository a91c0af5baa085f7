"""Claude Code: session transcripts of every generation, and stream-json.

A session is one rollout; each prompt by the person is one of its tasks. Reading takes two steps: `Session` sorts
records into one stream an agent, `EventWriter` writes the streams as events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import Raw, Struct

from podium.exchange.build import Run
from podium.exchange.claude_code_events import EventWriter
from podium.exchange.claude_code_records import NONE
from podium.exchange.claude_code_session import Session
from podium.exchange.lines import ERRORS
from podium.exchange.reading import Source
from podium.registry import register
from podium.trace.survey import top_fields

__all__ = ["claude_code"]


class _Glance(Struct):
    type: str | None = None
    subtype: str | None = None
    sessionId: str | None = None  # noqa: N815
    session_id: str | None = None
    uuid: str | None = None
    parentUuid: Raw = NONE  # noqa: N815
    leafUuid: str | None = None  # noqa: N815
    message: Raw = NONE
    payload: Raw = NONE


_GLANCE = msgspec.json.Decoder(_Glance)
_OTHER_TYPES = {
    "file-history-snapshot",
    "queue-operation",
    "summary",
    "custom-title",
    "ai-title",
    "last-prompt",
    "mode",
}


def _glances(start: bytes) -> Iterator[_Glance]:
    at = 0
    while (end := start.find(b"\n", at)) >= 0 or at < len(start):
        end = len(start) if end < 0 else end
        with suppress(*ERRORS):
            yield _GLANCE.decode(start[at:end])
        at = end + 1


def is_claude_code(start: bytes, name: str) -> float:
    if re.search(r"agent-[^/\\]*\.meta\.json$", name):
        return 0.9
    fields = set(top_fields(start))
    if fields & {b"payload", b"resourceSpans", b"spans"}:
        return 0.0
    if b"loglines" in fields:
        return 0.9
    sure = 0.0
    for glance in _glances(start):
        if glance.type in ("user", "assistant", "progress", "system") and (
            bytes(glance.parentUuid) or glance.sessionId or (glance.session_id and glance.uuid)
        ):
            return 0.9
        if glance.type in _OTHER_TYPES and (
            glance.sessionId or glance.leafUuid or glance.type == "file-history-snapshot"
        ):
            sure = max(sure, 0.8)
        elif glance.sessionId and b'"usage"' in bytes(glance.message):
            sure = max(sure, 0.6)
    partly = {b"parentUuid", b"sessionId"} <= fields or {b"messageId", b"snapshot"} <= fields
    return sure or (0.7 if partly else 0.0)


def claude_code_keys(start: bytes, name: str) -> Iterable[str]:
    """A session is known by its id and by its first record, which a copy or a resumed session has too."""
    path = re.split(r"[/\\:]", name)
    if "subagents" in path:
        yield path[path.index("subagents") - 1]
    stem = path[-1].partition(".")[0]
    if re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]{27}", stem):
        yield stem
    session = first = None
    for glance in _glances(start):
        session = session or glance.sessionId or glance.session_id
        first = first or glance.uuid
        if session and first:
            break
    if session and session.upper() != "REDACTED":
        yield session
    if first and not stem.startswith("agent-"):
        yield f"uuid:{first}"


@register("importer", title="Claude Code", detect=is_claude_code, group=claude_code_keys)
def claude_code(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A session of Claude Code, from its main file, the files of its sub-agents, and copies of them."""
    named = (g.sessionId or g.session_id for s in sources for g in _glances(s.start))
    stem = re.split(r"[/\\:]", sources[0].name)[-1].partition(".")[0]
    run = Run(next(filter(None, named), stem or "session"), system="Claude Code", keep=keep)
    session = Session(run)
    mains = [s.name for s in sources if not _is_side(s.name)]
    run.file = min(mains or [s.name for s in sources])
    for source in sorted(
        sources, key=lambda s: (not _is_side(s.name), s.name)
    ):  # an agent's own file has more of it
        session.read(source)
    session.settle()
    EventWriter(session).write()
    yield run


def _is_side(name: str) -> bool:
    return re.split(r"[/\\:]", name)[-1].startswith("agent-")
