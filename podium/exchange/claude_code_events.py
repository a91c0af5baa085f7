"""The streams of a Claude Code session as events.

An agent's model turn is one event: a decision where it launches sub-agents, an aggregate where it is the first to read what they
returned, a return where it ends a sub-agent's work, else a message: to the person where the model only speaks, to itself where it
calls tools. It begins with what it answers. Each call is a `tool_call`, a launch that was not refused a `spawn` besides.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from podium.exchange.build import PERSON
from podium.exchange.claude_code_records import Item, Launched, Stream, Turn

if TYPE_CHECKING:
    from podium.exchange.claude_code import Session

__all__ = ["Telling"]

LEAD = "main"
ASKS = ("AskUserQuestion", "ExitPlanMode")  # tools whose result is the person's answer
OUTSIDE = ("WebFetch", "WebSearch")  # tools that return what anybody could have written
REFUSED = ("The user doesn't want to", "The user rejected", "[Request interrupted")
DENIED = ("Permission to use", "Claude requested permissions", "denied by")
EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
PROGRESS_S, WAITED_S = (
    3,
    5.0,
)  # seconds: a shell shows progress after; a call that waited this long waited for the person
NEXT_TURN, LAST_EVENT, SAME_PROMPT = "next turn of who was told", "last event before the return", "same prompt"
NEXT_PROMPT = "next prompt after an answer"


class Told:
    """How far an agent's stream was told."""

    def __init__(self, name: str, parent: str, spawn: int | None) -> None:
        self.name, self.parent = name, parent
        self.last: int | None = None  # its last event
        self.born = spawn  # the spawn that its next event follows from
        self.inputs: list[tuple[Any, int]] = []  # what its next turn answers: edge type, event
        self.returns: list[int] = []  # of sub-agents, that its next turn reads
        self.since: float | None = None  # when the last of them came
        self.turn: Turn | None = None  # its last turn
        self.turn_row: int | None = None
        self.rests: tuple[int, float] | None = None  # the event since which, and the time, it waits for the person


class Telling:
    def __init__(self, session: Session) -> None:
        self.session, self.run = session, session.run
        self.rows: dict[str, int] = {}  # calls by id
        self.turn_rows: dict[str, int] = {}
        self.returned: dict[str, int] = {}  # agents to their last return
        self.answers: dict[str, int] = {}  # launches to the return that they ended with
        self.told: dict[str, Told] = {}
        self.rounds: dict[str, list[tuple[int, int]]] = {}  # agents to their spawns and what each ended with
        self.unread: set[int] = set()  # returns that nobody was told of yet
        self.early: dict[str, tuple[Told, Item]] = {}  # results that the log has before their calls
        self.task = -1
        self.pending: Item | None = None  # a command of the person's that may be nothing to the model

    def tell(self) -> None:
        session = self.session
        lead = self.told[""] = Told(LEAD, PERSON, None)
        self.stream(session.streams[""], lead, None)
        for key, stream in session.streams.items():
            if key and key not in self.told:
                place = stream.place
                if place is not None:
                    session.fault(place, f"no launch of the agent {key!r} is in the log; imported without one")
                self.told[key] = Told(key, LEAD, None)
                self.stream(stream, self.told[key], None)
        if not session.main_seen and (first := next((s.place for s in session.streams.values() if s.place), None)):
            session.run.fault(first.file, None, "the main file of the session is missing")
        for rounds in self.rounds.values():
            self._overlaps(rounds)
        self.run.topology = "centralized" if any(r for r in self.told if r) else None

    def _overlaps(self, rounds: list[tuple[int, int]]) -> None:
        """Marks the returns of an agent that was launched again before it had returned: which launch one answers is not in the log."""
        events = self.run.events
        for (_, back), (spawn, again) in pairwise(rounds):
            ended, begun = events[back].get("end") or events[back]["t"], events[spawn]["t"]
            if ended is None or begun is None or begun < ended:
                self.run.set(back, truncated=1)
                self.run.set(again, truncated=1)

    def add(self, who: Told, type: Any, item: Item, t: float | None = None, **fields: Any) -> int:
        row = self.run.add(type, who.name, item.t if t is None else t, task=max(self.task, 0), **fields)
        if who.born is not None:
            self.run.edge(who.born, row, "spawn")
            who.born = None
        who.last = row
        return row

    def stream(self, stream: Stream, who: Told, until: float | None) -> None:
        """Tells what an agent did, up to a time where that is given."""
        while stream.at < len(stream.items):
            item = stream.items[stream.at]
            if until is not None and item.t is not None and item.t > until:
                return
            stream.at += 1
            getattr(self, f"_{item.kind}")(who, item)

    # the person

    def _prompt(self, who: Told, item: Item) -> None:
        self.pending = None
        if who.name == LEAD:
            self.task += 1
        source = PERSON if who.name == LEAD else who.parent
        since, before = item.t, None
        if who.rests is not None and item.t is not None and who.name == LEAD:
            before, since = who.rests[0], min(who.rests[1], item.t)
        row = self.run.add(
            "message", source, since, end=None if before is None else item.t, to=who.name, task=max(self.task, 0),
            content=item.text,
        )  # fmt: skip
        if before is not None and self.run.events[before]["agent"] != PERSON:
            self.run.edge(before, row, "message", NEXT_PROMPT)
        who.rests = None
        self._heard(who, "message", row, item.t)

    def _command(self, who: Told, item: Item) -> None:
        self.pending = item

    def _injected(self, who: Told, item: Item) -> None:
        self._later(who, item.t)

    def _interrupt(self, who: Told, item: Item) -> None:
        row = self.run.add(
            "human_intervention", PERSON, item.t, to=who.name, task=max(self.task, 0), content=item.text
        )
        if who.last is not None:
            self.run.edge(who.last, row, "causal", "what was interrupted")
        who.rests = None if item.t is None else (row, item.t)
        self._heard(who, "causal", row, item.t)

    def _heard(self, who: Told, type: str, row: int, t: float | None) -> None:
        who.inputs.append((type, row))
        self._later(who, t)

    def _later(self, who: Told, t: float | None) -> None:
        if t is not None and (who.since is None or t > who.since):
            who.since = t

    # the model

    def _turn(self, who: Told, item: Item, **extra: Any) -> None:
        turn = item.turn
        assert turn is not None
        if self.pending is not None and who.name == LEAD:
            self._prompt(who, self.pending)
        launches = [c for c in turn.calls if c in self.session.launches]
        type, fields = "message", dict[str, Any](to=who.name)
        if who.returns:
            type, fields = "aggregate", {}
        elif launches:
            type, fields = "orchestrator_decision", {"decision": "spawn"}
        elif not turn.calls:
            fields = {"to": who.parent}
        begun = turn.t if who.since is None or (turn.t is not None and who.since > turn.t) else who.since
        row = self.add(who, type, item, t=begun, end=turn.end, extra=extra or None, **fields, **_spent(turn))
        if turn.texts:
            self.run.set_content(row, turn.texts[0] if len(turn.texts) == 1 else _joined(turn.texts))
        for kind, cause in who.inputs:
            self.run.edge(cause, row, kind)
        for back in who.returns:
            self.run.edge(back, row, "aggregate", NEXT_TURN)
        if who.returns and launches:
            row = self._decision(who, item, row)
        who.inputs, who.returns, who.turn, who.turn_row = [], [], turn, row
        who.rests = None if turn.calls or turn.end is None else (row, turn.end)
        self.turn_rows[turn.id] = row
        who.since = None  # what comes next began when the log first has it, unless something is heard before

    def _decision(self, who: Told, item: Item, turn: int) -> int:
        """A turn that reads what came back and launches again decides after it has read."""
        assert item.turn is not None
        row = self.add(who, "orchestrator_decision", item, t=item.turn.end, decision="spawn")
        self.run.edge(turn, row, "causal")
        return row

    def _compacting(self, who: Told, item: Item) -> None:
        since, inputs, returns = who.since, who.inputs, who.returns
        who.since, who.inputs, who.returns = None, [], []
        self._turn(who, item, compaction=True)
        who.since, who.inputs, who.returns = since, inputs, returns

    def _compaction(self, who: Told, item: Item) -> None:
        raw = bytes(item.result)
        about = msgspec.json.decode(raw) if raw else {}
        about = about if isinstance(about, dict) else {}
        known = {"trigger": about.get("trigger"), "tokens": about.get("preTokens")}
        self.add(
            who,
            "message",
            item,
            to=who.name,
            extra={"compacted": {k: v for k, v in known.items() if v is not None}},
        )
        self._later(who, item.t)

    def _stopped(self, who: Told, item: Item) -> None:
        row = self.add(who, "safety_event", item, extra={"why": "a stop hook prevented continuation"})
        self._heard(who, "safety_flow", row, item.t)

    # tools

    def _call(self, who: Told, item: Item) -> None:
        block, turn = item.block, item.turn
        assert block is not None
        assert block.id is not None
        assert turn is not None
        answer = self.session.results.get(block.id)
        launch = block.id in self.session.launches
        person = block.name in ASKS or (answer is not None and _refused(answer))
        end = None if answer is None or launch or person else answer.t
        if launch or person:
            end = item.t
        by = self.turn_rows.get(turn.id)
        approved = None if launch or person else self._approved(who, item, answer, by)
        row = self.add(
            who, "tool_call", item, t=item.t if approved is None else self.run.events[approved]["end"], end=end,
            tool=block.name or "unnamed", content=block.input if len(memoryview(block.input)) else None,
        )  # fmt: skip
        self.rows[block.id] = row
        if by is not None:
            self.run.edge(by, row, "causal")
        if approved is not None:
            self.run.edge(approved, row, "message", self.run.events[approved]["extra"]["inferred"])
        if launch:
            self._launch(who, item, row, by)
        elif block.name == "SendMessage":
            self._send(who, item, row)
        elif block.name in ("TaskStop", "KillShell"):
            self._stop(who, item, row)
        if early := self.early.pop(block.id, None):
            self._result(*early)

    def _approved(self, who: Told, item: Item, answer: Item | None, by: int | None) -> int | None:
        """The person's leave to run a tool, where the log shows that the call waited before it ran."""
        block = item.block
        assert block is not None
        assert block.id is not None
        if item.t is None or answer is None or answer.t is None:
            return None
        began, rule = self.session.began.get(block.id), "the command began later than the call"
        if began is None and block.name in EDITS:
            began, rule = answer.t, "an edit takes no time"
        elif began is None and block.name == "Bash" and self.session.began:
            began, rule = answer.t - PROGRESS_S, f"a command of more than {PROGRESS_S} s shows progress"
        if began is None or min(began, answer.t) - item.t < WAITED_S:
            return None
        began = min(began, answer.t)
        extra = {"what": "approved", "inferred": rule}
        row = self.run.add("message", PERSON, item.t, end=began, to=who.name, task=max(self.task, 0), extra=extra)
        if by is not None:
            self.run.edge(by, row, "message", rule)
        return row

    def _launch(self, who: Told, item: Item, call: int, decision: int | None) -> None:
        session, block = self.session, item.block
        assert block is not None
        assert block.id is not None
        answer, launch = session.results.get(block.id), session.launches[block.id]
        key = session.agent_of.get(block.id) or launch.resume or f"agent of {block.id}"
        stream = session.streams.get(key)
        if (
            answer is not None
            and answer.block is not None
            and answer.block.is_error
            and not (stream and stream.items)
        ):
            return  # refused
        said = session.launched.get(block.id)
        role = launch.subagent_type or (said.agentType if said else None)
        content = launch.prompt if launch.prompt is not None else launch.description
        spawn = self.add(
            who, "spawn", item, to=key, role=role,
            content=content,
        )  # fmt: skip
        self.run.edge(call, spawn, "causal")
        if decision is not None:
            guessed = SAME_PROMPT if key.startswith("chain:") else None
            self.run.edge(decision, spawn, "spawn", guessed)
        child = self.told.get(key)
        if child is None:
            child = self.told[key] = Told(key, who.name, spawn)
        child.born, child.since = spawn, item.t
        again = [c for c, a in session.agent_of.items() if a == key and c != block.id and c not in self.rows]
        ended = self._ended(block.id, key)
        if stream is not None:
            self.stream(stream, child, ended.t if again and ended is not None else None)
        if ended is not None:
            self._return(who, child, block.id, spawn, ended, said)

    def _ended(self, call: str, key: str) -> Item | None:
        """What tells that a launch has ended: its result, or the first notice of an agent that runs on its own."""
        said, answer = self.session.launched.get(call), self.session.results.get(call)
        if said is not None and (said.isAsync or said.status in ("async_launched", "teammate_spawned")):
            return self.session.notices.get(key)
        return answer

    def _return(self, parent: Told, child: Told, call: str, spawn: int, ended: Item, said: Launched | None) -> None:
        silent = child.born is not None  # nothing it did is in the log
        extra: dict[str, Any] = {}
        if said is not None and said.usage is not None and not said.isAsync:
            used = msgspec.structs.asdict(said.usage)
            extra["last_usage"] = {k: v for k, v in used.items() if v is not None}
        if said is not None:
            stated = {
                "tool_uses": said.totalToolUseCount,
                "context_tokens": said.totalTokens,
                "duration_ms": said.totalDurationMs,
                "agent_model": said.resolvedModel,
            }
            extra |= {k: v for k, v in stated.items() if v is not None}
        if ended.kind == "notice":
            for name in ("subagent_tokens", "total_tokens", "tool_uses", "duration_ms"):
                if number := re.search(rf"<{name}>(\d{{1,15}})</{name}>", ended.text):
                    extra["context_tokens" if "tokens" in name else name] = int(number[1])
        failed = ended.block is not None and ended.block.is_error
        failed = failed or re.search(r"<status>\s*(failed|stopped|killed)", ended.text) is not None
        last, speaks = child.last, child.turn is not None and not child.turn.calls and child.turn_row == child.last
        if speaks and last is not None:
            event = self.run.events[last]
            event |= {"type": _RETURN, "to": parent.name, "extra": (event.get("extra") or {}) | extra}
            row = last
        else:
            begun = self._worked_from(spawn, ended, extra.get("duration_ms")) if silent else ended.t
            row = self.add(
                child, "return", ended, t=begun, end=ended.t if silent else None, to=parent.name, extra=extra
            )
            if last is not None and not silent:
                self.run.edge(last, row, "causal", LAST_EVENT)
        self.run.edge(spawn, row, "causal")  # the log says which launch it ends
        if failed:
            self.run.set(row, valid=0)
        if ended.block is not None and "content_ref" not in self.run.events[row]:
            self.run.set_content(row, ended.block.content if len(memoryview(ended.block.content)) else b"null")
        elif ended.text and "content_ref" not in self.run.events[row]:
            result = re.search(r"<result>(.*?)(?:</result>|\Z)", ended.text, re.DOTALL)
            self.run.set_content(row, result[1] if result else "")
        self.answers[call] = self.returned[child.name] = row
        self.rounds.setdefault(child.name, []).append((spawn, row))
        child.inputs, child.turn = [], None
        if ended.kind == "notice":
            self.unread.add(row)

    def _worked_from(self, spawn: int, ended: Item, duration_ms: float | None) -> float | None:
        """When a sub-agent began to work of which the log has only the end: as long before it as it says it took."""
        begun: float | None = self.run.events[spawn]["t"]
        if begun is None or ended.t is None or duration_ms is None:
            return begun
        return max(begun, ended.t - duration_ms / 1000)

    def _result(self, who: Told, item: Item) -> None:
        block = item.block
        assert block is not None
        assert block.tool_use_id is not None
        call = self.rows.get(block.tool_use_id)
        asked = self.session.calls.get(block.tool_use_id)
        if call is None and asked is not None:
            self.early[block.tool_use_id] = who, item
            return
        tool = asked.block.name if asked is not None and asked.block is not None else None
        fields: dict[str, Any] = {"tool": tool} if tool else {"truncated": 1}
        if block.is_error:
            fields["valid"] = 0
        if tool in OUTSIDE:
            fields["trusted"] = 0
        answer = self._answered(who, item, tool, call)
        row = self.add(
            who, "tool_result", item, content=block.content if len(memoryview(block.content)) else b"null", **fields
        )
        if call is None:
            self.session.fault(item.place, f"a result of the call {block.tool_use_id!r}, which is not in the log")
        else:
            self.run.edge(call, row, "return")
        if answer is not None:
            self.run.edge(answer, row, "message")
        back = self.answers.get(block.tool_use_id)
        ended = self.session.results.get(block.tool_use_id)
        if back is not None and self._ended(block.tool_use_id, "") is ended:
            self.run.edge(back, row, "return")
            who.returns.append(back)
        self._heard(who, "tool_dependency", row, item.t)

    def _answered(self, who: Told, item: Item, tool: str | None, call: int | None) -> int | None:
        """What the person, or a permission, had to do with a result."""
        refused = _refused(item)
        if call is None or not (refused or tool in ASKS):
            return None
        if refused == "denied":
            row = self.add(who, "safety_event", item, tool=tool, extra={"why": "permission denied"})
            self.run.edge(call, row, "safety_flow")
            return None
        start = self.run.events[call]["t"]
        since = item.t if start is None or item.t is None else min(start, item.t)
        row = self.run.add(
            "human_intervention", PERSON, since, end=item.t, to=who.name, task=max(self.task, 0),
            extra={"what": "refused" if refused else "answered"},
        )  # fmt: skip
        self.run.edge(call, row, "message")
        if refused and item.t is not None:
            who.rests = row, item.t
        return row

    # other agents

    def _send(self, who: Told, item: Item, call: int) -> None:
        assert item.block is not None
        given = _object(item.block.input)
        to = given.get("recipient") or given.get("to") or given.get("target_agent_id")
        if not isinstance(to, str) or not to:
            return
        row = self.add(who, "message", item, to=to, content=item.block.input)
        self.run.edge(call, row, "causal")
        other = self.told.get(to)
        if other is not None:
            other.inputs.append(("message", row))

    def _stop(self, who: Told, item: Item, call: int) -> None:
        assert item.block is not None
        task = _object(item.block.input).get("task_id")
        if isinstance(task, str) and task in self.told:
            row = self.add(who, "message", item, to=task, extra={"what": "stop"})
            self.run.edge(call, row, "causal")

    def _teammate(self, who: Told, item: Item) -> None:
        other = self.told.get(item.id)
        name = item.id or "teammate"
        if other is not None and other.born is not None:
            row = self.add(other, "message", item, to=who.name, content=item.text)
        else:
            row = self.run.add("message", name, item.t, to=who.name, task=max(self.task, 0), content=item.text)
        self._heard(who, "message", row, item.t)

    def _notice(self, who: Told, item: Item) -> None:
        """An agent is told that another has ended."""
        row = self.returned.get(item.id)
        if row is not None and row in self.unread:
            self.unread.discard(row)
            who.returns.append(row)
        self._later(who, item.t)


_RETURN = 6


def _refused(item: Item) -> str:
    """Whether a result says that the person refused a call, or a permission did."""
    block = item.block
    if block is None or not block.is_error:
        return ""
    start = bytes(memoryview(block.content)[:120])
    if any(words.encode() in start for words in REFUSED):
        return "refused"
    return "denied" if any(words.encode() in start for words in DENIED) else ""


def _object(raw: Any) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(bytes(raw) or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _joined(texts: list[Any]) -> bytes:
    return b"[" + b",".join(map(bytes, texts)) + b"]"


def _spent(turn: Turn) -> dict[str, Any]:
    """What a turn cost. Its output tokens are known only if a line says why it stopped: else they are a snapshot of the start."""
    usage = turn.usage
    spent: dict[str, Any] = {"model": turn.model, "cost": turn.cost}
    if usage is not None:
        spent |= {"tokens_in": usage.input_tokens, "cache_read": usage.cache_read_input_tokens}
        spent |= {"cache_write": usage.cache_creation_input_tokens, "cache_write_1h": usage.figures()[-1]}
        spent["tokens_out"] = usage.output_tokens if turn.stopped else None
    return {name: value for name, value in spent.items() if value is not None}
