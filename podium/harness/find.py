"""A team by its name: one of Podium's own, or one in a file or module of yours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from inspect import iscoroutinefunction, isfunction, signature
from types import ModuleType
from typing import Any, TypeVar

from podium.harness.team import BadTeam, Team
from podium.harness.topologies import TEAMS
from podium.harness.types import shown
from podium.outside import BadFile, importing_beside, load_module
from podium.registry import alternatives

__all__ = ["find", "find_team", "recorded_team"]

T = TypeVar("T")


def find_team(spec: str) -> Team:
    """The team that a name says: `research`, `my_team.py:team` or `package.module:team`. What is named is a Team,
    or a function without arguments that makes one.

    >>> find_team("swarm").topology
    'swarm'
    """
    return find(spec, Team, TEAMS)


def recorded_team(spec: str) -> Team:
    """The team that a record names, if it is one of Podium's own. A record may come from anyone: what it names
    beyond those is neither imported nor run.

    >>> recorded_team("os:abort")
    Traceback (most recent call last):
        ...
    podium.harness.team.BadTeam: the record names the team 'os:abort', which is none of Podium's own (...
    """
    if spec not in TEAMS:
        own = ", ".join(TEAMS)
        raise BadTeam(
            f"the record names the team {spec!r}, which is none of Podium's own ({own}); code that a record names "
            "is not run: if you trust it, say --team FILE.py:NAME or --team MODULE:NAME"
        )
    return TEAMS[spec]()


def find(spec: str, kind: type[T], ours: Mapping[str, Callable[[], T]]) -> T:
    """As `find_team`, for anything that is a `kind` of team: one of ours by its name, or one in a file or module of
    yours."""
    if spec in ours:
        return ours[spec]()
    where, _, name = spec.rpartition(":")
    if not where:
        known = alternatives(spec, ours)
        raise BadTeam(f"no team {spec!r}; {known}, or say FILE.py:NAME or MODULE:NAME for one of yours")
    with importing_beside(where) if where.endswith(".py") else nullcontext():
        try:
            module = load_module(where)
        except BadFile as error:
            raise BadTeam(str(error)) from None
        if not hasattr(module, name):
            raise BadTeam(f"{where} has no {name!r}; it has {', '.join(_teams(module, kind)) or 'no team'}")
        thing: Any = getattr(module, name)
        if callable(thing):
            thing = _made(thing, spec)
    if not isinstance(thing, kind):
        raise BadTeam(
            f"{spec}: expected a {kind.__name__} or a function that makes one, got {type(thing).__name__}"
        )
    return thing


def _teams(module: ModuleType, kind: type) -> list[str]:
    """The names in a module that may be teams, or functions that make one."""
    return [
        name
        for name, thing in vars(module).items()
        if isinstance(thing, kind)
        or (
            isfunction(thing)
            and thing.__module__ == module.__name__
            and not (name.startswith("_") or iscoroutinefunction(thing) or signature(thing).parameters)
        )
    ]


def _made(make: Any, spec: str) -> Any:
    try:
        return make()
    except BadTeam:
        raise
    except (Exception, SystemExit) as error:
        raise BadTeam(f"{spec} cannot be made: {shown(error)}") from None
