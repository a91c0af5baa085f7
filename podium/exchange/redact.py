"""Takes keys, tokens and addresses out of content. The rules are data: `redact.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files

__all__ = ["redacted", "rules"]


@cache
def rules() -> tuple[tuple[str, re.Pattern[bytes]], ...]:
    """Each rule: the name that a match is replaced by, and what it looks for."""
    table = tomllib.loads((files("podium.exchange") / "redact.toml").read_text())
    return tuple((rule["name"], re.compile(rule["pattern"].encode())) for rule in table["rule"])


def redacted(content: bytes) -> bytes:
    """The same JSON or text, with `[NAME]` in the place of what should not be kept.

    >>> redacted(b'"write to ann@example.org with sk-%s"' % (b"a1" * 10))
    b'"write to [email] with [api-key]"'
    """
    for name, pattern in rules():
        content = pattern.sub(f"[{name}]".encode(), content)
    return content
