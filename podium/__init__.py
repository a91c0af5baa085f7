"""Podium: train and understand teams of language-model agents through the record of how they worked together.

Names are imported when they are first used, so that `import podium` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.trace import BadTrace, Finding, Recorder, Trace, Unreadable, concat, load, save

__all__ = ["BadTrace", "Finding", "Recorder", "Trace", "Unreadable", "__version__", "concat", "load", "save"]
__version__ = "0.1.0"  # the one place: pyproject.toml reads it from here

_HOME = dict.fromkeys(
    ("BadTrace", "Finding", "Recorder", "Trace", "Unreadable", "concat", "load", "save"), "podium.trace"
)


def __getattr__(name: str) -> Any:
    if name == "trace":  # `import podium` is enough for `podium.trace`
        return import_module("podium.trace")
    if name not in _HOME:
        raise AttributeError(f"module 'podium' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
