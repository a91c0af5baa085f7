"""The three APIs that programs speak, as tables: how a request is read, and how an answer is written, whole or as a
stream of events.

    chat       OpenAI's Chat Completions      POST /v1/chat/completions
    responses  OpenAI's Responses             POST /v1/responses
    messages   Anthropic's Messages           POST /v1/messages
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from podium.engine.dialogue import BadConversation, Message, Spoken, message_of
from podium.engine.protocol import BadEngine
from podium.trace.depth import is_deep

__all__ = ["DIALECTS", "MOST_CHOICES", "Answer", "Ask", "BadRequest", "Dialect", "decode"]

_EMPTY: dict[str, dict[str, Any]] = {  # what items and blocks begin with
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}
PIECE = 24  # characters of a streamed piece
MOST_CHOICES, MOST_STOPS = 64, 16
Event = tuple[str, dict[str, Any]]  # its name, and its data


class BadRequest(Exception):
    """A request that is not answered: the status, and why."""

    def __init__(self, status: int, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.after = status, why, after


class Ask(NamedTuple):
    """What a program asks for, whatever it speaks."""

    model: str
    messages: list[Message]
    tools: list[dict[str, Any]]
    most: int | None = None  # tokens
    stop: tuple[str, ...] = ()
    greedy: bool = False
    grammar: dict[str, Any] | None = None  # as `Dialogue.grammar` takes it
    stream: bool = False
    choices: int = 1  # answers
    usage: bool = True  # at the end of a stream
    more: Mapping[str, Any] = {}  # what was asked for and is not done


class Answer(NamedTuple):
    """What is answered."""

    id: str
    created: int
    model: str
    choices: Sequence[Spoken]
    tokens_in: int
    tokens_out: int
    number: int  # of the answer in its run, by which its calls are named
    logp: Sequence[Sequence[float]] = ()  # of the tokens of each choice


class Dialect(NamedTuple):
    """How an API is read and written."""

    read: Callable[[dict[str, Any]], Ask]
    whole: Callable[[Ask, Answer], dict[str, Any]]
    stream: Callable[[Ask, Answer], Iterator[bytes]]
    refusal: Callable[[int, str], dict[str, Any]]


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises BadRequest."""
    if is_deep(body):
        raise BadRequest(400, "expected a JSON object, got JSON that is nested too deeply")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(400, f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest(400, f"expected a JSON object, got {type(value).__name__}")
    return value


def _get(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    """A field that is of a kind, or not there. Raises BadRequest."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadRequest(400, f"{name}: got {type(value).__name__} {str(value)[:40]!r}, which it cannot be")
    return value


def _number(body: Mapping[str, Any], names: Sequence[str], most: int = 1 << 20) -> int | None:
    for name in names:
        if (value := _get(body, name, int)) is not None:
            if not 1 <= value <= most:
                raise BadRequest(400, f"{name} must be from 1 to {most}, got {value}")
            return int(value)
    return None


def _texts(value: Any, name: str) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value or ())
    if len(texts) > MOST_STOPS or not all(isinstance(text, str) and 0 < len(text) <= 200 for text in texts):
        raise BadRequest(400, f"{name} must be at most {MOST_STOPS} texts of at most 200 characters")
    return texts


def _function(name: Any, about: Any, schema: Any) -> dict[str, Any]:
    if not isinstance(name, str) or not name:
        raise BadRequest(400, f"expected a tool with a name, got {name!r:.40}")
    parameters = schema if isinstance(schema, dict) else {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": name, "description": about or "", "parameters": parameters},
    }


def _bound(choice: Any, tools: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The tools that may be called, and the grammar of a call where one must be."""
    if choice in (None, "auto"):
        return tools, None
    if choice == "none":
        return [], None
    name = choice.get("name") or choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    some = [tool for tool in tools if name in (None, tool["function"]["name"])]
    if not some:
        raise BadRequest(400, f"tool_choice asks for {name or 'a tool'!r}, and there is none")
    return tools, {"tools": some}


def _schema(wanted: Any) -> dict[str, Any] | None:
    """The grammar of a response format, either way it is written."""
    if not isinstance(wanted, dict) or wanted.get("type") in (None, "text"):
        return None
    if wanted["type"] == "json_object":
        return {"schema": {"type": "object"}}
    if wanted["type"] != "json_schema":
        raise BadRequest(400, f"response_format: expected text, json_object or json_schema, got {wanted['type']!r}")
    inner = wanted.get("json_schema", wanted)
    if not isinstance(inner, dict) or not isinstance(inner.get("schema"), dict):
        raise BadRequest(400, "response_format: expected json_schema with a schema")
    return {"schema": inner["schema"]}


def _messages(read: Callable[[], list[Message]]) -> list[Message]:
    try:
        messages = read()
    except (BadConversation, BadEngine) as error:
        raise BadRequest(400, str(error)) from None
    if not messages:
        raise BadRequest(400, "expected a message at least")
    return messages


def _asked_otherwise(body: Mapping[str, Any]) -> dict[str, Any]:
    """What shapes the distribution that is drawn from, and is not followed: log-probabilities are of the policy."""
    names = ("top_p", "top_k", "frequency_penalty", "presence_penalty", "logit_bias", "reasoning_effort")
    odd = {name: body[name] for name in names if body.get(name) not in (None, 0, 1, 1.0, {})}
    return odd | ({"temperature": body["temperature"]} if body.get("temperature") not in (None, 0, 1) else {})


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def _sse(events: Iterator[Event], named: bool = True) -> Iterator[bytes]:
    for name, data in events:
        head = f"event: {name}\n".encode() if named else b""
        yield head + b"data: " + json.dumps(data).encode() + b"\n\n"


def _openai_refusal(status: int, why: str) -> dict[str, Any]:
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "invalid_request_error")
    return {
        "error": {"message": why, "type": "server_error" if status >= 500 else kind, "param": None, "code": None}
    }


# ---- OpenAI's Chat Completions


def _read_chat(body: dict[str, Any]) -> Ask:
    listed = _get(body, "messages", list, [])
    messages = _messages(lambda: [message_of(m if isinstance(m, dict) else {}) for m in listed])
    tools = []
    for tool in _get(body, "tools", list, []):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise BadRequest(400, f"tools: expected functions, got {str(tool)[:60]}")
        function = _get(tool, "function", dict, {})
        tools.append(_function(function.get("name"), function.get("description"), function.get("parameters")))
    tools, grammar = _bound(body.get("tool_choice"), tools)
    options = _get(body, "stream_options", dict, {})
    return Ask(
        _get(body, "model", str, ""),
        messages,
        tools,
        _number(body, ("max_completion_tokens", "max_tokens")),
        _texts(body.get("stop"), "stop"),
        body.get("temperature") == 0,
        grammar or _schema(body.get("response_format")),
        _get(body, "stream", bool, False),
        _number(body, ("n",), MOST_CHOICES) or 1,
        bool(options.get("include_usage")),
        _asked_otherwise(body),
    )


def _chat_usage(answer: Answer) -> dict[str, int]:
    total = answer.tokens_in + answer.tokens_out
    return {"prompt_tokens": answer.tokens_in, "completion_tokens": answer.tokens_out, "total_tokens": total}


def _chat_head(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": answer.created, "model": answer.model}


def _choice_number(answer: Answer, at: int) -> int:
    return answer.number * MOST_CHOICES + at


def _whole_chat(ask: Ask, answer: Answer) -> dict[str, Any]:
    choices = []
    for at, spoken in enumerate(answer.choices):
        message = spoken.message(_choice_number(answer, at)) | {"refusal": None}
        choices.append({"index": at, "message": message, "finish_reason": spoken.finish, "logprobs": None})
    return _chat_head(answer, "chat.completion") | {"choices": choices, "usage": _chat_usage(answer)}


def _stream_chat(ask: Ask, answer: Answer) -> Iterator[bytes]:
    head = _chat_head(answer, "chat.completion.chunk")

    def chunk(at: int, delta: dict[str, Any], finish: str | None = None) -> Event:
        return "", head | {"choices": [{"index": at, "delta": delta, "finish_reason": finish, "logprobs": None}]}

    def events() -> Iterator[Event]:
        for at, spoken in enumerate(answer.choices):
            yield chunk(at, {"role": "assistant", "content": "" if spoken.content or not spoken.calls else None})
            for piece in _pieces(spoken.content):
                yield chunk(at, {"content": piece})
            for k, call in enumerate(spoken.message(_choice_number(answer, at)).get("tool_calls", ())):
                function = call["function"]
                begun = call | {"index": k, "function": {"name": function["name"], "arguments": ""}}
                yield chunk(at, {"tool_calls": [begun]})
                for piece in _pieces(function["arguments"]):
                    yield chunk(at, {"tool_calls": [{"index": k, "function": {"arguments": piece}}]})
            yield chunk(at, {}, spoken.finish)
        if ask.usage:
            yield "", head | {"choices": [], "usage": _chat_usage(answer)}

    yield from _sse(events(), False)
    yield b"data: [DONE]\n\n"


# ---- OpenAI's Responses


def _read_responses(body: dict[str, Any]) -> Ask:
    given = _get(body, "input", (str, list), [])
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    instructions = _get(body, "instructions", str)
    first = [{"role": "system", "content": instructions}] if instructions else []
    messages = _messages(lambda: [*first, *_items(items)])
    listed = [tool for tool in _get(body, "tools", list, []) if isinstance(tool, dict)]
    tools = [
        _function(t.get("name"), t.get("description"), t.get("parameters"))
        for t in listed
        if t.get("type") == "function"
    ]
    others = {"tools": [str(t.get("type")) for t in listed if t.get("type") != "function"]}
    tools, grammar = _bound(body.get("tool_choice"), tools)
    return Ask(
        _get(body, "model", str, ""),
        messages,
        tools,
        _number(body, ("max_output_tokens",)),
        (),
        body.get("temperature") == 0,
        grammar or _schema(_get(body, "text", dict, {}).get("format")),
        _get(body, "stream", bool, False),
        more=_asked_otherwise(body) | (others if others["tools"] else {}),
    )


def _items(items: Sequence[Any]) -> list[Message]:
    """Messages out of items: calls go with the answer that they are of; reasoning is left out: it is ours to
    read."""
    messages: list[Message] = []
    for item in items:
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "function_call":
            call = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
            answer = message_of(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": item.get("call_id", ""), "function": call}],
                }
            )
            if messages and messages[-1]["role"] == "assistant":
                messages[-1].setdefault("tool_calls", []).extend(answer["tool_calls"])
            else:
                messages.append(answer)
        elif kind == "function_call_output":
            content = item.get("output")
            content = content if isinstance(content, str | list) else json.dumps(content)
            messages.append(
                message_of({"role": "tool", "content": content, "tool_call_id": item.get("call_id", "")})
            )
        elif kind == "message":
            messages.append(message_of(item))
        elif kind != "reasoning":
            raise BadConversation(f"expected messages, calls and their outputs, got an item of type {kind!r}")
    return messages


def _output(answer: Answer) -> list[dict[str, Any]]:
    """The items of an answer."""
    spoken, items = answer.choices[0], list[dict[str, Any]]()
    if spoken.content or not spoken.calls:
        text = {"type": "output_text", "text": spoken.content, "annotations": [], "logprobs": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{answer.id}",
                "status": "completed",
                "role": "assistant",
                "content": [text],
            }
        )
    for k, call in enumerate(spoken.message(_choice_number(answer, 0)).get("tool_calls", ())):
        function, name = call["function"], {"id": f"fc_{answer.id}_{k}", "call_id": call["id"]}
        items.append({"type": "function_call", "status": "completed", **name, **function})
    return items


def _response(ask: Ask, answer: Answer, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": answer.tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.tokens_in + answer.tokens_out,
    }
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    tools = [{"type": "function", **tool["function"], "strict": False} for tool in ask.tools]
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": answer.model,
        "output": output,
        "usage": usage if status in ("completed", "incomplete") else None,
        "incomplete_details": cut,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": tools,
    }


def _response_status(answer: Answer) -> str:
    return "incomplete" if answer.choices[0].finish == "length" else "completed"


def _whole_response(ask: Ask, answer: Answer) -> dict[str, Any]:
    return _response(ask, answer, _response_status(answer), _output(answer))


def _stream_response(ask: Ask, answer: Answer) -> Iterator[bytes]:
    def events() -> Iterator[Event]:
        begun = _response(ask, answer, "in_progress", [])
        yield "response.created", {"response": begun}
        yield "response.in_progress", {"response": begun}
        for at, item in enumerate(_output(answer)):
            place = {"item_id": item["id"], "output_index": at}
            shell = {**item, "status": "in_progress", **_EMPTY[item["type"]]}
            yield "response.output_item.added", {"output_index": at, "item": shell}
            if item["type"] == "message":
                part, place = item["content"][0], place | {"content_index": 0}
                yield "response.content_part.added", place | {"part": part | {"text": ""}}
                for piece in _pieces(part["text"]):
                    yield "response.output_text.delta", place | {"delta": piece, "logprobs": []}
                yield "response.output_text.done", place | {"text": part["text"], "logprobs": []}
                yield "response.content_part.done", place | {"part": part}
            else:
                for piece in _pieces(item["arguments"]):
                    yield "response.function_call_arguments.delta", place | {"delta": piece}
                done = {"arguments": item["arguments"], "name": item["name"]}
                yield "response.function_call_arguments.done", place | done
            yield "response.output_item.done", {"output_index": at, "item": item}
        status = _response_status(answer)
        yield f"response.{status}", {"response": _response(ask, answer, status, _output(answer))}

    numbered = ((name, {"type": name, "sequence_number": n, **data}) for n, (name, data) in enumerate(events()))
    yield from _sse(numbered)


# ---- Anthropic's Messages

ENDS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _read_messages(body: dict[str, Any]) -> Ask:
    system = _get(body, "system", (str, list))
    first = [{"role": "system", "content": system}] if system else []
    listed = _get(body, "messages", list, [])
    messages = _messages(lambda: [*map(message_of, first), *(part for m in listed for part in _blocks(m))])
    tools = [
        _function(t.get("name"), t.get("description"), t.get("input_schema"))
        for t in _get(body, "tools", list, [])
        if isinstance(t, dict) and (t.get("type", "custom") == "custom" or "input_schema" in t)
    ]
    choice = _get(body, "tool_choice", dict, {})
    kind = {"any": "required", "tool": choice}.get(str(choice.get("type")), choice.get("type"))
    tools, grammar = _bound(kind, tools)
    most = _number(body, ("max_tokens",))
    return Ask(
        _get(body, "model", str, ""),
        messages,
        tools,
        most,
        _texts(body.get("stop_sequences"), "stop_sequences"),
        body.get("temperature") == 0,
        grammar,
        _get(body, "stream", bool, False),
        more=_asked_otherwise(body),
    )


def _blocks(message: Any) -> list[Message]:
    """A message of blocks as messages: results of tools first, then what was said."""
    if not isinstance(message, dict) or isinstance(message.get("content"), str):
        return [message_of(message if isinstance(message, dict) else {})]
    results, texts, calls = list[Message](), list[dict[str, Any]](), list[dict[str, Any]]()
    for block in message.get("content") or ():
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            content = block.get("content") or ""
            results.append(
                message_of({"role": "tool", "content": content, "tool_call_id": block.get("tool_use_id", "")})
            )
        elif kind == "tool_use":
            call = {"name": block.get("name"), "arguments": block.get("input", {})}
            calls.append({"id": block.get("id", ""), "function": call})
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(block)
    if texts or calls or not results:
        content = texts if texts or not calls else None
        results.append(message_of({"role": message.get("role"), "content": content, "tool_calls": calls}))
    return results


def _content(answer: Answer) -> list[dict[str, Any]]:
    spoken = answer.choices[0]
    blocks = [{"type": "text", "text": spoken.content}] if spoken.content or not spoken.calls else []
    for call in spoken.message(_choice_number(answer, 0)).get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        name = call["function"]["name"]
        blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": arguments})
    return blocks


def _whole_message(ask: Ask, answer: Answer) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": _content(answer),
        "stop_reason": ENDS[answer.choices[0].finish],
        "stop_sequence": None,
        "usage": {"input_tokens": answer.tokens_in, "output_tokens": answer.tokens_out},
    }


def _stream_message(ask: Ask, answer: Answer) -> Iterator[bytes]:
    def events() -> Iterator[Event]:
        whole = _whole_message(ask, answer)
        begun = whole | {"content": [], "stop_reason": None}
        yield "message_start", {"message": begun | {"usage": whole["usage"] | {"output_tokens": 0}}}
        for at, block in enumerate(whole["content"]):
            words = block["text"] if block["type"] == "text" else json.dumps(block["input"])
            yield "content_block_start", {"index": at, "content_block": block | _EMPTY[block["type"]]}
            for piece in _pieces(words):
                kind = ("text_delta", "text") if block["type"] == "text" else ("input_json_delta", "partial_json")
                yield "content_block_delta", {"index": at, "delta": {"type": kind[0], kind[1]: piece}}
            yield "content_block_stop", {"index": at}
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield "message_delta", {"delta": ended, "usage": {"output_tokens": answer.tokens_out}}
        yield "message_stop", {}

    yield from _sse((name, {"type": name, **data}) for name, data in events())


def _anthropic_refusal(status: int, why: str) -> dict[str, Any]:
    kinds = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}
    kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": why}}


DIALECTS: dict[str, Dialect] = {
    "chat/completions": Dialect(_read_chat, _whole_chat, _stream_chat, _openai_refusal),
    "responses": Dialect(_read_responses, _whole_response, _stream_response, _openai_refusal),
    "messages": Dialect(_read_messages, _whole_message, _stream_message, _anthropic_refusal),
}
