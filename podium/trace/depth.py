"""How deeply JSON may be nested. Whatever reads or walks a value calls itself once a level, and Python allows it
about a thousand times; so a trace holds nothing near that."""

from __future__ import annotations

import re

import numpy as np

__all__ = ["DEEPEST", "TOO_DEEP", "is_deep"]

DEEPEST = 400  # levels of an event on disk
TOO_DEEP = f"nested more than {DEEPEST} levels deep"

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = np.zeros(256, np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


def is_deep(json: bytes, most: int = DEEPEST) -> bool:
    """Whether lists and objects are nested in more than this many levels. It calls nothing again: any depth will
    do.

    >>> is_deep(b"[[1], [2], [3]]", 2), is_deep(b"[[[1]]]", 2), is_deep(b'["[[["]', 2)
    (False, True, False)
    """
    if len(json) <= most or json.count(b"[") + json.count(b"{") <= most:
        return False
    brackets = np.frombuffer(_STRING.sub(b"", json).translate(None, _NOT_BRACKETS), np.uint8)
    return bool(np.cumsum(_STEP[brackets], dtype=np.int64).max(initial=0) > most)
