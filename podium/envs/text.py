"""The text face of every world: a view as a prompt, and an action as one of its words.

The prompt says all that the arrays say and nothing else: `read` gives the arrays back, to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from podium.envs.world import BadParameter, Policy, View, World
from podium.trace.columns import F

__all__ = ["action", "grammar", "prompt", "prompts", "read", "through_text"]

_NOTHING = "nothing yet"


def prompts(world: World, view: View) -> list[str]:
    """What each row of a view sees, as text."""
    values, owner = view.items()
    first = np.searchsorted(owner, np.arange(len(view) + 1))
    return [_prompt(world, view, i, values[first[i] : first[i + 1]]) for i in range(len(view))]


def prompt(world: World, view: View, i: int) -> str:
    """What one row of a view sees, as text."""
    values, owner = view.items()
    return _prompt(world, view, i, values[owner == i])


def _prompt(world: World, view: View, i: int, values: F) -> str:
    lines = [f"world: {world.name}", f"you are: {view.agent}", f"decide: {view.kind}"]
    lines += [f"{name}: {value!r}" for name, value in zip(world.facts, view.facts[i].tolist(), strict=True)]
    lines.append(f"record ({', '.join(world.items)}):")
    lines += [f"{k}: {', '.join(map(repr, row))}" for k, row in enumerate(values.tolist())] or [_NOTHING]
    lines.append("options:")
    for k in np.flatnonzero(view.allowed[i]).tolist():
        about = "" if view.about is None or view.about[i, k] < 0 else f" (about {view.about[i, k]})"
        lines.append(f"- {world.options[k]}{about}")
    lines.append("answer with one option")
    return "\n".join(lines)


def grammar(world: World, view: View, i: int) -> str:
    """A regular expression that an action of this row matches."""
    return "|".join(re.escape(o) for o, ok in zip(world.options, view.allowed[i], strict=True) if ok)


def action(world: World, view: View, i: int, text: str) -> int:
    """The option that a text names, or what is allowed instead."""
    said = text.strip()
    allowed = [o for o, ok in zip(world.options, view.allowed[i], strict=True) if ok]
    if said not in allowed:
        raise BadParameter(f"{said!r} is not an option here; expected one of: {', '.join(allowed)}")
    return world.options.index(said)


def read(world: World, text: str) -> tuple[F, F, NDArray[np.bool_], NDArray[np.int64]]:
    """The arrays behind a prompt: facts, items, allowed, and what each option is about (-1: nothing)."""
    lines = text.split("\n")
    facts = [float(line.partition(": ")[2]) for line in lines[3 : 3 + len(world.facts)]]
    rest = lines[4 + len(world.facts) :]
    end = rest.index("options:")
    items = [[float(v) for v in line.partition(": ")[2].split(", ")] for line in rest[:end] if line != _NOTHING]
    allowed, about = np.zeros(len(world.options), np.bool_), np.full(len(world.options), -1)
    for line in rest[end + 1 : -1]:
        label, _, pointed = line.removeprefix("- ").partition(" (about ")
        allowed[world.options.index(label)] = True
        if pointed:
            about[world.options.index(label)] = int(pointed.rstrip(")"))
    return np.array(facts), np.array(items, np.float64).reshape(-1, len(world.items)), allowed, about


def through_text(world: World, answer: Callable[[str], str]) -> Policy:
    """A policy from a function that reads prompts and writes actions."""
    return lambda view: np.array(
        [action(world, view, i, answer(p)) for i, p in enumerate(prompts(world, view))], np.int64
    )
