"""The first screen of a Claude Code session, counted a second time: plain Python over the raw lines, nothing of
Podium.

`recount(lines)` gives the figures that `podium show --json` prints, by the rules that docs/exchange.md states.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

__all__ = ["recount"]

INJECTED = (
    "<local-command",
    "<bash-stdout",
    "<bash-stderr",
    "<system-reminder",
    "<user-prompt-submit-hook",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
)
REFUSED = ("The user doesn't want to", "The user rejected", "[Request interrupted")
DENIED = ("Permission to use", "Claude requested permissions", "denied by")
EDITS, ASKS = ("Edit", "Write", "MultiEdit", "NotebookEdit"), ("AskUserQuestion", "ExitPlanMode")
KINDS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def records(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    """Every object of every line, each once; those inside progress records among them."""
    scan, keys = json.JSONDecoder(), set()
    for line in lines:
        at = 0
        while at < len(line.rstrip()):
            value, at = scan.raw_decode(line, at)
            if value.get("type") == "progress":
                data = value.get("data") or {}
                if data.get("type") == "agent_progress":
                    value = data["message"] | {"agent": data["agentId"], "launch": value["parentToolUseID"]}
                elif data.get("type") == "bash_progress":
                    value = value | {"elapsed": data.get("elapsedTimeSeconds")}
            elif value.get("isSidechain"):
                value["agent"] = value["agentId"]
            key = value.get("uuid")
            if key is not None and value.get("type") != "progress":
                if key in keys:
                    continue
                keys.add(key)
            yield value


def stamp(record: dict[str, Any]) -> float:
    return datetime.fromisoformat(record["timestamp"]).timestamp()


def texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        b if isinstance(b, str) else b.get("text", "") if b.get("type") == "text" else f"[{b['type']}]"
        for b in content
        if isinstance(b, str) or b.get("type") in ("text", "image", "document")
    )


class Session:
    """What the lines say, sorted: turns, calls and results by id, and what each agent did in its order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.turns: dict[str, dict[str, Any]] = {}
        self.calls: dict[str, dict[str, Any]] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.notices: dict[str, tuple[float, str]] = {}
        self.agent_of: dict[str, str] = {}
        self.began: dict[str, float] = {}
        self.streams: dict[str, list[tuple[str, float, Any]]] = defaultdict(list)
        for record in records(lines):
            self.take(record)

    def take(self, r: dict[str, Any]) -> None:
        kind, who = r.get("type"), r.get("agent", "main")
        if r.get("launch"):
            self.agent_of.setdefault(r["launch"], who)
        if kind == "assistant":
            self.answer(r, who)
        elif kind == "user":
            self.user(r, who)
        elif kind == "progress" and r.get("elapsed") is not None:
            self.began.setdefault(r["parentToolUseID"], stamp(r) - r["elapsed"])
        elif kind == "queue-operation" and r.get("operation") == "enqueue" and isinstance(r.get("content"), str):
            self.notice(r["content"], stamp(r), None)
        elif kind == "attachment" and (r.get("attachment") or {}).get("type") == "queued_command":
            prompt = r["attachment"].get("prompt")
            text = prompt if isinstance(prompt, str) else texts(prompt or [])
            if text:
                self.shown(r, text, who)
        elif kind == "system" and r.get("subtype") == "compact_boundary":
            self.streams[who].append(("compaction", stamp(r), None))
        elif kind == "system" and r.get("subtype") == "stop_hook_summary" and r.get("preventedContinuation"):
            self.streams[who].append(("stopped", stamp(r), None))

    def answer(self, r: dict[str, Any], who: str) -> None:
        m, t = r["message"], stamp(r)
        if m["id"] not in self.turns:
            self.turns[m["id"]] = {
                "who": who,
                "t": t,
                "end": t,
                "usage": {},
                "stop": False,
                "calls": [],
                "texts": [],
            }
            self.streams[who].append(("turn", t, m["id"]))
        turn = self.turns[m["id"]]
        turn["t"], turn["end"], turn["model"] = min(turn["t"], t), max(turn["end"], t), m["model"]
        turn["stop"] |= m.get("stop_reason") is not None
        usage = m.get("usage") or {}
        figures = {k: usage.get(k) for k in KINDS} | {
            "hour": (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens")
        }
        for name, value in figures.items():
            if value is not None:
                turn["usage"][name] = max(value, turn["usage"].get(name, value))
        for block in m["content"]:
            if block["type"] == "text":
                turn["texts"].append(block["text"])
            elif block["type"] == "tool_use" and block["id"] not in self.calls:
                call = {"who": who, "turn": m["id"], "tool": block["name"], "input": block["input"], "t": t}
                self.calls[block["id"]] = call
                turn["calls"].append(block["id"])
                self.streams[who].append(("call", t, block["id"]))

    def user(self, r: dict[str, Any], who: str) -> None:
        content = r["message"]["content"]
        for block in content if isinstance(content, list) else []:
            if (
                isinstance(block, dict)
                and block["type"] == "tool_result"
                and block["tool_use_id"] not in self.results
            ):
                stated = r.get("toolUseResult")
                code = stated.get("code") if isinstance(stated, dict) else None  # what a fetched page's server said
                failed = bool(block.get("is_error")) or (isinstance(code, int) and code >= 400)
                value = {"t": stamp(r), "failed": failed, "content": block.get("content", ""), "stated": stated}
                self.results[block["tool_use_id"]] = value
                self.streams[who].append(("result", stamp(r), block["tool_use_id"]))
                if isinstance(stated, dict) and stated.get("agentId"):
                    self.agent_of.setdefault(block["tool_use_id"], stated["agentId"])
        text = texts(content)
        if text or isinstance(content, str):
            self.shown(r, text, who)

    def shown(self, r: dict[str, Any], text: str, who: str) -> None:
        bare, t, stream = text.lstrip(), stamp(r), self.streams[who]
        if "<task-notification>" in text[:400]:
            self.notice(text, t, stream)
        elif who != "main" and not stream:
            stream.append(("begin", t, None))
        elif r.get("isMeta") or r.get("isCompactSummary") or bare.startswith(INJECTED) or not bare:
            stream.append(("injected", t, None))
        elif bare.startswith("[Request interrupted"):
            stream.append(("interrupt", t, None))
        else:
            stream.append(("command" if bare.startswith(("<command-", "<bash-input")) else "prompt", t, text))

    def notice(self, text: str, t: float, stream: list[Any] | None) -> None:
        for body in re.findall(r"<task-notification>(.*?)(?:</task-notification>|\Z)", text, re.DOTALL):
            task = re.search(r"<task-id>(.*?)</task-id>", body, re.DOTALL)
            name = task[1].strip() if task else ""
            self.notices.setdefault(name, (t, body))
            if stream is not None:
                stream.append(("notice", t, name))


def refused(result: dict[str, Any] | None) -> str:
    if result is None or not result["failed"]:
        return ""
    start = json.dumps(result["content"], ensure_ascii=False)[:120]
    return "refused" if any(w in start for w in REFUSED) else "denied" if any(w in start for w in DENIED) else ""


class Events:
    """What happened when: (kind, agent, begin, end or None, tool). Kinds: model, tool, unseen, leave, prompt,
    point."""

    def __init__(self, session: Session) -> None:
        self.s, self.rows, self.row_of_call = session, [], {}
        self.causes: dict[int, set[int]] = defaultdict(set)
        self.task, self.prompts, self.unread = 0, 0, set()
        self.returned: dict[str, int] = {}
        self.backs: dict[str, int] = {}
        self.turn_rows: dict[str, int] = {}
        self.early: dict[str, tuple[str, dict[str, Any], float]] = {}
        self.interrupts = self.refusals = self.denials = self.compactions = 0
        self.compacted: Counter[str] = Counter()
        self.agents: dict[str, dict[str, Any]] = {"main": {"parent": None}}
        self.states: dict[str, dict[str, Any]] = {}
        self.at: Counter[str] = Counter()
        self.walk("main", None)

    def add(self, kind: str, who: str, t: float, end: float | None = None, tool: str | None = None) -> int:
        self.rows.append([kind, who, t, end, tool, self.task])
        return len(self.rows) - 1

    def walk(self, who: str, spawn: int | None, until: float = float("inf")) -> dict[str, Any]:
        """What an agent did, up to a time; its last turn, where it only spoke, is its return."""
        me = self.states.setdefault(
            who, {"since": None, "inputs": [], "rests": None, "pending": None, "last": None}
        )
        if spawn is not None:
            me |= {"inputs": [*me["inputs"], spawn], "since": self.rows[spawn][2], "last": None}
        stream = self.s.streams.get(who, [])
        while self.at[who] < len(stream) and stream[self.at[who]][1] <= until:
            kind, t, what = stream[self.at[who]]
            self.at[who] += 1
            getattr(self, "on_" + kind)(who, me, t, what)
        return me

    def wait(self, me: dict[str, Any], t: float) -> None:
        me["since"] = t if me["since"] is None else max(me["since"], t)

    def on_begin(self, who: str, me: dict[str, Any], t: float, what: Any) -> None:
        pass

    def on_injected(self, who: str, me: dict[str, Any], t: float, what: Any) -> None:
        self.wait(me, t)

    def on_command(self, who: str, me: dict[str, Any], t: float, what: Any) -> None:
        me["pending"] = t

    def on_prompt(self, who: str, me: dict[str, Any], t: float, what: Any) -> None:
        me["pending"] = None
        since = t
        if who != "main":  # what it is told when it is resumed
            me["inputs"].append(self.add("point", self.agents[who]["parent"], t))
            self.wait(me, t)
            return
        self.task, self.prompts = self.prompts, self.prompts + 1
        if me["rests"] is not None:
            since = min(me["rests"][1], t)
        row = self.add("prompt", "person", since, None if me["rests"] is None else t)
        if me["rests"] is not None:
            self.causes[row].add(me["rests"][0])
        me["rests"] = None
        me["inputs"].append(row)
        self.wait(me, t)

    def on_interrupt(self, who: str, me: dict[str, Any], t: float, what: Any) -> None:
        self.interrupts += 1
        row = self.add("point", "person", t)
        self.causes[row] |= {
            i for i, r in enumerate(self.rows[:row]) if r[1] == who and (r[3] or r[2]) <= t
        }  # what it interrupts
        me["rests"] = (row, t)
        me["inputs"].append(row)
        self.wait(me, t)

    def on_compaction(self, who: str, me: dict[str, Any], t: float, what: Any) -> None:
        self.compactions += 1
        self.compacted[who] += 1
        self.add("compaction", who, t)
        self.wait(me, t)

    def on_stopped(self, who: str, me: dict[str, Any], t: float, what: Any) -> None:
        self.denials += 1
        me["inputs"].append(self.add("point", who, t))
        self.wait(me, t)

    def on_notice(self, who: str, me: dict[str, Any], t: float, what: str) -> None:
        if what in self.unread:
            self.unread.discard(what)
            me["inputs"].append(self.returned[what])
        self.wait(me, t)

    def on_turn(self, who: str, me: dict[str, Any], t: float, id: str) -> None:
        if me["pending"] is not None and who == "main":
            self.on_prompt(who, me, me["pending"], None)
        turn = self.s.turns[id]
        begun = turn["t"] if me["since"] is None or me["since"] > turn["t"] else me["since"]
        end = min(
            [turn["end"], *(self.s.calls[c]["t"] for c in turn["calls"])]
        )  # until the first call that it makes
        row = self.add("model", who, begun, max(begun, end))
        self.turn_rows[id] = row
        self.causes[row] |= set(me["inputs"])
        me["inputs"], me["last"], me["since"] = [], id, None
        me["rests"] = None if turn["calls"] else (row, turn["end"])

    def on_call(self, who: str, me: dict[str, Any], t: float, id: str) -> None:
        call, result = self.s.calls[id], self.s.results.get(id)
        launch, by = call["tool"] in ("Task", "Agent"), self.turn_rows[call["turn"]]
        begun, end = t, t if launch or call["tool"] in ASKS or refused(result) else None
        if end is None and result is not None:
            end = result["t"]
            started = self.s.began.get(id)
            if started is None and call["tool"] in EDITS:
                started = end
            elif started is None and call["tool"] == "Bash" and self.s.began:
                started = end - 3
            if started is not None and min(started, end) - t >= 5:
                leave = self.add("approved", "person", t, min(started, end))
                self.causes[leave].add(by)
                begun = min(started, end)
        row = self.row_of_call[id] = self.add("tool", who, begun, end, call["tool"])
        self.causes[row].add(by if begun == t else leave)
        if launch and not (result and result["failed"] and not self.s.streams.get(self.s.agent_of.get(id, ""))):
            self.launch(who, id, row, t)
        if id in self.early:
            self.on_result(*self.early.pop(id), id)

    def launch(self, who: str, id: str, row: int, t: float) -> None:
        name = self.s.agent_of.get(id) or f"agent of {id}"
        result = self.s.results.get(id)
        stated = result["stated"] if result and isinstance(result["stated"], dict) else {}
        alone = stated.get("isAsync") or stated.get("status") == "async_launched"
        agent = self.agents.setdefault(
            name, {"parent": who, "rounds": [], "task": self.s.calls[id]["input"].get("description")}
        )
        spawn = self.add("point", who, t)
        self.causes[spawn].add(row)
        ended = self.s.notices.get(name, (None, ""))[0] if alone else result["t"] if result else None
        again = any(a == name and c != id and c not in self.row_of_call for c, a in self.s.agent_of.items())
        present = self.at[name] < len(self.s.streams.get(name, []))
        me = (
            self.walk(name, spawn, ended if again and ended is not None else float("inf"))
            if present
            else {"last": None}
        )
        one = {
            "stated": stated,
            "alone": alone,
            "notice": self.s.notices[name][1] if alone and name in self.s.notices else "",
        }
        agent["rounds"].append(one)
        if ended is None:
            return
        one["failed"] = (
            bool(result and result["failed"])
            or re.search(r"<status>\s*(failed|stopped|killed)", one["notice"]) is not None
        )
        last = me["last"]
        if last is not None and not self.s.turns[last]["calls"]:
            back = self.turn_rows[last]
        elif present:
            back = self.add("point", name, ended)
        else:
            took = figures_of(one).get("duration_ms")
            back = self.add("unseen", name, t if took is None else max(t, ended - took / 1000), ended)
            self.causes[back].add(spawn)
        one["back"] = self.returned[name] = back
        match = re.search(r"<result>(.*?)(?:</result>|\Z)", one["notice"], re.DOTALL)
        one["text"] = match[1] if match else "" if alone else texts(result["content"]) if result else ""
        if last is not None and self.rows[back][0] == "model" and self.s.turns[last]["texts"]:
            one["text"] = "\n".join(self.s.turns[last]["texts"])
        if alone:
            self.unread.add(name)
        else:
            self.backs[id] = back

    def on_result(self, who: str, me: dict[str, Any], t: float, id: str) -> None:
        result, call = self.s.results[id], self.s.calls[id]
        if id not in self.row_of_call:  # the log has it before its call
            self.early[id] = who, me, t
            return
        row = self.row_of_call[id]
        why = refused(result)
        if why == "denied":
            self.denials += 1
        elif why or call["tool"] in ASKS:
            self.refusals += bool(why)
            answer = self.add("answered", "person", min(self.rows[row][2], t), t)
            self.causes[answer].add(row)
            if why:
                me["rests"] = (answer, t)
            row = answer
        point = self.add("point", who, t)
        self.causes[point] |= {row, self.row_of_call[id]}
        if id in self.backs:
            self.causes[point].add(self.backs[id])
        me["inputs"].append(point)
        self.wait(me, t)


def figures_of(one: dict[str, Any]) -> dict[str, Any]:
    """What is stated of a sub-agent's work at the end of one launch: calls, context, milliseconds."""
    s = one["stated"]
    figures = {
        "tool_uses": s.get("totalToolUseCount"),
        "context": s.get("totalTokens"),
        "duration_ms": s.get("totalDurationMs"),
    }
    for name, key in (
        ("subagent_tokens", "context"),
        ("total_tokens", "context"),
        ("tool_uses", "tool_uses"),
        ("duration_ms", "duration_ms"),
    ):
        match = re.search(rf"<{name}>(\d+)</{name}>", one["notice"])
        if match:
            figures[key] = int(match[1])
    return {k: v for k, v in figures.items() if v is not None}


# ---- figures


def union(spans: Iterable[tuple[float, float]]) -> float:
    total, until = 0.0, float("-inf")
    for begun, end in sorted(spans):
        total += max(0.0, end - max(begun, until))
        until = max(until, end)
    return total


def clock(e: Events) -> dict[str, float]:
    rows = [r for r in e.rows if r[3] is not None and r[3] > r[2]]
    person = ("prompt", "approved", "answered")
    waits = ("wait_agent", "TaskOutput", "AgentOutputTool")
    order = [
        lambda r: r[0] == "model",
        lambda r: r[0] == "tool" and r[4] not in waits,
        lambda r: r[0] == "unseen",
        lambda r: r[0] == "tool",
        lambda r: r[0] in person,
    ]
    parts, covered = [], 0.0
    for n in range(len(order)):
        total = union((r[2], r[3]) for r in rows if any(such(r) for such in order[: n + 1]))
        parts.append(total - covered)
        covered = total
    wall = max(r[3] or r[2] for r in e.rows) - min(r[2] for r in e.rows)
    team = [r for r in rows if r[0] not in person]
    steps = sorted({t for r in team for t in (r[2], r[3])})
    busy = [len({r[1] for r in team if r[2] <= a and r[3] >= b}) for a, b in pairwise(steps)]
    width = [b - a for a, b in pairwise(steps)]
    lasted = sum(w for n, w in zip(busy, width, strict=True) if n)
    return {
        "wall": wall,
        "model": parts[0],
        "tools": parts[1] + parts[3],
        "unseen": parts[2],
        "person": parts[4],
        "idle": wall - covered,
        "prompts": union((r[2], r[3]) for r in rows if r[0] == "prompt"),
        "approvals": union((r[2], r[3]) for r in rows if r[0] in ("approved", "answered")),
        "serial": sum(r[3] - r[2] for r in team),
        "most_at_once": max(busy, default=0),
        "mean_at_once": sum(n * w for n, w in zip(busy, width, strict=True)) / lasted if lasted else float("nan"),
    }


def critical(e: Events) -> float:
    """The longest chain: what an event answers, and the last of its agent's events before it that had ended."""
    order = sorted(range(len(e.rows)), key=lambda i: (e.rows[i][2], e.rows[i][3] or e.rows[i][2], i))
    done: dict[int, float] = {}
    mine: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def finish(i: int) -> float:
        if i not in done:
            _, who, begun, end, *_ = e.rows[i]
            before = [finish(c) for c in e.causes[i] if c != i]
            before += [f for at, f in reversed(mine[who]) if at <= begun][:1]
            done[i] = max(before, default=0.0) + ((end or begun) - begun)
            mine[who].append((end or begun, done[i]))
        return done[i]

    return max(finish(i) for i in order)


def priced(table: list[dict[str, Any]], model: str, usage: dict[str, float], day: str) -> tuple[float, bool]:
    """What a turn cost, and whether that is all of it."""
    if not any(usage.get(k) for k in (*KINDS, "hour")):
        return 0.0, all(usage.get(k) is not None for k in ("input_tokens", "output_tokens"))
    name = re.sub(r"-\d{8}$", "", model.partition("[")[0])
    rows = [r for r in table if name in r["models"] and str(r.get("since", "")) <= day]
    if not rows:
        return float("nan"), False
    row = max(rows, key=lambda r: str(r.get("since", "")))
    given = sum(usage.get(k) or 0 for k in KINDS[:3])
    if "above" in row and given > row["above"]["tokens"]:
        row = row["above"]
    hour = usage.get("hour") or 0
    write = (usage.get("cache_creation_input_tokens") or 0) - hour
    figures = {
        "input": usage.get("input_tokens"),
        "cache_write": write,
        "cache_write_1h": hour,
        "cache_read": usage.get("cache_read_input_tokens"),
        "output": usage.get("output_tokens"),
    }
    cost = sum((figures[k] or 0) * row[k] for k in figures if figures[k] and k in row) / 1e6
    whole = figures["output"] is not None and all(k in row for k in figures if figures[k])
    return cost, whole and not (write and usage.get("hour") is None)


def bills(s: Session, e: Events, table: list[dict[str, Any]], day: str) -> list[dict[str, Any]]:
    """Every turn with what it used and cost; the last turns of sub-agents that only their results state are turns
    too."""
    bills = []
    for id, turn in s.turns.items():
        usage = dict(turn["usage"])
        if not turn["stop"]:
            usage.pop("output_tokens", None)
        bills.append(
            {
                "id": id,
                "who": turn["who"],
                "model": turn["model"],
                "usage": usage,
                "calls": turn["calls"],
                "row": e.turn_rows[id],
            }
        )
    for name, agent in e.agents.items():
        own = [t["model"] for t in s.turns.values() if t["who"] == name]
        for one in agent.get("rounds", []):
            usage = one["stated"].get("usage")
            if usage and not one["alone"] and "back" in one and e.rows[one["back"]][0] != "model":
                bills.append(
                    last_turn(name, usage, own[-1] if own else one["stated"].get("resolvedModel"), one["back"])
                )
    for one in bills:
        one["usd"], one["whole"] = priced(table, one["model"] or "", one["usage"], day)
    return bills


def last_turn(name: str, usage: dict[str, Any], model: str | None, row: int) -> dict[str, Any]:
    figures = {k: usage.get(k) for k in KINDS}
    figures["hour"] = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens")
    return {"id": None, "who": name, "model": model, "usage": figures, "calls": [], "row": row}


def tallied(turns: list[dict[str, Any]]) -> dict[str, Any]:
    def total(name: str) -> float:
        known = [t["usage"][name] for t in turns if t["usage"].get(name) is not None]
        return float(sum(known)) if known else float("nan")

    fresh, write, read = (total(k) for k in KINDS[:3])
    given = sum(v for v in (fresh, write, read) if v == v)
    prices = [t["usd"] for t in turns if t["usd"] == t["usd"]]
    return {
        "turns": len(turns),
        "input": fresh,
        "cache_write": write,
        "cache_read": read,
        "output": total("output_tokens"),
        "hit": read / given if given else float("nan"),
        "usd": sum(prices) if prices else float("nan"),
        "at_least": not all(t["whole"] for t in turns),
        "unwritten": sum(t["usage"].get("output_tokens") is None for t in turns),
    }


def agents(s: Session, e: Events, turns: list[dict[str, Any]], start: float) -> dict[str, dict[str, Any]]:
    by_agent = {}
    for name, agent in e.agents.items():
        mine = [t for t in turns if t["who"] == name]
        rounds = [figures_of(one) for one in agent.get("rounds", []) if "back" in one]
        uses = [r["tool_uses"] for r in rounds if "tool_uses" in r]
        sizes = [r["context"] for r in rounds if "context" in r]
        calls = [c for c in s.calls.values() if c["who"] == name]
        missing = name != "main" and ((not mine and not calls) or sum(uses) > len(calls))
        ordered = sorted(
            (t for t in mine if sum(t["usage"].get(k) or 0 for k in KINDS[:3])), key=lambda t: t["row"]
        )
        contexts = [sum(t["usage"].get(k) or 0 for k in KINDS[:3]) for t in ordered]
        spans = [(r[2], r[3]) for r in e.rows if r[1] == name and r[3] is not None]
        bill = tallied(mine)
        bill["at_least"] |= missing
        by_agent[name] = {
            "parent": agent["parent"],
            "missing": missing,
            "calls": len(calls),
            "task": agent.get("task"),
            "failed_calls": sum(
                bool(s.results.get(i, {}).get("failed")) for i, c in s.calls.items() if c["who"] == name
            ),
            "busy": union(spans) if spans else float("nan"),
            "context": [contexts[0], max(contexts), contexts[-1]] if contexts else None,
            "compactions": e.compacted[name],
            "tally": bill,
            "stated_calls": sum(uses) if uses else None,
            "stated_context": sizes[-1] if sizes else None,
        }
    return by_agent


def tools(s: Session, e: Events, turns: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    by_tool: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for id, call in s.calls.items():
        one, result = by_tool[call["tool"]], s.results.get(id)
        begun, end = e.rows[e.row_of_call[id]][2:4]
        one["calls"] += 1
        one["failed"] += bool(result and result["failed"])
        one["open"] += result is None
        one["seconds"] += (end or begun) - begun
    for turn in turns:
        for id in turn["calls"]:
            by_tool[s.calls[id]["tool"]]["usd"] += (
                turn["usd"] / len(turn["calls"]) if turn["usd"] == turn["usd"] else 0.0
            )
    return by_tool


def context_again(s: Session, e: Events, turns: list[dict[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """Turns that read again what the turn before had read, and how many tokens of it."""
    pairs = []
    breaks = [(r[1], i) for i, r in enumerate(e.rows) if r[0] == "compaction"]
    for name in {t["who"] for t in turns}:
        mine = sorted(
            (t for t in turns if t["who"] == name and t["usage"].get("cache_read_input_tokens") is not None),
            key=lambda t: t["row"],
        )
        mine = [t for t in mine if sum(t["usage"].get(k) or 0 for k in KINDS[:3])]
        for before, after in pairwise(mine):
            a, b = (sum(t["usage"].get(k) or 0 for k in KINDS[:3]) for t in (before, after))
            again = min(a, b) - after["usage"]["cache_read_input_tokens"]
            apart = any(before["row"] < i < after["row"] for _, i in breaks)
            if again >= 1000 and again >= 0.1 * a and not apart:
                pairs.append((after, again))
    return pairs


def paid_again(table: list[dict[str, Any]], day: str, pairs: list[tuple[dict[str, Any], float]]) -> float:
    """What reading a context again cost more than reading it from the cache."""
    total = 0.0
    for turn, again in pairs:
        name = re.sub(r"-\d{8}$", "", turn["model"])
        row = max(
            (r for r in table if name in r["models"] and str(r.get("since", "")) <= day),
            key=lambda r: str(r.get("since", "")),
        )
        hour = turn["usage"].get("hour") or 0
        for kind, much in (
            ("cache_write_1h", hour),
            ("cache_write", (turn["usage"].get("cache_creation_input_tokens") or 0) - hour),
            ("input", again),
        ):
            part = min(again, much)
            total += part * (row[kind] - row["cache_read"]) / 1e6 if part else 0.0
            again -= part
    return total


# ---- what was said


def own_words(text: str) -> set[str]:
    """Names of files, identifiers and numbers: words that are no plain words."""
    words = set()
    for word in re.split(r"[^\w./\\@#$%&*+~-]+", text):
        bare = re.split(r"[/\\]", word.strip(".-*~"))[-1]
        if len(bare) >= 4 and not (bare.isalpha() and (bare.islower() or bare.istitle() or bare.isupper())):
            words.add(bare)
    return words


def leaves(value: Any) -> list[str]:
    """Every text inside a value."""
    if isinstance(value, dict | list):
        return [text for inner in (value.values() if isinstance(value, dict) else value) for text in leaves(inner)]
    return [value] if isinstance(value, str) else []


def outputs(s: Session, e: Events, who: str) -> list[tuple[float, set[str]]]:
    """What an agent wrote, its texts and the inputs of its calls, and when it began to."""
    wrote = [(e.turn_rows[i], "\n".join(t["texts"])) for i, t in s.turns.items() if t["who"] == who]
    wrote += [(e.row_of_call[i], "\n".join(leaves(c["input"]))) for i, c in s.calls.items() if c["who"] == who]
    return [(e.rows[row][2], own_words(text)) for row, text in wrote]


def fates(s: Session, e: Events) -> dict[str, list[int]]:
    """Of each sub-agent that returned how many words of its own it brought up, and how many its parent wrote
    later."""
    shares = {}
    for name, agent in e.agents.items():
        rounds = [one for one in agent.get("rounds", []) if "back" in one]
        if not rounds:
            continue
        wrote = outputs(s, e, agent["parent"])
        own_all, later_all = 0, 0
        for one in rounds:
            came = e.rows[one["back"]][3] or e.rows[one["back"]][2]
            own = own_words(one["text"]).difference(*(w for t, w in wrote if t < came))
            later = set().union(*(w for t, w in wrote if t >= came))
            own_all, later_all = own_all + len(own), later_all + len(own & later)
        shares[name] = [own_all, later_all]
    return shares


def repeated(s: Session) -> int:
    """Calls that failed and were made again unchanged by the same agent."""
    same: dict[str, list[str]] = defaultdict(list)
    for id, call in s.calls.items():
        same[json.dumps([call["who"], call["tool"], call["input"]])].append(id)
    again = 0
    for ids in same.values():
        failed = [bool(s.results.get(i, {}).get("failed")) for i in ids]
        if any(failed):
            rest = failed[failed.index(True) :]
            again += rest.index(False) if False in rest else len(rest) - 1
    return again


def recount(lines: Iterable[str], table: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the first screen."""
    s = Session(lines)
    e = Events(s)
    start = min(r[2] for r in e.rows)
    day = datetime.fromtimestamp(start, UTC).date().isoformat()
    turns = bills(s, e, table, day)
    all_agents = agents(s, e, turns, start)
    bill = tallied(turns)
    missing = sum(a["missing"] for a in all_agents.values())
    bill["at_least"] |= missing > 0
    models = {
        m or "not recorded": tallied([t for t in turns if t["model"] == m]) for m in {t["model"] for t in turns}
    }
    again = context_again(s, e, turns)
    again_usd = paid_again(table, day, again) if again else 0.0
    return {
        "tasks": e.prompts,
        "clock": clock(e),
        "critical": critical(e),
        "spending": bill,
        "models": models,
        "missing_agents": missing,
        "agents": all_agents,
        "tools": tools(s, e, turns),
        "again": [len(again), sum(n for _, n in again), again_usd],
        "repeats": repeated(s),
        "trouble": {
            "calls": len(s.calls),
            "failed_calls": sum(bool(s.results.get(i, {}).get("failed")) for i in s.calls),
            "open_calls": sum(i not in s.results for i in s.calls),
            "interruptions": e.interrupts,
            "refusals": e.refusals,
            "denials": e.denials,
            "model_errors": sum(t["model"] == "<synthetic>" for t in s.turns.values()),
            "failed_agents": sum(any(one.get("failed") for one in a.get("rounds", [])) for a in e.agents.values()),
        },
        "compactions": e.compactions,
        "fates": fates(s, e),
    }
