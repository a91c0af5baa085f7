"""What a user brings in a file or module: a team, a method, a score, a world, a detector.

Only what the user names is loaded, on the command line or in a recipe. What a record names is looked up in the
registry and never loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from podium.errors import WrongUse, shown
from podium.registry import entries, name_of

__all__ = ["BadFile", "importing_beside", "load_file", "load_module", "names_a_file", "use"]

_SPEC = re.compile(r"[^\s()\"']+\.py:\w+|[\w.]+:\w+")
_loaded: dict[str, tuple[float, ModuleType]] = {}  # by path: when the file was changed, and what it holds


class BadFile(WrongUse, ValueError):
    """A file or module of the user's that cannot be loaded, or lacks what was named."""


def names_a_file(text: str) -> bool:
    """Whether a word says where something is, rather than what.

    >>> [names_a_file(word) for word in ("my.py:score", "package.module:score", "outcome", "outcome('a:b')")]
    [True, True, False, False]
    """
    return _SPEC.fullmatch(text) is not None


def use(kind: str, spec: str, admit: Callable[[Any], Any] | None = None) -> str:
    """The registered name that a word stands for: itself, or for FILE.py:NAME or MODULE:NAME that of what is there.

    What the file holds but did not register is given to `admit`, if there is one, which does or says why not.
    """
    if not names_a_file(spec):
        return spec
    where, _, name = spec.rpartition(":")
    module = load_file(where)
    if not hasattr(module, name):
        there = [one for one, thing in entries(kind).items() if any(thing is x for x in vars(module).values())]
        raise BadFile(f"{where} has no {name!r}; of kind {kind} it has {', '.join(there) or 'none'}")
    thing = getattr(module, name)
    if admit is not None and name_of(kind, thing) is None:
        try:
            admit(thing)
        except WrongUse as error:
            raise BadFile(f"{spec}: {error}") from None
    registered = name_of(kind, thing)
    if registered is None:
        raise BadFile(f"{spec} is not registered as a {kind}; write @register({kind!r}, ...) above it")
    return registered


def load_file(where: str) -> ModuleType:
    """The module in a file, or of that name; what it registers can be named from now on.

    A file is run once, and again when it changed.
    """
    if not where.endswith(".py"):
        return load_module(where)
    path = Path(where).resolve()
    changed = path.stat().st_mtime if path.is_file() else 0.0
    if str(path) not in _loaded or _loaded[str(path)][0] != changed:
        _loaded[str(path)] = changed, load_module(where)
    return _loaded[str(path)][1]


def load_module(where: str) -> ModuleType:
    """The module in a file, run now, or of that name. It can import what lies beside the file."""
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        if not Path(where).is_file():
            raise BadFile(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(spec.name, module)
        with importing_beside(where):
            spec.loader.exec_module(module)
        return module
    except BadFile:
        raise
    except (Exception, SystemExit) as error:
        raise BadFile(f"{where} cannot be loaded: {shown(error)}") from None


@contextmanager
def importing_beside(where: str) -> Iterator[None]:
    """While something of a file runs, it can import what lies beside it."""
    folder = str(Path(where).resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
