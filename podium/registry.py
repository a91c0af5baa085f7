"""One dict from (kind, name) to function, and what there is to know of it. It hands your function back untouched.

A kind may be filled by several packages, some of them downstream of whoever asks: scores come from `rewards` and from `metrics`. `PACKAGES`
names them, and they are imported when somebody first asks for a name of that kind, so that the answer does not depend on what
was imported before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

__all__ = ["PACKAGES", "alternatives", "facts", "find", "names", "register"]

PACKAGES: dict[str, tuple[str, ...]] = {
    "score": ("podium.rewards", "podium.metrics"),
    "shape": ("podium.rewards",),
    "reward": ("podium.rewards",),
    "step": ("podium.credit", "podium.methods"),
    "key": ("podium.credit", "podium.methods"),
    "detector": ("podium.audit",),
    "importer": ("podium.exchange",),
    "reader": ("podium.exchange",),
}

Function = TypeVar("Function", bound=Callable[..., Any])
_TABLE: dict[tuple[str, str], Callable[..., Any]] = {}
_FACTS: dict[tuple[str, str], Mapping[str, Any]] = {}
FEW = 10  # names that an error lists in full
LISTED_BY = {
    "method": "podium methods",
    "score": "podium reward",
    "shape": "podium reward",
    "reward": "podium reward",
    "world": "podium envs",
    "detector": "podium audit --list",
    "study": "podium study",
}


def register(kind: str, **facts: Any) -> Callable[[Function], Function]:
    """Puts a function into the table under its own name, with facts about it. A name can be taken once.

    >>> @register("example", unit="team")
    ... def half(x: float) -> float:
    ...     return x / 2
    >>> find("example", "half") is half, facts("example", "half")
    (True, {'unit': 'team'})
    """

    def keep(function: Function) -> Function:
        key = kind, function.__name__
        if _TABLE.setdefault(key, function) is not function:
            raise KeyError(f"{kind} {function.__name__!r} is already taken")
        _FACTS[key] = facts
        return function

    return keep


def find(kind: str, name: str) -> Callable[..., Any]:
    """The function of that name, or an error that says which there are."""
    if (kind, name) not in _TABLE:
        _load(kind)
    try:
        return _TABLE[kind, name]
    except KeyError:
        raise KeyError(f"no {kind} called {name!r}; {alternatives(name, names(kind), kind)}") from None


def alternatives(name: str, known: Iterable[str], kind: str = "") -> str:
    """What there is instead of an unknown name: all where they are few, else the nearest and the command that lists all.

    Every error about an unknown name ends with this. `kind` says which command that is (`LISTED_BY`). Without one, all
    are listed where none is near.

    >>> alternatives("stp", ["go", "stop"])
    'there are go, stop'
    >>> alternatives("dr_mass", [*map(str, range(80)), "dr_mas"], "method")
    'there are 81, the nearest dr_mas; podium methods lists them'
    """
    there = list(known)
    near = ", ".join(get_close_matches(name, there, n=4))
    if len(there) <= FEW or not (near or kind in LISTED_BY):
        return f"there are {', '.join(there) or 'none'}"
    said = f"there are {len(there)}" + (f", the nearest {near}" if near else "")
    return said + (f"; {LISTED_BY[kind]} lists them" if kind in LISTED_BY else "")


def facts(kind: str, name: str) -> Mapping[str, Any]:
    """What was said of a function when it was registered."""
    find(kind, name)
    return _FACTS[kind, name]


def names(kind: str) -> list[str]:
    """The names of a kind, sorted."""
    _load(kind)
    return sorted(n for k, n in _TABLE if k == kind)


def _load(kind: str) -> None:
    """Imports the packages that register this kind. One that is being imported already is left to finish."""
    for package in PACKAGES.get(kind, ()):
        import_module(package)
