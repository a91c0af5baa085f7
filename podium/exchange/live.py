"""Recording from inside a program, in two lines: what its framework traces is appended to a file as it happens, one
object a line, in the form that the importers read.

    provider.add_span_processor(SpanFile("run.jsonl"))         # OpenTelemetry SDK
    agents.add_trace_processor(AgentsFile("run.jsonl"))        # OpenAI Agents SDK
    graph.invoke(task, {"callbacks": [langchain_file("run.jsonl")]})  # LangChain and LangGraph

A line is written whole when a span ends, before the program goes on: a program that is killed loses what had not
ended. No class needs its framework to be installed until it is used.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

__all__ = ["AgentsFile", "LineFile", "SpanFile", "langchain_file"]


class LineFile:
    """A file that lines are appended to, each whole, from any thread."""

    def __init__(self, path: str | Path) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()

    def write(self, value: Any) -> None:
        """Appends a value as JSON. What JSON has no form for is written as text."""
        data = memoryview(json.dumps(value, default=str).encode() + b"\n")
        with self._lock:
            while data and self._file >= 0:
                data = data[os.write(self._file, data) :]

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1


class SpanFile(LineFile):
    """A span processor of the OpenTelemetry SDK, that writes each span when it ends."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Nothing is written of a span that has not ended."""

    def _on_ending(self, span: Any) -> None:
        """What newer SDKs call just before the end."""

    def on_end(self, span: Any) -> None:
        self.write(json.loads(span.to_json(indent=None)))

    def shutdown(self) -> None:
        self.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """All that has ended is written already."""
        return True


class AgentsFile(LineFile):
    """A trace processor of the OpenAI Agents SDK, that writes what the SDK would export."""

    def on_trace_start(self, trace: Any) -> None:
        self._export(trace)

    def on_trace_end(self, trace: Any) -> None:
        """The trace was written when it began."""

    def on_span_start(self, span: Any) -> None:
        """Nothing is written of a span that has not ended."""

    def on_span_end(self, span: Any) -> None:
        self._export(span)

    def _export(self, item: Any) -> None:
        if (value := item.export()) is not None:
            self.write(value)

    def shutdown(self) -> None:
        self.close()

    def force_flush(self) -> None:
        """All that has ended is written already."""


def langchain_file(path: str | Path) -> Any:
    """A callback handler for LangChain and LangGraph, that writes each tree of runs when its root ends, in
    LangSmith's form. Needs langchain-core."""
    from langchain_core.tracers.base import BaseTracer

    file = LineFile(path)

    class LangChainFile(BaseTracer):
        """Writes the tree of runs below a root."""

        def _persist_run(self, run: Any) -> None:
            file.write({"runs": [_plain(one) for one in _below(run)]})

    return LangChainFile()


def _below(run: Any) -> list[Any]:
    return [run, *(one for child in run.child_runs for one in _below(child))]


def _plain(run: Any) -> dict[str, Any]:
    """A run as LangSmith exports it, without its children."""
    times = {
        name: getattr(run, name).isoformat() if getattr(run, name) else None for name in ("start_time", "end_time")
    }
    ids = {name: str(getattr(run, name) or "") or None for name in ("id", "trace_id", "parent_run_id")}
    outputs = json.loads(json.dumps(run.outputs, default=_message))
    inputs = json.loads(json.dumps(run.inputs, default=_message))
    about = {"name": run.name, "run_type": run.run_type, "error": run.error, "extra": {"metadata": _metadata(run)}}
    return ids | times | about | {"dotted_order": run.dotted_order, "inputs": inputs, "outputs": outputs}


def _metadata(run: Any) -> dict[str, Any]:
    metadata = (run.extra or {}).get("metadata") or {}
    return {key: value for key, value in metadata.items() if isinstance(value, (str, int, float))}


def _message(value: Any) -> Any:
    """What LangChain's own objects hold."""
    return value.model_dump() if hasattr(value, "model_dump") else str(value)
