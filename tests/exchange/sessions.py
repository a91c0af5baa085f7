"""Small Claude Code sessions of every generation, written here in the shape of the real ones."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

__all__ = ["Log", "inline", "notified", "resumed_twice", "simple", "streamed", "with_progress"]

Line = dict[str, Any]


class Log:
    """Writes lines as Claude Code does, one second after the other."""

    def __init__(self, session: str = "5e55", first: int = 0, prefix: str = "u") -> None:
        self.prefix = prefix
        self.session, self.lines, self.clock, self.ids = session, [], first, count()  # type: ignore[var-annotated]
        self.parent: str | None = None

    def stamp(self) -> str:
        self.clock += 1
        return f"2026-02-05T12:{self.clock // 60:02}:{self.clock % 60:02}.000Z"

    def add(self, type: str, **fields: Any) -> Line:
        line = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ann/work",
            "version": "2.1.31",
            "sessionId": self.session,
            "type": type,
            "uuid": f"{self.prefix}-{next(self.ids)}",
            "timestamp": self.stamp(),
        } | fields
        self.parent = line["uuid"]
        self.lines.append(line)
        return line

    def person(self, text: str, **fields: Any) -> Line:
        return self.add("user", message={"role": "user", "content": text}, **fields)

    def model(self, id: str, *blocks: Line, stop: str | None = None, **fields: Any) -> Line:
        return self.add("assistant", message=message(id, *blocks, stop=stop), requestId="r", **fields)

    def result(
        self, call: str, content: Any = "done", error: bool | None = None, said: Any = None, **fields: Any
    ) -> Line:
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        if error is not None:
            block["is_error"] = error
        more = {} if said is None else {"toolUseResult": said}
        return self.add("user", message={"role": "user", "content": [block]}, **more, **fields)

    def progress(self, call: str, agent: str, inner: Line) -> Line:
        data = {"type": "agent_progress", "agentId": agent, "prompt": "look", "message": inner}
        return self.add("progress", data=data, toolUseID="agent_msg", parentToolUseID=call)

    def data(self) -> bytes:
        return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in self.lines)


def message(
    id: str, *blocks: Line, stop: str | None = None, tokens: tuple[int, int, int, int] = (3, 100, 1000, 7)
) -> Line:
    given, written, read, out = tokens
    return {
        "id": id,
        "model": "claude-x",
        "role": "assistant",
        "type": "message",
        "content": list(blocks),
        "stop_reason": stop,
        "usage": {
            "input_tokens": given,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "output_tokens": out,
        },
    }


def text(said: str) -> Line:
    return {"type": "text", "text": said}


def call(id: str, tool: str, /, **given: Any) -> Line:
    return {"type": "tool_use", "id": id, "name": tool, "input": given}


def simple() -> Log:
    """A prompt, two calls side by side in one answer of three lines, their results, an answer, a later prompt."""
    log = Log()
    log.person("fix the bug")
    log.model("m1", text("I look."))
    log.model("m1", call("c1", "Bash", command="ls"))
    log.model("m1", call("c2", "WebFetch", url="https://example.org"))
    log.result("c1", "a.py")
    log.result("c2", "<html>")
    log.model("m2", text("Fixed."), stop="end_turn")
    log.person("thanks; and the docs?")
    log.model("m3", text("Done."), stop="end_turn")
    return log


def with_progress(said: bool = True) -> tuple[Log, Log]:
    """A sub-agent whose inner records are in the main file as progress; and its own file, which has more."""
    log, own = Log(), Log(first=3, prefix="own")
    log.person("look into it")
    log.model("m1", call("a1", "Task", prompt="look", description="look", subagent_type="Explore"))
    inner = [
        own.add("user", message={"role": "user", "content": "look"}, agentId="af3b", isSidechain=True),
        own.add("assistant", message=message("n1", text("Let me see.")), agentId="af3b", isSidechain=True),
        own.add(
            "assistant", message=message("n1", call("i1", "Grep", pattern="x")), agentId="af3b", isSidechain=True
        ),
        own.add(
            "user",
            agentId="af3b",
            isSidechain=True,
            message={
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "i1", "content": "a.py:1"}],
            },
        ),
        own.add(
            "assistant",
            message=message("n2", text("It is in a.py."), stop="end_turn"),
            agentId="af3b",
            isSidechain=True,
        ),
    ]
    log.clock = own.clock
    for record in (inner[0], inner[2], inner[3]):
        log.progress("a1", "af3b", {k: record[k] for k in ("type", "message", "uuid", "timestamp")})
    completed = {
        "status": "completed",
        "agentId": "af3b",
        "prompt": "look",
        "content": [text("It is in a.py.")],
        "totalDurationMs": 4000,
        "totalTokens": 1110,
        "totalToolUseCount": 1,
        "usage": message("", tokens=(5, 0, 1100, 30))["usage"],
    }
    if said:
        log.result("a1", [text("It is in a.py.")], said=completed)
        log.model("m2", text("It is in a.py."), stop="end_turn")
    return log, own


def notified() -> Log:
    """Two sub-agents that run on their own, of which one tells that it ended: in three records, as the program
    does."""
    log = Log()
    log.person("review")
    for number in (1, 2):
        log.model(
            "m1",
            call(f"a{number}", "Agent", prompt=f"part {number}", subagent_type="general", run_in_background=True),
        )
    for number in (1, 2):
        log.result(
            f"a{number}", "launched", said={"isAsync": True, "status": "async_launched", "agentId": f"ag{number}"}
        )
    log.model("m2", text("Both run."))
    notice = (
        "<task-notification>\n<task-id>ag1</task-id>\n<tool-use-id>a1</tool-use-id>\n<status>completed</status>\n"
        "<result>All is "
        "well.</result>\n<usage><subagent_tokens>900</subagent_tokens><tool_uses>4</tool_uses></usage>\n"
        "</task-notification>"
    )
    log.lines.append(
        {
            "type": "queue-operation",
            "operation": "enqueue",
            "timestamp": log.stamp(),
            "sessionId": log.session,
            "content": notice,
        }
    )
    log.lines.append(
        {"type": "queue-operation", "operation": "dequeue", "timestamp": log.stamp(), "sessionId": log.session}
    )
    log.person(notice, origin={"kind": "task-notification"})
    log.model("m3", text("One is well."), stop="end_turn")
    return log


def inline() -> Log:
    """The oldest form: a side chain inside the main file, known by its prompt."""
    log = Log()
    log.person("count")
    launch = log.model("m1", call("a1", "Task", prompt="count the files", description="count"))
    log.parent = None
    log.person("count the files", isSidechain=True)
    log.model("n1", call("i1", "LS", path="."), isSidechain=True)
    log.result("i1", "3 files", isSidechain=True)
    log.model("n2", text("There are 3."), isSidechain=True)
    log.parent = launch["uuid"]
    log.result("a1", [text("There are 3.")])
    log.model("m2", text("3."))
    return log


def resumed_twice() -> Log:
    """A sub-agent that is launched, returns, and is launched again."""
    log = Log()
    log.person("ask it twice")
    for round_ in (1, 2):
        more = {"resume": "ag"} if round_ == 2 else {}
        log.model(
            f"m{round_}", call(f"a{round_}", "Task", prompt=f"question {round_}", subagent_type="Explore", **more)
        )
        inner = {
            "type": "assistant",
            "timestamp": log.stamp(),
            "uuid": f"in{round_}",
            "message": message(f"n{round_}", call(f"i{round_}", "Read", file=f"{round_}.py")),
        }
        log.progress(f"a{round_}", "ag", inner)
        block = {"type": "tool_result", "tool_use_id": f"i{round_}", "content": "x = 1"}
        inner = {
            "type": "user",
            "timestamp": log.stamp(),
            "uuid": f"out{round_}",
            "message": {"role": "user", "content": [block]},
        }
        log.progress(f"a{round_}", "ag", inner)
        said = {"status": "completed", "agentId": "ag", "totalToolUseCount": 1, "content": []}
        log.result(f"a{round_}", [text("answer")], said=said)
    log.model("m3", text("Both answered."))
    return log


def streamed() -> bytes:
    """stream-json, as `claude -p --output-format stream-json` prints it: no times."""
    lines = [
        {"type": "system", "subtype": "init", "session_id": "st", "uuid": "s0", "cwd": "/w", "model": "claude-x"},
        {
            "type": "assistant",
            "session_id": "st",
            "uuid": "s1",
            "parent_tool_use_id": None,
            "message": message("m1", call("a1", "Task", prompt="go")),
        },
        {
            "type": "system",
            "subtype": "task_started",
            "session_id": "st",
            "uuid": "s2",
            "task_id": "tk",
            "tool_use_id": "a1",
        },
        {
            "type": "assistant",
            "session_id": "st",
            "uuid": "s3",
            "parent_tool_use_id": "a1",
            "message": message("n1", call("i1", "Bash")),
        },
        {
            "type": "user",
            "session_id": "st",
            "uuid": "s4",
            "parent_tool_use_id": "a1",
            "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i1", "content": "ok"}]},
        },
        {
            "type": "user",
            "session_id": "st",
            "uuid": "s5",
            "parent_tool_use_id": None,
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a1", "content": "went"}],
            },
        },
        {
            "type": "assistant",
            "session_id": "st",
            "uuid": "s6",
            "parent_tool_use_id": None,
            "message": message("m2", text("Done."), stop="end_turn"),
        },
        {
            "type": "result",
            "subtype": "success",
            "session_id": "st",
            "uuid": "s7",
            "duration_ms": 9000,
            "total_cost_usd": 0.25,
            "usage": {},
        },
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
