"""Options as a tree of tokens: where they part, how likely each is, and which one a number draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.engine.protocol import BadEngine
from podium.trace.columns import F

__all__ = ["Choice", "Options", "draw", "likeliest", "log_softmax"]

N64 = NDArray[np.int64]


def log_softmax(logits: F) -> F:
    """log p_j = z_j - log Σ_i exp(z_i) along the last axis."""
    top = logits.max(axis=-1, keepdims=True)
    out: F = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return out


def draw(logp: F, u: F) -> N64:
    """The entry of each row drawn by u: the first whose cumulative probability is above u times the whole."""
    total = np.cumsum(np.exp(logp), axis=-1)
    at: N64 = (total[:, :-1] <= (u * total[:, -1])[:, None]).sum(axis=-1)
    return at


def likeliest(logp: F) -> N64:
    """The likeliest entry of each row, the first of equals."""
    at: N64 = logp.argmax(axis=-1)
    return at


class Choice(NamedTuple):
    """A place where options part: after these tokens one of those comes."""

    after: tuple[int, ...]
    among: tuple[int, ...]


class Options:
    """What may be said, as sequences of tokens that each close with `end`: a tree, of which the places where it
    parts matter.

    >>> two = Options([(1, 2), (1, 3)], end=9)
    >>> two.choices, two.among(1)
    ([Choice(after=(1,), among=(2, 3))], [(1,), (2, 3), (9,)])
    """

    def __init__(self, ids: Sequence[Sequence[int]], end: int) -> None:
        self.paths = [(*some, end) for some in ids]
        after: dict[tuple[int, ...], dict[int, None]] = {}
        for path in self.paths:
            for i, token in enumerate(path):
                after.setdefault(path[:i], {})[token] = None
        if len(set(self.paths)) != len(self.paths):
            raise BadEngine("two options are the same tokens")
        self._after = {at: tuple(some) for at, some in after.items()}
        self.number = {path: k for k, path in enumerate(self.paths)}
        self._among = [[self._after[path[:i]] for i in range(len(path))] for path in self.paths]
        self.choices = [Choice(at, some) for at, some in self._after.items() if len(some) > 1]
        self.ids = sorted({token for path in self.paths for token in path})  # all tokens that options have

    def among(self, option: int) -> list[tuple[int, ...]]:
        """Of each token of an option, those that could have come in its place, itself included."""
        return self._among[option]

    def logp(self, option: int, parted: dict[tuple[int, ...], F]) -> F:
        """The log-probability of each token of an option [rows, tokens]: 0 where there was no choice.

        log p(token | before, grammar) = z_token - log Σ_{i allowed here} exp(z_i)
        """
        rows = len(next(iter(parted.values()))) if parted else 1
        path, columns = self.paths[option], []
        for i, some in enumerate(self.among(option)):
            columns.append(parted[path[:i]][:, some.index(path[i])] if len(some) > 1 else np.zeros(rows))
        return np.stack(columns, 1)

    def log_probabilities(self, parted: dict[tuple[int, ...], F], rows: int) -> tuple[list[F], F]:
        """Of each option the log-probabilities of its tokens [rows, tokens], and of all options their sums [rows,
        options].

        `parted` has the log-probabilities of what may come at each place where options part.
        """
        tokens = [np.broadcast_to(self.logp(k, parted), (rows, len(path))) for k, path in enumerate(self.paths)]
        return tokens, np.stack([some.sum(axis=1) for some in tokens], 1)
