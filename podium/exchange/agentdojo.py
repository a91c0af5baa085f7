"""AgentDojo: one agent's run under a prompt injection, with labels: whether the task was done (`utility`) and
whether the attack succeeded (`security`, where there was one).

A file holds one run, or one a line. No message has a time. A result in which the text of an injection stands is not
trusted and says so: `injected`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from podium.exchange.build import PERSON, Run
from podium.exchange.jsons import objects
from podium.exchange.reading import Source
from podium.exchange.spans import figure_of
from podium.exchange.turns import Turns, dicts, plain_text
from podium.registry import register

__all__ = ["agentdojo"]

AGENT = "agent"
COMPARED = 80  # characters, without white space, by which an injection is recognised in a result


def is_agentdojo(start: bytes, name: str) -> float:
    head = start[:8192]
    return 0.9 if b'"suite_name"' in head and b'"user_task_id"' in head and b'"pipeline_name"' in head else 0.0


@register("importer", title="AgentDojo", detect=is_agentdojo)
def agentdojo(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run an object."""
    for source in sources:
        broken = Run("agentdojo", system="agentdojo", keep=keep)
        for line, item in objects(source, partial(broken.fault, source.name)):
            if not isinstance(item, dict) or not isinstance(item.get("messages"), list):
                broken.fault(source.name, line, "expected an object with messages, a list")
                continue
            run = _run(item, keep)
            _write(run, item, source.name, line)
            run.faults, broken.faults = broken.faults + run.faults, []
            yield run
        if broken.faults:
            yield broken


def _run(item: dict[str, Any], keep: bool) -> Run:
    names = [
        str(item.get(key) or "none") for key in ("suite_name", "user_task_id", "attack_type", "injection_task_id")
    ]
    run = Run("/".join(names), system=str(item.get("pipeline_name") or "agentdojo"), keep=keep)
    run.task_id = "/".join(names[:2])
    attack = item.get("injection_task_id") is not None
    if isinstance(item.get("utility"), bool):
        run.rewards["team"] = float(item["utility"])
    if attack and isinstance(item.get("security"), bool):
        run.rewards["safety"] = float(not item["security"])
    label = {"attack": item.get("attack_type"), "injection_task": item.get("injection_task_id")}
    run.params["label"] = {k: v for k, v in label.items() if isinstance(v, str)}
    if attack:
        run.params["label"]["attack_succeeded"] = item.get("security") is True
    if (duration := figure_of(item.get("duration"))) is not None:
        run.costs["wall_clock_s"] = duration
    return run


def _write(run: Run, item: dict[str, Any], file: str, line: int | None) -> None:
    turns = Turns(run)
    injections = item["injections"].values() if isinstance(item.get("injections"), dict) else ()
    texts = [_dense(text)[:COMPARED] for text in injections if isinstance(text, str)]
    for message in dicts(item["messages"]):
        text = plain_text(message.get("content"))
        match message.get("role"):
            case "user":
                turns.ask(AGENT, text)
            case "assistant":
                calls = dicts(message.get("tool_calls"))
                row = turns.turn(AGENT, None, None, AGENT if calls else PERSON, text)
                for call in calls:
                    turns.call(
                        AGENT, row, str(call.get("id")), str(call.get("function") or ""), call.get("args"), None
                    )
            case "tool":
                dense = _dense(text)
                injected = any(part and part in dense for part in texts)
                marks: dict[str, Any] = {"trusted": 0, "extra": {"injected": True}} if injected else {}
                id = str(message.get("tool_call_id"))
                if turns.result(id, text, None, message.get("error") is not None, **marks) is None:
                    run.fault(file, line, f"a result of the call {id!r}, which is not there")


def _dense(text: str) -> str:
    """The text without white space, which formats of tools change."""
    return "".join(text.split())
