"""Generation: contexts that grow token by token, and answers drawn from them, by dice with an address.

What one context yields does not depend on which others are read beside it, to the bit: a forward always has the same number of rows and
tokens, keys of a row lie in their order from 0 on with nothing but masked zeros behind them, and a number is drawn by the place it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.learn.lm.models import BadModel, Mind, finite, out_of_memory
from podium.trace.columns import F

__all__ = ["SPEECH", "Choice", "Options", "Reader", "Spoken", "likeliest", "log_softmax", "picked", "speak"]

N64 = NDArray[np.int64]
SPEECH = 0x5BEA  # the address of what is drawn for tokens
STEP = 64  # keys are added to a context so many at once


def log_softmax(logits: F) -> F:
    """log p_j = z_j - log Σ_i exp(z_i) along the last axis."""
    top = logits.max(axis=-1, keepdims=True)
    out: F = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return out


def picked(logp: F, u: F) -> N64:
    """The entry of each row drawn by u: the first whose cumulative probability is above u times the whole."""
    total = np.cumsum(np.exp(logp), axis=-1)
    at: N64 = (total[:, :-1] <= (u * total[:, -1])[:, None]).sum(axis=-1)
    return at


def likeliest(logp: F) -> N64:
    """The likeliest entry of each row, the first of equals."""
    at: N64 = logp.argmax(axis=-1)
    return at


class Reader:
    """Contexts of one policy, called threads, with the keys and values computed of them. Thread 0 is waste paper."""

    def __init__(self, mind: Mind, rows: int = 32, width: int = 32) -> None:
        self.mind, self.rows, self.width = mind, rows, width
        self.length = np.zeros(1, np.int64)  # tokens of each thread
        self.state = np.zeros(1, np.int64)  # equal where two threads hold the same tokens
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}  # the state that a state and tokens lead to
        self._came: list[tuple[int, tuple[int, ...]]] = [(0, ())]  # and back
        self._kept: dict[int, list[Any]] = {}  # of each layer its keys and values [threads, heads, tokens, size]
        self.tokens = 0  # that went through the model

    def threads(self, n: int) -> N64:
        """New threads, empty."""
        first = len(self.length)
        self.length = np.concatenate([self.length, np.zeros(n, np.int64)])
        self.state = np.concatenate([self.state, np.zeros(n, np.int64)])
        return np.arange(first, first + n)

    def read(self, threads: N64, tokens: Sequence[Sequence[int]]) -> F:
        """Adds tokens to each of these threads; the logits [threads, vocabulary] of what may follow. Threads that hold the same are computed once."""
        if any(len(some) == 0 for some in tokens):
            raise ValueError("to read takes a token at least")
        if (full := self.length[threads] + [len(some) for some in tokens]).max() > self.mind.model.longest:
            raise BadModel(
                f"a context of {full.max()} tokens; {self.mind.model.name} takes {self.mind.model.longest}"
            )
        first: dict[tuple[int, tuple[int, ...]], int] = {}
        of = np.zeros(len(threads), np.int64)
        for i, (thread, some) in enumerate(zip(threads.tolist(), tokens, strict=True)):
            of[i] = first.setdefault((int(self.state[thread]), tuple(some)), i)
        leads = np.unique(of)
        with self._fits():
            logits = self._read(threads[leads], [tuple(tokens[i]) for i in leads])
        follows = np.flatnonzero(of != np.arange(len(of)))
        self.copy(threads[of[follows]], threads[follows])
        out: F = logits[np.searchsorted(leads, of)]
        return out

    def held(self, state: int) -> list[int]:
        """The tokens that went through the model to come to a state."""
        parts = []
        while state:
            state, some = self._came[state]
            parts.append(some)
        return [token for some in reversed(parts) for token in some]

    def rewind(self, threads: N64, length: N64, state: N64) -> None:
        """Threads as they were when they had these lengths and states."""
        self.length[threads], self.state[threads] = length, state

    def copy(self, source: N64, target: N64) -> None:
        """Threads that hold what others hold; a thread that is rewound after it holds what the other held then."""
        with self._fits():
            self._room()
        if len(source) and self._kept:
            end = int(self.length[source].max())
            for kept in (held for layer in self._kept.values() for held in layer):
                kept[target, :, :end] = kept[source, :, :end]
        self.rewind(target, self.length[source], self.state[source])

    @contextmanager
    def _fits(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise BadModel(
                f"out of memory in generation with {len(self.length) - 1} contexts of up to {self.length.max()} tokens; "
                "fewer episodes or rows at once, or a smaller model, would need less"
            ) from None

    def _read(self, threads: N64, tokens: list[tuple[int, ...]]) -> F:
        """Block by block: one token alone, or blocks of `width` of which the first may be short, so that the last token comes last."""
        logits: list[Any] = [None] * len(threads)
        done = np.zeros(len(threads), np.int64)
        size = np.array([len(some) for some in tokens])
        while (left := size - done).any():
            for width in (1, self.width):
                here = np.flatnonzero((left > 0) & ((size == 1) == (width == 1)))
                for i in range(0, len(here), self.rows):
                    some = here[i : i + self.rows]
                    count = (left[some] - 1) % width + 1
                    block = [
                        tokens[j][done[j] : done[j] + c] for j, c in zip(some.tolist(), count.tolist(), strict=True)
                    ]
                    found = self._forward(threads[some], block, width)
                    done[some] += count
                    for row, j in enumerate(some.tolist()):
                        if done[j] == size[j]:
                            logits[j] = found[row]
        for thread, said in zip(threads.tolist(), tokens, strict=True):
            came = int(self.state[thread]), said
            if came not in self._known:
                self._known[came] = len(self._came)
                self._came.append(came)
            self.state[thread] = self._known[came]
        return finite(torch.stack(logits), self.mind.model.name)  # type: ignore[no-any-return]

    def _forward(self, threads: N64, tokens: list[tuple[int, ...]], width: int) -> Any:
        """One forward of `rows` x `width` tokens; short rows are filled in front with what goes to waste paper."""
        module, device = self.mind.wake(), self.mind.model.device
        token, place = np.zeros((self.rows, width), np.int64), np.zeros((self.rows, width), np.int64)
        thread, row = np.zeros((self.rows, width), np.int64), np.zeros(self.rows, np.int64)
        row[: len(threads)] = threads
        for i, some in enumerate(tokens):
            n = len(some)
            token[i, width - n :], thread[i, width - n :] = some, threads[i]
            place[i, width - n :] = self.length[threads[i]] + np.arange(n)
            self.length[threads[i]] += n
            self.tokens += n
        keys = -(-(int(place.max()) + 1) // STEP) * STEP
        self._room()
        seen = np.where(np.arange(keys) <= place[:, :, None], 0.0, -np.inf)[:, None]
        at = {k: torch.from_numpy(x).to(device) for k, x in (("row", row), ("thread", thread), ("place", place))}
        past = _Past(self._kept, **at, keys=keys, threads=len(self.length))
        with torch.no_grad():
            out = module(
                input_ids=torch.from_numpy(token).to(device),
                position_ids=past.place,
                attention_mask=torch.from_numpy(seen).to(device, next(module.parameters()).dtype),
                past_key_values=past,
                use_cache=True,
                logits_to_keep=1,
            )
        return out.logits[: len(threads), -1]

    def _room(self) -> None:
        """Room for all threads that there are."""
        for layer in self._kept.values():
            for i, held in enumerate(layer):
                if (more := len(self.length) - len(held)) > 0:
                    layer[i] = torch.cat([held, held.new_zeros(max(more, len(held) // 2), *held.shape[1:])])


@dataclass
class _Past:
    """What a model of transformers takes for its cache in one forward: new keys and values go to their places, and all of a row come back."""

    kept: dict[int, list[Any]]
    row: Any  # the thread of each row
    thread: Any  # of each token, and ...
    place: Any  # ... its place in that
    keys: int  # that rows have, masked ones included
    threads: int
    is_compileable: bool = False

    def update(self, key: Any, value: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        heads, size = key.shape[1], key.shape[3]
        if layer not in self.kept:
            self.kept[layer] = [x.new_zeros(self.threads, heads, self.keys, size) for x in (key, value)]
        held = self.kept[layer]
        for i, new in enumerate((key, value)):
            if held[i].shape[2] < self.keys:
                more = held[i].new_zeros(
                    len(held[i]), heads, max(self.keys, 2 * held[i].shape[2]) - held[i].shape[2], size
                )
                held[i] = torch.cat([held[i], more], dim=2)
            held[i][self.thread, :, self.place] = new.transpose(1, 2)
        return held[0][self.row, :, : self.keys], held[1][self.row, :, : self.keys]

    def get_seq_length(self, *_: Any) -> int:
        return 0


class Choice(NamedTuple):
    """A place where options part: after these tokens one of those comes."""

    after: tuple[int, ...]
    among: tuple[int, ...]


class Options:
    """What may be said, as sequences of tokens that each close with `end`: a tree, of which the places where it parts matter.

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
            raise BadModel("two options are the same tokens")
        self._after = {at: tuple(some) for at, some in after.items()}
        self.choices = [Choice(at, some) for at, some in self._after.items() if len(some) > 1]

    def among(self, option: int) -> list[tuple[int, ...]]:
        """Of each token of an option, those that could have come in its place, itself included."""
        path = self.paths[option]
        return [self._after[path[:i]] for i in range(len(path))]

    def logp(self, option: int, parted: dict[tuple[int, ...], F]) -> F:
        """The log-probability of each token of an option [rows, tokens]: 0 where there was no choice.

        log p(token | before, grammar) = z_token - log Σ_{i allowed here} exp(z_i)
        """
        rows = len(next(iter(parted.values()))) if parted else 1
        path, columns = self.paths[option], []
        for i, some in enumerate(self.among(option)):
            columns.append(parted[path[:i]][:, some.index(path[i])] if len(some) > 1 else np.zeros(rows))
        return np.stack(columns, 1)

    def score(self, reader: Reader, threads: N64, first: F) -> dict[tuple[int, ...], F]:
        """At each place where options part, the log-probabilities of what may come; the threads stay as they are.

        `first` are the logits at the end of each thread.
        """
        found = {}
        length, state = reader.length[threads].copy(), reader.state[threads].copy()
        for at, among in self.choices:
            logits = first if not at else reader.read(threads, [at] * len(threads))
            reader.rewind(threads, length, state)
            found[at] = log_softmax(logits[:, among])
        return found


class Spoken(NamedTuple):
    """A free answer: its tokens and their log-probabilities among all tokens."""

    ids: list[int]
    logp: list[float]
    ended: bool  # by the token that ends an answer, not for its length
    fault: str | None = None  # why there is none, where an endpoint was asked


def speak(
    reader: Reader, threads: N64, first: F, seed: U, number: N64, longest: int, pick: Callable[[F, F], N64] = picked
) -> list[Spoken]:
    """Free answers, token by token; the last token of each is not read. `number` is which answer of its episode it is."""
    end = reader.mind.model.frame.end
    said: list[Spoken] = [Spoken([], [], False) for _ in threads]
    live, logits = np.arange(len(threads)), first
    for k in range(longest):
        logp = log_softmax(logits)
        token = pick(logp, uniform(seed[live], SPEECH, number[live], k))
        for i, t, p in zip(live.tolist(), token.tolist(), logp[np.arange(len(live)), token].tolist(), strict=True):
            said[i].ids.append(t)
            said[i].logp.append(p)
            if t == end:
                said[i] = said[i]._replace(ended=True)
        goes = token != end
        live, token = live[goes], token[goes]
        if not len(live) or k + 1 == longest:
            break
        logits = reader.read(threads[live], [(t,) for t in token.tolist()])
    return said
