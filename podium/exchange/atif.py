"""ATIF, the Agent Trajectory Interchange Format: a trajectory of steps for each agent, those of sub-agents inside
or in files of their own, which their session ids join.

A step has the time at which it was complete; the next turn began no earlier. When a result came is not in the
format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from podium.exchange.build import PERSON, Run
from podium.exchange.jsons import objects, seconds
from podium.exchange.reading import Source
from podium.exchange.restored import Placed, Restored
from podium.exchange.spans import figure_of
from podium.exchange.turns import Turns, dicts, figure_after, plain_text
from podium.registry import register

__all__ = ["atif"]

DEEPEST = 50  # sub-agents of sub-agents
_ID = re.compile(rb'"session_id"\s*:\s*"([^"]{1,120})"')


def is_atif(start: bytes, name: str) -> float:
    return 0.9 if b'"schema_version"' in start[:4096] and b'"ATIF-' in start[:4096] else 0.0


def atif_keys(start: bytes, name: str) -> Iterable[str]:
    """The sessions that a file is of and refers to."""
    return dict.fromkeys(match[1].decode(errors="replace") for match in _ID.finditer(start)) or [name]


@register("importer", title="ATIF", detect=is_atif, group=atif_keys)
def atif(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of each trajectory that no other refers to."""
    broken = Run("trajectory", system="atif", keep=keep)
    tops: list[dict[str, Any]] = []
    for source in sources:
        for line, value in objects(source, partial(broken.fault, source.name)):
            if isinstance(value, dict) and isinstance(value.get("steps"), list):
                tops.append(value)
            else:
                broken.fault(source.name, line, "expected a trajectory, an object with steps")
    known: dict[str, dict[str, Any]] = {}
    for top in tops:
        _index(top, known, 0)
    named = {ref for one in known.values() for ref in _references(one)}
    roots = [top for top in tops if str(top.get("session_id")) not in named] or tops[:1]
    for root in roots:
        run = _restored(root) or _read(root, known, keep, broken, sources[0].name)
        run.faults, broken.faults = broken.faults + run.faults, []
        yield run
    if broken.faults:
        yield broken


def _index(one: dict[str, Any], known: dict[str, dict[str, Any]], depth: int) -> None:
    for key in ("session_id", "trajectory_id"):
        if isinstance(one.get(key), str):
            known.setdefault(one[key], one)
    for child in dicts(one.get("subagent_trajectories")) if depth < DEEPEST else ():
        _index(child, known, depth + 1)


def _results(step: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts(step["observation"].get("results")) if isinstance(step.get("observation"), dict) else []


def _references(one: dict[str, Any]) -> Iterator[str]:
    for step in dicts(one.get("steps")):
        for result in _results(step):
            for ref in dicts(result.get("subagent_trajectory_ref")):
                yield str(ref.get("trajectory_id") or ref.get("session_id"))
                yield str(ref.get("session_id"))


def _podium(one: dict[str, Any]) -> Any:
    return one["extra"].get("podium") if isinstance(one.get("extra"), dict) else None


def _restored(root: dict[str, Any]) -> Run | None:
    """A run that Podium wrote as ATIF."""
    about = _podium(root)
    if not isinstance(about, dict) or not isinstance(about.get("edges"), list):
        return None
    events: list[Placed] = []
    for one in (root, *dicts(root.get("subagent_trajectories"))):
        for step in dicts(one.get("steps")):
            parts = _podium(step)
            for part in parts if isinstance(parts, list) else ():
                if (
                    isinstance(part, list)
                    and len(part) == 2
                    and isinstance(part[0], int)
                    and isinstance(part[1], dict)
                ):
                    events.append((part[0], part[1]))
    return Restored(about, events)


def _read(root: dict[str, Any], known: dict[str, dict[str, Any]], keep: bool, broken: Run, file: str) -> Run:
    run = Run(str(root.get("session_id") or "trajectory"), system="atif", keep=keep)
    writer = _Writer(run, known, file)
    writer.write(root, writer.name_of(root), PERSON, 0)
    totals = root["final_metrics"] if isinstance(root.get("final_metrics"), dict) else {}
    if (cost := figure_of(totals.get("total_cost_usd"))) is not None:
        run.costs["cost"] = cost
    return run


class _Writer:
    def __init__(self, run: Run, known: dict[str, dict[str, Any]], file: str) -> None:
        self.run, self.known, self.file, self.turns = run, known, file, Turns(run)
        self.names: dict[str, int] = {}
        self.back: dict[str, bool] = {}  # agents to whom something came back since their last turn

    def name_of(self, one: dict[str, Any]) -> str:
        about = one["agent"] if isinstance(one.get("agent"), dict) else {}
        name = str(about.get("name") or "agent")
        self.names[name] = count = self.names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def write(self, one: dict[str, Any], name: str, parent: str, depth: int) -> tuple[int | None, float | None]:
        """The steps of a trajectory; its last event of its own, and when that was over."""
        since: float | None = None
        last: int | None = None
        for step in dicts(one.get("steps")):
            t, text = seconds(step.get("timestamp")), plain_text(step.get("message"))
            if step.get("source") == "user" and parent == PERSON:
                self.turns.ask(name, text, t, since)
            elif step.get("source") == "agent":
                row = last = self._turn(step, name, parent, since, t, text)
                t = self._observe(step, name, row, t, depth)
            since = t if t is not None else since
        return last, since

    def _turn(
        self, step: dict[str, Any], name: str, parent: str, since: float | None, t: float | None, text: str
    ) -> int:
        metrics = step["metrics"] if isinstance(step.get("metrics"), dict) else {}
        cached = figure_of(metrics.get("cached_tokens"))
        calls = dicts(step.get("tool_calls"))
        reads = self.back.pop(name, False)
        model = step.get("model_name")
        row = self.turns.turn(
            name, t if since is None or t is None else min(since, t), t, name if calls else parent, text,
            "aggregate" if reads else "message",
            model=model if isinstance(model, str) else None,
            cache_read=cached, cost=figure_of(metrics.get("cost_usd")),
            tokens_in=figure_after(figure_of(metrics.get("prompt_tokens")), cached),
            tokens_out=figure_of(metrics.get("completion_tokens")),
        )  # fmt: skip
        for call in calls:
            id, tool = str(call.get("tool_call_id")), str(call.get("function_name") or "")
            self.turns.call(name, row, id, tool, call.get("arguments") or {}, t)
        return row

    def _observe(self, step: dict[str, Any], name: str, row: int, t: float | None, depth: int) -> float | None:
        """What came back in a step, and by when it had."""
        calls = dicts(step.get("tool_calls"))
        for result in _results(step):
            id = result.get("source_call_id") or (calls[0].get("tool_call_id") if len(calls) == 1 else None)
            refs = dicts(result.get("subagent_trajectory_ref"))
            done = [self._launch(ref, name, row, t, depth) for ref in refs]
            t = max((at for at in (t, *done) if at is not None), default=None)
            if id is not None and self.turns.result(str(id), result.get("content") or "", None) is None:
                self.run.fault(self.file, None, f"a result of the call {id!r}, which is not there")
            elif id is None and not refs:
                text = plain_text(result.get("content"))
                self.run.add("tool_result", name, None, content=text or None, truncated=1)
        return t

    def _launch(self, ref: dict[str, Any], name: str, row: int, t: float | None, depth: int) -> float | None:
        child = self.known.get(str(ref.get("trajectory_id"))) or self.known.get(str(ref.get("session_id")))
        agent = self.name_of(child or {"agent": {"name": str(ref.get("session_id") or "agent")}})
        spawn = self.run.add(
            "spawn",
            name,
            t,
            to=agent,
            role=agent.partition("#")[0],
            task=max(self.turns.task, 0),
            after=[("spawn", row)],
        )
        self.turns.inputs.setdefault(agent, []).append(("spawn", spawn))
        if child is None or depth >= DEEPEST:
            self.run.fault(self.file, None, f"the trajectory {ref.get('session_id')!r} of a sub-agent is not there")
            return None
        last, done = self.write(child, agent, name, depth + 1)
        back = self.run.add(
            "return",
            agent,
            done,
            to=name,
            task=max(self.turns.task, 0),
            after=[("causal", spawn if last is None else last)],
        )
        self.turns.inputs.setdefault(name, []).append(("aggregate", back))
        self.back[name] = True
        return done
