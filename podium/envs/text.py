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

__all__ = ["action", "change", "changed", "grammar", "prompt", "prompts", "read", "through_text"]

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
    lines += [f"{name}: {_figure(value)}" for name, value in zip(world.facts, view.facts[i].tolist(), strict=True)]
    lines.append(f"record ({', '.join(world.items)}):")
    lines += [f"{k}: {', '.join(map(_figure, row))}" for k, row in enumerate(values.tolist())] or [_NOTHING]
    lines.append("options:")
    for k in np.flatnonzero(view.allowed[i]).tolist():
        about = "" if view.about is None or view.about[i, k] < 0 else f" (about {view.about[i, k]})"
        lines.append(f"- {world.options[k]}{about}")
    lines.append("answer with one option")
    return "\n".join(lines)


def _figure(value: float) -> str:
    """A number that reads back to the bit; a whole one without its ".0", which would be two tokens more.

    >>> _figure(3.0), _figure(0.25), _figure(-0.0)
    ('3', '0.25', '-0')
    """
    return repr(value).removesuffix(".0")


def change(world: World, old: str, new: str) -> str:
    """What a later prompt says that an earlier one of the same agent did not: the lines that are others or new (of
    a record that has become shorter all of it), and the options where they are others. What is asked is not asked
    again. `changed` gives the later prompt back."""
    (head, record, options), (head2, record2, options2) = _parts(world, old), _parts(world, new)
    lines = [b for a, b in zip(head, head2, strict=True) if a != b]
    items, items2 = ([line for line in some[1:] if line != _NOTHING] for some in (record, record2))
    lines += [line for line in items2 if line not in items] if len(items2) >= len(items) else record2
    return "\n".join([*lines, *(options2[:-1] if options2 != options else [])])


def changed(world: World, old: str, text: str) -> str:
    """The prompt that a change of an earlier one leads to."""
    head, record, options = _parts(world, old)
    lines, names = text.split("\n"), [line.partition(": ")[0] for line in head]
    if "options:" in lines:
        at = lines.index("options:")
        options, lines = [*lines[at:], options[-1]], lines[:at]
    if record[0] in lines:
        at = lines.index(record[0])
        record, lines = lines[at:], lines[:at]
    for line in filter(None, lines):
        name = line.partition(": ")[0]
        if name in names:
            head[names.index(name)] = line
        elif int(name) + 1 < len(record) and record[-1] != _NOTHING:
            record[int(name) + 1] = line
        else:
            record = [*(r for r in record if r != _NOTHING), line]
    return "\n".join([*head, *record, *options])


def _parts(world: World, text: str) -> tuple[list[str], list[str], list[str]]:
    """The lines of a prompt: who decides what and the facts; the record under its title; the options and what is
    asked."""
    lines = text.split("\n")
    start, end = 3 + len(world.facts), lines.index("options:")
    return lines[:start], lines[start:end], lines[end:]


def grammar(world: World, view: View, i: int) -> str:
    """A regular expression that an action of this row matches."""
    return "|".join(re.escape(o) for o, ok in zip(world.options, view.allowed[i], strict=True) if ok)


def action(world: World, view: View, i: int, text: str) -> int:
    """The option that a text names, or what is allowed instead."""
    answer = text.strip()
    allowed = [o for o, ok in zip(world.options, view.allowed[i], strict=True) if ok]
    if answer not in allowed:
        raise BadParameter(f"{answer!r} is not an option here; expected one of: {', '.join(allowed)}")
    return world.options.index(answer)


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
