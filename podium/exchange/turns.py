"""Conversations of agents that take turns, as events: for logs that are lists of messages.

A message may have no time. Who reads a message is the next to speak, unless the log says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from podium.exchange.build import PERSON, Run
from podium.trace.vocabulary import EdgeType, EventType

__all__ = ["Turns", "dicts", "figure_after", "plain_text"]


class Turns:
    """Adds the turns of a conversation to a run, with what each of them answers.

    >>> run = Run("r", system="example")
    >>> turns = Turns(run)
    >>> _ = turns.ask("main", "fix it", 1.0)
    >>> turn = turns.turn("main", 2.0, 3.0, "main", "I look", tokens_in=9)
    >>> turns.call("main", turn, "c1", "Read", {"file": "a.py"}, 3.0)
    >>> _ = turns.result("c1", "text", 4.0)
    >>> _ = turns.turn("main", 4.0, 5.0, PERSON, "done")
    >>> run.built("log")
    (Trace(1 rollout, 5 events, 7 edges, 2 agents), [])
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.task = -1
        self.calls: dict[str, tuple[int, str, str]] = {}  # by id: the event, the agent, the tool
        self.inputs: dict[str, list[tuple[EdgeType, int]]] = {}  # by agent: what its next turn answers

    def ask(self, to: str, text: str, t: float | None = None, since: float | None = None) -> int:
        """The person gives a task, or the next one."""
        self.task += 1
        return self.speak(PERSON, to, text, t if since is None else since, None if since is None else t)

    def speak(self, agent: str, to: str, text: str, t: float | None, end: float | None = None) -> int:
        """A message to another agent, which is no turn of a model."""
        row = self.turn(agent, t, end, to, text)
        if to:
            self.inputs.setdefault(to, []).append(("message", row))
        return row

    def turn(
        self,
        agent: str,
        t: float | None,
        end: float | None,
        to: str,
        text: str | None,
        type: EventType = "message",
        **figures: Any,
    ) -> int:
        """What an agent says or decides once; it answers what has reached it since its last turn."""
        known = {name: value for name, value in figures.items() if value is not None}
        return self.run.add(
            type, agent, t, end=end, to=to, content=text or None, task=max(self.task, 0),
            after=self.inputs.pop(agent, ()), **known,
        )  # fmt: skip

    def call(self, agent: str, by: int, id: str, tool: str, given: Any, t: float | None) -> None:
        """A call that a turn asks for."""
        content = given if isinstance(given, str) else msgspec.json.encode(given)
        row = self.run.add("tool_call", agent, t, tool=tool or "unnamed", content=content, task=max(self.task, 0))
        self.run.edge(by, row, "causal")
        self.calls[id] = row, agent, tool or "unnamed"

    def result(self, id: str, content: Any, t: float | None, failed: bool = False, **fields: Any) -> int | None:
        """What a call gave back; None where there is no such call."""
        if id not in self.calls:
            return None
        call, agent, tool = self.calls[id]
        text = content if isinstance(content, str) else msgspec.json.encode(content)
        row = self.run.add(
            "tool_result", agent, t, tool=tool, content=text, task=max(self.task, 0),
            valid=0 if failed else None, after=[("return", call)], **fields,
        )  # fmt: skip
        if t is not None and self.run.events[call].get("end") is None:
            self.run.set(call, end=t)
        self.inputs.setdefault(agent, []).append(("tool_dependency", row))
        return row


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none where it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def figure_after(total: float | None, *parts: float | None) -> float | None:
    """What is left of a total without these parts of it.

    >>> figure_after(10.0, 4.0, None), figure_after(None, 4.0)
    (6.0, None)
    """
    return None if total is None else max(0.0, total - sum(part or 0.0 for part in parts))


def plain_text(content: Any) -> str:
    """The text of a message: a string, or parts with texts.

    >>> plain_text([{"type": "text", "text": "a"}, {"type": "image"}, "b"]), plain_text(None)
    ('a\\nb', '')
    """
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return ""
    texts = [
        part if isinstance(part, str) else next((part[k] for k in ("text", "content") if part.get(k)), "")
        for part in content
        if isinstance(part, (str, dict))
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
