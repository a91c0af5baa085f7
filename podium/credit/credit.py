"""Credit: one number for each unit of a trace, and the fold that turns a reward into it.

A *step* is a registered function from credit to credit. `a >> b` is b after a; `a + b` adds what both make of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from podium.errors import WrongUse
from podium.expression import BadExpression, Call, Node, Scaled, Sum, Then, calls, parse, spell
from podium.graph import units
from podium.registry import alternatives, find, kind_of, names
from podium.trace.columns import F, I, Trace
from podium.trace.forest import Forest
from podium.trace.vocabulary import event

__all__ = ["BadCredit", "Credit", "Step", "apply", "read_credit"]

RESULT = event("tool_result")


class BadCredit(WrongUse, ValueError):
    """A credit expression that cannot be evaluated on a trace; says which part and what it needs."""


@dataclass(frozen=True)
class Credit:
    """A column of credit at a unit. NaN: no credit can be given (not scored, alone in its group)."""

    trace: Trace
    unit: str
    value: F  # one for each unit
    weight: F | None = None  # how much each unit counts in a loss; 1 each unless told
    packed: Forest | None = None  # of which the trace is the own rows; only steps that compare branches read it

    def of(self, value: Any) -> Credit:
        """The same units with other values."""
        return replace(self, value=np.asarray(value, np.float64))

    def where_known(self, value: Any) -> Credit:
        """The same units with other values, where they had one; none (NaN) for the rest."""
        return self.of(np.where(np.isnan(self.value), np.nan, value))

    @property
    def rows(self) -> I:
        """The row that stands for each unit."""
        return units.rows(self.trace, self.unit)

    @property
    def acts(self) -> I:
        """The row at which each unit may differ from what another branch did there: the one that stands for it, but
        of a turn that begins with results of its calls, which branches share, the first after them."""
        rows = self.rows
        if self.unit == "turn":
            unit = units.place(self.trace, "turn")
            own = np.flatnonzero((unit >= 0) & (self.trace.type_e != RESULT))[::-1]
            rows = rows.copy()
            rows[unit[own]] = own  # the first is written last, so it stays
        return rows

    @property
    def runs(self) -> Trace | Forest:
        """The trace, or the forest whose own rows it is."""
        return self.trace if self.packed is None else self.packed

    @property
    def rollout(self) -> I:
        """The rollout of each unit."""
        return units.rollouts(self.trace, self.unit)


Step = Callable[[Credit], Credit]


def read_credit(expression: str | Node) -> Node:
    """The tree of a credit expression, after checking that every name in it is a step."""
    try:
        tree = parse(expression) if isinstance(expression, str) else expression
    except BadExpression as error:
        raise BadCredit(str(error)) from None
    for call in calls(tree):
        if kind_of(call.name, "step") is None:
            raise BadCredit(f"no step called {call.name!r}; {alternatives(call.name, names('step'))}")
    return tree


def apply(credit: Credit, expression: str | Node) -> Credit:
    """What an expression makes of a credit."""
    return _fold(credit, read_credit(expression))


def _fold(credit: Credit, node: Node) -> Credit:
    match node:
        case Then(parts=parts):
            for part in parts:
                credit = _fold(credit, part)
            return credit
        case Sum(parts=parts):
            return _added([_fold(credit, part) for part in parts], node)
        case Scaled(weight=weight, part=part):
            result = _fold(credit, part)
            return result.of(weight * result.value)
        case Call(name=name, args=args, options=options):
            given = [_given(a) for a in args]
            return _called(node, find("step", name), credit, *given, **{k: _given(v) for k, v in options})
    raise AssertionError(node)


def _given(value: Any) -> Any:
    """An expression among a step's arguments becomes a function from credit to credit."""
    return (lambda credit: _fold(credit, value)) if isinstance(value, Node) else value


def _added(parts: list[Credit], node: Node) -> Credit:
    kinds = {part.unit for part in parts}
    if len(kinds) > 1:
        raise BadCredit(
            f"cannot add credit at different units ({', '.join(sorted(kinds))}) in {spell(node)}; move it with `to`"
        )
    weight = next((part.weight for part in parts if part.weight is not None), None)
    return replace(parts[0], value=np.sum([part.value for part in parts], axis=0), weight=weight)


def _called(call: Call, function: Callable[..., Any], *args: Any, **options: Any) -> Credit:
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        raise BadCredit(f"{spell(call)}: {error}") from None
    result: Credit = function(*args, **options)
    return result
