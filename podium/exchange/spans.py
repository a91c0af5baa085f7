"""From spans to events: what OpenTelemetry, LangSmith and the OpenAI Agents SDK record, as one tree and one sweep
through time.

A span is an agent at work, a turn of a model, a call of a tool, a handoff, a guardrail, or a mere group of others.
The tree states who worked for whom, and the two ends of a span when. It does not state which turn asked for which
call: such edges are inferred from the order of what one agent did, and name that rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from podium.exchange.build import PERSON, Run
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES, EdgeType, EventType

__all__ = ["ORDER", "Kind", "Span", "add_spans"]

Kind = Literal["agent", "model", "tool", "handoff", "guard", "person", "group"]
ORDER = "latest-done"  # rule: of what the same agent did, the latest that had ended
GATHERS = "gathers-returns"  # rule: the first turn of an agent that began when several others had returned
NEXT_PROMPT = "next prompt after an answer"
COMPLAINS = "a short output that begins with an error"  # rule: the call failed, though its span does not say so
SHORT = 2000  # bytes of it
_ERROR = re.compile(rb'\s*"?(?:Error: |Error (?:invoking|executing) tool|An error occurred while running the tool)')
_SPAWN, _DELEGATE = DECISIONS.index("spawn"), DECISIONS.index("delegate")
_DECIDES, _TURN, _RETURNS = map(EVENT_TYPES.index, ("orchestrator_decision", "message", "return"))


class Span(msgspec.Struct, gc=False):
    """One span. Times are seconds on any one clock; what the log does not know is None."""

    id: str
    parent: str = ""
    kind: Kind = "group"
    name: str = ""  # of the agent, the tool or the guardrail
    start: float | None = None
    end: float | None = None
    agent: str = ""  # whose span it is, where the log says so on the span itself
    to: str = ""  # to whom a handoff goes
    role: str | None = None
    model: str | None = None
    tokens_in: float | None = None  # without those read from a cache or written to one
    tokens_out: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    cost: float | None = None
    failed: bool = False
    decides: bool = False  # a turn, or a function, that routes to other agents
    input: bytes | str | None = None
    output: bytes | str | None = None
    cause: str = ""  # the span that decided on this one, where the log says so
    links: tuple[str, ...] = ()


FIGURES = ("model", "tokens_in", "tokens_out", "cache_read", "cache_write", "cost")


class _Agent:
    """An agent during the sweep: what it did last."""

    __slots__ = (
        "acts",
        "asked",
        "base",
        "front",
        "gathers",
        "leads",
        "model",
        "name",
        "parent",
        "passed",
        "returned",
        "until",
    )

    def __init__(self, name: str, parent: _Agent | None) -> None:
        self.name, self.parent = name, parent
        self.front: list[_Done] = []  # what it did and nothing of its own has followed yet
        self.base: list[_Done] = []  # what was followed last
        self.leads = False  # others work for it
        self.acts = False  # it has done something since it was spawned
        self.asked = False  # its last turn has called a tool
        self.gathers: list[int] = []  # the returns that its first turn reads
        self.passed = False  # it has handed over
        self.model = -1  # its last turn
        self.returned = False  # something came back since that turn
        self.until: float | None = None  # when its span ended


class _Done:
    """Something an agent did or got, that its next event may follow."""

    __slots__ = ("end", "relation", "row", "span", "stated")

    def __init__(
        self, row: int, end: float, relation: EdgeType, stated: bool = False, span: Span | None = None
    ) -> None:
        self.row, self.end, self.relation, self.stated, self.span = row, end, relation, stated, span


def add_spans(run: Run, spans: Sequence[Span], root: str = "main") -> dict[str, int]:
    """Adds the events of the spans of one run, or of its next task. `root` names the agent of spans that belong to
    none. Returns the first event of each span that has one."""
    sweep = _Sweep(run, spans, root)
    sweep.through()
    return sweep.rows


def _last(run: Run) -> tuple[int, float] | None:
    """The event of a run that ended last, and when."""
    ends = [(event.get("end") or event["t"], row) for row, event in enumerate(run.events)]
    return max(((row, end) for end, row in ends if end is not None), key=lambda one: one[1], default=None)


class _Sweep:
    def __init__(self, run: Run, spans: Sequence[Span], root: str) -> None:
        self.run, self.root = run, root
        self.spans = {span.id: span for span in spans if span.start is not None}
        self.owner: dict[str, Span | None] = {}  # the nearest agent above a span
        self.wrapper: dict[str, Span] = {}  # the call of a tool that is this agent
        self.backs: dict[str, list[int]] = {}  # what came back within a call
        self.depth: dict[str, int] = {}
        self.agents: dict[str, _Agent] = {}  # by the id of their span
        self.named: dict[tuple[str, str], list[_Agent]] = {}  # instances of one name that work for one agent
        self.names: dict[str, int] = {}
        self.roots: dict[str, _Agent] = {}  # agents without a span of their own
        self.ended: _Agent | None = None  # the last agent nobody spawned
        self.handoffs: dict[str, _Done] = {}  # by the name of the agent that is to take over
        self.rows: dict[str, int] = {}  # the first event of each span
        self.turns: list[tuple[int, _Agent]] = []  # turns of models that aggregate nothing
        self._climb()
        self._fold()

    def through(self) -> None:
        """Goes through the ends of spans in their order, causes before effects."""
        points: list[tuple[float, int, int, str]] = []
        for span in self.spans.values():
            if span.kind == "group" or span.start is None:
                continue
            depth = self.depth[span.id]
            points.append((span.start, 1, depth, span.id))
            if span.end is not None:
                span.end = max(span.start, span.end)
                if span.kind in ("agent", "tool"):
                    points.append((span.end, 0 if span.end > span.start else 2, -depth, span.id))
        points.sort()
        begins = {
            "agent": self._agent,
            "model": self._model,
            "tool": self._call,
            "handoff": self._handoff,
            "guard": self._guard,
            "person": self._person,
        }
        for t, phase, _, id in points:
            span = self.spans[id]
            if phase == 1:
                begins[span.kind](span, t)
            elif span.kind == "agent":
                self._return(span, t)
            else:
                self._result(span, t)
        for span in self.spans.values():
            for link in span.links:
                if self.rows.get(link, -1) < self.rows.get(span.id, -1) and link in self.rows:
                    self.run.edge(self.rows[link], self.rows[span.id], "causal")
        for row, agent in self.turns:
            if self.run.events[row]["type"] != _TURN:
                continue
            if agent.leads:
                self.run.set(row, type=_DECIDES, to=None)
            elif row == agent.model and not agent.asked:
                self.run.set(row, to=agent.parent.name if agent.parent else PERSON)

    def _climb(self) -> None:
        """Finds the nearest agent above each span, and how deep it lies. A span above itself is taken for a
        root."""
        spans, depth, owner = self.spans, self.depth, self.owner
        for span in spans.values():
            path: list[Span] = []
            at: Span | None = span
            while at is not None and at.id not in depth:
                depth[at.id] = 0
                path.append(at)
                at = spans.get(at.parent)
            for at in reversed(path):
                above = spans.get(at.parent)
                if above is None or above.id not in owner:
                    owner[at.id] = None
                else:
                    depth[at.id] = depth[above.id] + 1
                    owner[at.id] = above if above.kind == "agent" else owner[above.id]

    def _fold(self) -> None:
        """Notes which tools are agents, and makes a group of a turn within a turn."""
        for span in self.spans.values():
            if span.kind not in ("agent", "model"):
                continue
            above = self.spans.get(span.parent)
            hops = 0
            while above is not None and above.kind == "group" and hops < 64:
                above, hops = self.spans.get(above.parent), hops + 1
            if above is None:
                continue
            if span.kind == "agent" and above.kind == "tool":
                self.wrapper[span.id] = above
                span.input = above.input if span.input is None else span.input
                span.output = above.output if span.output is None else span.output
            elif span.kind == "model" and above.kind == "model":
                span.kind = "group"
                for name in ("tokens_in", "tokens_out", "cache_read", "cache_write", "model"):
                    if getattr(above, name) is None:
                        setattr(above, name, getattr(span, name))

    def _of(self, span: Span, t: float) -> _Agent:
        """The agent that a span belongs to."""
        owner = self.owner[span.id]
        if owner is not None and owner.id in self.agents:
            return self.agents[owner.id]
        name = span.agent or (self.root if owner is None else owner.name) or self.root
        if name not in self.roots:
            self.roots[name] = agent = _Agent(self._name(name), None)
            self._first(agent, t, None)
        return self.roots[name]

    def _name(self, name: str) -> str:
        self.names[name] = count = self.names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def _agent(self, span: Span, t: float) -> None:
        owner = self.owner[span.id]
        parent = self.agents.get(owner.id) if owner is not None else None
        name = span.name or self.root
        instances = self.named.setdefault((parent.name if parent else "", name), [])
        agent = next((a for a in instances if a.until is not None and a.until <= t), None)
        if agent is None:
            agent = _Agent(self._name(name), parent)
            instances.append(agent)
        agent.until, agent.passed = None, False
        self.agents[span.id] = agent
        handoff = self.handoffs.pop(name, None)
        if handoff is not None:
            self.run.set(handoff.row, to=agent.name)
            agent.front, agent.base = [handoff], []
            return
        if parent is None:
            self._first(agent, t, span)
            return
        self._spawn(agent, parent, span, t)

    def _spawn(self, agent: _Agent, parent: _Agent, span: Span, t: float) -> None:
        """An agent begins to work for another: because a turn or a call asked for it, or what came back."""
        parent.leads = parent.acts = True
        call = self.rows.get(self.wrapper[span.id].id) if span.id in self.wrapper else None
        causes = self._causes(parent, t, span) if call is None else parent.base
        row = self.run.add("spawn", parent.name, t, to=agent.name, role=span.role or span.name, content=span.input)
        self._join(causes, row, spawn=True)
        if call is not None:
            self.run.edge(call, row, "causal")
        if parent.model >= 0 and any(d.row == parent.model for d in causes):
            self.run.set(parent.model, decision=_SPAWN)
        agent.front, agent.base, agent.acts = [_Done(row, t, "spawn", stated=True)], [], False
        backs = [d.row for d in causes if d.relation == "aggregate"]
        agent.gathers = backs if len(backs) > 1 else []
        self.rows[span.id] = row

    def _first(self, agent: _Agent, t: float, span: Span | None) -> None:
        """The beginning of an agent that none other spawned: asked by the person, or the next in a row."""
        if self.ended is not None and span is not None:
            agent.front = [_Done(d.row, d.end, "causal", span=d.span) for d in self.ended.front if d.end <= t]
        elif not self.rows and self.ended is None:
            row = self._ask(agent, t, span.input if span else None)
            agent.front = [_Done(row, t, "message", stated=True)]
        if span is not None:
            self.ended = agent

    def _ask(self, agent: _Agent, t: float, content: bytes | str | None) -> int:
        """The person gives a task; the time since the one before was done is the person's."""
        before = _last(self.run)
        if before is None or before[1] > t:
            return self.run.add("message", PERSON, t, to=agent.name, content=content)
        row = self.run.add("message", PERSON, before[1], end=t, to=agent.name, content=content)
        self.run.edge(before[0], row, "message", NEXT_PROMPT)
        return row

    def _causes(self, agent: _Agent, t: float, span: Span) -> list[_Done]:
        """What of this agent's own had ended and nothing has followed yet; else what was followed last. A turn that
        is still open when what it asked for begins ended there: some frameworks keep the span of the turn open
        meanwhile."""
        ready = [d for d in agent.front if d.end <= t]
        if len(ready) < len(agent.front) and span.kind != "model" and not any(d.row == agent.model for d in ready):
            for done in agent.front:
                turn = done.span
                if done.end > t and turn and turn.kind == "model" and span.parent in (turn.parent, turn.id):
                    done.end = t
                    ready.append(done)
        if ready:
            agent.front = [d for d in agent.front if d.end > t]
            agent.base = ready
        return agent.base

    def _join(self, causes: Iterable[_Done], row: int, aggregate: bool = False, spawn: bool = False) -> None:
        for done in causes:
            kind = done.relation
            if kind == "aggregate" and not aggregate:
                kind = "causal"
            elif kind == "causal" and spawn:
                kind = "spawn"
            self.run.edge(done.row, row, kind, None if done.stated else ORDER)

    def _model(self, span: Span, t: float) -> None:
        agent = self._of(span, t)
        causes = self._causes(agent, t, span)
        returned = bool(agent.gathers) or (agent.returned and any(d.relation == "aggregate" for d in causes))
        kind: EventType = "orchestrator_decision" if span.decides else "aggregate" if returned else "message"
        row = self.run.add(
            kind, agent.name, t, end=span.end, to=agent.name if kind == "message" else None, content=span.output,
            **{name: value for name in FIGURES if (value := getattr(span, name)) is not None},
        )  # fmt: skip
        if span.failed:
            self.run.set(row, valid=0)
        self._join(causes, row, aggregate=returned)
        for back in agent.gathers:
            self.run.edge(back, row, "aggregate", GATHERS)
        agent.gathers, agent.acts = [], True
        agent.front.append(_Done(row, t if span.end is None else span.end, "causal", span=span))
        if kind == "message":
            self.turns.append((row, agent))
        agent.model, agent.returned, agent.asked = row, False, False
        self.rows[span.id] = row

    def _call(self, span: Span, t: float) -> None:
        agent = self._of(span, t)
        causes = self._causes(agent, t, span)
        row = self.run.add(
            "tool_call", agent.name, t, end=span.end, tool=span.name, content=span.input,
            **{name: value for name in FIGURES if (value := getattr(span, name)) is not None},
        )  # fmt: skip
        agent.acts = agent.asked = True
        if span.cause in self.rows:
            self.run.edge(self.rows[span.cause], row, "causal")
        self._join([d for d in causes if d.row != self.rows.get(span.cause)], row)
        agent.front.append(_Done(row, t if span.end is None else span.end, "causal", span=span))
        self.rows[span.id] = row

    def _result(self, span: Span, t: float) -> None:
        agent, call = self._of(span, t), self.rows[span.id]
        complains = not span.failed and _complains(span.output)
        row = self.run.add(
            "tool_result", agent.name, t, tool=span.name, content=span.output,
            valid=0 if span.failed or complains else None, extra={"inferred": COMPLAINS} if complains else None,
        )  # fmt: skip
        self.run.edge(call, row, "return")
        for back in self.backs.pop(span.id, ()):
            self.run.edge(back, row, "return")
        for done in agent.front:
            if done.row == call:
                done.row, done.end, done.relation, done.span = row, t, "tool_dependency", None

    def _return(self, span: Span, t: float) -> None:
        agent = self.agents[span.id]
        agent.until = t
        if agent.parent is None or agent.passed:
            return
        row = self._answer(agent, span, t)
        if span.id in self.wrapper:
            self.backs.setdefault(self.wrapper[span.id].id, []).append(row)
        agent.front, agent.base = [], []
        agent.parent.front.append(_Done(row, t, "aggregate"))
        agent.parent.returned = True

    def _answer(self, agent: _Agent, span: Span, t: float) -> int:
        """The event by which an agent returns: its last turn if that only spoke, else one of its own. Of an agent
        that did nothing that is in the log it is known how long that took."""
        assert agent.parent is not None
        last = agent.front[0] if len(agent.front) == 1 else None
        if (
            last is not None
            and last.row == agent.model
            and not agent.asked
            and self.run.events[last.row]["type"] == _TURN
        ):
            self.run.set(last.row, type=_RETURNS, to=agent.parent.name)
            if span.failed:
                self.run.set(last.row, valid=0)
            return last.row
        began = t if agent.acts or span.start is None else span.start
        row = self.run.add(
            "return", agent.name, began, end=None if agent.acts else t, to=agent.parent.name, content=span.output,
            valid=0 if span.failed else None,
        )  # fmt: skip
        self._join(agent.front or agent.base, row)
        return row

    def _handoff(self, span: Span, t: float) -> None:
        agent = self._of(span, t)
        agent.leads = agent.acts = True
        agent.passed = bool(span.to)
        causes = self._causes(agent, t, span)
        row = self.run.add("message", agent.name, t, end=span.end, to=span.to or None, content=span.input)
        self._join(causes, row)
        if agent.model >= 0 and any(d.row == agent.model for d in causes):
            self.run.set(agent.model, decision=_DELEGATE)
        end = t if span.end is None else span.end
        agent.front.append(_Done(row, end, "causal"))
        if span.to:
            self.handoffs[span.to] = _Done(row, end, "message", stated=True)
        self.rows[span.id] = row

    def _guard(self, span: Span, t: float) -> None:
        """A guardrail that stopped something. One that let it pass is not an event."""
        if not span.failed:
            return
        agent = self._of(span, t)
        causes = self._causes(agent, t, span)
        row = self.run.add("safety_event", agent.name, t, end=span.end, tool=span.name, content=span.output)
        self._join(causes, row)
        self.rows[span.id] = row

    def _person(self, span: Span, t: float) -> None:
        agent = self._of(span, t)
        row = self.run.add("human_intervention", PERSON, t, end=span.end, to=agent.name, content=span.output)
        self._join(self._causes(agent, t, span), row)
        agent.front.append(_Done(row, t if span.end is None else span.end, "message", stated=True))
        self.rows[span.id] = row


def _complains(output: bytes | str | None) -> bool:
    """Whether what a tool returned is no more than an error in words: many tools end well and return one.

    >>> _complains("Error: status 401"), _complains(b'"Errors of measurement are"')
    (True, False)
    """
    start = output[:SHORT].encode() if isinstance(output, str) else output or b""
    return len(start) < SHORT and _ERROR.match(start) is not None


def figure_of(value: Any) -> float | None:
    """A figure that a log gives as a number or as text; None where it is none."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < float("inf") else None
