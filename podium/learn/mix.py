"""What a policy decides: the share of each kind of decision, and of each of its options by word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.learn.policy import STRIDE
from podium.trace.columns import Trace
from podium.trace.vocabulary import DECISIONS

__all__ = ["Tally", "added", "counts_by_word", "shares", "tally_of"]

N64 = NDArray[np.int64]
Tally = dict[str, dict[str, int]]  # by kind and word: how often


def counts_by_word(words: Sequence[str], option: N64, count: N64) -> dict[str, int]:
    """How often each word was chosen, from codes of options; an option that is only a number goes by that.

    >>> counts_by_word(["", "spawn"], np.array([1 + 0, 1 * STRIDE + 4, 1 * STRIDE + 5]), np.array([2, 3, 1]))
    {'0': 2, 'spawn': 4}
    """
    counts: dict[str, int] = {}
    for code, many in zip(option.tolist(), count.tolist(), strict=True):
        if many:
            word = words[code // STRIDE] or str(code % STRIDE - 1)
            counts[word] = counts.get(word, 0) + many
    return dict(sorted(counts.items()))


def tally_of(trace: Trace, rows: N64, word: Callable[[str], str]) -> Tally:
    """What was chosen at these decisions, by kind and by the word for the option."""
    tally: Tally = {}
    for kind, label in zip(trace.decision_e[rows].tolist(), trace.chosen_e.take(rows).strings(), strict=True):
        name, of = word(str(label)), tally.setdefault(DECISIONS[kind], {})
        of[name] = of.get(name, 0) + 1
    return tally


def added(tallies: Iterable[tuple[str, Mapping[str, int]]]) -> Tally:
    """All of them as one."""
    kinds: Tally = {}
    for kind, words in tallies:
        of = kinds.setdefault(kind, {})
        for word, many in words.items():
            of[word] = of.get(word, 0) + many
    return kinds


def shares(tallies: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, dict[str, Any]]:
    """Of each kind its share of all decisions, and the shares of its options.

    >>> shares([("stop", {"go on": 3}), ("spawn", {"spawn": 4}), ("stop", {"stop": 1})])["stop"]
    {'share': 0.5, 'options': {'go on': 0.75, 'stop': 0.25}}
    """
    kinds = added(tallies)
    total = {kind: sum(words.values()) for kind, words in sorted(kinds.items())}
    every = sum(total.values())
    return {
        kind: {"share": n / every, "options": {word: m / n for word, m in sorted(kinds[kind].items())}}
        for kind, n in total.items()
        if n
    }
