"""Logs with something broken at random: `python -m bench.exchange_mutants [--full] [--json]`.

Small logs of every format, written here, and at full size the real ones of ../shared/data/logs too (cut to their
first lines), are broken in one to three places: cut, mixed up, repeated, with other bytes and with other values.
Whatever is left must be read without a traceback and in time, obey the rules of a trace, and every line that is no
JSON any more must be named.
"""

from __future__ import annotations

import json
import lzma
import re
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np

from bench.exchange import LOGS, session
from bench.exchange_logs import SMALL
from bench.exchange_otlp import request, team
from bench.table import Row, at_most, command, fact
from podium.exchange.lines import LOOKED_AT
from podium.trace import files
from podium.trace.findings import Unreadable

__all__ = ["faults_of", "measure", "mutated", "seeds"]

MOST_BYTES = 1 << 15  # of a real log that are mutated
HANGS_S = 10.0
VALUES: list[Any] = [
    None,
    0,
    -1,
    1e308,
    2**70,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    True,
    "2026-13-45T99:99:99Z",
    [None],
    "toolu" * 50,
    "\x00",
    "é\U0001f600",
]


def codex() -> bytes:
    """Two threads' worth of records: a spawn, calls, counts, a compaction, a notice."""
    lines, second = [], count()

    def add(record: str, **payload: Any) -> None:
        t = f"2026-07-01T10:00:{next(second) % 60:02}Z"
        lines.append(json.dumps({"timestamp": t, "type": record, "payload": payload}, separators=(",", ":")))

    add("session_meta", id="t1", session_id="t1", cwd="/w", cli_version="0.1", source="cli")
    add("turn_context", model="m", turn_id="1")
    add("event_msg", type="user_message", message="do it")
    for i, name in enumerate(("exec", "spawn_agent", "wait_agent", "send_message", "close_agent")):
        add("response_item", type="reasoning", content=[])
        arguments = json.dumps({"message": "look", "target": "/root/look", "task_name": "look"})
        add("response_item", type="function_call", name=name, call_id=f"c{i}", arguments=arguments)
        if name == "spawn_agent":
            started = {"agent_thread_id": "t2", "agent_path": "/root/look", "kind": "started"}
            add("event_msg", type="sub_agent_activity", event_id=f"c{i}", occurred_at_ms=1, **started)
        add("response_item", type="function_call_output", call_id=f"c{i}", output='{"task_name": "/root/look"}')
        used = {"input_tokens": 9 * i, "cached_input_tokens": i, "output_tokens": i, "total_tokens": 10 * i}
        add("event_msg", type="token_count", info={"total_token_usage": used, "last_token_usage": used})
    final = [{"type": "input_text", "text": "Message Type: FINAL_ANSWER\nfound"}]
    add("response_item", type="agent_message", author="/root/look", recipient="/root", content=final)
    add("compacted", message="so far")
    add("event_msg", type="web_search_end", call_id="ws", query="q")
    add("response_item", type="web_search_call", status="completed", action={"type": "search"})
    add("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "done"}])
    add("event_msg", type="task_complete", last_agent_message="done")
    return "\n".join(lines).encode() + b"\n"


def langsmith() -> bytes:
    def run(id: str, parent: str | None, type: str, start: int, **more: Any) -> dict[str, Any]:
        times = {"start_time": f"2026-01-01T00:00:{start:02}Z", "end_time": f"2026-01-01T00:00:{start + 5:02}Z"}
        return {"id": id, "trace_id": "r", "parent_run_id": parent, "run_type": type, "name": id, **times, **more}

    model = run("m", "r", "llm", 1, prompt_tokens=9, extra={"metadata": {"ls_model_name": "m"}}, outputs={"x": 1})
    runs = [run("r", None, "chain", 0), model, run("s", "r", "tool", 2, inputs={"q": 1}, error="no")]
    return "".join(json.dumps(one | {"dotted_order": "x"}) + "\n" for one in runs).encode()


def langgraph() -> bytes:
    chunks = []
    for i, more in enumerate(({"input": {}, "triggers": ["x"]}, {"result": {}, "error": None, "interrupts": [{}]})):
        payload = {"id": "1", "name": "plan"} | more
        body = {"step": 0, "timestamp": f"2026-01-01T00:00:0{i}Z", "type": ("task", "task_result")[i]}
        chunks.append(["debug", body | {"payload": payload}])
    return json.dumps(chunks, indent=1).encode()


def openai_agents() -> bytes:
    def span(id: str, parent: str | None, start: int, **data: Any) -> dict[str, Any]:
        times = {"started_at": f"2026-01-01T00:00:{start:02}Z", "ended_at": f"2026-01-01T00:00:{start + 3:02}Z"}
        return {"object": "trace.span", "id": id, "trace_id": "t", "parent_id": parent, **times, "span_data": data}

    items = [
        {"object": "trace", "id": "t", "workflow_name": "w", "group_id": None},
        span("a", None, 0, type="agent", name="lead", handoffs=["b"], tools=[], output_type="str"),
        span("g", "a", 0, type="generation", model="m", usage={"input_tokens": 9, "output_tokens": 2}, output=[]),
        span("f", "a", 1, type="function", name="search", input="q", output="r"),
        span("h", "a", 2, type="handoff", from_agent="lead", to_agent="b"),
        span("b", None, 3, type="agent", name="b", handoffs=[], tools=[], output_type="str"),
        span("w", "b", 4, type="guardrail", name="safe", triggered=True),
    ]
    return "".join(json.dumps(item) + "\n" for item in items).encode()


def span_dump() -> bytes:
    spans = []
    for i, (kind, name) in enumerate((("AGENT", "lead"), ("LLM", "turn"), ("TOOL", "search"))):
        ids = {"context": {"trace_id": "0x1", "span_id": f"0x{i + 1}"}, "parent_id": "0x1" if i else None}
        times = {"start_time": f"2026-01-01T00:00:0{i}Z", "end_time": f"2026-01-01T00:00:0{i + 5}Z"}
        a = {
            "openinference.span.kind": kind,
            "llm.token_count.prompt": 9,
            "input.value": "in",
            "output.value": "out",
        }
        spans.append(ids | times | {"name": name, "attributes": a, "events": [], "links": [], "status": {}})
    return "".join(json.dumps(span) + "\n" for span in spans).encode()


def seeds(full: bool) -> dict[str, bytes]:
    """The logs to break, by their format; at full size real ones too."""
    small = {
        "claude_code": session(1, 4),
        "codex": codex(),
        "otlp": request(team(1, 0)[:9]) + request(team(2, 3)[:6]),
        "langsmith": langsmith(),
        "langgraph": langgraph(),
        "openai_agents": openai_agents(),
        "span_dump": span_dump(),
        **SMALL,
    }
    return small | (dict(real()) if full else {})


def real() -> Iterator[tuple[str, bytes]]:
    """The first lines of the real logs that an importer reads."""
    for folder in (
        "claude_code",
        "claude_code_old",
        "claude_code_subagents",
        "codex",
        "frameworks",
        "otel",
        "deerflow",
        "trail",
        "whowhen",
        "inspect",
        "copilot_cli",
    ):
        for path in sorted((LOGS / folder).rglob("*.*")) if (LOGS / folder).is_dir() else ():
            data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            cut = data[:MOST_BYTES].rfind(b"\n", 0, MOST_BYTES) + 1 if len(data) > MOST_BYTES else len(data)
            if cut and path.suffix != ".md" and path.name not in ("EXPECTED.json", "INDEX.json"):
                yield f"{folder}/{path.name}", data[:cut]


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The log with one to three things broken."""
    lines = data.splitlines(True)
    for _ in range(int(rng.integers(1, 4))):
        i, j = (int(k) for k in rng.integers(len(lines), size=2))
        at = int(rng.integers(len(lines[i]))) if lines[i] else 0
        match int(rng.integers(10)):
            case 0:
                lines[i] = lines[i][:at] + b"\n"
            case 1:
                lines[i] = lines[i][:at] + bytes([int(rng.integers(256))]) + lines[i][at + 1 :]
            case 2:
                lines[i] = lines[i].rstrip() + lines[j]
            case 3:
                lines.insert(i, lines[j])
            case 4:
                del lines[i]
                lines = lines or [b"\n"]
            case 5:
                lines[i], lines[j] = lines[j], lines[i]
            case 6:
                lines[i] = re.sub(rb"20\d\d-\d\d-\d\dT\d\d", b"20%02d-02-05T12" % rng.integers(100), lines[i])
            case 7:
                lines[i] = lines[i][:at] + lines[j][: int(rng.integers(200))] + lines[i][at:]
            case _:
                lines[i] = changed(lines[i], rng)
    return b"".join(lines)


def changed(line: bytes, rng: np.random.Generator) -> bytes:
    """The same line with another value somewhere."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    at = record
    while isinstance(at, (dict, list)) and len(at):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = keys[int(rng.integers(len(keys)))]
        if not isinstance(at[key], (dict, list)) or not at[key] or rng.random() < 0.3:
            if isinstance(at, dict) and rng.random() < 0.3:
                del at[key]
            else:
                at[key] = VALUES[int(rng.integers(len(VALUES)))]
            break
        at = at[key]
    return json.dumps(record).encode() + b"\n"


class Hang(Exception):
    pass


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """What a call returns; Hang where it takes longer, in processor time."""

    def stop(*_: Any) -> None:
        raise Hang(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def faults_of(path: Path, data: bytes, one_a_line: bool) -> list[str]:
    """What is not as promised of a broken log. `one_a_line`: the format has one JSON document a line."""
    path.write_bytes(data)
    if not data.strip(b" \t\r\n{}"):  # nothing is left: an empty document of ours
        return []
    try:
        reads = within(HANGS_S, lambda: list(files.read(path)))
    except Unreadable as error:
        return [] if "\n" not in str(error) else [f"more than one line: {error}"]
    except Exception as error:  # any: that is what is looked for
        return [f"{type(error).__name__}: {error}"]
    findings = [finding for read in reads for finding in read.findings]
    wrong = [
        f"an error of check: {finding.message}"
        for read in reads
        for finding in read.findings
        if finding.level == "error"
        and (read.trace is not None or len(read.findings) > 1)  # alone: no trace, one line
    ]
    known = not any(finding.rule == "log-unknown" for finding in findings)
    if one_a_line and known:
        named = {finding.file.rpartition(":")[2] for finding in findings}
        broken = list(broken_lines(data))
        if len(broken) >= min(LOOKED_AT, sum(map(bool, map(bytes.strip, data.split(b"\n"))))):
            broken = broken[:1]  # taken for one document, which is read up to there
        wrong += [f"line {line} is not named" for line in broken if str(line) not in named]
    return wrong


def broken_lines(data: bytes) -> Iterator[int]:
    """The lines that are no JSON."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                json.loads(line.decode(errors="replace").removeprefix("\ufeff"))
            except (ValueError, RecursionError):
                yield number


def one_a_line(data: bytes) -> bool:
    lines = [line for line in data.split(b"\n") if line.strip()]
    return len(lines) > 1 and not any(broken_lines(data))


def measure(full: bool) -> list[Row]:
    logs = seeds(full)
    names = [*logs]
    lined = {name: one_a_line(data) for name, data in logs.items()}
    many, wrong, longest = 100_000 if full else 360, [], 0.0
    with TemporaryDirectory() as folder:
        for seed in range(many):
            rng = np.random.default_rng(seed)
            name = names[seed % len(names)]
            path = Path(folder) / ("log.json" if not lined[name] else "log.jsonl")
            start = process_time()
            faults = faults_of(path, mutated(logs[name], rng), lined[name])
            longest = max(longest, process_time() - start)
            wrong += [f"{seed} {name}: {fault}" for fault in faults]
    for line in wrong[:20]:
        print(line, flush=True)
    return [
        at_most(
            "25.6.1",
            f"mutated logs of {many:,} with a traceback, a hang, an error of check or a broken line that is not "
            "named",
            len(wrong),
            0,
            "exact",
        ),
        fact("25.6.2", "logs that were mutated", len(logs)),
        fact("25.6.3", "seconds for the slowest", longest),
    ]


if __name__ == "__main__":
    command(measure, __doc__)
