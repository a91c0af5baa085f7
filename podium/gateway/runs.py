"""What goes through the gateway as traces: runs, their agents, and what followed from what.

What is known is recorded: who asked where a request says it, that a conversation goes on from an answer given
before, that a tool's result is of a call. The rest is inferred, and its edges say by which rule.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from podium.engine.dialogue import Message, Past, keys, message_of
from podium.engine.protocol import Completion
from podium.gateway.dialects import MOST_CHOICES, Ask, BadRequest
from podium.trace.recorder import Name, Recorder
from podium.trace.tokens import DIGEST, extend, spelled

__all__ = ["Caller", "Run", "Turn", "error_words"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")
WORDS = 12  # characters of an answer that are found again in another conversation
SAME_TEXT, BEFORE = "an answer stands in the prompt", "the latest answer before"


class Caller(NamedTuple):
    """Who asks, as far as the request says it."""

    run: str
    agent: str = ""
    parent: str = ""

    def checked(self) -> Caller:
        for what, name in self._asdict().items():
            if name and not NAME.fullmatch(name):
                raise BadRequest(400, f"{what} must be letters, digits, dots, dashes and blanks, got {name[:40]!r}")
        return self


@dataclass(eq=False)
class Turn:
    """A request under way."""

    agent: str
    began: float
    before: Past | None  # the answer that it goes on from
    after: list[Any]
    inferred: list[dict[str, Any]]
    stated: bool  # the request says who asks


def spelt(name: Name) -> str:
    return f"{name[0]}.{name[1]}"


@dataclass(eq=False)
class Run:
    """A run of some program, recorded as it happens."""

    name: str
    folder: Path
    fields: dict[str, Any] = field(default_factory=dict)  # of the record
    origin: float = 0.0

    def __post_init__(self) -> None:
        self.origin, self._now = time.monotonic(), 0.0
        self.record = Recorder(
            self.folder, clock=lambda: self._now, trace_id=self.name, **{"system": "gateway", **self.fields}
        )
        self.pasts: dict[str, Past] = {}  # by the key of the conversation
        self.last: dict[str, Past] = {}  # of each agent the latest answer
        self.agents: dict[str, list[str]] = {}  # by system prompt and tools, where a request does not say who asks
        self.calls: dict[str, tuple[Name, str]] = {}  # of tools with their names, by the id that a program knows
        self.heard: dict[tuple[str, str], Name] = {}  # results by their call, and what users said
        self.busy: set[str] = set()
        self.spoken: list[tuple[str, Past]] = []
        self.asks: dict[str, int] = {}
        self.answers = 0
        self.used = time.monotonic()
        self.closed = False

    def now(self) -> float:
        self.used = time.monotonic()
        return self.used - self.origin

    def _add(self, kind: Any, agent: str, t: float, **fields: Any) -> Name:
        self._now = t
        return self.record.add(kind, agent, **fields)

    # ---- who asks

    def begin(self, ask: Ask, caller: Caller) -> Turn:
        """A request begins: its agent, the answer that it goes on from, and its causes, which are recorded."""
        t, whole = self.now(), list(keys(ask.messages, ask.tools))
        met = [(at, self.pasts[key]) for at, key in enumerate(whole) if key in self.pasts]
        at, before = met[-1] if met else (-1, None)
        agent = caller.agent or (before.more["agent"] if before is not None else self._agent(ask))
        turn = Turn(agent, t, before, [], [], bool(caller.agent))
        if before is not None and before.event is not None:
            turn.after.append(("causal", before.event))
        self._new(ask.messages[at + 1 :], turn, t)
        if before is None:
            self._whence(ask.messages, caller.parent, turn)
        self.busy.add(agent)
        return turn

    def _agent(self, ask: Ask) -> str:
        """The agent with this system prompt and these tools that is not waiting for an answer; else a new one."""
        system = [m["content"] or "" for m in ask.messages if m["role"] == "system"]
        names = sorted(tool["function"]["name"] for tool in ask.tools)
        alike = self.agents.setdefault(json.dumps([system, names]), [])
        for name in alike:
            if name not in self.busy:
                return name
        number = 1 + sum(map(len, self.agents.values()))
        alike.append(f"agent {number}")
        return alike[-1]

    def _new(self, messages: Sequence[Message], turn: Turn, t: float) -> None:
        """What is new in a conversation: results of tools, and what was said to the agent."""
        for message in messages:
            content, extra = message["content"] or "", {"content": message["content"] or ""}
            if message["role"] == "tool":
                of = message.get("tool_call_id", "")
                call, tool = self.calls.get(of, (None, "tool"))
                key = (of or content, "tool")
                if key not in self.heard:
                    after = [("return", call)] if call else []
                    self.heard[key] = self._add(
                        "tool_result", tool, t, to=turn.agent, tool=tool, after=after, extra=extra
                    )
                turn.after.append(("tool_dependency", self.heard[key]))
            elif message["role"] == "user":
                key = (content, "user")
                if key not in self.heard:
                    self.heard[key] = self._add("message", "user", t, to=turn.agent, extra=extra)
                turn.after.append(("message", self.heard[key]))

    def _whence(self, messages: Sequence[Message], parent: str, turn: Turn) -> None:
        """Why a new conversation began: its parent is stated, or earlier answers stand in what is said here, or the
        latest answer came before it."""
        if parent and (past := self.last.get(parent)) is not None:
            turn.after.append(("spawn", past.event))
            return
        text = "\n".join(m["content"] or "" for m in messages)
        quoted = [p for _, p in self.spoken if len(w := p.spoken.content.strip()) >= WORDS and w in text]
        called = {c["id"] for m in messages for c in m.get("tool_calls", ()) if c["id"] in self.calls}
        if called:  # a hand-over: the conversation holds calls that another agent made
            turn.after += [("causal", self.calls[name][0]) for name in sorted(called)]
        elif quoted:
            self._infer(turn, "message", list(dict.fromkeys(p.event for p in quoted)), SAME_TEXT)
        elif self.spoken:
            self._infer(turn, "temporal", [self.spoken[-1][1].event], BEFORE)

    def _infer(self, turn: Turn, kind: str, events: Sequence[Name], rule: str) -> None:
        turn.after += [(kind, name) for name in events]
        turn.inferred += [{"src": spelt(name), "type": kind, "rule": rule} for name in events]

    # ---- what is answered

    def address(self, ask: Ask, seed: int, at: int) -> tuple[int, ...]:
        """The dice of an answer: of the run, the conversation, and how often that was asked before."""
        key = [*keys(ask.messages, ask.tools)][-1] + f"/{at}"
        self.asks[key] = number = self.asks.get(key, -1) + 1
        return (seed, int(key[:12], 16), at, number)

    def end(self, ask: Ask, turn: Turn, pasts: Sequence[Past], facts: dict[str, Any]) -> int:
        """Records answers and the calls in them; the number of the first. It is with the operating system when this
        returns."""
        self.busy.discard(turn.agent)
        end, number = self.now(), self.answers
        self.answers += 1
        for at, past in enumerate(pasts):
            generation = {} if not past.answer.ids else _generation(past, ask)
            extra = {"content": past.spoken.content, "finish": past.spoken.finish, "link": past.prompt.link}
            extra |= {"why": past.prompt.why} if past.prompt.why else {}
            extra |= (
                generation.pop("extra", {}) | facts | ({} if turn.stated else {"agent_by": "its system prompt"})
            )
            past.event = self._add(
                "message",
                turn.agent,
                turn.began,
                to="user",
                after=turn.after,
                inferred=turn.inferred or None,
                end=end,
                truncated=past.spoken.finish == "length",
                extra=extra,
                **generation,
            )
            past.more["agent"] = turn.agent
            past.key = [*keys([*ask.messages, message_of(past.spoken.message())], ask.tools)][-1]
            self.pasts[past.key] = past
            self._called(ask, turn, past, number, at, end)
            self.spoken.append((turn.agent, past))
            self.last[turn.agent] = past
        self.record.flush()
        return number

    def _called(self, ask: Ask, turn: Turn, past: Past, number: int, at: int, end: float) -> None:
        message = past.spoken.message(number * MOST_CHOICES + at)
        for call, known in zip(message.get("tool_calls", ()), past.spoken.calls, strict=True):
            event = self._add(
                "tool_call",
                turn.agent,
                end,
                tool=known.name,
                after=[("causal", past.event)],
                extra={"args": known.args},
            )
            self.calls[call["id"]] = event, known.name

    def cancel(self, turn: Turn, why: str) -> None:
        """A request that came to nothing is on record too."""
        self.busy.discard(turn.agent)
        fault = {"kind": "endpoint", "why": why}
        self._add(
            "message", turn.agent, turn.began, to="user", after=turn.after, valid=False, extra={"fault": fault}
        )
        self.record.flush()

    def finish(self, answer: Any, fault: str = "") -> None:
        """The program came to an end, with an answer or a fault."""
        after = [("return", past.event) for past in self.last.values()]
        extra: dict[str, Any] = {"content": answer}
        valid = {"valid": False} if fault else {}
        if fault:
            extra["fault"] = {"kind": "exception", "why": fault}
        self._add("return", "program", self.now(), after=after, extra=extra, **valid)

    def close(self, rewards: dict[str, float] | None = None) -> None:
        if not self.closed:
            self.closed = True
            if rewards:
                self.record.outcome(rewards=rewards)
            self.record.close()


def _generation(past: Past, ask: Ask) -> dict[str, Any]:
    """The tokens of an answer as its event has them."""
    answer, context = past.answer, past.prompt.context
    given, start = context.ids, context.length - len(context.ids)
    fields: dict[str, Any] = {
        "tokens": [*given, *answer.ids],
        "logps": [*(None for _ in given), *answer.logp],
        "mask": [*(False for _ in given), *(True for _ in answer.ids)],
        "start": start,
        "version": answer.version,
        "tokens_in": context.length,
        "tokens_out": len(answer.ids),
    }
    if past.prompt.after is not None and start:
        fields["context"] = spelt(past.prompt.after.event)
    extra: dict[str, Any] = {"sampling": "free" if ask.grammar is None else "grammar"}
    if ask.grammar is not None:
        extra["grammar"] = ask.grammar
    if (whole := _digest(answer)) is not None:
        extra[DIGEST] = whole
    return fields | {"extra": extra}


def _digest(answer: Completion) -> str | None:
    """Of all ids that were read and said."""
    if answer.read is None:
        return None
    length, h1, h2 = np.array([answer.read], np.int64).T
    return spelled(*extend(length, h1, h2, [answer.ids]))[0]


def error_words(error: BaseException, secrets: Sequence[str]) -> str:
    """The words of an error, without any secret that they echo."""
    words = str(error)
    for secret in secrets:
        words = words.replace(secret, "[key]") if secret else words
    return words
