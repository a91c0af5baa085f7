"""What an intervention means in a harness run: where it is, and the action that takes another's place."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
from msgspec import Raw

from podium.harness.core import Core
from podium.harness.member import Member
from podium.harness.past import BadReplay, Past
from podium.harness.types import Action, Aggregate, Call, Delegate, Send, Spawn, Stop, Wait
from podium.harness.understand import Understood
from podium.trace.do import Do

__all__ = ["masked", "other_action", "placed", "seconds_of", "told"]

_encode = msgspec.json.Encoder().encode
_MAIL = {"message": "message", "return": "return", "tool_result": "result"}


def placed(past: Past, do: Do) -> tuple[str, str, str]:
    """Where an intervention is: an action of a step, what was sent, returned or answered, or for a mask of others
    just a row. Raises BadReplay where it cannot be carried out there."""
    if do.what == "mask" and do.value is not None and 0 <= do.row < len(past.t):
        names = masked(past, do)
        if past.at.get(do.row, ("",))[0] not in names:
            return "row", str(do.row), ", ".join(names)
    if do.row not in past.at:
        raise BadReplay(f"row {do.row} is not something that can be otherwise: it is no agent's doing")
    agent, spot = past.at[do.row]
    kind = past.kinds[do.row]
    if "." not in spot:
        raise BadReplay(f"row {do.row} is a {kind} that came of something else: intervene where it came from")
    if do.what == "delay":
        seconds_of(do)
    takes = {"choose": "an option", "replace": "what it is to say", "remove": "no value"}.get(do.what)
    if takes is not None and (do.value is None) != (do.what == "remove"):
        raise BadReplay(f"row {do.row}: {do.what} takes {takes}, got {do.value!r}")
    if kind in _MAIL and do.what != "choose":
        return _MAIL[kind], agent, spot
    if kind in ("orchestrator_decision", "tool_call") and do.what in ("choose", "mask"):
        return "act", agent, spot
    can = "choose or mask" if kind in ("orchestrator_decision", "tool_call") else "replace, remove, delay or mask"
    raise BadReplay(f"row {do.row} is a {kind}: it can be made otherwise by {can}, not {do.what}")


def masked(past: Past, do: Do) -> tuple[str, ...]:
    """Whom a mask silences: those that it names, or whoever acts at its row."""
    if do.value is None:
        return (past.at[do.row][0],)
    names = do.value if isinstance(do.value, tuple) else (do.value,)
    if wrong := [name for name in names if name not in past.agents]:
        raise BadReplay(f"row {do.row}: no agent {wrong[0]!r} to mask; there are {', '.join(past.agents)}")
    return tuple(map(str, names))


def told(past: Past, dos: list[Do]) -> dict[str, Any] | None:
    """What was done, as it is recorded: row, what and value of one; of several, a list of them."""
    each: list[dict[str, Any]] = []
    for do in dos:
        value: Any = do.value
        if do.what == "mask":
            names = masked(past, do)
            value = names[0] if len(names) == 1 else names
        each.append({"row": do.row, "what": do.what, "value": value})
    return None if not each else each[0] if len(each) == 1 else {"what": "several", "value": each}


def seconds_of(do: Do) -> float:
    """By how much it delays; an error unless that is a number of 0 or more."""
    try:
        seconds = -1.0 if do.value is None or isinstance(do.value, tuple) else float(do.value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise BadReplay(f"row {do.row}: delay takes seconds, 0 or more and not for ever, got {do.value!r}")
    return seconds


def other_action(core: Core, m: Member, outcome: Understood, place: int, do: Do) -> Understood:
    """The step with another option in that place. After a stop there is nothing."""
    old = outcome.actions[place]
    new = _chosen(core, m, old, do)
    actions, raws = list(outcome.actions), list(outcome.raws)
    actions[place], raws[place] = new, Raw(_encode(new))
    if isinstance(new, Stop):
        actions, raws = actions[: place + 1], raws[: place + 1]
    return Understood(actions, raws, outcome.usage)


def _chosen(core: Core, m: Member, old: Action, do: Do) -> Action:
    value = str(do.value)
    if value == "stop" and m.parent is None:
        return Stop()
    options: list[str] = []
    new: Action | None = None
    none = Wait()
    match old:
        case Spawn():
            none = Wait(instead="spawn")
            options = [*m.role.spawns, "none"]
            new = msgspec.structs.replace(old, role=value, logp=None)
        case Delegate():
            none = Wait(instead="delegate")
            options = [*m.children, "none"]
            new = msgspec.structs.replace(old, to=value, logp=None)
        case Send():
            none = Wait(instead="communicate")
            siblings = m.parent.children if m.parent else {}
            options = [*m.children, *siblings, *([m.parent.name] if m.parent else []), "none"]
            new = msgspec.structs.replace(old, to=value, logp=None)
        case Aggregate():
            options = list(core.team.ways)
            new = msgspec.structs.replace(old, how=value, logp=None)
        case Call():
            options = list(m.tools)
            new = msgspec.structs.replace(old, tool=value)
        case Stop():
            options = ["stop", "go on"]
            new = Stop(answer=old.answer) if value == "stop" else Wait(instead="stop")
    if value not in options or new is None:
        offered = options + (["stop"] if m.parent is None and "stop" not in options else [])
        raise BadReplay(f"row {do.row}: no option {value!r}; there are {', '.join(offered) or 'none'}")
    return none if value == "none" else new
