"""What the attributes of a span mean: OpenTelemetry's GenAI conventions, OpenInference, Traceloop, Monocle and MCP.

`span_of` takes a span's name and attributes by key, as any of these exporters writes them. Attributes of messages
that are spread over many keys (`llm.input_messages.0.message.content`) are not read: the figures of a run are
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from podium.exchange.lines import ERRORS
from podium.exchange.spans import Kind, Span, figure_of

__all__ = ["CONTENT", "MARKS", "SESSIONS", "WANTED", "span_of", "wanted"]

OPERATIONS: dict[str, Kind] = {  # gen_ai.operation.name
    "invoke_agent": "agent",
    "chat": "model",
    "generate_content": "model",
    "text_completion": "model",
    "plan": "model",
    "execute_tool": "tool",
    "retrieval": "tool",
    "embeddings": "tool",
    "handoff": "handoff",
}
OPENINFERENCE: dict[str, Kind] = {  # openinference.span.kind
    "AGENT": "agent",
    "LLM": "model",
    "TOOL": "tool",
    "RETRIEVER": "tool",
    "RERANKER": "tool",
    "EMBEDDING": "tool",
    "GUARDRAIL": "guard",
}
OTHERS: dict[tuple[str, str], Kind] = {
    ("traceloop.span.kind", "agent"): "agent",
    ("traceloop.span.kind", "tool"): "tool",
    ("llm.request.type", "chat"): "model",
    ("llm.request.type", "completion"): "model",
    ("span.type", "agentic.invocation"): "agent",
    ("span.type", "agentic.tool.invocation"): "tool",
    ("span.type", "agentic.mcp.invocation"): "tool",
    ("span.type", "agentic.delegation"): "handoff",
    ("span.type", "retrieval"): "tool",
    ("span.type", "inference"): "model",
    ("span.type", "inference.framework"): "model",
    ("span.type", "inference.modelapi"): "model",
    ("ag2.span.type", "agent"): "agent",
    ("ag2.span.type", "llm"): "model",
    ("ag2.span.type", "tool"): "tool",
    ("ag2.span.type", "human_input"): "person",
    ("mcp.method.name", "tools/call"): "tool",
}
INTERACTIONS = ("interaction.type", "gen_ai.interaction.type", "gen_ai.agent.interaction.type")
HANDOFFS = ("handoff", "transfer", "pass_control")
FIELDS: dict[
    str, tuple[str, ...]
] = {  # what a span may carry, and the keys it has in the conventions, the newest first
    "agent": ("gen_ai.agent.name", "agent.name", "gen_ai.agent.id"),
    "entity": ("traceloop.entity.name", "graph.node.name", "entity.1.name"),
    "tool": ("gen_ai.tool.name", "tool.name", "tool_call.function.name", "mcp.tool.name", "traceloop.entity.name"),
    "target": (
        "gen_ai.transfer.target.name",
        "gen_ai.agent.handoff.target.name",
        "gen_ai.agent.interaction.target.name",
        "gen_ai.interaction.target.name",
        "interaction.target.name",
        "interaction.target",
        "interaction.to",
        "gen_ai.handoff.to_agent",
        "to_agent",
        "entity.1.to_agent",
    ),
    "model": (
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "embedding.model_name",
        "llm.response.model",
        "llm.request.model",
    ),
    "in": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "prompt_tokens"),
    "out": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "completion_tokens",
    ),
    "read": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "write": (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "input": ("gen_ai.tool.call.arguments", "tool.parameters", "gen_ai.input.messages", "input.value", "input"),
    "output": ("gen_ai.tool.call.result", "gen_ai.output.messages", "output.value", "response"),
}
SESSIONS = (
    "gen_ai.conversation.id",
    "session.id",
    "scope.agentic.session",
)  # keys by which traces are turns of one session
KINDS = ("gen_ai.operation.name", "openinference.span.kind", *dict.fromkeys(key for key, _ in OTHERS))
WANTED = frozenset(
    {*KINDS, *INTERACTIONS, *SESSIONS, *(key for keys in FIELDS.values() for key in keys), "gen_ai.transfer.mode"}
    | {"error.type", "entity.1.name", "entity.2.name", "inference.decision.span.id", "guardrail.triggered"}
)
CONTENT = frozenset((*FIELDS["input"], *FIELDS["output"]))  # of these only the text is wanted, as it stands
MARKS = (
    b"gen_ai.",
    b"openinference.span.kind",
    b"traceloop.span.kind",
    b'"span.type"',
    b"ag2.span.type",
    b"llm.",
    b"mcp.method",
)


def wanted(attributes: Any) -> dict[str, Any]:
    """The attributes that are read, of an object that may be none."""
    return {k: v for k, v in attributes.items() if k in WANTED} if isinstance(attributes, dict) else {}


def span_of(id: str, parent: str, name: str, start: float | None, end: float | None, a: Mapping[str, Any]) -> Span:
    """A span by its name and its attributes.

    >>> turn = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 90}
    >>> turn["gen_ai.usage.cache_read.input_tokens"] = 80
    >>> span = span_of("b", "a", "chat small", 0.0, 1.0, turn)
    >>> span.kind, span.tokens_in, span.cache_read, span.tokens_out
    ('model', 10.0, 80.0, None)
    """
    kind = _kind(a)
    span = Span(id, parent, kind, name, start, end)
    if kind == "group":
        return span
    span.agent = _text(a, "agent") or ""
    span.failed = "error.type" in a
    if kind == "model" or kind == "tool":
        _figures(span, a)
    if kind == "model":
        span.model = _text(a, "model") or (a.get("entity.2.name") if "span.type" in a else None)
        span.output = _content(a, "output")
        return span
    span.input, span.output = _content(a, "input"), _content(a, "output")
    if kind == "agent":
        span.name = span.agent or _text(a, "entity") or name.removeprefix("invoke_agent ")
    elif kind == "tool":
        span.name = _text(a, "tool") or a.get("entity.1.name") or name.removeprefix("execute_tool ")
        span.cause = str(a.get("inference.decision.span.id", ""))
        if "span.type" in a:
            span.agent = str(a.get("entity.2.name", ""))
    elif kind == "handoff":
        span.to = _text(a, "target") or name.rpartition(" to ")[2].removeprefix("transfer_to_")
    elif kind == "guard":
        span.failed = span.failed or str(a.get("guardrail.triggered", "")).lower() == "true"
    return span


def _kind(a: Mapping[str, Any]) -> Kind:
    for key in INTERACTIONS:
        if key in a and a[key] in HANDOFFS:
            return "handoff"
    operation = a.get("gen_ai.operation.name")
    if isinstance(operation, str):
        kind = OPERATIONS.get(operation, "group")
        if kind == "tool" and _text(a, "target") and a.get("gen_ai.transfer.mode") != "return_to_caller":
            return "handoff"
        return kind
    if "openinference.span.kind" in a:
        return OPENINFERENCE.get(str(a["openinference.span.kind"]).upper(), "group")
    for key in KINDS:
        if key in a and (key, str(a[key])) in OTHERS:
            return OTHERS[key, str(a[key])]
    return "group"


def _text(a: Mapping[str, Any], field: str) -> str | None:
    for key in FIELDS.get(field, ()):
        value = a.get(key)
        if value:
            return value if isinstance(value, str) else str(value)
    return None


def _figures(span: Span, a: Mapping[str, Any]) -> None:
    """Tokens. The conventions count what a cache gave among the input; here it is apart."""
    read, write, given = (_amount(a, field) for field in ("read", "write", "in"))
    span.cache_read, span.cache_write, span.tokens_out = read, write, _amount(a, "out")
    if given is not None:
        span.tokens_in = max(0.0, given - (read or 0.0) - (write or 0.0))


def _amount(a: Mapping[str, Any], field: str) -> float | None:
    for key in FIELDS[field]:
        if key in a:
            return figure_of(a[key])
    return None


class _Text(Struct, gc=False, rename={"text": "stringValue"}):
    text: Raw = Raw()


_texts = msgspec.json.Decoder(_Text)


def _content(a: Mapping[str, Any], field: str) -> bytes | str | None:
    """What was said, given or returned: a text, or JSON as it stands in the log (in OTLP inside an object that says
    its type)."""
    for key in FIELDS[field]:
        value = a.get(key)
        if isinstance(value, Raw):
            with suppress(*ERRORS):
                text = _texts.decode(value).text
                return bytes(text) or bytes(value)
        elif value is not None:
            return value if isinstance(value, str) else msgspec.json.encode(value)
    return None
