"""An engine that is a table: what follows an id depends on that id alone. For tests; it needs no torch and no
network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podium.engine.options import Options, draw, likeliest, log_softmax
from podium.engine.protocol import SPEECH, BadEngine, Completion, Request, dice
from podium.envs.draws import uniform
from podium.trace.columns import F
from podium.trace.tokens import extend

__all__ = ["FakeEngine"]


class FakeEngine:
    """A bigram model of `size` ids, the last of which ends an answer: logits are drawn once from N(0, 1) by
    `seed`."""

    model, constrained = "fake", True

    def __init__(self, size: int = 8, seed: int = 0, version: str = "0") -> None:
        self.version, self.end = version, size - 1
        self.logits: F = np.random.default_rng(seed).normal(size=(size, size))

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """An answer to each."""
        numbers = dice(requests)
        return [
            self._option(one, u) if one.options else self._free(one)
            for one, u in zip(requests, numbers.tolist(), strict=True)
        ]

    def _context(self, request: Request) -> tuple[int, ...]:
        ids = request.context.all_ids()
        if not ids or not 0 <= min(ids) <= max(ids) <= self.end:
            raise BadEngine(f"expected ids from 0 to {self.end}, at least one, got {ids[:8]}")
        return ids

    def _option(self, request: Request, u: float) -> Completion:
        ids, options = self._context(request), Options(request.options, self.end)
        parted = {at: log_softmax(self.logits[(*ids, *at)[-1], list(among)])[None] for at, among in options.choices}
        tokens, total = options.log_probabilities(parted, 1)
        k = int((likeliest(total) if request.greedy else draw(total, np.array([u])))[0])
        path, odds = options.paths[k], tuple(tuple(some[0].tolist()) for some in tokens)
        return Completion(path, odds[k], True, self.version, k, odds, _hashes(ids))

    def _free(self, request: Request) -> Completion:
        ids, spoken, logp = self._context(request), list[int](), list[float]()
        seed, *rest = request.address
        while len(spoken) < request.longest and self.end not in spoken:
            odds = log_softmax(self.logits[(*ids, *spoken)[-1]])[None]
            u = uniform(np.array([seed], np.uint64), SPEECH, *rest, len(spoken))
            spoken.append(int((likeliest(odds) if request.greedy else draw(odds, u))[0]))
            logp.append(float(odds[0, spoken[-1]]))
        return Completion(tuple(spoken), tuple(logp), spoken[-1] == self.end, self.version, read=_hashes(ids))


def _hashes(ids: tuple[int, ...]) -> tuple[int, int, int]:
    none = np.zeros(1, np.int64)
    length, h1, h2 = extend(none, none, none, [ids])
    return int(length[0]), int(h1[0]), int(h2[0])
