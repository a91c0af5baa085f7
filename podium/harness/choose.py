"""What an intervention means in a harness run: where it is, and the action that takes another's place."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from podium.harness.core import Core
from podium.harness.member import Member
from podium.harness.past import BadReplay, Past
from podium.harness.types import Action, Aggregate, Call, Delegate, Send, Spawn, Stop, Wait
from podium.harness.understand import Understood
from podium.trace.do import Do

__all__ = ["other_action", "placed", "seconds_of"]

_encode = msgspec.json.Encoder().encode
_MAIL = {"message": "message", "return": "return", "tool_result": "result"}


def placed(past: Past, do: Do) -> tuple[str, str, str]:
    """Where an intervention is: an action of a step, or what was sent, returned or answered. Raises BadReplay where it
    cannot be carried out there."""
    if do.row not in past.at:
        raise BadReplay(f"row {do.row} is not something that can be otherwise: it is no agent's doing")
    agent, spot = past.at[do.row]
    kind = past.kinds[do.row]
    if "." not in spot:
        raise BadReplay(f"row {do.row} is a {kind} that came of something else: intervene where it came from")
    if do.what == "delay":
        seconds_of(do)
    if kind in _MAIL and do.what != "choose":
        return _MAIL[kind], agent, spot
    if kind in ("orchestrator_decision", "tool_call") and do.what in ("choose", "mask"):
        return "act", agent, spot
    can = "choose or mask" if kind in ("orchestrator_decision", "tool_call") else "replace, remove, delay or mask"
    raise BadReplay(f"row {do.row} is a {kind}: it can be made otherwise by {can}, not {do.what}")


def seconds_of(do: Do) -> float:
    """By how much it delays; an error unless that is a number of 0 or more."""
    try:
        seconds = -1.0 if do.value is None or isinstance(do.value, tuple) else float(do.value)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise BadReplay(f"row {do.row}: delay takes seconds, 0 or more, got {do.value!r}")
    return seconds


def other_action(core: Core, m: Member, outcome: Understood, place: int, do: Do) -> Understood:
    """The step with another option in that place. After a stop there is nothing."""
    old = outcome.actions[place]
    new = _chosen(core, m, old, do)
    if isinstance(old, Stop) and isinstance(new, Wait):
        m.again = True  # it goes on
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
    match old:
        case Spawn():
            options = [*m.role.spawns, "none"]
            new = msgspec.structs.replace(old, role=value, logp=None)
        case Delegate():
            options = [*m.children, "none"]
            new = msgspec.structs.replace(old, to=value, logp=None)
        case Send():
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
            new = Stop(answer=old.answer) if value == "stop" else Wait()
    if value not in options or new is None:
        offered = options + (["stop"] if m.parent is None and "stop" not in options else [])
        raise BadReplay(f"row {do.row}: no option {value!r}; there are {', '.join(offered) or 'none'}")
    return Wait() if value == "none" else new
