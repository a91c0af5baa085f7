"""Who&When: failed conversations of a team, with the agent and the step that people hold responsible.

Each message is one event, in the order of the log: the label's step is the row. No message has a time. That an
agent answers the message before its own is inferred. The label stands on its event (`label`) and on the run
(`params`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from podium.exchange.build import PERSON, Run
from podium.exchange.jsons import objects
from podium.exchange.reading import Source
from podium.exchange.turns import dicts, plain_text
from podium.registry import register

__all__ = ["whowhen"]

NEXT_SPEAKER = "the next to speak answers what was said last"
PEOPLE = ("human", "human_proxy")


def is_whowhen(start: bytes, name: str) -> float:
    labels = b'"history"' in start and b'"content"' in start and start[:1] == b"{"
    return 0.85 if labels and (b'"is_correct"' in start or b'"mistake_agent"' in start) else 0.0


@register("importer", title="Who&When", detect=is_whowhen)
def whowhen(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run a conversation."""
    for source in sources:
        broken = Run("whowhen", system="whowhen", keep=keep)
        for line, item in objects(source, partial(broken.fault, source.name)):
            if not isinstance(item, dict) or not isinstance(item.get("history"), list):
                broken.fault(source.name, line, "expected an object with history, a list of messages")
                continue
            stem = re.split(r"[/\\:]", source.name)[-1].partition(".json")[0]
            run = Run(f"{item.get('question_ID') or 'question'}/{stem}", system="whowhen", keep=keep)
            run.task_id = str(item.get("question_ID") or "") or None
            if isinstance(item.get("is_correct"), bool):
                run.rewards["team"] = float(item["is_correct"])
            _write(run, dicts(item["history"]))
            _label(run, item, source.name, line)
            run.faults, broken.faults = broken.faults + run.faults, []
            yield run
        if broken.faults:
            yield broken


def _write(run: Run, history: list[dict[str, Any]]) -> None:
    before = None
    for message in history:
        name = message.get("name") or str(message.get("role") or "unnamed").partition(" (")[0]
        agent = PERSON if str(name).lower() in PEOPLE else str(name)
        row = run.add("message", agent, None, content=plain_text(message.get("content")) or None)
        if before is not None:
            run.edge(before, row, "message", NEXT_SPEAKER)
        before = row


def _label(run: Run, item: dict[str, Any], file: str, line: int | None) -> None:
    step, agent, reason = (item.get(key) for key in ("mistake_step", "mistake_agent", "mistake_reason"))
    if agent is None and step is None:
        return
    try:
        row = int(str(step))
    except ValueError:
        row = -1
    if not 0 <= row < len(run.events):
        run.fault(file, line, f"mistake_step is {step!r}; expected a place among {len(run.events)} messages")
        return
    run.params["label"] = {"agent": str(agent), "step": row}
    run.events[row].setdefault("extra", {})["label"] = {"responsible": str(agent), "reason": str(reason or "")}
