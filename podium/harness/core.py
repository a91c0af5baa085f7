"""What happens in a run, one thing after another, whoever says when: the live runtime and the replay drive the same
core.

A driver tells the core that a step begins or ended, that a call answered, that patience is over. The core changes
the team's state, writes the events, and tells the driver what is to be done next. It never waits and never asks the
time: `now` is set before every call, and is greater than it was.

Every cause of what an agent does is an edge: what it saw, what it did before, and, where agents share a budget or
slots, the step that last drew on them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from pathlib import Path
from typing import Any, Protocol

import msgspec

from podium.harness.actions import PERFORM, Place, brief, spelt
from podium.harness.budget import Hit, Ledger
from podium.harness.member import GONE, GRANTED, IDLE, QUEUED, RESTING, THINKING, Mail, Member
from podium.harness.team import LEAD, Team
from podium.harness.types import SAID, Call, Fault, Item, Refused, Result, See, shown
from podium.harness.understand import Understood, content_of
from podium.trace.recorder import Name, Recorder
from podium.trace.vocabulary import EventType

__all__ = ["HARNESS", "INTERRUPTED", "PERSON", "Core", "Driver", "Stamp", "step_seed"]

HARNESS, PERSON = "harness", "person"
INTERRUPTED = "interrupted"  # the fault of a run that someone outside ended
MOST_STEPS = 100_000  # of a team whose budget does not say
_USAGE = ("tokens_in", "tokens_out", "cost")


class Driver(Protocol):
    """What the core tells whoever drives it."""

    def started(self, member: Member) -> None: ...
    def wake(self, member: Member) -> None: ...
    def call(self, member: Member, at: int) -> None: ...
    def alarm(self, member: Member) -> None: ...
    def drop(self, member: Member) -> None: ...
    def acting(self, member: Member, at: int) -> None: ...
    def reworded(self, key: str, item: Item) -> None: ...
    def altered(self, to: Member, mail: Mail) -> Mail | None: ...


def step_seed(seed: int, name: str, turn: int, attempt: int) -> int:
    """The seed of a step's randomness: its own, and the same in every run of this seed."""
    spelt = f"{seed}/{name}/{turn}/{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(spelt, digest_size=6).digest(), "little")


class Stamp:
    """The clock of a recorder that is told the time: events are written with the time they began."""

    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> float:
        return self.t


class Core:
    """A run's state and its laws."""

    def __init__(
        self, team: Team, task: Any, seed: int, record: Recorder, stamp: Stamp, driver: Driver, folder: Path | None
    ) -> None:
        self.team, self.record, self.stamp, self.driver = team, record, stamp, driver
        self.now = 0.0
        self.tools = {t.name: t for t in team.toolbox}
        self.ledger = Ledger(team.budget)
        self.couples = team.budget.shared or team.slots is not None
        self.touched: list[Name] = []  # what may have changed what all share, since someone last drew on it
        self.free = team.slots
        self.queue: deque[Member] = deque()
        self.over = False
        self.answer: Any = None
        self.fault: Fault | None = None
        self.people = 0
        self.counted: dict[str, float] = dict.fromkeys(("steps", "faults", "refusals", "hits", "agents"), 0)
        self.costs: dict[str, float] = dict.fromkeys(("tool_calls", "messages"), 0)
        self.members: dict[str, Member] = {}
        lead = self.lead = Member(LEAD, LEAD, team.leader, None, tools_of(team), seed, 0.0)
        lead.task, lead.folder = task, folder
        lead.inbox.append(Mail(Item("task", "user", task), None, "causal", "task:", 0))
        self.members[LEAD] = lead

    # what reaches agents

    def deliver(self, member: Member, mail: Mail) -> None:
        """Puts something into an agent's inbox, and wakes it if that is what it waited for."""
        if member.state == GONE or self.over:
            return
        member.inbox.append(mail)
        if mail.item.kind == "human":
            member.urgent = True
        if self.couples and mail.event is not None:
            self.touched.append(mail.event)  # it may make the agent draw on what all share
        if member.state == IDLE and member.ready():
            self.driver.wake(member)

    def screened(self, to: str, item: Item) -> Refused | None:
        """What a guard has against an item; it is then untrusted."""
        for guard in self.team.guards:
            if (refused := guard(to, item)) is not None:
                item.trusted = False
                return refused
        return None

    # steps

    def admit(self, member: Member) -> bool:
        """Whether a slot is free for a step; if not, the agent waits for one and is woken."""
        if member.state == GRANTED:
            return True  # it was given the slot that someone left
        if self.free is None:
            return True
        if self.free:
            self.free -= 1
            return True
        member.state = QUEUED
        self.queue.append(member)
        return False

    def begin(self, member: Member) -> See | None:
        """A step begins: what the agent sees, or None where a budget forbids it."""
        if self.ledger.steps >= MOST_STEPS and self.team.budget.steps is None:
            self.run_out(Hit("steps", MOST_STEPS, self.ledger.steps))
            return None
        if not member.attempt:
            member.taken, member.inbox = member.inbox, []
            member.again = member.urgent = False
            for mail in member.taken:
                if mail.critical > member.critical:
                    member.critical = mail.critical
            member.critical += 1
        if (hit := self._forbidden(member)) is not None:
            self._hit_step(member, hit)
            return None
        self.ledger.steps += 1
        member.ledger.steps += 1
        self._causes(member)
        member.state, member.began = THINKING, self.now
        member.dice = step_seed(member.seed, member.name, member.turn, member.attempt)
        self.counted["steps"] += 1
        return self._see(member)

    def _forbidden(self, member: Member) -> Hit | None:
        hit = self.ledger.step(member.critical, self.now)
        return hit or member.ledger.step(member.critical, self.now - member.born)

    def _causes(self, member: Member) -> None:
        after = member.after = []
        if member.attempt:
            assert member.last is not None
            after.append(("causal", member.last))
        else:
            for mail in member.taken:
                if mail.event is not None:
                    after.append((mail.edge, mail.event))
            if member.last is not None and not (member.lone_call and member.taken):
                after.append(("causal", member.last))
        member.step = self.record.reserve()
        if self.couples:
            after += self.coupling(after)
            self.touched = [member.step]

    def coupling(self, after: list[Any]) -> list[Any]:
        """Edges from all that may have changed what agents share, beyond these."""
        known = {name for _, name in after}
        return [("temporal", name) for name in dict.fromkeys(self.touched) if name not in known]

    def _see(self, m: Member) -> See:
        m.seen = [mail.item for mail in m.taken]
        return See(
            m.name,
            m.role_name,
            m.parent.name if m.parent else None,
            m.task,
            m.context,
            m.turn,
            m.seen,
            m.history,
            list(m.children),
            m.role.spawns,
            m.tools,
            m.depth,
            m.folder,
            m.dice,
        )

    def end(self, member: Member, outcome: Understood | Fault) -> float | None:
        """A step ended: what the agent does, is done. Seconds to wait before another attempt, where it failed and
        there is one."""
        self._release()
        member.state = IDLE
        if isinstance(outcome, Fault):
            return self._failed(member, outcome)
        usage = dict(outcome.usage)
        self._charge(member, usage)
        trusted = usage.pop("trusted", None)
        actions = outcome.actions
        member.history.append((member.seen, actions))
        turn, last = member.turn, None
        step, spoken = self._told(member, turn, len(actions)), _spoken(member, usage)
        usage["random"] = member.dice
        member.turn, member.attempt = turn + 1, 0
        member.lone_call = len(actions) == 1 and isinstance(actions[0], Call)
        for at, action in enumerate(actions):
            self.driver.acting(member, at)
            place = Place(member, turn, at, outcome.raws[at], trusted)
            if last is None:
                assert member.step is not None
                place.name, place.after, place.t, place.end = member.step, member.after, member.began, self.now
                place.extra["step"], place.usage = step, usage
                place.extra |= spoken
            else:
                place.name, place.after, place.t = self.record.reserve(), [("causal", last)], self.now
            refused = self._guarded(member, action)
            if refused is not None:
                self._refuse(member, action, place, refused)
            else:
                PERFORM[action.__class__](self, member, action, place)
            member.last = last = place.last or place.name
        member.taken = []
        if member.awaiting and member.role.patience is not None and not self.over:
            self.driver.alarm(member)
        return None

    def _told(self, member: Member, turn: int, actions: int) -> dict[str, Any]:
        step: dict[str, Any] = {"turn": turn, "n": actions, "end": self.now, "saw": [m.key for m in member.taken]}
        if member.attempt:
            step["try"] = member.attempt
        return step

    def _guarded(self, member: Member, action: Any) -> Refused | None:
        for guard in self.team.guards:
            if (refused := guard(member.name, action)) is not None:
                return refused
        return None

    def _charge(self, member: Member, usage: dict[str, Any]) -> None:
        if usage:
            tokens = usage.get("tokens_in", 0) + usage.get("tokens_out", 0)
            cost = usage.get("cost", 0)
            for ledger in (self.ledger, member.ledger):
                ledger.tokens += tokens
                ledger.cost += cost

    def _release(self) -> None:
        """Gives the slot of a step that is over to whoever waits longest."""
        if self.free is None:
            return
        while self.queue:
            waits = self.queue.popleft()
            if waits.state == QUEUED:
                waits.state = GRANTED
                self.driver.wake(waits)
                return
        self.free += 1

    # faults

    def _failed(self, member: Member, fault: Fault) -> float | None:
        """A step that came to nothing is an invalid decision; the agent tries again, or is gone."""
        step = self._told(member, member.turn, 0)
        self.note(member, "orchestrator_decision", fault, t=member.began, end=self.now, step=step)
        if fault.retry and member.attempt < member.role.retries:
            member.attempt += 1
            member.state = RESTING
            return float(member.role.backoff * 2 ** (member.attempt - 1))
        self.lose(member, fault)
        return None

    def note(
        self, member: Member, type: EventType, fault: Fault, *, t: float, step: Any, end: float | None = None
    ) -> None:
        """Writes the event of a step that came to nothing."""
        self.counted["faults"] += 1
        described: dict[str, Any] = {"kind": fault.kind, "why": fault.why}
        if fault.retry:
            described["retry"] = True
        extra = {"at": f"{member.turn}", "fault": described, "step": step}
        member.last = self.write(
            type, member.name, t, member.after, name=member.step, role=member.role_name, end=end, valid=False,
            extra=extra, random=member.dice,
        )  # fmt: skip

    def lose(self, member: Member, fault: Fault, outside: bool = False) -> None:
        """An agent is gone; whoever waits for it is told. Without its lead, the team is done. `outside`: it was not
        in a step, and nothing on record did it."""
        if member.parent is None:
            self.finish(member.value, fault, outside=outside)
            return
        extra: dict[str, Any] = {"at": f"{member.turn}!", "fault": {"kind": fault.kind, "why": fault.why}}
        if outside:
            extra["outside"] = True
        parent, after = member.parent, self._after(member)
        event = self.write(
            "return", member.name, self.now, after, to=parent.name, role=member.role_name, valid=False, extra=extra
        )
        for child in member.children.values():
            self.cut(child, "cancelled", member.name, event)
        self._gone(member)
        self._tell(member, event, fault)

    def _after(self, member: Member) -> list[Any]:
        """Where an agent that does nothing itself was: after its last event, and what it has not answered."""
        after: list[Any] = [(m.edge, m.event) for m in (*member.taken, *member.inbox) if m.event is not None]
        if member.last is not None:
            after.append(("causal", member.last))
        return after

    def _tell(self, member: Member, event: Name, fault: Fault) -> None:
        parent = member.parent
        if parent is None:
            return
        parent.awaiting.pop(member.name, None)
        item = Item("return", member.name, fault.why, None, fault.kind, event=spelt(event))
        key = f"lost:{member.name}:{fault.kind}"
        self.deliver(parent, Mail(item, event, "return", key, member.critical, member.on_record))

    def retire(self, member: Member, cause: Name) -> None:
        """A sub-agent stopped: it is gone, and all that it spawned."""
        for child in member.children.values():
            self.cut(child, "cancelled", member.name, cause)
        self.cut_calls(member, Fault("cancelled", "it stopped"), [("causal", cause)])
        self._gone(member)

    def _gone(self, member: Member) -> None:
        holds = member.state in (THINKING, GRANTED)
        member.state = GONE
        if holds:
            self._release()
        member.inbox, member.taken = [], []
        self.driver.drop(member)

    def cut(
        self, member: Member, kind: str, by: str, cause: Name | None, late: list[Any] | None = None
    ) -> Name | None:
        """Ends an agent in whatever it is doing, and all that it spawned. `cause` is the event that did it. That it
        is let go now depends on all that it did not get done, and on `late`, what may have kept it: those are
        edges."""
        if member.state == GONE:
            return None
        because: list[Any] = [] if cause is None else [("causal", cause)]
        fault = Fault(kind, f"{kind} by {by}")
        below: list[Name | None] = []
        if cause is not None:
            below = [self.cut(child, "cancelled", member.name, cause, late) for child in member.children.values()]
        below += self.cut_calls(member, fault, because)
        if member.state == THINKING:
            step = self._told(member, member.turn, 0) | {"cut": True}
            self.note(member, "orchestrator_decision", fault, t=member.began, step=step)
        after = because + ([] if member.last is None else [("causal", member.last)])
        known = {name for _, name in (*after, *(late or ()))}
        unseen = [mail.event for mail in member.inbox]
        after += late or []
        after += [("temporal", event) for event in dict.fromkeys((*below, *unseen)) if event not in known and event]
        extra: dict[str, Any] = {"at": ""}
        if kind != "cancelled":
            self.counted["faults"] += 1
            extra["fault"] = {"kind": kind, "why": fault.why}
        gone = self.write("despawn", by, self.now, after, to=member.name, extra=extra)
        if cause is None:  # nothing on record did it: what it spawned goes because it does
            for child in member.children.values():
                self.cut(child, "cancelled", member.name, gone)
        self._gone(member)
        if kind != "cancelled":
            self._tell(member, gone, fault)
        return gone

    def cut_calls(self, member: Member, fault: Fault, because: list[Any]) -> list[Name | None]:
        """Calls under way end without an answer."""
        ended: list[Name | None] = []
        for at in list(member.calls):
            pending = member.calls.pop(at)
            call = self.write(
                "tool_call", member.name, pending.t, pending.after, name=pending.event, **pending.fields
            )
            self.costs["tool_calls"] += 1
            extra = {
                "at": pending.fields["extra"]["at"],
                "fault": {"kind": fault.kind, "why": fault.why, "cut": True},
            }
            event = self.write(
                "tool_result", pending.call.tool, self.now, [("return", call), *because], to=member.name,
                tool=pending.call.tool, valid=False, extra=extra,
            )  # fmt: skip
            ended.append(event)
        return ended

    def expire(self, member: Member) -> None:
        """Patience is over: the children that have not returned are stragglers, and are let go."""
        late = self.coupling([]) if self.couples else []
        for name in list(member.awaiting):
            if name in member.awaiting and not self.over:
                self.cut(member.children[name], "straggler", member.name, member.last, late)

    # refusals and budgets

    def safety(self, member: Member, kind: str, why: str, after: list[Any], at: str, **more: Any) -> Name:
        """Something was refused, or a limit was met."""
        extra = {"at": at, "refused": {"kind": kind, "why": why}, **more}
        self.counted["refusals"] += 1
        return self.write("safety_event", HARNESS, self.now, after, to=member.name, extra=extra)

    def _refuse(self, member: Member, action: Any, place: Place, refused: Refused) -> None:
        """An action that a guard forbids is recorded as tried, and not done."""
        tried = place.attempted(self, action)
        self.safety(member, refused.kind, refused.why, [("safety_flow", tried)], place.extra["at"])
        self.fail_action(member, place, tried, refused)

    def fail_action(self, member: Member, place: Place, event: Name, fault: Fault) -> None:
        """Tells an agent that something it did came to nothing."""
        item = Item("result", HARNESS, fault.why, None, fault.kind, call=place.at, event=spelt(event))
        key = f"failed:{member.name}:{place.extra['at']}"
        self.deliver(member, Mail(item, event, "causal", key, member.critical, member.on_record))

    def hit(self, member: Member, hit: Hit, after: list[Any], at: str, **more: Any) -> tuple[Name, Fault]:
        """A budget forbids what an agent wants."""
        self.counted["hits"] += 1
        why = f"{hit.budget} budget of {hit.limit:g} is used up"
        extra = {"at": at, "hit": {"budget": hit.budget, "limit": hit.limit, "used": hit.used}, **more}
        event = self.write("safety_event", HARNESS, self.now, after, to=member.name, extra=extra)
        return event, Fault("budget", why)

    def _hit_step(self, member: Member, hit: Hit) -> None:
        after = self._after(member)
        if self.couples:
            after += self.coupling(after)
        step = self._told(member, member.turn, 0)
        member.last, fault = self.hit(member, hit, after, f"{member.turn}", step=step)
        member.state = IDLE
        self._release()
        self.lose(member, fault)

    # calls

    def result(self, member: Member, at: int, outcome: Result | Fault) -> None:
        """A call answered, or failed."""
        pending = member.calls.pop(at)
        tool, spelled = pending.call.tool, pending.fields["extra"]["at"]
        call = self.write(
            "tool_call", member.name, pending.t, pending.after, name=pending.event, end=self.now, **pending.fields
        )
        self.costs["tool_calls"] += 1
        extra: dict[str, Any] = {"at": spelled}
        usage: dict[str, Any] = {}
        item = Item("result", f"tool:{tool}", tool=tool, call=at)
        key = f"result:{member.name}:{spelled}"
        if isinstance(outcome, Fault):
            item.fault, item.content = outcome.kind, outcome.why
            extra["fault"] = {"kind": outcome.kind, "why": outcome.why}
            if isinstance(outcome, Refused):
                extra["fault"]["refused"] = True
            self.counted["faults"] += 1
        else:
            item.source, item.trusted = outcome.source or item.source, outcome.trusted
            item.content = outcome.content
            self.driver.reworded(key, item)
            extra["content"] = item.content
            usage = {n: v for n in _USAGE if (v := getattr(outcome, n)) is not None}
            if outcome.source:
                extra["source"] = outcome.source
            if usage:
                self._charge(member, usage)
        refused = outcome if isinstance(outcome, Refused) else self.screened(member.name, item)
        if item.trusted is not None:
            usage["trusted"] = item.trusted
        if item.fault is not None:
            usage["valid"] = False
        event = self.write(
            "tool_result", tool, self.now, [("return", call)], to=member.name, tool=tool, extra=extra,
            content_ref=brief(item.content), **usage,
        )  # fmt: skip
        if refused is not None:
            flow = call if isinstance(outcome, Refused) else event
            self.safety(member, refused.kind, refused.why, [("safety_flow", flow)], spelled)
        item.event = spelt(event)
        mail = Mail(item, event, "tool_dependency", key, member.critical, member.on_record)
        altered = self.driver.altered(member, mail)
        if altered is not None:
            self.deliver(member, altered)

    # people

    def intervene(self, what: str, by: str, **more: Any) -> None:
        """A person pauses or resumes the run: it is on record, and changes nothing that agents see."""
        self.people += 1
        self.write(
            "human_intervention", PERSON, self.now, [], extra={"at": what, "by": by, "nth": self.people, **more}
        )

    def inject(self, to: str, content: Any, by: str) -> None:
        """A person tells an agent something."""
        member = self.members[to]
        content = content_of(content)
        self.people += 1
        extra = {"at": "inject", "by": by, "content": content, "nth": self.people}
        event = self.write(
            "human_intervention", PERSON, self.now, [], to=to, content_ref=brief(content), extra=extra
        )
        item = Item("human", f"{PERSON}:{by}", content, event=spelt(event))
        self.deliver(member, Mail(item, event, "causal", f"human:{self.people}", 0))

    def edit(self, which: str, content: Any, by: str) -> bool:
        """A person changes something before it is seen, named by its key or the id of its event. False where it has
        been seen, or never was."""
        for member in self.members.values():
            for i, mail in enumerate(member.inbox):
                if which in (mail.key, mail.item.event) and mail.event is not None:
                    content = content_of(content)
                    self.people += 1
                    extra = {"at": "edit", "by": by, "content": content, "of": mail.key, "nth": self.people}
                    event = self.write(
                        "human_intervention", PERSON, self.now, [(mail.edge, mail.event)], to=member.name,
                        content_ref=brief(content), extra=extra,
                    )  # fmt: skip
                    item = Item(
                        mail.item.kind, mail.item.source, content, tool=mail.item.tool
                    )  # the words of a person
                    item.call, item.event = mail.item.call, spelt(event)
                    member.inbox[i] = msgspec.structs.replace(
                        mail, item=item, event=event, key=f"edit:{self.people}"
                    )
                    return True
        return False

    # the end

    def finish(
        self, answer: Any, fault: Fault | None = None, cause: Name | None = None, outside: bool = False
    ) -> None:
        """The run is over: the lead returns, and lets everyone go."""
        lead = self.lead
        extra: dict[str, Any] = {"at": "", "content": answer}
        more: dict[str, Any] = {}
        if fault is not None:
            extra["fault"] = {"kind": fault.kind, "why": fault.why}
            more["valid"] = False
        if outside:
            extra["outside"] = True
        because: list[Any] = [] if cause is None else [("causal", cause)]
        if lead.state == THINKING:
            assert fault is not None
            step = self._told(lead, lead.turn, 0) | {"cut": True}
            self.note(lead, "orchestrator_decision", fault, t=lead.began, step=step)
        self.cut_calls(lead, fault or Fault("cancelled", "the run is over"), because)
        after = because or ([] if lead.last is None else [("causal", lead.last)])
        event = self.write(
            "return", lead.name, self.now, after, role=LEAD, content_ref=brief(answer), extra=extra, **more
        )
        for child in lead.children.values():
            self.cut(child, "cancelled", lead.name, event)
        self._gone(lead)
        self.over, self.answer, self.fault = True, answer, fault

    def stall(self) -> None:
        """Nobody has anything to do and nothing is under way: said, and the end."""
        after: list[Any] = [("temporal", m.last) for m in self.members.values() if m.last is not None]
        event = self.safety(self.lead, "stalled", "everyone waits and nothing is under way", after, "")
        self.finish(self.lead.value, Fault("stalled", "everyone waits and nothing is under way"), event)

    def run_out(self, hit: Hit | None = None) -> None:
        """The time of the team is over, or it has taken more steps than any should. Those are so many that they
        couple nobody: the end follows from all that was done."""
        after: list[Any] = []
        if hit is None:
            assert self.team.budget.seconds is not None
            hit = Hit("seconds", self.team.budget.seconds, self.now)
        else:
            after = [("temporal", m.last) for m in self.members.values() if m.last is not None]
        event, fault = self.hit(self.lead, hit, after, "")
        self.finish(self.lead.value, fault, event)

    def interrupt(self, why: str) -> None:
        """Someone outside ended the run. It is not scored: nobody knows what it would have come to."""
        fault = Fault(INTERRUPTED, why)
        self.counted["faults"] += 1
        self.counted[INTERRUPTED] = 1
        self.cut_calls(self.lead, fault, [])
        self.lose(self.lead, fault, outside=True)

    def outcome(self) -> dict[str, dict[str, float]]:
        """What the run as a whole earned, cost and measured."""
        team = self.team
        rewards: dict[str, float] = {}
        if team.verify is not None and INTERRUPTED not in self.counted:
            try:
                rewards["team"] = float(team.verify(self.lead.task, self.answer))
            except BaseException as error:
                self.fault = self.fault or Fault("exception", f"verify: {shown(error)}")
        costs = self.costs | {"wall_clock_s": self.now}
        if self.ledger.tokens:
            costs["tokens"] = self.ledger.tokens
        if self.ledger.cost:
            costs["cost"] = self.ledger.cost
        return {"rewards": rewards, "costs": costs, "metrics": dict(self.counted)}

    def write(self, type: EventType, agent: str, t: float, after: list[Any], **fields: Any) -> Name:
        """Writes an event that began at this time."""
        self.stamp.t = t
        return self.record.add(type, agent, after=after, **fields)


def _spoken(member: Member, usage: dict[str, Any]) -> dict[str, Any]:
    """What its model said becomes fields of the event that the step begins with, and further ones of our own, which
    come back."""
    generation = usage.pop("said", None)
    if generation is None:
        return {}
    usage |= {
        "tokens": generation.tokens,
        "logps": generation.logps,
        "mask": generation.mask,
        "start": generation.start,
    }
    if generation.extends and member.spoken is not None:
        usage["context"] = spelt(member.spoken)
    member.spoken = member.step
    more = {name: getattr(generation, name) for name in SAID}
    return {name: value for name, value in more.items() if value is not None}


def tools_of(team: Team) -> tuple[str, ...]:
    """The lead has all tools unless its role says otherwise."""
    return team.leader.tools if team.leader.tools is not None else tuple(t.name for t in team.toolbox)
