"""Where other systems keep their logs on a machine, and the newest of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from podium.registry import register

__all__ = ["newest_session"]


@register("reader")
def newest_session(cwd: Path, home: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The newest session of Claude Code in this folder, else the newest of Claude Code or Codex on this machine."""
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    codex = Path(environment.get("CODEX_HOME") or home / ".codex") / "sessions"
    here = claude / re.sub(r"[^A-Za-z0-9]", "-", str(cwd))
    sessions = [p for p in claude.glob("*/*.jsonl") if not p.name.startswith("agent-")]
    return _newest(p for p in sessions if p.parent == here) or _newest(
        [*sessions, *codex.rglob("rollout-*.jsonl*")]
    )


def _newest(paths: Iterable[Path]) -> Path | None:
    return max((p for p in paths if p.is_file()), key=lambda p: (p.stat().st_mtime, p.name), default=None)
