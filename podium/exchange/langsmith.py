"""Runs of LangSmith, as its API and exports give them: LangChain and LangGraph.

The root is an agent, and so is a node of a graph that is more than a step of the loop of one agent. A conditional
edge (a function whose output names nodes) is a decision. Token counts stand on the turns of models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.otlp import Collected
from podium.exchange.reading import Source
from podium.exchange.spans import Kind, Span, figure_of
from podium.registry import register

__all__ = ["STEPS", "langsmith"]

STEPS = frozenset(
    {"agent", "tools", "call_model", "model", "model_request", "__start__", "__end__"}
)  # of one agent's loop
KINDS: dict[str, Kind] = {"llm": "model", "tool": "tool", "retriever": "tool"}


def is_langsmith(start: bytes, name: str) -> float:
    named = b'"run_type"' in start and (
        b'"dotted_order"' in start or b'"parent_run_id"' in start or b'"child_runs"' in start
    )
    return 0.9 if named else 0.0


@register("importer", title="LangSmith", detect=is_langsmith)
def langsmith(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The runs of LangSmith's run trees; trees of one thread are the tasks of one run."""
    collected = Collected("langsmith", keep)
    tasks: dict[str, str] = {}
    for source in sources:
        complain = collected.complain(source.name)
        for line, value in objects(source, complain):
            runs = value.get("runs", [value]) if isinstance(value, dict) else None
            for item in runs if isinstance(runs, list) else ():
                if not isinstance(item, dict) or "run_type" not in item:
                    complain(line, "expected a run with a run_type")
                    continue
                _add(collected, item, tasks)
    for run in collected.runs(sources[0].name, root="graph"):
        run.task_id = tasks.get(run.trace_id)
        yield run


def _add(collected: Collected, item: dict[str, Any], tasks: dict[str, str]) -> None:
    """Adds a run, and those that are nested in it."""
    todo = [(item, "")]
    root = str(item.get("trace_id") or item.get("id"))
    while todo:
        one, parent = todo.pop()
        metadata = _metadata(one)
        span = _span(one, metadata, str(one.get("parent_run_id") or parent))
        thread = next(
            (str(metadata[k]) for k in ("session_id", "thread_id", "conversation_id") if metadata.get(k)), ""
        )
        trace = str(one.get("trace_id") or root)
        collected.add(trace, thread, span)
        if isinstance(metadata.get("task_id"), str) and metadata["task_id"]:
            tasks.setdefault(trace, metadata["task_id"])
        below = one.get("child_runs")
        todo += [(child, span.id) for child in below if isinstance(child, dict)] if isinstance(below, list) else []


def _metadata(item: dict[str, Any]) -> dict[str, Any]:
    extra = item.get("extra")
    metadata = extra.get("metadata") if isinstance(extra, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _span(item: dict[str, Any], metadata: dict[str, Any], parent: str) -> Span:
    name, kind = str(item.get("name") or ""), KINDS.get(str(item.get("run_type")), "group")
    outputs, error = item.get("outputs"), item.get("error")
    if item.get("run_type") == "chain":
        node = metadata.get("langgraph_node")
        step = str(node) in STEPS or str(node).startswith("__")
        if not parent or (node == name and not step):
            kind = "agent"
        elif node and _routes(outputs):
            kind = "model"
    interrupted = isinstance(error, str) and error.startswith(("GraphInterrupt", "NodeInterrupt"))
    span = Span(
        str(item.get("id")), parent, kind, name, seconds(item.get("start_time")), seconds(item.get("end_time")),
        failed=bool(error) and not interrupted, decides=kind == "model" and item.get("run_type") == "chain",
        input=_content(item.get("inputs")), output=_content(outputs),
    )  # fmt: skip
    if item.get("run_type") == "llm":
        model = metadata.get("ls_model_name")
        span.model = model if isinstance(model, str) else None
        _usage(span, item, outputs)
    return span


def _routes(outputs: Any) -> bool:
    """Whether a function inside a node says where to go on: the output of a conditional edge that sends."""
    output = outputs.get("output") if isinstance(outputs, dict) else None
    return isinstance(output, list) and any(str(one).startswith("Send(") or _is_send(one) for one in output)


def _is_send(one: Any) -> bool:
    return isinstance(one, dict) and {"node", "arg"} <= one.keys()


def _usage(span: Span, item: dict[str, Any], outputs: Any) -> None:
    """Tokens: from the messages generated, else from what LangSmith summed on the run."""
    usages = list(_usages(outputs))
    given = [figure_of(u.get("input_tokens")) for u in usages]
    out = [figure_of(u.get("output_tokens")) for u in usages]
    details = [u.get("input_token_details") for u in usages]
    read = [figure_of(d.get("cache_read")) for d in details if isinstance(d, dict)]
    write = [figure_of(d.get("cache_creation")) for d in details if isinstance(d, dict)]
    span.cache_read, span.cache_write = _sum(read), _sum(write)
    total_in, span.tokens_out = _sum(given), _sum(out)
    if not usages:
        total_in, span.tokens_out = figure_of(item.get("prompt_tokens")), figure_of(item.get("completion_tokens"))
    if total_in is not None:
        span.tokens_in = max(0.0, total_in - (span.cache_read or 0.0) - (span.cache_write or 0.0))
    span.cost = figure_of(item.get("total_cost"))


def _usages(outputs: Any) -> Iterator[dict[str, Any]]:
    generations = outputs.get("generations") if isinstance(outputs, dict) else None
    for choices in generations if isinstance(generations, list) else ():
        first = choices[0] if isinstance(choices, list) and choices else choices
        message = first.get("message") if isinstance(first, dict) else None
        inner = message.get("kwargs", message) if isinstance(message, dict) else None
        usage = inner.get("usage_metadata") if isinstance(inner, dict) else None
        if isinstance(usage, dict):
            yield usage


def _sum(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _content(value: Any) -> bytes | None:
    return None if value is None else msgspec.json.encode(value)
