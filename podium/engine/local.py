"""Our own model as an engine: contexts that extend each other are computed once, whoever asks.

An engine holds keys and values of all contexts that it has read, so it is made for one rollout: after an update
there is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.engine.generate import Pending, RunningBatch, complete_free, score
from podium.engine.grammar import Guide
from podium.engine.models import PolicyModel, PolicyTeam
from podium.engine.options import Options, draw, likeliest
from podium.engine.protocol import Completion, Context, Engine, Request, dice
from podium.engine.reader import Reader

__all__ = ["LocalEngine", "engines_of"]

N64 = NDArray[np.int64]


class _Place(NamedTuple):
    """Where a context was read: into which thread, and how long and in which state that was then."""

    thread: int
    length: int
    state: int


class LocalEngine:
    """A policy of ours. Several policies on one model share a reader, and with it memory and batches."""

    constrained = True

    def __init__(self, policy: PolicyModel, version: str = "0", reader: Reader | None = None) -> None:
        self.policy, self.version = policy, f"{policy.name}@{version}"
        self.reader = reader or Reader(policy)
        self._places: dict[Context, _Place] = {}
        self._tips: dict[int, Context | None] = {}  # the context that a thread holds now
        self._options: dict[tuple[tuple[int, ...], ...], Options] = {}
        self._running = RunningBatch(self.reader)  # what was submitted
        self._under_way: dict[int, tuple[Context, int, Any]] = {}  # by number: context, thread and what it read
        self._busy: set[int] = set()  # threads that these are said in

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.policy.model.name

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """An answer to each request."""
        answers: dict[int, Completion] = {}
        for answer, bound in ((self._choose, True), (self._free, False)):
            numbers = [i for i, one in enumerate(requests) if bool(one.options) == bound]
            if numbers:
                answers |= zip(numbers, answer([requests[i] for i in numbers]), strict=True)
        return [answers[i] for i in range(len(requests))]

    def _read(self, requests: Sequence[Request], columns: Sequence[int] | None) -> tuple[N64, Any]:
        """Reads what is new of each context; its thread, and the logits of what may follow."""
        threads, news = self._threads(requests)
        first = self.reader.read(threads, news, columns=columns)
        lengths = self.reader.length[threads].tolist(), self.reader.state[threads].tolist()
        for one, thread, length, state in zip(requests, threads.tolist(), *lengths, strict=True):
            self._places[one.context] = _Place(thread, length, state)
            self._tips[thread] = one.context
        return threads, first

    def _threads(self, requests: Sequence[Request]) -> tuple[N64, list[tuple[int, ...]]]:
        """A thread for each request that holds as much of its context as any does, and the ids that are left to
        read.

        Where a thread has gone on since, or another request takes it, it is copied.
        """
        threads, news = np.zeros(len(requests), np.int64), list[tuple[int, ...]]()
        begun: list[int] = []
        copied: list[tuple[int, _Place]] = []
        for i, one in enumerate(requests):
            parts, at, place = [one.context.ids], one.context.parent, None
            while at is not None and ((place := self._places.get(at)) is None or place.thread in self._busy):
                parts.append(at.ids)
                at, place = at.parent, None
            news.append(parts[0] if len(parts) == 1 else tuple(chain.from_iterable(reversed(parts))))
            if place is None:
                begun.append(i)
            elif self._tips.get(place.thread) is at:
                threads[i], self._tips[place.thread] = place.thread, None
            else:
                copied.append((i, place))
        threads[begun] = self.reader.threads(len(begun), self.policy)
        if copied:
            number, places = zip(*copied, strict=True)
            thread, length, state = (np.array(column) for column in zip(*places, strict=True))
            threads[list(number)] = new = self.reader.threads(len(copied), self.policy)
            self.reader.copy(thread, new)
            self.reader.rewind(new, length, state)
        return threads, news

    def _choose(self, requests: Sequence[Request]) -> list[Completion]:
        """One of the options of each, drawn by the probability of its tokens where at each only those of options
        can come."""
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for i, one in enumerate(requests):
            groups.setdefault(one.options, []).append(i)
        for listed in groups:
            if listed not in self._options:
                self._options[listed] = Options(listed, self.policy.model.end)
        columns = sorted({token for listed in groups for token in self._options[listed].ids})
        threads, first = self._read(requests, columns)
        read = self.reader.digests(threads)
        u, greedy = dice(requests), np.array([one.greedy for one in requests])
        answers: list[Completion | None] = [None] * len(requests)
        for listed, numbers in groups.items():
            options, rows = self._options[listed], np.array(numbers)
            parted = score(options, self.reader, threads[rows], first[rows], columns)
            tokens, total = options.log_probabilities(parted, len(rows))
            option = np.where(greedy[rows], likeliest(total), draw(total, u[rows])).tolist()
            each = zip(*(map(tuple, logp.tolist()) for logp in tokens), strict=True)
            for i, k, odds in zip(numbers, option, each, strict=True):
                answers[i] = Completion(options.paths[k], odds[k], True, self.version, k, odds, read[i])
        return [one for one in answers if one is not None]

    def submit(self, requests: Sequence[Request]) -> list[int]:
        """Begins free answers, which join those under way; the numbers that `step` gives them by."""
        threads, first = self._read(requests, None)
        read = self.reader.digests(threads)
        pending = [
            Pending(thread, one.address, one.longest, one.greedy, guide=self._guide(one))
            for thread, one in zip(threads.tolist(), requests, strict=True)
        ]
        numbers = [self._running.add(one) for one in pending]
        self._running.begin(numbers, first)
        for number, one, thread, digest in zip(numbers, requests, threads.tolist(), read, strict=True):
            self._under_way[number] = one.context, thread, digest
            self._busy.add(thread)  # nobody else may go on in it
        return numbers

    def step(self) -> dict[int, Completion]:
        """Goes on with what was submitted by some tokens; the answers that are done, by number."""
        done = self._running.step() if self._under_way else {}
        for number in done:
            _, thread, digest = self._under_way.pop(number)
            self._busy.discard(thread)
            done[number] = done[number]._replace(version=self.version, read=digest)
        return done

    def _guide(self, one: Request) -> Guide | None:
        guided = one.grammar is not None or one.stop
        return Guide(self.policy.model, one.grammar, one.stop) if guided else None

    def _free(self, requests: Sequence[Request]) -> list[Completion]:
        """Any text, token by token."""
        threads, first = self._read(requests, None)
        pending = [
            Pending(thread, one.address, one.longest, one.greedy, guide=self._guide(one))
            for thread, one in zip(threads.tolist(), requests, strict=True)
        ]
        answers = complete_free(self.reader, pending, first)
        read = self.reader.digests(threads)
        return [one._replace(version=self.version, read=digest) for one, digest in zip(answers, read, strict=True)]


def engines_of(team: PolicyTeam, version: str, rows: int, width: int, remote: bool) -> dict[str, Engine]:
    """An engine for each policy of a team: its endpoint where it has one and is frozen, or all are `remote`; else
    our own."""
    readers: dict[int, Reader] = {}
    engines: dict[str, Engine] = {}
    for name, policy in team.policies.items():
        if policy.endpoint is not None and (policy.frozen or remote):
            engines[name] = policy.endpoint
            continue
        if id(policy.model) not in readers:
            readers[id(policy.model)] = Reader(policy, rows, width)
        engines[name] = LocalEngine(policy, version, readers[id(policy.model)])
    return engines
