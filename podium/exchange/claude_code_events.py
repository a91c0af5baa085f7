"""The streams of a Claude Code session as events.

An agent's model turn is one event: a decision where it launches sub-agents, an aggregate where it is the first to
read what they returned, a return where it ends a sub-agent's work, else a message: to the person where the model
only speaks, to itself where it calls tools. It begins with what it answers. Each call is a `tool_call`, a launch
that was not refused a `spawn` besides.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import msgspec

from podium.exchange.build import PERSON
from podium.exchange.claude_code_records import Item, Launched, Stream, Turn
from podium.exchange.claude_code_session import MAIN, Session
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES, EdgeType

__all__ = ["EventWriter"]

LEAD = "main"
ASKS = ("AskUserQuestion", "ExitPlanMode")  # tools whose result is the person's answer
OUTSIDE = ("WebFetch", "WebSearch")  # tools that return what anybody could have written
EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
PROGRESS_S = 3  # seconds after which a shell shows progress
WAITED_S = 5.0  # a call that waited so many seconds waited for the person
NEXT_TURN, LAST_EVENT, SAME_PROMPT = "next turn of who was told", "last event before the return", "same prompt"
NEXT_PROMPT = "next prompt after an answer"
_MESSAGE, _DECIDES, _AGGREGATE, _RETURN, _CALL, _RESULT = map(
    EVENT_TYPES.index, ("message", "orchestrator_decision", "aggregate", "return", "tool_call", "tool_result")
)
_SPAWN = DECISIONS.index("spawn")
_FAILED = re.compile(r"<status>\s*(failed|stopped|killed)")
_FIGURE = re.compile(r"<(subagent_tokens|total_tokens|tool_uses|duration_ms)>(\d{1,15})</\1>")


class AgentState:
    """How far an agent's stream was written."""

    __slots__ = ("born", "inputs", "last", "name", "parent", "rests", "returns", "since", "turn", "turn_row")

    def __init__(self, name: str, parent: str, spawn: int | None) -> None:
        self.name, self.parent = name, parent
        self.last: int | None = None  # its last event
        self.born = spawn  # the spawn that its next event follows from
        self.inputs: list[tuple[EdgeType, int]] = []  # what its next turn answers
        self.returns: list[int] = []  # of sub-agents, that its next turn reads
        self.since: float | None = None  # when the last of them came
        self.turn: Turn | None = None  # its last turn
        self.turn_row: int | None = None
        self.rests: tuple[int, float] | None = None  # the event since which, and the time, it waits for the person

    def take(self, type: EdgeType, row: int, t: float | None) -> None:
        """Notes what its next turn answers."""
        self.inputs.append((type, row))
        self.wait(t)

    def wait(self, t: float | None) -> None:
        if t is not None and (self.since is None or t > self.since):
            self.since = t


class EventWriter:
    """Writes the streams of a session into its run."""

    def __init__(self, session: Session) -> None:
        self.session, self.run = session, session.run
        self.rows: dict[str, int] = {}  # calls by id
        self.turn_rows: dict[str, int] = {}
        self.returned: dict[str, int] = {}  # agents to their last return
        self.answers: dict[str, int] = {}  # launches to the return that they ended with
        self.states: dict[str, AgentState] = {}
        self.rounds: dict[str, list[tuple[int, int]]] = {}  # agents to their spawns and what each ended with
        self.unread: set[int] = set()  # returns that nobody was told of yet
        self.early: dict[str, tuple[AgentState, Item]] = {}  # results that the log has before their calls
        self.prompts, self.task = 0, 0
        self.pending: Item | None = None  # a command of the person's that may be nothing to the model

    def write(self) -> None:
        session = self.session
        lead = self.states[MAIN] = AgentState(LEAD, PERSON, None)
        self.write_stream(session.streams[MAIN], lead, None)
        for key, stream in session.streams.items():
            if key not in self.states:
                if stream.place is not None:
                    session.fault(
                        stream.place, f"no launch of the agent {key!r} is in the log; imported without one"
                    )
                self.states[key] = AgentState(key, LEAD, None)
                self.write_stream(stream, self.states[key], None)
        if not session.has_main and (first := next((s.place for s in session.streams.values() if s.place), None)):
            session.run.fault(first[0], None, "the main file of the session is missing")
        for rounds in self.rounds.values():
            self._mark_overlaps(rounds)
        self.run.topology = "centralized" if len(self.states) > 1 else None

    def _mark_overlaps(self, rounds: list[tuple[int, int]]) -> None:
        """Marks the returns of an agent that was launched again before it had returned: which launch one answers is
        not in the log."""
        events = self.run.events
        for (_, back), (spawn, again) in pairwise(rounds):
            ended, begun = events[back].get("end") or events[back]["t"], events[spawn]["t"]
            if ended is None or begun is None or begun < ended:
                self.run.set(back, truncated=1)
                self.run.set(again, truncated=1)

    def write_stream(self, stream: Stream, who: AgentState, until: float | None) -> None:
        """Writes what an agent did, up to a time where that is given."""
        items = stream.items
        while stream.at < len(items):
            item = items[stream.at]
            if until is not None and item.t is not None and item.t > until:
                return
            stream.at += 1
            _WRITE[item.kind](self, who, item)

    def _add(self, who: AgentState, type: Any, item: Item, **fields: Any) -> int:
        row = self.run.add(type, who.name, item.t, task=self.task, **fields)
        self._own(who, row)
        return row

    def _own(self, who: AgentState, row: int) -> None:
        """Notes an event as the agent's last."""
        if who.born is not None:
            self.run.edge(who.born, row, "spawn")
            who.born = None
        who.last = row

    # the person

    def _on_prompt(self, who: AgentState, item: Item) -> None:
        self.pending = None
        if who.name == LEAD:
            self.task, self.prompts = self.prompts, self.prompts + 1
        source = PERSON if who.name == LEAD else who.parent
        since, before = item.t, None
        if who.rests is not None and item.t is not None and who.name == LEAD:
            before, since = who.rests[0], min(who.rests[1], item.t)
        row = self.run.add(
            "message", source, since, end=None if before is None else item.t, to=who.name, task=self.task,
            content=item.text,
        )  # fmt: skip
        if before is not None and self.run.events[before]["agent"] != PERSON:
            self.run.edge(before, row, "message", NEXT_PROMPT)
        who.rests = None
        who.take("message", row, item.t)

    def _on_command(self, who: AgentState, item: Item) -> None:
        self.pending = item

    def _on_injected(self, who: AgentState, item: Item) -> None:
        who.wait(item.t)

    def _on_interrupt(self, who: AgentState, item: Item) -> None:
        row = self.run.add("human_intervention", PERSON, item.t, to=who.name, task=self.task, content=item.text)
        if who.last is not None:
            self.run.edge(who.last, row, "causal", "what was interrupted")
        who.rests = None if item.t is None else (row, item.t)
        who.take("causal", row, item.t)

    # the model

    def _on_turn(self, who: AgentState, item: Item, extra: dict[str, Any] | None = None) -> None:
        turn = item.turn
        assert turn is not None
        if self.pending is not None and who.name == LEAD:
            self._on_prompt(who, self.pending)
        spawns = not self.session.launches.keys().isdisjoint(turn.calls)
        begun = turn.t if who.since is None or (turn.t is not None and who.since > turn.t) else who.since
        event: dict[str, Any] = {
            "type": _MESSAGE,
            "agent": who.name,
            "t": begun,
            "end": turn.end,
            "task": self.task,
        }
        if who.returns:
            event["type"] = _AGGREGATE
        elif spawns:
            event["type"], event["decision"] = _DECIDES, _SPAWN
        else:
            event["to"] = who.name if turn.calls else who.parent
        _bill(event, turn)
        if extra:
            event["extra"] = extra
        row = self.run.append(event)
        self._own(who, row)
        if turn.texts:
            whole = turn.texts[0] if len(turn.texts) == 1 else b"[" + b",".join(turn.texts) + b"]"
            self.run.set_content(row, whole)
        for kind, cause in who.inputs:
            self.run.edge(cause, row, kind)
        for back in who.returns:
            self.run.edge(back, row, "aggregate", NEXT_TURN)
        if who.returns and spawns:
            row = self._decide(who, turn, row)
        who.inputs, who.returns, who.turn, who.turn_row = [], [], turn, row
        who.rests = None if turn.calls or turn.end is None else (row, turn.end)
        self.turn_rows[turn.id] = row
        who.since = None  # what comes next began when the log first has it, unless something is heard before

    def _decide(self, who: AgentState, turn: Turn, read: int) -> int:
        """A turn that reads what came back and launches again decides after it has read, before its first call."""
        times = (turn.end, *(self.session.calls[call].t for call in turn.calls))
        t = min((at for at in times if at is not None), default=None)
        row = self.run.add("orchestrator_decision", who.name, t, task=self.task, decision="spawn")
        self._own(who, row)
        self.run.edge(read, row, "causal")
        return row

    def _on_compacting(self, who: AgentState, item: Item) -> None:
        since, inputs, returns = who.since, who.inputs, who.returns
        who.since, who.inputs, who.returns = None, [], []
        self._on_turn(who, item, {"compaction": True})
        who.since, who.inputs, who.returns = since, inputs, returns

    def _on_compaction(self, who: AgentState, item: Item) -> None:
        about = {"trigger": item.given.get("trigger"), "tokens": item.given.get("preTokens")}
        known = {k: v for k, v in about.items() if v is not None}
        self._add(who, "message", item, to=who.name, extra={"compacted": known})
        who.wait(item.t)

    def _on_stopped(self, who: AgentState, item: Item) -> None:
        row = self._add(who, "safety_event", item, extra={"why": "a stop hook prevented continuation"})
        who.take("safety_flow", row, item.t)

    # tools

    def _on_call(self, who: AgentState, item: Item) -> None:
        assert item.turn is not None
        answer = self.session.results.get(item.id)
        launch = item.id in self.session.launches
        by = self.turn_rows.get(item.turn.id)
        approved, end = None, item.t
        if not (launch or item.tool in ASKS or (answer is not None and answer.refusal)):
            end = None if answer is None else answer.t
            approved = self._approve(who, item, answer, by)
        event = {"type": _CALL, "agent": who.name, "t": item.t, "end": end, "task": self.task}
        event["tool"] = item.tool or "unnamed"
        row = self.run.append(event)
        self._own(who, row)
        if item.content is not None:
            self.run.set_content(row, item.content)
        self.rows[item.id] = row
        if by is not None:
            self.run.edge(by, row, "causal")
        if approved is not None:
            leave = self.run.events[approved]
            event["t"] = leave["end"]
            self.run.edge(approved, row, "message", leave["extra"]["inferred"])
        if launch:
            self._launch(who, item, row, by)
        elif item.given:
            self._on_other(who, item, row)
        if early := self.early.pop(item.id, None):
            self._on_result(*early)

    def _approve(self, who: AgentState, item: Item, answer: Item | None, by: int | None) -> int | None:
        """The person's leave to run a tool, where the log shows that the call waited before it ran."""
        if item.t is None or answer is None or answer.t is None or answer.t - item.t < WAITED_S:
            return None
        began, rule = self.session.began.get(item.id), "the command began later than the call"
        if began is None and item.tool in EDITS:
            began, rule = answer.t, "an edit takes no time"
        elif began is None and item.tool == "Bash" and self.session.began:
            began, rule = answer.t - PROGRESS_S, f"a command of more than {PROGRESS_S} s shows progress"
        if began is None or min(began, answer.t) - item.t < WAITED_S:
            return None
        extra = {"what": "approved", "inferred": rule}
        end = min(began, answer.t)
        row = self.run.add("message", PERSON, item.t, end=end, to=who.name, task=self.task, extra=extra)
        if by is not None:
            self.run.edge(by, row, "message", rule)
        return row

    def _on_result(self, who: AgentState, item: Item) -> None:
        call, request = self.rows.get(item.id), self.session.calls.get(item.id)
        if call is None and request is not None:
            self.early[item.id] = who, item
            return
        tool = request.tool if request is not None else None
        answer = self._answer(who, item, tool, call) if item.refusal or tool in ASKS else None
        event: dict[str, Any] = {"type": _RESULT, "agent": who.name, "t": item.t, "task": self.task}
        if tool:
            event["tool"] = tool
        else:
            event["truncated"] = 1
        if item.failed:
            event["valid"] = 0
        if tool in OUTSIDE:
            event["trusted"] = 0
        row = self.run.append(event)
        self._own(who, row)
        assert item.content is not None
        self.run.set_content(row, item.content)
        if call is None:
            self.session.fault(item.place, f"a result of the call {item.id!r}, which is not in the log")
        else:
            self.run.edge(call, row, "return")
        if answer is not None:
            self.run.edge(answer, row, "message")
        back = self.answers.get(item.id)
        if back is not None and self._end_of(item.id, "") is self.session.results.get(item.id):
            self.run.edge(back, row, "return")
            who.returns.append(back)
        who.take("tool_dependency", row, item.t)

    def _answer(self, who: AgentState, item: Item, tool: str | None, call: int | None) -> int | None:
        """What the person, or a permission, had to do with a result."""
        if call is None:
            return None
        if item.refusal == "denied":
            row = self._add(who, "safety_event", item, tool=tool, extra={"why": "permission denied"})
            self.run.edge(call, row, "safety_flow")
            return None
        start = self.run.events[call]["t"]
        since = item.t if start is None or item.t is None else min(start, item.t)
        row = self.run.add(
            "human_intervention", PERSON, since, end=item.t, to=who.name, task=self.task,
            extra={"what": "refused" if item.refusal else "answered"},
        )  # fmt: skip
        self.run.edge(call, row, "message")
        if item.refusal and item.t is not None:
            who.rests = row, item.t
        return row

    # sub-agents

    def _launch(self, who: AgentState, item: Item, call: int, decision: int | None) -> None:
        session = self.session
        answer, launch = session.results.get(item.id), session.launches[item.id]
        key = session.agent_of.get(item.id) or launch.resume or f"agent of {item.id}"
        stream = session.streams.get(key)
        if answer is not None and answer.failed and not (stream and stream.items):
            return  # refused
        launched = session.launched.get(item.id)
        role = launch.subagent_type or (launched.agentType if launched else None)
        content = launch.prompt if launch.prompt is not None else launch.description
        spawn = self._add(who, "spawn", item, to=key, role=role, content=content)
        self.run.edge(call, spawn, "causal")
        if decision is not None:
            self.run.edge(decision, spawn, "spawn", SAME_PROMPT if key.startswith("chain:") else None)
        child = self.states.get(key)
        if child is None:
            child = self.states[key] = AgentState(key, who.name, spawn)
        child.born, child.since = spawn, item.t
        again = any(a == key and c != item.id and c not in self.rows for c, a in session.agent_of.items())
        end = self._end_of(item.id, key)
        if stream is not None:
            self.write_stream(stream, child, end.t if again and end is not None else None)
        if end is not None:
            self._return(who, child, item.id, spawn, end, launched)

    def _end_of(self, call: str, key: str) -> Item | None:
        """What tells that a launch has ended: its result, or the first notice of an agent that runs on its own."""
        launched = self.session.launched.get(call)
        if launched is not None and (launched.isAsync or launched.status in ("async_launched", "teammate_spawned")):
            return self.session.notices.get(key)
        return self.session.results.get(call)

    def _return(
        self, parent: AgentState, child: AgentState, call: str, spawn: int, end: Item, launched: Launched | None
    ) -> None:
        silent = child.born is not None  # nothing it did is in the log
        extra = _stated(end, launched)
        last = child.last
        if last is not None and child.turn is not None and not child.turn.calls and child.turn_row == last:
            row, event = last, self.run.events[last]  # its last words are what it returns
            event |= {"type": _RETURN, "to": parent.name, "extra": (event.get("extra") or {}) | extra}
        else:
            begun = self._began_work(spawn, end, extra.get("duration_ms")) if silent else end.t
            row = self.run.add(
                "return", child.name, begun, end=end.t if silent else None, to=parent.name, task=self.task,
                extra=extra,
            )  # fmt: skip
            self._own(child, row)
            if last is not None and not silent:
                self.run.edge(last, row, "causal", LAST_EVENT)
        self.run.edge(spawn, row, "causal")  # the log says which launch it ends
        if end.failed or _FAILED.search(end.text):
            self.run.set(row, valid=0)
        if "content_ref" not in self.run.events[row]:
            if end.content is not None:
                self.run.set_content(row, end.content)
            elif end.text:
                self.run.set_content(row, end.text.partition("<result>")[2].partition("</result>")[0])
        self.answers[call] = self.returned[child.name] = row
        self.rounds.setdefault(child.name, []).append((spawn, row))
        child.inputs, child.turn = [], None
        if end.kind == "notice":
            self.unread.add(row)

    def _began_work(self, spawn: int, end: Item, duration_ms: float | None) -> float | None:
        """When a sub-agent began to work of which the log has only the end: as long before it as it says it
        took."""
        begun: float | None = self.run.events[spawn]["t"]
        if begun is None or end.t is None or duration_ms is None:
            return begun
        return max(begun, end.t - duration_ms / 1000)

    def _on_other(self, who: AgentState, item: Item, call: int) -> None:
        """A call that concerns another agent: a text for it, or the end of its task."""
        given = item.given
        if item.tool == "SendMessage":
            to = given.get("recipient") or given.get("to") or given.get("target_agent_id")
            if not isinstance(to, str) or not to:
                return
            row = self._add(who, "message", item, to=to, content=item.content)
            other = self.states.get(to)
            if other is not None:
                other.inputs.append(("message", row))
        else:
            to = given.get("task_id")
            if not isinstance(to, str) or to not in self.states:
                return
            row = self._add(who, "message", item, to=to, extra={"what": "stop"})
        self.run.edge(call, row, "causal")

    def _on_teammate(self, who: AgentState, item: Item) -> None:
        other = self.states.get(item.id)
        if other is not None and other.born is not None:
            row = self._add(other, "message", item, to=who.name, content=item.text)
        else:
            name = item.id or "teammate"
            row = self.run.add("message", name, item.t, to=who.name, task=self.task, content=item.text)
        who.take("message", row, item.t)

    def _on_notice(self, who: AgentState, item: Item) -> None:
        """An agent is told that another has ended."""
        row = self.returned.get(item.id)
        if row is not None and row in self.unread:
            self.unread.discard(row)
            who.returns.append(row)
        who.wait(item.t)


_WRITE = {name.removeprefix("_on_"): f for name, f in vars(EventWriter).items() if name.startswith("_on_")}


def _stated(end: Item, launched: Launched | None) -> dict[str, Any]:
    """What a log states of the work of a sub-agent that has ended."""
    stated: dict[str, Any] = {}
    if launched is not None and launched.usage is not None and not launched.isAsync:
        stated["last_usage"] = {k: v for k, v in msgspec.structs.asdict(launched.usage).items() if v is not None}
    if launched is not None:
        figures = {
            "tool_uses": launched.totalToolUseCount,
            "context_tokens": launched.totalTokens,
            "duration_ms": launched.totalDurationMs,
            "agent_model": launched.resolvedModel,
        }
        stated |= {k: v for k, v in figures.items() if v is not None}
    if end.kind == "notice":
        noticed: dict[str, str] = {}
        for name, number in _FIGURE.findall(end.text):
            noticed.setdefault(name, number)
        for name in ("subagent_tokens", "total_tokens", "tool_uses", "duration_ms"):
            if name in noticed:
                stated["context_tokens" if "tokens" in name else name] = int(noticed[name])
    return stated


def _bill(event: dict[str, Any], turn: Turn) -> None:
    """What a turn cost. Its output tokens are known only if a line says why it stopped: else they are a snapshot of
    the start."""
    usage = turn.usage
    if turn.model is not None:
        event["model"] = turn.model
    if turn.cost is not None:
        event["cost"] = turn.cost
    if usage is not None:
        event["tokens_in"], event["cache_read"] = usage.input_tokens, usage.cache_read_input_tokens
        event["cache_write"], event["cache_write_1h"] = usage.cache_creation_input_tokens, usage.hour()
        if turn.stopped:
            event["tokens_out"] = usage.output_tokens
