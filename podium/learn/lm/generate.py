"""Generation: answers drawn from contexts, token by token or among options, by dice with an address.

A number is drawn by the place it is for: seed, answer, token. So an answer does not depend on what is said beside it, as far as the model's
numbers do not: to the bit by the dense way (`engine`), to rounding by the flash way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.learn.lm.engine import Row, drawn
from podium.learn.lm.models import BadModel, damaged
from podium.learn.lm.reader import Reader
from podium.trace.columns import F

__all__ = [
    "SPEECH",
    "Asked",
    "Choice",
    "Desk",
    "Options",
    "Reader",
    "Spoken",
    "likeliest",
    "log_softmax",
    "picked",
    "speak",
]

N64 = NDArray[np.int64]
SPEECH = 0x5BEA  # the address of what is drawn for tokens
AT_ONCE = 4096  # contexts whose options are weighed in one forward


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

    @property
    def ids(self) -> list[int]:
        """All tokens that options have."""
        return sorted({token for path in self.paths for token in path})

    def score(
        self, reader: Reader, threads: N64, first: Any, columns: Sequence[int] | None = None
    ) -> dict[tuple[int, ...], F]:
        """At each place where options part, the log-probabilities of what may come; the threads stay as they are.

        `first` are the logits at the end of each thread: of all tokens, or of those in `columns`.
        """
        found = {at: log_softmax(_taken(first, among, columns)) for at, among in self.choices if not at}
        inner = [choice for choice in self.choices if choice.after]
        some = max(1, AT_ONCE // max(1, len(threads)))
        for i in range(0, len(inner), some):
            here = inner[i : i + some]
            after = [at for at, _ in here for _ in threads]
            logits = reader.read(np.tile(threads, len(here)), after, keep=False, columns=columns)
            for j, (at, among) in enumerate(here):
                found[at] = log_softmax(_taken(logits[j * len(threads) : (j + 1) * len(threads)], among, columns))
        return found


def _taken(logits: Any, among: Sequence[int], columns: Sequence[int] | None) -> F:
    """The logits of some tokens, as numbers here."""
    at = list(among) if columns is None else [columns.index(token) for token in among]
    held: F = logits[:, at].to("cpu", torch.float64).numpy()
    return held


class Spoken(NamedTuple):
    """A free answer: its tokens and their log-probabilities among all tokens."""

    ids: list[int]
    logp: list[float]
    ended: bool  # by the token that ends an answer, not for its length
    fault: str | None = None  # why there is none, where an endpoint was asked
    version: str = ""  # of the policy that said it


@dataclass
class Asked:
    """An answer that is asked for, and what there is of it."""

    thread: int
    seed: int
    number: int  # which answer of its episode it is
    longest: int
    greedy: bool
    tokens: tuple[int, ...] = ()  # to be read first
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)


def _dice(some: Sequence[Asked], steps: int) -> F:
    """[steps, answers] for the next tokens of each; below 0 where the likeliest is said."""
    seed = np.array([a.seed for a in some], np.uint64)
    number, done = np.array([a.number for a in some]), np.array([len(a.ids) for a in some])
    u = uniform(seed, SPEECH, number, done + np.arange(steps)[:, None])
    u[:, [a.greedy for a in some]] = -1.0
    return u


class Desk:
    """Answers are asked for at any time and said in one batch, which they join and leave. A thread is afterwards as it was when it had been read.

    What an answer is depends on its context, its seed and its number; not on what is said beside it.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._asked: dict[int, Asked] = {}  # all that are not answered, in the order in which they came
        self._live: dict[int, None] = {}  # those that are being said
        self._count = 0

    def __len__(self) -> int:
        """Answers that are not there yet."""
        return len(self._asked)

    def ask(self, asked: Asked) -> int:
        """The number by which the answer is known when it comes."""
        self._count += 1
        self._asked[self._count] = asked
        return self._count

    def step(self) -> dict[int, Spoken]:
        """Goes some tokens on with as many as there is room for; the answers that are done."""
        self._join()
        done = self._leave()  # what ends with its first token
        if self._live:
            self._decode()
        return done | self._leave()

    def begin(self, which: Sequence[int], first: Any) -> None:
        """Draws the first token of answers from the logits at the end of their contexts."""
        some = [self._asked[k] for k in which]
        u = torch.tensor(_dice(some, 1)[0], device=first.device)
        for asked, token, logp in zip(some, *(x.tolist() for x in drawn(first, u)), strict=True):
            asked.tokens, asked.ids, asked.logp = (), [token], [logp]

    def _join(self) -> None:
        engine = self.reader.engine
        room = max(0, engine.rows - len(self._live))
        joining = [k for k in self._asked if k not in self._live][:room]
        if new := [k for k in joining if self._asked[k].tokens]:
            some = [self._asked[k] for k in new]
            self.begin(new, self.reader.read(np.array([a.thread for a in some]), [a.tokens for a in some]))
        some = [self._asked[k] for k in joining]
        longest = np.array([a.longest for a in some], np.int64) + engine.stride
        self.reader.room(np.array([a.thread for a in some], np.int64), longest)
        self._live |= dict.fromkeys(joining)

    def _decode(self) -> None:
        """Reads the last token of each answer and draws what follows; what is drawn behind an end is waste."""
        engine = self.reader.engine
        while True:
            some = [self._asked[k] for k in self._live]
            steps = min(engine.stride, max(a.longest - len(a.ids) for a in some))
            try:
                token, logp = engine.decode([self._row(a) for a in some], _dice(some, steps))
                break
            except RuntimeError as error:
                self.reader.halve(error)
                self._live = dict.fromkeys(list(self._live)[: engine.rows])  # the others wait
        if np.isnan(logp).any():
            raise damaged(self.reader.mind.model.name)
        end = self.reader.mind.model.frame.end
        for asked, tokens, odds in zip(some, token.T.tolist(), logp.T.tolist(), strict=True):
            n = min(steps, asked.longest - len(asked.ids))
            n = tokens.index(end, 0, n) + 1 if end in tokens[:n] else n
            asked.ids += tokens[:n]
            asked.logp += odds[:n]

    def _row(self, asked: Asked) -> Row:
        """Its context and what was said of it so far, but for the last token."""
        row, n = self.reader.row(asked.thread, (asked.ids[-1],)), len(asked.ids) - 1
        return row._replace(own=(row.own[0], row.own[1] + n), new=row.new + n)

    def _ended(self, asked: Asked) -> bool:
        return len(asked.ids) == asked.longest or asked.ids[-1] == self.reader.mind.model.frame.end

    def _leave(self) -> dict[int, Spoken]:
        done, end = {}, self.reader.mind.model.frame.end
        for k in [k for k in self._live if self._ended(self._asked[k])]:
            asked = self._asked.pop(k)
            del self._live[k]
            done[k] = Spoken(asked.ids, asked.logp, asked.ids[-1] == end, version=self.reader.version)
        return done


def speak(
    reader: Reader, threads: N64, first: Any, seed: U, number: N64, longest: int, greedy: bool = False
) -> list[Spoken]:
    """Free answers of threads whose ends have these logits. `number` is which answer of its episode it is."""
    desk, done = Desk(reader), dict[int, Spoken]()
    asked = zip(threads.tolist(), seed.tolist(), number.tolist(), strict=True)
    which = [desk.ask(Asked(thread, s, n, longest, greedy)) for thread, s, n in asked]
    desk.begin(which, first)
    while desk:
        done |= desk.step()
    return [done[k] for k in which]
