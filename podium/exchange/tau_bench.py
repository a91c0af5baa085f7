"""tau-bench: an array of conversations of one agent with a simulated user, each with its reward.

No message has a time. The user is the person; all of a conversation is one task.
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

__all__ = ["tau_bench"]

AGENT = "agent"


def is_tau_bench(start: bytes, name: str) -> float:
    return 0.9 if b'"traj"' in start[:16384] and b'"task_id"' in start[:4096] and b'"role"' in start else 0.0


@register("importer", title="tau-bench", detect=is_tau_bench)
def tau_bench(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run a conversation."""
    for source in sources:
        broken = Run("tau-bench", system="tau-bench", keep=keep)
        for line, item in objects(source, partial(broken.fault, source.name)):
            if not isinstance(item, dict) or not isinstance(item.get("traj"), list):
                broken.fault(source.name, line, "expected an object with traj, a list of messages")
                continue
            task, trial = str(item.get("task_id")), str(item.get("trial", 0))
            run = Run(f"tau-{task}-{trial}", system="tau-bench", task_id=f"tau-{task}", keep=keep)
            run.params["trial"] = trial
            if (reward := figure_of(item.get("reward"))) is not None:
                run.rewards["team"] = reward
            _write(run, dicts(item["traj"]), source.name)
            run.faults, broken.faults = broken.faults + run.faults, []
            yield run
        if broken.faults:
            yield broken


def _write(run: Run, messages: list[dict[str, Any]], file: str) -> None:
    turns = Turns(run)
    for message in messages:
        text = plain_text(message.get("content"))
        match message.get("role"):
            case "user":
                turns.speak(PERSON, AGENT, text, None)
            case "assistant":
                calls = dicts(message.get("tool_calls"))
                to = AGENT if calls else PERSON
                row = turns.turn(AGENT, None, None, to, text)
                if to == PERSON:
                    turns.inputs.setdefault(PERSON, []).append(("message", row))
                for call in calls:
                    given = call["function"] if isinstance(call.get("function"), dict) else {}
                    tool, arguments = str(given.get("name") or ""), given.get("arguments")
                    turns.call(AGENT, row, str(call.get("id")), tool, arguments, None)
            case "tool":
                failed = text.startswith("Error")
                if turns.result(str(message.get("tool_call_id")), text, None, failed) is None:
                    run.fault(
                        file, None, f"a result of the call {message.get('tool_call_id')!r}, which is not there"
                    )
