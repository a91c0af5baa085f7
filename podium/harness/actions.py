"""What each action does: the events it is recorded as, and what it sets going."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.harness.budget import Hit
from podium.harness.member import GONE, Mail, Member, Pending
from podium.harness.team import TAKEN
from podium.harness.types import (
    Aggregate,
    Call,
    Delegate,
    Fault,
    Item,
    Refused,
    Return,
    Send,
    Spawn,
    Stop,
    Wait,
    shown,
)
from podium.harness.understand import content_of
from podium.trace.recorder import Name
from podium.trace.vocabulary import Decision, EventType

if TYPE_CHECKING:
    from podium.harness.core import Core

__all__ = ["PERFORM", "Place", "brief", "land", "spelt"]

MOST_OPTIONS = 32  # that are spelled out with a decision
LONGEST_NAME = 60  # letters of an agent's
KINDS: dict[type, Decision] = {
    Spawn: "spawn",
    Delegate: "delegate",
    Send: "communicate",
    Aggregate: "aggregate",
    Stop: "stop",
}


def brief(content: Any) -> str | None:
    """The start of what is said, for people; the whole is in the event's `act` or `content`."""
    if content is None:
        return None
    text = content if isinstance(content, str) else str(content)
    return text if len(text) <= 60 else text[:57] + "..."


def spelt(event: Name) -> str:
    """The id of an event."""
    return f"{event[0]}.{event[1]}"


class Place:
    """Where an action stands: whose it is, which of its step, and what its first event is written with."""

    __slots__ = ("after", "at", "end", "extra", "last", "member", "name", "t", "trusted", "usage")

    def __init__(self, member: Member, turn: int, at: int, raw: Any, trusted: bool | None) -> None:
        self.member, self.at, self.trusted = member, at, trusted
        self.extra: dict[str, Any] = {"at": f"{turn}.{at}", "act": raw}
        self.usage: dict[str, Any] = {}
        self.end: float | None = None
        self.name: Name = ("", 0)
        self.last: Name | None = None  # its last event, where that is not its first
        self.after: list[Any] = []
        self.t = 0.0

    def first(self, core: Core, type: EventType, **fields: Any) -> Name:
        """Writes the action's first event."""
        if self.trusted is not None:
            fields["trusted"] = self.trusted
        return core.write(
            type, self.member.name, self.t, self.after, name=self.name, end=self.end, role=self.member.role_name,
            extra=self.extra, **self.usage, **fields,
        )  # fmt: skip

    def decide(
        self, core: Core, kind: Decision, chosen: str, options: list[str], logp: float | None, **more: Any
    ) -> Name:
        """Writes one of the five decisions."""
        if len(options) <= MOST_OPTIONS:
            more["options"] = options
        return self.first(core, "orchestrator_decision", decision=kind, chosen=chosen, logp=logp, **more)

    def then(self, core: Core, type: EventType, **fields: Any) -> Name:
        """Writes what follows from it at once."""
        if self.trusted is not None:
            fields["trusted"] = self.trusted
        extra = {"at": self.extra["at"]}
        member = self.member
        return core.write(type, member.name, core.now, [], role=member.role_name, extra=extra, **fields)

    def attempted(self, core: Core, action: Any) -> Name:
        """Writes an action that is not allowed, as tried."""
        if isinstance(action, Call):
            tried = self.first(core, "tool_call", tool=action.tool, valid=False)
            core.costs["tool_calls"] += 1
            extra = {"at": self.extra["at"], "fault": {"kind": "refused", "why": "it was not called"}}
            core.write(
                "tool_result", action.tool, core.now, [("return", tried)], to=self.member.name, tool=action.tool,
                valid=False, extra=extra,
            )  # fmt: skip
            return tried
        kind = KINDS.get(type(action))
        return self.first(core, "orchestrator_decision", decision=kind, chosen="refused", valid=False)


def _call(core: Core, m: Member, act: Call, place: Place) -> None:
    if act.tool not in m.tools:
        refused = Refused(
            "tool", f"{m.name} may not call {act.tool!r}; it may call {', '.join(m.tools) or 'nothing'}"
        )
        _refused(core, m, act, place, refused)
        return
    fields: dict[str, Any] = {"role": m.role_name, "tool": act.tool, "extra": place.extra, **place.usage}
    if act.args:
        fields["content_ref"] = brief(act.args)
    if place.trusted is not None:
        fields["trusted"] = place.trusted
    m.calls[place.at] = Pending(act, place.name, place.after, place.t, fields)
    core.driver.call(m, place.at)


def _refused(core: Core, m: Member, act: Any, place: Place, refused: Refused) -> None:
    tried = place.attempted(core, act)
    core.safety(m, refused.kind, refused.why, [("safety_flow", tried)], place.extra["at"])
    core.fail_action(m, place, tried, refused)


def _spawn(core: Core, m: Member, act: Spawn, place: Place) -> None:
    wrong = _unfit(core, m, act)
    if isinstance(wrong, Refused):
        _refused(core, m, act, place, wrong)
        return
    options = _options(m, "spawn")
    plan = place.decide(core, "spawn", act.role, options, act.logp, valid=False if wrong else None)
    hit = core.ledger.spawn(m.depth + 1) or m.ledger.spawn(m.depth + 1)
    if wrong or hit:
        _not_spawned(core, m, act, place, plan, wrong, hit)
        return
    core.ledger.agents += 1
    m.ledger.agents += 1
    core.counted["agents"] += 1
    child = _born(core, m, act)
    after: list[Any] = [("spawn", plan), *_hiring(core)]
    fields: dict[str, Any] = {} if act.task is None else {"content_ref": brief(act.task)}
    extra = {"at": place.extra["at"], "granted": child.tools}
    born = core.write("spawn", m.name, core.now, after, to=child.name, role=act.role, extra=extra, **fields)
    if core.couples:
        core.touched.append(born)
    place.last = born
    core.driver.started(child)
    if act.task is not None:
        m.awaiting[child.name] = None
        item = Item("task", m.name, child.task, place.trusted, event=spelt(born))
        post(
            core, m, child, Mail(item, born, "spawn", f"task:{m.name}:{place.extra['at']}", m.critical, m.on_record)
        )
    else:
        child.last = born
    for mail in m.post.pop(child.name, ()):
        core.deliver(child, mail)


def _unfit(core: Core, m: Member, act: Spawn) -> Fault | None:
    """What is wrong with a spawn."""
    if act.role not in m.role.spawns:
        known = ", ".join(m.role.spawns) or "none"
        if act.role in core.team.cast:
            return Refused("role", f"{m.name} may not spawn {act.role!r}; it may spawn {known}")
        return Fault("nonsense", f"no role {act.role!r}; {m.name} may spawn {known}")
    if more := set(act.tools or ()) - set(m.tools):
        return Refused(
            "tool", f"{m.name} lacks {', '.join(sorted(map(repr, more)))}: a child has no more than its parent"
        )
    name = act.name
    if name is not None and (name in TAKEN or name in core.tools or not _names_a_folder(name)):
        return Refused("name", f"no agent may be called {name!r}")
    if name is not None and _path(m, name) in core.members:
        return Fault("nonsense", f"there is an agent {_path(m, name)!r} already")
    return None


def _not_spawned(
    core: Core, m: Member, act: Spawn, place: Place, plan: Name, wrong: Fault | None, hit: Hit | None
) -> None:
    event = plan
    if wrong is None:
        assert hit is not None
        event, wrong = core.hit(m, hit, [("causal", plan), *_hiring(core)], place.extra["at"])
    core.fail_action(m, place, event, wrong)


def _hiring(core: Core) -> list[Any]:
    """Where the number of agents is limited, whoever may have spawned one has a part in whether there is room."""
    return [] if core.team.budget.agents is None else core.coupling([])


def _path(m: Member, name: str) -> str:
    return name if m.parent is None else f"{m.name}/{name}"


def _names_a_folder(name: str) -> bool:
    """Whether an agent can be called this: its folder, which lies in its parent's, is called the same."""
    return 0 < len(name) <= LONGEST_NAME and name not in (".", "..") and "/" not in name and name.isprintable()


def _folder_in(parent: Path, name: str) -> Path:
    """A folder for an agent inside its parent's. Where the parent has put something of that name that is no folder,
    such as a link that leads elsewhere, that is left alone and the next number is taken."""
    for number in count(1):
        at = parent / (name if number == 1 else f"{name}~{number}")
        with suppress(FileExistsError):
            at.mkdir(parents=True)
        if at.is_dir() and not at.is_symlink():
            return at
    raise AssertionError("unreachable")


def _born(core: Core, m: Member, act: Spawn) -> Member:
    role = core.team.cast[act.role]
    own = m.tools if role.tools is None else tuple(t for t in role.tools if t in m.tools)
    tools = own if act.tools is None else tuple(t for t in own if t in act.tools)
    name = act.name
    while name is None or _path(m, name) in core.members:
        m.counts[act.role] = number = m.counts.get(act.role, 0) + 1
        name = f"{act.role}-{number}"
    name = _path(m, name)
    child = Member(name, act.role, role, m, tools, m.seed, core.now)
    child.task, child.context = content_of(act.task), content_of(act.context)
    if m.folder is not None:
        child.folder = _folder_in(m.folder, name.rsplit("/", 1)[-1])
    m.children[name] = core.members[name] = child
    return child


def _delegate(core: Core, m: Member, act: Delegate, place: Place) -> None:
    child = m.children.get(act.to) or m.children.get(_path(m, act.to))
    wrong = None
    if child is None:
        wrong = Fault("nonsense", f"{m.name} has no child {act.to!r}")
    elif child.name in m.awaiting:
        wrong = Fault("nonsense", f"{act.to!r} is still at work")
    options = _options(m, "delegate")
    chosen = act.to if child is None else child.name  # as its option is spelled
    plan = place.decide(core, "delegate", chosen, options, act.logp, valid=False if wrong else None)
    if wrong is None and child is not None and child.state == GONE:
        wrong = Fault("gone", f"{act.to!r} is gone")
    if wrong is not None or child is None:
        core.fail_action(m, place, plan, wrong or Fault("gone", ""))
        return
    event = core.write(
        "message", m.name, core.now, [("causal", plan)], to=child.name, role=m.role_name,
        content_ref=brief(act.task), extra={"at": place.extra["at"]},
    )  # fmt: skip
    core.costs["messages"] += 1
    place.last = event
    child.task = content_of(act.task)
    m.awaiting[child.name] = None
    item = Item("task", m.name, content_of(act.task), place.trusted, event=spelt(event))
    post(
        core, m, child, Mail(item, event, "message", f"task:{m.name}:{place.extra['at']}", m.critical, m.on_record)
    )


def _send(core: Core, m: Member, act: Send, place: Place) -> None:
    parent = m.parent
    own = act.to if act.to in m.children else _path(m, act.to)
    sibling = parent is not None and act.to != parent.name and own not in m.children
    wrong = None
    if parent is None and own not in m.children:
        wrong = Fault("nonsense", f"{m.name} knows no {act.to!r}")
    options = _options(m, "communicate")
    if sibling and options:
        options.insert(0, act.to)
    fields: dict[str, Any] = {"valid": False} if wrong else {}
    chosen = own if own in m.children else act.to  # as its option is spelled
    plan = place.decide(core, "communicate", chosen, options, act.logp, **fields)
    if wrong is not None:
        core.fail_action(m, place, plan, wrong)
        return
    to = own if own in m.children else act.to
    if sibling and parent is not None and parent.parent is not None and not act.to.startswith(f"{parent.name}/"):
        to = f"{parent.name}/{act.to}"
    item = Item("message", m.name, content_of(act.content), place.trusted)
    key = f"message:{m.name}:{place.extra['at']}"
    core.driver.reworded(key, item)
    refused = core.screened(to, item)
    more: dict[str, Any] = {} if item.trusted is None else {"trusted": item.trusted}
    event = core.write(
        "message", m.name, core.now, [("causal", plan)], to=to, role=m.role_name, content_ref=brief(item.content),
        extra={"at": place.extra["at"]}, **more,
    )  # fmt: skip
    core.costs["messages"] += 1
    place.last = event
    item.event = spelt(event)
    if refused is not None:
        core.safety(m, refused.kind, refused.why, [("safety_flow", event)], place.extra["at"])
    mail = Mail(item, event, "message", key, m.critical, m.on_record)
    if own in m.children:
        post(core, m, m.children[own], mail)
    elif parent is not None and act.to == parent.name:
        post(core, m, parent, mail)
    elif parent is not None and to in parent.children:
        post(core, m, parent.children[to], mail)
    elif parent is not None:
        parent.post.setdefault(to, []).append(mail)


def post(core: Core, m: Member, to: Member, mail: Mail) -> None:
    """Sends something on its way, unless an intervention has it otherwise."""
    altered = core.driver.altered(to, mail)
    if altered is not None:
        core.deliver(to, altered)


def _aggregate(core: Core, m: Member, act: Aggregate, place: Place) -> None:
    wrong, value = None, None
    way = core.team.ways.get(act.how)
    used = [r for r in m.returned if act.of is None or r[0] in act.of]
    if way is None:
        wrong = Fault("nonsense", f"no way {act.how!r} to aggregate; there are {', '.join(core.team.ways)}")
    elif not used:
        wrong = Fault("nonsense", "nothing to aggregate: no child has returned anything")
    else:
        try:
            value = content_of(way([content for _, content, _ in used]))
        except Fault as fault:
            wrong = fault
        except BaseException as error:
            wrong = Fault("exception", f"{act.how}: {shown(error)}")
    fields: dict[str, Any] = {"valid": False} if wrong else {}
    plan = place.decide(core, "aggregate", act.how, list(core.team.ways), act.logp, **fields)
    if wrong is not None:
        core.fail_action(m, place, plan, wrong)
        return
    m.value = value
    votes = [{"value": brief(content) or "", "source": spelt(event)} for _, content, event in used]
    after = [("causal", plan), *(("aggregate", event) for _, _, event in used)]
    name = core.write(
        "aggregate", m.name, core.now, after, role=m.role_name, content_ref=brief(value), votes=votes,
        extra={"at": place.extra["at"], "content": value},
    )  # fmt: skip
    place.last = name
    item = Item("result", "aggregate", content_of(value), tool="aggregate", call=place.at, event=spelt(name))
    core.deliver(m, Mail(item, name, "causal", f"aggregate:{m.name}:{place.extra['at']}", m.critical, m.on_record))


def _stop(core: Core, m: Member, act: Stop, place: Place) -> None:
    answer = m.value if act.answer is None else act.answer
    plan = place.decide(core, "stop", "stop", _options(m, "stop"), act.logp)
    if m.parent is None:
        m.last = plan
        core.finish(answer, None, plan)
        return
    _answer(core, m, answer, place, [("causal", plan)])
    core.retire(m, plan)


def _return(core: Core, m: Member, act: Return, place: Place) -> None:
    if m.parent is None:
        _stop(core, m, Stop(answer=act.content, logp=act.logp), place)
        return
    _answer(core, m, act.content, place, None)
    m.inbox = [mail for mail in m.inbox if mail.item.source != "aggregate"]  # it has used that


def _answer(core: Core, m: Member, content: Any, place: Place, after: list[Any] | None) -> None:
    """A sub-agent answers whoever spawned it."""
    parent = m.parent
    assert parent is not None
    item = Item("return", m.name, content_of(content), place.trusted)
    key = f"return:{m.name}:{place.extra['at']}"
    core.driver.reworded(key, item)
    refused = core.screened(parent.name, item)
    fields: dict[str, Any] = {"to": parent.name, "content_ref": brief(item.content)}
    if after is None:
        place.trusted = item.trusted
        event = place.first(core, "return", **fields)
    else:
        fields |= {} if item.trusted is None else {"trusted": item.trusted}
        event = core.write(
            "return", m.name, core.now, after, role=m.role_name, extra={"at": place.extra["at"]}, **fields
        )
    place.last = event
    item.event = spelt(event)
    if refused is not None:
        core.safety(m, refused.kind, refused.why, [("safety_flow", event)], place.extra["at"])
    _returned(core, m, parent, Mail(item, event, "return", key, m.critical, m.on_record))


def _returned(core: Core, m: Member, parent: Member, mail: Mail) -> None:
    altered = core.driver.altered(parent, mail)
    if altered is not None:
        land(core, m, parent, altered)


def land(core: Core, child: Member, parent: Member, mail: Mail) -> None:
    """What a child returned reaches its parent, which no longer waits for it."""
    assert mail.event is not None
    parent.awaiting.pop(child.name, None)
    if mail.item.fault is None:
        parent.returned.append((child.name, mail.item.content, mail.event))
    core.deliver(parent, mail)


def _wait(core: Core, m: Member, act: Wait, place: Place) -> None:
    if act.instead is None:
        place.first(core, "orchestrator_decision", chosen="wait")
        return
    m.again = act.instead == "stop"
    chosen = "go on" if m.again else "none"
    place.decide(core, act.instead, chosen, _options(m, act.instead), act.logp)


def _options(m: Member, kind: Decision) -> list[str]:
    """What an agent can choose from; nothing where that is too much to spell out."""
    if kind == "stop":
        return ["stop", "go on"]
    if kind == "spawn":
        return [*m.role.spawns, "none"]
    if len(m.children) >= MOST_OPTIONS:
        return []
    above = [m.parent.name] if kind == "communicate" and m.parent else []
    return [*m.children, *above, "none"]


PERFORM: dict[type, Callable[[Any, Member, Any, Place], None]] = {
    Call: _call,
    Spawn: _spawn,
    Delegate: _delegate,
    Send: _send,
    Aggregate: _aggregate,
    Stop: _stop,
    Return: _return,
    Wait: _wait,
}
