"""What a reward expression pays: every channel, at its own unit, and the sum.

A *score* is a registered function from a trace to a column at the unit it states. A *shape* changes what an
expression pays: it anneals, clips, gates or moves it. A *reward* returns the text of an expression that has a name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from podium.errors import WrongUse
from podium.expression import BadExpression, Call, Node, Scaled, Sum, parse, spell
from podium.graph import units
from podium.graph.grouping import total_by
from podium.outside import load_file, names_a_file, use
from podium.registry import alternatives, facts, find, kind_of, name_of, names
from podium.trace.columns import F, Trace

__all__ = [
    "BadReward",
    "Channel",
    "Ledger",
    "Now",
    "copied",
    "ledger",
    "read_reward",
    "score",
    "summed",
    "use_reward",
]


class BadReward(WrongUse, ValueError):
    """A reward expression that cannot be paid; says which part and what it needs."""


class Now(NamedTuple):
    """Where in training a reward is read. A schedule that needs what is not given refuses."""

    progress: float | None = None  # from 0, the start, to 1, the end
    history: tuple[float, ...] | None = None  # the signal that a schedule watches, oldest first


@dataclass(frozen=True)
class Channel:
    """What one part of an expression pays: a column at a unit, weights included."""

    name: str
    unit: str
    paid: F

    def times(self, weight: float) -> Channel:
        """The same at another weight. Of weight 0 it pays nothing, scored or not."""
        return replace(self, paid=weight * self.paid if weight else np.zeros(len(self.paid)))


@dataclass(frozen=True)
class Ledger:
    """Every channel of an expression over a trace. What a rollout got is the sum over channels and units."""

    trace: Trace
    channels: tuple[Channel, ...]

    def total(self) -> F:
        """What each rollout was paid, by all channels; NaN where a unit of it was not scored."""
        return self.at("team")

    def at(self, unit: str) -> F:
        """One number for each unit: coarser pay is copied to it, finer pay is summed into it.

        Refuses where finer pay has no unit of this kind to go to.
        """
        total = np.zeros(len(units.rows(self.trace, unit)))
        for channel in self.channels:
            move = summed if units.finer(channel.unit, unit) else copied
            total = total + move(self.trace, channel, unit).paid
        return total

    @property
    def unit(self) -> str:
        """The finest unit that any channel pays."""
        return max((c.unit for c in self.channels), key=list(units.UNITS).index, default="team")


def copied(trace: Trace, channel: Channel, unit: str) -> Channel:
    """The same pay for every finer unit inside a unit; 0 where a finer unit is inside none."""
    inside = units.within(trace, unit, channel.unit)
    return Channel(channel.name, unit, np.append(channel.paid, 0.0)[inside])


def summed(trace: Trace, channel: Channel, unit: str) -> Channel:
    """The pay of all finer units inside each unit; 0 where there are none, NaN where one was not scored."""
    inside = units.within(trace, channel.unit, unit)
    lost = np.flatnonzero((inside < 0) & (np.nan_to_num(channel.paid) != 0.0))
    if len(lost):
        raise BadReward(
            f"{channel.name} pays {len(lost)} of its units ({channel.unit}) that belong to no {unit}; "
            "choose a unit that holds them all, such as team"
        )
    return Channel(channel.name, unit, total_by(inside, channel.paid, len(units.rows(trace, unit))))


def read_reward(reward: str | Node) -> Node:
    """The tree of a reward expression, its named rewards written out, after checking that every name is known."""
    try:
        tree = parse(reward) if isinstance(reward, str) else reward
    except BadExpression as error:
        raise BadReward(str(error)) from None
    return parse(spell(_written_out(tree)))  # which folds sums in sums and weights on weights


def use_reward(text: str) -> str:
    """The reward that a user names: an expression, or FILE.py:NAME, which is loaded. Never for a record's."""
    if not names_a_file(text):
        return text
    where, _, name = text.rpartition(":")
    thing = getattr(load_file(where), name, None)
    return use("score" if name_of("reward", thing) is None else "reward", text)


def _written_out(node: Node) -> Node:
    match node:
        case Call(name=name, args=args, options=options):
            kind, function = _function(name)
            if kind == "reward":
                return read_reward(_called(node, function, *args, **dict(options)))
            if kind == "score" and any(isinstance(v, Node) for v in (*args, *(v for _, v in options))):
                raise BadReward(f"{spell(node)}: a score takes numbers and words, not other scores")
            inside = [_written_out(v) if isinstance(v, Node) else v for v in args]
            named = [(k, _written_out(v) if isinstance(v, Node) else v) for k, v in options]
            return Call(name, tuple(inside), tuple(named))
        case Scaled(weight=weight, part=part):
            return Scaled(weight, _written_out(part))
        case Sum(parts=parts):
            return Sum(tuple(map(_written_out, parts)))
    raise BadReward(f"a reward is a sum of scores; it has no place for >> ({spell(node)})")


def _function(name: str) -> tuple[str, Callable[..., Any]]:
    if (kind := kind_of(name, "score", "shape", "reward")) is not None:
        return kind, find(kind, name)
    known = [known for kind in ("score", "shape", "reward") for known in names(kind)]
    raise BadReward(f"no score, shape or reward called {name!r}; {alternatives(name, known, 'score')}")


def ledger(trace: Trace, reward: str | Node, now: Now = Now()) -> Ledger:  # noqa: B008 (immutable)
    """What an expression pays to every unit of a trace, by channel."""
    return Ledger(trace, tuple(_channels(trace, read_reward(reward), now)))


def score(trace: Trace, reward: str | Node, unit: str | None = None, now: Now = Now()) -> F:  # noqa: B008
    """One column: what an expression pays at a unit, at the finest that it pays unless told."""
    if unit is not None and unit not in units.UNITS:
        raise BadReward(f"no unit called {unit!r}; there are {', '.join(units.UNITS)}")
    paid = ledger(trace, reward, now)
    return paid.at(paid.unit if unit is None else unit)


def _channels(trace: Trace, node: Node, now: Now) -> list[Channel]:
    match node:
        case Scaled(weight=weight, part=part):
            return [c.times(weight) for c in _channels(trace, part, now)]
        case Sum(parts=parts):
            return [c for part in parts for c in _channels(trace, part, now)]
        case Call(name=name):
            kind, function = _function(name)
            return _scored(trace, node, function) if kind == "score" else _shaped(trace, node, function, now)
    raise AssertionError(node)


def _scored(trace: Trace, call: Call, function: Callable[..., Any]) -> list[Channel]:
    paid = _called(call, function, trace, *call.args, **dict(call.options))
    return [Channel(spell(call), facts("score", call.name)["unit"], np.asarray(paid, np.float64))]


def _shaped(trace: Trace, call: Call, function: Callable[..., Any], now: Now) -> list[Channel]:
    """A shape receives the channels of each expression among its arguments, and the rest as it is."""

    def given(value: Any) -> Any:
        return _channels(trace, value, now) if isinstance(value, Node) else value

    options = {k: given(v) for k, v in call.options}
    paid: list[Channel] = _called(call, function, trace, now, *map(given, call.args), **options)
    return paid


def _called(call: Call, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        raise BadReward(f"{spell(call)}: {error}") from None
    try:
        return function(*args, **options)
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, BadReward) or not (call.args or call.options):
            raise  # nothing was asked of it but its defaults
        raise BadReward(f"{spell(call)}: {error}") from error
