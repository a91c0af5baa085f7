"""The text face of every world: a view as a prompt, and an action as one of its words.

The prompt says all that the arrays say and nothing else: `read_answer` gives the arrays back, to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from podium.envs.world import BadParameter, Policy, View, World
from podium.trace.columns import F

__all__ = ["action", "change", "changed", "grammar", "prompts", "read_answer", "through_text"]

_NOTHING = "nothing yet"


def prompts(world: World, view: View) -> list[str]:
    """What each row of a view sees, as text."""
    values, owner = view.items()
    facts, items = ([*zip(*[iter(format_figures(x))] * x.shape[1], strict=True)] for x in (view.facts, values))
    first = np.searchsorted(owner, np.arange(len(view) + 1)).tolist()
    head = f"world: {world.name}\nyou are: {view.agent}\ndecide: {view.kind}"
    title = f"record ({', '.join(world.items)}):"
    menus: dict[bytes, str] = {}
    texts = []
    for i, row in enumerate(facts):
        lines = [head, *(f"{name}: {figure}" for name, figure in zip(world.facts, row, strict=True)), title]
        lines += [f"{k}: {', '.join(item)}" for k, item in enumerate(items[first[i] : first[i + 1]])] or [_NOTHING]
        key = view.allowed[i].tobytes() + (b"" if view.about is None else view.about[i].tobytes())
        if key not in menus:
            menus[key] = _menu(world, view, i)
        texts.append("\n".join([*lines, menus[key]]))
    return texts


def _menu(world: World, view: View, i: int) -> str:
    """The options of a row, and what is asked."""
    lines = ["options:"]
    for k in np.flatnonzero(view.allowed[i]).tolist():
        about = "" if view.about is None or view.about[i, k] < 0 else f" (about {view.about[i, k]})"
        lines.append(f"- {world.options[k]}{about}")
    return "\n".join([*lines, "answer with one option"])


def format_figures(values: F) -> list[str]:
    """Numbers that read back to the bit, row by row; a whole one without its ".0", which would be two tokens more.

    >>> format_figures(np.array([[3.0, 0.25], [-0.0, 3.0]]))
    ['3', '0.25', '-0', '3']
    """
    bits, place = np.unique(np.ascontiguousarray(values, np.float64).view(np.int64), return_inverse=True)
    words = [repr(value).removesuffix(".0") for value in bits.view(np.float64).tolist()]
    return [words[k] for k in place.ravel().tolist()]


def change(world: World, old: str, new: str) -> str:
    """What a later prompt says that an earlier one of the same agent did not: the lines that are others or new (of
    a record that has become shorter all of it), and the options where they are others. What is asked is not asked
    again. `changed` gives the later prompt back."""
    (head, record, options), (head2, record2, options2) = _parts(world, old), _parts(world, new)
    lines = [b for a, b in zip(head, head2, strict=True) if a != b]
    items, items2 = ([line for line in some[1:] if line != _NOTHING] for some in (record, record2))
    shown = set(items)
    lines += [line for line in items2 if line not in shown] if len(items2) >= len(items) else record2
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


def read_answer(world: World, text: str) -> tuple[F, F, NDArray[np.bool_], NDArray[np.int64]]:
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
