"""Rollouts of the Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, one thread a file.

A session is the thread that the person talks to and the threads of its sub-agents, which name their parent. A
thread is what one model was shown and did, in its order, so order within it is recorded. When a turn of the model
began is not recorded: it is taken to begin when the last thing that it was shown had come.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from podium.exchange.build import PERSON, Run
from podium.exchange.jsons import seconds
from podium.exchange.lines import ERRORS, records
from podium.exchange.reading import Source
from podium.exchange.spans import figure_of
from podium.registry import register
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES, EdgeType, EventType

__all__ = ["codex"]

MAIN = "main"
NOTHING = Raw(b"null")
TURN = (
    "reasoning",
    "message",
    "function_call",
    "custom_tool_call",
    "tool_search_call",
    "web_search_call",
    "local_shell_call",
)
OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
NEXT_PROMPT = "next prompt after an answer"
OWN: tuple[EdgeType, ...] = ("causal", "tool_dependency")  # how what a thread did itself leads on
TELLS = ("send_message", "send_input", "followup_task", "assign_task")  # tools that send a text to another agent
ENDS = ("close_agent", "interrupt_agent")
_TYPE = {word: code for code, word in enumerate(EVENT_TYPES)}
_SPAWN = DECISIONS.index("spawn")
_FAILED = re.compile(rb"exited with code [1-9]|\"exit_code\\?\": ?[1-9]|^\"?(?:Script failed|Script error)")
_NOTICE = re.compile(rb"<subagent_notification>\s*(\{.*?\})\s*</subagent_notification>", re.DOTALL)


class Record(Struct):
    """A line."""

    timestamp: str = ""
    type: str = ""
    payload: Raw = NOTHING
    ordinal: int | None = None


class Line(NamedTuple):
    """A record, and where it stands."""

    file: str
    number: int
    record: Record


class Counts(Struct):
    input_tokens: Any = None
    cached_input_tokens: Any = None
    cache_write_input_tokens: Any = None
    output_tokens: Any = None
    total_tokens: Any = None


class Info(Struct):
    total_token_usage: Counts | None = None
    last_token_usage: Counts | None = None


class Item(Struct):
    """What a line holds, of whatever type: the fields that are read."""

    type: str = ""
    role: str | None = None
    name: str | None = None
    call_id: str | None = None
    arguments: Raw = NOTHING
    input: Raw = NOTHING
    output: Raw = NOTHING
    content: Raw = NOTHING
    message: Raw = NOTHING
    action: Raw = NOTHING
    tools: Raw = NOTHING
    author: str | None = None
    recipient: str | None = None
    info: Info | None = None
    event_id: str | None = None
    agent_path: str | None = None
    agent_thread_id: str | None = None
    new_thread_id: str | None = None
    agent_nickname: str | None = None
    kind: str | None = None
    model: Any = None
    status: Any = None
    error: Any = None
    id: str | None = None
    session_id: str | None = None
    parent_thread_id: str | None = None
    subagent_history_start_ordinal: int | None = None
    source: Any = None
    cli_version: Any = None
    cwd: Any = None


_record = msgspec.json.Decoder(Record)
_item = msgspec.json.Decoder(Item)


def is_codex(start: bytes, name: str) -> float:
    line = start.split(b"\n", 1)[0][:600]
    if b'"type":"session_meta"' in line.replace(b'": "', b'":"') and b'"payload"' in line:
        return 0.95
    kinds = (b'"type":"response_item"', b'"type":"event_msg"', b'"type":"turn_context"')
    return 0.8 if b'"payload"' in line and any(kind in line.replace(b'": "', b'":"') for kind in kinds) else 0.0


def codex_keys(start: bytes, name: str) -> list[str]:
    """Threads belong together that name each other, or one session."""
    head = start.split(b"\n", 1)[0] if b"\n" in start else start
    names = re.findall(
        rb'"(?:id|session_id|parent_thread_id)"\s*:\s*"([^"]+)"', head.split(b'"base_instructions"')[0]
    )
    return [one.decode(errors="replace") for one in dict.fromkeys(names)]


@register("importer", title="Codex", detect=is_codex, group=codex_keys)
def codex(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """The run of one session: the thread of the person and those of its sub-agents."""
    faults: list[tuple[str, int | None, str]] = []
    threads: dict[str, _Thread] = {}
    for source in sources:
        thread = _Thread(source, faults)
        if thread.id in threads:
            threads[thread.id].join(thread)
        else:
            threads[thread.id] = thread
    roots = [t for t in threads.values() if t.parent not in threads]
    for root in roots:
        run = Run(root.id, system="codex", harness=root.version, keep=keep)
        session = _Session(run)
        readers = [_Reader(session, thread, thread is not root) for thread in _family(root, list(threads.values()))]
        for _, reader, line in merge(*(reader.records() for reader in readers), key=itemgetter(0)):
            reader.read(line)
        session.close()
        for fault in faults:
            run.fault(*fault)
        faults.clear()
        yield run


def _family(root: _Thread, threads: list[_Thread]) -> Iterator[_Thread]:
    """A thread, the threads that it spawned, those that they spawned, and so on."""
    todo = [root]
    while todo:
        thread = todo.pop(0)
        yield thread
        todo += sorted((t for t in threads if t.parent == thread.id and t is not thread), key=lambda t: t.start)


class _Thread:
    """The records of one thread, with their file and line."""

    def __init__(self, source: Source, faults: list[tuple[str, int | None, str]]) -> None:
        self.id, self.parent, self.path = source.name.rpartition("/")[2].partition(".jsonl")[0], "", ""
        self.version: str | None = None
        self.faults = faults
        read = records(source.lines(), _record, lambda line, why: faults.append((source.name, line, why)))
        self.lines = [Line(source.name, number, record) for number, record in read if record.type]
        self.skip = -1  # records before this one are its parent's
        meta = next((line.record.payload for line in self.lines if line.record.type == "session_meta"), None)
        if meta is not None:
            with suppress(*ERRORS):  # whoever reads the record says what is wrong
                self._meta(_item.decode(meta))
        self.start = self.lines[0].record.timestamp if self.lines else ""

    def _meta(self, meta: Item) -> None:
        self.id = meta.id or meta.session_id or self.id
        self.version = meta.cli_version if isinstance(meta.cli_version, str) else None
        spawned: Any = meta.source.get("subagent") if isinstance(meta.source, dict) else None
        spawned = spawned.get("thread_spawn") if isinstance(spawned, dict) else None
        if isinstance(spawned, dict):
            self.parent = str(spawned.get("parent_thread_id") or meta.parent_thread_id or "")
            self.path = str(spawned.get("agent_path") or meta.agent_path or spawned.get("agent_nickname") or "")
            self.skip = -1 if meta.subagent_history_start_ordinal is None else meta.subagent_history_start_ordinal
        elif meta.parent_thread_id:
            self.parent, self.path = meta.parent_thread_id, meta.agent_path or ""

    def join(self, other: _Thread) -> None:
        """Adds what another file of the same thread has and this one has not."""
        have = Counter(_key(line.record) for line in self.lines)
        new = []
        for line in other.lines:
            if have[_key(line.record)] > 0:
                have[_key(line.record)] -= 1
            else:
                new.append(line)
        if new:
            self.lines = sorted([*self.lines, *new], key=lambda line: line.record.timestamp)


def _key(record: Record) -> tuple[str, str, bytes]:
    return record.timestamp, record.type, bytes(record.payload)


class _Session:
    """What the threads of a session share: the run, and who is who."""

    def __init__(self, run: Run) -> None:
        self.run, self.task = run, 0
        self.agents: dict[str, str] = {"/root": MAIN}  # by path or thread
        self.spawned: dict[str, int] = {}  # the spawn of each agent
        self.sent: dict[
            tuple[str, str], list[int]
        ] = {}  # from one agent to another, and not known yet to have come
        self.reached: dict[str, bool] = {}  # whether something reached an agent since its last return
        self.ends: list[tuple[int, str]] = []  # despawns
        self.last: dict[str, int] = {}  # the last event in each thread
        self.since: dict[str, float] = {}  # since when an agent whose thread is not there has been at work

    def name(self, path: str | None) -> str:
        """An agent's name by the path or the thread that a record names."""
        if not path:
            return "unnamed"
        known = self.agents.get(path) or self.agents.get(f"/root/{path}")
        return known or path.removeprefix("/root/")

    def close(self) -> None:
        """A despawn after which its agent goes on was none."""
        for row, agent in self.ends:
            if any(event["agent"] == agent for event in self.run.events[row + 1 :]):
                self.run.set(row, type=_TYPE["message"])


class _Reader:
    """Reads one thread, record by record."""

    def __init__(self, session: _Session, thread: _Thread, sub: bool) -> None:
        self.session, self.thread, self.run, self.sub = session, thread, session.run, sub
        self.agent = session.name(thread.path or thread.id) if thread.parent else MAIN
        session.agents |= {thread.id: self.agent} | ({thread.path: self.agent} if thread.path else {})
        self.line = Line("", 0, Record())  # the one that is read
        self.began = False
        self.shown: list[tuple[EdgeType, int]] = []  # what the next turn is shown, and how it leads there
        self.ready: float | None = None  # when the last of it came
        self.turn = self.before = -1  # the turn that is open, and the last one
        self.counted: Counts | None = None
        self.uncounted = -1  # the turn whose tokens are not known yet
        self.calls: dict[str, int] = {}
        self.launches: dict[str, int] = {}  # calls to spawn, not known yet to have succeeded, and their turns
        self.spawns: set[int] = set()  # those that have
        self.tools: dict[str, tuple[str, Item]] = {}
        self.searches: list[int] = []  # that have ended and whose call comes
        self.answered: set[str] = set()
        self.has_called = False  # the open turn has made a call
        self.running = False  # within a task, and its prompt has come
        self.prompts = 0
        self.rests: tuple[int, float] | None = None  # the event since which, and the time, it waits for the person
        self.model: str | None = None

    def records(self) -> Iterator[tuple[str, _Reader, Line]]:
        """The lines, with a time that does not run backwards: within a thread they are taken in their order."""
        clock = ""
        for line in self.thread.lines:
            if line.record.ordinal is None or line.record.ordinal >= self.thread.skip:
                clock = max(clock, line.record.timestamp)
                yield clock, self, line

    def read(self, line: Line) -> None:
        self.line = line
        try:
            item = _item.decode(line.record.payload)
        except ERRORS as error:
            if bytes(line.record.payload) != b"null":
                self._fault(f"not a {line.record.type} as Codex writes them: {error}")
            return
        t = seconds(line.record.timestamp)
        if t is None:
            self._fault(f"a time that is none: {line.record.timestamp!r}")
            return
        self._take(line.record.type, item, t)

    def _fault(self, why: str) -> None:
        self.thread.faults.append((self.line.file, self.line.number, why))

    def _take(self, type: str, item: Item, t: float) -> None:
        kind = item.type
        if type == "response_item":
            if kind == "agent_message":
                self._agent_message(item, t)
            elif kind in OUTPUTS:
                self._output(item, t)
            elif kind in TURN and item.role in (None, "assistant"):
                self._model_item(item, t)
            elif kind == "message" and item.role == "user":
                self._notices(item, t)
        elif type == "event_msg":
            self._event(kind, item, t)
        elif type == "turn_context":
            self.model = item.model if isinstance(item.model, str) else self.model
        elif type == "compacted":
            self._close()
            row = self._add("message", t, to=self.agent, extra={"compacted": {}})
            self._follow(row)
            self._show("causal", row, t)
        elif type == "session_meta" and isinstance(item.cwd, str) and not self.sub:
            self.run.params.setdefault("cwd", item.cwd)

    def _event(self, kind: str, item: Item, t: float) -> None:
        if kind == "token_count":
            self._count(item.info)
        elif kind == "user_message":
            self._prompt(item, t)
        elif kind == "task_started":
            self.running = False
        elif kind == "task_complete":
            self._done(item, t)
        elif kind == "turn_aborted":
            self._close()
            row = self.run.add("human_intervention", PERSON, t, to=self.agent, task=self.session.task)
            self._follow(row)
            self._show("message", row, t)
            self.running, self.rests = False, None if self.sub else (row, t)
        elif kind == "web_search_end":
            self._search_ended(item, t)
        elif kind == "sub_agent_activity" and item.kind == "started":
            self._spawned(item.event_id, item.agent_path, item.agent_thread_id, t)
        elif kind == "sub_agent_activity" and item.kind == "interrupted" and item.event_id not in self.calls:
            self._despawn(item.agent_path or item.agent_thread_id, t, None)
        elif kind == "collab_agent_spawn_end" and item.new_thread_id:
            self._spawned(item.call_id, item.agent_path or item.agent_nickname, item.new_thread_id, t)
        elif kind == "guardian_assessment" and str(item.status).lower() in ("denied", "blocked", "rejected"):
            row = self._add("safety_event", t)
            self._follow(row)

    def _add(self, type: Any, t: float, **fields: Any) -> int:
        row = self.run.add(type, self.agent, t, task=self.session.task, **fields)
        self.session.last[self.agent] = row
        return row

    def _show(self, relation: EdgeType, row: int, t: float) -> None:
        """Notes that the next turn is shown this."""
        self.shown.append((relation, row))
        self.ready = t if self.ready is None else max(self.ready, t)

    def _follow(self, row: int) -> None:
        """Joins an event to what was shown since the last turn and, unless that came of it, to that turn."""
        if self.before >= 0 and not any(relation in OWN for relation, _ in self.shown):
            self.run.edge(self.before, row, "causal")
        gathers = self.run.events[row]["type"] == _TYPE["aggregate"]
        for relation, cause in self.shown:
            self.run.edge(cause, row, "causal" if relation == "aggregate" and not gathers else relation)
        self.shown, self.ready = [], None

    def _close(self) -> None:
        if self.turn >= 0:
            self.before, self.turn = self.turn, -1

    def _prompt(self, item: Item, t: float) -> None:
        """A text by the person: a task, or while one is running an intervention. To a sub-agent it is its parent's,
        which spawned it."""
        if self.sub and self.agent in self.session.spawned:
            return
        self._close()
        steers = self.running and not self.thread.parent
        if not steers and self.prompts and not self.sub:
            self.session.task += 1
        self.prompts += 1
        sender = MAIN if self.thread.parent else PERSON
        kind: EventType = "human_intervention" if steers else "message"
        before, since = self.rests or (-1, t)
        row = self.run.add(
            kind, sender, min(since, t), end=t if self.rests else None, to=self.agent, content=bytes(item.message),
            task=self.session.task,
        )  # fmt: skip
        if before >= 0 and self.run.events[before]["agent"] != PERSON:
            self.run.edge(before, row, "message", NEXT_PROMPT)
        self.rests = None
        self._show("message", row, t)
        self.running = True

    def _done(self, item: Item, t: float) -> None:
        """The end of a task: its last turn answers the person. A task that failed says so."""
        last = self.turn if self.turn >= 0 else self.before
        self._close()
        self.running = False
        if item.error:
            error = item.error.get("message") if isinstance(item.error, dict) else item.error
            row = self._add("message", t, to=None if self.thread.parent else PERSON, valid=0, content=str(error))
            self._follow(row)
            self.before = row
            last = row
        elif last >= 0 and not self.thread.parent and self.run.events[last].get("to") is None:
            self.run.set(last, to=PERSON)
        if last >= 0 and not self.sub and not self.thread.parent:
            self.rests = last, t

    def _model_item(self, item: Item, t: float) -> None:
        """Something that the model wrote: the beginning of a turn, or more of it."""
        if not self.began:
            self.began = True
            if self.sub and self.agent in self.session.spawned:
                self.shown.insert(0, ("spawn", self.session.spawned[self.agent]))
        if item.type == "web_search_call" and self.searches:
            self.run.set_content(self.searches.pop(0), bytes(item.action))
            return
        if self.turn < 0:
            gathers = any(relation == "aggregate" for relation, _ in self.shown)
            began = t if self.ready is None else min(self.ready, t)
            self.turn = row = self._add("aggregate" if gathers else "message", began, end=t, model=self.model)
            self._follow(row)
            self.uncounted, self.has_called = row, False
        if item.type in ("reasoning", "message"):
            if not self.has_called:
                self.run.set(self.turn, end=t)
            if item.type == "message":
                self.run.set_content(self.turn, bytes(item.content))
            self.ready = t if self.ready is None else max(self.ready, t)
        else:
            self._call(item, t)

    def _call(self, item: Item, t: float) -> None:
        if not self.has_called:
            self.run.set(self.turn, end=t)
        self.has_called = True
        name = item.name or {"tool_search_call": "tool_search", "local_shell_call": "shell"}.get(item.type, "")
        if item.type == "web_search_call":
            self.run.set_content(self._search(t), bytes(item.action))
            return
        id = item.call_id or item.id or f"line at {t}"
        if id in self.calls:
            self._fault(f"a second call with the id {id}; left out")
            return
        content = (
            item.arguments if item.arguments != NOTHING else item.input if item.input != NOTHING else item.action
        )
        self.calls[id] = row = self._add("tool_call", t, tool=name, content=bytes(content))
        if self.run.events[self.turn]["type"] == _TYPE["message"]:
            self.run.set(self.turn, to=self.agent)
        self.tools[id] = name, item
        self.ready = t
        self.run.edge(self.turn, row, "causal")
        if name == "spawn_agent":
            self.launches[id] = self.turn

    def _search(self, t: float) -> int:
        """A search of the web by the model's provider. Its beginning is not recorded, and its end has no output.
        The model goes on with what was found: what it writes from then on is a turn of its own."""
        row = self._add("tool_call", t, tool="web_search")
        result = self._add("tool_result", t, tool="web_search")
        self.run.edge(self.turn, row, "causal")
        self.run.edge(row, result, "return")
        self._close()
        self._show("tool_dependency", result, t)
        return row

    def _search_ended(self, item: Item, t: float) -> None:
        """Searches end before their call is written. One inside a script that the model wrote (`exec-...`) is part
        of that call."""
        if not (item.call_id or "").startswith("exec-"):
            self._model_item(Item(type="reasoning"), t)
            self.searches.append(self._search(t))

    def _output(self, item: Item, t: float) -> None:
        id = item.call_id or ""
        call = self.calls.get(id)
        raw = bytes(item.output if item.output != NOTHING else item.tools)
        if call is None or id in self.answered:
            why = "no call" if call is None else "a call that has one already"
            self._fault(f"an output for {why}: {id}; left out")
            return
        self.answered.add(id)
        name, request = self.tools[id]
        self._close()
        self.run.set(call, end=t)
        if id in self.launches:
            self._launched(id, raw, t)
        refused = name == "spawn_agent" and call not in self.spawns
        failed = refused or _FAILED.search(raw[:400]) is not None
        row = self._add("tool_result", t, tool=name, content=raw, valid=0 if failed else None)
        self.run.edge(call, row, "return")
        self._show("tool_dependency", row, t)
        if not failed and name in TELLS:
            self._tell(request, raw, call, t)
        elif not failed and name in ENDS:
            self._despawn(_target(request), t, call)

    def _launched(self, id: str, output: bytes, t: float) -> None:
        """What a call to spawn answered: the name of the agent, or why there is none."""
        reply = _reply(output)
        thread = reply.get("agent_id") or reply.get("thread_id")
        path = reply.get("task_name") or reply.get("agent_path") or thread or reply.get("nickname")
        if path:
            self._spawned(id, str(path), str(thread) if thread else None, t)
        self.launches.pop(id, None)

    def _spawned(self, id: str | None, path: str | None, thread: str | None, t: float) -> None:
        """A call to spawn has spawned."""
        turn = self.launches.pop(id or "", None)
        if turn is None or id is None:
            return
        call, request = self.calls[id], self.tools[id][1]
        agent = self.session.name(path or thread)
        self.session.agents |= {key: agent for key in (path, thread) if key}
        role = _arguments(request).get("agent_type")
        role = role if isinstance(role, str) else None
        row = self._add("spawn", t, to=agent, role=role, content=bytes(request.arguments))
        self.run.edge(call, row, "causal")
        self.run.edge(turn, row, "spawn")
        if self.run.events[turn]["type"] == _TYPE["message"]:
            self.run.set(turn, type=_TYPE["orchestrator_decision"], to=None)
        self.run.set(turn, decision=_SPAWN)
        self.spawns.add(call)
        self.session.spawned[agent], self.session.reached[agent] = row, True
        self.session.since[agent] = t

    def _tell(self, request: Item, output: bytes, call: int, t: float) -> None:
        """A text that was sent to another agent."""
        agent = self.session.name(_target(request))
        row = self._add("message", t, to=agent, content=bytes(request.arguments))
        self.run.edge(call, row, "message")
        self.session.sent.setdefault((self.agent, agent), []).append(row)
        self.session.since[agent] = t
        self.session.reached[agent] = True

    def _despawn(self, target: str | None, t: float, call: int | None) -> None:
        agent = self.session.name(target)
        row = self._add("despawn", t, to=agent)
        if call is not None:
            self.run.edge(call, row, "causal")
        self.session.ends.append((row, agent))

    def _agent_message(self, item: Item, t: float) -> None:
        """A text from another agent: its answer, or a message."""
        author = self.session.name(item.author)
        if item.recipient and self.session.name(item.recipient) != self.agent:
            return
        self._close()
        final = b"FINAL_ANSWER" in bytes(item.content)[:400]
        sent = self.session.sent.get((author, self.agent))
        if sent and not final:
            self._show("message", sent.pop(0), t)
            return
        self._got(author, t, bytes(item.content), final)

    def _notices(self, item: Item, t: float) -> None:
        """Older versions tell of the end of a sub-agent in a text of the user's."""
        raw = bytes(item.content)
        if b"<subagent_notification>" not in raw:
            return
        for text in _texts(raw):
            for notice in _NOTICE.finditer(text):
                value = _reply(notice[1])
                path = value.get("agent_path") or value.get("agent_id")
                if path:
                    self._close()
                    self._got(self.session.name(str(path)), t, notice[1], True)

    def _got(self, author: str, t: float, content: bytes, final: bool) -> None:
        """Something from another agent has come. Where its own thread is not there, it is all that is known of its
        work since it was last told something, or last said something."""
        session = self.session
        silent = author not in session.last
        since = session.since.pop(author, None) if silent else None
        row = self.run.add(
            "return" if final else "message", author, t if since is None else min(since, t), to=self.agent,
            end=None if since is None else t, content=content, task=session.task,
            truncated=1 if final and not session.reached.get(author) else None,
        )  # fmt: skip
        if not silent:
            self.run.edge(session.last[author], row, "causal")
        else:
            for sent in session.sent.pop((self.agent, author), ()):
                self.run.edge(sent, row, "message")
            if author in session.spawned:
                self.run.edge(session.spawned[author], row, "causal")
        if final:
            session.reached[author] = False
        elif silent:
            session.since[author] = t
        self._show("aggregate" if final else "message", row, t)

    def _count(self, info: Info | None) -> None:
        """The counter runs through a thread. Where it drops, it was set back, and what the last turn used is its
        increment."""
        total = info.total_token_usage if info else None
        if info is None or total is None or figure_of(total.total_tokens) is None:
            return
        before, last = self.counted, info.last_token_usage
        increment = _less(total, before) if before is not None else total
        drops = before is not None and (figure_of(total.total_tokens) or 0.0) < (
            figure_of(before.total_tokens) or 0.0
        )
        if (drops or (before is None and self.thread.parent)) and last is not None:
            increment = last
        self.counted = total
        if not figure_of(increment.total_tokens):
            return
        row = self.uncounted if self.uncounted >= 0 else self.turn if self.turn >= 0 else self.before
        self._close()
        if row < 0:
            return
        read, write = figure_of(increment.cached_input_tokens), figure_of(increment.cache_write_input_tokens)
        given = figure_of(increment.input_tokens)
        figures = {
            "tokens_in": None if given is None else max(0.0, given - (read or 0.0) - (write or 0.0)),
            "cache_read": read,
            "cache_write": write,
            "tokens_out": figure_of(increment.output_tokens),
        }
        event = self.run.events[row]
        self.run.set(row, **{k: v + (event.get(k) or 0.0) for k, v in figures.items() if v is not None})
        self.uncounted = -1


def _less(total: Counts, before: Counts) -> Counts:
    def less(name: str) -> float | None:
        now, then = figure_of(getattr(total, name)), figure_of(getattr(before, name))
        return None if now is None else max(0.0, now - (then or 0.0))

    return Counts(*(less(name) for name in Counts.__struct_fields__))


def _arguments(item: Item) -> dict[str, Any]:
    """The arguments of a call: an object, as text."""
    try:
        value = msgspec.json.decode(item.arguments)
        value = msgspec.json.decode(value) if isinstance(value, str) else value
    except ERRORS:
        return {}
    return value if isinstance(value, dict) else {}


def _target(item: Item) -> str | None:
    arguments = _arguments(item)
    target = arguments.get("target") or arguments.get("id") or arguments.get("agent_id")
    return target if isinstance(target, str) else None


def _reply(output: bytes) -> dict[str, Any]:
    return _arguments(Item(arguments=Raw(output)))


def _texts(raw: bytes) -> Iterable[bytes]:
    try:
        value = msgspec.json.decode(raw)
    except ERRORS:
        return
    for part in value if isinstance(value, list) else [value]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text.encode()
