"""Text from elsewhere, fit for a terminal."""

from __future__ import annotations

__all__ = ["plain"]


def plain(text: object) -> str:
    """The text with whatever a terminal might obey spelled out.

    >>> print(plain("ann\\x1b[31m"))
    ann\\x1b[31m
    """
    line = str(text)
    return line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
