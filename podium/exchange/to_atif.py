"""A run as ATIF: one trajectory an agent, those of the others inside the one that was asked first. What ATIF has no
place for is beside each step in `extra`, so that the run read back is the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from podium.exchange.build import PERSON
from podium.exchange.restored import parts_of
from podium.registry import register
from podium.trace.columns import Trace

__all__ = ["to_atif"]

VERSION = "ATIF-v1.7"


@register("exporter", "atif", title="ATIF trajectories", suffixes=(".json",))
def to_atif(traces: Sequence[Trace], suffix: str = ".json") -> bytes:
    """One run as a trajectory; several as an array of them."""
    whole = [_trajectory(trace) for trace in traces]
    return msgspec.json.format(msgspec.json.encode(whole[0] if len(whole) == 1 else whole), indent=1)


def _trajectory(trace: Trace) -> dict[str, Any]:
    run, events = parts_of(trace)
    writer = _Trajectories(run, events)
    for row, event in enumerate(events):
        writer.add(row, event)
    return writer.whole()


def stamp_of(run_started: float | None, event: dict[str, Any], name: str = "t") -> str | None:
    """When an event began, or ended, as ISO 8601; None where that was not recorded."""
    about = event.get("podium", {})
    t = event["t"] if name == "t" else about.get("end")
    if t is None or "t" in about.get("absent", ()):
        return None
    return datetime.fromtimestamp((run_started or 0.0) + t, UTC).isoformat().replace("+00:00", "Z")


class _Trajectories:
    def __init__(self, run: dict[str, Any], events: list[dict[str, Any]]) -> None:
        self.run = run
        about = events[0].get("podium", {}).get("run", {}).get("params", {})
        self.started = about.get("started") if isinstance(about, dict) else None
        self.root = next((e["agent"] for e in events if e["agent"] != PERSON), PERSON)
        self.steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.step_of: dict[str, dict[str, Any]] = {}  # by the id of a call: the step that made it
        self.models: dict[str, str] = {}
        self.call_of = {x["dst"]: x["src"] for x in run["edges"] if x["type"] == "return"}

    def add(self, row: int, event: dict[str, Any]) -> None:
        agent, step = event["agent"], None
        if event["type"] == "tool_call":
            step = self._open(agent, event)
            call = {"tool_call_id": event["id"], "function_name": event.get("tool") or "unnamed", "arguments": {}}
            step.setdefault("tool_calls", []).append(call)
            self.step_of[event["id"]] = step
        elif event["type"] == "tool_result":
            call_id = self.call_of.get(event["id"], "")
            step = self.step_of.get(call_id) or self._open(agent, event)
            about = {"source_call_id": call_id} if call_id in self.step_of else {}
            self._observe(step, about | {"content": _content(event)})
        elif event["type"] == "spawn" and event.get("to"):
            step = self._open(agent, event)
            ref = {"session_id": self._session(event["to"]), "trajectory_id": self._session(event["to"])}
            self._observe(step, {"subagent_trajectory_ref": [ref]})
        elif agent == PERSON:
            step = self._new(event.get("to") or self.root, "user", event)
        else:
            step = self._new(agent, "agent", event)
            self._measure(step, event)
        step["extra"]["podium"].append([row, event])

    def _open(self, agent: str, event: dict[str, Any]) -> dict[str, Any]:
        """The step that an agent is in; a new one where it has none, or the person spoke last."""
        steps = self.steps[agent]
        return steps[-1] if steps and steps[-1]["source"] == "agent" else self._new(agent, "agent", event)

    def _new(self, agent: str, source: str, event: dict[str, Any]) -> dict[str, Any]:
        steps = self.steps[agent]
        step = {"step_id": len(steps) + 1, "source": source, "message": _content(event), "extra": {"podium": []}}
        if stamp := stamp_of(self.started, event, "end") or stamp_of(self.started, event):
            step["timestamp"] = stamp
        steps.append(step)
        return step

    def _observe(self, step: dict[str, Any], result: dict[str, Any]) -> None:
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _measure(self, step: dict[str, Any], event: dict[str, Any]) -> None:
        about = event.get("podium", {})
        if isinstance(about.get("model"), str):
            step["model_name"] = self.models[event["agent"]] = about["model"]
        parts = [about.get(name) for name in ("tokens_in", "cache_read", "cache_write")]
        known = [part for part in parts if part is not None]
        metrics = {
            "prompt_tokens": int(sum(known)) if known else None,
            "completion_tokens": about.get("tokens_out"),
        }
        metrics |= {"cached_tokens": about.get("cache_read"), "cost_usd": about.get("cost")}
        whole = {k: int(v) if k.endswith("tokens") else v for k, v in metrics.items() if v is not None}
        if whole:
            step["metrics"] = whole

    def _session(self, agent: str) -> str:
        return self.run["trace_id"] if agent == self.root else f"{self.run['trace_id']}/{agent}"

    def _one(self, agent: str) -> dict[str, Any]:
        about = {"name": agent, "version": "unknown"}
        about |= {"model_name": self.models[agent]} if agent in self.models else {}
        steps = self.steps[agent]
        head = {
            "schema_version": VERSION,
            "session_id": self._session(agent),
            "trajectory_id": self._session(agent),
        }
        return head | {"agent": about, "steps": steps, "final_metrics": {"total_steps": len(steps)}}

    def whole(self) -> dict[str, Any]:
        top = self._one(self.root)
        others = [self._one(agent) for agent in self.steps if agent != self.root]
        if others:
            top["subagent_trajectories"] = others
        return top | {"extra": {"podium": self.run}}


def _content(event: dict[str, Any]) -> str:
    content = event.get("content")
    return content if isinstance(content, str) else event.get("content_ref") or ""
