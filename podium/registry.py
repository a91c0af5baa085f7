"""One dict from (kind, name) to a function, method or world, and what there is to know of it.

It is filled from three sides.
- *Our folders*: `PACKAGES` names the packages that fill a kind, some of them downstream of whoever asks (scores
  come from `rewards` and from `metrics`). They are imported when somebody first asks for a name of that kind, so
  that the answer does not depend on what was imported before.
- *Installed packages*: an entry point in the group `podium` names a module. It is imported when somebody asks for a
  name that ours do not have, or for all names.
- *A user's file*, which the command line loads (`podium.outside`).

Nothing else is imported: a name in a record is only looked up.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from podium.errors import WrongUse, shown

__all__ = [
    "PACKAGES",
    "BrokenPlugin",
    "Taken",
    "alternatives",
    "entries",
    "facts",
    "find",
    "kind_of",
    "name_of",
    "names",
    "outsiders",
    "register",
]

PACKAGES: dict[str, tuple[str, ...]] = {
    "score": ("podium.rewards", "podium.metrics"),
    "shape": ("podium.rewards",),
    "reward": ("podium.rewards",),
    "step": ("podium.credit", "podium.methods"),
    "key": ("podium.credit", "podium.methods"),
    "method": ("podium.methods",),
    "update": ("podium.methods",),
    "schedule": ("podium.methods",),
    "detector": ("podium.audit",),
    "world": ("podium.envs",),
    "importer": ("podium.exchange",),
    "exporter": ("podium.exchange",),
    "reader": ("podium.exchange",),
    "viewer": ("podium.view.inline",),
    "study": ("podium.study.surveyed",),
}
NEEDED = {"score": ("unit",), "detector": ("group", "threshold", "finds", "needs", "todo", "severity")}  # facts
GROUP = "podium"  # of entry points

Thing = TypeVar("Thing")
_TABLE: dict[tuple[str, str], Any] = {}
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


class Taken(WrongUse, KeyError):
    """A name that something else of that kind has already."""

    __str__ = Exception.__str__  # KeyError would quote the sentence


class BrokenPlugin(UserWarning):
    """An installed package that could not be loaded; says which and why. All else works without it."""


def register(kind: str, name: str | None = None, /, **facts: Any) -> Callable[[Thing], Thing]:
    """Puts a function into the table, under its own name unless another is given, with facts about it.

    It hands the function back untouched. A name can be taken once; the same definition, run again as in a notebook,
    takes the place of the earlier one.

    >>> @register("example", unit="team")
    ... def half(x: float) -> float:
    ...     return x / 2
    >>> find("example", "half") is half, facts("example", "half")
    (True, {'unit': 'team'})
    """

    def keep(thing: Thing) -> Thing:
        key = kind, name or str(getattr(thing, "__name__", ""))
        if lacks := [fact for fact in NEEDED.get(kind, ()) if fact not in facts]:
            raise WrongUse(f"{kind} {key[1]!r} must state {', '.join(lacks)}: @register({kind!r}, {lacks[0]}=...)")
        if not str(getattr(thing, "__module__", "")).startswith("podium."):
            _load(kind)  # so that a clash is the newcomer's, not ours
        old = _TABLE.get(key, thing)
        if old is not thing and old != thing and _origin(old) != _origin(thing):
            raise Taken(f"{kind} {key[1]!r} is already taken")
        _TABLE[key], _FACTS[key] = thing, facts
        return thing

    return keep


def _origin(thing: Any) -> Any:
    """Where a function or class is defined; of anything else, itself."""
    if not hasattr(thing, "__qualname__"):
        return id(thing)
    return thing.__module__, thing.__qualname__, getattr(getattr(thing, "__code__", None), "co_filename", "")


def find(kind: str, name: str) -> Any:
    """What is registered under that name, or an error that says which names there are."""
    if kind_of(name, kind) is None:
        raise KeyError(f"no {kind} called {name!r}; {alternatives(name, names(kind), kind)}")
    return _TABLE[kind, name]


def kind_of(name: str, *kinds: str) -> str | None:
    """The first of these kinds that has such a name, or None. Installed packages are asked where ours have none."""
    for load in (_load, lambda *kinds: _load_plugins()):
        if any((kind, name) not in _TABLE for kind in kinds):
            load(*kinds)
        for kind in kinds:
            if (kind, name) in _TABLE:
                return kind
    return None


def name_of(kind: str, thing: Any) -> str | None:
    """The name under which something is registered, None if it is not."""
    return next((name for (k, name), one in _TABLE.items() if k == kind and one is thing), None)


def alternatives(name: str, known: Iterable[str], kind: str = "") -> str:
    """What there is instead of an unknown name: all where they are few, else the nearest and the command that lists
    all.

    Every error about an unknown name ends with this. `kind` says which command that is (`LISTED_BY`). Without one,
    all are listed where none is near.

    >>> alternatives("stp", ["go", "stop"])
    'there are go, stop'
    >>> alternatives("dr_mass", [*map(str, range(80)), "dr_mas"], "method")
    'there are 81, the nearest dr_mas; podium methods lists them'
    >>> alternatives("c3", [*map(str, range(80)), "c3_value_only", "grpo"], "method")
    'there are 82, the nearest c3_value_only; podium methods lists them'
    """
    there = list(known)
    longer = [one for one in there if name and one.startswith(name)]
    near = ", ".join((longer or get_close_matches(name, there, n=4))[:4])
    if len(there) <= FEW or not (near or kind in LISTED_BY):
        return f"there are {', '.join(there) or 'none'}"
    sentence = f"there are {len(there)}" + (f", the nearest {near}" if near else "")
    return sentence + (f"; {LISTED_BY[kind]} lists them" if kind in LISTED_BY else "")


def facts(kind: str, name: str) -> Mapping[str, Any]:
    """What was said of a function when it was registered."""
    find(kind, name)
    return _FACTS[kind, name]


def outsiders() -> set[str]:
    """The files of what is registered and not ours."""
    modules = {str(getattr(thing, "__module__", "")) for thing in _TABLE.values()}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in modules if not name.startswith("podium.")}
    codes = {getattr(getattr(thing, "__code__", None), "co_filename", None) for thing in _TABLE.values()}
    ours = str(Path(__file__).parent)
    return {file for file in files | codes if file and not file.startswith(ours)}


def names(kind: str) -> list[str]:
    """The names of a kind, sorted."""
    return sorted(entries(kind))


def entries(kind: str) -> dict[str, Any]:
    """All of a kind by name, in the order in which they were registered: ours, then those of installed packages."""
    _load(kind)
    _load_plugins()
    return {name: thing for (k, name), thing in _TABLE.items() if k == kind}


def _load(*kinds: str) -> None:
    """Imports our packages that register these kinds. One that is being imported already is left to finish."""
    for kind in kinds:
        for package in PACKAGES.get(kind, ()):
            import_module(package)


_plugins: list[str] = []  # the entry points that were loaded


def _load_plugins() -> None:
    """Imports what installed packages register: once, when a look-up needs it, as finding them takes a while."""
    if _plugins:
        return
    _plugins.append(GROUP)
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        _plugins.append(point.value)
        try:
            point.load()
        except (Exception, SystemExit) as error:
            why = " ".join(shown(error).split())
            whose = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
            warnings.warn(
                f"the plug-in {point.name!r}{whose} ({point.value}) cannot be loaded: {why}",
                BrokenPlugin,
                stacklevel=2,
            )
