"""How models write tool calls as text: a table of formats, each of which reads calls out of an answer and says what
a call looks like.

    FORMATS["hermes"].read('<tool_call>\\n{"name": "add", "arguments": {"a": 1}}\\n</tool_call>', {"add"})
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from podium.engine.chat import ToolCall
from podium.trace.depth import is_deep

__all__ = ["FORMATS", "ToolFormat", "detect"]

Read = tuple[str, list[ToolCall]]  # the text beside the calls, and the calls


class ToolFormat(NamedTuple):
    """A way to write calls. In JSON a call is `before`, an object with a name and arguments, `after`."""

    calls_in: Callable[[str], Iterator[tuple[int, int, list[ToolCall]]]]  # where in a text which calls stand
    before: str = ""
    after: str = ""
    arguments: str = "arguments"  # the key of the arguments; empty where a call is not written as JSON

    def read(self, text: str, names: Collection[str]) -> Read:
        """The text beside the calls of tools with these names, and those calls. What is no such call stays text."""
        rest, calls, at = [], list[ToolCall](), 0
        for start, stop, some in self.calls_in(text):
            if start >= at and some and all(call.name in names for call in some):
                rest.append(text[at:start])
                calls += some
                at = stop
        return ("".join([*rest, text[at:]]).strip() if calls else text), calls

    def write(self, name: str, arguments: str) -> str:
        """A call as a model writes it, the arguments being JSON.

        >>> FORMATS["llama"].write("add", '{"a": 1}')
        '{"name": "add", "parameters": {"a": 1}}'
        """
        return f'{self.before}{{"name": {json.dumps(name)}, "{self.arguments}": {arguments}}}{self.after}'


def _call(value: Any) -> ToolCall | None:
    """A call out of JSON: a name, and arguments under either key, as an object or as its text."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    args = value.get("arguments", value.get("parameters", {}))
    if isinstance(args, str):
        args = _json(args)
    return ToolCall(value["name"], args) if isinstance(args, dict) else None


def _json(text: str) -> Any:
    if is_deep(text.encode(errors="replace")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _calls(values: Sequence[Any]) -> list[ToolCall]:
    """All of these as calls; none if one is not."""
    calls = [_call(value) for value in values]
    return [call for call in calls if call is not None] if all(calls) else []


def _hermes(text: str) -> Iterator[tuple[int, int, list[ToolCall]]]:
    for block in re.finditer(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.DOTALL):
        yield block.start(), block.end(), _calls([_json(block[1])])


def _llama(text: str) -> Iterator[tuple[int, int, list[ToolCall]]]:
    body = text.strip().removeprefix("<|python_tag|>")
    parts = [_json(part) for part in re.split(r"(?<=\})\s*;\s*(?=\{)", body)]
    yield 0, len(text), _calls(parts)


def _plain(text: str) -> Iterator[tuple[int, int, list[ToolCall]]]:
    """A whole answer that is a call or a list of calls, or such in fences."""
    fences = [*re.finditer(r"```(?:json)?\s*(.*?)\s*```", text, re.DOTALL)]
    for start, stop, body in [(m.start(), m.end(), m[1]) for m in fences] or [(0, len(text), text)]:
        value = _json(body)
        yield start, stop, _calls(value if isinstance(value, list) else [value])


def _python(text: str) -> Iterator[tuple[int, int, list[ToolCall]]]:
    """A list of calls of functions whose arguments are literals, as Python writes them."""
    body = re.sub(r"<\|python_(start|end)\|>", "", text).strip()
    if len(body) > 1 << 16 or is_deep(body.encode(errors="replace")):
        return
    try:
        tree = ast.parse(body, mode="eval").body
        nodes = tree.elts if isinstance(tree, ast.List) else [tree]
        calls = [_python_call(node) for node in nodes]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return
    yield 0, len(text), calls


def _python_call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError("no call with named arguments")
    if any(word.arg is None for word in node.keywords):
        raise ValueError("arguments without names")
    return ToolCall(ast.unparse(node.func), {str(w.arg): ast.literal_eval(w.value) for w in node.keywords})


FORMATS: dict[str, ToolFormat] = {
    "hermes": ToolFormat(_hermes, "<tool_call>\n", "\n</tool_call>"),
    "llama": ToolFormat(_llama, arguments="parameters"),
    "json": ToolFormat(_plain),
    "python": ToolFormat(_python, arguments=""),
}
SIGNS = {
    "<tool_call>": "hermes",
    "<|python_start|>": "python",
    "<|python_tag|>": "llama",
    '"parameters": ': "llama",
}


def detect(template: str) -> str:
    """The format that a chat template asks its model for.

    >>> detect("... <tool_call> ..."), detect("")
    ('hermes', 'json')
    """
    return next((name for sign, name in SIGNS.items() if sign in template), "json")
