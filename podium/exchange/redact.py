"""Takes keys, tokens and addresses out of content. The rules are data: `redact.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Rule", "redacted", "rules"]


class Rule(NamedTuple):
    """What a rule looks for, and the name that a match is replaced by."""

    name: str
    pattern: re.Pattern[bytes]
    hints: tuple[
        bytes, ...
    ]  # small letters, one of which stands wherever the pattern matches; none: look everywhere


@cache
def rules() -> tuple[Rule, ...]:
    table = tomllib.loads((files("podium.exchange") / "redact.toml").read_text())
    return tuple(
        Rule(r["name"], re.compile(r["pattern"].encode()), tuple(h.encode() for h in r.get("hints", ())))
        for r in table["rule"]
    )


def redacted(content: bytes) -> bytes:
    """The same JSON or text, with `[NAME]` in the place of what should not be kept.

    >>> redacted(b'"write to ann@example.org with sk-%s"' % (b"a1" * 10))
    b'"write to [email] with [api-key]"'
    """
    small = content.lower()
    for rule in rules():
        if not rule.hints or any(hint in small for hint in rule.hints):
            content = rule.pattern.sub(partial(_named, b"[%s]" % rule.name.encode()), content)
    return content


def _named(name: bytes, match: re.Match[bytes]) -> bytes:
    """What stands in the place of a match. A match that begins within an escape of JSON (`\\nann@...`) leaves the
    escape whole."""
    before = match.string[max(0, match.start() - 64) : match.start()]
    if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
        return name
    return match[0][: 5 if match[0][:1] == b"u" else 1] + name
