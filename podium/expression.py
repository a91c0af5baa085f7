"""Expressions over registered functions: rewards and credit are written, printed and evaluated as one line of text.

    outcome - 0.1 * invalid_calls + anneal(0.3 * instantiate)
    zscore(by=("task", "agent")) + (togo("turn") >> center(by=("task", "anchor")))

The grammar is Python's own, less everything but names, calls, literals, `+ - * /` by numbers and `>>`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from math import isfinite
from typing import Any

__all__ = ["BadExpression", "Call", "Node", "Scaled", "Sum", "Then", "calls", "parse", "spell"]


class BadExpression(ValueError):
    """An expression that cannot be read; says what was expected, what came and where."""


class Node:
    """An expression."""


@dataclass(frozen=True)
class Call(Node):
    """A named function with its arguments, some of which may be expressions."""

    name: str
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Scaled(Node):
    weight: float
    part: Node


@dataclass(frozen=True)
class Sum(Node):
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Then(Node):
    """One after the other."""

    parts: tuple[Node, ...]


def parse(text: str) -> Node:
    """The tree of an expression.

    >>> parse("a - 0.1 * b(2, c, by='x')")  # doctest: +NORMALIZE_WHITESPACE
    Sum(parts=(Call(name='a', args=(), options=()), Scaled(weight=-0.1, part=Call(name='b', args=(2,
    Call(name='c', args=(), options=())), options=(('by', 'x'),)))))
    """
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise BadExpression(
            f"expected an expression like 'outcome - 0.1 * invalid_calls', got {text!r}{where}"
        ) from None
    try:
        value = _read(body, text)
    except RecursionError:
        raise BadExpression(f"an expression nested too deep to read: {text[:60]!r} ...") from None
    if not isinstance(value, Node):
        raise BadExpression(f"expected the name of a function, got {text!r}")
    return value


def _read(node: ast.expr, text: str) -> Any:
    """A node of ours, or a literal."""
    match node:
        case ast.Name(id=name):
            return Call(name)
        case ast.Call(func=ast.Name(id=name)):
            if any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
                raise _wrong(node, text)
            args = tuple(_read(a, text) for a in node.args)
            return Call(name, args, tuple((str(k.arg), _read(k.value, text)) for k in node.keywords))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _read(operand, text)
            if isinstance(value, Node):
                return _scaled(-1.0, value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        case ast.BinOp(left=left, op=op, right=right):
            return _joined(node, op, _read(left, text), _read(right, text), text)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_read(i, text) for i in items)
        case ast.Constant(value=value) if value is None or isinstance(value, bool | int | str):
            return value
        case ast.Constant(value=float() as value) if isfinite(value):
            return value
    raise _wrong(node, text)


def _joined(node: ast.expr, op: ast.operator, left: Any, right: Any, text: str) -> Any:
    match op, left, right:
        case ast.Add(), Node(), Node():
            return Sum((*_parts(Sum, left), *_parts(Sum, right)))
        case ast.Sub(), Node(), Node():
            return Sum((*_parts(Sum, left), *(_scaled(-1.0, p) for p in _parts(Sum, right))))
        case ast.RShift(), Node(), Node():
            return Then((*_parts(Then, left), *_parts(Then, right)))
        case ast.Mult(), int() | float(), Node():
            return _scaled(left, right)
        case ast.Mult() | ast.Div(), Node(), int() | float() if right or isinstance(op, ast.Mult):
            return _scaled(right if isinstance(op, ast.Mult) else 1.0 / right, left)
    raise _wrong(node, text)


def _parts(kind: type[Sum] | type[Then], node: Node) -> tuple[Node, ...]:
    return node.parts if isinstance(node, kind) else (node,)


def _scaled(weight: float, value: Node) -> Node:
    match value:
        case Scaled(weight=inner, part=part):
            return Scaled(weight * inner, part)
        case Sum(parts=parts):
            return Sum(tuple(_scaled(weight, p) for p in parts))
    return Scaled(float(weight), value)


def _wrong(node: ast.expr, text: str) -> BadExpression:
    part = ast.get_source_segment(text.strip(), node) or text
    return BadExpression(
        f"expected names, calls, numbers, + - * / and >>, got {part!r} at character {node.col_offset + 1} of "
        f"{text!r}"
    )


def spell(node: Any) -> str:
    """The text of a tree; parsing it gives the tree back.

    >>> spell(parse("a(by=('x',)) - .5*(b+c) >> d"))
    "a(by=('x',)) - 0.5 * b - 0.5 * c >> d"
    """
    match node:
        case Call(name=name, args=args, options=options):
            inside = ", ".join([*map(spell, args), *(f"{k}={spell(v)}" for k, v in options)])
            return f"{name}({inside})" if inside else name
        case Scaled(weight=weight, part=part):
            return f"{weight!r} * {_inside(part)}" if weight != -1.0 else f"-{_inside(part)}"
        case Sum(parts=parts):
            first, *rest = (spell(p) if not isinstance(p, Then) else f"({spell(p)})" for p in parts)
            return first + "".join(f" - {r[1:]}" if r.startswith("-") else f" + {r}" for r in rest)
        case Then(parts=parts):
            return " >> ".join(spell(p) for p in parts)
    return repr(node)


def _inside(part: Node) -> str:
    return spell(part) if isinstance(part, Call) else f"({spell(part)})"


def calls(node: Any) -> list[Call]:
    """Every call in a tree, outermost first.

    >>> [c.name for c in calls(parse("a(b) + c"))]
    ['a', 'b', 'c']
    """
    match node:
        case Call(args=args, options=options):
            return [node, *(c for a in (*args, *(v for _, v in options)) for c in calls(a))]
        case Scaled(part=part):
            return calls(part)
        case Sum(parts=parts) | Then(parts=parts):
            return [c for p in parts for c in calls(p)]
    return []
