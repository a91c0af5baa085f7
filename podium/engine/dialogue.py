"""Conversations in chat form and the ids that a model reads for them, by its own chat template.

A conversation that goes on from an answer of the model goes on by ids: what was read and said stays as it is, and
only what was added is tokenised. Whether that is true to the template is checked on its text, and said:

    start      nothing is extended
    clean      the template writes what came before exactly as it was read and said
    realigned  it writes the model's answer with the same content in other letters; the ids stay those that were
    said fork       it writes what came before otherwise (history was rewritten): all of it is read anew"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from podium.engine.chat import ToolCall
from podium.engine.grammar import Grammar, Guide, json_schema, tool_calls
from podium.engine.protocol import BadEngine, Completion, Context
from podium.engine.tool_formats import FORMATS, ToolFormat, detect

__all__ = ["BadConversation", "Dialogue", "Message", "Past", "Prompt", "Spoken", "keys", "message_of"]

Message = dict[str, Any]
TEMPLATE = (  # of models that have none
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
    "{% endfor %}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


class BadConversation(BadEngine):
    """A conversation that the model's template does not take, or that is too long."""


class Prompt(NamedTuple):
    """What a model is to read: the text of the template, the context in ids, and how it goes on from what it read
    before."""

    text: str
    context: Context
    link: str  # start, clean, realigned or fork
    why: str = ""  # it is a fork
    after: Past | None = None  # what it extends


class Spoken(NamedTuple):
    """An answer as text: what it says, the tools it calls, and why it ended (stop, length, tool_calls)."""

    content: str
    calls: list[ToolCall]
    finish: str

    def message(self, number: int = 0) -> Message:
        """The answer as a message of a conversation; its calls have ids that are its own."""
        message: Message = {
            "role": "assistant",
            "content": self.content if self.content or not self.calls else None,
        }
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}_{at}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.args)},
                }
                for at, call in enumerate(self.calls)
            ]
        return message


@dataclass(eq=False)
class Past:
    """An answer that was given: what was read for it, and the conversation with it."""

    prompt: Prompt
    answer: Completion
    spoken: Spoken
    key: str = ""  # of these messages (`keys`)
    event: Any = None  # what it is called where it was recorded
    more: dict[str, Any] = field(default_factory=dict)


def message_of(message: Mapping[str, Any]) -> Message:
    """A message with nothing but its role, text, calls and the call that it answers; the parts of a text are one.

    >>> message_of({"role": "user", "content": [{"type": "text", "text": "hi"}], "cache_control": 1})
    {'role': 'user', 'content': 'hi'}
    """
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise BadConversation(f"expected a message with a role, got {message!r:.80}")
    if isinstance(content, list):
        if odd := [part for part in content if not (isinstance(part, dict) and isinstance(part.get("text"), str))]:
            kind = odd[0].get("type") if isinstance(odd[0], dict) else type(odd[0]).__name__
            raise BadConversation(f"expected text, got a part of type {kind!r}: this model reads nothing else")
        content = "".join(part["text"] for part in content)
    if content is not None and not isinstance(content, str):
        raise BadConversation(f"expected the content of a message to be text, got {type(content).__name__}")
    plain: Message = {"role": "system" if role == "developer" else role, "content": content}
    if message.get("tool_calls"):
        plain["tool_calls"] = [_function_of(call) for call in message["tool_calls"]]
    if message.get("tool_call_id"):
        plain["tool_call_id"] = str(message["tool_call_id"])
    return plain


def _function_of(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadConversation(f"expected a tool call with a function's name, got {call!r:.80}")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):  # else it stays the text that it is
            arguments = json.loads(arguments or "{}")
    return {
        "id": str(call.get("id", "")),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def keys(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """After each message a key of the conversation up to it; ids of calls do not count."""
    hashed = hashlib.blake2b(json.dumps(list(tools), sort_keys=True).encode(), digest_size=12)
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls", ())]
        part = [message["role"], (message["content"] or "").strip(), calls]
        hashed.update(json.dumps(part, sort_keys=True).encode())
        yield hashed.hexdigest()


@dataclass
class Dialogue:
    """How a model converses: its template, and the format that it writes tool calls in."""

    model: Any  # `podium.engine.models.Model`
    calls: str = ""  # of `FORMATS`; what the template asks for, unless told

    @cached_property
    def template(self) -> str:
        return str(self.model.tokenizer.chat_template or TEMPLATE)

    @cached_property
    def how(self) -> ToolFormat:
        return FORMATS[self.calls or detect(self.template)]

    @cached_property
    def _end(self) -> str:
        """The token that ends an answer, as text."""
        text: str = self.model.tokenizer.decode([self.model.end], skip_special_tokens=False)
        return text

    def grammar(self, spec: Mapping[str, Any]) -> Grammar:
        """What an answer is held to: `{"schema": a JSON schema}`, or `{"tools": [...]}` for a call of one of
        these."""
        return _grammar(json.dumps(spec, sort_keys=False), self.how)

    def among(self, spec: Mapping[str, Any], ids: Sequence[int]) -> list[tuple[int, ...]]:
        """Of each token of an answer that was held to a grammar those that could have come in its place."""
        return Guide(self.model, self.grammar(spec)).among(ids)

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], begun: bool) -> str:
        """The text of a conversation; `begun` with what an answer begins with. Raises BadConversation."""
        try:
            text = self.model.tokenizer.apply_chat_template(
                [self._safe(message) for message in messages],
                tools=list(tools) or None,
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=begun,
            )
        except Exception as error:  # a template raises what it likes
            raise BadConversation(f"the chat template of {self.model.name} refuses this: {error}") from None
        return str(text)

    def _safe(self, message: Message) -> Message:
        """A message whose text holds none of the model's special tokens: from outside they would be taken for its
        own. A word joiner parts them."""
        content = message.get("content")
        if content and message["role"] != "assistant":
            for word in self.model.tokenizer.all_special_tokens:
                if word in content:
                    content = content.replace(word, f"{word[0]}\u2060{word[1:]}")
            message = {**message, "content": content}
        return message

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), before: Past | None = None
    ) -> Prompt:
        """What the model is to read to answer a conversation; `before` is an answer that it goes on from."""
        text = self.render(messages, tools, True)
        if before is None:
            return Prompt(text, Context(self._ids(text)), "start")
        link, rest = self._behind(text, before)
        if rest is None:
            return Prompt(text, Context(self._ids(text)), "fork", link)
        whole = Context(before.answer.ids, before.prompt.context)
        return Prompt(text, Context(self._ids(rest), whole), link, after=before)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.model.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _behind(self, text: str, before: Past) -> tuple[str, str | None]:
        """The kind of link and the text behind an answer; or why there is none, and None."""
        past, end = before.prompt.text, self._end
        if not text.startswith(past):
            return "the template writes what came before the answer otherwise", None
        written, closed, after = text[len(past) :].partition(end)
        if not closed:
            return f"the template does not close an answer with {end!r}", None
        raw = self.raw(before.answer)
        names = {call.name for call in before.spoken.calls}
        same = written == raw or _alike(self.how.read(written, names), before.spoken)
        if not same:
            return "the template writes the answer with other content", None
        rest = ("" if before.answer.ended else end) + after
        return ("clean" if written == raw else "realigned"), rest

    def raw(self, answer: Completion) -> str:
        """The text of an answer as it was said, without the token that ends it."""
        ids = answer.ids[:-1] if answer.ended else answer.ids
        text: str = self.model.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def spoken(self, answer: Completion, tools: Sequence[Mapping[str, Any]], stop: Sequence[str] = ()) -> Spoken:
        """What an answer says and calls: up to the first text that ends it."""
        text = self.model.text(answer.ids)
        if answer.stopped:
            text = text[: min(at for words in stop if (at := text.find(words)) >= 0)]
        names = [str(tool["function"]["name"]) for tool in tools]
        content, calls = self.how.read(text, names) if names else (text, [])
        finish = "tool_calls" if calls else "stop" if answer.ended or answer.stopped else "length"
        return Spoken(content, calls, finish)


@lru_cache(64)
def _grammar(spec: str, how: ToolFormat) -> Grammar:
    given = json.loads(spec)
    return Grammar(tool_calls(given["tools"], how) if "tools" in given else json_schema(given["schema"]))


def _alike(written: tuple[str, list[ToolCall]], spoken: Spoken) -> bool:
    calls = [(call.name, call.args) for call in written[1]]
    same = written[0].strip() == spoken.content.strip()
    return same and calls == [(call.name, call.args) for call in spoken.calls]
