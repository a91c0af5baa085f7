"""What every engine does: contexts in, as ids, and how to answer; out come ids with log-probabilities and the
policy's version.

    engine.complete([Request(Context(ids), (seed, number), options), ...]) -> [Completion, ...]

An engine is one policy at one version of its weights. Our own model (`podium.engine.local`), a server
(`podium.engine.endpoint`) and a table for tests (`podium.engine.fake`) are engines, and `podium.engine.conformance`
says what holds for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from podium.envs.draws import uniform
from podium.errors import WrongUse
from podium.trace.columns import F

__all__ = ["SPEECH", "BadEngine", "Completion", "Context", "Engine", "Request", "Vocabulary", "dice"]

SPEECH = 0x5BEA  # the address of what is drawn for tokens
Ids = tuple[int, ...]


class BadEngine(WrongUse, ValueError):
    """A model or a server that cannot be used; says what was expected, what came and where."""


class Context:
    """Ids, behind those of another context if there is one. Who extends a context shares what an engine computed
    for it.

    >>> Context((3,), Context((1, 2))).all_ids(), Context((3,), Context((1, 2))).length
    ((1, 2, 3), 3)
    """

    __slots__ = ("__weakref__", "ids", "length", "parent")

    def __init__(self, ids: Ids, parent: Context | None = None) -> None:
        self.ids, self.parent = ids, parent
        self.length: int = len(ids) + (0 if parent is None else parent.length)

    def all_ids(self) -> Ids:
        """All ids from the beginning."""
        parts, at = [], self
        while at is not None:
            parts.append(at.ids)
            at = at.parent  # type: ignore[assignment]
        return tuple(token for part in reversed(parts) for token in part)


class Request(NamedTuple):
    """A context that is to be continued."""

    context: Context
    address: tuple[int, ...]  # of the dice: a seed, then which answer it is; the same address draws the same
    options: tuple[
        Ids, ...
    ] = ()  # one of these is said, each closed by the token that ends an answer; none: free text
    longest: int = 16  # tokens of free text
    greedy: bool = False  # the likeliest is said, whatever the dice
    stop: tuple[str, ...] = ()  # texts that end free text, where one of them is there
    grammar: Any = None  # of free text (`podium.engine.grammar.Grammar`); none: any


class Completion(NamedTuple):
    """What was said."""

    ids: Ids  # those that were drawn; with `end` as the last, if it ended
    logp: tuple[float, ...]  # of each, under the distribution that it was drawn from
    ended: bool = True  # by the token that ends an answer, not for its length
    version: str = ""  # of the policy that said it
    option: int = -1  # which of the options it is
    option_logp: tuple[tuple[float, ...], ...] = ()  # of each option, of each of its tokens
    read: tuple[int, int, int] | None = (
        None  # length and hashes (`trace.tokens.extend`) of what the model read before
    )
    fault: str | None = None  # why nothing was said, where a server did not answer
    stopped: bool = False  # by one of the texts that end it


class Vocabulary(Protocol):
    """What of a model is about text."""

    name: str

    @property
    def size(self) -> int: ...
    @property
    def end(self) -> int: ...
    def text(self, ids: Sequence[int]) -> str: ...


class Engine(Protocol):
    """One policy at one version."""

    @property
    def model(self) -> str:
        """The name of the model."""

    @property
    def version(self) -> str:
        """Of the weights; "endpoint" where nobody knows it."""

    @property
    def constrained(self) -> bool:
        """Whether it can draw one of some options; else a request must have none."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """An answer to each request, which depends on its context, address and options alone. Raises BadEngine."""


def dice(requests: Sequence[Request]) -> F:
    """The number in [0, 1) that each request draws its option by.

    >>> one = Request(Context((1,)), (7, 0))
    >>> bool(dice([one])[0] == dice([Request(Context((2,)), (7, 1)), one])[1])
    True
    """
    u = np.zeros(len(requests))
    for length in {len(r.address) for r in requests}:
        at = [i for i, r in enumerate(requests) if len(r.address) == length]
        seed, *rest = zip(*(requests[i].address for i in at), strict=True)
        u[at] = uniform(np.array(seed, np.uint64), SPEECH, *(np.array(part, np.int64) for part in rest))
    return u
