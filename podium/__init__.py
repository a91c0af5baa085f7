"""Podium: train and understand teams of language-model agents through the record of how they worked together.

Names are imported when they are first used, so that `import podium` costs nothing. `podium.credit`, `metrics` and
`audit` are packages; what one calls is `credit_of`, `measure` and `audit_of`. A name for both would be one or the
other, by what was imported before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.audit import audit as audit_of
    from podium.envs.world import make
    from podium.exchange.trainers.batch import advantages
    from podium.learn.recipe import train_by_recipe as train
    from podium.methods import Method, credit_of
    from podium.metrics import measure
    from podium.registry import register
    from podium.rewards import score
    from podium.trace import BadTrace, Finding, Recorder, Trace, Unreadable, concat, load, save
    from podium.trace.rules import check

__all__ = [
    "BadTrace",
    "Finding",
    "Method",
    "Recorder",
    "Trace",
    "Unreadable",
    "__version__",
    "advantages",
    "audit_of",
    "check",
    "concat",
    "credit_of",
    "load",
    "make",
    "measure",
    "register",
    "save",
    "score",
    "train",
]
__version__ = "0.1.0"  # the one place: pyproject.toml reads it from here

_HOME: dict[str, tuple[str, str]] = {  # a name, its module and its name there
    **{
        name: ("podium.trace", name)
        for name in ("BadTrace", "Finding", "Recorder", "Trace", "Unreadable", "concat", "load", "save")
    },
    "Method": ("podium.methods", "Method"),
    "advantages": ("podium.exchange.trainers.batch", "advantages"),
    "audit_of": ("podium.audit", "audit"),
    "check": ("podium.trace.rules", "check"),
    "credit_of": ("podium.methods", "credit_of"),
    "make": ("podium.envs.world", "make"),
    "measure": ("podium.metrics", "measure"),
    "register": ("podium.registry", "register"),
    "score": ("podium.rewards", "score"),
    "train": ("podium.learn.recipe", "train_by_recipe"),
}
_PACKAGES = (
    "audit",
    "credit",
    "envs",
    "graph",
    "methods",
    "metrics",
    "rewards",
    "trace",
)  # `import podium` is enough


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"podium.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'podium' has no attribute {name!r}")
    module, there = _HOME[name]
    value = globals()[name] = getattr(import_module(module), there)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
