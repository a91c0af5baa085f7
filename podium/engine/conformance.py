"""What holds for every engine. `faults` runs an engine through it and says what does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from podium.engine.protocol import Completion, Context, Engine, Request
from podium.trace.tokens import digest, spelled

__all__ = ["faults"]

SEEDS = range(24)
Law = Callable[[Engine, Sequence[int], int, float], bool]


def faults(engine: Engine, ids: Sequence[int], end: int, exact: float = 0.0) -> list[str]:
    """The laws that an engine breaks, in words; `ids` are a few of its tokens, `end` ends an answer.

    `exact` is how far log-probabilities of the same request may be apart.
    """
    return [words for words, law in LAWS.items() if not law(engine, ids, end, exact)]


def _requests(engine: Engine, ids: Sequence[int], greedy: bool = False) -> list[Request]:
    """Free text, and options where it can draw them, in several contexts."""
    contexts = [Context(tuple(ids[: 2 + k % 3])) for k in SEEDS]
    free = [Request(c, (k, 0), longest=3, greedy=greedy) for k, c in enumerate(contexts)]
    options = ((ids[0],), (ids[1], ids[2]), (ids[1], ids[0]))
    bound = [Request(c, (k, 1), options, greedy=greedy) for k, c in enumerate(contexts)]
    return free + bound * engine.constrained


def _same(a: Sequence[Completion], b: Sequence[Completion], exact: float) -> bool:
    return [(x.ids, x.option, x.read) for x in a] == [(x.ids, x.option, x.read) for x in b] and all(
        np.allclose(x.logp, y.logp, rtol=0, atol=exact) for x, y in zip(a, b, strict=True)
    )


def _repeats(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    requests = _requests(engine, ids)
    return _same(engine.complete(requests), engine.complete(requests), exact)


def _alone(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    requests = _requests(engine, ids)
    alone = [engine.complete([one])[0] for one in requests[::5]]
    return _same(engine.complete(requests)[::5], alone, exact)


def _by_ids(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    """However a context is put together from pieces, and whatever else was said after its first piece."""
    requests = _requests(engine, ids)
    pieces = {one.context.ids: Context(one.context.ids[1:], Context(one.context.ids[:1])) for one in requests}
    split = [one._replace(context=pieces[one.context.ids]) for one in requests]
    return _same(engine.complete(requests), engine.complete(split), exact)


def _goes_on(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    """A context that extends what was said, twice from one place, is that of its ids."""
    first = engine.complete(_requests(engine, ids)[:1])[0]
    before = Context(tuple(ids[:3]))
    engine.complete([Request(before, (0, 0), longest=2)])
    ways = [Context((*first.ids, *ids[:2]), before), Context(tuple(ids[1:3]), before)]
    requests = [Request(way, (3, 0), longest=2) for way in ways]
    plain = [one._replace(context=Context(one.context.all_ids())) for one in requests]
    return _same(engine.complete(requests), engine.complete(plain), exact)


def _log_probabilities(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    answers = engine.complete(_requests(engine, ids))
    return all(len(x.ids) == len(x.logp) > 0 and max(x.logp) <= 0 and min(x.logp) > -np.inf for x in answers)


def _ends(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    requests = _requests(engine, ids)
    return all(
        x.ended == (x.ids[-1] == end) and end not in x.ids[:-1] and (one.options or len(x.ids) <= one.longest)
        for one, x in zip(requests, engine.complete(requests), strict=True)
    )


def _options(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    """One of them is said, by its probability, and these add up to 1."""
    for one, x in zip(requests := _requests(engine, ids), engine.complete(requests), strict=True):
        if not one.options:
            if x.option != -1 or x.option_logp:
                return False
            continue
        total = np.exp([sum(some) for some in x.option_logp]).sum()
        if x.ids != (*one.options[x.option], end) or x.option_logp[x.option] != x.logp or abs(total - 1) > 1e-5:
            return False
    return True


def _greedy(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    answers = engine.complete(_requests(engine, ids, greedy=True))
    bound = [x for x in answers if x.option_logp]
    contexts: dict[tuple[tuple[int, ...], bool], set[tuple[int, ...]]] = {}
    for one, x in zip(_requests(engine, ids), answers, strict=True):
        contexts.setdefault((one.context.ids, bool(one.options)), set()).add(x.ids)
    likeliest = all(sum(x.logp) >= max(sum(some) for some in x.option_logp) for x in bound)
    return likeliest and all(len(some) == 1 for some in contexts.values())


def _by_dice(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    requests = [Request(Context(tuple(ids[:3])), (k, 0), longest=3) for k in SEEDS]
    return len({x.ids for x in engine.complete(requests)}) > 1


def _digests(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    requests = _requests(engine, ids)
    return all(
        x.read is None or spelled(*np.array([x.read]).T) == [digest(np.array(one.context.all_ids()))]
        for one, x in zip(requests, engine.complete(requests), strict=True)
    )


def _version(engine: Engine, ids: Sequence[int], end: int, exact: float) -> bool:
    return bool(engine.version) and {x.version for x in engine.complete(_requests(engine, ids))} == {engine.version}


LAWS: dict[str, Law] = {
    "the same request gives the same answer": _repeats,
    "an answer does not depend on what is asked beside it": _alone,
    "a context is its ids, however it is put together": _by_ids,
    "contexts that part after the same ids do not disturb each other": _goes_on,
    "every id has a log-probability": _log_probabilities,
    "an answer ends once, or is as long as it may be": _ends,
    "one of the options is said, by its probability": _options,
    "the likeliest is said where that is asked for": _greedy,
    "other dice give other answers": _by_dice,
    "a digest is of all ids": _digests,
    "every answer says the version of the policy": _version,
}
