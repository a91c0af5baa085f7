"""Where other systems keep their logs on a machine: the newest of them, and what lies beside a log and belongs to
it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from podium.registry import register

__all__ = ["beside", "newest_session"]

_SESSION = re.compile(r"(.+?)\.jsonl(?:\.(?:gz|xz|zst))?")


@register("reader")
def newest_session(cwd: Path, home: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The newest session of Claude Code in this folder, else the newest of Claude Code or Codex on this machine.
    One that is empty, or cannot be opened, is none."""
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    codex = Path(environment.get("CODEX_HOME") or home / ".codex") / "sessions"
    folder = claude / re.sub(r"[^A-Za-z0-9]", "-", str(cwd))
    sessions = [p for p in claude.glob("*/*.jsonl") if not p.name.startswith("agent-")]
    return _newest(p for p in sessions if p.parent == folder) or _newest(
        [*sessions, *codex.rglob("rollout-*.jsonl*")]
    )


def _newest(paths: Iterable[Path]) -> Path | None:
    newest: tuple[float, str, Path] | None = None
    for path in paths:
        with suppress(OSError):
            about = path.stat()
            if path.is_file() and about.st_size and os.access(path, os.R_OK):
                newest = max(newest or (about.st_mtime, path.name, path), (about.st_mtime, path.name, path))
    return None if newest is None else newest[2]


@register("reader")
def beside(path: str) -> list[str]:
    """The files that belong to a session of Claude Code and lie in the folder beside it: those of its
    sub-agents."""
    session = _SESSION.fullmatch(os.path.basename(path))
    if session is None:
        return []
    return sorted(_files_of_agents(Path(path).parent / session[1] / "subagents"))


def _files_of_agents(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        for file in folder.rglob("agent-*"):
            if file.is_file() and (file.name.endswith(".meta.json") or _SESSION.fullmatch(file.name)):
                yield str(file)
