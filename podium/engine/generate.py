"""Generation: answers drawn from contexts, token by token or among options, by dice with an address.

A number is drawn by the place it is for: seed, answer, token. So an answer does not depend on what is said beside
it, as far as the model's numbers do not: to the bit by the dense way (`runner`), to rounding by the flash way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from podium.engine.grammar import Guide
from podium.engine.models import damaged
from podium.engine.options import Options, log_softmax
from podium.engine.protocol import SPEECH, Completion
from podium.engine.reader import Reader
from podium.engine.runner import Row, drawn
from podium.envs.draws import uniform
from podium.trace.columns import F

__all__ = ["Pending", "RunningBatch", "complete_free", "score"]

N64 = NDArray[np.int64]
AT_ONCE = 4096  # contexts whose options are weighed in one forward


def score(
    options: Options, reader: Reader, threads: N64, first: Any, columns: Sequence[int] | None = None
) -> dict[tuple[int, ...], F]:
    """At each place where options part, the log-probabilities of what may come; the threads stay as they are.

    `first` are the logits at the end of each thread: of all tokens, or of those in `columns`.
    """
    parted = {at: log_softmax(_taken(first, among, columns)) for at, among in options.choices if not at}
    inner = [choice for choice in options.choices if choice.after]
    some = max(1, AT_ONCE // max(1, len(threads)))
    for i in range(0, len(inner), some):
        choices = inner[i : i + some]
        after = [at for at, _ in choices for _ in threads]
        logits = reader.read(np.tile(threads, len(choices)), after, keep=False, columns=columns)
        for j, (at, among) in enumerate(choices):
            parted[at] = log_softmax(_taken(logits[j * len(threads) : (j + 1) * len(threads)], among, columns))
    return parted


def _taken(logits: Any, among: Sequence[int], columns: Sequence[int] | None) -> F:
    """The logits of some tokens, as numbers here."""
    at = list(among) if columns is None else [columns.index(token) for token in among]
    values: F = logits[:, at].to("cpu", torch.float64).numpy()
    return values


@dataclass
class Pending:
    """A free answer that is asked for, and what there is of it."""

    thread: int
    address: tuple[int, ...]  # of its dice: a seed, then which answer it is
    longest: int
    greedy: bool
    tokens: tuple[int, ...] = ()  # to be read first
    guide: Guide | None = None  # what may come, and what ends it
    origin: tuple[int, int] | None = None  # length and state of its thread before a guided answer
    stopped: bool = False  # by a text that ends it
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)


def _dice(some: Sequence[Pending], steps: int) -> F:
    """[steps, answers] for the next tokens of each; below 0 where the likeliest is said."""
    u = np.full((steps, len(some)), -1.0)
    for length in {len(p.address) for p in some if not p.greedy}:
        at = [i for i, p in enumerate(some) if not p.greedy and len(p.address) == length]
        seed, *rest = zip(*(some[i].address for i in at), strict=True)
        done = np.array([len(some[i].ids) for i in at])
        place = *(np.array(part, np.int64) for part in rest), done + np.arange(steps)[:, None]
        u[:, at] = uniform(np.array(seed, np.uint64), SPEECH, *place)
    return u


class RunningBatch:
    """Answers are asked for at any time and drawn in one batch, which they join and leave. A thread is afterwards
    as it was when it had been read.

    What an answer is depends on its context and its address; not on what is said beside it.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._pending: dict[int, Pending] = {}  # all that are not answered, in the order in which they came
        self._live: dict[int, None] = {}  # those that are being said
        self._count = 0

    def __len__(self) -> int:
        """Answers that are not there yet."""
        return len(self._pending)

    def add(self, pending: Pending) -> int:
        """The number by which the answer is known when it comes."""
        self._count += 1
        self._pending[self._count] = pending
        return self._count

    def step(self) -> dict[int, Completion]:
        """Goes some tokens on with as many as there is room for; the answers that are done."""
        self._join()
        done = self._leave()  # what ends with its first token
        if self._live:
            self._decode()
        return done | self._leave()

    def begin(self, which: Sequence[int], first: Any) -> None:
        """Draws the first token of answers from the logits at the end of their contexts."""
        some = [self._pending[k] for k in which]
        for pending in some:
            pending.tokens, pending.ids, pending.logp = (), [], []
        self._draw(some, first)

    def _draw(self, some: Sequence[Pending], logits: Any) -> None:
        """Draws the next token of answers from the logits at their ends, among those that their guides allow."""
        if any(pending.guide is not None for pending in some):
            allowed = [None if pending.guide is None else pending.guide.allowed() for pending in some]
            logits = torch.stack([_only(row, ids) for row, ids in zip(logits, allowed, strict=True)])
        u = torch.tensor(_dice(some, 1)[0], device=logits.device)
        for pending, token, logp in zip(some, *(x.tolist() for x in drawn(logits, u)), strict=True):
            pending.ids.append(token)
            pending.logp.append(logp)
            pending.stopped = pending.guide is not None and pending.guide.take(token)

    def _join(self) -> None:
        runner = self.reader.runner
        room = max(0, runner.rows - len(self._live))
        joining = [k for k in self._pending if k not in self._live][:room]
        if new := [k for k in joining if self._pending[k].tokens]:
            some = [self._pending[k] for k in new]
            self.begin(new, self.reader.read(np.array([a.thread for a in some]), [a.tokens for a in some]))
        some = [self._pending[k] for k in joining]
        longest = np.array([a.longest for a in some], np.int64) + runner.stride
        self.reader.room(np.array([a.thread for a in some], np.int64), longest)
        self._live |= dict.fromkeys(joining)

    def _decode(self) -> None:
        """Reads the last token of each answer and draws what follows; what is drawn behind an end is dropped."""
        runner = self.reader.runner
        self._decode_guided([self._pending[k] for k in self._live if self._pending[k].guide is not None])
        while some := [self._pending[k] for k in self._live if self._pending[k].guide is None]:
            steps = min(runner.stride, max(a.longest - len(a.ids) for a in some))
            try:
                token, logp = runner.decode([self._row(a) for a in some], _dice(some, steps))
                break
            except RuntimeError as error:
                self.reader.halve(error)
                self._live = dict.fromkeys(list(self._live)[: runner.rows])  # the others wait
        if not some:
            return
        if np.isnan(logp).any():
            raise damaged(self.reader.policy.model.name)
        end = self.reader.policy.model.frame.end
        for pending, tokens, odds in zip(some, token.T.tolist(), logp.T.tolist(), strict=True):
            n = min(steps, pending.longest - len(pending.ids))
            n = tokens.index(end, 0, n) + 1 if end in tokens[:n] else n
            pending.ids += tokens[:n]
            pending.logp += odds[:n]

    def _decode_guided(self, some: list[Pending]) -> None:
        """One token of each: what may come depends on the one before. The threads hold what was said meanwhile."""
        if some:
            threads = np.array([pending.thread for pending in some])
            length, state = self.reader.length[threads].copy(), self.reader.state[threads].copy()
            for k, pending in enumerate(some):
                pending.origin = pending.origin or (int(length[k]), int(state[k]))
            self._draw(some, self.reader.read(threads, [(pending.ids[-1],) for pending in some], alone=True))

    def _row(self, pending: Pending) -> Row:
        """Its context and what was said of it so far, but for the last token."""
        row, n = self.reader.row(pending.thread, (pending.ids[-1],)), len(pending.ids) - 1
        return row._replace(own=(row.own[0], row.own[1] + n), new=row.new + n)

    def _ended(self, pending: Pending) -> bool:
        last = pending.ids[-1]
        return pending.stopped or len(pending.ids) == pending.longest or last == self.reader.policy.model.end

    def _leave(self) -> dict[int, Completion]:
        done, end = {}, self.reader.policy.model.end
        for k in [k for k in self._live if self._ended(self._pending[k])]:
            pending = self._pending.pop(k)
            del self._live[k]
            ids, logp = tuple(pending.ids), tuple(pending.logp)
            if pending.origin is not None:
                self.reader.rewind(np.array([pending.thread]), *(np.array([x]) for x in pending.origin))
            done[k] = Completion(ids, logp, ids[-1] == end, self.reader.version, stopped=pending.stopped)
        return done


def _only(logits: Any, ids: tuple[int, ...] | None) -> Any:
    """Logits in which only these tokens can come."""
    if ids is None:
        return logits
    bound = torch.full_like(logits, -torch.inf)
    at = torch.tensor(ids, device=logits.device)
    bound[at] = logits[at]
    return bound


def complete_free(reader: Reader, pending: Sequence[Pending], first: Any) -> list[Completion]:
    """Free answers of threads whose ends have these logits."""
    batch, done = RunningBatch(reader), dict[int, Completion]()
    numbers = [batch.add(one) for one in pending]
    batch.begin(numbers, first)
    while batch:
        done |= batch.step()
    return [done[k] for k in numbers]
