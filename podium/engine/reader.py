"""Contexts that grow token by token. What several hold alike is computed once and lies once in the pool of their
engine.

A thread is a context: a trunk, which others may have too, and what is its own behind it. Threads that begin alike
get a trunk when they are read together; a thread that is copied becomes one for its copies.
"""

from __future__ import annotations

import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from podium.engine.models import BadModel, OutOfMemory, PolicyModel, finite, out_of_memory
from podium.engine.runner import ModelRunner, Row
from podium.trace.tokens import extend

__all__ = ["Reader", "trunks"]

N64 = NDArray[np.int64]
SHARE = 64  # tokens from which on a common beginning is worth a trunk
T = TypeVar("T")


def trunks(tokens: Sequence[Sequence[int]], least: int = SHARE, width: int = 1) -> list[tuple[int, int]]:
    """Of each sequence with which first it should share its beginning, and how many tokens: the cut of the tree of
    beginnings that saves most.

    A beginning of d tokens that n have saves (n - 1) d. Lengths are multiples of `width` and leave two tokens at
    least.

    >>> trunks([(1, 2, 3, 4, 5), (7, 8, 9, 9), (1, 2, 3, 5, 5), (7, 8, 8, 8), (1, 1, 1, 1)], least=2)
    [(0, 3), (1, 2), (0, 3), (1, 2), (4, 0)]
    """
    shares = [(i, 0) for i in range(len(tokens))]
    if len(tokens) < 2:
        return shares
    words = [array("I", some).tobytes() for some in tokens]
    order = sorted(range(len(words)), key=words.__getitem__)
    most = [max(0, len(some) - 2) // width * width for some in tokens]
    alike = [_alike(words[a], words[b]) // 4 // width * width for a, b in pairwise(order)]
    alike = [min(n, most[a], most[b]) for n, a, b in zip(alike, order, order[1:], strict=False)]
    for first, stop, length in _cut(alike, least)[1]:
        for i in order[first:stop]:
            shares[i] = min(order[first:stop]), length
    return shares


def _alike(a: bytes, b: bytes) -> int:
    """Bytes that two begin with."""
    n = min(len(a), len(b))
    differ = np.frombuffer(a[:n], np.uint8) != np.frombuffer(b[:n], np.uint8)
    return int(differ.argmax()) if differ.any() else n


def _cut(alike: Sequence[int], least: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Of neighbours that are alike so far, who should share (first, stop, length), and what that saves."""
    best: dict[tuple[int, int], tuple[int, list[tuple[int, int, int]]]] = {}
    todo = [(0, len(alike) + 1)]
    while todo:  # a range waits for those inside it
        i, j = todo[-1]
        if j - i < 2:
            best[i, j] = 0, []
        else:
            depth = min(alike[i : j - 1])
            ends = [i, *(k + 1 for k in range(i, j - 1) if alike[k] == depth), j]
            parts = list(pairwise(ends))
            if missing := [part for part in parts if part not in best]:
                todo += missing
                continue
            below = sum(best[part][0] for part in parts)
            saving = (j - i - 1) * depth if depth >= least else 0
            inner = [cut for part in parts for cut in best[part][1]]
            best[i, j] = (saving, [(i, j, depth)]) if saving > below else (below, inner)
        todo.pop()
    return best[0, len(alike) + 1]


class Reader:
    """Contexts of policies that are one model, or adapters on it. `length` and `state` are of each thread; thread 0
    is nobody's."""

    def __init__(
        self,
        policy: PolicyModel,
        rows: int = 32,
        width: int = 32,
        *,
        version: str = "",
        runner: ModelRunner | None = None,
    ) -> None:
        self.policy, self.version = policy, version
        self.runner = runner or policy.model.runner(rows, width)
        self.runner.renew()
        self.length = np.zeros(1, np.int64)  # tokens of each thread
        self.state = np.zeros(1, np.int64)  # equal where two threads hold the same tokens
        self.adapter_number = np.full(1, -1)
        self._trunk = np.zeros((1, 2), np.int64)  # the first place of it, and how much of it is this thread's
        self._own = np.zeros((1, 2), np.int64)  # the first place of the run, and its size
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}  # the state that a state and tokens lead to
        self._digests: list[tuple[int, int, int]] = [(0, 0, 0)]  # of each state, of the tokens that lead to it
        self._runs: dict[int, int] = {}  # all runs that are held: first place, size
        self._sharing: Counter[int] = Counter()  # threads that have a trunk, by its first place
        weakref.finalize(self, _give_back, self.runner, self._runs)

    def threads(self, n: int, policy: PolicyModel | None = None) -> N64:
        """New threads, empty, of this policy."""
        first, names = len(self.length), self.runner.chosen.names
        adapter = (policy or self.policy).adapter
        if adapter is not None and adapter not in names:
            raise BadModel(f"no adapter {adapter!r} on this model; there are {', '.join(names) or 'none'}")
        adapter_number = -1 if adapter is None else names.index(adapter)
        self.length, self.state, self.adapter_number = (
            np.concatenate([x, np.full(n, new)])
            for x, new in ((self.length, 0), (self.state, 0), (self.adapter_number, adapter_number))
        )
        self._trunk, self._own = (np.concatenate([x, np.zeros((n, 2), np.int64)]) for x in (self._trunk, self._own))
        return np.arange(first, first + n)

    def read(
        self,
        threads: N64,
        tokens: Sequence[Sequence[int]],
        keep: bool = True,
        columns: Sequence[int] | None = None,
        alone: bool = False,
    ) -> Any:
        """Adds tokens to each of these threads; the logits of what may follow, on the model's device: [threads,
        vocabulary], or of some `columns` of it.

        Threads that hold the same are computed once, unless each is to be read `alone`. If it is not to be kept,
        threads stay as they are, and one may be there several times."""
        if any(len(some) == 0 for some in tokens):
            raise ValueError("to read takes a token at least")
        if (full := self.length[threads] + [len(some) for some in tokens]).max() > self.policy.model.longest:
            raise BadModel(
                f"a context of {full.max()} tokens; {self.policy.model.name} takes {self.policy.model.longest}"
            )
        first: dict[tuple[int, int, int, tuple[int, ...]], int] = {}
        of = np.zeros(len(threads), np.int64)
        for i, (thread, some) in enumerate(zip(threads.tolist(), tokens, strict=True)):
            state = int(self.adapter_number[thread]), int(self.state[thread])
            of[i] = first.setdefault((thread * alone, *state, tuple(some)), i)
        leads = np.unique(of)
        new = [some for *_, some in first]
        how = self._kept if keep else self._glimpsed
        logits = finite(how(threads[leads], new, columns), self.policy.model.name)
        if len(leads) == len(of):
            return logits
        if keep:
            follows = np.flatnonzero(of != np.arange(len(of)))
            self.copy(threads[of[follows]], threads[follows])
        return logits[np.searchsorted(leads, of)]

    def _kept(self, threads: N64, tokens: list[tuple[int, ...]], columns: Sequence[int] | None) -> Any:
        """Reads what threads begin with alike, then of each the rest."""
        ahead = self._shared(threads, tokens)
        rest = [some[n:] for some, n in zip(tokens, ahead, strict=True)]
        self.room(threads, np.array([len(some) for some in rest]))
        logits = self._read([self.row(t, some) for t, some in zip(threads.tolist(), rest, strict=True)], columns)
        self.length[threads] += [len(some) for some in rest]
        self._go_on(threads, tokens)
        return logits

    def _go_on(self, threads: N64, tokens: list[tuple[int, ...]]) -> None:
        """Threads come to the states that these tokens lead to, and states that are new get their digests."""
        new: list[tuple[int, tuple[int, ...]]] = []
        for thread, before, some in zip(threads.tolist(), self.state[threads].tolist(), tokens, strict=True):
            key, first = (before, some), len(self._digests) + len(new)
            self.state[thread] = number = self._known.setdefault(key, first)
            if number == first:
                new.append(key)
        if new:
            length, h1, h2 = np.array([self._digests[state] for state, _ in new]).T
            whole = extend(length, h1, h2, [some for _, some in new])
            self._digests += zip(*(x.tolist() for x in whole), strict=True)

    def digests(self, threads: N64) -> list[tuple[int, int, int]]:
        """Length and hashes of all tokens that went through the model into each thread (`trace.tokens.extend`)."""
        return [self._digests[state] for state in self.state[threads].tolist()]

    def _glimpsed(self, threads: N64, tokens: list[tuple[int, ...]], columns: Sequence[int] | None) -> Any:
        """Reads into runs that are given back at once."""
        runs = [self._take(len(some)) for some in tokens]
        rows = [self.row(t, some) for t, some in zip(threads.tolist(), tokens, strict=True)]
        logits = self._read([row._replace(new=first) for row, (first, _) in zip(rows, runs, strict=True)], columns)
        for first, _ in runs:
            self._give(first)
        return logits

    def _shared(self, threads: N64, tokens: list[tuple[int, ...]]) -> list[int]:
        """Gives empty threads that begin alike a trunk; how many tokens of each are read by that."""
        ahead, rows = [0] * len(tokens), []
        width = self.runner.width if self.runner.way == "dense" else 1
        for adapter_number in np.unique(self.adapter_number[threads]).tolist():
            empty = np.flatnonzero(
                (self.adapter_number[threads] == adapter_number) & (self.length[threads] == 0)
            ).tolist()
            trunk_of: dict[int, int] = {}
            for i, (of, n) in zip(empty, trunks([tokens[i] for i in empty], SHARE, width), strict=True):
                if not n:
                    continue
                if of not in trunk_of:
                    trunk_of[of] = first = self._take(n)[0]
                    rows.append(Row(tokens[i][:n], (0, 0), (first, 0), first, adapter_number))
                self._graft(int(threads[i]), trunk_of[of], n)
                ahead[i] = n
        if rows:
            self._read(rows, (0,))  # what may follow is nobody's question
            self.length[threads] += ahead
        return ahead

    def row(self, thread: int, tokens: tuple[int, ...]) -> Row:
        """A thread as the engine takes it, with tokens to read behind what is its own."""
        trunk, own, length = self._trunk[thread], self._own[thread], int(self.length[thread])
        behind = length - int(trunk[1])
        return Row(
            tokens,
            (int(trunk[0]), int(trunk[1])),
            (int(own[0]), behind),
            int(own[0]) + behind,
            int(self.adapter_number[thread]),
        )

    def room(self, threads: N64, size: N64) -> None:
        """Room for so many more tokens in what is each thread's own."""
        behind = self.length[threads] - self._trunk[threads, 1]
        moved: list[tuple[int, int, int]] = []
        old = []
        for thread, has, more in zip(threads.tolist(), behind.tolist(), size.tolist(), strict=True):
            first, room = self._own[thread].tolist()
            if has + more > room:
                self._own[thread] = self._take(has + more)
                moved.append((first, int(self._own[thread, 0]), has))
                old += [first] * (room > 0)
        self._copy(moved)
        for first in old:
            self._give(first)

    def rewind(self, threads: N64, length: N64, state: N64) -> None:
        """Threads as they were when they had these lengths, which are no more than they have, and states."""
        if (length > self.length[threads]).any():
            raise ValueError("a thread can only be rewound to what it still holds")
        self.length[threads], self.state[threads] = length, state
        self._trunk[threads, 1] = np.minimum(self._trunk[threads, 1], length)

    def copy(self, source: N64, target: N64) -> None:
        """Empty threads that hold what others hold: what is long becomes a trunk for all of them, what is short is
        copied."""
        targets: dict[int, list[int]] = {}
        for a, b in zip(source.tolist(), target.tolist(), strict=True):
            targets.setdefault(a, []).append(b)
        moved: list[tuple[int, int, int]] = []
        for thread, others in targets.items():
            (trunk, n), (own, _), length = (
                self._trunk[thread].tolist(),
                self._own[thread].tolist(),
                int(self.length[thread]),
            )
            if not n and length >= SHARE:
                self._own[thread] = 0
                for other in (thread, *others):
                    self._graft(other, own, length)
            elif length - n >= SHARE and len(others) > 1:
                first, _ = self._take(length)
                moved += [(trunk, first, n), (own, first + n, length - n)]
                for other in others:
                    self._graft(other, first, length)
            else:
                for other in others:
                    if n:
                        self._graft(other, trunk, n)
                    if length > n:
                        self._own[other] = self._take(length - n)
                        moved.append((own, int(self._own[other, 0]), length - n))
        self._copy(moved)
        for column in (self.length, self.state, self.adapter_number):
            column[target] = column[source]

    def drop(self, threads: N64) -> None:
        """Threads that are not needed any more: empty again, and what only they held is given back."""
        for thread in threads.tolist():
            if self._own[thread, 1]:
                self._give(int(self._own[thread, 0]))
            if trunk := int(self._trunk[thread, 0]):
                self._sharing[trunk] -= 1
                if not self._sharing[trunk]:
                    self._give(trunk)
        self._own[threads], self._trunk[threads] = 0, 0
        self.length[threads], self.state[threads] = 0, 0

    # ---- the runner, and what does not fit into it

    def _graft(self, thread: int, trunk: int, length: int) -> None:
        self._trunk[thread] = trunk, length
        self._sharing[trunk] += 1

    def _take(self, length: int) -> tuple[int, int]:
        first, size = self.tried(lambda: self.runner.take(length))
        self._runs[first] = size
        return first, size

    def _give(self, first: int) -> None:
        self.runner.give(first, self._runs.pop(first))

    def _copy(self, moved: list[tuple[int, int, int]]) -> None:
        if moved := [m for m in moved if m[2]]:
            self.tried(lambda: self.runner.copy(*zip(*moved, strict=True)))

    def _read(self, rows: list[Row], columns: Sequence[int] | None) -> Any:
        return self.tried(lambda: self.runner.read(rows, columns))

    def tried(self, call: Callable[[], T]) -> T:
        """What a call gives; what does not fit into memory is tried again with half as many rows and tokens at
        once. Raises OutOfMemory."""
        while True:
            try:
                return call()
            except RuntimeError as error:
                self.halve(error)

    def halve(self, error: RuntimeError) -> None:
        """Makes the engine take half as much at once if the error is that it did not fit, else raises it. Raises
        OutOfMemory where there is no half."""
        if not out_of_memory(error):
            raise error
        if not self.runner.halve():
            raise OutOfMemory(
                f"out of memory in generation with {len(self.length) - 1} contexts of up to {self.length.max()} "
                "tokens; "
                "fewer episodes at once, or a smaller model, would need less"
            ) from None


def _give_back(runner: ModelRunner, runs: dict[int, int]) -> None:
    """All runs of a reader that is gone."""
    for first, size in runs.items():
        runner.give(first, size)
    runs.clear()
