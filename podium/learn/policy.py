"""One network for every world: deep sets over the record; each option scored by its words, number and item."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.world import View, World
from podium.learn import tape
from podium.learn.tape import Array, Node
from podium.trace.columns import F

__all__ = [
    "Made",
    "Net",
    "Parameters",
    "Seen",
    "Shape",
    "Words",
    "encoded",
    "entries_of",
    "joined",
    "prepared",
    "role_of",
    "seen_by",
    "taken",
]

N64 = NDArray[np.int64]
Parameters = dict[str, Any]  # name to array, or to Var while a gradient is wanted
SCALES = (0.01, 1.0, 100.0)  # of signed logarithms ...
GAINS = np.array([0.7, 1.0, 0.7], np.float32)  # ... and how much each counts
KNOTS = np.array([-1, 0, 1, 2, 3, 4, 6, 8], np.float32)  # small whole numbers, which may be names
HATS = np.float32(0.3)  # how large weights of hats begin where figures are most often amounts
SETTLED = 10.0  # times as fast as hats, what reads the whole record fades where a task goes stretch by stretch
PER_FIGURE = len(SCALES) + len(KNOTS)
STRIDE = 8192  # numbers that an option's label may have


def encoded(figures: Array) -> Array:
    """Every raw figure in one way: g asinh(x / s) at three scales, and hats: two knots share an x between them.

    [n, f] to [n, 11 f]. Beyond the last knot its hat stays: what larger figures mean is told by logarithms alone,
    so that a policy goes on where its training ended.

    >>> encoded(np.array([[5.0]]))[0, len(SCALES):].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0]
    """
    x = figures.astype(np.float32).ravel()
    out = np.zeros((len(x), PER_FIGURE), np.float32)
    for i, scale in enumerate(SCALES):
        np.arcsinh(x * np.float32(1.0 / scale), out=out[:, i])
    out[:, : len(SCALES)] *= GAINS
    np.clip(x, KNOTS[0], KNOTS[-1], out=x)
    knot = np.minimum(np.searchsorted(KNOTS, x, side="right"), len(KNOTS) - 1)  # the one after x
    share = (KNOTS[knot] - x) / (KNOTS[knot] - KNOTS[knot - 1])
    at = np.arange(0, out.size, PER_FIGURE) + (len(SCALES) + knot)
    out.ravel()[at - 1], out.ravel()[at] = share, 1 - share
    return out.reshape(len(figures), figures.shape[1] * PER_FIGURE)


NUMBERS = encoded(np.arange(-1.0, STRIDE - 1)[:, None])  # of options' labels


class Words:
    """The labels of options as word and number: "spawn 12" is the word "spawn" with the number 12."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.words = sorted({_split(label)[0] for label in labels})

    def codes(self, labels: Sequence[str]) -> N64:
        """One number a label; a word that was not among the labels at first is an error."""
        pairs = [_split(label) for label in labels]
        unknown = [word for word, _ in pairs if word not in self.words]
        if unknown:
            raise ValueError(f"no option like {unknown[0]!r} was there in training; there were {self.words}")
        return np.array([self.words.index(word) * STRIDE + number + 1 for word, number in pairs], np.int64)

    def word(self, label: str) -> str:
        """The word of a label; its number, if that is all that it is."""
        word, number = _split(label)
        return word or str(number)


def _split(label: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)\s*(\d+)?", label)
    assert match is not None
    return match[1], int(match[2]) if match[2] else -1


@dataclass(frozen=True)
class Seen:
    """What decisions of one kind see, ragged: no row knows how long another is.

    Items of row i are first[i] to first[i + 1], the last new[i] of them new to it; its options are the entries
    start[i] to start[i + 1].
    """

    kind: str
    role: str
    facts: F
    items: F
    first: N64
    start: N64
    option: N64  # of each entry: the code of its label
    item: N64  # of each entry: the item it is about, -1 if none
    new: N64
    encodings: tuple[Array, Array] | None = None  # facts and items `encoded`, where they are read many times

    def __len__(self) -> int:
        return len(self.facts)

    def figures(self) -> Array:
        """Facts and the number of items, encoded."""
        if self.encodings:
            return self.encodings[0]
        return encoded(np.column_stack([self.facts, tape.lengths(self.first)]))

    def things(self) -> Array:
        """Items, encoded."""
        return self.encodings[1] if self.encodings else encoded(self.items)

    def fresh(self) -> tuple[N64, N64]:
        """The items that are new, row after row, and where those of each row begin among them."""
        end = np.concatenate([[0], np.cumsum(self.new)])
        return np.arange(end[-1]) + np.repeat(self.first[1:] - end[1:], self.new), end


def _amounts(name: str) -> bool:
    """Whether a parameter reads facts or numbers of options: most often amounts, while items may hold names."""
    return name.rsplit("/", 1)[-1] == "facts" or name.endswith(".number")


def role_of(agent: str) -> str:
    """An agent's name without its number.

    >>> role_of("mate 2")
    'mate'
    """
    return re.sub(r"\s*\d+$", "", agent)


def seen_by(view: View, codes: N64) -> tuple[Seen, N64]:
    """A view without padding, and the option number of each entry. An option about an item is known by the item."""
    items, owner = view.items()
    row, number = np.nonzero(view.allowed)
    start = np.searchsorted(row, np.arange(len(view) + 1))
    first = np.searchsorted(owner, np.arange(len(view) + 1))
    if view.about is None:
        item = np.full(len(row), -1)
    else:
        local = view.about[row, number]
        item = np.where(local >= 0, first[row] + local, -1)
    option = np.where(item >= 0, codes[number] // STRIDE * STRIDE, codes[number])
    new = np.zeros(len(view), np.int64) if view.new is None else view.new
    return Seen(view.kind, role_of(view.agent), view.facts, items, first, start, option, item, new), number


def _ranges(first: N64, index: N64) -> tuple[N64, N64]:
    """Where the rows of some segments lie, one after the other, and where each segment begins in them."""
    count = first[index + 1] - first[index]
    new = np.concatenate([[0], np.cumsum(count)])
    return np.arange(new[-1]) + np.repeat(first[index] - new[:-1], count), new


class Made(NamedTuple):
    """Decisions of one kind and role: what was seen, the options' log-probabilities, the one taken, its trace
    row."""

    seen: Seen
    logp: Array  # of each entry
    entry: N64  # of each row: the entry taken
    row: N64  # of each row: its event


def taken(seen: Seen, index: N64) -> Seen:
    """Some rows."""
    items, first = _ranges(seen.first, index)
    entries, start = _ranges(seen.start, index)
    item = seen.item[entries]
    shift = np.repeat(first[:-1] - seen.first[index], tape.lengths(start))
    item = np.where(item >= 0, item + shift, -1)
    return replace(
        seen,
        facts=seen.facts[index],
        items=seen.items[items],
        first=first,
        start=start,
        option=seen.option[entries],
        item=item,
        new=seen.new[index],
        encodings=seen.encodings and (seen.encodings[0].take(index, axis=0), seen.encodings[1].take(items, axis=0)),
    )


def prepared(seen: Seen) -> Seen:
    """The same rows, their figures encoded once for all that will read them."""
    return replace(seen, encodings=(seen.figures(), seen.things()))


def entries_of(seen: Seen, index: N64) -> N64:
    """The entries of some rows, one row after the other."""
    return _ranges(seen.start, index)[0]


def joined(parts: Sequence[Seen]) -> Seen:
    """Rows of the same kind, one after the other."""
    items = np.cumsum([0, *(len(p.items) for p in parts)])
    entries = np.cumsum([0, *(len(p.option) for p in parts)])
    return replace(
        parts[0],
        facts=np.concatenate([p.facts for p in parts]),
        items=np.concatenate([p.items for p in parts]),
        first=np.concatenate([[0], *(p.first[1:] + k for p, k in zip(parts, items, strict=False))]),
        start=np.concatenate([[0], *(p.start[1:] + k for p, k in zip(parts, entries, strict=False))]),
        option=np.concatenate([p.option for p in parts]),
        item=np.concatenate([np.where(p.item >= 0, p.item + k, -1) for p, k in zip(parts, items, strict=False)]),
        new=np.concatenate([p.new for p in parts]),
        encodings=None,
    )


@dataclass(frozen=True)
class Shape:
    """How wide the network is."""

    item: int = 32
    context: int = 128
    head: int = 128
    per_role: bool = False  # parameters of its own for every role; else all share them


class Net:
    """The architecture for a world: which parameters there are, and what they make of what is seen.

    e_j = tanh(W₂ tanh(W₁ φ(item_j)))                      each item alone
    c = relu(U₂ relu(U₁ [φ(facts, number of items), asinh Σ_j e_j, max_j e_j, the same two over new items]))
    score_k = v · relu(A_kind c + word_k + N φ(number_k) + I e_about(k)),   π = softmax over the allowed options
    """

    def __init__(self, world: World, shape: Shape = Shape(), roles: Sequence[str] = ("lead",)) -> None:
        self.shape, self.roles = shape, tuple(roles)
        self.kinds = world.decides
        self.words = Words(world.options)
        self.figures = len(world.facts), len(world.items)
        self.stretches = world.stretches

    def initial(self, seed: int) -> Parameters:
        """Parameters at the start: orthogonal-like scale, and every option as likely."""
        dice = np.random.default_rng([seed, 0x1EA2])
        facts, items = (n * PER_FIGURE for n in (self.figures[0] + 1, self.figures[1]))
        s = self.shape
        sizes: dict[str, tuple[int, ...]] = {
            "item1": (items, s.item),
            "item1b": (s.item,),
            "item2": (s.item, s.item),
            "item2b": (s.item,),
            "facts": (facts, s.context),
            "pool": (4 * s.item, s.context),
            "contextb": (s.context,),
            "context2": (s.context, s.context),
            "context2b": (s.context,),
            "apart": (s.context, 1),
            "apartb": (1,),
        }
        for kind in self.kinds:
            sizes |= {
                f"{kind}.context": (s.context, s.head),
                f"{kind}.word": (len(self.words.words), s.head),
                f"{kind}.number": (PER_FIGURE, s.head),
                f"{kind}.item": (s.item, s.head),
                f"{kind}.score": (s.head, 1),
            }
        weights: Parameters = {}
        for role in self.roles if s.per_role else ("",):
            for name, size in sizes.items():
                zero = name.endswith("b") or name.endswith(".score") or name == "apart"
                scale = 0.0 if zero else np.sqrt(2.0 / size[0])
                key = f"{role}/{name}" if role else name
                weights[key] = (scale * dice.standard_normal(size)).astype(np.float32)
                if _amounts(name):
                    weights[key].reshape(-1, PER_FIGURE, size[1])[:, len(SCALES) :] *= HATS
        return weights

    def context(self, w: Parameters, seen: Seen) -> tuple[Node, Node]:
        """What is made of facts and record, and of each item."""
        items = self.embedded(w, seen.things(), seen.role)
        at, first = seen.fresh()
        new = tape.gather(items, at)
        pools = [
            f(x, ends)
            for x, ends in ((items, seen.first), (new, first))
            for f in (tape.segment_sum, tape.segment_max)
        ]
        return self.read(w, seen, *pools), items

    def embedded(self, w: Parameters, items: Array, role: str) -> Node:
        """e_j of each item, which is encoded."""
        at = self._at(w, role)
        e: Node = tape.tanh(tape.matmul(items, at("item1")), at("item1b"))
        return tape.tanh(tape.matmul(e, at("item2")), at("item2b"))

    def read(self, w: Parameters, seen: Seen, total: Node, top: Node, new_total: Node, new_top: Node) -> Node:
        """c of each row, from the facts and what is made of the record and of what is new in it."""
        at = self._at(w, seen.role)
        pools = tape.concat([tape.asinh(total), top, tape.asinh(new_total), new_top])
        c = tape.relu(tape.matmul(seen.figures(), at("facts")), tape.matmul(pools, at("pool")), at("contextb"))
        return tape.relu(tape.matmul(c, at("context2")), at("context2b"))

    def _at(self, w: Parameters, role: str) -> Any:
        prefix = f"{role}/" if self.shape.per_role else ""
        return lambda name: w[prefix + name]

    def considered(self, w: Parameters, seen: Seen, context: Node, items: Node) -> Node:
        """What is made of each entry: relu(A_kind c + word_k + N φ(number_k) + I e_about(k))."""
        at, kind = self._at(w, seen.role), seen.kind
        used = np.flatnonzero(np.bincount(seen.option))
        place = np.zeros(used[-1] + 1, np.int64)
        place[used] = np.arange(len(used))
        number = NUMBERS.take(used % STRIDE, axis=0)
        options = tape.plus(
            tape.gather(at(f"{kind}.word"), used // STRIDE), tape.matmul(number, at(f"{kind}.number"))
        )
        row = np.repeat(np.arange(len(seen)), tape.lengths(seen.start))
        hidden = [
            tape.gather(tape.matmul(context, at(f"{kind}.context")), row),
            tape.gather(options, place[seen.option]),
        ]
        if (seen.item >= 0).any():
            hidden.append(tape.gather(tape.matmul(items, at(f"{kind}.item")), seen.item))
        return tape.relu(*hidden)

    def scores(self, w: Parameters, seen: Seen, context: Node, items: Node) -> Node:
        """A number for each entry."""
        score = self._at(w, seen.role)(f"{seen.kind}.score")
        return tape.squeeze(tape.matmul(self.considered(w, seen, context, items), score))

    def apart(self, w: Parameters, seen: Seen, context: Array) -> Node:
        """h of each row: e^h is how far apart its options' returns lie, in units of all rows."""
        at = self._at(w, seen.role)
        mean = context * np.float32(1.0 / np.sqrt(self.shape.context))  # a step of Adam moves h by little
        return tape.squeeze(tape.plus(tape.matmul(mean, at("apart")), at("apartb")))

    def stake(self, w: Parameters, seen: Seen, context: Array) -> F:
        """√e^h of each row, h clipped at ±8: how often it is branched, and how much it counts."""
        h: F = np.clip(tape.value_of(self.apart(w, seen, context)).astype(np.float64), -8.0, 8.0)
        return np.exp(h / 2)

    def fade(self, w: Parameters, names: Iterable[str], by: float) -> None:
        """Weights of facts' and options' hats shrink by a share: what logarithms can tell is left to them, as they
        go on beyond what was met.

        Where a task goes stretch by stretch, those of the whole record shrink too, unless something is learned by
        them: what is new in a stretch is read apart, and stretches that are over make a record longer than any in
        training.
        """
        for name in names:
            if _amounts(name):
                w[name].reshape(-1, PER_FIGURE, w[name].shape[1])[:, len(SCALES) :] *= np.float32(1.0 - by)
            elif self.stretches and name.rsplit("/", 1)[-1] == "pool":
                w[name][: 2 * self.shape.item] *= np.float32(max(0.0, 1.0 - SETTLED * by))

    def log_odds(self, w: Parameters, seen: Seen) -> Node:
        """log π of each entry."""
        return tape.log_softmax(self.scores(w, seen, *self.context(w, seen)), seen.start)
