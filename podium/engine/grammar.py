"""Grammars of answers: a JSON schema becomes an automaton over bytes, and says which tokens of a vocabulary may
come.

    grammar = Grammar(json_schema({"enum": ["yes", "no"]}))

What is covered is what has finitely many states: objects with listed properties in their order, arrays, strings,
numbers, booleans, null, `enum`, `const` and `anyOf`. Anything else is refused by name. JSON is written as Python's
`json.dumps` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.engine.protocol import BadEngine
from podium.engine.tool_formats import ToolFormat

__all__ = ["ByteVocabulary", "Grammar", "Guide", "json_schema", "tool_calls"]

N64 = NDArray[np.int64]
Node = tuple[Any, ...]  # a regular expression over bytes: (kind, parts or bytes)
EMPTY: Node = ("bytes", b"")
NESTED = 3  # levels of an object of which nothing is known
LONGEST = 512  # characters that a schema may count
ABOUT = ("title", "description", "default", "examples", "$schema", "strict", "format", "additionalProperties")
NUMBERS = ("minimum", "maximum")  # not held to, so refused


def _text(words: str) -> Node:
    return ("bytes", words.encode())


def _seq(*parts: Node) -> Node:
    return ("seq", *parts)


def _alt(*parts: Node) -> Node:
    return parts[0] if len(parts) == 1 else ("alt", *parts)


def _set(*spans: tuple[int, int]) -> Node:
    return ("set", frozenset(b for low, high in spans for b in range(low, high + 1)))


def _times(part: Node, low: int, high: int | None) -> Node:
    """A part at least `low` times and at most `high`."""
    more = ("star", part) if high is None else EMPTY
    for _ in range(0 if high is None else high - low):
        more = _alt(EMPTY, _seq(part, more))
    return _seq(*[part] * low, more)


def _listed(part: Node, low: int, high: int | None) -> Node:
    """The same with commas between, in brackets."""
    if high == 0:
        return _text("[]")
    rest = _times(_seq(_text(", "), part), max(0, low - 1), None if high is None else high - 1)
    inner = _seq(part, rest)
    return _seq(_text("["), inner if low else _alt(EMPTY, inner), _text("]"))


_TAIL, _DIGIT = _set((0x80, 0xBF)), _set((0x30, 0x39))
_HEX = _set((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
CHARACTER = _alt(
    _set((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E)),
    _seq(_set((0xC2, 0xDF)), _TAIL),
    _seq(_text("\\"), _alt(_set(*((ord(c), ord(c)) for c in '"\\/bfnrt')), _seq(_text("u"), *[_HEX] * 4))),
    _seq(("set", frozenset({0xE0})), _set((0xA0, 0xBF)), _TAIL),
    _seq(_set((0xE1, 0xEC), (0xEE, 0xEF)), _TAIL, _TAIL),
    _seq(("set", frozenset({0xED})), _set((0x80, 0x9F)), _TAIL),
    _seq(("set", frozenset({0xF0})), _set((0x90, 0xBF)), _TAIL, _TAIL),
    _seq(_set((0xF1, 0xF3)), _TAIL, _TAIL, _TAIL),
    _seq(("set", frozenset({0xF4})), _set((0x80, 0x8F)), _TAIL, _TAIL),
)
STRING = _seq(_text('"'), ("star", CHARACTER), _text('"'))
INTEGER = _seq(_alt(EMPTY, _text("-")), _alt(_text("0"), _seq(_set((0x31, 0x39)), _times(_DIGIT, 0, 15))))
FRACTION = _alt(EMPTY, _seq(_text("."), _times(_DIGIT, 1, 15)))
EXPONENT = _alt(EMPTY, _seq(_text("e"), _alt(_text("-"), _text("+")), _times(_DIGIT, 1, 2)))
PLAIN: dict[str, Node] = {
    "string": STRING,
    "integer": INTEGER,
    "number": _seq(INTEGER, FRACTION, EXPONENT),
    "boolean": _alt(_text("true"), _text("false")),
    "null": _text("null"),
}


def json_schema(schema: Any, depth: int = 0) -> Node:
    """The expression of all JSON that a schema allows. Raises BadEngine for what it cannot say."""
    if schema is True or schema == {}:
        return _anything(depth)
    if not isinstance(schema, Mapping) or depth > 16:
        raise BadEngine(f"expected a JSON schema, an object nested at most 16 deep, got {schema!r:.80}")
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(values, list) or not values:
            raise BadEngine(f"expected enum to list some values, got {values!r:.80}")
        return _alt(*(_text(json.dumps(value, ensure_ascii=False)) for value in values))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _alt(*(json_schema(one, depth + 1) for one in schema[key]))
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        return _alt(*(json_schema({**schema, "type": one}, depth + 1) for one in kind))
    known = {"object": ("properties", "required"), "array": ("items", "minItems", "maxItems")}
    known |= {"string": ("minLength", "maxLength")}
    if odd := sorted(set(schema) - {"type", *ABOUT, *known.get(str(kind), ())}):
        raise BadEngine(f"a schema with {odd[0]!r} cannot be held to; expected one without it, got {schema!r:.120}")
    if kind == "object":
        return _object(schema, depth)
    if kind == "array":
        low, high = _bounds(schema, "minItems", "maxItems")
        return _listed(json_schema(schema.get("items", {}), depth + 1), low, high)
    if kind == "string" and ("minLength" in schema or "maxLength" in schema):
        return _seq(_text('"'), _times(CHARACTER, *_bounds(schema, "minLength", "maxLength")), _text('"'))
    if kind not in PLAIN:
        raise BadEngine(f"expected a schema's type to be object, array, {', '.join(PLAIN)}, got {kind!r}")
    return PLAIN[kind]


def _bounds(schema: Mapping[str, Any], least: str, most: str) -> tuple[int, int | None]:
    low, high = schema.get(least, 0), schema.get(most)
    numbers = [n for n in (low, high) if n is not None]
    if not all(isinstance(n, int) and 0 <= n <= LONGEST for n in numbers) or (high is not None and high < low):
        raise BadEngine(f"expected {least} and {most} from 0 to {LONGEST}, rising, got {low!r} and {high!r}")
    return low, high


def _object(schema: Mapping[str, Any], depth: int) -> Node:
    """The listed properties in their order, those that are not required or left out."""
    properties, required = schema.get("properties"), schema.get("required", ())
    if unknown := [name for name in required if name not in (properties or {})]:
        raise BadEngine(f"a schema requires {unknown[0]!r}, which is none of its properties")
    if not properties:
        return _text("{}") if depth >= NESTED or properties is not None else _open_object(depth)
    parts = [
        (_seq(_text(f"{json.dumps(name, ensure_ascii=False)}: "), json_schema(one, depth + 1)), name in required)
        for name, one in properties.items()
    ]
    later, first = EMPTY, EMPTY  # what may come after a property, and where none has come yet
    for part, needed in reversed(parts):
        first = _seq(part, later) if needed else _alt(_seq(part, later), first)
        follows = _seq(_text(", "), part, later)
        later = follows if needed else _alt(follows, later)
    return _seq(_text("{"), first, _text("}"))


def _open_object(depth: int) -> Node:
    pair = _seq(STRING, _text(": "), _anything(depth + 1))
    more = ("star", _seq(_text(", "), pair))
    return _seq(_text("{"), _alt(EMPTY, _seq(pair, more)), _text("}"))


def _anything(depth: int) -> Node:
    """Any JSON, nested only so deep."""
    flat = tuple(PLAIN[name] for name in ("string", "number", "boolean", "null"))
    if depth >= NESTED:
        return _alt(*flat)
    return _alt(*flat, _open_object(depth), _listed(_anything(depth + 1), 0, None))


def tool_calls(tools: Sequence[Mapping[str, Any]], how: ToolFormat) -> Node:
    """One call of one of these tools, as the format writes it."""
    if not how.arguments:
        raise BadEngine("calls that are written as Python cannot be held to a grammar")
    options = []
    for tool in tools:
        function = tool["function"]
        before, after = how.write(function["name"], "\0").split("\0")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        options.append(_seq(_text(before), json_schema(parameters, 1), _text(after)))
    return _alt(*options)


class ByteVocabulary:
    """The bytes of every token, as a tree: for vocabularies whose tokens are bytes (byte-level BPE)."""

    def __init__(self, pieces: Mapping[int, bytes], end: int) -> None:
        self.end = end
        self.tree: list[Any] = [{}, []]  # by byte what goes on, and the ids that end here
        for token, piece in pieces.items():
            at = self.tree
            for byte in piece:
                at = at[0].setdefault(byte, [{}, []])
            if piece and token != end:
                at[1].append(token)


class Grammar:
    """An automaton over bytes, made state by state as it is walked."""

    def __init__(self, expression: Node) -> None:
        self.edges: list[tuple[frozenset[int], int]] = []  # of each state the bytes that leave it, and where to
        self.silent: list[list[int]] = []
        start, self.last = self._build(expression)
        self.start = self._closed({start})
        self._steps: dict[tuple[frozenset[int], int], frozenset[int]] = {}
        self._tokens: dict[tuple[int, frozenset[int]], tuple[int, ...]] = {}

    def _state(self) -> int:
        self.edges.append((frozenset(), -1))
        self.silent.append([])
        return len(self.silent) - 1

    def _build(self, node: Node) -> tuple[int, int]:
        """The first and the last state of an expression."""
        kind, *parts = node
        if kind in ("bytes", "set"):
            sets = [frozenset({byte}) for byte in parts[0]] if kind == "bytes" else [parts[0]]
            first = at = self._state()
            for some in sets:
                after = self._state()
                self.edges[at] = some, after
                at = after
            return first, at
        inner = [self._build(part) for part in parts]
        first, last = self._state(), self._state()
        if kind == "seq":
            for (_, a), (b, _) in zip([(first, first), *inner], [*inner, (last, last)], strict=True):
                self.silent[a].append(b)
        else:
            for a, b in inner:
                self.silent[first].append(a)
                self.silent[b].append(a if kind == "star" else last)
                if kind == "star":
                    self.silent[b].append(last)
            if kind == "star":
                self.silent[first].append(last)
        return first, last

    def _closed(self, states: set[int]) -> frozenset[int]:
        todo, known = list(states), set(states)
        while todo:
            new = [s for s in self.silent[todo.pop()] if s not in known]
            known.update(new)
            todo += new
        return frozenset(s for s in known if self.edges[s][1] >= 0 or s == self.last)

    def step(self, state: frozenset[int], byte: int) -> frozenset[int]:
        """The state after a byte; empty where it may not come."""
        if (state, byte) not in self._steps:
            after = {self.edges[s][1] for s in state if byte in self.edges[s][0]}
            self._steps[state, byte] = self._closed(after)
        return self._steps[state, byte]

    def after(self, state: frozenset[int], piece: bytes) -> frozenset[int]:
        for byte in piece:
            state = self.step(state, byte)
        return state

    def tokens(self, state: frozenset[int], vocabulary: ByteVocabulary) -> tuple[int, ...]:
        """The tokens that may come in a state, the end among them where an answer may end."""
        key = id(vocabulary), state
        if key not in self._tokens:
            ids = [vocabulary.end] if self.last in state else []
            todo = [(state, vocabulary.tree)]
            while todo:
                at, (children, ending) = todo.pop()
                ids += ending
                for byte, child in children.items():
                    if after := self.step(at, byte):
                        todo.append((after, child))
            self._tokens[key] = tuple(sorted(ids))
        return self._tokens[key]


class Guide:
    """What may come next in one answer, and whether it ends: by its grammar, and by texts that end it."""

    def __init__(self, vocabulary: Any, grammar: Grammar | None = None, stop: Sequence[str] = ()) -> None:
        self.vocabulary, self.grammar, self.stop = vocabulary, grammar, tuple(stop)
        self.state = frozenset[int]() if grammar is None else grammar.start
        self._ids: list[int] = []
        self._far = 8 + 4 * max(map(len, self.stop), default=0)  # tokens that such a text can be spread over

    def allowed(self) -> tuple[int, ...] | None:
        """The tokens that may come; None for any."""
        if self.grammar is None:
            return None
        return self.grammar.tokens(self.state, self.vocabulary.byte_tree)

    def take(self, token: int) -> bool:
        """Goes on by a token; whether one of the texts that end an answer is there now."""
        if self.grammar is not None:
            self.state = self.grammar.after(self.state, self.vocabulary.pieces.get(token, b""))
        if not self.stop:
            return False
        self._ids.append(token)
        text = self.vocabulary.text(self._ids[-self._far :])
        return any(words in text for words in self.stop)

    def among(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        """Of each token of an answer those that could have come in its place."""
        sets = []
        for token in ids:
            sets.append(self.allowed() or ())
            self.take(token)
        return sets
