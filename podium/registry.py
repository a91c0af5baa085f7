"""One dict from (kind, name) to function. It hands your function back untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["find", "names", "register"]

Function = TypeVar("Function", bound=Callable[..., Any])
_TABLE: dict[tuple[str, str], Callable[..., Any]] = {}


def register(kind: str) -> Callable[[Function], Function]:
    """Puts a function into the table under its own name. A name can be taken once.

    >>> @register("example")
    ... def half(x: float) -> float:
    ...     return x / 2
    >>> find("example", "half") is half
    True
    """

    def keep(function: Function) -> Function:
        if _TABLE.setdefault((kind, function.__name__), function) is not function:
            raise KeyError(f"{kind} {function.__name__!r} is already taken")
        return function

    return keep


def find(kind: str, name: str) -> Callable[..., Any]:
    """The function of that name, or an error that lists the names there are."""
    try:
        return _TABLE[kind, name]
    except KeyError:
        raise KeyError(f"no {kind} called {name!r}; there are {', '.join(names(kind)) or 'none'}") from None


def names(kind: str) -> list[str]:
    """The names of a kind, sorted."""
    return sorted(n for k, n in _TABLE if k == kind)
